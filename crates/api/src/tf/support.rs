//! What the generated functions are made of.

pub(super) use thalweg_graph::{AttrKind, AttrValue, Attrs, IntoAttr};
pub(super) use thalweg_tensor::{Complex32, DType, PartialShape, Tensor};

pub(super) use crate::dtype::{Any as Untyped, Ref, Resource, TensorType, Variant};
pub(super) use crate::graph::{Dims, Graph};
pub(super) use crate::node::NewOp;
pub(super) use crate::operand::{Handle, Operand};
pub(super) use crate::output::{Operation, Output};

/// A function of the graph's library, for ops that call one.
#[derive(Clone, Debug)]
pub struct Function {
    name: String,
    attrs: Attrs,
}

impl Function {
    /// The function of this name.
    pub fn new(name: impl Into<String>) -> Function {
        Function { name: name.into(), attrs: Attrs::default() }
    }

    /// Sets an attr with which the function is instantiated.
    #[must_use]
    pub fn attr(mut self, name: &str, value: impl IntoAttr) -> Function {
        self.attrs.set(name, value.into_attr());
        self
    }
}

impl IntoAttr for &Function {
    fn into_attr(self) -> AttrValue {
        AttrValue::function(&self.name, &self.attrs)
    }
}

/// Optional attrs of an op, and its name.
#[derive(Clone, Debug, Default)]
pub(super) struct Options {
    name: Option<String>,
    attrs: Attrs,
}

impl Options {
    pub(super) fn named(&mut self, name: &str) {
        self.name = Some(name.to_owned());
    }

    pub(super) fn set(&mut self, name: &str, value: impl IntoAttr) {
        self.attrs.set(name, value.into_attr());
    }

    /// A node with these attrs.
    #[track_caller]
    #[expect(clippy::new_ret_no_self, clippy::wrong_self_convention, reason = "as `NewOp::new`")]
    pub(super) fn new<'a>(&'a self, graph: &Graph, op: &'a str) -> NewOp<'a> {
        NewOp::new(graph, op).name(self.name.as_deref()).attrs(&self.attrs)
    }

    /// As [`Options::new`], in the graph of a handle.
    #[track_caller]
    pub(super) fn on<'a, T: TensorType>(
        &'a self,
        handle: &impl Handle<T>,
        op: &'a str,
    ) -> NewOp<'a> {
        self.new(handle.view(), op)
    }
}

/// A tensor as the value of an attr.
pub(super) fn tensor_attr(tensor: &Tensor) -> AttrValue {
    let attrs = Attrs::of_const(tensor).unwrap_or_default();
    attrs.get("value").cloned().unwrap_or_default()
}

/// Functions as the value of an attr.
pub(super) fn functions_attr(functions: &[Function]) -> AttrValue {
    let values: Vec<AttrValue> = functions.iter().map(IntoAttr::into_attr).collect();
    AttrValue::list_of(AttrKind::Func, &values).unwrap_or_default()
}

/// The dtypes of a list of tensors.
pub(super) fn dtypes_of(tensors: &[Output<Untyped>]) -> Vec<DType> {
    tensors.iter().filter_map(Output::dtype).collect()
}

/// Defines the builder of an op: its struct, and a setter for each optional attr, given with its
/// default.
macro_rules! options {
    ($op:ident {
        $($set:ident: $t:ty = $attr:literal, $default:literal $(, |$value:ident| $as_attr:expr)?;)*
    }) => {
        #[doc = concat!("Optional attrs of the op `", stringify!($op), "`.")]
        #[derive(Clone, Debug, Default)]
        pub struct $op(Options);

        impl $op {
            /// All attrs by default.
            pub fn new() -> $op {
                $op::default()
            }

            /// Sets the node's name.
            #[must_use]
            pub fn name(mut self, name: &str) -> $op {
                self.0.named(name);
                self
            }

            $(
                #[doc = concat!("Sets `", $attr, "`, by default `", $default, "`.")]
                #[must_use]
                pub fn $set(mut self, value: $t) -> $op {
                    $(let $value = value; let value = $as_attr;)?
                    self.0.set($attr, value);
                    self
                }
            )*
        }
    };
}
