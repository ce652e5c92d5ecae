//! `cargo xtask size`: how much code there is, and where it is long.

use std::collections::BTreeMap;

use anyhow::Result;

use crate::source::{self, File, code, crate_of};

/// Lines above which a function is listed.
const FUNCTION_LINES_MAX: usize = 70;
const LISTED: usize = 15;

pub(crate) fn run() -> Result<()> {
    let files: Vec<File> = source::files()?.into_iter().filter(File::is_rust).collect();
    let mut by_crate: BTreeMap<&str, (usize, usize, usize)> = BTreeMap::new();
    let mut lengths = Vec::new();
    let mut functions = Vec::new();
    for file in &files {
        let lines = file.text.lines().count();
        let shipped = if file.is_test() { 0 } else { source::lines_without_tests(&file.text) };
        let total = by_crate.entry(crate_of(&file.path).unwrap_or("(others)")).or_default();
        *total = (total.0 + 1, total.1 + shipped, total.2 + lines - shipped);
        if !file.is_generated() {
            lengths.push((shipped, &file.path));
        }
        functions.extend(long_functions(file));
    }
    println!("{:12} {:>6} {:>8} {:>8}", "crate", "files", "lines", "tests");
    for (name, (files, shipped, tests)) in &by_crate {
        println!("{name:12} {files:>6} {shipped:>8} {tests:>8}");
    }
    let sum = by_crate.values().fold((0, 0, 0), |a, b| (a.0 + b.0, a.1 + b.1, a.2 + b.2));
    println!("{:12} {:>6} {:>8} {:>8}", "all", sum.0, sum.1, sum.2);

    lengths.sort_unstable();
    println!("\nlongest files, without tests");
    for (lines, path) in lengths.iter().rev().take(LISTED) {
        println!("{lines:>6}  {path}");
    }
    functions.sort_unstable();
    println!("\n{} functions above {FUNCTION_LINES_MAX} lines", functions.len());
    for (lines, path, name) in functions.iter().rev().take(LISTED) {
        println!("{lines:>6}  {path}: {name}");
    }
    Ok(())
}

/// Length, file and name of each function that is too long.
fn long_functions(file: &File) -> Vec<(usize, String, String)> {
    let code = code(&file.text).text;
    let lines: Vec<&str> = code.lines().collect();
    let mut found = Vec::new();
    for (start, line) in lines.iter().enumerate() {
        let Some(name) = function_name(line) else { continue };
        if let Some(length) = body_length(&lines[start..]).filter(|&n| n > FUNCTION_LINES_MAX) {
            found.push((length, file.path.clone(), name.to_owned()));
        }
    }
    found
}

fn function_name(line: &str) -> Option<&str> {
    let at = line.find("fn ").filter(|&at| at == 0 || line[..at].ends_with(' '))?;
    let name = &line[at + 3..];
    let end = name.find(|c: char| !c.is_alphanumeric() && c != '_')?;
    (end > 0).then(|| &name[..end])
}

/// Lines from the first one to where its braces close; `None` if it has no body.
fn body_length(lines: &[&str]) -> Option<usize> {
    let mut depth = 0i32;
    for (i, line) in lines.iter().enumerate() {
        for c in line.chars() {
            match c {
                '{' => depth += 1,
                '}' => depth -= 1,
                ';' if depth == 0 => return None,
                _ => continue,
            }
            if c == '}' && depth <= 0 {
                return Some(i + 1);
            }
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn functions_are_measured() {
        let body = "    x();\n".repeat(80);
        let text =
            format!("trait T {{\n    fn none(&self);\n}}\npub fn long(a: u8) {{\n{body}}}\n");
        let file = File { path: "a.rs".into(), text };
        assert_eq!(long_functions(&file), [(82, "a.rs".to_owned(), "long".to_owned())]);
    }
}
