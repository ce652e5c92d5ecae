//! Operations on objects, each one or a few requests.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use http::Method;
use thalweg_tensor::{Code, Result, ensure, err};

use super::client::{Client, Object, Request, RetryState};
use super::connections::Answer;
use super::sign;
use super::xml;
use crate::remote_file::{RangeFuture, Ranges};

/// The maximum size of a single copy request; S3's own limit is five times that.
const COPY_BYTES_MAX: u64 = 1 << 30;
/// The maximum number of names of a listing.
const NAMES_MAX: usize = 10_000_000;

/// The metadata of an object.
#[derive(Clone, Debug)]
pub(super) struct Head {
    pub(super) bytes: u64,
    /// The ETag of the content.
    pub(super) tag: String,
    pub(super) modified: Duration,
}

/// A part of a multipart upload.
#[derive(Debug)]
pub(super) struct Part {
    pub(super) number: u32,
    tag: String,
}

/// The keys and folders of a listing, with their prefix.
#[derive(Default)]
pub(super) struct Listing {
    pub(super) keys: Vec<String>,
    pub(super) folders: Vec<String>,
}

impl Client {
    /// The metadata of an object; `None` if it does not exist.
    pub(super) async fn head(
        &self,
        object: &Object,
        operation: &'static str,
    ) -> Result<Option<Head>> {
        let answer = match self.done(&Request::new(Method::HEAD, object, operation)).await {
            Ok(answer) => answer,
            Err(e) if e.code() == Code::NotFound => return Ok(None),
            // A HEAD response has no body, so a GET is sent for the error.
            Err(e) if e.code() == Code::Unavailable => return Err(e),
            Err(e) => {
                let mut request = Request::new(Method::GET, object, operation);
                request.headers.push(("range", "bytes=0-0".into()));
                return Err(self.done(&request).await.err().unwrap_or(e));
            }
        };
        let bytes = answer.header("content-length").parse();
        let bytes = bytes.map_err(|_| {
            err!(DataLoss, "{}: cannot {operation}: the response has no Content-Length", object.url)
        })?;
        Ok(Some(Head { bytes, tag: answer.header("etag").to_owned(), modified: modified(&answer) }))
    }

    /// Reads `bytes` bytes from offset `begin`, if the content still has the ETag `tag`.
    pub(super) async fn range(
        &self,
        object: &Object,
        tag: &str,
        begin: u64,
        bytes: usize,
    ) -> Result<Bytes> {
        let mut content = Vec::new();
        content.try_reserve_exact(bytes).map_err(|_| {
            err!(ResourceExhausted, "{}: cannot allocate {bytes} bytes for its content", object.url)
        })?;
        let mut retries = RetryState::new();
        // A truncated response is resumed where it ended.
        while content.len() < bytes {
            let at = begin + content.len() as u64;
            let last = begin + bytes as u64 - 1;
            let mut request = Request::new(Method::GET, object, "read it");
            request.headers.push(("range", format!("bytes={at}-{last}")));
            if !tag.is_empty() {
                request.headers.push(("if-match", tag.to_owned()));
            }
            let mut answer =
                self.answer(&request, &mut retries).await.map_err(|e| changed(e, object))?;
            check_range(object, &answer, tag, at)?;
            let why = loop {
                match answer.next().await {
                    Ok(Some(data)) if data.len() > bytes - content.len() => {
                        let Object { url, .. } = object;
                        return Err(err!(
                            DataLoss,
                            "{url}: the response has more bytes than requested, at offset {at}"
                        ));
                    }
                    Ok(Some(data)) => content.extend_from_slice(&data),
                    Ok(None) => break "the response was truncated".to_owned(),
                    Err(attempt_error) => break attempt_error.0,
                }
            };
            if content.len() < bytes {
                self.retry_or_fail(&request, &mut retries, &why).await?;
            }
        }
        Ok(content.into())
    }

    pub(super) async fn put(&self, object: &Object, body: Bytes) -> Result<()> {
        let request = Request { body, ..Request::new(Method::PUT, object, "write it") };
        self.done(&request).await.map(drop)
    }

    pub(super) async fn delete(&self, object: &Object) -> Result<()> {
        self.done(&Request::new(Method::DELETE, object, "delete it")).await.map(drop)
    }

