//! Calling functions of the graph's library from within a kernel.

use std::sync::Arc;

use thalweg_graph::Attrs;
use thalweg_tensor::{Result, Tensor, err};

use crate::StepContext;

/// Called with a function's results, from whatever thread finished it.
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
}

/// Where no functions can be called.
pub struct NoFunctions;

impl FunctionRunner for NoFunctions {
    fn call(&self, name: &str, _: &Attrs, _: Vec<Tensor>, _: &Arc<StepContext>, done: CallDone) {
        done(Err(err!(Unimplemented, "function '{name}' cannot be called here")));
    }
}
