//! Static tables initialized from text files, one entry per line.

use thalweg_graph::{OpDef, shape};
use thalweg_kernel::{AnyKernel, Family, KernelContext, KernelInit, KernelSpec};
use thalweg_tensor::{Bytes, DType, Result, Shape, Tensor, bail, ensure, err};

use super::table::Table;
use super::table_ops::change;
use crate::cells::blank;
use crate::files::read_file;
use crate::strings::number::{FromText, trimmed};
use crate::work;

pub(crate) static FAMILY: Family = Family {
    ops: &[
        INITIALIZE_TABLE_FROM_TEXT_FILE.without_gradient(),
        INITIALIZE_TABLE_FROM_TEXT_FILE_V2.without_gradient(),
    ],
    kernels: &[
        KernelSpec {
            op: "InitializeTableFromTextFile",
            create: initialize_from_text_file,
            ..KernelSpec::CPU
        },
        KernelSpec {
            op: "InitializeTableFromTextFileV2",
            create: initialize_from_text_file,
            ..KernelSpec::CPU
        },
    ],
};

const INITIALIZE_TABLE_FROM_TEXT_FILE: OpDef =
    OpDef::new("InitializeTableFromTextFile", shape::unknown).with_work(work::file);

const INITIALIZE_TABLE_FROM_TEXT_FILE_V2: OpDef =
    OpDef { name: "InitializeTableFromTextFileV2", ..INITIALIZE_TABLE_FROM_TEXT_FILE };

/// The source of a key or value.
#[derive(Clone, Copy, PartialEq)]
enum Field {
    WholeLine,
    LineNumber,
    Column(usize),
}

impl Field {
    fn of(init: &KernelInit<'_>, attr: &str) -> Result<Field> {
        Ok(match init.attrs().int(attr)? {
            -2 => Field::WholeLine,
            -1 => Field::LineNumber,
            column => {
                Field::Column(usize::try_from(column).map_err(|_| {
                    err!(InvalidArgument, "{attr} must be -2 or more, got {column}")
                })?)
            }
        })
    }

    /// Checks that keys or values (`what`) of dtype `dtype` can be read from this source.
    fn check(self, what: &str, dtype: DType) -> Result<()> {
        match self {
            Field::LineNumber => ensure!(
                dtype == DType::Int64,
                InvalidArgument,
                "{what} index for line number requires table {what} dtype of int64, got {dtype}"
            ),
            Field::WholeLine => ensure!(
                matches!(dtype, DType::Int64 | DType::Int32 | DType::String),
                InvalidArgument,
                "{what} index for whole line requires table {what} dtype of integer or string, got \
                 {dtype}"
            ),
            Field::Column(_) => {}
        }
        Ok(())
    }
}

/// How a file is parsed.
struct Format {
    key: Field,
    value: Field,
    /// Maximum number of lines, if limited.
    limit: Option<usize>,
    delimiter: u8,
    offset: i64,
}

fn initialize_from_text_file(init: &KernelInit<'_>) -> Result<AnyKernel> {
    let attrs = init.attrs();
    let &[delimiter] = attrs.string("delimiter")?.as_bytes() else {
        bail!(InvalidArgument, "delimiter should be only 1 char");
    };
    let format = Format {
        key: Field::of(init, "key_index")?,
        value: Field::of(init, "value_index")?,
        limit: usize::try_from(attrs.int("vocab_size")?).ok(),
        delimiter,
        offset: attrs.int("offset")?,
    };
    AnyKernel::new(move |ctx| {
        let filename = ctx.input(1)?;
        let ([name], 0) = (filename.strings()?, filename.rank()) else {
            bail!(
                InvalidArgument,
                "filename should be a single string, but got {}",
                filename.shape()
            );
        };
        ensure!(!name.is_empty(), InvalidArgument, "filename cannot be empty.");
        let Ok(path) = std::str::from_utf8(name) else {
            bail!(InvalidArgument, "file name {name:?} is not UTF-8");
        };
        change(ctx, |table| format.fill(ctx, table, path))
    })
}

impl Format {
    fn fill(&self, ctx: &KernelContext<'_>, table: &Table, path: &str) -> Result<()> {
        ensure!(table.is_static(), InvalidArgument, "the table is not initializable");
        self.key.check("Key", table.key_dtype)?;
        self.value.check("Value", table.value_dtype)?;
        let content = read_file(ctx, path)?;
        let count = lines(&content).count();
        let wanted = self.limit.unwrap_or(count);
        ensure!(
            wanted.min(count) > 0,
            OutOfRange,
            "{path}: there is no line to read: the file has {count} lines, vocab_size is {wanted}"
        );
        // A table that is already initialized keeps its content; the file is only checked.
        let is_full = table.is_initialized();
        let read = if is_full { 1 } else { wanted.min(count) };
        let shape = Shape::new(&[read])?;
        let mut keys = blank(ctx, table.key_dtype, shape.clone())?;
        let mut values = blank(ctx, table.value_dtype, shape)?;
        for (i, line) in lines(&content).take(read).enumerate() {
            self.parse(&line, i, &mut keys, &mut values)
                .map_err(|e| e.map_message(|message| format!("{path}: {message}")))?;
            if i % 4096 == 0 {
                ctx.check_cancelled()?;
            }
        }
        if is_full {
            return Ok(());
        }
        ensure!(
            wanted <= count,
            InvalidArgument,
            "Invalid vocab_size in {path}: expected {wanted} but got {count}"
        );
        table.initialize(&keys, &values)
    }

