//! Operators: `+ - * /` and unary `-` of handles, variables and Rust values.

use std::ops::{Add, Div, Mul, Neg, Sub};

use crate::dtype::TensorType;
use crate::node::NewOp;
use crate::operand::{Handle, Operand};
use crate::output::Output;
use crate::variable::Variable;

/// The op of `/`: that of real numbers, or of integers rounded toward zero, as in Rust.
fn division<T: TensorType>(of: &Output<T>) -> &'static str {
    let is_integer = T::DTYPE.or_else(|| of.dtype()).is_some_and(thalweg_tensor::DType::is_integer);
    if is_integer { "TruncateDiv" } else { "RealDiv" }
}

macro_rules! operators {
    ($($t:ty => |$x:ident| $output:expr;)+) => { $(
        operators!(@binary $t, Add, add, |_x| "AddV2");
        operators!(@binary $t, Sub, sub, |_x| "Sub");
        operators!(@binary $t, Mul, mul, |_x| "Mul");
        operators!(@binary $t, Div, div, |$x| division($output));

        impl<T: TensorType> Neg for $t {
            type Output = Output<T>;

            #[track_caller]
            fn neg(self) -> Output<T> {
                NewOp::new(Handle::view(&self), "Neg").input(self).output()
            }
        }
    )+ };
    (@binary $t:ty, $trait:ident, $method:ident, |$x:ident| $op:expr) => {
        impl<T: TensorType, R: Operand<T>> $trait<R> for $t {
            type Output = Output<T>;

            #[track_caller]
            fn $method(self, right: R) -> Output<T> {
                let $x = &self;
                NewOp::new(Handle::view(&self), $op).input(&self).input(right).output()
            }
        }
    };
}

operators! {
    Output<T> => |x| x;
    &Output<T> => |x| x;
    Variable<T> => |x| x.value();
    &Variable<T> => |x| x.value();
}

macro_rules! scalar_operators {
    ($($scalar:ty),+) => { $(
        scalar_operators!(@with $scalar, Output<$scalar>);
        scalar_operators!(@with $scalar, &Output<$scalar>);
        scalar_operators!(@with $scalar, Variable<$scalar>);
        scalar_operators!(@with $scalar, &Variable<$scalar>);
    )+ };
    (@with $scalar:ty, $t:ty) => {
        scalar_operators!(@binary $scalar, $t, Add, add, |_| "AddV2");
        scalar_operators!(@binary $scalar, $t, Sub, sub, |_| "Sub");
        scalar_operators!(@binary $scalar, $t, Mul, mul, |_| "Mul");
        scalar_operators!(@binary $scalar, $t, Div, div, division::<$scalar>);
    };
    (@binary $scalar:ty, $t:ty, $trait:ident, $method:ident, $op:expr) => {
        impl $trait<$t> for $scalar {
            type Output = Output<$scalar>;

            #[track_caller]
            fn $method(self, right: $t) -> Output<$scalar> {
                let op: fn(&Output<$scalar>) -> &'static str = $op;
                NewOp::new(right.graph(), op(&right)).input(self).input(&right).output()
            }
        }
    };
}

scalar_operators!(f32, f64, i32, i64);
