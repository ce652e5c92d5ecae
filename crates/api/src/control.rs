//! Branches and loops: closures add their bodies, which become functions.

use std::panic::Location;

use thalweg_graph::{Endpoint, Scope};
use thalweg_tensor::{Result, err};

use crate::dtype::TensorType;
use crate::graph::Graph;
use crate::node::poisoned;
use crate::output::{Output, Raw};

/// Handles that a branch returns or a loop carries: one, a tuple, an array or a vector of them.
pub trait Outputs: Sized {
    /// Calls `visit` with each handle, in order.
    #[doc(hidden)]
    fn visit(&self, visit: &mut dyn FnMut(&Raw));

    /// The same structure with other tensors.
    #[doc(hidden)]
    fn with(&self, next: &mut dyn FnMut() -> Raw) -> Self;
}

impl<T: TensorType> Outputs for Output<T> {
    fn visit(&self, visit: &mut dyn FnMut(&Raw)) {
        visit(self.raw());
    }

    fn with(&self, next: &mut dyn FnMut() -> Raw) -> Self {
        Output::of_raw(next())
    }
}

impl<V: Outputs> Outputs for Vec<V> {
    fn visit(&self, visit: &mut dyn FnMut(&Raw)) {
        self.iter().for_each(|item| item.visit(visit));
    }

    fn with(&self, next: &mut dyn FnMut() -> Raw) -> Self {
        self.iter().map(|item| item.with(next)).collect()
    }
}

impl<V: Outputs, const COUNT: usize> Outputs for [V; COUNT] {
    fn visit(&self, visit: &mut dyn FnMut(&Raw)) {
        self.iter().for_each(|item| item.visit(visit));
    }

    fn with(&self, next: &mut dyn FnMut() -> Raw) -> Self {
        std::array::from_fn(|i| self[i].with(next))
    }
}

macro_rules! tuples {
    ($(($($v:ident $i:tt),+);)+) => { $(
        impl<$($v: Outputs),+> Outputs for ($($v,)+) {
            fn visit(&self, visit: &mut dyn FnMut(&Raw)) {
                $(self.$i.visit(visit);)+
            }

            fn with(&self, next: &mut dyn FnMut() -> Raw) -> Self {
                ($(self.$i.with(next),)+)
            }
        }
    )+ };
}

tuples! {
    (A 0);
    (A 0, B 1);
    (A 0, B 1, C 2);
    (A 0, B 1, C 2, D 3);
    (A 0, B 1, C 2, D 3, E 4);
    (A 0, B 1, C 2, D 3, E 4, F 5);
}

/// The tensors of handles of this graph.
fn endpoints(graph: &Graph, outputs: &impl Outputs) -> Result<Vec<Endpoint>> {
    let mut found = Ok(Vec::new());
    outputs.visit(&mut |handle| {
        if let Ok(list) = &mut found {
            match graph.checked(handle).and_then(|at| at.ok_or_else(poisoned)) {
                Ok(at) => list.push(at),
                Err(e) => found = Err(e),
            }
        }
    });
    found
}

/// The structure of `like` with these tensors, or poisoned ones.
fn rebuilt<V: Outputs>(graph: &Graph, like: &V, tensors: Option<Vec<Endpoint>>) -> V {
    let mut tensors = tensors.map(Vec::into_iter);
    like.with(&mut || {
        let at = tensors.as_mut().and_then(Iterator::next);
        Raw { graph: graph.clone(), at, body: graph.body() }
    })
}

/// Calls `add` within a new body; the handles that it returns and their tensors.
fn traced<V: Outputs>(graph: &Graph, add: impl FnOnce() -> V) -> (V, Result<Vec<Endpoint>>) {
    graph.in_body(|| {
        let outputs = add();
        let tensors = endpoints(graph, &outputs);
        (outputs, tensors)
    })
}

/// What `then` adds if `condition` is true in a step, else what `otherwise` adds: only one of them
/// runs. The closures may use any tensors; both return handles of the same types.
///
/// ```
/// use thalweg_api::{Graph, cond, feed};
/// # fn main() -> thalweg_api::Result<()> {
/// let g = Graph::new();
/// let x = g.placeholder::<f32>("x", []);
/// let root = cond(&x.greater(0.0), || x.sqrt(), || -&x);
/// let session = g.session()?;
/// assert_eq!(session.run::<_, f32>(&root, feed! { x: 9.0 }, &[])?, 3.0);
/// assert_eq!(session.run::<_, f32>(&root, feed! { x: -2.0 }, &[])?, 2.0);
/// # Ok(())
/// # }
/// ```
#[track_caller]
pub fn cond<V: Outputs>(
    condition: &Output<bool>,
    then: impl FnOnce() -> V,
    otherwise: impl FnOnce() -> V,
) -> V {
    let caller = Location::caller();
    let graph = condition.graph();
    let mistakes = graph.mistakes().len();
    let (mut then, mut like) = (Some(then), None);
    let added = condition.endpoint().and_then(|at| {
        graph.as_scope().clone().cond(
            at,
            |_| {
                let then = then.take().ok_or_else(|| err!(Internal, "a branch is traced once"))?;
                let (outputs, tensors) = traced(graph, then);
                like = Some(outputs);
                tensors
            },
            |_| traced(graph, otherwise).1,
        )
    });
    note(graph, caller, mistakes, &added);
    match (like, then) {
        (Some(like), _) => rebuilt(graph, &like, added.ok()),
        // A poisoned condition: the branch only tells what to return.
        (None, Some(then)) => rebuilt(graph, &graph.in_body(then), None),
        (None, None) => unreachable!("a branch that was called returned"),
    }
}

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
    condition: impl FnOnce(&V) -> Output<bool>,
    mut body: impl FnMut(V) -> V,
) -> V {
    let caller = Location::caller();
    let mut first = None;
    init.visit(&mut |handle| first = first.take().or_else(|| Some(handle.graph.clone())));
    let Some(graph) = first else { return init };
    let mistakes = graph.mistakes().len();
    let added = endpoints(&graph, &init).and_then(|start| {
        let given = |tensors: &[Endpoint]| rebuilt(&graph, &init, Some(tensors.to_vec()));
        graph.as_scope().clone().while_loop(
            &start,
            |_: &mut Scope, vars| {
                let (_, holds) = traced(&graph, || condition(&given(vars)));
                holds?.first().copied().ok_or_else(|| err!(Internal, "a loop has a condition"))
            },
            |_: &mut Scope, vars| traced(&graph, || body(given(vars))).1,
        )
    });
    note(&graph, caller, mistakes, &added);
    rebuilt(&graph, &init, added.ok())
}

/// Keeps the mistake of the branch or loop itself: those of its body are known already.
fn note<R>(graph: &Graph, caller: crate::Caller, before: usize, added: &Result<R>) {
    if let Err(e) = added
        && graph.mistakes().len() == before
        && *e != poisoned()
    {
        graph.record(caller, e.clone());
    }
}
