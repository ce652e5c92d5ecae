//! File datasets: text lines, TFRecords, fixed-length records, matching file names.

use std::borrow::Cow;
use std::sync::Arc;
use std::task::{Context, Poll};

use smallvec::smallvec;
use thalweg_formats::record::Compression;
use thalweg_graph::{OpDef, Work, shape};
use thalweg_kernel::{AnyKernel, Family, KernelContext, KernelInit, KernelSpec};
use thalweg_tensor::{
    Bytes, DType, Error, Result, Tensor, bail, charge_string, copy_string, ensure, err,
};

use super::dataset::{Dataset, Iterate, Next, Source, YieldBudget, dataset_kernel, string_input};
use super::element::Spec;
use super::records::{Content, FixedLengthLayout};
use super::scope::Scope;
use crate::dataset::OnBadRecord;

pub(crate) static FAMILY: Family = Family {
    ops: &[
        TEXT_LINE_DATASET,
        TF_RECORD_DATASET,
        TF_RECORD_DATASET_V2,
        FIXED_LENGTH_RECORD_DATASET,
        FIXED_LENGTH_RECORD_DATASET_V2,
        MATCHING_FILES_DATASET,
        EXPERIMENTAL_MATCHING_FILES_DATASET,
    ],
    kernels: &[
        KernelSpec { op: "TextLineDataset", create: text_lines, ..KernelSpec::CPU },
        KernelSpec { op: "TFRecordDataset", create: records, ..KernelSpec::CPU },
        KernelSpec { op: "TFRecordDatasetV2", create: records, ..KernelSpec::CPU },
        KernelSpec { op: "FixedLengthRecordDataset", create: fixed_length, ..KernelSpec::CPU },
        KernelSpec { op: "FixedLengthRecordDatasetV2", create: fixed_length, ..KernelSpec::CPU },
        KernelSpec { op: "MatchingFilesDataset", create: matching, ..KernelSpec::CPU },
        KernelSpec { op: "ExperimentalMatchingFilesDataset", create: matching, ..KernelSpec::CPU },
    ],
};

const TEXT_LINE_DATASET: OpDef = OpDef::new("TextLineDataset", shape::scalar);

const TF_RECORD_DATASET: OpDef = OpDef { name: "TFRecordDataset", ..TEXT_LINE_DATASET };

const TF_RECORD_DATASET_V2: OpDef = OpDef { name: "TFRecordDatasetV2", ..TEXT_LINE_DATASET };

const FIXED_LENGTH_RECORD_DATASET: OpDef =
    OpDef { name: "FixedLengthRecordDataset", ..TEXT_LINE_DATASET };

const FIXED_LENGTH_RECORD_DATASET_V2: OpDef =
    OpDef { name: "FixedLengthRecordDatasetV2", ..TEXT_LINE_DATASET };

const MATCHING_FILES_DATASET: OpDef =
    OpDef { name: "MatchingFilesDataset", work: Work::fixed::<20>, ..TEXT_LINE_DATASET };

const EXPERIMENTAL_MATCHING_FILES_DATASET: OpDef =
    OpDef { name: "ExperimentalMatchingFilesDataset", ..MATCHING_FILES_DATASET };

/// File format.
#[derive(Clone, Copy)]
pub(crate) enum Format {
    Lines,
    Records,
    Fixed(FixedLengthLayout),
}

/// Options of reading files.
#[derive(Clone)]
pub(crate) struct FileOptions {
    pub(crate) format: Format,
    /// `None` detects the compression of each file, for TFRecords only.
    pub(crate) compression: Option<Compression>,
    /// Byte offset at which to start in each file; 0 where there is none.
    pub(crate) offsets: Arc<[u64]>,
    /// Number of damaged records in all files that are skipped before damage is an error.
    pub(crate) bad_records_max: u64,
    pub(crate) on_bad: Option<OnBadRecord>,
}

impl FileOptions {
    pub(crate) fn new(format: Format, compression: Option<Compression>) -> FileOptions {
        let offsets = Arc::new([]);
        FileOptions { format, compression, offsets, bad_records_max: 0, on_bad: None }
    }
}

