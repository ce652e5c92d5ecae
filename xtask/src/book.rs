//! The book under `docs/`: what a program can check of it, and the site that mdBook makes of it.
//!
//! Pages are Markdown as mdBook and GitHub read it; this is not a Markdown parser. It knows fenced
//! blocks, headings and inline links, which is what the rules are about.

mod comparison;
mod markdown;
mod reference;
mod rust;
pub(crate) mod shell;
mod translation;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Component, Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};

use crate::run;
use crate::source::{self, File};
use markdown::{Fence, anchors, fences, headings, links};

/// Where the pages are.
const SOURCES: &str = "docs/src/";
const SUMMARY: &str = "docs/src/SUMMARY.md";
const FIRST_PAGE: &str = "docs/src/README.md";

/// The languages of blocks. A block without one is a mistake: nothing says whether it has to run.
const LANGUAGES: &[&str] = &["json", "python", "rust", "sh", "text", "toml"];

/// Prints every problem of the book; fails if there is one.
pub(crate) fn check() -> Result<()> {
    let files = source::files()?;
    let problems = problems(&files);
    for problem in &problems {
        eprintln!("{problem}");
    }
    ensure!(problems.is_empty(), "{} problems in the book", problems.len());
    println!("{} pages of the book are as they should be", pages(&files).count());
    Ok(())
}

fn problems(files: &[File]) -> Vec<String> {
    let checks = [
        summary,
        links_lead_somewhere,
        pages_are_reachable,
        pages_have_titles,
        blocks_have_languages,
        includes_are_there,
        files_are_there,
        rust::blocks_are_compiled,
        shell::exceptions_are_needed,
        translation::readmes_are_equal,
        comparison::programs_are_counted,
        reference::environment,
        reference::flags,
        reference::metrics,
        reference::limits,
        reference::messages,
    ];
    checks.iter().flat_map(|check| check(files)).collect()
}

/// Makes the site, where `mdbook` is installed.
pub(crate) fn build() -> Result<()> {
    if !run::succeeds(&mut run::command("mdbook", &["--version"])) {
        println!("mdbook is not installed (cargo install mdbook): no site was made");
        return Ok(());
    }
    run::check(&mut run::command("mdbook", &["build", "docs"]))
}

/// The pages of the book, without the table of contents.
pub(crate) fn pages(files: &[File]) -> impl Iterator<Item = &File> {
    files
        .iter()
        .filter(|f| f.path.starts_with(SOURCES) && f.path.ends_with(".md") && f.path != SUMMARY)
}

fn text_of<'a>(files: &'a [File], path: &str) -> Option<&'a str> {
    files.iter().find(|f| f.path == path).map(|f| f.text.as_str())
}

/// The table of contents has each page once, and nothing else.
fn summary(files: &[File]) -> Vec<String> {
    let Some(text) = text_of(files, SUMMARY) else { return vec![format!("{SUMMARY} is missing")] };
    let mut problems = Vec::new();
    let mut listed = BTreeSet::new();
    for link in links(text) {
        let path = resolve(SUMMARY, &link.target);
        if text_of(files, &path).is_none() {
            problems.push(format!("{SUMMARY}:{}: {} is not a page", link.line, link.target));
        } else if !listed.insert(path) {
            problems.push(format!("{SUMMARY}:{}: {} is there twice", link.line, link.target));
        }
    }
    let missing = pages(files).filter(|page| !listed.contains(&page.path));
    problems.extend(missing.map(|page| format!("{}: not in {SUMMARY}", page.path)));
    problems
}

/// Relative links of all Markdown files lead to files, and to headings, that are there. Links of
/// pages stay within the book: the site has nothing else.
fn links_lead_somewhere(files: &[File]) -> Vec<String> {
    let known: BTreeMap<&str, BTreeSet<String>> = files
        .iter()
        .filter(|f| f.path.ends_with(".md"))
        .map(|f| (f.path.as_str(), anchors(&f.text)))
        .collect();
    let mut problems = Vec::new();
    for file in files.iter().filter(|f| f.path.ends_with(".md")) {
        for link in links(&file.text).into_iter().filter(|link| !link.target.contains("://")) {
            let (path, anchor) = link.target.split_once('#').unwrap_or((&link.target, ""));
            let path = if path.is_empty() { file.path.clone() } else { resolve(&file.path, path) };
            let problem = if !run::root().join(&path).exists() {
                format!("({}) leads nowhere", link.target)
            } else if !anchor.is_empty()
                && known.get(path.as_str()).is_some_and(|there| !there.contains(anchor))
            {
                format!("{path} has no heading #{anchor}")
            } else if file.path.starts_with(SOURCES) && !path.starts_with(SOURCES) {
                format!("({}) leaves the book: name the file in backquotes", link.target)
            } else {
                continue;
            };
            problems.push(format!("{}:{}: {problem}", file.path, link.line));
        }
    }
    problems
}

