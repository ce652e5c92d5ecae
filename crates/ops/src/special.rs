//! Special functions: gamma, Bessel, error and related functions.
//!
//! All are computed in double precision and rounded to the tensor's dtype.

use thalweg_graph::{OpDef, ShapeContext, Work, shape};
use thalweg_kernel::{AnyKernel, Family, KernelInit, KernelSpec};
use thalweg_tensor::{Element, PartialShape, Result, Tensor, ensure, f16};

use crate::bessel_lowering;
use crate::elementwise::{Binary, Unary, binary, unary};
use crate::gamma_lowering;
use crate::gradients::chain_input;
use crate::math::simd::Level;
use crate::math::{bessel, float, gamma, special};
use crate::special_gradients::*;
use crate::special_lowering::{self as lowered, in_double, pair_in_double};
use crate::split::for_each_rows;

/// Kernels for single and double precision.
macro_rules! real {
    ($name:literal, $op:ty) => {
        cpu_kernel!($name, "T" in [f32, f64] => unary::<$op>)
    };
}

/// Kernels for half, single and double precision.
macro_rules! real_and_half {
    ($name:literal, $op:ty) => {
        cpu_kernel!($name, "T" in [f16, f32, f64] => unary::<$op>)
    };
}

/// A function that is evaluated by polynomials or series, by intervals.
const fn special(name: &'static str) -> OpDef {
    OpDef::new(name, shape::unchanged).with_work(Work::per_output::<3000>)
}

