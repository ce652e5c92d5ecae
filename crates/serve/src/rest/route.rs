//! Routes of TensorFlow Serving's REST interface.

use std::borrow::Cow;

use http::Method;
use thalweg_proto::google::protobuf::Int64Value;
use thalweg_proto::tensorflow::serving::{ModelSpec, model_spec::VersionChoice};
use thalweg_tensor::{Result, bail, ensure, err};

/// The operation on a model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verb {
    Predict,
    Classify,
    Regress,
    Status,
    Metadata,
}

/// `/v1/models/NAME[/versions/N|/labels/L][:predict|:classify|:regress|/metadata]`.
pub(crate) fn parse(method: &Method, path: &str) -> Result<(ModelSpec, Verb)> {
    let malformed = || err!(InvalidArgument, "Malformed request: {method} {path}");
    let rest = strip(path, "/v1/models").ok_or_else(malformed)?;
    ensure!(!(rest.is_empty() || rest == "/"), InvalidArgument, "Missing model name in request.");
    let rest = rest.strip_prefix('/').ok_or_else(malformed)?;
    let (rest, verb) = verb(method, rest).ok_or_else(malformed)?;
    let (name, choice) = match rest.split_once('/') {
        None => (rest, None),
        Some((name, choice)) => (name, Some(choice)),
    };
    let name = decoded(name).ok_or_else(malformed)?;
    ensure!(!name.is_empty() && !name.contains(':'), InvalidArgument, "{}", malformed().message());
    let version_choice = match choice {
        None => None,
        Some(choice) => Some(version(choice).ok_or_else(malformed)??),
    };
    let spec = ModelSpec { name: name.into_owned(), version_choice, ..Default::default() };
    Ok((spec, verb))
}

fn verb<'a>(method: &Method, rest: &'a str) -> Option<(&'a str, Verb)> {
    if *method == Method::POST {
        let (rest, verb) = rest.rsplit_once(':')?;
        let verbs =
            [("predict", Verb::Predict), ("classify", Verb::Classify), ("regress", Verb::Regress)];
        let (_, verb) = verbs.into_iter().find(|(name, _)| verb.eq_ignore_ascii_case(name))?;
        return Some((rest, verb));
    }
    if *method != Method::GET && *method != Method::HEAD {
        return None;
    }
    match rest.rsplit_once('/') {
        Some((rest, last)) if last.eq_ignore_ascii_case("metadata") => Some((rest, Verb::Metadata)),
        _ => Some((rest, Verb::Status)),
    }
}

fn version(choice: &str) -> Option<Result<VersionChoice>> {
    if let Some(number) = strip(choice, "versions/") {
        if number.is_empty() || !number.bytes().all(|b| b.is_ascii_digit()) {
            return None;
        }
        let value = number.parse::<i64>();
        let value = value
            .map_err(|_| err!(InvalidArgument, "Failed to convert version: {number} to numeric."));
        return Some(value.map(|value| VersionChoice::Version(Int64Value { value })));
    }
    let label = decoded(strip(choice, "labels/")?)?;
    let is_label = !label.is_empty() && !label.contains(['/', ':']);
    is_label.then(|| Ok(VersionChoice::VersionLabel(label.into_owned())))
}

/// The text after a prefix, which is compared case-insensitively.
fn strip<'a>(text: &'a str, prefix: &str) -> Option<&'a str> {
    let (head, rest) = text.split_at_checked(prefix.len())?;
    head.eq_ignore_ascii_case(prefix).then_some(rest)
}

/// Percent-decoding.
pub(super) fn decoded(text: &str) -> Option<Cow<'_, str>> {
    if !text.contains('%') {
        return Some(Cow::Borrowed(text));
    }
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let [first, tail @ ..] = rest {
        rest = tail;
        if *first != b'%' {
            bytes.push(*first);
            continue;
        }
        let [high, low, tail @ ..] = tail else { return None };
        let digit = |b: u8| char::from(b).to_digit(16);
        bytes.push((digit(*high)? * 16 + digit(*low)?) as u8);
        rest = tail;
    }
    String::from_utf8(bytes).ok().map(Cow::Owned)
}

