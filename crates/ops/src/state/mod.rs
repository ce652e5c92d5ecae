//! Resources: lookup tables, conditional accumulators, random generators, mutexes.

mod accumulator;
pub(crate) mod handle;
mod ledger;
mod sparse_sum;
mod table;
mod table_buckets;
mod table_rows;

pub(crate) mod accumulator_ops;
pub(crate) mod generator;
pub(crate) mod mutex;
pub(crate) mod slice_assign;
pub(crate) mod table_files;
pub(crate) mod table_ops;
