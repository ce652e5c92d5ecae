//! The function library of a graph, and which functions a node calls.

use std::collections::BTreeMap;
use std::sync::Arc;

use rustc_hash::FxHashSet;
use thalweg_proto as pb;
use thalweg_proto::attr_value::Value;
use thalweg_tensor::{Context, DType, Result, ensure, err};

use crate::op::{ArgDef, ArgType, AttrDef, AttrKind, Flag, Op};
use crate::{AttrValue, Gradient, Node, Role, Work, functional_gradient, shape};

/// Functions by name, with the gradient functions that clients registered for them.
#[derive(Clone, Default)]
pub struct FunctionLibrary {
    /// In the order of insertion, which is that of `to_proto`.
    functions: Vec<(Arc<pb::FunctionDef>, Arc<Op>)>,
    by_name: BTreeMap<String, usize>,
    gradients: Vec<pb::GradientDef>,
    gradient_by_name: BTreeMap<String, usize>,
    registered_gradients: Vec<pb::RegisteredGradient>,
}

impl FunctionLibrary {
    /// Adds functions; one that is already defined must be equal.
    pub(crate) fn extend(&mut self, library: pb::FunctionDefLibrary) -> Result<()> {
        for function in library.function {
            let signature = function
                .signature
                .as_ref()
                .ok_or_else(|| err!(InvalidArgument, "a function has no signature"))?;
            let name = signature.name.clone();
            ensure!(!name.is_empty(), InvalidArgument, "a function has no name");
            if let Some(known) = self.get(&name) {
                ensure!(
                    **known == function,
                    InvalidArgument,
                    "function '{name}' is defined already, and differently"
                );
                continue;
            }
            let op = op_from_signature(signature).context(|| format!("function '{name}'"))?;
            self.by_name.insert(name, self.functions.len());
            self.functions.push((Arc::new(function), Arc::new(op)));
        }
        for gradient in library.gradient {
            match self.gradient(&gradient.function_name) {
                None => {
                    let name = gradient.function_name.clone();
                    self.gradient_by_name.insert(name, self.gradients.len());
                    self.gradients.push(gradient);
                }
                Some(known) => ensure!(
                    known == gradient.gradient_func,
                    InvalidArgument,
                    "function '{}' has the gradient '{known}' already, not '{}'",
                    gradient.function_name,
                    gradient.gradient_func
                ),
            }
        }
        self.registered_gradients.extend(library.registered_gradients);
        Ok(())
    }

    /// Adds the functions of another library that this one lacks.
    pub(crate) fn absorb(&mut self, other: &FunctionLibrary) {
        for (function, op) in &other.functions {
            if !self.by_name.contains_key(&op.name) {
                self.by_name.insert(op.name.clone(), self.functions.len());
                self.functions.push((function.clone(), op.clone()));
            }
        }
    }

    /// Whether the library is empty.
    pub fn is_empty(&self) -> bool {
        self.functions.is_empty()
            && self.gradients.is_empty()
            && self.registered_gradients.is_empty()
    }

    fn entry(&self, name: &str) -> Option<&(Arc<pb::FunctionDef>, Arc<Op>)> {
        self.by_name.get(name).map(|&i| &self.functions[i])
    }

    /// The function called `name`.
    pub fn get(&self, name: &str) -> Option<&Arc<pb::FunctionDef>> {
        self.entry(name).map(|(function, _)| function)
    }

    /// The function called `name`; `NotFound` if there is none.
    pub(crate) fn find(&self, name: &str) -> Result<&Arc<pb::FunctionDef>> {
        self.get(name)
            .ok_or_else(|| err!(NotFound, "function '{name}' is not in the graph's library"))
    }

