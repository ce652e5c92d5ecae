//! What a simulated training job did.

use serde_json::{Value, json};

/// The most updates and events that JSON has; more are thinned out, or counted.
const POINTS_MAX: usize = 2000;

/// What a training job did. Times are seconds since training began: after the variables were
/// initialized and the chief had started.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TrainReport {
    /// When training ended.
    pub seconds: f64,
    /// Updates of the variables at the end; those that were lost do not count.
    pub updates_done: u64,
    /// Updates per second, without those that were lost.
    pub steps_per_second: f64,
    /// Samples of gradients that were applied, per second.
    pub samples_per_second: f64,
    /// Duration of a worker's step: the median.
    pub median_seconds: f64,
    /// The 10th percentile.
    pub p10_seconds: f64,
    /// The 90th percentile.
    pub p90_seconds: f64,
    /// Every update, lost ones too: when it was, and the global step after it.
    pub updates: Vec<(f64, u64)>,
    /// Updates that a failure undid.
    pub lost_updates: u64,
    /// Steps of workers that failures ended.
    pub lost_steps: u64,
    /// Steps of workers that ended well.
    pub worker_steps: u64,
    /// Those of them whose gradients came too late for their rounds, or whose rounds were aborted.
    pub dropped_gradients: u64,
    /// By how many steps a worker that began a step was ahead of the slowest, at most.
    pub lead_max: u64,
    /// Checkpoints that were written.
    pub checkpoints: u64,
    /// Failures and what followed, with their times.
    pub events: Vec<(f64, String)>,
    /// The tasks.
    pub devices: Vec<DeviceShare>,
    /// Events that were simulated.
    pub events_simulated: u64,
}

/// What a task's device and network interface did.
#[derive(Clone, Debug, PartialEq)]
pub struct DeviceShare {
    /// The device's full name.
    pub name: String,
    /// The share of the time in which it executed nodes.
    pub busy: f64,
    /// Bytes that its task sent.
    pub bytes_out: u64,
    /// Bytes that its task received.
    pub bytes_in: u64,
}

impl TrainReport {
    /// As the dashboard has it.
    pub fn to_json(&self) -> Value {
        let thin = self.updates.len().div_ceil(POINTS_MAX).max(1);
        let last = self.updates.len().saturating_sub(1);
        let kept = self.updates.iter().enumerate().filter(|(i, _)| i % thin == 0 || *i == last);
        let updates: Vec<Value> = kept.map(|(_, (at, step))| json!([at, step])).collect();
        let events = self.events.iter().take(POINTS_MAX);
        let events: Vec<Value> = events.map(|(at, text)| json!({"at": at, "text": text})).collect();
        let device = |share: &DeviceShare| {
            let DeviceShare { name, busy, bytes_out, bytes_in } = share;
            json!({"name": name, "busy": busy, "bytes_out": bytes_out, "bytes_in": bytes_in})
        };
        let devices: Vec<Value> = self.devices.iter().take(POINTS_MAX).map(device).collect();
        json!({
            "seconds": self.seconds,
            "updates_done": self.updates_done,
            "steps_per_second": self.steps_per_second,
            "samples_per_second": self.samples_per_second,
            "median_seconds": self.median_seconds,
            "p10_seconds": self.p10_seconds,
            "p90_seconds": self.p90_seconds,
            "lost_updates": self.lost_updates,
            "lost_steps": self.lost_steps,
            "worker_steps": self.worker_steps,
            "dropped_gradients": self.dropped_gradients,
            "lead_max": self.lead_max,
            "checkpoints": self.checkpoints,
            "updates": updates,
            "events": events,
            "devices": devices,
        })
    }

    /// Sets the percentiles of the durations of steps.
    pub(super) fn set_durations(&mut self, mut durations: Vec<f64>) {
        durations.sort_by(f64::total_cmp);
        let at = |share: f64| {
            let i = (share * durations.len() as f64).ceil() as usize;
            durations.get(i.saturating_sub(1)).copied().unwrap_or(0.0)
        };
        (self.p10_seconds, self.median_seconds, self.p90_seconds) = (at(0.1), at(0.5), at(0.9));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_nearest_ranks() {
        let mut report = TrainReport::default();
        report.set_durations((1..=10).rev().map(f64::from).collect());
        let found = (report.p10_seconds, report.median_seconds, report.p90_seconds);
        assert_eq!(found, (1.0, 5.0, 9.0));
        report.set_durations(Vec::new());
        assert_eq!(report.median_seconds, 0.0);
    }

    #[test]
    fn json_has_no_more_points_than_a_chart_needs() {
        let updates = (0..10_000).map(|i| (f64::from(i), i as u64 + 1)).collect();
        let json = TrainReport { updates, ..TrainReport::default() }.to_json();
        let updates = json["updates"].as_array().unwrap();
        assert!(updates.len() <= POINTS_MAX + 1);
        assert_eq!(updates.last().unwrap(), &json!([9999.0, 10_000]));
    }
}
