//! WAV files of 16-bit linear PCM.

use thalweg_graph::shape::{self, ShapeContext};
use thalweg_graph::{OpDef, Work};
use thalweg_kernel::{AnyKernel, Family, KernelInit, KernelSpec};
use thalweg_tensor::{DType, PartialShape, Result, Shape, Tensor, bail, ensure, err};

use super::{scalar_string, set_scalar_string};
use crate::split::for_each_rows;

pub(crate) static FAMILY: Family = Family {
    ops: &[
        OpDef::new("DecodeWav", decoded_shape).with_work(Work::copies_outputs),
        OpDef::new("EncodeWav", encoded_shape).with_work(Work::serial::<2>),
    ],
    kernels: &[
        KernelSpec { op: "DecodeWav", create: decode_wav, ..KernelSpec::CPU },
        KernelSpec { op: "EncodeWav", create: encode_wav, ..KernelSpec::CPU },
    ],
};

fn encoded_shape(c: &mut ShapeContext<'_>) -> Result<()> {
    c.with_rank(0, "audio", 2)?;
    c.with_rank(1, "sample_rate", 0)?;
    shape::scalar(c)
}

fn decoded_shape(c: &mut ShapeContext<'_>) -> Result<()> {
    c.with_rank(0, "contents", 0)?;
    let channels = desired(c.attrs().int("desired_channels")?, "desired_channels")?;
    let samples = desired(c.attrs().int("desired_samples")?, "desired_samples")?;
    c.set_output(0, PartialShape::new([samples, channels]));
    c.set_output(1, PartialShape::scalar());
    Ok(())
}

/// A size from an attr; -1 means the file's own.
fn desired(value: i64, name: &str) -> Result<Option<usize>> {
    ensure!(value >= -1, InvalidArgument, "{name} must be >= -1, got {value}");
    Ok(usize::try_from(value).ok())
}

/// Sizes of the RIFF header and its chunks, in bytes.
const HEADER_BYTES: usize = 44;
const FORMAT_BYTES: u32 = 16;
const SAMPLE_BYTES: usize = 2;

/// Encodes `frames * channels` samples in -1..1, which are rounded and clipped, as a WAV file.
pub(crate) fn encode(audio: &[f32], channels: usize, sample_rate: i64) -> Result<Vec<u8>> {
    let rate = u32::try_from(sample_rate).ok().filter(|&rate| rate > 0).ok_or_else(|| {
        err!(InvalidArgument, "sample_rate must be in (0, 2^32), got: {sample_rate}")
    })?;
    let channels = u16::try_from(channels).ok().filter(|&n| n > 0).ok_or_else(|| {
        err!(InvalidArgument, "num_channels must be in (0, 2^16), got: {channels}")
    })?;
    let frame_bytes = u32::from(channels) * SAMPLE_BYTES as u32;
    let data_bytes = u32::try_from(audio.len() * SAMPLE_BYTES)
        .ok()
        .filter(|&n| n <= u32::MAX - HEADER_BYTES as u32)
        .ok_or_else(|| err!(InvalidArgument, "{} samples exceed a WAV file", audio.len()))?;
    let byte_rate = rate.checked_mul(frame_bytes).ok_or_else(|| {
        err!(InvalidArgument, "sample_rate * frame size must be < 2^32, got {rate} * {frame_bytes}")
    })?;
    let mut file = Vec::new();
    file.try_reserve_exact(HEADER_BYTES + data_bytes as usize)
        .map_err(|_| err!(ResourceExhausted, "no memory for a WAV file of {data_bytes} bytes"))?;
    file.extend_from_slice(b"RIFF");
    file.extend_from_slice(&(HEADER_BYTES as u32 - 8 + data_bytes).to_le_bytes());
    file.extend_from_slice(b"WAVEfmt ");
    file.extend_from_slice(&FORMAT_BYTES.to_le_bytes());
    file.extend_from_slice(&1u16.to_le_bytes()); // linear samples
    file.extend_from_slice(&channels.to_le_bytes());
    file.extend_from_slice(&rate.to_le_bytes());
    file.extend_from_slice(&byte_rate.to_le_bytes());
    file.extend_from_slice(&(frame_bytes as u16).to_le_bytes());
    file.extend_from_slice(&(8 * SAMPLE_BYTES as u16).to_le_bytes());
    file.extend_from_slice(b"data");
    file.extend_from_slice(&data_bytes.to_le_bytes());
    file.extend(audio.iter().flat_map(|&x| sample(x).to_le_bytes()));
    Ok(file)
}

