//! Records of comma-separated fields, RFC 4180.

use thalweg_graph::OpDef;
use thalweg_graph::shape::ShapeContext;
use thalweg_kernel::{AnyKernel, Family, KernelContext, KernelInit, KernelSpec};
use thalweg_tensor::{Bytes, DType, Element, Result, Tensor, bail, ensure, err};

use super::decimal;

pub(crate) static FAMILY: Family = Family {
    ops: &[DECODE_CSV],
    kernels: &[KernelSpec { op: "DecodeCSV", create: decode_csv, ..KernelSpec::CPU }],
};

const DECODE_CSV: OpDef = OpDef {
    name: "DecodeCSV",
    inputs: &["records: string", "record_defaults: OUT_TYPE"],
    outputs: &["output: OUT_TYPE"],
    attrs: &[
        "OUT_TYPE: list({float, double, int32, int64, string}) >= 1",
        "field_delim: string = ','",
        "use_quote_delim: bool = true",
        "na_value: string = ''",
        "select_cols: list(int) = []",
    ],
    shape: one_per_record,
    ..OpDef::DEFAULT
};

fn one_per_record(c: &mut ShapeContext<'_>) -> Result<()> {
    for i in 1..c.num_inputs() {
        let shape = c.input(i);
        ensure!(
            shape.rank().is_none_or(|r| r <= 1),
            InvalidArgument,
            "the default of field {} must be a scalar or a vector, got shape {shape}",
            i - 1
        );
        ensure!(
            shape.dim(0).is_none_or(|n| n <= 1),
            InvalidArgument,
            "a field has at most one default, field {} has shape {shape}",
            i - 1
        );
    }
    for i in 0..c.num_outputs() {
        c.set_output(i, c.input(0).clone());
    }
    Ok(())
}

/// What the attrs say of the records.
struct Format {
    delimiter: u8,
    quotes: bool,
    missing: Bytes,
    /// The columns that are wanted, ascending; empty for all.
    columns: Vec<usize>,
    types: Vec<DType>,
}

impl Format {
    fn new(init: &KernelInit<'_>) -> Result<Format> {
        let attrs = init.attrs();
        let &[delimiter] = &attrs.bytes("field_delim")?[..] else {
            bail!(InvalidArgument, "field_delim should be only 1 char")
        };
        let types = attrs.dtypes("OUT_TYPE")?;
        let wanted = attrs.ints("select_cols")?;
        let columns = wanted.iter().map(|&c| usize::try_from(c)).collect::<Result<Vec<_>, _>>();
        let columns = columns
            .map_err(|_| err!(InvalidArgument, "select_cols should be non-negative indices"))?;
        ensure!(
            columns.is_empty() || columns.len() == types.len(),
            InvalidArgument,
            "select_cols has {} columns, there are {} outputs",
            columns.len(),
            types.len()
        );
        ensure!(
            columns.is_sorted_by(|a, b| a < b),
            InvalidArgument,
            "select_cols should be strictly increasing indices, got {columns:?}"
        );
        let quotes = attrs.bool("use_quote_delim")?;
        let missing = attrs.bytes("na_value")?.clone();
        Ok(Format { delimiter, quotes, missing, columns, types })
    }

    /// The wanted fields of one record, appended to `fields`.
    fn split(&self, record: &Bytes, fields: &mut Vec<Field>) -> Result<()> {
        let (mut at, mut column) = (0, 0);
        while at < record.len() {
            // Line ends before a field belong to nothing.
            if matches!(record[at], b'\n' | b'\r') {
                at += 1;
                continue;
            }
            let is_quoted = self.quotes && record[at] == b'"';
            let (field, next) =
                if is_quoted { self.quoted(record, at + 1)? } else { self.unquoted(record, at)? };
            at = next;
            if self.wants(column, fields.len()) {
                fields.push(field);
                if fields.len() == self.columns.len() {
                    return Ok(());
                }
            }
            column += 1;
        }
        if record.last() == Some(&self.delimiter) && self.wants(column, fields.len()) {
            fields.push(Field::default());
        }
        Ok(())
    }

    fn wants(&self, column: usize, found: usize) -> bool {
        self.columns.is_empty() || self.columns.get(found) == Some(&column)
    }

