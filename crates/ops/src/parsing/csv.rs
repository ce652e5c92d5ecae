//! `DecodeCSV`: comma-separated values by RFC 4180.

use std::borrow::Cow;
use std::sync::Arc;

use thalweg_graph::shape::ShapeContext;
use thalweg_graph::{OpDef, Work};
use thalweg_kernel::{AnyKernel, Family, KernelInit, KernelSpec};
use thalweg_tensor::{
    Budget, Bytes, DType, Element, Result, Tensor, bail, charge_string, ensure, err,
};

use crate::split::Disjoint;
use crate::strings::number::{FromText, trimmed};
use crate::strings::text::{FirstError, part};

pub(crate) static FAMILY: Family = Family {
    ops: &[OpDef::new("DecodeCSV", one_per_record).with_work(Work::serial::<100>)],
    kernels: &[KernelSpec { op: "DecodeCSV", create: decode_csv, ..KernelSpec::CPU }],
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

/// Options from the attrs.
struct Format {
    delimiter: u8,
    quotes: bool,
    missing: Bytes,
    /// Selected columns, ascending; empty for all.
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

    /// Appends the selected fields of one record to `fields`.
    fn split(&self, record: &Bytes, fields: &mut Vec<Field>) -> Result<()> {
        let (mut at, mut column) = (0, 0);
        while at < record.len() {
            // Line ends before a field are skipped.
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

    /// The unquoted field that begins at `start`, and the start of the next field.
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

    /// As `unquoted`; `start` is after the opening quote.
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

/// Position of a field in its record.
#[derive(Clone, Copy, Default)]
struct Field {
    start: usize,
    end: usize,
    /// Whether the field contains doubled quotes, which stand for single ones.
    has_quotes: bool,
}

impl Field {
    /// The unescaped bytes of the field.
    fn text(self, record: &Bytes) -> Cow<'_, [u8]> {
        let raw = &record[self.start..self.end];
        if !self.has_quotes {
            return raw.into();
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

    /// As `text`, as a new string or a slice of the record.
    fn string(self, record: &Bytes, budget: &Arc<Budget>) -> Result<Bytes> {
        match self.text(record) {
            Cow::Borrowed(_) => part(record, self.start..self.end, budget),
            Cow::Owned(text) => charge_string(text, budget),
        }
    }
}

fn decode_csv(init: &KernelInit<'_>) -> Result<AnyKernel> {
    let format = Format::new(init)?;
    AnyKernel::new(move |ctx| {
        let records = ctx.input(0)?.strings()?;
        let shape = ctx.input(0)?.shape();
        let zeros = |&dtype: &DType| ctx.zeros(dtype, shape.clone());
        let mut outputs = format.types.iter().map(zeros).collect::<Result<Vec<Tensor>>>()?;
        let mut columns = Vec::new();
        for (f, output) in outputs.iter_mut().enumerate() {
            columns.push(Column::new(f, ctx.input(f + 1)?, output)?);
        }
        let (errors, count) = (FirstError::new(), format.types.len());
        ctx.parallel_for(records.len(), 100.0 * count as f64, |range| {
            let mut fields = Vec::with_capacity(count);
            for r in range {
                fields.clear();
                let decoded =
                    decode_record(&format, (r, &records[r]), &mut fields, &columns, ctx.budget());
                if let Err(e) = decoded {
                    return errors.note(r, e);
                }
            }
        })?;
        errors.check()?;
        drop(columns);
        for (f, output) in outputs.into_iter().enumerate() {
            ctx.set_output(f, output)?;
        }
        Ok(())
    })
}

fn decode_record(
    format: &Format,
    (r, record): (usize, &Bytes),
    fields: &mut Vec<Field>,
    columns: &[Column<'_>],
    budget: &Arc<Budget>,
) -> Result<()> {
    format.split(record, fields)?;
    ensure!(
        fields.len() == columns.len(),
        InvalidArgument,
        "Expect {} fields but have {} in record {r}",
        columns.len(),
        fields.len()
    );
    for (f, (field, column)) in fields.iter().zip(columns).enumerate() {
        let text = field.text(record);
        if text.is_empty() || *text == format.missing {
            ensure!(
                column.put_default(r),
                InvalidArgument,
                "Field {f} is required but missing in record {r}!"
            );
        } else if !column.put(r, &text, || field.string(record, budget))? {
            bail!(
                InvalidArgument,
                "Field {f} in record {r} is not a valid {}: {}",
                format.types[f],
                String::from_utf8_lossy(&text)
            );
        }
    }
    Ok(())
}

/// An output, whose records are written by several threads, and its default value.
enum Column<'a> {
    Float(Disjoint<'a, f32>, Option<f32>),
    Double(Disjoint<'a, f64>, Option<f64>),
    Int32(Disjoint<'a, i32>, Option<i32>),
    Int64(Disjoint<'a, i64>, Option<i64>),
    String(Disjoint<'a, Bytes>, Option<Bytes>),
}

impl<'a> Column<'a> {
    fn new(f: usize, default: &Tensor, output: &'a mut Tensor) -> Result<Column<'a>> {
        ensure!(
            default.rank() <= 1 && default.num_elements() <= 1,
            InvalidArgument,
            "There should only be 1 default per field but field {f} has shape {}",
            default.shape()
        );
        fn parts<'a, T: Element>(
            default: &Tensor,
            output: &'a mut Tensor,
        ) -> Result<(Disjoint<'a, T>, Option<T>)> {
            let default = default.as_slice::<T>()?.first().copied();
            Ok((Disjoint::new(output.as_mut_slice()?), default))
        }
        Ok(match output.dtype() {
            DType::Float => parts(default, output).map(|(o, d)| Column::Float(o, d))?,
            DType::Double => parts(default, output).map(|(o, d)| Column::Double(o, d))?,
            DType::Int32 => parts(default, output).map(|(o, d)| Column::Int32(o, d))?,
            DType::Int64 => parts(default, output).map(|(o, d)| Column::Int64(o, d))?,
            _ => {
                let default = default.strings()?.first().cloned();
                Column::String(Disjoint::new(output.strings_mut()?), default)
            }
        })
    }

    /// Parses the text as the value of record `r`; returns false if it is not a value of this type.
    fn put(&self, r: usize, text: &[u8], string: impl FnOnce() -> Result<Bytes>) -> Result<bool> {
        Ok(match self {
            Column::Float(output, _) => store(output, r, f32::from_text(trimmed(text))),
            Column::Double(output, _) => store(output, r, f64::from_text(trimmed(text))),
            Column::Int32(output, _) => store(output, r, i32::from_text(trimmed(text))),
            Column::Int64(output, _) => store(output, r, i64::from_text(trimmed(text))),
            Column::String(output, _) => store(output, r, Some(string()?)),
        })
    }

    /// Sets record `r` to the default; returns false if there is none.
    fn put_default(&self, r: usize) -> bool {
        match self {
            Column::Float(output, default) => store(output, r, *default),
            Column::Double(output, default) => store(output, r, *default),
            Column::Int32(output, default) => store(output, r, *default),
            Column::Int64(output, default) => store(output, r, *default),
            Column::String(output, default) => store(output, r, default.clone()),
        }
    }
}

fn store<T>(output: &Disjoint<'_, T>, r: usize, value: Option<T>) -> bool {
    let Some(value) = value else { return false };
    // SAFETY: every record is decoded by one thread, once, and writes one element per output.
    let slot = unsafe { output.part(r..r + 1) };
    slot[0] = value;
    true
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
