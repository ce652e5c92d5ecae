//! What a request to run a part of a step waits for, and what it is answered.

use std::sync::Arc;

use thalweg_kernel::{Rendezvous, RendezvousKey};
use thalweg_proto as pb;
use thalweg_runtime::{Collected, FetchCollector, RunMetadata};
use thalweg_tensor::{Result, Tensor};

/// What a part of a step gave: tensors for those who asked for them by key, and a report.
pub(crate) struct RanGraph {
    pub(crate) received: Vec<(String, Tensor)>,
    pub(crate) metadata: RunMetadata,
    /// Whether the step goes on: then there is nothing to report.
    pub(crate) goes_on: bool,
    /// Whether the task has forgotten the step already.
    pub(crate) is_forgotten: bool,
}

impl RanGraph {
    /// The report, as an answer without tensors.
    pub(crate) fn report(&self) -> pb::RunGraphResponse {
        let report = self.metadata.to_proto();
        pb::RunGraphResponse {
            step_stats: report.step_stats,
            cost_graph: Some(report.cost_graph.unwrap_or_default()),
            partition_graph: report.partition_graphs,
            ..Default::default()
        }
    }
}

/// Called with the tensors and the report of a graph, or with its error.
pub(crate) type Done = Box<dyn FnOnce(Result<RanGraph>) + Send>;

/// The end of a graph's run: its report, and whether the task has forgotten the step.
pub(crate) struct GraphEnd {
    pub(crate) metadata: RunMetadata,
    pub(crate) is_forgotten: bool,
}

/// Receives the tensors that a `RunGraph` request names by key, and waits for one event: the end of the
/// graph's run, or that the request does not wait for it.
pub(crate) fn collect(
    keys: Vec<String>,
    rendezvous: &dyn Rendezvous,
    done: Done,
) -> Arc<FetchCollector<GraphEnd>> {
    let wanted: Vec<RendezvousKey> =
        keys.iter().map(|key| RendezvousKey(key.as_str().into())).collect();
    let collector =
        FetchCollector::new(keys.len(), 1, move |result: Result<Collected<GraphEnd>>| {
            done(result.map(|(tensors, end)| {
                let goes_on = end.is_none();
                let (metadata, is_forgotten) =
                    end.map_or_else(Default::default, |end| (end.metadata, end.is_forgotten));
                let received = keys.into_iter().zip(tensors).collect();
                RanGraph { received, metadata, goes_on, is_forgotten }
            }));
        });
    collector.receive(&wanted, rendezvous);
    collector
}
