//! Input pipelines in Rust: the datasets of graphs, without a graph.
//!
//! A [`Dataset`] describes how elements are computed; nothing is read before iteration. An element
//! is a `Vec` of tensors. Errors of building a pipeline are returned by iteration. The step context
//! provides threads and files ([`Dataset::elements_in`]; `thalweg::elements` uses the process's
//! own); a pipeline can also be fed to a graph ([`Dataset::into_tensor`], [`in_graph()`]).

mod elements;
mod in_graph;
mod sources;
mod transforms;

pub use elements::Elements;
pub use in_graph::{GraphInput, in_graph};
pub use sources::{ElementIter, FixedLength, InputSource, OnBadRecord, RecordOptions};
pub use thalweg_formats::record::{BadRecord, Compression};
pub use transforms::Shuffle;

use std::sync::Arc;

use thalweg_tensor::{DType, PartialShape, Result, Tensor};

use crate::data::call::Function;
use crate::data::dataset::Source;
use crate::data::element::Spec;

/// Elements one after the other, and how they come about; cheap to clone.
///
/// ```
/// use thalweg_ops::dataset::Dataset;
/// use thalweg_tensor::Tensor;
///
/// let squares = Dataset::range(0..5)
///     .map(|element| {
///         let x: i64 = element[0].scalar_value()?;
///         Ok(vec![Tensor::scalar(x * x)])
///     })
///     .batch(2);
/// assert_eq!(squares.cardinality(), Some(3));
/// ```
#[derive(Clone)]
pub struct Dataset {
    /// An error of building the pipeline is kept until iteration returns it.
    source: Result<Source>,
}

impl Dataset {
    fn new(source: Result<Source>) -> Dataset {
        Dataset { source }
    }

    /// Applies `make` to the dataset and the spec of its elements.
    fn then(self, make: impl FnOnce(Source, Spec) -> Result<Source>) -> Dataset {
        Dataset::new(self.source.and_then(|source| {
            let spec = source.spec().clone();
            make(source, spec)
        }))
    }

    /// The number of elements, if it is known and finite.
    pub fn cardinality(&self) -> Option<u64> {
        u64::try_from(self.source.as_ref().ok()?.cardinality()).ok()
    }

    /// Declares the dtypes and shapes of the elements, which are checked when a graph iterates; the
    /// results of closures are unknown otherwise.
    pub fn typed(self, components: &[(DType, PartialShape)]) -> Dataset {
        let dtypes: Vec<DType> = components.iter().map(|(dtype, _)| *dtype).collect();
        let shapes: Vec<PartialShape> = components.iter().map(|(_, shape)| shape.clone()).collect();
        self.then(|source, _| source.then(Spec::new(dtypes, shapes)?, transforms::WithSpec))
    }

    /// A scalar variant tensor that holds the dataset, as iterator ops take it. It can be fed to a
    /// session of this process.
    pub fn into_tensor(self) -> Result<Tensor> {
        self.source?.into_tensor()
    }
}

/// A user-defined function from a closure.
fn code(
    function: impl Fn(Vec<Tensor>) -> Result<Vec<Tensor>> + Send + Sync + 'static,
) -> Arc<Function> {
    Function::from_closure(Box::new(move |_, element| function(element)))
}
