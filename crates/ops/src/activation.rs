//! Activation functions and their gradients.

use half::{bf16, f16};
use thalweg_graph::{GradientContext, OpDef, Work, shape};
use thalweg_hlo::{Comparison, Value};
use thalweg_kernel::{AnyKernel, Family, KernelInit, KernelSpec};
use thalweg_tensor::{DType, Element, Result};

use crate::elementwise::{Unary, unary};
use crate::gradients::{Arithmetic, chain_input};
use crate::lowering::{is_negative, wide_pairs, wide_unary};
use crate::map::{map, map_with};
use crate::math::real::Real;
use crate::math::simd::Level;
use crate::math::vectorized::vectorized;
use crate::math::widen::Widen;

pub(crate) static FAMILY: Family = Family {
    ops: &[
        OpDef::new("Relu", shape::unchanged).with_gradient(|g| by_output(g, "ReluGrad")),
        RELU_GRAD,
        OpDef::new("Relu6", shape::unchanged).with_gradient(|g| by_output(g, "Relu6Grad")),
        RELU6_GRAD,
        OpDef::new("LeakyRelu", shape::unchanged).with_gradient(|g| by_input(g, "LeakyReluGrad")),
        LEAKY_RELU_GRAD,
        OpDef::new("Elu", shape::unchanged)
            .with_work(Work::per_output::<60>)
            .with_gradient(|g| by_output(g, "EluGrad")),
        ELU_GRAD,
        OpDef::new("Selu", shape::unchanged)
            .with_work(Work::per_output::<60>)
            .with_gradient(|g| by_output(g, "SeluGrad")),
        SELU_GRAD,
        SOFTPLUS,
        OpDef::new("SoftplusGrad", shape::merged)
            .with_work(Work::per_output::<60>)
            .with_gradient(softplus_grad_grad),
        OpDef::new("Softsign", shape::unchanged).with_gradient(|g| by_input(g, "SoftsignGrad")),
        OpDef::new("SoftsignGrad", shape::merged),
    ],
    kernels: &[
        cpu_kernel!("Relu", "T" in [f32, f64, f16, bf16, i8, i16, i32, i64, u8, u16, u32, u64]
            => unary::<Relu>),
        cpu_kernel!("ReluGrad", "T" in [f32, f64, f16, bf16, i8, i16, i32, i64, u8, u16, u32, u64]
            => relu_grad),
        cpu_kernel!("Relu6", "T" in [f32, f64, f16, bf16, i8, i16, i32, i64, u8, u16, u32, u64]
            => unary::<Relu6>),
        cpu_kernel!("Relu6Grad", "T" in [f32, f64, f16, bf16, i8, i16, i32, i64, u8, u16, u32, u64]
            => relu6_grad),
        cpu_kernel!("LeakyRelu", "T" in [f32, f64, f16, bf16] => leaky_relu),
        cpu_kernel!("LeakyReluGrad", "T" in [f32, f64, f16, bf16] => leaky_relu_grad),
        cpu_kernel!("Elu", "T" in [f32, f64, f16, bf16] => elu),
        cpu_kernel!("EluGrad", "T" in [f32, f64, f16, bf16] => elu_grad),
        cpu_kernel!("Selu", "T" in [f32, f64, f16, bf16] => selu),
        cpu_kernel!("SeluGrad", "T" in [f32, f64, f16, bf16] => selu_grad),
        cpu_kernel!("Softplus", "T" in [f32, f64, f16, bf16] => softplus),
        cpu_kernel!("SoftplusGrad", "T" in [f32, f64, f16, bf16] => softplus_grad),
        cpu_kernel!("Softsign", "T" in [f32, f64, f16, bf16] => softsign),
        cpu_kernel!("SoftsignGrad", "T" in [f32, f64, f16, bf16] => softsign_grad),
        KernelSpec::lowering("Relu", |l| l.unary(|x| x.maximum(&x.scalar_like(0.0)))),
        KernelSpec::lowering("ReluGrad", |l| wide_pairs(l, |dy, x| gated(dy, &is_positive(x)))),
        KernelSpec::lowering("Relu6", |l| l.unary(clipped_at_six)),
        KernelSpec::lowering("Relu6Grad", |l| wide_pairs(l, lowered_relu6_grad)),
        KernelSpec::lowering("LeakyRelu", |l| {
            let alpha = f64::from(l.attrs().float("alpha")?);
            wide_unary(l, |x| is_positive(x).select(x, &(x * alpha)))
        }),
        KernelSpec::lowering("LeakyReluGrad", |l| {
            let alpha = f64::from(l.attrs().float("alpha")?);
            wide_pairs(l, |dy, x| is_positive(x).select(dy, &(dy * alpha)))
        }),
        KernelSpec::lowering("Elu", |l| {
            wide_unary(l, |x| is_negative(x).select(&x.exp_minus_one(), x))
        }),
        KernelSpec::lowering("EluGrad", |l| {
            wide_pairs(l, |dy, y| is_negative(y).select(&((y + 1.0) * dy), dy))
        }),
        KernelSpec::lowering("Selu", |l| {
            wide_unary(l, |x| {
                let below = x.exp_minus_one() * SELU_SCALE_ALPHA;
                is_negative(x).select(&below, &(x * SELU_SCALE))
            })
        }),
        KernelSpec::lowering("SeluGrad", |l| {
            wide_pairs(l, |dy, y| {
                let slope =
                    is_negative(y).select(&(y + SELU_SCALE_ALPHA), &y.full_like(SELU_SCALE));
                dy * slope
            })
        }),
        KernelSpec::lowering("Softplus", |l| wide_unary(l, softplus_of)),
        KernelSpec::lowering("SoftplusGrad", |l| {
            wide_pairs(l, |dy, x| dy / (x.negate().exp() + 1.0))
        }),
        KernelSpec::lowering("Softsign", |l| wide_unary(l, |x| x / (x.abs() + 1.0))),
        KernelSpec::lowering("SoftsignGrad", |l| {
            wide_pairs(l, |dy, x| dy / (x.abs() + 1.0).square())
        }),
    ],
};

