//! A parser for the XML subset of S3 responses: elements and their text.

use thalweg_tensor::{Result, bail, ensure, err};

/// The maximum nesting depth.
const DEPTH_MAX: usize = 32;

/// An element: its text and its children.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Element {
    pub(super) name: String,
    pub(super) text: String,
    pub(super) children: Vec<Element>,
}

impl Element {
    /// The text of the first child with this name.
    pub(super) fn text_of(&self, name: &str) -> Option<&str> {
        self.children.iter().find(|child| child.name == name).map(|child| child.text.as_str())
    }

    /// The children with this name.
    pub(super) fn all<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a Element> {
        self.children.iter().filter(move |child| child.name == name)
    }
}

/// The root element of a document. Attributes and comments are skipped.
pub(super) fn parse(document: &[u8]) -> Result<Element> {
    let mut rest = std::str::from_utf8(document)
        .map_err(|e| err!(DataLoss, "the document is not UTF-8 at byte {}", e.valid_up_to()))?;
    let mut open: Vec<Element> = vec![Element::default()];
    while let Some(begin) = rest.find('<') {
        let (text, tag) = rest.split_at(begin);
        unescape(text, &mut open.last_mut().expect("the document itself is never closed").text)?;
        let (tag, after) = split_tag(tag)?;
        rest = after;
        if tag.starts_with(['!', '?']) {
            continue;
        }
        if let Some(name) = tag.strip_prefix('/') {
            let closed = open.pop().expect("the document itself is never closed");
            ensure!(
                closed.name == local_name(name) && !open.is_empty(),
                DataLoss,
                "'{}' is closed as '{name}'",
                closed.name
            );
            open.last_mut().expect("checked above").children.push(closed);
            continue;
        }
        let is_empty = tag.ends_with('/');
        let element = Element { name: local_name(tag.trim_end_matches('/')), ..Element::default() };
        ensure!(
            open.len() < DEPTH_MAX,
            DataLoss,
            "the elements are nested deeper than {DEPTH_MAX}"
        );
        match is_empty {
            true => open.last_mut().expect("never empty").children.push(element),
            false => open.push(element),
        }
    }
    ensure!(open.len() == 1, DataLoss, "the document ends within '{}'", open[open.len() - 1].name);
    let document = open.pop().expect("there is one");
    document
        .children
        .into_iter()
        .next()
        .ok_or_else(|| err!(DataLoss, "the document has no element"))
}

/// The text between `<` and `>`, and the rest.
fn split_tag(text: &str) -> Result<(&str, &str)> {
    let (open, close) = if text.starts_with("<!--") { ("<!--", "-->") } else { ("<", ">") };
    match text[open.len()..].find(close) {
        // A comment keeps its '!', which tells it from a tag.
        Some(_) if open.len() > 1 => {
            let end = text.find("-->").expect("found above") + 3;
            Ok(("!", &text[end..]))
        }
        Some(end) => Ok((&text[1..=end], &text[end + 2..])),
        None => bail!(DataLoss, "a tag has no end"),
    }
}

/// A tag's name without namespace and attributes.
fn local_name(tag: &str) -> String {
    let name = tag.split(char::is_whitespace).next().unwrap_or_default();
    name.rsplit(':').next().unwrap_or_default().to_owned()
}

fn unescape(text: &str, to: &mut String) -> Result<()> {
    let mut rest = text;
    while let Some(begin) = rest.find('&') {
        to.push_str(&rest[..begin]);
        let end = rest[begin..].find(';').ok_or_else(|| err!(DataLoss, "'&' without ';'"))?;
        let name = &rest[begin + 1..begin + end];
        to.push(match name {
            "lt" => '<',
            "gt" => '>',
            "amp" => '&',
            "quot" => '"',
            "apos" => '\'',
            _ => numbered(name).ok_or_else(|| err!(DataLoss, "unknown entity '&{name};'"))?,
        });
        rest = &rest[begin + end + 1..];
    }
    to.push_str(rest);
    Ok(())
}

fn numbered(name: &str) -> Option<char> {
    let number = name.strip_prefix('#')?;
    let code = match number.strip_prefix(['x', 'X']) {
        Some(hexadecimal) => u32::from_str_radix(hexadecimal, 16).ok()?,
        None => number.parse().ok()?,
    };
    char::from_u32(code)
}

/// Escapes text for an element.
pub(super) fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use thalweg_tensor::Code;

    use super::*;

    #[test]
    fn a_listing() {
        let text = r#"<?xml version="1.0"?>
            <!-- > -->
            <s:List xmlns:s="u" a='b'><IsTruncated>false</IsTruncated>
              <Contents><Key>a&amp;b &#252;&#x41;</Key></Contents><Contents><Key>c</Key><Owner/></Contents>
            </s:List>"#;
        let list = parse(text.as_bytes()).unwrap();
        assert_eq!(list.name, "List");
        assert_eq!(list.text_of("IsTruncated"), Some("false"));
        let keys: Vec<_> = list.all("Contents").filter_map(|c| c.text_of("Key")).collect();
        assert_eq!(keys, ["a&b üA", "c"]);
        assert_eq!(list.text_of("nothing"), None);
    }

    #[test]
    fn damaged_documents_are_refused() {
        for text in ["", "text", "<a>", "<a></b>", "</a>", "<a", "<a>&x;</a>", "<a>&</a>", "<!-- "]
        {
            let e = parse(text.as_bytes()).expect_err(text);
            assert_eq!(e.code(), Code::DataLoss, "{text}: {e}");
        }
        for (document, words) in [
            (b"<a>\xff</a>".to_vec(), "not UTF-8 at byte 3"),
            ("<a>".repeat(100_000).into_bytes(), "nested deeper"),
        ] {
            let e = parse(&document).expect_err(words);
            assert_eq!((e.code(), e.message().contains(words)), (Code::DataLoss, true), "{e}");
        }
    }

    #[test]
    fn every_truncation_is_refused() {
        let text = "<a><b>x &lt; y</b><c/></a>";
        for end in 0..text.len() {
            let e = parse(&text.as_bytes()[..end]).expect_err(&text[..end]);
            assert_eq!(e.code(), Code::DataLoss, "{}: {e}", &text[..end]);
        }
        let key = "<&>\"";
        let document = format!("<k>{}</k>", escape(key));
        assert_eq!(parse(document.as_bytes()).unwrap().text, key);
    }
}
