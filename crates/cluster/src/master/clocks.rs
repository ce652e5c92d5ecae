//! Clocks of other tasks as seen from the master's, by round trips, and the reports of a traced step aligned by
//! them.
//!
//! The task reads its clock some time between request and answer, so a round trip bounds the offset: half of it is
//! the error. The shortest of several counts. A step gives a bound too: the task began after `RunGraph` was sent,
//! and had ended before the answer came.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use thalweg_kernel::Cancellation;
use thalweg_runtime::{RunMetadata, SentTensor, TaskClock, TaskReport, system_boot_id};
use thalweg_tensor::Result;

use crate::cluster_spec::TaskName;
use crate::member::Member;
use crate::network::trace_messages::{ClockRequest, ClockResponse};
use crate::network::transport::Call;

/// Round trips to each task after a traced step.
const EXCHANGES: usize = 8;
/// No further round trip begins after this long.
const EXCHANGES_TIME_MAX: Duration = Duration::from_millis(500);
/// Timeout of one round trip.
const EXCHANGE_TIMEOUT: Duration = Duration::from_secs(2);

/// One reading of a task's clock. Times are ns since 1970.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Exchange {
    /// When the request was sent, by the master's clock.
    pub(crate) sent_ns: u64,
    /// The task's clock.
    pub(crate) task_ns: u64,
    /// When the answer had arrived, by the master's clock.
    pub(crate) answered_ns: u64,
}

/// The offset of a task's clock. Tasks with `is_same_machine` have one clock, unless the round trips say otherwise.
/// `bounds` are the least and the greatest offset with which the task's part of the step lies within the call.
pub(crate) fn estimate(
    task: &str,
    exchanges: &[Exchange],
    is_same_machine: bool,
    bounds: (i64, i64),
) -> TaskClock {
    let clamped =
        |offset: i64| if bounds.0 <= bounds.1 { offset.clamp(bounds.0, bounds.1) } else { offset };
    let shortest = exchanges
        .iter()
        .filter(|exchange| exchange.answered_ns >= exchange.sent_ns)
        .min_by_key(|exchange| exchange.answered_ns - exchange.sent_ns);
    let Some(shortest) = shortest else {
        let offset_ns = clamped(0);
        return TaskClock { task: task.to_owned(), offset_ns, error_ns: None, round_trip_ns: 0 };
    };
    let round_trip_ns = shortest.answered_ns - shortest.sent_ns;
    let middle = shortest.sent_ns + round_trip_ns / 2;
    let (error, offset) = (round_trip_ns.div_ceil(2), difference(shortest.task_ns, middle));
    let is_one_clock = is_same_machine && offset.unsigned_abs() <= error && clamped(0) == 0;
    let (offset_ns, error_ns) = match is_one_clock {
        true => (0, 0),
        false => (clamped(offset), error),
    };
    TaskClock { task: task.to_owned(), offset_ns, error_ns: Some(error_ns), round_trip_ns }
}

fn difference(a: u64, b: u64) -> i64 {
    (i128::from(a) - i128::from(b)).clamp(i64::MIN.into(), i64::MAX.into()) as i64
}

/// The offsets with which a task's part of a step lies between its request and its answer.
fn bounds(report: &TaskReport) -> (i64, i64) {
    if report.began_ns == 0 || report.ended_ns == 0 {
        return (i64::MIN, i64::MAX);
    }
    (difference(report.ended_ns, report.answered_ns), difference(report.began_ns, report.sent_ns))
}

/// Merges the reports of other tasks into that of a step, after some round trips to them; then calls `done`.
pub(crate) fn align(
    member: &Arc<Member>,
    mut metadata: RunMetadata,
    done: impl FnOnce(RunMetadata) + Send + 'static,
) {
    let reports = std::mem::take(&mut metadata.task_reports);
    let step = metadata.step;
    if reports.is_empty() {
        return done(metadata);
    }
    let started_ns = metadata.started_ns;
    let since = |ns: u64| ns.saturating_sub(started_ns);
    metadata.sent = member.diagnostics.sent.take(step);
    for sent in &mut metadata.sent {
        (sent.requested_ns, sent.sent_ns) = (since(sent.requested_ns), since(sent.sent_ns));
    }
    let begin = member.diagnostics.uptime();
    let alignment = Alignment {
        member: member.clone(),
        step,
        begin,
        left: Mutex::new(reports.len()),
        tasks: reports.into_iter().map(|report| Mutex::new(TaskReadings::new(report))).collect(),
        end: Mutex::new(Some((metadata, Box::new(done)))),
    };
    let alignment = Arc::new(alignment);
    (0..alignment.tasks.len()).for_each(|task| alignment.exchange(task));
}

/// Reads the clocks of the tasks of one step.
struct Alignment {
    member: Arc<Member>,
    step: u64,
    begin: Duration,
    /// Tasks whose clocks are still being read.
    left: Mutex<usize>,
    tasks: Box<[Mutex<TaskReadings>]>,
    end: Mutex<Option<(RunMetadata, Aligned)>>,
}

type Aligned = Box<dyn FnOnce(RunMetadata) + Send>;

struct TaskReadings {
    report: TaskReport,
    exchanges: Vec<Exchange>,
    boot: String,
    sent: Vec<SentTensor>,
}

impl TaskReadings {
    fn new(report: TaskReport) -> TaskReadings {
        TaskReadings { report, exchanges: Vec::new(), boot: String::new(), sent: Vec::new() }
    }
}

