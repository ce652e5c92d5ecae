//! The coordination modes, on clusters of this process.
#![allow(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]
#![allow(clippy::disallowed_methods, reason = "a test has threads and time of its own")]

use std::sync::{Arc, LazyLock};
use std::time::Duration;

use thalweg_api::{Output, Resource, tf};
use thalweg_cluster::grpc::{TaskState, status_of};
use thalweg_cluster::{RemoteSession, TaskName};
use thalweg_graph::{Endpoint, OpRegistry, Scope};
use thalweg_runtime::{Session, SessionOptions};
use thalweg_tensor::{Code, DType, Shape, Tensor};
use thalweg_train::{
    Activation, Chief, Clip, Cluster, Coordinated, Dense, Embedding, Initializer, Layer, Mode,
    Model, Optimizer, Order, Replica, Variable, losses, train_towers,
};

static OPS: LazyLock<Arc<OpRegistry>> =
    LazyLock::new(|| thalweg_ops::op_registry(thalweg_ops::FAMILIES).unwrap());

type Net = fn(&Model) -> Output<f32>;

/// One worker of a cluster: its graph's names and its session.
struct Worker {
    session: Arc<RemoteSession>,
    train: Coordinated,
    init: String,
    ready: String,
    /// Reads of the trainable variables.
    variables: Vec<String>,
    clocks: Option<String>,
}

impl Worker {
    fn new(cluster: &Cluster, index: usize, mode: Mode, optimizer: &Optimizer, net: Net) -> Worker {
        let model = cluster.place(Model::new().seed(5), index).unwrap();
        let loss = net(&model);
        let train = mode.minimize(&model, optimizer, &loss, cluster.replica(index)).unwrap();
        let init = model.init();
        let ready = model.ready();
        let variables = reads(&model);
        let clocks = model.as_scope().with_graph(|g| g.find("coordination/clocks"));
        let clocks = clocks.map(|node| {
            let handle = model.output::<Resource>(Endpoint { node, index: 0 });
            tf::read_variable_op::<i64>(handle).name().unwrap()
        });
        let session = Arc::new(cluster.session(index, &model.as_scope().to_graph()).unwrap());
        let (init, ready) = (init.name().unwrap(), ready.name().unwrap());
        Worker { session, train, init, ready, variables, clocks }
    }

    fn target(&self, target: &str) {
        self.session.run(&[], &[], &[target]).unwrap();
    }

    fn start(&self) {
        if let Some(start) = &self.train.start_worker {
            self.target(start);
        }
    }

    fn step(&self, feeds: &[(&str, Tensor)]) -> bool {
        self.train.run(&*self.session, feeds, &[]).unwrap().1
    }

    fn global_step(&self) -> i64 {
        let got = self.session.run(&[], &[&self.train.global_step], &[]).unwrap();
        got[0].scalar_value().unwrap()
    }

    fn values(&self) -> Vec<Vec<f32>> {
        let names: Vec<&str> = self.variables.iter().map(String::as_str).collect();
        let got = self.session.run(&[], &names, &[]).unwrap();
        floats(&got)
    }

    fn clocks(&self) -> Vec<i64> {
        let got = self.session.run(&[], &[self.clocks.as_ref().unwrap()], &[]).unwrap();
        got[0].as_slice::<i64>().unwrap().to_vec()
    }
}

/// Names of reads of the trainable variables.
fn reads(model: &Model) -> Vec<String> {
    let read = |variable: Variable| model.value_of::<f32>(&variable.name).name().unwrap();
    model.trainable().into_iter().map(read).collect()
}

/// A session of this process.
fn session(model: &Model) -> Session {
    let kernels = thalweg_ops::kernel_registry(thalweg_ops::FAMILIES);
    Session::new(model.as_scope().to_graph(), kernels, SessionOptions::default()).unwrap()
}

fn floats(tensors: &[Tensor]) -> Vec<Vec<f32>> {
    tensors.iter().map(|t| t.as_slice::<f32>().unwrap().to_vec()).collect()
}

