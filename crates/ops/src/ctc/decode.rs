//! CTC decoders: from logits to labels as sparse matrices.

use parking_lot::Mutex;
use thalweg_kernel::{AnyKernel, KernelContext, KernelInit};
use thalweg_tensor::{DType, Error, Result, Shape, Tensor, ensure, err};

use super::beam_search::{BeamSearch, Labelling};
use super::{Sizes, in_dtype_of, lengths_of, scores_of, sizes_of};
use crate::split::Disjoint;

/// The sizes and the sequence lengths; negative lengths count as zero.
fn checked<'a>(ctx: &'a KernelContext<'_>) -> Result<(Sizes, &'a [i32])> {
    let sizes = sizes_of(ctx)?;
    let lengths = lengths_of(ctx, 1)?;
    ensure!(
        ctx.input(0)?.num_elements() > 0,
        InvalidArgument,
        "inputs must not be empty, got shape {}",
        ctx.input(0)?.shape()
    );
    ensure!(
        lengths.len() == sizes.batch,
        FailedPrecondition,
        "len(sequence_length) is {}, batch_size is {}",
        lengths.len(),
        sizes.batch
    );
    for (b, &length) in lengths.iter().enumerate() {
        ensure!(
            i64::from(length) <= sizes.times as i64,
            FailedPrecondition,
            "sequence_length({b}) is {length}, but there are {} times",
            sizes.times
        );
    }
    Ok((sizes, lengths))
}

/// Calls `decode` for each sequence with its index, its length and its rows of logits.
fn each_sequence<'s, R: Send>(
    ctx: &KernelContext<'_>,
    sizes: Sizes,
    scores: &'s [f64],
    cost_per_time: f64,
    decode: impl Fn(usize, usize, &dyn Fn(usize) -> &'s [f64]) -> Result<R> + Sync,
) -> Result<Vec<R>> {
    let (_, lengths) = checked(ctx)?;
    let Sizes { times, batch, classes } = sizes;
    let mut results: Vec<Option<R>> = Vec::new();
    results.try_reserve_exact(batch).map_err(|_| err!(ResourceExhausted, "out of memory"))?;
    results.resize_with(batch, || None);
    let slots = Disjoint::new(&mut results);
    let failure: Mutex<Option<Error>> = Mutex::new(None);
    ctx.parallel_for(batch, cost_per_time * times as f64, |range| {
        for b in range {
            let row = |t: usize| &scores[(t * batch + b) * classes..][..classes];
            match decode(b, lengths[b].max(0) as usize, &row) {
                Ok(result) => {
                    // SAFETY: every sequence is handed out once.
                    let slot = unsafe { slots.part(b..b + 1) };
                    slot[0] = Some(result);
                }
                Err(e) => *failure.lock() = Some(e),
            }
        }
    })?;
    if let Some(e) = failure.into_inner() {
        return Err(e);
    }
    Ok(results.into_iter().flatten().collect())
}

pub(super) fn greedy_decoder(init: &KernelInit<'_>) -> Result<AnyKernel> {
    let merges = init.attrs().bool("merge_repeated")?;
    let blank_index = init.attrs().int("blank_index")?;
    AnyKernel::new(move |ctx| {
        let (sizes, _) = checked(ctx)?;
        let classes = sizes.classes as i64;
        ensure!(
            (-classes..classes).contains(&blank_index),
            InvalidArgument,
            "blank_index expected to be between {} and {} but was {blank_index}",
            -classes,
            classes - 1
        );
        let blank = if blank_index < 0 { classes + blank_index } else { blank_index } as u32;
        let scores = scores_of(ctx)?;
        let scores = scores.as_slice::<f64>()?;
        let cost = 1.5 * sizes.classes as f64;
        let found = each_sequence(ctx, sizes, scores, cost, |_, length, row| {
            Ok(greedy(length, row, blank, merges))
        })?;
        let mut log_probabilities = ctx.allocate(DType::Double, Shape::new(&[sizes.batch, 1])?)?;
        for (out, labelling) in log_probabilities.as_mut_slice::<f64>()?.iter_mut().zip(&found) {
            *out = labelling.log_probability;
        }
        let log_probabilities = in_dtype_of(ctx, 3, log_probabilities)?;
        let labels: Vec<&[u32]> = found.iter().map(|l| &l.labels[..]).collect();
        set_sparse(ctx, [0, 1, 2], &labels)?;
        ctx.set_output(3, log_probabilities)
    })
}