impl Alignment {
    /// Makes the next round trip to a task.
    fn exchange(self: &Arc<Self>, task: usize) {
        let name = self.tasks[task].lock().report.task.parse::<TaskName>();
        let (Ok(name), Some(transport)) = (name, &self.member.transport) else {
            return self.task_done();
        };
        let diagnostics = &self.member.diagnostics;
        let alignment = self.clone();
        // The step has ended everywhere, so its log is complete from the first request on.
        let is_first = self.tasks[task].lock().exchanges.is_empty();
        let request = ClockRequest { step: if is_first { self.step } else { 0 } };
        let sent = diagnostics.wall();
        let answered = Box::new(move |response: Result<ClockResponse>| {
            alignment.answered(task, sent, response);
        });
        let cancellation = &Cancellation::default();
        let call = Call { to: &name, timeout: Some(EXCHANGE_TIMEOUT), cancellation };
        transport.clock(call, request, answered);
    }

    fn answered(self: &Arc<Self>, task: usize, sent: Duration, response: Result<ClockResponse>) {
        let answered = self.member.diagnostics.wall();
        // A task of TensorFlow, or one that is gone: its clock stays unknown.
        let Ok(response) = response else { return self.task_done() };
        let count = {
            let readings = &mut *self.tasks[task].lock();
            if response.wall_ns != 0 {
                readings.exchanges.push(Exchange {
                    sent_ns: sent.as_nanos() as u64,
                    task_ns: response.wall_ns,
                    answered_ns: answered.as_nanos() as u64,
                });
            }
            readings.boot = response.boot;
            readings.sent.extend(response.sent.into_iter().map(SentTensor::from));
            readings.exchanges.len()
        };
        let took = self.member.diagnostics.uptime().saturating_sub(self.begin);
        if (1..EXCHANGES).contains(&count) && took < EXCHANGES_TIME_MAX {
            self.exchange(task);
        } else {
            self.task_done();
        }
    }

    fn task_done(&self) {
        let is_last = {
            let mut left = self.left.lock();
            *left -= 1;
            *left == 0
        };
        let end = if is_last { self.end.lock().take() } else { None };
        let Some((mut metadata, done)) = end else { return };
        for readings in &self.tasks {
            let readings = &mut *readings.lock();
            let report = std::mem::take(&mut readings.report);
            let boot = system_boot_id();
            let is_same_machine = !boot.is_empty() && readings.boot == boot;
            let clock =
                estimate(&report.task, &readings.exchanges, is_same_machine, bounds(&report));
            metadata.merge(report, clock, std::mem::take(&mut readings.sent));
        }
        done(metadata);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NO_BOUNDS: (i64, i64) = (i64::MIN, i64::MAX);

    fn exchange(sent_ns: u64, task_ns: u64, answered_ns: u64) -> Exchange {
        Exchange { sent_ns, task_ns, answered_ns }
    }

    /// A clock that shows `offset` more, read over links of these delays.
    fn over_links(offset: i64, there: u64, back: u64) -> Exchange {
        let sent = 1_000_000_000;
        exchange(sent, (sent + there).wrapping_add_signed(offset), sent + there + back)
    }

    #[test]
    fn the_shortest_round_trip_counts_and_bounds_the_error() {
        let offset = -3_600_000_000_000i64;
        let slow = over_links(offset, 9_000_000, 1_000_000);
        let fast = over_links(offset, 120_000, 80_000);
        let base = 4_000_000_000_000;
        let later = |e: Exchange| {
            exchange(e.sent_ns + base, e.task_ns.wrapping_add(base), e.answered_ns + base)
        };
        let clock = estimate("t", &[slow, fast, slow].map(later), false, NO_BOUNDS);
        assert_eq!((clock.round_trip_ns, clock.error_ns), (200_000, Some(100_000)));
        assert!((clock.offset_ns - offset).unsigned_abs() <= 100_000, "{clock:?}");
        assert_eq!(clock.offset_ns - offset, 20_000, "half of what the two ways differ");
    }

    #[test]
    fn tasks_of_one_machine_have_one_clock_unless_the_readings_differ() {
        // Only one direction is slow, which half a round trip would take for an offset.
        let asymmetric = over_links(0, 20_000_000, 100_000);
        let clock = estimate("t", &[asymmetric], true, NO_BOUNDS);
        assert_eq!((clock.offset_ns, clock.error_ns), (0, Some(0)));
        assert_eq!(estimate("t", &[asymmetric], false, NO_BOUNDS).offset_ns, 9_950_000);
        let shifted = over_links(5_000_000_000, 100_000, 100_000);
        assert_eq!(estimate("t", &[shifted], true, NO_BOUNDS).offset_ns, 5_000_000_000);
    }

    #[test]
    fn the_step_bounds_the_offset() {
        let report = TaskReport {
            sent_ns: 1000,
            answered_ns: 2000,
            began_ns: 5100,
            ended_ns: 5900,
            ..Default::default()
        };
        assert_eq!(bounds(&report), (3900, 4100));
        let unknown = estimate("t", &[], false, bounds(&report));
        assert_eq!((unknown.offset_ns, unknown.error_ns), (3900, None));
        let read = estimate("t", &[exchange(0, 4300, 200)], false, bounds(&report));
        assert_eq!((read.offset_ns, read.error_ns), (4100, Some(100)));
        // A clock that was set during the step gives no bounds.
        assert_eq!(estimate("t", &[exchange(0, 4300, 200)], false, (2, 1)).offset_ns, 4200);
    }
}
