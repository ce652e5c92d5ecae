//! Regular expressions in RE2's syntax, as the `regex` crate can run them.
//!
//! The two libraries share their semantics but not their syntax: in RE2, `\d`, `\w`, `\s` and `\b`
//! are ASCII-only, classes have no set operations, a brace that does not begin a count is a
//! literal, and a repeated repetition is an error. [`translate`] converts the pattern, with every
//! special literal written as a numeric escape.

use regex::bytes::{Regex, RegexBuilder};
use thalweg_tensor::{Result, bail, ensure, err};

/// Maximum count in `{n,m}`, by itself and multiplied over nested repetitions.
const REPEAT_MAX: u32 = 1000;
/// Maximum nesting depth of groups.
const DEPTH_MAX: usize = 200;
/// Maximum bytes of a compiled expression.
const COMPILED_BYTES_MAX: usize = 32 << 20;

/// Maximum bytes of a pattern: the parser takes about a hundred times as many. TensorFlow's RE2
/// compiles a literal of 600,000 bytes and refuses one of 1 MiB.
const PATTERN_BYTES_MAX: usize = 512 << 10;

/// Compiles a pattern. `is_whole` anchors it at both ends of the text.
pub(crate) fn compile(pattern: &[u8], is_whole: bool) -> Result<Regex> {
    ensure!(
        pattern.len() <= PATTERN_BYTES_MAX,
        InvalidArgument,
        "invalid pattern: pattern too large: {} bytes, at most {PATTERN_BYTES_MAX} are allowed",
        pattern.len()
    );
    let refused = |why: &dyn std::fmt::Display| {
        err!(InvalidArgument, "invalid pattern {:?}: {why}", String::from_utf8_lossy(pattern))
    };
    let text = std::str::from_utf8(pattern).map_err(|_| refused(&"it is not UTF-8"))?;
    let mut translated = translate(text).map_err(|e| refused(&e.message()))?;
    if is_whole {
        translated = format!(r"\A(?:{translated})\z");
    }
    RegexBuilder::new(&translated)
        .size_limit(COMPILED_BYTES_MAX)
        .build()
        .map_err(|e| refused(&e.to_string().lines().last().unwrap_or("it is refused")))
}

/// Translates the pattern to the syntax of the `regex` crate.
fn translate(pattern: &str) -> Result<String> {
    let mut parser = Parser { rest: pattern, out: String::new() };
    parser.alternation(0)?;
    ensure!(parser.rest.is_empty(), InvalidArgument, "unexpected )");
    Ok(parser.out)
}

struct Parser<'a> {
    rest: &'a str,
    out: String,
}

/// Whether a letter is a Perl character class, with the members of the class.
fn perl_class(letter: char) -> Option<(&'static str, bool)> {
    Some(match letter {
        'd' => (r"0-9", false),
        'D' => (r"0-9", true),
        's' => (r"\t\n\x0C\r\x20", false),
        'S' => (r"\t\n\x0C\r\x20", true),
        'w' => (r"0-9A-Z_a-z", false),
        'W' => (r"0-9A-Z_a-z", true),
        _ => return None,
    })
}

