//! `CSVDataset`: comma-separated values by RFC 4180.

use std::io::BufRead;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use thalweg_formats::record::Compression;
use thalweg_graph::{OpDef, shape};
use thalweg_kernel::{AnyKernel, Family, KernelContext, KernelInit, KernelSpec};
use thalweg_tensor::{
    Budget, Bytes, Code, DType, Result, Shape, Tensor, bail, copy_string, ensure, err,
};

use super::dataset::{
    Dataset, Iterate, Next, Source, YieldBudget, dataset_kernel, flag_input, string_input,
};
use super::element::{Element, Spec};
use super::files::compression;
use super::records::{RECORD_BYTES_MAX, Stream, stream};
use super::scope::Scope;
use crate::strings::number::{FromText, trimmed};

pub(crate) static FAMILY: Family = Family {
    ops: &[CSV_DATASET, EXPERIMENTAL_CSV_DATASET, CSV_DATASET_V2],
    kernels: &[
        KernelSpec { op: "CSVDataset", create: csv, ..KernelSpec::CPU },
        KernelSpec { op: "ExperimentalCSVDataset", create: csv, ..KernelSpec::CPU },
        KernelSpec { op: "CSVDatasetV2", create: csv, ..KernelSpec::CPU },
    ],
};

const CSV_DATASET: OpDef = OpDef::new("CSVDataset", shape::scalar);

const EXPERIMENTAL_CSV_DATASET: OpDef = OpDef { name: "ExperimentalCSVDataset", ..CSV_DATASET };

const CSV_DATASET_V2: OpDef = OpDef { name: "CSVDatasetV2", ..CSV_DATASET };

/// Options of reading the files.
struct Format {
    compression: Compression,
    has_header: bool,
    delimiter: u8,
    quotes: bool,
    missing: Bytes,
    columns: Columns,
    /// Default value of each output for a missing field, or none if the field is required.
    defaults: Vec<Tensor>,
    dtypes: Arc<[DType]>,
}

/// Selected fields of a record.
enum Columns {
    All,
    These(Vec<usize>),
    AllBut(Vec<usize>),
}

struct CsvDataset {
    files: Arc<[Bytes]>,
    format: Arc<Format>,
    spec: Spec,
}

fn csv(init: &KernelInit<'_>) -> Result<AnyKernel> {
    let spec = Spec::of(init.attrs())?;
    dataset_kernel(move |ctx| {
        let names = ctx.input(0)?;
        ensure!(names.rank() <= 1, InvalidArgument, "`filenames` must be a scalar or a vector.");
        let format = Arc::new(format(ctx, &spec)?);
        Source::new(CsvDataset { files: names.strings()?.into(), format, spec: spec.clone() }, 0)
    })
}

fn format(ctx: &KernelContext<'_>, spec: &Spec) -> Result<Format> {
    ensure!(
        ctx.scalar_int(2, "buffer_size")? > 0,
        InvalidArgument,
        "buffer_size should be positive"
    );
    let &[delimiter] = &string_input(ctx, 4, "field_delim")?[..] else {
        bail!(InvalidArgument, "field_delim should be only 1 char")
    };
    let mut defaults = Vec::new();
    for i in ctx.input_range("record_defaults")? {
        let default = ctx.input(i)?;
        ensure!(
            default.rank() <= 1 && default.num_elements() <= 1,
            InvalidArgument,
            "There should only be 1 default per field but field {} has shape {}",
            defaults.len(),
            default.shape()
        );
        defaults.push(default.clone());
    }
    let selected = indices(ctx, 7, "select_cols")?;
    let excluded = match ctx.input_range("exclude_cols") {
        Ok(range) => indices(ctx, range.start, "exclude_cols")?,
        Err(_) => Vec::new(),
    };
    ensure!(
        selected.is_empty() || selected.len() == defaults.len(),
        InvalidArgument,
        "select_cols should match output size"
    );
    ensure!(
        selected.is_empty() || excluded.is_empty(),
        InvalidArgument,
        "Either select_cols or exclude_cols should be given, not both"
    );
    Ok(Format {
        compression: compression(ctx, 1)?.unwrap_or_default(),
        has_header: flag_input(ctx, 3, "header")?,
        delimiter,
        quotes: flag_input(ctx, 5, "use_quote_delim")?,
        missing: string_input(ctx, 6, "na_value")?,
        columns: match (selected.is_empty(), excluded.is_empty()) {
            (false, _) => Columns::These(selected),
            (true, false) => Columns::AllBut(excluded),
            (true, true) => Columns::All,
        },
        defaults,
        dtypes: spec.dtypes.clone(),
    })
}

