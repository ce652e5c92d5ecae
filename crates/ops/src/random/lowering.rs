//! Random ops in programs: where their numbers begin, and what they make of them.

use thalweg_graph::Node;
use thalweg_hlo::{Comparison, Value};
use thalweg_kernel::Lowering;
use thalweg_tensor::{DType, Result, ensure, err};

use super::source::{check_algorithm, node_generator};
use super::stream_lowering::Stream;
use crate::math::random::philox::BLOCKS_PER_OUTPUT;
use crate::math::random::selection::multinomial_blocks;
use crate::state::generator::advance_lowered;

/// Words that a node with a generator of its own gets in each step: key and counter.
pub(crate) const WORDS: usize = 3;

/// The position of the input of this name.
fn position(node: &Node, name: &str) -> Option<usize> {
    node.input_range(name).ok().map(|range| range.start)
}

/// The position of a step's numbers, as `Source::start`; a stateful generator is advanced by `blocks`.
fn start(l: &mut Lowering<'_>, blocks: u64) -> Result<Stream> {
    let node = l.node();
    if let Some(seed) = position(node, "seed") {
        return stream_of_seed(l, seed);
    }
    if position(node, "resource").is_some() {
        let algorithm = l.host(position(node, "algorithm").unwrap_or(1))?;
        return advance_lowered(l, algorithm, |stream| stream.counter_after(blocks));
    }
    if let Some(key) = position(node, "key") {
        check_algorithm(l.host(key + 2)?)?;
        return stream_of_key(l, key);
    }
    let words = l.step_words(WORDS, |init| {
        let generator = node_generator(init)?;
        Ok(Box::new(move |words| {
            let (key, [low, high]) = generator.lock().reserve(blocks).words();
            words.extend([key, low, high]);
        }))
    })?;
    let [key, low, high] = scalars(&words);
    Ok(Stream::new(&key, [low, high]))
}

/// The first elements of a vector as scalars.
pub(crate) fn scalars<const N: usize>(vector: &Value) -> [Value; N] {
    std::array::from_fn(|i| vector.slice_dim(0, i, i + 1).reshape(&[]))
}

/// The position for the seed of a stateless op.
pub(crate) fn stream_of_seed(l: &Lowering<'_>, input: usize) -> Result<Stream> {
    let seed = l.input(input)?;
    ensure!(seed.dims() == [2], InvalidArgument, "seed must have shape [2], not {:?}", seed.dims());
    let words = seed.convert(DType::Int64).bitcast(DType::UInt64);
    Ok(Stream::from_stateless_seed(&scalars(&words)))
}

/// The position for a key and a counter given as tensors.
fn stream_of_key(l: &Lowering<'_>, input: usize) -> Result<Stream> {
    let (key, counter) = (l.input(input)?, l.input(input + 1)?);
    ensure!(
        key.dims() == [1],
        InvalidArgument,
        "key must have shape [1], not {:?}. (Note that batched keys are not supported yet.)",
        key.dims()
    );
    ensure!(
        counter.rank() == 1 && counter.dims()[0] >= 2,
        InvalidArgument,
        "counter must be a vector with length at least 2; got shape {:?}",
        counter.dims()
    );
    Ok(Stream::new(&key.reshape(&[]), scalars(&counter)))
}

/// Fills output 0 with as many elements as it has.
fn fill(l: &mut Lowering<'_>, make: impl FnOnce(&Stream, DType, usize) -> Value) -> Result<()> {
    let shape = l.shape_input(l.node().input_range("shape")?.start, "shape")?;
    let len = shape.num_elements();
    let stream = start(l, (len as u64).wrapping_mul(BLOCKS_PER_OUTPUT))?;
    let value = make(&stream, l.output_dtype(0), len);
    l.set(0, value.reshape(shape.dims()))
}

/// Uniform in [0, 1).
pub(crate) fn lower_uniform(l: &mut Lowering<'_>) -> Result<()> {
    fill(l, Stream::uniform)
}

/// Normal with mean 0 and standard deviation 1.
pub(crate) fn lower_normal(l: &mut Lowering<'_>) -> Result<()> {
    fill(l, Stream::normal)
}

/// Truncated standard normal: within two standard deviations of the mean.
pub(crate) fn lower_truncated_normal(l: &mut Lowering<'_>) -> Result<()> {
    fill(l, Stream::truncated_normal)
}

/// Uniform over all integers of the type.
pub(crate) fn lower_full_int(l: &mut Lowering<'_>) -> Result<()> {
    fill(l, Stream::full_int)
}

/// Uniform integers in `[minval, maxval)`.
pub(crate) fn lower_uniform_int(l: &mut Lowering<'_>) -> Result<()> {
    let (low, high) = (bound(l, "minval")?, bound(l, "maxval")?);
    // As in the kernel.
    let shape = l.shape_input(l.node().input_range("shape")?.start, "shape")?;
    let is_checked = position(l.node(), "resource").is_some() || shape.num_elements() > 0;
    ensure!(
        low < high || !is_checked,
        InvalidArgument,
        "Need minval < maxval, got {low} >= {high}"
    );
    let range = u64::try_from(high - low).unwrap_or(1).max(1);
    fill(l, |stream, dtype, len| stream.uniform_int(dtype, len, low, range))
}

