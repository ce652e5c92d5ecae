//! Candidate samplers for sampled losses, and `ComputeAccidentalHits`.

use std::collections::HashMap;

use parking_lot::Mutex;
use thalweg_graph::{OpDef, ShapeContext, Work};
use thalweg_kernel::{AnyKernel, Family, KernelContext, KernelInit, KernelSpec};
use thalweg_tensor::{Charge, PartialShape, Result, Shape, Tensor, bail, ensure, err};

use crate::math::random::candidates::{
    CandidateSampler, Candidates, Counts, SAMPLES_PER_CANDIDATE, Weights,
};
use crate::math::random::philox::{Philox, Samples};
use crate::random::own_generator;

pub(crate) static FAMILY: Family = Family {
    ops: &[
        UNIFORM_CANDIDATE_SAMPLER,
        LOG_UNIFORM_CANDIDATE_SAMPLER,
        LEARNED_UNIGRAM_CANDIDATE_SAMPLER,
        THREAD_UNSAFE_UNIGRAM_CANDIDATE_SAMPLER,
        FIXED_UNIGRAM_CANDIDATE_SAMPLER,
        ALL_CANDIDATE_SAMPLER,
        OpDef::new("ComputeAccidentalHits", hits_shape).with_work(Work::serial::<50>),
    ],
    kernels: &[
        KernelSpec { op: "UniformCandidateSampler", create: uniform, ..KernelSpec::CPU },
        KernelSpec { op: "LogUniformCandidateSampler", create: log_uniform, ..KernelSpec::CPU },
        KernelSpec { op: "LearnedUnigramCandidateSampler", create: learned, ..KernelSpec::CPU },
        KernelSpec {
            op: "ThreadUnsafeUnigramCandidateSampler",
            create: learned,
            ..KernelSpec::CPU
        },
        KernelSpec { op: "FixedUnigramCandidateSampler", create: fixed, ..KernelSpec::CPU },
        KernelSpec { op: "AllCandidateSampler", create: all, ..KernelSpec::CPU },
        KernelSpec { op: "ComputeAccidentalHits", create: accidental_hits, ..KernelSpec::CPU },
    ],
};

const UNIFORM_CANDIDATE_SAMPLER: OpDef =
    OpDef::new("UniformCandidateSampler", sampler_shape).with_work(Work::serial::<100>);

const LOG_UNIFORM_CANDIDATE_SAMPLER: OpDef =
    OpDef { name: "LogUniformCandidateSampler", ..UNIFORM_CANDIDATE_SAMPLER };

const LEARNED_UNIGRAM_CANDIDATE_SAMPLER: OpDef =
    OpDef { name: "LearnedUnigramCandidateSampler", ..UNIFORM_CANDIDATE_SAMPLER };

const THREAD_UNSAFE_UNIGRAM_CANDIDATE_SAMPLER: OpDef =
    OpDef { name: "ThreadUnsafeUnigramCandidateSampler", ..UNIFORM_CANDIDATE_SAMPLER };

const FIXED_UNIGRAM_CANDIDATE_SAMPLER: OpDef =
    OpDef { name: "FixedUnigramCandidateSampler", ..UNIFORM_CANDIDATE_SAMPLER };

const ALL_CANDIDATE_SAMPLER: OpDef =
    OpDef { name: "AllCandidateSampler", ..UNIFORM_CANDIDATE_SAMPLER };

/// Outputs: `num_sampled` candidates with their expected counts, and the expected counts of the
/// true classes.
fn sampler_shape(c: &mut ShapeContext<'_>) -> Result<()> {
    let rows = c.with_rank(0, "true_classes", 2)?.dim(0);
    let sampled = Some(c.attrs().size("num_sampled")?);
    let num_true = Some(c.attrs().size("num_true")?);
    c.set_output(0, PartialShape::new([sampled]));
    c.set_output(1, PartialShape::new([rows, num_true]));
    c.set_output(2, PartialShape::new([sampled]));
    Ok(())
}

/// The number of hits is not known beforehand.
fn hits_shape(c: &mut ShapeContext<'_>) -> Result<()> {
    let num_true = c.attrs().size("num_true")?;
    let true_classes = c.with_rank(0, "true_classes", 2)?;
    ensure!(
        true_classes.dim(1).is_none_or(|d| d == num_true),
        InvalidArgument,
        "true_classes must have {num_true} columns, got shape {true_classes}"
    );
    c.with_rank(1, "sampled_candidates", 1)?;
    for output in 0..3 {
        c.set_output(output, PartialShape::of_rank(1));
    }
    Ok(())
}

