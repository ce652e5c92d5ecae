//! The work of a node, from the shapes of its tensors: what a cost model divides by a device's speed.

use smallvec::SmallVec;
use thalweg_tensor::{DType, PartialShape};

use crate::{Endpoint, Graph, Node, NodeAttrs, OutputInfo};

/// Assumed size of a dimension that is not known: a batch.
const UNKNOWN_SIZE: f64 = 32.0;
/// Assumed number of elements of a tensor of unknown rank.
const UNKNOWN_ELEMENTS: f64 = 256.0;
/// Assumed bytes of an element that is an object: a string, a handle, a variant.
const OBJECT_BYTES: f64 = 16.0;

/// The work of one run of a node.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Work {
    /// Floating-point operations, a multiplication and an addition counted as two.
    pub flops: f64,
    /// Bytes read and written.
    pub bytes: f64,
    /// Time that no faster device shortens, beyond the device's own time to start a kernel.
    pub seconds: f64,
}

/// Computes the work of a node.
pub type WorkFn = fn(&WorkContext<'_>) -> Work;

impl Work {
    /// Nothing: the op passes its input on, or describes it.
    pub const fn none(_: &WorkContext<'_>) -> Work {
        Work { flops: 0.0, bytes: 0.0, seconds: 0.0 }
    }

    /// One operation for each element of the outputs; inputs and outputs are moved once.
    pub fn per_element(context: &WorkContext<'_>) -> Work {
        Work::scaled(context, 1.0)
    }

    /// `flops` operations for each element of the outputs; inputs and outputs are moved once.
    pub fn scaled(context: &WorkContext<'_>, flops: f64) -> Work {
        let elements: f64 = (0..context.outputs()).map(|i| context.output_elements(i)).sum();
        Work { flops: flops * elements, bytes: context.moved_bytes(), seconds: 0.0 }
    }

    /// `flops` operations for each element of the inputs; inputs and outputs are moved once.
    pub fn per_input(context: &WorkContext<'_>, flops: f64) -> Work {
        let elements: f64 = (0..context.inputs()).map(|i| context.input_elements(i)).sum();
        Work { flops: flops * elements, bytes: context.moved_bytes(), seconds: 0.0 }
    }

    /// No arithmetic; inputs and outputs are moved once.
    pub fn moves(context: &WorkContext<'_>) -> Work {
        Work { bytes: context.moved_bytes(), ..Work::default() }
    }

    /// No arithmetic; the outputs are written once, and as much is read.
    pub fn copies_outputs(context: &WorkContext<'_>) -> Work {
        let written: f64 = (0..context.outputs()).map(|i| context.output_bytes(i)).sum();
        Work { bytes: 2.0 * written, ..Work::default() }
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

    /// The work that the node's op states.
    pub fn work(&self) -> Work {
        (self.node.op.work)(self)
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

    /// The size of an input.
    pub fn input_bytes(&self, i: usize) -> f64 {
        self.input(i).map_or(0.0, |o| tensor_bytes(&o.shape, o.dtype))
    }

    /// The size of an output.
    pub fn output_bytes(&self, i: usize) -> f64 {
        self.node.outputs.get(i).map_or(0.0, |o| tensor_bytes(&o.shape, o.dtype))
    }

    /// The size of all inputs and outputs.
    pub fn moved_bytes(&self) -> f64 {
        let read: f64 = (0..self.inputs()).map(|i| self.input_bytes(i)).sum();
        let written: f64 = (0..self.outputs()).map(|i| self.output_bytes(i)).sum();
        read + written
    }
}

fn dims(shape: &PartialShape) -> SmallVec<[f64; 4]> {
    let dims = shape.dims().unwrap_or_default();
    dims.iter().map(|d| d.map_or(UNKNOWN_SIZE, |d| d as f64)).collect()
}

fn elements(shape: &PartialShape) -> f64 {
    match shape.dims() {
        Some(_) => dims(shape).iter().product(),
        None => UNKNOWN_ELEMENTS,
    }
}

/// The size of a tensor of this shape; what is not known of it is assumed.
pub fn tensor_bytes(shape: &PartialShape, dtype: DType) -> f64 {
    let element = if dtype.is_object() { OBJECT_BYTES } else { dtype.size() as f64 };
    elements(shape) * element
}
