//! Source datasets: files, tensors, numbers, and custom sources.

use std::ops::Range;
use std::sync::Arc;
use std::task::{Context, Poll};

use thalweg_formats::Storage;
use thalweg_formats::record::{BadRecord, Compression};
use thalweg_tensor::{Bytes, DType, Result, Tensor};

use super::Dataset;
use crate::data::call::catch_panic;
use crate::data::dataset::{self, Iterate, Next, Source, UNKNOWN};
use crate::data::element::{Element, Spec};
use crate::data::files::{FileDataset, FileOptions, Format, MatchingFilesDataset};
use crate::data::records::FixedLengthLayout;
use crate::data::scope::Scope;
use crate::data::sources::{numbers, slices_of, tensor_dataset};

/// The elements of one iteration.
pub type ElementIter = Box<dyn Iterator<Item = Result<Vec<Tensor>>> + Send>;

/// A source of elements in a custom format.
///
/// ```
/// use std::sync::Arc;
/// use thalweg_formats::Storage;
/// use thalweg_ops::dataset::{Dataset, ElementIter, InputSource};
/// use thalweg_tensor::{Result, Tensor};
///
/// /// The bytes of a file, one by one.
/// struct EachByte(String);
///
/// impl InputSource for EachByte {
///     fn open(&self, files: &Arc<dyn Storage>) -> Result<ElementIter> {
///         let content = files.read(&self.0, 1 << 20)?;
///         Ok(Box::new((0..content.len()).map(move |i| Ok(vec![Tensor::scalar(content[i])]))))
///     }
/// }
///
/// let pipeline = Dataset::from_source(EachByte("data.bin".into())).batch(16);
/// # drop(pipeline);
/// ```
pub trait InputSource: Send + Sync + 'static {
    /// Opens the source for a new iteration; `files` is the storage that the pipeline may use.
    ///
    /// Elements are drawn on any thread. An error does not end the sequence: the iterator ends it
    /// with `None`.
    fn open(&self, files: &Arc<dyn Storage>) -> Result<ElementIter>;

    /// The number of elements, if known.
    fn count(&self) -> Option<u64> {
        None
    }
}

/// A callback for skipped damaged records.
pub type OnBadRecord = Arc<dyn Fn(&BadRecord) + Send + Sync>;

/// Options of reading TFRecord files.
#[derive(Clone, Default)]
pub struct RecordOptions {
    /// The compression of the files; `None` to detect it per file.
    pub compression: Option<Compression>,
    /// The number of damaged records in all files that are skipped before damage is an error.
    pub bad_records_max: u64,
    /// Called for each skipped record, after its file has been read.
    pub on_bad_record: Option<OnBadRecord>,
}

/// The layout of files of fixed-length records.
#[derive(Clone, Copy, Debug, Default)]
pub struct FixedLength {
    /// The size of the header in bytes.
    pub header_bytes: u64,
    /// The size of a record in bytes.
    pub record_bytes: u64,
    /// The size of the footer in bytes.
    pub footer_bytes: u64,
}

fn file_dataset<S: Into<String>>(
    files: impl IntoIterator<Item = S>,
    reading: FileOptions,
) -> Dataset {
    let names = files.into_iter().map(|name| Bytes::from(name.into()));
    Dataset::new(Source::new(FileDataset::new(names.collect(), reading), 0))
}

impl Dataset {
    /// Records of TFRecord files, one file after the other. Compression is detected.
    pub fn tfrecords<S: Into<String>>(files: impl IntoIterator<Item = S>) -> Dataset {
        Dataset::tfrecords_with(files, RecordOptions::default())
    }

    /// Records of TFRecord files, read with `options`.
    pub fn tfrecords_with<S: Into<String>>(
        files: impl IntoIterator<Item = S>,
        options: RecordOptions,
    ) -> Dataset {
        let (on_bad, bad_records_max) = (options.on_bad_record, options.bad_records_max);
        let reading = FileOptions::new(Format::Records, options.compression);
        file_dataset(files, FileOptions { bad_records_max, on_bad, ..reading })
    }

