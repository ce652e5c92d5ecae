//! Small nets that learn, and parts that must agree with each other.
#![allow(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

use thalweg_api::{Output, feed};
use thalweg_tensor::{Code, DType, Shape, Tensor};
use thalweg_train::{
    Accumulation, Adam, AveragePool2d, BatchNorm, Bidirectional, Clip, Conv1d, Conv2d,
    Conv2dTranspose, Dense, Dropout, Embedding, Flatten, GlobalAveragePool2d, GlobalMaxPool2d, Gru,
    Initializer, Layer, LayerNorm, LossScale, Lstm, MaxPool2d, Model, Momentum, MovingAverage,
    MultiHeadAttention, Optimizer, Padding, Placement, PositionEmbedding, Rate, Residual,
    Sequential, Sgd, losses, metrics,
};

/// Trains a classifier of sequences: does the first number of a row come again?
fn sequences(count: usize, length: usize) -> (Tensor, Tensor) {
    let mut state = 1u64;
    let mut next = |below: u64| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (state >> 33) % below
    };
    let mut rows = Vec::new();
    let mut labels = Vec::new();
    for _ in 0..count {
        let row: Vec<i64> = (0..length).map(|_| next(6) as i64).collect();
        labels.push(i64::from(row[1..].contains(&row[0])));
        rows.extend(row);
    }
    let shape = Shape::new(&[count, length]).unwrap();
    (Tensor::from_slice(shape, &rows).unwrap(), Tensor::vector(&labels).unwrap())
}

/// Loss before and after so many steps of a net over sequences of six words.
fn learn(net: &dyn Layer, optimizer: &Adam) -> (f32, f32) {
    let model = Model::new().seed(3);
    let x = model.placeholder::<i64>("x", [None, Some(6)]);
    let labels = model.placeholder::<i64>("labels", [None]);
    let train =
        optimizer.minimize(&losses::softmax_cross_entropy(&net.build(&model, &x.any()), &labels));
    let used = net.build(&model.inference(), &x.any());
    let loss = losses::softmax_cross_entropy(&used, &labels);
    let session = model.session().unwrap();
    let (rows, right) = sequences(64, 6);
    let feeds = feed! { x: rows, labels: right };
    let before = session.run(&loss, &feeds, &[]).unwrap();
    for _ in 0..60 {
        session.run((), &feeds, &[&train]).unwrap();
    }
    (before, session.run(&loss, &feeds, &[]).unwrap())
}

#[test]
fn nets_of_every_kind_learn() {
    let nets: [(&str, Sequential); 6] = [
        (
            "lstm",
            Sequential::new().then(Embedding::new(6, 8)).then(Lstm::new(16)).then(Dense::new(2)),
        ),
        (
            "gru",
            Sequential::new()
                .then(Embedding::new(6, 8))
                .then(Gru::new(16).return_sequences())
                .then(Gru::new(16))
                .then(Dense::new(2)),
        ),
        (
            "bidirectional",
            Sequential::new()
                .then(Embedding::new(6, 8))
                .then(Bidirectional(Lstm::new(8).return_sequences()))
                .then(Bidirectional(Gru::new(8)))
                .then(Dense::new(2)),
        ),
        (
            "transformer",
            Sequential::new()
                .then(Embedding::new(6, 16))
                .then(Residual(MultiHeadAttention::new(2)))
                .then(LayerNorm::new())
                .then(MultiHeadAttention::new(4).causal())
                .then(Flatten)
                .then(Dense::new(32).relu())
                .then(Dropout::new(0.1))
                .then(Dense::new(2)),
        ),
        (
            "convolution",
            Sequential::new()
                .then(Embedding::new(6, 8).shards(3))
                .then(|_: &Model, x: &Output<f32>| x.reshape([-1, 2, 3, 8]))
                .then(Conv2d::new(16, [2, 2]).without_bias())
                .then(BatchNorm::new().momentum(0.5))
                .then(|_: &Model, x: &Output<f32>| x.relu())
                .then(MaxPool2d::new(2).stride(1).padding(Padding::Same))
                .then(AveragePool2d::new(1))
                .then(Conv2dTranspose::new(8, [2, 2]).stride(2).relu())
                .then(GlobalAveragePool2d)
                .then(Dense::new(2).l2(1e-4)),
        ),
        (
            "1-D convolution",
            Sequential::new()
                .then(Embedding::new(6, 8))
                .then(Conv1d::new(24, 4).relu())
                .then(Flatten)
                .then(Dense::new(2)),
        ),
    ];
    for (name, net) in nets {
        let (before, after) = learn(&net, &Adam::new(0.02).clip(Clip::GlobalNorm(5.0)));
        assert!(after < before * 0.75, "{name}: the loss went from {before} to {after}");
    }
}

