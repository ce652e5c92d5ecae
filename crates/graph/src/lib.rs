//! Dataflow graphs: op definitions, nodes and edges, types and shapes, functions.
//!
//! `graph` never sees a kernel: a client can build a graph, infer its types and shapes and ship it
//! without anything that could run it. Ops are data ([`OpDef`]) in TensorFlow's own notation, and
//! a graph is checked node by node as it grows, so a mistake is reported with the node's name.

mod attr;
mod branching;
mod control_flow;
mod function;
mod functional;
mod functional_gradient;
pub mod gradient;
mod graph;
mod import;
mod library;
mod loop_gradient;
mod op;
mod piece;
mod refine;
mod registry;
mod rewrite;
mod role;
mod scope;
pub mod shape;
pub mod structural;
mod value;

pub use attr::{AttrValue, Attrs, IntoAttr, NodeAttrs};
pub use branching::Branch;
pub use function::{FunctionBody, instantiate, instantiate_gradient};
pub use gradient::{
    Adjoint, Gradient, GradientContext, GradientFn, GradientOptions, IndexedSlices,
    connected_gradients, gradients,
};
pub use graph::{Endpoint, Graph, NewNode, Node, NodeId, OutputInfo, TensorName};
pub use library::{FunctionLibrary, callees, functions_in};
pub use op::{ArgDef, ArgType, AttrDef, AttrKind, Flag, Op, OpDef};
pub use registry::OpRegistry;
pub use rewrite::{Renumbering, Successors, dependencies, keep_nodes, reachable};
pub use role::Role;
pub use scope::{NodeBuilder, Output, Scope};
pub use shape::{ShapeContext, ShapeFn};
pub use value::{PartialValue, ValueContext, ValueFn};

/// The newest graph version that TensorFlow 2.21 writes, and that this crate reads.
pub const GRAPH_VERSION: i32 = 2474;
