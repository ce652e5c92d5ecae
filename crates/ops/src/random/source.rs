//! Where a random kernel's numbers come from: the node's own generator, or its inputs.

use parking_lot::Mutex;
use thalweg_kernel::{KernelContext, KernelInit};
use thalweg_tensor::{DType, Result, Tensor, bail, ensure, err};

use crate::math::random::philox::Philox;

/// Algorithms that an `alg` input may name; `AUTO` leaves the choice to the device.
pub(crate) const ALGORITHM_PHILOX: i32 = 1;
const ALGORITHM_AUTO: i32 = 3;

/// The origin of a node's random numbers.
pub(crate) enum Source {
    /// A generator that the node keeps between steps. A session has one kernel for each node, so
    /// every plan moves the same generator on.
    Own(Mutex<Philox>),
    /// Two seeds, in this input.
    Seed(usize),
    /// Key, counter and algorithm, in this input and the two that follow.
    Key(usize),
}

impl Source {
    /// The source that the node's op has: it shows in the inputs' names.
    pub(crate) fn new(init: &KernelInit<'_>) -> Result<Source> {
        let position = |name: &str| init.node.input_range(name).ok().map(|range| range.start);
        if let Some(seed) = position("seed") {
            return Ok(Source::Seed(seed));
        }
        match position("key") {
            Some(key) => Ok(Source::Key(key)),
            None => Ok(Source::Own(Mutex::new(own_generator(init)?))),
        }
    }

    /// Where this step's numbers begin; a generator of the node's own moves on as `reserve` says.
    pub(crate) fn start(
        &self,
        ctx: &KernelContext<'_>,
        reserve: impl FnOnce(&mut Philox) -> Philox,
    ) -> Result<Philox> {
        match self {
            Source::Own(generator) => Ok(reserve(&mut generator.lock())),
            Source::Seed(input) => philox_from_seed(ctx.input(*input)?),
            Source::Key(input) => {
                check_algorithm(ctx.input(input + 2)?)?;
                philox_from_key(ctx.input(*input)?, ctx.input(input + 1)?)
            }
        }
    }

    /// As [`Source::start`], with what TensorFlow sets aside for each of `outputs` elements.
    pub(crate) fn for_outputs(&self, ctx: &KernelContext<'_>, outputs: usize) -> Result<Philox> {
        self.start(ctx, |generator| generator.reserve_outputs(outputs as u64))
    }
}

/// The generator of a stateful op; both seeds zero ask for one that nobody can predict.
pub(crate) fn own_generator(init: &KernelInit<'_>) -> Result<Philox> {
    let (seed, seed2) = (init.attrs().int("seed")?, init.attrs().int("seed2")?);
    if seed == 0 && seed2 == 0 {
        let entropy = &init.environment.entropy;
        let (key, counter) = (entropy.next_u64(), entropy.next_u64());
        return Ok(Philox::from_seeds(key.cast_signed(), counter.cast_signed()));
    }
    Ok(Philox::from_seeds(seed, seed2))
}

/// The generator that a stateless op's seed stands for.
pub(crate) fn philox_from_seed(seed: &Tensor) -> Result<Philox> {
    ensure!(
        seed.shape().dims() == [2],
        InvalidArgument,
        "seed must have shape [2], not {}",
        seed.shape()
    );
    let seeds = match seed.dtype() {
        DType::Int32 => {
            let seeds = seed.as_slice::<i32>()?;
            [seeds[0].into(), seeds[1].into()]
        }
        DType::Int64 => {
            let seeds = seed.as_slice::<i64>()?;
            [seeds[0], seeds[1]]
        }
        other => bail!(InvalidArgument, "Invalid seed type: {other}"),
    };
    Ok(Philox::from_stateless_seed(seeds))
}

/// The generator at a key and counter given as tensors.
fn philox_from_key(key: &Tensor, counter: &Tensor) -> Result<Philox> {
    ensure!(
        key.shape().dims() == [1],
        InvalidArgument,
        "key must have shape [1], not {}. (Note that batched keys are not supported yet.)",
        key.shape()
    );
    let words = counter.as_slice::<u64>()?;
    let (1, [low, high, ..]) = (counter.rank(), words) else {
        bail!(
            InvalidArgument,
            "counter must be a vector with length at least 2; got shape {}",
            counter.shape()
        );
    };
    Ok(Philox::from_words(key.as_slice::<u64>()?[0], [*low, *high]))
}

fn check_algorithm(alg: &Tensor) -> Result<()> {
    ensure!(alg.rank() == 0, InvalidArgument, "algorithm must be of shape [], not {}", alg.shape());
    match alg.scalar_value::<i32>()? {
        ALGORITHM_PHILOX | ALGORITHM_AUTO => Ok(()),
        other => Err(err!(InvalidArgument, "Unsupported algorithm id: {other}")),
    }
}
