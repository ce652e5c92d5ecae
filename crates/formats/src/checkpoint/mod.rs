//! Checkpoints: named tensors in files, in TensorFlow's formats.
//!
//! A V2 checkpoint ("tensor bundle") has a prefix: `PREFIX.index` is an SSTable of names, dtypes,
//! shapes and offsets, and `PREFIX.data-00000-of-00001` and so on hold the elements. A partitioned
//! tensor has one entry for the whole and one for each slice. A V1 checkpoint ([`v1`]) is a single
//! SSTable with everything.
//!
//! [`BundleWriter`] writes temporary files and renames the index last, so that a reader sees a
//! complete checkpoint or none. [`BundleReader`] verifies every checksum: it returns the data that
//! was written, or an error that names the file and the offset.

mod block;
mod digest;
mod entry;
mod merge;
pub mod object_graph;
mod objects;
mod ordered;
mod pieces;
mod reader;
mod shard;
mod slice;
mod snappy;
mod state;
mod table;
pub mod v1;
mod writer;

pub use entry::Entry;
pub use merge::{MergeOptions, merge};
pub use reader::{BundleReader, ReadContext, VerifyReport};
pub use slice::{Extent, Slice};
pub use state::{CheckpointState, STATE_FILE};
pub use writer::{BundleWriter, Item, WriteOptions};

use thalweg_tensor::{Error, err};

/// A parallel for: runs `work(0)`, `work(1)` and so on up to a count, in any order and on any
/// threads, and returns when all are done.
pub type ParallelFor<'a> = &'a (dyn Fn(usize, &(dyn Fn(usize) + Sync)) + Sync);

/// A sequential parallel for.
pub(crate) fn sequentially(count: usize, work: &(dyn Fn(usize) + Sync)) {
    (0..count).for_each(work);
}

/// The path of a checkpoint's index.
pub fn index_path(prefix: &str) -> String {
    format!("{prefix}.index")
}

/// The path of one of a checkpoint's data files.
pub fn data_path(prefix: &str, shard: u32, shards: u32) -> String {
    format!("{prefix}.data-{shard:05}-of-{shards:05}")
}

/// The error for a damaged file, with path and offset.
fn damaged(path: &str, offset: u64, what: impl std::fmt::Display) -> Error {
    err!(DataLoss, "{path}: byte {offset}: {what}")
}

/// The prefix of the checkpoint to which a file belongs: `x/model` for `x/model.index` and
/// `x/model.data-00000-of-00001`.
pub fn prefix_of(path: &str) -> Option<&str> {
    if let Some(prefix) = path.strip_suffix(".index") {
        return Some(prefix);
    }
    let (prefix, shard) = path.rsplit_once(".data-")?;
    let (shard, shards) = shard.split_once("-of-")?;
    let is_number = |text: &str| text.len() >= 5 && text.bytes().all(|b| b.is_ascii_digit());
    (is_number(shard) && is_number(shards)).then_some(prefix)
}
