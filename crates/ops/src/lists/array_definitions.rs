//! Definitions of the `TensorArray` ops in three versions with different handles: references to two
//! strings, two strings, resources.

use thalweg_graph::shape::{self, ShapeContext};
use thalweg_graph::{OpDef, Work};
use thalweg_tensor::{PartialShape, Result};

use super::array_gradients as gradients;
use crate::state::handle::two_strings;

pub(super) const TENSOR_ARRAY: OpDef = OpDef::new("TensorArray", two_strings).without_gradient();
pub(super) const TENSOR_ARRAY_V2: OpDef = OpDef { name: "TensorArrayV2", ..TENSOR_ARRAY };
pub(super) const TENSOR_ARRAY_V3: OpDef =
    OpDef { name: "TensorArrayV3", shape: array_shape, ..TENSOR_ARRAY };

pub(super) const TENSOR_ARRAY_GRAD: OpDef =
    OpDef::new("TensorArrayGrad", two_strings).without_gradient();
pub(super) const TENSOR_ARRAY_GRAD_V2: OpDef =
    OpDef { name: "TensorArrayGradV2", ..TENSOR_ARRAY_GRAD };
pub(super) const TENSOR_ARRAY_GRAD_V3: OpDef =
    OpDef { name: "TensorArrayGradV3", shape: array_shape, ..TENSOR_ARRAY_GRAD };
pub(super) const TENSOR_ARRAY_GRAD_WITH_SHAPE: OpDef =
    OpDef { name: "TensorArrayGradWithShape", ..TENSOR_ARRAY_GRAD_V3 };

pub(super) const TENSOR_ARRAY_WRITE: OpDef = OpDef::new("TensorArrayWrite", flow_shape)
    .with_work(Work::none)
    .with_gradient(gradients::write);
pub(super) const TENSOR_ARRAY_WRITE_V2: OpDef =
    OpDef { name: "TensorArrayWriteV2", ..TENSOR_ARRAY_WRITE };
pub(super) const TENSOR_ARRAY_WRITE_V3: OpDef =
    OpDef { name: "TensorArrayWriteV3", ..TENSOR_ARRAY_WRITE };

pub(super) const TENSOR_ARRAY_READ: OpDef = OpDef::new("TensorArrayRead", shape::unknown)
    .with_work(Work::none)
    .with_gradient(gradients::read);
pub(super) const TENSOR_ARRAY_READ_V2: OpDef =
    OpDef { name: "TensorArrayReadV2", ..TENSOR_ARRAY_READ };
pub(super) const TENSOR_ARRAY_READ_V3: OpDef =
    OpDef { name: "TensorArrayReadV3", ..TENSOR_ARRAY_READ };

pub(super) const TENSOR_ARRAY_GATHER: OpDef = OpDef::new("TensorArrayGather", gather_shape)
    .with_work(Work::copies_outputs)
    .with_gradient(gradients::gather);
pub(super) const TENSOR_ARRAY_GATHER_V2: OpDef =
    OpDef { name: "TensorArrayGatherV2", ..TENSOR_ARRAY_GATHER };
pub(super) const TENSOR_ARRAY_GATHER_V3: OpDef =
    OpDef { name: "TensorArrayGatherV3", ..TENSOR_ARRAY_GATHER };

pub(super) const TENSOR_ARRAY_SCATTER: OpDef = OpDef::new("TensorArrayScatter", flow_shape)
    .with_work(Work::moves)
    .with_gradient(gradients::scatter);
pub(super) const TENSOR_ARRAY_SCATTER_V2: OpDef =
    OpDef { name: "TensorArrayScatterV2", ..TENSOR_ARRAY_SCATTER };
pub(super) const TENSOR_ARRAY_SCATTER_V3: OpDef =
    OpDef { name: "TensorArrayScatterV3", ..TENSOR_ARRAY_SCATTER };

pub(super) const TENSOR_ARRAY_CONCAT: OpDef = OpDef::new("TensorArrayConcat", concat_shape)
    .with_work(Work::copies_outputs)
    .with_gradient(gradients::concat);
pub(super) const TENSOR_ARRAY_CONCAT_V2: OpDef =
    OpDef { name: "TensorArrayConcatV2", ..TENSOR_ARRAY_CONCAT };
pub(super) const TENSOR_ARRAY_CONCAT_V3: OpDef =
    OpDef { name: "TensorArrayConcatV3", ..TENSOR_ARRAY_CONCAT };

pub(super) const TENSOR_ARRAY_SPLIT: OpDef = OpDef::new("TensorArraySplit", flow_shape)
    .with_work(Work::moves)
    .with_gradient(gradients::split);
pub(super) const TENSOR_ARRAY_SPLIT_V2: OpDef =
    OpDef { name: "TensorArraySplitV2", ..TENSOR_ARRAY_SPLIT };
pub(super) const TENSOR_ARRAY_SPLIT_V3: OpDef =
    OpDef { name: "TensorArraySplitV3", ..TENSOR_ARRAY_SPLIT };

pub(super) const TENSOR_ARRAY_SIZE: OpDef =
    OpDef::new("TensorArraySize", shape::scalar).without_gradient();
pub(super) const TENSOR_ARRAY_SIZE_V2: OpDef =
    OpDef { name: "TensorArraySizeV2", ..TENSOR_ARRAY_SIZE };
pub(super) const TENSOR_ARRAY_SIZE_V3: OpDef =
    OpDef { name: "TensorArraySizeV3", ..TENSOR_ARRAY_SIZE };

pub(super) const TENSOR_ARRAY_CLOSE: OpDef =
    OpDef::new("TensorArrayClose", shape::unknown).without_gradient();
pub(super) const TENSOR_ARRAY_CLOSE_V2: OpDef =
    OpDef { name: "TensorArrayCloseV2", ..TENSOR_ARRAY_CLOSE };
pub(super) const TENSOR_ARRAY_CLOSE_V3: OpDef =
    OpDef { name: "TensorArrayCloseV3", ..TENSOR_ARRAY_CLOSE };

pub(super) const TENSOR_ARRAY_PACK: OpDef =
    OpDef::new("TensorArrayPack", pack_shape).with_work(Work::copies_outputs);
pub(super) const TENSOR_ARRAY_UNPACK: OpDef =
    OpDef::new("TensorArrayUnpack", flow_shape).with_work(Work::moves);

/// Shapes of handle and flow. The handle's shape has no meaning; TensorFlow declares a vector.
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

/// Output 0 has `rows` rows of the shape in an attr.
fn set_rows(c: &mut ShapeContext<'_>, rows: Option<usize>, attr: &str) -> Result<()> {
    if let Some(dims) = c.attrs().shape(attr)?.dims() {
        c.set_output(0, PartialShape::new([rows].into_iter().chain(dims.iter().copied())));
    }
    Ok(())
}
