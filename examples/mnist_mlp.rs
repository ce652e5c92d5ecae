//! MNIST with dense layers. The data set is compiled into the library.
//!
//! `cargo run --release --example mnist_mlp -- [EPOCHS]`
//!
//! It prints a line per epoch: the test accuracy is more than 97 % after three.

use thalweg::prelude::*;
use thalweg::train::mnist;

const BATCH: usize = 64;

fn net(model: &mut Model, images: Output) -> Result<Output> {
    let x = Flatten.apply(model, images)?;
    let x = Dense::new(256).relu().apply(model, x)?;
    let x = Dropout::new(0.2).apply(model, x)?;
    Dense::new(mnist::CLASSES).apply(model, x)
}

fn main() -> Result<()> {
    let epochs: usize = std::env::args().nth(1).and_then(|n| n.parse().ok()).unwrap_or(3);
    let mut model = Model::new(thalweg::scope());
    let side = Some(mnist::SIDE);
    let images = model.input("images", DType::Float, &[None, side, side, Some(1)])?;
    let labels = model.input("labels", DType::Int64, &[None])?;
    let scores = net(&mut model, images)?;
    let loss = losses::softmax_cross_entropy(&mut model, scores, labels)?;
    let train = Optimizer::adam(1e-3).minimize(&mut model, loss)?;
    let init = model.init()?;
    // The same net with the same variables, as it is used: nothing is dropped.
    let scores = net(&mut model.inference(), images)?;
    let accuracy = metrics::accuracy(&mut model, scores, labels)?;
    let (loss, accuracy) = (model.name_of(loss), model.name_of(accuracy));
    let train = model.node_name(train);

    let session = thalweg::session(&model)?;
    session.run(&[], &[], &[&model.node_name(init)])?;
    let (mut digits, mut unseen) = (mnist::train()?, mnist::test()?);
    if cfg!(debug_assertions) {
        // A build for development is a hundred times slower: it takes a look.
        (digits, unseen) = (digits.first(384), unseen.first(100));
    }
    let mut order: Vec<usize> = (0..digits.len()).collect();
    let mut rng = Rng::new(1);
    let mut reached = 0.0;
    for epoch in 1..=epochs {
        rng.shuffle(&mut order);
        let mut sum = 0.0;
        for batch in order.chunks(BATCH) {
            let (images, labels) = digits.batch(batch)?;
            let feeds = [("images:0", images), ("labels:0", labels)];
            sum += session.run(&feeds, &[&loss], &[&train])?[0].scalar_value::<f32>()?;
        }
        let all: Vec<usize> = (0..unseen.len()).collect();
        let (images, labels) = unseen.batch(&all)?;
        let feeds = [("images:0", images), ("labels:0", labels)];
        reached = session.run(&feeds, &[&accuracy], &[])?[0].scalar_value::<f32>()?;
        let mean = sum / order.len().div_ceil(BATCH) as f32;
        println!("epoch {epoch}: loss {mean:.3}, {:.2} % of unseen digits read", 100.0 * reached);
    }
    let wanted = if cfg!(debug_assertions) { 0.4 } else { 0.97 };
    assert!(epochs < 3 || reached >= wanted, "it did not learn: {reached}");
    Ok(())
}
