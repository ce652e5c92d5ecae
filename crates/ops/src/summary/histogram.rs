//! Histograms of tensors, in TensorFlow's buckets.

use std::sync::OnceLock;

use thalweg_graph::{Gradient, OpDef, shape};
use thalweg_kernel::{AnyKernel, Family, KernelInit, KernelSpec};
use thalweg_proto as pb;
use thalweg_proto::summary::value::Value as Content;
use thalweg_tensor::{Result, ensure};

use super::{for_each_number, set_summary, text, value};
use crate::parsing::scalar_string;

pub(crate) static FAMILY: Family = Family {
    ops: &[HISTOGRAM_SUMMARY],
    kernels: &[KernelSpec { op: "HistogramSummary", create: histogram_summary, ..KernelSpec::CPU }],
};

const HISTOGRAM_SUMMARY: OpDef = OpDef {
    name: "HistogramSummary",
    inputs: &["tag: string", "values: T"],
    outputs: &["summary: string"],
    attrs: &["T: {float, double, int32, uint8, int16, int8, int64, bfloat16, uint16, half, \
              uint32, uint64} = DT_FLOAT"],
    shape: shape::scalar,
    gradient: Gradient::None,
    ..OpDef::DEFAULT
};

/// Upper ends of the buckets, ascending: powers of 1.1 from 1e-12 to 1e20 on both sides of zero,
/// then everything else.
fn bucket_limits() -> &'static [f64] {
    static LIMITS: OnceLock<Vec<f64>> = OnceLock::new();
    LIMITS.get_or_init(|| {
        let powers = std::iter::successors(Some(1.0e-12), |v| Some(v * 1.1));
        let mut positive: Vec<f64> = powers.take_while(|&v| v < 1.0e20).collect();
        positive.push(f64::MAX);
        let negative = positive.iter().rev().map(|v| -v);
        negative.chain([0.0]).chain(positive.iter().copied()).collect()
    })
}

/// Counts of values by bucket.
pub(crate) struct Histogram {
    counts: Vec<f64>,
    proto: pb::HistogramProto,
}

impl Histogram {
    pub(crate) fn new() -> Self {
        let proto = pb::HistogramProto { min: f64::MAX, max: -f64::MAX, ..Default::default() };
        Histogram { counts: vec![0.0; bucket_limits().len()], proto }
    }

    pub(crate) fn add(&mut self, x: f64) {
        let bucket = bucket_limits().partition_point(|&limit| limit <= x);
        self.counts[bucket.min(bucket_limits().len() - 1)] += 1.0;
        let proto = &mut self.proto;
        proto.min = proto.min.min(x);
        proto.max = proto.max.max(x);
        proto.num += 1.0;
        proto.sum += x;
        proto.sum_squares += x * x;
    }

    /// The message; a run of empty buckets becomes one.
    pub(crate) fn into_proto(self) -> pb::HistogramProto {
        let mut proto = self.proto;
        let mut buckets = bucket_limits().iter().zip(&self.counts).peekable();
        while let Some((&limit, &count)) = buckets.next() {
            let is_inside_run =
                count <= 0.0 && buckets.peek().is_some_and(|(_, next)| **next <= 0.0);
            if !is_inside_run {
                proto.bucket_limit.push(limit);
                proto.bucket.push(count);
            }
        }
        proto
    }
}

fn histogram_summary(_: &KernelInit<'_>) -> Result<AnyKernel> {
    AnyKernel::new(|ctx| {
        let tag = text(&scalar_string(ctx, 0, "tag")?)?;
        let mut histogram = Histogram::new();
        for_each_number(ctx.input(1)?, |x| {
            ensure!(!x.is_nan(), InvalidArgument, "Nan in summary histogram for: {tag}");
            ensure!(x.is_finite(), InvalidArgument, "Infinity in summary histogram for: {tag}");
            histogram.add(x);
            Ok(())
        })?;
        set_summary(ctx, vec![value(tag, Content::Histo(histogram.into_proto()))])
    })
}

#[cfg(test)]
mod tests {
    use thalweg_tensor::{Code, Tensor};

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
    fn limits_ascend() {
        assert!(bucket_limits().is_sorted_by(|a, b| a < b));
        assert_eq!(bucket_limits().len() % 2, 1);
    }

    #[test]
    fn counts_and_moments() {
        let proto = histogram(&[1.0, 1.0, -2.0, 0.0]);
        assert_eq!((proto.min, proto.max, proto.num), (-2.0, 1.0, 4.0));
        assert_eq!((proto.sum, proto.sum_squares), (0.0, 6.0));
        assert_eq!(proto.bucket.iter().sum::<f64>(), 4.0);
        // Runs of empty buckets are one bucket: none stands beside another.
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
