//! Instantiation of functions: from a `FunctionDef` and the caller's attrs to the body as a graph.
//!
//! A `FunctionDef` names its nodes' inputs by output argument (`node:output:0`). Instantiation
//! replaces attr placeholders by the caller's attrs; `_Arg` and `_Retval` nodes stand for arguments
//! and results.

use std::borrow::Cow;
use std::collections::BTreeMap;

use rustc_hash::FxHashMap;
use thalweg_proto as pb;
use thalweg_proto::attr_value::Value;
use thalweg_tensor::{Context, DType, Result, bail, ensure, err};

use crate::op::ArgType;
use crate::{
    AttrValue, Attrs, Endpoint, GradientOptions, Graph, NodeId, Output, Role, Scope, gradients,
};

/// Maximum number of tensors in one argument.
const ARGS_MAX: usize = 1 << 16;
/// Maximum number of tensors in one body: a list attr of a few bytes may declare many.
const NAMES_MAX: usize = 1 << 20;

/// The body of a function as a graph.
pub struct FunctionBody {
    /// Nodes, with `_Arg` and `_Retval` for arguments and results.
    pub graph: Graph,
    /// `_Arg` nodes in order.
    pub args: Vec<NodeId>,
    /// `_Retval` nodes in order.
    pub results: Vec<NodeId>,
    /// Nodes that must run although no result depends on them.
    pub control_results: Vec<NodeId>,
}

impl FunctionBody {
    /// The outputs of the `_Arg` nodes.
    pub fn arg_tensors(&self) -> Vec<Output> {
        self.args.iter().map(|&node| Endpoint { node, index: 0 }).collect()
    }

    /// The inputs of the `_Retval` nodes.
    pub fn result_tensors(&self) -> Vec<Output> {
        self.results.iter().map(|&id| self.graph.node(id).inputs[0]).collect()
    }
}

impl Graph {
    /// The body of the function `name` of the graph's library, instantiated with the caller's attrs.
    pub fn function_body(&self, name: &str, attrs: &Attrs) -> Result<FunctionBody> {
        instantiate(self.library().find(name)?, attrs, self)
    }
}

/// The body of `function`, instantiated with the caller's attrs. `like` supplies ops and functions.
pub fn instantiate(
    function: &pb::FunctionDef,
    attrs: &Attrs,
    like: &Graph,
) -> Result<FunctionBody> {
    let name = function.signature.as_ref().map_or("", |s| s.name.as_str());
    Instantiation { function, attrs, like, outputs: FxHashMap::default(), names: 0 }
        .run()
        .context(|| format!("function '{name}'"))
}

/// The gradient of the function `name`, from its arguments and the adjoints of its results to the
/// adjoints of its arguments: the registered gradient function if there is one, else by
/// differentiation.
pub fn instantiate_gradient(name: &str, attrs: &Attrs, like: &Graph) -> Result<FunctionBody> {
    if let Some(defined) = like.library().gradient(name) {
        return like.function_body(defined, attrs);
    }
    let body = like.function_body(name, attrs)?;
    differentiated(body).context(|| format!("gradient of function '{name}'"))
}

/// The gradient of a body: its arguments are those of the body and the adjoints of its results; its
/// results are the adjoints of the arguments.
fn differentiated(body: FunctionBody) -> Result<FunctionBody> {
    let (xs, ys) = (body.arg_tensors(), body.result_tensors());
    let FunctionBody { graph, mut args, results, control_results } = body;
    let dtypes: Vec<DType> = ys.iter().map(|&y| graph.output(y).dtype).collect();
    // The results of the function itself are not needed.
    let kept = graph.nodes().iter().filter(|n| n.role() != Role::Retval).count();
    debug_assert_eq!(kept + results.len(), graph.len(), "instantiation puts results last");
    let mut scope = Scope::of(Graph::from_nodes(&graph, graph.nodes()[..kept].to_vec()));
    let mut grad_ys = Vec::with_capacity(ys.len());
    for dtype in dtypes {
        let index = args.len() as i64;
        let arg = scope.op("_Arg").name("dy").attr("T", dtype).attr("index", index).build()?;
        args.push(arg.node);
        grad_ys.push(Some(arg));
    }
    let options = GradientOptions { grad_ys: &grad_ys, ..Default::default() };
    let adjoints = gradients(&mut scope, &ys, &xs, &options)?;
    let mut results = Vec::with_capacity(xs.len());
    for (i, adjoint) in adjoints.into_iter().enumerate() {
        let adjoint = adjoint.to_dense(&mut scope)?;
        let node = scope.op("_Retval").name("dx").input(adjoint).attr("index", i as i64);
        results.push(node.build_node()?);
    }
    Ok(FunctionBody { graph: scope.to_graph(), args, results, control_results })
}