/// What a layer makes of this, with these values of its parameters.
fn applied(layer: &dyn Layer, x: &Tensor, weights: &[(&str, Vec<f32>)]) -> Tensor {
    let model = Model::new();
    let input = model.constant::<f32>(x.clone());
    let y = layer.build(&model, &input.any());
    let session = model.session().unwrap();
    for (name, values) in weights {
        let info = model.find_variable(name).unwrap();
        let value = Tensor::from_slice(info.shape.clone(), values).unwrap();
        let set = model.existing_variable::<f32>(Some(info)).assign(value);
        session.run((), (), &[&set]).unwrap();
    }
    session.run(&y, (), &[]).unwrap()
}

fn tensor(dims: &[usize], values: &[f32]) -> Tensor {
    Tensor::from_slice(Shape::new(dims).unwrap(), values).unwrap()
}

#[test]
fn convolutions_follow_their_formulas() {
    // A kernel of two time steps, one channel in, one filter: y[t] = 2 x[t] - x[t + 1] + 0.5.
    let x = tensor(&[1, 4, 1], &[1.0, 2.0, 4.0, 8.0]);
    let weights = [("conv1d/kernel", vec![2.0, -1.0]), ("conv1d/bias", vec![0.5])];
    let y = applied(&Conv1d::new(1, 2).padding(Padding::Valid), &x, &weights);
    assert_eq!(
        (y.shape().dims(), y.as_slice::<f32>().unwrap()),
        (&[1, 3, 1][..], &[0.5, 0.5, 0.5][..])
    );
    // Zeros follow the sequence.
    let y = applied(&Conv1d::new(1, 2).without_bias(), &x, &weights[..1]);
    assert_eq!(y.as_slice::<f32>().unwrap(), [0.0, 0.0, 0.0, 16.0]);

    // Each element is spread over a window, which do not overlap at stride 2.
    let x = tensor(&[1, 1, 2, 1], &[1.0, 10.0]);
    let weights = [("conv2d_transpose/kernel", vec![1.0, 2.0, 3.0, 4.0])];
    let layer = Conv2dTranspose::new(1, [2, 2]).stride(2).without_bias();
    let y = applied(&layer, &x, &weights);
    assert_eq!(y.shape().dims(), [1, 2, 4, 1]);
    assert_eq!(y.as_slice::<f32>().unwrap(), [1.0, 2.0, 10.0, 20.0, 3.0, 4.0, 30.0, 40.0]);
    // Windows that overlap add up; without padding there is more of it.
    let layer = Conv2dTranspose::new(1, [2, 2]).padding(Padding::Valid).without_bias();
    let y = applied(&layer, &x, &weights);
    assert_eq!(y.shape().dims(), [1, 2, 3, 1]);
    assert_eq!(y.as_slice::<f32>().unwrap(), [1.0, 12.0, 20.0, 3.0, 34.0, 40.0]);

    let images = tensor(&[1, 2, 2, 2], &[1.0, -1.0, 2.0, -2.0, 3.0, -3.0, 6.0, -4.0]);
    let mean = applied(&GlobalAveragePool2d, &images, &[]);
    assert_eq!(mean.as_slice::<f32>().unwrap(), [3.0, -2.5]);
    let max = applied(&GlobalMaxPool2d, &images, &[]);
    assert_eq!(max.as_slice::<f32>().unwrap(), [6.0, -1.0]);
}

