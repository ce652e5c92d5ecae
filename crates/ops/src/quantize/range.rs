//! Affine quantization: a float range mapped to all integers of a dtype.

use thalweg_kernel::KernelContext;
use thalweg_tensor::{Element, QInt8, QInt16, QInt32, QUInt8, QUInt16, Result, Shape, ensure};

use crate::split::for_each_rows;

/// A quantized element type.
pub(crate) trait Quantized: Element {
    /// The minimum integer.
    const LOWEST: i64;
    /// The maximum integer.
    const HIGHEST: i64;
    /// Whether the type is signed.
    const IS_SIGNED: bool;

    /// The integer value.
    fn get(self) -> i32;
    /// The element for an integer, truncated to its bits.
    fn from_int(value: i32) -> Self;

    /// The element for a float: truncates to i32 as x86-64 does (values out of range become the
    /// minimum), then truncates to the element's bits. NaN becomes 0.
    #[inline(always)]
    fn from_float(value: f32) -> Self {
        let is_too_large = value >= 2_147_483_648.0;
        Self::from_int(if is_too_large { i32::MIN } else { value as i32 })
    }

    /// Number of steps between the minimum and the maximum integer.
    fn steps() -> f64 {
        (Self::HIGHEST - Self::LOWEST) as f64
    }
}

macro_rules! quantized {
    ($($name:ident($t:ty);)+) => { $(
        impl Quantized for $name {
            const LOWEST: i64 = <$t>::MIN as i64;
            const HIGHEST: i64 = <$t>::MAX as i64;
            const IS_SIGNED: bool = <$t>::MIN != 0;

            #[inline(always)]
            fn get(self) -> i32 {
                self.0 as i32
            }

            #[inline(always)]
            fn from_int(value: i32) -> Self {
                $name(value as $t)
            }
        }
    )+ };
}

quantized! {
    QInt8(i8);
    QUInt8(u8);
    QInt16(i16);
    QUInt16(u16);
    QInt32(i32);
}

/// `x` clamped to the range; NaN stays NaN.
#[inline(always)]
pub(crate) fn clamp(x: f32, lower: f32, upper: f32) -> f32 {
    let x = if x > upper { upper } else { x };
    if x < lower { lower } else { x }
}

/// Float to quantized conversion in mode `MIN_FIRST`, in which zero is exactly representable.
#[derive(Clone, Copy)]
pub(crate) struct ToQuantized {
    scale: f32,
    offset: f32,
    lower: f32,
    upper: f32,
}

impl ToQuantized {
    pub(crate) fn new<T: Quantized>(min: f32, max: f32) -> Self {
        let scale = if max == min { 0.0 } else { (T::steps() / f64::from(max - min)) as f32 };
        ToQuantized {
            scale,
            offset: (min * scale).round() - T::LOWEST as f32,
            lower: (T::LOWEST as f32).max(-2_147_483_648.0),
            upper: (T::HIGHEST as f32).min(2_147_483_520.0),
        }
    }

    #[inline(always)]
    pub(crate) fn convert<T: Quantized>(&self, x: f32) -> T {
        let x = clamp((x * self.scale).round() - self.offset, self.lower, self.upper);
        // NaN becomes the minimum of 32-bit types, and zero of smaller ones.
        T::from_int(if x.is_nan() { i32::MIN } else { x as i32 })
    }
}

/// Quantized to float conversion in mode `MIN_FIRST`.
#[derive(Clone, Copy)]
pub(crate) struct ToFloat {
    scale: f32,
    start: f32,
}

impl ToFloat {
    pub(crate) fn new<T: Quantized>(min: f32, max: f32) -> Self {
        let scale = (f64::from(max - min) / T::steps()) as f32;
        let rounded = if max == min { min } else { (min / scale).round() * scale };
        ToFloat { scale, start: rounded - T::LOWEST as f32 * scale }
    }

    #[inline(always)]
    pub(crate) fn convert<T: Quantized>(&self, x: T) -> f32 {
        self.start + x.get() as f32 * self.scale
    }
}

/// Converts a single number in double precision, as TensorFlow does for few numbers.
pub(crate) fn to_float_exact<T: Quantized>(x: i64, min: f32, max: f32) -> f32 {
    if min == max {
        return min;
    }
    let steps = T::steps() + 1.0;
    let range = f64::from(max - min) * (steps / (steps - 1.0));
    let scale = range / steps;
    let offset = x as f64 - T::LOWEST as f64;
    let narrow = scale as f32;
    let start = f64::from((min / narrow).round() * narrow);
    (start + offset * scale) as f32
}

/// Slices of a tensor along an axis, each with its own range.
#[derive(Clone, Copy)]
pub(crate) struct Slices {
    /// Number of slices.
    pub(crate) count: usize,
    /// Contiguous elements of a slice.
    pub(crate) inner: usize,
}

impl Slices {
    /// Slices along an axis; one slice if it is negative.
    pub(crate) fn new(shape: &Shape, axis: i64) -> Result<Slices> {
        let Ok(axis) = usize::try_from(axis) else {
            return Ok(Slices { count: 1, inner: shape.num_elements() });
        };
        ensure!(
            axis < shape.rank(),
            InvalidArgument,
            "axis {axis} must be less than the input's rank, {}",
            shape.rank()
        );
        Ok(Slices { count: shape[axis], inner: shape[axis + 1..].iter().product() })
    }

    /// Calls `convert(slice, start, part)` for parts of `out` that belong to one slice each.
    pub(crate) fn for_each<T: Send>(
        self,
        ctx: &KernelContext<'_>,
        out: &mut [T],
        convert: impl Fn(usize, usize, &mut [T]) + Sync,
    ) -> Result<()> {
        if self.count == 1 || self.inner == 0 {
            return for_each_rows(ctx, out, 1, 1.0, |first, out| convert(0, first, out));
        }
        for_each_rows(ctx, out, self.inner, self.inner as f64, |first, out| {
            for (row, out) in (first..).zip(out.chunks_exact_mut(self.inner)) {
                convert(row % self.count, row * self.inner, out);
            }
        })
    }
}
