//! Settings of an S3-compatible store: endpoint, credentials, retries.

use std::time::Duration;

use thalweg_tensor::{Result, ensure, err};

/// The endpoint and credentials of an S3-compatible store.
#[derive(Clone)]
pub struct S3Settings {
    /// `http://host:port` or `https://host:port`; buckets are the first component of its paths
    /// (path-style).
    pub endpoint: String,
    /// The region that requests are signed for.
    pub region: String,
    /// The credentials; without them requests are not signed.
    pub credentials: Option<Credentials>,
    /// A file with CA certificates that replace the system's.
    pub certificates: Option<String>,
    /// Limits of retries.
    pub retries: Retries,
}

/// A key and its secret.
#[derive(Clone)]
pub struct Credentials {
    /// The access key id.
    pub access_key: String,
    /// The secret access key.
    pub secret_key: String,
    /// The session token of temporary credentials.
    pub session_token: Option<String>,
}

/// Limits of retries.
#[derive(Clone, Copy, Debug)]
pub struct Retries {
    /// The maximum number of attempts.
    pub attempts_max: u32,
    /// The time within which an attempt may begin.
    pub time_max: Duration,
    /// The first retry delay; it doubles up to 5 s.
    pub pause: Duration,
    /// The inactivity timeout of an attempt.
    pub silence_max: Duration,
}

impl Default for Retries {
    fn default() -> Retries {
        Retries {
            attempts_max: 8,
            time_max: Duration::from_secs(60),
            pause: Duration::from_millis(100),
            silence_max: Duration::from_secs(20),
        }
    }
}

/// The maximum retry delay.
const PAUSE_MAX: Duration = Duration::from_secs(5);

impl Retries {
    /// The retry delay after this many failed attempts, with random jitter.
    pub(super) fn pause_after(&self, failed: u32, random: u64) -> Duration {
        let whole = self.pause.saturating_mul(1 << failed.saturating_sub(1).min(16)).min(PAUSE_MAX);
        whole / 2 + whole.mul_f64((random % 1000) as f64 / 2000.0)
    }
}

impl S3Settings {
    /// Settings from the usual environment variables: `AWS_ACCESS_KEY_ID`, `AWS_SECRET_ACCESS_KEY`,
    /// `AWS_SESSION_TOKEN`, `AWS_REGION` (or `AWS_DEFAULT_REGION`), for other stores than Amazon's
    /// `S3_ENDPOINT` or `AWS_ENDPOINT_URL_S3` or `AWS_ENDPOINT_URL`, and `AWS_CA_BUNDLE` or
    /// `SSL_CERT_FILE`.
    pub fn from_variables(variable: impl Fn(&str) -> Option<String>) -> Result<S3Settings> {
        let first = |names: &[&str]| {
            names.iter().find_map(|name| variable(name).filter(|text| !text.is_empty()))
        };
        let region = first(&["AWS_REGION", "AWS_DEFAULT_REGION", "S3_REGION"]);
        let region = region.unwrap_or_else(|| "us-east-1".to_owned());
        let endpoint = first(&["S3_ENDPOINT", "AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL"]);
        let endpoint = match endpoint {
            // TensorFlow's variable has no scheme; S3_USE_HTTPS selects it.
            Some(host) if !host.contains("://") => match first(&["S3_USE_HTTPS"]).as_deref() {
                Some("0" | "false") => ["http", "://", &host].concat(),
                _ => ["https", "://", &host].concat(),
            },
            Some(endpoint) => endpoint,
            None => ["https", "://s3.", &region, ".amazonaws.com"].concat(),
        };
        let secret_key = first(&["AWS_SECRET_ACCESS_KEY"]);
        let session_token = first(&["AWS_SESSION_TOKEN"]);
        let credentials = match (first(&["AWS_ACCESS_KEY_ID"]), secret_key) {
            (Some(access_key), Some(secret_key)) => {
                Some(Credentials { access_key, secret_key, session_token })
            }
            (None, None) => None,
            _ => Err(err!(
                InvalidArgument,
                "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY must be given together"
            ))?,
        };
        let certificates = first(&["AWS_CA_BUNDLE", "SSL_CERT_FILE"]);
        let retries = Retries::default();
        Ok(S3Settings { endpoint, region, credentials, certificates, retries })
    }
}