/// Column indices, ascending.
fn indices(ctx: &KernelContext<'_>, i: usize, name: &str) -> Result<Vec<usize>> {
    let index = |index: i64| {
        usize::try_from(index)
            .map_err(|_| err!(InvalidArgument, "{name} should be non-negative indices"))
    };
    let found = ctx.ints(i, name)?.into_iter().map(index).collect::<Result<Vec<_>>>()?;
    ensure!(
        found.is_sorted_by(|a, b| a < b),
        InvalidArgument,
        "{name} should be strictly increasing indices"
    );
    Ok(found)
}

impl Dataset for CsvDataset {
    fn spec(&self) -> &Spec {
        &self.spec
    }

    fn iterate(&self, scope: &Arc<Scope>) -> Result<Box<dyn Iterate>> {
        Ok(Box::new(CsvIterator {
            files: self.files.clone(),
            format: self.format.clone(),
            next: 0,
            open: None,
            scope: scope.clone(),
            yield_budget: YieldBudget::default(),
        }))
    }
}

struct CsvIterator {
    files: Arc<[Bytes]>,
    format: Arc<Format>,
    /// Number of files opened.
    next: usize,
    open: Option<Records>,
    scope: Arc<Scope>,
    yield_budget: YieldBudget,
}

impl CsvIterator {
    fn open(&mut self) -> Result<Records> {
        let i = self.next;
        self.next += 1;
        let path = std::str::from_utf8(&self.files[i])
            .map_err(|_| err!(InvalidArgument, "a file name is not valid UTF-8"))?;
        let content = stream(&*self.scope.environment.storage, path, self.format.compression)?;
        let mut records = Records { content, path: path.to_owned(), number: 0 };
        if self.format.has_header {
            records.next(&self.format)?;
        }
        Ok(records)
    }
}

impl Iterate for CsvIterator {
    fn poll_next(&mut self, cx: &mut Context<'_>) -> Next {
        loop {
            let Some(open) = &mut self.open else {
                if self.next >= self.files.len() {
                    return Poll::Ready(Ok(None));
                }
                ready!(self.yield_budget.poll(cx));
                self.open = Some(self.open()?);
                continue;
            };
            let fields = match open.next(&self.format) {
                Ok(Some(fields)) => fields,
                Ok(None) => {
                    self.open = None;
                    continue;
                }
                Err(e) => {
                    if e.code() != Code::InvalidArgument {
                        self.open = None;
                    }
                    return Poll::Ready(Err(e));
                }
            };
            let element = self.format.element(&fields, &self.scope.budget);
            let place = format!("{}, record {}", open.path, open.number);
            return Poll::Ready(match element {
                Ok(element) => Ok(Some(element)),
                Err(e) => Err(e.map_message(|m| format!("{place}: {m}"))),
            });
        }
    }
}

/// The records of one file.
struct Records {
    content: Stream,
    path: String,
    /// Number of records read, including the header.
    number: u64,
}

/// State of the parser within a field.
#[derive(Clone, Copy, PartialEq)]
enum ParseState {
    Start,
    Plain,
    Quoted,
    /// After a quote, which ends the field unless another quote follows.
    Closed,
}

impl Records {
    fn peek(&mut self) -> Result<Option<u8>> {
        let buffer = self.content.fill_buf();
        let buffer = buffer.map_err(|e| err!(DataLoss, "{}: {e}", self.path))?;
        Ok(buffer.first().copied())
    }

