//! Data-parallel training over two tasks: each worker has half of the digits, and both update the
//! variables on a parameter server, asynchronously.
//!
//! `cargo run --release --example data_parallel`
//!
//! It prints the mean loss of each worker's first and last ten batches. The tasks run in this
//! process; with `Cluster::connect("ps=host:port;worker=host:port,host:port")` they run elsewhere.

use thalweg::train::{Cluster, Dense, Flatten, Layer, Model, Sequential, losses, mnist};
use thalweg::{Adam, Result};

const BATCH: usize = 32;

fn main() -> Result<()> {
    let cluster = Cluster::local(1, 2)?;
    let digits = mnist::train()?.first(if cfg!(debug_assertions) { 1280 } else { 12_800 });
    let mut steps = Vec::new();
    for worker in 0..2 {
        // Both workers build the same graph; its variables have the same names, so they are shared.
        let model = cluster.place(Model::new(), worker)?;
        let (images, labels) = mnist::inputs(&model);
        let net = Sequential::new()
            .then(Flatten)
            .then(Dense::new(32).relu())
            .then(Dense::new(mnist::CLASSES));
        let loss = losses::softmax_cross_entropy(&net.apply(&model, &images), &labels);
        let train = Adam::new(1e-3).minimize(&loss);
        let session = model.session_on(&cluster.target(worker)?)?;
        steps.push(session.prepare((&images, &labels), &loss, &[&train])?);
    }
    let digits = &digits;
    std::thread::scope(|threads| {
        let mut workers = Vec::new();
        for (worker, step) in steps.iter().enumerate() {
            workers.push(threads.spawn(move || -> Result<()> {
                let mine: Vec<usize> = (worker..digits.len()).step_by(2).collect();
                let mut losses = Vec::new();
                for batch in mine.chunks(BATCH) {
                    losses.push(step.run::<f32>(digits.batch(batch)?)?);
                }
                let mean = |losses: &[f32]| losses.iter().sum::<f32>() / losses.len() as f32;
                let (first, last) = (mean(&losses[..10]), mean(&losses[losses.len() - 10..]));
                println!("worker {worker}: loss {first:.3}, then {last:.3}");
                assert!(last < first, "it learnt nothing");
                Ok(())
            }));
        }
        workers.into_iter().try_for_each(|worker| worker.join().expect("a worker panicked"))
    })
}