/// Every page is reachable by links from the first page.
fn pages_are_reachable(files: &[File]) -> Vec<String> {
    let mut seen = BTreeSet::from([FIRST_PAGE.to_owned()]);
    let mut waiting = vec![FIRST_PAGE.to_owned()];
    while let Some(path) = waiting.pop() {
        for link in text_of(files, &path).map(links).unwrap_or_default() {
            let target = link.target.split('#').next().unwrap_or_default();
            let next = resolve(&path, target);
            if target.ends_with(".md") && seen.insert(next.clone()) {
                waiting.push(next);
            }
        }
    }
    let lost = pages(files).filter(|page| !seen.contains(&page.path));
    lost.map(|page| format!("{}: not reachable by links from {FIRST_PAGE}", page.path)).collect()
}

/// A page begins with its title, has no other of that level, and says something.
fn pages_have_titles(files: &[File]) -> Vec<String> {
    let mut problems = Vec::new();
    for page in pages(files) {
        let titles = headings(&page.text).into_iter().filter(|h| h.level == 1).count();
        if !page.text.starts_with("# ") || titles != 1 {
            problems.push(format!("{}:1: a page has one title, its first line", page.path));
        }
        let says = |line: &str| !line.trim().is_empty() && !line.starts_with('#');
        if !page.text.lines().any(says) {
            problems.push(format!("{}: only headings", page.path));
        }
    }
    problems
}

fn blocks_have_languages(files: &[File]) -> Vec<String> {
    let mut problems = Vec::new();
    for page in documents(files) {
        for Fence { info, line, .. } in fences(&page.text) {
            let language = info.split(',').next().unwrap_or_default();
            if !LANGUAGES.contains(&language) {
                let all = LANGUAGES.join(", ");
                let problem = format!("'{language}' is none of the languages of blocks: {all}");
                problems.push(format!("{}:{line}: {problem}", page.path));
            }
        }
    }
    problems
}

/// The pages and the README: what a reader tries out.
fn documents(files: &[File]) -> impl Iterator<Item = &File> {
    files.iter().filter(|f| f.path == "README.md").chain(pages(files))
}

/// `{{#include FILE:ANCHOR}}`: the file is there, and has the anchor.
fn includes_are_there(files: &[File]) -> Vec<String> {
    let mut problems = Vec::new();
    for page in pages(files) {
        for (line, target) in includes(&page.text) {
            if let Err(error) = included(files, &page.path, target) {
                problems.push(format!("{}:{line}: {error:#}", page.path));
            }
        }
    }
    problems
}

/// Files of the repository that the prose names in backquotes are there.
fn files_are_there(files: &[File]) -> Vec<String> {
    let folders = ["benches/", "crates/", "deploy/", "docs/", "examples/", "tests/", "xtask/"];
    let is_path = |word: &&str| {
        folders.iter().any(|folder| word.starts_with(folder))
            && word.bytes().all(|b| b.is_ascii_alphanumeric() || b"/._-".contains(&b))
    };
    let mut problems = Vec::new();
    for page in pages(files) {
        for (line, text) in markdown::prose(&page.text) {
            for path in text.split('`').skip(1).step_by(2).filter(is_path) {
                if !run::root().join(path).exists() {
                    problems.push(format!("{}:{line}: {path} is not there", page.path));
                }
            }
        }
    }
    problems
}

/// Lines and targets of the `{{#include}}`s of a page.
fn includes(text: &str) -> impl Iterator<Item = (usize, &str)> {
    text.lines().enumerate().filter_map(|(i, line)| {
        let target = line.trim().strip_prefix("{{#include ")?.strip_suffix("}}")?;
        Some((i + 1, target.trim()))
    })
}

