//! Queue creation: FIFO, padding FIFO, random shuffle, priority; with reference handles and, as
//! `V2`, with resource handles.

use thalweg_graph::{OpDef, shape};
use thalweg_kernel::{AnyKernel, Family, KernelInit, KernelSpec};
use thalweg_tensor::{DType, PartialShape, Result, bail, ensure};

use super::queue::{Kind, Queue, Spec};
use crate::CHEAP;
use crate::random::own_generator;
use crate::state::handle::{state_kernel, two_strings};

pub(crate) static FAMILY: Family = Family {
    ops: &[
        FIFO_QUEUE,
        FIFO_QUEUE_V2,
        PADDING_FIFO_QUEUE,
        PADDING_FIFO_QUEUE_V2,
        RANDOM_SHUFFLE_QUEUE,
        RANDOM_SHUFFLE_QUEUE_V2,
        PRIORITY_QUEUE,
        PRIORITY_QUEUE_V2,
    ],
    kernels: &[
        KernelSpec { op: "FIFOQueue", create: fifo, ..CHEAP },
        KernelSpec { op: "FIFOQueueV2", create: fifo, ..CHEAP },
        KernelSpec { op: "PaddingFIFOQueue", create: padding_fifo, ..CHEAP },
        KernelSpec { op: "PaddingFIFOQueueV2", create: padding_fifo, ..CHEAP },
        KernelSpec { op: "RandomShuffleQueue", create: random_shuffle, ..CHEAP },
        KernelSpec { op: "RandomShuffleQueueV2", create: random_shuffle, ..CHEAP },
        KernelSpec { op: "PriorityQueue", create: priority, ..CHEAP },
        KernelSpec { op: "PriorityQueueV2", create: priority, ..CHEAP },
    ],
};

pub(super) const FIFO_QUEUE: OpDef = OpDef::new("FIFOQueue", two_strings);

const FIFO_QUEUE_V2: OpDef = OpDef { name: "FIFOQueueV2", shape: shape::scalar, ..FIFO_QUEUE };

const PADDING_FIFO_QUEUE: OpDef = OpDef { name: "PaddingFIFOQueue", ..FIFO_QUEUE };

const PADDING_FIFO_QUEUE_V2: OpDef = OpDef { name: "PaddingFIFOQueueV2", ..FIFO_QUEUE_V2 };

const RANDOM_SHUFFLE_QUEUE: OpDef = OpDef { name: "RandomShuffleQueue", ..FIFO_QUEUE };

const RANDOM_SHUFFLE_QUEUE_V2: OpDef =
    OpDef { name: "RandomShuffleQueueV2", shape: shape::scalar, ..RANDOM_SHUFFLE_QUEUE };

const PRIORITY_QUEUE: OpDef = OpDef { name: "PriorityQueue", ..FIFO_QUEUE };

const PRIORITY_QUEUE_V2: OpDef =
    OpDef { name: "PriorityQueueV2", shape: shape::scalar, ..PRIORITY_QUEUE };

fn fifo(init: &KernelInit<'_>) -> Result<AnyKernel> {
    let spec = declared(init, Kind::Fifo)?;
    check_full_shapes(&spec)?;
    queue(init, spec)
}

fn padding_fifo(init: &KernelInit<'_>) -> Result<AnyKernel> {
    let spec = declared(init, Kind::PaddingFifo)?;
    ensure!(
        spec.shapes.len() == spec.dtypes.len(),
        InvalidArgument,
        "Shapes must be provided for all components, but received {} dtypes and {} shapes.",
        spec.dtypes.len(),
        spec.shapes.len()
    );
    for shape in &spec.shapes {
        ensure!(shape.rank().is_some(), InvalidArgument, "shape {shape} must have known rank.");
    }
    queue(init, spec)
}

fn random_shuffle(init: &KernelInit<'_>) -> Result<AnyKernel> {
    let mut spec = declared(init, Kind::RandomShuffle)?;
    check_full_shapes(&spec)?;
    let min_after_dequeue = init.attrs().int("min_after_dequeue")?;
    let Ok(kept) = usize::try_from(min_after_dequeue) else {
        bail!(InvalidArgument, "min_after_dequeue {min_after_dequeue} must be >= 0");
    };
    ensure!(
        kept < spec.capacity,
        InvalidArgument,
        "min_after_dequeue {kept} must be < capacity {}",
        spec.capacity
    );
    spec.min_after_dequeue = kept;
    spec.seeds = (init.attrs().int("seed")?, init.attrs().int("seed2")?);
    spec.generator = Some(own_generator(init)?);
    queue(init, spec)
}

fn priority(init: &KernelInit<'_>) -> Result<AnyKernel> {
    let mut spec = declared(init, Kind::Priority)?;
    // So the payload's shapes must be declared as well.
    spec.shapes.insert(0, PartialShape::scalar());
    spec.dtypes.insert(0, DType::Int64);
    check_full_shapes(&spec)?;
    queue(init, spec)
}

/// The spec from the attrs that all kinds of queue have.
fn declared(init: &KernelInit<'_>, kind: Kind) -> Result<Spec> {
    let capacity = init.attrs().int("capacity")?;
    Ok(Spec {
        kind,
        name: init.node.name.clone(),
        // A negative capacity means unlimited: the maximum that `QueueSize` can return.
        capacity: usize::try_from(capacity).unwrap_or(i32::MAX as usize).min(i32::MAX as usize),
        dtypes: init.attrs().dtypes("component_types")?,
        shapes: init.attrs().shapes("shapes")?,
        min_after_dequeue: 0,
        seeds: (0, 0),
        generator: None,
    })
}

/// Either all shapes are fully declared, or none is.
fn check_full_shapes(spec: &Spec) -> Result<()> {
    if let Some(shape) = spec.shapes.iter().find(|shape| shape.to_shape().is_none()) {
        bail!(InvalidArgument, "shape {shape} of a {} is not fully defined", spec.kind);
    }
    ensure!(
        spec.shapes.is_empty() || spec.shapes.len() == spec.dtypes.len(),
        InvalidArgument,
        "Different number of component types. Types: {}, Shapes: {}",
        spec.dtypes.len(),
        spec.shapes.len()
    );
    Ok(())
}

fn queue(init: &KernelInit<'_>, spec: Spec) -> Result<AnyKernel> {
    let wanted = spec.clone();
    state_kernel(
        init,
        false,
        move |_, name| Ok(Queue::new(Spec { name: name.clone(), ..spec.clone() })),
        move |queue: &Queue, _| queue.spec.check_same(&wanted),
    )
}
