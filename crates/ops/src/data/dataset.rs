//! The dataset variant, and the construction of its kernels.

use std::any::Any;
use std::fmt;
use std::sync::Arc;
use std::task::{Context, Poll};

use thalweg_kernel::{AnyKernel, KernelContext, KernelInit};
use thalweg_tensor::{Bytes, Result, Shape, Tensor, Variant, VariantValue, bail, ensure, err};

use super::element::{Element, Spec};
use super::scope::Scope;

/// A dataset without an end.
pub(crate) const INFINITE: i64 = -1;
/// A dataset of which nobody can tell how many elements it has.
pub(crate) const UNKNOWN: i64 = -2;
/// Datasets on top of each other; each takes a piece of the stack when an element is drawn.
const DEPTH_MAX: usize = 400;

/// How elements come about.
pub(crate) trait Dataset: Send + Sync {
    /// What is known of the elements.
    fn spec(&self) -> &Spec;

    /// How many elements there are; [`INFINITE`] or [`UNKNOWN`] where that is not a number.
    fn cardinality(&self) -> i64 {
        UNKNOWN
    }

    /// Begins to draw the elements.
    fn iterate(&self, scope: &Arc<Scope>) -> Result<Box<dyn Iterate>>;

    /// The datasets that it is built upon.
    fn inputs(&self) -> Vec<&Source> {
        Vec::new()
    }

    /// Has the next iteration draw what the first one drew, where iterations differ.
    fn rewind(&self) {}

    /// What the user asked of the runtime, serialized.
    fn options(&self) -> Bytes {
        Bytes::new()
    }
}

/// How one dataset is made of another.
pub(crate) trait Transform: Send + Sync + 'static {
    /// How many elements there are, as [`Dataset::cardinality`] says it.
    fn cardinality(&self, _input: &Source) -> i64 {
        UNKNOWN
    }

    /// Begins to draw the elements.
    fn iterate(&self, input: &Source, scope: &Arc<Scope>) -> Result<Box<dyn Iterate>>;

    /// As [`Dataset::rewind`].
    fn rewind(&self) {}
}

/// A dataset on top of one other.
struct Transformed<T> {
    input: Source,
    spec: Spec,
    how: T,
}

impl<T: Transform> Dataset for Transformed<T> {
    fn spec(&self) -> &Spec {
        &self.spec
    }

    fn cardinality(&self) -> i64 {
        self.how.cardinality(&self.input)
    }

    fn iterate(&self, scope: &Arc<Scope>) -> Result<Box<dyn Iterate>> {
        self.how.iterate(&self.input, scope)
    }

    fn inputs(&self) -> Vec<&Source> {
        vec![&self.input]
    }

    fn rewind(&self) {
        self.how.rewind();
    }
}

/// What drawing one element gives: none at the end. An error does not end the sequence.
pub(crate) type Next = Poll<Result<Option<Element>>>;

/// A place in a sequence of elements.
pub(crate) trait Iterate: Send {
    /// The next element; nothing is lost if it is not there yet.
    fn poll_next(&mut self, cx: &mut Context<'_>) -> Next;
}

/// A dataset as others build upon it.
#[derive(Clone)]
pub(crate) struct Source {
    dataset: Arc<dyn Dataset>,
    depth: usize,
}

impl std::ops::Deref for Source {
    type Target = dyn Dataset;

    fn deref(&self) -> &Self::Target {
        &*self.dataset
    }
}

impl fmt::Debug for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a dataset of {} elements", self.dataset.cardinality())
    }
}

impl Source {
    /// A dataset on top of `depth` others.
    pub(crate) fn new(dataset: impl Dataset + 'static, depth: usize) -> Result<Source> {
        ensure!(
            depth < DEPTH_MAX,
            ResourceExhausted,
            "datasets are built upon each other more than {DEPTH_MAX} deep"
        );
        Ok(Source { dataset: Arc::new(dataset), depth: depth + 1 })
    }

    /// A dataset on top of this one.
    pub(crate) fn under(&self, dataset: impl Dataset + 'static) -> Result<Source> {
        Source::new(dataset, self.depth)
    }

