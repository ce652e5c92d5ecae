//! `EditDistance`: the Levenshtein distance between rows of two sparse tensors.

use bytes::Bytes;
use smallvec::SmallVec;
use thalweg_graph::{OpDef, ShapeContext, Work};
use thalweg_kernel::{AnyKernel, Family, KernelContext, KernelInit, KernelSpec};
use thalweg_tensor::{
    Complex32, Complex64, DType, PartialShape, Result, Shape, Tensor, bail, bf16, ensure, f16,
};

use crate::cells::{Bits, Cell};

pub(crate) static FAMILY: Family = Family {
    ops: &[OpDef::new("EditDistance", edit_distance_shape)
        .with_work(Work::serial::<100>)
        .without_gradient()],
    kernels: &[KernelSpec { op: "EditDistance", create: edit_distance, ..KernelSpec::CPU }],
};

fn edit_distance_shape(c: &mut ShapeContext<'_>) -> Result<()> {
    for (i, name) in [(0, "hypothesis_indices"), (3, "truth_indices")] {
        c.with_rank(i, name, 2)?;
        c.with_rank(i + 1, "values", 1)?;
        c.with_rank(i + 2, "shape", 1)?;
    }
    let known = |i: usize| c.partial_value(i).and_then(|v| v.known());
    if let (Some(hypothesis), Some(truth)) = (known(2), known(5))
        && hypothesis.len() == truth.len()
        && hypothesis.len() > 1
    {
        let outer = hypothesis.len() - 1;
        let dims =
            hypothesis[..outer].iter().zip(&truth).map(|(&a, &b)| usize::try_from(a.max(b)).ok());
        let shape = PartialShape::new(dims.collect::<SmallVec<[_; 4]>>());
        c.set_output(0, shape);
    }
    Ok(())
}

/// Equality of two elements, of the hypothesis and of the truth.
type Equal<'a> = dyn Fn(usize, usize) -> bool + 'a;

fn edit_distance(init: &KernelInit<'_>) -> Result<AnyKernel> {
    let normalizes = init.attrs().bool("normalize")?;
    AnyKernel::new(move |ctx| {
        let hypothesis = Rows::new(ctx, 0, "hypothesis")?;
        let truth = Rows::new(ctx, 3, "truth")?;
        let shape = output_shape(&hypothesis, &truth)?;
        let mut output = ctx.zeros(DType::Float, shape.clone())?;
        let equal = equality(ctx.input(1)?, ctx.input(4)?)?;
        let longest = truth.longest();
        let mut scratch = ctx.allocate(DType::Int64, Shape::new(&[longest + 1])?)?;
        let mut job = Job {
            ctx,
            normalizes,
            shape: &shape,
            equal: &*equal,
            scratch: scratch.as_mut_slice::<i64>()?,
        };
        job.run(&hypothesis, &truth, output.as_mut_slice::<f32>()?)?;
        drop(equal);
        ctx.set_output(0, output)
    })
}

/// A sparse tensor as runs of elements with equal indices except the last.
struct Rows<'a> {
    indices: &'a [i64],
    rank: usize,
    dims: SmallVec<[i64; 4]>,
}

impl<'a> Rows<'a> {
    fn new(ctx: &'a KernelContext<'_>, first: usize, name: &str) -> Result<Rows<'a>> {
        let (indices, values) = (ctx.input(first)?, ctx.input(first + 1)?);
        let shape = ctx.input(first + 2)?;
        ensure!(
            indices.rank() == 2 && values.rank() == 1 && shape.rank() == 1,
            InvalidArgument,
            "{name}'s indices must be a matrix, its values and its shape vectors, got shapes {}, {} and {}",
            indices.shape(),
            values.shape(),
            shape.shape()
        );
        ensure!(
            values.num_elements() == indices.shape()[0],
            InvalidArgument,
            "{name} has {} values at {} indices",
            values.num_elements(),
            indices.shape()[0]
        );
        let rank = shape.num_elements();
        ensure!(
            indices.shape()[1] == rank,
            InvalidArgument,
            "{name} has indices of {} numbers in a shape of {rank}",
            indices.shape()[1]
        );
        Ok(Rows { indices: indices.as_slice()?, rank, dims: ctx.ints(first + 2, name)? })
    }

    fn len(&self) -> usize {
        self.indices.len() / self.rank.max(1)
    }

    /// The outer indices of element `i`.
    fn group(&self, i: usize) -> &'a [i64] {
        &self.indices[i * self.rank..(i + 1) * self.rank - 1]
    }

    /// The end of the run that begins at `start`.
    fn end(&self, start: usize) -> usize {
        let group = self.group(start);
        (start + 1..self.len()).find(|&i| self.group(i) != group).unwrap_or(self.len())
    }

    fn longest(&self) -> usize {
        let (mut at, mut longest) = (0, 0);
        while at < self.len() {
            let end = self.end(at);
            longest = longest.max(end - at);
            at = end;
        }
        longest
    }
}

