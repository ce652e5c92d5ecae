//! Typed handles on graphs, variables and sessions.
//!
//! A program builds a graph with handles that know their graph and their element type, makes a
//! session of it, and runs steps by handle:
//!
//! ```
//! use thalweg_api::{Graph, Init, Output, Result, feed};
//!
//! # fn main() -> Result<()> {
//! let g = Graph::new();
//! let x: Output<f32> = g.placeholder("x", [None, Some(3)]);
//! let w = g.variable("w", Init::ones([3, 1]));
//! let y = (x.matmul(&w) + 0.5).relu();
//!
//! let session = g.session()?; // mistakes are reported here, with their source lines
//! let y: Vec<[f32; 1]> = session.run(&y, feed! { x: [[1.0, 2.0, 3.0], [-4.0, 0.0, 1.0]] }, &[])?;
//! assert_eq!(y, [[6.5], [0.0]]);
//! # Ok(())
//! # }
//! ```
//!
//! Building returns no `Result`. A node that cannot be added (a wrong dtype or shape, a handle of
//! another graph) is a [`Mistake`] with the caller's file and line; its handle is poisoned, and nodes
//! that use it cause no further mistakes. [`Graph::session`] reports all mistakes at once.
#![allow(clippy::needless_pass_by_value, reason = "callers write shapes and fetches in place")]

#[macro_use]
mod tuples;

mod arithmetic;
#[cfg(feature = "ndarray")]
mod array;
mod control;
mod dtype;
mod feed;
mod fetch;
mod gradient;
mod graph;
mod index;
mod init;
mod initializer;
mod methods;
mod mistake;
mod node;
mod operand;
mod output;
mod prepared;
#[cfg(feature = "remote")]
mod remote;
mod session;
mod steps;
pub mod tf;
mod value;
mod variable;
mod variable_info;

pub use control::{
    Branches, Cases, Elems, LoopOptions, Outputs, case, cond, foldl, map_fn, scan, switch_case,
    while_loop,
};
pub use dtype::{Any, Ref, Resource, TensorType, Value, Variant, known_dtype};
pub use feed::{Feed, Feeds};
pub use fetch::{Fetch, Fetches};
pub use gradient::{OpGradient, Wrt, custom_gradient, gradients};
pub use graph::{Dims, Graph};
pub use index::{Index, Part as IndexPart, ellipsis, new_axis, stepped};
pub use init::Init;
pub use initializer::Initializer;
pub use mistake::{Caller, Mistake, on_behalf_of};
pub use node::{Built, NewOp};
pub use operand::{Handle, Operand};
pub use output::{Operation, Output, Target};
pub use prepared::{FeedValues, Placeholders, Step};
pub use session::{Session, session_options};
pub use steps::RunSteps;
pub use thalweg_ops::Registry;
pub use thalweg_tensor::{Code, DType, Error, PartialShape, Result, Shape, Tensor};
pub use value::{FromRows, FromTensor, IntoTensor, Nested};
pub use variable::Variable;
pub use variable_info::{NewVariable, Part, VariableInfo};
