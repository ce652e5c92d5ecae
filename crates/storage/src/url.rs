//! URL parsing.

/// Scheme, authority and path of `scheme://authority/path`; the path begins with `/` or is empty.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Url<'a> {
    pub(crate) scheme: &'a str,
    pub(crate) authority: &'a str,
    pub(crate) path: &'a str,
}

impl<'a> Url<'a> {
    /// Parses a URL; `None` for a plain path.
    pub(crate) fn parse(text: &'a str) -> Option<Url<'a>> {
        let (scheme, rest) = text.split_once("://")?;
        let is_scheme = |c: char| c.is_ascii_alphanumeric() || matches!(c, '+' | '-' | '.');
        if scheme.is_empty() || !scheme.chars().all(is_scheme) {
            return None;
        }
        let (authority, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
        Some(Url { scheme, authority, path })
    }

    /// Whether this is `folder` itself or below it.
    pub(crate) fn is_in(&self, folder: &Url<'_>) -> bool {
        let folder_path = folder.path.trim_end_matches('/');
        let below = self.path.strip_prefix(folder_path);
        self.scheme == folder.scheme
            && (folder.authority.is_empty() || self.authority == folder.authority)
            && below.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts() {
        let url = |scheme, authority, path| Some(Url { scheme, authority, path });
        assert_eq!(Url::parse("s3://b/k/l"), url("s3", "b", "/k/l"));
        assert_eq!(Url::parse("s3://b"), url("s3", "b", ""));
        assert_eq!(Url::parse("hdfs://h:1/a"), url("hdfs", "h:1", "/a"));
        assert_eq!(Url::parse("file:///a"), url("file", "", "/a"));
        for plain in ["", "/a", "a/b", "a:/b", "://a", "a b://c"] {
            assert_eq!(Url::parse(plain), None, "{plain}");
        }
    }

    #[test]
    fn folders() {
        let is_in = |a, b| Url::parse(a).unwrap().is_in(&Url::parse(b).unwrap());
        assert!(is_in("s3://b/k", "s3://b"));
        assert!(is_in("s3://b/k", "s3://b/"));
        assert!(is_in("s3://b/k", "s3://"));
        assert!(is_in("s3://b/k/l", "s3://b/k"));
        assert!(is_in("s3://b/k", "s3://b/k"));
        assert!(!is_in("s3://b2/k", "s3://b"));
        assert!(!is_in("s3://b/k2", "s3://b/k"));
        assert!(!is_in("s3://b/", "s3://b/k"));
        assert!(!is_in("hdfs://b/k", "s3://b"));
    }
}
