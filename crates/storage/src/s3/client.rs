//! The S3 client: requests are signed, sent and retried.

use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher, Hasher};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{Method, StatusCode};
use http_body_util::Full;
use thalweg_tensor::{Code, Error, Result, ensure, err};
use tokio::time::Instant;

use super::connections::{Answer, AttemptError, Connections};
use super::error_response::ErrorResponse;
use super::settings::S3Settings;
use super::sign::{self, SignedParts};
use super::xml::{self, Element};
use crate::clock;
use crate::url::Url;

/// The maximum size of an answer other than file content: a page of a listing with 1000 names of
/// 1024 bytes, each of which may be escaped to five.
const ANSWER_BYTES_MAX: usize = 16 << 20;

/// A bucket, or a key in it.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Object {
    /// The URL that the caller gave.
    pub(super) url: String,
    pub(super) bucket: String,
    pub(super) key: String,
}

impl Object {
    pub(super) fn parse(text: &str) -> Result<Object> {
        let wrong = || err!(InvalidArgument, "{text}: expected a URL of the form s3://BUCKET/KEY");
        let url = Url::parse(text).filter(|url| url.scheme == "s3").ok_or_else(wrong)?;
        let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_' | ':');
        let bucket = url.authority;
        ensure!(
            !bucket.is_empty() && bucket.chars().all(is_plain) && bucket.chars().any(|c| c != '.'),
            InvalidArgument,
            "{}",
            wrong().message()
        );
        let key = url.path.strip_prefix('/').unwrap_or_default();
        Ok(Object { url: text.to_owned(), bucket: bucket.to_owned(), key: key.to_owned() })
    }

    /// Another key in the same bucket; errors show the caller's URL.
    pub(super) fn with_key(&self, key: String) -> Object {
        Object { key, ..self.clone() }
    }
}

/// An unsigned request.
pub(super) struct Request<'a> {
    pub(super) method: Method,
    pub(super) object: &'a Object,
    pub(super) query: Vec<(&'static str, String)>,
    pub(super) headers: Vec<(&'static str, String)>,
    pub(super) body: Bytes,
    /// Whether the request is idempotent.
    pub(super) is_repeatable: bool,
    /// The operation, for error messages of the form "cannot ...".
    pub(super) operation: &'static str,
}

impl<'a> Request<'a> {
    pub(super) fn new(method: Method, object: &'a Object, operation: &'static str) -> Request<'a> {
        let (query, headers) = (Vec::new(), Vec::new());
        let body = Bytes::new();
        Request { method, object, query, headers, body, is_repeatable: true, operation }
    }
}

/// A client of one store.
pub(super) struct Client {
    pub(super) settings: S3Settings,
    connections: Arc<Connections>,
    random: RandomState,
}

impl Client {
    pub(super) fn new(settings: S3Settings) -> Result<Client> {
        let connections = Connections::new(&settings)?;
        Ok(Client { settings, connections, random: RandomState::new() })
    }

    /// One attempt.
    async fn attempt(&self, request: &Request<'_>) -> Result<Answer, AttemptError> {
        let Object { bucket, key, .. } = request.object;
        let path = format!("/{}/{}", sign::encode(bucket, false), sign::encode(key, true));
        let path = if key.is_empty() { path.trim_end_matches('/') } else { &path };
        let query = sign::encode_query(&request.query);
        let target = if query.is_empty() { path.to_owned() } else { format!("{path}?{query}") };
        let mut built = http::Request::builder().method(&request.method).uri(target);
        for (name, value) in self.headers(request, path, &query) {
            built = built.header(name, value);
        }
        let built = built
            .body(Full::new(request.body.clone()))
            .map_err(|e| AttemptError(format!("the request cannot be built: {e}")))?;
        self.connections.send(built, request.body.len(), request.is_repeatable).await
    }

    /// All headers, including the signature.
    fn headers(&self, request: &Request<'_>, path: &str, query: &str) -> Vec<(String, String)> {
        let mut headers: Vec<(String, String)> =
            request.headers.iter().map(|(n, v)| ((*n).to_owned(), v.clone())).collect();
        headers.push(("host".into(), self.connections.authority().to_owned()));
        if let Some(credentials) = &self.settings.credentials {
            let time = sign::timestamp(clock::wall());
            let content_hash = sign::hash(&request.body);
            headers.push(("x-amz-content-sha256".into(), content_hash.clone()));
            headers.push(("x-amz-date".into(), time.clone()));
            if let Some(token) = &credentials.session_token {
                headers.push(("x-amz-security-token".into(), token.clone()));
            }
            headers.sort();
            let method = request.method.as_str();
            let (headers_to_sign, content_hash) = (&headers[..], &content_hash[..]);
            let to_sign =
                SignedParts { method, path, query, headers: headers_to_sign, content_hash };
            let region = &self.settings.region;
            let signature = sign::authorization(&to_sign, credentials, region, &time);
            headers.push(("authorization".into(), signature));
        }
        headers
    }

