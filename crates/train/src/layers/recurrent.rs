//! Recurrent layers over `[batch, time, features]`; they return `[batch, time, units]` or the last
//! time step.

use crate::model::concat;
use thalweg_api::{Any, NewOp, Output, foldl, scan};

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
            pub fn return_sequences(self) -> $name {
                $name(Recurrent { gives_all: true, ..self.0 })
            }
        }
    };
}

constructors!(Lstm);
constructors!(Gru);

impl Recurrent {
    /// A zero state for each example of the batch.
    fn zeros(self, layer: &Model, x: &Output<f32>) -> Output<f32> {
        let batch = first_size(x).expand_dims(0i32);
        layer.fill(concat(&[&batch, &layer.constant([self.units as i32])], 0), 0.0f32)
    }

    /// The last of the outputs `[time, batch, units]`, or all of them as `[batch, time, units]`.
    fn select(self, layer: &Model, all: &Output<f32>) -> Output<f32> {
        if self.gives_all {
            return all.transpose([1, 0, 2]);
        }
        let node = NewOp::new(layer, "StridedSlice").input(all).input([-1]).input([0]).input([1]);
        node.attr("shrink_axis_mask", 1i64).output()
    }
}

/// The size of a tensor's first dimension.
fn first_size(of: &Output<f32>) -> Output<i32> {
    match of.shape().dim(0) {
        Some(size) => of.graph().constant(size as i32),
        None => of.shape_tensor().gather(0i32),
    }
}

impl Layer for Lstm {
    fn build(&self, model: &Model, x: &Output<Any>) -> Output<f32> {
        let Some(inputs) = model.features(x) else { return model.poisoned() };
        let (units, layer) = (self.0.units, model.layer("lstm"));
        let x = x.typed::<f32>().within(&layer);
        let kernel = layer.parameter("kernel", &[inputs, 4 * units], &Initializer::GlorotUniform);
        let dims = [units, 4 * units];
        let recurrent = layer.parameter("recurrent_kernel", &dims, &Initializer::Orthogonal);
        // The bias of the forget gate, the second quarter, is initialized with 1 (`unit_forget_bias`).
        let first = (0..4 * units).map(|i| if i / units == 1 { 1.0 } else { 0.0 }).collect();
        let bias = layer.parameter("bias", &[4 * units], &Initializer::Value(first));
        let steps = x.transpose([1, 0, 2]);
        let zeros = self.0.zeros(&layer, &x);
        // Peephole weights are not used.
        let peephole = layer.constant(vec![0f32; units]);
        let node = NewOp::new(&layer, "BlockLSTMV2").input(first_size(&steps).cast::<i64>());
        let node = node.input(&steps).input(&zeros).input(&zeros);
        let node = node.input(concat(&[&kernel, &recurrent], 0));
        let node = node.input(&peephole).input(&peephole).input(&peephole).input(&bias);
        self.0.select(&layer, &node.build().output(6))
    }
}

impl Layer for Gru {
    fn build(&self, model: &Model, x: &Output<Any>) -> Output<f32> {
        let Some(inputs) = model.features(x) else { return model.poisoned() };
        let (units, layer) = (self.0.units, model.layer("gru"));
        let x = x.typed::<f32>().within(&layer);
        let kernel = layer.parameter("kernel", &[inputs, 3 * units], &Initializer::GlorotUniform);
        // The input part of the gates of all time steps, time-major, as one matrix product.
        let given = rows_times(&layer, &x, &kernel, 3 * units).transpose([1, 0, 2]);
        let dims = [units, 3 * units];
        let recurrent = layer.parameter("recurrent_kernel", &dims, &Initializer::Orthogonal);
        let bias = layer.parameter("bias", &[2, 3 * units], &Initializer::Zeros);
        let [of_input, of_state] = [0, 1].map(|row| bias.gather(row));
        let first = self.0.zeros(&layer, &x);
        let cell = |state: &Output<f32>, input: &Output<f32>| {
            let [input_z, input_r, input_h] = thirds(&input.bias_add(&of_input));
            let [state_z, state_r, state_h] = thirds(&state.matmul(&recurrent).bias_add(&of_state));
            let update = (input_z + state_z).sigmoid();
            let reset = (input_r + state_r).sigmoid();
            let candidate = (input_h + reset * state_h).tanh();
            &update * state + (1.0f32 - &update) * candidate
        };
        over_time(&layer, &given, &first, self.0.gives_all, cell)
    }
}

/// The three parts of a tensor along its last axis.
fn thirds(of: &Output<f32>) -> [Output<f32>; 3] {
    let split = NewOp::new(of.graph(), "Split").input(1i32).input(of);
    let parts = split.attr("num_split", 3i64).build();
    [0, 1, 2].map(|i| parts.output(i))
}

/// Runs `cell` on each row of `rows`, time-major, with the state of the row before; the last state,
/// or all of them as `[batch, time, units]`.
fn over_time(
    layer: &Model,
    rows: &Output<f32>,
    first: &Output<f32>,
    gives_all: bool,
    cell: impl Fn(&Output<f32>, &Output<f32>) -> Output<f32>,
) -> Output<f32> {
    let step = |state: Output<f32>, row: Output<f32>| cell(&state, &row);
    let (rows, first) = (rows.within(layer), first.within(layer));
    match gives_all {
        true => scan(&rows, first, step).transpose([1, 0, 2]),
        false => foldl(&rows, first, step),
    }
}
