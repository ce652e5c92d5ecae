//! One trait for all sessions: in this process, or on a server.

#[cfg(feature = "remote")]
use thalweg_cluster::RemoteSession;
use thalweg_graph::Graph;
use thalweg_runtime::{RunMetadata, RunOptions, Session};
use thalweg_tensor::{Result, Tensor, bail};

/// Runs steps: a local session or, with the feature `remote`, a remote one.
pub trait RunSteps {
    /// As [`RunSteps::run_step`], with run options and run metadata.
    fn run_step_with(
        &self,
        options: &RunOptions,
        feeds: &[(&str, Tensor)],
        fetches: &[&str],
        targets: &[&str],
    ) -> Result<(Vec<Tensor>, RunMetadata)>;

    /// Feeds tensors, runs the nodes that fetches and targets need, and returns the fetches in
    /// order.
    fn run_step(
        &self,
        feeds: &[(&str, Tensor)],
        fetches: &[&str],
        targets: &[&str],
    ) -> Result<Vec<Tensor>> {
        let options = RunOptions::default();
        self.run_step_with(&options, feeds, fetches, targets).map(|(tensors, _)| tensors)
    }

    /// Adds the nodes of `graph` from position `from` on: the session has those before.
    fn extend(&self, graph: &Graph, from: usize) -> Result<()> {
        let _ = (graph, from);
        bail!(Unimplemented, "the graph of this session cannot grow: build it before the session")
    }
}

impl RunSteps for Session {
    fn run_step_with(
        &self,
        options: &RunOptions,
        feeds: &[(&str, Tensor)],
        fetches: &[&str],
        targets: &[&str],
    ) -> Result<(Vec<Tensor>, RunMetadata)> {
        self.run_with(options, feeds, fetches, targets)
    }

    fn extend(&self, graph: &Graph, from: usize) -> Result<()> {
        let mut def = graph.to_def();
        def.node.drain(..from.min(def.node.len()));
        Session::extend(self, def)
    }
}

#[cfg(feature = "remote")]
impl RunSteps for RemoteSession {
    fn run_step_with(
        &self,
        options: &RunOptions,
        feeds: &[(&str, Tensor)],
        fetches: &[&str],
        targets: &[&str],
    ) -> Result<(Vec<Tensor>, RunMetadata)> {
        self.run_with(options, feeds, fetches, targets)
    }

    fn extend(&self, graph: &Graph, from: usize) -> Result<()> {
        let mut def = graph.to_def();
        def.node.drain(..from.min(def.node.len()));
        RemoteSession::extend(self, def)
    }
}
