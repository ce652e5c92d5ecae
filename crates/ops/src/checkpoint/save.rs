//! `SaveV2`: writes tensors or slices to a checkpoint.

use thalweg_formats::checkpoint::{self, BundleWriter, WriteOptions};
use thalweg_graph::{OpDef, ShapeContext};
use thalweg_kernel::{AnyKernel, AsyncCall, KernelInit, Outputs};
use thalweg_tensor::{Result, Tensor, ensure};

use super::slices::Part;
use super::{check_folder, name_of, on_files, only_path};

use crate::work;

/// Minimum bytes for writing several data files in parallel.
const PARALLEL_BYTES: usize = 64 << 20;
/// Maximum number of data files; more would not increase a disk's throughput.
const FILES_MAX: usize = 4;

pub(super) const SAVE_V2: OpDef = OpDef::new("SaveV2", save_v2_shape).with_work(work::file);

/// Input `i` is a vector with an element for each tensor, as far as shapes are known.
pub(super) fn one_for_each(
    c: &ShapeContext<'_>,
    i: usize,
    name: &str,
    tensors: usize,
) -> Result<()> {
    let shape = c.with_rank(i, name, 1)?;
    if let Some(count) = shape.dim(0) {
        ensure!(
            count == tensors,
            InvalidArgument,
            "{name} must have an element for each of {tensors} tensors, has {count}"
        );
    }
    Ok(())
}

fn save_v2_shape(c: &mut ShapeContext<'_>) -> Result<()> {
    let tensors = c.num_inputs().saturating_sub(3);
    c.with_rank(0, "prefix", 0)?;
    one_for_each(c, 1, "tensor_names", tensors)?;
    one_for_each(c, 2, "shape_and_slices", tensors)
}

/// One tensor to save.
pub(super) struct Item<'a> {
    pub(super) name: &'a str,
    /// The slice that the tensor is, or `None` for a whole tensor.
    pub(super) part: Option<Part>,
    pub(super) tensor: &'a Tensor,
}

impl<'a> Item<'a> {
    fn to_add(&'a self) -> checkpoint::Item<'a> {
        let part = self.part.as_ref().map(|part| (&part.whole, &part.slice));
        checkpoint::Item { name: self.name, part, tensor: self.tensor }
    }
}

/// Number of data files to write in parallel: one, as in TensorFlow, unless there is much data. A
/// file is written at the speed of one thread.
fn data_files(items: &[Item<'_>], threads: usize) -> u32 {
    let bytes: usize = items.iter().map(|item| item.tensor.size_bytes()).sum();
    if bytes < PARALLEL_BYTES {
        return 1;
    }
    threads.min(items.len()).clamp(1, FILES_MAX) as u32
}

/// The tensors from input `first` on, with their names and, if given, their slice specifications.
pub(super) fn items<'a>(
    call: &'a AsyncCall,
    first: usize,
    names: &'a Tensor,
    parts: Option<&'a Tensor>,
) -> Result<Vec<Item<'a>>> {
    let mut items = Vec::with_capacity(names.num_elements());
    for (i, name) in names.strings()?.iter().enumerate() {
        let tensor = call.input(first + i)?;
        let part = match parts {
            Some(texts) => Part::parse(&texts.strings()?[i])?,
            None => None,
        };
        if let Some(part) = &part {
            ensure!(
                part.shape == *tensor.shape(),
                InvalidArgument,
                "Slice in shape_and_slice specification does not match the shape of the tensor to \
                 save: {} of {}, tensor: {}",
                part.slice,
                part.whole,
                tensor.shape()
            );
        }
        items.push(Item { name: name_of(name)?, part, tensor });
    }
    Ok(items)
}

pub(super) fn save_v2(_: &KernelInit<'_>) -> Result<AnyKernel> {
    on_files(|call| {
        let prefix = only_path(call.input(0)?, "prefix")?;
        let (names, parts) = (call.input(1)?, call.input(2)?);
        check_vectors(names, parts)?;
        let tensors = call.inputs.len().saturating_sub(3);
        ensure!(
            names.num_elements() == tensors,
            InvalidArgument,
            "Got {} tensor names but {tensors} tensors.",
            names.num_elements()
        );
        let items = items(call, 3, names, Some(parts))?;
        let storage = &call.step.environment().storage;
        check_folder(&**storage, prefix)?;
        let background = call.step.background();
        let spread = |count: usize, work: &(dyn Fn(usize) + Sync)| {
            background.for_each_blocking(count, work);
        };
        let files = data_files(&items, background.threads());
        let mut writer =
            BundleWriter::create_files(storage, prefix, WriteOptions::default(), files)?;
        let to_add: Vec<checkpoint::Item<'_>> = items.iter().map(Item::to_add).collect();
        let cancellation = call.step.cancellation();
        writer.add_all(&to_add, &|| cancellation.check(), &spread)?;
        writer.finish_with(&spread)?;
        Ok(Outputs::new())
    })
}

/// Names and slice specifications must be vectors of one length.
pub(super) fn check_vectors(names: &Tensor, parts: &Tensor) -> Result<()> {
    ensure!(
        names.rank() == 1 && parts.rank() == 1,
        InvalidArgument,
        "Input tensor_names and shape_and_slices should be an 1-D tensors, got {} and {} instead.",
        names.shape(),
        parts.shape()
    );
    ensure!(
        names.num_elements() == parts.num_elements(),
        InvalidArgument,
        "tensor_names and shape_and_slices have different number of elements: {} vs. {}",
        names.num_elements(),
        parts.num_elements()
    );
    Ok(())
}
