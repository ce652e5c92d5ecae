//! `AsString` and `StringFormat`.

use bytes::Bytes;
use thalweg_graph::{OpDef, ShapeContext, Work, shape};
use thalweg_kernel::{AnyKernel, Family, KernelContext, KernelInit, KernelSpec};
use thalweg_tensor::{
    Complex32, Complex64, DType, Element, PartialShape, Result, StringBuilder, Tensor, bail, bf16,
    charge_string, ensure, f16,
};

use super::printf::{self, Notation, Spec};
use super::show;
use super::text::{make_strings, write_strings};

pub(crate) static FAMILY: Family = Family {
    ops: &[
        OpDef::new("AsString", shape::unchanged).without_gradient(),
        OpDef::new("StringFormat", string_format_shape).with_work(Work::serial::<100>),
    ],
    kernels: &[
        KernelSpec { op: "AsString", create: as_string, ..KernelSpec::CPU },
        KernelSpec { op: "StringFormat", create: string_format, ..KernelSpec::CPU },
    ],
};

/// Nanoseconds per number.
const NANOSECONDS: f64 = 200.0;

fn as_string(init: &KernelInit<'_>) -> Result<AnyKernel> {
    let attrs = init.attrs();
    let dtype = attrs.dtype("T")?;
    let (precision, width) = (attrs.int("precision")?, attrs.int("width")?);
    let is_float = dtype.is_floating() || dtype.is_complex();
    let is_text = matches!(dtype, DType::String | DType::Variant);
    let notation = match (attrs.bool("scientific")?, attrs.bool("shortest")?) {
        (true, true) => bail!(InvalidArgument, "scientific and shortest exclude each other"),
        (false, false) => Notation::Fixed,
        _ if !is_float && !is_text => {
            bail!(InvalidArgument, "{dtype} has neither a scientific nor a shortest form")
        }
        (true, false) => Notation::Scientific,
        (false, true) => Notation::General,
    };
    ensure!(
        precision < 0 || is_float || is_text,
        InvalidArgument,
        "precision is for floating point numbers, not for {dtype}"
    );
    let flag = match &attrs.bytes("fill")?[..] {
        [] => None,
        [flag @ (b'+' | b'-' | b'0' | b' ' | b'#')] => Some(*flag),
        [_] => bail!(InvalidArgument, "fill must be one of '+', '-', '0', ' ' and '#'"),
        _ => bail!(InvalidArgument, "fill must be at most one character"),
    };
    let spec = Spec {
        width: usize::try_from(width).unwrap_or(0),
        precision: usize::try_from(precision).unwrap_or(6),
        flag,
    };
    AnyKernel::new(move |ctx| {
        let output = printed(ctx, notation, spec)?;
        ctx.set_output(0, output)
    })
}

