//! Checkpoints: named tensors in files, as TensorFlow saves and restores them.
//!
//! A checkpoint of the second format ("bundle") is a prefix: `PREFIX.index` is a sorted table of
//! names, types, shapes and places, `PREFIX.data-00000-of-00001` and so on hold the elements. Of a
//! partitioned tensor the table has one entry for the whole and one for each slice. The first format
//! ([`v1`]) is a single table that holds everything.
//!
//! [`BundleWriter`] writes under temporary names and puts the index in its place last, so that a
//! reader meets a whole checkpoint or none. [`BundleReader`] checks every checksum on its way: it
//! gives the data that was written, or an error that names the file and the byte.

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
pub use reader::{BundleReader, ReadContext, Report};
pub use slice::{Extent, Slice};
pub use state::{CheckpointState, STATE_FILE};
pub use writer::{BundleWriter, Item, WriteOptions};

use thalweg_tensor::{Error, err};

/// Runs `work(0)`, `work(1)` and so on up to a number, in any order, on as many threads as it
/// likes, and returns when all are done.
pub type Spread<'a> = &'a (dyn Fn(usize, &(dyn Fn(usize) + Sync)) + Sync);

/// Does one after the other.
pub(crate) fn one_by_one(count: usize, work: &(dyn Fn(usize) + Sync)) {
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

/// What is wrong with a file, and where.
fn damaged(path: &str, offset: u64, what: impl std::fmt::Display) -> Error {
    err!(DataLoss, "{path}: byte {offset}: {what}")
}

/// The prefix of the checkpoint that has a file of this name: that of `x/model.index` and
/// `x/model.data-00000-of-00001` is `x/model`.
pub fn prefix_of(path: &str) -> Option<&str> {
    if let Some(prefix) = path.strip_suffix(".index") {
        return Some(prefix);
    }
    let (prefix, shard) = path.rsplit_once(".data-")?;
    let (shard, shards) = shard.split_once("-of-")?;
    let is_number = |text: &str| text.len() >= 5 && text.bytes().all(|b| b.is_ascii_digit());
    (is_number(shard) && is_number(shards)).then_some(prefix)
}
