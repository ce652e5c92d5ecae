//! Gradient buffers: where the gradients of a round are kept until they are applied.

use std::collections::BTreeMap;

use thalweg_api::{Any, Built, Graph, NewOp, Operation, Output, Ref, tf};
use thalweg_tensor::{DType, PartialShape};

use super::Order;
use super::towers::joined;
use crate::gradient::Gradients;
use crate::model::NewLocal;
use crate::optimizer::summed_rows;
use crate::state::State;
use crate::view::{cast_to, number};
use crate::{Gradient, Model, Variable};

/// Buffers for the gradients of all variables.
pub(super) struct Store {
    places: Vec<Place>,
}

/// The workers whose gradients a round applies.
#[derive(Clone)]
pub(super) struct Admitted {
    /// A vector: 1 for each worker whose gradient is applied, else 0.
    pub votes: Output<f32>,
    /// The number of workers.
    pub count: usize,
}

/// The buffer for the gradients of one variable, on the variable's device.
struct Place {
    variable: Variable,
    is_sparse: bool,
    kind: Kind,
}

enum Kind {
    /// One accumulator for all workers, which keeps their sum.
    Sum(Output<Ref<String>>),
    /// A slot variable per worker; for sparse gradients one of indices and one of values.
    Slots(Vec<Slot>),
}

struct Slot {
    values: State<Any>,
    indices: Option<State<i64>>,
}

impl Store {
    pub(super) fn new(model: &Model, gradients: &Gradients, count: usize, order: Order) -> Store {
        let place = |(variable, gradient): &(Variable, Gradient)| {
            let is_sparse = matches!(gradient, Gradient::Sparse { .. });
            let slot = |index| Slot::new(model, variable, is_sparse, index);
            let kind = match order {
                Order::Arrival => Kind::Sum(accumulator(model, variable, is_sparse)),
                Order::Worker => Kind::Slots((0..count).map(slot).collect()),
            };
            Place { variable: variable.clone(), is_sparse, kind }
        };
        Store { places: gradients.iter().map(place).collect() }
    }

    /// Adds a worker's gradients; returns the nodes that must have run before the worker votes.
    pub(super) fn deliver(
        &self,
        view: &Graph,
        gradients: &Gradients,
        index: usize,
        round: &Output<i64>,
    ) -> Vec<Operation> {
        let at = view.scope("deliver");
        let places = self.places.iter().zip(gradients);
        places
            .flat_map(|(place, (_, gradient))| place.deliver(&at, gradient, index, round))
            .collect()
    }

    /// The mean of the gradients of the admitted workers.
    pub(super) fn combine(&self, view: &Graph, admitted: &Admitted) -> Gradients {
        let at = view.scope("combine");
        // The votes are copied once to each parameter server.
        let mut weights: BTreeMap<String, Weights> = BTreeMap::new();
        let mean = |place: &Place| {
            let (variable, beside) = (place.variable.clone(), at.device(&place.variable.device));
            let weights = weights.entry(variable.device.clone());
            let weights = weights.or_insert_with(|| Weights::new(&beside, admitted));
            let mean = place.mean(&beside, weights);
            (variable, mean)
        };
        self.places.iter().map(mean).collect()
    }

    /// Whether each accumulator holds the gradients of the admitted workers and no others.
    pub(super) fn are_whole(&self, view: &Graph, admitted: &Admitted) -> Vec<Output<bool>> {
        let at = view.scope("whole");
        let is_whole = |(place, accumulator): (&Place, &Output<_>)| {
            let beside = at.device(&place.variable.device);
            let count = tf::accumulator_num_accumulated(accumulator.within(&beside));
            count.cast::<f32>().equal(admitted.votes.within(&beside).sum())
        };
        self.accumulators().map(is_whole).collect()
    }

    /// Empties the accumulators for `round`; gradients with an earlier round number are dropped from
    /// then on.
    pub(super) fn clear(&self, view: &Graph, round: &Output<i64>) -> Vec<Operation> {
        let at = view.scope("clear");
        let clear = |(place, accumulator): (&Place, &Output<_>)| {
            let at = at.device(&place.variable.device);
            let set = |at: &Graph| tf::accumulator_set_global_step(accumulator.within(at), round);
            // A zero gradient, so that there is one to take.
            let added = place.add_nothing(&at.after(&[&set(&at)]), accumulator);
            let taken = place.take(&at.after(&[&added]), accumulator);
            // Taking the gradient has incremented the round.
            set(&at.after(&[&taken.operation()]))
        };
        self.accumulators().map(clear).collect()
    }