fn printed(ctx: &KernelContext<'_>, notation: Notation, spec: Spec) -> Result<Tensor> {
    let input = ctx.input(0)?;
    let float = |out: &mut StringBuilder, x: f64| printf::float(out, notation, spec, x);
    let complex = |out: &mut StringBuilder, re: f64, im: f64| {
        out.push(b"(")?;
        float(out, re)?;
        out.push(b",")?;
        float(out, im)?;
        out.push(b")")
    };
    let wide = |x: f32| f64::from(printf::flushed_f32(x));
    let signed = |out: &mut StringBuilder, x: i64| printf::signed(out, spec, x);
    let unsigned = |out: &mut StringBuilder, x: u64| printf::unsigned(out, spec, x);
    match input.dtype() {
        DType::Float => each(ctx, |x: f32, out| float(out, wide(x))),
        DType::Half => each(ctx, |x: f16, out| float(out, wide(x.to_f32()))),
        DType::BFloat16 => each(ctx, |x: bf16, out| float(out, wide(x.to_f32()))),
        DType::Double => each(ctx, |x: f64, out| float(out, printf::flushed_f64(x))),
        DType::Complex64 => each(ctx, |x: Complex32, out| complex(out, wide(x.re), wide(x.im))),
        DType::Complex128 => each(ctx, |x: Complex64, out| {
            complex(out, printf::flushed_f64(x.re), printf::flushed_f64(x.im))
        }),
        DType::Int8 => each(ctx, |x: i8, out| signed(out, x.into())),
        DType::Int16 => each(ctx, |x: i16, out| signed(out, x.into())),
        DType::Int32 => each(ctx, |x: i32, out| signed(out, x.into())),
        DType::Int64 => each(ctx, |x: i64, out| signed(out, x)),
        DType::UInt8 => each(ctx, |x: u8, out| unsigned(out, x.into())),
        DType::UInt16 => each(ctx, |x: u16, out| unsigned(out, x.into())),
        DType::UInt32 => each(ctx, |x: u32, out| unsigned(out, x.into())),
        DType::UInt64 => each(ctx, |x: u64, out| unsigned(out, x)),
        DType::Bool => each(ctx, |x: bool, out| out.push(if x { b"true" } else { b"false" })),
        DType::String => {
            let strings = input.strings()?;
            write_strings(ctx, input.shape().clone(), NANOSECONDS, |i, out| {
                printf::string(out, spec, &strings[i])
            })
        }
        DType::Variant => {
            let variants = input.variants()?;
            make_strings(ctx, input.shape().clone(), NANOSECONDS, |i| {
                Ok(match &variants[i] {
                    None => Bytes::from_static(b"Variant<type: [invalid] value: [empty]>"),
                    Some(v) => {
                        let name = v.type_name();
                        let short = name.rsplit("::").next().unwrap_or(name);
                        let text = format!("Variant<type: {name} value: {short}>");
                        charge_string(text.into_bytes(), ctx.budget())?
                    }
                })
            })
        }
        other => bail!(Unimplemented, "AsString does not support dtype {other}"),
    }
}

/// A string for every element.
fn each<T: Element>(
    ctx: &KernelContext<'_>,
    write: impl Fn(T, &mut StringBuilder) -> Result<()> + Sync,
) -> Result<Tensor> {
    let input = ctx.input(0)?;
    let elements = input.as_slice::<T>()?;
    write_strings(ctx, input.shape().clone(), NANOSECONDS, |i, out| write(elements[i], out))
}

fn string_format_shape(c: &mut ShapeContext<'_>) -> Result<()> {
    let attrs = c.attrs();
    template_parts(attrs.bytes("template")?, attrs.bytes("placeholder")?, c.num_inputs())?;
    c.set_output(0, PartialShape::scalar());
    Ok(())
}

/// The template's text before, between and after the placeholders of `inputs` tensors.
fn template_parts(template: &Bytes, placeholder: &[u8], inputs: usize) -> Result<Vec<Bytes>> {
    let mut parts = Vec::new();
    let mut rest = template.clone();
    loop {
        let found = if placeholder.is_empty() {
            // An empty placeholder matches between any two bytes.
            (rest.len() > 1).then_some(1)
        } else {
            rest.windows(placeholder.len()).position(|w| w == placeholder)
        };
        let Some(at) = found else { break };
        parts.push(rest.split_to(at));
        _ = rest.split_to(placeholder.len());
        ensure!(
            parts.len() <= inputs,
            InvalidArgument,
            "the template has more placeholders than the {inputs} input tensors"
        );
    }
    ensure!(
        parts.len() == inputs,
        InvalidArgument,
        "the template has {} placeholders, but there are {inputs} input tensors",
        parts.len()
    );
    parts.push(rest);
    Ok(parts)
}

