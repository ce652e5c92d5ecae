//! Text encodings: bytes to code points and back.

use encoding_rs::DecoderResult;
use thalweg_tensor::{Result, StringBuilder, bail, err};

/// A text encoding.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Encoding {
    /// UTF-8.
    Utf8,
    /// UTF-16, with this byte order.
    Utf16(Order),
    /// UTF-32, with this byte order.
    Utf32(Order),
    /// ISO-8859-1: one byte is the code point.
    Latin1,
    /// ASCII: bytes above 127 are malformed.
    Ascii,
    /// An encoding of the WHATWG Encoding Standard.
    Other(&'static encoding_rs::Encoding),
}

/// Byte order of a unit.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Order {
    /// Big-endian.
    Big,
    /// Little-endian.
    Little,
    /// By the byte order mark, or big-endian without one.
    Marked,
}

impl Encoding {
    /// The encoding of this name; case and punctuation are ignored.
    pub(crate) fn named(name: &[u8]) -> Result<Encoding> {
        let plain: String = name
            .iter()
            .filter(|b| b.is_ascii_alphanumeric())
            .map(|b| char::from(b.to_ascii_lowercase()))
            .collect();
        Ok(match plain.as_str() {
            "utf8" => Encoding::Utf8,
            "utf16" => Encoding::Utf16(Order::Marked),
            "utf16be" => Encoding::Utf16(Order::Big),
            "utf16le" => Encoding::Utf16(Order::Little),
            "utf32" => Encoding::Utf32(Order::Marked),
            "utf32be" => Encoding::Utf32(Order::Big),
            "utf32le" => Encoding::Utf32(Order::Little),
            "latin1" | "l1" | "iso88591" | "88591" | "ibm819" | "cp819" | "csisolatin1"
            | "isoir100" => Encoding::Latin1,
            "ascii" | "usascii" | "ascii7" | "us" | "646" | "iso646us" | "cp367" | "ibm367"
            | "csascii" | "isoir6" => Encoding::Ascii,
            _ => match web_encoding(name, &plain) {
                Some(encoding) => Encoding::Other(encoding),
                None => bail!(
                    InvalidArgument,
                    "there is no converter for the encoding {:?}",
                    String::from_utf8_lossy(name)
                ),
            },
        })
    }

    /// Calls `found(code, start)` for every code point, or `None` for a malformed sequence, with
    /// the position of its first byte.
    pub(crate) fn decode(self, bytes: &[u8], found: &mut dyn FnMut(Option<u32>, usize)) {
        match self {
            Encoding::Utf8 => decode_utf8(bytes, found),
            Encoding::Utf16(order) => decode_utf16(bytes, order, found),
            Encoding::Utf32(order) => decode_utf32(bytes, order, found),
            Encoding::Latin1 => {
                bytes.iter().enumerate().for_each(|(i, &b)| found(Some(b.into()), i));
            }
            Encoding::Ascii => {
                let code = |b: u8| b.is_ascii().then_some(u32::from(b));
                bytes.iter().enumerate().for_each(|(i, &b)| found(code(b), i));
            }
            Encoding::Other(encoding) => decode_other(bytes, encoding, found),
        }
    }

    /// Appends one code point, in one of the Unicode encodings, big-endian. Unpaired surrogates are
    /// encoded where the unit can hold them.
    pub(crate) fn encode(self, code: u32, out: &mut StringBuilder) -> Result<()> {
        match self {
            Encoding::Utf8 => {
                let c = char::from_u32(code).unwrap_or(char::REPLACEMENT_CHARACTER);
                out.push(c.encode_utf8(&mut [0; 4]).as_bytes())
            }
            Encoding::Utf16(_) => match char::from_u32(code) {
                Some(c) => {
                    let mut units = [0; 2];
                    let units = c.encode_utf16(&mut units);
                    units.iter().try_for_each(|unit| out.push(&unit.to_be_bytes()))
                }
                None => out.push(&(code as u16).to_be_bytes()),
            },
            Encoding::Utf32(_) => out.push(&code.to_be_bytes()),
            other => Err(err!(Internal, "{other:?} is not written")),
        }
    }
}

