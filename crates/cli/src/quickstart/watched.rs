//! The dashboard of the quickstart: served from this process while the tasks train.

use std::io::Write;
use std::sync::Arc;

use crate::dashboard::live::MasterTracer;
use thalweg_cluster::ClusterSpec;
use thalweg_dashboard::{ClusterSource, Dashboard, Options};
use thalweg_storage::ByUrl;
use tokio::runtime::Runtime;
use tokio::sync::watch;

use crate::dashboard::{DEFAULT_PORT, listen, options, runtime, url};
use crate::{Failure, Registry};

/// A dashboard on threads of its own; it ends when this is dropped.
pub(super) struct Watched {
    stop: watch::Sender<bool>,
    // Dropped after `stop`: its threads end with it.
    _runtime: Runtime,
}

impl Watched {
    /// Serves a dashboard of these tasks and of the event files below `folder`, and prints its address. If the
    /// usual port is taken, it has another one.
    pub(super) fn start(
        cluster: ClusterSpec,
        folder: &str,
        registry: &Registry,
        out: &mut dyn Write,
    ) -> Result<Watched, Failure> {
        let dashboard = Dashboard::new(Options {
            cluster: Some(ClusterSource::Spec(cluster)),
            logdir: Some((Arc::new(ByUrl::default()), folder.to_owned())),
            tracer: Some(Arc::new(MasterTracer)),
            ..options("thalweg quickstart".into(), registry)
        })?;
        let runtime = runtime()?;
        let listener = runtime.block_on(async {
            match listen("127.0.0.1", DEFAULT_PORT).await {
                Err(_) => listen("127.0.0.1", 0).await,
                listener => listener,
            }
        })?;
        writeln!(out, "   dashboard at {}", url(listener.local_addr()?, None))?;
        let (stop, stopped) = watch::channel(false);
        runtime.spawn(dashboard.serve(listener, None, stopped));
        Ok(Watched { stop, _runtime: runtime })
    }
}

impl Drop for Watched {
    fn drop(&mut self) {
        self.stop.send_replace(true);
    }
}
