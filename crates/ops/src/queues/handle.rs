//! How kernels name the state they share: resource handles, and the older pairs of strings behind
//! reference edges.

use std::marker::PhantomData;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, Weak};

use bytes::Bytes;
use thalweg_kernel::{
    AsyncCall, KernelContext, KernelInit, ResourceManager, StepContext, Value, Variable,
};
use thalweg_tensor::{
    DType, PartialShape, Resource, ResourceHandle, Result, Shape, Tensor, bail, ensure, err,
};

/// Unnamed state so far, to tell its names apart.
static UNNAMED: AtomicU64 = AtomicU64::new(0);

/// Container and name under which a node's state lives.
pub(crate) struct Names {
    pub(crate) container: Arc<str>,
    pub(crate) name: Arc<str>,
    /// Whether the state is the node's own, and goes with its kernel.
    is_private: bool,
}

impl Names {
    /// The name that the node asks for, or one that nobody else can have.
    pub(crate) fn or_private(init: &KernelInit<'_>) -> Result<Names> {
        Self::new(init, || {
            let number = UNNAMED.fetch_add(1, Ordering::Relaxed);
            (format!("_{number}_{}", init.node.name).into(), true)
        })
    }

    /// The name that the node asks for, or its own.
    pub(crate) fn or_node(init: &KernelInit<'_>) -> Result<Names> {
        Self::new(init, || (init.node.name.clone(), false))
    }

    fn new(init: &KernelInit<'_>, unnamed: impl FnOnce() -> (Arc<str>, bool)) -> Result<Names> {
        let shared = init.attrs().string("shared_name")?;
        ensure!(
            !shared.starts_with('_'),
            InvalidArgument,
            "shared_name cannot start with '_':{shared}"
        );
        let (name, is_private) = if shared.is_empty() { unnamed() } else { (shared.into(), false) };
        Ok(Names { container: init.attrs().string("container")?.into(), name, is_private })
    }

    /// The state, made by `create` if there is none of this name.
    pub(crate) fn find_or_create<R: Resource>(
        &self,
        resources: &ResourceManager,
        create: impl FnOnce() -> Result<R>,
    ) -> Result<Arc<R>> {
        resources.find_or_create(self.container.clone(), self.name.clone(), create)
    }
}

/// The handle that a node gives out, and with it the end of state that nobody else can name.
pub(crate) struct HandleSource<R: Resource> {
    pub(crate) names: Names,
    components: Arc<[(DType, PartialShape)]>,
    is_ref: bool,
    made: OnceLock<Value>,
    /// Where the private state is, once it is.
    home: OnceLock<Weak<ResourceManager>>,
    state: PhantomData<fn() -> R>,
}

impl<R: Resource> HandleSource<R> {
    pub(crate) fn new(
        init: &KernelInit<'_>,
        names: Names,
        components: impl IntoIterator<Item = (DType, PartialShape)>,
    ) -> Self {
        HandleSource {
            names,
            components: components.into_iter().collect(),
            is_ref: init.node.outputs.first().is_some_and(|output| output.is_ref),
            made: OnceLock::new(),
            home: OnceLock::new(),
            state: PhantomData,
        }
    }

    /// Finds or creates the state and sets output 0 to its handle.
    pub(crate) fn give(
        &self,
        ctx: &mut KernelContext<'_>,
        create: impl FnOnce() -> Result<R>,
    ) -> Result<Arc<R>> {
        let step = ctx.step();
        let state = self.names.find_or_create(&step.resources, create)?;
        if self.names.is_private {
            let _ = self.home.set(Arc::downgrade(&step.resources));
        }
        let handle = match self.made.get() {
            Some(handle) => handle.clone(),
            None => {
                // If two steps are the first, both make the same handle.
                let handle = self.make(step)?;
                let _ = self.made.set(handle.clone());
                handle
            }
        };
        match handle {
            Value::Ref(variable) => ctx.set_output_ref(0, variable)?,
            Value::Tensor(tensor) => ctx.set_output(0, tensor)?,
            _ => bail!(Internal, "a handle is a reference or a tensor"),
        }
        Ok(state)
    }

    fn make(&self, step: &StepContext) -> Result<Value> {
        let Names { container, name, .. } = &self.names;
        let default = step.resources.default_container();
        let container = if container.is_empty() { default } else { container };
        if self.is_ref {
            let pair = [container, name].map(|text| Bytes::copy_from_slice(text.as_bytes()));
            let shape = PartialShape::new([Some(2)]);
            let budget = step.state_budget.clone();
            let variable = Variable::new(name.clone(), DType::String, shape, budget);
            variable.assign(Tensor::from_strings(Shape::new(&[2])?, pair.to_vec())?)?;
            return Ok(Value::Ref(Arc::new(variable)));
        }
        let handle = ResourceHandle {
            device: step.device.description().name.to_string().into(),
            container: container.clone(),
            name: name.clone(),
            dtypes_and_shapes: self.components.clone(),
            owned: None,
        };
        Ok(Value::Tensor(Tensor::from_resources(Shape::scalar(), vec![handle])?))
    }
}

impl<R: Resource> Drop for HandleSource<R> {
    fn drop(&mut self) {
        if let Some(resources) = self.home.get().and_then(Weak::upgrade) {
            // It may be gone already: a client can reset its container.
            let _ = resources.remove::<R>(&self.names.container, &self.names.name);
        }
    }
}

/// The state that input 0 of a waiting call names.
pub(crate) fn of_call<R: Resource>(call: &AsyncCall) -> Result<Arc<R>> {
    let value = call.inputs.first().ok_or_else(|| err!(Internal, "a handle is missing"))?;
    resolve(&call.step.resources, value)
}

/// The state that input 0 names.
pub(crate) fn of_context<R: Resource>(ctx: &KernelContext<'_>) -> Result<Arc<R>> {
    let value = match ctx.input(0) {
        Ok(tensor) => Value::Tensor(tensor.clone()),
        Err(_) => Value::Ref(ctx.input_ref(0)?),
    };
    resolve(ctx.resources(), &value)
}

fn resolve<R: Resource>(resources: &ResourceManager, value: &Value) -> Result<Arc<R>> {
    let tensor = match value {
        Value::Tensor(tensor) => tensor.clone(),
        Value::Ref(variable) => variable.read()?,
        _ => bail!(Internal, "a handle is missing"),
    };
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
            "Resource handle must have 2 elements, but had shape: {}",
            tensor.shape()
        );
    };
    let text = |bytes: &Bytes| String::from_utf8_lossy(bytes).into_owned();
    let (container, name) = (text(container), text(name));
    resources
        .find(&*container, &*name)
        .ok_or_else(|| err!(NotFound, "Resource {container}/{name} does not exist."))
}
