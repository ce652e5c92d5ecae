//! Stacks: per-step state in which TensorFlow 1 while loops save values for their gradient.

use std::sync::Arc;

use parking_lot::Mutex;
use thalweg_graph::shape::{self, ShapeContext};
use thalweg_graph::{OpDef, Work};
use thalweg_kernel::{AnyKernel, Family, KernelContext, KernelInit, KernelSpec};
use thalweg_tensor::{
    Budget, Charge, DType, Resource, Result, Tensor, bail, check_nesting, ensure, err,
};

use super::handle::{set_handle, step_state, unique_name};
use crate::state::handle::two_strings;

pub(crate) static FAMILY: Family = Family {
    ops: &[
        OpDef::new("Stack", two_strings),
        OpDef::new("StackV2", shape::unknown),
        OpDef::new("StackPush", push_shape).with_work(Work::none),
        OpDef::new("StackPushV2", push_shape).with_work(Work::none),
        OpDef::new("StackPop", shape::unknown).with_work(Work::none),
        OpDef::new("StackPopV2", shape::unknown).with_work(Work::none),
        OpDef::new("StackClose", shape::unknown),
        OpDef::new("StackCloseV2", shape::unknown),
    ],
    kernels: &[
        KernelSpec { op: "Stack", create: stack, ..CHEAP },
        KernelSpec { op: "StackV2", host_inputs: &["max_size"], create: stack, ..CHEAP },
        KernelSpec { op: "StackPush", create: |_| AnyKernel::new(push), ..CHEAP },
        KernelSpec { op: "StackPushV2", create: |_| AnyKernel::new(push), ..CHEAP },
        KernelSpec { op: "StackPop", create: |_| AnyKernel::new(pop), ..CHEAP },
        KernelSpec { op: "StackPopV2", create: |_| AnyKernel::new(pop), ..CHEAP },
        KernelSpec { op: "StackClose", create: |_| AnyKernel::new(close), ..CHEAP },
        KernelSpec { op: "StackCloseV2", create: |_| AnyKernel::new(close), ..CHEAP },
    ],
};

const CHEAP: KernelSpec = KernelSpec { is_cheap: true, ..KernelSpec::CPU };

/// TensorFlow's container name of stacks.
const CONTAINER: &str = "_stacks";

/// A stack.
struct Stack {
    name: Arc<str>,
    dtype: DType,
    /// Maximum number of elements; unlimited if negative.
    elements_max: i64,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    elements: Vec<Tensor>,
    is_closed: bool,
    charge: Option<Charge>,
}

impl Resource for Stack {
    fn kind(&self) -> &'static str {
        "Stack"
    }
}

impl Stack {
    fn push(&self, element: Tensor, budget: &Arc<Budget>) -> Result<()> {
        let mut state = self.state.lock();
        self.check_open(&state)?;
        let elements = &mut state.elements;
        ensure!(
            self.elements_max < 0 || (elements.len() as i64) < self.elements_max,
            InvalidArgument,
            "Stack[{}] overflowed its max_size ({})",
            self.name,
            self.elements_max
        );
        check_nesting(&element)?;
        element.ensure_charged(budget)?;
        if elements.len() == elements.capacity() {
            let capacity = (elements.len() * 2).max(4);
            let bytes = capacity * size_of::<Tensor>();
            let charge = Charge::new(budget, bytes)?;
            elements
                .try_reserve_exact(capacity - elements.len())
                .map_err(|_| err!(ResourceExhausted, "out of memory for {bytes} bytes"))?;
            state.charge = Some(charge);
        }
        state.elements.push(element);
        Ok(())
    }

    fn pop(&self) -> Result<Tensor> {
        let mut state = self.state.lock();
        self.check_open(&state)?;
        state.elements.pop().ok_or_else(|| {
            err!(InvalidArgument, "Stack[{}] is empty when calling Pop().", self.name)
        })
    }

    fn check_open(&self, state: &State) -> Result<()> {
        ensure!(!state.is_closed, InvalidArgument, "Stack[{}] has already been closed.", self.name);
        Ok(())
    }

    fn close(&self) {
        let mut state = self.state.lock();
        state.is_closed = true;
        let gone = std::mem::take(&mut state.elements);
        drop(state);
        drop(gone);
    }
}

fn stack(init: &KernelInit<'_>) -> Result<AnyKernel> {
    let dtype = init.attrs().dtype("elem_type")?;
    let name = match init.attrs().string("stack_name")? {
        "" => init.node.name.to_string(),
        given => given.to_owned(),
    };
    AnyKernel::new(move |ctx| {
        let elements_max = if ctx.num_inputs() > 0 { ctx.scalar_int(0, "max_size")? } else { -1 };
        let name = unique_name(&name);
        let state = Mutex::default();
        let stack = Stack { name: name.clone(), dtype, elements_max, state };
        set_handle(ctx, CONTAINER, &name, || Ok(stack))
    })
}

fn push_shape(c: &mut ShapeContext<'_>) -> Result<()> {
    c.set_output(0, c.input(1).clone());
    Ok(())
}

fn push(ctx: &mut KernelContext<'_>) -> Result<()> {
    let (stack, element) = (step_state::<Stack>(ctx, 0)?, ctx.take_input(1)?);
    ensure!(
        element.dtype() == stack.dtype,
        InvalidArgument,
        "Must have type {} but got {}",
        stack.dtype,
        element.dtype()
    );
    stack.push(element.clone(), ctx.budget())?;
    ctx.set_output(0, element)
}

fn pop(ctx: &mut KernelContext<'_>) -> Result<()> {
    let element = step_state::<Stack>(ctx, 0)?.pop()?;
    if element.dtype() != ctx.output_dtype(0)? {
        // The client's mistake, but TensorFlow reports it as INTERNAL.
        bail!(
            Internal,
            "A stack holds another dtype: {}, not {}",
            element.dtype(),
            ctx.output_dtype(0)?
        );
    }
    ctx.set_output(0, element)
}

fn close(ctx: &mut KernelContext<'_>) -> Result<()> {
    step_state::<Stack>(ctx, 0)?.close();
    Ok(())
}