    /// The functions called `roots` and all functions that they call, directly or indirectly; each
    /// once. Names that are not functions, such as those of ops, are skipped.
    pub fn reachable<'a>(
        &'a self,
        roots: impl IntoIterator<Item = &'a str>,
    ) -> impl Iterator<Item = &'a pb::FunctionDef> {
        let mut stack: Vec<&str> = roots.into_iter().collect();
        let mut seen: FxHashSet<&str> = FxHashSet::default();
        std::iter::from_fn(move || {
            while let Some(name) = stack.pop() {
                if let Some(function) = self.get(name)
                    && seen.insert(name)
                {
                    stack.extend(function.node_def.iter().flat_map(callees));
                    return Some(&**function);
                }
            }
            None
        })
    }

    /// The gradient function that a client registered for `name`.
    pub fn gradient(&self, name: &str) -> Option<&str> {
        self.gradient_by_name.get(name).map(|&i| self.gradients[i].gradient_func.as_str())
    }

    /// Names of all functions, sorted.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.by_name.keys().map(String::as_str)
    }

    /// The signature of a function as an op, for nodes whose op is the function.
    pub(crate) fn signature_op(&self, name: &str) -> Option<Arc<Op>> {
        self.entry(name).map(|(_, op)| op.clone())
    }

    /// TensorFlow's message.
    pub fn to_proto(&self) -> pb::FunctionDefLibrary {
        pb::FunctionDefLibrary {
            function: self.functions.iter().map(|(f, _)| (**f).clone()).collect(),
            gradient: self.gradients.clone(),
            registered_gradients: self.registered_gradients.clone(),
        }
    }
}

/// The op of a function, from its signature.
fn op_from_signature(signature: &pb::OpDef) -> Result<Op> {
    let arg = |a: &pb::op_def::ArgDef| -> Result<ArgDef> {
        let ty = if !a.type_attr.is_empty() {
            ArgType::Attr(a.type_attr.clone())
        } else if !a.type_list_attr.is_empty() {
            ArgType::ListAttr(a.type_list_attr.clone())
        } else {
            ArgType::Fixed(DType::from_proto(a.r#type)?)
        };
        let number_attr = (!a.number_attr.is_empty()).then(|| a.number_attr.clone());
        Ok(ArgDef { name: a.name.clone(), ty, number_attr, is_ref: a.is_ref })
    };
    let attr = |a: &pb::op_def::AttrDef| -> Result<AttrDef> {
        let inner = a.r#type.strip_prefix("list(").and_then(|t| t.strip_suffix(')'));
        let kind = AttrKind::from_name(inner.unwrap_or(&a.r#type))
            .ok_or_else(|| err!(InvalidArgument, "attr '{}' has kind {:?}", a.name, a.r#type))?;
        Ok(AttrDef {
            name: a.name.clone(),
            kind,
            is_list: inner.is_some(),
            default: a.default_value.clone().map(AttrValue::from_proto),
            allowed_types: Vec::new(),
            allowed_strings: Vec::new(),
            minimum: a.has_minimum.then_some(a.minimum),
        })
    };
    Ok(Op {
        name: signature.name.clone(),
        inputs: signature.input_arg.iter().map(arg).collect::<Result<_>>()?,
        outputs: signature.output_arg.iter().map(arg).collect::<Result<_>>()?,
        attrs: signature.attr.iter().map(attr).collect::<Result<_>>()?,
        flags: if signature.is_stateful { vec![Flag::Stateful] } else { Vec::new() },
        shape: shape::unknown,
        value: None,
        gradient: Gradient::By(functional_gradient::direct_call),
        role: Role::Function,
        work: Work::none,
    })
}

impl Node {
    /// Names of the functions that the node calls: those in its attrs, and its own op, which is a
    /// function only if the library has one of that name.
    pub fn callees(&self) -> impl Iterator<Item = &str> {
        let in_attrs = self.attrs.iter().flat_map(|(_, value)| value.functions());
        in_attrs.map(|function| function.name.as_str()).chain([self.op.name.as_str()])
    }
}

/// As [`Node::callees`], of a node in a message.
pub fn callees(node: &pb::NodeDef) -> impl Iterator<Item = &str> {
    let in_attrs = node.attr.values().flat_map(functions_in);
    in_attrs.map(|function| function.name.as_str()).chain([node.op.as_str()])
}

/// The functions in the value of an attr.
pub fn functions_in(value: &pb::AttrValue) -> &[pb::NameAttrList] {
    match &value.value {
        Some(Value::Func(function)) => std::slice::from_ref(function),
        Some(Value::List(list)) => &list.func,
        _ => &[],
    }
}