/// What an `{{#include}}` stands for: a whole file, or the lines between `ANCHOR: name` and
/// `ANCHOR_END: name`.
fn included<'a>(files: &'a [File], page: &str, target: &str) -> Result<&'a str> {
    let (path, anchor) = target.split_once(':').unwrap_or((target, ""));
    let path = resolve(page, path);
    let text = text_of(files, &path).with_context(|| format!("{path} is not there"))?;
    if anchor.is_empty() {
        return Ok(text);
    }
    let place = |mark: &str| {
        let mark = format!("{mark}: {anchor}\n");
        text.find(&mark).map(|at| (at, at + mark.len()))
    };
    let (Some((_, begin)), Some((end, _))) = (place("ANCHOR"), place("ANCHOR_END")) else {
        bail!("{path} has no lines between 'ANCHOR: {anchor}' and 'ANCHOR_END: {anchor}'")
    };
    text.get(begin..end).with_context(|| format!("{path}: 'ANCHOR_END: {anchor}' comes first"))
}

/// The path from the root of what a file calls `target`.
fn resolve(file: &str, target: &str) -> String {
    let mut path = PathBuf::from(file);
    path.pop();
    for part in Path::new(target).components() {
        match part {
            Component::ParentDir => _ = path.pop(),
            Component::Normal(name) => path.push(name),
            _ => {}
        }
    }
    path.to_string_lossy().into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    pub(super) fn file(path: &str, text: &str) -> File {
        File { path: path.into(), text: text.into() }
    }

    #[test]
    fn the_book_is_as_it_should_be() {
        let problems = problems(&source::files().unwrap());
        assert!(problems.is_empty(), "{problems:#?}");
    }

    #[test]
    fn the_summary_has_every_page_once() {
        let files = [
            file(SUMMARY, "# Summary\n- [a](a.md)\n- [a](a.md)\n- [c](c.md)\n"),
            file("docs/src/a.md", "# A\n"),
            file("docs/src/b.md", "# B\n"),
        ];
        let problems = summary(&files);
        assert_eq!(
            problems,
            [
                "docs/src/SUMMARY.md:3: a.md is there twice",
                "docs/src/SUMMARY.md:4: c.md is not a page",
                "docs/src/b.md: not in docs/src/SUMMARY.md",
            ]
        );
    }

    #[test]
    fn links_to_nothing_are_found() {
        let text = "# Thalweg\n[a](#thalweg) [b](#nope) [c](none.md)\n[d](../../README.md)\n";
        let problems = links_lead_somewhere(&[file(FIRST_PAGE, text)]);
        assert_eq!(
            problems,
            [
                "docs/src/README.md:2: docs/src/README.md has no heading #nope",
                "docs/src/README.md:2: (none.md) leads nowhere",
                "docs/src/README.md:3: (../../README.md) leaves the book: name the file in \
                 backquotes",
            ]
        );
    }

    #[test]
    fn an_unreachable_page_and_one_without_a_title_are_found() {
        let files = [
            file(FIRST_PAGE, "# Thalweg\n[a](a.md#x)\n"),
            file("docs/src/a.md", "# A\ntext [b](part/b.md)\n"),
            file("docs/src/part/b.md", "## B\n"),
            file("docs/src/lost.md", "# Lost\ntext\n"),
        ];
        let lost = pages_are_reachable(&files);
        assert_eq!(lost, ["docs/src/lost.md: not reachable by links from docs/src/README.md"]);
        let untitled = pages_have_titles(&files);
        assert_eq!(
            untitled,
            [
                "docs/src/part/b.md:1: a page has one title, its first line",
                "docs/src/part/b.md: only headings",
            ]
        );
    }

    #[test]
    fn blocks_without_a_language_are_found() {
        let problems = blocks_have_languages(&[file("README.md", "```\nx\n```\n```sh\nls\n```\n")]);
        assert_eq!(problems.len(), 1, "{problems:?}");
        assert!(problems[0].starts_with("README.md:1: ''"), "{problems:?}");
    }

    #[test]
    fn missing_files_are_found() {
        let text = "see `xtask/src/book.rs`, `xtask/src/none.rs`\n```sh\n`xtask/x`\n```\n";
        let problems = files_are_there(&[file(FIRST_PAGE, text)]);
        assert_eq!(problems, ["docs/src/README.md:1: xtask/src/none.rs is not there"]);
    }

    #[test]
    fn includes_give_the_lines_between_their_anchors() {
        let files = [file("x/a.rs", "one\n// ANCHOR: b\ntwo\n// ANCHOR_END: b\n")];
        assert_eq!(included(&files, "docs/p.md", "../x/a.rs:b").unwrap(), "two\n// ");
        assert!(included(&files, "docs/p.md", "../x/a.rs:c").is_err());
        assert!(included(&files, "docs/p.md", "../x/b.rs").is_err());
    }
}