/// Attention of two heads over three time steps against a plain computation.
#[test]
fn attention_follows_its_formula() {
    let value = |i: usize, seed: f32| (i as f32 * 0.61 + seed).sin();
    let x: Vec<f32> = (0..12).map(|i| value(i, 0.3)).collect();
    let names = ["", "_1", "_2", "_3"].map(|n| format!("attention/dense{n}/kernel"));
    let kernels: Vec<Vec<f32>> =
        (0..4).map(|n| (0..16).map(|i| value(i, n as f32)).collect()).collect();
    let weights: Vec<(&str, Vec<f32>)> =
        names.iter().map(String::as_str).zip(kernels.iter().cloned()).collect();
    let times = |rows: &[f32], kernel: &[f32]| -> Vec<f32> {
        let cell = |t: usize, j: usize| (0..4).map(|k| rows[4 * t + k] * kernel[4 * k + j]).sum();
        (0..12).map(|i| cell(i / 4, i % 4)).collect()
    };
    let [query, key, given] = [0, 1, 2].map(|n| times(&x, &kernels[n]));
    for is_causal in [false, true] {
        let mut mixed = vec![0f32; 12];
        for (head, t) in (0..2).flat_map(|head| (0..3).map(move |t| (head, t))) {
            let seen = if is_causal { t + 1 } else { 3 };
            let at = |of: &[f32], t: usize, k: usize| of[4 * t + 2 * head + k];
            let score = |u: usize| {
                let dot: f32 = (0..2).map(|k| at(&query, t, k) * at(&key, u, k)).sum();
                (dot / 2f32.sqrt()).exp()
            };
            let all: f32 = (0..seen).map(score).sum();
            for k in 0..2 {
                let sum: f32 = (0..seen).map(|u| score(u) / all * at(&given, u, k)).sum();
                mixed[4 * t + 2 * head + k] = sum;
            }
        }
        let wanted = times(&mixed, &kernels[3]);
        let layer = MultiHeadAttention::new(2);
        let layer = if is_causal { layer.causal() } else { layer };
        let got = applied(&layer, &tensor(&[1, 3, 4], &x), &weights);
        for (got, wanted) in got.as_slice::<f32>().unwrap().iter().zip(&wanted) {
            assert!((got - wanted).abs() < 1e-5, "causal {is_causal}: {got} is not {wanted}");
        }
    }
}

/// The backward layer of a bidirectional one sees the sequence from its end.
#[test]
fn a_bidirectional_layer_is_two_layers() {
    let x: Vec<f32> = (0..6).map(|i| (i as f32).sin()).collect();
    let back: Vec<f32> = x.chunks(2).rev().flatten().copied().collect();
    let weights = |prefix: &str, seed: usize| {
        let values = |count: usize| (0..count).map(|i| ((i + seed) as f32 * 0.7).cos()).collect();
        let names = ["lstm/kernel", "lstm/recurrent_kernel", "lstm/bias"];
        let sizes = [2 * 12, 3 * 12, 12];
        let named = names.map(|name| format!("{prefix}{name}"));
        named.into_iter().zip(sizes.map(values)).collect::<Vec<(String, Vec<f32>)>>()
    };
    let run = |layer: &dyn Layer, x: &[f32], weights: &[(String, Vec<f32>)]| {
        let weights: Vec<(&str, Vec<f32>)> =
            weights.iter().map(|(name, values)| (name.as_str(), values.clone())).collect();
        applied(layer, &tensor(&[1, 3, 2], x), &weights).as_slice::<f32>().unwrap().to_vec()
    };
    let lstm = || Lstm::new(3).return_sequences();
    let forward = run(&lstm(), &x, &weights("", 1));
    let backward = run(&lstm(), &back, &weights("", 9));
    let of_both = [weights("bidirectional/forward/", 1), weights("bidirectional/backward/", 9)];
    let both = run(&Bidirectional(lstm()), &x, &of_both.concat());
    let wanted: Vec<f32> = (0..3)
        .flat_map(|t| {
            [&forward[3 * t..3 * t + 3], &backward[3 * (2 - t)..3 * (2 - t) + 3]].concat()
        })
        .collect();
    assert_eq!(both, wanted);
}