/// The value of a scalar input that is known when the region is compiled.
fn bound(l: &Lowering<'_>, name: &str) -> Result<i128> {
    let tensor = l.host(l.node().input_range(name)?.start)?;
    ensure!(
        tensor.rank() == 0,
        InvalidArgument,
        "{name} must be 0-D, got shape {}",
        tensor.shape()
    );
    match tensor.dtype() {
        DType::Int32 => tensor.scalar_value::<i32>().map(i128::from),
        DType::Int64 => tensor.scalar_value::<i64>().map(i128::from),
        DType::UInt32 => tensor.scalar_value::<u32>().map(i128::from),
        _ => tensor.scalar_value::<u64>().map(i128::from),
    }
}

/// Class indices with probabilities `softmax(logits)`, by inverting the cumulative distribution.
pub(crate) fn lower_multinomial(l: &mut Lowering<'_>) -> Result<()> {
    let logits = l.input(0)?;
    let &[rows, classes] = logits.dims() else {
        return Err(err!(
            InvalidArgument,
            "logits should be a matrix, got shape {:?}",
            logits.dims()
        ));
    };
    let samples = usize::try_from(l.int(1)?)
        .map_err(|_| err!(InvalidArgument, "num_samples should be nonnegative"))?;
    ensure!(classes > 0, InvalidArgument, "num_classes should be positive, got {classes}");
    let is_empty = rows == 0 || samples == 0;
    let blocks = if is_empty { 0 } else { multinomial_blocks(rows as u64, samples as u64) };
    let stream = start(l, blocks)?;
    let logits = logits.convert(DType::Double);
    let is_finite = logits.is_finite();
    let lowest = logits.scalar_like(f64::MIN);
    let max = is_finite.select(&logits, &lowest).max_of(&[1]).keep_dims(&[rows, classes], &[1]);
    let zero = logits.scalar_like(0.0);
    let weights = is_finite.select(&logits.minus(&max).exp(), &zero);
    let cumulated = cumulative_sum(&weights);
    let total = cumulated.slice_dim(1, classes - 1, classes);
    let target = stream.uniform(DType::Double, rows * samples).reshape(&[rows, samples]) * total;
    let target = target.reshape(&[rows, samples, 1]);
    let is_passed = cumulated.reshape(&[rows, 1, classes]).compare(Comparison::LessEqual, &target);
    let class = is_passed.convert(DType::Int64).sum(&[2]);
    l.set(0, class.convert(l.output_dtype(0)))
}

/// Sums of a matrix's rows from their beginnings on, in steps that double.
fn cumulative_sum(x: &Value) -> Value {
    let (mut sums, mut distance) = (x.clone(), 1);
    let len = x.dims()[1];
    while distance < len {
        let (low, high) = ([0, distance as i64], [0, -(distance as i64)]);
        sums = sums.plus(&sums.pad(&x.scalar_like(0.0), &low, &high, &[0, 0]));
        distance *= 2;
    }
    sums
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use thalweg_graph::Scope;
    use thalweg_hlo::{Argument, Program};
    use thalweg_kernel::{Environment, KernelOrigin, Operand, StepWords};
    use thalweg_tensor::{Budget, Tensor};

    use super::super::source::Source;
    use super::*;
    use crate::math::random::philox::Philox;
    use crate::{FAMILIES, kernel_registry, op_registry};

    /// A node's kernels and its lowerings take turns in one sequence, whatever device or plan they are of.
    #[test]
    fn a_node_has_one_sequence_on_all_devices() {
        let mut scope = Scope::new(op_registry(FAMILIES).unwrap());
        let shape = Tensor::vector(&[5i32]).unwrap();
        let input = scope.constant(&shape).unwrap();
        let op = scope.op("RandomUniform").input(input).attr("dtype", DType::Float);
        let id = op.attr("seed", 7i64).attr("seed2", -11i64).build_node().unwrap();
        let node = scope.with_graph(|graph| graph.node(id).clone());
        let origin = KernelOrigin {
            kernels: kernel_registry(FAMILIES),
            budget: Budget::new(1 << 20),
            environment: Environment::frozen(),
            states: Arc::default(),
        };
        let lowered = || {
            let (program, arguments) = Program::new(&[Argument::new(DType::UInt64, &[WORDS])]);
            let mut words =
                StepWords { argument: arguments.first().cloned(), ..StepWords::default() };
            let (inputs, mut variables) = ([Operand::Host(shape.clone())], Vec::new());
            let mut l = Lowering::new(&node, &program, &inputs, &mut variables)
                .with_step_words(&origin, &mut words);
            lower_uniform(&mut l).unwrap();
            l.finish().unwrap();
            move || {
                let mut all = Vec::new();
                words.makers[0](&mut all);
                all
            }
        };
        let on_cpu = || match Source::new(&origin.init(&node)).unwrap() {
            Source::Own(generator) => generator.lock().reserve_outputs(5),
            _ => panic!("the op has a generator of its own"),
        };
        let after = |steps: u64| Philox::from_seeds(7, -11).skipped(steps * 5 * BLOCKS_PER_OUTPUT);
        let words = |philox: Philox| {
            let (key, [low, high]) = philox.words();
            vec![key, low, high]
        };
        let (first, second) = (lowered(), lowered());
        assert_eq!(first(), words(after(0)));
        assert_eq!(on_cpu(), after(1));
        assert_eq!(second(), words(after(2)));
        assert_eq!(first(), words(after(3)));
        assert_eq!(on_cpu(), after(4));
    }
}
