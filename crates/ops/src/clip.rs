//! `ClipByValue`: elements clipped to limits that are scalars or have the tensor's shape.

use thalweg_graph::{GradientContext, OpDef, Work, shape};
use thalweg_hlo::{Comparison, Value};
use thalweg_kernel::{AnyKernel, Family, KernelInit, KernelSpec, Lowering};
use thalweg_tensor::{Complex32, Complex64, Element, Result, Tensor, bf16, ensure, f16};

use crate::gradients::{Arithmetic, set_repeated};
use crate::math::simd::{self, Level, Loop};
use crate::split::for_each_rows;

/// The adjoint goes to the tensor where it is between the limits, else to the limit that clips it.
fn clip_by_value_grad(g: &mut GradientContext<'_>) -> Result<()> {
    let (grad, t, low, high) = (g.grad(0)?, g.input(0), g.input(1), g.input(2));
    let (is_below, is_above) = (g.add("Less", &[t, low])?, g.add("Greater", &[t, high])?);
    let is_outside = g.add("LogicalOr", &[is_below, is_above])?;
    let zero = g.number_like(grad, 0.0)?;
    let of_t = g.select(is_outside, zero, grad)?;
    let (of_low, of_high) = (g.select(is_below, grad, zero)?, g.select(is_above, grad, zero)?);
    g.set(0, of_t)?;
    set_repeated(g, 1, of_low)?;
    set_repeated(g, 2, of_high)
}

pub(crate) static FAMILY: Family = Family {
    ops: &[OpDef::new("ClipByValue", shape::unchanged)
        .with_work(Work::per_output::<2>)
        .with_gradient(clip_by_value_grad)],
    kernels: &[
        cpu_kernel!("ClipByValue", "T" in [
        f16, bf16, f32, f64, i8, i16, i32, i64, u8, u16, Complex32, Complex64,
    ] => clip_by_value),
        KernelSpec::lowering("ClipByValue", lower_clip_by_value),
    ],
};

fn lower_clip_by_value(l: &mut Lowering<'_>) -> Result<()> {
    let (t, low, high) = (l.input(0)?, l.input(1)?, l.input(2)?);
    for limit in [&low, &high] {
        ensure!(
            limit.rank() == 0 || limit.dims() == t.dims(),
            InvalidArgument,
            "clip_value_min and clip_value_max must be scalars or have the shape {:?} of the input, \
             got {:?}",
            t.dims(),
            limit.dims()
        );
    }
    l.set(0, clipped(&t, &low, &high))
}

/// `max(min(x, high), low)`; NaN limits have no effect.
fn clipped(x: &Value, low: &Value, high: &Value) -> Value {
    if x.dtype().is_complex() {
        let re = clipped(&x.real(), &low.real(), &high.real());
        return re.complex(&clipped(&x.imaginary(), &low.imaginary(), &high.imaginary()));
    }
    let capped = high.compare(Comparison::Less, x).select(high, x);
    capped.compare(Comparison::Less, low).select(low, &capped)
}

/// A number that can be clipped.
trait Clip: Element {
    /// `max(min(self, high), low)`. A NaN limit has no effect.
    fn clip(self, low: Self, high: Self) -> Self;
}

macro_rules! ordered {
    ($($t:ty),+) => { $(
        impl Clip for $t {
            #[inline(always)]
            fn clip(self, low: Self, high: Self) -> Self {
                let capped = if high < self { high } else { self };
                if capped < low { low } else { capped }
            }
        }
    )+ };
}

ordered!(f16, bf16, f32, f64, i8, i16, i32, i64, u8, u16);

macro_rules! complex {
    ($($t:ty),+) => { $(
        impl Clip for $t {
            #[inline(always)]
            fn clip(self, low: Self, high: Self) -> Self {
                <$t>::new(self.re.clip(low.re, high.re), self.im.clip(low.im, high.im))
            }
        }
    )+ };
}

complex!(Complex32, Complex64);

/// A limit: one for all elements, or one for each.
enum Limit<'a, T> {
    One(T),
    Each(&'a [T]),
}

impl<'a, T: Element> Limit<'a, T> {
    fn new(limit: &'a Tensor, t: &Tensor) -> Result<Self> {
        if limit.rank() == 0 {
            return Ok(Limit::One(limit.scalar_value()?));
        }
        ensure!(
            limit.shape() == t.shape(),
            InvalidArgument,
            "clip_value_min and clip_value_max must be scalars or have the shape {} of the input, \
             got {}",
            t.shape(),
            limit.shape()
        );
        Ok(Limit::Each(limit.as_slice()?))
    }

    #[inline(always)]
    fn at(&self, i: usize) -> T {
        match self {
            Limit::One(limit) => *limit,
            Limit::Each(limits) => limits[i],
        }
    }
}

fn clip_by_value<T: Clip>(_: &KernelInit<'_>) -> Result<AnyKernel> {
    AnyKernel::new(|ctx| {
        let shape = ctx.input(0)?.shape().clone();
        let t = ctx.input(0)?.clone();
        let mut out = ctx.allocate(T::DTYPE, shape)?;
        let low = Limit::<T>::new(ctx.input(1)?, &t)?;
        let high = Limit::<T>::new(ctx.input(2)?, &t)?;
        let t = t.as_slice::<T>()?;
        for_each_rows(ctx, out.as_mut_slice::<T>()?, 1, 0.5, |first, part| {
            let t = &t[first..first + part.len()];
            if let (&Limit::One(low), &Limit::One(high)) = (&low, &high) {
                return simd::run(ClipAll(t, part, low, high));
            }
            for (i, (out, x)) in part.iter_mut().zip(t).enumerate() {
                *out = x.clip(low.at(first + i), high.at(first + i));
            }
        })?;
        ctx.set_output(0, out)
    })
}

struct ClipAll<'a, T>(&'a [T], &'a mut [T], T, T);

impl<T: Clip> Loop for ClipAll<'_, T> {
    type Output = ();

    #[inline(always)]
    fn run<L: Level>(self) {
        for (out, x) in self.1.iter_mut().zip(self.0) {
            *out = x.clip(self.2, self.3);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_hold_as_in_tensorflow() {
        assert_eq!(5f32.clip(-1.0, 1.0), 1.0);
        assert!(f32::NAN.clip(-1.0, 1.0).is_nan());
        assert_eq!((-5f32).clip(f32::NAN, 1.0), -5.0);
        assert_eq!(5f32.clip(-1.0, f32::NAN), 5.0);
        // The lower limit wins where the limits cross.
        assert_eq!(0f32.clip(3.0, 1.0), 3.0);
        let clipped = Complex32::new(3.0, -1.0).clip(Complex32::ZERO, Complex32::new(2.0, 0.0));
        assert_eq!(clipped, Complex32::new(2.0, 0.0));
    }
}
