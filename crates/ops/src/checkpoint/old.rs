//! `Save`, `SaveSlices`, `Restore` and `RestoreSlice`: V1 checkpoints.

use thalweg_formats::Storage;
use thalweg_formats::checkpoint::{ReadContext, WriteOptions, prefix_of, v1};
use thalweg_formats::storage::folder_of;
use thalweg_graph::{OpDef, ShapeContext};
use thalweg_kernel::{AnyKernel, AsyncCall, KernelInit, Outputs, Value};
use thalweg_tensor::{Bytes, Code, Result, Tensor, ensure, err};

use super::restore::{self, Item};
use super::save::{items, one_for_each};
use super::slices::Part;
use super::{name_of, on_files, only_path};

use crate::work;

pub(super) const SAVE: OpDef = OpDef::new("Save", save_shape).with_work(work::file);

pub(super) const SAVE_SLICES: OpDef =
    OpDef::new("SaveSlices", save_slices_shape).with_work(work::file);

pub(super) const RESTORE: OpDef = OpDef::new("Restore", restore_shape).with_work(work::file);

pub(super) const RESTORE_SLICE: OpDef =
    OpDef::new("RestoreSlice", restore_slice_shape).with_work(work::file);

fn save_shape(c: &mut ShapeContext<'_>) -> Result<()> {
    let tensors = c.num_inputs().saturating_sub(2);
    c.with_rank(0, "filename", 0)?;
    one_for_each(c, 1, "tensor_names", tensors)
}

fn save_slices_shape(c: &mut ShapeContext<'_>) -> Result<()> {
    let tensors = c.num_inputs().saturating_sub(3);
    c.with_rank(0, "filename", 0)?;
    one_for_each(c, 1, "tensor_names", tensors)
}

fn restore_shape(c: &mut ShapeContext<'_>) -> Result<()> {
    c.with_rank(0, "file_pattern", 0)?;
    c.with_rank(1, "tensor_name", 0)?;
    Ok(())
}

fn restore_slice_shape(c: &mut ShapeContext<'_>) -> Result<()> {
    restore_shape(c)?;
    c.with_rank(2, "shape_and_slice", 0)?;
    match c.constant(2) {
        Some(text) => restore::set_part(c, 0, &text.strings()?[0]),
        None => Ok(()),
    }
}

pub(super) fn save(_: &KernelInit<'_>) -> Result<AnyKernel> {
    on_files(|call| save_from(call, 2))
}

pub(super) fn save_slices(_: &KernelInit<'_>) -> Result<AnyKernel> {
    on_files(|call| save_from(call, 3))
}

/// Saves the tensors from input `first` on.
fn save_from(call: &AsyncCall, first: usize) -> Result<Outputs> {
    let path = only_path(call.input(0)?, "filename")?;
    let names = call.input(1)?;
    let tensors = call.inputs.len().saturating_sub(first);
    ensure!(
        names.num_elements() == tensors,
        InvalidArgument,
        "Got {} tensor names but {tensors} tensors.",
        names.num_elements()
    );
    let parts = if first == 3 { Some(call.input(2)?) } else { None };
    if let Some(parts) = parts {
        ensure!(
            parts.num_elements() == tensors,
            InvalidArgument,
            "Expected {tensors} elements for the tensor shapes and slices but got {}",
            parts.num_elements()
        );
    }
    let storage = &*call.step.environment().storage;
    // Unlike `SaveV2`, these ops do not create a folder.
    let folder = folder_of(path);
    ensure!(
        folder.is_empty() || path.contains("://") || storage.exists(folder)?,
        NotFound,
        "{folder}; No such file or directory"
    );
    let mut writer = v1::Writer::new(storage, path, WriteOptions::default());
    for item in items(call, first, names, parts)? {
        call.step.cancellation().check()?;
        match &item.part {
            Some(part) => writer.add_slice(item.name, &part.whole, &part.slice, item.tensor)?,
            None => writer.add(item.name, item.tensor)?,
        }
    }
    writer.finish()?;
    Ok(Outputs::new())
}

pub(super) fn restore(init: &KernelInit<'_>) -> Result<AnyKernel> {
    restoring(init, false)
}

pub(super) fn restore_slice(init: &KernelInit<'_>) -> Result<AnyKernel> {
    restoring(init, true)
}

/// Reads one tensor. The attr `preferred_shard` is ignored: it is a hint where to look first, and
/// only the index of the other files is read.
fn restoring(init: &KernelInit<'_>, has_part: bool) -> Result<AnyKernel> {
    let dtype = init.attrs().dtype("dt")?;
    on_files(move |call| {
        let pattern = only_path(call.input(0)?, "file_pattern")?;
        let name = first(call.input(1)?, "tensor_name")?;
        let part = match has_part {
            true => Part::parse(first(call.input(2)?, "shape_and_slice")?)?,
            false => None,
        };
        let item = Item { name: name_of(name)?.to_owned(), part, dtype };
        let reader = open(&*call.step.environment().storage, pattern)?;
        Ok(Outputs::from_iter([read(call, &reader, pattern, &item)?]))
    })
}

/// The first string; TensorFlow ignores further ones.
fn first<'a>(tensor: &'a Tensor, name: &str) -> Result<&'a Bytes> {
    tensor.strings()?.first().ok_or_else(|| err!(InvalidArgument, "{name} is empty"))
}

/// Opens the files that match a pattern; errors have TensorFlow's codes.
pub(super) fn open(storage: &dyn Storage, pattern: &str) -> Result<v1::Reader> {
    v1::Reader::open(storage, pattern).map_err(|e| {
        let reader = "Unsuccessful TensorSliceReader constructor";
        match e.code() {
            Code::NotFound => {
                err!(NotFound, "{reader}: Failed to find any matching files for {pattern}")
            }
            Code::Unimplemented => err!(
                InvalidArgument,
                "{reader}: Failed to get matching files on {pattern}: {}",
                e.message()
            ),
            Code::DataLoss if pattern.ends_with(".index") && prefix_of(pattern).is_some() => err!(
                NotFound,
                "{reader}: {pattern} is the index of a checkpoint; restore it by the name without \
                 .index"
            ),
            Code::FailedPrecondition => err!(
                DataLoss,
                "Unable to open table file {pattern}: {}: perhaps your file is in a different file \
                 format and you need to use a different restore operator?",
                e.message()
            ),
            _ => e,
        }
    })
}

/// Reads a tensor, or a part of it.
pub(super) fn read(
    call: &AsyncCall,
    reader: &v1::Reader,
    pattern: &str,
    item: &Item,
) -> Result<Value> {
    call.step.cancellation().check()?;
    let name = &item.name;
    let Some(saved) = reader.entry(name) else {
        return Err(err!(
            NotFound,
            "Tensor name \"{name}\" not found in checkpoint files {pattern}"
        ));
    };
    ensure!(
        saved.dtype == item.dtype,
        InvalidArgument,
        "Expected to restore a tensor of type {}, got a tensor of type {} instead: tensor_name = \
         {name}",
        item.dtype,
        saved.dtype
    );
    if let Some(part) = &item.part {
        ensure!(
            part.whole == saved.shape,
            InvalidArgument,
            "Shape in shape_and_slice spec does not match the shape in the save file: {}, save file \
             shape: {}",
            part.whole,
            saved.shape
        );
    }
    let context = ReadContext { budget: Some(call.step.budget()), ..ReadContext::default() };
    let slice = item.part.as_ref().map(|part| &part.slice);
    reader.read_with(name, slice, context).map(Value::from)
}