    fn accumulators(&self) -> impl Iterator<Item = (&Place, &Output<Ref<String>>)> {
        self.places.iter().filter_map(|place| match &place.kind {
            Kind::Sum(accumulator) => Some((place, accumulator)),
            Kind::Slots(_) => None,
        })
    }
}

impl Place {
    fn deliver(
        &self,
        at: &Graph,
        gradient: &Gradient,
        index: usize,
        round: &Output<i64>,
    ) -> Vec<Operation> {
        let (values, indices) = match gradient {
            Gradient::Dense(values) => (values.clone(), None),
            // Duplicate rows are summed on the worker, so that fewer are transferred.
            Gradient::Sparse { values, indices, .. } => {
                let (values, indices) = summed_rows(at, values, indices);
                (values, Some(cast_to(&indices, DType::Int64).typed()))
            }
        };
        let beside = at.device(&self.variable.device);
        match (&self.kind, indices) {
            (Kind::Sum(accumulator), Some(indices)) => {
                vec![self.add_rows(&beside, accumulator, round, (&values, &indices))]
            }
            (Kind::Sum(accumulator), None) => {
                let accumulator = accumulator.within(&beside);
                vec![tf::accumulator_apply_gradient(accumulator, round, &values)]
            }
            (Kind::Slots(slots), indices) => slots[index].set(&beside, &values, indices.as_ref()),
        }
    }

    fn mean(&self, at: &Graph, weights: &Weights) -> Gradient {
        match &self.kind {
            Kind::Sum(accumulator) => {
                let taken = self.take(at, accumulator);
                if !self.is_sparse {
                    return Gradient::Dense(taken.output(0));
                }
                // The accumulator holds the sum: TensorFlow's mean of a row is over those who have
                // the row, not over all workers.
                self.mean_of_rows((taken.output(0), taken.output(1)), &weights.voters)
            }
            Kind::Slots(slots) if self.is_sparse => {
                let admitted = slots.iter().zip(&weights.is_admitted);
                let rows = admitted.map(|(slot, is)| slot.rows_if(at, is, &self.variable));
                let (indices, values): (Vec<_>, Vec<_>) = rows.unzip();
                self.mean_of_rows((joined(at, &indices), joined(at, &values)), &weights.voters)
            }
            Kind::Slots(slots) => {
                let dtype = self.variable.dtype;
                let zero = number(at, dtype, 0.0);
                let admitted = slots.iter().zip(&weights.is_admitted);
                let parts: Vec<Output<Any>> =
                    admitted.map(|(slot, is)| is.select(slot.values.read(at), &zero)).collect();
                Gradient::Dense(tf::add_n(at, &parts) / cast_to(&weights.voters, dtype))
            }
        }
    }

    fn mean_of_rows(
        &self,
        (indices, values): (Output<i64>, Output<Any>),
        count: &Output<f32>,
    ) -> Gradient {
        let values = values / cast_to(count, self.variable.dtype);
        let dense_shape = values.graph().constant(self.dims()).any();
        Gradient::Sparse { values, indices: indices.any(), dense_shape }
    }

    /// The gradient in an accumulator, once it has one: indices and values if it is sparse.
    fn take(&self, at: &Graph, accumulator: &Output<Ref<String>>) -> Built {
        let op = match self.is_sparse {
            true => "SparseAccumulatorTakeGradient",
            false => "AccumulatorTakeGradient",
        };
        NewOp::new(at, op).input(accumulator).input(1).attr("dtype", self.variable.dtype).build()
    }

    fn add_rows(
        &self,
        at: &Graph,
        accumulator: &Output<Ref<String>>,
        round: &Output<i64>,
        (values, indices): (&Output<Any>, &Output<i64>),
    ) -> Operation {
        let (accumulator, dims) = (accumulator.within(at), self.dims());
        tf::sparse_accumulator_apply_gradient(accumulator, round, indices, values, dims, true)
    }

