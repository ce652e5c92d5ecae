//! Writing of V1 checkpoints.

use std::collections::BTreeMap;

use prost::Message;
use thalweg_proto::{
    SavedSlice, SavedSliceMeta, SavedTensorSliceMeta, SavedTensorSlices, VersionDef,
};
use thalweg_tensor::{Context, Result, Shape, Tensor, ensure};

use super::{VERSION, values};
use crate::Storage;
use crate::checkpoint::ordered::slice_key;
use crate::checkpoint::table::TableWriter;
use crate::checkpoint::{Slice, WriteOptions};

/// The maximum size of a protobuf message.
const MESSAGE_BYTES_MAX: usize = i32::MAX as usize;

/// A V1 checkpoint under construction, in memory until it is finished.
pub struct Writer<'a> {
    storage: &'a dyn Storage,
    path: String,
    options: WriteOptions,
    tensors: BTreeMap<String, SavedSliceMeta>,
    values: BTreeMap<Vec<u8>, Vec<u8>>,
}

impl<'a> Writer<'a> {
    /// Begins a checkpoint in the file of this name.
    pub fn new(storage: &'a dyn Storage, path: &str, options: WriteOptions) -> Writer<'a> {
        let (tensors, values) = (BTreeMap::new(), BTreeMap::new());
        Writer { storage, path: path.to_owned(), options, tensors, values }
    }

    /// Adds a tensor.
    pub fn add(&mut self, name: &str, tensor: &Tensor) -> Result<()> {
        self.add_slice(name, tensor.shape(), &Slice::full(tensor.rank()), tensor)
    }

    /// Adds a slice of a tensor of shape `shape`.
    pub fn add_slice(
        &mut self,
        name: &str,
        shape: &Shape,
        slice: &Slice,
        tensor: &Tensor,
    ) -> Result<()> {
        ensure!(
            slice.shape_in(shape)? == *tensor.shape(),
            InvalidArgument,
            "slice '{slice}' of tensor '{name}' of shape {shape} cannot be a tensor of shape {}",
            tensor.shape()
        );
        let (proto, dtype) = (shape.to_proto(), tensor.dtype().to_proto());
        if let Some(meta) = self.tensors.get(name) {
            // TensorFlow reports this as INTERNAL.
            ensure!(
                meta.shape.as_ref() == Some(&proto) && meta.r#type == dtype,
                Internal,
                "tensor '{name}' has slices of tensors of different types or shapes"
            );
        }
        let key = slice_key(name, slice);
        ensure!(
            !self.values.contains_key(&key),
            InvalidArgument,
            "tensor '{name}' is added to the checkpoint twice"
        );
        let data = values::encode(tensor).context(|| format!("saving tensor '{name}'"))?;
        let meta = self.tensors.entry(name.to_owned()).or_insert_with(|| SavedSliceMeta {
            name: name.to_owned(),
            shape: Some(proto),
            r#type: dtype,
            slice: Vec::new(),
        });
        meta.slice.push(slice.to_proto());
        let saved =
            SavedSlice { name: name.to_owned(), slice: Some(slice.to_proto()), data: Some(data) };
        let message = SavedTensorSlices { data: Some(saved), ..Default::default() };
        ensure!(
            message.encoded_len() <= MESSAGE_BYTES_MAX,
            InvalidArgument,
            "tensor '{name}' exceeds the 2 GB that a tensor of a V1 checkpoint may have"
        );
        self.values.insert(key, message.encode_to_vec());
        Ok(())
    }

    /// Writes the file and renames it into place.
    pub fn finish(self) -> Result<()> {
        self.storage.create_folder_of(&self.path)?;
        let file = self.options.replace(self.storage, &self.path)?;
        let mut table = TableWriter::new(file);
        let list = SavedTensorSliceMeta {
            tensor: self.tensors.into_values().collect(),
            versions: Some(VersionDef { producer: VERSION, ..Default::default() }),
        };
        let list = SavedTensorSlices { meta: Some(list), ..Default::default() };
        table.add(b"", &list.encode_to_vec())?;
        for (key, value) in &self.values {
            table.add(key, value)?;
        }
        table.finish()
    }
}
