//! What views of graphs lack for code that adds many nodes: lists of operations, and dtypes that
//! only the graph knows.

use thalweg_api::{Any, Graph, NewOp, Operation, Output, Target, TensorType};
use thalweg_tensor::DType;

/// A view whose nodes run after these.
#[track_caller]
pub(crate) fn after(view: &Graph, nodes: &[Operation]) -> Graph {
    view.after(&targets(nodes))
}

/// One target for several, with this name.
#[track_caller]
pub(crate) fn group(view: &Graph, name: &str, nodes: &[Operation]) -> Operation {
    view.group(name, &targets(nodes))
}

fn targets(nodes: &[Operation]) -> Vec<&dyn Target> {
    nodes.iter().map(|node| node as &dyn Target).collect()
}

/// A scalar constant of this dtype.
#[track_caller]
pub(crate) fn number(view: &Graph, dtype: DType, value: f64) -> Output<Any> {
    match view.build(|scope| scope.number(dtype, value)) {
        Some(at) => view.output(at),
        None => Output::poisoned(view),
    }
}

/// A scalar constant of the dtype of `x`, beside it.
#[track_caller]
pub(crate) fn like<T: TensorType>(x: &Output<T>, value: f64) -> Output<T> {
    match x.dtype() {
        Some(dtype) => number(x.graph(), dtype, value).typed(),
        None => Output::poisoned(x.graph()),
    }
}

/// The elements as this dtype; the tensor itself if it has it.
#[track_caller]
pub(crate) fn cast_to<T: TensorType>(x: &Output<T>, dtype: DType) -> Output<Any> {
    match x.dtype() {
        Some(own) if own != dtype => {
            NewOp::new(x.graph(), "Cast").input(x).attr("DstT", dtype).output()
        }
        _ => x.any(),
    }
}
