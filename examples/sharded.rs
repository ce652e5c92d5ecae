//! A partitioned model: the weights are split and placed on two parameter servers by size.
//! Summaries are written for TensorBoard, and the checkpoint holds each variable as a whole, so it
//! can be restored without partitioning.
//!
//! `cargo run --release --example sharded -- [FOLDER]`
//!
//! It prints how training goes, then how much each task holds (the servers about 300 kB each, the
//! workers nothing), the shapes that the checkpoint has, and the accuracy of the exported net: about
//! 95 %, or 85 % in a build without `--release`, which learns for one epoch only. Without a folder
//! nothing is left behind; with one, look at `tensorboard --logdir FOLDER/events`.

use std::sync::Arc;
use std::time::Duration;

use thalweg::cluster::grpc::{TaskReport, TaskState, status_of};
use thalweg::formats::checkpoint::BundleReader;
use thalweg::formats::{LocalStorage, Storage};
use thalweg::prelude::*;
use thalweg::train::{Partitioner, Served, Spread, export, mnist};

/// The maximum size of a partition in bytes.
const PART: usize = 64 << 10;

fn logits(model: &mut Model, images: Output) -> Result<Output> {
    let x = Flatten.apply(model, images)?;
    let x = Dense::new(64).relu().apply(model, x)?;
    model.histogram_summary("hidden", x)?;
    Dense::new(10).apply(model, x)
}

fn images(model: &mut Model) -> Result<Output> {
    model.input("images", DType::Float, &[None, Some(28), Some(28), Some(1)])
}

fn net(model: &mut Model) -> Result<Net> {
    let cut = Partitioner::MaxBytes { bytes: PART, axis: 0, parts_max: None };
    let mut model = model.partitioned(cut);
    let images = images(&mut model)?;
    let labels = model.input("labels", DType::Int64, &[None])?;
    let logits = logits(&mut model, images)?;
    let loss = losses::softmax_cross_entropy(&mut model, logits, labels)?;
    let accuracy = metrics::accuracy(&mut model, logits, labels)?;
    model.scalar_summary("accuracy of a batch", accuracy)?;
    model.image_summary("digits", images, 3)?;
    let axis = model.int(1)?;
    let read = model.add("ArgMax", &[logits, axis])?;
    let read = model.add("AsString", &[read])?;
    model.text_summary("read as", read)?;
    Ok(Net::new([images, labels], loss).metric("accuracy", accuracy))
}

fn served(model: &mut Model) -> Result<Served> {
    // Not cut: the checkpoint fits all the same.
    let images = images(model)?;
    let logits = logits(model, images)?;
    Ok(Served { inputs: vec![("images", images)], outputs: vec![("logits", logits)] })
}

fn accuracy(model: &SavedModel) -> Result<f32> {
    let digits = mnist::test()?.first(1000);
    let (images, labels) = digits.batch(&(0..digits.len()).collect::<Vec<_>>())?;
    let found = model.run("serving_default", &[("images", images)])?;
    let scores = found["logits"].as_slice::<f32>()?.chunks_exact(10);
    let best = |row: &[f32]| (0..10).max_by(|&a, &b| row[a].total_cmp(&row[b])).unwrap_or(0) as i64;
    let right = scores.zip(labels.as_slice::<i64>()?).filter(|(row, label)| best(row) == **label);
    Ok(right.count() as f32 / digits.len() as f32)
}

fn main() -> Result<()> {
    let given = std::env::args().nth(1);
    let temporary = std::env::temp_dir().join(format!("thalweg-sharded-{}", std::process::id()));
    let folder = given.clone().unwrap_or_else(|| temporary.display().to_string());
    // The largest variable goes to the server that has least.
    let cluster = Cluster::local(2, 2)?.spread(Spread::Greedy);
    let epochs = if cfg!(debug_assertions) { 1 } else { 5 };
    let options = TrainOptions { epochs, folder: folder.clone(), ..TrainOptions::default() };
    let options = TrainOptions { batch: 50, summary_steps: 20, ..options };
    let digits = mnist::train()?.first(6000);
    let outcome = Trainer::new(&cluster, options).run(&digits, &Optimizer::adam(2e-3), net)?;
    for TaskReport { task, state, .. } in status_of(cluster.spec(), 0, Duration::from_secs(5))? {
        if let TaskState::Alive(status) = state {
            println!("{task} holds {} bytes of variables", status.variable_bytes);
        }
    }
    let checkpoint = outcome.checkpoint.unwrap_or_default();
    let storage: Arc<dyn Storage> = Arc::new(LocalStorage::default());
    for (name, entry) in BundleReader::open(&storage, &checkpoint)?.entries() {
        println!("saved {name} {}", entry.shape);
    }
    let model = export(&checkpoint, &format!("{folder}/model"), served)?;
    println!("accuracy {:.3}", accuracy(&thalweg::saved_model(&model)?)?);
    if given.is_none() {
        let _ = std::fs::remove_dir_all(&folder);
    }
    Ok(())
}
