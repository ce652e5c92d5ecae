//! MNIST with a convolutional network, and some misclassified images.
//!
//! `cargo run --release --example mnist_cnn -- [STEPS]`
//!
//! It prints the loss, then a test accuracy of more than 98.5 %, and draws some misclassified
//! images.

use thalweg::prelude::*;
use thalweg::train::mnist;

const BATCH: usize = 64;

fn net() -> Sequential {
    Sequential::new()
        .then(Conv::new(16, [3, 3]).relu())
        .then(MaxPool::new(2))
        .then(Conv::new(32, [3, 3]).without_bias())
        .then(BatchNorm::new().momentum(0.9))
        .then(MaxPool::new(2))
        .then(Flatten)
        .then(Dense::new(64).relu())
        .then(Dense::new(mnist::CLASSES))
}

fn main() -> Result<()> {
    // A build for development is a hundred times slower: it takes a look.
    let default = if cfg!(debug_assertions) { 5 } else { 1500 };
    let steps: usize = std::env::args().nth(1).and_then(|n| n.parse().ok()).unwrap_or(default);
    let mut model = Model::new(thalweg::scope());
    let side = Some(mnist::SIDE);
    let images = model.input("images", DType::Float, &[None, side, side, Some(1)])?;
    let labels = model.input("labels", DType::Int64, &[None])?;
    let scores = net().apply(&mut model, images)?;
    let loss = losses::softmax_cross_entropy(&mut model, scores, labels)?;
    let rate = Rate::Cosine { initial: 2e-3, steps: steps as f64, alpha: 0.0 };
    let train = Optimizer::adam(rate).minimize(&mut model, loss)?;
    let init = model.init()?;
    let scores = net().apply(&mut model.inference(), images)?;
    let right = metrics::is_right(&mut model, scores, labels)?;
    let (loss, right) = (model.name_of(loss), model.name_of(right));
    let train = model.node_name(train);

    let session = thalweg::session(&model)?;
    session.run(&[], &[], &[&model.node_name(init)])?;
    let digits = mnist::train()?;
    let mut rng = Rng::new(1);
    let mut all = Vec::new();
    for step in 0..steps {
        let batch: Vec<usize> = (0..BATCH).map(|_| rng.below(digits.len())).collect();
        let (images, labels) = digits.batch(&batch)?;
        let feeds = [("images:0", images), ("labels:0", labels)];
        all.push(session.run(&feeds, &[&loss], &[&train])?[0].scalar_value::<f32>()?);
        if step % 250 == 0 {
            println!("step {step}: loss {:.3}", all[step]);
        }
    }
    let unseen = mnist::test()?;
    let unseen = if cfg!(debug_assertions) { unseen.first(50) } else { unseen };
    let mut wrong = Vec::new();
    for first in (0..unseen.len()).step_by(500) {
        let batch: Vec<usize> = (first..(first + 500).min(unseen.len())).collect();
        let (images, labels) = unseen.batch(&batch)?;
        let feeds = [("images:0", images), ("labels:0", labels)];
        let right = session.run(&feeds, &[&right], &[])?;
        let right = right[0].as_slice::<f32>()?;
        wrong.extend(batch.into_iter().zip(right).filter(|(_, r)| **r == 0.0).map(|(i, _)| i));
    }
    let accuracy = 1.0 - wrong.len() as f32 / unseen.len() as f32;
    println!("{:.2} % of {} unseen digits read", 100.0 * accuracy, unseen.len());
    if let Some(index) = wrong.first() {
        println!("this {} was not:\n{}", unseen.label(*index)?, drawn(unseen.image(*index)?));
    }
    assert!(steps < 2 || all[steps - 1] < all[0], "it learnt nothing");
    assert!(steps < 1500 || accuracy > 0.985, "it did not learn: {accuracy}");
    Ok(())
}

/// An image in block characters, two rows of pixels per line.
fn drawn(image: &[u8]) -> String {
    let line = |rows: &[u8]| -> String {
        let (upper, lower) = rows.split_at(mnist::SIDE);
        let shade = |(a, b): (&u8, &u8)| [' ', '.', '+', '#'][usize::from(a.midpoint(*b)) / 64];
        upper.iter().zip(lower).map(shade).collect()
    };
    image.chunks(2 * mnist::SIDE).map(line).collect::<Vec<_>>().join("\n")
}
