//! The program of `docs/src/tutorial/graphs.md`, piece by piece.
//!
//! It prints the probabilities of an image before any training, all 0.1, the trace of each node,
//! and an error message.

use thalweg::prelude::*;

fn main() -> Result<()> {
    // Build.
    let mut root = thalweg::scope();
    let x = root.placeholder(DType::Float, &PartialShape::new([None, Some(784)]))?;
    let mut layer = root.child("layer1");
    let w = layer.constant(&Tensor::zeros(DType::Float, Shape::new(&[784, 10])?)?)?;
    let logits =
        layer.op("MatMul").name("logits").inputs(&[x, w]).attr("transpose_b", false).build()?;
    let probabilities = layer.add("Softmax", &[logits])?;
    assert_eq!(root.name_of(probabilities), "layer1/Softmax:0");

    // Run.
    let session = thalweg::session(&root)?;
    let (x_name, y_name) = (root.name_of(x), root.name_of(probabilities));
    let images = Tensor::zeros(DType::Float, Shape::new(&[2, 784])?)?;
    let results = session.run(&[(&x_name, images.clone())], &[&y_name], &[])?;
    assert_eq!(results[0].as_slice::<f32>()?, [0.1; 20]);

    let step = session.make_callable(&[&x_name], &[&y_name], &[])?;
    let results = step.call(&[Tensor::zeros(DType::Float, Shape::new(&[1, 784])?)?])?;
    println!("probabilities of one image: {:?}", results[0].as_slice::<f32>()?);

    let options = RunOptions { trace: true, ..RunOptions::default() };
    let (_, report) = session.run_with(&options, &[(&x_name, images)], &[&y_name], &[])?;
    for node in &report.nodes {
        println!("{} ({}) took {} ns", node.node, node.op, node.end_ns - node.start_ns);
    }

    // Mistakes.
    let error = layer.add("MatMul", &[w, w]).expect_err("784 columns do not meet 784 rows");
    assert_eq!(error.code(), Code::InvalidArgument);
    println!("{error}");

    // Graphs from TensorFlow.
    let text = r#"
        node { name: "a" op: "Placeholder" attr { key: "dtype" value { type: DT_INT32 } } }
        node { name: "b" op: "Neg" input: "a" attr { key: "T" value { type: DT_INT32 } } }"#;
    let def = thalweg::proto::text::decode("tensorflow.GraphDef", text)
        .map_err(|e| Error::new(Code::InvalidArgument, e.to_string()))?;
    let registry = thalweg::registry();
    let graph = Graph::from_def(registry.ops.clone(), def)?;
    let session = Session::new(graph, registry.kernels.clone(), SessionOptions::default())?;
    let results = session.run(&[("a", Tensor::scalar(5i32))], &["b"], &[])?;
    assert_eq!(results[0].scalar_value::<i32>()?, -5);
    Ok(())
}
