//! Feeds of a step, by handle.

use thalweg_tensor::{Context, Result, Tensor};

use crate::dtype::TensorType;
use crate::output::{Output, Raw};
use crate::value::IntoTensor;

/// A value for a tensor in a step; see [`Output::feed`] and [`crate::feed!`].
#[derive(Clone)]
pub struct Feed {
    pub(crate) handle: Raw,
    pub(crate) value: Result<Tensor>,
}

impl<T: TensorType> Output<T> {
    /// This value for the tensor in a step, instead of what its node computes.
    pub fn feed(&self, value: impl IntoTensor<T>) -> Feed {
        let name = || format!("feed of '{}'", self.name().unwrap_or_default());
        Feed { handle: self.raw().clone(), value: value.into_tensor().context(name) }
    }
}

/// The feeds of a step: what [`crate::feed!`] makes, `()` for none, or a list of [`Feed`]s.
pub trait Feeds {
    /// The feeds.
    fn into_feeds(self) -> Vec<Feed>;
}

impl Feeds for () {
    fn into_feeds(self) -> Vec<Feed> {
        Vec::new()
    }
}

impl Feeds for Feed {
    fn into_feeds(self) -> Vec<Feed> {
        vec![self]
    }
}

impl Feeds for Vec<Feed> {
    fn into_feeds(self) -> Vec<Feed> {
        self
    }
}

impl Feeds for &[Feed] {
    fn into_feeds(self) -> Vec<Feed> {
        self.to_vec()
    }
}

impl<const COUNT: usize> Feeds for [Feed; COUNT] {
    fn into_feeds(self) -> Vec<Feed> {
        self.into()
    }
}

impl<const COUNT: usize> Feeds for &[Feed; COUNT] {
    fn into_feeds(self) -> Vec<Feed> {
        self.to_vec()
    }
}

/// The feeds of a step: `feed! { x: images, labels: digits }`. Handles that are no plain variable
/// take an arrow: `feed! { inputs[0] => images }`.
///
/// ```
/// # use thalweg_api::{Graph, Output, feed};
/// # let g = Graph::new();
/// let x: Output<f32> = g.placeholder("x", [None, Some(2)]);
/// let inputs = [x.clone()];
/// let both = [feed! { x: [[1.0, 2.0]] }, feed! { inputs[0] => vec![[1.0, 2.0]] }];
/// ```
#[macro_export]
macro_rules! feed {
    ($($handle:ident : $value:expr),* $(,)?) => {
        [$($handle.feed($value)),*] as [$crate::Feed; $crate::feed!(@count $($handle)*)]
    };
    ($($handle:expr => $value:expr),+ $(,)?) => { [$(($handle).feed($value)),+] };
    (@count) => { 0 };
    (@count $first:ident $($rest:ident)*) => { 1 + $crate::feed!(@count $($rest)*) };
}
