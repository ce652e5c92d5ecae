//! State handles: creation by a node, and lookup by others.
//!
//! TensorFlow 1 handles are references to a vector of two strings, container and name; newer ones
//! are resource handles. Both refer to the same state.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, Weak};

use thalweg_graph::ShapeContext;
use thalweg_kernel::{
    AnyKernel, AsyncCall, KernelContext, KernelInit, ResourceManager, StepContext, Value, Variable,
};
use thalweg_tensor::{
    Bytes, DType, PartialShape, Resource, ResourceHandle, Result, Shape, Tensor, bail, ensure, err,
};

/// Counter for names of private state.
static NEXT_PRIVATE: AtomicU64 = AtomicU64::new(0);

/// Container and name of a node's state.
pub(crate) struct ResourceName {
    pub(crate) container: Arc<str>,
    pub(crate) name: Arc<str>,
    /// Whether the name is not shared: the state is then freed with the node's kernel, at the end
    /// of the session.
    is_private: bool,
}

impl ResourceName {
    /// Container and name from the attrs of a node.
    pub(crate) fn of(init: &KernelInit<'_>, is_shared_by_node_name: bool) -> Result<ResourceName> {
        let attrs = init.attrs();
        let container: Arc<str> = attrs.string("container")?.into();
        let shared = attrs.string("shared_name")?;
        // Names with this prefix are reserved for private state.
        ensure!(
            !shared.starts_with('_'),
            InvalidArgument,
            "shared_name cannot start with '_':{shared}"
        );
        if !shared.is_empty() {
            return Ok(ResourceName { container, name: shared.into(), is_private: false });
        }
        if is_shared_by_node_name {
            return Ok(ResourceName { container, name: init.node.name.clone(), is_private: false });
        }
        let number = NEXT_PRIVATE.fetch_add(1, Ordering::Relaxed);
        let name = format!("_{number}_{}", init.node.name).into();
        Ok(ResourceName { container, name, is_private: true })
    }

    /// The state, created by `create` if it does not exist.
    pub(crate) fn find_or_create<T: Resource>(
        &self,
        resources: &ResourceManager,
        create: impl FnOnce() -> Result<T>,
    ) -> Result<Arc<T>> {
        resources.find_or_create(self.container.clone(), self.name.clone(), create)
    }
}

/// Removes private state when the kernel that created it is dropped.
pub(crate) struct Owner<T: Resource> {
    resource_name: ResourceName,
    /// The resource manager of the state, once it exists.
    manager: OnceLock<Weak<ResourceManager>>,
    _state: std::marker::PhantomData<fn(T)>,
}

impl<T: Resource> Owner<T> {
    pub(crate) fn new(resource_name: ResourceName) -> Owner<T> {
        Owner { resource_name, manager: OnceLock::new(), _state: std::marker::PhantomData }
    }

    /// A handle to the state, which is created by `create` if it does not exist.
    pub(crate) fn handle(
        &self,
        step: &StepContext,
        create: impl FnOnce() -> Result<T>,
    ) -> Result<Tensor> {
        self.resource_name.find_or_create(step.resources(), create)?;
        let _ = self.manager.set(Arc::downgrade(step.resources()));
        let ResourceName { container, name, .. } = &self.resource_name;
        let default = step.resources().default_container();
        let handle = ResourceHandle {
            device: step.device().description().name.to_string().into(),
            container: if container.is_empty() { default } else { container }.clone(),
            name: name.clone(),
            ..ResourceHandle::default()
        };
        Tensor::from_resources(Shape::scalar(), vec![handle])
    }
}

impl<T: Resource> Drop for Owner<T> {
    fn drop(&mut self) {
        let ResourceName { container, name, is_private } = &self.resource_name;
        if let (true, Some(manager)) = (is_private, self.manager.get().and_then(Weak::upgrade)) {
            // Already removed if its container was reset.
            let _ = manager.remove::<T>(container, name);
        }
    }
}