#[test]
fn mixed_precision_is_close_to_full_precision() {
    let run = |dtype: Option<DType>| -> (Vec<f32>, Vec<f32>) {
        let model = Model::new().seed(4);
        let view = dtype.map_or_else(|| model.on(""), |dtype| model.mixed_precision(dtype));
        let x = model.placeholder::<f32>("x", [None, Some(4), Some(4), Some(2)]);
        let net =
            Sequential::new().then(Conv2d::new(3, [3, 3]).relu()).then(Flatten).then(Dense::new(2));
        let y = net.apply(&view, &x);
        let loss = y.square().mean();
        let train = Sgd::new(0.5).loss_scale(LossScale::Static(128.0)).minimize(&loss);
        let session = model.session().unwrap();
        let values: Vec<f32> = (0..64).map(|i| (i as f32 * 0.37).sin()).collect();
        let values = tensor(&[2, 4, 4, 2], &values);
        let before: Tensor = session.run(&y, feed! { x: values.clone() }, &[]).unwrap();
        for _ in 0..3 {
            session.run((), feed! { x: values.clone() }, &[&train]).unwrap();
        }
        let after: Tensor = session.run(&y, feed! { x: values }, &[]).unwrap();
        (before.as_slice().unwrap().to_vec(), after.as_slice().unwrap().to_vec())
    };
    let full = run(None);
    for (dtype, tolerance) in [(DType::Half, 5e-3), (DType::BFloat16, 5e-2)] {
        let mixed = run(Some(dtype));
        let far =
            |a: &[f32], b: &[f32]| a.iter().zip(b).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
        let gaps = [far(&full.0, &mixed.0), far(&full.1, &mixed.1)];
        // Not the same bits: it was computed in 16 of them.
        assert!(gaps[0] > 0.0 && gaps.iter().all(|gap| *gap < tolerance), "{dtype:?}: {gaps:?}");
    }
}

#[test]
fn a_table_in_parts_gives_the_rows_of_a_whole_one() {
    let model = Model::new();
    let x = model.placeholder::<i64>("ids", [None, None]);
    let layer = Embedding::new(5, 2).shards(2);
    let found = layer.apply(&model, &x);
    let table = layer.table(&model.inference());
    let session = model.session().unwrap();
    // Row i of the whole table is [i, i]: part 0 has rows 0, 2, 4, part 1 rows 1 and 3.
    let rows = [vec![[0.0f32; 2], [2.0; 2], [4.0; 2]], vec![[1.0; 2], [3.0; 2]]];
    for (rows, part) in rows.into_iter().zip(table.variables()) {
        let set = model.existing_variable::<f32>(Some(part.clone())).assign(rows);
        session.run((), (), &[&set]).unwrap();
    }
    let ids = [[4i64, 0, 3], [3, 1, 2]];
    let got: Vec<[[f32; 2]; 3]> = session.run(&found, feed! { x: ids }, &[]).unwrap();
    assert_eq!(got, ids.map(|row| row.map(|id| [id as f32; 2])));
}

#[test]
fn sampled_losses_go_down() {
    for kind in ["softmax", "nce"] {
        let model = Model::new();
        let words = model.placeholder::<i64>("words", [None]);
        let x = Embedding::new(50, 8).apply(&model, &words);
        let weights = Embedding::new(50, 8).shards(2).table(&model.layer("classes"));
        let biases = Embedding::new(50, 1).shards(2).table(&model.layer("biases"));
        let sampled = losses::Sampled { count: 10, classes: 50, removes_hits: true };
        let loss = match kind {
            "softmax" => losses::sampled_softmax::<i64>,
            _ => losses::nce,
        };
        let loss = loss(&model, (&weights, &biases), (&x, &words), sampled);
        let train = Adam::new(0.1).minimize(&loss);
        let session = model.session().unwrap();
        let feeds = feed! { words: (0..50).collect::<Vec<i64>>() };
        let before: f32 = session.run(&loss, &feeds, &[]).unwrap();
        for _ in 0..60 {
            session.run((), &feeds, &[&train]).unwrap();
        }
        let after: f32 = session.run(&loss, &feeds, &[]).unwrap();
        assert!(after < before * 0.5, "{kind}: the loss went from {before} to {after}");
    }
}

#[test]
fn positions_are_added() {
    let rows = tensor(&[2, 2, 2], &[0.0, 0.0, 1.0, 1.0, 2.0, 2.0, 3.0, 3.0]);
    let weights = [("positions/embeddings", vec![0.5, 0.25, -0.5, -0.25])];
    let y = applied(&PositionEmbedding, &rows, &weights);
    assert_eq!(y.as_slice::<f32>().unwrap(), [0.5, 0.25, 0.5, 0.75, 2.5, 2.25, 2.5, 2.75]);
}