struct Instantiation<'a> {
    function: &'a pb::FunctionDef,
    attrs: &'a Attrs,
    like: &'a Graph,
    /// For `arg` and `node:out`, the names of their tensors in GraphDef notation.
    outputs: FxHashMap<String, Vec<String>>,
    /// Number of tensor names so far.
    names: usize,
}

impl Instantiation<'_> {
    fn run(mut self) -> Result<FunctionBody> {
        let signature = self
            .function
            .signature
            .as_ref()
            .ok_or_else(|| err!(InvalidArgument, "it has no signature"))?;
        let mut nodes = Vec::new();
        let arg_names = self.add_args(signature, &mut nodes)?;
        for def in &self.function.node_def {
            self.name_outputs(def)?;
        }
        for def in &self.function.node_def {
            let mut node = def.clone();
            node.attr = self.substituted(&def.attr)?;
            node.input = self.resolved_inputs(&def.input)?;
            nodes.push(node);
        }
        let result_names = self.add_results(signature, &mut nodes)?;
        let mut graph = Graph::new_like(self.like);
        graph.extend(pb::GraphDef { node: nodes, ..Default::default() })?;
        let find = |name: &String| {
            graph
                .find(name)
                .ok_or_else(|| err!(InvalidArgument, "control output '{name}' is no node"))
        };
        let args = arg_names.iter().map(find).collect::<Result<_>>()?;
        let results = result_names.iter().map(find).collect::<Result<_>>()?;
        let control_results =
            self.function.control_ret.values().map(find).collect::<Result<_>>()?;
        Ok(FunctionBody { args, results, control_results, graph })
    }

    fn count_names(&mut self, names: usize) -> Result<()> {
        self.names += names;
        ensure!(
            self.names <= NAMES_MAX,
            ResourceExhausted,
            "it expands to more than {NAMES_MAX} tensors"
        );
        Ok(())
    }

    /// An attr of the function: the caller's value, or the signature's default.
    fn attr(&self, name: &str) -> Result<Cow<'_, AttrValue>> {
        if let Some(value) = self.attrs.get(name) {
            return Ok(Cow::Borrowed(value));
        }
        let declared = self.function.signature.iter().flat_map(|s| &s.attr);
        let default = declared.filter(|a| a.name == name).find_map(|a| a.default_value.clone());
        default
            .map(|value| Cow::Owned(AttrValue::from_proto(value)))
            .ok_or_else(|| err!(InvalidArgument, "attr '{name}' is not set by the caller"))
    }

    /// Dtypes of the tensors of an argument under the caller's attrs.
    fn arg_types(&self, arg: &pb::op_def::ArgDef) -> Result<Vec<i32>> {
        let attr = |name: &str| self.attr(name);
        if !arg.type_list_attr.is_empty() {
            return match &*attr(&arg.type_list_attr)? {
                AttrValue::List(l) => Ok(l.r#type.clone()),
                other => bail!(
                    InvalidArgument,
                    "attr '{}' must be list(type), is {}",
                    arg.type_list_attr,
                    other.summary()
                ),
            };
        }
        let dtype = match arg.type_attr.as_str() {
            "" => arg.r#type,
            name => match &*attr(name)? {
                AttrValue::Type(t) => *t,
                other => {
                    bail!(InvalidArgument, "attr '{name}' must be type, is {}", other.summary())
                }
            },
        };
        let count = match arg.number_attr.as_str() {
            "" => 1,
            name => match &*attr(name)? {
                AttrValue::Int(n) if (0..=ARGS_MAX as i64).contains(n) => *n as usize,
                other => bail!(
                    InvalidArgument,
                    "attr '{name}' must be int from 0 to {ARGS_MAX}, is {}",
                    other.summary()
                ),
            },
        };
        Ok(vec![dtype; count])
    }

    fn add_args(
        &mut self,
        signature: &pb::OpDef,
        nodes: &mut Vec<pb::NodeDef>,
    ) -> Result<Vec<String>> {
        let mut names = Vec::new();
        for (position, arg) in signature.input_arg.iter().enumerate() {
            let types = self.arg_types(arg)?;
            self.count_names(types.len())?;
            let mut parts = Vec::with_capacity(types.len());
            for (i, &dtype) in types.iter().enumerate() {
                let name =
                    if types.len() == 1 { arg.name.clone() } else { format!("{}_{i}", arg.name) };
                let mut attrs = indexed_attrs(dtype, names.len());
                if let Some(extra) = self.function.arg_attr.get(&(position as u32)) {
                    attrs.extend(extra.attr.clone());
                }
                nodes.push(node_def(&name, "_Arg", attrs, Vec::new()));
                parts.push(name.clone());
                names.push(name);
            }
            self.outputs.insert(arg.name.clone(), parts);
        }
        Ok(names)
    }

    fn add_results(
        &self,
        signature: &pb::OpDef,
        nodes: &mut Vec<pb::NodeDef>,
    ) -> Result<Vec<String>> {
        let mut names = Vec::new();
        for arg in &signature.output_arg {
            let source = self
                .function
                .ret
                .get(&arg.name)
                .ok_or_else(|| err!(InvalidArgument, "result '{}' is not defined", arg.name))?;
            let tensors = self.tensors(source)?;
            let types = self.arg_types(arg)?;
            ensure!(
                tensors.len() == types.len(),
                InvalidArgument,
                "result '{}' has {} tensors, '{source}' gives {}",
                arg.name,
                types.len(),
                tensors.len()
            );
            for (tensor, dtype) in tensors.into_iter().zip(types) {
                // No node of the body can have this name.
                let name = format!("_retval_{}", names.len());
                nodes.push(node_def(
                    &name,
                    "_Retval",
                    indexed_attrs(dtype, names.len()),
                    vec![tensor],
                ));
                names.push(name);
            }
        }
        Ok(names)
    }

    /// Records the tensors of each `node:argument`, by the op's output arguments.
    fn name_outputs(&mut self, def: &pb::NodeDef) -> Result<()> {
        let op = self.like.find_op(&def.op).context(|| format!("node '{}'", def.name))?;
        let attrs = Attrs::from_proto(&self.substituted(&def.attr)?);
        let lookup = crate::NodeAttrs::new(&op, &attrs);
        let mut position = 0;
        for arg in &op.outputs {
            let len = match (&arg.number_attr, &arg.ty) {
                (Some(number), _) => lookup.size(number)?,
                (None, ArgType::ListAttr(list)) => lookup.dtypes(list)?.len(),
                _ => 1,
            };
            ensure!(len <= ARGS_MAX, InvalidArgument, "node '{}' has {len} outputs", def.name);
            self.count_names(len)?;
            let tensor = |i: usize| match position + i {
                0 => def.name.clone(),
                index => format!("{}:{index}", def.name),
            };
            self.outputs
                .insert(format!("{}:{}", def.name, arg.name), (0..len).map(tensor).collect());
            position += len;
        }
        Ok(())
    }

    /// Tensors of `arg`, `arg:i`, `node:out` or `node:out:i`.
    fn tensors(&self, name: &str) -> Result<Vec<String>> {
        if let Some(all) = self.outputs.get(name) {
            return Ok(all.clone());
        }
        let found = name.rsplit_once(':').and_then(|(base, index)| {
            self.outputs.get(base)?.get(index.parse::<usize>().ok()?).cloned()
        });
        Ok(vec![found.ok_or_else(|| err!(InvalidArgument, "input '{name}' is not defined"))?])
    }

    fn resolved_inputs(&mut self, inputs: &[String]) -> Result<Vec<String>> {
        let mut resolved = Vec::with_capacity(inputs.len());
        for input in inputs {
            if input.starts_with('^') {
                resolved.push(input.clone());
            } else {
                let tensors = self.tensors(input)?;
                self.count_names(tensors.len())?;
                resolved.extend(tensors);
            }
        }
        Ok(resolved)
    }

    fn substituted_function(&self, function: &pb::NameAttrList) -> Result<pb::NameAttrList> {
        Ok(pb::NameAttrList {
            name: function.name.clone(),
            attr: self.substituted(&function.attr)?,
        })
    }

    fn substituted(
        &self,
        attrs: &BTreeMap<String, pb::AttrValue>,
    ) -> Result<BTreeMap<String, pb::AttrValue>> {
        let replace = |(name, value): (&String, &pb::AttrValue)| {
            let value = match &value.value {
                Some(Value::Placeholder(from)) => self.attr(from)?.to_proto(),
                Some(Value::Func(function)) => {
                    let function = self.substituted_function(function)?;
                    pb::AttrValue { value: Some(Value::Func(function)) }
                }
                Some(Value::List(list)) if !list.func.is_empty() => {
                    let mut list = list.clone();
                    for function in &mut list.func {
                        *function = self.substituted_function(function)?;
                    }
                    pb::AttrValue { value: Some(Value::List(list)) }
                }
                _ => value.clone(),
            };
            Ok((name.clone(), value))
        };
        attrs.iter().map(replace).collect()
    }
}

fn node_def(
    name: &str,
    op: &str,
    attr: BTreeMap<String, pb::AttrValue>,
    input: Vec<String>,
) -> pb::NodeDef {
    pb::NodeDef { name: name.to_owned(), op: op.to_owned(), attr, input, ..Default::default() }
}

fn indexed_attrs(dtype: i32, index: usize) -> BTreeMap<String, pb::AttrValue> {
    BTreeMap::from([
        ("T".to_owned(), AttrValue::Type(dtype).to_proto()),
        ("index".to_owned(), AttrValue::Int(index as i64).to_proto()),
    ])
}
