//! Rust source as tidy sees it: code apart from comments, strings and tests.
//!
//! Not a parser. It knows comments, strings, raw strings and characters, which is enough to tell
//! a word in code from the same word in a sentence, and to count braces.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use crate::run;

/// A file of the repository.
pub(crate) struct File {
    /// From the root, with `/` between folders.
    pub(crate) path: String,
    pub(crate) text: String,
}

impl File {
    pub(crate) fn is_rust(&self) -> bool {
        self.path.ends_with(".rs")
    }

    /// Whether `cargo xtask api` wrote it.
    pub(crate) fn is_generated(&self) -> bool {
        self.text.lines().next().is_some_and(|line| line.contains("Made by `cargo xtask api`"))
    }

    /// Whether it is code that only tests run, by where it lies.
    pub(crate) fn is_test(&self) -> bool {
        let is_test =
            |part: &str| part == "tests" || part.trim_end_matches(".rs").ends_with("_tests");
        self.path.split('/').any(is_test)
    }
}

/// Every text file that git tracks or would track, sorted by path.
pub(crate) fn files() -> Result<Vec<File>> {
    let list = ["ls-files", "--cached", "--others", "--exclude-standard", "-z"];
    let names = run::output(&mut run::command("git", &list))?;
    let mut paths: Vec<&str> = names.split('\0').filter(|n| !n.is_empty()).collect();
    paths.sort_unstable();
    paths.dedup();
    let mut files = Vec::with_capacity(paths.len());
    for path in paths {
        let full: PathBuf = run::root().join(path);
        // Deleted but not yet committed, or a folder of another repository.
        if !full.is_file() {
            continue;
        }
        let bytes = std::fs::read(&full).with_context(|| format!("cannot read {path}"))?;
        if let Ok(text) = String::from_utf8(bytes) {
            files.push(File { path: path.to_owned(), text });
        }
    }
    Ok(files)
}

/// A source with comments and the insides of strings blanked out, line for line.
pub(crate) struct Code {
    pub(crate) text: String,
    /// Line (from 1) and contents of every string literal, without escapes resolved.
    pub(crate) strings: Vec<(usize, String)>,
}

/// Takes a source apart.
pub(crate) fn code(source: &str) -> Code {
    let mut lexer =
        Lexer { rest: source, line: 1, code: String::with_capacity(source.len()), strings: vec![] };
    while !lexer.rest.is_empty() {
        lexer.step();
    }
    Code { text: lexer.code, strings: lexer.strings }
}

struct Lexer<'a> {
    rest: &'a str,
    line: usize,
    code: String,
    strings: Vec<(usize, String)>,
}

impl Lexer<'_> {
    fn step(&mut self) {
        if self.rest.starts_with("//") {
            let end = self.rest.find('\n').unwrap_or(self.rest.len());
            self.blank(end);
        } else if self.rest.starts_with("/*") {
            self.block_comment();
        } else if let Some(length) = raw_string(self.rest) {
            self.string(length);
        } else if self.rest.starts_with('"') {
            self.string(quoted_end(self.rest, '"'));
        } else if self.rest.starts_with('\'') {
            self.character();
        } else {
            let word = self.rest.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(0);
            self.keep(word.max(self.rest.chars().next().map_or(1, char::len_utf8)));
        }
    }

    fn keep(&mut self, bytes: usize) {
        let (kept, rest) = self.rest.split_at(bytes.min(self.rest.len()));
        self.line += kept.matches('\n').count();
        self.code.push_str(kept);
        self.rest = rest;
    }

    /// Drops text but for its line breaks.
    fn blank(&mut self, bytes: usize) {
        let (dropped, rest) = self.rest.split_at(bytes.min(self.rest.len()));
        let breaks = dropped.matches('\n').count();
        self.line += breaks;
        self.code.extend(std::iter::repeat_n('\n', breaks));
        self.rest = rest;
    }

    fn block_comment(&mut self) {
        let (mut depth, mut at) = (0usize, 0);
        while at < self.rest.len() {
            let here = &self.rest[at..];
            let (change, width) = match here {
                _ if here.starts_with("/*") => (1, 2),
                _ if here.starts_with("*/") => (-1, 2),
                _ => (0, here.chars().next().map_or(1, char::len_utf8)),
            };
            depth = depth.saturating_add_signed(change);
            at += width;
            if depth == 0 {
                break;
            }
        }
        self.blank(at);
    }

    fn string(&mut self, length: usize) {
        let literal = &self.rest[..length.min(self.rest.len())];
        let inside = literal.trim_start_matches(['r', 'b', 'c', '#']).trim_end_matches('#');
        let inside = inside.trim_start_matches('"').trim_end_matches('"');
        self.strings.push((self.line, inside.to_owned()));
        self.code.push_str("\"\"");
        self.blank(length);
    }

    /// A character, or the quote that begins a lifetime.
    fn character(&mut self) {
        let mut next = self.rest[1..].chars();
        match (next.next(), next.next()) {
            (Some('\\'), _) => {
                let end = quoted_end(self.rest, '\'');
                self.blank(end);
            }
            (Some(c), Some('\'')) => self.blank(2 + c.len_utf8()),
            _ => self.keep(1),
        }
    }
}

