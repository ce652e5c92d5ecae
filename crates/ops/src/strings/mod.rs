//! Strings: bytes, text, regular expressions, names.

#[allow(dead_code, reason = "the families that write strings use it")]
mod printf;
#[allow(dead_code, reason = "the families that write strings use it")]
pub(crate) mod text;

#[allow(dead_code, reason = "assertions and printing use it")]
pub(crate) mod show;
