//! Graphs on the layer below the typed handles: ops and tensors by name, a `Result` for each node.
//!
//! It prints the probabilities of an image before any training, all 0.1, the trace of each node,
//! and an error message.

use thalweg::runtime::RunOptions;
use thalweg::{Code, Graph, Init, Registry, Result, Tensor, Variable, feed, session_options};

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

    // Graphs from TensorFlow.
    let text = r#"
        node { name: "a" op: "Placeholder" attr { key: "dtype" value { type: DT_INT32 } } }
        node { name: "b" op: "Neg" input: "a" attr { key: "T" value { type: DT_INT32 } } }"#;
    let def = thalweg::proto::text::decode("tensorflow.GraphDef", text)
        .map_err(|e| thalweg::Error::new(Code::InvalidArgument, e.to_string()))?;
    let Registry { ops, kernels } = Registry::built_in();
    let graph = thalweg::graph::Graph::from_def(ops, def)?;
    let [a, b] = [0, 1].map(|i| graph.nodes()[i].name.to_string());
    let session = thalweg::runtime::Session::new(graph, kernels, session_options())?;
    let results = session.run(&[(&a, Tensor::scalar(5i32))], &[&b], &[])?;
    assert_eq!(results[0].scalar_value::<i32>()?, -5);
    Ok(())
}
