//! Model parallelism: the layers and their variables are on two tasks. Activations and their
//! gradients are sent between them.
//!
//! `cargo run --release --example model_parallel -- [STEPS]`
//!
//! It prints the device of each variable, half of them on either task, then the loss, and a test
//! accuracy of about 98 %.

use thalweg::prelude::*;
use thalweg::train::mnist;

const BATCH: usize = 64;

fn main() -> Result<()> {
    // A build for development is a hundred times slower: it takes a look.
    let (default, width) = if cfg!(debug_assertions) { (8, 32) } else { (600, 256) };
    let steps: usize = std::env::args().nth(1).and_then(|n| n.parse().ok()).unwrap_or(default);
    // Two tasks, here in one process; `Cluster::connect` takes the addresses of others.
    let cluster = Cluster::local(0, 2)?;
    let (below, above) = (cluster.device(0)?, cluster.device(1)?);

    let mut model = Model::new(thalweg::scope()).place(Placement::Beside);
    let side = Some(mnist::SIDE);
    let images = model.input("images", DType::Float, &[None, side, side, Some(1)])?;
    let labels = model.input("labels", DType::Int64, &[None])?;
    let (mut lower, mut upper) = (model.on(&below), model.on(&above));
    let x = Flatten.apply(&mut lower, images)?;
    let hidden = Dense::new(2 * width).relu().apply(&mut lower, x)?;
    let x = Dense::new(width).relu().apply(&mut upper, hidden)?;
    let scores = Dense::new(mnist::CLASSES).apply(&mut upper, x)?;
    let loss = losses::softmax_cross_entropy(&mut upper, scores, labels)?;
    let accuracy = metrics::accuracy(&mut upper, scores, labels)?;

    // The way back in two parts, each where its layers are: what crosses is the gradient of `hidden`.
    let (of_lower, of_upper): (Vec<Variable>, Vec<Variable>) =
        model.trainable().into_iter().partition(|variable| variable.device == below);
    let handles = |of: &[Variable]| of.iter().map(|variable| variable.handle).collect::<Vec<_>>();
    let wanted = [vec![hidden], handles(&of_upper)].concat();
    let mut found = gradients(&mut upper, &[loss], &wanted, &GradientOptions::default())?;
    let crossing = found.remove(0).to_dense(&mut upper)?;
    let options = GradientOptions { grad_ys: &[Some(crossing)], ..Default::default() };
    found.extend(gradients(&mut lower, &[hidden], &handles(&of_lower), &options)?);
    let pairs: Vec<(Variable, Adjoint)> = of_upper.into_iter().chain(of_lower).zip(found).collect();
    let train = Optimizer::momentum(0.05, 0.9).apply(&mut model, &pairs)?;
    let init = model.init()?;
    for variable in model.trainable() {
        println!("{} is on {}", variable.name, variable.device);
    }
    let (loss, accuracy) = (model.name_of(loss), model.name_of(accuracy));
    let train = model.node_name(train);

    // The first task is the master of this session; it makes the second do its part of each step.
    let session = cluster.session(0, &model.to_graph())?;
    session.run(&[], &[], &[&model.node_name(init)])?;
    let digits = mnist::train()?;
    let mut rng = Rng::new(1);
    let mut all = Vec::new();
    for step in 0..steps {
        let batch: Vec<usize> = (0..BATCH).map(|_| rng.below(digits.len())).collect();
        let (images, labels) = digits.batch(&batch)?;
        let feeds = [("images:0", images), ("labels:0", labels)];
        all.push(session.run(&feeds, &[&loss], &[&train])?[0].scalar_value::<f32>()?);
        if step % 100 == 0 {
            println!("step {step}: loss {:.3}", all[step]);
        }
    }
    let batch: Vec<usize> = (0..200).collect();
    let (images, labels) = mnist::test()?.batch(&batch)?;
    let feeds = [("images:0", images), ("labels:0", labels)];
    let accuracy = session.run(&feeds, &[&accuracy], &[])?[0].scalar_value::<f32>()?;
    println!("{:.1} % of unseen digits read", 100.0 * accuracy);
    assert!(steps < 2 || all[steps - 1] < all[0], "it learnt nothing");
    assert!(steps < 600 || accuracy > 0.9, "it did not learn: {accuracy}");
    Ok(())
}
