//! Who may read the dashboard: a token, or the same machine.
//!
//! Without a token the dashboard is for this machine alone. Any web page may make a browser send requests to
//! 127.0.0.1, so such requests must name this machine in `Host` (a page whose own name resolves to 127.0.0.1,
//! DNS rebinding, cannot) and must not be marked as sent by another site.

use std::net::{IpAddr, SocketAddr};

use http::header::{AUTHORIZATION, COOKIE, HOST};
use http::request::Parts;
use http::{HeaderMap, Method, Uri};
use thalweg_tensor::{Result, ensure};

/// Shortest and longest token.
const TOKEN_BYTES: std::ops::RangeInclusive<usize> = 8..=256;

/// Checks of requests.
#[derive(Clone, Debug)]
pub(crate) struct Access {
    token: Option<String>,
    /// The name of the cookie; cookies of a host are common to its ports.
    cookie: String,
}

/// What follows from the check of a request.
#[derive(Debug, PartialEq)]
pub(crate) enum Admission {
    Granted,
    /// The URL has the token: it becomes a cookie, and the browser is sent to the URL without it.
    Redirect {
        to: String,
        cookie: String,
    },
    /// It has no token, or a wrong one.
    Unauthorized,
    /// It is not from this machine's own pages.
    Forbidden(&'static str),
}

impl Access {
    /// Checks for a server that listens on `address`; beyond this machine it must have a token.
    pub(crate) fn new(address: SocketAddr, token: Option<String>) -> Result<Access> {
        ensure!(
            token.is_some() || address.ip().is_loopback(),
            PermissionDenied,
            "a dashboard on {address} can be reached from other machines and needs a token"
        );
        if let Some(token) = &token {
            check_token(token)?;
        }
        Ok(Access { token, cookie: format!("thalweg-dashboard-{}", address.port()) })
    }

    /// Whether a request is answered.
    pub(crate) fn check(&self, request: &Parts) -> Admission {
        if request.uri.path().starts_with("/api/")
            && header(&request.headers, "sec-fetch-site") == Some("cross-site")
        {
            return Admission::Forbidden("requests of other sites are refused");
        }
        let Some(token) = &self.token else {
            return match header(&request.headers, HOST.as_str()).is_some_and(is_own_host) {
                true => Admission::Granted,
                false => Admission::Forbidden(
                    "Host must be localhost, 127.0.0.1 or [::1]; a dashboard with a token may be \
                     reached by other names",
                ),
            };
        };
        let bearer = header(&request.headers, AUTHORIZATION.as_str())
            .and_then(|value| value.split_once(' '))
            .filter(|(scheme, _)| scheme.eq_ignore_ascii_case("bearer"))
            .is_some_and(|(_, given)| is_same(given.trim(), token));
        if bearer || self.has_cookie(&request.headers, token) {
            return Admission::Granted;
        }
        let (given, to) = without_token(&request.uri);
        if request.method == Method::GET && given.is_some_and(|given| is_same(given, token)) {
            let name = &self.cookie;
            let cookie = format!("{name}={token}; Path=/; HttpOnly; SameSite=Strict");
            return Admission::Redirect { to, cookie };
        }
        Admission::Unauthorized
    }

    fn has_cookie(&self, headers: &HeaderMap, token: &str) -> bool {
        let cookies = headers.get_all(COOKIE).iter().filter_map(|value| value.to_str().ok());
        let mut pairs =
            cookies.flat_map(|value| value.split(';')).filter_map(|c| c.split_once('='));
        pairs.any(|(name, value)| name.trim() == self.cookie && is_same(value.trim(), token))
    }
}

/// Checks that a token fits into a URL and a cookie as it is.
pub(crate) fn check_token(token: &str) -> Result<()> {
    ensure!(
        TOKEN_BYTES.contains(&token.len()),
        InvalidArgument,
        "a token has {} to {} characters, not {}",
        TOKEN_BYTES.start(),
        TOKEN_BYTES.end(),
        token.len()
    );
    ensure!(
        token.bytes().all(|b| b.is_ascii_alphanumeric() || b"-._~".contains(&b)),
        InvalidArgument,
        "a token consists of letters, digits and -._~"
    );
    Ok(())
}

fn header<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    headers.get(name)?.to_str().ok()
}

/// Compares in a time that depends only on the lengths.
fn is_same(given: &str, token: &str) -> bool {
    let differences = given.bytes().zip(token.bytes()).fold(0, |all, (a, b)| all | (a ^ b));
    given.len() == token.len() && std::hint::black_box(differences) == 0
}

