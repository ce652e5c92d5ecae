//! `CacheDataset`: elements cached in memory or in a file.

use std::sync::Arc;
use std::task::{Context, Poll, ready};

use parking_lot::Mutex;
use thalweg_graph::{OpDef, shape};
use thalweg_kernel::{AnyKernel, Family, KernelContext, KernelInit, KernelSpec};
use thalweg_tensor::{Resource, Result, err};

use super::cache_file::{cached_in_file, file_name};
use super::dataset::{Iterate, Next, Source, Transform, string_input, transformation};
use super::element::{BufferedElement, Spec};
use super::scope::Scope;
use super::seeds::{delete, dummy, set_anonymous};

pub(crate) static FAMILY: Family = Family {
    ops: &[
        CACHE_DATASET,
        CACHE_DATASET_V2,
        ANONYMOUS_MEMORY_CACHE,
        DUMMY_MEMORY_CACHE,
        OpDef::new("DeleteMemoryCache", shape::unknown),
    ],
    kernels: &[
        KernelSpec { op: "CacheDataset", create: cache, ..KernelSpec::CPU },
        KernelSpec { op: "CacheDatasetV2", create: cache, ..KernelSpec::CPU },
        KernelSpec { op: "AnonymousMemoryCache", create: anonymous, ..KernelSpec::CPU },
        KernelSpec { op: "DummyMemoryCache", create: dummy, ..KernelSpec::CPU },
        KernelSpec { op: "DeleteMemoryCache", create: delete, ..KernelSpec::CPU },
    ],
};

const CACHE_DATASET: OpDef = OpDef::new("CacheDataset", shape::scalar);

const CACHE_DATASET_V2: OpDef = OpDef { name: "CacheDatasetV2", ..CACHE_DATASET };

const ANONYMOUS_MEMORY_CACHE: OpDef = OpDef::new("AnonymousMemoryCache", shape::scalar);

const DUMMY_MEMORY_CACHE: OpDef = OpDef { name: "DummyMemoryCache", ..ANONYMOUS_MEMORY_CACHE };

/// The elements of a dataset, after an iteration reached its end.
#[derive(Default)]
pub(crate) struct MemoryCache(Mutex<Option<Arc<Vec<BufferedElement>>>>);

impl Resource for MemoryCache {
    fn kind(&self) -> &'static str {
        "MemoryCache"
    }
}

fn anonymous(_: &KernelInit<'_>) -> Result<AnyKernel> {
    AnyKernel::new(|ctx| set_anonymous(ctx, Arc::<MemoryCache>::default(), "AnonymousMemoryCache"))
}

/// Where the elements are cached.
enum CacheDataset {
    InMemory(Arc<MemoryCache>),
    InFile(Arc<str>),
}

fn cache(init: &KernelInit<'_>) -> Result<AnyKernel> {
    transformation(init, |ctx, input, spec| {
        let name = string_input(ctx, 1, "filename")?;
        let name = std::str::from_utf8(&name)
            .map_err(|_| err!(InvalidArgument, "a file name is not valid UTF-8"))?;
        match name {
            "" => in_memory(input, spec, shared_cache(ctx)?),
            name => in_file(input, spec, name),
        }
    })
}

/// A dataset that is cached in memory after the first complete iteration.
pub(crate) fn in_memory(input: Source, spec: Spec, cache: Arc<MemoryCache>) -> Result<Source> {
    input.then(spec, CacheDataset::InMemory(cache))
}

/// A dataset that is cached in a file after the first complete iteration.
pub(crate) fn in_file(input: Source, spec: Spec, name: &str) -> Result<Source> {
    input.then(spec, CacheDataset::InFile(file_name(name).into()))
}

/// The cache resource of the third input, if the op has one and its handle is not a dummy; else a
/// cache for this dataset alone.
fn shared_cache(ctx: &KernelContext<'_>) -> Result<Arc<MemoryCache>> {
    if ctx.num_inputs() > 2
        && let [handle] = ctx.input(2)?.resources()?
        && let Ok(found) = ctx.resources().resolve::<MemoryCache>(handle)
    {
        return Ok(found);
    }
    Ok(Arc::default())
}

impl Transform for CacheDataset {
    fn cardinality(&self, input: &Source) -> i64 {
        input.cardinality()
    }

    fn iterate(&self, input: &Source, scope: &Arc<Scope>) -> Result<Box<dyn Iterate>> {
        let cache = match self {
            CacheDataset::InMemory(cache) => cache,
            CacheDataset::InFile(path) => return cached_in_file(path, input, scope),
        };
        let known = cache.0.lock().clone();
        Ok(match known {
            Some(elements) => Box::new(ReplayIterator { elements, next: 0 }),
            None => Box::new(RecordingIterator {
                input: input.iterate(scope)?,
                cache: cache.clone(),
                elements: Vec::new(),
                is_ended: false,
                scope: scope.clone(),
            }),
        })
    }
}

struct ReplayIterator {
    elements: Arc<Vec<BufferedElement>>,
    next: usize,
}

impl Iterate for ReplayIterator {
    fn poll_next(&mut self, _: &mut Context<'_>) -> Next {
        let next = self.elements.get(self.next).map(|held| held.element.clone());
        self.next += 1;
        Poll::Ready(Ok(next))
    }
}

/// Iterator that fills the cache; an incomplete iteration caches nothing.
struct RecordingIterator {
    input: Box<dyn Iterate>,
    cache: Arc<MemoryCache>,
    elements: Vec<BufferedElement>,
    is_ended: bool,
    scope: Arc<Scope>,
}

impl Iterate for RecordingIterator {
    fn poll_next(&mut self, cx: &mut Context<'_>) -> Next {
        if self.is_ended {
            return Poll::Ready(Ok(None));
        }
        let Some(element) = ready!(self.input.poll_next(cx))? else {
            self.is_ended = true;
            let elements = Arc::new(std::mem::take(&mut self.elements));
            self.cache.0.lock().get_or_insert(elements);
            return Poll::Ready(Ok(None));
        };
        self.elements.push(BufferedElement::new(element.clone(), &self.scope.budget)?);
        Poll::Ready(Ok(Some(element)))
    }
}
