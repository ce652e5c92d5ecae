//! Builders of branches and loops: closures trace the bodies, which become functions.
//!
//! A body is traced at the end of the graph that uses it, so that it may capture any tensor, and its
//! nodes are then removed from the graph. Captured tensors become inputs of the `If` or `While`.

use thalweg_tensor::{DType, PartialShape, Result, Tensor, ensure};

use crate::functional_gradient::{empty_list, shape_constant};
use crate::subgraph::{FunctionArg, Subgraph, add_function};
use crate::{AttrKind, AttrValue, Attrs, Graph, NodeId, Output, Scope, shape};

/// Builds one branch of [`Scope::case`].
pub type Branch<'a> = Box<dyn FnOnce(&mut Scope) -> Result<Vec<Output>> + 'a>;

/// Attrs of the `While` node of a loop. The loops of [`Scope`] have the default.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LoopOptions {
    /// Maximum number of iterations in flight (the attr `parallel_iterations`) where the loop is
    /// lowered to a frame; at least 1. As a `While`, the loop runs one iteration after another.
    pub parallel_iterations: usize,
}

impl Default for LoopOptions {
    fn default() -> LoopOptions {
        LoopOptions { parallel_iterations: 10 }
    }
}

/// The traced body of a branch or loop.
struct TracedBody {
    subgraph: Subgraph,
    args: Vec<FunctionArg>,
    results: Vec<FunctionArg>,
    /// Captured tensors: those of the outer graph that it reads.
    captures: Vec<Output>,
    /// Nodes of the outer graph with a control edge to it.
    after: Vec<NodeId>,
}

impl TracedBody {
    fn build(
        scope: &Scope,
        name: &str,
        args: &[(DType, PartialShape)],
        build: impl FnOnce(&mut Scope, &[Output]) -> Result<Vec<Output>>,
    ) -> Result<TracedBody> {
        // Nodes that another thread added meanwhile would become part of the body.
        let _alone = scope.lock();
        let first = scope.with_graph(Graph::len);
        let body = TracedBody::build_at_end(scope, name, args, build, first);
        scope.with_graph_mut(|g| g.truncate(first));
        body
    }

    fn build_at_end(
        scope: &Scope,
        name: &str,
        args: &[(DType, PartialShape)],
        build: impl FnOnce(&mut Scope, &[Output]) -> Result<Vec<Output>>,
        first: usize,
    ) -> Result<TracedBody> {
        let mut inner = scope.child(name).detached();
        let mut given = Vec::with_capacity(args.len());
        for (i, (dtype, shape)) in args.iter().enumerate() {
            let node = inner.op("_Arg").name("arg").attr("T", *dtype).attr("index", i as i64);
            given.push(node.attr("_output_shapes", &[shape.clone()][..]).build()?);
        }
        let results = build(&mut inner, &given)?;
        scope.with_graph(|graph| {
            for &result in &results {
                graph.checked_output(result)?;
            }
            let subgraph = Subgraph::of(graph, graph.ids().skip(first));
            let captures = subgraph.captures(graph, &given, &results);
            Ok(TracedBody {
                args: given.iter().map(|&t| FunctionArg::of(graph, t)).collect(),
                results: results.iter().map(|&t| FunctionArg::of(graph, t)).collect(),
                after: subgraph.control_captures(),
                captures,
                subgraph,
            })
        })
    }

    /// The body as a function with `captures` as additional arguments and `kept` as additional
    /// results.
    fn to_function(
        &self,
        scope: &Scope,
        base: &str,
        captures: &[Output],
        kept: &[Output],
    ) -> Result<AttrValue> {
        let function_args = |tensors: &[Output]| -> Vec<FunctionArg> {
            scope.with_graph(|g| tensors.iter().map(|&t| FunctionArg::of(g, t)).collect())
        };
        let args = [self.args.clone(), function_args(captures)].concat();
        let results = [self.results.clone(), function_args(kept)].concat();
        let def = scope.with_graph(|g| self.subgraph.to_function(g, &args, &results))?;
        let name = scope.with_graph_mut(|g| add_function(g, base, def))?;
        Ok(AttrValue::function(&name, &Attrs::default()))
    }
}

/// Captured tensors, and nodes of the outer graph with control edges to the bodies.
type Captured = (Vec<Output>, Vec<NodeId>);