pub(crate) static FAMILY: Family = Family {
    ops: &[
        special("Erfinv").with_work(Work::per_output::<15000>).with_gradient(erfinv_grad),
        special("Ndtri").with_work(Work::per_output::<15000>).with_gradient(ndtri_grad),
        special("Lgamma").with_gradient(|g| chain_input(g, |g, x| g.add("Digamma", &[x]))),
        special("Digamma").with_gradient(digamma_grad),
        special("BesselI0").with_gradient(|g| chain_input(g, |g, x| g.add("BesselI1", &[x]))),
        special("BesselI1").with_gradient(bessel_i1_grad),
        special("BesselI0e").with_gradient(bessel_i0e_grad),
        special("BesselI1e").with_gradient(bessel_i1e_grad),
        special("BesselJ0").with_gradient(|g| chain_negated(g, "BesselJ1")),
        special("BesselJ1").with_gradient(bessel_j1_grad),
        special("BesselK0").with_gradient(|g| chain_negated(g, "BesselK1")),
        special("BesselK1").with_gradient(bessel_k1_grad),
        special("BesselK0e").with_gradient(bessel_k0e_grad),
        special("BesselK1e").with_gradient(bessel_k1e_grad),
        special("BesselY0").with_gradient(|g| chain_negated(g, "BesselY1")),
        special("BesselY1").with_gradient(bessel_y1_grad),
        special("Dawsn").with_work(Work::per_output::<15000>).with_gradient(dawsn_grad),
        special("Spence").with_gradient(spence_grad),
        special("FresnelCos").with_gradient(|g| fresnel_grad(g, "Cos")),
        special("FresnelSin").with_gradient(|g| fresnel_grad(g, "Sin")),
        special("Expint").with_gradient(expint_grad),
        OpDef::new("Igamma", shape::broadcast)
            .with_work(Work::per_output::<10000>)
            .with_gradient(|g| igamma_grad(g, 1.0)),
        OpDef::new("Igammac", shape::broadcast)
            .with_work(Work::per_output::<10000>)
            .with_gradient(|g| igamma_grad(g, -1.0)),
        OpDef::new("IgammaGradA", shape::broadcast).with_work(Work::per_output::<10000>),
        OpDef::new("Polygamma", shape::broadcast)
            .with_work(Work::per_output::<10000>)
            .with_gradient(polygamma_grad),
        OpDef::new("Zeta", shape::broadcast)
            .with_work(Work::per_output::<10000>)
            .with_gradient(zeta_grad),
        OpDef::new("Betainc", betainc_shape)
            .with_work(Work::per_output::<10000>)
            .with_gradient(betainc_grad),
    ],
    kernels: &[
        real!("Erfinv", Erfinv),
        real!("Ndtri", Ndtri),
        real_and_half!("Lgamma", Lgamma),
        real_and_half!("Digamma", Digamma),
        real_and_half!("BesselI0", BesselI0),
        real_and_half!("BesselI1", BesselI1),
        real_and_half!("BesselI0e", BesselI0e),
        real_and_half!("BesselI1e", BesselI1e),
        real_and_half!("BesselJ0", BesselJ0),
        real_and_half!("BesselJ1", BesselJ1),
        real_and_half!("BesselK0", BesselK0),
        real_and_half!("BesselK1", BesselK1),
        real_and_half!("BesselK0e", BesselK0e),
        real_and_half!("BesselK1e", BesselK1e),
        real_and_half!("BesselY0", BesselY0),
        real_and_half!("BesselY1", BesselY1),
        real!("Dawsn", Dawsn),
        real!("Spence", Spence),
        real!("FresnelCos", FresnelCos),
        real!("FresnelSin", FresnelSin),
        real!("Expint", Expint),
        cpu_kernel!("Igamma", "T" in [f32, f64] => binary::<Igamma>),
        cpu_kernel!("Igammac", "T" in [f32, f64] => binary::<Igammac>),
        cpu_kernel!("IgammaGradA", "T" in [f32, f64] => binary::<IgammaGradA>),
        cpu_kernel!("Polygamma", "T" in [f32, f64] => binary::<Polygamma>),
        cpu_kernel!("Zeta", "T" in [f32, f64] => binary::<Zeta>),
        cpu_kernel!("Betainc", "T" in [f32, f64] => betainc),
        KernelSpec::lowering("Erfinv", |l| in_double(l, lowered::erfinv)),
        KernelSpec::lowering("Ndtri", |l| in_double(l, lowered::ndtri)),
        KernelSpec::lowering("Lgamma", |l| in_double(l, lowered::lgamma)),
        KernelSpec::lowering("Digamma", |l| in_double(l, lowered::digamma)),
        KernelSpec::lowering("Dawsn", |l| in_double(l, lowered::dawson)),
        KernelSpec::lowering("BesselI0", |l| in_double(l, bessel_lowering::i0)),
        KernelSpec::lowering("BesselI1", |l| in_double(l, bessel_lowering::i1)),
        KernelSpec::lowering("BesselI0e", |l| in_double(l, bessel_lowering::i0e)),
        KernelSpec::lowering("BesselI1e", |l| in_double(l, bessel_lowering::i1e)),
        KernelSpec::lowering("BesselJ0", |l| in_double(l, bessel_lowering::j0)),
        KernelSpec::lowering("BesselJ1", |l| in_double(l, bessel_lowering::j1)),
        KernelSpec::lowering("BesselK0", |l| in_double(l, bessel_lowering::k0)),
        KernelSpec::lowering("BesselK1", |l| in_double(l, bessel_lowering::k1)),
        KernelSpec::lowering("BesselK0e", |l| in_double(l, bessel_lowering::k0e)),
        KernelSpec::lowering("BesselK1e", |l| in_double(l, bessel_lowering::k1e)),
        KernelSpec::lowering("BesselY0", |l| in_double(l, bessel_lowering::y0)),
        KernelSpec::lowering("BesselY1", |l| in_double(l, bessel_lowering::y1)),
        KernelSpec::lowering("Polygamma", |l| pair_in_double(l, lowered::polygamma)),
        KernelSpec::lowering("Igamma", |l| pair_in_double(l, gamma_lowering::igamma)),
        KernelSpec::lowering("Igammac", |l| pair_in_double(l, gamma_lowering::igammac)),
        KernelSpec::lowering("IgammaGradA", |l| pair_in_double(l, gamma_lowering::igamma_grad_a)),
        KernelSpec::lowering("Betainc", gamma_lowering::lower_betainc),
        KernelSpec::lowering("Zeta", |l| pair_in_double(l, lowered::zeta)),
    ],
};

/// Op types by their function on `f64`, for single and double precision.
macro_rules! functions {
    ($trait:ident, $cost:literal, $($op:ident($($x:ident),+) = $value:expr;)+) => { $(
        struct $op;

        impl $trait<f64> for $op {
            type Out = f64;
            const NANOSECONDS: f64 = $cost;
            const IS_SIMD: bool = false;

            #[inline(always)]
            fn apply<L: Level>($($x: f64),+) -> f64 {
                $value
            }
        }

        impl $trait<f32> for $op {
            type Out = f32;
            const NANOSECONDS: f64 = $cost;
            const IS_SIMD: bool = false;

            #[inline(always)]
            fn apply<L: Level>($($x: f32),+) -> f32 {
                <$op as $trait<f64>>::apply::<L>($(f64::from($x)),+) as f32
            }
        }
    )+ };
}

