//! A Rust pipeline as the input of a graph.

use thalweg_graph::{Output, Scope};
use thalweg_tensor::{DType, PartialShape, Result};

/// The nodes through which a graph draws from a dataset that is fed to it.
#[derive(Clone, Debug)]
pub struct GraphInput {
    /// Where the dataset is fed: [`Dataset::into_tensor`](super::Dataset::into_tensor).
    pub dataset: String,
    /// What to run once, with the dataset fed, before elements are drawn: it begins anew.
    pub initializer: String,
    /// The components of the next element.
    pub components: Vec<Output>,
}

/// Adds an iterator for elements of these types and shapes. A step that fetches something of its
/// components draws an element; OUT_OF_RANGE says that there are no more.
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