#[test]
fn losses_follow_their_formulas() {
    let (a, b) = ([0.5f32, -2.0, 3.0, 0.25], [1.0f32, 1.0, -1.0, 0.5]);
    let mean = |formula: &dyn Fn(f64, f64) -> f64| {
        let each = a.iter().zip(&b).map(|(a, b)| formula(f64::from(*a), f64::from(*b)));
        each.sum::<f64>() / 4.0
    };
    type Loss = fn(&Output<f32>, &Output<f32>) -> Output<f32>;
    let cases: [(&str, Loss, f64); 8] = [
        ("squared", losses::mean_squared_error, mean(&|a, b| (a - b) * (a - b))),
        ("absolute", losses::mean_absolute_error, mean(&|a, b| (a - b).abs())),
        ("hinge", losses::hinge, mean(&|a, b| (1.0 - a * b).max(0.0))),
        ("squared hinge", losses::squared_hinge, mean(&|a, b| (1.0 - a * b).max(0.0).powi(2))),
        ("log-cosh", losses::log_cosh, mean(&|a, b| (a - b).cosh().ln())),
        (
            "huber",
            |a, b| losses::huber(a, b, 1.5),
            mean(&|a, b| match (a - b).abs() {
                gap if gap <= 1.5 => 0.5 * gap * gap,
                gap => 1.5 * (gap - 0.75),
            }),
        ),
        (
            "sigmoid",
            losses::sigmoid_cross_entropy,
            mean(&|a, b| {
                let p = 1.0 / (1.0 + (-a).exp());
                -b * p.ln() - (1.0 - b) * (1.0 - p).ln()
            }),
        ),
        ("l2", |a, _| losses::l2(a, 0.5), 0.5 * a.iter().map(|a| f64::from(a * a)).sum::<f64>()),
    ];
    for (name, loss, wanted) in cases {
        let model = Model::new();
        let loss = loss(&model.constant(a), &model.constant(b));
        let got: f32 = model.session().unwrap().run(&loss, (), &[]).unwrap();
        assert!((f64::from(got) - wanted).abs() < 1e-5, "{name}: {got} is not {wanted}");
    }
}

#[test]
fn losses_of_distributions_follow_their_formulas() {
    let (given, wanted) =
        ([[0.5f32, 0.25, 0.25], [0.1, 0.2, 0.7]], [[0.25f32, 0.5, 0.25], [0.0, 0.5, 0.5]]);
    let pairs = || given.iter().flatten().zip(wanted.iter().flatten());
    let divergence = pairs().filter(|(_, p)| **p > 0.0).map(|(q, p)| p * (p / q).ln());
    let poisson = pairs().map(|(q, p)| q - p * q.ln()).sum::<f32>() / 6.0;
    let dot = |a: &[f32; 3], b: &[f32; 3]| a.iter().zip(b).map(|(a, b)| a * b).sum::<f32>();
    let cosine = |i: usize| {
        dot(&given[i], &wanted[i])
            / (dot(&given[i], &given[i]) * dot(&wanted[i], &wanted[i])).sqrt()
    };
    // The given numbers as logits.
    let log_sum = |i: usize| given[i].iter().map(|x| x.exp()).sum::<f32>().ln();
    let cross = (0..2).map(|i| log_sum(i) - dot(&given[i], &wanted[i])).sum::<f32>() / 2.0;
    let sparse = (log_sum(0) - given[0][2] + log_sum(1) - given[1][0]) / 2.0;

    let model = Model::new();
    let (q, p) = (model.constant(given), model.constant(wanted));
    let all = [
        losses::kl_divergence(&q, &p),
        losses::poisson(&q, &p),
        losses::cosine_distance(&q, &p),
        losses::softmax_cross_entropy(&q, &p),
        losses::softmax_cross_entropy(&q, &model.constant([2i32, 0])),
        losses::softmax_cross_entropy(&q.reshape([1, 2, 3]), &model.constant([[2i64, 0]])),
    ];
    let got: Vec<f32> = model.session().unwrap().run(&all[..], (), &[]).unwrap();
    let wanted = [
        divergence.sum::<f32>() / 2.0,
        poisson,
        1.0 - (cosine(0) + cosine(1)) / 2.0,
        cross,
        sparse,
        sparse,
    ];
    for (got, wanted) in got.iter().zip(wanted) {
        assert!((got - wanted).abs() < 1e-5, "{got} is not {wanted}");
    }
}

