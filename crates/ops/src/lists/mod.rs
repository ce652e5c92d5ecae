//! Tensor lists, tensor arrays and stacks.

mod array;
mod array_definitions;
mod array_gradients;
pub(crate) mod array_ops;
mod gradients;
mod handle;
pub(crate) mod items;
mod join;
mod list;
pub(crate) mod lowering;
#[cfg(test)]
mod model_tests;
pub(crate) mod rows;
pub(crate) mod stack;
pub(crate) mod values;
