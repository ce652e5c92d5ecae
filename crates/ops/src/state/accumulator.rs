//! Conditional accumulators, dense and sparse, and the calls that wait for them.

use std::collections::VecDeque;
use std::sync::Arc;

use parking_lot::Mutex;
use thalweg_kernel::{AsyncCall, KernelContext, Outputs, Parallel, Registration};
use thalweg_tensor::{
    Budget, DType, PartialShape, Resource, Result, Shape, Tensor, bail, ensure, f16,
};

use super::sparse_sum::SparseSum;
use crate::number::Number;
use crate::split::Disjoint;

/// Elements that one thread processes at a time.
const BLOCK: usize = 1 << 16;

/// The sum of gradients and the waiting takes.
pub(super) struct Accumulator {
    pub(super) dtype: DType,
    pub(super) shape: PartialShape,
    pub(super) is_sparse: bool,
    pub(super) is_mean: bool,
    budget: Arc<Budget>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// Gradients with a smaller `local_step` are stale and dropped.
    global_step: i64,
    /// Number of gradients since the last take.
    count: i32,
    sum: Option<Sum>,
    /// Takes in FIFO order: a take is not served before those ahead of it.
    waiting: VecDeque<Waiting>,
    next_id: u64,
}

/// The accumulated gradients.
enum Sum {
    Dense(Tensor),
    Sparse(SparseSum),
}

/// A take that waits for gradients.
struct Waiting {
    id: u64,
    required: i32,
    op: Arc<str>,
    call: AsyncCall,
    /// Ends the wait when the step is cancelled.
    registration: Option<Registration>,
}

/// A completed take.
type Done = (Waiting, Result<Outputs>);

impl Resource for Accumulator {
    fn kind(&self) -> &'static str {
        "ConditionalAccumulator"
    }
}

impl Accumulator {
    pub(super) fn new(
        dtype: DType,
        shape: PartialShape,
        is_sparse: bool,
        is_mean: bool,
        budget: Arc<Budget>,
    ) -> Accumulator {
        Accumulator { dtype, shape, is_sparse, is_mean, budget, state: Mutex::default() }
    }

    pub(super) fn count(&self) -> i32 {
        self.state.lock().count
    }

    pub(super) fn set_global_step(&self, step: i64) {
        self.state.lock().global_step = step;
    }

    /// Adds a gradient of `local_step`, unless it is stale.
    pub(super) fn apply_dense(
        self: &Arc<Self>,
        ctx: &KernelContext<'_>,
        local_step: i64,
        mut gradient: Tensor,
    ) -> Result<()> {
        ensure!(!self.is_sparse, InvalidArgument, "a sparse accumulator takes sparse gradients");
        let mut state = self.state.lock();
        if local_step < state.global_step {
            return Ok(());
        }
        ensure!(
            self.shape.is_compatible_with(gradient.shape()),
            InvalidArgument,
            "Shape mismatch: expected {}, got {}",
            self.shape,
            gradient.shape()
        );
        match &mut state.sum {
            Some(Sum::Dense(sum)) => {
                ensure!(
                    sum.shape() == gradient.shape(),
                    InvalidArgument,
                    "Shape mismatch: expected {}, got {}",
                    sum.shape(),
                    gradient.shape()
                );
                sum.make_unique(Some(&self.budget))?;
                match self.dtype {
                    DType::Half => add::<f16>(ctx, sum, &gradient)?,
                    DType::Float => add::<f32>(ctx, sum, &gradient)?,
                    _ => add::<f64>(ctx, sum, &gradient)?,
                }
            }
            _ => {
                gradient.make_unique(Some(&self.budget))?;
                gradient.charge_to(&self.budget)?;
                state.sum = Some(Sum::Dense(gradient));
            }
        }
        state.count = state.count.saturating_add(1);
        let done = self.serve(&mut state);
        drop(state);
        finish(done);
        Ok(())
    }

    /// Adds a sparse gradient, unless it is stale.
    pub(super) fn apply_sparse(
        self: &Arc<Self>,
        local_step: i64,
        indices: &Tensor,
        values: &Tensor,
        shape: Option<&Tensor>,
    ) -> Result<()> {
        ensure!(self.is_sparse, InvalidArgument, "a dense accumulator takes dense gradients");
        let mut state = self.state.lock();
        if local_step < state.global_step {
            return Ok(());
        }
        let before = match &state.sum {
            Some(Sum::Sparse(sum)) => Some(sum),
            _ => None,
        };
        SparseSum::check(&self.shape, before, indices, values, shape)?;
        let sum = match before {
            Some(before) => before.plus(indices, values, &self.budget)?,
            None => SparseSum::new(indices, values, &self.budget)?,
        };
        state.sum = Some(Sum::Sparse(sum));
        state.count = state.count.saturating_add(1);
        let done = self.serve(&mut state);
        drop(state);
        finish(done);
        Ok(())
    }