const RELU_GRAD: OpDef = OpDef::new("ReluGrad", shape::merged)
    .with_gradient(|g| piecewise_linear_grad_grad(g, "ReluGrad"));
const RELU6_GRAD: OpDef = OpDef::new("Relu6Grad", shape::merged)
    .with_gradient(|g| piecewise_linear_grad_grad(g, "Relu6Grad"));
const LEAKY_RELU_GRAD: OpDef = OpDef::new("LeakyReluGrad", shape::merged)
    .with_gradient(|g| piecewise_linear_grad_grad(g, "LeakyReluGrad"));
const ELU_GRAD: OpDef =
    OpDef::new("EluGrad", shape::merged).with_gradient(|g| elu_grad_grad(g, "EluGrad"));
const SELU_GRAD: OpDef =
    OpDef { name: "SeluGrad", ..ELU_GRAD }.with_gradient(|g| elu_grad_grad(g, "SeluGrad"));
const SOFTPLUS: OpDef = OpDef::new("Softplus", shape::unchanged)
    .with_work(Work::per_output::<250>)
    .with_gradient(|g| chain_input(g, |g, x| g.add("Sigmoid", &[x])));

fn is_positive(x: &Value) -> Value {
    x.compare_to(Comparison::Greater, 0.0)
}

/// The adjoint times one if `is_open`, else times zero; NaN times zero is NaN.
fn gated(dy: &Value, is_open: &Value) -> Value {
    dy * is_open.convert(dy.dtype())
}

fn clipped_at_six(x: &Value) -> Value {
    x.maximum(&x.scalar_like(0.0)).minimum(&x.scalar_like(6.0))
}

fn lowered_relu6_grad(dy: &Value, x: &Value) -> Value {
    gated(dy, &is_positive(x).and(&x.compare_to(Comparison::Less, 6.0)))
}

/// `ln(1 + e^x)`, which rounds to `x` or `e^x` beyond a threshold.
fn softplus_of(x: &Value) -> Value {
    let epsilon = if x.dtype() == DType::Double { f64::EPSILON } else { f32::EPSILON.into() };
    let threshold = -(epsilon.ln() + 2.0);
    let e = x.exp();
    let small = x.compare_to(Comparison::Less, -threshold).select(&e, &e.log_plus_one());
    x.compare_to(Comparison::Greater, threshold).select(x, &small)
}

/// The gradient as an op of the adjoint and the function's argument.
fn by_input(g: &mut GradientContext<'_>, op: &str) -> Result<()> {
    let (grad, x) = (g.grad(0)?, g.input(0));
    let adjoint = g.op_like(op, &["alpha"]).inputs(&[grad, x]).build()?;
    g.set(0, adjoint)
}

