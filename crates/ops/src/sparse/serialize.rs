//! Serialization of sparse tensors, single or batched, and deserialization.

use std::sync::Arc;

use prost::Message;
use smallvec::SmallVec;
use thalweg_graph::shape::ShapeContext;
use thalweg_graph::{OpDef, Work};
use thalweg_kernel::{AnyKernel, Family, KernelContext, KernelInit, KernelSpec};
use thalweg_proto::TensorProto;
use thalweg_tensor::{
    Budget, Bytes, Charge, DType, PartialShape, Result, Shape, Tensor, Variant, bail, ensure, err,
    with_charge,
};

use super::coo::{Coordinates, matrix, set_outputs, set_sparse_outputs};
use crate::cells::{Cell, blank};

pub(crate) static FAMILY: Family = Family {
    ops: &[
        OpDef::new("SerializeSparse", serialize_shape).with_work(Work::serial::<50>),
        OpDef::new("SerializeManySparse", serialize_many_shape).with_work(Work::serial::<50>),
        OpDef::new("DeserializeSparse", deserialize_shape).with_work(Work::serial::<50>),
        OpDef::new("DeserializeManySparse", deserialize_many_shape).with_work(Work::serial::<50>),
    ],
    kernels: &[
        KernelSpec { op: "SerializeSparse", create: serialize, ..KernelSpec::CPU },
        KernelSpec { op: "SerializeManySparse", create: serialize_many, ..KernelSpec::CPU },
        KernelSpec { op: "DeserializeSparse", create: deserialize, ..KernelSpec::CPU },
        KernelSpec { op: "DeserializeManySparse", create: deserialize, ..KernelSpec::CPU },
    ],
};

/// Type name of a tensor in a variant.
const TENSOR_TYPE: &str = "tensorflow::Tensor";

/// A tensor in a variant.
#[derive(Debug)]
struct TensorVariant(Tensor);

impl Variant for TensorVariant {
    fn type_name(&self) -> &str {
        TENSOR_TYPE
    }

    fn encode(&self) -> Option<(Bytes, Vec<Tensor>)> {
        Some((Bytes::new(), vec![self.0.clone()]))
    }
}

fn serialize_shape(c: &mut ShapeContext<'_>) -> Result<()> {
    c.with_rank(0, "sparse_indices", 2)?;
    c.with_rank(1, "sparse_values", 1)?;
    c.with_rank(2, "sparse_shape", 1)?;
    c.set_output(0, PartialShape::new([Some(3)]));
    Ok(())
}

/// The `TensorProto` of a tensor with all elements in `tensor_content`, as TensorFlow writes it.
fn message(tensor: &Tensor, budget: &Arc<Budget>) -> Result<Bytes> {
    // Strings are copied into `tensor_content`, and that into the message.
    let strings = if tensor.dtype() == DType::String { tensor.size_bytes() } else { 0 };
    let _copies = Charge::new(budget, strings)?;
    let mut proto = tensor.to_proto()?;
    if tensor.dtype() == DType::String {
        let strings = std::mem::take(&mut proto.string_val);
        let mut content = Vec::new();
        let bytes: usize = strings.iter().map(|s| s.len() + 10).sum();
        content
            .try_reserve(bytes)
            .map_err(|_| err!(ResourceExhausted, "out of memory for {bytes} bytes"))?;
        for string in &strings {
            prost::encoding::encode_varint(string.len() as u64, &mut content);
        }
        strings.iter().for_each(|s| content.extend_from_slice(s));
        proto.tensor_content = content.into();
    }
    let charge = Charge::new(budget, proto.encoded_len())?;
    Ok(with_charge(proto.encode_to_vec(), charge))
}

/// Indices, values and shape of a sparse tensor as a tensor of three variants.
pub(crate) fn as_variants(parts: Vec<Tensor>, budget: &Arc<Budget>) -> Result<Tensor> {
    packed(DType::Variant, Shape::new(&[parts.len()])?, parts, budget)
}

/// Tensors as the elements of a string or variant tensor of this shape.
fn packed(dtype: DType, shape: Shape, parts: Vec<Tensor>, budget: &Arc<Budget>) -> Result<Tensor> {
    if dtype == DType::Variant {
        parts.iter().try_for_each(|part| part.ensure_charged(budget))?;
        let wrap = |t| Some(Arc::new(TensorVariant(t)) as Arc<dyn Variant>);
        return Tensor::from_variants(shape, parts.into_iter().map(wrap).collect());
    }
    let messages = parts.iter().map(|part| message(part, budget)).collect::<Result<_>>()?;
    Tensor::from_strings_in(shape, messages, budget)
}

