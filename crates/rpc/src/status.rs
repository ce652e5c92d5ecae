//! Encoding and decoding of gRPC's status and timeout headers.

use std::time::Duration;

use http::{HeaderMap, HeaderValue};
use thalweg_tensor::{Code, Error, Origin, Result};

/// The canonical codes from number 1 on.
const CODES: [Code; 16] = [
    Code::Cancelled,
    Code::Unknown,
    Code::InvalidArgument,
    Code::DeadlineExceeded,
    Code::NotFound,
    Code::AlreadyExists,
    Code::PermissionDenied,
    Code::ResourceExhausted,
    Code::FailedPrecondition,
    Code::Aborted,
    Code::OutOfRange,
    Code::Unimplemented,
    Code::Internal,
    Code::Unavailable,
    Code::DataLoss,
    Code::Unauthenticated,
];

/// The result of a canonical code's number; 0 is OK. `message` is called for errors only.
pub fn check_status(number: i64, message: impl FnOnce() -> String) -> Result<()> {
    if number == 0 {
        return Ok(());
    }
    let code = usize::try_from(number - 1).ok().and_then(|i| CODES.get(i).copied());
    Err(Error::new(code.unwrap_or(Code::Unknown), message()))
}

/// The gRPC status in headers or trailers; OK if they have none.
pub(crate) fn check_headers(headers: &HeaderMap) -> Result<()> {
    let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
    let Some(number) = text("grpc-status") else { return Ok(()) };
    let number = number.parse().unwrap_or(Code::Unknown as i64);
    check_status(number, || percent_decoded(text("grpc-message").unwrap_or_default())).map_err(
        |e| {
            let [node, function, task] = ORIGIN_HEADERS.map(|name| text(name).map(percent_decoded));
            let origin = Origin { node, function, task };
            if origin == Origin::default() { e } else { e.with_shown_origin(origin) }
        },
    )
}

/// Headers of an error's origin: node, function and task.
const ORIGIN_HEADERS: [&str; 3] =
    ["thalweg-error-node", "thalweg-error-function", "thalweg-error-task"];
/// Maximum size of an origin header: together with `grpc-message` they must fit into 16 KB.
const ORIGIN_BYTES_MAX: usize = 1024;

/// Adds the fields of `origin`; one that is too long is left out.
pub(crate) fn put_origin(headers: &mut HeaderMap, origin: &Origin) {
    let fields = [&origin.node, &origin.function, &origin.task];
    for (name, field) in ORIGIN_HEADERS.into_iter().zip(fields) {
        let Some(encoded) = field.as_deref().map(percent_encoded) else { continue };
        if encoded.len() <= ORIGIN_BYTES_MAX
            && let Ok(value) = HeaderValue::from_str(&encoded)
        {
            headers.insert(name, value);
        }
    }
}

/// Maximum size of a status text; HTTP/2 peers refuse header blocks of more than some kilobytes.
const STATUS_TEXT_BYTES_MAX: usize = 4096;

/// `grpc-message`: printable ASCII except `%` as it is, every other byte as `%XX`.
pub(crate) fn percent_encoded(text: &str) -> String {
    let mut encoded = String::with_capacity(text.len());
    for &byte in text.as_bytes().iter().take(STATUS_TEXT_BYTES_MAX) {
        match byte {
            b' '..=b'~' if byte != b'%' => encoded.push(byte as char),
            _ => encoded.push_str(&format!("%{byte:02X}")),
        }
    }
    encoded
}

/// The inverse of [`percent_encoded`].
fn percent_decoded(text: &str) -> String {
    let bytes = text.as_bytes();
    let mut decoded = Vec::with_capacity(bytes.len());
    let mut i = 0;
    while let Some(&byte) = bytes.get(i) {
        let hex = bytes.get(i + 1..i + 3).and_then(|hex| std::str::from_utf8(hex).ok());
        match hex.and_then(|hex| u8::from_str_radix(hex, 16).ok()) {
            Some(value) if byte == b'%' => {
                decoded.push(value);
                i += 3;
            }
            _ => {
                decoded.push(byte);
                i += 1;
            }
        }
    }
    String::from_utf8_lossy(&decoded).into_owned()
}

/// The duration in a `grpc-timeout` header: up to eight digits and a unit.
pub fn parse_timeout(text: &str) -> Option<Duration> {
    let (number, unit) = text.split_at_checked(text.len().checked_sub(1)?)?;
    let number: u64 = number.parse().ok()?;
    Some(match unit {
        "H" => Duration::from_secs(number.checked_mul(3600)?),
        "M" => Duration::from_secs(number.checked_mul(60)?),
        "S" => Duration::from_secs(number),
        "m" => Duration::from_millis(number),
        "u" => Duration::from_micros(number),
        "n" => Duration::from_nanos(number),
        _ => return None,
    })
}

/// The value of `grpc-timeout`: at most eight digits and the finest unit that fits.
pub(crate) fn grpc_timeout(timeout: Duration) -> String {
    const DIGITS_MAX: u128 = 99_999_999;
    for (number, unit) in
        [(timeout.as_micros(), 'u'), (timeout.as_millis(), 'm'), (timeout.as_secs().into(), 'S')]
    {
        if number <= DIGITS_MAX {
            return format!("{number}{unit}");
        }
    }
    format!("{DIGITS_MAX}S")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timeouts() {
        for (text, wanted) in [
            ("100m", Some(Duration::from_millis(100))),
            ("2S", Some(Duration::from_secs(2))),
            ("1H", Some(Duration::from_secs(3600))),
            ("", None),
            ("m", None),
            ("5x", None),
            ("99999999999999999999S", None),
        ] {
            assert_eq!(parse_timeout(text), wanted, "{text}");
        }
    }

    #[test]
    fn statuses_and_timeouts_in_headers() {
        assert_eq!(percent_decoded("50 %25 %C3%A9%0A %"), "50 % \u{e9}\n %");
        assert_eq!(grpc_timeout(Duration::from_millis(2)), "2000u");
        assert_eq!(grpc_timeout(Duration::from_secs(3600)), "3600000m");
        assert_eq!(grpc_timeout(Duration::MAX), "99999999S");
        let e = check_status(14, || "gone".into()).unwrap_err();
        assert_eq!((e.code(), e.message()), (Code::Unavailable, "gone"));
        assert_eq!(check_status(99, String::new).unwrap_err().code(), Code::Unknown);
        assert!(check_status(0, String::new).is_ok());
    }
}
