//! Building branches and loops: closures make the bodies, which become functions.
//!
//! A body is built at the end of the graph it is used in, so that it may use any tensor there, and
//! is then taken off again. Tensors from outside become further inputs of the branch or loop.

use thalweg_tensor::{DType, PartialShape, Result, Tensor, ensure};

use crate::functional_gradient::{empty_list, shape_constant};
use crate::piece::{Piece, Slot, add_function};
use crate::{AttrKind, AttrValue, Attrs, Graph, NodeId, Output, Scope};

/// Builds one branch of [`Scope::case`].
pub type Branch<'a> = Box<dyn FnOnce(&mut Scope) -> Result<Vec<Output>> + 'a>;

/// A body as it was built, off the graph.
struct Body {
    piece: Piece,
    args: Vec<Slot>,
    results: Vec<Slot>,
    /// Tensors from outside that it uses.
    captures: Vec<Output>,
    /// Nodes outside that it waits for.
    after: Vec<NodeId>,
}

impl Body {
    fn build(
        scope: &Scope,
        name: &str,
        args: &[(DType, PartialShape)],
        build: impl FnOnce(&mut Scope, &[Output]) -> Result<Vec<Output>>,
    ) -> Result<Body> {
        let first = scope.with_graph(Graph::len);
        let body = Body::build_at_end(scope, name, args, build, first);
        scope.with_graph_mut(|g| g.truncate(first));
        body
    }

    fn build_at_end(
        scope: &Scope,
        name: &str,
        args: &[(DType, PartialShape)],
        build: impl FnOnce(&mut Scope, &[Output]) -> Result<Vec<Output>>,
        first: usize,
    ) -> Result<Body> {
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
            let piece = Piece::of(graph, graph.ids().skip(first));
            let captures = piece.captures(graph, &given, &results);
            Ok(Body {
                args: given.iter().map(|&t| Slot::of(graph, t)).collect(),
                results: results.iter().map(|&t| Slot::of(graph, t)).collect(),
                after: piece.control_captures(),
                captures,
                piece,
            })
        })
    }

    /// The body as a function that gets `captures` besides its arguments, and returns those in
    /// `kept` besides its results.
    fn to_function(
        &self,
        scope: &Scope,
        base: &str,
        captures: &[Output],
        kept: &[Output],
    ) -> Result<AttrValue> {
        let slots = |tensors: &[Output]| -> Vec<Slot> {
            scope.with_graph(|g| tensors.iter().map(|&t| Slot::of(g, t)).collect())
        };
        let args = [self.args.clone(), slots(captures)].concat();
        let results = [self.results.clone(), slots(kept)].concat();
        let def = scope.with_graph(|g| self.piece.to_function(g, &args, &results))?;
        let name = scope.with_graph_mut(|g| add_function(g, base, def))?;
        Ok(AttrValue::function(&name, &Attrs::default()))
    }
}

/// Tensors from outside that bodies use, and nodes there that they wait for.
type Captured = (Vec<Output>, Vec<NodeId>);

/// All that several bodies capture, each tensor once.
fn union<'a>(bodies: impl IntoIterator<Item = &'a Body>) -> Captured {
    let (mut captures, mut after): (Vec<Output>, Vec<NodeId>) = (Vec::new(), Vec::new());
    for body in bodies {
        captures.extend(
            body.captures.iter().filter(|c| !captures.contains(c)).copied().collect::<Vec<_>>(),
        );
        after.extend(body.after.iter().filter(|c| !after.contains(c)).copied().collect::<Vec<_>>());
    }
    (captures, after)
}

/// The most that is known of both.
fn common(a: &PartialShape, b: &PartialShape) -> PartialShape {
    match (a.dims(), b.dims()) {
        (Some(x), Some(y)) if x.len() == y.len() => {
            PartialShape::new(x.iter().zip(y).map(|(p, q)| if p == q { *p } else { None }))
        }
        _ => PartialShape::unknown(),
    }
}

impl Scope {
    /// What `then_branch` builds if `condition` holds when the step runs, else what `else_branch`
    /// builds: only one of them runs. Both give as many tensors of the same types.
    pub fn cond(
        &mut self,
        condition: Output,
        then_branch: impl FnOnce(&mut Scope) -> Result<Vec<Output>>,
        else_branch: impl FnOnce(&mut Scope) -> Result<Vec<Output>>,
    ) -> Result<Vec<Output>> {
        let mut scope = self.child("cond");
        let bodies = [
            Body::build(&scope, "then", &[], |s, _| then_branch(s))?,
            Body::build(&scope, "else", &[], |s, _| else_branch(s))?,
        ];
        let (node_inputs, functions) = scope.branch_functions(&bodies, &["then", "else"])?;
        let is_stateful = bodies.iter().any(|b| b.piece.is_stateful());
        let mut functions = functions.into_iter();
        let mut node = scope.op(if is_stateful { "If" } else { "StatelessIf" }).input(condition);
        for name in ["then_branch", "else_branch"] {
            if let Some(function) = functions.next() {
                node = node.attr(name, function);
            }
        }
        node.branch(&bodies, &node_inputs)
    }

