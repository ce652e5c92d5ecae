//! Strings: bytes, text, regular expressions, names.

mod printf;
pub(crate) mod text;

#[allow(dead_code, reason = "assertions and printing use the other half of it")]
pub(crate) mod show;

pub(crate) mod characters;
pub(crate) mod format;
pub(crate) mod join;
pub(crate) mod number;
pub(crate) mod pieces;
