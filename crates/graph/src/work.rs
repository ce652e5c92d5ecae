//! The work of a node, from the shapes of its tensors: what a cost model divides by a device's speed.

use std::ops::Range;

use smallvec::SmallVec;
use thalweg_tensor::{DType, PartialShape};

use crate::{Endpoint, Graph, Node, NodeAttrs, OutputInfo};

/// Assumed size of a dimension that is not known: a batch.
const UNKNOWN_SIZE: f64 = 32.0;
/// Assumed number of elements of a tensor of unknown rank.
const UNKNOWN_ELEMENTS: f64 = 256.0;
/// Assumed bytes of an element that is an object: a string, a handle, a variant.
const OBJECT_BYTES: f64 = 16.0;

/// Time to read an element that is an object: to follow a pointer.
const OBJECT_READ_SECONDS: f64 = 3e-9;
/// Time to write an element that is an object: to allocate.
const OBJECT_WRITE_SECONDS: f64 = 3e-8;

/// Bound of every number, above the work of any machine.
const MOST: f64 = 1e30;

/// The work of one run of a node.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Work {
    /// Floating-point operations, a multiplication and an addition counted as two, as a product of
    /// matrices performs them. What runs at a lower rate counts as the operations that a product
    /// performs in the same time: a division, a call of `exp`, an unpredictable branch.
    pub flops: f64,
    /// Bytes read and written.
    pub bytes: f64,
    /// Time that no faster device shortens, beyond the device's own time to start a kernel.
    pub seconds: f64,
}

/// Computes the work of a node.
pub type WorkFn = fn(&WorkContext<'_>) -> Work;

/// Forms of work that many ops share. Inputs and outputs are moved once, unless the form says
/// otherwise.
impl Work {
    /// Nothing: the op passes its input on, or describes it.
    pub const fn none(_: &WorkContext<'_>) -> Work {
        Work { flops: 0.0, bytes: 0.0, seconds: 0.0 }
    }

    /// One operation for each element of the outputs.
    pub fn per_element(context: &WorkContext<'_>) -> Work {
        Work::scaled(context, 1.0)
    }

    /// `FLOPS` operations for each element of the outputs.
    pub fn per_output<const FLOPS: u32>(context: &WorkContext<'_>) -> Work {
        Work::scaled(context, f64::from(FLOPS))
    }

    /// `FLOPS` operations for each element of the largest input.
    pub fn per_input<const FLOPS: u32>(context: &WorkContext<'_>) -> Work {
        Work::of(context, f64::from(FLOPS) * context.largest_input().0)
    }

    /// `flops` operations for each element of the outputs.
    pub fn scaled(context: &WorkContext<'_>, flops: f64) -> Work {
        let elements: f64 = (0..context.outputs()).map(|i| context.output_elements(i)).sum();
        Work::of(context, flops * elements)
    }

    /// `flops` operations.
    pub fn of(context: &WorkContext<'_>, flops: f64) -> Work {
        Work { flops, ..Work::moves(context) }
    }

    /// No arithmetic.
    pub fn moves(context: &WorkContext<'_>) -> Work {
        Work { flops: 0.0, bytes: context.moved_bytes(), seconds: context.object_seconds() }
    }

    /// No arithmetic; the outputs are written, and as much is read: part of an input.
    pub fn copies_outputs(context: &WorkContext<'_>) -> Work {
        let written: f64 = context.written().map(|o| tensor_bytes(&o.shape, o.dtype)).sum();
        Work { bytes: 2.0 * written, ..Work::moves(context) }
    }

    /// Changes `STATES` variables by the largest input, or as many rows of them as it has: reads
    /// and writes each, with `FLOPS` operations for each element.
    pub fn updates<const STATES: u32, const FLOPS: u32>(context: &WorkContext<'_>) -> Work {
        let ((elements, size), work) = (context.largest_input(), Work::moves(context));
        let bytes = work.bytes + 2.0 * f64::from(STATES) * size;
        Work { flops: f64::from(FLOPS) * elements, bytes, ..work }
    }

    /// Takes `NANOSECONDS` for each element of the largest input or output, on any device: parses,
    /// hashes, or follows pointers.
    pub fn serial<const NANOSECONDS: u32>(context: &WorkContext<'_>) -> Work {
        let outputs = (0..context.outputs()).map(|i| context.output_elements(i));
        let elements = outputs.fold(context.largest_input().0, f64::max);
        let work = Work::moves(context);
        Work { seconds: work.seconds + 1e-9 * f64::from(NANOSECONDS) * elements, ..work }
    }

    /// Takes `MICROSECONDS` besides, on any device: locks, allocates, asks the operating system.
    pub fn fixed<const MICROSECONDS: u32>(context: &WorkContext<'_>) -> Work {
        let work = Work::moves(context);
        Work { seconds: work.seconds + 1e-6 * f64::from(MICROSECONDS), ..work }
    }
}

/// A node whose work is asked for.
pub struct WorkContext<'a> {
    graph: &'a Graph,
    node: &'a Node,
}