fn output_shape(hypothesis: &Rows<'_>, truth: &Rows<'_>) -> Result<Shape> {
    ensure!(
        hypothesis.rank == truth.rank,
        InvalidArgument,
        "hypothesis and truth must have one rank, have {} and {}",
        hypothesis.rank,
        truth.rank
    );
    ensure!(truth.rank >= 2, InvalidArgument, "the rank must be at least 2, is {}", truth.rank);
    let outer = hypothesis.dims.iter().zip(&truth.dims).take(truth.rank - 1);
    let shape = Shape::from_i64(&outer.map(|(&a, &b)| a.max(b)).collect::<SmallVec<[i64; 4]>>())?;
    ensure!(
        shape.num_elements() > 0,
        InvalidArgument,
        "the output has no elements in shape {shape}"
    );
    Ok(shape)
}

fn equality<'a>(hypothesis: &'a Tensor, truth: &'a Tensor) -> Result<Box<Equal<'a>>> {
    fn cells<'a, C: Cell + PartialEq>(a: &'a Tensor, b: &'a Tensor) -> Result<Box<Equal<'a>>> {
        let (a, b) = (C::view(a)?, C::view(b)?);
        Ok(Box::new(move |i, j| a[i] == b[j]))
    }
    // Floats are compared by value, other types by their bits.
    macro_rules! floats {
        ($t:ty) => {{
            let (a, b) = (hypothesis.as_slice::<$t>()?, truth.as_slice::<$t>()?);
            Ok(Box::new(move |i, j| a[i] == b[j]))
        }};
    }
    match hypothesis.dtype() {
        DType::Float => floats!(f32),
        DType::Double => floats!(f64),
        DType::Half => floats!(f16),
        DType::BFloat16 => floats!(bf16),
        DType::Complex64 => floats!(Complex32),
        DType::Complex128 => floats!(Complex64),
        DType::String => cells::<Bytes>(hypothesis, truth),
        dtype => match dtype.size() {
            1 => cells::<Bits<1>>(hypothesis, truth),
            2 => cells::<Bits<2>>(hypothesis, truth),
            4 => cells::<Bits<4>>(hypothesis, truth),
            8 => cells::<Bits<8>>(hypothesis, truth),
            _ => bail!(Unimplemented, "EditDistance does not support dtype {dtype}"),
        },
    }
}

struct Job<'a, 'b> {
    ctx: &'a KernelContext<'b>,
    normalizes: bool,
    shape: &'a Shape,
    equal: &'a Equal<'a>,
    /// One row of the distance table.
    scratch: &'a mut [i64],
}

impl Job<'_, '_> {
    /// Walks the runs of both tensors in storage order, as TensorFlow does.
    fn run(&mut self, hypothesis: &Rows<'_>, truth: &Rows<'_>, out: &mut [f32]) -> Result<()> {
        let (mut h, mut t) = (0, 0);
        while h < hypothesis.len() || t < truth.len() {
            self.ctx.check_cancelled()?;
            let order = match (h < hypothesis.len(), t < truth.len()) {
                (true, true) => hypothesis.group(h).cmp(truth.group(t)),
                (true, false) => std::cmp::Ordering::Less,
                _ => std::cmp::Ordering::Greater,
            };
            let (group, distance, truths);
            let h_end = if order.is_le() { hypothesis.end(h) } else { h };
            let t_end = if order.is_ge() { truth.end(t) } else { t };
            group = if order.is_le() { hypothesis.group(h) } else { truth.group(t) };
            truths = t_end - t;
            distance = self.distance(h..h_end, t..t_end)?;
            let slot = self.slot(group)?;
            out[slot] = match (self.normalizes, truths) {
                (false, _) => distance as f32,
                (true, 0) => f32::INFINITY,
                (true, _) => distance as f32 / truths as f32,
            };
            (h, t) = (h_end, t_end);
        }
        Ok(())
    }

    /// Output index of a group.
    fn slot(&self, group: &[i64]) -> Result<usize> {
        let mut slot = 0i64;
        for (&index, &size) in group.iter().zip(self.shape.iter()) {
            slot = slot.wrapping_mul(size as i64).wrapping_add(index);
        }
        let slots = self.shape.num_elements();
        match usize::try_from(slot) {
            Ok(slot) if slot < slots => Ok(slot),
            _ => {
                bail!(Internal, "indices {group:?} lie outside the output of shape {}", self.shape)
            }
        }
    }

