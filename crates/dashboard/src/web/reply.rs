//! Replies, and the headers that all of them have.

use bytes::Bytes;
use http::header::{
    ALLOW, CACHE_CONTROL, CONTENT_DISPOSITION, CONTENT_SECURITY_POLICY, CONTENT_TYPE, ETAG,
    HeaderName, LOCATION, REFERRER_POLICY, SET_COOKIE, WWW_AUTHENTICATE, X_CONTENT_TYPE_OPTIONS,
    X_FRAME_OPTIONS,
};
use http::{HeaderValue, Response, StatusCode};
use http_body_util::Full;
use serde_json::{Value, json};
use thalweg_tensor::{Code, Error};

/// The content type of JSON.
pub(crate) const JSON: &str = "application/json";
/// The browser loads and sends nothing elsewhere and runs no script but ours.
const POLICY: &str = "default-src 'self'; base-uri 'none'; form-action 'none'; \
                      frame-ancestors 'none'; object-src 'none'";

/// A reply before it is encoded.
#[derive(Debug)]
pub(crate) struct Reply {
    pub(crate) status: StatusCode,
    kind: &'static str,
    pub(crate) body: Bytes,
    /// Further headers.
    headers: Vec<(HeaderName, String)>,
}

impl Reply {
    /// A body of this content type.
    pub(crate) fn new(kind: &'static str, body: impl Into<Bytes>) -> Reply {
        Reply { status: StatusCode::OK, kind, body: body.into(), headers: Vec::new() }
    }

    /// JSON.
    pub(crate) fn json(value: &Value) -> Reply {
        Reply::new(JSON, value.to_string())
    }

    /// An error with a sentence.
    pub(crate) fn refusal(status: StatusCode, sentence: &str) -> Reply {
        Reply { status, ..Reply::json(&json!({ "error": sentence })) }
    }

    /// An error.
    pub(crate) fn error(error: &Error) -> Reply {
        Reply::refusal(status_of(error.code()), error.message())
    }

    /// The method is not one of `allowed`.
    pub(crate) fn method_not_allowed(allowed: &str) -> Reply {
        let sentence = format!("this takes {allowed} only");
        Reply::refusal(StatusCode::METHOD_NOT_ALLOWED, &sentence).with(ALLOW, allowed)
    }

    /// A request for a token.
    pub(crate) fn unauthorized() -> Reply {
        let sentence = "a token is needed: open the URL that `thalweg dashboard` printed, or send \
                        `Authorization: Bearer TOKEN`";
        Reply::refusal(StatusCode::UNAUTHORIZED, sentence).with(WWW_AUTHENTICATE, "Bearer")
    }

    /// Sends the browser to another path with a cookie.
    pub(crate) fn redirect(to: &str, cookie: &str) -> Reply {
        let reply = Reply::new("text/plain; charset=utf-8", "");
        let reply = Reply { status: StatusCode::SEE_OTHER, ..reply };
        reply.with(LOCATION, to).with(SET_COOKIE, cookie)
    }

    /// A file that the browser saves under this name, of letters, digits, dots and hyphens.
    pub(crate) fn download(kind: &'static str, name: &str, body: impl Into<Bytes>) -> Reply {
        let disposition = format!("attachment; filename=\"{name}\"");
        Reply::new(kind, body).with(CONTENT_DISPOSITION, &disposition)
    }

    /// An asset, or nothing if the browser has this version.
    pub(crate) fn asset(
        kind: &'static str,
        body: &'static [u8],
        tag: &str,
        known: Option<&str>,
    ) -> Reply {
        let is_known = known.is_some_and(|known| known.split(',').any(|one| one.trim() == tag));
        let mut reply = Reply::new(kind, Bytes::from_static(body));
        if is_known {
            (reply.status, reply.body) = (StatusCode::NOT_MODIFIED, Bytes::new());
        }
        reply.with(ETAG, tag)
    }

    fn with(mut self, name: HeaderName, value: &str) -> Reply {
        self.headers.push((name, value.to_owned()));
        self
    }

    /// The response; one to `HEAD` has no body.
    pub(crate) fn into_response(self, is_head: bool) -> Response<Full<Bytes>> {
        let body = if is_head { Bytes::new() } else { self.body };
        let mut response = Response::new(Full::new(body));
        *response.status_mut() = self.status;
        let headers = response.headers_mut();
        for (name, value) in [
            (CONTENT_TYPE, self.kind),
            (CACHE_CONTROL, "no-cache"),
            (CONTENT_SECURITY_POLICY, POLICY),
            (X_CONTENT_TYPE_OPTIONS, "nosniff"),
            (X_FRAME_OPTIONS, "DENY"),
            (REFERRER_POLICY, "no-referrer"),
        ] {
            headers.insert(name, HeaderValue::from_static(value));
        }
        for (name, value) in self.headers {
            // A value that cannot be sent is left out: none of ours has a line break.
            if let Ok(value) = HeaderValue::from_str(&value) {
                headers.insert(name, value);
            }
        }
        response
    }
}

fn status_of(code: Code) -> StatusCode {
    match code {
        Code::InvalidArgument | Code::OutOfRange => StatusCode::BAD_REQUEST,
        Code::NotFound => StatusCode::NOT_FOUND,
        Code::PermissionDenied => StatusCode::FORBIDDEN,
        Code::Unauthenticated => StatusCode::UNAUTHORIZED,
        Code::AlreadyExists | Code::FailedPrecondition | Code::Aborted => StatusCode::CONFLICT,
        Code::ResourceExhausted => StatusCode::PAYLOAD_TOO_LARGE,
        Code::Unimplemented => StatusCode::NOT_IMPLEMENTED,
        Code::DeadlineExceeded => StatusCode::GATEWAY_TIMEOUT,
        Code::Unavailable => StatusCode::SERVICE_UNAVAILABLE,
        _ => StatusCode::INTERNAL_SERVER_ERROR,
    }
}
