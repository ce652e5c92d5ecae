//! `RegexFullMatch` and `RegexReplace`.

use std::sync::Arc;

use bytes::Bytes;
use parking_lot::Mutex;
use regex::bytes::{CaptureLocations, Regex};
use thalweg_graph::{OpDef, ShapeContext, Work, shape};
use thalweg_kernel::{AnyKernel, Family, KernelContext, KernelInit, KernelSpec};
use thalweg_tensor::{Result, StringBuilder, Tensor};

use super::re2;
use super::text::{scalar_string, write_strings};
use crate::split::for_each_rows;

pub(crate) static FAMILY: Family = Family {
    ops: &[
        OpDef::new("RegexFullMatch", with_scalar_patterns).with_work(Work::serial::<60>),
        OpDef::new("StaticRegexFullMatch", shape::unchanged).with_work(Work::serial::<60>),
        OpDef::new("RegexReplace", with_scalar_patterns)
            .with_work(Work::serial::<60>)
            .without_gradient(),
        OpDef::new("StaticRegexReplace", shape::unchanged).with_work(Work::serial::<60>),
    ],
    kernels: &[
        KernelSpec { op: "RegexFullMatch", create: regex_full_match, ..KernelSpec::CPU },
        KernelSpec {
            op: "StaticRegexFullMatch",
            create: static_regex_full_match,
            ..KernelSpec::CPU
        },
        KernelSpec { op: "RegexReplace", create: regex_replace, ..KernelSpec::CPU },
        KernelSpec { op: "StaticRegexReplace", create: static_regex_replace, ..KernelSpec::CPU },
    ],
};

/// Nanoseconds per short string.
const NANOSECONDS: f64 = 300.0;

fn with_scalar_patterns(c: &mut ShapeContext<'_>) -> Result<()> {
    for i in 1..c.num_inputs() {
        c.with_rank(i, if i == 1 { "pattern" } else { "rewrite" }, 0)?;
    }
    c.set_output(0, c.input(0).clone());
    Ok(())
}

/// Cache of the last compiled expression, since steps usually repeat it.
struct CompiledCache {
    is_whole: bool,
    compiled: Mutex<Option<(Bytes, Arc<Regex>)>>,
}

impl CompiledCache {
    fn new(is_whole: bool) -> CompiledCache {
        CompiledCache { is_whole, compiled: Mutex::new(None) }
    }

    fn get(&self, pattern: &Bytes) -> Result<Arc<Regex>> {
        let mut compiled = self.compiled.lock();
        if let Some((known, regex)) = &*compiled
            && known == pattern
        {
            return Ok(regex.clone());
        }
        let regex = Arc::new(re2::compile(pattern, self.is_whole)?);
        *compiled = Some((pattern.clone(), regex.clone()));
        Ok(regex)
    }
}

fn regex_full_match(_: &KernelInit<'_>) -> Result<AnyKernel> {
    let latest = CompiledCache::new(true);
    AnyKernel::new(move |ctx| {
        let regex = latest.get(scalar_string(ctx, 1, "pattern")?)?;
        full_match(ctx, &regex)
    })
}

fn static_regex_full_match(init: &KernelInit<'_>) -> Result<AnyKernel> {
    let regex = re2::compile(init.attrs().bytes("pattern")?, true)?;
    AnyKernel::new(move |ctx| full_match(ctx, &regex))
}

fn full_match(ctx: &mut KernelContext<'_>, regex: &Regex) -> Result<()> {
    let input = ctx.input(0)?;
    let strings = input.strings()?;
    let mut output = ctx.allocate_output(0, input.shape().clone())?;
    for_each_rows(ctx, output.as_mut_slice::<bool>()?, 1, NANOSECONDS, |first, out| {
        for (found, string) in out.iter_mut().zip(&strings[first..]) {
            *found = regex.is_match(string);
        }
    })?;
    ctx.set_output(0, output)
}

fn regex_replace(init: &KernelInit<'_>) -> Result<AnyKernel> {
    let latest = CompiledCache::new(false);
    let is_global = init.attrs().bool("replace_global")?;
    AnyKernel::new(move |ctx| {
        let regex = latest.get(scalar_string(ctx, 1, "pattern")?)?;
        let rewrite = Rewrite::new(scalar_string(ctx, 2, "rewrite")?);
        let output = replace(ctx, &regex, &rewrite, is_global)?;
        ctx.set_output(0, output)
    })
}

fn static_regex_replace(init: &KernelInit<'_>) -> Result<AnyKernel> {
    let attrs = init.attrs();
    let regex = re2::compile(attrs.bytes("pattern")?, false)?;
    let rewrite = Rewrite::new(attrs.bytes("rewrite")?);
    let is_global = attrs.bool("replace_global")?;
    AnyKernel::new(move |ctx| {
        let output = replace(ctx, &regex, &rewrite, is_global)?;
        ctx.set_output(0, output)
    })
}