functions! { Unary, 50.0,
    Erfinv(y) = special::erfinv(y);
    Ndtri(p) = special::ndtri(p);
    Digamma(x) = gamma::digamma(x);
    BesselI0(x) = bessel::i0(x);
    BesselI1(x) = bessel::i1(x);
    BesselI0e(x) = bessel::i0e(x);
    BesselI1e(x) = bessel::i1e(x);
    BesselJ0(x) = bessel::j0(x);
    BesselJ1(x) = bessel::j1(x);
    BesselK0(x) = bessel::k0(x);
    BesselK1(x) = bessel::k1(x);
    BesselK0e(x) = bessel::k0e(x);
    BesselK1e(x) = bessel::k1e(x);
    BesselY0(x) = bessel::y0(x);
    BesselY1(x) = bessel::y1(x);
    Dawsn(x) = special::dawson(x);
    Spence(x) = special::spence(x);
    FresnelCos(x) = special::fresnel(x).1;
    FresnelSin(x) = special::fresnel(x).0;
    Expint(x) = special::expint(x);
}

/// ln |Γ(x)|.
struct Lgamma;

impl Unary<f64> for Lgamma {
    type Out = f64;
    const NANOSECONDS: f64 = 30.0;
    const IS_SIMD: bool = false;

    #[inline(always)]
    fn apply<L: Level>(x: f64) -> f64 {
        gamma::lgamma(x)
    }
}

impl Unary<f32> for Lgamma {
    type Out = f32;
    const NANOSECONDS: f64 = 30.0;
    const IS_SIMD: bool = false;

    #[inline(always)]
    fn apply<L: Level>(x: f32) -> f32 {
        // Near zero it is -ln |x|; widening would flush a subnormal number to zero.
        if x.abs() < 1e-20 { -float::log::<L>(x.abs()) } else { gamma::lgamma(f64::from(x)) as f32 }
    }
}

functions! { Binary, 200.0,
    Igamma(a, x) = gamma::igamma(a, x);
    Igammac(a, x) = gamma::igammac(a, x);
    IgammaGradA(a, x) = gamma::igamma_grad_a(a, x);
    Polygamma(n, x) = gamma::polygamma(n, x);
    Zeta(x, q) = gamma::zeta(x, q);
}

/// All inputs have one shape, except that scalars are broadcast.
fn betainc_shape(c: &mut ShapeContext<'_>) -> Result<()> {
    let mut shape = PartialShape::scalar();
    let mut is_known = true;
    for i in 0..c.num_inputs() {
        let own = c.input(i);
        match own.rank() {
            Some(0) => {}
            None => is_known = false,
            Some(_) if shape.rank() == Some(0) => shape = own.clone(),
            Some(_) => shape = shape.merge(own)?,
        }
    }
    if is_known || shape.rank() != Some(0) {
        c.set_output(0, shape);
    }
    Ok(())
}

fn betainc<T>(_: &KernelInit<'_>) -> Result<AnyKernel>
where
    T: Element + Into<f64> + num_traits::FromPrimitive,
{
    AnyKernel::new(|ctx| {
        let inputs: [&Tensor; 3] = [ctx.input(0)?, ctx.input(1)?, ctx.input(2)?];
        let full = inputs.iter().find(|t| t.rank() > 0).unwrap_or(&inputs[0]);
        for input in inputs {
            ensure!(
                input.rank() == 0 || input.shape() == full.shape(),
                InvalidArgument,
                "a, b and x must have one shape or be scalars, got {}, {} and {}",
                inputs[0].shape(),
                inputs[1].shape(),
                inputs[2].shape()
            );
        }
        let mut out = ctx.allocate(T::DTYPE, full.shape().clone())?;
        let values: [&[T]; 3] =
            [inputs[0].as_slice()?, inputs[1].as_slice()?, inputs[2].as_slice()?];
        for_each_rows(ctx, out.as_mut_slice::<T>()?, 1, 200.0, |first, part| {
            for (i, out) in part.iter_mut().enumerate() {
                let at = |k: usize| -> f64 {
                    values[k][if inputs[k].rank() == 0 { 0 } else { first + i }].into()
                };
                let value = gamma::betainc(at(0), at(1), at(2));
                *out = T::from_f64(value).unwrap_or_default();
            }
        })?;
        ctx.set_output(0, out)
    })
}