fn serialize(init: &KernelInit<'_>) -> Result<AnyKernel> {
    let dtype = init.attrs().dtype("out_type")?;
    AnyKernel::new(move |ctx| {
        let ranks = [(0, "indices", 2), (1, "values", 1), (2, "shape", 1)];
        let mut parts = Vec::with_capacity(3);
        for (i, name, rank) in ranks {
            let tensor = ctx.input(i)?;
            ensure!(
                tensor.rank() == rank,
                InvalidArgument,
                "Input {name} should have rank {rank} but received shape {}",
                tensor.shape()
            );
            parts.push(tensor.clone());
        }
        let output = packed(dtype, Shape::new(&[3])?, parts, ctx.budget())?;
        ctx.set_output(0, output)
    })
}

fn serialize_many_shape(c: &mut ShapeContext<'_>) -> Result<()> {
    serialize_shape(c)?;
    c.set_output(0, PartialShape::new([None, Some(3)]));
    Ok(())
}

fn serialize_many(init: &KernelInit<'_>) -> Result<AnyKernel> {
    let dtype = init.attrs().dtype("out_type")?;
    AnyKernel::new(move |ctx| {
        let sparse = Coordinates::of_inputs(ctx, 0)?;
        ensure!(
            sparse.rank > 1,
            InvalidArgument,
            "Rank of input SparseTensor should be > 1, but saw rank: {}",
            sparse.rank
        );
        let rows = sparse.shape()?[0];
        sparse.check_sorted()?;
        let values = ctx.input(1)?;
        let shape = Tensor::vector(&sparse.sizes[1..])?;
        // A row takes at least three handles, which are charged to the session.
        let output_shape = Shape::new(&[rows, 3])?;
        let mut output = Tensor::zeros_in(dtype, output_shape, Some(ctx.budget()))?;
        let mut start = 0;
        for row in 0..rows {
            let after = (start..sparse.count).find(|&i| sparse.row(i)[0] as usize != row);
            let end = after.unwrap_or(sparse.count);
            let mut indices = matrix(ctx, end - start, sparse.rank - 1)?;
            let targets = indices.as_mut_slice::<i64>()?.chunks_exact_mut(sparse.rank - 1);
            targets.zip(start..end).for_each(|(to, i)| to.copy_from_slice(&sparse.row(i)[1..]));
            let parts =
                vec![indices, values.rows(start, end - start, Some(ctx.budget()))?, shape.clone()];
            let packed = packed(dtype, Shape::new(&[3])?, parts, ctx.budget())?;
            with_cell!(dtype, C => {
                C::view_mut(&mut output)?[row * 3..row * 3 + 3].clone_from_slice(C::view(&packed)?);
            });
            start = end;
        }
        ctx.set_output(0, output)
    })
}

fn deserialize_shape(c: &mut ShapeContext<'_>) -> Result<()> {
    if let Some(dims) = c.with_rank_at_least(0, "serialized_sparse", 1)?.dims() {
        PartialShape::new([dims[dims.len() - 1]]).merge(&PartialShape::new([Some(3)]))?;
    }
    set_sparse_outputs(c, 0, None, None);
    Ok(())
}

fn deserialize_many_shape(c: &mut ShapeContext<'_>) -> Result<()> {
    let serialized = c.with_rank(0, "serialized_sparse", 2)?;
    serialized.merge(&PartialShape::new([None, Some(3)]))?;
    set_sparse_outputs(c, 0, None, None);
    Ok(())
}

/// The parts of a sparse tensor.
struct Parts {
    indices: Tensor,
    values: Tensor,
    shape: Tensor,
}

impl Parts {
    fn coordinates(&self) -> Result<Coordinates<'_>> {
        Coordinates::of(&self.indices, &self.values, &self.shape)
    }
}

/// The tensor in element `i` of a string or variant tensor.
fn unpacked(ctx: &KernelContext<'_>, serialized: &Tensor, i: usize) -> Result<Tensor> {
    if serialized.dtype() == DType::Variant {
        let value = serialized.variants()?[i].as_ref();
        let encoded = value.filter(|v| v.type_name() == TENSOR_TYPE).and_then(|v| v.encode());
        return encoded.and_then(|(_, tensors)| tensors.into_iter().next()).ok_or_else(|| {
            err!(InvalidArgument, "element {i} of serialized_sparse does not hold a tensor")
        });
    }
    let wrong = |e: &dyn std::fmt::Display| {
        err!(InvalidArgument, "Could not parse element {i} of serialized_sparse: {e}")
    };
    let proto = TensorProto::decode(serialized.strings()?[i].clone()).map_err(|e| wrong(&e))?;
    Tensor::from_proto(&proto, Some(ctx.budget())).map_err(|e| wrong(&e))
}

