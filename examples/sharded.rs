//! A partitioned model: the weights are split and placed on two parameter servers by size.
//! Summaries are written for TensorBoard, and the checkpoint holds each variable as a whole, so it
//! can be restored without partitioning.
//!
//! `cargo run --release --example sharded -- [FOLDER]`
//!
//! It prints how training goes, with the accuracy on unseen digits at its end: about 95 %, or 85 % in
//! a build without `--release`, which learns for one epoch only; then how much each task holds (the
//! servers about 300 kB each, the workers nothing) and the shapes that the checkpoint has. Without a
//! folder nothing is left behind; with one, look at `tensorboard --logdir FOLDER/events`.

use std::sync::Arc;
use std::time::Duration;

use thalweg::cluster::grpc::{TaskReport, TaskState, status_of};
use thalweg::formats::checkpoint::BundleReader;
use thalweg::formats::{LocalStorage, Storage};
use thalweg::train::trainer::Every;
use thalweg::train::{
    Cluster, Dense, Flatten, Layer, Model, Net, Partitioner, Phase, Spread, TrainOptions, Trainer,
    losses, metrics, mnist,
};
use thalweg::{Adam, Result, tf};

fn net(model: &Model) -> Net {
    // Partitions of 64 KiB. Evaluation has whole variables: the checkpoint fits all the same.
    let cut = Partitioner::MaxBytes { bytes: 64 << 10, axis: 0, parts_max: None };
    let view = model.partitioned(cut);
    let model = if model.phase() == Phase::Training { &view } else { model };
    let (images, labels) = mnist::inputs(model);
    let x = Dense::new(64).relu().apply(model, &Flatten.apply(model, &images));
    let logits = Dense::new(10).apply(model, &x);
    let loss = losses::softmax_cross_entropy(&logits, &labels);
    let accuracy = metrics::accuracy(&logits, &labels);
    model.histogram_summary("hidden", &x);
    model.scalar_summary("accuracy of a batch", &accuracy);
    model.image_summary("digits", &images, 3);
    model.text_summary("read as", &tf::as_string(logits.argmax(1)));
    Net::new((&images, &labels), &loss).metric("accuracy", accuracy)
}

fn main() -> Result<()> {
    let given = std::env::args().nth(1);
    let temporary = std::env::temp_dir().join(format!("thalweg-sharded-{}", std::process::id()));
    let folder = given.clone().unwrap_or_else(|| temporary.display().to_string());
    // The largest variable goes to the server that has least.
    let cluster = Cluster::local(2, 2)?.spread(Spread::Greedy);
    let epochs = if cfg!(debug_assertions) { 1 } else { 5 };
    let options = TrainOptions { epochs, folder: folder.clone(), batch: 50, ..Default::default() };
    let (digits, unseen) = (mnist::train()?.first(6000), mnist::test()?.first(1000));
    let outcome = Trainer::new(&cluster, options).evaluate(&unseen, Every::Epochs(5)).run(
        &digits,
        Adam::new(2e-3),
        net,
    )?;
    for TaskReport { task, state, .. } in status_of(cluster.spec(), 0, Duration::from_secs(5))? {
        if let TaskState::Alive(status) = state {
            println!("{task} holds {} bytes of variables", status.variable_bytes);
        }
    }
    let storage: Arc<dyn Storage> = Arc::new(LocalStorage::default());
    let checkpoint = BundleReader::open(&storage, &outcome.checkpoint.unwrap_or_default())?;
    for (name, entry) in checkpoint.entries() {
        println!("saved {name} {}", entry.shape);
    }
    if given.is_none() {
        let _ = std::fs::remove_dir_all(&folder);
    }
    Ok(())
}