fn range_max(init: &KernelInit<'_>) -> Result<i64> {
    init.attrs().int("range_max")
}

fn uniform(init: &KernelInit<'_>) -> Result<AnyKernel> {
    sampler_kernel(init, CandidateSampler::Uniform { range: range_max(init)? }, None)
}

fn log_uniform(init: &KernelInit<'_>) -> Result<AnyKernel> {
    sampler_kernel(init, CandidateSampler::LogUniform { range: range_max(init)? }, None)
}

fn all(init: &KernelInit<'_>) -> Result<AnyKernel> {
    let range = init.attrs().int("num_sampled")?;
    sampler_kernel(init, CandidateSampler::All { range }, None)
}

/// `LearnedUnigramCandidateSampler` counts the true classes of every step; the counts live as long
/// as the kernel.
fn learned(init: &KernelInit<'_>) -> Result<AnyKernel> {
    let range = range_max(init)?;
    // The sum of all counts must fit in 31 bits.
    let Some(classes) = u32::try_from(range).ok().filter(|&r| r < i32::MAX as u32) else {
        bail!(InvalidArgument, "range_max must be below {}, is {range}", i32::MAX);
    };
    let charge = Charge::new(init.budget, classes as usize * Counts::BYTES_PER_CLASS)?;
    let counts = Counts::new(classes).ok_or_else(|| {
        err!(ResourceExhausted, "out of memory for the counts of {range} classes")
    })?;
    sampler_kernel(init, CandidateSampler::Learned(counts), Some(charge))
}

fn fixed(init: &KernelInit<'_>) -> Result<AnyKernel> {
    let attrs = init.attrs();
    let range = range_max(init)?;
    let (file, listed) = (attrs.string("vocab_file")?, attrs.floats("unigrams")?);
    let read;
    let unigrams = match (file.is_empty(), listed.is_empty()) {
        (true, true) => bail!(InvalidArgument, "Must provide either vocab_file or unigrams."),
        (false, false) => {
            bail!(InvalidArgument, "Must only provide one of vocab_file and unigrams.")
        }
        (true, false) => listed,
        (false, true) => {
            let bytes_max = init.budget.left_bytes();
            read = read_vocabulary(&init.environment.storage.read(file, bytes_max)?)?;
            &read
        }
    };
    let reserved = attrs.size("num_reserved_ids")?;
    let shards = [attrs.size("num_shards")?, attrs.size("shard")?];
    // Charged before the allocation: the number of reserved classes is an attr of any size.
    let mut charge = None;
    if let Some(kept) = Weights::reserved_kept(reserved, shards).checked_add(unigrams.len()) {
        let bytes = kept.saturating_mul(Weights::BYTES_PER_CLASS);
        charge = Some(Charge::new(init.budget, bytes)?);
    }
    ensure!(charge.is_some(), InvalidArgument, "num_reserved_ids is {reserved}");
    let distortion = attrs.float("distortion")?;
    let weights = Weights::from_unigrams(unigrams, distortion, reserved, shards);
    let sampler = CandidateSampler::Fixed(weights);
    ensure!(
        sampler.range() == range,
        InvalidArgument,
        "range is {range} must be equal to weights size {}",
        sampler.range()
    );
    sampler_kernel(init, sampler, charge)
}

/// Weights from a vocabulary file: the last comma-separated column of each line.
fn read_vocabulary(content: &[u8]) -> Result<Vec<f32>> {
    let text = std::str::from_utf8(content)
        .map_err(|_| err!(InvalidArgument, "the vocabulary is not valid UTF-8"))?;
    let weight = |line: &str| {
        let column = line.rsplit(',').next().unwrap_or(line);
        column
            .trim()
            .parse()
            .map_err(|_| err!(InvalidArgument, "Wrong vocabulary format at line: {line}"))
    };
    text.lines().map(weight).collect()
}

/// State of a sampler between steps.
struct State {
    generator: Philox,
    sampler: CandidateSampler,
    _charge: Option<Charge>,
}