/// The nearest 16-bit sample; `as` clips, and maps NaN to 0.
fn sample(x: f32) -> i16 {
    (x * 32768.0).round() as i16
}

fn encode_wav(_: &KernelInit<'_>) -> Result<AnyKernel> {
    AnyKernel::new(|ctx| {
        let audio = ctx.input(0)?;
        let &[_, channels] = audio.shape().dims() else {
            bail!(InvalidArgument, "audio must be 2-dimensional, got shape {}", audio.shape())
        };
        let rate = ctx.scalar_int(1, "sample_rate")?;
        ctx.budget().check(audio.num_elements() * SAMPLE_BYTES)?;
        let file = encode(audio.as_slice()?, channels, rate)?;
        set_scalar_string(ctx, 0, file)
    })
}

/// The content of a WAV file.
struct WavFile<'a> {
    channels: usize,
    sample_rate: u32,
    /// Whole frames of 16-bit samples.
    data: &'a [u8],
}

/// Reads a file sequentially.
struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    fn bytes(&mut self, n: usize) -> Result<&'a [u8]> {
        let Some((bytes, rest)) = self.rest.split_at_checked(n) else {
            bail!(InvalidArgument, "the WAV file ends {} bytes too early", n - self.rest.len())
        };
        self.rest = rest;
        Ok(bytes)
    }

    fn u16(&mut self) -> Result<u16> {
        let bytes = self.bytes(2)?;
        Ok(u16::from_le_bytes([bytes[0], bytes[1]]))
    }

    fn u32(&mut self) -> Result<u32> {
        let bytes = self.bytes(4)?;
        Ok(u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]))
    }

    fn expect(&mut self, word: &[u8; 4]) -> Result<()> {
        let found = self.bytes(4)?;
        ensure!(
            found == word,
            InvalidArgument,
            "a WAV file has {:?} here, this one has {:?}",
            String::from_utf8_lossy(word),
            String::from_utf8_lossy(found)
        );
        Ok(())
    }
}

fn read(file: &[u8]) -> Result<WavFile<'_>> {
    let mut reader = Reader { rest: file };
    reader.expect(b"RIFF")?;
    reader.u32()?; // the file's size, which many writers get wrong
    reader.expect(b"WAVE")?;
    let (channels, sample_rate, frame_bytes) = read_format(&mut reader)?;
    let mut data = None;
    while !reader.rest.is_empty() {
        let is_data = reader.bytes(4)? == b"data";
        let length = reader.u32()? as usize;
        if is_data {
            ensure!(data.is_none(), InvalidArgument, "More than one data chunk found in WAV");
            let bytes = reader.bytes(length)?;
            data = Some(&bytes[..length / frame_bytes * frame_bytes]);
        } else {
            reader.rest = &reader.rest[length.min(reader.rest.len())..];
        }
    }
    let data = data.ok_or_else(|| err!(InvalidArgument, "No data chunk found in WAV"))?;
    Ok(WavFile { channels, sample_rate, data })
}

/// The `fmt ` chunk: channels, frames per second, bytes per frame.
fn read_format(reader: &mut Reader<'_>) -> Result<(usize, u32, usize)> {
    reader.expect(b"fmt ")?;
    let length = reader.u32()?;
    ensure!(
        length == FORMAT_BYTES || length == FORMAT_BYTES + 2,
        InvalidArgument,
        "Bad format chunk size for WAV: Expected 16 or 18, but got {length}"
    );
    let format = reader.u16()?;
    let channels = reader.u16()?;
    let sample_rate = reader.u32()?;
    let bytes_per_second = reader.u32()?;
    let frame_bytes = reader.u16()?;
    let bits = reader.u16()?;
    if length > FORMAT_BYTES {
        reader.u16()?;
    }
    ensure!(
        format == 1,
        InvalidArgument,
        "Bad audio format for WAV: Expected 1 (PCM), but got {format}"
    );
    ensure!(
        channels > 0,
        InvalidArgument,
        "Bad number of channels for WAV: Expected at least 1, but got 0"
    );
    ensure!(bits == 16, InvalidArgument, "Can only read 16-bit WAV files, but received {bits}");
    let expected = usize::from(channels) * SAMPLE_BYTES;
    ensure!(
        usize::from(frame_bytes) == expected,
        InvalidArgument,
        "Bad bytes per sample in WAV header: Expected {expected} but got {frame_bytes}"
    );
    ensure!(
        u64::from(bytes_per_second) == u64::from(sample_rate) * expected as u64,
        InvalidArgument,
        "Bad bytes per second in WAV header: got {bytes_per_second} for {sample_rate} frames of \
         {expected} bytes"
    );
    Ok((channels.into(), sample_rate, expected))
}