#[test]
fn averages_metrics_and_limits() {
    let model = Model::new();
    let x = model.placeholder::<f32>("x", [None]);
    let weight = model.parameter("weight", &[], &Initializer::Ones);
    let loss = (&x * &weight).sum();
    // The gradient is the sum of x: 30, cut to 2. Step 0 of a warm-up has rate 0.
    let train = Sgd::new(Rate::from(0.5).warmup(1.0)).clip(Clip::Norm(2.0)).minimize(&loss);
    let average = MovingAverage::new(0.5);
    let follow = average.follow(&model, &model.trainable(), &train);
    let kept = model.value_of::<f32>("weight/ExponentialMovingAverage");
    let mean = metrics::StreamingMean::new(&model, "mean", &x);
    let session = model.session().unwrap();
    let numbers = || -> [f32; 3] { session.run([&weight, &kept, &mean.value], (), &[]).unwrap() };
    let feeds = feed! { x: [10.0, 20.0] };
    session.run((), &feeds, &[&follow]).unwrap();
    assert_eq!(numbers(), [1.0, 1.0, 0.0]);
    session.run((), &feeds, &[&follow]).unwrap();
    assert_eq!(numbers(), [0.0, 0.5, 0.0]);
    session.run((), &feeds, &[&mean.update]).unwrap();
    session.run((), feed! { x: [60.0] }, &[&mean.update]).unwrap();
    assert_eq!(numbers(), [0.0, 0.5, 30.0]);
    session.run((), (), &[&mean.reset]).unwrap();
    assert_eq!(numbers(), [0.0, 0.5, 0.0]);
}

#[test]
fn metrics_of_classes() {
    let model = Model::new();
    let logits =
        model.constant([[0.1f32, 0.7, 0.2], [0.5, 0.3, 0.2], [0.2, 0.3, 0.5], [0.6, 0.3, 0.1]]);
    let labels = model.constant([1i64, 1, 0, 0]);
    let all = [
        metrics::accuracy(&logits, &labels),
        metrics::top_k_accuracy(&logits, &labels, 2),
        metrics::accuracy(&logits.reshape([2, 2, 3]), &labels.reshape([2, 2])),
    ];
    let session = model.session().unwrap();
    assert_eq!(session.run::<_, Vec<f32>>(&all[..], (), &[]).unwrap(), [0.5, 0.75, 0.5]);
    let each: Vec<f32> = session.run(metrics::correct(&logits, &labels), (), &[]).unwrap();
    assert_eq!(each, [1.0, 0.0, 0.0, 1.0]);
}

#[test]
fn variables_are_placed_and_their_slots_beside_them() {
    let model = Model::new().place(Placement::RoundRobin { job: "ps".into(), tasks: 2 });
    let x = model.placeholder::<f32>("x", [None, Some(3)]);
    let loss = Dense::new(1).apply(&model, &x).mean();
    let _ = Momentum::new(0.1).minimize(&loss);
    model.check().unwrap();
    let device = |name: &str| model.find_variable(name).unwrap().device;
    assert_eq!(device("dense/kernel"), "/job:ps/task:0");
    assert_eq!(device("dense/bias"), "/job:ps/task:1");
    assert_eq!(device("dense/bias/Momentum"), "/job:ps/task:1");
    assert_eq!(device("global_step"), "/job:ps/task:0");
}

