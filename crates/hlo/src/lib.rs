//! StableHLO programs, written as text through typed values.
//!
//! A [`Value`] is an SSA value of the program that is being built. Its methods and operators append
//! operations to the program and return their results, so a lowering reads like its formula:
//!
//! ```
//! use thalweg_hlo::{Argument, Program};
//! use thalweg_tensor::DType;
//!
//! let (program, arguments) = Program::new(&[Argument::new(DType::Float, &[2, 3])]);
//! let x = &arguments[0];
//! let softplus = x.exp().log_plus_one();
//! let text = program.finish(&[softplus.sum(&[1])]).unwrap();
//! assert!(text.contains("stablehlo.reduce"));
//! ```
//!
//! Element-wise binary operations broadcast as TensorFlow's do. Operations check dtypes and shapes;
//! the first mistake is kept and returned by [`Program::finish`], so that lowerings need no `?`.

mod artifact;
mod attention;
mod constant;
mod control;
mod element;
mod elementwise;
mod products;
mod program;
mod reduce;
mod shapes;
mod sort;
mod value;
mod window;

pub use artifact::{Module, ModuleCall};
pub use attention::Attention;
pub use control::Block;
pub use element::{dtype_of_element, element_type, is_supported};
pub use elementwise::Comparison;
pub use products::{Convolution, DotDims};
pub use program::{Argument, Program};
pub use reduce::Reduction;
pub use shapes::{GatherDims, ScatterDims};
pub use value::Value;
pub use window::Window;