/// The address of an endpoint.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Endpoint {
    pub(super) is_encrypted: bool,
    pub(super) host: String,
    pub(super) port: u16,
    /// The authority in requests, without a default port.
    pub(super) authority: String,
}

impl Endpoint {
    pub(super) fn parse(text: &str) -> Result<Endpoint> {
        let wrong = || {
            err!(
                InvalidArgument,
                "'{text}' is not an endpoint; expected http://HOST:PORT or https://HOST:PORT"
            )
        };
        let (scheme, authority) = text.split_once("://").ok_or_else(wrong)?;
        let is_encrypted = match scheme {
            "http" => false,
            "https" => true,
            _ => return Err(wrong()),
        };
        let authority = authority.trim_end_matches('/');
        let default = if is_encrypted { 443 } else { 80 };
        // A colon within brackets is part of an address.
        let (host, port) = match authority.rsplit_once(':') {
            Some((host, port)) if !port.contains(']') => (host, port.parse().map_err(|_| wrong())?),
            _ => (authority, default),
        };
        let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_');
        let inner = host.strip_prefix('[').and_then(|h| h.strip_suffix(']'));
        let is_host = match inner {
            Some(address) => address.parse::<std::net::Ipv6Addr>().is_ok(),
            None => !host.is_empty() && host.chars().all(is_plain),
        };
        ensure!(is_host, InvalidArgument, "{}", wrong().message());
        let authority = if port == default { host.to_owned() } else { format!("{host}:{port}") };
        let host = inner.unwrap_or(host).to_owned();
        Ok(Endpoint { is_encrypted, host, port, authority })
    }
}

#[cfg(test)]
mod tests {
    use thalweg_tensor::Code;

    use super::*;

    fn settings(variables: &[(&str, &str)]) -> Result<S3Settings> {
        S3Settings::from_variables(|name| {
            variables.iter().find(|(n, _)| *n == name).map(|(_, value)| (*value).to_owned())
        })
    }

    #[test]
    fn variables() {
        let none = settings(&[]).unwrap();
        assert!(none.credentials.is_none());
        assert!(none.endpoint.ends_with("s3.us-east-1.amazonaws.com"));
        let all = settings(&[
            ("AWS_ACCESS_KEY_ID", "a"),
            ("AWS_SECRET_ACCESS_KEY", "b"),
            ("AWS_SESSION_TOKEN", "c"),
            ("AWS_REGION", "d"),
            ("S3_ENDPOINT", "http://h:1"),
            ("AWS_ENDPOINT_URL", "http://other"),
        ]);
        let all = all.unwrap();
        let key = all.credentials.unwrap();
        assert_eq!((&*key.access_key, &*key.secret_key), ("a", "b"));
        assert_eq!(key.session_token.as_deref(), Some("c"));
        assert_eq!((&*all.region, &*all.endpoint), ("d", "http://h:1"));
        let tensorflows = settings(&[("S3_ENDPOINT", "h:1"), ("S3_USE_HTTPS", "0")]).unwrap();
        assert_eq!(tensorflows.endpoint, "http://h:1");
        let e = settings(&[("AWS_ACCESS_KEY_ID", "a")]).err().expect("a key without a secret");
        assert_eq!(e.code(), Code::InvalidArgument, "{e}");
    }

    #[test]
    fn endpoints() {
        let parts = |text: &str| {
            Endpoint::parse(text).map(|e| (e.is_encrypted, e.host, e.port, e.authority)).ok()
        };
        let expected = |s, h: &str, p, a: &str| Some((s, h.to_owned(), p, a.to_owned()));
        assert_eq!(parts("http://h:9000/"), expected(false, "h", 9000, "h:9000"));
        assert_eq!(parts("https://h"), expected(true, "h", 443, "h"));
        assert_eq!(parts("http://[::1]:80"), expected(false, "::1", 80, "[::1]"));
        assert_eq!(parts("http://[::1]"), expected(false, "::1", 80, "[::1]"));
        for wrong in ["", "h:1", "ftp://h", "http://", "http://h:x", "http://a b", "http://h/x"] {
            assert_eq!(parts(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn retry_delays_grow_up_to_the_maximum() {
        let retries = Retries::default();
        let most = |failed| retries.pause_after(failed, 999);
        assert!(retries.pause_after(1, 0) >= retries.pause / 2);
        assert!(most(1) <= retries.pause && most(2) > most(1));
        assert!(most(40) <= PAUSE_MAX);
    }
}