#[test]
fn mistakes_name_the_line_that_made_them() {
    let model = Model::new();
    let x = model.placeholder::<f32>("x", [None, None]);
    let known = model.placeholder::<f32>("known", [None, Some(3)]);
    let line = line!() + 1;
    let unknown = Dense::new(1).apply(&model, &x);
    let _ = Dropout::new(1.0).apply(&model, &x);
    let _ = Sequential::new().then(Flatten).then(MultiHeadAttention::new(2)).apply(&model, &known);
    let _ = losses::mean_squared_error(&known, &model.constant([1.0f32, 2.0]));
    let _ = BatchNorm::new().apply(&model, &known.reshape([-1, 1, 3]));
    let _ = Dense::new(1).apply(&model, &model.placeholder::<i64>("ids", [None, Some(3)]));
    let _ = Adam::new(0.1).minimize(&model.constant(1.0f32));
    // What needs a layer that could not be added causes no further mistake.
    let _ = losses::mean_squared_error(&Dense::new(2).apply(&model, &unknown), &known);
    let wanted = [
        "the last dimension of 'x:0' is not known",
        "the dropout rate must be in [0, 1), got 1",
        "3 features are not divisible by 2 attention heads",
        "[?,3]",
        "batch normalization needs an input of rank 2 or 4, got shape [?,1,3]",
        "'ids:0' holds int64, where float was expected",
        "depends on no trainable variable",
    ];
    let mistakes = model.mistakes();
    assert_eq!(mistakes.len(), wanted.len(), "{mistakes:#?}");
    for (i, (mistake, wanted)) in mistakes.iter().zip(wanted).enumerate() {
        let text = mistake.to_string();
        let at = format!("{}:{}: ", file!(), line + i as u32);
        assert!(text.starts_with(&at) && text.contains(wanted), "{text}\n{at}{wanted}");
    }
    assert_eq!(model.session().err().unwrap().code(), Code::InvalidArgument);
}

/// What a schedule gives at these steps.
fn rates(rate: &Rate, steps: &[i64]) -> Vec<f32> {
    let model = Model::new();
    let step = model.placeholder::<i64>("step", []);
    let value = rate.at(&model, &step);
    let session = model.session().unwrap();
    steps.iter().map(|at| session.run(&value, feed! { step: *at }, &[]).unwrap()).collect()
}

#[test]
fn schedules_follow_their_formulas() {
    let steps: Vec<i64> = (0..12).collect();
    let close = |rate: &Rate, formula: &dyn Fn(f64) -> f64| {
        for (step, found) in steps.iter().zip(rates(rate, &steps)) {
            let wanted = formula(*step as f64);
            assert!(
                (f64::from(found) - wanted).abs() < 1e-6,
                "{rate:?} at {step}: {found} {wanted}"
            );
        }
    };
    let cosine = |step: f64| 0.05 * (1.0 + (std::f64::consts::PI * (step / 10.0).min(1.0)).cos());
    close(&Rate::cosine(0.1, 10.0), &cosine);
    close(&Rate::cosine(0.1, 10.0).warmup(4.0), &|step| cosine(step) * (step / 4.0).min(1.0));
    close(&Rate::exponential(0.1, 4.0, 0.5), &|step| 0.1 * 0.5f64.powf(step / 4.0));
    close(&Rate::linear(0.1, 0.02, 8.0), &|step| 0.1 - 0.08 * (step / 8.0).min(1.0));
    close(&Rate::piecewise(&[2, 5], &[0.1, 0.01, 0.001]), &|step| {
        if step <= 2.0 {
            0.1
        } else if step <= 5.0 {
            0.01
        } else {
            0.001
        }
    });
    let inverse = Rate::InverseTime { initial: 0.1, steps: 3.0, decay: 0.5 };
    close(&inverse, &|step| 0.1 / (1.0 + 0.5 * step / 3.0));
    // PyTorch's OneCycleLR(max_lr=0.1, total_steps=11, pct_start=4/11).
    let anneal = |from: f64, to: f64, part: f64| {
        to + (from - to) / 2.0 * (1.0 + (std::f64::consts::PI * part).cos())
    };
    let cycle =
        Rate::OneCycle { initial: 0.004, max: 0.1, end: 4e-7, steps: 11.0, warmup: 4.0 / 11.0 };
    close(&cycle, &|step| match step {
        step if step <= 3.0 => anneal(0.004, 0.1, step / 3.0),
        step => anneal(0.1, 4e-7, ((step - 3.0) / 7.0).min(1.0)),
    });
    close(&Rate::from(0.3).adjustable(), &|_| 0.3);
}

