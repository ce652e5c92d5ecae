//! The state of a `TensorArray`.
//!
//! A gradient array accumulates the writes to each element, and keeps the shapes of elements that
//! were not written.

use std::sync::Arc;

use parking_lot::Mutex;
use smallvec::SmallVec;
use thalweg_kernel::KernelContext;
use thalweg_tensor::{
    Budget, Charge, DType, PartialShape, Resource, Result, Shape, Tensor, bail, ensure, err,
};

use crate::add_n::sum_of_two;

/// Attrs of an array at its creation.
#[derive(Clone)]
pub(crate) struct Traits {
    pub(crate) dtype: DType,
    pub(crate) shape: PartialShape,
    pub(crate) grows: bool,
    pub(crate) clears_after_read: bool,
    pub(crate) has_identical_shapes: bool,
}

/// A tensor array.
pub(crate) struct TensorArray {
    pub(crate) name: Arc<str>,
    pub(crate) dtype: DType,
    /// Whether it is a gradient array.
    is_gradient: bool,
    clears_after_read: bool,
    has_identical_shapes: bool,
    state: Mutex<State>,
}

struct State {
    elements: Vec<Element>,
    shape: PartialShape,
    grows: bool,
    is_closed: bool,
    /// Number of elements that `Unstack` or `Split` made of one tensor, for the gradient op.
    marked_len: usize,
    charge: Option<Charge>,
}

#[derive(Clone, Default)]
struct Element {
    content: Content,
    is_read: bool,
}

#[derive(Clone, Default)]
enum Content {
    #[default]
    Unwritten,
    /// Zeros: an element of a gradient array that was not written.
    Zeros(Box<Shape>),
    Written(Tensor),
    Cleared,
}

impl Resource for TensorArray {
    fn kind(&self) -> &'static str {
        "TensorArray"
    }
}

impl TensorArray {
    /// An array of `len` unwritten elements.
    pub(crate) fn new(
        name: Arc<str>,
        traits: &Traits,
        len: usize,
        budget: &Arc<Budget>,
    ) -> Result<TensorArray> {
        let mut state = State {
            elements: Vec::new(),
            shape: traits.shape.clone(),
            grows: traits.grows,
            is_closed: false,
            marked_len: 0,
            charge: None,
        };
        state.grow(len, budget)?;
        Ok(TensorArray {
            name,
            dtype: traits.dtype,
            is_gradient: false,
            clears_after_read: traits.clears_after_read,
            has_identical_shapes: traits.has_identical_shapes,
            state: Mutex::new(state),
        })
    }

    /// The gradient array of this array; its element shapes are `prefix` followed by this array's.
    /// After this call the array cannot grow.
    pub(crate) fn gradients(
        &self,
        name: Arc<str>,
        prefix: &[usize],
        budget: &Arc<Budget>,
    ) -> Result<TensorArray> {
        ensure!(!self.is_gradient, InvalidArgument, "{} already holds gradients", self.name);
        let mut forward = self.state.lock();
        forward.grows = false;
        let prefixed = |dims: &[usize]| -> Result<Shape> {
            let all: SmallVec<[usize; 6]> = prefix.iter().chain(dims).copied().collect();
            Shape::new(&all)
        };
        let shape = match forward.shape.dims() {
            None => PartialShape::unknown(),
            Some(dims) => {
                PartialShape::new(prefix.iter().map(|&d| Some(d)).chain(dims.iter().copied()))
            }
        };
        let traits = Traits {
            dtype: self.dtype,
            shape,
            grows: false,
            clears_after_read: true,
            has_identical_shapes: self.has_identical_shapes,
        };
        let mut gradients = TensorArray::new(name, &traits, forward.elements.len(), budget)?;
        gradients.is_gradient = true;
        let state = gradients.state.get_mut();
        state.marked_len = forward.marked_len;
        for (element, of) in state.elements.iter_mut().zip(&forward.elements) {
            if let Some(shape) = of.content.shape() {
                element.content = Content::Zeros(Box::new(prefixed(shape)?));
            }
        }
        Ok(gradients)
    }

    /// Number of elements.
    pub(crate) fn len(&self) -> Result<usize> {
        let state = self.state.lock();
        self.check_open(&state)?;
        Ok(state.elements.len())
    }

    /// Whether writes past the end extend the array (`dynamic_size`).
    pub(crate) fn grows(&self) -> bool {
        self.state.lock().grows
    }

    /// Number of elements that packing or concatenating reads.
    pub(crate) fn packed_len(&self) -> Result<usize> {
        let state = self.state.lock();
        self.check_open(&state)?;
        Ok(if self.is_gradient { state.marked_len } else { state.elements.len() })
    }

    /// Records that one tensor was split into this many elements.
    pub(crate) fn mark_len(&self, len: usize) {
        if !self.is_gradient {
            self.state.lock().marked_len = len;
        }
    }

    /// Merges a shape into the known shape of the elements.
    pub(crate) fn merge_shape(&self, shape: &PartialShape) -> Result<()> {
        let mut state = self.state.lock();
        state.shape = state.shape.merge(shape)?;
        Ok(())
    }