/// The WHATWG encoding of this label or code page number.
fn web_encoding(name: &[u8], plain: &str) -> Option<&'static encoding_rs::Encoding> {
    let page = ["cp", "ibm", "ms", "windows", "win"].iter().find_map(|p| plain.strip_prefix(p));
    let by_page = page.and_then(|page| match page {
        "932" => Some(encoding_rs::SHIFT_JIS),
        "936" => Some(encoding_rs::GBK),
        "949" => Some(encoding_rs::EUC_KR),
        "950" => Some(encoding_rs::BIG5),
        "866" => Some(encoding_rs::IBM866),
        _ => encoding_rs::Encoding::for_label(format!("windows-{page}").as_bytes()),
    });
    let hyphens: Vec<u8> = name.iter().map(|&b| if b == b'_' { b'-' } else { b }).collect();
    by_page
        .or_else(|| encoding_rs::Encoding::for_label_no_replacement(name))
        .or_else(|| encoding_rs::Encoding::for_label_no_replacement(&hyphens))
        .filter(|&e| e != encoding_rs::X_USER_DEFINED)
}

fn decode_utf8(bytes: &[u8], found: &mut dyn FnMut(Option<u32>, usize)) {
    let mut start = 0;
    for chunk in bytes.utf8_chunks() {
        for (at, c) in chunk.valid().char_indices() {
            found(Some(c.into()), start + at);
        }
        start += chunk.valid().len();
        if !chunk.invalid().is_empty() {
            found(None, start);
            start += chunk.invalid().len();
        }
    }
}

/// The byte order to decode with. A byte order mark is skipped and counted to the first code point.
fn settle<const N: usize>(bytes: &[u8], order: Order) -> (Order, usize) {
    let mut mark = [0u8; N];
    mark[N - 2..].copy_from_slice(&[0xfe, 0xff]);
    let mut reversed = mark;
    reversed.reverse();
    match order {
        Order::Marked if bytes.starts_with(&mark) => (Order::Big, N),
        Order::Marked if bytes.starts_with(&reversed) => (Order::Little, N),
        Order::Marked => (Order::Big, 0),
        _ => (order, 0),
    }
}

/// Calls `found` with whole units and their positions; returns the position of an incomplete last
/// unit.
fn units<const N: usize>(
    bytes: &[u8],
    order: Order,
    mut found: impl FnMut(u32, usize),
) -> Option<usize> {
    let (order, marked) = settle::<N>(bytes, order);
    let (whole, tail) = bytes[marked..].as_chunks::<N>();
    for (i, unit) in whole.iter().enumerate() {
        let mut unit = *unit;
        if order == Order::Little {
            unit.reverse();
        }
        let value = unit.iter().fold(0, |value, &b| value << 8 | u32::from(b));
        found(value, if i == 0 { 0 } else { marked + i * N });
    }
    let tail_at = if whole.is_empty() { 0 } else { bytes.len() - tail.len() };
    (!tail.is_empty()).then_some(tail_at)
}

fn decode_utf16(bytes: &[u8], order: Order, found: &mut dyn FnMut(Option<u32>, usize)) {
    // The pending high surrogate, and its position.
    let mut half: Option<(u32, usize)> = None;
    let tail = units::<2>(bytes, order, |unit, at| {
        let is_second = (0xdc00..0xe000).contains(&unit);
        match half.take() {
            Some((first, start)) if is_second => {
                let code = 0x1_0000 + ((first - 0xd800) << 10) + (unit - 0xdc00);
                return found(Some(code), start);
            }
            Some((_, start)) => found(None, start),
            None => {}
        }
        match unit {
            0xd800..0xdc00 => half = Some((unit, at)),
            _ if is_second => found(None, at),
            _ => found(Some(unit), at),
        }
    });
    // An unpaired surrogate followed by an incomplete unit is one malformed sequence.
    if let Some(start) = half.map(|(_, start)| start).or(tail) {
        found(None, start);
    }
}

fn decode_utf32(bytes: &[u8], order: Order, found: &mut dyn FnMut(Option<u32>, usize)) {
    let tail = units::<4>(bytes, order, |unit, at| {
        found(char::from_u32(unit).map(u32::from), at);
    });
    if let Some(start) = tail {
        found(None, start);
    }
}