    /// The field that begins at `start`, and where the next begins.
    fn unquoted(&self, record: &Bytes, start: usize) -> Result<(Field, usize)> {
        let rest = &record[start..];
        let length = rest.iter().position(|&b| b == self.delimiter).unwrap_or(rest.len());
        let is_bad = |b: &u8| matches!(b, b'\n' | b'\r') || (self.quotes && *b == b'"');
        ensure!(
            !rest[..length].iter().any(is_bad),
            InvalidArgument,
            "Unquoted fields cannot have quotes/CRLFs inside"
        );
        let field = Field { start, end: start + length, has_quotes: false };
        Ok((field, start + length + 1))
    }

    /// As `unquoted`; `start` lies behind the opening quote.
    fn quoted(&self, record: &Bytes, start: usize) -> Result<(Field, usize)> {
        let (mut at, mut has_quotes) = (start, false);
        loop {
            match (record.get(at), record.get(at + 1)) {
                (Some(b'"'), Some(&next)) if next == self.delimiter => break,
                (Some(b'"'), None) => break,
                (Some(b'"'), Some(b'"')) => {
                    has_quotes = true;
                    at += 2;
                }
                (Some(b'"'), Some(_)) => {
                    bail!(
                        InvalidArgument,
                        "Quote inside a string has to be escaped by another quote"
                    )
                }
                (Some(_), _) => at += 1,
                (None, _) => bail!(
                    InvalidArgument,
                    "Quoted field has to end with quote followed by delim or end"
                ),
            }
        }
        Ok((Field { start, end: at, has_quotes }, at + 2))
    }
}

/// Where a field lies in its record.
#[derive(Clone, Copy, Default)]
struct Field {
    start: usize,
    end: usize,
    /// Whether doubled quotes inside stand for single ones.
    has_quotes: bool,
}

impl Field {
    fn text(self, record: &Bytes) -> Bytes {
        let raw = record.slice(self.start..self.end);
        if !self.has_quotes {
            return raw;
        }
        let mut text = Vec::with_capacity(raw.len());
        let mut bytes = raw.iter();
        while let Some(&b) = bytes.next() {
            text.push(b);
            if b == b'"' {
                bytes.next();
            }
        }
        text.into()
    }
}

fn decode_csv(init: &KernelInit<'_>) -> Result<AnyKernel> {
    let format = Format::new(init)?;
    AnyKernel::new(move |ctx| {
        for f in 0..format.types.len() {
            let default = ctx.input(f + 1)?;
            ensure!(
                default.rank() <= 1 && default.num_elements() <= 1,
                InvalidArgument,
                "There should only be 1 default per field but field {f} has shape {}",
                default.shape()
            );
        }
        let shape = ctx.input(0)?.shape().clone();
        let zeros = |&dtype: &DType| ctx.zeros(dtype, shape.clone());
        let mut outputs = format.types.iter().map(zeros).collect::<Result<Vec<Tensor>>>()?;
        let mut fields = Vec::new();
        for (r, record) in ctx.input(0)?.strings()?.iter().enumerate() {
            if r % 1024 == 0 {
                ctx.check_cancelled()?;
            }
            fields.clear();
            format.split(record, &mut fields)?;
            ensure!(
                fields.len() == format.types.len(),
                InvalidArgument,
                "Expect {} fields but have {} in record {r}",
                format.types.len(),
                fields.len()
            );
            for (f, field) in fields.iter().enumerate() {
                let text = field.text(record);
                store(ctx, &format, &mut outputs[f], &text, (f, r))?;
            }
        }
        for (f, output) in outputs.into_iter().enumerate() {
            ctx.set_output(f, output)?;
        }
        Ok(())
    })
}

