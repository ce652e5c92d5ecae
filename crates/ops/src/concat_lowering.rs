//! Lowering of concatenation and splitting.

use thalweg_hlo::Value;
use thalweg_kernel::Lowering;
use thalweg_tensor::{Result, ensure};

use crate::concat::{
    axis_out_of_range, checked_axis, offsets, pack_axis, split_axis, split_size, split_sizes,
    unpack_axis,
};
use crate::reshape_lowering::ints;

pub(crate) fn concat(l: &mut Lowering<'_>) -> Result<()> {
    let range = l.node().input_range("values")?;
    let axis = l.int(if range.start == 0 { range.end } else { 0 })?;
    let values = range.map(|i| l.input(i)).collect::<Result<Vec<Value>>>()?;
    let rank = values[0].rank();
    let axis = checked_axis(axis, rank).ok_or_else(|| axis_out_of_range(axis, rank))?;
    l.set(0, values[0].concatenate(&values[1..], axis))
}

pub(crate) fn concat_offset(l: &mut Lowering<'_>) -> Result<()> {
    let shapes = (1..l.num_inputs()).map(|i| Ok(l.ints(i)?.into())).collect::<Result<Vec<_>>>()?;
    for (i, offsets) in offsets(l.int(0)?, &shapes)?.iter().enumerate() {
        l.set_host(i, ints(l.output_dtype(i), offsets, false)?)?;
    }
    Ok(())
}

pub(crate) fn pack(l: &mut Lowering<'_>) -> Result<()> {
    let values = l.inputs_from(0)?;
    let axis = pack_axis(l.attrs().int("axis")?, values[0].rank())?;
    let values: Vec<Value> = values.iter().map(|x| x.expand(axis)).collect();
    l.set(0, values[0].concatenate(&values[1..], axis))
}

pub(crate) fn unpack(l: &mut Lowering<'_>) -> Result<()> {
    let x = l.input(0)?;
    let axis = unpack_axis(l.attrs().int("axis")?, x.rank())?;
    let mut dims = x.dims().to_vec();
    let num = dims.remove(axis);
    ensure!(
        num == l.node().outputs.len(),
        InvalidArgument,
        "Input shape axis {axis} must equal {}, got shape {:?}",
        l.node().outputs.len(),
        x.dims()
    );
    for i in 0..num {
        l.set(i, x.slice_dim(axis, i, i + 1).reshape(&dims))?;
    }
    Ok(())
}

pub(crate) fn split(l: &mut Lowering<'_>) -> Result<()> {
    let x = l.input(1)?;
    let axis = split_axis(l.int(0)?, x.rank())?;
    let num = l.node().outputs.len();
    let size = split_size(x.dims()[axis], num, axis)?;
    cut(l, &x, axis, &vec![size; num])
}

pub(crate) fn split_v(l: &mut Lowering<'_>) -> Result<()> {
    let x = l.input(0)?;
    let axis = split_axis(l.int(2)?, x.rank())?;
    let sizes = split_sizes(&l.ints(1)?, l.node().outputs.len(), x.dims()[axis])?;
    cut(l, &x, axis, &sizes)
}

/// Sets the outputs to consecutive parts of these sizes.
fn cut(l: &mut Lowering<'_>, x: &Value, axis: usize, sizes: &[usize]) -> Result<()> {
    let mut start = 0;
    for (i, size) in sizes.iter().enumerate() {
        l.set(i, x.slice_dim(axis, start, start + size))?;
        start += size;
    }
    Ok(())
}
