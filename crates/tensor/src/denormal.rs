//! Flushing of denormal floats to zero while kernels run.

use std::marker::PhantomData;

/// While this lives, its thread reads and writes denormal floats as zero.
///
/// TensorFlow does the same on CPUs, so equal results require it; besides, processors take many times
/// longer for denormal operands, which training produces often. Every thread that runs kernels holds
/// one. The compiler assumes the default mode when it folds constant expressions; no kernel depends on
/// that.
pub struct FlushDenormals {
    previous: u64,
    /// The state belongs to the thread.
    _not_send: PhantomData<*mut ()>,
}

impl FlushDenormals {
    /// Starts flushing on this thread.
    pub fn enter() -> FlushDenormals {
        let previous = control();
        set_control(previous | FLUSH);
        FlushDenormals { previous, _not_send: PhantomData }
    }
}

impl Drop for FlushDenormals {
    fn drop(&mut self) {
        set_control(self.previous);
    }
}

/// MXCSR: flush results to zero, read denormals as zero.
#[cfg(target_arch = "x86_64")]
const FLUSH: u64 = 1 << 15 | 1 << 6;

#[cfg(target_arch = "x86_64")]
fn control() -> u64 {
    let mut bits = 0u32;
    // SAFETY: the instruction stores 4 bytes at the address given, and changes nothing.
    unsafe {
        std::arch::asm!("stmxcsr [{}]", in(reg) &raw mut bits, options(nostack, preserves_flags));
    }
    u64::from(bits)
}

#[cfg(target_arch = "x86_64")]
fn set_control(bits: u64) {
    let bits = bits as u32;
    // SAFETY: the instruction loads 4 bytes from the address given. Only the two bits above ever
    // differ from what the thread started with: rounding and exceptions stay as Rust has them.
    unsafe {
        std::arch::asm!("ldmxcsr [{}]", in(reg) &raw const bits, options(nostack, preserves_flags));
    }
}

/// FPCR: flush to zero, which covers reading as well.
#[cfg(target_arch = "aarch64")]
const FLUSH: u64 = 1 << 24;

#[cfg(target_arch = "aarch64")]
fn control() -> u64 {
    let bits: u64;
    // SAFETY: reading the register changes nothing.
    unsafe { std::arch::asm!("mrs {}, fpcr", out(reg) bits, options(nomem, nostack)) };
    bits
}

#[cfg(target_arch = "aarch64")]
fn set_control(bits: u64) {
    // SAFETY: only the bit above ever differs from what the thread started with.
    unsafe { std::arch::asm!("msr fpcr, {}", in(reg) bits, options(nomem, nostack)) };
}

#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
const FLUSH: u64 = 0;

#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
fn control() -> u64 {
    0
}

#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
fn set_control(_: u64) {}

#[cfg(test)]
mod tests {
    use std::hint::black_box;

    use super::*;

    #[test]
    #[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
    fn denormals_are_zero_only_meanwhile() {
        let tiny = 1e-40f32;
        assert_ne!(black_box(tiny) * 1.0, 0.0);
        {
            let _flush = FlushDenormals::enter();
            let _nested = FlushDenormals::enter();
            assert_eq!(black_box(tiny) * black_box(1e10), 0.0);
            assert_eq!(black_box(1e-30f32) * black_box(1e-10), 0.0);
            assert_eq!(black_box(tiny), 0.0);
        }
        assert_ne!(black_box(tiny) * black_box(1.0), 0.0);
    }
}