/// Greedy decoding: the class of the maximum at every time step, without blanks.
fn greedy<'s>(
    length: usize,
    row: &dyn Fn(usize) -> &'s [f64],
    blank: u32,
    merges: bool,
) -> Labelling {
    let (mut labels, mut log_probability, mut before) = (Vec::new(), 0.0, None);
    for t in 0..length {
        let scores = row(t);
        let (mut best, mut max) = (0u32, scores[0]);
        for (class, &score) in (0..).zip(scores) {
            if score > max {
                (best, max) = (class, score);
            }
        }
        log_probability -= max;
        if best != blank && !(merges && before == Some(best)) {
            labels.push(best);
        }
        before = Some(best);
    }
    Labelling { labels, log_probability }
}

pub(super) fn beam_search_decoder(init: &KernelInit<'_>) -> Result<AnyKernel> {
    let merges = init.attrs().bool("merge_repeated")?;
    let width = init.attrs().size("beam_width")?;
    let paths = init.attrs().size("top_paths")?;
    AnyKernel::new(move |ctx| {
        let (sizes, _) = checked(ctx)?;
        ensure!(
            paths <= width,
            InvalidArgument,
            "requested more paths than the beam width: {paths}, {width}"
        );
        let scores = scores_of(ctx)?;
        let scores = scores.as_slice::<f64>()?;
        let cost = 50.0 * width.min(1 << 20) as f64 * sizes.classes as f64;
        let found = each_sequence(ctx, sizes, scores, cost, |_, length, row| {
            let mut search = BeamSearch::new(width);
            for t in 0..length {
                ctx.check_cancelled()?;
                search.step(row(t))?;
            }
            search.best(paths, merges)
        })?;
        let shape = Shape::new(&[sizes.batch, paths])?;
        let mut log_probabilities = ctx.allocate(DType::Double, shape)?;
        let all = found.iter().flatten().map(|labelling| labelling.log_probability);
        log_probabilities.as_mut_slice::<f64>()?.iter_mut().zip(all).for_each(|(out, p)| *out = p);
        let log_probabilities = in_dtype_of(ctx, 3 * paths, log_probabilities)?;
        for path in 0..paths {
            let labels: Vec<&[u32]> = found.iter().map(|best| &best[path].labels[..]).collect();
            set_sparse(ctx, [path, paths + path, 2 * paths + path], &labels)?;
        }
        ctx.set_output(3 * paths, log_probabilities)
    })
}

