//! A function for every op that steps can run, and a builder for each op with optional attrs.
//!
//! The functions have TensorFlow's names in Rust's spelling. Element types that inputs determine are
//! inferred; those of outputs alone come first among the generics: `tf::cast::<i32, _>(&x)`.
//! Operands are handles, and Rust values except for the one that says which graph it is. Ops whose
//! first input is a list, or that have none, take the graph.
//!
//! ```
//! use thalweg_api::{Graph, tf};
//! # fn main() -> thalweg_api::Result<()> {
//! let g = Graph::new();
//! let x = g.constant([[1.0f32, 2.0], [3.0, 4.0]]);
//! let product = tf::MatMul::new().transpose_b(true).build(&x, [[1.0, 0.0]]);
//! let (values, _) = tf::top_k_v2::<i32, _, _>(&tf::reshape(&product, [-1]), 1);
//! assert_eq!(g.session()?.run::<_, Vec<f32>>(&values, (), &[])?, [3.0]);
//! # Ok(())
//! # }
//! ```
#![allow(clippy::too_many_arguments, clippy::type_complexity, reason = "ops have many inputs")]

#[macro_use]
mod support;

mod a;
mod b;
mod c;
mod d;
mod e_to_h;
mod i_to_l;
mod m;
mod n_to_q;
mod r;
mod s;
mod t_to_z;

pub use a::*;
pub use b::*;
pub use c::*;
pub use d::*;
pub use e_to_h::*;
pub use i_to_l::*;
pub use m::*;
pub use n_to_q::*;
pub use r::*;
pub use s::*;
pub use support::Function;
pub use t_to_z::*;