fn string_format(init: &KernelInit<'_>) -> Result<AnyKernel> {
    let attrs = init.attrs();
    let inputs = init.node.inputs.len();
    let parts = template_parts(attrs.bytes("template")?, attrs.bytes("placeholder")?, inputs)?;
    let summarize = attrs.int("summarize")?;
    AnyKernel::new(move |ctx| {
        let mut out = StringBuilder::new(ctx.budget());
        for (i, part) in parts.iter().enumerate() {
            out.push(part)?;
            if i < ctx.num_inputs() {
                show::nested(ctx.input(i)?, summarize, &mut out)?;
            }
        }
        ctx.set_output(0, Tensor::scalar_string(out.take()?))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{call, code};
    use thalweg_tensor::Code;

    #[test]
    fn numbers_with_attrs() {
        let three = || call("AsString").input(Tensor::vector(&[1.5f32, -0.1, f32::NAN]).unwrap());
        for (call, expected) in [
            (three(), "1.500000 -0.100000 nan"),
            (three().attr("precision", 1i64), "1.5 -0.1 nan"),
            (three().attr("scientific", true), "1.500000e+00 -1.000000e-01 nan"),
            (three().attr("shortest", true), "1.5 -0.1 nan"),
            (
                three().attr("width", 5i64).attr("fill", "0").attr("precision", 1i64),
                "001.5 -00.1   nan",
            ),
            (call("AsString").input(Tensor::vector(&[true, false]).unwrap()), "true false"),
            (call("AsString").input(Tensor::vector(&[i64::MIN]).unwrap()), "-9223372036854775808"),
            (call("AsString").input(Tensor::vector(&[7u8]).unwrap()).attr("fill", "+"), "7"),
            (call("AsString").input(Tensor::vector(&[7i8]).unwrap()).attr("fill", "+"), "+7"),
            (
                call("AsString")
                    .input(Tensor::scalar(Complex32::new(1.0, -2.0)))
                    .attr("shortest", true),
                "(1,-2)",
            ),
        ] {
            let strings = call.run().unwrap();
            let strings = strings.strings().unwrap().iter().map(|s| String::from_utf8_lossy(s));
            assert_eq!(strings.collect::<Vec<_>>().join(" "), expected);
        }
    }

    #[test]
    fn attrs_that_do_not_fit() {
        let number = || call("AsString").input(Tensor::scalar(1i32));
        for refused in [
            number().attr("precision", 3i64),
            number().attr("scientific", true),
            number().attr("fill", "ab"),
            number().attr("fill", "x"),
            call("AsString")
                .input(Tensor::scalar(1f32))
                .attr("scientific", true)
                .attr("shortest", true),
        ] {
            assert_eq!(code(refused.run()), Some(Code::InvalidArgument));
        }
        let wide = number().attr("width", i64::MAX);
        assert_eq!(code(wide.run()), Some(Code::ResourceExhausted));
    }

    #[test]
    fn templates() {
        let format = |template: &'static str, placeholder: &'static str, inputs: &[Tensor]| {
            let mut call = call("StringFormat");
            let dtypes: Vec<DType> = inputs.iter().map(Tensor::dtype).collect();
            for input in inputs {
                call = call.input(input.clone());
            }
            let call = call.attr("template", template).attr("placeholder", placeholder);
            call.attr("T", &dtypes[..]).run().map(|t| t.strings().unwrap()[0].clone())
        };
        let (one, text) = (Tensor::scalar(1i32), Tensor::scalar_string("x"));
        assert_eq!(format("a %s b %s", "%s", &[one.clone(), text]).unwrap(), "a 1 b \"x\"");
        assert_eq!(format("aaaa", "aa", &[one.clone(), one.clone()]).unwrap(), "11");
        assert_eq!(format("ab", "", std::slice::from_ref(&one)).unwrap(), "a1b");
        assert_eq!(format("", "", &[]).unwrap(), "");
        assert_eq!(format("abc", "%s", &[]).unwrap(), "abc");
        assert_eq!(code(format("a %s", "%s", &[])), Some(Code::InvalidArgument));
        assert_eq!(code(format("a", "%s", &[one])), Some(Code::InvalidArgument));
    }
}