/// The distinct captures of several bodies.
fn union<'a>(bodies: impl IntoIterator<Item = &'a TracedBody>) -> Captured {
    let (mut captures, mut after): (Vec<Output>, Vec<NodeId>) = (Vec::new(), Vec::new());
    for body in bodies {
        captures.extend(
            body.captures.iter().filter(|c| !captures.contains(c)).copied().collect::<Vec<_>>(),
        );
        after.extend(body.after.iter().filter(|c| !after.contains(c)).copied().collect::<Vec<_>>());
    }
    (captures, after)
}

impl Scope {
    /// Results of `then_branch` if `condition` is true in the step, else of `else_branch`; only
    /// that branch runs. Both return the same number of tensors of the same types.
    pub fn cond(
        &mut self,
        condition: Output,
        then_branch: impl FnOnce(&mut Scope) -> Result<Vec<Output>>,
        else_branch: impl FnOnce(&mut Scope) -> Result<Vec<Output>>,
    ) -> Result<Vec<Output>> {
        let mut scope = self.child("cond");
        let bodies = [
            TracedBody::build(&scope, "then", &[], |s, _| then_branch(s))?,
            TracedBody::build(&scope, "else", &[], |s, _| else_branch(s))?,
        ];
        let (node_inputs, functions) = scope.branch_functions(&bodies, &["then", "else"])?;
        let is_stateful = bodies.iter().any(|b| b.subgraph.is_stateful());
        let mut functions = functions.into_iter();
        let mut node = scope.op(if is_stateful { "If" } else { "StatelessIf" }).input(condition);
        for name in ["then_branch", "else_branch"] {
            if let Some(function) = functions.next() {
                node = node.attr(name, function);
            }
        }
        node.branch(&bodies, &node_inputs)
    }

    /// Results of the branch at position `index`, or of the last branch if `index` is out of range.
    /// All return the same number of tensors of the same types.
    pub fn case(&mut self, index: Output, branches: Vec<Branch<'_>>) -> Result<Vec<Output>> {
        ensure!(!branches.is_empty(), InvalidArgument, "a case needs a branch");
        let mut scope = self.child("case");
        let mut bodies = Vec::with_capacity(branches.len());
        for branch in branches {
            bodies.push(TracedBody::build(&scope, "branch", &[], |s, _| branch(s))?);
        }
        let (node_inputs, functions) = scope.branch_functions(&bodies, &["branch"])?;
        let is_stateful = bodies.iter().any(|b| b.subgraph.is_stateful());
        let functions = AttrValue::list_of(AttrKind::Func, &functions)?;
        let op = if is_stateful { "Case" } else { "StatelessCase" };
        scope.op(op).input(index).attr("branches", functions).branch(&bodies, &node_inputs)
    }

    /// Functions of branches. All have the same arguments: the captures of any of them.
    fn branch_functions(
        &self,
        bodies: &[TracedBody],
        names: &[&str],
    ) -> Result<(Captured, Vec<AttrValue>)> {
        for (i, body) in bodies.iter().enumerate().skip(1) {
            let types =
                |body: &TracedBody| body.results.iter().map(|r| r.dtype).collect::<Vec<_>>();
            let (first, other) = (types(&bodies[0]), types(body));
            ensure!(
                first == other,
                InvalidArgument,
                "branches must return the same types: the first returns {first:?}, number {i} {other:?}"
            );
        }
        let (captures, after) = union(bodies);
        let mut functions = Vec::with_capacity(bodies.len());
        for (i, body) in bodies.iter().enumerate() {
            let name = names[i.min(names.len() - 1)];
            functions.push(body.to_function(self, name, &captures, &[])?);
        }
        Ok(((captures, after), functions))
    }

