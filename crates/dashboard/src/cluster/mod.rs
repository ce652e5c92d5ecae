//! A cluster, watched from outside: the state of its tasks and the history of what happened to them.

mod history;
mod json;
mod watch;

pub(crate) use watch::ClusterWatch;

use thalweg_cluster::ClusterSpec;

/// The cluster to watch.
#[derive(Clone, Debug)]
pub enum ClusterSource {
    /// The tasks of this cluster.
    Spec(ClusterSpec),
    /// The task at this address and the tasks that it lists as its cluster.
    Address(String),
}

/// A task to watch: its full name, or its address until it has said its name.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Watched {
    name: String,
    address: String,
}
