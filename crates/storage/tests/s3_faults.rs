//! Fault injection: a store that drops connections, truncates, delays or fails its responses.
#![cfg(feature = "s3")]
#![allow(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]
#![allow(clippy::disallowed_methods, reason = "a test has threads and time of its own")]

#[path = "support/contract.rs"]
mod contract;
#[path = "support/fake_s3.rs"]
mod fake_s3;

use std::collections::HashSet;
use std::time::Duration;

use contract::Folders;
use fake_s3::{FakeS3, Fault};
use thalweg_formats::LocalStorage;
use thalweg_formats::storage::Storage;
use thalweg_storage::{Credentials, Retries, S3Settings, S3Storage};
use thalweg_tensor::Code;

fn settings(server: &FakeS3) -> S3Settings {
    let credentials =
        Credentials { access_key: "ak".into(), secret_key: "sk".into(), session_token: None };
    S3Settings {
        endpoint: server.endpoint.clone(),
        region: "us-east-1".into(),
        credentials: Some(credentials),
        certificates: None,
        retries: Retries { pause: Duration::from_millis(1), ..Retries::default() },
    }
}

fn store(server: &FakeS3) -> S3Storage {
    S3Storage::new(settings(server)).unwrap()
}

#[test]
fn keeps_the_contract() {
    let server = FakeS3::new();
    contract::check(store(&server), "s3://bucket/root", Folders::Kept);
    assert_eq!(server.state.lock().unwrap().uploads.len(), 0);
}

#[test]
fn local_files_keep_the_same_contract() {
    let root = std::env::temp_dir().join(format!("thalweg-contract-{}", std::process::id()));
    std::fs::create_dir(&root).unwrap();
    contract::check(LocalStorage { syncs: false }, root.to_str().unwrap(), Folders::Kept);
    std::fs::remove_dir_all(root).unwrap();
}

/// Every request fails once with each of these faults; retries hide it.
#[test]
fn transient_failures_are_retried() {
    for fault in [Fault::Drop, Fault::Status(503), Fault::Status(500), Fault::Truncate(5)] {
        let server = FakeS3::new();
        let mut seen = HashSet::new();
        server.fail(move |request| {
            let shown = format!(
                "{} {} {:?} {:?}",
                request.method,
                request.path,
                request.query.get("partNumber"),
                // A resumed read ends at the same offset.
                request.headers.get("range").and_then(|range| range.split('-').nth(1)),
            );
            if seen.insert(shown) { fault } else { Fault::None }
        });
        contract::check(store(&server), "s3://bucket/root", Folders::Kept);
        // If the response of CreateMultipartUpload was truncated, the client does not know the upload.
        let knows_upload = !matches!(fault, Fault::Truncate(_));
        let uploads = server.state.lock().unwrap().uploads.len();
        assert!(uploads == 0 || !knows_upload, "{fault:?}: {uploads} uploads are left");
    }
}

#[test]
fn truncated_responses_are_resumed() {
    let server = FakeS3::new();
    let storage = store(&server);
    let expected = contract::content(300_000);
    storage.write("s3://bucket/k", &expected).unwrap();
    server.requests();
    server.fail(|_| Fault::Truncate(70_000));
    assert!(storage.read("s3://bucket/k", usize::MAX).unwrap() == expected);
    // One HEAD, 256 KiB in four requests, the rest in one.
    assert_eq!(server.requests().len(), 1 + 4 + 1);
}

#[test]
fn permanent_failures_end_after_the_last_retry() {
    let server = FakeS3::new();
    let storage = store(&server);
    storage.write("s3://bucket/k", b"x").unwrap();
    server.fail(|_| Fault::Status(503));
    server.requests();
    let error = storage.read("s3://bucket/k", 9).unwrap_err();
    assert_eq!(error.code(), Code::Unavailable);
    let shown = error.to_string();
    for words in ["s3://bucket/k", "cannot open it", "503", "tried 8 times"] {
        assert!(shown.contains(words), "{shown}");
    }
    assert_eq!(server.requests().len(), 8);
    server.fail(|_| Fault::Drop);
    let error = storage.write("s3://bucket/k", b"y").unwrap_err();
    assert_eq!(error.code(), Code::Unavailable);
    assert!(error.message().contains("connection"), "{error}");
    server.fail(|_| Fault::None);
    assert_eq!(&storage.read("s3://bucket/k", 9).unwrap()[..], b"x");
}

