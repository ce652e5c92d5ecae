//! Dataset elements, their static specification, and their memory cost.

use std::sync::Arc;

use smallvec::SmallVec;
use thalweg_graph::NodeAttrs;
use thalweg_tensor::{Budget, Charge, DType, PartialShape, Result, Shape, Tensor, ensure};

/// The tensors of one element.
pub(crate) type Element = SmallVec<[Tensor; 2]>;

/// Dtypes and shapes of a dataset's elements (`output_types`, `output_shapes`).
#[derive(Clone)]
pub(crate) struct Spec {
    pub(crate) dtypes: Arc<[DType]>,
    pub(crate) shapes: Arc<[PartialShape]>,
    /// Whether nothing is known, because a Rust closure computes the elements.
    pub(crate) is_open: bool,
}

impl Spec {
    pub(crate) fn new(
        dtypes: impl Into<Arc<[DType]>>,
        shapes: impl Into<Arc<[PartialShape]>>,
    ) -> Result<Spec> {
        let (dtypes, shapes) = (dtypes.into(), shapes.into());
        ensure!(
            dtypes.len() == shapes.len(),
            InvalidArgument,
            "output_types has {} entries, output_shapes has {}",
            dtypes.len(),
            shapes.len()
        );
        Ok(Spec { dtypes, shapes, is_open: false })
    }

    /// The spec of a dataset op's attrs.
    pub(crate) fn of(attrs: NodeAttrs<'_>) -> Result<Spec> {
        let types =
            if attrs.get("output_types").is_some() { "output_types" } else { "Toutput_types" };
        Spec::new(attrs.dtypes(types)?, attrs.shapes("output_shapes")?)
    }

    /// The spec of scalars of one dtype.
    pub(crate) fn scalars(dtype: DType) -> Spec {
        let shapes = Arc::new([PartialShape::scalar()]);
        Spec { dtypes: Arc::new([dtype]), shapes, is_open: false }
    }

    /// The spec of elements of which nothing is known.
    pub(crate) fn open() -> Spec {
        Spec { dtypes: Arc::new([]), shapes: Arc::new([]), is_open: true }
    }

    /// The spec of component `i` alone.
    pub(crate) fn component(&self, i: usize) -> Result<Spec> {
        match (self.dtypes.get(i), self.shapes.get(i)) {
            (Some(&dtype), Some(shape)) => Spec::new(vec![dtype], vec![shape.clone()]),
            _ => Ok(Spec::open()),
        }
    }

    /// Whether elements of spec `found` are compatible with this spec.
    pub(crate) fn check_accepts(&self, found: &Spec) -> Result<()> {
        if found.is_open {
            // Each element is checked when it is drawn.
            return Ok(());
        }
        ensure!(
            self.dtypes.len() == found.dtypes.len(),
            InvalidArgument,
            "Number of components does not match: expected {} types but got {}.",
            self.dtypes.len(),
            found.dtypes.len()
        );
        for (i, (expected, got)) in self.dtypes.iter().zip(&*found.dtypes).enumerate() {
            ensure!(
                expected == got,
                InvalidArgument,
                "Data type mismatch at component {i}: expected {expected} but got {got}."
            );
        }
        for (i, (expected, got)) in self.shapes.iter().zip(&*found.shapes).enumerate() {
            ensure!(
                expected.merge(got).is_ok(),
                InvalidArgument,
                "Incompatible shapes at component {i}: expected {expected} but got {got}."
            );
        }
        Ok(())
    }

    /// Checks an element against the spec.
    pub(crate) fn check(&self, element: &[Tensor]) -> Result<()> {
        ensure!(
            element.len() == self.dtypes.len(),
            InvalidArgument,
            "Number of components does not match: expected {} but got {}.",
            self.dtypes.len(),
            element.len()
        );
        for (i, tensor) in element.iter().enumerate() {
            ensure!(
                tensor.dtype() == self.dtypes[i],
                InvalidArgument,
                "Data type mismatch at component {i}: expected {} but got {}.",
                self.dtypes[i],
                tensor.dtype()
            );
            ensure!(
                self.shapes[i].is_compatible_with(tensor.shape()),
                InvalidArgument,
                "Incompatible shapes at component {i}: expected {} but got {}.",
                self.shapes[i],
                tensor.shape()
            );
        }
        Ok(())
    }
}

/// An element in a buffer.
pub(crate) struct BufferedElement {
    pub(crate) element: Element,
    /// Charge for the buffer slot; the tensors carry their own charges.
    _charge: Charge,
}

impl BufferedElement {
    pub(crate) fn new(element: Element, budget: &Arc<Budget>) -> Result<BufferedElement> {
        element.iter().try_for_each(|tensor| tensor.ensure_charged(budget))?;
        let bytes = size_of::<BufferedElement>() + element.len() * size_of::<Tensor>();
        Ok(BufferedElement { element, _charge: Charge::new(budget, bytes)? })
    }
}

/// Elements that become one batch. No tensor gets out of here, so one charge pays for all of them.
pub(crate) struct GatheredElements {
    pub(crate) elements: Vec<Element>,
    /// Charge for the buffer slots and for the tensors that have no other reference or charge.
    charge: Charge,
    /// How much of the charge is used. It grows by more than one element needs.
    used_bytes: usize,
}

impl GatheredElements {
    pub(crate) fn new(budget: &Arc<Budget>) -> GatheredElements {
        GatheredElements { elements: Vec::new(), charge: Charge::empty(budget), used_bytes: 0 }
    }

    pub(crate) fn push(&mut self, element: Element) -> Result<()> {
        let mut bytes = size_of::<Element>() + element.len() * size_of::<Tensor>();
        for tensor in &element {
            bytes += tensor.uncharged_bytes(self.charge.budget())?;
        }
        reserve(&mut self.charge, self.used_bytes + bytes)?;
        self.used_bytes += bytes;
        self.elements.push(element);
        Ok(())
    }

    pub(crate) fn len(&self) -> usize {
        self.elements.len()
    }

    /// The elements so far; there are none afterwards, and memory for `capacity`.
    pub(crate) fn take(&mut self, capacity: usize) -> GatheredElements {
        let mut next = GatheredElements::new(self.charge.budget());
        next.elements.reserve_exact(capacity);
        std::mem::replace(self, next)
    }
}

/// Grows `charge` to `bytes` at least, and a little further where that is possible.
fn reserve(charge: &mut Charge, bytes: usize) -> Result<()> {
    /// Charged ahead of need.
    const AHEAD_BYTES: usize = 16 << 10;
    let missing = bytes.saturating_sub(charge.bytes());
    if missing == 0 || charge.grow(missing.saturating_add(AHEAD_BYTES)).is_ok() {
        return Ok(());
    }
    charge.grow(missing)
}

/// Slice `i` of a tensor along its first dimension, copied if it is small: a stored slice must not
/// keep a large tensor alive, and a copy can be overwritten in place.
pub(crate) fn slice(tensor: &Tensor, i: usize, budget: &Arc<Budget>) -> Result<Tensor> {
    /// Up to this size, copying costs no more than sharing.
    const COPY_BYTES_MAX: usize = 1024;
    let row = tensor.rows(i, 1, Some(budget))?;
    let shape = Shape::new(&tensor.shape()[1..])?;
    let is_small = !tensor.dtype().is_object() && row.size_bytes() <= COPY_BYTES_MAX;
    let row = if is_small { row.deep_copy(Some(budget))? } else { row };
    row.reshaped(shape)
}
