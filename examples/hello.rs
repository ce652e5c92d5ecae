//! Builds a graph, feeds it, fetches from it: `cargo run --example hello`.
//!
//! It prints `y = [5.0, 0.0]`, then a mistake: the line that made it, and the shapes that do not match.

use thalweg::{Code, Graph, Result, feed};

fn main() -> Result<()> {
    let g = Graph::new();
    let x = g.placeholder("x", [None, Some(2)]);
    let weights = g.constant([[2.0f32], [-1.0]]);
    let y = x.matmul(&weights).relu();

    let session = g.session()?;
    let result: Vec<[f32; 1]> = session.run(&y, feed! { x: [[3.0, 1.0], [1.0, 3.0]] }, &[])?;
    println!("y = {:?}", result.as_flattened());
    assert_eq!(result, [[5.0], [0.0]]);

    // A mistake is kept with its line, and reported with all others before anything runs.
    let _ = weights.matmul(&weights).relu();
    let mistake = g.check().expect_err("[2,1] times [2,1] does not fit");
    println!("{mistake}");
    assert_eq!(mistake.code(), Code::InvalidArgument);
    Ok(())
}
