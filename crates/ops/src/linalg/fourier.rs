//! Discrete Fourier transforms, over one, two, three or any axes.
//!
//! An axis that is not the last is transposed to the end and back, so that every transform runs
//! over contiguous rows. A real axis of even length costs a complex transform of half its length.

use num_complex::Complex;
use parking_lot::Mutex;
use rustfft::{FftDirection, FftNum, FftPlanner};
use smallvec::SmallVec;
use thalweg_graph::{Gradient, OpDef, ShapeContext};
use thalweg_kernel::{AnyKernel, Family, KernelContext, KernelInit, KernelSpec};
use thalweg_tensor::{DType, Element, PartialShape, Result, Shape, Tensor, bail, ensure};

use super::fourier_gradients::{complex_grad, inverse_real_grad, real_grad};
use super::fourier_lowering;
use super::fourier_rows::{Rows, from_half, to_half};
use crate::math::real::Real;
use crate::strided::{Dim, StridedCopy, strides};
use crate::work;

/// Parameters of an op.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Transform {
    /// Number of trailing axes; `None` if the axes are an input.
    pub(crate) rank: Option<usize>,
    pub(crate) is_inverse: bool,
    /// Whether the input (or, of an inverse, the output) is real.
    pub(crate) is_real: bool,
}

macro_rules! transforms {
    ($($constant:ident: $name:literal, $rank:expr, $inverse:literal, $real:literal,
        $gradient:expr;)+) => {
        $(const $constant: OpDef = OpDef {
            gradient: $gradient,
            ..OpDef::new($name, |c| {
                infer(c, Transform { rank: $rank, is_inverse: $inverse, is_real: $real })
            })
            .with_work(|c| work::fourier(c, $rank))
        };)+

        pub(crate) static FAMILY: Family = Family {
            ops: &[$($constant),+],
            kernels: &[$(KernelSpec {
                op: $name,
                host_inputs: host_inputs($real, $rank),
                create: |init| {
                    create(init, Transform { rank: $rank, is_inverse: $inverse, is_real: $real })
                },
                ..KernelSpec::CPU
            },
            KernelSpec::lowering($name, |l| {
                let transform = Transform { rank: $rank, is_inverse: $inverse, is_real: $real };
                fourier_lowering::lower(l, transform)
            })
            .with_host_inputs(host_inputs($real, $rank))),+],
        };
    };
}

const fn host_inputs(is_real: bool, rank: Option<usize>) -> &'static [&'static str] {
    match (is_real, rank) {
        (_, None) => &["fft_length", "axes"],
        (true, _) => &["fft_length"],
        _ => &[],
    }
}

transforms! {
    FFT: "FFT", Some(1), false, false, Gradient::By(|g| complex_grad(g, "IFFT", 1, false));
    IFFT: "IFFT", Some(1), true, false, Gradient::By(|g| complex_grad(g, "FFT", 1, true));
    FFT_2D: "FFT2D", Some(2), false, false, Gradient::By(|g| complex_grad(g, "IFFT2D", 2, false));
    IFFT_2D: "IFFT2D", Some(2), true, false, Gradient::By(|g| complex_grad(g, "FFT2D", 2, true));
    FFT_3D: "FFT3D", Some(3), false, false, Gradient::By(|g| complex_grad(g, "IFFT3D", 3, false));
    IFFT_3D: "IFFT3D", Some(3), true, false, Gradient::By(|g| complex_grad(g, "FFT3D", 3, true));
    FFT_ND: "FFTND", None, false, false, Gradient::Unknown;
    IFFT_ND: "IFFTND", None, true, false, Gradient::Unknown;
    RFFT: "RFFT", Some(1), false, true, Gradient::By(|g| real_grad(g, "IFFT", 1));
    IRFFT: "IRFFT", Some(1), true, true, Gradient::By(|g| inverse_real_grad(g, "RFFT", 1));
    RFFT_2D: "RFFT2D", Some(2), false, true, Gradient::By(|g| real_grad(g, "IFFT2D", 2));
    IRFFT_2D: "IRFFT2D", Some(2), true, true, Gradient::By(|g| inverse_real_grad(g, "RFFT2D", 2));
    RFFT_3D: "RFFT3D", Some(3), false, true, Gradient::Unknown;
    IRFFT_3D: "IRFFT3D", Some(3), true, true, Gradient::Unknown;
    RFFT_ND: "RFFTND", None, false, true, Gradient::Unknown;
    IRFFT_ND: "IRFFTND", None, true, true, Gradient::Unknown;
    BATCH_FFT: "BatchFFT", Some(1), false, false, Gradient::Unknown;
    BATCH_IFFT: "BatchIFFT", Some(1), true, false, Gradient::Unknown;
    BATCH_FFT_2D: "BatchFFT2D", Some(2), false, false, Gradient::Unknown;
    BATCH_IFFT_2D: "BatchIFFT2D", Some(2), true, false, Gradient::Unknown;
    BATCH_FFT_3D: "BatchFFT3D", Some(3), false, false, Gradient::Unknown;
    BATCH_IFFT_3D: "BatchIFFT3D", Some(3), true, false, Gradient::Unknown;
}

