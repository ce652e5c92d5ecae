//! A partitioned model: the weights are split and placed on two parameter servers by size.
//! Summaries are written for TensorBoard. The checkpoint holds each variable as a whole, so the model
//! is exported from it without partitioning.
//!
//! `cargo run --release --example sharded -- [FOLDER]`
//!
//! It prints how training goes, with the accuracy on unseen digits at its end: about 95 %, or 85 %
//! without `--release`, after one epoch; then how much each task holds (the servers about 300 kB each,
//! the workers nothing), the shapes in the checkpoint, and the folder of the exported model. Without a
//! folder nothing is left behind; with one, look at `tensorboard --logdir FOLDER/events`.

use std::sync::Arc;
use std::time::Duration;

use thalweg::cluster::grpc::{TaskReport, TaskState, status_of};
use thalweg::formats::checkpoint::BundleReader;
use thalweg::formats::{LocalStorage, Storage};
use thalweg::train::trainer::Every;
use thalweg::train::{
    Cluster, Dense, Flatten, Layer, Model, Net, Partitioner, Phase, Served, Spread, TrainOptions,
    Trainer, export, losses, metrics, mnist,
};
use thalweg::{Adam, Output, Result, tf};

/// The hidden layer and the logits.
fn scores(model: &Model, images: &Output<f32>) -> (Output<f32>, Output<f32>) {
    let hidden = Dense::new(64).relu().apply(model, &Flatten.apply(model, images));
    let logits = Dense::new(10).apply(model, &hidden);
    (hidden, logits)
}

fn net(model: &Model) -> Net {
    // Partitions of 64 KiB. Evaluation has whole variables: the checkpoint fits all the same.
    let cut = Partitioner::MaxBytes { bytes: 64 << 10, axis: 0, parts_max: None };
    let view = model.partitioned(cut);
    let model = if model.phase() == Phase::Training { &view } else { model };
    let (images, labels) = mnist::inputs(model);
    let (hidden, logits) = scores(model, &images);
    let loss = losses::softmax_cross_entropy(&logits, &labels);
    let accuracy = metrics::accuracy(&logits, &labels);
    model.histogram_summary("hidden", &hidden);
    model.scalar_summary("accuracy of a batch", &accuracy);
    model.image_summary("digits", &images, 3);
    model.text_summary("read as", &tf::as_string(logits.argmax(1)));
    Net::new((&images, &labels), &loss).metric("accuracy", accuracy)
}

fn served(model: &Model) -> Served {
    let (images, _) = mnist::inputs(model);
    Served::new().input("images", &images).output("logits", &scores(model, &images).1)
}

fn main() -> Result<()> {
    let given = std::env::args().nth(1);
    let temporary = std::env::temp_dir().join(format!("thalweg-sharded-{}", std::process::id()));
    let folder = given.clone().unwrap_or_else(|| temporary.display().to_string());
    // The largest variable goes to the server that has least.
    let cluster = Cluster::local(2, 2)?.spread(Spread::Greedy);
    let epochs = if cfg!(debug_assertions) { 1 } else { 5 };
    let options = TrainOptions { epochs, folder: folder.clone(), batch: 50, ..Default::default() };
    let options = TrainOptions { summary_steps: 20, ..options };
    let (digits, unseen) = (mnist::train()?.first(6000), mnist::test()?.first(1000));
    let trainer = Trainer::new(&cluster, options).evaluate(&unseen, Every::Epochs(5));
    let outcome = trainer.run(&digits, Adam::new(2e-3), net)?;
    for TaskReport { task, state, .. } in status_of(cluster.spec(), 0, Duration::from_secs(5))? {
        if let TaskState::Alive(status) = state {
            println!("{task} holds {} bytes of variables", status.variable_bytes);
        }
    }
    let storage: Arc<dyn Storage> = Arc::new(LocalStorage::default());
    let checkpoint = outcome.checkpoint.unwrap_or_default();
    for (name, entry) in BundleReader::open(&storage, &checkpoint)?.entries() {
        println!("saved {name} {}", entry.shape);
    }
    println!("exported {}", export(&checkpoint, &format!("{folder}/model"), served)?);
    if given.is_none() {
        let _ = std::fs::remove_dir_all(&folder);
    }
    Ok(())
}
