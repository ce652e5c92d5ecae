//! Model parallelism: the layers and their variables are on two tasks. Activations and their
//! gradients are sent between them.
//!
//! `cargo run --release --example model_parallel -- [STEPS]`
//!
//! It prints the device of each variable, half of them on either task, then the loss, and a test
//! accuracy of about 98 %.

use thalweg::train::{
    Cluster, Dense, Flatten, Layer, Model, Placement, Rng, losses, metrics, mnist,
};
use thalweg::{Momentum, Result, feed, gradients};

fn main() -> Result<()> {
    // A build for development is a hundred times slower: it takes a look.
    let (default, width) = if cfg!(debug_assertions) { (8, 32) } else { (600, 256) };
    let steps: usize = std::env::args().nth(1).and_then(|n| n.parse().ok()).unwrap_or(default);
    // Two tasks, here in one process; `Cluster::connect` takes the addresses of others.
    let cluster = Cluster::local(0, 2)?;
    let model = Model::new().place(Placement::Beside);
    let (lower, upper) = (model.on(&cluster.device(0)?), model.on(&cluster.device(1)?));
    let (images, labels) = mnist::inputs(&model);
    let hidden =
        Dense::new(2 * width).relu().apply(&lower, &Flatten.apply(&lower, &images)).within(&lower);
    let crossing = hidden.within(&upper).stop_gradient();
    let x = Dense::new(width).relu().apply(&upper, &crossing);
    let logits = Dense::new(mnist::CLASSES).apply(&upper, &x);
    let loss = losses::softmax_cross_entropy(&logits, &labels);
    let accuracy = metrics::accuracy(&logits, &labels);

    // The way back in two parts, each where its layers are: what crosses is the gradient of `hidden`.
    let back = gradients(&loss, &crossing).within(&lower).stop_gradient();
    let optimizer = Momentum::new(0.05);
    let train = [optimizer.minimize(&loss), optimizer.minimize(&(&hidden * back).sum())];
    for variable in model.trainable() {
        println!("{} is on {}", variable.name, variable.device);
    }

    // The first task is the master of this session; it makes the second do its part of each step.
    let session = cluster.open(0, &model)?;
    session.initialize()?;
    let digits = mnist::train()?;
    let mut rng = Rng::new(1);
    let mut all: Vec<f32> = Vec::new();
    for step in 0..steps {
        let (pixels, classes) = digits.random_batch(&mut rng, 64)?;
        let feeds = feed! { images: pixels, labels: classes };
        all.push(session.run(&loss, feeds, &[&train[0], &train[1]])?);
        if step % 100 == 0 {
            println!("step {step}: loss {:.3}", all[step]);
        }
    }
    let (pixels, classes) = mnist::test()?.first(200).all()?;
    let reached: f32 = session.run(&accuracy, feed! { images: pixels, labels: classes }, &[])?;
    println!("{:.1} % of unseen digits read", 100.0 * reached);
    assert!(steps < 2 || all[steps - 1] < all[0], "it learnt nothing");
    assert!(steps < 600 || reached > 0.9, "it did not learn: {reached}");
    Ok(())
}
