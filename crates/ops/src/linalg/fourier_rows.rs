//! FFTs of rows; real rows by complex FFTs of half the length.

use std::sync::Arc;

use num_complex::Complex;
use parking_lot::Mutex;
use rustfft::Fft;
use thalweg_kernel::KernelContext;
use thalweg_tensor::{Element, Error, Result, Shape, Tensor};

use super::fourier::Sample;
use crate::split::for_each_rows;

/// FFT of rows.
pub(crate) struct Rows<F: Sample> {
    plan: Arc<dyn Fft<F>>,
}

/// Called with the index of a row before and after its transform; the flag is true after.
type Visit<'a, F> = &'a (dyn Fn(usize, &mut [Complex<F>], bool) + Sync);

impl<F: Sample> Rows<F> {
    pub(crate) fn new(plan: Arc<dyn Fft<F>>) -> Self {
        Rows { plan }
    }
}

impl<F: Sample> Rows<F>
where
    Complex<F>: Element,
{
    /// Transforms the first elements, as many as the plan's length, of each row of `row_len`
    /// elements of `data`. `visit` is called for each row before and after.
    pub(crate) fn run(
        &self,
        ctx: &KernelContext<'_>,
        data: &mut [Complex<F>],
        row_len: usize,
        visit: Visit<'_, F>,
    ) -> Result<()> {
        let len = self.plan.len();
        let needed = self.plan.get_inplace_scratch_len();
        let failure: Mutex<Option<Error>> = Mutex::new(None);
        let nanoseconds = len as f64 * (1.0 + 0.5 * (len as f64).max(2.0).log2());
        for_each_rows(ctx, data, row_len, nanoseconds, |first, rows| {
            let memory =
                Shape::new(&[needed]).and_then(|shape| ctx.allocate(<Complex<F>>::DTYPE, shape));
            let mut memory = match memory {
                Ok(memory) => memory,
                Err(error) => return *failure.lock() = Some(error),
            };
            let Ok(scratch) = memory.as_mut_slice::<Complex<F>>() else { return };
            for (i, row) in rows.chunks_exact_mut(row_len).enumerate() {
                visit(first + i, row, false);
                self.plan.process_with_scratch(&mut row[..len], scratch);
                visit(first + i, row, true);
            }
        })?;
        failure.into_inner().map_or(Ok(()), Err)
    }
}

fn with_last(shape: &Shape, last: usize) -> Result<Shape> {
    let mut dims: smallvec::SmallVec<[usize; 8]> = smallvec::SmallVec::from_slice(shape.dims());
    if let Some(size) = dims.last_mut() {
        *size = last;
    }
    Shape::new(&dims)
}

