//! Recurrent layers over `[batch, time, features]`; they return `[batch, time, units]` or the last
//! time step.

use thalweg_graph::{Output, Scope};
use thalweg_tensor::{DType, Result, Shape, Tensor};

use super::Layer;
use super::dense::rows_times;
use crate::{Initializer, Model};

/// Settings that recurrent layers share.
#[derive(Clone, Copy, Debug)]
struct Recurrent {
    units: usize,
    gives_all: bool,
}

/// Long short-term memory (LSTM).
#[derive(Clone, Copy, Debug)]
pub struct Lstm(Recurrent);

/// Gated recurrent unit (GRU), with the reset gate applied after the matrix product (Keras'
/// default).
#[derive(Clone, Copy, Debug)]
pub struct Gru(Recurrent);

macro_rules! constructors {
    ($name:ident) => {
        impl $name {
            /// A layer with this number of units, which returns the output of the last time step.
            pub fn new(units: usize) -> $name {
                $name(Recurrent { units, gives_all: false })
            }

            /// Returns the outputs of all time steps.
            #[must_use]
            pub fn sequence(self) -> $name {
                $name(Recurrent { gives_all: true, ..self.0 })
            }
        }
    };
}

constructors!(Lstm);
constructors!(Gru);

impl Recurrent {
    /// The input part of the gates of all time steps, time-major, as one matrix product.
    fn inputs(self, layer: &mut Model, x: Output, gates: usize) -> Result<Output> {
        let inputs = layer.features(x)?;
        let width = gates * self.units;
        let kernel = layer.parameter("kernel", &[inputs, width], &Initializer::GlorotUniform)?;
        let kernel = kernel.read(layer)?;
        let product = rows_times(layer, x, kernel, width)?;
        let order = layer.ints(&[1, 0, 2])?;
        layer.add("Transpose", &[product, order])
    }

    /// A zero state for each example of the batch.
    fn zeros(self, layer: &mut Model, x: Output) -> Result<Output> {
        let shape = layer.shape_of(x)?;
        let (from, to, step) = (layer.ints(&[0])?, layer.ints(&[1])?, layer.ints(&[1])?);
        let batch = layer.add("StridedSlice", &[shape, from, to, step])?;
        let units = layer.ints(&[self.units as i32])?;
        let axis = layer.int(0)?;
        let shape = layer.op("ConcatV2").inputs(&[batch, units, axis]).build()?;
        let dtype = layer.dtype(x);
        let zero = layer.number(dtype, 0.0)?;
        layer.add("Fill", &[shape, zero])
    }

    /// Runs `cell` over time; the first of its states is the output.
    fn run(
        self,
        layer: &mut Model,
        inputs: Output,
        states: &[Output],
        cell: impl Fn(&mut Scope, &[Output], Output) -> Result<Vec<Output>>,
    ) -> Result<Output> {
        if !self.gives_all {
            let last = layer.foldl(&[inputs], states, |s, state, row| cell(s, state, row[0]))?;
            return Ok(last[0]);
        }
        let all = layer.scan(&[inputs], states, |s, state, row| cell(s, state, row[0]))?;
        let order = layer.ints(&[1, 0, 2])?;
        layer.add("Transpose", &[all[0], order])
    }
}

fn split(scope: &mut Scope, of: Output, parts: i64) -> Result<Vec<Output>> {
    let axis = scope.number(DType::Int32, 1.0)?;
    scope.op("Split").inputs(&[axis, of]).attr("num_split", parts).build_all()
}