/// Decodes byte by byte, so that the start of every code point is known.
fn decode_other(
    bytes: &[u8],
    encoding: &'static encoding_rs::Encoding,
    found: &mut dyn FnMut(Option<u32>, usize),
) {
    let mut decoder = encoding.new_decoder_without_bom_handling();
    let mut units = [0u16; 16];
    let (mut at, mut start) = (0, 0);
    loop {
        let is_last = at == bytes.len();
        let input = &bytes[at..(at + 1).min(bytes.len())];
        let (result, read, written) =
            decoder.decode_to_utf16_without_replacement(input, &mut units, is_last);
        at += read;
        for c in char::decode_utf16(units[..written].iter().copied()) {
            found(c.ok().map(u32::from), start);
        }
        if written > 0 {
            start = at;
        }
        match result {
            DecoderResult::Malformed(len, after) => {
                let end = at - usize::from(after).min(at);
                found(None, end - usize::from(len).min(end));
                start = end;
            }
            DecoderResult::InputEmpty if is_last => return,
            DecoderResult::InputEmpty | DecoderResult::OutputFull => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::code;
    use thalweg_tensor::Code;

    fn decoded(name: &str, bytes: &[u8]) -> String {
        let mut shown = Vec::new();
        Encoding::named(name.as_bytes()).unwrap().decode(bytes, &mut |code, start| {
            let code = code.map_or("?".into(), |c| format!("{c:x}"));
            shown.push(format!("{code}@{start}"));
        });
        shown.join(" ")
    }

    #[test]
    fn code_points_and_their_places() {
        for (name, bytes, expected) in [
            ("UTF-8", &b"h\xc3\xa9"[..], "68@0 e9@1"),
            ("utf8", b"\xff\xc3a\xe3\x81", "?@0 ?@1 61@2 ?@3"),
            ("UTF-8", b"\xed\xa0\x80\xf0\x9f\x98\x80", "?@0 ?@1 ?@2 1f600@3"),
            ("UTF-8", b"\xef\xbb\xbfa", "feff@0 61@3"),
            ("UTF-16-BE", b"\xd8\x3d\xde\x00", "1f600@0"),
            ("UTF-16-BE", b"\xd8\x00\x00a", "?@0 61@2"),
            ("UTF-16-BE", b"\xde\x00\x00a", "?@0 61@2"),
            ("UTF-16-BE", b"\xd8\x00", "?@0"),
            ("UTF-16-BE", b"\xfe\xff\x00a", "feff@0 61@2"),
            ("UTF-16-BE", b"a", "?@0"),
            ("UTF-16-BE", b"\x00a\x00", "61@0 ?@2"),
            ("UTF-16", b"\xfe\xff\x00a", "61@0"),
            ("UTF-16", b"\xff\xfe\x00\x00a\x00\x00\x00", "0@0 61@4 0@6"),
            ("UTF-16LE", b"a\x00", "61@0"),
            ("UTF-32-BE", b"\x00\x11\x00\x00\x00\x00\x00b", "?@0 62@4"),
            ("UTF-32", b"\xff\xfe\x00\x00a\x00\x00\x00", "61@0"),
            ("UTF-32", b"a\x00\x00", "?@0"),
            ("latin-1", b"\x00\x82\xe9", "0@0 82@1 e9@2"),
            ("US-ASCII", b"a\x82", "61@0 ?@1"),
            ("cp1252", b"\x82\xa0", "201a@0 a0@1"),
            ("Shift-JIS", b"b\x82\xa0\xe9", "62@0 3042@1 ?@3"),
            ("gb18030", b"\x82\xa0", "5041@0"),
            ("KOI8-R", b"\x82\xe9", "250c@0 418@1"),
        ] {
            assert_eq!(decoded(name, bytes), expected, "{name} {bytes:?}");
        }
        for name in ["foo", "", "utf-8-sig", "x-user-defined", "replacement"] {
            assert_eq!(
                code(Encoding::named(name.as_bytes())),
                Some(Code::InvalidArgument),
                "{name}"
            );
        }
    }

    #[test]
    fn any_bytes_end_within_bounds() {
        let mut state = 1u32;
        let mut bytes = Vec::new();
        for _ in 0..500 {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            bytes.push((state >> 24) as u8);
        }
        for name in [
            "UTF-8",
            "UTF-16",
            "UTF-32",
            "gb18030",
            "big5",
            "euc-jp",
            "euc-kr",
            "shift_jis",
            "gbk",
            "iso-2022-jp",
            "windows-1251",
        ] {
            for len in 0..bytes.len() {
                let mut last = 0;
                Encoding::named(name.as_bytes()).unwrap().decode(&bytes[..len], &mut |_, start| {
                    assert!(last <= start && start < len, "{name} {len} {start}");
                    last = start;
                });
            }
        }
    }
}
