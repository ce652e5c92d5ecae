//! Bounds of the machine's performance: multiply-adds in registers, and memory bandwidth.

use std::hint::black_box;

/// Independent chains of multiply-adds: enough to hide their latency.
const CHAINS: usize = 12;
const LANES: usize = 16;
const STEPS: usize = 2000;
/// Floats that one copy moves: the matrix of the rows called `1M`.
const COPIED: usize = 1024 * 1024;

/// A loop that is bound by one resource of the machine.
pub(crate) struct Peak {
    threads: usize,
    kind: Kind,
}

enum Kind {
    Fma,
    Copy(Vec<(Vec<f32>, Vec<f32>)>),
}

impl Peak {
    /// The loop of this name, if there is one.
    pub(crate) fn new(name: &str, threads: usize) -> Option<Peak> {
        let kind = match name {
            "peak/fma" => Kind::Fma,
            "peak/copy" => {
                let share = COPIED / threads.max(1);
                Kind::Copy((0..threads).map(|_| (vec![1.0; share], vec![0.0; share])).collect())
            }
            _ => return None,
        };
        Some(Peak { threads: threads.max(1), kind })
    }

    /// Operations, or bytes read and written, in one run of all threads.
    pub(crate) fn units(&self) -> f64 {
        match &self.kind {
            Kind::Fma => (self.threads * CHAINS * LANES * STEPS * 2) as f64,
            Kind::Copy(parts) => {
                parts.iter().map(|(source, _)| source.len() * 8).sum::<usize>() as f64
            }
        }
    }

    pub(crate) fn run(&mut self, runs: u64) {
        match &mut self.kind {
            Kind::Fma => on_threads(&mut vec![(); self.threads], |()| {
                for _ in 0..runs {
                    black_box(multiply_adds(black_box(0.999)));
                }
            }),
            Kind::Copy(parts) => on_threads(parts, |(source, target)| {
                for _ in 0..runs {
                    black_box(&mut *target).copy_from_slice(black_box(source));
                }
            }),
        }
    }
}

/// Runs `work` on all parts in parallel, the first on this thread.
fn on_threads<T: Send>(parts: &mut [T], work: impl Fn(&mut T) + Sync) {
    let Some((first, others)) = parts.split_first_mut() else { return };
    std::thread::scope(|scope| {
        for part in others {
            scope.spawn(|| work(part));
        }
        work(first);
    });
}

/// The number of floating-point operations per run is given by the constants above, for any
/// register width.
fn multiply_adds(factor: f32) -> f32 {
    #[cfg(target_arch = "x86_64")]
    {
        if std::arch::is_x86_feature_detected!("avx512f") {
            // SAFETY: the processor has the feature.
            return unsafe { multiply_adds_avx512(factor) };
        }
        if std::arch::is_x86_feature_detected!("fma") {
            // SAFETY: the processor has the feature.
            return unsafe { multiply_adds_fma(factor) };
        }
    }
    let mut sums = [[0.5f32; LANES]; CHAINS];
    for _ in 0..STEPS {
        for lane in sums.iter_mut().flatten() {
            *lane = *lane * factor + 0.25;
        }
    }
    sums.iter().flatten().sum()
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f")]
fn multiply_adds_avx512(factor: f32) -> f32 {
    use std::arch::x86_64::{_mm512_fmadd_ps, _mm512_reduce_add_ps, _mm512_set1_ps};
    let (factor, term) = (_mm512_set1_ps(factor), _mm512_set1_ps(0.25));
    let mut sums = [_mm512_set1_ps(0.5); CHAINS];
    for _ in 0..STEPS {
        for sum in &mut sums {
            *sum = _mm512_fmadd_ps(*sum, factor, term);
        }
    }
    sums.iter().map(|&sum| _mm512_reduce_add_ps(sum)).sum()
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma")]
fn multiply_adds_fma(factor: f32) -> f32 {
    use std::arch::x86_64::{_mm256_cvtss_f32, _mm256_fmadd_ps, _mm256_set1_ps};
    let (factor, term) = (_mm256_set1_ps(factor), _mm256_set1_ps(0.25));
    let mut sums = [_mm256_set1_ps(0.5); CHAINS];
    // Half the register width, twice the steps.
    for _ in 0..2 * STEPS {
        for sum in &mut sums {
            *sum = _mm256_fmadd_ps(*sum, factor, term);
        }
    }
    sums.iter().map(|&sum| _mm256_cvtss_f32(sum)).sum()
}
