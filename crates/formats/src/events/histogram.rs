//! Histograms with TensorFlow's default buckets.

use std::sync::OnceLock;

use thalweg_proto as pb;

/// Upper bounds of the buckets, ascending: powers of 1.1 from 1e-12 to 1e20 on both sides of zero,
/// and `f64::MAX`.
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

/// A histogram.
#[derive(Clone, Debug)]
pub struct Histogram {
    counts: Vec<f64>,
    proto: pb::HistogramProto,
}

impl Default for Histogram {
    fn default() -> Self {
        Histogram::new()
    }
}

impl Histogram {
    /// An empty histogram.
    pub fn new() -> Self {
        let proto = pb::HistogramProto { min: f64::MAX, max: -f64::MAX, ..Default::default() };
        Histogram { counts: vec![0.0; bucket_limits().len()], proto }
    }

    /// Counts a value.
    pub fn add(&mut self, x: f64) {
        let bucket = bucket_limits().partition_point(|&limit| limit <= x);
        self.counts[bucket.min(bucket_limits().len() - 1)] += 1.0;
        let proto = &mut self.proto;
        proto.min = proto.min.min(x);
        proto.max = proto.max.max(x);
        proto.num += 1.0;
        proto.sum += x;
        proto.sum_squares += x * x;
    }

    /// The message; consecutive empty buckets are merged.
    pub fn into_proto(self) -> pb::HistogramProto {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_ascend() {
        assert!(bucket_limits().is_sorted_by(|a, b| a < b));
        assert_eq!(bucket_limits().len() % 2, 1);
    }
}
