//! Batching parameters: TensorFlow Serving's, or a latency goal.

use std::time::Duration;

use thalweg_formats::Storage;
use thalweg_proto::tensorflow::serving as pb;
use thalweg_tensor::{Context, Result, ensure, err};

use super::queue::Limits;
use crate::config::read_text;

/// How the requests of a model are batched.
#[derive(Clone, Debug, PartialEq)]
pub enum Batching {
    /// With fixed parameters.
    Set(Parameters),
    /// With sizes and timeouts adapted to the load.
    Automatic {
        /// The latency goal.
        goal: Duration,
        /// The maximum rows of a batch.
        batch_rows: usize,
    },
}

impl Batching {
    /// The maximum number of concurrent batches.
    pub(super) fn lanes(&self) -> usize {
        match self {
            Batching::Set(parameters) => parameters.threads,
            Batching::Automatic { .. } => default_threads(),
        }
    }
}

/// TensorFlow Serving's batching parameters.
#[derive(Clone, Debug, PartialEq)]
pub struct Parameters {
    /// The maximum rows of a batch.
    pub max_batch_size: usize,
    /// How long the first request of a batch waits for others.
    pub batch_timeout: Duration,
    /// The maximum number of waiting batches; further requests are rejected.
    pub max_enqueued_batches: usize,
    /// The maximum number of concurrent batches.
    pub threads: usize,
    /// Sizes that batches are padded to, ascending; empty for no padding.
    pub allowed_batch_sizes: Vec<usize>,
    /// Whether inputs whose dimensions beyond the first differ are padded to the largest.
    pub pad_variable_length_inputs: bool,
    /// Whether requests with more rows than a batch are split; otherwise they are rejected.
    pub split_large: bool,
}

impl Default for Parameters {
    fn default() -> Self {
        Parameters {
            max_batch_size: 1000,
            batch_timeout: Duration::ZERO,
            max_enqueued_batches: 10,
            threads: default_threads(),
            allowed_batch_sizes: Vec::new(),
            pad_variable_length_inputs: false,
            split_large: true,
        }
    }
}

fn default_threads() -> usize {
    std::thread::available_parallelism().map_or(1, std::num::NonZero::get)
}

impl Parameters {
    /// Reads parameters from a file in protobuf text format.
    pub fn read(storage: &dyn Storage, path: &str) -> Result<Parameters> {
        let proto = read_text(storage, path, "tensorflow.serving.BatchingParameters")?;
        Parameters::from_proto(&proto).context(|| path)
    }

    /// The parameters of a `BatchingParameters` message.
    pub fn from_proto(proto: &pb::BatchingParameters) -> Result<Parameters> {
        let default = Parameters::default();
        let size = |name: &str, value: Option<i64>, default: usize| match value {
            None => Ok(default),
            Some(value) => {
                let size = usize::try_from(value).ok().filter(|&size| size > 0);
                size.ok_or_else(|| err!(InvalidArgument, "{name} is {value}; it must be above 0"))
            }
        };
        let micros = proto.batch_timeout_micros.as_ref().map_or(0, |v| v.value);
        let micros = u64::try_from(micros)
            .map_err(|_| err!(InvalidArgument, "batch_timeout_micros is {micros}, less than 0"))?;
        let parameters = Parameters {
            max_batch_size: size(
                "max_batch_size",
                proto.max_batch_size.as_ref().map(|v| v.value),
                default.max_batch_size,
            )?,
            batch_timeout: Duration::from_micros(micros),
            max_enqueued_batches: size(
                "max_enqueued_batches",
                proto.max_enqueued_batches.as_ref().map(|v| v.value),
                default.max_enqueued_batches,
            )?,
            threads: size(
                "num_batch_threads",
                proto.num_batch_threads.as_ref().map(|v| v.value),
                default.threads,
            )?,
            allowed_batch_sizes: proto
                .allowed_batch_sizes
                .iter()
                .map(|&v| size("an allowed batch size", Some(v), 0))
                .collect::<Result<_>>()?,
            pad_variable_length_inputs: proto.pad_variable_length_inputs,
            split_large: proto
                .enable_large_batch_splitting
                .as_ref()
                .map_or(default.split_large, |v| v.value),
        };
        parameters.check_sizes()?;
        Ok(parameters)
    }

    fn check_sizes(&self) -> Result<()> {
        let sizes = &self.allowed_batch_sizes;
        ensure!(
            sizes.windows(2).all(|pair| pair[0] < pair[1]),
            InvalidArgument,
            "allowed_batch_sizes must be in ascending order: {sizes:?}"
        );
        if let Some(&last) = sizes.last() {
            ensure!(
                last == self.max_batch_size,
                InvalidArgument,
                "the last of allowed_batch_sizes is {last}; it must be max_batch_size, {}",
                self.max_batch_size
            );
        }
        Ok(())
    }

    /// The size that a batch of this many rows is padded to.
    pub(super) fn padded_rows(&self, rows: usize) -> usize {
        self.allowed_batch_sizes.iter().copied().find(|&size| size >= rows).unwrap_or(rows)
    }

    pub(super) fn limits(&self) -> Limits {
        Limits {
            batch_rows: self.max_batch_size,
            enough_rows: self.max_batch_size,
            wait: self.batch_timeout,
            waiting_rows: self.max_batch_size.saturating_mul(self.max_enqueued_batches),
            may_split: self.split_large,
        }
    }
}

#[cfg(test)]
mod tests {
    use thalweg_tensor::Code;

    use super::*;

    fn read(text: &str) -> Result<Parameters> {
        let name = "tensorflow.serving.BatchingParameters";
        Parameters::from_proto(&thalweg_proto::text::decode(name, text).unwrap())
    }

    #[test]
    fn a_file_of_tensorflow_serving_is_read() {
        let parameters = read(
            "max_batch_size { value: 128 } batch_timeout_micros { value: 2000 } \
             max_enqueued_batches { value: 3 } num_batch_threads { value: 4 } \
             allowed_batch_sizes: 32 allowed_batch_sizes: 128 pad_variable_length_inputs: true",
        )
        .unwrap();
        assert_eq!(parameters.batch_timeout, Duration::from_millis(2));
        assert_eq!(parameters.limits().waiting_rows, 384);
        assert_eq!([1, 32, 33, 128].map(|n| parameters.padded_rows(n)), [32, 32, 128, 128]);
        assert_eq!(read("").unwrap(), Parameters::default());
    }

    #[test]
    fn mistakes_are_named() {
        for (text, words) in [
            ("max_batch_size { value: 0 }", "max_batch_size is 0"),
            ("num_batch_threads { value: -1 }", "num_batch_threads is -1"),
            ("batch_timeout_micros { value: -5 }", "less than 0"),
            ("allowed_batch_sizes: 4 allowed_batch_sizes: 2", "must be in ascending order"),
            ("max_batch_size { value: 9 } allowed_batch_sizes: 8", "must be max_batch_size, 9"),
        ] {
            let error = read(text).unwrap_err();
            assert_eq!(error.code(), Code::InvalidArgument, "{text}: {error}");
            assert!(error.message().contains(words), "{text}: {error}");
        }
    }
}