/// The records of several files in sequence.
pub(crate) struct FileDataset {
    files: Arc<[Bytes]>,
    reading: FileOptions,
    spec: Spec,
}

impl FileDataset {
    pub(crate) fn new(files: Arc<[Bytes]>, reading: FileOptions) -> FileDataset {
        FileDataset { files, reading, spec: Spec::scalars(DType::String) }
    }
}

fn text_lines(_: &KernelInit<'_>) -> Result<AnyKernel> {
    dataset_kernel(|ctx| file_dataset(ctx, FileOptions::new(Format::Lines, compression(ctx, 1)?)))
}

fn records(_: &KernelInit<'_>) -> Result<AnyKernel> {
    dataset_kernel(|ctx| {
        let mut reading = FileOptions::new(Format::Records, compression(ctx, 1)?);
        if ctx.num_inputs() > 3 {
            let offset = |offset| {
                u64::try_from(offset).map_err(|_| {
                    err!(InvalidArgument, "`byte_offsets` must be >= 0, one is {offset}")
                })
            };
            let offsets = ctx.ints(3, "byte_offsets")?;
            reading.offsets = offsets.into_iter().map(offset).collect::<Result<_>>()?;
        }
        file_dataset(ctx, reading)
    })
}

fn fixed_length(_: &KernelInit<'_>) -> Result<AnyKernel> {
    dataset_kernel(|ctx| {
        let bytes = |i: usize, name: &str| {
            let value = ctx.scalar_int(i, name)?;
            u64::try_from(value).map_err(|_| err!(InvalidArgument, "`{name}` must be >= 0"))
        };
        let fixed = FixedLengthLayout {
            header: bytes(1, "header_bytes")?,
            record: bytes(2, "record_bytes")?,
            footer: bytes(3, "footer_bytes")?,
        };
        fixed.check()?;
        file_dataset(ctx, FileOptions::new(Format::Fixed(fixed), compression(ctx, 5)?))
    })
}

/// The compression that input `i` names; none if there is no such input.
pub(crate) fn compression(ctx: &KernelContext<'_>, i: usize) -> Result<Option<Compression>> {
    if i >= ctx.num_inputs() {
        return Ok(Some(Compression::None));
    }
    let name = string_input(ctx, i, "compression_type")?;
    Compression::from_name(&String::from_utf8_lossy(&name)).map(Some)
}

fn file_dataset(ctx: &KernelContext<'_>, reading: FileOptions) -> Result<Source> {
    let names = ctx.input(0)?;
    ensure!(names.rank() <= 1, InvalidArgument, "`filenames` must be a scalar or a vector.");
    // For TFRecords, a buffer size of -1 selects the default.
    let least = if matches!(reading.format, Format::Records) { -1 } else { 0 };
    let buffer = ctx.input_range("buffer_size")?.start;
    ensure!(
        ctx.scalar_int(buffer, "buffer_size")? >= least,
        InvalidArgument,
        "`buffer_size` must be >= 0 (0 == default)"
    );
    Source::new(FileDataset::new(names.strings()?.into(), reading), 0)
}

impl Dataset for FileDataset {
    fn spec(&self) -> &Spec {
        &self.spec
    }

    fn iterate(&self, scope: &Arc<Scope>) -> Result<Box<dyn Iterate>> {
        Ok(Box::new(FileIterator {
            files: self.files.clone(),
            reading: self.reading.clone(),
            next: 0,
            open: None,
            count: 0,
            scope: scope.clone(),
            yield_budget: YieldBudget::default(),
        }))
    }
}

struct FileIterator {
    files: Arc<[Bytes]>,
    /// `bad_records_max` counts down to the number that remains for the following files.
    reading: FileOptions,
    /// Number of files opened.
    next: usize,
    open: Option<Content>,
    /// Number of elements so far.
    count: u64,
    scope: Arc<Scope>,
    yield_budget: YieldBudget,
}

impl FileIterator {
    fn open(&mut self) -> Result<Content> {
        let i = self.next;
        self.next += 1;
        let path = std::str::from_utf8(&self.files[i])
            .map_err(|_| err!(InvalidArgument, "a file name is not valid UTF-8"))?;
        Content::open(&*self.scope.environment.storage, path, i, &self.reading)
    }

