//! `Einsum`: diagonals, reductions, transpositions and one batched matrix product.
//!
//! An operand is a strided view with a label per dimension. Diagonals and dimensions of size 1 are
//! removed without a copy; labels of only one operand that the output lacks are reduced first; the
//! rest is a batched matrix product.

use half::{bf16, f16};
use num_complex::Complex;
use smallvec::SmallVec;
use thalweg_graph::{OpDef, ShapeContext};
use thalweg_kernel::{AnyKernel, Family, KernelContext, KernelInit, KernelSpec};
use thalweg_tensor::{PartialShape, Result, Shape, Tensor, ensure};

use super::contract::{Term, contract};
use super::einsum_gradient::einsum_grad;
use super::einsum_lowering::lower_einsum;
use super::equation::{Equation, Label, Labels, UNNAMED, count_unnamed};
use crate::map::narrowed;
use crate::math::fold::{self, Sum};
use crate::reduce::{Layout, fold};
use crate::strided::{Dim, StridedCopy, strides};
use crate::work;

pub(crate) static FAMILY: Family = Family {
    ops: &[EINSUM.with_gradient(einsum_grad)],
    kernels: &[
        cpu_kernel!("Einsum", "T" in [f32, f64, f16, bf16, i32, i64, Complex<f32>, Complex<f64>]
            => einsum),
        KernelSpec::lowering("Einsum", lower_einsum),
    ],
};

const EINSUM: OpDef = OpDef::new("Einsum", einsum_shape).with_work(work::einsum);

/// Sizes by label, as far as they are known.
#[derive(Default)]
struct Sizes(SmallVec<[(Label, Option<usize>); 8]>);

impl Sizes {
    fn get(&self, label: Label) -> Option<usize> {
        self.0.iter().find(|(l, _)| *l == label).and_then(|(_, size)| *size)
    }

    /// Records the size of dimension `axis` of `shape`. Ellipsis dimensions broadcast, named ones
    /// do not.
    fn note(
        &mut self,
        label: Label,
        size: Option<usize>,
        axis: usize,
        shape: &dyn std::fmt::Display,
    ) -> Result<()> {
        let Some((_, known)) = self.0.iter_mut().find(|(l, _)| *l == label) else {
            self.0.push((label, size));
            return Ok(());
        };
        let stretches = label >= UNNAMED;
        *known = match (*known, size) {
            (Some(1), other) | (other, Some(1)) if stretches => other,
            (Some(a), Some(b)) => {
                ensure!(
                    a == b,
                    InvalidArgument,
                    "Expected dimension {a} at axis {axis} of the input shaped {shape} but got \
                        dimension {b}"
                );
                Some(a)
            }
            (known, other) => known.or(other),
        };
        Ok(())
    }
}

pub(crate) fn einsum_shape(c: &mut ShapeContext<'_>) -> Result<()> {
    let equation = Equation::parse(c.attrs().string("equation")?, c.num_inputs())?;
    let (mut sizes, mut unnamed, mut is_known) = (Sizes::default(), 0, true);
    for i in 0..c.num_inputs() {
        let Some(dims) = c.input(i).dims() else {
            is_known = false;
            continue;
        };
        let labels = equation.input_labels(i, dims.len())?;
        unnamed = unnamed.max(count_unnamed(&labels));
        for (axis, (&label, &size)) in labels.iter().zip(dims).enumerate() {
            sizes.note(label, size, axis, c.input(i))?;
        }
    }
    if !is_known && equation.output_has_ellipsis() {
        return Ok(());
    }
    let labels = equation.output_labels(unnamed)?;
    c.set_output(0, PartialShape::new(labels.iter().map(|&label| sizes.get(label))));
    Ok(())
}

/// One dimension of an operand.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Axis {
    pub(crate) label: Label,
    pub(crate) len: usize,
    pub(crate) stride: usize,
}

/// A tensor's elements by label. Labels are distinct, and no dimension has size 1.
#[derive(Clone, Debug)]
pub(crate) struct View {
    pub(crate) tensor: Tensor,
    pub(crate) axes: SmallVec<[Axis; 8]>,
}

