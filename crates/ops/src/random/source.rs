//! The generator of a random kernel: stateful, from inputs, or from a variable.

use std::sync::Arc;

use parking_lot::Mutex;
use thalweg_kernel::{KernelContext, KernelInit};
use thalweg_tensor::{DType, Result, Tensor, bail, ensure, err};

use crate::math::random::philox::Philox;
use crate::state::generator::advance;

/// Values of the `alg` input; `AUTO` lets the device choose.
pub(crate) const ALGORITHM_PHILOX: i32 = 1;
pub(crate) const ALGORITHM_AUTO: i32 = 3;

/// The source of a node's random numbers.
pub(crate) enum Source {
    /// A generator that the node keeps between steps, shared by its kernels in all plans and on all
    /// devices.
    Own(Arc<Mutex<Philox>>),
    /// Two seeds, in this input (stateless ops, V1).
    Seed(usize),
    /// Key, counter and algorithm, in this input and the two following (stateless ops, V2).
    Key(usize),
    /// A generator state in a variable in input 0, which each step advances. The algorithm is in
    /// this input, or in the variable itself.
    State(Option<usize>),
}

impl Source {
    /// The source, determined by the names of the op's inputs.
    pub(crate) fn new(init: &KernelInit<'_>) -> Result<Source> {
        let position = |name: &str| init.node.input_range(name).ok().map(|range| range.start);
        if let Some(seed) = position("seed") {
            return Ok(Source::Seed(seed));
        }
        if position("resource").is_some() {
            return Ok(Source::State(position("algorithm")));
        }
        match position("key") {
            Some(key) => Ok(Source::Key(key)),
            None => Ok(Source::Own(node_generator(init)?)),
        }
    }

    /// Whether the source is a variable.
    pub(crate) fn is_state(&self) -> bool {
        matches!(self, Source::State(_))
    }

    /// The position of this step's numbers in the stream; a stateful generator is advanced by
    /// `reserve`.
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
            Source::State(algorithm) => advance(ctx, *algorithm, reserve),
        }
    }

    /// As [`Source::start`], reserving as many numbers as TensorFlow does for `outputs` elements.
    pub(crate) fn for_outputs(&self, ctx: &KernelContext<'_>, outputs: usize) -> Result<Philox> {
        self.start(ctx, |generator| generator.reserve_outputs(outputs as u64))
    }
}

/// Index of the input with the output shape.
pub(crate) fn shape_position(init: &KernelInit<'_>) -> Result<usize> {
    Ok(init.node.input_range("shape")?.start)
}

/// The generator that a node keeps.
pub(crate) fn node_generator(init: &KernelInit<'_>) -> Result<Arc<Mutex<Philox>>> {
    init.states.find_or_create(&init.node.name, || own_generator(init).map(Mutex::new))
}

/// The generator of a stateful op; if both seeds are zero, it is seeded randomly.
pub(crate) fn own_generator(init: &KernelInit<'_>) -> Result<Philox> {
    let (seed, seed2) = (init.attrs().int("seed")?, init.attrs().int("seed2")?);
    if seed == 0 && seed2 == 0 {
        let entropy = &init.environment.entropy;
        let (key, counter) = (entropy.next_u64(), entropy.next_u64());
        return Ok(Philox::from_seeds(key.cast_signed(), counter.cast_signed()));
    }
    Ok(Philox::from_seeds(seed, seed2))
}

/// The generator for the seed of a stateless op.
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

/// The generator for a key and a counter given as tensors.
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

pub(crate) fn check_algorithm(alg: &Tensor) -> Result<()> {
    ensure!(alg.rank() == 0, InvalidArgument, "algorithm must be of shape [], not {}", alg.shape());
    match alg.scalar_value::<i32>()? {
        ALGORITHM_PHILOX | ALGORITHM_AUTO => Ok(()),
        other => Err(err!(InvalidArgument, "Unsupported algorithm id: {other}")),
    }
}
