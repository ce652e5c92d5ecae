//! `AudioSummary`.

use thalweg_graph::{OpDef, Work, shape};
use thalweg_kernel::{AnyKernel, Family, KernelContext, KernelInit, KernelSpec};
use thalweg_proto as pb;
use thalweg_proto::summary::value::Value as Content;
use thalweg_tensor::{Result, Tensor, bail, ensure};

use super::{numbered_tag, set_summary, text, value};
use crate::parsing::{scalar_string, wav};

pub(crate) static FAMILY: Family = Family {
    ops: &[
        OpDef::new("AudioSummary", shape::scalar).with_work(Work::serial::<2>).without_gradient(),
        OpDef::new("AudioSummaryV2", shape::scalar).with_work(Work::serial::<2>).without_gradient(),
    ],
    kernels: &[
        KernelSpec { op: "AudioSummary", create: audio_summary, ..KernelSpec::CPU },
        KernelSpec { op: "AudioSummaryV2", create: audio_summary_v2, ..KernelSpec::CPU },
    ],
};

fn audio_summary(init: &KernelInit<'_>) -> Result<AnyKernel> {
    let sample_rate = init.attrs().float("sample_rate")?;
    let max_outputs = init.attrs().int("max_outputs")?;
    AnyKernel::new(move |ctx| summarize(ctx, sample_rate, max_outputs))
}

fn audio_summary_v2(init: &KernelInit<'_>) -> Result<AnyKernel> {
    let max_outputs = init.attrs().int("max_outputs")?;
    AnyKernel::new(move |ctx| {
        let sample_rate = ctx.input(2)?.scalar_value::<f32>()?;
        summarize(ctx, sample_rate, max_outputs)
    })
}

fn summarize(ctx: &mut KernelContext<'_>, sample_rate: f32, max_outputs: i64) -> Result<()> {
    let tag = text(&scalar_string(ctx, 0, "tag")?)?;
    let values = audio_values(ctx, &tag, ctx.input(1)?, sample_rate, max_outputs)?;
    set_summary(ctx, values)
}

/// One summary value for each of the first audio clips of a batch.
pub(crate) fn audio_values(
    ctx: &KernelContext<'_>,
    tag: &str,
    tensor: &Tensor,
    sample_rate: f32,
    max_outputs: i64,
) -> Result<Vec<pb::summary::Value>> {
    let (batch, frames, channels) = match *tensor.shape().dims() {
        [batch, frames] => (batch, frames, 1),
        [batch, frames, channels] => (batch, frames, channels),
        _ => bail!(InvalidArgument, "tensor must be 3-D or 2-D, got shape {}", tensor.shape()),
    };
    ensure!(sample_rate > 0.0, InvalidArgument, "sample_rate must be > 0, got {sample_rate}");
    let audio = tensor.as_slice::<f32>()?;
    let count = batch.min(usize::try_from(max_outputs).unwrap_or(0));
    ctx.budget().check(count * frames * channels * 2)?;
    let mut values = Vec::new();
    for i in 0..count {
        let one = &audio[i * frames * channels..(i + 1) * frames * channels];
        let file = wav::encode(one, channels, sample_rate.ceil() as i64)?;
        let sound = pb::summary::Audio {
            sample_rate,
            num_channels: channels as i64,
            length_frames: frames as i64,
            encoded_audio_string: file.into(),
            content_type: "audio/wav".into(),
        };
        values.push(value(numbered_tag(tag, "audio", i, max_outputs), Content::Audio(sound)));
    }
    Ok(values)
}

#[cfg(test)]
mod tests {
    use thalweg_tensor::{Code, DType, Shape};

    use super::super::tests::decoded;
    use super::*;
    use crate::testing::{call, code};

    fn audio(dims: &[usize], rate: f32, max: i64) -> Result<Tensor> {
        call("AudioSummaryV2")
            .input(Tensor::scalar_string(&b"a"[..]))
            .input(Tensor::zeros(DType::Float, Shape::new(dims).unwrap()).unwrap())
            .input(Tensor::scalar(rate))
            .attr("max_outputs", max)
            .run()
    }

    #[test]
    fn one_value_per_sound() {
        let tags = |dims: &[usize], max| {
            let values = decoded(audio(dims, 8000.0, max));
            values.into_iter().map(|v| v.tag).collect::<Vec<_>>()
        };
        assert_eq!(tags(&[2, 5], 3), ["a/audio/0", "a/audio/1"]);
        assert_eq!(tags(&[2, 5, 2], 1), ["a/audio"]);
        assert!(tags(&[0, 5, 2], 1).is_empty());
    }

    #[test]
    fn bad_sounds() {
        for dims in [&[5][..], &[1, 5, 0], &[1, 5, 1 << 16], &[1, 1, 1, 1]] {
            assert_eq!(code(audio(dims, 8000.0, 3)), Some(Code::InvalidArgument), "{dims:?}");
        }
        for rate in [0.0, -1.0, f32::NAN, f32::INFINITY] {
            assert_eq!(code(audio(&[1, 5], rate, 3)), Some(Code::InvalidArgument), "{rate}");
        }
    }
}