    /// Frees all elements; later operations fail.
    pub(crate) fn close(&self) {
        let mut state = self.state.lock();
        state.is_closed = true;
        let elements = state.elements.iter_mut().map(|e| std::mem::take(&mut e.content));
        let gone: Vec<Content> = elements.collect();
        drop(state);
        drop(gone);
    }

    /// Writes an element; a gradient array adds to it.
    pub(crate) fn write(&self, ctx: &KernelContext<'_>, index: i64, value: Tensor) -> Result<()> {
        let mut state = self.state.lock();
        self.check_open(&state)?;
        let Some(i) = usize::try_from(index).ok().filter(|&i| state.may_write(i)) else {
            bail!(
                InvalidArgument,
                "TensorArray {}: Tried to write to index {index} but array is not resizeable and \
                 size is: {}",
                self.name,
                state.elements.len()
            );
        };
        value.ensure_charged(ctx.budget())?;
        state.grow(i + 1, ctx.budget())?;
        let refused = |why: &str| {
            err!(
                InvalidArgument,
                "TensorArray {}: Could not write to TensorArray index {i} because {why}",
                self.name
            )
        };
        ensure!(value.dtype() == self.dtype, InvalidArgument, "the value is {}", value.dtype());
        if !state.shape.is_compatible_with(value.shape()) {
            return Err(refused(&format!(
                "the value shape is {} which is incompatible with the TensorArray's inferred \
                 element shape: {}",
                value.shape(),
                state.shape
            )));
        }
        if self.has_identical_shapes && state.shape.to_shape().is_none() {
            state.shape = PartialShape::from(value.shape());
        }
        let element = &mut state.elements[i];
        if element.is_read {
            return Err(refused("it has already been read"));
        }
        let known = element.content.shape();
        if !self.is_gradient && known.is_some() {
            return Err(refused("it has already been written to"));
        }
        if let Some(known) = known.filter(|known| *known != value.shape()) {
            let why = format!("the existing shape is {known} but the new one {}", value.shape());
            return Err(refused(&why));
        }
        element.content = Content::Written(match &element.content {
            Content::Written(sum) => sum_of_two(ctx, sum, &value)?,
            _ => value,
        });
        Ok(())
    }

    /// Reads an element.
    pub(crate) fn read(&self, ctx: &KernelContext<'_>, index: i64) -> Result<Tensor> {
        let mut state = self.state.lock();
        self.check_open(&state)?;
        let len = state.elements.len();
        let Some(i) = usize::try_from(index).ok().filter(|&i| i < len) else {
            bail!(InvalidArgument, "Tried to read from index {index} but array size is: {len}");
        };
        let shape = match &state.elements[i].content {
            Content::Cleared => bail!(
                InvalidArgument,
                "TensorArray {}: Could not read index {i} twice because it was cleared after a \
                 previous read (perhaps try setting clear_after_read = false?).",
                self.name
            ),
            Content::Unwritten => Some(state.shape.to_shape().ok_or_else(|| {
                err!(
                    InvalidArgument,
                    "TensorArray {}: index {i} was not written, and the element shape is not \
                     fully defined: {}",
                    self.name,
                    state.shape
                )
            })?),
            Content::Zeros(shape) => Some(Shape::clone(shape)),
            Content::Written(_) => None,
        };
        if let Some(shape) = shape {
            ensure!(
                !self.dtype.is_object(),
                InvalidArgument,
                "an unwritten element of a gradient array needs zeros, but dtype {} has none",
                self.dtype
            );
            state.elements[i].content = Content::Written(ctx.zeros(self.dtype, shape)?);
        }
        let element = &mut state.elements[i];
        element.is_read = true;
        let content = match self.clears_after_read {
            true => std::mem::replace(&mut element.content, Content::Cleared),
            false => element.content.clone(),
        };
        match content {
            Content::Written(value) => Ok(value),
            _ => bail!(Internal, "an element that was read has no value"),
        }
    }

    fn check_open(&self, state: &State) -> Result<()> {
        ensure!(
            !state.is_closed,
            InvalidArgument,
            "TensorArray {} has already been closed.",
            self.name
        );
        Ok(())
    }
}

impl Content {
    /// The shape of an element that was written.
    fn shape(&self) -> Option<&Shape> {
        match self {
            Content::Written(tensor) => Some(tensor.shape()),
            Content::Zeros(shape) => Some(shape),
            Content::Unwritten | Content::Cleared => None,
        }
    }
}

impl State {
    fn may_write(&self, i: usize) -> bool {
        self.grows || i < self.elements.len()
    }

    /// Extends the array to at least this length; doubles the capacity, so that repeated writes
    /// take linear time.
    fn grow(&mut self, len: usize, budget: &Arc<Budget>) -> Result<()> {
        if len > self.elements.capacity() {
            let capacity = len.max(self.elements.capacity().saturating_mul(2));
            let bytes = capacity.saturating_mul(size_of::<Element>());
            let charge = Charge::new(budget, bytes)?;
            self.elements
                .try_reserve_exact(capacity - self.elements.len())
                .map_err(|_| err!(ResourceExhausted, "out of memory for {bytes} bytes"))?;
            self.charge = Some(charge);
        }
        if len > self.elements.len() {
            self.elements.resize(len, Element::default());
        }
        Ok(())
    }
}
