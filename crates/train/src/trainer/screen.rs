//! Progress display: a progress bar and messages on a terminal, lines of JSON elsewhere.

use std::io::{IsTerminal, Write};
use std::time::Duration;

use parking_lot::Mutex;
use serde_json::{Value, json};

use super::Evaluation;
use crate::Stops;

/// An event of a training besides its steps.
#[derive(Clone, Debug, PartialEq)]
pub enum Event {
    /// The variables were initialized.
    Began {
        /// The number of workers of this process.
        workers: usize,
        /// The number of updates that were lost before there was a checkpoint.
        lost: u64,
    },
    /// The variables were restored.
    Restored {
        /// The prefix of the checkpoint.
        checkpoint: String,
        /// The number of updates that the checkpoint holds.
        updates: u64,
        /// The number of updates after the checkpoint, as far as this process knows.
        lost: u64,
    },
    /// A worker continues with initialized variables.
    Joined {
        /// The worker's index.
        worker: usize,
        /// The number of updates of the variables.
        updates: u64,
    },
    /// A worker's step failed because a task is unavailable.
    Lost {
        /// The worker's index.
        worker: usize,
        /// The error message.
        error: String,
    },
    /// A worker returned its shard.
    Returned {
        /// The worker's index.
        worker: usize,
        /// The shard.
        shard: usize,
        /// The number of samples of its epoch that were not used yet.
        unused: u64,
    },
    /// A worker trains again.
    Back {
        /// The worker's index.
        worker: usize,
        /// How long it was interrupted.
        after: Duration,
    },
    /// A checkpoint was written.
    Saved {
        /// The prefix of the checkpoint.
        checkpoint: String,
        /// The number of updates that the checkpoint holds.
        updates: u64,
        /// How long writing took; steps ran meanwhile.
        took: Duration,
    },
    /// A checkpoint could not be written and is tried again.
    NotSaved {
        /// The error message.
        error: String,
    },
    /// A checkpoint was evaluated.
    Evaluated(Evaluation),
    /// Training is over, and tasks were asked to stop.
    Stopped {
        /// Which tasks.
        stops: Stops,
        /// The tasks that still run, with the reason.
        refused: Vec<String>,
    },
}

impl Event {
    /// The event as a sentence.
    pub fn sentence(&self) -> String {
        match self {
            Event::Began { workers, lost: 0 } => {
                format!("{workers} workers begin with initialized variables")
            }
            Event::Began { workers, lost } => format!(
                "{workers} workers begin again: there was no checkpoint yet, {lost} updates were lost"
            ),
            Event::Restored { checkpoint, updates, lost } => format!(
                "restored {checkpoint} with {updates} updates; {lost} updates since then were lost"
            ),
            Event::Joined { worker, updates } => {
                format!("worker {worker} continues with variables after {updates} updates")
            }
            Event::Lost { worker, error } => format!("worker {worker} is interrupted: {error}"),
            Event::Returned { worker, shard, unused } => format!(
                "worker {worker} returns shard {shard}: {unused} of its samples are still to be used"
            ),
            Event::Back { worker, after } => {
                format!("worker {worker} is back after {:.2} s", after.as_secs_f64())
            }
            Event::Saved { checkpoint, updates, took } => format!(
                "saved {checkpoint} with {updates} updates in {:.0} ms",
                took.as_secs_f64() * 1e3
            ),
            Event::Evaluated(evaluation) => {
                let metrics = shown(&evaluation.metrics);
                format!(
                    "evaluated after {} updates: loss {:.4}{metrics}",
                    evaluation.updates, evaluation.loss
                )
            }
            Event::NotSaved { error } => format!("no checkpoint was written: {error}"),
            Event::Stopped { stops, refused } => {
                let who = match stops {
                    Stops::Nobody => "no tasks",
                    Stops::Ps => "the parameter servers",
                    Stops::All => "all tasks",
                };
                match &refused[..] {
                    [] => format!("{who} end, now that training is over"),
                    refused => format!("{who} end, but for {}", refused.join("; ")),
                }
            }
        }
    }

    fn json(&self) -> Value {
        match self {
            Event::Began { workers, lost } => {
                json!({"event": "began", "workers": workers, "updates_lost": lost})
            }
            Event::Restored { checkpoint, updates, lost } => json!({
                "event": "restored", "checkpoint": checkpoint, "updates": updates,
                "updates_lost": lost
            }),
            Event::Joined { worker, updates } => {
                json!({"event": "joined", "worker": worker, "updates": updates})
            }
            Event::Lost { worker, error } => {
                json!({"event": "lost", "worker": worker, "error": error})
            }
            Event::Returned { worker, shard, unused } => {
                json!({"event": "returned", "worker": worker, "shard": shard, "unused": unused})
            }
            Event::Back { worker, after } => {
                json!({"event": "back", "worker": worker, "after_seconds": after.as_secs_f64()})
            }
            Event::Saved { checkpoint, updates, took } => json!({
                "event": "saved", "checkpoint": checkpoint, "updates": updates,
                "seconds": took.as_secs_f64()
            }),
            Event::Evaluated(evaluation) => {
                let mut value = json!({
                    "event": "evaluated", "updates": evaluation.updates, "loss": evaluation.loss,
                    "checkpoint": evaluation.checkpoint
                });
                for (tag, metric) in &evaluation.metrics {
                    value[tag] = json!(metric);
                }
                value
            }
            Event::NotSaved { error } => json!({"event": "not_saved", "error": error}),
            Event::Stopped { stops, refused } => {
                let stops = match stops {
                    Stops::Nobody => "nobody",
                    Stops::Ps => "ps",
                    Stops::All => "all",
                };
                json!({"event": "stopped", "tasks": stops, "refused": refused})
            }
        }
    }
}