/// `loss = mean(exp(w x))`, whose gradient is not finite for great `x`; after each step, with one
/// `x` each, the weight, the number of updates and the loss scale.
fn scaled_steps(scale: LossScale, xs: &[f32]) -> Vec<(f32, i64, f32)> {
    let model = Model::new();
    let x = model.placeholder::<f32>("x", [None]);
    let weight = model.parameter("weight", &[], &Initializer::Ones);
    let loss = (&x * &weight).exp().mean();
    let train = Momentum::new(0.1).coefficient(0.5).loss_scale(scale).minimize(&loss);
    let factor = match scale {
        LossScale::Static(_) => model.constant(0.0f32),
        LossScale::Dynamic { .. } => model.value_of("loss_scale"),
    };
    let updates = model.global_step();
    let session = model.session().unwrap();
    let steps = xs.iter().map(|value| {
        session.run((), feed! { x: [*value] }, &[&train]).unwrap();
        session.run((&weight, &updates, &factor), (), &[]).unwrap()
    });
    steps.collect()
}

#[test]
fn updates_with_gradients_that_are_not_finite_are_skipped() {
    // Plain momentum: v = v / 2 + x exp(w x), w -= v / 10.
    let (mut w, mut v) = (1.0f32, 0.0f32);
    let mut wanted = Vec::new();
    for x in [0.5f32, 200.0, 0.25, 0.5, 200.0] {
        if x < 100.0 {
            v = v / 2.0 + x * (w * x).exp();
            w -= v / 10.0;
        }
        wanted.push(w);
    }
    let xs = [0.5, 200.0, 0.25, 0.5, 200.0];
    let dynamic = LossScale::Dynamic { initial: 8.0, growth_steps: 2 };
    for scale in [LossScale::Static(8.0), dynamic] {
        let found = scaled_steps(scale, &xs);
        for ((weight, ..), wanted) in found.iter().zip(&wanted) {
            assert!((weight - wanted).abs() < 1e-6, "{scale:?}: {found:?} {wanted:?}");
        }
        // The momentum and the number of steps stay too.
        assert_eq!(found.iter().map(|step| step.1).collect::<Vec<_>>(), [1, 1, 2, 3, 3]);
        if scale == dynamic {
            // Halved by the skipped ones, doubled by two in a row.
            assert_eq!(found.iter().map(|step| step.2).collect::<Vec<_>>(), [8., 4., 4., 8., 4.]);
        }
    }
}

#[test]
fn accumulated_gradients_are_those_of_the_batch() {
    let x: Vec<[f32; 1]> = (0..7).map(|i| [0.3 * i as f32 - 1.0]).collect();
    let y: Vec<[f32; 1]> = x.iter().map(|[x]| [2.0 * x + 1.0]).collect();
    let trained = |parts: Option<[usize; 3]>| -> Vec<f32> {
        let model = Model::new();
        let input = model.placeholder::<f32>("x", [None, Some(1)]);
        let labels = model.placeholder::<f32>("y", [None, Some(1)]);
        let line = Dense::new(1).apply(&model, &input);
        let loss = losses::mean_squared_error(&line, &labels);
        let optimizer = Optimizer::adam(0.1);
        let gradients = optimizer.gradients(&model, &loss);
        let Accumulation { weight, first, add, gradients: sums } =
            Accumulation::new(&model, &gradients);
        let whole = optimizer.apply(&model, &gradients);
        let summed = optimizer.apply(&model, &sums);
        let kernel = model.value_of::<f32>("dense/kernel");
        let session = model.session().unwrap();
        let at = |range: std::ops::Range<usize>, target| {
            let part = range.len() as f32 / 7.0;
            let (x, y) = (&x[range.clone()], &y[range]);
            session.run((), feed! { input: x, labels: y, weight: part }, &[target]).unwrap();
        };
        let step = |_| {
            match parts {
                None => at(0..7, &whole),
                Some([a, b, c]) => {
                    at(0..a, &first);
                    at(a..a + b, &add);
                    at(a + b..a + b + c, &summed);
                }
            }
            let [[kernel]]: [[f32; 1]; 1] = session.run(&kernel, (), &[]).unwrap();
            kernel
        };
        (0..4).map(step).collect()
    };
    let (whole, parts) = (trained(None), trained(Some([3, 3, 1])));
    assert!(whole.iter().zip(&parts).all(|(a, b)| (a - b).abs() < 1e-5), "{whole:?} {parts:?}");
}