    /// A while loop: runs `body` on the loop variables, initially `init`, as long as `condition` is
    /// true for them, and returns their final values. Types are fixed, shapes may change.
    ///
    /// ```
    /// # use thalweg_graph::Scope; use thalweg_tensor::{Result, Tensor};
    /// fn power(scope: &mut Scope) -> Result<thalweg_graph::Output> {
    ///     let x = scope.constant(&Tensor::scalar(3.0f32))?;
    ///     let limit = scope.constant(&Tensor::scalar(100.0f32))?;
    ///     let out = scope.while_loop(
    ///         &[x],
    ///         |s, vars| s.add("Less", &[vars[0], limit]),
    ///         |s, vars| Ok(vec![s.add("Mul", &[vars[0], x])?]),
    ///     )?;
    ///     Ok(out[0])
    /// }
    /// ```
    pub fn while_loop(
        &mut self,
        init: &[Output],
        condition: impl FnOnce(&mut Scope, &[Output]) -> Result<Output>,
        body: impl FnMut(&mut Scope, &[Output]) -> Result<Vec<Output>>,
    ) -> Result<Vec<Output>> {
        LoopOptions::default().while_loop(self, init, condition, body)
    }

    /// Left fold over the rows of `elems` with the initial state `init`; returns the final state.
    /// `body` takes the state and one row of each of `elems`.
    pub fn foldl(
        &mut self,
        elems: &[Output],
        init: &[Output],
        body: impl FnMut(&mut Scope, &[Output], &[Output]) -> Result<Vec<Output>>,
    ) -> Result<Vec<Output>> {
        LoopOptions::default().foldl(self, elems, init, body)
    }

    /// As [`Scope::foldl`], but returns the states after each row, stacked.
    pub fn scan(
        &mut self,
        elems: &[Output],
        init: &[Output],
        body: impl FnMut(&mut Scope, &[Output], &[Output]) -> Result<Vec<Output>>,
    ) -> Result<Vec<Output>> {
        LoopOptions::default().scan(self, elems, init, body)
    }

    /// Applies `body` to each row of `elems` and stacks the results.
    pub fn map_fn(
        &mut self,
        elems: &[Output],
        body: impl FnMut(&mut Scope, &[Output]) -> Result<Vec<Output>>,
    ) -> Result<Vec<Output>> {
        LoopOptions::default().map_fn(self, elems, body)
    }

    /// This scope without control dependencies, which the node of the branch or loop has.
    fn detached(&self) -> Scope {
        let mut scope = self.clone();
        scope.clear_control_inputs();
        scope
    }
}

impl LoopOptions {
    /// As [`Scope::while_loop`].
    pub fn while_loop(
        &self,
        scope: &mut Scope,
        init: &[Output],
        condition: impl FnOnce(&mut Scope, &[Output]) -> Result<Output>,
        mut body: impl FnMut(&mut Scope, &[Output]) -> Result<Vec<Output>>,
    ) -> Result<Vec<Output>> {
        ensure!(
            self.parallel_iterations > 0,
            InvalidArgument,
            "parallel_iterations must be at least 1"
        );
        let parallel = i64::try_from(self.parallel_iterations).unwrap_or(i64::MAX);
        let mut scope = scope.child("while");
        let mut vars: Vec<(DType, PartialShape)> = scope.with_graph(|g| {
            let info = |&t: &Output| g.checked_output(t).map(|o| (o.dtype, o.shape.clone()));
            init.iter().map(info).collect::<Result<_>>()
        })?;
        // A body that changes shapes is traced again with the shapes that both iterations have in
        // common.
        let built = loop {
            let built = TracedBody::build(&scope, "body", &vars, &mut body)?;
            let given: Vec<DType> = built.results.iter().map(|r| r.dtype).collect();
            let wanted: Vec<DType> = vars.iter().map(|v| v.0).collect();
            ensure!(
                given == wanted,
                InvalidArgument,
                "the body returns {given:?} for variables of {wanted:?}"
            );
            let shapes =
                built.results.iter().zip(&vars).map(|(r, v)| shape::common(&r.shape, &v.1));
            let wider: Vec<PartialShape> = shapes.collect();
            if wider.iter().zip(&vars).all(|(w, v)| *w == v.1) {
                break built;
            }
            vars.iter_mut().zip(wider).for_each(|(v, w)| v.1 = w);
        };
        let cond = TracedBody::build(&scope, "cond", &vars, |s, v| Ok(vec![condition(s, v)?]))?;
        let (captures, after) = union([&cond, &built]);
        let kept = &captures;
        let cond_function = cond.to_function(&scope, "cond", &captures, &[])?;
        let body_function = built.to_function(&scope, "body", &captures, kept)?;
        let mut shapes: Vec<PartialShape> = vars.into_iter().map(|v| v.1).collect();
        let captured = |&t: &Output| scope.with_graph(|g| g.output(t).shape.clone());
        shapes.extend(captures.iter().map(captured));
        let is_stateful = cond.subgraph.is_stateful() || built.subgraph.is_stateful();
        let node = scope.op(if is_stateful { "While" } else { "StatelessWhile" });
        let node = node.inputs(init).inputs(&captures).after(&after);
        let node = node.attr("cond", cond_function).attr("body", body_function);
        let node = node.attr("output_shapes", &shapes[..]);
        let mut outputs = node.attr("parallel_iterations", parallel).build_all()?;
        outputs.truncate(init.len());
        Ok(outputs)
    }

