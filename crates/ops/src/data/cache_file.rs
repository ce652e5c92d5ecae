//! Cache files of datasets, renamed into place when the last element is written.
//!
//! A cache file is a TFRecord file: a header record, one record per element (its tensors as
//! length-prefixed messages), and one with their number. The format is private to this crate.

use std::sync::Arc;
use std::task::{Context, Poll, ready};

use prost::Message;
use thalweg_formats::record::{Compression, ReadOptions, RecordReader, RecordWriter};
use thalweg_proto as pb;
use thalweg_tensor::{Budget, Bytes, Result, Tensor, copy_string, ensure, err};

use super::dataset::{Iterate, Next, Source};
use super::element::Element;
use super::scope::Scope;

/// Content of the first record.
const TITLE: &[u8] = b"thalweg dataset cache, version 1";
/// First byte of an element's record, and of the last record.
const ELEMENT: u8 = 0;
const END: u8 = 1;

/// The path of the cache file for the op's `filename`.
pub(crate) fn file_name(name: &str) -> String {
    format!("{name}.thalweg-cache")
}

/// Reads the elements from the file if it exists; else draws them from the dataset and writes the
/// file.
pub(crate) fn cached_in_file(
    path: &Arc<str>,
    input: &Source,
    scope: &Arc<Scope>,
) -> Result<Box<dyn Iterate>> {
    let storage = &scope.environment.storage;
    if storage.exists(path)? {
        let reader = RecordReader::open(&**storage, path, ReadOptions::default())?;
        return Ok(Box::new(CacheFileReader { reader, count: None, budget: scope.budget.clone() }));
    }
    Ok(Box::new(CacheFileWriter {
        input: input.iterate(scope)?,
        path: path.clone(),
        state: WriteState::Not,
        count: 0,
        scope: scope.clone(),
    }))
}

struct CacheFileReader {
    reader: RecordReader,
    /// Elements so far; `None` before the first record was read.
    count: Option<u64>,
    budget: Arc<Budget>,
}

impl CacheFileReader {
    fn next(&mut self) -> Result<Option<Element>> {
        let path = self.reader.path().to_owned();
        let other =
            |what: &str| err!(DataLoss, "{path} is not a complete dataset cache file: {what}");
        let Some(count) = self.count else {
            ensure!(
                self.reader.next_record()? == Some(TITLE),
                DataLoss,
                "{path} is not a complete dataset cache file: its header is missing"
            );
            self.count = Some(0);
            return self.next();
        };
        match self.reader.next_record()?.ok_or_else(|| other("it ends too early"))? {
            [ELEMENT, tensors @ ..] => {
                let element = decoded(copy_string(tensors, &self.budget)?, &self.budget)
                    .map_err(|e| e.map_message(|m| format!("{path}, element {count}: {m}")))?;
                self.count = Some(count + 1);
                Ok(Some(element))
            }
            [END, number @ ..] if number == count.to_le_bytes() => Ok(None),
            _ => Err(other("its records are not those of one")),
        }
    }
}

impl Iterate for CacheFileReader {
    fn poll_next(&mut self, _: &mut Context<'_>) -> Next {
        Poll::Ready(self.next())
    }
}

fn encoded(element: &[Tensor]) -> Result<Vec<u8>> {
    let mut record = vec![ELEMENT];
    for tensor in element {
        let message = tensor.to_proto()?;
        record.reserve(message.encoded_len() + 10);
        message
            .encode_length_delimited(&mut record)
            .map_err(|e| err!(Internal, "a vector takes what it has reserved: {e}"))?;
    }
    Ok(record)
}

fn decoded(mut record: Bytes, budget: &Arc<Budget>) -> Result<Element> {
    let mut element = Element::new();
    while !record.is_empty() {
        let message = pb::TensorProto::decode_length_delimited(&mut record)
            .map_err(|e| err!(DataLoss, "not a tensor: {e}"))?;
        element.push(Tensor::from_proto(&message, Some(budget))?);
    }
    Ok(element)
}

/// State of the file being written.
enum WriteState {
    /// No element was drawn yet.
    Not,
    Open(Box<RecordWriter>),
    /// The file is complete, or writing it failed.
    Ended,
}

/// Iterator that writes the file; an incomplete iteration leaves no file.
struct CacheFileWriter {
    input: Box<dyn Iterate>,
    path: Arc<str>,
    state: WriteState,
    count: u64,
    scope: Arc<Scope>,
}

impl CacheFileWriter {
    fn put(&mut self, element: Option<&Element>) -> Result<()> {
        if matches!(self.state, WriteState::Not) {
            let file = self.scope.environment.storage.replace(&self.path)?;
            let mut writer = RecordWriter::new(file, Compression::None);
            writer.write(TITLE)?;
            self.state = WriteState::Open(Box::new(writer));
        }
        let WriteState::Open(writer) = &mut self.state else { return Ok(()) };
        if let Some(element) = element {
            writer.write(&encoded(element)?)?;
            self.count += 1;
            return Ok(());
        }
        let mut end = vec![END];
        end.extend_from_slice(&self.count.to_le_bytes());
        writer.write(&end)?;
        match std::mem::replace(&mut self.state, WriteState::Ended) {
            WriteState::Open(writer) => writer.finish(),
            _ => Ok(()),
        }
    }
}

impl Iterate for CacheFileWriter {
    fn poll_next(&mut self, cx: &mut Context<'_>) -> Next {
        let next = ready!(self.input.poll_next(cx))?;
        if let Err(e) = self.put(next.as_ref()) {
            // The incomplete file is removed, and iteration continues without a cache.
            self.state = WriteState::Ended;
            return Poll::Ready(Err(e));
        }
        Poll::Ready(Ok(next))
    }
}

#[cfg(test)]
mod tests {
    use thalweg_tensor::Shape;

    use super::*;

    #[test]
    fn elements_come_back_as_they_were() {
        let words = ["a", ""].map(Bytes::from).to_vec();
        let words = Tensor::from_strings(Shape::new(&[2]).unwrap(), words).unwrap();
        let element = [Tensor::scalar(7i64), words, Tensor::vector(&[0.5f32, 2.0]).unwrap()];
        let record = encoded(&element).unwrap();
        let back = decoded(Bytes::copy_from_slice(&record[1..]), &Budget::new(1 << 20)).unwrap();
        assert_eq!(back.len(), 3);
        assert_eq!(back[0].scalar_value::<i64>().unwrap(), 7);
        assert_eq!(back[1].strings().unwrap(), element[1].strings().unwrap());
        assert_eq!(back[2].as_slice::<f32>().unwrap(), [0.5, 2.0]);
        for cut in 2..record.len() {
            let part = Bytes::copy_from_slice(&record[1..cut]);
            assert!(decoded(part, &Budget::new(1 << 20)).map_or(true, |e| e.len() < 3), "{cut}");
        }
    }
}
