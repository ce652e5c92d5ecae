//! Definitions of the `TensorArray` ops in three versions, which differ in their handles:
//! references to two strings, two strings, resources.

use thalweg_graph::shape::{self, ShapeContext};
use thalweg_graph::{Flag, OpDef};
use thalweg_tensor::{PartialShape, Result};

use super::array_gradients as gradients;
use crate::state::handle::two_strings;

pub(super) const TENSOR_ARRAY: OpDef = OpDef {
    name: "TensorArray",
    inputs: &["size: int32"],
    outputs: &["handle: Ref(string)"],
    attrs: &[
        "dtype: type",
        "dynamic_size: bool = false",
        "clear_after_read: bool = true",
        "tensor_array_name: string = ''",
        "element_shape: shape = {unknown_rank: true}",
    ],
    shape: two_strings,
    flags: &[Flag::Stateful],
    ..OpDef::DEFAULT
}
.without_gradient();
pub(super) const TENSOR_ARRAY_V2: OpDef = OpDef {
    name: "TensorArrayV2",
    outputs: &["handle: string"],
    attrs: &[
        "dtype: type",
        "element_shape: shape = {unknown_rank: true}",
        "dynamic_size: bool = false",
        "clear_after_read: bool = true",
        "tensor_array_name: string = ''",
    ],
    ..TENSOR_ARRAY
};
pub(super) const TENSOR_ARRAY_V3: OpDef = OpDef {
    name: "TensorArrayV3",
    outputs: &["handle: resource", "flow: float"],
    attrs: &[
        "dtype: type",
        "element_shape: shape = {unknown_rank: true}",
        "dynamic_size: bool = false",
        "clear_after_read: bool = true",
        "identical_element_shapes: bool = false",
        "tensor_array_name: string = ''",
    ],
    shape: array_shape,
    ..TENSOR_ARRAY
};

pub(super) const TENSOR_ARRAY_GRAD: OpDef = OpDef {
    name: "TensorArrayGrad",
    inputs: &["handle: string", "flow_in: float"],
    outputs: &["grad_handle: Ref(string)"],
    attrs: &["source: string"],
    shape: two_strings,
    flags: &[Flag::Stateful],
    ..OpDef::DEFAULT
}
.without_gradient();
pub(super) const TENSOR_ARRAY_GRAD_V2: OpDef =
    OpDef { name: "TensorArrayGradV2", outputs: &["grad_handle: string"], ..TENSOR_ARRAY_GRAD };
pub(super) const TENSOR_ARRAY_GRAD_V3: OpDef = OpDef {
    name: "TensorArrayGradV3",
    inputs: &["handle: resource", "flow_in: float"],
    outputs: &["grad_handle: resource", "flow_out: float"],
    shape: array_shape,
    ..TENSOR_ARRAY_GRAD
};
pub(super) const TENSOR_ARRAY_GRAD_WITH_SHAPE: OpDef = OpDef {
    name: "TensorArrayGradWithShape",
    inputs: &["handle: resource", "flow_in: float", "shape_to_prepend: int32"],
    ..TENSOR_ARRAY_GRAD_V3
};

pub(super) const TENSOR_ARRAY_WRITE: OpDef = OpDef {
    name: "TensorArrayWrite",
    inputs: &["handle: Ref(string)", "index: int32", "value: T", "flow_in: float"],
    outputs: &["flow_out: float"],
    attrs: &["T: type"],
    shape: flow_shape,
    ..OpDef::DEFAULT
}
.with_gradient(gradients::write);
pub(super) const TENSOR_ARRAY_WRITE_V2: OpDef = OpDef {
    name: "TensorArrayWriteV2",
    inputs: &["handle: string", "index: int32", "value: T", "flow_in: float"],
    ..TENSOR_ARRAY_WRITE
};
pub(super) const TENSOR_ARRAY_WRITE_V3: OpDef = OpDef {
    name: "TensorArrayWriteV3",
    inputs: &["handle: resource", "index: int32", "value: T", "flow_in: float"],
    flags: &[Flag::Stateful],
    ..TENSOR_ARRAY_WRITE
};