/// Twiddle factors `exp(-2 pi i k / len)` for `k` below `count`.
fn turns<F: Sample>(ctx: &KernelContext<'_>, len: usize, count: usize) -> Result<Tensor>
where
    Complex<F>: Element,
{
    let mut table = ctx.allocate(<Complex<F>>::DTYPE, Shape::new(&[count])?)?;
    for (k, turn) in table.as_mut_slice::<Complex<F>>()?.iter_mut().enumerate() {
        let (sin, cos) = (std::f64::consts::TAU * k as f64 / len as f64).sin_cos();
        *turn = Complex::new(F::of(cos), F::of(-sin));
    }
    Ok(table)
}

/// The non-redundant half of the transform of each row of `len` real numbers.
pub(crate) fn to_half<F: Sample>(
    ctx: &KernelContext<'_>,
    rows: &Tensor,
    len: usize,
    plan: &dyn Fn(usize) -> Rows<F>,
) -> Result<Tensor>
where
    Complex<F>: Element,
{
    let half = if len == 0 { 0 } else { len / 2 + 1 };
    let mut out = ctx.allocate(<Complex<F>>::DTYPE, with_last(rows.shape(), half)?)?;
    if out.num_elements() == 0 {
        return Ok(out);
    }
    let data = rows.as_slice::<F>()?;
    let row = |i: usize| &data[i * len..(i + 1) * len];
    let zero = F::of(0.0);
    if len % 2 == 1 {
        let mut whole = ctx.allocate(<Complex<F>>::DTYPE, rows.shape().clone())?;
        let wide = whole.as_mut_slice::<Complex<F>>()?;
        plan(len).run(ctx, wide, len, &|i, to, is_after| {
            if !is_after {
                to.iter_mut().zip(row(i)).for_each(|(to, &x)| *to = Complex::new(x, zero));
            }
        })?;
        let halves = out.as_mut_slice::<Complex<F>>()?.chunks_exact_mut(half);
        halves.zip(wide.chunks_exact(len)).for_each(|(to, from)| to.copy_from_slice(&from[..half]));
        return Ok(out);
    }
    let middle = len / 2;
    let table = turns::<F>(ctx, len, middle / 2 + 1)?;
    let turns = table.as_slice::<Complex<F>>()?;
    plan(middle).run(ctx, out.as_mut_slice()?, half, &|i, to, is_after| {
        if is_after {
            return separate(to, turns);
        }
        for (to, pair) in to.iter_mut().zip(row(i).chunks_exact(2)) {
            *to = Complex::new(pair[0], pair[1]);
        }
    })?;
    Ok(out)
}

/// The transform of `x`, from that of `x[2k] + i x[2k + 1]` in all but the last element.
fn separate<F: Sample>(z: &mut [Complex<F>], turns: &[Complex<F>]) {
    let middle = z.len() - 1;
    let (zero, half) = (F::of(0.0), F::of(0.5));
    let first = z[0];
    z[0] = Complex::new(first.re + first.im, zero);
    z[middle] = Complex::new(first.re - first.im, zero);
    for k in 1..=middle / 2 {
        let (a, b) = (z[k], z[middle - k].conj());
        let even = (a + b) * half;
        let odd = (a - b) * half;
        // -i times the twiddle factor.
        let turned = odd * Complex::new(turns[k].im, -turns[k].re);
        z[k] = even + turned;
        z[middle - k] = (even - turned).conj();
    }
}

/// Real rows of `len` numbers from the non-redundant halves of their transforms, times `scale`.
pub(crate) fn from_half<F: Sample>(
    ctx: &KernelContext<'_>,
    rows: &Tensor,
    len: usize,
    scale: F,
    plan: &dyn Fn(usize) -> Rows<F>,
) -> Result<Tensor>
where
    Complex<F>: Element,
{
    let mut out = ctx.allocate(F::DTYPE, with_last(rows.shape(), len)?)?;
    if out.num_elements() == 0 {
        return Ok(out);
    }
    let half = len / 2 + 1;
    let data = rows.as_slice::<Complex<F>>()?;
    let row = |i: usize| &data[i * half..(i + 1) * half];
    let is_odd = len % 2 == 1;
    let inner = if is_odd { len } else { len / 2 };
    let mut work = ctx.allocate(<Complex<F>>::DTYPE, with_last(rows.shape(), inner)?)?;
    let table = turns::<F>(ctx, len, inner)?;
    let turns = table.as_slice::<Complex<F>>()?;
    plan(inner).run(ctx, work.as_mut_slice()?, inner, &|i, to, is_after| match is_after {
        true => {}
        false if is_odd => mirror(row(i), to),
        false => combine(row(i), to, turns),
    })?;
    let work = work.as_slice::<Complex<F>>()?;
    for_each_rows(ctx, out.as_mut_slice::<F>()?, len, len as f64, |first, out| {
        for (i, out) in (first..).zip(out.chunks_exact_mut(len)) {
            let from = &work[i * inner..(i + 1) * inner];
            if is_odd {
                out.iter_mut().zip(from).for_each(|(to, x)| *to = x.re * scale);
            } else {
                for (to, x) in out.chunks_exact_mut(2).zip(from) {
                    (to[0], to[1]) = (x.re * scale, x.im * scale);
                }
            }
        }
    })?;
    Ok(out)
}

/// The whole transform of a real signal of odd length, by conjugate symmetry.
fn mirror<F: Sample>(half: &[Complex<F>], whole: &mut [Complex<F>]) {
    let len = whole.len();
    whole[0] = Complex::new(half[0].re, F::of(0.0));
    for k in 1..half.len() {
        whole[k] = half[k];
        whole[len - k] = half[k].conj();
    }
}

/// The transform of `x[2k] + i x[2k + 1]` from the non-redundant half of that of `x`.
fn combine<F: Sample>(half: &[Complex<F>], z: &mut [Complex<F>], turns: &[Complex<F>]) {
    let middle = z.len();
    let real = |x: Complex<F>| Complex::new(x.re, F::of(0.0));
    for (k, z) in z.iter_mut().enumerate() {
        let (a, b) = if k == 0 {
            (real(half[0]), real(half[middle]))
        } else {
            (half[k], half[middle - k].conj())
        };
        // i times the conjugate twiddle factor.
        let turn = Complex::new(turns[k].im, turns[k].re);
        *z = a + b + (a - b) * turn;
    }
}