    /// The successful answer to a request, before its body is read.
    pub(super) async fn answer(
        &self,
        request: &Request<'_>,
        retries: &mut RetryState,
    ) -> Result<Answer> {
        loop {
            let why = match self.attempt(request).await {
                Ok(answer) if answer.status.is_success() => return Ok(answer),
                Ok(answer) => {
                    let error_response = ErrorResponse::read(answer).await;
                    if !error_response.is_retryable() {
                        return Err(error_response.error(&request.object.url, request.operation));
                    }
                    error_response.shown()
                }
                Err(attempt_error) => attempt_error.0,
            };
            self.retry_or_fail(request, retries, &why).await?;
        }
    }

    /// The successful answer to a request whose body is ignored.
    pub(super) async fn done(&self, request: &Request<'_>) -> Result<Answer> {
        let mut retries = RetryState::new();
        loop {
            let mut answer = self.answer(request, &mut retries).await?;
            match answer.content(ANSWER_BYTES_MAX).await {
                Ok(_) => return Ok(answer),
                Err(attempt_error) => {
                    self.retry_or_fail(request, &mut retries, &attempt_error.0).await?;
                }
            }
        }
    }

    /// The XML document of an answer.
    pub(super) async fn document(
        &self,
        request: &Request<'_>,
        retries: &mut RetryState,
    ) -> Result<Element> {
        loop {
            let mut answer = self.answer(request, retries).await?;
            let why = match answer.content(ANSWER_BYTES_MAX).await {
                Ok(content) => {
                    let document = xml::parse(&content).map_err(|e| {
                        let Object { url, .. } = request.object;
                        let what =
                            format!("{url}: cannot {}: the store's response", request.operation);
                        e.map_message(|message| format!("{what}: {message}"))
                    })?;
                    // A response with status 200 may hold an error.
                    if document.name != "Error" {
                        return Ok(document);
                    }
                    let error_response = ErrorResponse::of(StatusCode::OK, &document);
                    if !error_response.is_retryable() {
                        return Err(error_response.error(&request.object.url, request.operation));
                    }
                    error_response.shown()
                }
                Err(attempt_error) => attempt_error.0,
            };
            self.retry_or_fail(request, retries, &why).await?;
        }
    }

    /// Waits before the next attempt, or fails if there are no attempts left.
    pub(super) async fn retry_or_fail(
        &self,
        request: &Request<'_>,
        retries: &mut RetryState,
        why: &str,
    ) -> Result<()> {
        retries.failed += 1;
        let limits = &self.settings.retries;
        let pause = limits.pause_after(retries.failed, self.random_number());
        let elapsed = retries.begin.elapsed();
        if retries.failed >= limits.attempts_max || elapsed + pause > limits.time_max {
            return Err(retries_exhausted(request, retries.failed, elapsed, why));
        }
        tokio::time::sleep(pause).await;
        Ok(())
    }

    fn random_number(&self) -> u64 {
        let mut hasher = self.random.build_hasher();
        hasher.write_u64(clock::wall().as_nanos() as u64);
        hasher.finish()
    }
}

fn retries_exhausted(request: &Request<'_>, failed: u32, elapsed: Duration, why: &str) -> Error {
    let Object { url, .. } = request.object;
    let seconds = elapsed.as_secs_f64();
    let tried = format!("tried {failed} times in {seconds:.1} s");
    Error::new(Code::Unavailable, format!("{url}: cannot {}: {why} ({tried})", request.operation))
}

/// The number of failed attempts, and when the first began.
pub(super) struct RetryState {
    begin: Instant,
    pub(super) failed: u32,
}

impl RetryState {
    pub(super) fn new() -> RetryState {
        RetryState { begin: clock::now(), failed: 0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn objects() {
        let parts = |text: &str| Object::parse(text).map(|o| (o.bucket, o.key)).ok();
        let expected = |bucket: &str, key: &str| Some((bucket.to_owned(), key.to_owned()));
        assert_eq!(parts("s3://b/k/l"), expected("b", "k/l"));
        assert_eq!(parts("s3://b"), expected("b", ""));
        assert_eq!(parts("s3://b/"), expected("b", ""));
        assert_eq!(parts("s3://b/a b?c#d"), expected("b", "a b?c#d"));
        for wrong in ["", "b/k", "s3://", "s3:///k", "s3://a b/k", "s3://../k", "http://b/k"] {
            assert_eq!(parts(wrong), None, "{wrong}");
        }
    }
}
