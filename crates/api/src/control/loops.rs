//! Loops: [`while_loop`], and [`map_fn`], [`scan`] and [`foldl`] over the rows of tensors.

use std::panic::Location;

use thalweg_graph::{Endpoint, Scope};
use thalweg_tensor::err;

use super::structure::{Elems, Outputs, endpoints, graph_of, handles, note, rebuilt, traced};
use crate::graph::Graph;
use crate::output::Raw;

/// Options of a loop, whose methods are the loops: `LoopOptions::new().parallel_iterations(4)
/// .map_fn(&x, |row| row.square())`. The functions of the same names have the default.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LoopOptions(thalweg_graph::LoopOptions);

/// Runs `body` on the loop variables, first `init`, as long as `condition` holds of them; their
/// values after the last iteration. The closures may use any tensors, and may be called more than
/// once while the graph is built.
///
/// ```
/// use thalweg_api::{Graph, while_loop};
/// # fn main() -> thalweg_api::Result<()> {
/// let g = Graph::new();
/// let start = (g.constant(0i32), g.constant(1.0f32));
/// let (_, power) = while_loop(start, |(i, _)| i.less(10), |(i, x)| (i + 1, x * 2.0));
/// assert_eq!(g.session()?.run::<_, f32>(&power, (), &[])?, 1024.0);
/// # Ok(())
/// # }
/// ```
#[track_caller]
pub fn while_loop<V: Outputs>(
    init: V,
    condition: impl FnOnce(&V) -> crate::Output<bool>,
    body: impl FnMut(V) -> V,
) -> V {
    LoopOptions::new().while_loop(init, condition, body)
}

/// What `body` returns for each row of `elems`, stacked: `body` takes a row of each tensor, and the
/// results have as many rows as they. The closure may use any tensors, and is called more than once
/// while the graph is built.
///
/// ```
/// use thalweg_api::{Graph, map_fn};
/// # fn main() -> thalweg_api::Result<()> {
/// let g = Graph::new();
/// let x = g.constant([[1.0f32, 2.0], [3.0, 4.0]]);
/// let n = g.constant([10.0f32, 100.0]);
/// let (scaled, sum) = map_fn((&x, &n), |(row, n)| (&row * n, row.sum()));
/// let values: ([[f32; 2]; 2], [f32; 2]) = g.session()?.run((&scaled, &sum), (), &[])?;
/// assert_eq!(values, ([[10.0, 20.0], [300.0, 400.0]], [3.0, 7.0]));
/// # Ok(())
/// # }
/// ```
///
/// It is a loop of small steps: where an op does the same for all rows at once, the op is faster.
#[track_caller]
pub fn map_fn<E: Elems, V: Outputs>(elems: E, body: impl FnMut(E::Row) -> V) -> V {
    LoopOptions::new().map_fn(elems, body)
}

/// The states after each row of `elems`, stacked: `body` takes the state, first `init`, and a row of
/// each tensor, and returns the next state. The closure may use any tensors, and may be called more
/// than once while the graph is built.
///
/// ```
/// use thalweg_api::{Graph, scan};
/// # fn main() -> thalweg_api::Result<()> {
/// let g = Graph::new();
/// let x = g.constant([1.0f32, 2.0, 3.0, 4.0]);
/// let products = scan(&x, g.constant(1.0f32), |product, x| product * x);
/// assert_eq!(g.session()?.run::<_, [f32; 4]>(&products, (), &[])?, [1.0, 2.0, 6.0, 24.0]);
/// # Ok(())
/// # }
/// ```
#[track_caller]
pub fn scan<E: Elems, V: Outputs>(elems: E, init: V, body: impl FnMut(V, E::Row) -> V) -> V {
    LoopOptions::new().scan(elems, init, body)
}

/// The state after the last row of `elems`: as [`scan`], without those before.
///
/// ```
/// use thalweg_api::{Graph, foldl};
/// # fn main() -> thalweg_api::Result<()> {
/// let g = Graph::new();
/// let coefficients = g.constant([2.0f32, -3.0, 1.0]);
/// // 2 x^2 - 3 x + 1 by Horner's rule.
/// let x = g.constant(4.0f32);
/// let y = foldl(&coefficients, x.zeros_like(), |y, c| y * &x + c);
/// assert_eq!(g.session()?.run::<_, f32>(&y, (), &[])?, 21.0);
/// # Ok(())
/// # }
/// ```
#[track_caller]
pub fn foldl<E: Elems, V: Outputs>(elems: E, init: V, body: impl FnMut(V, E::Row) -> V) -> V {
    LoopOptions::new().foldl(elems, init, body)
}

/// [`thalweg_graph::LoopOptions::scan`] or `foldl`.
type OverRows = fn(
    &thalweg_graph::LoopOptions,
    &mut Scope,
    &[Endpoint],
    &[Endpoint],
    &mut dyn FnMut(&[Endpoint], &[Endpoint]) -> thalweg_tensor::Result<Vec<Endpoint>>,
) -> thalweg_tensor::Result<Vec<Endpoint>>;

impl LoopOptions {
    /// The default: up to 10 parallel iterations, as in TensorFlow.
    pub fn new() -> LoopOptions {
        LoopOptions::default()
    }

