//! Graphs by typed handles: built, run and traced, and how a mistake is reported.
//!
//! It prints the probabilities of an image before any training, all 0.1, the trace of each node,
//! and an error message.

use thalweg::runtime::RunOptions;
use thalweg::{Code, Graph, Init, Result, Tensor, Variable, feed};

fn main() -> Result<()> {
    // Build.
    let g = Graph::new();
    let x = g.placeholder::<f32>("x", [None, Some(784)]);
    let layer = g.scope("layer1");
    let w: Variable<f32> = layer.variable("w", Init::zeros([784, 10]));
    let probabilities = x.within(&layer).matmul(&w).softmax();
    println!("a GraphDef knows them as {}", probabilities.name()?);

    // Run.
    let session = g.session()?;
    let images = vec![[0.0f32; 784]; 2];
    let found: Vec<[f32; 10]> = session.run(&probabilities, feed! { x: &images }, &[])?;
    assert_eq!(found, [[0.1; 10]; 2]);

    let step = session.prepare(&x, &probabilities, &[])?;
    let found: Vec<[f32; 10]> = step.run([[0.0f32; 784]])?;
    println!("probabilities of one image: {:?}", found[0]);

    let options = RunOptions { trace: true, ..RunOptions::default() };
    let (_, report): (Tensor, _) =
        session.run_with(&options, &probabilities, feed! { x: &images }, &[])?;
    for node in &report.nodes {
        println!("{} ({}) took {} ns", node.node, node.op, node.end_ns - node.start_ns);
    }

    // Mistakes.
    let _ = w.matmul(&w);
    let error = g.check().expect_err("784 columns do not meet 784 rows");
    assert_eq!(error.code(), Code::InvalidArgument);
    println!("{error}");
    Ok(())
}
