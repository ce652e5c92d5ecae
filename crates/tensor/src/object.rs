//! Elements that are objects: strings' companions, resources and variants.

use std::any::Any;
use std::fmt;
use std::sync::Arc;

use bytes::Bytes;

use crate::{DType, PartialShape, Result, Tensor, ensure};

/// State that outlives a step: a variable, a queue, a table.
///
/// Kernels reach it by downcasting; [`ResourceHandle`] carries it along an edge.
pub trait Resource: Any + Send + Sync {
    /// The kind, as messages name it: `Variable`, `FIFOQueue`.
    fn kind(&self) -> &'static str;

    /// Whether resource tensors refer to it, rather than reference edges.
    fn has_handle(&self) -> bool {
        true
    }

    /// Bytes of the tensors that it holds, where it is known at once.
    fn held_bytes(&self) -> usize {
        0
    }
}

/// An element of a resource tensor: where the state lives, and the state itself once it is found.
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
    /// A handle to nothing, as a new resource tensor holds it before it is written.
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

/// A value of a type that TensorFlow does not know: tensor lists, optionals, datasets.
pub trait Variant: Any + Send + Sync + fmt::Debug {
    /// The registered type name, as it travels on the wire.
    fn type_name(&self) -> &str;
    /// Metadata and tensors that rebuild the value elsewhere; `None` if it cannot travel.
    fn encode(&self) -> Option<(Bytes, Vec<Tensor>)>;
    /// How many variants lie within one another inside this one.
    fn depth(&self) -> usize {
        0
    }
}

/// Variants may hold tensors of variants, this many levels deep: dropping, adding and sending them
/// recurses.
const NESTING_MAX: usize = 64;

/// The levels of variants in a tensor, none if it holds something else; too many are an error. What
/// becomes part of a variant must pass here.
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
