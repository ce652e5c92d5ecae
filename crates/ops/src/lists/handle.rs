//! Handles of per-step state: tensor arrays and stacks.
//!
//! A resource handle owns its state, which is freed with the last handle. Older handles are two
//! strings; their state is in the step's resource manager.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use thalweg_kernel::KernelContext;
use thalweg_tensor::{Bytes, DType, Resource, ResourceHandle, Result, Shape, Tensor, ensure};

use crate::state::handle::{find, reference};

static NEXT: AtomicU64 = AtomicU64::new(0);

/// A name that is unique in the process.
pub(crate) fn unique_name(name: &str) -> Arc<str> {
    format!("{name}_{}", NEXT.fetch_add(1, Ordering::Relaxed)).into()
}

/// Sets output 0 to a handle of new state, in the form of the op's output.
pub(crate) fn set_handle<T: Resource>(
    ctx: &mut KernelContext<'_>,
    container: &str,
    name: &Arc<str>,
    create: impl FnOnce() -> Result<T>,
) -> Result<()> {
    if ctx.output_dtype(0)? == DType::Resource {
        let state = Arc::new(create()?);
        return set_form(ctx, container, name, state);
    }
    set_shared_handle(ctx, container, name, create)
}

/// Sets output 0 to a handle of state that any node of the step may have created under this name.
pub(crate) fn set_shared_handle<T: Resource>(
    ctx: &mut KernelContext<'_>,
    container: &str,
    name: &Arc<str>,
    create: impl FnOnce() -> Result<T>,
) -> Result<()> {
    let state = ctx.step().step_resources().find_or_create(container, name.clone(), create)?;
    set_form(ctx, container, name, state)
}

fn set_form(
    ctx: &mut KernelContext<'_>,
    container: &str,
    name: &Arc<str>,
    state: Arc<dyn Resource>,
) -> Result<()> {
    if ctx.node().outputs[0].is_ref {
        let variable = reference(ctx, &container.into(), name)?;
        return ctx.set_output_ref(0, variable);
    }
    let handle = if ctx.output_dtype(0)? == DType::Resource {
        let handle = ResourceHandle {
            device: ctx.step().device().description().name.to_string().into(),
            container: format!("__per_step_{}", ctx.step().step_id().number).into(),
            name: format!("{container}{name}").into(),
            owned: Some(state),
            ..ResourceHandle::default()
        };
        Tensor::from_resources(Shape::scalar(), vec![handle])?
    } else {
        let words = [container, name].map(|word| Bytes::copy_from_slice(word.as_bytes()));
        Tensor::from_strings(Shape::new(&[2])?, words.into())?
    };
    ctx.set_output(0, handle)
}

/// The state that the handle in input `i` refers to.
pub(crate) fn step_state<T: Resource>(ctx: &KernelContext<'_>, i: usize) -> Result<Arc<T>> {
    let resources = ctx.step().step_resources();
    match ctx.input(i) {
        Ok(tensor) => {
            ensure!(
                tensor.dtype() == DType::Resource || tensor.num_elements() == 2,
                InvalidArgument,
                "a handle must be a vector of two strings, but has shape {}",
                tensor.shape()
            );
            find(resources, tensor)
        }
        Err(_) => find(resources, &ctx.input_ref(i)?.read()?),
    }
}
