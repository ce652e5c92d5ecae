//! Fenced blocks, headings and links of a Markdown text, each with its line.

use std::collections::{BTreeMap, BTreeSet};

/// A fenced block.
#[derive(Debug, PartialEq)]
pub(crate) struct Fence {
    /// What follows the opening fence: the language and attributes, with commas between.
    pub(crate) info: String,
    /// The line of the opening fence, from 1.
    pub(crate) line: usize,
    pub(crate) text: String,
}

pub(crate) struct Link {
    pub(crate) target: String,
    pub(crate) line: usize,
}

pub(crate) struct Heading {
    pub(crate) level: usize,
    pub(crate) text: String,
}

/// The fenced blocks of a text.
pub(crate) fn fences(text: &str) -> Vec<Fence> {
    let mut fences = Vec::new();
    let mut open: Option<(Fence, usize)> = None;
    for (i, line) in text.lines().enumerate() {
        let indent = line.len() - line.trim_start().len();
        match (&mut open, line.trim_start().strip_prefix("```")) {
            (None, Some(info)) => {
                let fence = Fence { info: info.trim().into(), line: i + 1, text: String::new() };
                open = Some((fence, indent));
            }
            (Some(_), Some(_)) => fences.extend(open.take().map(|(fence, _)| fence)),
            (Some((fence, indent)), None) => {
                fence.text.push_str(line.get(*indent..).unwrap_or_default());
                fence.text.push('\n');
            }
            (None, None) => {}
        }
    }
    fences
}

/// The lines outside fenced blocks, from 1.
pub(crate) fn prose(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut in_block = false;
    text.lines().enumerate().filter_map(move |(i, line)| {
        let is_fence = line.trim_start().starts_with("```");
        in_block ^= is_fence;
        (!in_block && !is_fence).then_some((i + 1, line))
    })
}

pub(crate) fn headings(text: &str) -> Vec<Heading> {
    let heading = |(_, line): (usize, &str)| {
        let level = line.bytes().take_while(|&b| b == b'#').count();
        let text = line[level..].strip_prefix(' ')?;
        (1..=6).contains(&level).then(|| Heading { level, text: text.trim().to_owned() })
    };
    prose(text).filter_map(heading).collect()
}

/// The anchors of the headings of a text, as mdBook and GitHub name them.
pub(crate) fn anchors(text: &str) -> BTreeSet<String> {
    let mut seen = BTreeMap::new();
    let mut name = |heading: Heading| {
        let kept = heading.text.chars().filter_map(|c| match c {
            _ if c.is_alphanumeric() || c == '_' || c == '-' => Some(c.to_ascii_lowercase()),
            _ => c.is_whitespace().then_some('-'),
        });
        let name: String = kept.collect();
        let count = seen.entry(name.clone()).or_insert(0);
        *count += 1;
        if *count == 1 { name } else { format!("{name}-{}", *count - 1) }
    };
    headings(text).into_iter().map(&mut name).collect()
}

/// Inline links and images. Code has none, whether in blocks or between single backquotes.
pub(crate) fn links(text: &str) -> Vec<Link> {
    let mut found = Vec::new();
    for (number, line) in prose(text) {
        // What stands between backquotes is blanked out, so that its brackets are none.
        let mut plain = String::with_capacity(line.len());
        for (i, part) in line.split('`').enumerate() {
            plain.push_str(if i % 2 == 0 { part } else { "code" });
        }
        for (at, mark) in plain.match_indices("](") {
            let rest = &plain[at + mark.len()..];
            if let Some(end) = rest.find(')') {
                found.push(Link { target: rest[..end].to_owned(), line: number });
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_come_with_their_info() {
        let text = "a\n```sh,norun\nls\n```\n- b\n  ```rust\n  x\n    y\n  ```\n";
        let expected = [
            Fence { info: "sh,norun".into(), line: 2, text: "ls\n".into() },
            Fence { info: "rust".into(), line: 6, text: "x\n  y\n".into() },
        ];
        assert_eq!(fences(text), expected);
    }

    #[test]
    fn links_in_code_are_none() {
        let text = "see [a](b.md#c) and `x[i](j)`\n```\n[d](e)\n```\n[`f`](g)";
        let found: Vec<_> = links(text).into_iter().map(|l| (l.target, l.line)).collect();
        assert_eq!(found, [("b.md#c".to_owned(), 1), ("g".to_owned(), 5)]);
    }

    #[test]
    fn anchors_are_those_of_mdbook() {
        let text = "# A step, through `two` tasks\n## B_c-d\n## B_c-d\n```sh\n# none\n```\n#none\n";
        let expected = ["a-step-through-two-tasks", "b_c-d", "b_c-d-1"];
        assert_eq!(anchors(text).into_iter().collect::<Vec<_>>(), expected);
    }
}
