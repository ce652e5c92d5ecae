//! Builds a graph, feeds it, fetches from it: `cargo run --example hello`.
//!
//! It prints `y = [5.0, 0.0]`, then an error message: the node, and the shapes that do not match.

use thalweg::prelude::*;

fn main() -> Result<()> {
    // The same nodes that TensorFlow's Python client would make.
    let mut scope = thalweg::scope();
    let x = scope.placeholder(DType::Float, &PartialShape::new([None, Some(2)]))?;
    let weights = Tensor::from_slice(Shape::new(&[2, 1])?, &[2.0f32, -1.0])?;
    let weights = scope.constant(&weights)?;
    let product = scope.add("MatMul", &[x, weights])?;
    let y = scope.op("Relu").name("y").input(product).build()?;

    let session = thalweg::session(&scope)?;
    let rows = Tensor::from_slice(Shape::new(&[2, 2])?, &[3.0f32, 1.0, 1.0, 3.0])?;
    let results = session.run(&[(&scope.name_of(x), rows)], &[&scope.name_of(y)], &[])?;
    println!("y = {:?}", results[0].as_slice::<f32>()?);
    assert_eq!(results[0].as_slice::<f32>()?, [5.0, 0.0]);

    // A mistake fails on the line that makes it, and names the node.
    let mistake =
        scope.add("MatMul", &[weights, weights]).expect_err("[2,1] times [2,1] does not fit");
    println!("{mistake}");
    assert_eq!(mistake.code(), Code::InvalidArgument);
    Ok(())
}