pub(super) const TENSOR_ARRAY_READ: OpDef = OpDef {
    name: "TensorArrayRead",
    inputs: &["handle: Ref(string)", "index: int32", "flow_in: float"],
    outputs: &["value: dtype"],
    attrs: &["dtype: type"],
    shape: shape::unknown,
    ..OpDef::DEFAULT
}
.with_gradient(gradients::read);
pub(super) const TENSOR_ARRAY_READ_V2: OpDef = OpDef {
    name: "TensorArrayReadV2",
    inputs: &["handle: string", "index: int32", "flow_in: float"],
    ..TENSOR_ARRAY_READ
};
pub(super) const TENSOR_ARRAY_READ_V3: OpDef = OpDef {
    name: "TensorArrayReadV3",
    inputs: &["handle: resource", "index: int32", "flow_in: float"],
    flags: &[Flag::Stateful],
    ..TENSOR_ARRAY_READ
};

pub(super) const TENSOR_ARRAY_GATHER: OpDef = OpDef {
    name: "TensorArrayGather",
    inputs: &["handle: Ref(string)", "indices: int32", "flow_in: float"],
    outputs: &["value: dtype"],
    attrs: &["dtype: type", "element_shape: shape = {unknown_rank: true}"],
    shape: gather_shape,
    ..OpDef::DEFAULT
}
.with_gradient(gradients::gather);
pub(super) const TENSOR_ARRAY_GATHER_V2: OpDef = OpDef {
    name: "TensorArrayGatherV2",
    inputs: &["handle: string", "indices: int32", "flow_in: float"],
    ..TENSOR_ARRAY_GATHER
};
pub(super) const TENSOR_ARRAY_GATHER_V3: OpDef = OpDef {
    name: "TensorArrayGatherV3",
    inputs: &["handle: resource", "indices: int32", "flow_in: float"],
    flags: &[Flag::Stateful],
    ..TENSOR_ARRAY_GATHER
};

pub(super) const TENSOR_ARRAY_SCATTER: OpDef = OpDef {
    name: "TensorArrayScatter",
    inputs: &["handle: Ref(string)", "indices: int32", "value: T", "flow_in: float"],
    outputs: &["flow_out: float"],
    attrs: &["T: type"],
    shape: flow_shape,
    ..OpDef::DEFAULT
}
.with_gradient(gradients::scatter);
pub(super) const TENSOR_ARRAY_SCATTER_V2: OpDef = OpDef {
    name: "TensorArrayScatterV2",
    inputs: &["handle: string", "indices: int32", "value: T", "flow_in: float"],
    ..TENSOR_ARRAY_SCATTER
};
pub(super) const TENSOR_ARRAY_SCATTER_V3: OpDef = OpDef {
    name: "TensorArrayScatterV3",
    inputs: &["handle: resource", "indices: int32", "value: T", "flow_in: float"],
    flags: &[Flag::Stateful],
    ..TENSOR_ARRAY_SCATTER
};

pub(super) const TENSOR_ARRAY_CONCAT: OpDef = OpDef {
    name: "TensorArrayConcat",
    inputs: &["handle: Ref(string)", "flow_in: float"],
    outputs: &["value: dtype", "lengths: int64"],
    attrs: &["dtype: type", "element_shape_except0: shape = {unknown_rank: true}"],
    shape: concat_shape,
    ..OpDef::DEFAULT
}
.with_gradient(gradients::concat);
pub(super) const TENSOR_ARRAY_CONCAT_V2: OpDef = OpDef {
    name: "TensorArrayConcatV2",
    inputs: &["handle: string", "flow_in: float"],
    ..TENSOR_ARRAY_CONCAT
};
pub(super) const TENSOR_ARRAY_CONCAT_V3: OpDef = OpDef {
    name: "TensorArrayConcatV3",
    inputs: &["handle: resource", "flow_in: float"],
    flags: &[Flag::Stateful],
    ..TENSOR_ARRAY_CONCAT
};

