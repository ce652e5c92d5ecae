//! `RestoreV2`: reads tensors or slices from a checkpoint.

use parking_lot::Mutex;
use thalweg_formats::checkpoint::{BundleReader, ReadContext, index_path};
use thalweg_graph::{OpDef, ShapeContext};
use thalweg_kernel::{AnyKernel, AsyncCall, KernelInit, Outputs, Value};
use thalweg_tensor::{Bytes, DType, PartialShape, Result, Tensor, ensure, err};

use super::save::check_vectors;
use super::slices::Part;
use super::{name_of, old, on_files, only_path};

use crate::work;

pub(super) const RESTORE_V2: OpDef =
    OpDef::new("RestoreV2", restore_v2_shape).with_work(work::file);

/// Names and slices are vectors of one length; a slice with a known text determines the output's
/// shape.
fn restore_v2_shape(c: &mut ShapeContext<'_>) -> Result<()> {
    c.with_rank(0, "prefix", 0)?;
    let names = c.with_rank(1, "tensor_names", 1)?;
    names.merge(&c.with_rank(2, "shape_and_slices", 1)?)?;
    let Some(texts) = c.constant(2) else { return Ok(()) };
    for (i, text) in texts.strings()?.iter().enumerate() {
        set_part(c, i, text)?;
    }
    Ok(())
}

/// Sets the shape of output `i` to that of the slice in `text`.
pub(super) fn set_part(c: &mut ShapeContext<'_>, i: usize, text: &Bytes) -> Result<()> {
    if let Some(part) = Part::parse(text)? {
        c.set_output(i, PartialShape::new(part.shape.dims().iter().map(|&d| Some(d))));
    }
    Ok(())
}

/// One tensor to restore.
pub(super) struct Item {
    pub(super) name: String,
    /// The slice to read, or `None` for the whole tensor.
    pub(super) part: Option<Part>,
    pub(super) dtype: DType,
}

/// The tensors that the inputs request.
fn items(call: &AsyncCall, dtypes: &[DType]) -> Result<Vec<Item>> {
    let (names, parts) = (call.input(1)?, call.input(2)?);
    check_vectors(names, parts)?;
    ensure!(
        names.num_elements() == dtypes.len(),
        InvalidArgument,
        "Got {} tensor names, but {} expected dtypes.",
        names.num_elements(),
        dtypes.len()
    );
    let texts = names.strings()?.iter().zip(parts.strings()?);
    texts
        .zip(dtypes)
        .map(|((name, part), &dtype)| {
            Ok(Item { name: name_of(name)?.to_owned(), part: Part::parse(part)?, dtype })
        })
        .collect()
}

pub(super) fn restore_v2(init: &KernelInit<'_>) -> Result<AnyKernel> {
    let dtypes = init.attrs().dtypes("dtypes")?;
    on_files(move |call| {
        let prefix = only_path(call.input(0)?, "prefix")?;
        let items = items(call, &dtypes)?;
        let storage = &call.step.environment().storage;
        // A prefix that is no valid path is reported by the search for V1 checkpoints.
        if !storage.exists(&index_path(prefix)).unwrap_or(false) {
            let reader = old::open(&**storage, prefix)?;
            return items.iter().map(|item| old::read(call, &reader, prefix, item)).collect();
        }
        let reader = BundleReader::open(storage, prefix)?;
        items.iter().try_for_each(|item| check(&reader, item))?;
        read_all(call, &reader, &items)
    })
}

/// Fails unless the tensor exists, has the expected dtype and, for a slice, the shape that the
/// slice states.
fn check(reader: &BundleReader, item: &Item) -> Result<()> {
    let name = &item.name;
    let entry = reader.required(name)?;
    ensure!(
        entry.dtype == item.dtype,
        InvalidArgument,
        "tensor_name = {name}; expected dtype {} does not equal original dtype {} in checkpoint {}",
        item.dtype,
        entry.dtype,
        reader.prefix()
    );
    if let Some(part) = &item.part {
        ensure!(
            part.whole == entry.shape,
            InvalidArgument,
            "tensor_name = {name}; shape in shape_and_slice spec {} does not match the shape stored \
             in checkpoint: {} ({})",
            part.whole,
            entry.shape,
            reader.prefix()
        );
    }
    Ok(())
}

/// Reads tensors in parallel, one per thread; if there are few, large ones are read by several
/// threads.
fn read_all(call: &AsyncCall, reader: &BundleReader, items: &[Item]) -> Result<Outputs> {
    let step = &call.step;
    let spread = |count: usize, work: &(dyn Fn(usize) + Sync)| {
        step.background().for_each_blocking(count, work);
    };
    let sequentially = |count: usize, work: &(dyn Fn(usize) + Sync)| (0..count).for_each(work);
    let are_few = items.len() < step.background().threads();
    let context = ReadContext {
        budget: Some(step.budget()),
        spread: if are_few { &spread } else { &sequentially },
    };
    let read = |item: &Item| {
        step.cancellation().check()?;
        reader.read_with(&item.name, item.part.as_ref().map(|part| &part.slice), context)
    };
    if are_few {
        return items.iter().map(|item| read(item).map(Value::from)).collect();
    }
    let results: Vec<Mutex<Option<Result<Tensor>>>> =
        items.iter().map(|_| Mutex::new(None)).collect();
    spread(items.len(), &|i| *results[i].lock() = Some(read(&items[i])));
    let read = |result: Mutex<Option<Result<Tensor>>>| match result.into_inner() {
        Some(result) => result.map(Value::from),
        None => Err(err!(Internal, "a tensor was not read")),
    };
    results.into_iter().map(read).collect()
}
