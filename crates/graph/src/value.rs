//! Static values: elements of small integer tensors that are known at graph construction, for shape
//! inference.
//!
//! `Reshape(x, Pack([Shape(x)[0], -1]))` has a known rank before any step runs. Ops of such
//! expressions have a [`ValueFn`]; evaluation follows inputs from the consumer, bounded.

use smallvec::SmallVec;
use thalweg_tensor::{DType, PartialShape, Result, Shape, Tensor, bail};

use crate::{Endpoint, Graph, Node, NodeAttrs, Role};

/// Maximum number of elements of an evaluated tensor; longer vectors are not shapes.
const LEN_MAX: usize = 1024;
/// Maximum number of nodes that one evaluation visits.
const VISITS_MAX: usize = 256;

/// The elements of an integer scalar or vector, each known or not.
#[derive(Clone, Debug, PartialEq)]
pub struct PartialValue {
    /// The elements.
    pub elements: SmallVec<[Option<i64>; 4]>,
    /// Whether it is a scalar (then it has one element).
    pub is_scalar: bool,
}

impl PartialValue {
    /// A scalar.
    pub fn scalar(value: Option<i64>) -> Self {
        PartialValue { elements: smallvec::smallvec![value], is_scalar: true }
    }

    /// A vector.
    pub fn vector(elements: impl IntoIterator<Item = Option<i64>>) -> Self {
        PartialValue { elements: elements.into_iter().collect(), is_scalar: false }
    }

    /// The first element of a vector, or a scalar's value, if known.
    pub fn first(&self) -> Option<i64> {
        self.elements.first().copied().flatten()
    }

    /// All elements, if all are known.
    pub fn known(&self) -> Option<Vec<i64>> {
        self.elements.iter().copied().collect()
    }

    /// The shape that these sizes describe: -1 and unknown elements are unknown sizes, and the
    /// scalar -1 is a shape of unknown rank.
    pub fn to_shape(&self) -> Result<PartialShape> {
        if self.is_scalar {
            return match self.elements[0] {
                Some(-1) | None => Ok(PartialShape::unknown()),
                Some(d) => bail!(InvalidArgument, "a shape must be a vector, got the scalar {d}"),
            };
        }
        let mut dims = SmallVec::<[Option<usize>; 4]>::new();
        for &element in &self.elements {
            dims.push(match element {
                None | Some(-1) => None,
                Some(d) if d >= 0 => Some(d as usize),
                Some(d) => bail!(InvalidArgument, "a shape cannot have size {d}"),
            });
        }
        Ok(PartialShape::new(dims))
    }

    /// The tensor, if all elements are known and representable in `dtype`.
    pub(crate) fn to_tensor(&self, dtype: DType) -> Option<Tensor> {
        let known = self.known()?;
        let shape = match self.is_scalar {
            true => Shape::scalar(),
            false => Shape::new(&[known.len()]).ok()?,
        };
        match dtype {
            DType::Int32 => {
                let known: Vec<i32> =
                    known.iter().map(|&x| x.try_into().ok()).collect::<Option<_>>()?;
                Tensor::from_slice(shape, &known).ok()
            }
            DType::Int64 => Tensor::from_slice(shape, &known).ok(),
            _ => None,
        }
    }

    /// Whether the known elements are representable in `dtype`: in a step, 32-bit values wrap
    /// around.
    fn fits(&self, dtype: DType) -> bool {
        let fits = |x: &i64| dtype != DType::Int32 || i32::try_from(*x).is_ok();
        self.elements.len() <= LEN_MAX && self.elements.iter().flatten().all(fits)
    }

    fn from_tensor(tensor: &Tensor) -> Option<Self> {
        if tensor.rank() > 1 || tensor.num_elements() > LEN_MAX {
            return None;
        }
        let elements = match tensor.dtype() {
            DType::Int32 => {
                tensor.as_slice::<i32>().ok()?.iter().map(|&x| Some(x.into())).collect()
            }
            DType::Int64 => tensor.as_slice::<i64>().ok()?.iter().map(|&x| Some(x)).collect(),
            _ => return None,
        };
        Some(PartialValue { elements, is_scalar: tensor.rank() == 0 })
    }
}

/// A value function: computes the static value of an output from those of the inputs.
pub type ValueFn = fn(&mut ValueContext<'_>) -> Option<PartialValue>;

/// Argument of a value function: a node and the output to evaluate.
pub struct ValueContext<'a> {
    graph: &'a Graph,
    node: &'a Node,
    output: usize,
    visits: &'a mut usize,
}

impl<'a> ValueContext<'a> {
    /// The node's attrs.
    pub fn attrs(&self) -> NodeAttrs<'a> {
        self.node.attrs()
    }

    /// Index of the output to evaluate.
    pub fn output(&self) -> usize {
        self.output
    }

    /// Number of inputs.
    pub fn num_inputs(&self) -> usize {
        self.node.inputs.len()
    }

    /// Shape of input `i`; unknown for back edges of loops.
    pub fn input_shape(&self, i: usize) -> &'a PartialShape {
        crate::shape::input_shape(self.graph, self.node, i)
    }

    /// Value of input `i`.
    pub fn input(&mut self, i: usize) -> Option<PartialValue> {
        evaluate(self.graph, *self.node.inputs.get(i)?, self.visits)
    }
}

/// The static value of `endpoint`, as far as known.
pub(crate) fn partial_value(graph: &Graph, endpoint: Endpoint) -> Option<PartialValue> {
    evaluate(graph, endpoint, &mut 0)
}

fn evaluate(graph: &Graph, endpoint: Endpoint, visits: &mut usize) -> Option<PartialValue> {
    *visits += 1;
    // The bound on visits also bounds the depth of recursion.
    if *visits > VISITS_MAX {
        return None;
    }
    let node = graph.nodes().get(endpoint.node.index())?;
    let output = node.outputs.get(endpoint.index as usize)?;
    if !matches!(output.dtype, DType::Int32 | DType::Int64) {
        return None;
    }
    if let Some(tensor) = constant(graph, endpoint) {
        return PartialValue::from_tensor(&tensor);
    }
    let (dtype, output) = (output.dtype, endpoint.index as usize);
    let value = (node.op.value?)(&mut ValueContext { graph, node, output, visits })?;
    value.fits(dtype).then_some(value)
}

/// The tensor of a `Const` node, if it is small enough to be a shape.
pub(crate) fn constant(graph: &Graph, endpoint: Endpoint) -> Option<Tensor> {
    let node = graph.nodes().get(endpoint.node.index())?;
    if node.role() != Role::Const {
        return None;
    }
    let proto = node.attrs().tensor_proto("value").ok()?;
    let elements: i64 = match &proto.tensor_shape {
        Some(shape) => shape.dim.iter().try_fold(1i64, |n, d| n.checked_mul(d.size))?,
        None => 1,
    };
    if !(0..=LEN_MAX as i64).contains(&elements) {
        return None;
    }
    Tensor::from_proto(proto, None).ok()
}
