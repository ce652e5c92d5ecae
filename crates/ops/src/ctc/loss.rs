//! The CTC loss: the negative log-likelihood of the labels over all alignments (forward-backward
//! algorithm).

use parking_lot::Mutex;
use thalweg_kernel::{AnyKernel, KernelContext, KernelInit};
use thalweg_tensor::{DType, Error, Result, Shape, bail, ensure, err};

use super::{Sizes, in_dtype_of, lengths_of, log_add, scores_of, sizes_of};
use crate::split::Disjoint;

#[derive(Clone, Copy)]
struct Settings {
    collapses: bool,
    merges: bool,
    ignores_long: bool,
}

pub(super) fn ctc_loss(init: &KernelInit<'_>) -> Result<AnyKernel> {
    let attrs = init.attrs();
    let settings = Settings {
        collapses: attrs.bool("preprocess_collapse_repeated")?,
        merges: attrs.bool("ctc_merge_repeated")?,
        ignores_long: attrs.bool("ignore_longer_outputs_than_inputs")?,
    };
    AnyKernel::new(move |ctx| {
        let sizes = sizes_of(ctx)?;
        let sequences = sequences_of(ctx, sizes, settings)?;
        let mut loss = ctx.zeros(DType::Double, Shape::new(&[sizes.batch])?)?;
        let shape = ctx.input(0)?.shape().clone();
        let mut gradient = ctx.zeros(DType::Double, shape)?;
        let scores = scores_of(ctx)?;
        compute(
            ctx,
            sizes,
            settings,
            &sequences,
            scores.as_slice()?,
            loss.as_mut_slice()?,
            gradient.as_mut_slice()?,
        )?;
        let loss = in_dtype_of(ctx, 0, loss)?;
        let gradient = in_dtype_of(ctx, 1, gradient)?;
        ctx.set_output(0, loss)?;
        ctx.set_output(1, gradient)
    })
}

/// A sequence: its length, and its labels with a blank before, between and after them.
struct Sequence {
    length: usize,
    symbols: Vec<usize>,
}

/// Checks all inputs.
fn sequences_of(
    ctx: &KernelContext<'_>,
    sizes: Sizes,
    settings: Settings,
) -> Result<Vec<Sequence>> {
    let lengths = lengths_of(ctx, 3)?;
    let (indices, values) = (ctx.input(1)?, ctx.input(2)?);
    let [rows, columns] = *indices.shape().dims() else {
        bail!(InvalidArgument, "labels_indices is not a matrix, it has shape {}", indices.shape());
    };
    ensure!(
        values.rank() == 1,
        InvalidArgument,
        "labels_values is not a vector, it has shape {}",
        values.shape()
    );
    ensure!(columns == 2, InvalidArgument, "labels_indices must have 2 columns, has {columns}");
    ensure!(
        rows == values.num_elements(),
        InvalidArgument,
        "labels_indices and labels_values must have as many rows, got {rows} and {}",
        values.num_elements()
    );
    let Sizes { times, batch, classes } = sizes;
    ensure!(batch > 0, InvalidArgument, "batch_size must not be 0");
    ensure!(classes > 0, InvalidArgument, "num_classes must not be 0");
    ensure!(times > 0, InvalidArgument, "Max time or first dimension of input cannot be 0.");
    ensure!(
        lengths.len() == batch,
        InvalidArgument,
        "len(sequence_length) is {}, batch_size is {batch}",
        lengths.len()
    );
    let labels = grouped(indices.as_slice::<i64>()?, values.as_slice::<i32>()?, batch)?;
    let mut sequences = Vec::new();
    sequences.try_reserve_exact(batch).map_err(out_of_memory)?;
    for (b, (&length, labels)) in lengths.iter().zip(labels).enumerate() {
        ensure!(length >= 0, InvalidArgument, "sequence_length({b}) is {length}, less than 0");
        let length = length as usize;
        ensure!(
            length <= times,
            InvalidArgument,
            "sequence_length({b}) is {length}, but there are {times} times"
        );
        ensure!(!labels.is_empty(), InvalidArgument, "Labels length is zero in batch {b}");
        sequences.push(sequence(b, length, labels, classes, settings)?);
    }
    Ok(sequences)
}

fn out_of_memory<E>(_: E) -> Error {
    err!(ResourceExhausted, "out of memory for the labels")
}