/// Puts the text of field `f` of record `r`, or the field's default, into its output.
fn store(
    ctx: &KernelContext<'_>,
    format: &Format,
    output: &mut Tensor,
    text: &Bytes,
    (f, r): (usize, usize),
) -> Result<()> {
    if text.is_empty() || *text == format.missing {
        let default = ctx.input(f + 1)?;
        ensure!(
            default.num_elements() == 1,
            InvalidArgument,
            "Field {f} is required but missing in record {r}!"
        );
        return match output.dtype() {
            DType::Float => put(output, r, default.as_slice::<f32>()?[0]),
            DType::Double => put(output, r, default.as_slice::<f64>()?[0]),
            DType::Int32 => put(output, r, default.as_slice::<i32>()?[0]),
            DType::Int64 => put(output, r, default.as_slice::<i64>()?[0]),
            _ => {
                output.strings_mut()?[r] = default.strings()?[0].clone();
                Ok(())
            }
        };
    }
    let bad = || {
        let shown = String::from_utf8_lossy(text);
        err!(InvalidArgument, "Field {f} in record {r} is not a valid {}: {shown}", format.types[f])
    };
    match output.dtype() {
        DType::Float => put(output, r, decimal::float32(text).ok_or_else(bad)?),
        DType::Double => put(output, r, decimal::float64(text).ok_or_else(bad)?),
        DType::Int32 => put(output, r, decimal::integer::<i32>(text).ok_or_else(bad)?),
        DType::Int64 => put(output, r, decimal::integer::<i64>(text).ok_or_else(bad)?),
        _ => {
            output.strings_mut()?[r] = text.clone();
            Ok(())
        }
    }
}

fn put<T: Element>(output: &mut Tensor, at: usize, value: T) -> Result<()> {
    output.as_mut_slice()?[at] = value;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Call, call};

    fn ints(record: &str, fields: usize) -> Call {
        let record = Tensor::scalar_string(record.as_bytes().to_vec());
        let mut node = call("DecodeCSV").input(record);
        for _ in 0..fields {
            node = node.input(Tensor::vector(&[0i32]).unwrap());
        }
        node.attr("OUT_TYPE", &vec![DType::Int32; fields][..]).attr("na_value", "NA")
    }

    fn shown(node: Call) -> String {
        match node.run_all() {
            Ok(outputs) => {
                let one = |t: &Tensor| t.as_slice::<i32>().unwrap()[0].to_string();
                outputs.iter().map(one).collect::<Vec<_>>().join(",")
            }
            Err(_) => "error".into(),
        }
    }

    #[test]
    fn fields() {
        for (record, expected) in [
            ("1,2", "1,2"),
            ("\r\n1,\n2", "1,2"),
            ("1,", "1,0"),
            ("NA,2", "0,2"),
            ("\"1\",\"2\"", "1,2"),
            ("\"1\n\",2", "1,2"),
            ("\"1\",", "1,0"),
            ("1,2\n", "error"),
            ("1,2,3", "error"),
            ("", "error"),
            ("\n", "error"),
            ("\"1\"x,2", "error"),
            ("\"1,2", "error"),
            ("1\"2,3", "error"),
            ("\"", "error"),
            ("0x10,1", "error"),
        ] {
            assert_eq!(shown(ints(record, 2)), expected, "{record:?}");
        }
    }

    #[test]
    fn chosen_columns() {
        for (record, columns, expected) in [
            ("1,2,3,4", &[1i64, 3][..], "2,4"),
            ("1,2,", &[1, 2], "2,0"),
            ("1,2", &[1, 5], "error"),
            ("1,2,x", &[0, 1], "1,2"),
            ("1,2,3", &[2, 1], "error"),
            ("1,2,3", &[-1, 1], "error"),
            ("1,2,3", &[1], "error"),
        ] {
            let node = ints(record, 2).attr("select_cols", columns);
            assert_eq!(shown(node), expected, "{record:?} {columns:?}");
        }
    }

    #[test]
    fn strings_lose_their_quotes() {
        let default = || {
            Tensor::from_strings(
                thalweg_tensor::Shape::new(&[1]).unwrap(),
                vec![Bytes::from_static(b"d")],
            )
        };
        let record = Tensor::scalar_string(&b"\"a\"\"b\",\"c,d\",\"\""[..]);
        let mut node = call("DecodeCSV").input(record);
        for _ in 0..3 {
            node = node.input(default().unwrap());
        }
        let outputs = node.attr("OUT_TYPE", &[DType::String; 3][..]).run_all().unwrap();
        let texts: Vec<_> = outputs.iter().map(|t| t.strings().unwrap()[0].clone()).collect();
        assert_eq!(texts, [&b"a\"b"[..], b"c,d", b"d"]);
    }

    #[test]
    fn shapes() {
        let node = |default: &str| {
            call("DecodeCSV")
                .shape(DType::String, "2,?")
                .shape(DType::Int32, default)
                .attr("OUT_TYPE", &[DType::Int32][..])
                .infer()
        };
        assert_eq!(node("1"), "[2,?]");
        assert!(node("2").contains("at most one default"));
        assert!(node("1,1").contains("must be a scalar or a vector"));
    }
}
