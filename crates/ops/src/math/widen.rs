//! The compute type of an element type: `f32` for the 16-bit floats, else the type itself.

use half::{bf16, f16};
use num_complex::Complex;
use thalweg_tensor::Element;

use super::vectorized::vectorized;

/// Maximum elements per call of [`Widen::with_wide`] where they are converted.
const CHUNK: usize = 2048;

/// An element type with the type in which its sums and products are computed.
pub(crate) trait Widen: Element {
    /// The wider type.
    type Wide: Element;
    /// Maximum elements per call of [`Widen::with_wide`].
    const CHUNK: usize;

    /// Calls `work` on the elements in the wider type; there are at most `CHUNK`.
    fn with_wide<R>(x: &[Self], work: impl FnOnce(&[Self::Wide]) -> R) -> R;

    /// Calls `work` on the elements in the wider type, then rounds its changes back; there are at
    /// most `CHUNK`.
    fn with_wide_mut(x: &mut [Self], work: impl FnOnce(&mut [Self::Wide]));

    /// The elements in the wider type; `out` is as long as `x`.
    fn widen(x: &[Self], out: &mut [Self::Wide]);

    /// The values rounded to this type; `out` is as long as `x`.
    fn narrow(x: &[Self::Wide], out: &mut [Self]);
}

macro_rules! own_width {
    ($($t:ty),+) => { $(
        impl Widen for $t {
            type Wide = $t;
            const CHUNK: usize = usize::MAX;

            fn with_wide<R>(x: &[$t], work: impl FnOnce(&[$t]) -> R) -> R {
                work(x)
            }

            fn with_wide_mut(x: &mut [$t], work: impl FnOnce(&mut [$t])) {
                work(x);
            }

            fn widen(x: &[$t], out: &mut [$t]) {
                out.copy_from_slice(x);
            }

            fn narrow(x: &[$t], out: &mut [$t]) {
                out.copy_from_slice(x);
            }
        }
    )+ };
}

own_width!(f32, f64, i8, i16, i32, i64, u8, u16, u32, u64, bool, Complex<f32>, Complex<f64>);

macro_rules! half_width {
    ($($t:ty: $widen:path, $narrow:path;)+) => { $(
        impl Widen for $t {
            type Wide = f32;
            const CHUNK: usize = CHUNK;

            fn with_wide<R>(x: &[$t], work: impl FnOnce(&[f32]) -> R) -> R {
                let mut buffer = [0.0; CHUNK];
                let wide = &mut buffer[..x.len()];
                $widen(x, wide);
                work(wide)
            }

            fn with_wide_mut(x: &mut [$t], work: impl FnOnce(&mut [f32])) {
                let mut buffer = [0.0; CHUNK];
                let wide = &mut buffer[..x.len()];
                $widen(x, wide);
                work(wide);
                $narrow(wide, x);
            }

            fn widen(x: &[$t], out: &mut [f32]) {
                $widen(x, out);
            }

            fn narrow(x: &[f32], out: &mut [$t]) {
                $narrow(x, out);
            }
        }
    )+ };
}

half_width! {
    f16: widen_f16, narrow_f16;
    bf16: widen_bf16, narrow_bf16;
}

fn widen_f16(x: &[f16], out: &mut [f32]) {
    super::half_slices::widen(x, out);
}

fn narrow_f16(x: &[f32], out: &mut [f16]) {
    super::half_slices::narrow(x, out);
}

vectorized! {
    fn widen_bf16<L>(x: &[bf16], out: &mut [f32]) {
        for (out, x) in out.iter_mut().zip(x) {
            *out = f32::from_bits(u32::from(x.to_bits()) << 16);
        }
    }
}

vectorized! {
    fn narrow_bf16<L>(x: &[f32], out: &mut [bf16]) {
        for (out, &x) in out.iter_mut().zip(x) {
            let bits = x.to_bits();
            // Half an ulp, less one if the kept part is even: rounds ties to even.
            let rounded = bits.wrapping_add(0x7fff + ((bits >> 16) & 1)) >> 16;
            let kept = if x.is_nan() { (bits >> 16) | 0x40 } else { rounded };
            *out = bf16::from_bits(kept as u16);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bf16_rounds_as_its_crate_does() {
        let mut bits = 1u32;
        for _ in 0..100_000 {
            bits = bits.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            let x = f32::from_bits(bits);
            let mut narrow = [bf16::ZERO];
            narrow_bf16(&[x], &mut narrow);
            let expected = bf16::from_f32(x);
            assert!(narrow[0] == expected || (x.is_nan() && narrow[0].is_nan()), "{x}");
            let mut wide = [0.0];
            widen_bf16(&narrow, &mut wide);
            assert!(wide[0] == expected.to_f32() || x.is_nan(), "{x}");
        }
    }
}