    fn parse(&self, line: &Bytes, i: usize, keys: &mut Tensor, values: &mut Tensor) -> Result<()> {
        ensure!(!line.is_empty(), InvalidArgument, "empty line found at line {i}");
        let columns = line.split(|&b| b == self.delimiter);
        let needed = [self.key, self.value].into_iter().filter_map(|field| match field {
            Field::Column(column) => Some(column),
            _ => None,
        });
        if let Some(last) = needed.max() {
            let there = columns.clone().count();
            ensure!(
                last < there,
                InvalidArgument,
                "Invalid number of columns in line {i} ({}) : expected at least {} got {there}",
                String::from_utf8_lossy(line),
                last.saturating_add(1)
            );
        }
        for (field, target) in [(self.key, keys), (self.value, values)] {
            match field {
                Field::LineNumber => {
                    target.as_mut_slice::<i64>()?[i] = (i as i64).wrapping_add(self.offset);
                }
                Field::WholeLine => set(target, i, line.clone())?,
                Field::Column(column) => {
                    let text = columns.clone().nth(column).unwrap_or_default();
                    set(target, i, line.slice_ref(text))?;
                }
            }
        }
        Ok(())
    }
}

/// The lines of a file, without line ends.
fn lines(content: &Bytes) -> impl Iterator<Item = Bytes> {
    let text = content.strip_suffix(b"\n").unwrap_or(content);
    let is_empty = content.is_empty();
    text.split(|&b| b == b'\n').filter(move |_| !is_empty).map(|line| {
        if line.contains(&b'\r') {
            return line.iter().copied().filter(|&b| b != b'\r').collect();
        }
        content.slice_ref(line)
    })
}

/// Sets element `i` to the parsed text.
fn set(target: &mut Tensor, i: usize, text: Bytes) -> Result<()> {
    fn number<T: FromText>(target: &mut Tensor, i: usize, text: &[u8]) -> Result<()> {
        let Some(value) = T::from_text(trimmed(text)) else {
            bail!(
                InvalidArgument,
                "Field {} in line {i} is not a valid {}.",
                String::from_utf8_lossy(text),
                T::DTYPE
            );
        };
        target.as_mut_slice::<T>()?[i] = value;
        Ok(())
    }
    match target.dtype() {
        DType::Int32 => number::<i32>(target, i, &text),
        DType::Int64 => number::<i64>(target, i, &text),
        DType::Float => number::<f32>(target, i, &text),
        DType::Double => number::<f64>(target, i, &text),
        DType::String => {
            target.strings_mut()?[i] = text;
            Ok(())
        }
        other => bail!(InvalidArgument, "Data type {other} not supported."),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_end_as_in_any_file() {
        let cases: [(&str, &[&str]); 7] = [
            ("", &[]),
            ("a", &["a"]),
            ("a\n", &["a"]),
            ("a\r\nb\r", &["a", "b"]),
            ("\n", &[""]),
            ("a\n\n", &["a", ""]),
            ("a\n\nb", &["a", "", "b"]),
        ];
        for (text, expected) in cases {
            let content = Bytes::from_static(text.as_bytes());
            let found: Vec<Bytes> = lines(&content).collect();
            assert_eq!(found, expected, "{text:?}");
        }
    }

    #[test]
    fn a_line_is_taken_apart_or_refused() {
        let format = |key, value| Format { key, value, limit: None, delimiter: b' ', offset: 5 };
        let vector = |dtype| Tensor::zeros(dtype, Shape::new(&[1]).unwrap()).unwrap();
        let parse = |format: Format, line: &'static str, dtype| {
            let (mut keys, mut values) = (vector(DType::String), vector(dtype));
            format.parse(&Bytes::from_static(line.as_bytes()), 0, &mut keys, &mut values)?;
            Ok::<_, thalweg_tensor::Error>((keys.strings()?[0].clone(), values))
        };
        let (key, value) =
            parse(format(Field::Column(1), Field::LineNumber), "a bc", DType::Int64).unwrap();
        assert_eq!((&key[..], value.scalar_value::<i64>().unwrap()), (&b"bc"[..], 5));
        let (key, value) =
            parse(format(Field::WholeLine, Field::Column(0)), " x", DType::String).unwrap();
        assert_eq!((&key[..], &value.strings().unwrap()[0][..]), (&b" x"[..], &b""[..]));
        for (line, column, dtype) in [
            ("", 0, DType::Int64),
            ("1 2", 2, DType::Int64),
            ("1 2", usize::MAX, DType::Int64),
            ("1 x", 1, DType::Int32),
            ("1 99999999999", 1, DType::Int32),
            ("1 1", 1, DType::Bool),
        ] {
            let refused = parse(format(Field::WholeLine, Field::Column(column)), line, dtype);
            let code = refused.unwrap_err().code();
            assert_eq!(code, thalweg_tensor::Code::InvalidArgument, "{line:?} {column}");
        }
    }
}