impl Parser<'_> {
    fn peek(&self) -> Option<char> {
        self.rest.chars().next()
    }

    fn next(&mut self) -> Option<char> {
        let c = self.peek()?;
        self.rest = &self.rest[c.len_utf8()..];
        Some(c)
    }

    fn eat(&mut self, token: &str) -> bool {
        match self.rest.strip_prefix(token) {
            Some(rest) => {
                self.rest = rest;
                true
            }
            None => false,
        }
    }

    fn literal(&mut self, c: char) {
        if c.is_ascii_alphanumeric() || !c.is_ascii() {
            self.out.push(c);
        } else {
            self.number(c);
        }
    }

    fn number(&mut self, c: char) {
        self.out.push_str(&format!(r"\x{{{:X}}}", u32::from(c)));
    }

    /// Parses up to the end or the `)` that closes the group; returns the maximum product of nested
    /// counts.
    fn alternation(&mut self, depth: usize) -> Result<u32> {
        ensure!(depth <= DEPTH_MAX, InvalidArgument, "groups are nested too deeply");
        let mut most = 1;
        // The end of the last repeatable atom, and its repetition count.
        let mut last: Option<(usize, u32)> = None;
        while let Some(c) = self.peek() {
            if c == ')' {
                break;
            }
            if c == '|' {
                self.next();
                self.out.push('|');
                last = None;
            } else if let Some((operator, count)) = self.operator()? {
                let Some((end, repeats)) = last else {
                    bail!(InvalidArgument, "no argument for repetition operator {operator}")
                };
                let (end, repeats) = self.repeat(end, repeats, operator, count)?;
                last = Some((end, repeats));
                most = most.max(repeats);
            } else if let Some(repeats) = self.atom(depth)? {
                last = Some((self.out.len(), repeats));
                most = most.max(repeats);
            }
        }
        Ok(most)
    }

    /// Inserts a repetition operator after the atom that ends at `end`; flags may follow the atom.
    fn repeat(
        &mut self,
        end: usize,
        repeats: u32,
        mut operator: String,
        count: u32,
    ) -> Result<(usize, u32)> {
        let total = repeats.saturating_mul(count.max(1));
        ensure!(total <= REPEAT_MAX, InvalidArgument, "invalid repetition size {operator}");
        if self.eat("?") {
            operator.push('?');
        }
        ensure!(
            self.operator()?.is_none(),
            InvalidArgument,
            "bad repetition operator after {operator}"
        );
        self.out.insert_str(end, &operator);
        Ok((end + operator.len(), total))
    }

    /// A repeatable atom; `None` for flags and empty quotes, which cannot be repeated.
    fn atom(&mut self, depth: usize) -> Result<Option<u32>> {
        let Some(c) = self.next() else { return Ok(None) };
        match c {
            '(' => return self.group(depth),
            '[' => self.class()?,
            '.' | '^' | '$' => self.out.push(c),
            '\\' => return self.escape(),
            _ => self.literal(c),
        }
        Ok(Some(1))
    }

    /// The repetition operator that follows, if any, and its count.
    fn operator(&mut self) -> Result<Option<(String, u32)>> {
        if let Some(c @ ('*' | '+' | '?')) = self.peek() {
            self.next();
            return Ok(Some((c.to_string(), 1)));
        }
        let Some((inside, rest)) = self.rest.strip_prefix('{').and_then(|r| r.split_once('}'))
        else {
            return Ok(None);
        };
        let (low, high) = inside.split_once(',').unwrap_or((inside, inside));
        let is_count = |text: &str| {
            text.bytes().all(|b| b.is_ascii_digit()) && (text.len() < 2 || !text.starts_with('0'))
        };
        if low.is_empty() || !is_count(low) || !is_count(high) {
            return Ok(None);
        }
        let value = |text: &str| text.parse::<u32>().ok().filter(|&n| n <= REPEAT_MAX);
        let count = match (value(low), high) {
            (Some(low), "") => Some(low),
            (Some(low), high) => value(high).filter(|&high| low <= high),
            (None, _) => None,
        };
        let Some(count) = count else {
            bail!(InvalidArgument, "invalid repetition size {{{inside}}}")
        };
        let operator = format!("{{{inside}}}");
        self.rest = rest;
        Ok(Some((operator, count)))
    }

    /// Parses a group, after `(`.
    fn group(&mut self, depth: usize) -> Result<Option<u32>> {
        if self.eat("?P<") {
            let name = self.rest.split_once('>').map_or("", |(name, _)| name);
            let is_name = !name.is_empty() && name.chars().all(|c| c.is_alphanumeric() || c == '_');
            ensure!(is_name, InvalidArgument, "invalid named capture");
            // Group names are dropped: they are not referenced, and may occur twice.
            self.rest = &self.rest[name.len() + 1..];
            self.out.push('(');
        } else if self.eat("?") {
            if !self.flags()? {
                return Ok(None);
            }
        } else {
            self.out.push('(');
        }
        let repeats = self.alternation(depth + 1)?;
        ensure!(self.eat(")"), InvalidArgument, "missing )");
        self.out.push(')');
        Ok(Some(repeats))
    }

    /// Parses flags, after `(?`; returns whether they open a group.
    fn flags(&mut self) -> Result<bool> {
        let (mut on, mut off) = (Vec::new(), Vec::new());
        let (mut is_negated, mut seen) = (false, true);
        loop {
            let bad = || err!(InvalidArgument, "invalid perl operator (?");
            match self.next().ok_or_else(bad)? {
                flag @ ('i' | 'm' | 's' | 'U') => {
                    let (to, from) =
                        if is_negated { (&mut off, &mut on) } else { (&mut on, &mut off) };
                    from.retain(|f| *f != flag);
                    if !to.contains(&flag) {
                        to.push(flag);
                    }
                    seen = true;
                }
                '-' if !is_negated => (is_negated, seen) = (true, false),
                end @ (':' | ')') if seen => {
                    self.out.push_str("(?");
                    self.out.extend(&on);
                    if !off.is_empty() {
                        self.out.push('-');
                        self.out.extend(&off);
                    }
                    // RE2 accepts empty flags, the `regex` crate does not.
                    let is_group = end == ':' || (on.is_empty() && off.is_empty());
                    self.out.push(if is_group { ':' } else { ')' });
                    if is_group && end == ')' {
                        self.out.push(')');
                    }
                    return Ok(end == ':');
                }
                _ => return Err(bad()),
            }
        }
    }

    /// Parses an escape outside of a class, after the backslash.
    fn escape(&mut self) -> Result<Option<u32>> {
        if self.eat("Q") {
            return self.quote();
        }
        if let Some((members, is_negated)) = self.peek().and_then(perl_class) {
            self.next();
            self.out.push_str(if is_negated { "[^" } else { "[" });
            self.out.push_str(members);
            self.out.push(']');
            return Ok(Some(1));
        }
        match self.peek() {
            Some(c @ ('A' | 'z')) => {
                self.next();
                self.out.extend(['\\', c]);
            }
            Some(c @ ('b' | 'B')) => {
                self.next();
                self.out.push_str(&format!(r"(?-u:\{c})"));
            }
            Some('C') => {
                self.next();
                self.out.push_str("(?s-u:.)");
            }
            Some('p' | 'P') => self.property()?,
            _ => {
                let c = self.escaped_character()?;
                self.literal(c);
            }
        }
        Ok(Some(1))
    }

    /// Parses a `\Q..\E` quote, after `\Q`; an operator after `\E` repeats the last literal.
    fn quote(&mut self) -> Result<Option<u32>> {
        let (quoted, rest) = self.rest.split_once(r"\E").unwrap_or((self.rest, ""));
        let is_empty = quoted.is_empty();
        quoted.chars().for_each(|c| self.literal(c));
        self.rest = rest;
        Ok((!is_empty).then_some(1))
    }

    /// Parses `pN`, `p{Greek}` or `P{^Lu}`: general categories by their short names, and scripts.
    fn property(&mut self) -> Result<()> {
        let mut is_negated = self.next() == Some('P');
        let bad = || err!(InvalidArgument, "invalid character class range");
        let name = if self.eat("{") {
            let (name, rest) = self.rest.split_once('}').ok_or_else(bad)?;
            self.rest = rest;
            name.to_owned()
        } else {
            self.next().ok_or_else(bad)?.to_string()
        };
        let name = match name.strip_prefix('^') {
            Some(name) => {
                is_negated = !is_negated;
                name
            }
            None => &name,
        };
        let is_name = name.starts_with(|c: char| c.is_ascii_uppercase())
            && name.chars().all(|c| c.is_ascii_alphabetic() || c == '_');
        ensure!(is_name, InvalidArgument, "invalid character class range");
        let letter = if is_negated { 'P' } else { 'p' };
        let kind = match name.len() {
            0..=2 => "General_Category=",
            _ if name == "Any" => "",
            _ => "Script=",
        };
        self.out.push_str(&format!(r"\{letter}{{{kind}{name}}}"));
        Ok(())
    }

    /// Parses an escaped character, after the backslash.
    fn escaped_character(&mut self) -> Result<char> {
        let c = self.next().ok_or_else(|| err!(InvalidArgument, "trailing \\"))?;
        let bad = || err!(InvalidArgument, "invalid escape sequence \\{c}");
        Ok(match c {
            'a' => '\x07',
            'f' => '\x0c',
            'n' => '\n',
            'r' => '\r',
            't' => '\t',
            'v' => '\x0b',
            '0'..='7' => {
                // A single digit other than zero would be a backreference.
                let digits = self.digits(2, 8);
                ensure!(c == '0' || !digits.is_empty(), InvalidArgument, "invalid escape \\{c}");
                self.code(&format!("{c}{digits}"), 8).ok_or_else(bad)?
            }
            'x' if self.eat("{") => {
                let (digits, rest) = self.rest.split_once('}').ok_or_else(bad)?;
                self.rest = rest;
                ensure!(!digits.starts_with('+'), InvalidArgument, "invalid escape \\x");
                self.code(digits, 16).ok_or_else(bad)?
            }
            'x' => {
                let digits = self.digits(2, 16);
                ensure!(digits.len() == 2, InvalidArgument, "invalid escape sequence \\x");
                self.code(&digits, 16).ok_or_else(bad)?
            }
            _ if c.is_ascii() && !c.is_ascii_alphanumeric() => c,
            _ => return Err(bad()),
        })
    }

    /// Up to `max` digits of base `base`.
    fn digits(&mut self, max: usize, base: u32) -> String {
        let digits: String = self.rest.chars().take(max).take_while(|c| c.is_digit(base)).collect();
        self.rest = &self.rest[digits.len()..];
        digits
    }

    fn code(&self, digits: &str, base: u32) -> Option<char> {
        u32::from_str_radix(digits, base).ok().and_then(char::from_u32)
    }

    /// Parses a class, after `[`.
    fn class(&mut self) -> Result<()> {
        self.out.push('[');
        if self.eat("^") {
            self.out.push('^');
        }
        let mut is_first = true;
        loop {
            let missing = || err!(InvalidArgument, "missing ]");
            let c = self.peek().ok_or_else(missing)?;
            if c == ']' && !is_first {
                self.next();
                self.out.push(']');
                return Ok(());
            }
            is_first = false;
            if self.class_item()? {
                continue;
            }
            let low = self.class_character()?;
            let is_range = self.rest.starts_with('-')
                && self.rest[1..].chars().next().is_some_and(|c| c != ']');
            self.number(low);
            if is_range {
                self.next();
                let high = self.class_character()?;
                ensure!(low <= high, InvalidArgument, "invalid character class range");
                self.out.push('-');
                self.number(high);
            }
        }
    }

    /// A named set of characters within a class, if one follows.
    fn class_item(&mut self) -> Result<bool> {
        if let Some((name, rest)) =
            self.rest.strip_prefix("[:").and_then(|inside| inside.split_once(":]"))
        {
            const NAMES: [&str; 14] = [
                "alnum", "alpha", "ascii", "blank", "cntrl", "digit", "graph", "lower", "print",
                "punct", "space", "upper", "word", "xdigit",
            ];
            let plain = name.strip_prefix('^').unwrap_or(name);
            ensure!(
                NAMES.contains(&plain),
                InvalidArgument,
                "invalid character class range [:{name}:]"
            );
            self.out.push_str(&format!("[:{name}:]"));
            self.rest = rest;
            return Ok(true);
        }
        let Some(after) = self.rest.strip_prefix('\\') else { return Ok(false) };
        let Some(letter) = after.chars().next() else { return Ok(false) };
        if let Some((members, is_negated)) = perl_class(letter) {
            self.out.push_str(if is_negated { "[^" } else { "[" });
            self.out.push_str(members);
            self.out.push(']');
            self.rest = &after[1..];
            return Ok(true);
        }
        if matches!(letter, 'p' | 'P') {
            self.rest = after;
            self.property()?;
            return Ok(true);
        }
        Ok(false)
    }

    fn class_character(&mut self) -> Result<char> {
        match self.next() {
            Some('\\') => self.escaped_character(),
            Some(c) => Ok(c),
            None => bail!(InvalidArgument, "missing ]"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::code;
    use thalweg_tensor::Code;

    /// Texts to which the patterns below are applied.
    const TEXTS: [&[u8]; 21] = [
        b"a",
        b"ab",
        b"abcd",
        b"abc",
        b"12",
        b"",
        b"\n",
        b"a.b",
        "é".as_bytes(),
        b"ABC",
        b"aa",
        b"a\n",
        b"\xff",
        b"x",
        "α".as_bytes(),
        b"a b",
        b"{",
        b"[",
        b"-",
        b"_",
        b"aaaaaaaaaaaaa",
    ];

    /// For each pattern, the texts that RE2 matches as a whole.
    #[test]
    fn whole_matches_are_those_of_re2() {
        for (pattern, expected) in [
            ("a.*", "TTTT...T..T....T....T"),
            ("(a|ab)(c|bcd)", "..TT................."),
            (r"\d+", "....T................"),
            (r"\pL+", "TTTT....TTT..TT.....T"),
            ("(?i)ABC", "...T.....T..........."),
            ("(?P<n>a)(?P<n>b)", ".T..................."),
            (".", "T.......T....TT.TTTT."),
            ("(?s).", "T.....T.T....TT.TTTT."),
            (r"\C", "T.....T.....TT..TTTT."),
            (r"\Qa.b\E", ".......T............."),
            ("[[:alpha:]]+", "TTTT.....TT..T......T"),
            (r"\w+", "TTTTT....TT..T.....TT"),
            ("[^a]", "......T.T....TT.TTTT."),
            ("^a$", "T...................."),
            (r"\z", ".....T..............."),
            ("(?m)^a$", "T...................."),
            (r"\x{e9}", "........T............"),
            (r"\B", ".....T..............."),
            ("[a&&b]", "T...................."),
            ("[a~~b]", "T...................."),
            ("[[a]]", "....................."),
            (r"[\d-z]", "..................T.."),
            (r"\p{Greek}", "..............T......"),
            ("a{,2}", "....................."),
            ("{", "................T...."),
            (r"\_", "...................T."),
            ("[]a]", "T...................."),
            ("[^]a]", "......T.T....TT.TTTT."),
            ("[a-]", "T.................T.."),
            ("(?i:a)b", ".T..................."),
            ("(?)", ".....T..............."),
            ("(?i)(?-i)a", "T...................."),
            ("(?U)a+", "T.........T.........T"),
            ("|", ".....T..............."),
            ("a*?", "T....T....T.........T"),
            ("^*", ".....T..............."),
            ("a(?s)*b?", "TT...T....T.........T"),
            ("$+", ".....T..............."),
            ("x{0}", ".....T..............."),
            (".{1,3}", "TT.TT..TTTT..TTTTTTT."),
            ("[[:^alpha:]]", "......T.T.....T.TTTT."),
            ("[:alpha:]", "T...................."),
        ] {
            let regex = compile(pattern.as_bytes(), true).unwrap();
            let found: String =
                TEXTS.map(|t| if regex.is_match(t) { 'T' } else { '.' }).iter().collect();
            assert_eq!(found, expected, "{pattern}");
        }
    }

    #[test]
    fn what_re2_accepts() {
        for pattern in [
            "a{1000}",
            "}",
            "]",
            "a{2",
            r"\-",
            r"\a",
            r"\07",
            r"\0",
            "a'b",
            "a\0b",
            " ",
            "#",
            "~",
            "&",
            r"\ ",
            r"\#",
            r"\!",
            r#"\""#,
            r"\%",
            r"\/",
            r"\:",
            r"\@",
            r"\`",
            r"\~",
            "(?P<1>a)",
            "()",
            "a||b",
            "a??",
            "a{2}?",
            r"\b*",
            "(^a)",
            r"[\w]",
            r"[\pL]",
            "[[.a.]]",
            "[[=a=]]",
            r"\<a",
            r"\pN",
            r"\p{L}",
            "(?:a{10}){100}",
            "a{01}",
        ] {
            assert!(compile(pattern.as_bytes(), true).is_ok(), "{pattern}");
        }
    }

    #[test]
    fn what_re2_refuses() {
        for pattern in [
            "[",
            "(",
            "a**",
            "a{2,1}",
            "a{1001}",
            "(?=a)",
            r"\1",
            "(?:a{100}){100}",
            "(?<n>a)",
            "a++",
            r"\h",
            r"\u00e9",
            "[a--b]",
            "(?x)a b",
            "(?u)a",
            r"(?-u)\xff",
            r"\R",
            "(?R)a",
            r"\p{Script=Greek}",
            r"\p{Foo}",
            r"\e",
            r"\Z",
            r"\8",
            r"\cA",
            r"[a-\d]",
            "[z-a]",
            "(?P=n)",
            "(?#c)a",
            r"\K",
            r"\G",
            r"\X",
            r"\é",
            r"\y",
            r"\j",
            "*",
            "+",
            "?",
            "a?*",
            "a{2}{3}",
            "[[:foo:]]",
            "{2}",
            "(?s){2}",
            "a|*",
            "(*)",
            ")",
            "a)",
            "(?",
            "(?i",
            "(?-)",
            "\\",
            r"\x1",
            r"\x{110000}",
            "(?P<>a)",
        ] {
            let refused = compile(pattern.as_bytes(), true);
            assert_eq!(code(refused), Some(Code::InvalidArgument), "{pattern}");
        }
        assert_eq!(code(compile(b"\xff", true)), Some(Code::InvalidArgument));
        assert_eq!(
            code(compile("(".repeat(100_000).as_bytes(), true)),
            Some(Code::InvalidArgument)
        );
        assert_eq!(
            code(compile(r"(?:\pL{100}){10}\pL{1000}".repeat(50).as_bytes(), true)),
            Some(Code::InvalidArgument)
        );
    }
}