/// The HTTP status of an error code.
pub(crate) fn http_status(code: thalweg_tensor::Code) -> http::StatusCode {
    use http::StatusCode as Http;
    use thalweg_tensor::Code;
    match code {
        Code::InvalidArgument | Code::FailedPrecondition | Code::OutOfRange => Http::BAD_REQUEST,
        Code::Unauthenticated => Http::UNAUTHORIZED,
        Code::PermissionDenied => Http::FORBIDDEN,
        Code::NotFound => Http::NOT_FOUND,
        Code::AlreadyExists | Code::Aborted => Http::CONFLICT,
        Code::ResourceExhausted => Http::TOO_MANY_REQUESTS,
        Code::Cancelled => Http::from_u16(499).unwrap_or(Http::BAD_REQUEST),
        Code::Unimplemented => Http::NOT_IMPLEMENTED,
        Code::Unavailable => Http::SERVICE_UNAVAILABLE,
        Code::DeadlineExceeded => Http::GATEWAY_TIMEOUT,
        Code::Unknown | Code::Internal | Code::DataLoss => Http::INTERNAL_SERVER_ERROR,
    }
}

/// Fails for an unknown route.
pub(crate) fn unknown<T>(method: &Method, path: &str) -> Result<T> {
    bail!(NotFound, "no route for {method} {path}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(method: &Method, path: &str) -> String {
        match parse(method, path) {
            Ok((spec, verb)) => {
                let choice = match spec.version_choice {
                    None => String::new(),
                    Some(VersionChoice::Version(v)) => format!("/{}", v.value),
                    Some(VersionChoice::VersionLabel(label)) => format!("/{label}"),
                };
                format!("{verb:?} {}{choice}", spec.name)
            }
            Err(e) => e.message().to_owned(),
        }
    }

    #[test]
    fn paths() {
        for (method, path, wanted) in [
            (Method::POST, "/v1/models/m:predict", "Predict m"),
            (Method::POST, "/V1/Models/m/Versions/12:PREDICT", "Predict m/12"),
            (Method::POST, "/v1/models/m/labels/stable:classify", "Classify m/stable"),
            (Method::POST, "/v1/models/a%20b:regress", "Regress a b"),
            (Method::GET, "/v1/models/m", "Status m"),
            (Method::GET, "/v1/models/m/versions/0", "Status m/0"),
            (Method::GET, "/v1/models/m/metadata", "Metadata m"),
            (Method::GET, "/v1/models/m/labels/x/metadata", "Metadata m/x"),
            (Method::GET, "/v1/models", "Missing model name in request."),
            (Method::GET, "/v1/models/", "Missing model name in request."),
            (
                Method::GET,
                "/v1/models/m/versions/99999999999999999999",
                "Failed to convert version: 99999999999999999999 to numeric.",
            ),
        ] {
            assert_eq!(read(&method, path), wanted, "{method} {path}");
        }
        for (method, path) in [
            (Method::GET, "/v1/models/m:predict"),
            (Method::POST, "/v1/models/m"),
            (Method::POST, "/v1/models/m:explain"),
            (Method::POST, "/v1/models/:predict"),
            (Method::POST, "/v1/models/m/versions/x:predict"),
            (Method::POST, "/v1/models/m/versions/:predict"),
            (Method::POST, "/v1/models/m/labels/:predict"),
            (Method::POST, "/v1/models/m/other/1:predict"),
            (Method::PUT, "/v1/models/m"),
            (Method::GET, "/v1/modelsx"),
            (Method::GET, "/v1/models/%zz"),
            (Method::GET, "/v1/models/%ff"),
        ] {
            let wanted = format!("Malformed request: {method} {path}");
            assert_eq!(read(&method, path), wanted);
        }
    }
}