    /// As [`Scope::foldl`].
    pub fn foldl(
        &self,
        scope: &mut Scope,
        elems: &[Output],
        init: &[Output],
        mut body: impl FnMut(&mut Scope, &[Output], &[Output]) -> Result<Vec<Output>>,
    ) -> Result<Vec<Output>> {
        let mut scope = scope.child("foldl");
        let rows = Rows::new(&mut scope, elems)?;
        rows.run(&mut scope, self, init, |s, state, row| {
            let next = body(s, state, row)?;
            check_state(s, state, &next)?;
            Ok(next)
        })
    }

    /// As [`Scope::scan`].
    pub fn scan(
        &self,
        scope: &mut Scope,
        elems: &[Output],
        init: &[Output],
        mut body: impl FnMut(&mut Scope, &[Output], &[Output]) -> Result<Vec<Output>>,
    ) -> Result<Vec<Output>> {
        let mut scope = scope.child("scan");
        let rows = Rows::new(&mut scope, elems)?;
        let count = init.len();
        let types = scope.with_graph(|g| -> Vec<(DType, PartialShape)> {
            init.iter().map(|&t| (g.output(t).dtype, g.output(t).shape.clone())).collect()
        });
        let mut state = init.to_vec();
        for (dtype, shape) in &types {
            state.push(empty_list(&mut scope, *dtype, shape)?);
        }
        let out = rows.run(&mut scope, self, &state, |s, state, row| {
            let (state, lists) = state.split_at(count);
            let mut next = body(s, state, row)?;
            check_state(s, state, &next)?;
            for i in 0..count {
                next.push(s.add("TensorListPushBack", &[lists[i], next[i]])?);
            }
            Ok(next)
        })?;
        stacked(&mut scope, &out[count..], &types, rows.count)
    }

    /// As [`Scope::map_fn`].
    pub fn map_fn(
        &self,
        scope: &mut Scope,
        elems: &[Output],
        mut body: impl FnMut(&mut Scope, &[Output]) -> Result<Vec<Output>>,
    ) -> Result<Vec<Output>> {
        let mut scope = scope.child("map");
        let rows = Rows::new(&mut scope, elems)?;
        // The types of the body's results are known once it is traced.
        let trial = TracedBody::build(&scope, "trial", &rows.types, &mut body)?;
        let types: Vec<(DType, PartialShape)> =
            trial.results.iter().map(|r| (r.dtype, r.shape.clone())).collect();
        let mut lists = Vec::with_capacity(types.len());
        for (dtype, shape) in &types {
            lists.push(empty_list(&mut scope, *dtype, shape)?);
        }
        let out = rows.run(&mut scope, self, &lists, |s, lists, row| {
            let results = body(s, row)?;
            let push =
                |(&list, &result): (&Output, &Output)| s.add("TensorListPushBack", &[list, result]);
            lists.iter().zip(&results).map(push).collect()
        })?;
        stacked(&mut scope, &out, &types, rows.count)
    }
}

impl crate::NodeBuilder<'_> {
    /// Builds the node of a branch; its selector and functions are set.
    fn branch(self, bodies: &[TracedBody], (captures, after): &Captured) -> Result<Vec<Output>> {
        let first = &bodies[0].results;
        let dtypes: Vec<DType> = first.iter().map(|r| r.dtype).collect();
        let mut shapes: Vec<PartialShape> = first.iter().map(|r| r.shape.clone()).collect();
        for body in &bodies[1..] {
            for (shape, other) in shapes.iter_mut().zip(&body.results) {
                *shape = shape::common(shape, &other.shape);
            }
        }
        let node = self.inputs(captures).after(after).attr("Tout", &dtypes[..]);
        node.attr("output_shapes", &shapes[..]).build_all()
    }
}

