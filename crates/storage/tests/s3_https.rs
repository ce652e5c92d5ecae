//! S3 over TLS.
#![cfg(feature = "https")]
#![allow(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]
#![allow(clippy::disallowed_methods, reason = "a test has threads and time of its own")]

#[allow(dead_code, reason = "this test injects no faults")]
#[path = "support/fake_s3.rs"]
mod fake_s3;

use std::sync::Arc;
use std::time::Duration;

use fake_s3::FakeS3;
use thalweg_formats::storage::Storage;
use thalweg_storage::{Credentials, Retries, S3Settings, S3Storage};
use thalweg_tensor::Code;
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};

const FOLDER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/tls");

/// Starts a TLS proxy in front of `store`; returns its port.
fn tls_proxy(runtime: &tokio::runtime::Runtime, store: &FakeS3) -> u16 {
    let file = |name: &str| format!("{FOLDER}/{name}");
    let certificate = CertificateDer::from_pem_file(file("server.pem")).unwrap();
    let key = PrivateKeyDer::from_pem_file(file("server-key.pem")).unwrap();
    let config = ServerConfig::builder().with_no_client_auth();
    let config = config.with_single_cert(vec![certificate], key).unwrap();
    let acceptor = TlsAcceptor::from(Arc::new(config));
    let listener = runtime.block_on(TcpListener::bind("127.0.0.1:0")).unwrap();
    let port = listener.local_addr().unwrap().port();
    let address = store.endpoint.strip_prefix("http://").unwrap().to_owned();
    runtime.spawn(async move {
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            let (acceptor, address) = (acceptor.clone(), address.clone());
            tokio::spawn(async move {
                // A client that does not trust the certificate disconnects.
                let Ok(mut outside) = acceptor.accept(stream).await else { return };
                let mut inside = TcpStream::connect(address).await.unwrap();
                let _ = tokio::io::copy_bidirectional(&mut outside, &mut inside).await;
            });
        }
    });
    port
}

fn store(endpoint: String, certificates: Option<String>) -> S3Storage {
    let credentials =
        Credentials { access_key: "ak".into(), secret_key: "sk".into(), session_token: None };
    let retries =
        Retries { attempts_max: 2, pause: Duration::from_millis(1), ..Retries::default() };
    let credentials = Some(credentials);
    let region = "us-east-1".to_owned();
    S3Storage::new(S3Settings { endpoint, region, credentials, certificates, retries }).unwrap()
}

#[test]
fn tls_connections_are_verified() {
    let (runtime, server) = (tokio::runtime::Runtime::new().unwrap(), FakeS3::new());
    let port = tls_proxy(&runtime, &server);
    let trusted = Some(format!("{FOLDER}/authority.pem"));
    let storage = store(format!("https://localhost:{port}"), trusted.clone());
    let content: Vec<u8> = (0..10 << 20).map(|i| (i % 251) as u8).collect();
    storage.write("s3://bucket/k", &content).unwrap();
    assert!(storage.read("s3://bucket/k", usize::MAX).unwrap() == content);
    // An unknown certificate authority, and a certificate of another host name.
    let untrusted =
        store(format!("https://localhost:{port}"), Some(format!("{FOLDER}/server.pem")));
    let misnamed = store(["https", "://127.0.0.1:", &port.to_string()].concat(), trusted);
    for storage in [untrusted, misnamed] {
        let error = storage.read("s3://bucket/k", 9).unwrap_err();
        assert_eq!(error.code(), Code::Unavailable, "{error}");
        assert!(error.message().contains("certificate"), "{error}");
    }
}