/// Sets indices, values and shape of a sparse matrix with one row of labels for each sequence.
fn set_sparse(
    ctx: &mut KernelContext<'_>,
    [indices_out, values_out, shape_out]: [usize; 3],
    rows: &[&[u32]],
) -> Result<()> {
    let count = rows.iter().map(|row| row.len()).sum();
    let mut indices = ctx.allocate(DType::Int64, Shape::new(&[count, 2])?)?;
    let mut values = ctx.allocate(DType::Int64, Shape::new(&[count])?)?;
    let places = indices.as_mut_slice::<i64>()?.as_chunks_mut::<2>().0;
    let cells = rows.iter().enumerate().flat_map(|(b, row)| {
        row.iter().enumerate().map(move |(i, &label)| ([b as i64, i as i64], i64::from(label)))
    });
    for ((place, value), cell) in places.iter_mut().zip(values.as_mut_slice::<i64>()?).zip(cells) {
        (*place, *value) = cell;
    }
    let longest = rows.iter().map(|row| row.len()).max().unwrap_or(0);
    ctx.set_output(indices_out, indices)?;
    ctx.set_output(values_out, values)?;
    ctx.set_output(shape_out, Tensor::vector(&[rows.len() as i64, longest as i64])?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::call;
    use thalweg_tensor::Code;

    fn scores(times: usize, batch: usize, classes: usize) -> Tensor {
        let data: Vec<f64> = (0..times * batch * classes)
            .map(|i| ((i * 7919 + 13) % 101) as f64 / 25.0 - 2.0)
            .collect();
        Tensor::from_slice(Shape::new(&[times, batch, classes]).unwrap(), &data).unwrap()
    }

    fn beam(scores: Tensor, lengths: &[i32], width: i64, paths: i64) -> Result<Vec<Tensor>> {
        call("CTCBeamSearchDecoder")
            .input(scores)
            .input(Tensor::vector(lengths)?)
            .attr("beam_width", width)
            .attr("top_paths", paths)
            .attr("merge_repeated", false)
            .run_all()
    }

    /// The probability of every label sequence, by enumerating all paths.
    fn by_enumeration(scores: &[f64], classes: usize) -> Vec<(f64, Vec<i64>)> {
        let times = scores.len() / classes;
        let mut found: std::collections::BTreeMap<Vec<i64>, f64> = Default::default();
        for path in 0..classes.pow(times as u32) {
            let (mut left, mut said, mut before, mut weight) = (path, Vec::new(), usize::MAX, 1.0);
            for t in 0..times {
                let class = left % classes;
                left /= classes;
                let row = &scores[t * classes..][..classes];
                weight *= row[class].exp() / row.iter().map(|x| x.exp()).sum::<f64>();
                if class != before && class != classes - 1 {
                    said.push(class as i64);
                }
                before = class;
            }
            *found.entry(said).or_default() += weight;
        }
        let mut found: Vec<_> = found.into_iter().map(|(said, p)| (p, said)).collect();
        found.sort_by(|a, b| b.0.total_cmp(&a.0));
        found
    }

    #[test]
    fn a_wide_beam_finds_the_best() {
        let input = scores(5, 1, 3);
        let expected = by_enumeration(input.as_slice().unwrap(), 3);
        let got = beam(input, &[5], 1000, 3).unwrap();
        let log_probabilities = got[9].as_slice::<f64>().unwrap();
        for (path, (probability, labels)) in expected[..3].iter().enumerate() {
            assert_eq!(got[3 + path].as_slice::<i64>().unwrap(), labels);
            assert!((log_probabilities[path] - probability.ln()).abs() < 1e-9);
        }
    }

    #[test]
    fn the_greedy_path() {
        let data = [0.0, 1.0, 0.0, 0.0, 2.0, 0.0, 3.0, 0.0, 0.0, 0.0, 0.0, 4.0f32];
        let input = Tensor::from_slice(Shape::new(&[4, 1, 3]).unwrap(), &data).unwrap();
        let got = call("CTCGreedyDecoder")
            .input(input)
            .input(Tensor::vector(&[4]).unwrap())
            .attr("merge_repeated", true)
            .run_all()
            .unwrap();
        assert_eq!(got[0].as_slice::<i64>().unwrap(), [0, 0, 0, 1]);
        assert_eq!(got[1].as_slice::<i64>().unwrap(), [1, 0]);
        assert_eq!(got[2].as_slice::<i64>().unwrap(), [1, 2]);
        assert_eq!(got[3].as_slice::<f32>().unwrap(), [-10.0]);
    }

    #[test]
    fn hostile_inputs() {
        let code = |r: Result<Vec<Tensor>>| r.unwrap_err().code();
        assert_eq!(code(beam(scores(4, 2, 3), &[5, 1], 4, 1)), Code::FailedPrecondition);
        assert_eq!(code(beam(scores(4, 2, 3), &[1], 4, 1)), Code::FailedPrecondition);
        assert_eq!(code(beam(scores(4, 2, 3), &[4, 4], 1, 2)), Code::InvalidArgument);
        assert_eq!(code(beam(scores(4, 2, 3), &[0, 0], 9, 2)), Code::InvalidArgument);
        assert_eq!(code(beam(scores(0, 2, 3), &[0, 0], 9, 1)), Code::InvalidArgument);
        beam(scores(4, 2, 3), &[-1, 4], i64::MAX, 1).unwrap();
        beam(scores(4, 2, 1), &[4, 4], 4, 1).unwrap();
        let nan = Tensor::from_slice(Shape::new(&[3, 1, 3]).unwrap(), &[f64::NAN; 9]).unwrap();
        beam(nan, &[3], 4, 1).unwrap();
        for blank in [3, -4, i64::MIN] {
            let error = call("CTCGreedyDecoder")
                .input(scores(4, 1, 3))
                .input(Tensor::vector(&[4]).unwrap())
                .attr("blank_index", blank)
                .run_all();
            assert_eq!(code(error), Code::InvalidArgument);
        }
    }
}
