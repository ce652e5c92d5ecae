//! The log of received tensors behind `WorkerService.Logging`.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use thalweg_kernel::{RendezvousKey, Value};
use thalweg_proto as pb;

/// Maximum number of logged tensors; later ones are not logged.
const ENTRIES_MAX: usize = 100_000;

/// Received tensors by step, while a master has logging turned on.
#[derive(Default)]
pub(crate) struct RpcLog {
    is_on: AtomicBool,
    steps: Mutex<BTreeMap<u64, Vec<Transfer>>>,
}

/// One received tensor.
struct Transfer {
    key: RendezvousKey,
    bytes: usize,
    /// When it was requested (wall clock), and how long it duration.
    start: Duration,
    duration: Duration,
}

impl RpcLog {
    /// Whether logging is on.
    pub(crate) fn is_on(&self) -> bool {
        self.is_on.load(Ordering::Relaxed)
    }

    /// Logs a tensor that was requested at `start` and received at `now`.
    pub(crate) fn add(
        &self,
        step: u64,
        key: RendezvousKey,
        value: &Value,
        start: Duration,
        now: Duration,
    ) {
        let bytes = if let Value::Tensor(tensor) = value { tensor.size_bytes() } else { 0 };
        let mut steps = self.steps.lock();
        if steps.values().map(Vec::len).sum::<usize>() < ENTRIES_MAX {
            let duration = now.saturating_sub(start);
            steps.entry(step).or_default().push(Transfer { key, bytes, start, duration });
        }
    }

    /// Answers a `LoggingRequest`. Fetched entries are removed; an unknown step gives none.
    pub(crate) fn answer(&self, request: &pb::LoggingRequest) -> pb::LoggingResponse {
        if request.enable_rpc_logging {
            self.is_on.store(true, Ordering::Relaxed);
        } else if request.disable_rpc_logging || request.fetch_step_id.is_empty() {
            // Older masters turn logging off by an empty request.
            self.is_on.store(false, Ordering::Relaxed);
        }
        let fetch = |&step_id: &i64| {
            let transfers = self.steps.lock().remove(&(step_id as u64)).unwrap_or_default();
            pb::LabeledStepStats { step_id, step_stats: Some(stats(&transfers)) }
        };
        let step = request.fetch_step_id.iter().map(fetch).collect();
        if request.clear {
            self.steps.lock().clear();
        }
        pb::LoggingResponse { step }
    }
}

/// Entries by receiving device.
fn stats(transfers: &[Transfer]) -> pb::StepStats {
    let mut devices: BTreeMap<&str, Vec<pb::NodeExecStats>> = BTreeMap::new();
    for transfer in transfers {
        let to = transfer.key.0.split(';').nth(2).unwrap_or_default();
        devices.entry(to).or_default().push(transfer.stats());
    }
    let device = |(device, node_stats): (&str, _)| pb::DeviceStepStats {
        device: device.to_owned(),
        node_stats,
        ..Default::default()
    };
    pb::StepStats { dev_stats: devices.into_iter().map(device).collect() }
}

impl Transfer {
    fn stats(&self) -> pb::NodeExecStats {
        let field = |i: usize| self.key.0.split(';').nth(i).unwrap_or_default();
        let (start, duration) = (self.start.as_nanos() as i64, self.duration.as_nanos() as i64);
        let size = match self.bytes {
            0..100_000 => format!("{}B", self.bytes),
            _ => format!("{:.1}MB", self.bytes as f64 / f64::from(1 << 20)),
        };
        let rate = self.bytes as f64 * 8.0 / (duration as f64 / 1e3).max(1.0);
        pb::NodeExecStats {
            node_name: "RecvTensor".into(),
            timeline_label: format!(
                "[{size}] [{rate:.3}Mb/s] {} from {} to {}",
                field(3),
                field(0),
                field(2)
            ),
            all_start_micros: start / 1000,
            all_start_nanos: start,
            scheduled_micros: start / 1000,
            scheduled_nanos: start,
            op_end_rel_micros: duration / 1000,
            op_end_rel_nanos: duration,
            all_end_rel_micros: duration / 1000,
            all_end_rel_nanos: duration,
            ..Default::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use thalweg_tensor::Tensor;

    #[test]
    fn masters_turn_it_on_fetch_and_clear() {
        let log = RpcLog::default();
        let answer = |request: pb::LoggingRequest| log.answer(&request);
        answer(pb::LoggingRequest { enable_rpc_logging: true, ..Default::default() });
        assert!(log.is_on());
        let key = RendezvousKey::new("from", 1, "to", "edge_1_x");
        let value = Value::Tensor(Tensor::scalar(1.0f32));
        let (start, end) = (Duration::from_millis(10), Duration::from_millis(12));
        log.add(7, key.clone(), &value, start, end);
        log.add(8, key, &value, start, end);
        let fetch = || pb::LoggingRequest { fetch_step_id: vec![7], ..Default::default() };
        let response = answer(fetch());
        assert!(log.is_on(), "fetching does not end it");
        let stats = response.step[0].step_stats.as_ref().unwrap();
        assert_eq!((response.step[0].step_id, stats.dev_stats[0].device.as_str()), (7, "to"));
        let node = &stats.dev_stats[0].node_stats[0];
        assert_eq!(node.timeline_label, "[4B] [0.016Mb/s] edge_1_x from from to to");
        assert_eq!((node.all_start_micros, node.all_end_rel_micros), (10_000, 2_000));
        assert!(answer(fetch()).step[0].step_stats.as_ref().unwrap().dev_stats.is_empty());
        answer(pb::LoggingRequest { disable_rpc_logging: true, clear: true, ..Default::default() });
        assert!(!log.is_on() && log.steps.lock().is_empty());
    }
}
