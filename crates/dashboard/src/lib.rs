//! The dashboard: a cluster, its steps and its training in a browser.
//!
//! A [`Dashboard`] serves one page and a JSON API. It watches the tasks of a cluster from outside, follows event
//! files, and shows graphs and the timelines of steps. It works only while a page is open: tasks are asked and
//! files are read when a client has asked for them lately.
//!
//! Where steps come from that are traced in a cluster or simulated is behind [`Tracer`] and [`Simulation`].

mod api;
mod attention;
mod cluster;
#[cfg(test)]
mod folder_tests;
mod graph;
mod logdir;
mod simulation;
mod steps;
mod web;

use std::sync::Arc;

use parking_lot::Mutex;
use thalweg_formats::Storage;
use thalweg_kernel::Clock;
use thalweg_ops::Registry;
use thalweg_proto as pb;
use thalweg_tensor::{Result, err};
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinSet;

pub use cluster::ClusterSource;
pub use simulation::{Changes, Simulated, Simulation, TrainChanges};
pub use steps::{ClockOffset, StepTimeline, Tracer};

use api::{Api, Sources};
use cluster::ClusterWatch;
use logdir::Logdir;
use steps::Steps;
use web::access::Access;
use web::server::{Context, Limits};

/// What a dashboard shows; what is absent is not shown.
pub struct Options {
    /// The title of the page.
    pub title: String,
    /// A cluster.
    pub cluster: Option<ClusterSource>,
    /// A folder of event files.
    pub logdir: Option<(Arc<dyn Storage>, String)>,
    /// A graph; otherwise that of the event files is shown.
    pub graph: Option<pb::GraphDef>,
    /// The ops of graphs.
    pub registry: Registry,
    /// Traces steps of the cluster.
    pub tracer: Option<Arc<dyn Tracer>>,
    /// Simulates the graph.
    pub simulation: Option<Arc<dyn Simulation>>,
    /// The clock of events.
    pub clock: Arc<dyn Clock>,
}

/// A dashboard that is ready to be served.
pub struct Dashboard {
    sources: Sources,
}

impl Dashboard {
    /// A dashboard; an error if the folder of event files cannot be read.
    pub fn new(options: Options) -> Result<Dashboard> {
        let steps = Arc::new(Steps::default());
        let logdir = match options.logdir {
            Some((storage, root)) => {
                Some(Logdir::open(storage, &root, (steps.clone(), options.clock.clone()))?)
            }
            None => None,
        };
        let watch = |source| ClusterWatch::new(source, options.clock.clone());
        let sources = Sources {
            title: options.title,
            cluster: options.cluster.map(watch),
            logdir,
            graph: options.graph,
            registry: options.registry,
            steps,
            tracer: options.tracer,
            simulation: options.simulation,
            simulated: Mutex::default(),
            last_graph: Mutex::default(),
        };
        Ok(Dashboard { sources })
    }

    /// Serves until `stop` is set. A listener that other machines can reach needs a token.
    pub async fn serve(
        self,
        listener: TcpListener,
        token: Option<String>,
        stop: watch::Receiver<bool>,
    ) -> Result<()> {
        let address = listener.local_addr();
        let address = address.map_err(|e| err!(Unavailable, "the listener has no address: {e}"))?;
        let access = Access::new(address, token)?;
        let context = Context { api: Api::new(self.sources), access, limits: Limits::default() };
        run(listener, context, stop).await;
        Ok(())
    }
}

/// Checks that a token can be used.
pub fn check_token(token: &str) -> Result<()> {
    web::access::check_token(token)
}

/// Serves, and works in the background, until `stop` is set.
async fn run(listener: TcpListener, context: Context, stop: watch::Receiver<bool>) {
    // They end when the set is dropped.
    let mut background = JoinSet::new();
    if let Some(cluster) = context.api.sources.cluster.clone() {
        background.spawn(cluster.run());
    }
    if let Some(logdir) = context.api.sources.logdir.clone() {
        background.spawn(logdir.run());
    }
    web::server::serve(listener, Arc::new(context), stop).await;
}
