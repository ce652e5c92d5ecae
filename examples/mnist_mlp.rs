//! MNIST with dense layers. The data set is compiled into the library.
//!
//! `cargo run --release --example mnist_mlp -- [EPOCHS]`
//!
//! It prints the progress, and the test accuracy after each epoch: more than 97 % after three.

use thalweg::train::trainer::Every;
use thalweg::train::{
    Cluster, Dense, Dropout, Flatten, Layer, Net, Sequential, TrainOptions, Trainer, losses,
    metrics, mnist,
};
use thalweg::{Adam, Result};

fn main() -> Result<()> {
    let epochs: u64 = std::env::args().nth(1).and_then(|n| n.parse().ok()).unwrap_or(3);
    // A build for development is a hundred times slower: it takes a look.
    let (count, tested) = if cfg!(debug_assertions) { (384, 100) } else { (60_000, 10_000) };
    // One worker in this process. `Cluster::connect("ps=host:port;worker=host:port,host:port")`
    // trains on other machines: the rest stays as it is.
    let cluster = Cluster::local(0, 1)?;
    let temporary = std::env::temp_dir().join(format!("thalweg-mlp-{}", std::process::id()));
    let folder = temporary.display().to_string();
    let options = TrainOptions { folder, epochs, batch: 64, ..Default::default() };
    let unseen = mnist::test()?.first(tested);
    let outcome = Trainer::new(&cluster, options).evaluate(&unseen, Every::Epochs(1)).run(
        &mnist::train()?.first(count),
        Adam::new(1e-3),
        |model| {
            let (images, labels) = mnist::inputs(model);
            let net = Sequential::new()
                .then(Flatten)
                .then(Dense::new(256).relu())
                .then(Dropout::new(0.2))
                .then(Dense::new(mnist::CLASSES));
            let logits = net.apply(model, &images);
            let loss = losses::softmax_cross_entropy(&logits, &labels);
            Net::new((&images, &labels), &loss)
                .metric("accuracy", metrics::accuracy(&logits, &labels))
        },
    )?;
    let reached = outcome.evaluations.last().and_then(|last| last.value("accuracy"));
    let wanted = if cfg!(debug_assertions) { 0.4 } else { 0.97 };
    assert!(epochs < 3 || reached >= Some(wanted), "it did not learn: {reached:?}");
    let _ = std::fs::remove_dir_all(temporary);
    Ok(())
}