/// The progress of a training.
#[derive(Clone, Debug, Default)]
pub struct Progress {
    /// The number of updates so far.
    pub updates: u64,
    /// The number of samples used, and the total.
    pub samples: (u64, u64),
    /// The loss, as an exponential moving average over steps.
    pub loss: f32,
    /// The network's metrics, averaged likewise.
    pub metrics: Vec<(String, f32)>,
    /// Updates per second.
    pub rate: f64,
    /// The number of workers that train.
    pub workers: usize,
    /// The last evaluation.
    pub evaluation: Option<Evaluation>,
}

/// Metrics as they follow the loss in a sentence.
fn shown(metrics: &[(String, f32)]) -> String {
    metrics.iter().map(|(tag, value)| format!("  {tag} {value:.3}")).collect()
}

const BAR: usize = 24;

impl Progress {
    fn line(&self) -> String {
        let (used, all) = self.samples;
        let part = if all == 0 { 0.0 } else { (used as f64 / all as f64).min(1.0) };
        let full = (part * BAR as f64) as usize;
        let bar: String = (0..BAR).map(|i| if i < full { '█' } else { '░' }).collect();
        let metrics = shown(&self.metrics);
        let evaluation = self.evaluation.as_ref().map(|evaluation| {
            format!("  | evaluation: loss {:.4}{}", evaluation.loss, shown(&evaluation.metrics))
        });
        format!(
            "{bar} {:3.0} %  {} updates  {:.0}/s  {} workers  loss {:.4}{metrics}{}",
            part * 100.0,
            self.updates,
            self.rate,
            self.workers,
            self.loss,
            evaluation.unwrap_or_default()
        )
    }

    fn json(&self) -> Value {
        let mut value = json!({
            "event": "progress", "updates": self.updates, "samples": self.samples.0,
            "samples_in_all": self.samples.1, "loss": self.loss,
            "updates_per_second": self.rate, "workers": self.workers
        });
        for (tag, metric) in &self.metrics {
            value[tag] = json!(metric);
        }
        value
    }
}

/// Where progress is shown.
pub struct Screen {
    out: Mutex<Out>,
    is_terminal: bool,
}

struct Out {
    out: Box<dyn Write + Send>,
    /// Whether the cursor is at the end of a progress bar.
    has_bar: bool,
}

impl Screen {
    /// Standard output: a progress bar if it is a terminal, JSON otherwise.
    pub fn standard() -> Screen {
        let out = std::io::stdout();
        Screen::new(out.is_terminal(), Box::new(out))
    }

    /// A terminal, or a file.
    pub fn new(is_terminal: bool, out: Box<dyn Write + Send>) -> Screen {
        Screen { out: Mutex::new(Out { out, has_bar: false }), is_terminal }
    }

    /// Shows nothing.
    pub fn none() -> Screen {
        Screen::new(false, Box::new(std::io::sink()))
    }

    /// Whether it shows a progress bar.
    pub fn is_terminal(&self) -> bool {
        self.is_terminal
    }

    /// The interval at which progress is shown.
    pub(super) fn pause(&self) -> Duration {
        Duration::from_millis(if self.is_terminal { 100 } else { 1000 })
    }

    /// Shows progress.
    pub fn progress(&self, progress: &Progress) {
        let mut out = self.out.lock();
        // A screen that is gone is no reason to end what runs.
        let _ = if self.is_terminal {
            out.has_bar = true;
            write!(out.out, "\r\x1b[K{}", progress.line())
        } else {
            writeln!(out.out, "{}", progress.json())
        };
        let _ = out.out.flush();
    }

    /// Shows an event.
    pub fn event(&self, event: &Event) {
        if self.is_terminal {
            self.line(&event.sentence());
        } else {
            self.line(&event.json().to_string());
        }
    }

    /// Writes a line of text, on a terminal as elsewhere.
    pub fn line(&self, text: &str) {
        let mut out = self.out.lock();
        let before = if out.has_bar { "\r\x1b[K" } else { "" };
        out.has_bar = false;
        let _ = writeln!(out.out, "{before}{text}");
        let _ = out.out.flush();
    }
}

#[cfg(test)]
mod tests {
    use std::io;
    use std::sync::Arc;

    use super::*;

    #[derive(Clone, Default)]
    struct Page(Arc<Mutex<Vec<u8>>>);

    impl Write for Page {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().extend(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn shown(is_terminal: bool) -> String {
        let page = Page::default();
        let screen = Screen::new(is_terminal, Box::new(page.clone()));
        let metrics = vec![("accuracy".to_owned(), 0.5)];
        screen.progress(&Progress {
            updates: 7,
            samples: (50, 100),
            metrics,
            workers: 2,
            ..Progress::default()
        });
        screen.event(&Event::Restored { checkpoint: "m-5".into(), updates: 5, lost: 2 });
        let bytes = page.0.lock().clone();
        String::from_utf8(bytes).unwrap()
    }

    #[test]
    fn a_terminal_has_a_bar() {
        let text = shown(true);
        assert!(text.contains("████████████░░░░░░░░░░░░  50 %  7 updates"), "{text:?}");
        let after = text.rsplit("\r\x1b[K").next().unwrap();
        assert_eq!(after, "restored m-5 with 5 updates; 2 updates since then were lost\n");
    }

    #[test]
    fn elsewhere_every_line_is_json() {
        let text = shown(false);
        let lines: Vec<Value> =
            text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        assert_eq!((&lines[0]["updates"], &lines[0]["accuracy"]), (&json!(7), &json!(0.5)));
        assert_eq!(
            (&lines[1]["event"], &lines[1]["updates_lost"]),
            (&json!("restored"), &json!(2))
        );
    }
}
