//! The page on the Rust API compares programs with those of other libraries: its table has the numbers
//! that its blocks have.

use std::collections::BTreeMap;

use super::markdown::fences;
use super::text_of;
use crate::source::File;

const PAGE: &str = "docs/src/concepts/rust-api.md";

/// Where a program is not shown.
const NONE: &str = "-";

pub(super) fn programs_are_counted(files: &[File]) -> Vec<String> {
    match text_of(files, PAGE) {
        Some(text) => problems(text),
        None => vec![format!("{PAGE} is missing")],
    }
}

fn problems(text: &str) -> Vec<String> {
    let mut rows = text.lines().filter(|line| line.starts_with('|')).map(cells);
    let Some(libraries) = rows.next() else { return vec![format!("{PAGE} has no table")] };
    let programs = programs(text, &libraries[1..]);
    let mut problems = Vec::new();
    for row in rows.skip(1) {
        for (library, cell) in libraries.iter().zip(&row).skip(1) {
            let program = programs.get(&(row[0].clone(), library.clone()));
            let counted = program.map_or(NONE, String::as_str);
            if cell != counted {
                let what = &row[0];
                problems.push(format!("{PAGE}: {what} in {library} is {counted}, not {cell}"));
            }
        }
    }
    problems
}

fn cells(row: &str) -> Vec<String> {
    row.trim_matches('|').split('|').map(|cell| cell.trim().to_owned()).collect()
}

/// The numbers of the first block below each heading and library, which begins the line before it.
fn programs(text: &str, libraries: &[String]) -> BTreeMap<(String, String), String> {
    let lines: Vec<&str> = text.lines().collect();
    let mut programs = BTreeMap::new();
    for block in fences(text) {
        let before = &lines[..block.line - 1];
        let section = before.iter().rev().find_map(|line| line.strip_prefix("## "));
        let label = before.iter().rev().find(|line| !line.is_empty());
        let library = label.and_then(|label| libraries.iter().find(|l| label.starts_with(*l)));
        if let (Some(section), Some(library)) = (section, library) {
            let key = (section.to_owned(), library.clone());
            programs.entry(key).or_insert_with(|| numbers(&block.text));
        }
    }
    programs
}

/// Lines, string literals and question marks of a program: without blank lines, imports, comments and
/// lines that readers of the book do not see.
fn numbers(program: &str) -> String {
    let (mut lines, mut strings, mut marks) = (0, 0, 0);
    let mut imports = false;
    for line in program.lines() {
        let first = line.split_whitespace().next().unwrap_or("#");
        imports |= matches!(first, "use" | "import" | "from");
        if imports || first == "#" || first == "//" {
            imports &= first != "import" && first != "from" && !line.ends_with(';');
            continue;
        }
        lines += 1;
        let (mut in_string, mut before) = (false, ' ');
        for c in line.chars() {
            match c {
                '"' if !in_string => (in_string, strings) = (true, strings + 1),
                '"' => in_string = false,
                '?' if !in_string => marks += 1,
                '/' if !in_string && before == '/' => break,
                '#' if !in_string && before == ' ' => break,
                _ => {}
            }
            before = c;
        }
    }
    format!("{lines}, {strings}, {marks}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_have_their_numbers() {
        let program =
            "use a::{\n    b,\n};\n# hidden(\"x\")?;\nlet x = f(\"a?\")?; // \"no\"?\n\n}\n";
        assert_eq!(numbers(program), "2, 1, 1");
        assert_eq!(numbers("import x\nx(\"a\", \"b\")  # \"c\"\n"), "1, 2, 0");
    }

    #[test]
    fn cells_are_compared() {
        let page = "| program | Ours | theirs |\n|---|---|---|\n| Sum | 1, 0, 1 | 2, 0, 0 |\n\n\
                    ## Sum\n\nOurs:\n\n```rust\na()?;\n```\n\ntheirs:\n\n```text\nb();\n```\n";
        assert_eq!(problems(page), [format!("{PAGE}: Sum in theirs is 1, 0, 0, not 2, 0, 0")]);
        let page = page.replace("2, 0, 0", "-");
        assert_eq!(problems(&page), [format!("{PAGE}: Sum in theirs is 1, 0, 0, not -")]);
    }
}
