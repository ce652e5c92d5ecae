//! Calling functions of the graph's library from within a kernel.

use std::any::Any;
use std::sync::{Arc, OnceLock};

use thalweg_graph::{Attrs, Graph};
use thalweg_tensor::{Result, Tensor, err};

use crate::{NodeStates, StepContext};

/// Called with a function's results by the thread that ended the call.
pub type CallDone = Box<dyn FnOnce(Result<Vec<Tensor>>) + Send>;

/// Instantiates and runs functions; `runtime` implements it.
pub trait FunctionRunner: Send + Sync {
    /// Runs the function `name`, instantiated with `attrs`, within the caller's step.
    fn call(
        &self,
        name: &str,
        attrs: &Attrs,
        args: Vec<Tensor>,
        step: &Arc<StepContext>,
        done: CallDone,
    );

    /// As [`FunctionRunner::call`], for a caller that calls the function repeatedly: the function's
    /// state belongs to this caller, and its instance is looked up once. `step` is made for the call,
    /// one call deeper than the caller's; the caller may use it again once it is the only owner.
    fn call_kept(
        &self,
        function: &KeptFunction,
        args: Vec<Tensor>,
        step: &Arc<StepContext>,
        done: CallDone,
    ) {
        self.call(&function.name, &function.attrs, args, step, done);
    }

    /// Runs a graph as the body of a function within the caller's step.
    fn call_graph(
        &self,
        graph: &KeptGraph,
        args: Vec<Tensor>,
        step: &Arc<StepContext>,
        done: CallDone,
    ) {
        let (_, _, _) = (graph, args, step);
        done(Err(err!(Unimplemented, "graphs are not run here")));
    }
}

/// A graph that a kernel runs as the body of a function: `_Arg` and `_Retval` nodes stand for arguments
/// and results, and all nodes run.
pub struct KeptGraph {
    /// The graph.
    pub graph: Graph,
    /// What its stateful nodes keep.
    pub states: Arc<NodeStates>,
    /// The runner's instance of it.
    pub kept: OnceLock<Box<dyn Any + Send + Sync>>,
}

impl KeptGraph {
    /// A graph that has not been run yet.
    pub fn new(graph: Graph, states: Arc<NodeStates>) -> KeptGraph {
        KeptGraph { graph, states, kept: OnceLock::new() }
    }
}

/// A function that one caller calls repeatedly.
pub struct KeptFunction {
    /// Its name in the graph's library.
    pub name: String,
    /// The attrs it is instantiated with.
    pub attrs: Attrs,
    /// The runner's instance of it.
    pub kept: OnceLock<Box<dyn Any + Send + Sync>>,
}

impl KeptFunction {
    /// A function that has not been called yet.
    pub fn new(name: String, attrs: Attrs) -> KeptFunction {
        KeptFunction { name, attrs, kept: OnceLock::new() }
    }
}
