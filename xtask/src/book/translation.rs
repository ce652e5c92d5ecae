//! README.zh-CN.md says what README.md says: the same sections, commands and links.

use super::markdown::{fences, headings, links};
use super::text_of;
use crate::source::File;

const ORIGINAL: &str = "README.md";
const TRANSLATION: &str = "README.zh-CN.md";

pub(super) fn readmes_are_equal(files: &[File]) -> Vec<String> {
    let (Some(original), Some(translation)) =
        (text_of(files, ORIGINAL), text_of(files, TRANSLATION))
    else {
        return vec![format!("{ORIGINAL} or {TRANSLATION} is missing")];
    };
    let parts = [
        ("levels of headings", levels(original), levels(translation)),
        ("blocks", blocks(original), blocks(translation)),
        ("links", targets(original), targets(translation)),
        ("rows of tables", rows(original), rows(translation)),
    ];
    let differs = |(what, ours, theirs): &(&str, Vec<String>, Vec<String>)| {
        let count = ours.len().max(theirs.len());
        let at = (0..count).find(|&i| ours.get(i) != theirs.get(i))?;
        let text =
            |list: &[String]| list.get(at).map_or("nothing".to_owned(), |t| format!("{t:?}"));
        Some(format!(
            "{TRANSLATION}: its {what} differ from those of {ORIGINAL}: {} stands there, {} here",
            text(ours),
            text(theirs)
        ))
    };
    parts.iter().filter_map(differs).collect()
}

fn levels(text: &str) -> Vec<String> {
    headings(text).iter().map(|heading| "#".repeat(heading.level)).collect()
}

fn blocks(text: &str) -> Vec<String> {
    fences(text).into_iter().map(|block| format!("{}\n{}", block.info, block.text)).collect()
}

/// Targets in order; the two link to each other.
fn targets(text: &str) -> Vec<String> {
    let others = links(text).into_iter().map(|link| link.target);
    others.filter(|target| target != ORIGINAL && target != TRANSLATION).collect()
}

/// The number of columns of each row.
fn rows(text: &str) -> Vec<String> {
    let rows = text.lines().filter(|line| line.starts_with('|'));
    rows.map(|row| format!("{} columns", row.matches('|').count() - 1)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn problems(original: &str, translation: &str) -> Vec<String> {
        let file = |path: &str, text: &str| File { path: path.to_owned(), text: text.to_owned() };
        readmes_are_equal(&[file(ORIGINAL, original), file(TRANSLATION, translation)])
    }

    #[test]
    fn a_translation_may_differ_in_words_only() {
        let original = "# A\nwords [x](y.md)\n```sh\nls\n```\n| a | b |\n## B\n";
        let same = "# C\nother [z](y.md)\n```sh\nls\n```\n| c | d |\n## D\n";
        assert_eq!(problems(original, same), Vec::<String>::new());
        for (from, to, what) in [
            ("## D", "", "levels of headings"),
            ("ls", "rm", "blocks"),
            ("y.md", "q.md", "links"),
            ("| c | d |", "| c |", "rows of tables"),
        ] {
            let found = problems(original, &same.replace(from, to));
            assert_eq!(found.len(), 1, "{found:?}");
            assert!(found[0].contains(&format!("its {what} differ")), "{found:?}");
        }
    }
}
