//! String ops: bytes, text, regular expressions, file names.

mod encoding;
pub(crate) mod hash;
mod printf;
mod re2;
mod scripts;
pub(crate) mod text;

pub(crate) mod show;

pub(crate) mod base64;
pub(crate) mod characters;
pub(crate) mod edit_distance;
pub(crate) mod filenames;
pub(crate) mod format;
pub(crate) mod hash_bucket;
pub(crate) mod join;
pub(crate) mod ngrams;
pub(crate) mod number;
pub(crate) mod pieces;
pub(crate) mod regex;
pub(crate) mod unicode;