/// Number of non-redundant frequencies of a real signal of this length.
pub(crate) fn half(len: usize) -> usize {
    if len == 0 { 0 } else { len / 2 + 1 }
}

fn infer(c: &mut ShapeContext<'_>, transform: Transform) -> Result<()> {
    let input = c.with_rank_at_least(0, "input", transform.rank.unwrap_or(0))?;
    let Some(dims) = input.dims() else { return Ok(()) };
    let mut out: SmallVec<[Option<usize>; 4]> = SmallVec::from_slice(dims);
    let axes: SmallVec<[usize; 4]> = match transform.rank {
        Some(_) if !transform.is_real => {
            c.set_output(0, input.clone());
            return Ok(());
        }
        Some(rank) => (dims.len() - rank..dims.len()).collect(),
        None => {
            c.with_rank(2, "axes", 1)?;
            let Some(known) = c.partial_value(2).and_then(|v| v.known()) else {
                c.set_output(0, PartialShape::of_rank(dims.len()));
                return Ok(());
            };
            checked_axes(&known, dims.len())?
        }
    };
    let lengths = c.with_rank(1, "fft_length", 1)?;
    ensure!(
        lengths.dim(0).is_none_or(|n| n == axes.len()),
        InvalidArgument,
        "fft_length must have shape [{}], got {lengths}",
        axes.len()
    );
    let known = c.partial_value(1);
    for (i, &axis) in axes.iter().enumerate() {
        let length = known.as_ref().and_then(|v| v.elements.get(i).copied().flatten());
        let length = length.and_then(|n| usize::try_from(n).ok());
        let is_half = transform.is_real && !transform.is_inverse && i + 1 == axes.len();
        out[axis] = if is_half { length.map(half) } else { length };
    }
    c.set_output(0, PartialShape::new(out));
    Ok(())
}

/// The axes of a tensor of this rank as non-negative distinct numbers.
pub(crate) fn checked_axes(axes: &[i64], rank: usize) -> Result<SmallVec<[usize; 4]>> {
    let mut found: SmallVec<[usize; 4]> = SmallVec::new();
    for &axis in axes {
        let at = if axis < 0 { axis.wrapping_add(rank as i64) } else { axis };
        let at = usize::try_from(at).ok().filter(|&at| at < rank);
        let Some(at) = at.filter(|at| !found.contains(at)) else {
            bail!(InvalidArgument, "axes {axes:?} must be different axes of {rank}");
        };
        found.push(at);
    }
    Ok(found)
}

fn create(init: &KernelInit<'_>, transform: Transform) -> Result<AnyKernel> {
    let complex = init.attrs().dtype("Tcomplex").unwrap_or(DType::Complex64);
    if transform.is_real {
        let real = init.attrs().dtype("Treal")?;
        ensure!(
            (real == DType::Float) == (complex == DType::Complex64),
            InvalidArgument,
            "Wrong types for a real FFT: {real} and {complex}"
        );
    }
    match complex {
        DType::Complex64 => kernel::<f32>(transform),
        _ => kernel::<f64>(transform),
    }
}

/// Real types of transforms.
pub(crate) trait Sample: Real + FftNum {}

impl<T: Real + FftNum> Sample for T {}

fn kernel<F: Sample>(transform: Transform) -> Result<AnyKernel>
where
    Complex<F>: Element,
{
    let plans = Mutex::new(Plans::<F>::new());
    AnyKernel::new(move |ctx| {
        let layout = Layout::new(ctx, transform)?;
        let output = layout.run::<F>(ctx, &plans)?;
        ctx.set_output(0, output)
    })
}

/// Cached FFT plans.
struct Plans<F: Sample> {
    planner: FftPlanner<F>,
    lengths: SmallVec<[usize; 8]>,
}

/// Maximum number of cached lengths; one more clears the cache.
const LENGTHS_MAX: usize = 16;

