//! MNIST with a convolutional network, and some misclassified images.
//!
//! `cargo run --release --example mnist_cnn -- [STEPS]`
//!
//! It prints the loss, then a test accuracy of more than 98.5 %, and draws some misclassified
//! images.

use thalweg::train::{
    BatchNorm, Conv2d, Dense, Flatten, Layer, MaxPool2d, Model, Rate, Rng, Sequential, losses,
    metrics, mnist,
};
use thalweg::{Adam, Result, feed};

fn main() -> Result<()> {
    // A build for development is a hundred times slower: it takes a look.
    let default = if cfg!(debug_assertions) { 5 } else { 1500 };
    let steps: usize = std::env::args().nth(1).and_then(|n| n.parse().ok()).unwrap_or(default);
    let net = Sequential::new()
        .then(Conv2d::new(16, [3, 3]).relu())
        .then(MaxPool2d::new(2))
        .then(Conv2d::new(32, [3, 3]).without_bias())
        .then(BatchNorm::new().momentum(0.9))
        .then(MaxPool2d::new(2))
        .then(Flatten)
        .then(Dense::new(64).relu())
        .then(Dense::new(mnist::CLASSES));
    let model = Model::new();
    let (images, labels) = mnist::inputs(&model);
    let loss = losses::softmax_cross_entropy(&net.apply(&model, &images), &labels);
    let train = Adam::new(Rate::cosine(2e-3, steps as f64)).minimize(&loss);
    let correct = metrics::correct(&net.apply(&model.inference(), &images), &labels);

    let session = model.session()?;
    let digits = mnist::train()?;
    let mut rng = Rng::new(1);
    let mut all: Vec<f32> = Vec::new();
    for step in 0..steps {
        let (pixels, classes) = digits.random_batch(&mut rng, 64)?;
        all.push(session.run(&loss, feed! { images: pixels, labels: classes }, &[&train])?);
        if step % 250 == 0 {
            println!("step {step}: loss {:.3}", all[step]);
        }
    }
    let unseen = mnist::test()?;
    let unseen = if cfg!(debug_assertions) { unseen.first(50) } else { unseen };
    let check = session.prepare((&images, &labels), &correct, &[])?;
    let mut wrong = Vec::new();
    for batch in (0..unseen.len()).collect::<Vec<_>>().chunks(500) {
        let correct: Vec<f32> = check.run(unseen.batch(batch)?)?;
        wrong.extend(batch.iter().zip(correct).filter(|(_, c)| *c == 0.0).map(|(i, _)| *i));
    }
    let accuracy = 1.0 - wrong.len() as f32 / unseen.len() as f32;
    println!("{:.2} % of {} unseen digits read", 100.0 * accuracy, unseen.len());
    if let Some(index) = wrong.first() {
        println!("this {} was not:\n{}", unseen.label(*index)?, unseen.drawing(*index)?);
    }
    assert!(steps < 2 || all[steps - 1] < all[0], "it learnt nothing");
    assert!(steps < 1500 || accuracy > 0.985, "it did not learn: {accuracy}");
    Ok(())
}