    /// The fields of the next record.
    fn next(&mut self, format: &Format) -> Result<Option<Vec<Vec<u8>>>> {
        if self.peek()?.is_none() {
            return Ok(None);
        }
        self.number += 1;
        let (mut fields, mut field, mut bytes) = (Vec::new(), Vec::new(), 0);
        let (mut at, mut mistake) = (ParseState::Start, None);
        loop {
            let next = self.peek()?;
            self.content.consume(usize::from(next.is_some()));
            bytes += 1;
            ensure!(
                bytes <= RECORD_BYTES_MAX,
                ResourceExhausted,
                "{}: a record has more than {RECORD_BYTES_MAX} bytes",
                self.path
            );
            match (at, next) {
                (ParseState::Quoted, None) => {
                    mistake = mistake.or(Some("a quoted field has no end"));
                    break;
                }
                (ParseState::Quoted, Some(b'"')) => at = ParseState::Closed,
                (ParseState::Quoted, Some(byte)) => field.push(byte),
                (_, None) => break,
                (_, Some(b'\n')) => break,
                (_, Some(b'\r')) => {
                    if self.peek()? == Some(b'\n') {
                        self.content.consume(1);
                    }
                    break;
                }
                (_, Some(byte)) if byte == format.delimiter => {
                    fields.push(std::mem::take(&mut field));
                    at = ParseState::Start;
                }
                (ParseState::Closed, Some(byte)) => {
                    if byte != b'"' {
                        mistake = Some("a quote inside a quoted field is not doubled");
                    }
                    field.push(byte);
                    at = ParseState::Quoted;
                }
                (ParseState::Start, Some(b'"')) if format.quotes => at = ParseState::Quoted,
                (ParseState::Plain, Some(b'"')) if format.quotes => {
                    mistake = Some("a field that is not quoted has a quote");
                }
                (_, Some(byte)) => {
                    field.push(byte);
                    at = ParseState::Plain;
                }
            }
        }
        fields.push(field);
        match mistake {
            Some(what) => bail!(InvalidArgument, "{}, record {}: {what}", self.path, self.number),
            None => Ok(Some(fields)),
        }
    }
}

impl Format {
    /// The selected fields of a record as tensors.
    fn element(&self, fields: &[Vec<u8>], budget: &Arc<Budget>) -> Result<Element> {
        let wanted: Vec<&Vec<u8>> = match &self.columns {
            Columns::All => fields.iter().collect(),
            Columns::These(columns) => columns.iter().filter_map(|&c| fields.get(c)).collect(),
            Columns::AllBut(columns) => {
                let kept = |(c, field)| columns.binary_search(&c).is_err().then_some(field);
                fields.iter().enumerate().filter_map(kept).collect()
            }
        };
        ensure!(
            wanted.len() == self.defaults.len(),
            InvalidArgument,
            "Expect {} fields but have {} in record",
            self.defaults.len(),
            wanted.len()
        );
        wanted.into_iter().enumerate().map(|(i, field)| self.value(i, field, budget)).collect()
    }

    /// A field as a tensor for output `i`.
    fn value(&self, i: usize, field: &[u8], budget: &Arc<Budget>) -> Result<Tensor> {
        if field.is_empty() || *field == self.missing {
            let default = &self.defaults[i];
            ensure!(
                default.num_elements() == 1,
                InvalidArgument,
                "Field {i} is required but missing in record!"
            );
            return default.clone().reshaped(Shape::scalar());
        }
        let text = trimmed(field);
        let value = match self.dtypes[i] {
            DType::Float => f32::from_text(text).map(Tensor::scalar),
            DType::Double => f64::from_text(text).map(Tensor::scalar),
            DType::Int32 => i32::from_text(text).map(Tensor::scalar),
            DType::Int64 => i64::from_text(text).map(Tensor::scalar),
            _ => Some(Tensor::scalar_string(copy_string(field, budget)?)),
        };
        value.ok_or_else(|| {
            let text = String::from_utf8_lossy(field);
            err!(InvalidArgument, "Field {i} in record is not a valid {}: {text}", self.dtypes[i])
        })
    }
}