    /// Sets the maximum number of iterations in flight (the attr `parallel_iterations`), at least 1.
    ///
    /// It limits loops that are lowered to frames: those that span devices, and all loops of a
    /// session whose plan option `lower` is set. An op of a frame runs as soon as its inputs are
    /// there, so iterations of a [`map_fn`] overlap unless the body has side effects. A loop that is
    /// not lowered runs one iteration after another, and the ops of an iteration in parallel. More
    /// iterations in flight take more memory. The loop that computes the gradient has the same limit.
    #[must_use]
    pub fn parallel_iterations(mut self, count: usize) -> LoopOptions {
        self.0.parallel_iterations = count;
        self
    }

    /// As [`while_loop`].
    #[track_caller]
    pub fn while_loop<V: Outputs>(
        &self,
        init: V,
        condition: impl FnOnce(&V) -> crate::Output<bool>,
        mut body: impl FnMut(V) -> V,
    ) -> V {
        let caller = Location::caller();
        let Some(graph) = graph_of(&mut |visit| init.visit(visit)) else { return init };
        let mistakes = graph.mistakes().len();
        let added = endpoints(&graph, &mut |visit| init.visit(visit)).and_then(|start| {
            let given = |tensors: &[Endpoint]| init.with(&mut handles(&graph, tensors));
            self.0.while_loop(
                &mut graph.as_scope().clone(),
                &start,
                |_: &mut Scope, vars| {
                    let (_, holds) = traced(&graph, || condition(&given(vars)));
                    holds?.first().copied().ok_or_else(|| err!(Internal, "a loop has a condition"))
                },
                |_: &mut Scope, vars| traced(&graph, || body(given(vars))).1,
            )
        });
        note(&graph, caller, mistakes, &added);
        rebuilt(&graph, &init, &added)
    }

    /// As [`map_fn`].
    #[track_caller]
    pub fn map_fn<E: Elems, V: Outputs>(&self, elems: E, mut body: impl FnMut(E::Row) -> V) -> V {
        let caller = Location::caller();
        let Some(graph) = graph_of(&mut |visit| elems.visit(visit)) else {
            return without_rows(&elems, body, caller);
        };
        let mistakes = graph.mistakes().len();
        let mut like = None;
        let added = endpoints(&graph, &mut |visit| elems.visit(visit)).and_then(|tensors| {
            self.0.map_fn(&mut graph.as_scope().clone(), &tensors, |_, row| {
                let row = || elems.row(&mut handles(&graph, row));
                let (outputs, tensors) = traced(&graph, || body(row()));
                like = Some(outputs);
                tensors
            })
        });
        note(&graph, caller, mistakes, &added);
        // Without rows the body only tells what to return.
        let like =
            like.unwrap_or_else(|| graph.in_body(|| body(elems.row(&mut handles(&graph, &[])))));
        rebuilt(&graph, &like, &added)
    }

    /// As [`scan`].
    #[track_caller]
    pub fn scan<E: Elems, V: Outputs>(
        &self,
        elems: E,
        init: V,
        body: impl FnMut(V, E::Row) -> V,
    ) -> V {
        let scan: OverRows = |options, scope, elems, init, body| {
            options.scan(scope, elems, init, |_, state, row| body(state, row))
        };
        self.over_rows(scan, &elems, init, body, Location::caller())
    }

    /// As [`foldl`].
    #[track_caller]
    pub fn foldl<E: Elems, V: Outputs>(
        &self,
        elems: E,
        init: V,
        body: impl FnMut(V, E::Row) -> V,
    ) -> V {
        let foldl: OverRows = |options, scope, elems, init, body| {
            options.foldl(scope, elems, init, |_, state, row| body(state, row))
        };
        self.over_rows(foldl, &elems, init, body, Location::caller())
    }

    fn over_rows<E: Elems, V: Outputs>(
        &self,
        add: OverRows,
        elems: &E,
        init: V,
        mut body: impl FnMut(V, E::Row) -> V,
        caller: crate::Caller,
    ) -> V {
        let graph = graph_of(&mut |visit| init.visit(visit));
        let Some(graph) = graph.or_else(|| graph_of(&mut |visit| elems.visit(visit))) else {
            return init;
        };
        let mistakes = graph.mistakes().len();
        let start = endpoints(&graph, &mut |visit| init.visit(visit));
        let rows = endpoints(&graph, &mut |visit| elems.visit(visit));
        let added = start.and_then(|start| {
            add(&self.0, &mut graph.as_scope().clone(), &rows?, &start, &mut |state, row| {
                let state = || init.with(&mut handles(&graph, state));
                let row = || elems.row(&mut handles(&graph, row));
                traced(&graph, || body(state(), row())).1
            })
        });
        note(&graph, caller, mistakes, &added);
        rebuilt(&graph, &init, &added)
    }
}

/// A mistake: `elems` is an empty list, so it is unknown how often the body runs.
fn without_rows<E: Elems, V: Outputs>(
    elems: &E,
    body: impl FnOnce(E::Row) -> V,
    caller: crate::Caller,
) -> V {
    let outputs = body(elems.row(&mut || Raw { graph: Graph::new(), at: None, body: 0 }));
    let Some(graph) = graph_of(&mut |visit| outputs.visit(visit)) else { return outputs };
    graph.record(caller, err!(InvalidArgument, "elems must have at least one tensor"));
    rebuilt(&graph, &outputs, &Ok(Vec::new()))
}