    /// Copies an object, large ones in parts.
    pub(super) async fn copy(
        self: &Arc<Self>,
        from: &Object,
        to: &Object,
        head: &Head,
    ) -> Result<()> {
        if head.bytes > COPY_BYTES_MAX {
            return self.copy_large(from, to, head).await;
        }
        let mut request = Request::new(Method::PUT, to, "copy it here");
        request.headers.push(("x-amz-copy-source", source(from)));
        self.document(&request, &mut RetryState::new()).await.map(drop)
    }

    async fn copy_large(self: &Arc<Self>, from: &Object, to: &Object, head: &Head) -> Result<()> {
        let upload = self.start_upload(to).await?;
        let copied = async {
            let parts = self.copy_parts(from, to, &upload, head.bytes).await?;
            self.complete_upload(to, &upload, &parts, head.bytes).await
        };
        let copied = copied.await;
        if copied.is_err() {
            let _ = self.abort_upload(to, &upload).await;
        }
        copied
    }

    /// Copies the first `bytes` bytes of `from` as the first parts of a multipart upload.
    pub(super) async fn copy_parts(
        self: &Arc<Self>,
        from: &Object,
        to: &Object,
        upload: &str,
        bytes: u64,
    ) -> Result<Vec<Part>> {
        // Parts of equal size: only the last may be below the minimum.
        let count = bytes.div_ceil(COPY_BYTES_MAX).max(1);
        let mut parts = Vec::new();
        for i in 0..count {
            let (begin, end) = (bytes / count * i, bytes / count * (i + 1));
            let end = if i + 1 == count { bytes } else { end };
            let number = i as u32 + 1;
            let mut request = Request::new(Method::PUT, to, "copy a part of it");
            request.query = part_query(upload, number);
            request.headers.push(("x-amz-copy-source", source(from)));
            request.headers.push(("x-amz-copy-source-range", format!("bytes={begin}-{}", end - 1)));
            let document = self.document(&request, &mut RetryState::new()).await?;
            let tag = document.text_of("ETag").unwrap_or_default().to_owned();
            parts.push(Part { number, tag });
        }
        Ok(parts)
    }

    /// Begins a multipart upload; returns its id.
    pub(super) async fn start_upload(&self, object: &Object) -> Result<String> {
        let mut request = Request::new(Method::POST, object, "start a multipart upload");
        request.query.push(("uploads", String::new()));
        let document = self.document(&request, &mut RetryState::new()).await?;
        let upload = document.text_of("UploadId").filter(|id| !id.is_empty());
        let lacks = || err!(DataLoss, "{}: the response has no UploadId", object.url);
        upload.map(str::to_owned).ok_or_else(lacks)
    }

    pub(super) async fn put_part(
        &self,
        object: &Object,
        upload: &str,
        number: u32,
        body: Bytes,
    ) -> Result<Part> {
        let mut request = Request::new(Method::PUT, object, "write a part of it");
        (request.query, request.body) = (part_query(upload, number), body);
        let answer = self.done(&request).await?;
        Ok(Part { number, tag: answer.header("etag").to_owned() })
    }

    /// Completes a multipart upload; the object then exists atomically.
    pub(super) async fn complete_upload(
        &self,
        object: &Object,
        upload: &str,
        parts: &[Part],
        bytes: u64,
    ) -> Result<()> {
        let mut body = "<CompleteMultipartUpload>".to_owned();
        for Part { number, tag } in parts {
            let tag = xml::escape(tag);
            body += &format!("<Part><PartNumber>{number}</PartNumber><ETag>{tag}</ETag></Part>");
        }
        body += "</CompleteMultipartUpload>";
        let mut request = Request::new(Method::POST, object, "finish writing it");
        request.query.push(("uploadId", upload.to_owned()));
        (request.body, request.is_repeatable) = (body.into(), false);
        let mut retries = RetryState::new();
        match self.document(&request, &mut retries).await {
            Ok(_) => Ok(()),
            // An attempt whose answer was lost may have succeeded: the upload is gone, and the
            // object is there.
            Err(e) if e.code() == Code::NotFound && retries.failed > 0 => {
                match self.head(object, "finish writing it").await? {
                    Some(head) if head.bytes == bytes => Ok(()),
                    _ => Err(e),
                }
            }
            Err(e) => Err(e),
        }
    }

