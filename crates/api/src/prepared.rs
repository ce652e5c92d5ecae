//! Prepared steps: feeds and fetches are typed and resolved once.

use std::marker::PhantomData;
use std::sync::Arc;

use thalweg_runtime::{RunMetadata, RunOptions};
use thalweg_tensor::{Context, Result, Tensor};

use crate::dtype::TensorType;
use crate::fetch::{Fetch, Fetches};
use crate::output::{Output, Raw, Target};
use crate::session::{Planned, Session, StepKey};
use crate::value::IntoTensor;

/// Handles that a prepared step is fed through: one, a tuple of them, or `()`.
pub trait Placeholders {
    /// The element types, in order.
    type Elements;

    #[doc(hidden)]
    fn visit(&self, visit: &mut dyn FnMut(&Raw));
}

/// Marks the element type of one feed.
pub struct One<T>(PhantomData<fn() -> T>);

impl<T: TensorType> Placeholders for &Output<T> {
    type Elements = One<T>;

    fn visit(&self, visit: &mut dyn FnMut(&Raw)) {
        visit(self.raw());
    }
}

impl Placeholders for () {
    type Elements = ();

    fn visit(&self, _: &mut dyn FnMut(&Raw)) {}
}

/// Values for the placeholders of a prepared step: one, a tuple of them, or `()`.
pub trait FeedValues<Elements> {
    #[doc(hidden)]
    fn into_tensors(self, tensors: &mut Vec<Result<Tensor>>);
}

impl<T: TensorType, V: IntoTensor<T>> FeedValues<One<T>> for V {
    fn into_tensors(self, tensors: &mut Vec<Result<Tensor>>) {
        tensors.push(self.into_tensor());
    }
}

impl FeedValues<()> for () {
    fn into_tensors(self, _: &mut Vec<Result<Tensor>>) {}
}

macro_rules! tuple {
    ($($p:ident $v:ident $i:tt),+) => {
        impl<$($p: Placeholders),+> Placeholders for ($($p,)+) {
            type Elements = ($($p::Elements,)+);

            fn visit(&self, visit: &mut dyn FnMut(&Raw)) {
                $(self.$i.visit(visit);)+
            }
        }

        impl<$($p, $v: FeedValues<$p>),+> FeedValues<($($p,)+)> for ($($v,)+) {
            fn into_tensors(self, tensors: &mut Vec<Result<Tensor>>) {
                $(self.$i.into_tensors(tensors);)+
            }
        }
    };
}

for_tuples!(tuple);

/// A step whose feeds, fetches and targets are resolved: running it looks nothing up. It may be run
/// by any number of threads at once.
pub struct Step<Elements, F> {
    session: Session,
    planned: Arc<Planned>,
    key: StepKey,
    fetches: F,
    of: PhantomData<fn() -> Elements>,
}

impl Session {
    /// Prepares a step with these feeds, fetches and targets.
    ///
    /// ```
    /// use thalweg_api::Graph;
    /// # fn main() -> thalweg_api::Result<()> {
    /// let g = Graph::new();
    /// let x = g.placeholder::<f32>("x", [None]);
    /// let n = g.placeholder::<f32>("n", []);
    /// let y = (&x * &n).sum();
    /// let step = g.session()?.prepare((&x, &n), &y, &[])?;
    /// let y: f32 = step.run(([1.0, 2.0], 10.0))?;
    /// assert_eq!(y, 30.0);
    /// # Ok(())
    /// # }
    /// ```
    pub fn prepare<P: Placeholders, F: Fetches>(
        &self,
        feeds: P,
        fetches: F,
        targets: &[&dyn Target],
    ) -> Result<Step<P::Elements, F::Owned>> {
        self.sync()?;
        let mut handles = Vec::new();
        feeds.visit(&mut |handle| handles.push(handle.clone()));
        let feeds = handles.iter().map(|handle| self.endpoint(handle)).collect::<Result<_>>()?;
        let key =
            StepKey { feeds, fetches: self.fetched(&fetches)?, targets: self.targets(targets)? };
        let planned = self.plan(&key)?;
        let fetches = fetches.to_owned_handles();
        Ok(Step { session: self.clone(), planned, key, fetches, of: PhantomData })
    }
}

impl<Elements, F> Step<Elements, F> {
    /// Runs the step with values in the order of the feeds.
    pub fn run<R>(&self, values: impl FeedValues<Elements>) -> Result<R>
    where
        F: Fetch<R>,
    {
        self.run_with(&RunOptions::default(), values).map(|(result, _)| result)
    }

    /// As [`Step::run`], with options and a report.
    pub fn run_with<R>(
        &self,
        options: &RunOptions,
        values: impl FeedValues<Elements>,
    ) -> Result<(R, RunMetadata)>
    where
        F: Fetch<R>,
    {
        let mut given = Vec::with_capacity(self.key.feeds.len());
        values.into_tensors(&mut given);
        let mut tensors = Vec::with_capacity(given.len());
        for (&at, value) in self.key.feeds.iter().zip(given) {
            let name = || format!("feed of '{}'", self.session.graph().as_scope().name_of(at));
            let tensor = value.context(name)?;
            self.session.check_feed(at, &tensor)?;
            tensors.push(tensor);
        }
        let (results, metadata) = self.session.call(&self.planned, options, tensors)?;
        Ok((self.fetches.value(&mut results.into_iter())?, metadata))
    }
}
