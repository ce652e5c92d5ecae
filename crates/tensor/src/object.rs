//! Elements that are objects: resource handles and variants.
//!
//! Each element of an object tensor is charged for its slot, which pays for the object itself: a short
//! string, a variant without its tensors. Longer strings carry charges of their own (`string.rs`), and
//! so do the tensors in a variant.

use std::any::Any;
use std::fmt;
use std::sync::Arc;

use bytes::Bytes;

use crate::{DType, PartialShape, Result, Tensor, ensure};

/// State that outlives a step: a variable, a queue, a table.
///
/// Kernels reach it by downcasting; [`ResourceHandle`] carries it along an edge.
pub trait Resource: Any + Send + Sync {
    /// Name of the kind for messages: `Variable`, `FIFOQueue`.
    fn kind(&self) -> &'static str;

    /// Whether resource tensors refer to it; reference edges do otherwise.
    fn has_handle(&self) -> bool {
        true
    }

    /// Bytes of the tensors that it holds, if that is known without waiting for a lock; else 0.
    fn held_bytes(&self) -> usize {
        0
    }

    /// Elements in it and how many it may have, if it is a queue.
    fn queue_size(&self) -> Option<QueueSize> {
        None
    }
}

/// How full a queue is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueueSize {
    /// Number of its elements.
    pub elements: u64,
    /// The most that it may have; none if there is no limit.
    pub capacity: Option<u64>,
}

/// An element of a resource tensor: the name of the state, and the state itself if the handle owns it.
#[derive(Clone)]
pub struct ResourceHandle {
    /// Full name of the device that holds the state.
    pub device: Arc<str>,
    /// Container within the device's resource manager.
    pub container: Arc<str>,
    /// Name within the container.
    pub name: Arc<str>,
    /// Types and shapes of what the resource holds, as far as known.
    pub dtypes_and_shapes: Arc<[(DType, PartialShape)]>,
    /// The state, if the handle was made in this process and owns it (anonymous resources).
    pub owned: Option<Arc<dyn Resource>>,
}

impl Default for ResourceHandle {
    /// An empty handle: the initial element of a new resource tensor.
    fn default() -> Self {
        ResourceHandle {
            device: "".into(),
            container: "".into(),
            name: "".into(),
            dtypes_and_shapes: Arc::new([]),
            owned: None,
        }
    }
}

impl fmt::Debug for ResourceHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "<resource {}/{} on {}>", self.container, self.name, self.device)
    }
}

impl PartialEq for ResourceHandle {
    fn eq(&self, other: &Self) -> bool {
        (&self.device, &self.container, &self.name)
            == (&other.device, &other.container, &other.name)
    }
}

/// The value of a variant element: a tensor list, an optional, a dataset.
pub trait Variant: Any + Send + Sync + fmt::Debug {
    /// The registered type name, as it travels on the wire.
    fn type_name(&self) -> &str;
    /// Metadata and tensors from which another process can rebuild the value; `None` if none can.
    fn encode(&self) -> Option<(Bytes, Vec<Tensor>)>;
    /// Levels of variants nested in this one.
    fn depth(&self) -> usize {
        0
    }
}

/// Limit on the nesting of variants in tensors in variants: dropping, adding and encoding them recurse.
const NESTING_MAX: usize = 64;

/// Levels of nested variants in a tensor, 0 for other dtypes; 64 or more are an error. Every
/// tensor that becomes part of a variant is checked here.
pub fn check_nesting(tensor: &Tensor) -> Result<usize> {
    if tensor.dtype() != DType::Variant {
        return Ok(0);
    }
    let depth = tensor.variants()?.iter().flatten().map(|v| v.depth() + 1).max().unwrap_or(0);
    ensure!(depth < NESTING_MAX, InvalidArgument, "variants are nested {depth} levels deep");
    Ok(depth)
}

/// An element of a variant tensor; `None` is TensorFlow's empty variant.
pub type VariantValue = Option<Arc<dyn Variant>>;
