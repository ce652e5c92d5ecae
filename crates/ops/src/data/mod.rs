//! Datasets and iterators: the ops of tf.data.
//!
//! A dataset is a variant that describes how elements are computed; an `Iterate` yields them one by
//! one. Iteration never blocks a thread: an operation that must wait (a function that dequeues, a
//! buffer that another thread fills) returns `Poll::Pending` and wakes its caller later. A pipeline
//! is therefore a chain of small state machines that runs on the thread of the step that iterates;
//! only prefetch and parallel maps run on other threads, as jobs of a `Task`.

pub(crate) mod batch;
pub(crate) mod cache;
mod cache_file;
pub(crate) mod call;
pub(crate) mod combine;
pub(crate) mod csv;
pub(crate) mod dataset;
pub(crate) mod directed;
mod drive;
pub(crate) mod element;
pub(crate) mod files;
pub(crate) mod function_ops;
pub(crate) mod generator;
pub(crate) mod get_next;
pub(crate) mod grouping;
pub(crate) mod interleave;
pub(crate) mod iterator;
pub(crate) mod mapped;
pub(crate) mod multi_device;
pub(crate) mod optional;
pub(crate) mod padded;
pub(crate) mod parse_example;
pub(crate) mod passing;
pub(crate) mod prefetch;
pub(crate) mod rebatch;
pub(crate) mod records;
pub(crate) mod results;
pub(crate) mod scope;
pub(crate) mod seeds;
pub(crate) mod shuffle;
pub(crate) mod sources;
pub(crate) mod sparse_batch;
mod task;
pub(crate) mod unique;
pub(crate) mod window;