/// The gradient as an op of the adjoint and the function's value.
fn by_output(g: &mut GradientContext<'_>, op: &str) -> Result<()> {
    let (grad, y) = (g.grad(0)?, g.output(0));
    let adjoint = g.add(op, &[grad, y])?;
    g.set(0, adjoint)
}

/// Gradient of the gradient op of a piecewise linear function: linear in the adjoint, and
/// independent of the features within a piece.
fn piecewise_linear_grad_grad(g: &mut GradientContext<'_>, op: &str) -> Result<()> {
    let (grad, features) = (g.grad(0)?, g.input(1));
    let of_gradients = g.op_like(op, &["alpha"]).inputs(&[grad, features]).build()?;
    let of_features = g.add("ZerosLike", &[features])?;
    g.set(0, of_gradients)?;
    g.set(1, of_features)
}

/// `EluGrad` is linear in the outputs where they are negative, else constant.
fn elu_grad_grad(g: &mut GradientContext<'_>, op: &str) -> Result<()> {
    let (grad, gradients, outputs) = (g.grad(0)?, g.input(0), g.input(1));
    let of_gradients = g.add(op, &[grad, outputs])?;
    let zero = g.number_like(outputs, 0.0)?;
    let is_negative = g.add("Less", &[outputs, zero])?;
    let product = g.times(grad, gradients)?;
    let of_outputs = g.select(is_negative, product, zero)?;
    g.set(0, of_gradients)?;
    g.set(1, of_outputs)
}

/// The derivative of the sigmoid is 1 / (e^-x + 2 + e^x).
fn softplus_grad_grad(g: &mut GradientContext<'_>) -> Result<()> {
    let (grad, gradients, x) = (g.grad(0)?, g.input(0), g.input(1));
    let of_gradients = g.add("SoftplusGrad", &[grad, x])?;
    let negative = g.negated(x)?;
    let (falling, rising) = (g.add("Exp", &[negative])?, g.add("Exp", &[x])?);
    let shifted = g.shifted(falling, 2.0)?;
    let divisor = g.plus(shifted, rising)?;
    let product = g.times(grad, gradients)?;
    let of_features = g.over(product, divisor)?;
    g.set(0, of_gradients)?;
    g.set(1, of_features)
}

/// Nanoseconds per element of a loop bound by memory.
const CHEAP: f64 = 0.3;
/// Nanoseconds per element of a loop with an exponential.
const EXPENSIVE: f64 = 2.0;