/// A parsed rewrite string.
struct Rewrite {
    parts: Vec<Part>,
    /// The highest group number referenced.
    group_max: usize,
    /// Whether it contains an invalid escape.
    is_broken: bool,
}

enum Part {
    Text(Vec<u8>),
    Group(usize),
}

impl Rewrite {
    /// `\0` to `\9` are groups, `\\` is a backslash, other escapes are invalid.
    fn new(rewrite: &[u8]) -> Rewrite {
        let mut parsed = Rewrite { parts: Vec::new(), group_max: 0, is_broken: false };
        let mut bytes = rewrite.iter();
        while let Some(&byte) = bytes.next() {
            let text = match (byte, if byte == b'\\' { bytes.next() } else { None }) {
                (b'\\', Some(digit @ b'0'..=b'9')) => {
                    let group = usize::from(digit - b'0');
                    parsed.group_max = parsed.group_max.max(group);
                    if !parsed.is_broken {
                        parsed.parts.push(Part::Group(group));
                    }
                    continue;
                }
                (b'\\', Some(b'\\')) => b'\\',
                (b'\\', _) => {
                    parsed.is_broken = true;
                    continue;
                }
                (byte, _) => byte,
            };
            match parsed.parts.last_mut() {
                // After an invalid escape, only group numbers are parsed.
                _ if parsed.is_broken => {}
                Some(Part::Text(bytes)) => bytes.push(text),
                _ => parsed.parts.push(Part::Text(vec![text])),
            }
        }
        parsed
    }

    fn write(&self, text: &[u8], groups: &CaptureLocations, out: &mut StringBuilder) -> Result<()> {
        for part in &self.parts {
            match part {
                Part::Text(bytes) => out.push(bytes)?,
                Part::Group(i) => {
                    if let Some((start, end)) = groups.get(*i) {
                        out.push(&text[start..end])?;
                    }
                }
            }
        }
        Ok(())
    }
}

fn replace(
    ctx: &KernelContext<'_>,
    regex: &Regex,
    rewrite: &Rewrite,
    is_global: bool,
) -> Result<Tensor> {
    let input = ctx.input(0)?;
    // As in RE2, the text is unchanged if the rewrite references a missing group, or has an invalid
    // escape in a single replacement.
    let is_void = rewrite.group_max >= regex.captures_len() || (rewrite.is_broken && !is_global);
    if is_void {
        return Ok(input.clone());
    }
    let strings = input.strings()?;
    write_strings(ctx, input.shape().clone(), NANOSECONDS, |i, out| {
        let text = &strings[i];
        if is_global {
            replace_all(regex, rewrite, text, out)
        } else {
            replace_first(regex, rewrite, text, out)
        }
    })
}

fn replace_first(
    regex: &Regex,
    rewrite: &Rewrite,
    text: &[u8],
    out: &mut StringBuilder,
) -> Result<()> {
    let mut groups = regex.capture_locations();
    let Some(found) = regex.captures_read(&mut groups, text) else { return out.push(text) };
    out.push(&text[..found.start()])?;
    rewrite.write(text, &groups, out)?;
    out.push(&text[found.end()..])
}

/// As in RE2, an empty match right after a match is skipped.
fn replace_all(
    regex: &Regex,
    rewrite: &Rewrite,
    text: &[u8],
    out: &mut StringBuilder,
) -> Result<()> {
    let mut groups = regex.capture_locations();
    let (mut at, mut last_end) = (0, None);
    while at <= text.len() {
        let Some(found) = regex.captures_read_at(&mut groups, text, at) else { break };
        out.push(&text[at..found.start()])?;
        if found.is_empty() && last_end == Some(found.start()) {
            let step = character_len(&text[found.start()..]);
            out.push(&text[found.start()..(found.start() + step).min(text.len())])?;
            at = found.start() + step;
            continue;
        }
        rewrite.write(text, &groups, out)?;
        at = found.end();
        last_end = Some(at);
    }
    out.push(text.get(at..).unwrap_or_default())
}

/// Bytes of the first character of the text; one if it is not valid UTF-8.
fn character_len(text: &[u8]) -> usize {
    let len = match text.first() {
        Some(0xc2..=0xdf) => 2,
        Some(0xe0..=0xef) => 3,
        Some(0xf0..=0xf4) => 4,
        _ => 1,
    };
    let is_character = text.get(..len).is_some_and(|c| std::str::from_utf8(c).is_ok());
    if is_character { len } else { 1 }
}

#[cfg(test)]
mod tests {
    use thalweg_tensor::{Code, DType, Shape};

    use super::*;
    use crate::testing::{call, code};

    const TEXTS: [&[u8]; 7] =
        [b"abcab", b"aaa", b"", "é日a".as_bytes(), b"xxbxx", b"a\nb", b"\xffa\xc3"];

