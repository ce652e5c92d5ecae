//! What ops take: handles, and Rust values that become constants.

use crate::dtype::TensorType;
use crate::graph::Graph;
use crate::node::NewOp;
use crate::output::Output;
use crate::variable::Variable;

/// An operand of an op: a handle, or a Rust value, which becomes a constant beside the op.
pub trait Operand<T: TensorType> {
    /// Makes this the next input of the op.
    fn push_to(self, op: &mut NewOp<'_>);
}

/// An operand that knows its graph: an [`Output`] or a [`Variable`]. The first operand of an op is
/// one, and the node is added where it says: in its name scope, on its device.
pub trait Handle<T: TensorType>: Operand<T> {
    /// The view of the graph to which the op's node is added.
    fn view(&self) -> &Graph;
}

macro_rules! handles {
    ($($t:ty => |$x:ident| $output:expr;)+) => { $(
        impl<T: TensorType> Operand<T> for $t {
            fn push_to(self, op: &mut NewOp<'_>) {
                let $x = self;
                op.push($output.raw());
            }
        }

        impl<T: TensorType> Handle<T> for $t {
            fn view(&self) -> &Graph {
                let $x = self;
                $output.graph()
            }
        }
    )+ };
}

handles! {
    Output<T> => |x| x;
    &Output<T> => |x| x;
    &&Output<T> => |x| x;
    Variable<T> => |x| x.value();
    &Variable<T> => |x| x.value();
    &&Variable<T> => |x| x.value();
}