    /// Lines of text files, without line ends.
    pub fn text_lines<S: Into<String>>(files: impl IntoIterator<Item = S>) -> Dataset {
        file_dataset(files, FileOptions::new(Format::Lines, Some(Compression::None)))
    }

    /// Fixed-length records.
    pub fn fixed_length<S: Into<String>>(
        files: impl IntoIterator<Item = S>,
        length: FixedLength,
    ) -> Dataset {
        let FixedLength { header_bytes, record_bytes, footer_bytes } = length;
        let fixed =
            FixedLengthLayout { header: header_bytes, record: record_bytes, footer: footer_bytes };
        match fixed.check() {
            Ok(()) => {
                file_dataset(files, FileOptions::new(Format::Fixed(fixed), Some(Compression::None)))
            }
            Err(e) => Dataset::new(Err(e)),
        }
    }

    /// Sorted names of files that match a glob pattern: `*` and `?` match any characters but `/`.
    pub fn matching_files(pattern: impl Into<String>) -> Dataset {
        Dataset::new(Source::new(
            MatchingFilesDataset::new(Arc::new([Bytes::from(pattern.into())])),
            0,
        ))
    }

    /// A range of int64 scalars.
    pub fn range(range: Range<i64>) -> Dataset {
        Dataset::new(numbers(range.start, range.end, 1, DType::Int64))
    }

    /// One element: these tensors.
    pub fn tensors(components: impl IntoIterator<Item = Tensor>) -> Dataset {
        Dataset::new(tensor_dataset(components.into_iter().collect()))
    }

    /// Slices along the first dimension, which all the tensors share.
    pub fn slices(components: impl IntoIterator<Item = Tensor>) -> Dataset {
        Dataset::new(slices_of(components.into_iter().collect()))
    }

    /// The elements of a custom source.
    pub fn from_source(source: impl InputSource) -> Dataset {
        let custom = Custom { source: Arc::new(source), spec: Spec::open() };
        Dataset::new(Source::new(custom, 0))
    }

    /// The elements of an iterator, which is made for each iteration.
    pub fn generate<I>(make: impl Fn() -> I + Send + Sync + 'static) -> Dataset
    where
        I: Iterator<Item = Result<Vec<Tensor>>> + Send + 'static,
    {
        Dataset::from_source(ClosureSource(make))
    }
}

struct ClosureSource<F>(F);

impl<F, I> InputSource for ClosureSource<F>
where
    F: Fn() -> I + Send + Sync + 'static,
    I: Iterator<Item = Result<Vec<Tensor>>> + Send + 'static,
{
    fn open(&self, _: &Arc<dyn Storage>) -> Result<ElementIter> {
        Ok(Box::new((self.0)()))
    }
}

struct Custom {
    source: Arc<dyn InputSource>,
    spec: Spec,
}

impl dataset::Dataset for Custom {
    fn spec(&self) -> &Spec {
        &self.spec
    }

    fn cardinality(&self) -> i64 {
        self.source.count().and_then(|n| i64::try_from(n).ok()).unwrap_or(UNKNOWN)
    }

    fn iterate(&self, scope: &Arc<Scope>) -> Result<Box<dyn Iterate>> {
        let elements = catch_panic("a source", || self.source.open(&scope.environment.storage))?;
        Ok(Box::new(CustomIterator { elements: Some(elements), count: 0 }))
    }
}

struct CustomIterator {
    /// `None` after its end.
    elements: Option<ElementIter>,
    count: u64,
}

impl Iterate for CustomIterator {
    fn poll_next(&mut self, _: &mut Context<'_>) -> Next {
        let Some(elements) = &mut self.elements else { return Poll::Ready(Ok(None)) };
        let next = catch_panic("a source", || elements.next().transpose());
        match &next {
            Ok(Some(_)) => self.count += 1,
            Ok(None) => self.elements = None,
            Err(_) => {}
        }
        let next = next.map(|next| next.map(Element::from_vec));
        let at = self.count;
        Poll::Ready(next.map_err(|e| {
            e.map_message(|m| format!("{m} (at element {at} of a source of the program)"))
        }))
    }
}