fn sampler_kernel(
    init: &KernelInit<'_>,
    sampler: CandidateSampler,
    charge: Option<Charge>,
) -> Result<AnyKernel> {
    let attrs = init.attrs();
    let (num_true, num_sampled) = (attrs.size("num_true")?, attrs.size("num_sampled")?);
    let unique = attrs.bool("unique")?;
    let state = State { generator: own_generator(init)?, sampler, _charge: charge };
    let state = Mutex::new(state);
    AnyKernel::new(move |ctx| {
        let true_classes = ctx.input(0)?;
        let [_, columns] = *true_classes.shape().dims() else {
            bail!(InvalidArgument, "true_classes must be a matrix");
        };
        ensure!(
            columns == num_true,
            InvalidArgument,
            "true_classes must have num_true columns, expected: {num_true} was: {columns}"
        );
        let sampled = Shape::new(&[num_sampled])?;
        let mut outputs = [
            ctx.allocate_output(0, sampled.clone())?,
            ctx.allocate_output(1, true_classes.shape().clone())?,
            ctx.allocate_output(2, sampled)?,
        ];
        draw(&mut state.lock(), true_classes.as_slice()?, unique, &mut outputs)?;
        for (i, output) in outputs.into_iter().enumerate() {
            ctx.set_output(i, output)?;
        }
        Ok(())
    })
}

/// Draws candidates, then updates the counts if the sampler has counts.
fn draw(
    state: &mut State,
    true_classes: &[i64],
    unique: bool,
    [classes, true_expected, expected]: &mut [Tensor; 3],
) -> Result<()> {
    let range = state.sampler.range();
    ensure!(
        !unique || classes.num_elements() as i64 <= range,
        InvalidArgument,
        "Sampler's range is too small."
    );
    if let Some(class) = true_classes.iter().find(|class| !(0..range).contains(*class)) {
        bail!(InvalidArgument, "`true_candidate` out of range [0, {range}), received {class}");
    }
    let samples = SAMPLES_PER_CANDIDATE.wrapping_mul(classes.num_elements() as u64);
    let mut samples = Samples::new(state.generator.reserve_samples(samples));
    let out = Candidates {
        classes: classes.as_mut_slice()?,
        expected: expected.as_mut_slice()?,
        true_expected: true_expected.as_mut_slice()?,
    };
    state.sampler.draw(&mut samples, unique, true_classes, out).ok_or_else(|| {
        err!(
            InvalidArgument,
            "could not draw the requested number of distinct classes out of {range}"
        )
    })?;
    if let CandidateSampler::Learned(counts) = &mut state.sampler {
        counts.update(true_classes);
    }
    Ok(())
}

/// Candidates that are true classes: row, position among the candidates, and a large negative
/// weight that removes the candidate from a softmax.
fn accidental_hits(init: &KernelInit<'_>) -> Result<AnyKernel> {
    let num_true = init.attrs().size("num_true")?;
    AnyKernel::new(move |ctx| {
        let (true_classes, sampled) = (ctx.input(0)?, ctx.input(1)?);
        ensure!(
            true_classes.rank() == 2 && true_classes.shape()[1] == num_true,
            InvalidArgument,
            "true_candidates must be a batch_size * num_true matrix, got shape {}",
            true_classes.shape()
        );
        ensure!(
            sampled.rank() == 1,
            InvalidArgument,
            "sampled_candidates must be a vector, which is typically an output from CandidateSampler, got shape {}",
            sampled.shape()
        );
        let positions = positions(sampled.as_slice()?)?;
        let true_classes = true_classes.as_slice::<i64>()?;
        let hits = || {
            let found = |(i, class): (usize, &i64)| Some((i / num_true, *positions.get(class)?));
            true_classes.iter().enumerate().filter_map(found)
        };
        for (i, output) in hit_outputs(ctx, hits().count(), hits())?.into_iter().enumerate() {
            ctx.set_output(i, output)?;
        }
        Ok(())
    })
}

/// Position of each candidate; for equal candidates, the last.
fn positions(sampled: &[i64]) -> Result<HashMap<i64, i64>> {
    let mut positions = HashMap::new();
    positions
        .try_reserve(sampled.len())
        .map_err(|_| err!(ResourceExhausted, "out of memory for {} candidates", sampled.len()))?;
    positions.extend(sampled.iter().copied().zip(0..));
    Ok(positions)
}

fn hit_outputs(
    ctx: &KernelContext<'_>,
    count: usize,
    hits: impl Iterator<Item = (usize, i64)>,
) -> Result<[Tensor; 3]> {
    let shape = Shape::new(&[count])?;
    let mut rows = ctx.allocate_output(0, shape.clone())?;
    let mut ids = ctx.allocate_output(1, shape.clone())?;
    let mut weights = ctx.allocate_output(2, shape)?;
    let places = rows.as_mut_slice::<i32>()?.iter_mut().zip(ids.as_mut_slice::<i64>()?);
    for ((row, id), hit) in places.zip(hits) {
        *row = hit.0 as i32;
        *id = hit.1;
    }
    weights.as_mut_slice::<f32>()?.fill(-f32::MAX);
    Ok([rows, ids, weights])
}
