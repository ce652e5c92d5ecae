//! Bitwise ops on integers: logic, shifts, population count.

use thalweg_graph::{OpDef, shape};
use thalweg_hlo::Value;
use thalweg_kernel::{Family, KernelSpec};
use thalweg_tensor::{DType, Element};

use crate::elementwise::{Binary, Unary, binary, unary};
use crate::math::simd::Level;

const INVERT: OpDef = OpDef::new("Invert", shape::unchanged).without_gradient();

const POPULATION_COUNT: OpDef = OpDef { name: "PopulationCount", ..INVERT };

macro_rules! integers {
    ($name:literal, $create:ident, $op:ty) => {
        cpu_kernel!($name, "T" in [i8, i16, i32, i64, u8, u16, u32, u64] => $create::<$op>)
    };
}

pub(crate) static FAMILY: Family = Family {
    ops: &[
        OpDef::new("BitwiseAnd", shape::broadcast).without_gradient(),
        OpDef::new("BitwiseOr", shape::broadcast).without_gradient(),
        OpDef::new("BitwiseXor", shape::broadcast).without_gradient(),
        OpDef::new("LeftShift", shape::broadcast).without_gradient(),
        OpDef::new("RightShift", shape::broadcast).without_gradient(),
        INVERT,
        POPULATION_COUNT,
    ],
    kernels: &[
        integers!("BitwiseAnd", binary, And),
        integers!("BitwiseOr", binary, Or),
        integers!("BitwiseXor", binary, Xor),
        integers!("LeftShift", binary, ShiftLeft),
        integers!("RightShift", binary, ShiftRight),
        integers!("Invert", unary, Invert),
        integers!("PopulationCount", unary, Count),
        KernelSpec::lowering("BitwiseAnd", |l| l.binary(Value::and)),
        KernelSpec::lowering("BitwiseOr", |l| l.binary(Value::or)),
        KernelSpec::lowering("BitwiseXor", |l| l.binary(Value::xor)),
        KernelSpec::lowering("LeftShift", |l| l.binary(|x, y| x.shift_left(&clamped_shift(y)))),
        KernelSpec::lowering("RightShift", |l| l.binary(shifted_right)),
        KernelSpec::lowering("Invert", |l| l.unary(Value::not)),
        KernelSpec::lowering("PopulationCount", |l| {
            l.unary(|x| x.population_count().convert(DType::UInt8))
        }),
    ],
};

/// A number of bits, clamped to the range from 0 to the width less one.
fn clamped_shift(y: &Value) -> Value {
    let width = (8 * y.dtype().size()) as f64;
    y.clamp(&y.scalar_like(0.0), &y.scalar_like(width - 1.0))
}

fn shifted_right(x: &Value, y: &Value) -> Value {
    let bits = clamped_shift(y);
    match x.dtype() {
        DType::UInt8 | DType::UInt16 | DType::UInt32 | DType::UInt64 => {
            x.shift_right_logical(&bits)
        }
        _ => x.shift_right_arithmetic(&bits),
    }
}

/// An integer as a bit pattern.
trait Bits: Element {
    fn and(self, other: Self) -> Self;
    fn or(self, other: Self) -> Self;
    fn xor(self, other: Self) -> Self;
    fn inverted(self) -> Self;
    fn ones(self) -> u8;
    /// Shifts left by `other`, clamped to the range from 0 to the width less one.
    fn shifted_left(self, other: Self) -> Self;
    /// As [`Bits::shifted_left`], but an arithmetic shift right.
    fn shifted_right(self, other: Self) -> Self;
}

macro_rules! bits {
    ($($t:ty),+) => { $(
        impl Bits for $t {
            #[inline(always)]
            fn and(self, other: Self) -> Self {
                self & other
            }

            #[inline(always)]
            fn or(self, other: Self) -> Self {
                self | other
            }

            #[inline(always)]
            fn xor(self, other: Self) -> Self {
                self ^ other
            }

            #[inline(always)]
            fn inverted(self) -> Self {
                !self
            }

            #[inline(always)]
            fn ones(self) -> u8 {
                self.count_ones() as u8
            }

            #[inline(always)]
            fn shifted_left(self, other: Self) -> Self {
                self << other.clamp(0, (<$t>::BITS - 1) as $t)
            }

            #[inline(always)]
            fn shifted_right(self, other: Self) -> Self {
                self >> other.clamp(0, (<$t>::BITS - 1) as $t)
            }
        }
    )+ };
}

bits!(i8, i16, i32, i64, u8, u16, u32, u64);

macro_rules! zips {
    ($($op:ident: $method:ident;)+) => { $(
        struct $op;

        impl<T: Bits> Binary<T> for $op {
            type Out = T;

            #[inline(always)]
            fn apply<L: Level>(x: T, y: T) -> T {
                x.$method(y)
            }
        }
    )+ };
}

zips! {
    And: and;
    Or: or;
    Xor: xor;
    ShiftLeft: shifted_left;
    ShiftRight: shifted_right;
}

struct Invert;

impl<T: Bits> Unary<T> for Invert {
    type Out = T;

    #[inline(always)]
    fn apply<L: Level>(x: T) -> T {
        x.inverted()
    }
}

struct Count;

impl<T: Bits> Unary<T> for Count {
    type Out = u8;

    #[inline(always)]
    fn apply<L: Level>(x: T) -> u8 {
        x.ones()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shifts_stay_within_the_width() {
        assert_eq!(1i8.shifted_left(8), -128);
        assert_eq!(1i32.shifted_left(-1), 1);
        assert_eq!(3u8.shifted_left(200), 128);
        assert_eq!((-128i8).shifted_right(100), -1);
        assert_eq!(200u8.shifted_right(100), 1);
        assert_eq!(i64::MIN.shifted_right(-5), i64::MIN);
        assert_eq!((-1i16).ones(), 16);
    }
}