/// Whether a `Host` names this machine by a name that no foreign domain can have.
fn is_own_host(host: &str) -> bool {
    let name = match host.strip_prefix('[') {
        Some(rest) => match rest.split_once(']') {
            Some((address, port)) if port.is_empty() || port.starts_with(':') => address,
            _ => return false,
        },
        None => host.split(':').next().unwrap_or(host),
    };
    name.eq_ignore_ascii_case("localhost")
        || name.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
}

/// The token of a URL's query, and path and query without it.
fn without_token(uri: &Uri) -> (Option<&str>, String) {
    let (mut token, mut kept) = (None, Vec::new());
    for pair in uri.query().unwrap_or_default().split('&').filter(|pair| !pair.is_empty()) {
        match pair.strip_prefix("token=") {
            Some(given) => token = Some(given),
            None => kept.push(pair),
        }
    }
    // Two slashes at the beginning would name another host.
    let path = format!("/{}", uri.path().trim_start_matches('/'));
    let to = if kept.is_empty() { path } else { format!("{path}?{}", kept.join("&")) };
    (token, to)
}

#[cfg(test)]
mod tests {
    use http::Request;

    use super::*;

    const TOKEN: &str = "0123456789abcdef";

    fn access(address: &str, token: Option<&str>) -> Access {
        Access::new(address.parse().unwrap(), token.map(str::to_owned)).unwrap()
    }

    fn check(access: &Access, uri: &str, headers: &[(&str, &str)]) -> Admission {
        let mut request = Request::builder().uri(uri);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        access.check(&request.body(()).unwrap().into_parts().0)
    }

    #[test]
    fn other_machines_need_a_token() {
        let open = |token: Option<&str>| {
            Access::new("0.0.0.0:6007".parse().unwrap(), token.map(str::to_owned)).map(|_| ())
        };
        assert!(open(None).unwrap_err().message().contains("needs a token"));
        assert!(open(Some("short")).unwrap_err().message().contains("8 to 256 characters, not 5"));
        assert!(open(Some("0123456789 ;")).unwrap_err().message().contains("letters, digits"));
        open(Some(TOKEN)).unwrap();
    }

    #[test]
    fn tokens_come_by_url_cookie_or_header() {
        let access = access("0.0.0.0:6007", Some(TOKEN));
        let granted = |uri: &str, headers: &[(&str, &str)]| {
            check(&access, uri, headers) == Admission::Granted
        };
        assert!(!granted("/", &[("host", "localhost")]));
        assert!(granted("/", &[("authorization", "Bearer 0123456789abcdef")]));
        assert!(!granted("/", &[("authorization", "Bearer 0123456789abcdeg")]));
        assert!(!granted("/", &[("authorization", "Basic 0123456789abcdef")]));
        assert!(granted("/", &[("cookie", "a=b; thalweg-dashboard-6007=0123456789abcdef")]));
        assert!(!granted("/", &[("cookie", "thalweg-dashboard-6008=0123456789abcdef")]));
        assert!(!granted("/?token=0123456789abcde", &[]));
        let redirect = check(&access, "//evil/x?a=1&token=0123456789abcdef&b=2", &[]);
        let cookie =
            "thalweg-dashboard-6007=0123456789abcdef; Path=/; HttpOnly; SameSite=Strict".to_owned();
        assert_eq!(redirect, Admission::Redirect { to: "/evil/x?a=1&b=2".into(), cookie });
    }

    #[test]
    fn without_a_token_the_host_is_this_machine() {
        let access = access("127.0.0.1:6007", None);
        let granted =
            |headers: &[(&str, &str)]| check(&access, "/api/state", headers) == Admission::Granted;
        for host in ["localhost", "LOCALHOST:1", "127.0.0.1:6007", "127.1.2.3", "[::1]", "[::1]:80"]
        {
            assert!(granted(&[("host", host)]), "{host}");
        }
        for host in ["evil.example", "127.0.0.1.evil.example", "localhost.evil", "10.0.0.1", "[::1"]
        {
            assert!(!granted(&[("host", host)]), "{host}");
        }
        assert!(!granted(&[]));
        assert!(!granted(&[("host", "localhost"), ("sec-fetch-site", "cross-site")]));
        assert!(granted(&[("host", "localhost"), ("sec-fetch-site", "same-origin")]));
    }
}
