//! The query of a URL.

use std::collections::BTreeMap;

use thalweg_tensor::{Result, bail, ensure, err};

/// Most parameters of a query.
const PARAMETERS_MAX: usize = 32;

/// The decoded parameters of a query.
#[derive(Debug, Default)]
pub(crate) struct Query(BTreeMap<String, String>);

impl Query {
    /// Decodes `a=1&b=x%20y`.
    pub(crate) fn parse(text: &str) -> Result<Query> {
        let mut found = BTreeMap::new();
        for pair in text.split('&').filter(|pair| !pair.is_empty()) {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            ensure!(
                found.len() < PARAMETERS_MAX,
                InvalidArgument,
                "a query has at most {PARAMETERS_MAX} parameters"
            );
            found.insert(decoded(name)?, decoded(value)?);
        }
        Ok(Query(found))
    }

    /// A parameter that must be there.
    pub(crate) fn required(&self, name: &str) -> Result<&str> {
        self.get(name).ok_or_else(|| err!(InvalidArgument, "the parameter '{name}' is missing"))
    }

    /// A parameter.
    pub(crate) fn get(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(String::as_str)
    }

    /// A number that must be there, or has a default.
    pub(crate) fn number<T: std::str::FromStr>(&self, name: &str, default: Option<T>) -> Result<T> {
        match (self.get(name), default) {
            (None, Some(default)) => Ok(default),
            _ => self
                .required(name)?
                .parse()
                .map_err(|_| err!(InvalidArgument, "the parameter '{name}' must be a number")),
        }
    }
}

/// Undoes percent-encoding.
fn decoded(text: &str) -> Result<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        bytes.push(match byte {
            b'+' => b' ',
            b'%' => match (rest.next().and_then(digit), rest.next().and_then(digit)) {
                (Some(high), Some(low)) => high << 4 | low,
                _ => bail!(InvalidArgument, "the query has a % without two hexadecimal digits"),
            },
            byte => byte,
        });
    }
    String::from_utf8(bytes).map_err(|_| err!(InvalidArgument, "the query is not UTF-8"))
}

fn digit(byte: u8) -> Option<u8> {
    char::from(byte).to_digit(16).map(|digit| digit as u8)
}

/// Text as a component of a query.
pub(crate) fn encoded(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            true => out.push(char::from(byte)),
            false => out.push_str(&format!("%{byte:02X}")),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queries_are_decoded() {
        let query = Query::parse("run=a%2Fb&tag=x+y&after=7&empty&%C3%A4=%c3%a4").unwrap();
        assert_eq!((query.required("run").unwrap(), query.get("tag")), ("a/b", Some("x y")));
        assert_eq!(query.number("after", Some(0)).unwrap(), 7);
        assert_eq!(query.number("none", Some(5)).unwrap(), 5);
        assert_eq!((query.get("empty"), query.get("ä")), (Some(""), Some("ä")));
        assert!(query.number::<u32>("run", None).is_err() && query.required("none").is_err());
        for wrong in ["a=%", "a=%4", "a=%zz", "a=%ff"] {
            assert!(Query::parse(wrong).is_err(), "{wrong}");
        }
        let many: Vec<String> = (0..40).map(|i| format!("p{i}=1")).collect();
        assert!(Query::parse(&many.join("&")).is_err());
    }

    #[test]
    fn what_is_encoded_is_decoded() {
        let text = "weights/äöü 100%&=?#\n";
        let query = Query::parse(&format!("t={}", encoded(text))).unwrap();
        assert_eq!(query.get("t"), Some(text));
    }
}