/// The labels of each sequence. Indices must be in ascending order without repetition.
fn grouped<'a>(indices: &[i64], values: &'a [i32], batch: usize) -> Result<Vec<&'a [i32]>> {
    let indices = indices.as_chunks::<2>().0;
    for (i, index) in indices.iter().enumerate() {
        let is_inside = (0..batch as i64).contains(&index[0]) && index[1] >= 0;
        ensure!(
            is_inside,
            InvalidArgument,
            "label SparseTensor is not valid: indices[{i}] = {index:?} is out of bounds for {batch} \
             sequences"
        );
        ensure!(
            i == 0 || indices[i - 1] < *index,
            InvalidArgument,
            "label SparseTensor is not valid: indices[{i}] = {index:?} is out of order or repeated"
        );
    }
    let mut groups = Vec::new();
    groups.try_reserve_exact(batch).map_err(out_of_memory)?;
    let mut start = 0;
    for b in 0..batch as i64 {
        let count = indices[start..].partition_point(|index| index[0] <= b);
        groups.push(&values[start..start + count]);
        start += count;
    }
    Ok(groups)
}

fn sequence(
    b: usize,
    length: usize,
    labels: &[i32],
    classes: usize,
    settings: Settings,
) -> Result<Sequence> {
    let blank = classes - 1;
    let mut symbols = Vec::new();
    symbols.try_reserve_exact(2 * labels.len() + 1).map_err(out_of_memory)?;
    symbols.push(blank);
    let mut is_over = false;
    for (i, &label) in labels.iter().enumerate() {
        if i > 0 && settings.collapses && label == labels[i - 1] {
            continue;
        }
        let label = usize::try_from(label).map_err(|_| {
            err!(InvalidArgument, "All labels must be nonnegative integers, batch {b} has {label}")
        })?;
        // A blank ends the labels of a sequence.
        if label >= blank {
            is_over = true;
            continue;
        }
        ensure!(
            !is_over,
            InvalidArgument,
            "Saw a non-null label (index >= num_classes - 1) following a null label, batch: {b} \
             num_classes: {classes}"
        );
        symbols.extend([label, blank]);
    }
    // Labels that were removed by `preprocess_collapse_repeated` count here.
    let required = labels.len();
    if required > length {
        ensure!(
            settings.ignores_long,
            InvalidArgument,
            "Not enough time for target transition sequence (required: {required}, available: \
             {length}) in batch {b}. You can turn this error into a warning by using the flag \
             ignore_longer_outputs_than_inputs"
        );
        // A sequence that is too short for its labels has no loss and no gradient.
        return Ok(Sequence { length: 0, symbols });
    }
    Ok(Sequence { length, symbols })
}

/// Computes the loss of every sequence, several in parallel.
fn compute(
    ctx: &KernelContext<'_>,
    sizes: Sizes,
    settings: Settings,
    sequences: &[Sequence],
    scores: &[f64],
    loss: &mut [f64],
    gradient: &mut [f64],
) -> Result<()> {
    let Sizes { times, batch, classes } = sizes;
    let (loss, gradient) = (Disjoint::new(loss), Disjoint::new(gradient));
    let failure: Mutex<Option<Error>> = Mutex::new(None);
    let mean: usize = sequences.iter().map(|s| s.symbols.len()).sum::<usize>() / batch;
    let cost = times as f64 * (20.0 * classes as f64 + 120.0 * mean as f64) + 100.0;
    ctx.parallel_for(batch, cost, |range| {
        for b in range {
            let row = |t: usize| (t * batch + b) * classes..(t * batch + b + 1) * classes;
            let result = Lattice::new(ctx, &sequences[b], settings, classes).and_then(|lattice| {
                let Some(mut lattice) = lattice else { return Ok(()) };
                lattice.fill(|t| &scores[row(t)])?;
                // SAFETY: every sequence is handed out once.
                let loss = unsafe { loss.part(b..b + 1) };
                loss[0] = -lattice.log_probability;
                for t in 0..sequences[b].length {
                    // SAFETY: rows of different sequences do not overlap.
                    lattice.gradient(t, unsafe { gradient.part(row(t)) })?;
                }
                Ok(())
            });
            if let Err(e) = result {
                *failure.lock() = Some(e);
            }
        }
    })?;
    failure.into_inner().map_or(Ok(()), Err)
}

/// The forward and backward variables of a sequence.
struct Lattice<'a> {
    sequence: &'a Sequence,
    settings: Settings,
    classes: usize,
    /// Class probabilities by time.
    probabilities: thalweg_tensor::Tensor,
    /// Log probabilities, by time and symbol.
    forward: thalweg_tensor::Tensor,
    backward: thalweg_tensor::Tensor,
    log_probability: f64,
}

