//! Iteration over elements without a graph.

use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};

use thalweg_kernel::StepContext;
use thalweg_tensor::{Result, Tensor, err};

use super::Dataset;
use crate::data::dataset::Iterate;
use crate::data::scope::Scope;

/// The elements of one iteration. Dropping it ends background work.
///
/// Iteration can continue after an error, which concerns one element.
pub struct Elements {
    iterator: Box<dyn Iterate>,
    scope: Arc<Scope>,
    waker: Waker,
    owner: Thread,
    /// The step context, which the scope holds only weakly.
    _step: Arc<StepContext>,
    is_ended: bool,
}

impl Dataset {
    /// An iterator over the elements, with the threads, files and memory of a step.
    pub fn elements_in(&self, step: &Arc<StepContext>) -> Result<Elements> {
        let source = self.source.as_ref().map_err(Clone::clone)?;
        let scope = Scope::new(step);
        let owner = thread::current();
        Ok(Elements {
            iterator: source.iterate(&scope)?,
            waker: Waker::from(Arc::new(Unpark(owner.clone()))),
            owner,
            scope,
            _step: step.clone(),
            is_ended: false,
        })
    }
}

/// Wakes the thread that waits for an element.
struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

impl Iterator for Elements {
    type Item = Result<Vec<Tensor>>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.is_ended {
            return None;
        }
        let here = thread::current();
        if here.id() != self.owner.id() {
            self.waker = Waker::from(Arc::new(Unpark(here.clone())));
            self.owner = here;
        }
        loop {
            if let Err(e) = self.scope.cancellation.check() {
                self.is_ended = true;
                return Some(Err(e));
            }
            match self.iterator.poll_next(&mut Context::from_waker(&self.waker)) {
                Poll::Ready(Ok(Some(element))) => return Some(Ok(element.into_vec())),
                Poll::Ready(Err(e)) => return Some(Err(e)),
                Poll::Ready(Ok(None)) => {
                    self.is_ended = true;
                    return None;
                }
                Poll::Pending => thread::park(),
            }
        }
    }
}

impl Drop for Elements {
    fn drop(&mut self) {
        self.scope.cancellation.cancel(err!(Cancelled, "the iterator was dropped"));
    }
}
