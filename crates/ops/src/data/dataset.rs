//! The dataset variant, and the construction of its kernels.

use std::any::Any;
use std::fmt;
use std::sync::Arc;
use std::task::{Context, Poll};

use thalweg_kernel::{AnyKernel, KernelContext, KernelInit};
use thalweg_tensor::{Bytes, Result, Shape, Tensor, Variant, VariantValue, bail, ensure, err};

use super::element::{Element, Spec};
use super::scope::Scope;

/// Cardinality of an infinite dataset.
pub(crate) const INFINITE: i64 = -1;
/// Unknown cardinality.
pub(crate) const UNKNOWN: i64 = -2;
/// Maximum depth of nested datasets; drawing an element recurses this deep on the stack.
const DEPTH_MAX: usize = 400;

/// A description of how elements are computed (TensorFlow's `DatasetBase`).
pub(crate) trait Dataset: Send + Sync {
    /// Dtypes and shapes of the elements, as far as known.
    fn spec(&self) -> &Spec;

    /// Number of elements, or [`INFINITE`] or [`UNKNOWN`].
    fn cardinality(&self) -> i64 {
        UNKNOWN
    }

    /// Starts an iteration.
    fn iterate(&self, scope: &Arc<Scope>) -> Result<Box<dyn Iterate>>;

    /// The input datasets.
    fn inputs(&self) -> Vec<&Source> {
        Vec::new()
    }

    /// Makes the next iteration produce the elements of the first, where iterations differ (seeds).
    fn rewind(&self) {}

    /// The serialized `tf.data.Options`.
    fn options(&self) -> Bytes {
        Bytes::new()
    }
}

/// A dataset with one input, as a function of it.
pub(crate) trait Transform: Send + Sync + 'static {
    /// Number of elements, as [`Dataset::cardinality`] returns it.
    fn cardinality(&self, _input: &Source) -> i64 {
        UNKNOWN
    }

    /// Starts an iteration.
    fn iterate(&self, input: &Source, scope: &Arc<Scope>) -> Result<Box<dyn Iterate>>;

    /// As [`Dataset::rewind`].
    fn rewind(&self) {}
}

/// A dataset with one input.
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

/// Result of drawing an element: `None` at the end. Iteration may continue after an error.
pub(crate) type Next = Poll<Result<Option<Element>>>;

/// An iterator over elements (TensorFlow's `DatasetBaseIterator`).
pub(crate) trait Iterate: Send {
    /// The next element. `Pending` loses nothing and wakes `cx` when polling again makes progress.
    fn poll_next(&mut self, cx: &mut Context<'_>) -> Next;
}

/// A shared dataset, with its depth.
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
    /// A dataset whose inputs have depth `depth`.
    pub(crate) fn new(dataset: impl Dataset + 'static, depth: usize) -> Result<Source> {
        ensure!(
            depth < DEPTH_MAX,
            ResourceExhausted,
            "datasets are built upon each other more than {DEPTH_MAX} deep"
        );
        Ok(Source { dataset: Arc::new(dataset), depth: depth + 1 })
    }

    /// A dataset with this one as input.
    pub(crate) fn under(&self, dataset: impl Dataset + 'static) -> Result<Source> {
        Source::new(dataset, self.depth)
    }

    /// Applies a transformation to this dataset.
    pub(crate) fn then(self, spec: Spec, how: impl Transform) -> Result<Source> {
        let depth = self.depth;
        Source::new(Transformed { input: self, spec, how }, depth)
    }

    /// Rewinds this dataset and all its inputs.
    pub(crate) fn rewind_all(&self) {
        self.dataset.rewind();
        self.dataset.inputs().into_iter().for_each(Source::rewind_all);
    }

    /// Nesting depth of the dataset in a variant; 0 if the variant is none.
    pub(crate) fn depth_in(value: &VariantValue) -> usize {
        let any = value.as_ref().map(|value| -> &dyn Any { &**value });
        any.and_then(|any| any.downcast_ref::<Source>()).map_or(0, Source::depth)
    }

    /// Nesting depth.
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

    /// A scalar variant that holds the dataset.
    pub(crate) fn into_tensor(self) -> Result<Tensor> {
        Tensor::from_variants(Shape::scalar(), vec![Some(Arc::new(self))])
    }
}

impl Variant for Source {
    fn type_name(&self) -> &str {
        "tensorflow::DatasetVariantWrapper"
    }

    /// Datasets cannot be sent to another process.
    fn encode(&self) -> Option<(Bytes, Vec<Tensor>)> {
        None
    }
}

/// A kernel that makes a dataset from its inputs.
pub(crate) fn dataset_kernel(
    make: impl Fn(&KernelContext<'_>) -> Result<Source> + Send + Sync + 'static,
) -> Result<AnyKernel> {
    AnyKernel::new(move |ctx| {
        let dataset = make(ctx)?.into_tensor()?;
        ctx.set_output(0, dataset)
    })
}

/// A kernel that makes a dataset from the one in its first input.
pub(crate) fn transformation(
    init: &KernelInit<'_>,
    make: impl Fn(&KernelContext<'_>, Source, Spec) -> Result<Source> + Send + Sync + 'static,
) -> Result<AnyKernel> {
    let spec = Spec::of(init.attrs())?;
    dataset_kernel(move |ctx| make(ctx, Source::input(ctx, 0)?, spec.clone()))
}

/// Cooperative yielding for loops that may run long without producing an element: lets other work
/// on the thread run and cancellation take effect.
#[derive(Default)]
pub(crate) struct YieldBudget(u32);

impl YieldBudget {
    /// Pending once in a number of calls.
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

/// The scalar bool in input `i`.
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