/// All workers of a cluster, started.
fn workers(
    cluster: &Cluster,
    mode: Mode,
    optimizer: &Optimizer,
    net: Net,
) -> (Vec<Worker>, Option<Chief>) {
    let count = cluster.workers().len();
    let all: Vec<Worker> =
        (0..count).map(|i| Worker::new(cluster, i, mode, optimizer, net)).collect();
    all[0].target(&all[0].init);
    let chief = all[0].train.chief.as_ref();
    let chief = chief.map(|ops| Chief::start(all[0].session.clone(), ops).unwrap());
    let ready = all[0].session.run(&[], &[&all[0].ready], &[]).unwrap();
    assert!(ready[0].scalar_value::<bool>().unwrap());
    all.iter().for_each(Worker::start);
    (all, chief)
}

/// A net of two layers over four numbers.
fn regression(model: &Model) -> Output<f32> {
    let x = model.placeholder::<f32>("x", [None, Some(4)]);
    let y = model.placeholder("y", [None, Some(1)]);
    let hidden = Dense::new(8).activation(Activation::Tanh).apply(model, &x);
    losses::mean_squared_error(&Dense::new(1).apply(model, &hidden), &y)
}

/// Rows of numbers that look random; the same for the same seed.
fn numbers(seed: u64, count: usize) -> Vec<f32> {
    let mut state = seed.wrapping_mul(2).wrapping_add(1);
    let mut next = || {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        ((state >> 40) as f32 / (1 << 24) as f32) - 0.5
    };
    (0..count).map(|_| next()).collect()
}

fn batch(seed: u64, rows: usize) -> Vec<(&'static str, Tensor)> {
    let tensor = |seed, width| {
        let shape = Shape::new(&[rows, width]).unwrap();
        Tensor::from_slice(shape, &numbers(seed, rows * width)).unwrap()
    };
    vec![("x:0", tensor(seed, 4)), ("y:0", tensor(seed ^ 0xabcd, 1))]
}

