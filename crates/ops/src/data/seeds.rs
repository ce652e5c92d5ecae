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

/// Where iterations of a dataset get their seeds.
pub(crate) enum SeedGenerator {
    /// All get the same.
    Fixed(i64, i64),
    /// Each gets new ones, of a generator that begins like this.
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
    /// The next iteration gets what the first one got.
    pub(crate) fn rewind(&self) {
        if let SeedGenerator::Changing(philox, samples) = self {
            *samples.lock() = Samples::new(*philox);
        }
    }
}

/// The seeds in inputs `i` and the one that follows; both zero ask for unpredictable ones.
pub(crate) fn input_seeds(ctx: &KernelContext<'_>, i: usize) -> Result<(i64, i64)> {
    let seeds = (ctx.scalar_int(i, "seed")?, ctx.scalar_int(i + 1, "seed2")?);
    if seeds != (0, 0) {
        return Ok(seeds);
    }
    let entropy = &ctx.step().environment().entropy;
    Ok((entropy.next_u64().cast_signed(), entropy.next_u64().cast_signed()))
}

/// The generator that input `i` names, if the op has such an input and it names one; else one for
/// the dataset alone.
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

/// Hands on state that lives as long as its handles, and the deleter that has nothing to do then.
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

/// A kernel that gives a handle to nothing: datasets then keep state of their own.
pub(crate) fn dummy(_: &KernelInit<'_>) -> Result<AnyKernel> {
    AnyKernel::new(|ctx| {
        let handle = ResourceHandle {
            device: ctx.step().device().description().name.to_string().into(),
            ..ResourceHandle::default()
        };
        ctx.set_output(0, Tensor::from_resources(Shape::scalar(), vec![handle])?)
    })
}

/// A kernel that refuses to delete state that its handles own, as TensorFlow's does: it goes with
/// the last of them.
pub(crate) fn delete(_: &KernelInit<'_>) -> Result<AnyKernel> {
    AnyKernel::new(|ctx| match ctx.input(0)?.resources()? {
        [ResourceHandle { owned: Some(state), .. }] => {
            bail!(Internal, "a {} that its handles own cannot be deleted", state.kind())
        }
        [handle] => ctx.resources().remove_handle(handle),
        _ => bail!(InvalidArgument, "expected one resource handle"),
    })
}