    /// Closes the current file and adds its damaged records to the count.
    fn close_file(&mut self) {
        let Some(content) = self.open.take() else { return };
        for bad in content.bad_records() {
            self.reading.bad_records_max = self.reading.bad_records_max.saturating_sub(1);
            if let Some(on_bad) = &self.reading.on_bad {
                on_bad(bad);
            }
        }
    }

    fn at_element(&self, e: Error) -> Error {
        e.map_message(|m| format!("{m} (at element {} of the files)", self.count))
    }
}

impl Iterate for FileIterator {
    fn poll_next(&mut self, cx: &mut Context<'_>) -> Next {
        loop {
            let Some(open) = &mut self.open else {
                if self.next >= self.files.len() {
                    return Poll::Ready(Ok(None));
                }
                std::task::ready!(self.yield_budget.poll(cx));
                self.open = Some(self.open().map_err(|e| self.at_element(e))?);
                continue;
            };
            match open.next() {
                Ok(Some(record)) => {
                    self.count += 1;
                    let record = match record {
                        Cow::Borrowed(record) => copy_string(record, &self.scope.budget),
                        Cow::Owned(record) => charge_string(record, &self.scope.budget),
                    }?;
                    return Poll::Ready(Ok(Some(smallvec![Tensor::scalar_string(record)])));
                }
                Ok(None) => self.close_file(),
                Err(e) => {
                    // The position after the damage is unknown, so reading continues with the next
                    // file.
                    self.close_file();
                    return Poll::Ready(Err(self.at_element(e)));
                }
            }
        }
    }
}

/// `MatchingFilesDataset`: names of files that match patterns, one pattern after the other.
pub(crate) struct MatchingFilesDataset {
    patterns: Arc<[Bytes]>,
    spec: Spec,
}

impl MatchingFilesDataset {
    pub(crate) fn new(patterns: Arc<[Bytes]>) -> MatchingFilesDataset {
        MatchingFilesDataset { patterns, spec: Spec::scalars(DType::String) }
    }
}

fn matching(_: &KernelInit<'_>) -> Result<AnyKernel> {
    dataset_kernel(|ctx| {
        let patterns = ctx.input(0)?;
        ensure!(patterns.rank() <= 1, InvalidArgument, "`patterns` must be a scalar or a vector.");
        Source::new(MatchingFilesDataset::new(patterns.strings()?.into()), 0)
    })
}

impl Dataset for MatchingFilesDataset {
    fn spec(&self) -> &Spec {
        &self.spec
    }

    fn iterate(&self, scope: &Arc<Scope>) -> Result<Box<dyn Iterate>> {
        Ok(Box::new(MatchingFilesIterator {
            patterns: self.patterns.clone(),
            found: None,
            scope: scope.clone(),
        }))
    }
}

struct MatchingFilesIterator {
    patterns: Arc<[Bytes]>,
    /// Remaining matches of the current pattern; `None` before the directory was listed.
    found: Option<std::vec::IntoIter<String>>,
    scope: Arc<Scope>,
}

impl MatchingFilesIterator {
    fn list_matches(&self) -> Result<Vec<String>> {
        let mut found = Vec::new();
        for pattern in self.patterns.iter() {
            let pattern = String::from_utf8_lossy(pattern);
            found.extend(self.scope.environment.storage.matching(&pattern)?);
        }
        if found.is_empty() {
            let patterns: Vec<_> =
                self.patterns.iter().map(|p| String::from_utf8_lossy(p)).collect();
            bail!(NotFound, "Don't find any matched files: '{}'", patterns.join("', '"));
        }
        Ok(found)
    }
}

impl Iterate for MatchingFilesIterator {
    fn poll_next(&mut self, _: &mut Context<'_>) -> Next {
        if self.found.is_none() {
            self.found = Some(self.list_matches()?.into_iter());
        }
        let next = self.found.as_mut().and_then(Iterator::next);
        Poll::Ready(Ok(next.map(|name| smallvec![Tensor::scalar_string(name)])))
    }
}