    /// The dataset that a transformation makes of this one.
    pub(crate) fn then(self, spec: Spec, how: impl Transform) -> Result<Source> {
        let depth = self.depth;
        Source::new(Transformed { input: self, spec, how }, depth)
    }

    /// Rewinds it and all that it is built upon.
    pub(crate) fn rewind_all(&self) {
        self.dataset.rewind();
        self.dataset.inputs().into_iter().for_each(Source::rewind_all);
    }

    /// How many datasets deep the one in a variant is, if one is.
    pub(crate) fn depth_in(value: &VariantValue) -> usize {
        let any = value.as_ref().map(|value| -> &dyn Any { &**value });
        any.and_then(|any| any.downcast_ref::<Source>()).map_or(0, Source::depth)
    }

    /// How many datasets deep it is.
    pub(crate) fn depth(&self) -> usize {
        self.depth
    }

    /// The dataset in a variant tensor.
    pub(crate) fn of(tensor: &Tensor) -> Result<Source> {
        let value = match tensor.variants()? {
            [Some(value)] => value,
            _ => bail!(
                InvalidArgument,
                "Dataset tensor must be a scalar of dtype DT_VARIANT that holds a dataset."
            ),
        };
        let any: &dyn Any = &**value;
        any.downcast_ref::<Source>().cloned().ok_or_else(|| {
            err!(InvalidArgument, "Tensor must be a Dataset object, but is a {}", value.type_name())
        })
    }

    /// The dataset in input `i`.
    pub(crate) fn input(ctx: &KernelContext<'_>, i: usize) -> Result<Source> {
        Source::of(ctx.input(i)?)
    }

    /// A scalar that holds it.
    pub(crate) fn into_tensor(self) -> Result<Tensor> {
        Tensor::from_variants(Shape::scalar(), vec![Some(Arc::new(self))])
    }
}

impl Variant for Source {
    fn type_name(&self) -> &str {
        "tensorflow::DatasetVariantWrapper"
    }

    /// Datasets do not leave the process that made them.
    fn encode(&self) -> Option<(Bytes, Vec<Tensor>)> {
        None
    }
}

/// A kernel that makes a dataset of its inputs.
pub(crate) fn dataset_kernel(
    make: impl Fn(&KernelContext<'_>) -> Result<Source> + Send + Sync + 'static,
) -> Result<AnyKernel> {
    AnyKernel::new(move |ctx| {
        let dataset = make(ctx)?.into_tensor()?;
        ctx.set_output(0, dataset)
    })
}

/// A kernel that makes a dataset on top of the one in its first input.
pub(crate) fn transformation(
    init: &KernelInit<'_>,
    make: impl Fn(&KernelContext<'_>, Source, Spec) -> Result<Source> + Send + Sync + 'static,
) -> Result<AnyKernel> {
    let spec = Spec::of(init.attrs())?;
    dataset_kernel(move |ctx| make(ctx, Source::input(ctx, 0)?, spec.clone()))
}

/// Gives other work on the thread its turn in loops that may find nothing for long, and notices
/// there that nobody waits any more.
#[derive(Default)]
pub(crate) struct Turns(u32);

impl Turns {
    /// Ready most of the time.
    pub(crate) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        self.0 = self.0.wrapping_add(1);
        if self.0.is_multiple_of(1024) {
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        Poll::Ready(())
    }
}

/// The scalar string in input `i`.
pub(crate) fn string_input(ctx: &KernelContext<'_>, i: usize, name: &str) -> Result<Bytes> {
    match ctx.input(i)?.strings()? {
        [text] => Ok(text.clone()),
        _ => bail!(InvalidArgument, "{name} must be a scalar, got shape {}", ctx.input(i)?.shape()),
    }
}

/// The scalar flag in input `i`.
pub(crate) fn flag_input(ctx: &KernelContext<'_>, i: usize, name: &str) -> Result<bool> {
    let tensor = ctx.input(i)?;
    ensure!(
        tensor.num_elements() == 1,
        InvalidArgument,
        "{name} must be a scalar, got shape {}",
        tensor.shape()
    );
    tensor.scalar_value()
}
