//! Gradients by handle, and gradient functions of a program's own.

use std::panic::Location;
use std::sync::atomic::{AtomicU64, Ordering};

use thalweg_graph::{Adjoint, Endpoint, GradientContext, GradientOptions};
use thalweg_tensor::{Result, ensure};

use crate::control::endpoints;
use crate::dtype::{Any, TensorType};
use crate::graph::Graph;
use crate::node::{NewOp, poisoned};
use crate::output::{Output, Raw};
use crate::variable::Variable;
use thalweg_ops::Registry;

/// Tensors and variables to differentiate with respect to: one, a tuple, an array, a slice or a
/// vector of them.
pub trait Wrt {
    /// The gradients, in the same structure.
    type Gradients;

    #[doc(hidden)]
    fn visit(&self, visit: &mut dyn FnMut(&Raw));

    #[doc(hidden)]
    fn gradients(&self, next: &mut dyn FnMut() -> Raw) -> Self::Gradients;
}

impl<T: TensorType> Wrt for Output<T> {
    type Gradients = Output<T>;

    fn visit(&self, visit: &mut dyn FnMut(&Raw)) {
        visit(self.raw());
    }

    fn gradients(&self, next: &mut dyn FnMut() -> Raw) -> Output<T> {
        Output::of_raw(next())
    }
}

impl<T: TensorType> Wrt for Variable<T> {
    type Gradients = Output<T>;

    fn visit(&self, visit: &mut dyn FnMut(&Raw)) {
        visit(self.handle().raw());
    }

    fn gradients(&self, next: &mut dyn FnMut() -> Raw) -> Output<T> {
        Output::of_raw(next())
    }
}

impl<X: Wrt + ?Sized> Wrt for &X {
    type Gradients = X::Gradients;

    fn visit(&self, visit: &mut dyn FnMut(&Raw)) {
        (**self).visit(visit);
    }

    fn gradients(&self, next: &mut dyn FnMut() -> Raw) -> X::Gradients {
        (**self).gradients(next)
    }
}

impl<X: Wrt> Wrt for [X] {
    type Gradients = Vec<X::Gradients>;

    fn visit(&self, visit: &mut dyn FnMut(&Raw)) {
        self.iter().for_each(|x| x.visit(visit));
    }

    fn gradients(&self, next: &mut dyn FnMut() -> Raw) -> Vec<X::Gradients> {
        self.iter().map(|x| x.gradients(next)).collect()
    }
}

impl<X: Wrt> Wrt for Vec<X> {
    type Gradients = Vec<X::Gradients>;

    fn visit(&self, visit: &mut dyn FnMut(&Raw)) {
        self[..].visit(visit);
    }

    fn gradients(&self, next: &mut dyn FnMut() -> Raw) -> Vec<X::Gradients> {
        self[..].gradients(next)
    }
}

impl<X: Wrt, const COUNT: usize> Wrt for [X; COUNT] {
    type Gradients = [X::Gradients; COUNT];

    fn visit(&self, visit: &mut dyn FnMut(&Raw)) {
        self.iter().for_each(|x| x.visit(visit));
    }

    fn gradients(&self, next: &mut dyn FnMut() -> Raw) -> [X::Gradients; COUNT] {
        std::array::from_fn(|i| self[i].gradients(next))
    }
}

macro_rules! tuple {
    ($($x:ident $_x:ident $i:tt),+) => {
        impl<$($x: Wrt),+> Wrt for ($($x,)+) {
            type Gradients = ($($x::Gradients,)+);

            fn visit(&self, visit: &mut dyn FnMut(&Raw)) {
                $(self.$i.visit(visit);)+
            }

            fn gradients(&self, next: &mut dyn FnMut() -> Raw) -> Self::Gradients {
                ($(self.$i.gradients(next),)+)
            }
        }
    };
}

for_tuples!(tuple);

/// The derivatives of the sum of `y` with respect to tensors and variables, dense; zeros where `y`
/// does not depend on one.
///
/// ```
/// use thalweg_api::{Graph, Init, Variable, feed, gradients};
/// # fn main() -> thalweg_api::Result<()> {
/// let g = Graph::new();
/// let x = g.placeholder::<f32>("x", []);
/// let w: Variable<f32> = g.variable("w", Init::constant(3.0, []));
/// let (dx, dw) = gradients(&(x.square() * &w), (&x, &w));
/// let d: (f32, f32) = g.session()?.run((&dx, &dw), feed! { x: 2.0 }, &[])?;
/// assert_eq!(d, (12.0, 4.0));
/// # Ok(())
/// # }
/// ```
#[track_caller]
pub fn gradients<T: TensorType, X: Wrt>(y: &Output<T>, xs: X) -> X::Gradients {
    let caller = Location::caller();
    let graph = y.graph();
    let found = endpoints(graph, &mut |visit| xs.visit(visit));
    let added = y.endpoint().and_then(|y| {
        let mut scope = graph.as_scope().clone();
        let adjoints =
            thalweg_graph::gradients(&mut scope, &[y], &found?, &GradientOptions::default())?;
        adjoints.into_iter().map(|adjoint| adjoint.to_dense(&mut scope)).collect()
    });
    let added: Option<Vec<Endpoint>> = match added {
        Ok(added) => Some(added),
        Err(e) => {
            if e != poisoned() {
                graph.record(caller, e);
            }
            None
        }
    };
    let mut tensors = added.map(Vec::into_iter);
    xs.gradients(&mut || {
        let at = tensors.as_mut().and_then(Iterator::next);
        Raw { graph: graph.clone(), at, body: graph.body() }
    })
}

