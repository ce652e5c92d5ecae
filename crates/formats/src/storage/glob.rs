//! Glob patterns, with TensorFlow's syntax.

use thalweg_tensor::{Code, Result};

use super::{Storage, join};

/// The maximum number of names that are compared with one pattern.
const PATHS_MAX: usize = 10_000_000;

/// Paths that match, sorted.
pub(super) fn matching<S: Storage + ?Sized>(storage: &S, pattern: &str) -> Result<Vec<String>> {
    if pattern.is_empty() {
        return Ok(Vec::new());
    }
    let special = |part: &str| part.contains(['*', '?', '[', '\\']);
    let (scheme, path) = split_scheme(pattern);
    let mut parts: Vec<&str> = path.split('/').collect();
    let Some(first) = parts.iter().position(|part| special(part)) else {
        // The path has no wildcards.
        let found = storage.exists(pattern)?;
        return Ok(if found { vec![pattern.to_owned()] } else { Vec::new() });
    };
    let mut prefix = parts[..first].join("/");
    match first {
        0 if scheme.is_empty() => prefix.push('.'),
        1 if prefix.is_empty() => prefix.push('/'),
        _ => {}
    }
    while parts.last() == Some(&"") {
        parts.pop();
    }
    let mut found = vec![format!("{scheme}{prefix}")];
    for (level, part) in parts.iter().enumerate().skip(first) {
        let is_last = level + 1 == parts.len();
        let mut next = Vec::new();
        for folder in &found {
            for name in names_in(storage, folder)? {
                if !matches(part.as_bytes(), name.as_bytes()) {
                    continue;
                }
                let path = join(folder, &name);
                if is_last || storage.metadata(&path).is_ok_and(|found| found.is_folder) {
                    next.push(path);
                }
            }
            thalweg_tensor::ensure!(
                next.len() <= PATHS_MAX,
                ResourceExhausted,
                "{pattern}: more than {PATHS_MAX} paths match the pattern"
            );
        }
        found = next;
    }
    found.sort();
    Ok(found)
}

/// Names in a folder; none if it does not exist or is a file.
fn names_in<S: Storage + ?Sized>(storage: &S, folder: &str) -> Result<Vec<String>> {
    match storage.list(folder) {
        Ok(names) => Ok(names),
        Err(e) if matches!(e.code(), Code::NotFound | Code::FailedPrecondition) => Ok(Vec::new()),
        Err(e) => Err(e),
    }
}

/// The scheme and host of a URL, which are not part of the pattern, and the rest.
fn split_scheme(pattern: &str) -> (&str, &str) {
    match pattern.find("://") {
        Some(end) => pattern.split_at(end + 3),
        None => ("", pattern),
    }
}

/// Whether a name matches a pattern.
fn matches(pattern: &[u8], name: &[u8]) -> bool {
    let (mut p, mut n) = (0, 0);
    // Backtracking: if the rest does not match, the last `*` takes one character more.
    let mut retry: Option<(usize, usize)> = None;
    loop {
        if pattern.get(p) == Some(&b'*') {
            retry = Some((p + 1, n));
            p += 1;
            continue;
        }
        if p == pattern.len() && n == name.len() {
            return true;
        }
        if let Some(&byte) = name.get(n)
            && let Some(after) = matches_one(&pattern[p..], byte)
        {
            (p, n) = (p + after, n + 1);
            continue;
        }
        match retry {
            Some((after_star, from)) if from < name.len() => {
                retry = Some((after_star, from + 1));
                (p, n) = (after_star, from + 1);
            }
            _ => return false,
        }
    }
}

/// The length of the pattern's first element if it matches this byte.
fn matches_one(pattern: &[u8], byte: u8) -> Option<usize> {
    match *pattern.first()? {
        b'?' => Some(1),
        b'\\' => match pattern.get(1) {
            Some(&escaped) => (escaped == byte).then_some(2),
            None => (byte == b'\\').then_some(1),
        },
        // A `[` without `]` is an ordinary character.
        b'[' => match bracket(pattern, byte) {
            Some((length, is_in)) => is_in.then_some(length),
            None => (byte == b'[').then_some(1),
        },
        same => (same == byte).then_some(1),
    }
}

/// The length of `[...]` at the start and whether the byte is in it; `None` without a closing
/// bracket.
fn bracket(pattern: &[u8], byte: u8) -> Option<(usize, bool)> {
    let is_negated = matches!(pattern.get(1), Some(b'^' | b'!'));
    let mut i = if is_negated { 2 } else { 1 };
    let begin = i;
    let mut is_in = false;
    loop {
        let mut low = *pattern.get(i)?;
        if low == b']' && i > begin {
            return Some((i + 1, is_in != is_negated));
        }
        if low == b'\\' {
            i += 1;
            low = *pattern.get(i)?;
        }
        i += 1;
        let mut high = low;
        if pattern.get(i) == Some(&b'-') && pattern.get(i + 1).is_some_and(|&b| b != b']') {
            i += 1;
            if pattern[i] == b'\\' {
                i += 1;
            }
            high = *pattern.get(i)?;
            i += 1;
        }
        is_in |= (low..=high).contains(&byte);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_patterns() {
        for (pattern, yes, no) in [
            ("*", "a .a a.b", ""),
            ("a*b", "ab axb axbxb a*b", "a b axbx"),
            ("*a*b*", "ab xaxbx", "ba"),
            ("?", "a *", "ab"),
            ("[a-c]x", "ax cx", "dx x"),
            ("[^a-c]x", "dx ^x", "ax"),
            ("[!a]", "b !", "a"),
            ("[]a]", "] a", "b"),
            ("[a-]", "a -", "b"),
            ("[\\]]", "]", "\\ ["),
            ("[a", "[a", "a"),
            ("\\*", "*", "a \\*"),
            ("a\\", "a\\", "a"),
            ("a**b", "ab axb", "ba"),
        ] {
            let words = |list: &'static str| list.split(' ').filter(|w| !w.is_empty());
            for name in words(yes) {
                assert!(matches(pattern.as_bytes(), name.as_bytes()), "{pattern} {name}");
            }
            for name in words(no) {
                assert!(!matches(pattern.as_bytes(), name.as_bytes()), "{pattern} {name}");
            }
        }
        assert!(
            matches(b"", b"") && !matches(b"", b"a") && !matches(b"?", b"") && matches(b"**", b"")
        );
    }

    /// Patterns on which naive recursion takes exponential time.
    #[test]
    fn stars_cost_no_more_than_the_product() {
        let pattern = "a*".repeat(200) + "b";
        assert!(!matches(pattern.as_bytes(), "a".repeat(2000).as_bytes()));
    }
}
