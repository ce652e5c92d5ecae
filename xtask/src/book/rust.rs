//! Every Rust block of the book is compiled, and run unless it says `no_run`.
//!
//! Blocks are tests of the documentation of `src/book.rs`, which includes each page that has any.
//! A block that only quotes a program (`{{#include}}`) is `ignore` there: CI compiles the program.

use super::markdown::{Fence, fences};
use super::{documents, includes, resolve, text_of};
use crate::source::File;

/// Where pages become documentation with tests, and the README.
const LIST: &str = "src/book.rs";
const ALSO: &str = "src/lib.rs";

/// Folders whose programs CI builds.
const COMPILED: &[&str] = &["crates/", "examples/", "src/", "tests/"];

pub(super) fn blocks_are_compiled(files: &[File]) -> Vec<String> {
    let lists = [LIST, ALSO].map(|path| text_of(files, path).unwrap_or_default()).concat();
    let mut problems = Vec::new();
    for page in documents(files) {
        let blocks = fences(&page.text);
        let blocks = blocks.iter().filter(|f| f.info.split(',').next() == Some("rust"));
        let mut has_tests = false;
        for block in blocks {
            match quoted(block) {
                Some(target) => {
                    let path = resolve(&page.path, target.split(':').next().unwrap_or_default());
                    let is_compiled = COMPILED.iter().any(|folder| path.starts_with(folder));
                    if !is_compiled || block.info != "rust,ignore" {
                        let problem = "a quoted program is 'rust,ignore', and CI builds it";
                        problems.push(format!("{}:{}: {problem}", page.path, block.line));
                    }
                }
                None if block.info.contains("ignore") => {
                    let problem = "'ignore' is for quoted programs: 'no_run' compiles";
                    problems.push(format!("{}:{}: {problem}", page.path, block.line));
                }
                None => has_tests = true,
            }
        }
        let entry = format!("#[doc = include_str!(\"../{}\")]", page.path);
        match (has_tests, lists.contains(&entry)) {
            (true, false) => problems.push(format!("{}: {LIST} lacks {entry}", page.path)),
            (false, true) => {
                problems.push(format!("{LIST}: {} has no Rust block to test", page.path));
            }
            _ => {}
        }
    }
    problems
}

/// The target of a block that is a quotation and nothing else.
fn quoted(block: &Fence) -> Option<&str> {
    let (_, target) = includes(&block.text).next()?;
    (block.text.trim().lines().count() == 1).then_some(target)
}

#[cfg(test)]
mod tests {
    use super::super::tests::file;
    use super::*;

    #[test]
    fn blocks_that_are_not_compiled_are_found() {
        let quote = "```rust,ignore\n{{#include ../../examples/a.rs:b}}\n```\n";
        let files = [
            file(LIST, "#[doc = include_str!(\"../docs/src/a.md\")]\n"),
            file("docs/src/a.md", &format!("```rust,no_run\nx\n```\n{quote}")),
            file("docs/src/b.md", "```rust\nx\n```\n"),
            file("docs/src/c.md", "```rust,ignore\nx\n```\n"),
            file("docs/src/d.md", "```rust,ignore\n{{#include ../d.rs}}\n```\n"),
        ];
        let problems = blocks_are_compiled(&files);
        assert_eq!(problems.len(), 3, "{problems:#?}");
        assert!(problems[0].starts_with("docs/src/b.md: src/book.rs lacks"));
        assert!(problems[1].starts_with("docs/src/c.md:1: 'ignore'"));
        assert!(problems[2].starts_with("docs/src/d.md:1: a quoted program"));
    }
}