impl View {
    /// The view of a tensor with these labels; a repeated label takes the diagonal.
    fn new(tensor: Tensor, labels: &[Label]) -> View {
        let mut axes: SmallVec<[Axis; 8]> = SmallVec::new();
        let dims = labels.iter().zip(tensor.shape().iter()).zip(strides(tensor.shape()));
        for ((&label, &len), stride) in dims.filter(|((_, len), _)| **len != 1) {
            match axes.iter_mut().find(|axis| axis.label == label) {
                Some(axis) => axis.stride += stride,
                None => axes.push(Axis { label, len, stride }),
            }
        }
        View { tensor, axes }
    }

    /// The view of a tensor with these labels in row-major order.
    pub(crate) fn compact(tensor: Tensor, labels: &[(Label, usize)]) -> View {
        let lens: SmallVec<[usize; 8]> = labels.iter().map(|&(_, len)| len).collect();
        let axes = labels.iter().zip(strides(&lens));
        let axes = axes.map(|(&(label, len), stride)| Axis { label, len, stride }).collect();
        View { tensor, axes }
    }

    pub(crate) fn axis(&self, label: Label) -> Option<Axis> {
        self.axes.iter().find(|axis| axis.label == label).copied()
    }

    pub(crate) fn has(&self, label: Label) -> bool {
        self.axis(label).is_some()
    }

    /// The labels with their sizes.
    fn sizes(&self) -> SmallVec<[(Label, usize); 8]> {
        self.axes.iter().map(|axis| (axis.label, axis.len)).collect()
    }

    /// Whether the elements are contiguous in the order of the axes.
    fn is_compact(&self) -> bool {
        let mut expected = 1;
        for axis in self.axes.iter().rev() {
            if axis.stride != expected {
                return false;
            }
            expected *= axis.len;
        }
        expected == self.tensor.num_elements()
    }

    /// The elements in the order of these labels, a permutation of the view's.
    pub(crate) fn arranged(
        &self,
        ctx: &KernelContext<'_>,
        order: impl Iterator<Item = Label>,
    ) -> Result<View> {
        let axes: SmallVec<[Axis; 8]> = order.filter_map(|label| self.axis(label)).collect();
        let view = View { tensor: self.tensor.clone(), axes };
        if view.is_compact() {
            return Ok(view);
        }
        let lens: SmallVec<[usize; 8]> = view.axes.iter().map(|axis| axis.len).collect();
        let source: SmallVec<[isize; 8]> = view.axes.iter().map(|a| a.stride as isize).collect();
        let mut out = ctx.allocate(self.tensor.dtype(), Shape::new(&lens)?)?;
        StridedCopy::filling(&lens, &source, 0).run(ctx, &self.tensor, &mut out)?;
        Ok(View::compact(out, &view.sizes()))
    }

    /// The view summed over the labels that are not kept.
    fn summed<T: Term>(
        self,
        ctx: &KernelContext<'_>,
        is_kept: impl Fn(Label) -> bool,
    ) -> Result<View>
    where
        Sum: fold::Fold<T::Wide>,
    {
        if self.axes.iter().all(|axis| is_kept(axis.label)) {
            return Ok(self);
        }
        // In memory order, most operands need no copy.
        let mut axes = self.axes.clone();
        axes.sort_by_key(|axis| std::cmp::Reverse(axis.stride));
        let view = self.arranged(ctx, axes.iter().map(|axis| axis.label))?;
        let lens: SmallVec<[usize; 8]> = view.axes.iter().map(|axis| axis.len).collect();
        let is_folded: SmallVec<[bool; 8]> =
            view.axes.iter().map(|axis| !is_kept(axis.label)).collect();
        let mut kept = view.sizes();
        kept.retain(|(label, _)| is_kept(*label));
        let shape: SmallVec<[usize; 8]> = kept.iter().map(|&(_, len)| len).collect();
        let loops = fold::loops::<T::Wide, Sum>();
        let layout = Layout::new(&lens, &is_folded);
        let data = view.tensor.as_slice::<T>()?;
        let sums = fold::<T>(ctx, data, &layout, &loops, &Shape::new(&shape)?)?;
        Ok(View::compact(narrowed::<T>(ctx, sums)?, &kept))
    }

