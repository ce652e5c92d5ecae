//! Portable artifacts: StableHLO modules in the bytecode that JAX and Keras export, read and called in a
//! program here.
//!
//! `tables` and `module` read the file, `call` inlines the module's functions into the caller's program with
//! the shapes of the arguments. Nothing of the file reaches a plugin but through the text of a program.

mod attributes;
mod bytes;
mod call;
mod dims;
mod dynamic;
mod known;
mod module;
mod properties;
mod tables;

pub use call::ModuleCall;
pub use module::Module;
