//! A real server: `s3s-fs`, which `cargo xtask test s3` installs and names in `S3S_FS`.
#![cfg(feature = "s3")]
#![allow(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]
#![allow(clippy::disallowed_methods, reason = "a test has threads and time of its own")]

#[path = "support/contract.rs"]
mod contract;

use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use thalweg_formats::storage::Storage;
use thalweg_storage::{Credentials, S3Settings, S3Storage};
use thalweg_tensor::Code;

struct Server {
    process: Child,
    folder: PathBuf,
    endpoint: String,
}

impl Server {
    /// A server with one bucket, `bucket`.
    fn start(name: &str) -> Server {
        let program = std::env::var("S3S_FS").expect("S3S_FS names the program s3s-fs");
        let folder = std::env::temp_dir().join(format!("thalweg-{name}-{}", std::process::id()));
        std::fs::create_dir_all(folder.join("bucket")).unwrap();
        let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let port = free.local_addr().unwrap().port();
        drop(free);
        let process = Command::new(program)
            .args(["--host", "127.0.0.1", "--port", &port.to_string()])
            .args(["--access-key", "key", "--secret-key", "secret"])
            .arg(&folder)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("s3s-fs starts");
        let begin = Instant::now();
        while std::net::TcpStream::connect(("127.0.0.1", port)).is_err() {
            assert!(begin.elapsed() < Duration::from_secs(20), "s3s-fs does not listen");
            std::thread::sleep(Duration::from_millis(20));
        }
        Server { process, folder, endpoint: format!("http://localhost:{port}") }
    }

    fn store(&self, secret: &str) -> S3Storage {
        let credentials = Credentials {
            access_key: "key".into(),
            secret_key: secret.into(),
            session_token: None,
        };
        let settings = S3Settings {
            endpoint: self.endpoint.clone(),
            region: "us-east-1".into(),
            credentials: Some(credentials),
            certificates: None,
            retries: Default::default(),
        };
        S3Storage::new(settings).unwrap()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

#[test]
#[ignore = "needs s3s-fs: cargo xtask test s3"]
fn s3s_server_keeps_the_contract() {
    let server = Server::start("contract");
    contract::check(server.store("secret"), "s3://bucket/root", contract::Folders::OfObjects);
}

#[test]
#[ignore = "needs s3s-fs: cargo xtask test s3"]
fn s3s_server_refuses_a_wrong_key() {
    let server = Server::start("keys");
    server.store("secret").write("s3://bucket/k", b"x").unwrap();
    let storage = server.store("wrong");
    for error in [
        storage.open("s3://bucket/k").err().unwrap(),
        storage.write("s3://bucket/k", b"y").unwrap_err(),
        storage.list("s3://bucket").unwrap_err(),
    ] {
        assert_eq!(error.code(), Code::PermissionDenied, "{error}");
        assert!(error.message().contains("SignatureDoesNotMatch"), "{error}");
    }
    let error = server.store("secret").list("s3://nosuch").unwrap_err();
    assert_eq!(error.code(), Code::NotFound, "{error}");
}

/// The server is killed; requests fail with UNAVAILABLE.
#[test]
#[ignore = "needs s3s-fs: cargo xtask test s3"]
fn s3s_server_that_is_killed_is_unavailable() {
    let mut server = Server::start("away");
    let storage = server.store("secret");
    storage.write("s3://bucket/k", b"x").unwrap();
    server.process.kill().unwrap();
    server.process.wait().unwrap();
    let error = storage.read("s3://bucket/k", 9).unwrap_err();
    assert_eq!(error.code(), Code::Unavailable, "{error}");
    assert!(error.message().contains("s3://bucket/k: cannot open it: cannot connect"), "{error}");
}
