//! Reciprocal square root by the hardware estimate and a Newton iteration.

/// `out[i] = 1 / sqrt(x[i])`; `out` is as long as `x`.
pub(crate) fn rsqrt(x: &[f32], out: &mut [f32]) {
    assert_eq!(x.len(), out.len(), "as many out as in");
    #[cfg(target_arch = "x86_64")]
    if super::simd::has_avx2() {
        // SAFETY: the machine has the instructions, as was just seen.
        return unsafe { rsqrt_avx2(x, out) };
    }
    plain(x, out);
}

fn plain(x: &[f32], out: &mut [f32]) {
    for (out, &x) in out.iter_mut().zip(x) {
        *out = 1.0 / x.sqrt();
    }
}

/// The estimate has twelve bits, one Newton iteration gives the rest.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx,avx2,fma")]
fn rsqrt_avx2(x: &[f32], out: &mut [f32]) {
    use std::arch::x86_64::*;
    let (eights, _) = x.as_chunks::<8>();
    let (out_eights, _) = out.as_chunks_mut::<8>();
    let (half, one, infinity) =
        (_mm256_set1_ps(0.5), _mm256_set1_ps(1.0), _mm256_set1_ps(f32::INFINITY));
    for (x, out) in eights.iter().zip(out_eights) {
        // SAFETY: both have room for eight elements, and need no alignment.
        unsafe {
            let x = _mm256_loadu_ps(x.as_ptr());
            let guess = _mm256_rsqrt_ps(x);
            let left = _mm256_fnmadd_ps(_mm256_mul_ps(x, guess), guess, one);
            let better = _mm256_fmadd_ps(_mm256_mul_ps(half, guess), left, guess);
            // For zero and infinity the estimate is exact.
            let is_edge = _mm256_or_ps(
                _mm256_cmp_ps::<_CMP_EQ_OQ>(x, infinity),
                _mm256_cmp_ps::<_CMP_EQ_OQ>(
                    _mm256_andnot_ps(_mm256_set1_ps(-0.0), guess),
                    infinity,
                ),
            );
            _mm256_storeu_ps(out.as_mut_ptr(), _mm256_blendv_ps(better, guess, is_edge));
        }
    }
    let done = eights.len() * 8;
    plain(&x[done..], &mut out[done..]);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn close_everywhere() {
        let x: Vec<f32> = (0..u32::MAX).step_by(4999).map(f32::from_bits).collect();
        let mut out = vec![0.0; x.len()];
        rsqrt(&x, &mut out);
        for (&x, &got) in x.iter().zip(&out) {
            let exact = (1.0 / f64::from(x).sqrt()) as f32;
            if x.is_nan() || x < 0.0 && x.abs() >= f32::MIN_POSITIVE {
                assert!(got.is_nan(), "{x}: {got}");
            } else if x.abs() >= f32::MIN_POSITIVE {
                let far = (got - exact).abs();
                assert!(got == exact || far <= 4e-7 * exact, "{x}: {got}, not {exact}");
            }
        }
        let edges = [0.0, -0.0, f32::INFINITY, 1.0, 4.0, 0.25, 1e30, 9.0];
        let mut out = [0.0; 8];
        rsqrt(&edges, &mut out);
        assert_eq!(out[..3], [f32::INFINITY, f32::NEG_INFINITY, 0.0]);
    }
}
