//! Operand staging: half-precision elements widened on the stack, and copies of elements that a
//! loop overwrites.

use half::f16;

use crate::math::half_slices;
use crate::math::simd::{self, Level, Loop};

/// Conversion of elements in memory to compute elements.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) enum Form {
    /// No conversion.
    Plain,
    /// Half precision, widened to `f32`.
    Half,
    /// bfloat16, widened to `f32`.
    BFloat16,
}

/// Addresses of operands and output, for several threads that access disjoint parts.
#[derive(Clone, Copy)]
pub(crate) struct Memory {
    pub(crate) x: *const u8,
    pub(crate) y: *const u8,
    pub(crate) out: *mut u8,
}

// SAFETY: threads read the operands and write disjoint parts of the output; who makes a `Memory`
// keeps its tensors alive and untouched while it is used.
unsafe impl Sync for Memory {}

impl Memory {
    /// The addresses advanced by `x`, `y` and `out` bytes.
    pub(crate) fn at(&self, x: usize, y: usize, out: usize) -> Memory {
        Memory {
            x: self.x.wrapping_add(x),
            y: self.y.wrapping_add(y),
            out: self.out.wrapping_add(out),
        }
    }
}

/// Bytes of one operand that are staged at a time; a few stages fit in the first-level cache.
pub(crate) const STAGE_BYTES: usize = 8192;

/// Stack memory for elements of any type.
#[repr(align(64))]
pub(crate) struct Stage(std::mem::MaybeUninit<[u8; STAGE_BYTES]>);

impl Stage {
    pub(crate) fn new() -> Self {
        Stage(std::mem::MaybeUninit::uninit())
    }

    pub(crate) fn start(&mut self) -> *mut u8 {
        self.0.as_mut_ptr().cast()
    }

    /// The start of the stage, with `bytes` bytes initialized so that loops may view them as a
    /// slice.
    pub(crate) fn clear(&mut self, bytes: usize) -> *mut u8 {
        // SAFETY: the stage has room for them.
        unsafe { self.start().write_bytes(0, bytes.min(STAGE_BYTES)) };
        self.start()
    }
}

/// Elements per stage for operands of this size.
pub(crate) fn stage_len(form: Form, size: usize) -> usize {
    STAGE_BYTES / if form == Form::Plain { size } else { size_of::<f32>() }
}

/// Copies `n` elements of `size` bytes into a stage, widened as `form` says.
///
/// # Safety
///
/// `from` is valid for `n` elements of `size` bytes with this `form`, and `to` is a stage; `n` is
/// at most [`stage_len`].
pub(crate) unsafe fn fill_stage(form: Form, size: usize, from: *const u8, to: *mut u8, n: usize) {
    // SAFETY: the caller guarantees it; stages are aligned for every element type, and memory that
    // is written through these slices has no other readers.
    unsafe {
        match form {
            Form::Plain => std::ptr::copy_nonoverlapping(from, to, n * size),
            Form::Half => {
                half_slices::widen_raw(from.cast(), to.cast(), n);
            }
            Form::BFloat16 => {
                let from = std::slice::from_raw_parts(from.cast::<u16>(), n);
                let to = to.cast::<u32>();
                for (i, &bits) in from.iter().enumerate() {
                    to.add(i).write(u32::from(bits) << 16);
                }
            }
        }
    }
}

/// Rounds `n` staged `f32` to the elements of `form`.
///
/// # Safety
///
/// `from` is valid for `n` initialized `f32`, and `to` for as many elements of `form`.
pub(crate) unsafe fn empty_stage(form: Form, from: *const u8, to: *mut u8, n: usize) {
    // SAFETY: as the caller promises.
    unsafe {
        let from = std::slice::from_raw_parts(from.cast::<f32>(), n);
        match form {
            Form::Plain => {}
            Form::Half => {
                half_slices::narrow(from, std::slice::from_raw_parts_mut(to.cast::<f16>(), n));
            }
            Form::BFloat16 => {
                let to = std::slice::from_raw_parts_mut(to.cast::<u16>(), n);
                round_to_bfloat16(from, to);
            }
        }
    }
}

/// Rounds to the nearest bfloat16, ties to even.
pub(crate) fn round_to_bfloat16(from: &[f32], to: &mut [u16]) {
    simd::run(RoundToBFloat16(from, to));
}

struct RoundToBFloat16<'a>(&'a [f32], &'a mut [u16]);

impl Loop for RoundToBFloat16<'_> {
    type Output = ();

    #[inline(always)]
    fn run<L: Level>(self) {
        for (to, &from) in self.1.iter_mut().zip(self.0) {
            let bits = from.to_bits();
            // Half a unit, less one if the last kept bit is even: ties go to even.
            let rounded = bits.wrapping_add(0x7fff + (bits >> 16 & 1)) >> 16;
            let quiet = bits >> 16 | 0x40;
            *to = (if from.is_nan() { quiet } else { rounded }) as u16;
        }
    }
}
