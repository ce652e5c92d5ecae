//! Traits of elementwise ops: functions of one and two elements, and the element types of their
//! kernels.

use half::{bf16, f16};
use thalweg_tensor::{
    Complex32, Complex64, Element, QInt8, QInt16, QInt32, QUInt8, QUInt16, Result, Tensor,
};

use crate::math::half_slices;
use crate::math::simd::{self, Baseline, Level, Loop};
use crate::stage::Form;

/// A function of one element.
pub(crate) trait Unary<X: Element>: Sized + 'static {
    /// The result type.
    type Out: Element;
    /// Estimated cost per element.
    const NANOSECONDS: f64 = 0.3;
    /// Whether the loop is compiled for every SIMD level; false for library calls.
    const IS_SIMD: bool = true;

    /// The function; `#[inline(always)]`.
    fn apply<L: Level>(x: X) -> Self::Out;

    /// Applies the function to all elements; `out` is as long as `x`. Implementations may replace
    /// the loop over [`Unary::apply`].
    fn run(x: &[X], out: &mut [Self::Out]) {
        apply_to_all::<Self, X>(x, out);
    }
}

/// Runs a loop at the best SIMD level if `is_simd`, else at the baseline.
#[inline(always)]
pub(crate) fn start(body: impl Loop<Output = ()>, is_simd: bool) {
    if is_simd { simd::run(body) } else { body.run::<Baseline>() }
}

struct Map<'a, Op, X, Out>(&'a [X], &'a mut [Out], std::marker::PhantomData<Op>);

impl<Op: Unary<X>, X: Element> Loop for Map<'_, Op, X, Op::Out> {
    type Output = ();

    #[inline(always)]
    fn run<L: Level>(self) {
        for (out, &x) in self.1.iter_mut().zip(self.0) {
            *out = Op::apply::<L>(x);
        }
    }
}

/// A loop of [`Unary::apply`].
pub(crate) fn apply_to_all<Op: Unary<X>, X: Element>(x: &[X], out: &mut [Op::Out]) {
    start(Map::<Op, X, Op::Out>(x, out, std::marker::PhantomData), Op::IS_SIMD);
}

/// As [`apply_to_all`], but where `is_rare(x)` the result is `rare(x)`. Few arrays have such
/// elements, so a first pass tests for them; `is_rare` should have no branches and be
/// `#[inline(always)]`.
pub(crate) fn apply_but_for<Op: Unary<X>, X: Element>(
    x: &[X],
    out: &mut [Op::Out],
    is_rare: impl Fn(X) -> bool,
    rare: impl Fn(X) -> Op::Out,
) {
    apply_to_all::<Op, X>(x, out);
    if simd::run(Any(x, &is_rare)) {
        for (out, &x) in out.iter_mut().zip(x).filter(|(_, x)| is_rare(**x)) {
            *out = rare(x);
        }
    }
}

struct Any<'a, X, P>(&'a [X], &'a P);

impl<X: Element, P: Fn(X) -> bool> Loop for Any<'_, X, P> {
    type Output = bool;

    #[inline(always)]
    fn run<L: Level>(self) -> bool {
        self.0.iter().fold(false, |any, &x| any | (self.1)(x))
    }
}

/// A function of two elements.
pub(crate) trait Binary<X>: 'static {
    /// The result type.
    type Out: Element;
    /// Estimated cost per element.
    const NANOSECONDS: f64 = 0.4;
    /// Whether the loop is compiled for every SIMD level; false for library calls.
    const IS_SIMD: bool = true;

    /// Whether the result is the same at every SIMD level, so that short arrays need no dispatch.
    const IS_EXACT: bool = false;

    /// The function; `#[inline(always)]`.
    fn apply<L: Level>(x: X, y: X) -> Self::Out;

    /// Fails for right operands that the function is not defined for.
    fn check(_y: &Tensor) -> Result<()> {
        Ok(())
    }
}

/// An element type with registered kernels.
pub(crate) trait Operand: Element {
    /// The type in which loops compute.
    type Compute: Element;
    /// Conversion between the two types.
    const FORM: Form;

    /// A loop over two contiguous operands that also converts them, if there is one.
    fn fused<Op: Binary<Self::Compute>>() -> Option<BinaryLoop> {
        None
    }
}

/// Operands, output and number of elements of a loop; either operand may be a scalar.
pub(crate) type BinaryLoop = unsafe fn(*const u8, *const u8, *mut u8, usize);

impl Operand for f16 {
    type Compute = f32;
    const FORM: Form = Form::Half;

    fn fused<Op: Binary<f32>>() -> Option<BinaryLoop> {
        half_slices::zip_loop::<Op>()
    }
}

macro_rules! operands {
    ($($t:ty: $compute:ty, $form:ident;)+) => {
        $(impl Operand for $t {
            type Compute = $compute;
            const FORM: Form = Form::$form;
        })+
    };
}

operands! {
    bf16: f32, BFloat16;
    f32: f32, Plain;
    f64: f64, Plain;
    i8: i8, Plain;
    i16: i16, Plain;
    i32: i32, Plain;
    i64: i64, Plain;
    u8: u8, Plain;
    u16: u16, Plain;
    u32: u32, Plain;
    u64: u64, Plain;
    bool: bool, Plain;
    Complex32: Complex32, Plain;
    Complex64: Complex64, Plain;
    QInt8: QInt8, Plain;
    QInt16: QInt16, Plain;
    QInt32: QInt32, Plain;
    QUInt8: QUInt8, Plain;
    QUInt16: QUInt16, Plain;
}
