//! Histograms of tensors, in TensorFlow's buckets.

use thalweg_formats::events::Histogram;
use thalweg_graph::{OpDef, Work, shape};
use thalweg_kernel::{AnyKernel, Family, KernelInit, KernelSpec};
use thalweg_proto as pb;
use thalweg_proto::summary::value::Value as Content;
use thalweg_tensor::{Result, Tensor, ensure};

use super::{for_each_number, set_summary, text, value};
use crate::parsing::scalar_string;

pub(crate) static FAMILY: Family = Family {
    ops: &[OpDef::new("HistogramSummary", shape::scalar)
        .with_work(Work::serial::<20>)
        .without_gradient()],
    kernels: &[KernelSpec { op: "HistogramSummary", create: histogram_summary, ..KernelSpec::CPU }],
};

fn histogram_summary(_: &KernelInit<'_>) -> Result<AnyKernel> {
    AnyKernel::new(|ctx| {
        let tag = text(&scalar_string(ctx, 0, "tag")?)?;
        let value = histogram_value(tag, ctx.input(1)?)?;
        set_summary(ctx, vec![value])
    })
}

/// The histogram of a tensor's elements.
pub(crate) fn histogram_value(tag: String, tensor: &Tensor) -> Result<pb::summary::Value> {
    let mut histogram = Histogram::new();
    for_each_number(tensor, |x| {
        ensure!(!x.is_nan(), InvalidArgument, "Nan in summary histogram for: {tag}");
        ensure!(x.is_finite(), InvalidArgument, "Infinity in summary histogram for: {tag}");
        histogram.add(x);
        Ok(())
    })?;
    Ok(value(tag, Content::Histo(histogram.into_proto())))
}

#[cfg(test)]
mod tests {
    use thalweg_tensor::Code;

    use super::super::tests::decoded;
    use super::*;
    use crate::testing::call;

    fn summarize(values: &[f32]) -> Result<Tensor> {
        call("HistogramSummary")
            .input(Tensor::scalar_string(&b"h"[..]))
            .input(Tensor::vector(values).unwrap())
            .run()
    }

    fn histogram(values: &[f32]) -> pb::HistogramProto {
        match decoded(summarize(values)).swap_remove(0).value {
            Some(Content::Histo(proto)) => proto,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn counts_and_moments() {
        let proto = histogram(&[1.0, 1.0, -2.0, 0.0]);
        assert_eq!((proto.min, proto.max, proto.num), (-2.0, 1.0, 4.0));
        assert_eq!((proto.sum, proto.sum_squares), (0.0, 6.0));
        assert_eq!(proto.bucket.iter().sum::<f64>(), 4.0);
        // Consecutive empty buckets are merged.
        let has_run = proto.bucket.windows(2).any(|w| w[0] == 0.0 && w[1] == 0.0);
        assert!(!has_run);
        assert_eq!(*proto.bucket_limit.last().unwrap(), f64::MAX);
    }

    #[test]
    fn empty_and_not_finite() {
        let proto = histogram(&[]);
        assert_eq!((proto.min, proto.max, proto.bucket.len()), (f64::MAX, -f64::MAX, 1));
        for bad in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
            assert_eq!(summarize(&[1.0, bad]).unwrap_err().code(), Code::InvalidArgument);
        }
    }
}
