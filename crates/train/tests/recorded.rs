//! Optimizers, rates and layers beside what TensorFlow gives; `testdata/train/record.py` records it.
#![allow(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

use serde_json::Value;
use thalweg_api::{Any, Output, Resource, tf};
use thalweg_runtime::{Session, SessionOptions};
use thalweg_tensor::{Shape, Tensor};
use thalweg_train::{
    BatchNorm, Clip, Conv2d, Dense, Embedding, Gru, Initializer, Layer, LayerNorm, Lstm, Model,
    MovingAverage, Optimizer, Rate, Rule, Variable, losses,
};

fn recorded(kind: &str) -> serde_json::Map<String, Value> {
    let all: Value = serde_json::from_str(include_str!("recorded.json")).unwrap();
    all[kind].as_object().unwrap().clone()
}

fn model() -> Model {
    Model::new()
}

fn session(model: &Model) -> Session {
    let kernels = thalweg_ops::kernel_registry(thalweg_ops::FAMILIES);
    Session::new(model.as_scope().to_graph(), kernels, SessionOptions::default()).unwrap()
}

fn floats(value: &Value) -> Vec<f32> {
    value.as_array().unwrap().iter().map(|x| x.as_f64().unwrap() as f32).collect()
}

fn assert_close(name: &str, got: &[f32], wanted: &[f32]) {
    assert_eq!(got.len(), wanted.len(), "{name}");
    for (got, wanted) in got.iter().zip(wanted) {
        let gap = (got - wanted).abs();
        assert!(gap <= 1e-5 + 1e-5 * wanted.abs(), "{name}: {got} is not {wanted}");
    }
}

fn optimizers() -> Vec<(&'static str, Optimizer)> {
    let norms = (0.01, 0.02);
    let rms =
        |is_centered, momentum| Rule::RmsProp { decay: 0.9, momentum, epsilon: 1e-10, is_centered };
    let ftrl = |l2, shrinkage| Rule::Ftrl { initial: 0.1, l1: norms.0, l2, power: -0.5, shrinkage };
    vec![
        ("adagrad_da", Optimizer::new(Rule::AdagradDa { initial: 0.1, l1: 0.01, l2: 0.0 }, 0.1)),
        ("sgd", Optimizer::sgd(0.1)),
        ("momentum", Optimizer::momentum(0.1, 0.9)),
        ("nesterov", Optimizer::new(Rule::Momentum { momentum: 0.9, is_nesterov: true }, 0.1)),
        ("adagrad", Optimizer::adagrad(0.1)),
        ("adadelta", Optimizer::new(Rule::Adadelta { rho: 0.95, epsilon: 1e-8 }, 1.0)),
        ("rmsprop", Optimizer::new(rms(false, 0.5), 0.05)),
        ("rmsprop_centered", Optimizer::new(rms(true, 0.0), 0.05)),
        ("adam", Optimizer::adam(0.1)),
        ("adam_clipped", Optimizer::adam(0.1).clip(Clip::GlobalNorm(2.0))),
        ("ftrl", Optimizer::new(ftrl(norms.1, 0.0), 0.1)),
        ("ftrl_shrunk", Optimizer::new(ftrl(0.0, 0.03), 0.1)),
        ("proximal", Optimizer::new(Rule::Proximal { l1: norms.0, l2: norms.1 }, 0.1)),
        (
            "proximal_adagrad",
            Optimizer::new(Rule::ProximalAdagrad { initial: 0.1, l1: norms.0, l2: norms.1 }, 0.1),
        ),
    ]
}

/// The problem that the recording program sets: a dense vector, and some rows of a table.
fn problem(model: &Model) -> Output<f32> {
    let first = Initializer::Value(vec![1.0, -2.0, 3.0]);
    let vector = model.parameter("vector", &[3], &first);
    let table = Initializer::Value((0..8u8).map(f32::from).collect());
    let table = model.parameter_parts("table", &[4, 2], &table);
    let rows = table.gather(model, &model.constant([1i64, 3, 1]));
    vector.squared_difference([0.5, 0.25, 0.125]).sum() + rows.l2_loss()
}

#[test]
fn optimizers_move_as_tensorflows_do() {
    let recorded = recorded("optimizers");
    let ours = optimizers();
    assert_eq!(ours.len(), recorded.len(), "each that was recorded is looked at");
    for (name, optimizer) in ours {
        let model = model();
        let loss = problem(&model);
        let step = optimizer.minimize(&loss);
        let init = model.init();
        let (step, init) = (step.name().unwrap(), init.name().unwrap());
        let reads: Vec<(String, String)> = model
            .variables()
            .iter()
            .map(|variable| {
                let value = model.value_of::<Any>(&variable.name).cast::<f32>();
                (variable.name.clone(), value.name().unwrap())
            })
            .collect();
        let session = session(&model);
        session.run(&[], &[], &[&init]).unwrap();
        for _ in 0..5 {
            session.run(&[], &[], &[&step]).unwrap();
        }
        let wanted = recorded[name].as_object().unwrap();
        let mut names: Vec<&str> = reads.iter().map(|(name, _)| name.as_str()).collect();
        let mut theirs: Vec<&str> = wanted.keys().map(String::as_str).collect();
        names.sort_unstable();
        theirs.sort_unstable();
        assert_eq!(names, theirs, "{name}");
        for (variable, fetch) in reads {
            let got = session.run(&[], &[&fetch], &[]).unwrap();
            let got = got[0].as_slice::<f32>().unwrap();
            assert_close(&format!("{name}: {variable}"), got, &floats(&wanted[&variable]));
        }
    }
}

