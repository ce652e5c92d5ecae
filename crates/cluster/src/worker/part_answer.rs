//! What a request to run a part of a step waits for, and what it is answered.

use std::sync::Arc;

use parking_lot::Mutex;
use thalweg_kernel::{Rendezvous, RendezvousKey, Value};
use thalweg_proto as pb;
use thalweg_runtime::RunMetadata;
use thalweg_tensor::{Result, Tensor, ensure};

use crate::master::step::Rest;

/// What a part of a step gave: tensors for those who asked for them by key, and a report.
pub(crate) struct RanGraph {
    pub(crate) received: Vec<(String, Tensor)>,
    pub(crate) metadata: RunMetadata,
    /// Whether the step goes on: then there is nothing to report.
    pub(crate) goes_on: bool,
    /// Whether the task has forgotten the step already.
    pub(crate) is_forgotten: bool,
}

/// What `RunGraph`'s answer has in place of an error's text if the task has forgotten the step: nobody
/// need send `CleanupGraph`. Only a master of ours reads it; TensorFlow's looks there after an error.
const FORGOTTEN: &str = "thalweg: forgotten";

/// What an answer to `RunGraph` says of the step's rest.
pub(crate) fn rest_of(answer: &pb::RunGraphResponse) -> Rest {
    let is_forgotten = answer.status_code == 0 && answer.status_error_message == FORGOTTEN;
    if is_forgotten { Rest::Nothing } else { Rest::Something }
}

impl RanGraph {
    /// What a part without nodes gives.
    pub(crate) fn of_nothing() -> RanGraph {
        RanGraph {
            received: Vec::new(),
            metadata: RunMetadata::default(),
            goes_on: false,
            is_forgotten: true,
        }
    }

    /// The report, as an answer without tensors.
    pub(crate) fn report(&self) -> pb::RunGraphResponse {
        let report = self.metadata.to_proto();
        pb::RunGraphResponse {
            step_stats: report.step_stats,
            cost_graph: Some(report.cost_graph.unwrap_or_default()),
            partition_graph: report.partition_graphs,
            status_error_message: if self.is_forgotten { FORGOTTEN } else { "" }.to_owned(),
            ..Default::default()
        }
    }
}

/// Is told how a part ended.
pub(crate) type Done = Box<dyn FnOnce(Result<RanGraph>) + Send>;

/// Tensors that a request wants by key, and the end that it waits for.
pub(crate) struct Wanted {
    keys: Vec<String>,
    state: Mutex<WantedState>,
}

struct WantedState {
    left: usize,
    values: Vec<Option<Value>>,
    metadata: RunMetadata,
    goes_on: bool,
    is_forgotten: bool,
    done: Option<Done>,
}

impl Wanted {
    pub(crate) fn new(keys: Vec<String>, done: Done) -> Arc<Wanted> {
        let state = WantedState {
            left: keys.len() + 1,
            values: vec![None; keys.len()],
            metadata: RunMetadata::default(),
            goes_on: false,
            is_forgotten: false,
            done: Some(done),
        };
        Arc::new(Wanted { keys, state: Mutex::new(state) })
    }

    pub(crate) fn receive(self: &Arc<Self>, table: &dyn Rendezvous) {
        for (i, key) in self.keys.iter().enumerate() {
            let wanted = self.clone();
            let received = move |value: Result<Value>| {
                wanted.arrived(|state| {
                    let value = value?;
                    ensure!(
                        matches!(value, Value::Tensor(_) | Value::Alias(_)),
                        InvalidArgument,
                        "what was asked for is the result of a branch not taken"
                    );
                    // After an error there is nothing to keep.
                    if let Some(slot) = state.values.get_mut(i) {
                        *slot = Some(value);
                    }
                    Ok(())
                });
            };
            table.receive(&RendezvousKey(key.as_str().into()), Box::new(received));
        }
    }

    pub(crate) fn ended(&self, result: Result<RunMetadata>, is_forgotten: bool) {
        self.arrived(|state| {
            state.is_forgotten = is_forgotten;
            result.map(|metadata| state.metadata = metadata)
        });
    }

    pub(crate) fn goes_on(&self) {
        self.arrived(|state| {
            state.goes_on = true;
            Ok(())
        });
    }

    fn arrived(&self, what: impl FnOnce(&mut WantedState) -> Result<()>) {
        let mut state = self.state.lock();
        let result = what(&mut state);
        state.left = state.left.saturating_sub(1);
        if result.is_ok() && state.left > 0 {
            return;
        }
        // The first error answers; what comes later finds nobody.
        let Some(done) = state.done.take() else { return };
        let values = std::mem::take(&mut state.values).into_iter().flatten();
        // An alias gives the variable's value with the updates of all that the request waited for.
        let tensor = |(key, value): (&String, Value)| match value.without_alias() {
            Value::Tensor(tensor) => Some((key.clone(), tensor)),
            _ => None,
        };
        let ran = RanGraph {
            received: self.keys.iter().zip(values).filter_map(tensor).collect(),
            metadata: std::mem::take(&mut state.metadata),
            goes_on: state.goes_on,
            is_forgotten: state.is_forgotten,
        };
        drop(state);
        done(result.map(|()| ran));
    }
}

/// A step that a master starts in parts.
#[derive(Default)]
pub(crate) struct PartialStep(Mutex<PartialEnd>);

#[derive(Default)]
enum PartialEnd {
    #[default]
    Running,
    Awaited(Box<dyn FnOnce(Result<RunMetadata>) + Send>),
    Over(Result<RunMetadata>),
}

impl PartialStep {
    pub(crate) fn ended(&self, result: Result<RunMetadata>) {
        let mut state = self.0.lock();
        match std::mem::take(&mut *state) {
            PartialEnd::Awaited(wait) => {
                drop(state);
                wait(result);
            }
            _ => *state = PartialEnd::Over(result),
        }
    }

    pub(crate) fn wait(&self, then: impl FnOnce(Result<RunMetadata>) + Send + 'static) {
        let mut state = self.0.lock();
        match std::mem::take(&mut *state) {
            PartialEnd::Over(result) => {
                drop(state);
                then(result);
            }
            _ => *state = PartialEnd::Awaited(Box::new(then)),
        }
    }
}