impl<'a> Lattice<'a> {
    fn new(
        ctx: &KernelContext<'_>,
        sequence: &'a Sequence,
        settings: Settings,
        classes: usize,
    ) -> Result<Option<Lattice<'a>>> {
        let (times, symbols) = (sequence.length, sequence.symbols.len());
        if times == 0 {
            return Ok(None);
        }
        let memory = |columns: usize| ctx.allocate(DType::Double, Shape::new(&[times, columns])?);
        Ok(Some(Lattice {
            sequence,
            settings,
            classes,
            probabilities: memory(classes)?,
            forward: memory(symbols)?,
            backward: memory(symbols)?,
            log_probability: f64::NEG_INFINITY,
        }))
    }

    fn fill<'s>(&mut self, scores: impl Fn(usize) -> &'s [f64]) -> Result<()> {
        let probabilities = self.probabilities.as_mut_slice::<f64>()?;
        for (t, out) in probabilities.chunks_exact_mut(self.classes).enumerate() {
            softmax(scores(t), out);
        }
        self.go_forward()?;
        self.go_backward()?;
        let symbols = self.sequence.symbols.len();
        let first = self.forward.as_slice::<f64>()?.iter().zip(self.backward.as_slice::<f64>()?);
        let paths = first.take(symbols).map(|(a, b)| a + b);
        self.log_probability = paths.fold(f64::NEG_INFINITY, log_add);
        Ok(())
    }

    /// The range of symbols that a complete path can visit at time `t`.
    fn reachable(&self, t: usize) -> std::ops::Range<usize> {
        let symbols = self.sequence.symbols.len();
        let left = self.sequence.length - t;
        symbols.saturating_sub(2 * left)..symbols.min(2 * (t + 1))
    }

    /// Whether a path may repeat a symbol.
    fn stays(&self, u: usize) -> bool {
        self.settings.merges || u.is_multiple_of(2)
    }

    /// Whether a path may skip the blank between symbols `u` and `u + 2`.
    fn skips(&self, u: usize) -> bool {
        let symbols = &self.sequence.symbols;
        u % 2 == 1 && !(self.settings.merges && symbols[u] == symbols[u + 2])
    }

    fn go_forward(&mut self) -> Result<()> {
        let symbols = &self.sequence.symbols;
        let mut forward = std::mem::replace(&mut self.forward, thalweg_tensor::Tensor::scalar(0.0));
        let cells = forward.as_mut_slice::<f64>()?;
        cells.fill(f64::NEG_INFINITY);
        let probabilities = self.probabilities.as_slice::<f64>()?;
        for u in 0..symbols.len().min(2) {
            cells[u] = probabilities[symbols[u]].ln();
        }
        for t in 1..self.sequence.length {
            let (before, now) = cells.split_at_mut(t * symbols.len());
            let before = &before[(t - 1) * symbols.len()..];
            for u in self.reachable(t) {
                let mut sum = if self.stays(u) { before[u] } else { f64::NEG_INFINITY };
                if u > 0 {
                    sum = log_add(sum, before[u - 1]);
                }
                if u > 1 && self.skips(u - 2) {
                    sum = log_add(sum, before[u - 2]);
                }
                now[u] = probabilities[t * self.classes + symbols[u]].ln() + sum;
            }
        }
        self.forward = forward;
        Ok(())
    }

    fn go_backward(&mut self) -> Result<()> {
        let symbols = &self.sequence.symbols;
        let mut backward =
            std::mem::replace(&mut self.backward, thalweg_tensor::Tensor::scalar(0.0));
        let cells = backward.as_mut_slice::<f64>()?;
        cells.fill(f64::NEG_INFINITY);
        let probabilities = self.probabilities.as_slice::<f64>()?;
        let last = self.sequence.length - 1;
        for u in symbols.len().saturating_sub(2)..symbols.len() {
            cells[last * symbols.len() + u] = 0.0;
        }
        for t in (0..last).rev() {
            let (now, after) = cells.split_at_mut((t + 1) * symbols.len());
            let now = &mut now[t * symbols.len()..];
            let next =
                |u: usize| after[u] + probabilities[(t + 1) * self.classes + symbols[u]].ln();
            for u in self.reachable(t) {
                let mut sum = if self.stays(u) { next(u) } else { f64::NEG_INFINITY };
                if u + 1 < symbols.len() {
                    sum = log_add(sum, next(u + 1));
                }
                if u + 2 < symbols.len() && self.skips(u) {
                    sum = log_add(sum, next(u + 2));
                }
                now[u] = sum;
            }
        }
        self.backward = backward;
        Ok(())
    }

    /// The gradient of the loss with respect to the logits at time `t`.
    fn gradient(&self, t: usize, out: &mut [f64]) -> Result<()> {
        let symbols = &self.sequence.symbols;
        let row = t * symbols.len()..(t + 1) * symbols.len();
        let probabilities = &self.probabilities.as_slice::<f64>()?[t * self.classes..];
        if self.log_probability == f64::NEG_INFINITY {
            out.copy_from_slice(&probabilities[..self.classes]);
            return Ok(());
        }
        out.fill(f64::NEG_INFINITY);
        let forward = &self.forward.as_slice::<f64>()?[row.clone()];
        let backward = &self.backward.as_slice::<f64>()?[row];
        for (u, &symbol) in symbols.iter().enumerate() {
            out[symbol] = log_add(out[symbol], forward[u] + backward[u]);
        }
        for (out, &probability) in out.iter_mut().zip(probabilities) {
            *out = probability - (*out - self.log_probability).exp();
        }
        Ok(())
    }
}