    /// Completes `call` with the sum or mean as soon as `required` gradients were added, or with
    /// its step's cancellation.
    pub(super) fn take(self: &Arc<Self>, op: &Arc<str>, required: i32, call: AsyncCall) {
        let cancellation = call.step.cancellation().clone();
        let (id, done) = {
            let mut state = self.state.lock();
            let id = state.next_id;
            state.next_id += 1;
            let op = op.clone();
            state.waiting.push_back(Waiting { id, required, op, call, registration: None });
            (id, self.serve(&mut state))
        };
        let is_waiting = done.iter().all(|(waiting, _)| waiting.id != id);
        finish(done);
        if !is_waiting {
            return;
        }
        let this = Arc::downgrade(self);
        let registration = cancellation.on_cancel(move |cause| {
            let Some(this) = this.upgrade() else { return };
            let mut state = this.state.lock();
            let position = state.waiting.iter().position(|waiting| waiting.id == id);
            let Some(waiting) = position.and_then(|i| state.waiting.remove(i)) else { return };
            // The takes behind may need fewer gradients.
            let done = this.serve(&mut state);
            drop(state);
            finish(done);
            finish(vec![(waiting, Err(cause.clone()))]);
        });
        let mut state = self.state.lock();
        match state.waiting.iter_mut().find(|waiting| waiting.id == id) {
            Some(waiting) => waiting.registration = Some(registration),
            // Served or cancelled meanwhile.
            None => {
                drop(state);
                drop(registration);
            }
        }
    }

    /// Serves the takes whose number of gradients is reached; the caller completes them after
    /// unlocking.
    fn serve(&self, state: &mut State) -> Vec<Done> {
        let mut done = Vec::new();
        while state.waiting.front().is_some_and(|first| first.required <= state.count) {
            let Some(first) = state.waiting.pop_front() else { break };
            let step = first.call.step.clone();
            let outputs = step.resources().update(self, &first.op, step.step_id(), || {
                self.outputs(state, &**step.parallel())
            });
            done.push((first, outputs));
        }
        done
    }

    /// The sum or mean of the gradients; resets the accumulator.
    fn outputs(&self, state: &mut State, parallel: &dyn Parallel) -> Result<Outputs> {
        state.global_step = state.global_step.wrapping_add(1);
        let count = std::mem::take(&mut state.count);
        match state.sum.take() {
            Some(Sum::Dense(mut sum)) => {
                if self.is_mean {
                    sum.make_unique(Some(&self.budget))?;
                    match self.dtype {
                        DType::Half => divide(parallel, &mut sum, f16::from_f32(count as f32))?,
                        DType::Float => divide(parallel, &mut sum, count as f32)?,
                        _ => divide(parallel, &mut sum, f64::from(count))?,
                    }
                }
                Ok(smallvec::smallvec![sum.into()])
            }
            Some(Sum::Sparse(sum)) => {
                let first = self.shape.dims().and_then(|dims| dims.first().copied());
                sum.into_outputs(self.is_mean, first, &self.budget)
            }
            None => bail!(Internal, "an accumulator of {count} gradients holds none"),
        }
    }
}

/// Completes calls; no lock of accumulator or cancellation is held.
fn finish(done: Vec<Done>) {
    for (waiting, result) in done {
        drop(waiting.registration);
        waiting.call.complete(result);
    }
}

/// Adds a whole gradient: cancellation of the step must not leave a part of it.
fn add<T: Number>(ctx: &KernelContext<'_>, sum: &mut Tensor, gradient: &Tensor) -> Result<()> {
    let gradient = gradient.as_slice::<T>()?;
    for_each_block(ctx.parallel(), sum.as_mut_slice::<T>()?, |first, part| {
        for (sum, &gradient) in part.iter_mut().zip(&gradient[first..]) {
            *sum = sum.plus(gradient);
        }
    });
    Ok(())
}

fn divide<T: Number>(parallel: &dyn Parallel, sum: &mut Tensor, count: T) -> Result<()> {
    for_each_block(parallel, sum.as_mut_slice::<T>()?, |_, part| {
        part.iter_mut().for_each(|x| *x = x.over(count));
    });
    Ok(())
}

/// Calls `body(first, part)` on parts of `elements`, in parallel.
fn for_each_block<T: Send>(
    parallel: &dyn Parallel,
    elements: &mut [T],
    body: impl Fn(usize, &mut [T]) + Sync,
) {
    let len = elements.len();
    let elements = Disjoint::new(elements);
    parallel.run(len.div_ceil(BLOCK), &|block| {
        let first = block * BLOCK;
        // SAFETY: each block is handed out once, and blocks do not overlap.
        let part = unsafe { elements.part(first..(first + BLOCK).min(len)) };
        body(first, part);
    });
}

/// The shape of a vector of `n` elements.
pub(super) fn vector(n: usize) -> Result<Shape> {
    Shape::new(&[n])
}