impl<F: Sample> Plans<F> {
    fn new() -> Self {
        Plans { planner: FftPlanner::new(), lengths: SmallVec::new() }
    }

    fn get(&mut self, len: usize, is_inverse: bool) -> Rows<F> {
        if !self.lengths.contains(&len) {
            if self.lengths.len() == LENGTHS_MAX {
                *self = Plans::new();
            }
            self.lengths.push(len);
        }
        let direction = if is_inverse { FftDirection::Inverse } else { FftDirection::Forward };
        Rows::new(self.planner.plan_fft(len, direction))
    }
}

/// The transformed axes and their lengths.
struct Layout {
    transform: Transform,
    axes: SmallVec<[usize; 4]>,
    lengths: SmallVec<[usize; 4]>,
    /// Sizes of the transformed tensor: the input's, cropped or padded.
    dims: SmallVec<[usize; 8]>,
}

impl Layout {
    fn new(ctx: &KernelContext<'_>, transform: Transform) -> Result<Layout> {
        let shape = ctx.input(0)?.shape();
        let rank = shape.rank();
        let needed = transform.rank.unwrap_or(0);
        ensure!(
            rank >= needed,
            InvalidArgument,
            "Input must have rank of at least {needed} but got: {shape}"
        );
        let axes = match transform.rank {
            Some(count) => (rank - count..rank).collect(),
            None => {
                let axes = ctx.input(2)?;
                ensure!(
                    axes.rank() == 1,
                    InvalidArgument,
                    "axes must be a vector, got {}",
                    axes.shape()
                );
                checked_axes(&ctx.ints(2, "axes")?, rank)?
            }
        };
        let mut layout = Layout {
            transform,
            axes,
            lengths: SmallVec::new(),
            dims: SmallVec::from_slice(shape.dims()),
        };
        if transform.is_real || transform.rank.is_none() {
            layout.take_lengths(ctx)?;
        } else {
            layout.lengths = layout.axes.iter().map(|&axis| shape[axis]).collect();
        }
        Ok(layout)
    }

    /// Sets lengths from input 1 (`fft_length`). For ops with a fixed number of axes, no length may
    /// exceed the input's.
    fn take_lengths(&mut self, ctx: &KernelContext<'_>) -> Result<()> {
        let tensor = ctx.input(1)?;
        ensure!(
            tensor.rank() == 1 && tensor.num_elements() == self.axes.len(),
            InvalidArgument,
            "fft_length must have shape [{}], got {}",
            self.axes.len(),
            tensor.shape()
        );
        let Transform { rank, is_inverse, is_real } = self.transform;
        for (i, length) in ctx.ints(1, "fft_length")?.into_iter().enumerate() {
            let Ok(length) = usize::try_from(length) else {
                bail!(InvalidArgument, "fft_length[{i}] must >= 0, but got: {length}");
            };
            let is_last = i + 1 == self.axes.len();
            let needed = if is_real && is_inverse && is_last { half(length) } else { length };
            let axis = self.axes[i];
            let size = self.dims[axis];
            ensure!(
                rank.is_none() || size == 0 || size >= needed,
                InvalidArgument,
                "Input dimension {axis} must have length of at least {needed} but got: {size}"
            );
            self.dims[axis] = needed;
            self.lengths.push(length);
        }
        Ok(())
    }

