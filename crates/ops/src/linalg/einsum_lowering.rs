//! `Einsum` on accelerators: diagonals, sums, one product, a transposition.

use smallvec::SmallVec;
use thalweg_hlo::{Comparison, DotDims, Value};
use thalweg_kernel::Lowering;
use thalweg_tensor::{DType, Result, ensure};

use super::equation::{Equation, Label, count_unnamed};

/// An operand with a label for each dimension; labels are distinct, and no dimension has size 1.
struct Labelled {
    value: Value,
    labels: SmallVec<[Label; 8]>,
}

impl Labelled {
    /// Drops dimensions of size 1, and takes the diagonal of repeated labels.
    fn new(value: &Value, labels: &[Label]) -> Labelled {
        let is_long: Vec<bool> = value.dims().iter().map(|&d| d != 1).collect();
        let dims: Vec<usize> = value.dims().iter().copied().filter(|&d| d != 1).collect();
        let kept = labels.iter().zip(&is_long).filter(|(_, is_long)| **is_long);
        let mut own =
            Labelled { value: value.reshape(&dims), labels: kept.map(|(l, _)| *l).collect() };
        while let Some((first, second)) = own.repeated() {
            let masked = on_diagonal(&own.value, first, second);
            own.value = masked.sum(&[second]);
            own.labels.remove(second);
        }
        own
    }

    fn repeated(&self) -> Option<(usize, usize)> {
        let second =
            (1..self.labels.len()).find(|&i| self.labels[..i].contains(&self.labels[i]))?;
        Some((self.position(self.labels[second])?, second))
    }

    fn position(&self, label: Label) -> Option<usize> {
        self.labels.iter().position(|&l| l == label)
    }

    /// Sums over the labels that are not kept.
    fn summed(self, is_kept: impl Fn(Label) -> bool) -> Labelled {
        let dims: Vec<usize> =
            (0..self.labels.len()).filter(|&i| !is_kept(self.labels[i])).collect();
        if dims.is_empty() {
            return self;
        }
        let sum = match self.value.dtype() {
            DType::Half | DType::BFloat16 => self.value.sum_in(DType::Float, &dims),
            _ => self.value.sum(&dims),
        };
        Labelled { value: sum, labels: self.labels.into_iter().filter(|&l| is_kept(l)).collect() }
    }

    /// The product: labels of both are batches if the output has them, else contracted.
    fn times(&self, other: &Labelled, output: &[Label]) -> Labelled {
        let mut dims = DotDims::default();
        let mut labels: SmallVec<[Label; 8]> = SmallVec::new();
        for (i, &label) in self.labels.iter().enumerate() {
            let Some(j) = other.position(label) else { continue };
            let is_batch = output.contains(&label);
            let side = if is_batch { &mut dims.batch } else { &mut dims.contracting };
            side.0.push(i);
            side.1.push(j);
            if is_batch {
                labels.push(label);
            }
        }
        let free = |a: &Labelled, b: &Labelled| -> Vec<Label> {
            a.labels.iter().copied().filter(|&l| b.position(l).is_none()).collect()
        };
        labels.extend(free(self, other));
        labels.extend(free(other, self));
        let value = self.value.dot_general(&other.value, &dims, self.value.dtype());
        Labelled { value, labels }
    }

    /// The elements with the dimensions of the output; for a repeated label, off-diagonal ones are 0.
    fn into_output(self, labels: &[Label], dims: &[usize]) -> Value {
        let present: Vec<usize> =
            (0..dims.len()).filter(|&i| self.position(labels[i]).is_some()).collect();
        let is_first = |i: usize| !present.iter().any(|&j| j < i && labels[j] == labels[i]);
        let firsts: Vec<usize> = present.iter().copied().filter(|&i| is_first(i)).collect();
        let order: Vec<usize> = firsts.iter().filter_map(|&i| self.position(labels[i])).collect();
        let mut value = self.value.transpose(&order).broadcast_in(dims, &firsts);
        for &i in present.iter().filter(|&&i| !is_first(i)) {
            if let Some(&first) = firsts.iter().find(|&&j| labels[j] == labels[i]) {
                value = on_diagonal(&value, first, i);
            }
        }
        value
    }
}

/// The elements with equal indices in two dimensions; others are 0.
fn on_diagonal(x: &Value, first: usize, second: usize) -> Value {
    let index = |dim: usize| x.iota(DType::Int32, x.dims(), dim);
    let is_equal = index(first).compare(Comparison::Equal, &index(second));
    is_equal.select(x, &x.scalar_like(0.0))
}

pub(crate) fn lower_einsum(l: &mut Lowering<'_>) -> Result<()> {
    let equation = Equation::parse(l.attrs().string("equation")?, l.num_inputs())?;
    let (mut operands, mut unnamed) = (Vec::new(), 0);
    for i in 0..l.num_inputs() {
        let value = l.input(i)?;
        let labels = equation.input_labels(i, value.rank())?;
        unnamed = unnamed.max(count_unnamed(&labels));
        operands.push(Labelled::new(&value, &labels));
    }
    let (labels, dims) = (equation.output_labels(unnamed)?, l.output_dims(0)?);
    ensure!(
        labels.len() == dims.len(),
        Internal,
        "the output of {} has labels {labels:?} and shape {dims:?}",
        l.node().op.name
    );
    let result = match (operands.pop(), operands.pop()) {
        (Some(b), Some(a)) => {
            let shared: Vec<Label> =
                a.labels.iter().copied().filter(|&label| b.position(label).is_some()).collect();
            let is_kept = |label: Label| shared.contains(&label) || labels.contains(&label);
            let (a, b) = (a.summed(is_kept), b.summed(is_kept));
            a.times(&b, &labels)
        }
        (Some(a), None) => a.summed(|label| labels.contains(&label)),
        _ => thalweg_tensor::bail!(Internal, "an einsum has no operands"),
    };
    l.set(0, result.into_output(&labels, &dims))
}
