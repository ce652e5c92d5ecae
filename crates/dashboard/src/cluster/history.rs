//! What is known of each task, and the events that follow from its reports. There is no I/O here.

use std::collections::{BTreeSet, VecDeque};

use thalweg_cluster::grpc::TaskState;
use thalweg_cluster::own_messages::StatusResponse;

use super::Watched;

/// Most events kept.
const EVENTS_MAX: usize = 500;
/// Most pairs of tasks whose silence is remembered.
const SILENCES_MAX: usize = 10_000;

/// The tasks of a cluster in their order, and their history.
#[derive(Debug, Default)]
pub(super) struct History {
    pub(super) tasks: Vec<Task>,
    pub(super) events: VecDeque<Event>,
    /// Which task reports which other task as silent.
    silences: BTreeSet<(String, String)>,
    /// When the last reports came, since 1970; 0 before the first.
    pub(super) time_ms: u64,
}

/// A task and its last report.
#[derive(Debug)]
pub(super) struct Task {
    pub(super) of: Watched,
    /// None before the first report.
    pub(super) state: Option<TaskState>,
    /// Its last status, also after it has died.
    pub(super) last: Option<Box<StatusResponse>>,
}

/// Something that happened.
#[derive(Debug, PartialEq)]
pub(super) struct Event {
    pub(super) time_ms: u64,
    pub(super) is_warning: bool,
    pub(super) text: String,
}

impl History {
    /// Watches these tasks; what is known of tasks with the same names remains.
    pub(super) fn watch(&mut self, tasks: Vec<Watched>) {
        let mut known = std::mem::take(&mut self.tasks);
        self.tasks = tasks
            .into_iter()
            .map(|of| match known.iter().position(|task| task.of.name == of.name) {
                Some(i) => Task { of, ..known.swap_remove(i) },
                None => Task { of, state: None, last: None },
            })
            .collect();
    }

    /// Takes the states of all tasks, in the order of [`History::tasks`].
    pub(super) fn report(&mut self, states: Vec<TaskState>, time_ms: u64) {
        self.time_ms = time_ms;
        let mut silences = BTreeSet::new();
        for (i, state) in states.into_iter().enumerate().take(self.tasks.len()) {
            let task = &mut self.tasks[i];
            let event = change(task, &state);
            if let TaskState::Alive(status) = &state {
                let silent = status.silent.iter();
                let pairs = silent.map(|of| (task.of.name.clone(), of.task.clone()));
                silences.extend(pairs.take(SILENCES_MAX.saturating_sub(silences.len())));
                task.last = Some(status.clone());
            }
            task.state = Some(state);
            if let Some((is_warning, text)) = event {
                self.note(time_ms, is_warning, text);
            }
        }
        for (of, silent) in silences.difference(&self.silences).cloned().collect::<Vec<_>>() {
            self.note(time_ms, true, format!("{of} has no answer from {silent}"));
        }
        self.silences = silences;
    }

    fn note(&mut self, time_ms: u64, is_warning: bool, text: String) {
        if self.events.len() >= EVENTS_MAX {
            self.events.pop_front();
        }
        self.events.push_back(Event { time_ms, is_warning, text });
    }
}

/// The event of a new state, if it differs from the last; whether it is a warning.
fn change(task: &Task, new: &TaskState) -> Option<(bool, String)> {
    let name = &task.of.name;
    let was_up = matches!(task.state, None | Some(TaskState::Alive(_) | TaskState::Foreign(_)));
    match new {
        TaskState::Alive(status) => match &task.last {
            Some(last) if last.incarnation != status.incarnation => {
                Some((true, format!("{name} was restarted, as process {}", status.process)))
            }
            _ if !was_up => Some((false, format!("{name} answers again"))),
            _ => None,
        },
        TaskState::Foreign(_) => (!was_up).then(|| (false, format!("{name} answers again"))),
        TaskState::Silent if !matches!(task.state, Some(TaskState::Silent)) => {
            Some((true, format!("{name} does not answer")))
        }
        TaskState::Dead(why) if !matches!(task.state, Some(TaskState::Dead(_))) => {
            Some((true, format!("{name} is dead: {why}")))
        }
        TaskState::Silent | TaskState::Dead(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use thalweg_cluster::own_messages::SilentTask;

    use super::*;

    fn watched(name: &str) -> Watched {
        Watched { name: name.into(), address: "h:1".into() }
    }

    fn alive(incarnation: u64) -> TaskState {
        let status = StatusResponse { incarnation, process: 7, ..Default::default() };
        TaskState::Alive(Box::new(status))
    }

    fn texts(history: &History) -> Vec<&str> {
        history.events.iter().map(|e| e.text.as_str()).collect()
    }

    #[test]
    fn changes_are_events_and_repetitions_are_not() {
        let mut history = History::default();
        history.watch(vec![watched("a")]);
        let dead = || TaskState::Dead("connection refused".into());
        let states = [
            alive(1),
            alive(1),
            TaskState::Silent,
            TaskState::Silent,
            alive(1),
            dead(),
            dead(),
            alive(2),
        ];
        for (i, state) in states.into_iter().enumerate() {
            history.report(vec![state], i as u64);
        }
        let expected = [
            "a does not answer",
            "a answers again",
            "a is dead: connection refused",
            "a was restarted, as process 7",
        ];
        assert_eq!(texts(&history), expected);
        let times: Vec<(u64, bool)> =
            history.events.iter().map(|e| (e.time_ms, e.is_warning)).collect();
        assert_eq!(times, [(2, true), (4, false), (5, true), (7, true)]);
    }

    #[test]
    fn a_restart_between_two_reports_is_noticed() {
        let mut history = History::default();
        history.watch(vec![watched("a")]);
        history.report(vec![alive(1)], 0);
        history.report(vec![alive(2)], 1);
        assert_eq!(texts(&history), ["a was restarted, as process 7"]);
    }

    #[test]
    fn silence_between_tasks_is_one_event() {
        let mut history = History::default();
        history.watch(vec![watched("a")]);
        let silent = vec![SilentTask { task: "b".into(), silent_ms: 1500 }];
        let status = StatusResponse { incarnation: 1, silent, ..Default::default() };
        for _ in 0..3 {
            history.report(vec![TaskState::Alive(Box::new(status.clone()))], 0);
        }
        assert_eq!(texts(&history), ["a has no answer from b"]);
        history.report(vec![alive(1)], 0);
        history.report(vec![TaskState::Alive(Box::new(status))], 0);
        assert_eq!(history.events.len(), 2);
    }

    #[test]
    fn known_tasks_survive_a_new_list_and_events_are_bounded() {
        let mut history = History::default();
        history.watch(vec![watched("a"), watched("b")]);
        history.report(vec![alive(1), alive(5)], 0);
        history.watch(vec![watched("b"), watched("c")]);
        assert_eq!(history.tasks[0].last.as_ref().unwrap().incarnation, 5);
        assert!(history.tasks[1].state.is_none());
        for i in 0..2 * EVENTS_MAX as u64 {
            history.report(vec![alive(i + 10)], i);
        }
        assert_eq!(history.events.len(), EVENTS_MAX);
        assert_eq!(history.events.back().unwrap().time_ms, 2 * EVENTS_MAX as u64 - 1);
    }
}