    /// The inverse is divided by the product of the lengths.
    fn run<F: Sample>(&self, ctx: &mut KernelContext<'_>, plans: &Mutex<Plans<F>>) -> Result<Tensor>
    where
        Complex<F>: Element,
    {
        let Transform { is_inverse, is_real, .. } = self.transform;
        let input = fitted(ctx, &self.dims)?;
        let plan = |len: usize| plans.lock().get(len, is_inverse);
        let scale = if is_inverse {
            F::of(self.lengths.iter().fold(1.0, |scale, &len| scale / len.max(1) as f64))
        } else {
            F::of(1.0)
        };
        let Some((&last, others)) = self.axes.split_last() else {
            return self.without_axes::<F>(ctx, input);
        };
        let length = self.lengths[self.lengths.len() - 1];
        if !is_real {
            let mut work = input;
            for (&axis, &len) in self.axes.iter().zip(&self.lengths).rev() {
                work = along(ctx, work, axis, |ctx, rows| plan_rows(ctx, rows, &plan, len))?;
            }
            return scaled::<F>(ctx, work, scale);
        }
        if is_inverse {
            let mut work = input;
            for (&axis, &len) in others.iter().zip(&self.lengths) {
                work = along(ctx, work, axis, |ctx, rows| plan_rows(ctx, rows, &plan, len))?;
            }
            return along(ctx, work, last, |ctx, rows| {
                from_half::<F>(ctx, &rows, length, scale, &plan)
            });
        }
        let mut work =
            along(ctx, input, last, |ctx, rows| to_half::<F>(ctx, &rows, length, &plan))?;
        for (&axis, &len) in others.iter().zip(&self.lengths).rev() {
            work = along(ctx, work, axis, |ctx, rows| plan_rows(ctx, rows, &plan, len))?;
        }
        Ok(work)
    }

    /// Without axes, only the dtype changes.
    fn without_axes<F: Sample>(&self, ctx: &KernelContext<'_>, input: Tensor) -> Result<Tensor>
    where
        Complex<F>: Element,
    {
        if !self.transform.is_real {
            return Ok(input);
        }
        let shape = input.shape().clone();
        let mut out = ctx.allocate_output(0, shape)?;
        if self.transform.is_inverse {
            let from = input.as_slice::<Complex<F>>()?;
            out.as_mut_slice::<F>()?.iter_mut().zip(from).for_each(|(to, x)| *to = x.re);
        } else {
            let from = input.as_slice::<F>()?;
            let to = out.as_mut_slice::<Complex<F>>()?;
            to.iter_mut().zip(from).for_each(|(to, &x)| *to = Complex::new(x, F::of(0.0)));
        }
        Ok(out)
    }
}

/// Input 0 cropped or zero-padded to these sizes.
fn fitted(ctx: &mut KernelContext<'_>, dims: &[usize]) -> Result<Tensor> {
    let input = ctx.take_input(0)?;
    if input.shape().dims() == dims {
        return Ok(input);
    }
    let mut out = ctx.zeros(input.dtype(), Shape::new(dims)?)?;
    let (from, to) = (strides(input.shape()), strides(dims));
    let mut copy = StridedCopy::default();
    for (i, &size) in dims.iter().enumerate() {
        let len = size.min(input.shape()[i]);
        copy.dims.push(Dim { len, source: from[i] as isize, target: to[i] });
    }
    copy.run(ctx, &input, &mut out)?;
    Ok(out)
}

/// Applies `work` with `axis` transposed to the end, and transposes back.
fn along(
    ctx: &KernelContext<'_>,
    tensor: Tensor,
    axis: usize,
    work: impl FnOnce(&KernelContext<'_>, Tensor) -> Result<Tensor>,
) -> Result<Tensor> {
    let rank = tensor.rank();
    if axis + 1 == rank {
        return work(ctx, tensor);
    }
    let order: SmallVec<[usize; 8]> = (0..rank).filter(|&a| a != axis).chain([axis]).collect();
    let moved = work(ctx, transposed(ctx, &tensor, &order)?)?;
    let mut back: SmallVec<[usize; 8]> = (0..rank - 1).collect();
    back.insert(axis, rank - 1);
    transposed(ctx, &moved, &back)
}

fn transposed(ctx: &KernelContext<'_>, tensor: &Tensor, order: &[usize]) -> Result<Tensor> {
    let from = strides(tensor.shape());
    let dims: SmallVec<[usize; 8]> = order.iter().map(|&a| tensor.shape()[a]).collect();
    let source: SmallVec<[isize; 8]> = order.iter().map(|&a| from[a] as isize).collect();
    let mut out = ctx.allocate(tensor.dtype(), Shape::new(&dims)?)?;
    StridedCopy::filling(&dims, &source, 0).run(ctx, tensor, &mut out)?;
    Ok(out)
}

/// Transforms the rows of a complex tensor.
fn plan_rows<F: Sample>(
    ctx: &KernelContext<'_>,
    mut rows: Tensor,
    plan: &dyn Fn(usize) -> Rows<F>,
    len: usize,
) -> Result<Tensor>
where
    Complex<F>: Element,
{
    if rows.num_elements() == 0 {
        return Ok(rows);
    }
    rows.make_unique(Some(ctx.budget()))?;
    plan(len).run(ctx, rows.as_mut_slice::<Complex<F>>()?, len, &|_, _, _| ())?;
    Ok(rows)
}

fn scaled<F: Sample>(ctx: &KernelContext<'_>, mut tensor: Tensor, scale: F) -> Result<Tensor>
where
    Complex<F>: Element,
{
    if scale != F::of(1.0) {
        tensor.make_unique(Some(ctx.budget()))?;
        let data = tensor.as_mut_slice::<Complex<F>>()?;
        crate::split::for_each_rows(ctx, data, 1, 1.0, |_, part| {
            part.iter_mut().for_each(|x| *x = Complex::new(x.re * scale, x.im * scale));
        })?;
    }
    Ok(tensor)
}

#[cfg(test)]
mod tests {
    use thalweg_tensor::Code;

    use super::*;
    use crate::testing::{call, code};

    type C = Complex<f64>;

    fn ints(values: &[i32]) -> Tensor {
        Tensor::vector(values).unwrap()
    }

    fn signal(dims: &[usize]) -> Tensor {
        let shape = Shape::new(dims).unwrap();
        let wave = |i: usize| C::new((i as f64 * 1.7).sin(), (i as f64 * 0.3).cos());
        let values: Vec<C> = (0..shape.num_elements()).map(wave).collect();
        Tensor::from_slice(shape, &values).unwrap()
    }

    /// The transform along the axes, computed by its definition.
    fn slow(x: &Tensor, axes: &[usize], is_inverse: bool) -> Vec<C> {
        let dims = x.shape().dims();
        let mut data = x.as_slice::<C>().unwrap().to_vec();
        for &axis in axes {
            let (n, step) = (dims[axis], dims[axis + 1..].iter().product::<usize>());
            let sign = if is_inverse { 1.0 } else { -1.0 };
            let old = data.clone();
            for (at, out) in data.iter_mut().enumerate() {
                let k = at / step % n;
                let base = at - k * step;
                let term = |j: usize| {
                    let angle = sign * std::f64::consts::TAU * (j * k % n) as f64 / n as f64;
                    old[base + j * step] * C::new(angle.cos(), angle.sin())
                };
                *out = (0..n).map(term).sum::<C>() / if is_inverse { n as f64 } else { 1.0 };
            }
        }
        data
    }

    fn assert_near(got: &[C], wanted: &[C]) {
        assert_eq!(got.len(), wanted.len());
        for (a, b) in got.iter().zip(wanted) {
            assert!((a - b).norm() < 1e-9, "{got:?} is not {wanted:?}");
        }
    }

    #[test]
    fn shapes() {
        let sized = |op, dtype, shape, lengths: &[i32]| {
            let node = call(op).shape(dtype, shape).constant(ints(lengths));
            node.attr("Treal", DType::Float).attr("Tcomplex", DType::Complex64).infer()
        };
        assert_eq!(call("FFT2D").shape(DType::Complex64, "?,3,4").infer(), "[?,3,4]");
        assert_eq!(sized("RFFT", DType::Float, "5,8", &[6]), "[5,4]");
        assert_eq!(sized("RFFT2D", DType::Float, "5,8,8", &[7, 6]), "[5,7,4]");
        assert_eq!(sized("IRFFT", DType::Complex64, "5,8", &[6]), "[5,6]");
        assert!(sized("RFFT", DType::Float, "", &[6]).starts_with("INVALID_ARGUMENT"));
        assert!(sized("RFFT", DType::Float, "4", &[6, 6]).starts_with("INVALID_ARGUMENT"));
    }

    #[test]
    fn complex_transforms_are_what_they_say() {
        for (op, rank, dims) in [
            ("FFT", 1, &[3, 8][..]),
            ("FFT", 1, &[2, 7]),
            ("IFFT", 1, &[12]),
            ("FFT2D", 2, &[2, 3, 5]),
            ("IFFT2D", 2, &[4, 6]),
            ("FFT3D", 3, &[2, 3, 4, 5]),
            ("IFFT3D", 3, &[3, 1, 2]),
        ] {
            let x = signal(dims);
            let axes: Vec<usize> = (dims.len() - rank..dims.len()).collect();
            let node = call(op).attr("Tcomplex", DType::Complex128).input(x.clone()).backwards();
            let got = node.run().unwrap();
            assert_near(got.as_slice().unwrap(), &slow(&x, &axes, op.starts_with('I')));
        }
        let x = signal(&[3, 4, 5]);
        let node = call("FFTND").attr("Tcomplex", DType::Complex128).input(x.clone());
        let got = node.input(ints(&[5, 3])).input(ints(&[-1, 0])).run().unwrap();
        assert_near(got.as_slice().unwrap(), &slow(&x, &[2, 0], false));
    }

    #[test]
    fn real_transforms_are_halves() {
        for (op, dims, lengths) in [
            ("RFFT", &[2, 8][..], &[8][..]),
            ("RFFT", &[2, 8], &[6]),
            ("RFFT", &[9], &[7]),
            ("RFFT", &[3], &[1]),
            ("RFFT2D", &[2, 4, 6], &[3, 6]),
            ("RFFT3D", &[3, 4, 10], &[3, 4, 10]),
        ] {
            let shape = Shape::new(dims).unwrap();
            let whole = signal(dims);
            let real: Vec<f64> = whole.as_slice::<C>().unwrap().iter().map(|x| x.re).collect();
            let real = Tensor::from_slice(shape, &real).unwrap();
            let both =
                |op| call(op).attr("Treal", DType::Double).attr("Tcomplex", DType::Complex128);
            let got = both(op).input(real.clone()).input(ints(lengths)).run().unwrap();
            // The same input, cropped, through the complex transform over all axes.
            let mut cut = dims.to_vec();
            let first = dims.len() - lengths.len();
            lengths.iter().enumerate().for_each(|(i, &n)| cut[first + i] = n as usize);
            let shape = Shape::new(&cut).unwrap();
            let at = |mut index: usize| {
                let mut offset = 0;
                let mut step = 1;
                for (&size, &own) in cut.iter().zip(dims).rev() {
                    offset += index % size * step;
                    index /= size;
                    step *= own;
                }
                offset
            };
            let data = real.as_slice::<f64>().unwrap();
            let values: Vec<C> =
                (0..shape.num_elements()).map(|i| C::new(data[at(i)], 0.0)).collect();
            let axes: Vec<usize> = (first..dims.len()).collect();
            let all = slow(&Tensor::from_slice(shape, &values).unwrap(), &axes, false);
            let (last, half) = (cut[cut.len() - 1], cut[cut.len() - 1] / 2 + 1);
            let wanted: Vec<C> = all.chunks(last).flat_map(|row| row[..half].to_vec()).collect();
            assert_near(got.as_slice().unwrap(), &wanted);
            let inverse = ["IRFFT", "IRFFT2D", "IRFFT3D"][lengths.len() - 1];
            let back = both(inverse).input(got).input(ints(lengths)).run().unwrap();
            let back: Vec<C> =
                back.as_slice::<f64>().unwrap().iter().map(|&x| C::new(x, 0.0)).collect();
            assert_near(&back, &values);
        }
    }

    #[test]
    fn hostile_inputs() {
        let run = |op, t: Tensor, lengths: Tensor| {
            call(op).input(t).input(lengths).run().map_err(|e| e.code())
        };
        let real = |dims: &[usize]| Tensor::zeros(DType::Float, Shape::new(dims).unwrap()).unwrap();
        for (dims, lengths) in [
            (&[][..], ints(&[4])),
            (&[4], ints(&[6])),
            (&[4], ints(&[-1])),
            (&[4], ints(&[2, 2])),
            (&[4], ints(&[])),
            (&[4], Tensor::scalar(2i32)),
        ] {
            assert_eq!(run("RFFT", real(dims), lengths).unwrap_err(), Code::InvalidArgument);
        }
        assert_eq!(run("RFFT", real(&[3, 4]), ints(&[0])).unwrap().shape().dims(), [3, 0]);
        assert_eq!(run("RFFT", real(&[3, 0]), ints(&[4])).unwrap().shape().dims(), [3, 3]);
        assert_eq!(run("RFFT", real(&[0, 4]), ints(&[4])).unwrap().shape().dims(), [0, 3]);
        let complex = Tensor::zeros(DType::Complex64, Shape::new(&[3]).unwrap()).unwrap();
        assert_eq!(run("IRFFT", complex.clone(), ints(&[6])).unwrap_err(), Code::InvalidArgument);
        assert!(run("IRFFT", complex.clone(), ints(&[5])).is_ok());
        assert_eq!(run("IRFFT", complex.clone(), ints(&[0])).unwrap().num_elements(), 0);
        let scalar = Tensor::zeros(DType::Complex64, Shape::scalar()).unwrap();
        assert_eq!(code(call("FFT").input(scalar.clone()).run()), Some(Code::InvalidArgument));
        for axes in [&[0, 0][..], &[1, 5], &[-3, 0]] {
            let node = call("FFTND").input(complex.clone()).input(ints(&[2, 2])).input(ints(axes));
            assert_eq!(node.run().unwrap_err().code(), Code::InvalidArgument);
        }
        let none = call("FFTND").input(scalar).input(ints(&[])).input(ints(&[])).run().unwrap();
        assert_eq!(none.rank(), 0);
    }
}