pub(super) const TENSOR_ARRAY_SPLIT: OpDef = OpDef {
    name: "TensorArraySplit",
    inputs: &["handle: Ref(string)", "value: T", "lengths: int64", "flow_in: float"],
    outputs: &["flow_out: float"],
    attrs: &["T: type"],
    shape: flow_shape,
    ..OpDef::DEFAULT
}
.with_gradient(gradients::split);
pub(super) const TENSOR_ARRAY_SPLIT_V2: OpDef = OpDef {
    name: "TensorArraySplitV2",
    inputs: &["handle: string", "value: T", "lengths: int64", "flow_in: float"],
    ..TENSOR_ARRAY_SPLIT
};
pub(super) const TENSOR_ARRAY_SPLIT_V3: OpDef = OpDef {
    name: "TensorArraySplitV3",
    inputs: &["handle: resource", "value: T", "lengths: int64", "flow_in: float"],
    flags: &[Flag::Stateful],
    ..TENSOR_ARRAY_SPLIT
};

pub(super) const TENSOR_ARRAY_SIZE: OpDef = OpDef {
    name: "TensorArraySize",
    inputs: &["handle: Ref(string)", "flow_in: float"],
    outputs: &["size: int32"],
    shape: shape::scalar,
    ..OpDef::DEFAULT
}
.without_gradient();
pub(super) const TENSOR_ARRAY_SIZE_V2: OpDef = OpDef {
    name: "TensorArraySizeV2",
    inputs: &["handle: string", "flow_in: float"],
    ..TENSOR_ARRAY_SIZE
};
pub(super) const TENSOR_ARRAY_SIZE_V3: OpDef = OpDef {
    name: "TensorArraySizeV3",
    inputs: &["handle: resource", "flow_in: float"],
    flags: &[Flag::Stateful],
    ..TENSOR_ARRAY_SIZE
};

pub(super) const TENSOR_ARRAY_CLOSE: OpDef = OpDef {
    name: "TensorArrayClose",
    inputs: &["handle: Ref(string)"],
    shape: shape::unknown,
    ..OpDef::DEFAULT
}
.without_gradient();
pub(super) const TENSOR_ARRAY_CLOSE_V2: OpDef =
    OpDef { name: "TensorArrayCloseV2", inputs: &["handle: string"], ..TENSOR_ARRAY_CLOSE };
pub(super) const TENSOR_ARRAY_CLOSE_V3: OpDef = OpDef {
    name: "TensorArrayCloseV3",
    inputs: &["handle: resource"],
    flags: &[Flag::Stateful],
    ..TENSOR_ARRAY_CLOSE
};

pub(super) const TENSOR_ARRAY_PACK: OpDef = OpDef {
    name: "TensorArrayPack",
    inputs: &["handle: Ref(string)", "flow_in: float"],
    outputs: &["value: dtype"],
    attrs: &["dtype: type", "element_shape: shape = {unknown_rank: true}"],
    shape: pack_shape,
    ..OpDef::DEFAULT
};
pub(super) const TENSOR_ARRAY_UNPACK: OpDef = OpDef {
    name: "TensorArrayUnpack",
    inputs: &["handle: Ref(string)", "value: T", "flow_in: float"],
    outputs: &["flow_out: float"],
    attrs: &["T: type"],
    shape: flow_shape,
    ..OpDef::DEFAULT
};

/// A handle and a flow. What shape the handle has is nobody's business: TensorFlow calls it a vector.
fn array_shape(c: &mut ShapeContext<'_>) -> Result<()> {
    c.set_output(1, PartialShape::scalar());
    Ok(())
}

fn flow_shape(c: &mut ShapeContext<'_>) -> Result<()> {
    c.with_rank(c.num_inputs() - 1, "flow_in", 0)?;
    c.set_output(0, PartialShape::scalar());
    Ok(())
}

fn gather_shape(c: &mut ShapeContext<'_>) -> Result<()> {
    let rows = c.with_rank(1, "indices", 1)?.dim(0);
    set_rows(c, rows, "element_shape")
}

fn pack_shape(c: &mut ShapeContext<'_>) -> Result<()> {
    set_rows(c, None, "element_shape")
}

fn concat_shape(c: &mut ShapeContext<'_>) -> Result<()> {
    c.set_output(1, PartialShape::of_rank(1));
    set_rows(c, None, "element_shape_except0")
}

/// Output 0 has this many rows of the shape in an attr.
fn set_rows(c: &mut ShapeContext<'_>, rows: Option<usize>, attr: &str) -> Result<()> {
    if let Some(dims) = c.attrs().shape(attr)?.dims() {
        c.set_output(0, PartialShape::new([rows].into_iter().chain(dims.iter().copied())));
    }
    Ok(())
}
