//! Simulated training jobs beside real ones: tasks in this process, one worker slow.
#![allow(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]
#![allow(clippy::disallowed_methods, reason = "a real training has threads and time of its own")]

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use thalweg_sim::train::{NetDescription, Straggler, TrainJob};
use thalweg_tensor::{Result, Tensor};
use thalweg_train::{Chief, Cluster, Initializer, Mode, Model, Optimizer, losses};

const WORKERS: u32 = 4;
/// What a worker spends on a step, and by how much more the slow one does.
const PACE: Duration = Duration::from_millis(150);
const SLOWNESS: u32 = 4;
const SLOW: u32 = 2;
/// How long each training is measured.
const LENGTH: Duration = Duration::from_secs(5);

/// Updates per second of a real training with small variables, whose workers sleep.
fn real_rate(mode: Mode, slowness: u32) -> Result<f64> {
    let cluster = Cluster::local(2, WORKERS)?;
    let mut crew = Vec::new();
    for index in 0..WORKERS as usize {
        let model = cluster.place(Model::new(), index)?;
        let x = model.placeholder::<f32>("x", []);
        let w = model.parameter("w", &[], &Initializer::Zeros);
        let b = model.parameter("b", &[], &Initializer::Zeros);
        let loss = losses::mean_squared_error(&(w * &x + b), &x);
        let train = mode.minimize(&model, &Optimizer::sgd(0.01), &loss, cluster.replica(index))?;
        let (init, x) = (model.init().name()?, x.name()?);
        let session = Arc::new(cluster.session(index, &model.as_scope().to_graph())?);
        crew.push((session, train, init, x));
    }
    let (session, train, init, _) = &crew[0];
    session.run(&[], &[], &[init])?;
    let chief = train.chief.as_ref().map(|ops| Chief::start(session.clone(), ops)).transpose()?;
    for (session, train, ..) in &crew {
        if let Some(start) = &train.start_worker {
            session.run(&[], &[], &[start])?;
        }
    }
    let is_over = AtomicBool::new(false);
    std::thread::scope(|threads| -> Result<f64> {
        let mut running = Vec::new();
        for (i, (session, train, _, x)) in crew.iter().enumerate() {
            let is_over = &is_over;
            running.push(threads.spawn(move || -> Result<()> {
                let pace = PACE * if i as u32 == SLOW { slowness } else { 1 };
                while !is_over.load(Ordering::Relaxed) {
                    std::thread::sleep(pace);
                    train.run(&**session, &[(x, Tensor::scalar(1.0f32))], &[])?;
                }
                let leave = train.leave.as_deref();
                leave.map_or(Ok(()), |leave| session.run(&[], &[], &[leave]).map(|_| ()))
            }));
        }
        let updates =
            || -> Result<i64> { session.run(&[], &[&train.global_step], &[])?[0].scalar_value() };
        // The first steps make plans.
        std::thread::sleep(Duration::from_secs(1));
        let (first, begin) = (updates()?, Instant::now());
        std::thread::sleep(LENGTH);
        let rate = (updates()? - first) as f64 / begin.elapsed().as_secs_f64();
        is_over.store(true, Ordering::Relaxed);
        let stopped = chief.map_or(Ok(()), Chief::stop);
        running.into_iter().try_for_each(|worker| worker.join().unwrap())?;
        stopped.map(|()| rate)
    })
}

/// The same in virtual time.
fn simulated_rate(mode: Mode, slowness: u32) -> f64 {
    let mut job = TrainJob::new(WORKERS, 2, mode, NetDescription::dense(8, 2, 1e10, 1));
    job.worker.flops_per_second = 1e10 / PACE.as_secs_f64();
    let slow_workers = vec![(SLOW, f64::from(slowness))];
    job.straggler = Straggler { slow_workers, ..Straggler::default() };
    job.updates = if job.is_asynchronous() { 200 } else { 50 };
    job.run().unwrap().steps_per_second
}

/// What is left of the rate when one worker is slow. Rates themselves depend on how busy the machine is
/// that runs this test.
#[test]
#[ignore = "compares with the clock of a quiet machine"]
fn a_slow_worker_costs_what_it_costs_a_real_training() {
    for mode in [Mode::Async, Mode::sync(), Mode::Backup { spare: 1 }, Mode::Stale { bound: 3 }] {
        let [slow, healthy] = std::thread::scope(|threads| {
            [SLOWNESS, 1]
                .map(|slowness| threads.spawn(move || real_rate(mode, slowness)))
                .map(|thread| thread.join().unwrap().unwrap())
        });
        let real = slow / healthy;
        let simulated = simulated_rate(mode, SLOWNESS) / simulated_rate(mode, 1);
        println!(
            "{mode:?}: {real:.3} of {healthy:.2} per second is left, simulated {simulated:.3}"
        );
        let ratio = simulated / real;
        assert!((0.7..1.43).contains(&ratio), "{mode:?}: {real} real, {simulated} simulated");
    }
}
