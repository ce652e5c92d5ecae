//! What the kernels of stateful nodes keep between steps.

use std::any::Any;
use std::sync::Arc;

use parking_lot::Mutex;
use rustc_hash::FxHashMap;
use thalweg_tensor::{Result, err};

/// The states of a session's nodes by name, such as generators of random numbers: the kernels that a
/// node has in different plans and on different devices share its state.
#[derive(Default)]
pub struct NodeStates(Mutex<FxHashMap<Box<str>, Arc<dyn Any + Send + Sync>>>);

impl NodeStates {
    /// The state of the node of this name, which `make` creates for its first kernel.
    pub fn find_or_create<T: Any + Send + Sync>(
        &self,
        node: &str,
        make: impl FnOnce() -> Result<T>,
    ) -> Result<Arc<T>> {
        let mut states = self.0.lock();
        if let Some(state) = states.get(node) {
            let wrong = || err!(Internal, "the state of node {node} has another type");
            return state.clone().downcast().map_err(|_| wrong());
        }
        let state = Arc::new(make()?);
        states.insert(node.into(), state.clone());
        Ok(state)
    }
}
