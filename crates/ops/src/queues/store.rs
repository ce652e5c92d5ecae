//! Queue contents, and the order of dequeuing.

use std::collections::VecDeque;
use std::sync::Arc;

use smallvec::SmallVec;
use thalweg_tensor::{Budget, Charge, Result, Tensor, bail};

use super::heap::Heap;
use crate::math::random::philox::Samples;

/// The tensors of one element.
pub(crate) type Components = SmallVec<[Tensor; 2]>;

/// One element of a queue.
pub(crate) struct Element {
    pub(crate) components: Components,
    /// Charge for the element's slot; the tensors carry their own charges.
    _charge: Charge,
}

impl Element {
    pub(crate) fn new(components: Components, budget: &Arc<Budget>) -> Result<Element> {
        components.iter().try_for_each(|component| component.ensure_charged(budget))?;
        let bytes = size_of::<Element>() + components.len() * size_of::<Tensor>();
        Ok(Element { components, _charge: Charge::new(budget, bytes)? })
    }

    /// The first component of an element of a priority queue.
    fn priority(&self) -> Result<i64> {
        match self.components.first() {
            Some(tensor) if tensor.rank() == 0 => tensor.scalar_value(),
            Some(tensor) => bail!(
                InvalidArgument,
                "Expected the priority element to be a scalar, but received shape: {}",
                tensor.shape()
            ),
            None => bail!(Internal, "an element without components"),
        }
    }
}

/// The elements of a queue.
pub(crate) enum Store {
    /// First in, first out.
    Fifo(VecDeque<Element>),
    /// Random order.
    Shuffle(Vec<Element>, Samples),
    /// Smallest priority first.
    Priority(Heap<Element>),
}

impl Store {
    pub(crate) fn len(&self) -> usize {
        match self {
            Store::Fifo(elements) => elements.len(),
            Store::Shuffle(elements, _) => elements.len(),
            Store::Priority(heap) => heap.len(),
        }
    }

    /// Whether elements may stay long after others of the same batch were dequeued.
    pub(crate) fn may_keep_elements_long(&self) -> bool {
        !matches!(self, Store::Fifo(_))
    }

    pub(crate) fn push(&mut self, element: Element) -> Result<()> {
        match self {
            Store::Fifo(elements) => elements.push_back(element),
            Store::Shuffle(elements, _) => elements.push(element),
            Store::Priority(heap) => heap.push(element.priority()?, element),
        }
        Ok(())
    }

    pub(crate) fn pop(&mut self) -> Option<Element> {
        match self {
            Store::Fifo(elements) => elements.pop_front(),
            Store::Shuffle(elements, samples) => {
                if elements.is_empty() {
                    return None;
                }
                let index = samples.next_u32() as usize % elements.len();
                Some(elements.swap_remove(index))
            }
            Store::Priority(heap) => heap.pop(),
        }
    }

    /// Puts back elements that were popped in sequence.
    pub(crate) fn put_back(&mut self, elements: Vec<Element>) {
        for element in elements.into_iter().rev() {
            if let Store::Fifo(queue) = self {
                queue.push_front(element);
            } else {
                // The push cannot fail: the element has a valid priority, since it was in the store
                // before.
                let _ = self.push(element);
            }
        }
    }
}