impl<'a> WorkContext<'a> {
    /// The node `node` of `graph`.
    pub fn new(graph: &'a Graph, node: &'a Node) -> WorkContext<'a> {
        WorkContext { graph, node }
    }

    /// The work that the node's op states, finite whatever the shapes are.
    pub fn work(&self) -> Work {
        let Work { flops, bytes, seconds } = (self.node.op.work)(self);
        // NaN, such as 0 * infinity, becomes 0.
        let finite = |x: f64| if x > 0.0 { x.min(MOST) } else { 0.0 };
        Work { flops: finite(flops), bytes: finite(bytes), seconds: finite(seconds) }
    }

    /// The node's attrs.
    pub fn attrs(&self) -> NodeAttrs<'_> {
        self.node.attrs()
    }

    /// The number of inputs.
    pub fn inputs(&self) -> usize {
        self.node.inputs.len()
    }

    /// The number of outputs.
    pub fn outputs(&self) -> usize {
        self.node.outputs.len()
    }

    fn input(&self, i: usize) -> Option<&OutputInfo> {
        self.node.inputs.get(i).map(|&e: &Endpoint| self.graph.output(e))
    }

    /// The dimensions of an input, those that are not known as assumed; empty for a scalar, a tensor
    /// of unknown rank and an input that does not exist.
    pub fn input_dims(&self, i: usize) -> SmallVec<[f64; 4]> {
        self.input(i).map_or_else(SmallVec::new, |o| dims(&o.shape))
    }

    /// The dimensions of an output, in the same way.
    pub fn output_dims(&self, i: usize) -> SmallVec<[f64; 4]> {
        self.node.outputs.get(i).map_or_else(SmallVec::new, |o| dims(&o.shape))
    }

    /// The number of elements of an input.
    pub fn input_elements(&self, i: usize) -> f64 {
        self.input(i).map_or(0.0, |o| elements(&o.shape))
    }

    /// The number of elements of an output.
    pub fn output_elements(&self, i: usize) -> f64 {
        self.node.outputs.get(i).map_or(0.0, |o| elements(&o.shape))
    }

    /// The dtype of an output, if it exists.
    pub fn output_dtype(&self, i: usize) -> Option<DType> {
        self.node.outputs.get(i).map(|o| o.dtype)
    }

    /// The size of an input.
    pub fn input_bytes(&self, i: usize) -> f64 {
        self.input(i).map_or(0.0, |o| tensor_bytes(&o.shape, o.dtype))
    }

    /// The size of an output.
    pub fn output_bytes(&self, i: usize) -> f64 {
        self.node.outputs.get(i).map_or(0.0, |o| tensor_bytes(&o.shape, o.dtype))
    }

    /// The size of all inputs and outputs; a variable that is passed by reference is not moved.
    pub fn moved_bytes(&self) -> f64 {
        self.read().map(|o| tensor_bytes(&o.shape, o.dtype)).sum::<f64>()
            + self.written().map(|o| tensor_bytes(&o.shape, o.dtype)).sum::<f64>()
    }

    /// The time to read and write the elements that are objects.
    fn object_seconds(&self) -> f64 {
        let objects = |o: &OutputInfo| if o.dtype.is_object() { elements(&o.shape) } else { 0.0 };
        OBJECT_READ_SECONDS * self.read().map(objects).sum::<f64>()
            + OBJECT_WRITE_SECONDS * self.written().map(objects).sum::<f64>()
    }

    /// The elements and bytes of the input that has the most elements.
    fn largest_input(&self) -> (f64, f64) {
        let sizes = self.read().map(|o| (elements(&o.shape), tensor_bytes(&o.shape, o.dtype)));
        sizes.fold((0.0, 0.0), |most, size| if size.0 > most.0 { size } else { most })
    }

    /// The inputs whose values the op reads.
    fn read(&self) -> impl Iterator<Item = &OutputInfo> {
        let references = self.node.op.inputs.iter().filter(|arg| arg.is_ref);
        let references: SmallVec<[Range<usize>; 4]> =
            references.filter_map(|arg| self.node.input_range(&arg.name).ok()).collect();
        let inputs = (0..self.inputs()).filter(move |i| !references.iter().any(|r| r.contains(i)));
        inputs.filter_map(|i| self.input(i))
    }

    /// The outputs that are not references.
    fn written(&self) -> impl Iterator<Item = &OutputInfo> {
        self.node.outputs.iter().filter(|o| !o.is_ref)
    }
}

fn dims(shape: &PartialShape) -> SmallVec<[f64; 4]> {
    let dims = shape.dims().unwrap_or_default();
    dims.iter().map(|d| d.map_or(UNKNOWN_SIZE, |d| d as f64)).collect()
}

fn elements(shape: &PartialShape) -> f64 {
    match shape.dims() {
        Some(_) => dims(shape).iter().product::<f64>().min(MOST),
        None => UNKNOWN_ELEMENTS,
    }
}

/// The size of a tensor of this shape; what is not known of it is assumed.
pub fn tensor_bytes(shape: &PartialShape, dtype: DType) -> f64 {
    let element = if dtype.is_object() { OBJECT_BYTES } else { dtype.size() as f64 };
    elements(shape) * element
}
