//! Where variables lie on a cluster, whole and in parts, and how parts are saved.
#![allow(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use thalweg_api::Output;
use thalweg_cluster::grpc::{TaskState, status_of};
use thalweg_formats::checkpoint::BundleReader;
use thalweg_formats::{LocalStorage, Storage};
use thalweg_runtime::{Session, SessionOptions};
use thalweg_tensor::{Shape, Tensor};
use thalweg_train::{
    Cluster, Conv2d, Dense, Embedding, Flatten, Initializer, Layer, LayerNorm, Lstm, Mode, Model,
    MovingAverage, Optimizer, Partitioner, RunSteps, Saver, Sequential, Spread, losses,
};

/// A folder of one test; gone when dropped.
struct Folder(PathBuf);

impl Folder {
    fn new(test: &str) -> Folder {
        let folder = std::env::temp_dir().join(format!("thalweg-{test}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&folder);
        std::fs::create_dir_all(&folder).unwrap();
        Folder(folder)
    }

    fn at(&self, name: &str) -> String {
        self.0.join(name).display().to_string()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn model() -> Model {
    Model::new()
}

fn session(model: &Model) -> Session {
    let kernels = thalweg_ops::kernel_registry(thalweg_ops::FAMILIES);
    Session::new(model.as_scope().to_graph(), kernels, SessionOptions::default()).unwrap()
}

fn reader(prefix: &str) -> BundleReader {
    let storage: Arc<dyn Storage> = Arc::new(LocalStorage::default());
    BundleReader::open(&storage, prefix).unwrap()
}

/// What a checkpoint has.
fn names(prefix: &str) -> Vec<String> {
    reader(prefix).names().map(str::to_owned).collect()
}

/// Variables and their bytes that each parameter server of a cluster has.
fn held(cluster: &Cluster) -> Vec<(u64, u64)> {
    let reports = status_of(cluster.spec(), 0, Duration::from_secs(10)).unwrap();
    let of_ps = reports.into_iter().filter(|report| report.task.job == "ps");
    let held = of_ps.map(|report| match report.state {
        TaskState::Alive(status) => (status.variables, status.variable_bytes),
        other => panic!("{}: {other:?}", report.task),
    });
    held.collect()
}

/// Variables of 400, 40, 40, 300 and 20 bytes, on a cluster of two parameter servers.
fn dealt(cluster: &Cluster) -> Vec<String> {
    let model = cluster.place(model(), 0).unwrap();
    for (name, size) in [("a", 100), ("b", 10), ("c", 10), ("d", 75), ("e", 5)] {
        model.parameter(name, &[size], &Initializer::Ones);
    }
    let init = model.init();
    let session = cluster.session(0, &model.as_scope().to_graph()).unwrap();
    session.run_step(&[], &[], &[&init.name().unwrap()]).unwrap();
    let device = |name: &str| {
        model
            .as_scope()
            .with_graph(|graph| graph.node(graph.find(name).unwrap()).device.to_string())
    };
    ["a", "b", "c", "d", "e"].map(device).to_vec()
}

#[test]
fn variables_are_spread_as_the_cluster_says() {
    let tasks = |devices: Vec<String>| -> Vec<String> {
        devices.iter().map(|device| device.replace("/job:ps/task:", "")).collect()
    };
    let cluster = Cluster::local(2, 1).unwrap();
    assert_eq!(tasks(dealt(&cluster)), ["0", "1", "0", "1", "0"]);
    assert_eq!(held(&cluster), [(3, 460), (2, 340)]);
    let cluster = Cluster::local(2, 1).unwrap().spread(Spread::Greedy);
    assert_eq!(tasks(dealt(&cluster)), ["0", "1", "1", "1", "1"]);
    assert_eq!(held(&cluster), [(1, 400), (4, 400)]);
    // Without parameter servers all of it is on the chief.
    let cluster = Cluster::local(0, 1).unwrap().spread(Spread::Greedy);
    assert_eq!(dealt(&cluster), ["/job:worker/task:0"; 5]);
}

const CUT: Partitioner = Partitioner::Fixed { parts: 3, axis: 0 };

/// Every kind of layer that learns, over words and pictures.
fn net(model: &Model) -> Output<f32> {
    let words = model.constant([[3i32, 0, 9], [4, 4, 7]]);
    let net = Sequential::new()
        .then(Embedding::new(10, 4))
        .then(Lstm::new(5))
        .then(LayerNorm::new())
        .then(Dense::new(16).l2(0.01))
        .then(|_: &Model, x: &Output<f32>| x.reshape([-1, 4, 4, 1]))
        .then(Conv2d::new(3, [3, 3]))
        .then(Flatten)
        .then(Dense::new(2));
    losses::mean_squared_error(&net.apply(model, &words), &model.constant(0.5))
}

/// A net that is trained and saved, with the step, the loss and the names of it all.
struct Trained {
    session: Session,
    saver: Saver,
    step: String,
    loss: String,
    init: String,
}

fn trained(partitioner: Option<Partitioner>) -> Trained {
    let mut model = Model::new();
    if let Some(partitioner) = partitioner {
        model = model.partitioned(partitioner);
    }
    let loss = net(&model);
    let step = Optimizer::adam(0.02).minimize(&loss);
    let trainable = model.trainable();
    let averages = MovingAverage::new(0.9).follow(&model, &trainable, &step);
    let init = model.init();
    let saver = Saver::of(&model).unwrap();
    Trained {
        session: session(&model),
        saver,
        step: averages.name().unwrap(),
        loss: loss.name().unwrap(),
        init: init.name().unwrap(),
    }
}

impl Trained {
    fn train(&self, steps: usize) -> Vec<f32> {
        let step = || self.session.run(&[], &[&self.loss], &[&self.step]).unwrap();
        (0..steps).map(|_| step()[0].scalar_value().unwrap()).collect()
    }
}

#[test]
fn a_checkpoint_fits_models_that_are_cut_otherwise() {
    let folder = Folder::new("parts-saved");
    let mut first = trained(None);
    first.session.run(&[], &[], &[&first.init]).unwrap();
    first.train(3);
    let whole = first.saver.save(&first.session, &folder.at("whole"), None).unwrap();
    let wanted = first.train(4);
    assert!(wanted[3] < wanted[0], "{wanted:?}");
    let by_bytes = Partitioner::MaxBytes { bytes: 100, axis: 1, parts_max: Some(4) };
    let mut last = whole.clone();
    // Slots and averages come along, so the next steps are the same, to rounding.
    for cut in [Some(CUT), Some(by_bytes), Some(Partitioner::Fixed { parts: 2, axis: 0 }), None] {
        let mut next = trained(cut);
        next.saver.restore(&next.session, &last).unwrap();
        last = next.saver.save(&next.session, &folder.at("next"), Some(1)).unwrap();
        let got = next.train(4);
        assert_eq!(got.len(), wanted.len());
        for (got, wanted) in got.into_iter().zip(&wanted) {
            assert!((got - wanted).abs() < 1e-5, "{cut:?}: {got} is not {wanted}");
        }
    }
    assert_eq!(names(&whole), names(&last));
}

#[test]
fn parts_are_slices_in_a_checkpoint() {
    let folder = Folder::new("parts-slices");
    let mut cut = trained(Some(CUT));
    cut.session.run(&[], &[], &[&cut.init]).unwrap();
    cut.train(1);
    let prefix = cut.saver.save(&cut.session, &folder.at("m"), None).unwrap();
    let reader = reader(&prefix);
    for name in ["dense/kernel", "dense/kernel/Adam_1", "dense/kernel/ExponentialMovingAverage"] {
        assert_eq!(reader.read(name).unwrap().shape().dims(), [5, 16], "{name}");
        assert!(reader.read(&format!("{name}/part_0")).is_err());
    }
    assert_eq!(reader.read("embedding/embeddings").unwrap().shape().dims(), [10, 4]);
    // An axis that is shorter than the number of parts is cut into as many as it has.
    assert_eq!(reader.read("conv2d/kernel").unwrap().shape().dims(), [3, 3, 1, 3]);
}

#[test]
fn parts_begin_as_a_whole_would() {
    let model = model().partitioned(CUT);
    let value = Initializer::Value((0..14u8).map(f32::from).collect());
    let parts = model.parameter_parts("value", &[7, 2], &value);
    let rotated = model.parameter_parts("rotated", &[6, 6], &Initializer::Orthogonal);
    let spread = model.parameter_parts("spread", &[300, 200], &Initializer::GlorotUniform);
    let shapes: Vec<_> = parts.parts.iter().map(|part| part.shape.dims().to_vec()).collect();
    assert_eq!(shapes, [[3, 2], [2, 2], [2, 2]]);
    let init = model.init();
    let fetches = [parts, rotated, spread].map(|whole| whole.read(&model).name().unwrap());
    let session = session(&model);
    session.run(&[], &[], &[&init.name().unwrap()]).unwrap();
    let found = session.run(&[], &fetches.each_ref().map(String::as_str), &[]).unwrap();
    assert_eq!(found[0].as_slice::<f32>().unwrap(), (0..14u8).map(f32::from).collect::<Vec<_>>());
    let rows: Vec<&[f32]> = found[1].as_slice::<f32>().unwrap().chunks_exact(6).collect();
    for (i, a) in rows.iter().enumerate() {
        for (j, b) in rows.iter().enumerate() {
            let product: f32 = a.iter().zip(*b).map(|(x, y)| x * y).sum();
            let wanted = f32::from(u8::from(i == j));
            assert!((product - wanted).abs() < 1e-5, "rows {i} and {j}: {product}");
        }
    }
    // Glorot's limit is that of 300 inputs, not of 100; no two parts have the same numbers.
    let numbers = found[2].as_slice::<f32>().unwrap();
    let limit = (6.0f32 / 500.0).sqrt();
    let most = numbers.iter().fold(0f32, |most, x| most.max(x.abs()));
    assert!(most <= limit && most > 0.99 * limit, "{most} of {limit}");
    assert_ne!(numbers[..10], numbers[20_000..20_010]);
}

#[test]
fn rows_are_found_in_their_parts() {
    for (partitioner, dims) in [
        (CUT, vec![10, 2]),
        (CUT, vec![10]),
        (Partitioner::Fixed { parts: 2, axis: 1 }, vec![10, 3]),
        (Partitioner::MaxBytes { bytes: 1, axis: 0, parts_max: None }, vec![10, 1, 2]),
    ] {
        let model = model().partitioned(partitioner);
        let count: usize = dims.iter().product();
        let first = Initializer::Value((0..count).map(|i| i as f32).collect());
        let table = model.parameter_parts("table", &dims, &first);
        assert!(table.parts.len() > 1);
        // The same parts, whoever asks.
        let again = model.inference().parameter_parts("table", &dims, &first);
        assert_eq!(again.parts.len(), table.parts.len());
        let ids = model.placeholder::<i64>("ids", [None, None]);
        let rows = table.gather(&model, &ids);
        let sum = rows.sum();
        let train = Optimizer::sgd(1.0).minimize(&sum);
        let init = model.init();
        let session = session(&model);
        session.run(&[], &[], &[&init.name().unwrap()]).unwrap();
        let asked = [9i64, 0, 3, 3, 4, 8];
        let shape = Shape::new(&[3, 2]).unwrap();
        let feed = [("ids:0", Tensor::from_slice(shape, &asked).unwrap())];
        let (rows, train) = (rows.name().unwrap(), train.name().unwrap());
        let found = session.run(&feed, &[&rows], &[]).unwrap();
        let width = count / 10;
        let row = |&id: &i64| (0..width).map(move |i| (id as usize * width + i) as f32);
        assert_eq!(found[0].shape().dims()[..2], [3, 2]);
        assert_eq!(found[0].shape().dims()[2..], dims[1..]);
        assert_eq!(
            found[0].as_slice::<f32>().unwrap(),
            asked.iter().flat_map(row).collect::<Vec<_>>()
        );
        // Each row goes down by how often it was asked for.
        session.run(&feed, &[], &[&train]).unwrap();
        let found = session.run(&feed, &[&rows], &[]).unwrap();
        let times = |id: i64| asked.iter().filter(|other| **other == id).count() as f32;
        let wanted = asked.iter().flat_map(|id| row(id).map(|x| x - times(*id)));
        assert_eq!(found[0].as_slice::<f32>().unwrap(), wanted.collect::<Vec<_>>());
        let beyond =
            [("ids:0", Tensor::from_slice(Shape::new(&[1, 1]).unwrap(), &[10i64]).unwrap())];
        assert!(session.run(&beyond, &[&rows], &[]).is_err());
    }
}

#[test]
fn a_variable_is_whole_or_in_parts() {
    let model = model();
    let cut = model.partitioned(CUT);
    model.parameter("whole", &[9], &Initializer::Zeros);
    assert_eq!(cut.parameter_parts("whole", &[9], &Initializer::Zeros).parts.len(), 1);
    assert_eq!(cut.parameter_parts("parts", &[9], &Initializer::Zeros).parts.len(), 3);
    model.check().unwrap();
    let _ = model.counter::<f32>("parts", &[9], &Initializer::Zeros);
    assert!(cut.parameter_parts("parts", &[8], &Initializer::Zeros).parts.is_empty());
    let mistakes = model.mistakes();
    assert_eq!(mistakes.len(), 2);
    assert!(mistakes[0].error.message().contains("already partitioned"), "{}", mistakes[0]);
    assert!(mistakes[1].error.message().contains("shape"), "{}", mistakes[1]);
}

/// Two workers train a net in parts over two parameter servers, in rounds; the parts and their slots
/// are where the graph says, and the checkpoint has no state of the run.
#[test]
fn parts_are_trained_on_a_cluster() {
    let folder = Folder::new("parts-cluster");
    let cluster = Cluster::local(2, 1).unwrap().spread(Spread::Greedy);
    let placed = cluster.place(Model::new(), 0).unwrap();
    let model = placed.partitioned(Partitioner::Fixed { parts: 4, axis: 0 });
    let x = model.placeholder::<f32>("x", [None, Some(64)]);
    let y = Dense::new(8).apply(&model, &x);
    let loss = losses::mean_squared_error(&y, &model.constant(1.0));
    let optimizer = Optimizer::momentum(0.05, 0.9);
    let mode = Mode::sync();
    let train = mode.minimize(&model, &optimizer, &loss, cluster.replica(0)).unwrap();
    let init = model.init();
    let mut saver = Saver::of(&model).unwrap();
    let session = Arc::new(cluster.session(0, &model.as_scope().to_graph()).unwrap());
    session.run(&[], &[], &[&init.name().unwrap()]).unwrap();
    let chief =
        thalweg_train::Chief::start(session.clone(), train.chief.as_ref().unwrap()).unwrap();
    session.run(&[], &[], &[train.start_worker.as_ref().unwrap()]).unwrap();
    let batch = Tensor::from_slice(Shape::new(&[2, 64]).unwrap(), &[0.1f32; 128]);
    let feeds = [("x:0", batch.unwrap())];
    let loss = loss.name().unwrap();
    let losses: Vec<f32> = (0..20)
        .map(|_| train.run(&*session, &feeds, &[&loss]).unwrap().0[0].scalar_value().unwrap())
        .collect();
    assert!(losses[19] < 0.5 * losses[0], "{losses:?}");
    chief.stop().unwrap();
    let prefix = saver.save(&*session, &folder.at("m"), None).unwrap();
    let model_only = [
        "dense/bias",
        "dense/bias/Momentum",
        "dense/kernel",
        "dense/kernel/Momentum",
        "global_step",
    ];
    assert_eq!(names(&prefix), model_only);
    assert_eq!(reader(&prefix).read("dense/kernel").unwrap().shape().dims(), [64, 8]);
    // Four parts of the kernel (512 bytes), four of the bias (8), and their slots.
    let bytes: Vec<u64> = held(&cluster).into_iter().map(|(_, bytes)| bytes).collect();
    assert!(bytes.iter().all(|bytes| (2080..2300).contains(bytes)), "{bytes:?}");
}
