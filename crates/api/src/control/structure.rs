//! Structures of handles: what branches return, what loops carry, what loops take rows of.

use thalweg_graph::Endpoint;
use thalweg_tensor::Result;

use crate::dtype::TensorType;
use crate::graph::Graph;
use crate::node::poisoned;
use crate::output::{Output, Raw};
use crate::variable::Variable;

/// Handles that a branch returns or a loop carries: one, a tuple, an array or a vector of them.
pub trait Outputs: Sized {
    /// Calls `visit` with each handle, in order.
    #[doc(hidden)]
    fn visit(&self, visit: &mut dyn FnMut(&Raw));

    /// The same structure with other tensors.
    #[doc(hidden)]
    fn with(&self, next: &mut dyn FnMut() -> Raw) -> Self;
}

/// Handles of tensors whose rows a loop takes one after another: one, or a tuple, an array, a slice
/// or a vector of them. All have the same number of rows, the size of their first dimension.
pub trait Elems {
    /// A row of each, in the same structure.
    type Row: Outputs;

    #[doc(hidden)]
    fn visit(&self, visit: &mut dyn FnMut(&Raw));

    #[doc(hidden)]
    fn row(&self, next: &mut dyn FnMut() -> Raw) -> Self::Row;
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

impl<T: TensorType> Elems for Output<T> {
    type Row = Output<T>;

    fn visit(&self, visit: &mut dyn FnMut(&Raw)) {
        visit(self.raw());
    }

    fn row(&self, next: &mut dyn FnMut() -> Raw) -> Output<T> {
        Output::of_raw(next())
    }
}

impl<T: TensorType> Elems for Variable<T> {
    type Row = Output<T>;

    fn visit(&self, visit: &mut dyn FnMut(&Raw)) {
        visit(self.value().raw());
    }

    fn row(&self, next: &mut dyn FnMut() -> Raw) -> Output<T> {
        Output::of_raw(next())
    }
}

impl<X: Elems + ?Sized> Elems for &X {
    type Row = X::Row;

    fn visit(&self, visit: &mut dyn FnMut(&Raw)) {
        (**self).visit(visit);
    }

    fn row(&self, next: &mut dyn FnMut() -> Raw) -> X::Row {
        (**self).row(next)
    }
}

impl<X: Elems> Elems for [X] {
    type Row = Vec<X::Row>;

    fn visit(&self, visit: &mut dyn FnMut(&Raw)) {
        self.iter().for_each(|item| item.visit(visit));
    }

    fn row(&self, next: &mut dyn FnMut() -> Raw) -> Vec<X::Row> {
        self.iter().map(|item| item.row(next)).collect()
    }
}

impl<X: Elems> Elems for Vec<X> {
    type Row = Vec<X::Row>;

    fn visit(&self, visit: &mut dyn FnMut(&Raw)) {
        self[..].visit(visit);
    }

    fn row(&self, next: &mut dyn FnMut() -> Raw) -> Vec<X::Row> {
        self[..].row(next)
    }
}

impl<X: Elems, const COUNT: usize> Elems for [X; COUNT] {
    type Row = [X::Row; COUNT];

    fn visit(&self, visit: &mut dyn FnMut(&Raw)) {
        self[..].visit(visit);
    }

    fn row(&self, next: &mut dyn FnMut() -> Raw) -> [X::Row; COUNT] {
        std::array::from_fn(|i| self[i].row(next))
    }
}

macro_rules! tuple {
    ($($v:ident $_v:ident $i:tt),+) => {
        impl<$($v: Outputs),+> Outputs for ($($v,)+) {
            fn visit(&self, visit: &mut dyn FnMut(&Raw)) {
                $(self.$i.visit(visit);)+
            }

            fn with(&self, next: &mut dyn FnMut() -> Raw) -> Self {
                ($(self.$i.with(next),)+)
            }
        }

        impl<$($v: Elems),+> Elems for ($($v,)+) {
            type Row = ($($v::Row,)+);

            fn visit(&self, visit: &mut dyn FnMut(&Raw)) {
                $(self.$i.visit(visit);)+
            }

            fn row(&self, next: &mut dyn FnMut() -> Raw) -> Self::Row {
                ($(self.$i.row(next),)+)
            }
        }
    };
}

for_tuples!(tuple);

/// Calls a function with each handle of a structure.
pub(crate) type Visit<'a> = dyn FnMut(&mut dyn FnMut(&Raw)) + 'a;

/// The graph of the first handle; `None` if there is none.
pub(super) fn graph_of(visit: &mut Visit<'_>) -> Option<Graph> {
    let mut first = None;
    visit(&mut |handle| first = first.take().or_else(|| Some(handle.graph.clone())));
    first
}

/// The tensors of handles of this graph.
pub(crate) fn endpoints(graph: &Graph, visit: &mut Visit<'_>) -> Result<Vec<Endpoint>> {
    let mut found = Ok(Vec::new());
    visit(&mut |handle| {
        if let Ok(list) = &mut found {
            match graph.checked(handle).and_then(|at| at.ok_or_else(poisoned)) {
                Ok(at) => list.push(at),
                Err(e) => found = Err(e),
            }
        }
    });
    found
}

/// Handles of these tensors, one by one, and poisoned ones after the last.
pub(super) fn handles<'a>(
    graph: &'a Graph,
    tensors: &'a [Endpoint],
) -> impl FnMut() -> Raw + use<'a> {
    let mut tensors = tensors.iter().copied();
    move || Raw { graph: graph.clone(), at: tensors.next(), body: graph.body() }
}

/// The structure of `like` with these tensors, or poisoned ones.
pub(super) fn rebuilt<V: Outputs>(graph: &Graph, like: &V, tensors: &Result<Vec<Endpoint>>) -> V {
    like.with(&mut handles(graph, tensors.as_deref().unwrap_or_default()))
}

/// Calls `add` within a new body; the handles that it returns and their tensors.
pub(super) fn traced<V: Outputs>(
    graph: &Graph,
    add: impl FnOnce() -> V,
) -> (V, Result<Vec<Endpoint>>) {
    graph.in_body(|| {
        let outputs = add();
        let tensors = endpoints(graph, &mut |visit| outputs.visit(visit));
        (outputs, tensors)
    })
}

/// Keeps the mistake of the branch or loop itself: those of its body are known already.
pub(super) fn note<R>(graph: &Graph, caller: crate::Caller, before: usize, added: &Result<R>) {
    if let Err(e) = added
        && graph.mistakes().len() == before
        && *e != poisoned()
    {
        graph.record(caller, e.clone());
    }
}