    fn strings(items: &[&'static [u8]]) -> Tensor {
        let items: Vec<Bytes> = items.iter().map(|s| Bytes::from_static(s)).collect();
        Tensor::from_strings(Shape::new(&[items.len()]).unwrap(), items).unwrap()
    }

    fn replaced(pattern: &'static str, rewrite: &'static str, is_global: bool) -> String {
        let dynamic = call("RegexReplace")
            .input(strings(&TEXTS))
            .input(Tensor::scalar_string(pattern))
            .input(Tensor::scalar_string(rewrite))
            .attr("replace_global", is_global)
            .run()
            .unwrap();
        let fixed = call("StaticRegexReplace")
            .input(strings(&TEXTS))
            .attr("pattern", pattern)
            .attr("rewrite", rewrite)
            .attr("replace_global", is_global)
            .run()
            .unwrap();
        assert_eq!(dynamic.strings().unwrap(), fixed.strings().unwrap());
        let shown = dynamic.strings().unwrap().iter().map(|s| s.escape_ascii().to_string());
        shown.collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn replacements_are_those_of_re2() {
        for (pattern, rewrite, all, first) in [
            (
                "",
                "-",
                r"-a-b-c-a-b- -a-a-a- - -\xc3\xa9-\xe6\x97\xa5-a- -x-x-b-x-x- -a-\n-b- -\xff-a-\xc3-",
                r"-abcab -aaa - -\xc3\xa9\xe6\x97\xa5a -xxbxx -a\nb -\xffa\xc3",
            ),
            (
                "b*",
                "-",
                r"-a-c-a- -a-a-a- - -\xc3\xa9-\xe6\x97\xa5-a- -x-x-x-x- -a-\n- -\xff-a-\xc3-",
                r"-abcab -aaa - -\xc3\xa9\xe6\x97\xa5a -xxbxx -a\nb -\xffa\xc3",
            ),
            (
                r"\b|c",
                "|",
                r"|ab|ab| |aaa|  \xc3\xa9\xe6\x97\xa5|a| |xxbxx| |a|\n|b| \xff|a|\xc3",
                r"|abcab |aaa  \xc3\xa9\xe6\x97\xa5|a |xxbxx |a\nb \xff|a\xc3",
            ),
            (
                "(a)|b",
                r"[\1]",
                r"[a][]c[a][] [a][a][a]  \xc3\xa9\xe6\x97\xa5[a] xx[]xx [a]\n[] \xff[a]\xc3",
                r"[a]bcab [a]aa  \xc3\xa9\xe6\x97\xa5[a] xx[]xx [a]\nb \xff[a]\xc3",
            ),
            (
                "[^x]",
                ".",
                r"..... ...  ... xx.xx ... \xff.\xc3",
                r".bcab .aa  .\xe6\x97\xa5a xx.xx .\nb \xff.\xc3",
            ),
        ] {
            assert_eq!(replaced(pattern, rewrite, true), all, "{pattern}");
            assert_eq!(replaced(pattern, rewrite, false), first, "{pattern}");
        }
    }

    #[test]
    fn rewrites() {
        for (rewrite, all, first) in [
            (r"\1", "abab", "ababc"),
            (r"<\0>", "a<bc>a<bc>", "a<bc>abc"),
            (r"\2", "acac", "acabc"),
            (r"\\", r"a\a\", r"a\abc"),
            (r"$1", "a$1a$1", "a$1abc"),
            (r"\9", "abcabc", "abcabc"),
            (r"\10", "ab0ab0", "ab0abc"),
            (r"\x", "aa", "abcabc"),
            (r"a\", "aaaa", "abcabc"),
            ("", "aa", "aabc"),
        ] {
            for (is_global, expected) in [(true, all), (false, first)] {
                let call = call("StaticRegexReplace").input(strings(&[b"abcabc"]));
                let call = call.attr("pattern", "(b)(c)?").attr("rewrite", rewrite);
                let out = call.attr("replace_global", is_global).run().unwrap();
                assert_eq!(out.strings().unwrap()[0], expected, "{rewrite}");
            }
        }
    }

    #[test]
    fn matches_and_mistakes() {
        let run = |pattern: &'static str| {
            let pattern = Tensor::scalar_string(pattern);
            call("RegexFullMatch").input(strings(&[b"a", b"ab"])).input(pattern).run()
        };
        assert_eq!(run("a").unwrap().as_slice::<bool>().unwrap(), [true, false]);
        assert_eq!(code(run("[")), Some(Code::InvalidArgument));
        let fixed = call("StaticRegexFullMatch").input(strings(&[])).attr("pattern", "(");
        assert_eq!(code(fixed.run()), Some(Code::InvalidArgument));
        let vector = call("RegexFullMatch").input(strings(&[b"a"])).input(strings(&[b"a"]));
        assert_eq!(code(vector.run()), Some(Code::InvalidArgument));
        let shapes = call("RegexFullMatch").shape(DType::String, "2,?").shape(DType::String, "");
        assert_eq!(shapes.infer(), "[2,?]");
    }
}
