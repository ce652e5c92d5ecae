//! File ops: whole files, and readers that dequeue file names.

mod reader;
mod sources;

pub(crate) mod reader_ops;
pub(crate) mod whole;

use thalweg_kernel::KernelContext;
use thalweg_tensor::{Bytes, Result, bail};

/// The content of a file, charged to the session's budget.
pub(crate) fn read_file(ctx: &KernelContext<'_>, path: &str) -> Result<Bytes> {
    ctx.step().environment().storage.read(path, ctx.budget().left_bytes())
}

/// A path as text.
pub(crate) fn path_of(name: &Bytes) -> Result<&str> {
    match std::str::from_utf8(name) {
        Ok(path) => Ok(path),
        Err(_) => bail!(InvalidArgument, "the file name {name:?} is not UTF-8"),
    }
}
