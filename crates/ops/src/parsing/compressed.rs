//! `DecodeCompressed`.

use flate2::{Decompress, FlushDecompress, Status};
use thalweg_graph::{OpDef, Work, shape};
use thalweg_kernel::{AnyKernel, Family, KernelInit, KernelSpec};
use thalweg_tensor::{Result, bail, charge_string, err};

pub(crate) static FAMILY: Family = Family {
    ops: &[OpDef::new("DecodeCompressed", shape::unchanged).with_work(Work::serial::<2000>)],
    kernels: &[KernelSpec { op: "DecodeCompressed", create: decode_compressed, ..KernelSpec::CPU }],
};

/// Bytes of output per call of the decompressor.
const STEP_BYTES: usize = 64 << 10;

/// Maximum window size of zlib and gzip, in bits.
const WINDOW_BITS: u8 = 15;

fn decode_compressed(init: &KernelInit<'_>) -> Result<AnyKernel> {
    let is_gzip = match &init.attrs().bytes("compression_type")?[..] {
        b"" => return AnyKernel::new(crate::array_sources::forward),
        b"ZLIB" => false,
        b"GZIP" => true,
        b"ZSTD" => bail!(Unimplemented, "DecodeCompressed does not support ZSTD"),
        other => bail!(
            InvalidArgument,
            "Only ZLIB, GZIP or NONE are supported compressions, got '{}'",
            String::from_utf8_lossy(other)
        ),
    };
    AnyKernel::new(move |ctx| {
        let input = ctx.input(0)?;
        let mut output = ctx.zeros(input.dtype(), input.shape().clone())?;
        let may_grow = |bytes: usize| {
            ctx.check_cancelled()?;
            ctx.budget().check(bytes)
        };
        for (target, source) in output.strings_mut()?.iter_mut().zip(input.strings()?) {
            let content = inflate(source, is_gzip, &may_grow)?;
            *target = charge_string(content, ctx.budget())?;
        }
        ctx.set_output(0, output)
    })
}

/// Decompresses a stream. As in TensorFlow, a truncated stream gives its decompressed part. The
/// output may be far larger than the input: `may_grow` is called before the content takes more
/// memory.
fn inflate(
    source: &[u8],
    is_gzip: bool,
    may_grow: &dyn Fn(usize) -> Result<()>,
) -> Result<Vec<u8>> {
    let start = || match is_gzip {
        true => Decompress::new_gzip(WINDOW_BITS),
        false => Decompress::new(true),
    };
    let mut content: Vec<u8> = Vec::new();
    let (mut stream, mut rest) = (start(), source);
    loop {
        // A growing vector doubles, and both copies exist for a moment.
        may_grow(3 * content.len() + STEP_BYTES)?;
        content
            .try_reserve(STEP_BYTES)
            .map_err(|_| err!(ResourceExhausted, "no memory for the decompressed string"))?;
        let (before, length) = (stream.total_in(), content.len());
        let status = stream
            .decompress_vec(rest, &mut content, FlushDecompress::None)
            .map_err(|e| err!(DataLoss, "a compressed string is damaged: {e}"))?;
        let read = (stream.total_in() - before) as usize;
        rest = &rest[read..];
        match status {
            // Gzip members may be concatenated; bytes after a zlib stream are ignored.
            Status::StreamEnd if is_gzip && !rest.is_empty() => stream = start(),
            Status::StreamEnd => break,
            _ if read == 0 && content.len() == length => break,
            _ => {}
        }
    }
    Ok(content)
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use flate2::Compression;
    use thalweg_tensor::{Bytes, Code, Tensor};

    use super::*;
    use crate::testing::call;

    fn decode(bytes: Vec<u8>, kind: &str) -> Result<Bytes> {
        let node = call("DecodeCompressed").input(Tensor::scalar_string(bytes));
        Ok(node.attr("compression_type", kind).run()?.strings()?[0].clone())
    }

    fn zlib(content: &[u8]) -> Vec<u8> {
        let mut encoder = flate2::write::ZlibEncoder::new(Vec::new(), Compression::default());
        encoder.write_all(content).unwrap();
        encoder.finish().unwrap()
    }

    fn gzip(content: &[u8]) -> Vec<u8> {
        let mut encoder = flate2::write::GzEncoder::new(Vec::new(), Compression::default());
        encoder.write_all(content).unwrap();
        encoder.finish().unwrap()
    }

    #[test]
    fn streams_come_back() {
        let large = b"0123456789abcdef".repeat(1 << 16);
        assert_eq!(decode(zlib(&large), "ZLIB").unwrap(), large);
        assert_eq!(decode(gzip(&large), "GZIP").unwrap(), large);
        assert_eq!(decode(zlib(b""), "ZLIB").unwrap(), b""[..]);
        assert_eq!(decode([gzip(b"hello"), gzip(b"w")].concat(), "GZIP").unwrap(), b"hellow"[..]);
        assert_eq!(
            decode([zlib(b"hello"), b"xx".to_vec()].concat(), "ZLIB").unwrap(),
            b"hello"[..]
        );
        assert_eq!(decode(b"plain".to_vec(), "").unwrap(), b"plain"[..]);
        assert_eq!(decode(Vec::new(), "ZLIB").unwrap(), b""[..]);
    }

    #[test]
    fn damage() {
        let good = zlib(&b"hello".repeat(100));
        let cut = decode(good[..good.len() - 6].to_vec(), "ZLIB").unwrap();
        assert!(b"hello".repeat(100).starts_with(&cut));
        let mut wrong_sum = good.clone();
        *wrong_sum.last_mut().unwrap() ^= 1;
        for (bytes, kind) in
            [(wrong_sum, "ZLIB"), (b"hello world".to_vec(), "GZIP"), (gzip(b"x"), "ZLIB")]
        {
            assert_eq!(decode(bytes, kind).unwrap_err().code(), Code::DataLoss);
        }
        assert_eq!(decode(good, "SNAPPY").unwrap_err().code(), Code::InvalidArgument);
    }

    #[test]
    fn a_bomb_meets_the_memory_limit() {
        let bomb = zlib(&vec![0; 4 << 20]);
        assert!(bomb.len() < 1 << 16);
        let limit = |bytes: usize| match bytes {
            0..=0x10_0000 => Ok(()),
            _ => bail!(ResourceExhausted, "{bytes} bytes"),
        };
        assert_eq!(inflate(&bomb, false, &limit).unwrap_err().code(), Code::ResourceExhausted);
    }
}