    /// The minimum number of insertions, deletions and substitutions that transform one run into
    /// the other.
    fn distance(
        &mut self,
        hypothesis: std::ops::Range<usize>,
        truth: std::ops::Range<usize>,
    ) -> Result<i64> {
        let row = &mut self.scratch[..truth.len() + 1];
        row.iter_mut().zip(0..).for_each(|(slot, i)| *slot = i);
        for h in hypothesis {
            self.ctx.check_cancelled()?;
            let mut diagonal = row[0];
            row[0] += 1;
            for (i, t) in truth.clone().enumerate() {
                let changed = diagonal + i64::from(!(self.equal)(h, t));
                diagonal = row[i + 1];
                row[i + 1] = changed.min(row[i] + 1).min(diagonal + 1);
            }
        }
        Ok(row[truth.len()])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Call, call, code};
    use thalweg_tensor::Code;

    fn sparse(call: Call, indices: &[[i64; 2]], values: &'static str, shape: &[i64]) -> Call {
        let flat: Vec<i64> = indices.iter().flatten().copied().collect();
        let indices = Tensor::from_slice(Shape::new(&[indices.len(), 2]).unwrap(), &flat).unwrap();
        let values: Vec<Bytes> = values.bytes().map(|b| Bytes::from(vec![b])).collect();
        let values = Tensor::from_strings(Shape::new(&[values.len()]).unwrap(), values).unwrap();
        call.input(indices).input(values).input(Tensor::vector(shape).unwrap())
    }

    type Sparse = (&'static [[i64; 2]], &'static str, &'static [i64]);
    const HYPOTHESIS: Sparse = (&[[0, 0], [0, 1], [1, 0]], "abc", &[2, 2]);
    const TRUTH: Sparse = (&[[0, 0], [1, 0], [1, 1]], "acd", &[2, 2]);
    const NOTHING: Sparse = (&[], "", &[2, 2]);

    fn distances(h: Sparse, t: Sparse, normalize: bool) -> Result<Vec<f32>> {
        let call = sparse(call("EditDistance"), h.0, h.1, h.2);
        let run = sparse(call, t.0, t.1, t.2).attr("normalize", normalize).run();
        run.map(|out| out.as_slice::<f32>().unwrap().to_vec())
    }

    #[test]
    fn rows_are_compared() {
        let inf = f32::INFINITY;
        for (h, t, normalize, expected) in [
            (HYPOTHESIS, TRUTH, true, &[1.0, 0.5][..]),
            (HYPOTHESIS, TRUTH, false, &[1.0, 1.0]),
            (HYPOTHESIS, NOTHING, true, &[inf, inf]),
            (HYPOTHESIS, NOTHING, false, &[2.0, 1.0]),
            (NOTHING, TRUTH, true, &[1.0, 1.0]),
            (NOTHING, NOTHING, true, &[0.0, 0.0]),
            (HYPOTHESIS, (TRUTH.0, TRUTH.1, &[3, 2]), true, &[1.0, 0.5, 0.0]),
            ((&[[1, 0], [0, 0]], "ab", &[2, 2]), TRUTH, true, &[inf, 1.0]),
            ((&[[0, 5]], "a", &[2, 2]), TRUTH, true, &[0.0, 1.0]),
        ] {
            assert_eq!(distances(h, t, normalize).unwrap(), expected);
        }
        let kitten = (&[[0, 0], [0, 1], [0, 2], [0, 3], [0, 4], [0, 5]][..], "kitten", &[1, 6][..]);
        let sitting =
            (&[[0, 0], [0, 1], [0, 2], [0, 3], [0, 4], [0, 5], [0, 6]][..], "sitting", &[1, 7][..]);
        assert_eq!(distances(kitten, sitting, false).unwrap(), [3.0]);
    }

    #[test]
    fn what_is_refused() {
        let invalid = Code::InvalidArgument;
        for (h, wanted) in [
            // TensorFlow's code for indices out of bounds.
            ((&[[5, 0]][..], "a", &[2, 2][..]), Code::Internal),
            ((&[[-1, 0]], "a", &[2, 2]), Code::Internal),
            ((&[[0, 0], [0, 1]], "a", &[2, 2]), invalid),
            ((&[[0, 0]], "a", &[2]), invalid),
            ((&[], "", &[-2, 2]), invalid),
            ((&[], "", &[1 << 40, 2]), Code::ResourceExhausted),
        ] {
            let t = if h.2[0] < 0 { (TRUTH.0, TRUTH.1, &[-2, 2][..]) } else { TRUTH };
            assert_eq!(code(distances(h, t, true)), Some(wanted), "{h:?}");
        }
        assert_eq!(
            code(distances((&[], "", &[0, 2]), (&[], "", &[0, 2]), true)),
            Some(Code::InvalidArgument)
        );
    }

    #[test]
    fn shapes() {
        let constant = |t: &[i64]| Tensor::vector(t).unwrap();
        let call = call("EditDistance")
            .shape(DType::Int64, "?,3")
            .shape(DType::String, "?")
            .constant(constant(&[2, 3, 4]))
            .shape(DType::Int64, "?,3")
            .shape(DType::String, "?")
            .constant(constant(&[5, 1, 4]));
        assert_eq!(call.infer(), "[5,3]");
    }
}