impl Layer for Lstm {
    fn apply(&self, model: &mut Model, x: Output) -> Result<Output> {
        let units = self.0.units;
        let mut layer = model.layer("lstm");
        let inputs = layer.features(x)?;
        let dims = [inputs, 4 * units];
        let kernel = layer.parameter("kernel", &dims, &Initializer::GlorotUniform)?;
        let dims = [units, 4 * units];
        let recurrent = layer.parameter("recurrent_kernel", &dims, &Initializer::Orthogonal)?;
        // The bias of the forget gate, the second quarter, is initialized with 1 (`unit_forget_bias`).
        let first = (0..4 * units).map(|i| if i / units == 1 { 1.0 } else { 0.0 }).collect();
        let bias = layer.parameter("bias", &[4 * units], &Initializer::Value(first))?;
        let bias = bias.read(&mut layer)?;
        let (kernel, recurrent) = (kernel.read(&mut layer)?, recurrent.read(&mut layer)?);
        let axis = layer.int(0)?;
        let weights = layer.op("ConcatV2").inputs(&[kernel, recurrent, axis]).build()?;
        let zeros = self.0.zeros(&mut layer, x)?;
        let order = layer.ints(&[1, 0, 2])?;
        let steps = layer.add("Transpose", &[x, order])?;
        let count = first_size(&mut layer, steps)?;
        // Peephole weights are not used.
        let blind =
            layer.constant(&Tensor::from_slice(Shape::new(&[units])?, &vec![0f32; units])?)?;
        let node = layer.op("BlockLSTMV2").inputs(&[count, steps, zeros, zeros, weights]);
        let all = node.inputs(&[blind, blind, blind, bias]).build_all()?[6];
        if self.0.gives_all {
            return layer.add("Transpose", &[all, order]);
        }
        let (from, to, step) = (layer.ints(&[-1])?, layer.ints(&[0])?, layer.ints(&[1])?);
        let node = layer.op("StridedSlice").inputs(&[all, from, to, step]);
        node.attr("shrink_axis_mask", 1i64).build()
    }
}

/// The size of a tensor's first dimension, as an int64 tensor.
fn first_size(layer: &mut Model, of: Output) -> Result<Output> {
    if let Some(size) = layer.shape(of).dim(0) {
        return layer.constant(&Tensor::scalar(size as i64));
    }
    let shape = layer.shape_of(of)?;
    let (from, to, step) = (layer.ints(&[0])?, layer.ints(&[1])?, layer.ints(&[1])?);
    let node = layer.op("StridedSlice").inputs(&[shape, from, to, step]);
    let size = node.attr("shrink_axis_mask", 1i64).build()?;
    layer.cast(size, DType::Int64)
}

impl Layer for Gru {
    fn apply(&self, model: &mut Model, x: Output) -> Result<Output> {
        let units = self.0.units;
        let mut layer = model.layer("gru");
        let inputs = self.0.inputs(&mut layer, x, 3)?;
        let dims = [units, 3 * units];
        let recurrent = layer.parameter("recurrent_kernel", &dims, &Initializer::Orthogonal)?;
        let recurrent = recurrent.read(&mut layer)?;
        let bias =
            layer.parameter("bias", &[2, 3 * units], &Initializer::Zeros)?.read(&mut layer)?;
        let biases = layer.op("Unpack").input(bias).attr("num", 2i64).build_all()?;
        let zeros = self.0.zeros(&mut layer, x)?;
        let one = layer.float(1.0)?;
        self.0.run(&mut layer, inputs, &[zeros], |s, state, input| {
            let input = s.add("BiasAdd", &[input, biases[0]])?;
            let past = s.add("MatMul", &[state[0], recurrent])?;
            let past = s.add("BiasAdd", &[past, biases[1]])?;
            let (input, past) = (split(s, input, 3)?, split(s, past, 3)?);
            let update = s.add("AddV2", &[input[0], past[0]])?;
            let update = s.add("Sigmoid", &[update])?;
            let reset = s.add("AddV2", &[input[1], past[1]])?;
            let reset = s.add("Sigmoid", &[reset])?;
            let remembered = s.add("Mul", &[reset, past[2]])?;
            let candidate = s.add("AddV2", &[input[2], remembered])?;
            let candidate = s.add("Tanh", &[candidate])?;
            let kept = s.add("Mul", &[update, state[0]])?;
            let open = s.add("Sub", &[one, update])?;
            let new = s.add("Mul", &[open, candidate])?;
            Ok(vec![s.add("AddV2", &[kept, new])?])
        })
    }
}