#[test]
fn retries_end_after_the_time_limit() {
    let server = FakeS3::new();
    let mut settings = settings(&server);
    settings.retries.silence_max = Duration::from_millis(200);
    settings.retries.time_max = Duration::from_millis(500);
    let storage = S3Storage::new(settings).unwrap();
    server.fail(|_| Fault::Silence);
    let begin = std::time::Instant::now();
    let error = storage.open("s3://bucket/k").err().unwrap();
    assert_eq!(error.code(), Code::Unavailable);
    assert!(error.message().contains("no answer within 200ms"), "{error}");
    assert!(begin.elapsed() < Duration::from_secs(5), "{:?}", begin.elapsed());
}

#[test]
fn a_refused_connection_is_unavailable() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let endpoint = format!("http://{}", listener.local_addr().unwrap());
    drop(listener);
    let mut settings = settings(&FakeS3::new());
    settings.endpoint = endpoint;
    let error = S3Storage::new(settings).unwrap().open("s3://bucket/k").err().unwrap();
    assert_eq!(error.code(), Code::Unavailable);
    assert!(error.message().contains("cannot connect to 127.0.0.1"), "{error}");
}

#[test]
fn client_errors_are_not_retried() {
    let server = FakeS3::new();
    let mut wrong = settings(&server);
    wrong.credentials.as_mut().unwrap().access_key = "other".into();
    let storage = S3Storage::new(wrong).unwrap();
    let error = storage.open("s3://bucket/k").err().unwrap();
    assert_eq!(error.code(), Code::PermissionDenied);
    assert!(error.message().contains("403 InvalidAccessKeyId"), "{error}");
    assert_eq!(storage.write("s3://bucket/k", b"").unwrap_err().code(), Code::PermissionDenied);
    assert_eq!(storage.list("s3://bucket").unwrap_err().code(), Code::PermissionDenied);
    let error = store(&server).list("s3://nosuch/x").unwrap_err();
    assert_eq!(error.code(), Code::NotFound);
    assert!(error.message().contains("NoSuchBucket"), "{error}");
    assert!(server.requests().len() < 8);
}

#[test]
fn failed_uploads_are_aborted() {
    let server = FakeS3::new();
    let storage = store(&server);
    let content = contract::content(30 << 20);
    storage.write("s3://bucket/k", b"old").unwrap();
    server.fail(|request| match request.query.get("partNumber").map(String::as_str) {
        Some("2") => Fault::Status(403),
        _ => Fault::None,
    });
    let mut file = storage.replace("s3://bucket/k").unwrap();
    let written = file.write(&content).and_then(|()| file.finish());
    assert_eq!(written.unwrap_err().code(), Code::PermissionDenied);
    server.fail(|_| Fault::None);
    // Dropped before it was finished.
    let mut file = storage.replace("s3://bucket/k").unwrap();
    file.write(&content).unwrap();
    drop(file);
    assert_eq!(server.state.lock().unwrap().uploads.len(), 0);
    assert_eq!(&storage.read("s3://bucket/k", 9).unwrap()[..], b"old");
}

/// The response of CompleteMultipartUpload is lost although the upload has succeeded.
#[test]
fn a_completed_upload_with_a_lost_response_succeeds() {
    let server = FakeS3::new();
    let storage = store(&server);
    let content = contract::content(20 << 20);
    let mut is_first = true;
    server.fail(move |request| {
        let is_last = request.method == "POST" && request.query.contains_key("uploadId");
        match is_last && std::mem::take(&mut is_first) {
            true => Fault::DropAfter,
            false => Fault::None,
        }
    });
    storage.write("s3://bucket/k", &content).unwrap();
    assert!(storage.read("s3://bucket/k", usize::MAX).unwrap() == content);
}

#[test]
fn a_reader_never_mixes_two_contents() {
    let server = FakeS3::new();
    let storage = store(&server);
    storage.write("s3://bucket/k", &contract::content(1 << 20)).unwrap();
    let file = storage.open("s3://bucket/k").unwrap();
    let mut target = [0; 10];
    file.read_at(0, &mut target).unwrap();
    storage.write("s3://bucket/k", &[7; 1 << 20]).unwrap();
    let error = file.read_at(900_000, &mut target).unwrap_err();
    assert_eq!(error.code(), Code::FailedPrecondition);
    assert!(error.message().contains("replaced while it was being read"), "{error}");
}