/// Those that TensorFlow has in Keras alone; it keeps slots under other names.
#[test]
fn optimizers_move_as_kerass_do() {
    let adamax = Rule::Adamax { beta1: 0.9, beta2: 0.999, epsilon: 1e-8 };
    let ours = [
        ("adamw", Optimizer::adamw(0.1, 0.02)),
        ("adamax", Optimizer::new(adamax, 0.1)),
        ("sgd_decay", Optimizer::sgd(0.1).weight_decay(0.02)),
    ];
    let recorded = recorded("keras_optimizers");
    assert_eq!(ours.len(), recorded.len());
    for (name, optimizer) in ours {
        let model = model();
        let loss = problem(&model);
        let step = optimizer.minimize(&loss);
        let init = model.init();
        let read = |name: &str| model.value_of::<f32>(name).name().unwrap();
        let reads = [read("vector"), read("table")];
        let session = session(&model);
        session.run(&[], &[], &[&init.name().unwrap()]).unwrap();
        for _ in 0..5 {
            session.run(&[], &[], &[&step.name().unwrap()]).unwrap();
        }
        for (variable, read) in ["vector", "table"].into_iter().zip(&reads) {
            let got = session.run(&[], &[read], &[]).unwrap();
            let got = got[0].as_slice::<f32>().unwrap();
            assert_close(&format!("{name}: {variable}"), got, &floats(&recorded[name][variable]));
        }
    }
}

#[test]
fn averages_follow_as_tensorflows_do() {
    let ours = [("plain", MovingAverage::new(0.8)), ("warming", MovingAverage::new(0.8).warming())];
    for (name, average) in ours {
        let case = &recorded("averages")[name];
        let model = model();
        let first = Initializer::Value(vec![1.0, -2.0, 3.0]);
        let vector = model.parameter("vector", &[3], &first);
        let loss = vector.squared_difference([0.5, 0.25, 0.125]).sum();
        let vector = model.find("vector").unwrap();
        let step = Optimizer::sgd(0.1).minimize(&loss);
        let follow = average.follow(&model, std::slice::from_ref(&vector), &step);
        let kept = average.of(&model, &vector).unwrap();
        assert_eq!(kept.name, case["name"].as_str().unwrap());
        let read = model.value_of::<f32>(&kept.name).name().unwrap();
        let init = model.init();
        let session = session(&model);
        session.run(&[], &[], &[&init.name().unwrap()]).unwrap();
        for wanted in case["values"].as_array().unwrap() {
            session.run(&[], &[], &[&follow.name().unwrap()]).unwrap();
            let got = session.run(&[], &[&read], &[]).unwrap();
            assert_close(name, got[0].as_slice::<f32>().unwrap(), &floats(wanted));
        }
    }
}

/// The same classes are drawn, from the same seeds, so the numbers are the same at every step.
#[test]
fn sampled_losses_are_tensorflows() {
    for kind in ["softmax", "nce"] {
        let case = &recorded("sampled")[kind];
        let model = Model::new().seed(7);
        let table = |name: &str, width| {
            let first = Initializer::Value(floats(&case["first"][name]));
            Embedding::new(20, width).initializer(first).table_named(&model, name)
        };
        let (weights, biases) = (table("weights", 4), table("biases", 1));
        let inputs = Tensor::from_slice(Shape::new(&[5, 4]).unwrap(), &floats(&case["inputs"]));
        let inputs = model.constant::<f32>(inputs.unwrap());
        let labels: Vec<i64> = floats(&case["labels"]).into_iter().map(|x| x as i64).collect();
        let labels = model.constant(labels);
        let sampled = losses::Sampled { count: 6, classes: 20, removes_hits: kind == "softmax" };
        let loss = match kind {
            "softmax" => losses::sampled_softmax::<i64>,
            _ => losses::nce,
        };
        let loss = loss(&model, (&weights, &biases), (&inputs, &labels), sampled);
        let step = Optimizer::sgd(0.5).minimize(&loss);
        let read = |variable: &Variable| model.value_of::<f32>(&variable.name).name().unwrap();
        let reads = [read(&weights.variables()[0]), read(&biases.variables()[0])];
        let (init, step) = (model.init(), step.name().unwrap());
        let loss = loss.name().unwrap();
        let session = session(&model);
        session.run(&[], &[], &[&init.name().unwrap()]).unwrap();
        let got: Vec<f32> = (0..5)
            .map(|_| session.run(&[], &[&loss], &[&step]).unwrap()[0].scalar_value().unwrap())
            .collect();
        assert_close(kind, &got, &floats(&case["losses"]));
        for (name, read) in ["weights", "biases"].into_iter().zip(&reads) {
            let got = session.run(&[], &[read], &[]).unwrap();
            let wanted = floats(&case["after"][name]);
            assert_close(&format!("{kind}: {name}"), got[0].as_slice::<f32>().unwrap(), &wanted);
        }
    }
}