/// Tensors whose rows a loop consumes.
struct Rows {
    /// For each tensor, the list of its rows in reverse order.
    lists: Vec<Output>,
    /// Type and shape of one row of each tensor.
    types: Vec<(DType, PartialShape)>,
    /// Number of rows, as a tensor and, if known, as a number.
    length: Output,
    count: Option<usize>,
}

impl Rows {
    fn new(scope: &mut Scope, elems: &[Output]) -> Result<Rows> {
        ensure!(!elems.is_empty(), InvalidArgument, "elems must have at least one tensor");
        let axis = scope.constant(&Tensor::vector(&[0i32])?)?;
        let (mut lists, mut types, mut count) = (Vec::new(), Vec::new(), None);
        for &elem in elems {
            let info = scope.with_graph(|g| g.checked_output(elem).cloned())?;
            let row = match info.shape.dims() {
                Some([]) => thalweg_tensor::bail!(InvalidArgument, "a scalar has no rows"),
                Some(dims) => {
                    if let (Some(count), Some(other)) = (count, dims[0]) {
                        ensure!(
                            count == other,
                            InvalidArgument,
                            "elems must have the same number of rows, got {count} and {other}"
                        );
                    }
                    count = count.or(dims[0]);
                    PartialShape::new(dims[1..].iter().copied())
                }
                None => PartialShape::unknown(),
            };
            let reversed = scope.add("ReverseV2", &[elem, axis])?;
            let shape = shape_constant(scope, &row)?;
            lists.push(scope.add("TensorListFromTensor", &[reversed, shape])?);
            types.push((info.dtype, row));
        }
        let length = scope.add("TensorListLength", &[lists[0]])?;
        Ok(Rows { lists, types, length, count })
    }

    /// Runs `step` for each row; returns the final state.
    fn run(
        &self,
        scope: &mut Scope,
        options: &LoopOptions,
        init: &[Output],
        mut step: impl FnMut(&mut Scope, &[Output], &[Output]) -> Result<Vec<Output>>,
    ) -> Result<Vec<Output>> {
        let zero = scope.constant(&Tensor::scalar(0i32))?;
        let all = [&[zero][..], &self.lists, init].concat();
        let count = self.lists.len();
        let outputs = options.while_loop(
            scope,
            &all,
            |s, vars| s.add("Less", &[vars[0], self.length]),
            |s, vars| {
                let one = s.constant(&Tensor::scalar(1i32))?;
                let mut next = vec![s.add("AddV2", &[vars[0], one])?];
                let mut row = Vec::with_capacity(count);
                for (&list, (dtype, shape)) in vars[1..=count].iter().zip(&self.types) {
                    let shape = shape_constant(s, shape)?;
                    let node = s.op("TensorListPopBack").inputs(&[list, shape]);
                    let popped = node.attr("element_dtype", *dtype).build_all()?;
                    next.push(popped[0]);
                    row.push(popped[1]);
                }
                next.extend(step(s, &vars[1 + count..], &row)?);
                Ok(next)
            },
        )?;
        Ok(outputs[1 + count..].to_vec())
    }
}

/// Checks that `next` has the types of `state`.
fn check_state(scope: &Scope, state: &[Output], next: &[Output]) -> Result<()> {
    let types = |tensors: &[Output]| -> Result<Vec<DType>> {
        scope.with_graph(|g| tensors.iter().map(|&t| Ok(g.checked_output(t)?.dtype)).collect())
    };
    let (wanted, given) = (types(state)?, types(next)?);
    ensure!(
        given == wanted,
        InvalidArgument,
        "the body returns {given:?} for a state of {wanted:?}"
    );
    Ok(())
}

/// Stacks lists of rows.
fn stacked(
    scope: &mut Scope,
    lists: &[Output],
    types: &[(DType, PartialShape)],
    count: Option<usize>,
) -> Result<Vec<Output>> {
    let mut tensors = Vec::with_capacity(lists.len());
    for (&list, (dtype, shape)) in lists.iter().zip(types) {
        let shape = shape_constant(scope, shape)?;
        let node = scope.op("TensorListStack").inputs(&[list, shape]).attr("element_dtype", *dtype);
        tensors.push(node.attr("num_elements", count.map_or(-1, |n| n as i64)).build()?);
    }
    Ok(tensors)
}
