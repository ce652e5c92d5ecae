//! Stores behind URLs: S3-compatible ones and HDFS.
//!
//! [`ByUrl`] sends each path to the store that its scheme names. What lies elsewhere is reached by
//! requests that are tried again a bounded number of times for a bounded time; every error names
//! the path, what was being done and what the store said. The stores are features, `s3` and `hdfs`;
//! without them their URLs are refused by name.
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
