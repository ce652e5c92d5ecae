//! A net of one's own on a cluster: it learns which of three spirals a point lies on.
//!
//! `cargo run --release --example own_net -- [CLUSTER [FOLDER]]`
//!
//! CLUSTER says where tasks run, such as `ps=HOST:PORT;worker=HOST:PORT,HOST:PORT` or `@cluster.toml`;
//! without it they are threads of this process. It prints how training goes, then how many unseen
//! points the exported model gets right: more than 90 %. The book's tutorial explains it.

use thalweg::train::{
    Cluster, Dense, Layer, Model, Net, Rng, Samples, Served, TrainOptions, Trainer, export, losses,
    metrics,
};
use thalweg::{Adam, Output, Result, Shape, Tensor};

// ANCHOR: data
/// Points in the plane, with the spiral that each lies on.
struct Spirals {
    points: Vec<[f32; 2]>,
    labels: Vec<i64>,
}

impl Spirals {
    fn new(count: usize, seed: u64) -> Spirals {
        let mut rng = Rng::new(seed);
        let (mut points, mut labels) = (Vec::new(), Vec::new());
        for i in 0..count {
            let (spiral, distance) = (i % 3, rng.unit());
            let angle = 4.0 * distance + std::f32::consts::TAU / 3.0 * spiral as f32;
            points.push([distance * angle.cos(), distance * angle.sin()]);
            labels.push(spiral as i64);
        }
        Spirals { points, labels }
    }
}

impl Samples for Spirals {
    fn count(&self) -> usize {
        self.points.len()
    }

    fn batch(&self, indices: &[usize]) -> Result<Vec<Tensor>> {
        let points: Vec<f32> = indices.iter().flat_map(|&i| self.points[i]).collect();
        let labels: Vec<i64> = indices.iter().map(|&i| self.labels[i]).collect();
        let shape = Shape::new(&[indices.len(), 2])?;
        Ok(vec![Tensor::from_slice(shape, &points)?, Tensor::vector(&labels)?])
    }
}
// ANCHOR_END: data

// ANCHOR: net
/// A score for each spiral: three dense layers.
fn scores(model: &Model, points: &Output<f32>) -> Output<f32> {
    let x = Dense::new(32).relu().apply(model, points);
    let x = Dense::new(32).relu().apply(model, &x);
    Dense::new(3).apply(model, &x)
}

/// What is trained: the inputs that batches are fed to, the loss, and a metric to show.
fn net(model: &Model) -> Net {
    let points = model.placeholder::<f32>("points", [None, Some(2)]);
    let labels = model.placeholder::<i64>("labels", [None]);
    let scores = scores(model, &points);
    let loss = losses::softmax_cross_entropy(&scores, &labels);
    Net::new((&points, &labels), &loss).metric("accuracy", metrics::accuracy(&scores, &labels))
}

/// What is served: the same scores, from the same variables.
fn served(model: &Model) -> Served {
    let points = model.placeholder::<f32>("points", [None, Some(2)]);
    Served::new().input("points", &points).output("scores", &scores(model, &points))
}
// ANCHOR_END: net

// ANCHOR: main
fn main() -> Result<()> {
    let mut args = std::env::args().skip(1);
    let cluster = match args.next() {
        Some(tasks) => Cluster::connect(&tasks)?,
        None => Cluster::local(1, 2)?,
    };
    let temporary = std::env::temp_dir().join(format!("thalweg-own-net-{}", std::process::id()));
    let folder = args.next().unwrap_or_else(|| temporary.display().to_string());

    let options =
        TrainOptions { folder: folder.clone(), batch: 50, epochs: 20, ..TrainOptions::default() };
    let trainer = Trainer::new(&cluster, options);
    let outcome = trainer.run(&Spirals::new(3000, 1), Adam::new(0.01), net)?;
    println!("{} updates in {:?}", outcome.updates, outcome.took);

    let checkpoint = outcome.checkpoint.expect("this process runs the chief");
    let version = export(&checkpoint, &format!("{folder}/model"), served)?;
    let (model, unseen) = (thalweg::saved_model(&version)?, Spirals::new(300, 2));
    let points = unseen.batch(&(0..300).collect::<Vec<_>>())?.swap_remove(0);
    let scores = &model.run("serving_default", &[("points", points)])?["scores"];
    let best = |row: &[f32]| (0..3).max_by(|&a, &b| row[a].total_cmp(&row[b])).unwrap_or(0) as i64;
    let rows = scores.as_slice::<f32>()?.chunks(3);
    let right = rows.zip(&unseen.labels).filter(|(row, label)| best(row) == **label).count();
    println!("{version} gets {right} of 300 unseen points right");
    assert!(right > 270, "it did not learn");
    let _ = std::fs::remove_dir_all(temporary);
    Ok(())
}
// ANCHOR_END: main