/// Sparse tensor `n` of the input.
fn parts(ctx: &KernelContext<'_>, n: usize, dtype: DType) -> Result<Parts> {
    let serialized = ctx.input(0)?;
    let part = |k: usize, expected: DType| -> Result<Tensor> {
        let tensor = unpacked(ctx, serialized, 3 * n + k)?;
        ensure!(
            tensor.dtype() == expected,
            InvalidArgument,
            "Requested SparseTensor of type {dtype}, but part {k} of element {n} is {}",
            tensor.dtype()
        );
        Ok(tensor)
    };
    let found = Parts {
        indices: part(0, DType::Int64)?,
        values: part(1, dtype)?,
        shape: part(2, DType::Int64)?,
    };
    found.coordinates()?;
    Ok(found)
}

fn deserialize(init: &KernelInit<'_>) -> Result<AnyKernel> {
    let dtype = init.attrs().dtype("dtype")?;
    AnyKernel::new(move |ctx| {
        let shape = ctx.input(0)?.shape().clone();
        let (count, prefix) = match shape.split_last() {
            Some((3, prefix)) => (prefix.iter().product::<usize>(), prefix),
            _ => bail!(
                InvalidArgument,
                "Serialized sparse should have 3 as the last dimension, has shape {shape}"
            ),
        };
        ensure!(
            count > 0,
            InvalidArgument,
            "Must have at least 1 serialized SparseTensor, but input has shape {shape}"
        );
        if prefix.is_empty() {
            let Parts { indices, values, shape } = parts(ctx, 0, dtype)?;
            return set_outputs(ctx, [indices, values, shape]);
        }
        let all: Vec<Parts> = (0..count).map(|n| parts(ctx, n, dtype)).collect::<Result<_>>()?;
        let outputs = joined(ctx, &all, prefix, dtype)?;
        set_outputs(ctx, outputs)
    })
}

/// Concatenates sparse tensors of one rank; `prefix` gives their leading coordinates.
fn joined(
    ctx: &KernelContext<'_>,
    all: &[Parts],
    prefix: &[usize],
    dtype: DType,
) -> Result<[Tensor; 3]> {
    let rank = all[0].shape.num_elements();
    let mut sizes: SmallVec<[i64; 6]> = prefix.iter().map(|&d| d as i64).collect();
    sizes.resize(prefix.len() + rank, 0);
    let mut count = 0;
    for (n, part) in all.iter().enumerate() {
        let own = part.coordinates()?;
        ensure!(
            own.rank == rank,
            InvalidArgument,
            "Inconsistent rank across SparseTensors: rank prior to SparseTensor[{n}] was: {rank} \
             but rank of SparseTensor[{n}] is: {}",
            own.rank
        );
        let merged = sizes[prefix.len()..].iter_mut().zip(own.sizes);
        merged.for_each(|(size, own)| *size = (*size).max(*own));
        own.shape()?;
        count += own.count;
    }
    Shape::from_i64(&sizes)?;
    let width = sizes.len();
    let mut indices = matrix(ctx, count, width)?;
    let mut values = blank(ctx, dtype, Shape::new(&[count])?)?;
    let mut rows = indices.as_mut_slice::<i64>()?;
    for (n, part) in all.iter().enumerate() {
        let own = part.coordinates()?;
        let (block, after) = rows.split_at_mut(own.count * width);
        rows = after;
        for (i, row) in block.chunks_exact_mut(width).enumerate() {
            let mut place = n;
            for (x, &size) in row[..prefix.len()].iter_mut().zip(prefix).rev() {
                *x = (place % size) as i64;
                place /= size;
            }
            row[prefix.len()..].copy_from_slice(own.row(i));
        }
    }
    with_cell!(dtype, C => {
        let mut rest = C::view_mut(&mut values)?;
        for part in all {
            let from = C::view(&part.values)?;
            let (to, after) = rest.split_at_mut(from.len());
            to.clone_from_slice(from);
            rest = after;
        }
    });
    Ok([indices, values, Tensor::vector(&sizes)?])
}