fn decode_wav(init: &KernelInit<'_>) -> Result<AnyKernel> {
    let channels = desired(init.attrs().int("desired_channels")?, "desired_channels")?;
    let samples = desired(init.attrs().int("desired_samples")?, "desired_samples")?;
    AnyKernel::new(move |ctx| {
        let file = scalar_string(ctx, 0, "contents")?;
        let wav = read(&file)?;
        let frame_bytes = wav.channels * SAMPLE_BYTES;
        let width = channels.unwrap_or(wav.channels);
        let frames = samples.unwrap_or(wav.data.len() / frame_bytes);
        let mut audio = ctx.allocate(DType::Float, Shape::new(&[frames, width])?)?;
        for_each_rows(ctx, audio.as_mut_slice::<f32>()?, width, width as f64, |first, part| {
            let source = wav.data.chunks_exact(frame_bytes).skip(first).map(Some);
            let source = source.chain(std::iter::repeat(None));
            for (row, frame) in part.chunks_exact_mut(width).zip(source) {
                let Some(frame) = frame else {
                    row.fill(0.0);
                    continue;
                };
                for (c, x) in row.iter_mut().enumerate() {
                    // Channels that the file does not have repeat its last one.
                    let at = c.min(wav.channels - 1) * SAMPLE_BYTES;
                    let value = i16::from_le_bytes([frame[at], frame[at + 1]]);
                    *x = f32::from(value) / 32768.0;
                }
            }
        })?;
        let rate = wav.sample_rate as i32;
        ctx.set_output(0, audio)?;
        ctx.set_output(1, Tensor::scalar(rate))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{call, code};
    use thalweg_tensor::Code;

    fn file() -> Vec<u8> {
        encode(&[0.5, -0.5, 1.0, -2.0], 2, 8000).unwrap()
    }

    fn decode(file: Vec<u8>, channels: i64, samples: i64) -> Result<Tensor> {
        call("DecodeWav")
            .input(Tensor::scalar_string(file))
            .attr("desired_channels", channels)
            .attr("desired_samples", samples)
            .run()
    }

    #[test]
    fn samples_are_rounded_and_clipped() {
        for (x, expected) in [
            (0.5, 16384),
            (1.0, 32767),
            (-1.0, -32768),
            (-2.0, -32768),
            (f32::NAN, 0),
            (1.526e-5, 1),
        ] {
            assert_eq!(sample(x), expected, "{x}");
        }
    }

    #[test]
    fn files_come_back_cut_or_padded() {
        let whole = decode(file(), -1, -1).unwrap();
        assert_eq!(whole.shape().dims(), [2, 2]);
        assert_eq!(whole.as_slice::<f32>().unwrap(), [0.5, -0.5, 32767.0 / 32768.0, -1.0]);
        let wide = decode(file(), 3, 3).unwrap();
        let max = 32767.0 / 32768.0;
        assert_eq!(
            wide.as_slice::<f32>().unwrap(),
            [0.5, -0.5, -0.5, max, -1.0, -1.0, 0.0, 0.0, 0.0]
        );
        assert_eq!(decode(file(), 1, 1).unwrap().as_slice::<f32>().unwrap(), [0.5]);
        assert_eq!(decode(file(), 0, 2).unwrap().shape().dims(), [2, 0]);
    }

    #[test]
    fn hostile_files() {
        let good = file();
        for cut in 0..good.len() {
            assert_eq!(code(read(&good[..cut])), Some(Code::InvalidArgument), "{cut}");
        }
        // Corrupts every byte of the header.
        for at in 0..44 {
            for byte in [0, 1, 0x7f, 0xff] {
                let mut file = good.clone();
                file[at] = byte;
                if let Ok(wav) = read(&file) {
                    assert!(wav.data.len() <= 8 && wav.channels > 0, "byte {at} is {byte}");
                }
            }
        }
        assert_eq!(code(decode(good, -5, -1)), Some(Code::InvalidArgument));
        assert!(encode(&[], 0, 1).is_err() && encode(&[], 1, 0).is_err());
        assert!(encode(&[], 1 << 16, 1).is_err() && encode(&[], 1, -1).is_err());
    }
}
