//! MNIST with dense layers. The data set is compiled into the library.
//!
//! `cargo run --release --example mnist_mlp -- [EPOCHS]`
//!
//! It prints a line per epoch: the test accuracy is more than 97 % after three.

use thalweg::train::{Dense, Dropout, Flatten, Layer, Phase, Rng, Sequential, mnist};
use thalweg::{Adam, Graph, Result, feed};

const BATCH: usize = 64;

fn main() -> Result<()> {
    let epochs: usize = std::env::args().nth(1).and_then(|n| n.parse().ok()).unwrap_or(3);
    let g = Graph::new();
    let side = Some(mnist::SIDE);
    let images = g.placeholder::<f32>("images", [None, side, side, Some(1)]);
    let labels = g.placeholder::<i64>("labels", [None]);
    let net = Sequential::new()
        .then(Flatten)
        .then(Dense::new(256).relu())
        .then(Dropout::new(0.2))
        .then(Dense::new(mnist::CLASSES));
    let loss = net.forward(Phase::Training, &images).softmax_cross_entropy(&labels).mean();
    let train = Adam::new(1e-3).minimize(&loss);
    // The same net with the same variables, as it is used: nothing is dropped.
    let guesses = net.forward(Phase::Inference, &images).argmax(1);
    let accuracy = guesses.equal(&labels).cast::<f32>().mean();

    let session = g.session()?;
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
            let (pixels, digits) = digits.batch(batch)?;
            let feeds = feed! { images: pixels, labels: digits };
            sum += session.run::<_, f32>(&loss, feeds, &[&train])?;
        }
        let (pixels, digits) = unseen.batch(&(0..unseen.len()).collect::<Vec<_>>())?;
        reached = session.run(&accuracy, feed! { images: pixels, labels: digits }, &[])?;
        let mean = sum / order.len().div_ceil(BATCH) as f32;
        println!("epoch {epoch}: loss {mean:.3}, {:.2} % of unseen digits read", 100.0 * reached);
    }
    let wanted = if cfg!(debug_assertions) { 0.4 } else { 0.97 };
    assert!(epochs < 3 || reached >= wanted, "it did not learn: {reached}");
    Ok(())
}