    /// Adds a zero gradient for a round after all others.
    fn add_nothing(&self, at: &Graph, accumulator: &Output<Ref<String>>) -> Operation {
        let (last, mut dims) = (at.constant(i64::MAX), self.dims());
        let zeros = |dims: Vec<i64>| zeros(at, self.variable.dtype, dims);
        if !self.is_sparse {
            return tf::accumulator_apply_gradient(accumulator.within(at), &last, zeros(dims));
        }
        dims[0] = 1;
        self.add_rows(at, accumulator, &last, (&zeros(dims), &at.constant([0])))
    }

    fn dims(&self) -> Vec<i64> {
        dims(&self.variable)
    }
}

/// The shape of a variable.
fn dims(variable: &Variable) -> Vec<i64> {
    variable.shape.dims().iter().map(|dim| *dim as i64).collect()
}

fn zeros(at: &Graph, dtype: DType, dims: Vec<i64>) -> Output<Any> {
    tf::fill(at.constant(dims), number(at, dtype, 0.0))
}

impl Slot {
    fn new(model: &Model, variable: &Variable, is_sparse: bool, index: usize) -> Slot {
        let name = format!("coordination/{}/worker_{index}", variable.name);
        let (device, dtype) = (variable.device.as_str(), variable.dtype);
        let (mut first, mut shape) = (dims(variable), PartialShape::from(&variable.shape));
        if is_sparse {
            first[0] = 0;
            let rest = variable.shape.dims().iter().skip(1).map(|dim| Some(*dim));
            shape = PartialShape::new(std::iter::once(None).chain(rest));
        }
        let new = NewLocal { name: &name, device, dtype, shape };
        let values = model.local(&new, |g| Some(zeros(g, dtype, first)));
        let indices = is_sparse.then(|| {
            let (name, none) = (format!("{name}/rows"), |g: &Graph| Some(g.constant([0i64; 0])));
            model.local_ints((&name, device), PartialShape::new([None]), none)
        });
        Slot { values, indices }
    }

    fn set(
        &self,
        at: &Graph,
        values: &Output<Any>,
        indices: Option<&Output<i64>>,
    ) -> Vec<Operation> {
        let mut nodes = vec![self.values.assign(at, values)];
        if let (Some(slot), Some(indices)) = (&self.indices, indices) {
            nodes.push(slot.assign(at, indices));
        }
        nodes
    }

    /// Indices and values of the gradient's rows if the worker is admitted, else none.
    fn rows_if(
        &self,
        at: &Graph,
        is_admitted: &Output<bool>,
        variable: &Variable,
    ) -> (Output<i64>, Output<Any>) {
        let Some(indices) = &self.indices else {
            return (Output::poisoned(at), Output::poisoned(at));
        };
        let rank = variable.shape.rank();
        let count: Output<i32> = is_admitted.select([-1], [0]);
        let size = joined(at, &[count.clone(), at.constant(vec![-1; rank - 1])]);
        let indices = tf::slice(indices.read(at), [0], &count);
        (indices, tf::slice(self.values.read(at), vec![0; rank], &size))
    }
}

/// The votes, copied to one device.
struct Weights {
    /// The number of admitted workers, a scalar.
    voters: Output<f32>,
    /// Whether each worker is admitted.
    is_admitted: Vec<Output<bool>>,
}

impl Weights {
    fn new(at: &Graph, admitted: &Admitted) -> Weights {
        let votes = admitted.votes.within(at);
        let is_admitted = tf::unpack(votes.greater(0.0), admitted.count as i64);
        Weights { voters: votes.sum(), is_admitted }
    }
}

/// The accumulator of a variable's gradients, with the name that `SyncReplicasOptimizer` gives it.
fn accumulator(graph: &Graph, variable: &Variable, is_sparse: bool) -> Output<Ref<String>> {
    let (op, reduction) = match is_sparse {
        true => ("SparseConditionalAccumulator", "SUM"),
        false => ("ConditionalAccumulator", "MEAN"),
    };
    let name = format!("{}/grad_accum", variable.name);
    let shared_name = format!("{}:0/grad_accum", variable.name);
    let node = NewOp::new(&graph.device(&variable.device), op).name(&*name);
    let node = node.attr("dtype", variable.dtype);
    let node = node.attr("shape", &PartialShape::from(&variable.shape));
    node.attr("shared_name", &*shared_name).attr("reduction_type", reduction).output()
}