/// What a gradient function sees of the node that it differentiates.
pub struct OpGradient {
    /// The graph to which the function adds nodes.
    pub graph: Graph,
    /// The node's inputs.
    pub inputs: Vec<Output<Any>>,
    /// The node's outputs.
    pub outputs: Vec<Output<Any>>,
    /// The gradient with respect to each output, zeros if there is none.
    pub gradients: Vec<Output<Any>>,
}

impl Graph {
    /// Differentiates an op of this graph by this function, instead of by its own: it returns the
    /// gradient with respect to each input, `None` for none. The handles of the function belong to a
    /// graph of their own, as with [`custom_gradient`].
    ///
    /// ```
    /// use thalweg_api::{Graph, gradients};
    /// # fn main() -> thalweg_api::Result<()> {
    /// let g = Graph::new();
    /// // Straight-through estimator: rounding passes gradients as they are.
    /// g.set_gradient("Round", |op| vec![Some(op.gradients[0].clone())]);
    /// let x = g.constant(1.75f32);
    /// let dx = gradients(&(x.round() * 3.0), &x);
    /// assert_eq!(g.session()?.run::<_, f32>(&dx, (), &[])?, 3.0);
    /// # Ok(())
    /// # }
    /// ```
    pub fn set_gradient(
        &self,
        op: &str,
        function: impl Fn(&OpGradient) -> Vec<Option<Output<Any>>> + Send + Sync + 'static,
    ) {
        let kernels = self.registry().kernels.clone();
        self.as_scope().set_gradient(op, move |context| {
            // Of its own: in a function's gradient, nodes are added to the function's graph.
            let scope = context.scope().clone();
            let ops = scope.with_graph(|g| g.registry().clone());
            let graph = Graph::of_gradient(scope, Registry { ops, kernels: kernels.clone() });
            differentiate(context, &graph, &function)
        });
    }
}

fn differentiate(
    context: &mut GradientContext<'_>,
    graph: &Graph,
    function: &impl Fn(&OpGradient) -> Vec<Option<Output<Any>>>,
) -> Result<()> {
    let handle = |at: Endpoint| Output::new(graph.clone(), Some(at));
    let outputs = 0..context.num_outputs();
    let mut gradients = Vec::with_capacity(outputs.len());
    for i in outputs.clone() {
        gradients.push(handle(context.grad(i)?));
    }
    let op = OpGradient {
        graph: graph.clone(),
        inputs: context.inputs().iter().map(|&at| handle(at)).collect(),
        outputs: outputs.map(|i| handle(context.output(i))).collect(),
        gradients,
    };
    let results = function(&op);
    graph.check()?;
    ensure!(
        results.len() == op.inputs.len(),
        InvalidArgument,
        "the gradient function returned {} gradients for {} inputs",
        results.len(),
        op.inputs.len()
    );
    for (i, result) in results.iter().enumerate() {
        if let Some(result) = result {
            let at = graph.checked(result.raw())?.ok_or_else(poisoned)?;
            context.set_adjoint(i, Adjoint::Dense(at))?;
        }
    }
    Ok(())
}

/// Numbers of gradient functions of this process, which make their names unique.
static FUNCTIONS: AtomicU64 = AtomicU64::new(0);

/// What `forward` adds, differentiated by `backward`: from `x` and the gradient with respect to the
/// result it returns the gradient with respect to `x`.
///
/// `backward` runs later, once for each gradient that is built through the result, and may add its
/// nodes to the graph of a function (if the result is in the body of a branch or loop). So its
/// handles belong to a graph of their own: it can use its two arguments, what it computes of them,
/// and Rust values. A handle from outside is a mistake there, and so is one of its handles outside:
///
/// ```
/// use thalweg_api::{Graph, custom_gradient, gradients};
/// # fn main() -> thalweg_api::Result<()> {
/// let g = Graph::new();
/// let x = g.constant(100.0f32);
/// // log(1 + exp(x)), whose own gradient overflows for large x.
/// let y = custom_gradient(&x, |x| x.exp().log1p(), |x, dy| dy * x.sigmoid());
/// let dx = gradients(&y, &x);
/// assert_eq!(g.session()?.run::<_, f32>(&dx, (), &[])?, 1.0);
///
/// let half = g.constant(0.5f32); // where 0.5 would do
/// let z = custom_gradient(&x, |x| x.square(), move |_, dy| dy * &half);
/// let _ = gradients(&z, &x);
/// let told = g.check().unwrap_err();
/// assert!(told.message().contains("'Const_1:0' belongs to another graph: a gradient function"));
/// # Ok(())
/// # }
/// ```
#[track_caller]
pub fn custom_gradient<X: TensorType, Y: TensorType>(
    x: &Output<X>,
    forward: impl FnOnce(&Output<X>) -> Output<Y>,
    backward: impl Fn(&Output<X>, &Output<Y>) -> Output<X> + Send + Sync + 'static,
) -> Output<Y> {
    let graph = x.graph();
    let y = forward(x);
    let name = format!("custom_gradient_{}", FUNCTIONS.fetch_add(1, Ordering::Relaxed));
    graph.set_gradient(&name, move |op| {
        let dx = backward(&op.inputs[1].typed(), &op.gradients[0].typed());
        vec![None, Some(dx.any())]
    });
    // The identity of both: `y` has no gradient of its own, and `x` that of `backward`.
    let (Some(of_y), Some(of_x)) = (y.dtype(), x.dtype()) else { return Output::poisoned(graph) };
    let op = NewOp::new(graph, "IdentityN").input(&y).input(x).attr("T", &[of_y, of_x][..]);
    op.attr("_gradient_op_type", &*name).build().output(0)
}