fn relu_grad<T: Widen>(_: &KernelInit<'_>) -> Result<AnyKernel>
where
    T::Wide: Clipped,
{
    AnyKernel::new(|ctx| map_with::<T>(ctx, CHEAP, relu_grad_loop))
}

fn relu6_grad<T: Widen>(_: &KernelInit<'_>) -> Result<AnyKernel>
where
    T::Wide: Clipped,
{
    AnyKernel::new(|ctx| map_with::<T>(ctx, CHEAP, relu6_grad_loop))
}

fn leaky_relu<T: Widen>(init: &KernelInit<'_>) -> Result<AnyKernel>
where
    T::Wide: Real,
{
    let alpha = T::Wide::of(f64::from(init.attrs().float("alpha")?));
    AnyKernel::new(move |ctx| map::<T>(ctx, CHEAP, |x| leaky_relu_loop(x, alpha)))
}

fn leaky_relu_grad<T: Widen>(init: &KernelInit<'_>) -> Result<AnyKernel>
where
    T::Wide: Real,
{
    let alpha = T::Wide::of(f64::from(init.attrs().float("alpha")?));
    AnyKernel::new(move |ctx| map_with::<T>(ctx, CHEAP, |g, x| leaky_relu_grad_loop(g, x, alpha)))
}

macro_rules! kernels {
    ($($name:ident: $map:ident $cost:ident $body:ident;)+) => { $(
        fn $name<T: Widen>(_: &KernelInit<'_>) -> Result<AnyKernel>
        where
            T::Wide: Real,
        {
            AnyKernel::new(|ctx| $map::<T>(ctx, $cost, $body))
        }
    )+ };
}

kernels! {
    elu: map EXPENSIVE elu_loop;
    elu_grad: map_with CHEAP elu_grad_loop;
    selu: map EXPENSIVE selu_loop;
    selu_grad: map_with CHEAP selu_grad_loop;
    softplus: map EXPENSIVE softplus_loop;
    softplus_grad: map_with EXPENSIVE softplus_grad_loop;
    softsign: map CHEAP softsign_loop;
    softsign_grad: map_with CHEAP softsign_grad_loop;
}

/// The operations of `Relu` and `Relu6` on an element type.
trait Clipped: Element + PartialOrd {
    const ZERO: Self;
    const SIX: Self;

    /// `self` times one if `is_open`, else times zero; NaN and infinity times zero are NaN.
    fn gated(self, is_open: bool) -> Self;
}

macro_rules! clipped {
    (integers $($i:ty),+; floats $($f:ty),+) => {
        $(impl Clipped for $i {
            const ZERO: $i = 0;
            const SIX: $i = 6;

            #[inline(always)]
            fn gated(self, is_open: bool) -> $i {
                if is_open { self } else { 0 }
            }
        })+
        $(impl Clipped for $f {
            const ZERO: $f = 0.0;
            const SIX: $f = 6.0;

            #[inline(always)]
            fn gated(self, is_open: bool) -> $f {
                self * if is_open { 1.0 } else { 0.0 }
            }
        })+
    };
}

clipped!(integers i8, i16, i32, i64, u8, u16, u32, u64; floats f32, f64);

/// `max(x, 0)`; NaN stays.
struct Relu;
/// `min(max(x, 0), 6)`; NaN stays.
struct Relu6;

// The output is a different slice than the input: in place, the compiler would use masked stores,
// which are slow.
impl<A: Clipped> Unary<A> for Relu {
    type Out = A;
    const NANOSECONDS: f64 = 0.15;

    #[inline(always)]
    fn apply<L: Level>(x: A) -> A {
        if x < A::ZERO { A::ZERO } else { x }
    }
}

impl<A: Clipped> Unary<A> for Relu6 {
    type Out = A;
    const NANOSECONDS: f64 = 0.15;

    #[inline(always)]
    fn apply<L: Level>(x: A) -> A {
        let low = if x < A::ZERO { A::ZERO } else { x };
        if low > A::SIX { A::SIX } else { low }
    }
}

vectorized! {
    fn relu_grad_loop<L>[A: Clipped](g: &mut [A], x: &[A]) {
        for (g, &x) in g.iter_mut().zip(x) {
            *g = g.gated(x > A::ZERO);
        }
    }
}

vectorized! {
    fn relu6_grad_loop<L>[A: Clipped](g: &mut [A], x: &[A]) {
        for (g, &x) in g.iter_mut().zip(x) {
            *g = g.gated((x > A::ZERO) & (x < A::SIX));
        }
    }
}

vectorized! {
    fn leaky_relu_loop<L>[A: Real](x: &mut [A], alpha: A) {
        for x in x {
            *x = if *x > A::zero() { *x } else { *x * alpha };
        }
    }
}

vectorized! {
    fn leaky_relu_grad_loop<L>[A: Real](g: &mut [A], x: &[A], alpha: A) {
        for (g, &x) in g.iter_mut().zip(x) {
            *g = if x > A::zero() { *g } else { *g * alpha };
        }
    }
}

vectorized! {
    fn elu_loop<L>[A: Real](x: &mut [A]) {
        for x in x {
            let below = x.exp_m1_at::<L>();
            *x = if *x < A::zero() { below } else { *x };
        }
    }
}

vectorized! {
    /// `EluGrad` in terms of the function's value.
    fn elu_grad_loop<L>[A: Real](g: &mut [A], y: &[A]) {
        for (g, &y) in g.iter_mut().zip(y) {
            *g = if y < A::zero() { (y + A::one()) * *g } else { *g };
        }
    }
}

/// The scale of self-normalizing networks, whose fixed point has mean 0 and variance 1.
const SELU_SCALE: f64 = 1.050_700_987_355_480_5;
/// The scale times the alpha of that fixed point.
const SELU_SCALE_ALPHA: f64 = 1.758_099_340_847_376_9;

vectorized! {
    fn selu_loop<L>[A: Real](x: &mut [A]) {
        let (scale, scale_alpha) = (A::of(SELU_SCALE), A::of(SELU_SCALE_ALPHA));
        for x in x {
            let below = scale_alpha * x.exp_m1_at::<L>();
            *x = if *x < A::zero() { below } else { scale * *x };
        }
    }
}

vectorized! {
    /// `SeluGrad` in terms of the function's value.
    fn selu_grad_loop<L>[A: Real](g: &mut [A], y: &[A]) {
        let (scale, scale_alpha) = (A::of(SELU_SCALE), A::of(SELU_SCALE_ALPHA));
        for (g, &y) in g.iter_mut().zip(y) {
            *g *= if y < A::zero() { y + scale_alpha } else { scale };
        }
    }
}

vectorized! {
    fn softplus_loop<L>[A: Real](x: &mut [A]) {
        // Beyond this, `ln(1 + e^x)` rounds to `x` or `e^x`.
        let threshold = -(A::epsilon().ln() + A::of(2.0));
        for x in x {
            let e = x.exp_at::<L>();
            let between = e.ln_1p_at::<L>();
            let small = if *x < -threshold { e } else { between };
            *x = if *x > threshold { *x } else { small };
        }
    }
}

vectorized! {
    fn softplus_grad_loop<L>[A: Real](g: &mut [A], x: &[A]) {
        for (g, &x) in g.iter_mut().zip(x) {
            *g = *g / ((-x).exp_at::<L>() + A::one());
        }
    }
}

vectorized! {
    fn softsign_loop<L>[A: Real](x: &mut [A]) {
        for x in x {
            *x = *x / (A::one() + x.abs());
        }
    }
}

vectorized! {
    fn softsign_grad_loop<L>[A: Real](g: &mut [A], x: &[A]) {
        for (g, &x) in g.iter_mut().zip(x) {
            let below = A::one() + x.abs();
            *g = *g / (below * below);
        }
    }
}

#[cfg(test)]
mod tests {
    use thalweg_tensor::{Code, DType, Tensor};

    use crate::testing::{call, pairs};

    #[test]
    fn shapes() {
        assert_eq!(call("Elu").shape(DType::Float, "2,?").infer(), "[2,?]");
        let grad = |a, b| call("ReluGrad").shape(DType::Float, a).shape(DType::Float, b).infer();
        assert_eq!(grad("2,?", "?,3"), "[2,3]");
        assert!(grad("2", "3").starts_with("INVALID_ARGUMENT"));
    }

    #[test]
    fn special_values() {
        const NAN: f32 = f32::NAN;
        const INF: f32 = f32::INFINITY;
        let x = [NAN, -1.0, 0.0, INF, 7.0];
        for (op, expected) in [
            ("Relu", [NAN, 0.0, 0.0, INF, 7.0]),
            ("Relu6", [NAN, 0.0, 0.0, 6.0, 6.0]),
            ("LeakyRelu", [NAN, -0.2, 0.0, INF, 7.0]),
            ("Elu", [NAN, -0.632_120_55, 0.0, INF, 7.0]),
            ("Selu", [NAN, -1.111_330_7, 0.0, INF, 7.354_907]),
            ("Softplus", [NAN, 0.313_261_7, std::f32::consts::LN_2, INF, 7.000_911_7]),
            ("Softsign", [NAN, -0.5, 0.0, NAN, 0.875]),
        ] {
            let got = call(op).input(Tensor::vector(&x).unwrap()).run().unwrap();
            assert_close(op, got.as_slice().unwrap(), &expected);
        }
        let ones = [1.0, NAN, 1.0, 1.0, 1.0];
        for (op, expected) in [
            ("ReluGrad", [0.0, NAN, 0.0, 1.0, 1.0]),
            ("Relu6Grad", [0.0, NAN, 0.0, 0.0, 0.0]),
            ("LeakyReluGrad", [0.2, NAN, 0.2, 1.0, 1.0]),
            ("EluGrad", [1.0, NAN, 1.0, 1.0, 1.0]),
            ("SoftplusGrad", [NAN, NAN, 0.5, 1.0, 0.999_089]),
        ] {
            let call = call(op).input(Tensor::vector(&ones).unwrap());
            let got = call.input(Tensor::vector(&x).unwrap()).run().unwrap();
            assert_close(op, got.as_slice().unwrap(), &expected);
        }
    }

    fn assert_close(op: &str, got: &[f32], expected: &[f32]) {
        for (&a, &b) in pairs(got, expected) {
            assert!((a - b).abs() < 1e-6 || a == b || (a.is_nan() && b.is_nan()), "{op}: {got:?}");
        }
    }

    #[test]
    fn gradients_want_equal_shapes() {
        let input = |n: usize| Tensor::vector(&vec![1.0f32; n]).unwrap();
        let error = call("EluGrad").input(input(2)).input(input(3)).run().unwrap_err();
        assert_eq!(error.code(), Code::InvalidArgument);
    }
}
