//! The result of `RunGraph`: the tensors of its `recv_key`s and the end of the partitions.

use std::sync::Arc;

use thalweg_kernel::{Rendezvous, RendezvousKey};
use thalweg_proto as pb;
use thalweg_runtime::{Collected, FetchCollector, RunMetadata};
use thalweg_tensor::{Result, Tensor};

use crate::network::transport::RunGraphReport;

/// The tensors of the request's `recv_key`s, and a report.
pub(crate) struct RunGraphResult {
    pub(crate) received: Vec<(String, Tensor)>,
    pub(crate) metadata: RunMetadata,
    /// Whether later calls of a partial run follow: then there is no report.
    pub(crate) is_partial: bool,
    /// Whether the worker has dropped the step, so that it needs no `CleanupGraph`.
    pub(crate) is_cleaned_up: bool,
    /// When the partition of a traced step had ended, in ns since 1970; 0 if the step is not traced.
    pub(crate) ended_ns: u64,
}

impl RunGraphResult {
    /// The report, as a response without tensors.
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
pub(crate) type Done = Box<dyn FnOnce(Result<RunGraphResult>) + Send>;

/// Receives the tensors that a `RunGraph` request names by key, and waits for one event: the end of the
/// graph's run, or that the request does not wait for it.
pub(crate) fn collect(
    keys: Vec<String>,
    rendezvous: &dyn Rendezvous,
    done: Done,
) -> Arc<FetchCollector<RunGraphReport>> {
    let keys_to_receive: Vec<RendezvousKey> =
        keys.iter().map(|key| RendezvousKey(key.as_str().into())).collect();
    let collector =
        FetchCollector::new(keys.len(), 1, move |result: Result<Collected<RunGraphReport>>| {
            done(result.map(|(tensors, end)| {
                let is_partial = end.is_none();
                let RunGraphReport { metadata, is_cleaned_up, ended_ns } = end.unwrap_or_default();
                let received = keys.into_iter().zip(tensors).collect();
                RunGraphResult { received, metadata, is_partial, is_cleaned_up, ended_ns }
            }));
        });
    collector.receive(&keys_to_receive, rendezvous);
    collector
}