    /// The elements as a tensor with these labels; for a repeated label, off-diagonal elements are
    /// zero.
    fn into_output(
        self,
        ctx: &KernelContext<'_>,
        labels: &[Label],
        shape: Shape,
    ) -> Result<Tensor> {
        let mut wanted = labels.iter().zip(shape.iter()).filter(|&(_, &len)| len != 1);
        let is_in_order =
            wanted.clone().map(|(&label, _)| label).eq(self.axes.iter().map(|a| a.label));
        if is_in_order && self.is_compact() {
            return self.tensor.reshaped(shape);
        }
        let is_diagonal = wanted.clone().count() > self.axes.len();
        let dtype = self.tensor.dtype();
        let mut out = if is_diagonal {
            ctx.zeros(dtype, shape.clone())?
        } else {
            ctx.allocate(dtype, shape.clone())?
        };
        let mut copy = StridedCopy::default();
        let steps = strides(&shape);
        for axis in &self.axes {
            let places = labels.iter().zip(&steps).filter(|&(&label, _)| label == axis.label);
            let target = places.map(|(_, &step)| step).sum();
            copy.dims.push(Dim { len: axis.len, source: axis.stride as isize, target });
        }
        debug_assert!(wanted.all(|(&label, _)| self.has(label)));
        copy.run(ctx, &self.tensor, &mut out)?;
        Ok(out)
    }
}

