//! A Rust pipeline as the input of a graph.

use thalweg_graph::{Output, Scope};
use thalweg_tensor::{DType, PartialShape, Result};

/// The nodes through which a graph iterates over a dataset that is fed to it.
#[derive(Clone, Debug)]
pub struct GraphInput {
    /// The placeholder of the dataset: [`Dataset::into_tensor`](super::Dataset::into_tensor).
    pub dataset: String,
    /// The target that initializes the iterator, with the dataset fed; it starts the iteration
    /// again.
    pub initializer: String,
    /// The components of the next element.
    pub components: Vec<Output>,
}

/// Adds an iterator for elements of these dtypes and shapes. A step that fetches one of the
/// components advances it; OUT_OF_RANGE marks the end.
pub fn in_graph(scope: &mut Scope, components: &[(DType, PartialShape)]) -> Result<GraphInput> {
    let dtypes: Vec<DType> = components.iter().map(|(dtype, _)| *dtype).collect();
    let shapes: Vec<PartialShape> = components.iter().map(|(_, shape)| shape.clone()).collect();
    let dataset = scope.placeholder(DType::Variant, &PartialShape::scalar())?;
    let iterator = scope
        .op("IteratorV2")
        .attr("shared_name", "")
        .attr("container", "")
        .attr("output_types", &dtypes[..])
        .attr("output_shapes", &shapes[..])
        .build()?;
    let initializer = scope.op("MakeIterator").inputs(&[dataset, iterator]).build_node()?;
    let components = scope
        .op("IteratorGetNext")
        .input(iterator)
        .attr("output_types", &dtypes[..])
        .attr("output_shapes", &shapes[..])
        .build_all()?;
    let initializer = scope.with_graph(|graph| graph.node(initializer).name.to_string());
    Ok(GraphInput { dataset: scope.name_of(dataset), initializer, components })
}
