//! Dataflow graphs: op definitions, nodes and edges, shape inference, functions, gradients.
//!
//! `graph` does not depend on kernels: a client can build a graph, infer its types and shapes and
//! serialize it without an executor. Ops are data ([`OpDef`]) in TensorFlow's own notation. A graph
//! checks each node when it is added, so an error names the node. Passes share the functions in
//! `rewrite` and match on the [`Role`] of ops.

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
mod refine;
mod registry;
mod rewrite;
mod role;
mod scope;
pub mod shape;
pub mod structural;
mod subgraph;
mod value;
mod work;

pub use attr::{AttrValue, Attrs, IntoAttr, NodeAttrs};
pub use branching::{Branch, LoopOptions};
pub use function::{FunctionBody, instantiate, instantiate_gradient};
pub use gradient::{
    Adjoint, Gradient, GradientContext, GradientFn, GradientOptions, IndexedSlices,
    connected_gradients, gradients,
};
pub use graph::{Endpoint, Graph, NewNode, Node, NodeId, OutputInfo, TensorName};
pub use library::{FunctionLibrary, callees, functions_in};
pub use op::{ArgDef, ArgType, AttrDef, AttrKind, Flag, Op, OpDef};
pub use registry::{OpRegistry, TENSORFLOW_INTERFACES};
pub use rewrite::{Renumbering, Successors, dependencies, keep_nodes, reachable};
pub use role::Role;
pub use scope::{NodeBuilder, Output, Scope};
pub use shape::{ShapeContext, ShapeFn};
pub use value::{PartialValue, ValueContext, ValueFn};
pub use work::{Work, WorkContext, WorkFn, tensor_bytes};

/// The newest graph version that TensorFlow 2.21 writes, and that this crate reads.
pub const GRAPH_VERSION: i32 = 2474;
