//! Error responses of a store.

use http::StatusCode;
use thalweg_tensor::{Code, Error};

use super::connections::Answer;
use super::xml::{self, Element};

/// The maximum number of bytes that are read of an error response.
const BYTES_MAX: usize = 64 << 10;
/// The maximum length of a message that is shown.
const SHOWN_MAX: usize = 500;

/// An error response.
#[derive(Debug)]
pub(super) struct ErrorResponse {
    pub(super) status: StatusCode,
    /// The store's error code, `NoSuchKey` for instance; may be empty.
    name: String,
    message: String,
    /// The bucket's region, if the request was sent to another one.
    region: String,
}

impl ErrorResponse {
    /// Reads an error response; an unreadable body is ignored.
    pub(super) async fn read(mut answer: Answer) -> ErrorResponse {
        let region = answer.header("x-amz-bucket-region").to_owned();
        let content = answer.content(BYTES_MAX).await.unwrap_or_default();
        let element = xml::parse(&content).unwrap_or_default();
        ErrorResponse { region, ..ErrorResponse::of(answer.status, &element) }
    }

    /// The error of an `Error` element.
    pub(super) fn of(status: StatusCode, element: &Element) -> ErrorResponse {
        let text = |name| {
            let text = element.text_of(name).unwrap_or_default();
            text.chars().take(SHOWN_MAX).collect::<String>()
        };
        ErrorResponse {
            status,
            name: text("Code"),
            message: text("Message"),
            region: String::new(),
        }
    }

    /// Whether a retry may succeed.
    pub(super) fn is_retryable(&self) -> bool {
        let names = ["InternalError", "RequestTimeout", "ServiceUnavailable", "SlowDown"];
        matches!(self.status.as_u16(), 408 | 429 | 500 | 502..=504)
            || names.contains(&self.name.as_str())
    }

    /// The message.
    pub(super) fn shown(&self) -> String {
        let ErrorResponse { status, name, message, .. } = self;
        let reason = status.canonical_reason().unwrap_or_default();
        let name = if name.is_empty() { reason } else { name.as_str() };
        let mut shown = format!("the store answered {} {name}", status.as_u16());
        if !message.is_empty() {
            shown += &format!(": {message}");
        }
        if !self.region.is_empty() && status.as_u16() / 100 == 3 {
            shown += &format!(" (the bucket is in {}: set AWS_REGION)", self.region);
        }
        shown
    }

    /// The error of `operation` on `url`.
    pub(super) fn error(&self, url: &str, operation: &str) -> Error {
        Error::new(self.code(), format!("{url}: cannot {operation}: {}", self.shown()))
    }

    fn code(&self) -> Code {
        match (self.status.as_u16(), self.name.as_str()) {
            (401 | 403, _) | (_, "AccessDenied" | "ExpiredToken" | "InvalidToken") => {
                Code::PermissionDenied
            }
            (404, _) | (_, "NoSuchBucket" | "NoSuchKey" | "NoSuchUpload") => Code::NotFound,
            (416, _) => Code::OutOfRange,
            (300..=399 | 405 | 409 | 412, _) => Code::FailedPrecondition,
            (400..=428 | 431, _) => Code::InvalidArgument,
            (501, _) => Code::Unimplemented,
            (507, _) => Code::ResourceExhausted,
            (429 | 500..=599, _) => Code::Unavailable,
            _ => Code::Unknown,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error_response(status: u16, body: &str) -> ErrorResponse {
        let element = xml::parse(body.as_bytes()).unwrap_or_default();
        ErrorResponse::of(StatusCode::from_u16(status).unwrap(), &element)
    }

    #[test]
    fn codes_and_sentences() {
        let body = "<Error><Code>NoSuchKey</Code><Message>It is not there.</Message></Error>";
        let error = error_response(404, body).error("s3://b/k", "open it");
        assert_eq!(
            error.to_string(),
            "NOT_FOUND: s3://b/k: cannot open it: the store answered 404 NoSuchKey: It is not there."
        );
        let code = |status| error_response(status, "").code();
        assert_eq!(code(403), Code::PermissionDenied);
        assert_eq!(code(301), Code::FailedPrecondition);
        assert_eq!(code(400), Code::InvalidArgument);
        assert_eq!(code(503), Code::Unavailable);
        let expired = "<Error><Code>ExpiredToken</Code></Error>";
        assert_eq!(error_response(400, expired).code(), Code::PermissionDenied);
        assert_eq!(error_response(503, "").shown(), "the store answered 503 Service Unavailable");
    }

    #[test]
    fn retryable_errors() {
        for status in [408, 429, 500, 502, 503, 504] {
            assert!(error_response(status, "").is_retryable(), "{status}");
        }
        for status in [301, 400, 403, 404, 412, 501] {
            assert!(!error_response(status, "").is_retryable(), "{status}");
        }
        assert!(error_response(400, "<Error><Code>RequestTimeout</Code></Error>").is_retryable());
    }
}
