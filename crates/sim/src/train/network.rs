//! The network between tasks.
//!
//! Each task has one network interface, which sends and receives at once. Large tensors occupy the
//! sender's and the receiver's interface for bytes / bandwidth, first come, first served. Small messages
//! do not queue behind them, as connections share an interface, but behind each other: each costs its
//! sender and its receiver the time to process a message.

use thalweg_plan::Links;
use thalweg_tensor::{Result, ensure};

use super::events::nanoseconds;

/// The size up to which a message does not queue behind tensors.
pub(super) const SMALL_BYTES: u64 = 16 << 10;

/// When no simulation runs any more.
const END: u64 = u64::MAX / 4;

/// The network between tasks.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Network {
    /// Seconds from the end of sending to the begin of receiving.
    pub latency: f64,
    /// Bytes per second of a worker's interface, in each direction.
    pub worker_bandwidth: f64,
    /// Bytes per second of a parameter server's interface, in each direction.
    pub server_bandwidth: f64,
    /// Seconds that a task spends on a message that it sends or receives.
    pub message_seconds: f64,
}

impl Default for Network {
    /// 10 Gb/s everywhere.
    fn default() -> Network {
        Network {
            latency: 50e-6,
            worker_bandwidth: 1.25e9,
            server_bandwidth: 1.25e9,
            message_seconds: 10e-6,
        }
    }
}

impl Network {
    pub(super) fn check(&self) -> Result<()> {
        let is_time = |x: f64| x.is_finite() && (0.0..=1e6).contains(&x);
        let is_rate = |x: f64| x.is_finite() && x >= 1.0;
        ensure!(
            is_time(self.latency)
                && is_time(self.message_seconds)
                && is_rate(self.worker_bandwidth)
                && is_rate(self.server_bandwidth),
            InvalidArgument,
            "a network of {self:?} transfers nothing"
        );
        Ok(())
    }

    /// For the planner.
    pub(super) fn links(&self) -> Links {
        let bandwidth = self.worker_bandwidth.min(self.server_bandwidth);
        Links { between_tasks: (self.latency, bandwidth), ..Links::default() }
    }
}

/// The network interface of a task: until when it is busy, and what it has transferred.
#[derive(Clone, Debug)]
pub(super) struct Interface {
    bandwidth: f64,
    message: u64,
    large_out: u64,
    large_in: u64,
    small_out: u64,
    small_in: u64,
    pub bytes_out: u64,
    pub bytes_in: u64,
}

impl Interface {
    pub(super) fn new(bandwidth: f64, message_seconds: f64) -> Interface {
        Interface {
            bandwidth,
            message: nanoseconds(message_seconds),
            large_out: 0,
            large_in: 0,
            small_out: 0,
            small_in: 0,
            bytes_out: 0,
            bytes_in: 0,
        }
    }

    fn duration(&self, bytes: u64) -> u64 {
        nanoseconds(bytes as f64 / self.bandwidth)
    }

    /// Sends; returns when the first and the last byte have left.
    pub(super) fn send(&mut self, bytes: u64, at: u64) -> (u64, u64) {
        self.bytes_out += bytes;
        let (until, busy) = match bytes <= SMALL_BYTES {
            true => (&mut self.small_out, 0),
            false => {
                let duration = nanoseconds(bytes as f64 / self.bandwidth);
                (&mut self.large_out, duration)
            }
        };
        // Nobody waits for what arrives after the end of time.
        let first = at.max(*until).min(END) + self.message;
        *until = first + busy;
        (first, first + self.duration(bytes))
    }

    /// Receives what arrives from `first` to `last`; returns when it is there.
    pub(super) fn receive(&mut self, bytes: u64, first: u64, last: u64) -> u64 {
        self.bytes_in += bytes;
        if bytes <= SMALL_BYTES {
            self.small_in = last.max(self.small_in).min(END) + self.message;
            return self.small_in;
        }
        let begin = first.max(self.large_in).min(END);
        self.large_in = begin + self.duration(bytes);
        self.large_in.max(last) + self.message
    }

    /// Forgets what was in flight.
    pub(super) fn reset(&mut self, at: u64) {
        (self.large_out, self.large_in, self.small_out, self.small_in) = (at, at, at, at);
    }
}