#[test]
fn rates_fall_as_tensorflows_do() {
    let rates = [
        (
            "exponential",
            Rate::Exponential { initial: 0.1, steps: 10.0, decay: 0.5, is_staircase: false },
        ),
        (
            "staircase",
            Rate::Exponential { initial: 0.1, steps: 10.0, decay: 0.5, is_staircase: true },
        ),
        ("polynomial", Rate::Polynomial { initial: 0.1, end: 0.01, steps: 20.0, power: 2.0 }),
        ("cosine", Rate::Cosine { initial: 0.1, steps: 20.0, alpha: 0.1 }),
        ("piecewise", Rate::Piecewise { boundaries: vec![3, 11], values: vec![0.1, 0.05, 0.01] }),
    ];
    let recorded = recorded("rates");
    assert_eq!(rates.len(), recorded.len());
    for (name, rate) in rates {
        let model = model();
        let value = rate.at(&model, &model.placeholder("step", [])).name().unwrap();
        let session = session(&model);
        let at = |step: i64| {
            let got = session.run(&[("step:0", Tensor::scalar(step))], &[&value], &[]).unwrap();
            got[0].scalar_value::<f32>().unwrap()
        };
        let got: Vec<f32> = (0..26).map(at).collect();
        assert_close(name, &got, &floats(&recorded[name]));
    }
}

/// A layer, what its variables are called after, and the shape of what goes in.
type Case = (&'static str, Box<dyn Layer>, &'static str, Vec<usize>);

fn layers() -> Vec<Case> {
    vec![
        ("dense", Box::new(Dense::new(3).relu()), "dense", vec![2, 4]),
        ("dense_rows", Box::new(Dense::new(3)), "dense", vec![2, 2, 4]),
        ("conv", Box::new(Conv2d::new(2, [3, 2])), "conv2d", vec![1, 4, 4, 2]),
        ("lstm", Box::new(Lstm::new(3)), "lstm", vec![2, 4, 2]),
        ("lstm_sequence", Box::new(Lstm::new(3).return_sequences()), "lstm", vec![2, 4, 2]),
        ("gru", Box::new(Gru::new(3)), "gru", vec![2, 4, 2]),
        ("layer_norm", Box::new(LayerNorm::new()), "layer_normalization", vec![2, 4]),
        ("batch_norm", Box::new(BatchNorm::new()), "batch_normalization", vec![2, 3, 3, 2]),
    ]
}

#[test]
fn layers_give_what_kerass_do() {
    let recorded = recorded("layers");
    let ours = layers();
    assert_eq!(ours.len(), recorded.len());
    for (name, layer, prefix, dims) in ours {
        let case = &recorded[name];
        let model = Model::new().inference();
        // Sizes of the batch and of time are not known before.
        let known: Vec<Option<usize>> = match dims.len() {
            4 => dims.iter().map(|d| Some(*d)).collect(),
            rank => (0..rank).map(|i| (i + 1 == rank).then_some(dims[i])).collect(),
        };
        let x = model.placeholder::<f32>("x", &known[..]);
        let y = layer.build(&model, &x.any());
        let mut sets = Vec::new();
        for variable in model.variables() {
            let weight = variable.name.strip_prefix(prefix).unwrap().trim_start_matches('/');
            let value =
                Tensor::from_slice(variable.shape.clone(), &floats(&case["weights"][weight]));
            let handle = model.output::<Resource>(variable.handle);
            let set = tf::assign_variable_op::<f32>(handle, value.unwrap());
            sets.push(set.name().unwrap());
        }
        assert_eq!(sets.len(), case["weights"].as_object().unwrap().len(), "{name}");
        let (x, y) = (x.name().unwrap(), y.name().unwrap());
        let session = session(&model);
        let sets: Vec<&str> = sets.iter().map(String::as_str).collect();
        session.run(&[], &[], &sets).unwrap();
        let value = Tensor::from_slice(Shape::new(&dims).unwrap(), &floats(&case["x"])).unwrap();
        let got = session.run(&[(&x, value)], &[&y], &[]).unwrap();
        assert_close(name, got[0].as_slice::<f32>().unwrap(), &floats(&case["y"]));
    }
}