fn softmax(scores: &[f64], out: &mut [f64]) {
    let max = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let mut sum = 0.0;
    for (out, score) in out.iter_mut().zip(scores) {
        *out = (score - max).exp();
        sum += *out;
    }
    out.iter_mut().for_each(|p| *p /= sum);
}

#[cfg(test)]
mod tests {
    use crate::testing::call;
    use thalweg_tensor::{Code, Result, Shape, Tensor};

    fn run(
        scores: &Tensor,
        labels: &[i32],
        lengths: &[i32],
        merges: bool,
    ) -> Result<(Vec<f64>, Vec<f64>)> {
        let indices: Vec<i64> = (0..labels.len() as i64).flat_map(|i| [0, i]).collect();
        let got = call("CTCLoss")
            .input(scores.clone())
            .input(Tensor::from_slice(Shape::new(&[labels.len(), 2])?, &indices)?)
            .input(Tensor::vector(labels)?)
            .input(Tensor::vector(lengths)?)
            .attr("ctc_merge_repeated", merges)
            .run_all()?;
        Ok((got[0].as_slice::<f64>()?.to_vec(), got[1].as_slice::<f64>()?.to_vec()))
    }

    fn scores(times: usize, classes: usize) -> Vec<f64> {
        (0..times * classes).map(|i| ((i * 37 + 11) % 23) as f64 / 7.0 - 1.5).collect()
    }

    fn tensor(scores: &[f64], classes: usize) -> Tensor {
        let shape = Shape::new(&[scores.len() / classes, 1, classes]).unwrap();
        Tensor::from_slice(shape, scores).unwrap()
    }

    /// Enumerates every path through the classes.
    fn by_enumeration(scores: &[f64], classes: usize, labels: &[i32]) -> f64 {
        let times = scores.len() / classes;
        let mut total = 0.0;
        for path in 0..classes.pow(times as u32) {
            let mut left = path;
            let (mut said, mut before, mut weight) = (Vec::new(), usize::MAX, 1.0);
            for t in 0..times {
                let class = left % classes;
                left /= classes;
                let row = &scores[t * classes..][..classes];
                weight *= row[class].exp() / row.iter().map(|x| x.exp()).sum::<f64>();
                if class != before && class != classes - 1 {
                    said.push(class as i32);
                }
                before = class;
            }
            if said == labels {
                total += weight;
            }
        }
        -total.ln()
    }

    #[test]
    fn all_paths_count() {
        let (times, classes) = (5, 3);
        let data = scores(times, classes);
        for labels in [&[0][..], &[0, 1], &[1, 1], &[0, 1, 0], &[1, 1, 1]] {
            let (loss, _) = run(&tensor(&data, classes), labels, &[5], true).unwrap();
            let expected = by_enumeration(&data, classes, labels);
            assert!((loss[0] - expected).abs() < 1e-9, "{labels:?}: {loss:?} {expected}");
        }
    }

    #[test]
    fn the_gradient_is_the_slope() {
        let data = scores(4, 4);
        for merges in [true, false] {
            let (_, gradient) = run(&tensor(&data, 4), &[2, 2], &[4], merges).unwrap();
            for i in 0..data.len() {
                let loss_at = |step: f64| {
                    let mut moved = data.clone();
                    moved[i] += step;
                    run(&tensor(&moved, 4), &[2, 2], &[4], merges).unwrap().0[0]
                };
                let slope = (loss_at(1e-5) - loss_at(-1e-5)) / 2e-5;
                assert!(
                    (slope - gradient[i]).abs() < 1e-7,
                    "{merges} {i}: {slope} {}",
                    gradient[i]
                );
            }
        }
    }

    #[test]
    fn hostile_labels() {
        let data = tensor(&scores(4, 3), 3);
        for (labels, lengths) in [
            (&[-1][..], &[4][..]),
            (&[2, 1], &[4]),
            (&[0, 1], &[1]),
            (&[0], &[5]),
            (&[0], &[-1]),
            (&[0], &[4, 4]),
            (&[], &[4]),
        ] {
            let error = run(&data, labels, lengths, true).unwrap_err();
            assert_eq!(error.code(), Code::InvalidArgument, "{labels:?} {lengths:?}: {error}");
        }
        // Two equal labels need a blank between them.
        assert_eq!(run(&data, &[1, 1], &[2], true).unwrap().0, [f64::INFINITY]);
        run(&data, &[1, i32::MAX], &[4], true).unwrap();
        let nan = tensor(&[f64::NAN; 12], 3);
        assert!(run(&nan, &[1], &[4], true).unwrap().0[0].is_nan());
    }
}
