//! Branches: [`cond`], [`switch_case`] and [`case`].

use std::cell::RefCell;
use std::panic::Location;

use thalweg_tensor::{Result, err};

use super::structure::{Outputs, note, rebuilt, traced};
use crate::mistake::on_behalf_of;
use crate::node::poisoned;
use crate::output::Output;

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
        (Some(like), _) => rebuilt(graph, &like, &added),
        // A poisoned condition: the branch only tells what to return.
        (None, Some(then)) => rebuilt(graph, &graph.in_body(then), &Err(poisoned())),
        (None, None) => unreachable!("a branch that was called returned"),
    }
}

/// A closure that adds a branch.
type BoxedBranch<'a, V> = Box<dyn FnOnce() -> V + 'a>;

/// Closures that add the branches of [`switch_case`]: a tuple, an array or a vector of them.
pub trait Branches<V> {
    #[doc(hidden)]
    fn into_branches<'a>(self) -> Vec<BoxedBranch<'a, V>>
    where
        Self: 'a;
}

/// Conditions, each with the closure that adds its branch, for [`case`]: a tuple, an array or a
/// vector of pairs.
pub trait Cases<V> {
    #[doc(hidden)]
    fn into_cases<'a>(self) -> Vec<(Output<bool>, BoxedBranch<'a, V>)>
    where
        Self: 'a;
}

impl<V, F: FnOnce() -> V> Branches<V> for Vec<F> {
    fn into_branches<'a>(self) -> Vec<BoxedBranch<'a, V>>
    where
        Self: 'a,
    {
        self.into_iter().map(|branch| Box::new(branch) as BoxedBranch<'a, V>).collect()
    }
}

impl<V, F: FnOnce() -> V, const COUNT: usize> Branches<V> for [F; COUNT] {
    fn into_branches<'a>(self) -> Vec<BoxedBranch<'a, V>>
    where
        Self: 'a,
    {
        self.into_iter().map(|branch| Box::new(branch) as BoxedBranch<'a, V>).collect()
    }
}

impl<V, F: FnOnce() -> V> Cases<V> for Vec<(&Output<bool>, F)> {
    fn into_cases<'a>(self) -> Vec<(Output<bool>, BoxedBranch<'a, V>)>
    where
        Self: 'a,
    {
        let case = |(condition, branch): (&Output<bool>, F)| {
            (condition.clone(), Box::new(branch) as BoxedBranch<'a, V>)
        };
        self.into_iter().map(case).collect()
    }
}

impl<V, F: FnOnce() -> V, const COUNT: usize> Cases<V> for [(&Output<bool>, F); COUNT] {
    fn into_cases<'a>(self) -> Vec<(Output<bool>, BoxedBranch<'a, V>)>
    where
        Self: 'a,
    {
        Vec::from(self).into_cases()
    }
}

macro_rules! tuple {
    ($($f:ident $_f:ident $i:tt),+) => {
        impl<V, $($f: FnOnce() -> V),+> Branches<V> for ($($f,)+) {
            fn into_branches<'a>(self) -> Vec<BoxedBranch<'a, V>>
            where
                Self: 'a,
            {
                vec![$(Box::new(self.$i)),+]
            }
        }

        impl<V, $($f: FnOnce() -> V),+> Cases<V> for ($((&Output<bool>, $f),)+) {
            fn into_cases<'a>(self) -> Vec<(Output<bool>, BoxedBranch<'a, V>)>
            where
                Self: 'a,
            {
                vec![$((self.$i.0.clone(), Box::new(self.$i.1))),+]
            }
        }
    };
}

for_tuples!(tuple);

/// What the branch at position `index` adds, and what `default` adds if there is none at that
/// position: only one of them runs. As TensorFlow's `tf.switch_case`, a node `Case`.
///
/// The closures may use any tensors; all return handles of the same types.
///
/// ```
/// use thalweg_api::{Graph, feed, switch_case};
/// # fn main() -> thalweg_api::Result<()> {
/// let g = Graph::new();
/// let x = g.placeholder::<f32>("x", []);
/// let i = g.placeholder::<i32>("i", []);
/// let y = switch_case(&i, (|| x.sqrt(), || x.square()), || -&x);
/// let session = g.session()?;
/// let run = |index: i32| session.run::<_, f32>(&y, feed! { x: 4.0, i: index }, &[]);
/// assert_eq!([run(0)?, run(1)?, run(2)?, run(-1)?], [2.0, 16.0, -4.0, -4.0]);
/// # Ok(())
/// # }
/// ```
#[track_caller]
pub fn switch_case<V: Outputs>(
    index: &Output<i32>,
    branches: impl Branches<V>,
    default: impl FnOnce() -> V,
) -> V {
    switch(index, branches.into_branches(), Box::new(default), Location::caller())
}

fn switch<'a, V: Outputs>(
    index: &'a Output<i32>,
    branches: Vec<BoxedBranch<'a, V>>,
    default: BoxedBranch<'a, V>,
    caller: crate::Caller,
) -> V {
    let graph = index.graph();
    let at = match index.endpoint() {
        Ok(at) => at,
        Err(e) => {
            let added: Result<Vec<_>> = Err(e);
            note(graph, caller, graph.mistakes().len(), &added);
            // The branch only tells what to return.
            return rebuilt(graph, &graph.in_body(default), &added);
        }
    };
    let mistakes = graph.mistakes().len();
    let like = RefCell::new(None);
    let trace = |branch: BoxedBranch<'a, V>| -> thalweg_graph::Branch<'_> {
        Box::new(|_| {
            let (outputs, tensors) = traced(graph, branch);
            like.borrow_mut().get_or_insert(outputs);
            tensors
        })
    };
    let branches = branches.into_iter().chain([default]).map(trace).collect();
    let added = graph.as_scope().clone().case(at, branches);
    note(graph, caller, mistakes, &added);
    let like = like.into_inner().expect("there is a branch, and the first one is traced");
    rebuilt(graph, &like, &added)
}

/// What the branch of the first condition that is true adds, and what `default` adds if none is:
/// only one of them runs. As TensorFlow's `tf.case`; all conditions are computed.
///
/// ```
/// use thalweg_api::{Graph, case, feed};
/// # fn main() -> thalweg_api::Result<()> {
/// let g = Graph::new();
/// let x = g.placeholder::<f32>("x", []);
/// let (small, negative) = (x.less(1.0), x.less(0.0));
/// let y = case(((&negative, || -&x), (&small, || x.sqrt())), || x.square());
/// let session = g.session()?;
/// let run = |value: f32| session.run::<_, f32>(&y, feed! { x: value }, &[]);
/// assert_eq!([run(-3.0)?, run(0.25)?, run(3.0)?], [3.0, 0.5, 9.0]);
/// # Ok(())
/// # }
/// ```
#[track_caller]
pub fn case<V: Outputs>(cases: impl Cases<V>, default: impl FnOnce() -> V) -> V {
    let caller = Location::caller();
    let (conditions, branches): (Vec<_>, Vec<_>) = cases.into_cases().into_iter().unzip();
    let Some(first) = conditions.first() else { return default() };
    let graph = first.graph();
    let index = on_behalf_of(caller, || {
        let none = graph.constant(conditions.len() as i32);
        let cases = conditions.iter().enumerate().rev();
        cases.fold(none, |rest, (position, condition)| {
            condition.within(graph).select(position as i32, rest)
        })
    });
    switch(&index, branches, Box::new(default), caller)
}