fn einsum<T: Term>(init: &KernelInit<'_>) -> Result<AnyKernel>
where
    Sum: fold::Fold<T::Wide>,
{
    let equation = Equation::parse(init.attrs().string("equation")?, init.node.inputs.len())?;
    AnyKernel::new(move |ctx| {
        let output = evaluated::<T>(ctx, &equation)?;
        ctx.set_output(0, output)
    })
}

fn evaluated<T: Term>(ctx: &KernelContext<'_>, equation: &Equation) -> Result<Tensor>
where
    Sum: fold::Fold<T::Wide>,
{
    let (mut sizes, mut unnamed) = (Sizes::default(), 0);
    let mut operands: SmallVec<[Labels; 2]> = SmallVec::new();
    for i in 0..ctx.num_inputs() {
        let shape = ctx.input(i)?.shape();
        let labels = equation.input_labels(i, shape.rank())?;
        for (axis, (&label, &size)) in labels.iter().zip(shape.iter()).enumerate() {
            sizes.note(label, Some(size), axis, shape)?;
        }
        unnamed = unnamed.max(count_unnamed(&labels));
        operands.push(labels);
    }
    let labels = equation.output_labels(unnamed)?;
    let dims: SmallVec<[usize; 8]> =
        labels.iter().map(|&label| sizes.get(label).unwrap_or(1)).collect();
    let shape = Shape::new(&dims)?;
    if sizes.0.iter().any(|(_, size)| *size == Some(0)) {
        return ctx.zeros(T::DTYPE, shape);
    }
    let mut views: SmallVec<[View; 2]> = SmallVec::new();
    for (i, own) in operands.iter().enumerate() {
        views.push(View::new(ctx.input(i)?.clone(), own));
    }
    let kept: SmallVec<[Label; 16]> = match &views[..] {
        [a, b] => {
            let shared = a.axes.iter().map(|axis| axis.label).filter(|&label| b.has(label));
            shared.chain(labels.iter().copied()).collect()
        }
        _ => labels.iter().copied().collect(),
    };
    let mut summed: SmallVec<[View; 2]> = SmallVec::new();
    for view in views {
        summed.push(view.summed::<T>(ctx, |label| kept.contains(&label))?);
    }
    let result = match (summed.pop(), summed.pop()) {
        (Some(b), Some(a)) => contract::<T>(ctx, a, b, &labels)?,
        (Some(a), None) => a,
        _ => thalweg_tensor::bail!(Internal, "an einsum has no operands"),
    };
    result.into_output(ctx, &labels, shape)
}

#[cfg(test)]
mod tests {
    use thalweg_tensor::{Code, DType};

    use super::*;
    use crate::testing::call;

    #[test]
    fn shapes() {
        for (equation, inputs, expected) in [
            ("ab,bc->ac", &["2,3", "3,4"][..], "[2,4]"),
            ("ab,bc->ac", &["2,?", "?,4"], "[2,4]"),
            ("ab,bc->ac", &["unknown", "3,4"], "[?,4]"),
            ("...ab,...bc->...ac", &["5,1,2,3", "7,3,4"], "[5,7,2,4]"),
            ("...ab,...bc->...ac", &["unknown", "7,3,4"], "<unknown>"),
            ("aab->ba", &["2,2,3"], "[3,2]"),
            ("a->aa", &["?"], "[?,?]"),
            ("ab->", &["2,3"], "[]"),
            ("a...->...", &["2,?,4"], "[?,4]"),
        ] {
            let mut call = call("Einsum").attr("equation", equation);
            for shape in inputs {
                call = call.shape(DType::Float, shape);
            }
            let got = call.attr("N", inputs.len() as i64).attr("T", DType::Float).infer();
            assert_eq!(got, expected, "{equation}");
        }
        for (equation, shape) in
            [("ab->a", "3"), ("aa->a", "2,3"), ("a...b->ab", "2,3,4"), ("ab", "2,3"), ("a->b", "2")]
        {
            let call = call("Einsum").attr("equation", equation).shape(DType::Float, shape);
            let got = call.attr("N", 1i64).infer();
            assert!(got.starts_with("INVALID_ARGUMENT"), "{equation}: {got}");
        }
    }

    struct Random(u64);

    impl Random {
        fn below(&mut self, n: usize) -> usize {
            self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (self.0 >> 33) as usize % n
        }
    }

    /// A generated operand: its labels, and the position and sizes of its ellipsis.
    struct Operand {
        named: Vec<usize>,
        at: Option<usize>,
        unnamed: Vec<usize>,
    }

    impl Operand {
        fn text(&self) -> String {
            let mut text: String = self.named.iter().map(|&l| (b'a' + l as u8) as char).collect();
            if let Some(at) = self.at {
                text.insert_str(at, "...");
            }
            text
        }

        fn tensor(&self, random: &mut Random) -> Tensor {
            let mut dims: Vec<usize> = self.named.iter().map(|&l| SIZES[l]).collect();
            if let Some(at) = self.at {
                dims.splice(at..at, self.unnamed.iter().copied());
            }
            let shape = Shape::new(&dims).unwrap();
            let values: Vec<i64> =
                (0..shape.num_elements()).map(|_| random.below(9) as i64 - 4).collect();
            Tensor::from_slice(shape, &values).unwrap()
        }

        /// Offset of the element for these values of named and ellipsis labels.
        fn offset(&self, named: &[usize], unnamed: &[usize]) -> usize {
            let mut dims: Vec<(usize, usize)> =
                self.named.iter().map(|&l| (SIZES[l], named[l])).collect();
            if let Some(at) = self.at {
                let skipped = unnamed.len() - self.unnamed.len();
                let own = self.unnamed.iter().zip(&unnamed[skipped..]);
                dims.splice(at..at, own.map(|(&n, &i)| (n, if n == 1 { 0 } else { i })));
            }
            dims.iter().fold(0, |offset, &(n, i)| offset * n + i)
        }
    }

    const SIZES: [usize; 5] = [2, 3, 1, 4, 2];
    const UNNAMED_SIZES: [usize; 2] = [3, 2];

    fn operand(random: &mut Random, has_ellipsis: bool) -> Operand {
        let named: Vec<usize> = (0..random.below(4)).map(|_| random.below(SIZES.len())).collect();
        let at = has_ellipsis.then(|| random.below(named.len() + 1));
        let skipped = random.below(3);
        let sizes = UNNAMED_SIZES[skipped.min(2)..].iter();
        let unnamed = sizes.map(|&n| if random.below(3) == 0 { 1 } else { n }).collect();
        Operand { named, at, unnamed: if has_ellipsis { unnamed } else { Vec::new() } }
    }

    /// Compares random equations with direct sums.
    #[test]
    fn sums_are_what_they_say() {
        let mut random = Random(7);
        for case in 0..250 {
            let has_ellipsis = random.below(3) == 0;
            let inputs: Vec<Operand> =
                (0..1 + random.below(2)).map(|_| operand(&mut random, has_ellipsis)).collect();
            let all: Vec<usize> = inputs.iter().flat_map(|o| o.named.clone()).collect();
            let count = if all.is_empty() { 0 } else { random.below(4) };
            let named: Vec<usize> = (0..count).map(|_| all[random.below(all.len())]).collect();
            let rank = inputs.iter().map(|o| o.unnamed.len()).max().unwrap();
            let size = |i: usize| {
                let own = inputs
                    .iter()
                    .filter_map(|o| (i + o.unnamed.len()).checked_sub(rank).map(|j| o.unnamed[j]));
                own.max().unwrap()
            };
            let unnamed: Vec<usize> = (0..rank).map(size).collect();
            let at = has_ellipsis.then(|| random.below(named.len() + 1));
            let output = Operand { named, at, unnamed: unnamed.clone() };
            let text: Vec<String> = inputs.iter().map(Operand::text).collect();
            let equation = format!("{}->{}", text.join(","), output.text());
            let tensors: Vec<Tensor> = inputs.iter().map(|o| o.tensor(&mut random)).collect();
            let mut expected = output.tensor(&mut random);
            let sums = expected.as_mut_slice::<i64>().unwrap();
            sums.fill(0);
            let ranges: Vec<usize> = SIZES
                .iter()
                .enumerate()
                .map(|(l, &n)| if all.contains(&l) { n } else { 1 })
                .chain(unnamed.iter().copied())
                .collect();
            for mut index in 0..ranges.iter().product() {
                let mut at = Vec::new();
                for &n in &ranges {
                    at.push(index % n);
                    index /= n;
                }
                let (named, unnamed) = at.split_at(SIZES.len());
                let terms = inputs.iter().zip(&tensors).map(|(operand, tensor)| {
                    tensor.as_slice::<i64>().unwrap()[operand.offset(named, unnamed)]
                });
                sums[output.offset(named, unnamed)] += terms.product::<i64>();
            }
            let mut call = call("Einsum").attr("equation", equation.as_str()).backwards();
            for tensor in tensors {
                call = call.input(tensor);
            }
            let got = call.attr("N", inputs.len() as i64).run().unwrap();
            assert_eq!(got.shape(), expected.shape(), "case {case}: {equation}");
            let (got, expected) =
                (got.as_slice::<i64>().unwrap(), expected.as_slice::<i64>().unwrap());
            assert_eq!(got, expected, "case {case}: {equation}");
        }
    }

    #[test]
    fn floats_of_every_width_agree() {
        let x: Vec<f64> = (0..6).map(|i| f64::from(i) - 2.0).collect();
        let run = |equation: &str, shape: &[usize]| {
            let dims = Shape::new(shape).unwrap();
            let f = |t: Tensor| {
                let call = call("Einsum").attr("equation", equation).attr("N", 2i64);
                call.input(t.clone()).input(t).run().unwrap()
            };
            let wide = f(Tensor::from_slice(dims.clone(), &x).unwrap());
            let halves: Vec<f16> = x.iter().map(|&x| f16::from_f64(x)).collect();
            let narrow = f(Tensor::from_slice(dims.clone(), &halves).unwrap());
            let complex: Vec<Complex<f32>> =
                x.iter().map(|&x| Complex::new(0.0, x as f32)).collect();
            let turned = f(Tensor::from_slice(dims, &complex).unwrap());
            let wide = wide.as_slice::<f64>().unwrap();
            for (i, &w) in wide.iter().enumerate() {
                assert_eq!(narrow.as_slice::<f16>().unwrap()[i].to_f64(), w);
                let square = turned.as_slice::<Complex<f32>>().unwrap()[i];
                assert_eq!(square, Complex::new(-w as f32, 0.0));
            }
        };
        run("ab,cb->ac", &[2, 3]);
        run("ab,ab->ab", &[2, 3]);
        run("ab,ac->bc", &[2, 3]);
        run("ab,cd->a", &[2, 3]);
    }

    #[test]
    fn hostile_inputs() {
        for (equation, shapes) in [
            ("ab,bc->ac", &[&[2, 3][..], &[4, 2]][..]),
            ("ab->a", &[&[2]]),
            ("aa->a", &[&[2, 3]]),
            ("...a->a", &[&[2, 3]]),
            ("...,...->...", &[&[2], &[3]]),
            ("a...->a", &[&[]]),
        ] {
            let mut call = call("Einsum").attr("equation", equation);
            for dims in shapes {
                call = call.input(Tensor::zeros(DType::Float, Shape::new(dims).unwrap()).unwrap());
            }
            let error = call.attr("N", shapes.len() as i64).run().unwrap_err();
            assert_eq!(error.code(), Code::InvalidArgument, "{equation}: {error}");
        }
        let empty =
            |dims: &[usize]| Tensor::zeros(DType::Float, Shape::new(dims).unwrap()).unwrap();
        let call = call("Einsum").attr("equation", "ab,bc->ac").attr("N", 2i64);
        let zeros = call.input(empty(&[2, 0])).input(empty(&[0, 3])).run().unwrap();
        assert_eq!(zeros.as_slice::<f32>().unwrap(), [0.0; 6]);
    }
}
