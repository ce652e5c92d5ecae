//! Seeds of datasets that shuffle or sample: fixed, or new for each iteration.

use std::sync::Arc;

use parking_lot::Mutex;
use thalweg_graph::{OpDef, shape};
use thalweg_kernel::{AnyKernel, Family, KernelContext, KernelInit, KernelSpec};
use thalweg_tensor::{Resource, ResourceHandle, Result, Shape, Tensor, bail};

use super::dataset::flag_input;
use super::iterator::deleter;
use crate::math::random::philox::{Philox, Samples};

pub(crate) static FAMILY: Family = Family {
    ops: &[
        OpDef::new("AnonymousSeedGenerator", shape::scalar),
        OpDef::new("DummySeedGenerator", shape::scalar),
        OpDef::new("DeleteSeedGenerator", shape::unknown),
    ],
    kernels: &[
        KernelSpec { op: "AnonymousSeedGenerator", create: anonymous, ..KernelSpec::CPU },
        KernelSpec { op: "DummySeedGenerator", create: dummy, ..KernelSpec::CPU },
        KernelSpec { op: "DeleteSeedGenerator", create: delete, ..KernelSpec::CPU },
    ],
};

/// Source of the seeds of a dataset's iterations.
pub(crate) enum SeedGenerator {
    /// All iterations use these seeds.
    Fixed(i64, i64),
    /// Each iteration draws new seeds from a generator that starts in this state.
    Changing(Philox, Mutex<Samples>),
}

impl Resource for SeedGenerator {
    fn kind(&self) -> &'static str {
        "SeedGenerator"
    }
}

impl SeedGenerator {
    pub(crate) fn new((seed, seed2): (i64, i64), changes: bool) -> SeedGenerator {
        if changes {
            let philox = Philox::from_seeds(seed, seed2);
            SeedGenerator::Changing(philox, Mutex::new(Samples::new(philox)))
        } else {
            SeedGenerator::Fixed(seed, seed2)
        }
    }

    /// The seeds of one iteration.
    pub(crate) fn generate(&self) -> (i64, i64) {
        match self {
            SeedGenerator::Fixed(seed, seed2) => (*seed, *seed2),
            SeedGenerator::Changing(_, samples) => {
                let mut samples = samples.lock();
                let seed = i64::from(samples.next_u32());
                (seed, i64::from(samples.next_u32()))
            }
        }
    }
}

impl SeedGenerator {
    /// Restarts the generator: the next iteration gets the seeds of the first.
    pub(crate) fn rewind(&self) {
        if let SeedGenerator::Changing(philox, samples) = self {
            *samples.lock() = Samples::new(*philox);
        }
    }
}

/// The seeds in inputs `i` and `i + 1`; if both are zero, random ones.
pub(crate) fn input_seeds(ctx: &KernelContext<'_>, i: usize) -> Result<(i64, i64)> {
    let seeds = (ctx.scalar_int(i, "seed")?, ctx.scalar_int(i + 1, "seed2")?);
    if seeds != (0, 0) {
        return Ok(seeds);
    }
    let entropy = &ctx.step().environment().entropy;
    Ok((entropy.next_u64().cast_signed(), entropy.next_u64().cast_signed()))
}

/// The seed generator resource of input `i`, if the op has one and its handle is not a dummy; else
/// a generator for this dataset alone.
pub(crate) fn seed_generator(
    ctx: &KernelContext<'_>,
    i: usize,
    seeds: (i64, i64),
    changes: bool,
) -> Result<Arc<SeedGenerator>> {
    if i < ctx.num_inputs()
        && let [handle] = ctx.input(i)?.resources()?
        && let Ok(found) = ctx.resources().resolve::<SeedGenerator>(handle)
    {
        return Ok(found);
    }
    Ok(Arc::new(SeedGenerator::new(seeds, changes)))
}

fn anonymous(_: &KernelInit<'_>) -> Result<AnyKernel> {
    AnyKernel::new(|ctx| {
        let changes = flag_input(ctx, 2, "reshuffle")?;
        let generator = SeedGenerator::new(input_seeds(ctx, 0)?, changes);
        set_anonymous(ctx, Arc::new(generator), "AnonymousSeedGenerator")
    })
}

/// Outputs a handle that owns its resource, and a deleter that has nothing to do.
pub(crate) fn set_anonymous(
    ctx: &mut KernelContext<'_>,
    state: Arc<dyn Resource>,
    name: &str,
) -> Result<()> {
    let handle = ResourceHandle {
        device: ctx.step().device().description().name.to_string().into(),
        container: ctx.resources().default_container().clone(),
        name: name.into(),
        owned: Some(state),
        ..ResourceHandle::default()
    };
    ctx.set_output(0, Tensor::from_resources(Shape::scalar(), vec![handle])?)?;
    if ctx.num_outputs() > 1 {
        ctx.set_output(1, deleter()?)?;
    }
    Ok(())
}

/// A kernel that outputs a handle without a resource: datasets then use state of their own.
pub(crate) fn dummy(_: &KernelInit<'_>) -> Result<AnyKernel> {
    AnyKernel::new(|ctx| {
        let handle = ResourceHandle {
            device: ctx.step().device().description().name.to_string().into(),
            ..ResourceHandle::default()
        };
        ctx.set_output(0, Tensor::from_resources(Shape::scalar(), vec![handle])?)
    })
}

/// A kernel that does not delete the resource, as in TensorFlow: it is freed with the last of its
/// handles.
pub(crate) fn delete(_: &KernelInit<'_>) -> Result<AnyKernel> {
    AnyKernel::new(|ctx| match ctx.input(0)?.resources()? {
        [ResourceHandle { owned: Some(state), .. }] => {
            bail!(Internal, "a {} that its handles own cannot be deleted", state.kind())
        }
        [handle] => ctx.resources().remove_handle(handle),
        _ => bail!(InvalidArgument, "expected one resource handle"),
    })
}