/// Length of the raw string (or byte, or C string) that begins here.
fn raw_string(text: &str) -> Option<usize> {
    let prefix = ["br", "cr", "r"].iter().find(|p| text.starts_with(**p))?.len();
    let hashes = text[prefix..].bytes().take_while(|&b| b == b'#').count();
    if !text[prefix + hashes..].starts_with('"') {
        return None;
    }
    let end = format!("\"{}", "#".repeat(hashes));
    let start = prefix + hashes + 1;
    Some(text[start..].find(&end).map_or(text.len(), |at| start + at + end.len()))
}

/// Length of the quoted literal at the start of `text`, escapes respected.
fn quoted_end(text: &str, quote: char) -> usize {
    let mut escaped = false;
    for (i, c) in text.char_indices().skip(1) {
        match c {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            c if c == quote => return i + 1,
            _ => {}
        }
    }
    text.len()
}

/// Number of lines before the tests at the end of a file.
pub(crate) fn lines_without_tests(text: &str) -> usize {
    let tests = text.find("\n#[cfg(test)]\nmod ").map_or(text.len(), |at| at + 1);
    text[..tests].lines().count()
}

/// The part of a source before its tests.
pub(crate) fn without_tests(text: &str) -> &str {
    &text[..text.find("\n#[cfg(test)]\nmod ").map_or(text.len(), |at| at + 1)]
}

/// The crate a path belongs to: `ops` for `crates/ops/src/cast.rs`.
pub(crate) fn crate_of(path: &str) -> Option<&str> {
    Path::new(path).strip_prefix("crates").ok()?.components().next()?.as_os_str().to_str()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comments_and_strings_are_no_code() {
        let source = "let a = \"unsafe\"; // unsafe\n/* unsafe /* deep */ \n */ b('\"', r#\"x\"#);";
        let Code { text, strings } = code(source);
        assert_eq!(text, "let a = \"\"; \n\n b(, \"\");");
        assert_eq!(strings, [(1, "unsafe".to_owned()), (3, "x".to_owned())]);
    }

    #[test]
    fn lifetimes_and_characters() {
        let Code { text, strings } = code("fn f<'a>(x: &'a str) { g('x', '\\'', \"\\\"q\") }");
        assert_eq!(text, "fn f<'a>(x: &'a str) { g(, , \"\") }");
        assert_eq!(strings, [(1, "\\\"q".to_owned())]);
    }

    #[test]
    fn tests_do_not_count() {
        let text = "//! a\nfn f() {}\n\n#[cfg(test)]\nmod tests {\n}\n";
        assert_eq!(lines_without_tests(text), 3);
        assert_eq!(lines_without_tests("fn f() {}\n"), 1);
    }

    #[test]
    fn crates_by_path() {
        assert_eq!(crate_of("crates/ops/src/cast.rs"), Some("ops"));
        assert_eq!(crate_of("xtask/src/main.rs"), None);
    }
}