/// A kernel that finds its node's state, or creates it with `create`, and outputs a handle in the
/// form of the op's output. `check` validates state that another node may have created.
pub(crate) fn state_kernel<T: Resource>(
    init: &KernelInit<'_>,
    is_shared_by_node_name: bool,
    create: impl Fn(&KernelContext<'_>, &Arc<str>) -> Result<T> + Send + Sync + 'static,
    check: impl Fn(&T, &str) -> Result<()> + Send + Sync + 'static,
) -> Result<AnyKernel> {
    let resource_name = ResourceName::of(init, is_shared_by_node_name)?;
    let is_ref = init.node.outputs.first().is_some_and(|output| output.is_ref);
    let owner: Owner<T> = Owner::new(resource_name);
    let made: OnceLock<Value> = OnceLock::new();
    AnyKernel::new(move |ctx| {
        let ResourceName { container, name, .. } = &owner.resource_name;
        let found: Arc<T> =
            owner.resource_name.find_or_create(ctx.resources(), || create(ctx, name))?;
        check(&found, name)?;
        if made.get().is_none() {
            // Concurrent first steps set the same value.
            let _ = owner.manager.set(Arc::downgrade(ctx.step().resources()));
            let _ = made.set(if is_ref {
                Value::Ref(reference(ctx, container, name)?)
            } else {
                Value::Tensor(named_handle(ctx, container, name)?)
            });
        }
        match made.get() {
            Some(Value::Ref(variable)) => ctx.set_output_ref(0, variable.clone()),
            Some(Value::Tensor(handle)) => ctx.set_output(0, handle.clone()),
            _ => bail!(Internal, "a handle is a tensor or a reference"),
        }
    })
}

/// The shape of reference handles: container and name.
pub(crate) fn two_strings(c: &mut ShapeContext<'_>) -> Result<()> {
    c.set_output(0, PartialShape::new([Some(2)]));
    Ok(())
}

/// A kernel that creates new state at each execution; the state lives as long as its handles.
pub(crate) fn anonymous_kernel<T: Resource>(
    create: impl Fn(&KernelContext<'_>, &Arc<str>) -> Result<T> + Send + Sync + 'static,
) -> Result<AnyKernel> {
    AnyKernel::new(move |ctx| {
        let name: Arc<str> = "cd2c89b7-88b7-44c8-ad83-06c2a9158347".into();
        let state: Arc<dyn Resource> = Arc::new(create(ctx, &name)?);
        let handle = ResourceHandle {
            owned: Some(state),
            ..described(ctx, &ctx.resources().default_container().clone(), &name)
        };
        ctx.set_output(0, Tensor::from_resources(Shape::scalar(), vec![handle])?)
    })
}

fn described(ctx: &KernelContext<'_>, container: &Arc<str>, name: &Arc<str>) -> ResourceHandle {
    ResourceHandle {
        device: ctx.step().device().description().name.to_string().into(),
        container: container.clone(),
        name: name.clone(),
        ..ResourceHandle::default()
    }
}

fn full(ctx: &KernelContext<'_>, container: &Arc<str>) -> Arc<str> {
    if container.is_empty() { ctx.resources().default_container() } else { container }.clone()
}

fn named_handle(ctx: &KernelContext<'_>, container: &Arc<str>, name: &Arc<str>) -> Result<Tensor> {
    let handle = described(ctx, &full(ctx, container), name);
    Tensor::from_resources(Shape::scalar(), vec![handle])
}

/// Container and name as reference handles contain them.
pub(crate) fn reference(
    ctx: &KernelContext<'_>,
    container: &Arc<str>,
    name: &Arc<str>,
) -> Result<Arc<Variable>> {
    let shape = Shape::new(&[2])?;
    let budget = ctx.step().state_budget().clone();
    let variable = Variable::new(name.clone(), DType::String, PartialShape::from(&shape), budget);
    let words = [&*full(ctx, container), name].map(|word| Bytes::copy_from_slice(word.as_bytes()));
    variable.assign(Tensor::from_strings(shape, words.into())?)?;
    Ok(Arc::new(variable))
}

/// The state that the handle in input `i` refers to.
pub(crate) fn state_input<T: Resource>(ctx: &KernelContext<'_>, i: usize) -> Result<Arc<T>> {
    match ctx.input(i) {
        Ok(tensor) => find(ctx.resources(), tensor),
        Err(_) => find(ctx.resources(), &ctx.input_ref(i)?.read()?),
    }
}

/// The state that the handle in input `i` of an asynchronous call refers to.
pub(crate) fn state_of_call<T: Resource>(call: &AsyncCall, i: usize) -> Result<Arc<T>> {
    match call.inputs.get(i) {
        Some(Value::Tensor(tensor)) => find(call.step.resources(), tensor),
        Some(Value::Ref(variable)) => find(call.step.resources(), &variable.read()?),
        _ => bail!(Internal, "input {i} is not there"),
    }
}

/// The state that a handle of either form refers to.
pub(crate) fn find<T: Resource>(resources: &ResourceManager, tensor: &Tensor) -> Result<Arc<T>> {
    if tensor.dtype() == DType::Resource {
        return match tensor.resources()? {
            [handle] => resources.resolve(handle),
            _ => {
                bail!(InvalidArgument, "expected one resource handle, got shape {}", tensor.shape())
            }
        };
    }
    let [container, name] = tensor.strings()? else {
        bail!(
            InvalidArgument,
            "a handle is a container and a name, but this one has shape {}",
            tensor.shape()
        );
    };
    let (container, name) = (String::from_utf8_lossy(container), String::from_utf8_lossy(name));
    resources
        .find(&*container, &*name)
        .ok_or_else(|| err!(NotFound, "Resource {container}/{name} does not exist."))
}
