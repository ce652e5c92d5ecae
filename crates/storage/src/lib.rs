//! Storage behind URLs: S3-compatible object stores and HDFS.
//!
//! [`ByUrl`] dispatches each path to the store of its scheme. Requests to stores are retried a
//! bounded number of times for a bounded time; every error names the path, the operation and the
//! store's message. The stores are the cargo features `s3` and `hdfs`; without them their URLs are
//! rejected with an error that names the feature.
#![forbid(unsafe_code)]

mod by_url;
#[cfg(any(feature = "s3", feature = "hdfs"))]
mod clock;
#[cfg(any(feature = "s3", feature = "hdfs"))]
mod driver;
#[cfg(feature = "hdfs")]
mod hdfs;
#[cfg(any(feature = "s3", feature = "hdfs"))]
mod remote_file;
#[cfg(feature = "s3")]
mod s3;
mod url;

pub use by_url::{AllowedUrls, ByUrl};
#[cfg(feature = "hdfs")]
pub use hdfs::HdfsStorage;
#[cfg(feature = "s3")]
pub use s3::{Credentials, Retries, S3Settings, S3Storage};
