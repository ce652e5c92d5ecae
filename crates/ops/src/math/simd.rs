//! Loops compiled for several SIMD levels, and the choice among them at run time.
//!
//! The binary is built for plain x86-64. A loop that gains from wider registers implements [`Loop`]
//! and is run by [`run`], which calls a copy of it compiled for the best level of this machine. All
//! code inside must be `#[inline(always)]`, or it is compiled for the baseline. Results are the
//! same at every level, except where [`Level::mul_add`] rounds once instead of twice.

use std::sync::atomic::{AtomicU8, Ordering};

/// Arithmetic that depends on the level.
pub(crate) trait Level {
    /// `a * b + c`, rounded once where the level has an instruction for it.
    fn mul_add(a: f32, b: f32, c: f32) -> f32;
}

/// The baseline of the architecture.
pub(crate) struct Baseline;

impl Level for Baseline {
    #[inline(always)]
    fn mul_add(a: f32, b: f32, c: f32) -> f32 {
        // On x86-64 without FMA, `mul_add` would be a library call.
        if cfg!(any(target_feature = "fma", target_arch = "aarch64")) {
            a.mul_add(b, c)
        } else {
            a * b + c
        }
    }
}

/// AVX2 and FMA.
#[cfg(target_arch = "x86_64")]
pub(crate) struct Avx2;

#[cfg(target_arch = "x86_64")]
impl Level for Avx2 {
    #[inline(always)]
    fn mul_add(a: f32, b: f32, c: f32) -> f32 {
        a.mul_add(b, c)
    }
}

/// A loop that is compiled once for each level. `run` must be `#[inline(always)]`.
pub(crate) trait Loop {
    /// The result.
    type Output;

    /// The loop itself.
    fn run<L: Level>(self) -> Self::Output;
}

/// Runs a loop at the best level of this machine.
#[inline]
pub(crate) fn run<B: Loop>(body: B) -> B::Output {
    #[cfg(target_arch = "x86_64")]
    if has_avx2() {
        // SAFETY: the level says that the machine has these features.
        return unsafe { run_avx2(body) };
    }
    body.run::<Baseline>()
}

/// Whether the best level is [`Avx2`].
#[cfg(target_arch = "x86_64")]
#[inline]
pub(crate) fn has_avx2() -> bool {
    level() == AVX2
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx,avx2,fma,f16c,bmi1,bmi2,lzcnt,popcnt")]
fn run_avx2<B: Loop>(body: B) -> B::Output {
    body.run::<Avx2>()
}

const UNKNOWN: u8 = 0;
const BASELINE: u8 = 1;
const AVX2: u8 = 2;

/// The best level, detected once.
#[inline]
fn level() -> u8 {
    static LEVEL: AtomicU8 = AtomicU8::new(UNKNOWN);
    match LEVEL.load(Ordering::Relaxed) {
        UNKNOWN => {
            let found = detect();
            LEVEL.store(found, Ordering::Relaxed);
            found
        }
        known => known,
    }
}

#[cold]
fn detect() -> u8 {
    #[cfg(target_arch = "x86_64")]
    if is_x86_feature_detected!("avx2")
        && is_x86_feature_detected!("fma")
        && is_x86_feature_detected!("f16c")
        && is_x86_feature_detected!("bmi1")
        && is_x86_feature_detected!("bmi2")
        && is_x86_feature_detected!("lzcnt")
        && is_x86_feature_detected!("popcnt")
    {
        return AVX2;
    }
    BASELINE
}

#[cfg(test)]
mod tests {
    use super::*;

    struct SumOfSquares<'a>(&'a [f32]);

    impl Loop for SumOfSquares<'_> {
        type Output = f32;

        #[inline(always)]
        fn run<L: Level>(self) -> f32 {
            self.0.iter().fold(0.0, |sum, &x| L::mul_add(x, x, sum))
        }
    }

    #[test]
    fn levels_agree() {
        let values: Vec<f32> = (0..100).map(|i| i as f32).collect();
        assert_eq!(run(SumOfSquares(&values)), SumOfSquares(&values).run::<Baseline>());
    }
}