    /// What the branch at position `index` builds; the last one if there is none. All give as many
    /// tensors of the same types.
    pub fn case(&mut self, index: Output, branches: Vec<Branch<'_>>) -> Result<Vec<Output>> {
        ensure!(!branches.is_empty(), InvalidArgument, "a case needs a branch");
        let mut scope = self.child("case");
        let mut bodies = Vec::with_capacity(branches.len());
        for branch in branches {
            bodies.push(Body::build(&scope, "branch", &[], |s, _| branch(s))?);
        }
        let (node_inputs, functions) = scope.branch_functions(&bodies, &["branch"])?;
        let is_stateful = bodies.iter().any(|b| b.piece.is_stateful());
        let functions = AttrValue::list_of(AttrKind::Func, &functions)?;
        let op = if is_stateful { "Case" } else { "StatelessCase" };
        scope.op(op).input(index).attr("branches", functions).branch(&bodies, &node_inputs)
    }

    /// Functions of branches, all with the same arguments: what any of them captures.
    fn branch_functions(
        &self,
        bodies: &[Body],
        names: &[&str],
    ) -> Result<(Captured, Vec<AttrValue>)> {
        for (i, body) in bodies.iter().enumerate().skip(1) {
            let types = |body: &Body| body.results.iter().map(|r| r.dtype).collect::<Vec<_>>();
            let (first, other) = (types(&bodies[0]), types(body));
            ensure!(
                first == other,
                InvalidArgument,
                "branches must give the same types: the first gives {first:?}, number {i} {other:?}"
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

    /// Runs `body` on its own results, beginning with `init`, as long as `condition` holds of them
    /// when the step runs; what it ends with. Types stay, shapes may change.
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
        mut body: impl FnMut(&mut Scope, &[Output]) -> Result<Vec<Output>>,
    ) -> Result<Vec<Output>> {
        let mut scope = self.child("while");
        let mut vars: Vec<(DType, PartialShape)> = self.with_graph(|g| {
            let info = |&t: &Output| g.checked_output(t).map(|o| (o.dtype, o.shape.clone()));
            init.iter().map(info).collect::<Result<_>>()
        })?;
        // A body that gives other shapes than it got is built again for what they share.
        let built = loop {
            let built = Body::build(&scope, "body", &vars, &mut body)?;
            let given: Vec<DType> = built.results.iter().map(|r| r.dtype).collect();
            let wanted: Vec<DType> = vars.iter().map(|v| v.0).collect();
            ensure!(
                given == wanted,
                InvalidArgument,
                "the body gives {given:?} for variables of {wanted:?}"
            );
            let shapes = built.results.iter().zip(&vars).map(|(r, v)| common(&r.shape, &v.1));
            let wider: Vec<PartialShape> = shapes.collect();
            if wider.iter().zip(&vars).all(|(w, v)| *w == v.1) {
                break built;
            }
            vars.iter_mut().zip(wider).for_each(|(v, w)| v.1 = w);
        };
        let cond = Body::build(&scope, "cond", &vars, |s, v| Ok(vec![condition(s, v)?]))?;
        let (captures, after) = union([&cond, &built]);
        let kept = &captures;
        let cond_function = cond.to_function(&scope, "cond", &captures, &[])?;
        let body_function = built.to_function(&scope, "body", &captures, kept)?;
        let mut shapes: Vec<PartialShape> = vars.into_iter().map(|v| v.1).collect();
        let captured = |&t: &Output| self.with_graph(|g| g.output(t).shape.clone());
        shapes.extend(captures.iter().map(captured));
        let is_stateful = cond.piece.is_stateful() || built.piece.is_stateful();
        let node = scope.op(if is_stateful { "While" } else { "StatelessWhile" });
        let node = node.inputs(init).inputs(&captures).after(&after);
        let node = node.attr("cond", cond_function).attr("body", body_function);
        let mut outputs = node.attr("output_shapes", &shapes[..]).build_all()?;
        outputs.truncate(init.len());
        Ok(outputs)
    }

    /// Applies `body` to each row of `elems` in order, beginning with the state `init`; the last
    /// state. `body` gets the state and one row of each of `elems`.
    pub fn foldl(
        &mut self,
        elems: &[Output],
        init: &[Output],
        mut body: impl FnMut(&mut Scope, &[Output], &[Output]) -> Result<Vec<Output>>,
    ) -> Result<Vec<Output>> {
        let mut scope = self.child("foldl");
        let rows = Rows::new(&mut scope, elems)?;
        let step = |s: &mut Scope, state: &[Output], row: &[Output]| body(s, state, row);
        rows.run(&mut scope, init, step)
    }

    /// As [`Scope::foldl`], but gives the states after each row, stacked.
    pub fn scan(
        &mut self,
        elems: &[Output],
        init: &[Output],
        mut body: impl FnMut(&mut Scope, &[Output], &[Output]) -> Result<Vec<Output>>,
    ) -> Result<Vec<Output>> {
        let mut scope = self.child("scan");
        let rows = Rows::new(&mut scope, elems)?;
        let count = init.len();
        let types = scope.with_graph(|g| -> Vec<(DType, PartialShape)> {
            init.iter().map(|&t| (g.output(t).dtype, g.output(t).shape.clone())).collect()
        });
        let mut state = init.to_vec();
        for (dtype, shape) in &types {
            state.push(empty_list(&mut scope, *dtype, shape)?);
        }
        let out = rows.run(&mut scope, &state, |s, state, row| {
            let (state, lists) = state.split_at(count);
            let mut next = body(s, state, row)?;
            ensure!(
                next.len() == count,
                InvalidArgument,
                "the body gives {} tensors for a state of {count}",
                next.len()
            );
            for i in 0..count {
                next.push(s.add("TensorListPushBack", &[lists[i], next[i]])?);
            }
            Ok(next)
        })?;
        stacked(&mut scope, &out[count..], &types, rows.count)
    }

    /// Applies `body` to each row of `elems`; the results, stacked.
    pub fn map_fn(
        &mut self,
        elems: &[Output],
        mut body: impl FnMut(&mut Scope, &[Output]) -> Result<Vec<Output>>,
    ) -> Result<Vec<Output>> {
        let mut scope = self.child("map");
        let rows = Rows::new(&mut scope, elems)?;
        // What the body gives is not known before it is built.
        let trial = Body::build(&scope, "trial", &rows.types, &mut body)?;
        let types: Vec<(DType, PartialShape)> =
            trial.results.iter().map(|r| (r.dtype, r.shape.clone())).collect();
        let mut lists = Vec::with_capacity(types.len());
        for (dtype, shape) in &types {
            lists.push(empty_list(&mut scope, *dtype, shape)?);
        }
        let out = rows.run(&mut scope, &lists, |s, lists, row| {
            let results = body(s, row)?;
            let push =
                |(&list, &result): (&Output, &Output)| s.add("TensorListPushBack", &[list, result]);
            lists.iter().zip(&results).map(push).collect()
        })?;
        stacked(&mut scope, &out, &types, rows.count)
    }

    /// This scope without control dependencies: those of a body are its node's.
    fn detached(&self) -> Scope {
        let mut scope = self.clone();
        scope.clear_control_inputs();
        scope
    }
}

impl crate::NodeBuilder<'_> {
    /// A branch's node, but for what selects the branch and its functions.
    fn branch(self, bodies: &[Body], (captures, after): &Captured) -> Result<Vec<Output>> {
        let first = &bodies[0].results;
        let dtypes: Vec<DType> = first.iter().map(|r| r.dtype).collect();
        let mut shapes: Vec<PartialShape> = first.iter().map(|r| r.shape.clone()).collect();
        for body in &bodies[1..] {
            for (shape, other) in shapes.iter_mut().zip(&body.results) {
                *shape = common(shape, &other.shape);
            }
        }
        let node = self.inputs(captures).after(after).attr("Tout", &dtypes[..]);
        node.attr("output_shapes", &shapes[..]).build_all()
    }
}

/// Tensors taken row by row.
struct Rows {
    /// The rows of each, the first one last.
    lists: Vec<Output>,
    /// What one row of each is.
    types: Vec<(DType, PartialShape)>,
    /// How many rows there are, as a tensor and as far as known.
    length: Output,
    count: Option<usize>,
}

impl Rows {
    fn new(scope: &mut Scope, elems: &[Output]) -> Result<Rows> {
        ensure!(!elems.is_empty(), InvalidArgument, "there is nothing to take rows of");
        let axis = scope.constant(&Tensor::vector(&[0i32])?)?;
        let (mut lists, mut types, mut count) = (Vec::new(), Vec::new(), None);
        for &elem in elems {
            let info = scope.with_graph(|g| g.checked_output(elem).cloned())?;
            let row = match info.shape.dims() {
                Some([]) => thalweg_tensor::bail!(InvalidArgument, "a scalar has no rows"),
                Some(dims) => {
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

    /// Takes rows as long as there are any.
    fn run(
        &self,
        scope: &mut Scope,
        init: &[Output],
        mut step: impl FnMut(&mut Scope, &[Output], &[Output]) -> Result<Vec<Output>>,
    ) -> Result<Vec<Output>> {
        let zero = scope.constant(&Tensor::scalar(0i32))?;
        let all = [&[zero][..], &self.lists, init].concat();
        let count = self.lists.len();
        let outputs = scope.while_loop(
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

/// Lists of rows as tensors.
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
