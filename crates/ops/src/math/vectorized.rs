//! Functions compiled twice: for the x86-64 baseline and for AVX2.

/// Defines a function whose loops are also compiled for AVX2; that version runs where the machine
/// has AVX2.
///
/// `vectorized! { pub(crate) fn f<L>[A: Trait](x: &[A]) -> A { body } }` expands to a function `f`
/// that calls one of two inner functions with the same body, one of which has AVX2 enabled. `L` is
/// the level, for functions that are generic in it. Functions called by the body must be
/// `#[inline(always)]` to be compiled for AVX2.
macro_rules! vectorized {
    ($(#[$doc:meta])* $vis:vis fn $name:ident<$level:ident> $([$($g:ident: $($bound:path)|+),+])?
        ($($arg:ident: $t:ty),* $(,)?) $(-> $r:ty)? $body:block) => {
        $(#[$doc])*
        $vis fn $name $(<$($g: $($bound +)+),+>)? ($($arg: $t),*) $(-> $r)? {
            #[inline(always)]
            #[allow(clippy::extra_unused_type_parameters, reason = "not every body needs it")]
            fn at_level<$level: $crate::math::simd::Level $(, $($g: $($bound +)+),+)?>(
                $($arg: $t),*
            ) $(-> $r)? $body

            #[cfg(target_arch = "x86_64")]
            {
                #[target_feature(enable = "avx,avx2,fma,f16c,bmi1,bmi2,lzcnt,popcnt")]
                fn avx2 $(<$($g: $($bound +)+),+>)? ($($arg: $t),*) $(-> $r)? {
                    at_level::<$crate::math::simd::Avx2 $(, $($g),+)?>($($arg),*)
                }
                if $crate::math::simd::has_avx2() {
                    // SAFETY: the machine has the instructions, as was just seen.
                    return unsafe { avx2 $(::<$($g),+>)? ($($arg),*) };
                }
            }
            at_level::<$crate::math::simd::Baseline $(, $($g),+)?>($($arg),*)
        }
    };
}
pub(crate) use vectorized;
