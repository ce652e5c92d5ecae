//! What element-wise ops are made of: functions of one and two elements, and the element types they
//! are registered for.

use half::{bf16, f16};
use thalweg_tensor::{
    Complex32, Complex64, Element, QInt8, QInt16, QInt32, QUInt8, QUInt16, Result, Tensor,
};

use crate::math::half_slices;
use crate::math::simd::Level;
use crate::stage::Form;

/// A loop over all elements: in, out.
pub(crate) type OwnLoop<X, Out> = fn(&[X], &mut [Out]);

/// A function of one element.
pub(crate) trait Unary<X>: 'static {
    /// What it gives.
    type Out: Element;
    /// Rough cost of one element.
    const NANOSECONDS: f64 = 0.3;
    /// Whether the loop is worth compiling for every SIMD level; false for library calls.
    const IS_SIMD: bool = true;

    /// The function; `#[inline(always)]`.
    fn apply<L: Level>(x: X) -> Self::Out;

    /// A loop that does better than one of [`Unary::apply`] would.
    const LOOP: Option<OwnLoop<X, Self::Out>> = None;

    /// Whether some elements take another way than [`Unary::apply`]; see [`Unary::rare`].
    const HAS_RARE: bool = false;

    /// What the function gives where [`Unary::apply`] is not good for `x`.
    #[inline(always)]
    fn rare(_x: X) -> Option<Self::Out> {
        None
    }

    /// Whether [`Unary::rare`] has something to say of `x`; `#[inline(always)]`, without branches.
    #[inline(always)]
    fn is_rare(_x: X) -> bool {
        false
    }
}

/// A function of two elements.
pub(crate) trait Binary<X>: 'static {
    /// What it gives.
    type Out: Element;
    /// Rough cost of one element.
    const NANOSECONDS: f64 = 0.4;
    /// Whether the loop is worth compiling for every SIMD level; false for library calls.
    const IS_SIMD: bool = true;

    /// Whether the result is the same at every SIMD level, so that a few elements need no choice.
    const IS_EXACT: bool = false;

    /// The function; `#[inline(always)]`.
    fn apply<L: Level>(x: X, y: X) -> Self::Out;

    /// Refuses right operands that the function is not defined for.
    fn check(_y: &Tensor) -> Result<()> {
        Ok(())
    }
}

/// An element type that kernels are registered for.
pub(crate) trait Operand: Element {
    /// The type that loops compute with.
    type Compute: Element;
    /// How one becomes the other.
    const FORM: Form;

    /// A loop over two whole operands that converts as it goes, if there is one.
    fn fused<Op: Binary<Self::Compute>>() -> Option<BinaryLoop> {
        None
    }
}

/// Operands and output of a loop, and how many elements each has; either operand may be a single
/// element.
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
