//! Protobuf messages decoded directly from files, with long `bytes` fields read into buffers of
//! their own.
//!
//! A message that is decoded from a buffer shares it, so tensors in it keep the whole buffer and
//! are mostly unaligned, which costs another copy. Here a long `bytes` field is read into its own
//! aligned memory; the rest passes through a window.

use prost::bytes::Buf;
use thalweg_proto::Codec;
use thalweg_tensor::{Bytes, Error, Result, ensure, err};

use crate::storage::{ReadAt, Storage};

/// The size of the window.
const WINDOW_BYTES: usize = 256 << 10;
/// The minimum length of a field that is read into a buffer of its own.
const LONG_BYTES: usize = 16 << 10;

/// Reads the message of a file of at most `bytes_max` bytes.
pub fn read<M: Codec>(storage: &dyn Storage, path: &str, bytes_max: usize) -> Result<M> {
    let file = storage.open(path)?;
    let size = file.size()?;
    ensure!(
        size <= bytes_max as u64,
        ResourceExhausted,
        "{path}: the file exceeds {bytes_max} bytes"
    );
    decode(&*file, size)
}

/// Decodes the message in the first `size` bytes of a file.
fn decode<M: Codec>(file: &dyn ReadAt, size: u64) -> Result<M> {
    let mut content = Content::new(file, size)?;
    let message = M::decode_from(&mut content);
    match content.error {
        Some(error) => Err(error),
        None => message.map_err(|e| err!(DataLoss, "{}: {e}", file.path())),
    }
}

/// A file as a `Buf`. A `Buf` cannot fail, so a read error yields zeros, which are not valid
/// fields, and the decoded result is dropped.
struct Content<'a> {
    file: &'a dyn ReadAt,
    size: u64,
    /// The offset of the window in the file.
    begin: u64,
    window: Vec<u8>,
    /// The number of consumed bytes of the window.
    taken: usize,
    error: Option<Error>,
}

impl<'a> Content<'a> {
    fn new(file: &'a dyn ReadAt, size: u64) -> Result<Content<'a>> {
        ensure!(usize::try_from(size).is_ok(), ResourceExhausted, "{}: too large", file.path());
        let mut content =
            Content { file, size, begin: 0, window: Vec::new(), taken: 0, error: None };
        content.fill(0);
        Ok(content)
    }

    fn position(&self) -> u64 {
        self.begin + self.taken as u64
    }

    /// Moves the window to this offset.
    fn fill(&mut self, begin: u64) {
        let bytes = (self.size - begin).min(WINDOW_BYTES as u64) as usize;
        self.window.clear();
        self.window.resize(bytes, 0);
        (self.begin, self.taken) = (begin, 0);
        let mut window = std::mem::take(&mut self.window);
        self.read(begin, &mut window);
        self.window = window;
    }

    /// Reads, and records the first error.
    fn read(&mut self, offset: u64, target: &mut [u8]) {
        if self.error.is_some() {
            return;
        }
        let read = self.file.read_at(offset, target);
        let failed = match read {
            Ok(bytes) if bytes == target.len() => return,
            Ok(_) => err!(DataLoss, "{}: the file became shorter", self.file.path()),
            Err(e) => e,
        };
        target.fill(0);
        self.error = Some(failed);
    }
}

impl Buf for Content<'_> {
    fn remaining(&self) -> usize {
        // `new` has checked that the size fits.
        (self.size - self.position()) as usize
    }

    fn chunk(&self) -> &[u8] {
        &self.window[self.taken..]
    }

    fn advance(&mut self, count: usize) {
        assert!(count <= self.remaining(), "the decoder asks how much is left before it goes on");
        let position = self.position() + count as u64;
        if position < self.begin + self.window.len() as u64 {
            self.taken = (position - self.begin) as usize;
        } else {
            self.fill(position);
        }
    }

    fn copy_to_bytes(&mut self, count: usize) -> Bytes {
        assert!(count <= self.remaining(), "the decoder asks how much is left before it takes it");
        if count < LONG_BYTES {
            let mut bytes = vec![0; count];
            self.copy_to_slice(&mut bytes);
            return bytes.into();
        }
        let mut bytes = Vec::new();
        if bytes.try_reserve_exact(count).is_err() {
            let path = self.file.path();
            let error = err!(ResourceExhausted, "{path}: out of memory for {count} bytes");
            self.error.get_or_insert(error);
            self.advance(count);
            return Bytes::new();
        }
        bytes.resize(count, 0);
        let position = self.position();
        self.read(position, &mut bytes);
        self.advance(count);
        bytes.into()
    }
}

#[cfg(test)]
mod tests {
    use thalweg_proto as pb;
    use thalweg_tensor::Code;

    use super::*;
    use crate::storage::InMemory;

    fn message() -> pb::SavedModel {
        let tensor = |bytes: usize, fill: u8| pb::TensorProto {
            tensor_content: vec![fill; bytes].into(),
            ..Default::default()
        };
        let node = |bytes: usize, fill: u8| pb::NodeDef {
            name: "n".repeat(bytes / 1000 + 1),
            attr: [(
                "value".to_owned(),
                pb::AttrValue {
                    value: Some(pb::attr_value::Value::Tensor(Box::new(tensor(bytes, fill)))),
                },
            )]
            .into(),
            ..Default::default()
        };
        let sizes = [0, 1, LONG_BYTES - 1, LONG_BYTES, WINDOW_BYTES, 3 * WINDOW_BYTES + 7, 5];
        let nodes = sizes.iter().enumerate().map(|(i, &bytes)| node(bytes, i as u8)).collect();
        let graph_def = Some(pb::GraphDef { node: nodes, ..Default::default() });
        let meta = pb::MetaGraphDef { graph_def, ..Default::default() };
        pb::SavedModel { saved_model_schema_version: 1, meta_graphs: vec![meta] }
    }

    fn file(content: Vec<u8>) -> InMemory {
        InMemory { path: "model".into(), content: content.into() }
    }

    #[test]
    fn what_was_written_is_read() {
        let bytes = message().to_bytes();
        let size = bytes.len() as u64;
        let read: pb::SavedModel = decode(&file(bytes), size).unwrap();
        assert_eq!(read, message());
        assert_eq!(decode::<pb::SavedModel>(&file(Vec::new()), 0).unwrap(), Default::default());
    }

    #[test]
    fn long_fields_lie_by_themselves() {
        let bytes = message().to_bytes();
        let read: pb::SavedModel = decode(&file(bytes.clone()), bytes.len() as u64).unwrap();
        for node in &read.meta_graphs[0].graph_def.as_ref().unwrap().node {
            let Some(pb::attr_value::Value::Tensor(t)) = &node.attr["value"].value else {
                panic!()
            };
            if t.tensor_content.len() >= LONG_BYTES {
                let address = t.tensor_content.as_ptr().addr();
                assert!(address.is_multiple_of(8), "allocators align what is long");
            }
        }
    }

    #[test]
    fn damage_and_failures_are_told() {
        let bytes = message().to_bytes();
        for end in (0..bytes.len()).step_by(9973) {
            let cut = file(bytes[..end].to_vec());
            // As it stands, and as if the end had gone while it was read.
            let _ = decode::<pb::SavedModel>(&cut, end as u64);
            let error = decode::<pb::SavedModel>(&cut, bytes.len() as u64).unwrap_err();
            assert_eq!(error.code(), Code::DataLoss, "{error}");
            assert!(error.message().contains("became shorter"), "{error}");
        }
    }
}
