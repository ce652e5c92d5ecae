//! Sessions on servers, by handle.

use thalweg_cluster::{ConnectOptions, RemoteSession};
use thalweg_tensor::{Result, Tensor};

use crate::graph::Graph;
use crate::output::Output;
use crate::session::Session;

impl Graph {
    /// A session on the server at `target`, `grpc://host:port`; an error that lists all mistakes of
    /// the graph if there are any. Variables that have no value there are initialized: those that
    /// other clients of the server share keep theirs.
    pub fn session_on(&self, target: &str) -> Result<Session> {
        self.session_on_with(target, ConnectOptions::default())
    }

    /// As [`Graph::session_on`], with options.
    pub fn session_on_with(&self, target: &str, options: ConnectOptions) -> Result<Session> {
        self.check()?;
        let view = self.root().scope("initialized");
        let variables = self.variables();
        let is_set: Vec<Output<bool>> = variables
            .iter()
            .map(|variable| {
                let handle = view.device(&variable.device).output(variable.handle);
                crate::tf::var_is_initialized_op(handle)
            })
            .collect();
        let def = self.as_scope().with_graph(thalweg_graph::Graph::to_def);
        let session = self.session_over(RemoteSession::open(target, def, options)?)?;
        let values: Vec<Tensor> = session.run(&is_set, (), &[])?;
        let mut missing = Vec::new();
        for (variable, value) in variables.iter().zip(values) {
            if !value.scalar_value::<bool>()? {
                missing.push(variable.init);
            }
        }
        // Other state of a run, which no client shares.
        let counts = self.initializer_counts();
        missing.extend(self.initializers((counts.0, 0), counts));
        session.run_nodes(missing)?;
        Ok(session)
    }
}
