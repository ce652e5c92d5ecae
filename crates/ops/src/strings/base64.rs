//! Web-safe base64.

use thalweg_graph::{OpDef, shape};
use thalweg_kernel::{AnyKernel, Family, KernelInit, KernelSpec};
use thalweg_tensor::{Result, StringBuilder, bail, ensure, err};

use super::text::write_strings;

pub(crate) static FAMILY: Family = Family {
    ops: &[ENCODE_BASE64, DECODE_BASE64],
    kernels: &[
        KernelSpec { op: "EncodeBase64", create: encode_base64, ..KernelSpec::CPU },
        KernelSpec { op: "DecodeBase64", create: decode_base64, ..KernelSpec::CPU },
    ],
};

/// Nanoseconds per short string.
const NANOSECONDS: f64 = 100.0;

const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

/// The value of each character; 64 and above for invalid ones.
const VALUES: [u8; 256] = {
    let mut values = [64; 256];
    let mut i = 0;
    while i < 64 {
        values[ALPHABET[i] as usize] = i as u8;
        i += 1;
    }
    values
};

const ENCODE_BASE64: OpDef = OpDef::new("EncodeBase64", shape::unchanged).without_gradient();

const DECODE_BASE64: OpDef = OpDef { name: "DecodeBase64", ..ENCODE_BASE64 };

fn encode_base64(init: &KernelInit<'_>) -> Result<AnyKernel> {
    let pads = init.attrs().bool("pad")?;
    AnyKernel::new(move |ctx| {
        let input = ctx.input(0)?;
        let strings = input.strings()?;
        let output = write_strings(ctx, input.shape().clone(), NANOSECONDS, |i, out| {
            encode(&strings[i], pads, out)
        })?;
        ctx.set_output(0, output)
    })
}

fn decode_base64(_: &KernelInit<'_>) -> Result<AnyKernel> {
    AnyKernel::new(|ctx| {
        let input = ctx.input(0)?;
        let strings = input.strings()?;
        let output = write_strings(ctx, input.shape().clone(), NANOSECONDS, |i, out| {
            decode(&strings[i], out)
        })?;
        ctx.set_output(0, output)
    })
}

fn encode(bytes: &[u8], pads: bool, out: &mut StringBuilder) -> Result<()> {
    for group in bytes.chunks(3) {
        let at = |i: usize| u32::from(group.get(i).copied().unwrap_or(0));
        let bits = at(0) << 16 | at(1) << 8 | at(2);
        let digit = |i: u32| ALPHABET[(bits >> (18 - 6 * i)) as usize & 63];
        let digits = [digit(0), digit(1), digit(2), digit(3)];
        out.push(&digits[..group.len() + 1])?;
        if pads {
            out.push_repeated(b'=', 3 - group.len())?;
        }
    }
    Ok(())
}

/// Padding is optional, but valid only at the end.
fn decode(text: &[u8], out: &mut StringBuilder) -> Result<()> {
    let digits = match text {
        [digits @ .., b'=', b'='] | [digits @ .., b'='] if text.len().is_multiple_of(4) => digits,
        _ => text,
    };
    if digits.len() % 4 == 1 {
        bail!(InvalidArgument, "a base64 string cannot have {} characters", digits.len());
    }
    for group in digits.chunks(4) {
        let mut bits = 0;
        for i in 0..4 {
            let value = group.get(i).map_or(0, |&c| VALUES[usize::from(c)]);
            ensure!(
                value < 64,
                InvalidArgument,
                "invalid base64 character {:?}",
                char::from(group[i])
            );
            bits = bits << 6 | u32::from(value);
        }
        let bytes = bits.to_be_bytes();
        let whole =
            bytes.get(1..group.len()).ok_or_else(|| err!(Internal, "an empty base64 group"))?;
        out.push(whole)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use thalweg_tensor::{Budget, Bytes};

    use super::*;

    fn written(write: impl Fn(&mut StringBuilder) -> Result<()>) -> Option<Bytes> {
        let mut out = StringBuilder::new(&Budget::new(1 << 20));
        write(&mut out).and_then(|()| out.take()).ok()
    }

    #[test]
    fn known_texts() {
        for (bytes, text) in [
            (&b""[..], ""),
            (b"a", "YQ"),
            (b"ab", "YWI"),
            (b"abc", "YWJj"),
            (b"\xfb\xff\xbf", "-_-_"),
        ] {
            assert_eq!(written(|out| encode(bytes, false, out)).unwrap(), text);
            assert_eq!(written(|out| decode(text.as_bytes(), out)).unwrap(), bytes);
        }
        assert_eq!(written(|out| encode(b"a", true, out)).unwrap(), "YQ==");
        assert_eq!(written(|out| encode(b"ab", true, out)).unwrap(), "YWI=");
        for (text, bytes) in [("YQ==", Some("a")), ("YWI=", Some("ab")), ("YR", Some("a"))] {
            assert_eq!(
                written(|out| decode(text.as_bytes(), out)).as_deref(),
                bytes.map(str::as_bytes)
            );
        }
        for bad in [
            "YQ=", "Y", "YWJj=", "+/+/", "Y Q", "YQ\n", "=", "==", "====", "YQ==YQ==", "Y===",
            "YQ===", "Yé", "YQ=Q",
        ] {
            assert!(written(|out| decode(bad.as_bytes(), out)).is_none(), "{bad}");
        }
    }

    #[test]
    fn what_is_encoded_decodes() {
        let bytes: Vec<u8> = (0..=255).collect();
        for len in 0..bytes.len() {
            for pads in [false, true] {
                let text = written(|out| encode(&bytes[..len], pads, out)).unwrap();
                assert_eq!(written(|out| decode(&text, out)).unwrap(), bytes[..len]);
            }
        }
    }
}