    pub(super) async fn abort_upload(&self, object: &Object, upload: &str) -> Result<()> {
        let mut request = Request::new(Method::DELETE, object, "abort the multipart upload");
        request.query.push(("uploadId", upload.to_owned()));
        self.done(&request).await.map(drop)
    }

    /// All keys with the prefix of `object`.
    pub(super) async fn keys_below(&self, object: &Object) -> Result<Vec<String>> {
        Ok(self.pages(object, "", None).await?.keys)
    }

    /// Keys with the prefix of `object` up to the next `/`, all or the first few.
    pub(super) async fn list(&self, object: &Object, names_max: Option<usize>) -> Result<Listing> {
        self.pages(object, "/", names_max).await
    }

    async fn pages(
        &self,
        object: &Object,
        delimiter: &str,
        names_max: Option<usize>,
    ) -> Result<Listing> {
        let bucket = object.with_key(String::new());
        let mut listing = Listing::default();
        let mut token = None;
        loop {
            let mut request = Request::new(Method::GET, &bucket, "list it");
            request.query = vec![("list-type", "2".into()), ("prefix", object.key.clone())];
            if !delimiter.is_empty() {
                request.query.push(("delimiter", delimiter.into()));
            }
            request.query.extend(names_max.map(|max| ("max-keys", max.to_string())));
            request.query.extend(token.take().map(|token| ("continuation-token", token)));
            let document = self.document(&request, &mut RetryState::new()).await?;
            let text = |e: &xml::Element, name| e.text_of(name).unwrap_or_default().to_owned();
            listing.keys.extend(document.all("Contents").map(|e| text(e, "Key")));
            listing.folders.extend(document.all("CommonPrefixes").map(|e| text(e, "Prefix")));
            let found = listing.keys.len() + listing.folders.len();
            ensure!(
                found <= NAMES_MAX,
                ResourceExhausted,
                "{}: it has more than {NAMES_MAX} names",
                object.url
            );
            token = document.text_of("NextContinuationToken").map(str::to_owned);
            let is_last = document.text_of("IsTruncated") != Some("true") || token.is_none();
            if is_last || names_max.is_some_and(|max| found >= max) {
                return Ok(listing);
            }
        }
    }
}

fn part_query(upload: &str, number: u32) -> Vec<(&'static str, String)> {
    vec![("partNumber", number.to_string()), ("uploadId", upload.to_owned())]
}

/// The value of the copy-source header.
fn source(object: &Object) -> String {
    format!("/{}/{}", object.bucket, sign::encode(&object.key, true))
}

fn modified(answer: &Answer) -> Duration {
    let time = httpdate::parse_http_date(answer.header("last-modified")).ok();
    time.and_then(|time| time.duration_since(SystemTime::UNIX_EPOCH).ok()).unwrap_or_default()
}

/// The error for an object that changed while it was read.
fn changed(error: thalweg_tensor::Error, object: &Object) -> thalweg_tensor::Error {
    match error.code() {
        Code::FailedPrecondition => {
            err!(FailedPrecondition, "{}: it was replaced while it was being read", object.url)
        }
        _ => error,
    }
}

fn check_range(object: &Object, answer: &Answer, tag: &str, at: u64) -> Result<()> {
    let Object { url, .. } = object;
    let now = answer.header("etag");
    ensure!(
        tag.is_empty() || now.is_empty() || now == tag,
        FailedPrecondition,
        "{url}: it was replaced while it was being read"
    );
    let begins = answer.header("content-range").starts_with(&format!("bytes {at}-"));
    ensure!(
        begins || (answer.status.as_u16() == 200 && at == 0),
        DataLoss,
        "{url}: cannot read it: requested the bytes from {at} on, the store answered {} with Content-Range '{}'",
        answer.status.as_u16(),
        answer.header("content-range")
    );
    Ok(())
}

/// An object that is open for reading.
pub(super) struct ObjectSource {
    pub(super) client: Arc<Client>,
    pub(super) object: Object,
    pub(super) tag: String,
}

impl Ranges for ObjectSource {
    fn fetch(self: Arc<Self>, begin: u64, bytes: usize) -> RangeFuture {
        Box::pin(async move { self.client.range(&self.object, &self.tag, begin, bytes).await })
    }
}