/// Several batches as one.
fn joined(batches: &[Vec<(&'static str, Tensor)>]) -> Vec<(&'static str, Tensor)> {
    let one = |i: usize, width: usize| {
        let all: Vec<f32> =
            batches.iter().flat_map(|b| b[i].1.as_slice::<f32>().unwrap().to_vec()).collect();
        let shape = Shape::new(&[all.len() / width, width]).unwrap();
        (batches[0][i].0, Tensor::from_slice(shape, &all).unwrap())
    };
    vec![one(0, 4), one(1, 1)]
}

/// The variables after so many rounds, each worker with a batch of its own.
fn train_sync(workers_count: u32, mode: Mode, rounds: u64, optimizer: &Optimizer) -> Vec<Vec<f32>> {
    let cluster = Cluster::local(2, workers_count).unwrap();
    let (all, chief) = workers(&cluster, mode, optimizer, regression);
    std::thread::scope(|threads| {
        for (i, worker) in all.iter().enumerate() {
            threads.spawn(move || {
                for round in 0..rounds {
                    let seed = round * 100 + i as u64;
                    // Workers arrive in another order each time.
                    std::thread::sleep(Duration::from_millis((seed * 7) % 3));
                    assert!(worker.step(&batch(seed, 3)), "worker {i}, round {round}");
                }
            });
        }
    });
    assert_eq!(all[0].global_step(), rounds as i64);
    chief.unwrap().stop().unwrap();
    all[0].values()
}

fn close(a: &[Vec<f32>], b: &[Vec<f32>]) {
    let lengths = |of: &[Vec<f32>]| of.iter().map(Vec::len).collect::<Vec<_>>();
    assert_eq!(lengths(a), lengths(b));
    for (a, b) in a.iter().flatten().zip(b.iter().flatten()) {
        assert!((a - b).abs() <= 1e-5 * a.abs().max(1.0), "{a} and {b}");
    }
}

#[test]
fn synchronous_workers_are_one_with_a_greater_batch() {
    // The limit is low enough to count, and is on the mean.
    let optimizer = Optimizer::adam(0.05).clip(Clip::GlobalNorm(0.1));
    let mode = |order| Mode::Sync { order };
    let arrival = train_sync(3, mode(Order::Arrival), 6, &optimizer);
    let ordered = train_sync(3, mode(Order::Worker), 6, &optimizer);
    let again = train_sync(3, mode(Order::Worker), 6, &optimizer);
    assert_eq!(ordered, again, "bit for bit");
    close(&arrival, &ordered);
    let model = Model::new().seed(5);
    let loss = regression(&model);
    let step = optimizer.minimize(&loss);
    let init = model.init();
    let reads = reads(&model);
    let session = session(&model);
    session.run(&[], &[], &[&init.name().unwrap()]).unwrap();
    for round in 0..6u64 {
        let batches: Vec<_> = (0..3).map(|i| batch(round * 100 + i, 3)).collect();
        session.run(&joined(&batches), &[], &[&step.name().unwrap()]).unwrap();
    }
    let names: Vec<&str> = reads.iter().map(String::as_str).collect();
    let alone = floats(&session.run(&[], &names, &[]).unwrap());
    close(&alone, &ordered);
}

/// The mean of `w x` over a batch: its gradient by `w` is the batch's mean, whatever `w` is.
fn sums(model: &Model) -> Output<f32> {
    let x = model.placeholder::<f32>("x", [None]);
    let [w, v] = ["w", "v"].map(|name| model.parameter(name, &[], &Initializer::Zeros));
    ((w + v) * x).mean()
}

fn x(value: f32) -> [(&'static str, Tensor); 1] {
    [("x:0", Tensor::vector(&[value]).unwrap())]
}

#[test]
fn asynchronous_workers_add_up() {
    let cluster = Cluster::local(2, 3).unwrap();
    let (all, chief) = workers(&cluster, Mode::Async, &Optimizer::sgd(1.0).locking(), sums);
    assert!(chief.is_none());
    std::thread::scope(|threads| {
        for (i, worker) in all.iter().enumerate() {
            threads.spawn(move || {
                for _ in 0..20 {
                    assert!(worker.step(&x(-(i as f32) - 1.0)));
                }
            });
        }
    });
    assert_eq!(all[1].values(), [[120.0], [120.0]]);
    assert_eq!(all[2].global_step(), 60);
}

/// Workers 0 to 3 train so many rounds, the last one only now and then; what each of its gradients
/// came to. The sum of what was used is in the variables.
#[test]
fn spare_workers_drop_late_gradients_whole() {
    let cluster = Cluster::local(2, 3).unwrap();
    let mode = Mode::Backup { spare: 1 };
    let (all, chief) = workers(&cluster, mode, &Optimizer::sgd(1.0), sums);
    let counted = std::sync::Mutex::new((0f64, [0u32; 3], [0u32; 3]));
    let until = 30;
    std::thread::scope(|threads| {
        for (i, worker) in all.iter().enumerate() {
            let counted = &counted;
            threads.spawn(move || {
                while worker.global_step() < until {
                    if i == 2 {
                        std::thread::sleep(Duration::from_millis(20));
                    }
                    // Each worker's gradients are of another size.
                    let used = worker.step(&x(-(10f32.powi(i as i32))));
                    let mut counted = counted.lock().unwrap();
                    if used {
                        counted.0 += 10f64.powi(i as i32);
                        counted.1[i] += 1;
                    } else {
                        counted.2[i] += 1;
                    }
                }
            });
        }
        // Whoever waits when the others have ended is woken.
        threads.spawn(|| {
            while all[0].global_step() < until {
                std::thread::sleep(Duration::from_millis(5));
            }
            chief.unwrap().stop().unwrap();
        });
    });
    let (sum, used, dropped) = *counted.lock().unwrap();
    let rounds = all[0].global_step();
    assert!(dropped[2] > 0, "a slow worker comes too late: {used:?} {dropped:?}");
    assert!(used[0] + used[1] >= 50, "{used:?} {dropped:?}");
    let total: u32 = used.iter().sum();
    assert!(i64::from(total) >= 2 * rounds, "each round has two gradients: {used:?}, {rounds}");
    // Rounds are means of two gradients, or of three if all were in time; both variables saw the
    // same ones.
    let values = all[0].values();
    assert_eq!(values[0], values[1]);
    let exact = i64::from(total) == 2 * rounds;
    if exact {
        let expected = sum / 2.0;
        assert!((f64::from(values[0][0]) - expected).abs() < 1e-3, "{values:?}, {expected}");
    }
}

#[test]
fn staleness_keeps_its_bound() {
    let cluster = Cluster::local(1, 3).unwrap();
    let bound = 2;
    let (all, _) = workers(&cluster, Mode::Stale { bound }, &Optimizer::sgd(1.0).locking(), sums);
    let watch = Worker::new(&cluster, 0, Mode::Stale { bound }, &Optimizer::sgd(1.0), sums);
    let is_over = std::sync::atomic::AtomicBool::new(false);
    let most = std::thread::scope(|threads| {
        let watcher = threads.spawn(|| {
            let mut most = 0;
            while !is_over.load(std::sync::atomic::Ordering::Relaxed) {
                let clocks = watch.clocks();
                most = most.max(clocks.iter().max().unwrap() - clocks.iter().min().unwrap());
            }
            most
        });
        let steps: Vec<_> = all
            .iter()
            .enumerate()
            .map(|(i, worker)| {
                threads.spawn(move || {
                    for _ in 0..15 {
                        if i == 1 {
                            std::thread::sleep(Duration::from_millis(10));
                        }
                        worker.step(&x(-1.0));
                    }
                })
            })
            .collect();
        steps.into_iter().for_each(|thread| thread.join().unwrap());
        is_over.store(true, std::sync::atomic::Ordering::Relaxed);
        watcher.join().unwrap()
    });
    assert_eq!(all[0].clocks(), [15, 15, 15]);
    assert!((1..=bound as i64).contains(&most), "{most} steps apart");
    assert_eq!(all[0].values()[0], [45.0]);
    // Nobody waits for one that has left, and one that comes back is beside the last.
    all[1].target(all[1].train.leave.as_ref().unwrap());
    all[2].target(all[2].train.leave.as_ref().unwrap());
    (0..5).for_each(|_| _ = all[0].step(&x(-1.0)));
    all[1].start();
    assert_eq!(all[0].clocks()[..2], [20, 20]);
}

#[test]
fn clocks_go_on_after_a_loss() {
    let cluster = Cluster::local(1, 2).unwrap();
    let mode = Mode::Stale { bound: 1 };
    let optimizer = Optimizer::sgd(1.0).locking();
    let (mut all, _) = workers(&cluster, mode, &optimizer, sums);
    let (tasks, task) = (cluster.tasks_here().unwrap(), TaskName::new("worker", 1));
    for lost in 1..=2 {
        all[1] = std::thread::scope(|threads| {
            let worker = &all[0];
            let step = threads.spawn(move || worker.step(&x(-1.0)));
            std::thread::sleep(Duration::from_millis(50));
            tasks.crash(&task).unwrap();
            tasks.restart(&task).unwrap();
            assert!(!step.is_finished(), "it is one step ahead");
            let back = Worker::new(&cluster, 1, mode, &optimizer, sums);
            back.start();
            back.step(&x(-1.0));
            step.join().unwrap();
            back
        });
        assert_eq!(all[1].clocks(), [lost, lost]);
    }
    assert_eq!(all[0].values()[0], [4.0]);
    // The task that keeps the clocks says so.
    let reports = status_of(cluster.spec(), 0, Duration::from_secs(10)).unwrap();
    let clocks = reports.into_iter().find_map(|report| match report.state {
        TaskState::Alive(status) if !status.clocks.is_empty() => Some(status.clocks),
        _ => None,
    });
    assert_eq!(clocks, Some(vec![2, 2]));
}

/// Rows of a table, dense weights on them.
fn words(model: &Model) -> Output<f32> {
    let x = model.placeholder::<i64>("x", [None]);
    let y = model.placeholder("y", [None, Some(1)]);
    let rows = Embedding::new(7, 3).apply(model, &x);
    losses::mean_squared_error(&Dense::new(1).apply(model, &rows), &y)
}

fn word_batch(seed: u64) -> Vec<(&'static str, Tensor)> {
    let ids: Vec<i64> = numbers(seed, 4).iter().map(|n| ((n + 0.5) * 7.0) as i64).collect();
    let y = Tensor::from_slice(Shape::new(&[4, 1]).unwrap(), &numbers(seed + 9, 4)).unwrap();
    vec![("x:0", Tensor::vector(&ids).unwrap()), ("y:0", y)]
}

#[test]
fn gradients_of_rows_stay_rows() {
    let train = |mode: Mode| {
        let cluster = Cluster::local(2, 2).unwrap();
        let optimizer = Optimizer::momentum(0.1, 0.9);
        let (all, chief) = workers(&cluster, mode, &optimizer, words);
        std::thread::scope(|threads| {
            for (i, worker) in all.iter().enumerate() {
                threads.spawn(move || {
                    for round in 0..5 {
                        assert!(worker.step(&word_batch(round * 10 + i as u64)));
                    }
                });
            }
        });
        chief.unwrap().stop().unwrap();
        all[0].values()
    };
    let alone = {
        let model = Model::new().seed(5);
        let loss = words(&model);
        let step = Optimizer::momentum(0.1, 0.9).minimize(&loss);
        let init = model.init();
        let reads = reads(&model);
        let session = session(&model);
        session.run(&[], &[], &[&init.name().unwrap()]).unwrap();
        for round in 0..5 {
            let (a, b) = (word_batch(round * 10), word_batch(round * 10 + 1));
            let ids = [a[0].1.as_slice::<i64>().unwrap(), b[0].1.as_slice().unwrap()].concat();
            let y = [a[1].1.as_slice::<f32>().unwrap(), b[1].1.as_slice().unwrap()].concat();
            let y = Tensor::from_slice(Shape::new(&[8, 1]).unwrap(), &y).unwrap();
            let feeds = [("x:0", Tensor::vector(&ids).unwrap()), ("y:0", y)];
            session.run(&feeds, &[], &[&step.name().unwrap()]).unwrap();
        }
        let names: Vec<&str> = reads.iter().map(String::as_str).collect();
        floats(&session.run(&[], &names, &[]).unwrap())
    };
    let ordered = train(Mode::Sync { order: Order::Worker });
    close(&alone, &ordered);
    close(&alone, &train(Mode::sync()));
    assert_eq!(ordered, train(Mode::Sync { order: Order::Worker }));
}

/// A worker that is lost and comes back, and a chief that starts anew in the middle of a round.
#[test]
fn rounds_go_on_after_losses() {
    for mode in [Mode::sync(), Mode::Sync { order: Order::Worker }] {
        let cluster = Cluster::local(1, 2).unwrap();
        let (mut all, chief) = workers(&cluster, mode, &Optimizer::sgd(1.0), sums);
        let both = |all: &[Worker], expected: [bool; 2]| {
            let used = std::thread::scope(|threads| {
                let steps = [0, 1].map(|i| {
                    let worker = &all[i];
                    threads.spawn(move || worker.step(&x(-1.0)))
                });
                steps.map(|thread| thread.join().unwrap())
            });
            assert_eq!(used, expected, "{mode:?}");
        };
        (0..3).for_each(|_| both(&all, [true, true]));
        // Worker 1 is gone in the middle of a round.
        let tasks = cluster.tasks_here().unwrap();
        let task = TaskName::new("worker", 1);
        let waiting = std::thread::scope(|threads| {
            let worker = &all[0];
            let step = threads.spawn(move || worker.step(&x(-1.0)));
            std::thread::sleep(Duration::from_millis(50));
            tasks.crash(&task).unwrap();
            assert!(!step.is_finished());
            tasks.restart(&task).unwrap();
            let back = Worker::new(&cluster, 1, mode, &Optimizer::sgd(1.0), sums);
            back.start();
            assert!(back.step(&x(-1.0)));
            (step.join().unwrap(), back)
        });
        assert!(waiting.0);
        all[1] = waiting.1;
        both(&all, [true, true]);
        // The chief starts anew while a worker waits: the round is given up, and its gradient with it.
        let used = std::thread::scope(|threads| {
            let worker = &all[1];
            let step = threads.spawn(move || worker.step(&x(-1.0)));
            std::thread::sleep(Duration::from_millis(50));
            all[0].session.close().unwrap();
            assert!(chief.unwrap().stop().is_err());
            assert!(!step.is_finished());
            let back = Worker::new(&cluster, 0, mode, &Optimizer::sgd(1.0), sums);
            let ops = back.train.chief.as_ref().unwrap();
            let chief = Chief::start(back.session.clone(), ops).unwrap();
            back.start();
            (step.join().unwrap(), back, chief)
        });
        let (used, back, _chief) = used;
        assert!(!used);
        all[0] = back;
        (0..3).for_each(|_| both(&all, [true, true]));
        assert_eq!(all[0].global_step(), 8);
        assert_eq!(all[0].values(), [[8.0], [8.0]]);
    }
}

#[test]
fn one_graph_may_hold_all_workers() {
    let cluster = Cluster::local(1, 2).unwrap();
    let optimizer = Optimizer::sgd(0.5);
    let model = cluster.place(Model::new().seed(5), 0).unwrap();
    let mut towers = Vec::new();
    for (i, wanted) in [1.0f32, 3.0].into_iter().enumerate() {
        let tower = model.on(&cluster.device(i).unwrap());
        let w = tower.parameter("w", &[], &Initializer::Zeros);
        towers.push(losses::mean_squared_error(&w, &tower.constant(wanted)));
    }
    let step = train_towers(&model, &optimizer, &towers);
    let replica = |index| Replica { index, count: 2 };
    let apart: Vec<Coordinated> = (0..2)
        .map(|i| {
            let mode = Mode::Sync { order: Order::Worker };
            mode.minimize(&model, &optimizer, &towers[i], replica(i)).unwrap()
        })
        .collect();
    let init = model.init();
    let reads = reads(&model);
    let session = Arc::new(cluster.session(0, &model.as_scope().to_graph()).unwrap());
    session.run(&[], &[], &[&init.name().unwrap()]).unwrap();
    let value = || session.run(&[], &[&reads[0]], &[]).unwrap()[0].scalar_value::<f32>().unwrap();
    session.run(&[], &[], &[&step.name().unwrap()]).unwrap();
    assert_eq!(value(), 2.0);
    session.run(&[], &[], &[&init.name().unwrap()]).unwrap();
    let chief = Chief::start(session.clone(), apart[0].chief.as_ref().unwrap()).unwrap();
    std::thread::scope(|threads| {
        for worker in &apart {
            let session = &session;
            threads.spawn(move || {
                let start = worker.start_worker.as_ref().unwrap();
                session.run(&[], &[], &[start]).unwrap();
                assert!(worker.run(&**session, &[], &[]).unwrap().1);
            });
        }
    });
    assert_eq!(value(), 2.0);
    chief.stop().unwrap();
}

/// Whoever uses the names of `SyncReplicasOptimizer` finds the same accumulators.
#[test]
fn accumulators_have_tensorflows_names() {
    let cluster = Cluster::local(1, 2).unwrap();
    let (all, _chief) = workers(&cluster, Mode::sync(), &Optimizer::sgd(1.0), sums);
    let mut ps = Scope::new(OPS.clone()).on_device("/job:ps/task:0");
    let node = ps.op("ConditionalAccumulator").attr("dtype", DType::Float);
    let node = node.attr("shape", &Shape::scalar()).attr("shared_name", "w:0/grad_accum");
    let accumulator = node.build().unwrap();
    let count = ps.add("AccumulatorNumAccumulated", &[accumulator]).unwrap();
    let (session, count) = (cluster.session(1, &ps.to_graph()).unwrap(), ps.name_of(count));
    let count = || session.run(&[], &[&count], &[]).unwrap()[0].scalar_value::<i32>().unwrap();
    assert_eq!(count(), 0);
    std::thread::scope(|threads| {
        let step = threads.spawn(|| all[1].step(&x(-1.0)));
        let mut patience = 1000;
        while count() == 0 && patience > 0 {
            std::thread::sleep(Duration::from_millis(10));
            patience -= 1;
        }
        assert_eq!((count(), step.is_finished()), (1, false));
        assert!(all[0].step(&x(-1.0)));
        assert!(step.join().unwrap());
    });
    assert_eq!(count(), 0);
}

#[test]
fn towers_are_one_net_with_a_greater_batch() {
    let net = |model: &Model| -> (Output<f32>, [String; 2]) {
        let x = model.placeholder::<f32>("x", [None, Some(4)]);
        let y = model.placeholder("y", [None, Some(1)]);
        let hidden = Dense::new(8).activation(Activation::Tanh).l2(0.1).apply(model, &x);
        let loss = losses::mean_squared_error(&Dense::new(1).apply(model, &hidden), &y);
        (loss, [x.name().unwrap(), y.name().unwrap()])
    };
    let optimizer = Optimizer::momentum(0.1, 0.9);
    let cluster = Cluster::local(1, 2).unwrap();
    let model = cluster.place(Model::new().seed(5), 0).unwrap();
    let towers = [0, 1].map(|i| net(&model.tower(&cluster.device(i).unwrap())));
    let both = [towers[0].0.clone(), towers[1].0.clone()];
    let step = train_towers(&model, &optimizer, &both);
    assert_eq!(model.trainable().len(), 4);
    let init = model.init();
    let reads_there = reads(&model);
    let there = cluster.session(0, &model.as_scope().to_graph()).unwrap();
    there.run(&[], &[], &[&init.name().unwrap()]).unwrap();
    let alone = Model::new().seed(5);
    let alone_step = optimizer.minimize(&net(&alone).0);
    let alone_init = alone.init();
    let reads_here = reads(&alone);
    let here = session(&alone);
    here.run(&[], &[], &[&alone_init.name().unwrap()]).unwrap();
    for round in 0..4 {
        let batches = [batch(round * 2, 3), batch(round * 2 + 1, 3)];
        here.run(&joined(&batches), &[], &[&alone_step.name().unwrap()]).unwrap();
        let feeds = towers.iter().zip(&batches).flat_map(|((_, names), batch)| {
            names.iter().zip(batch).map(|(name, (_, value))| (name.as_str(), value.clone()))
        });
        let feeds: Vec<(&str, Tensor)> = feeds.collect();
        there.run(&feeds, &[], &[&step.name().unwrap()]).unwrap();
    }
    let of_here: Vec<&str> = reads_here.iter().map(String::as_str).collect();
    let of_there: Vec<&str> = reads_there.iter().map(String::as_str).collect();
    let got_here = floats(&here.run(&[], &of_here, &[]).unwrap());
    let got_there = floats(&there.run(&[], &of_there, &[]).unwrap());
    close(&got_here, &got_there);
}

#[test]
fn what_makes_no_sense_is_refused() {
    let model = Model::new();
    let loss = sums(&model);
    let refused = |mode: Mode, index, count| {
        let replica = Replica { index, count };
        let e = mode.minimize(&model, &Optimizer::sgd(1.0), &loss, replica).unwrap_err();
        assert_eq!(e.code(), Code::InvalidArgument, "{mode:?}");
    };
    refused(Mode::Async, 2, 2);
    refused(Mode::Backup { spare: 2 }, 0, 2);
    refused(Mode::Stale { bound: 0 }, 0, 2);
    assert!(Cluster::connect("ps=127.0.0.1:1").is_err());
    assert!(Cluster::connect("worker=127.0.0.1").is_err());
    let cluster = Cluster::connect("ps=127.0.0.1:1;chief=127.0.0.1:2;worker=127.0.0.1:3").unwrap();
    assert_eq!((cluster.ps().len(), cluster.workers().len()), (1, 2));
    assert_eq!(cluster.device(0).unwrap(), "/job:chief/task:0");
    assert_eq!(cluster.device(1).unwrap(), "/job:worker/task:0");
    assert!(cluster.device(2).is_err());
}
