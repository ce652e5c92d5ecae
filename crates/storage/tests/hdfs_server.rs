//! A real HDFS, which `cargo xtask test hdfs` starts and names in `HDFS_URL`.
#![cfg(feature = "hdfs")]
#![allow(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

#[path = "support/contract.rs"]
mod contract;

use thalweg_formats::storage::Storage;
use thalweg_storage::{ByUrl, HdfsStorage};
use thalweg_tensor::Code;

fn root(name: &str) -> String {
    let url = std::env::var("HDFS_URL").expect("HDFS_URL names a name node, hdfs://host:port");
    format!("{url}/{name}-{}", std::process::id())
}

#[test]
#[ignore = "needs HDFS: cargo xtask test hdfs"]
fn hdfs_server_keeps_the_contract() {
    contract::check(HdfsStorage::new().unwrap(), &root("contract"), contract::Folders::Kept);
}

#[test]
#[ignore = "needs HDFS: cargo xtask test hdfs"]
fn hdfs_server_by_url() {
    let (storage, root) = (ByUrl::default(), root("by-url"));
    let path = format!("{root}/a/b");
    storage.write(&path, b"text").unwrap();
    assert_eq!(&storage.read(&path, 9).unwrap()[..], b"text");
    assert_eq!(storage.matching(&format!("{root}/*/b")).unwrap(), [path.as_str()]);
    // Renaming replaces, in one step.
    let other = format!("{root}/a/c");
    storage.write(&other, b"old").unwrap();
    storage.rename(&path, &other).unwrap();
    assert_eq!(&storage.read(&other, 9).unwrap()[..], b"text");
}

#[test]
#[ignore = "needs HDFS: cargo xtask test hdfs"]
fn hdfs_server_that_is_not_there() {
    let storage = HdfsStorage::new().unwrap();
    let missing = storage.open("hdfs://localhost:1/x").err().unwrap();
    assert_eq!(missing.code(), Code::Unavailable, "{missing}");
    assert!(missing.message().contains("hdfs://localhost:1/x"), "{missing}");
    let wrong = storage.open("hdfs:/x").err().unwrap();
    assert_eq!(wrong.code(), Code::InvalidArgument, "{wrong}");
}
