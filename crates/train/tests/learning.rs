//! Small nets that learn, and parts that must agree with each other.
#![allow(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

use thalweg_graph::{NodeId, Output, Scope};
use thalweg_runtime::{Session, SessionOptions};
use thalweg_tensor::{Code, DType, Result, Shape, Tensor};
use thalweg_train::{
    Accumulation, Attention, AveragePool, BatchNorm, Clip, Conv, Dense, Dropout, Embedding,
    Flatten, Gru, Layer, LayerNorm, LossScale, Lstm, MaxPool, Model, MovingAverage, Optimizer,
    Padding, Placement, Rate, Sequential, global_average_pool, losses, metrics,
};

fn model() -> Model {
    Model::new(Scope::new(thalweg_ops::op_registry(thalweg_ops::FAMILIES).unwrap()))
}

/// A session, and the names that a test runs.
struct Run {
    session: Session,
}

impl Run {
    fn new(model: &Model) -> Run {
        let init = model.init().unwrap();
        let init = name(model, init);
        let kernels = thalweg_ops::kernel_registry(thalweg_ops::FAMILIES);
        let options = SessionOptions::default();
        let session = Session::new(model.to_graph(), kernels, options).unwrap();
        session.run(&[], &[], &[&init]).unwrap();
        Run { session }
    }

    fn scalar(&self, feeds: &[(&str, Tensor)], fetch: &str) -> f32 {
        self.session.run(feeds, &[fetch], &[]).unwrap()[0].scalar_value().unwrap()
    }
}

fn name(model: &Model, node: NodeId) -> String {
    model.with_graph(|graph| graph.node(node).name.to_string())
}

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
fn learn(net: impl Fn(&mut Model, Output) -> Result<Output>, optimizer: &Optimizer) -> (f32, f32) {
    let mut model = model().seed(3);
    let x = model.input("x", DType::Int64, &[None, Some(6)]).unwrap();
    let labels = model.input("labels", DType::Int64, &[None]).unwrap();
    let logits = net(&mut model, x).unwrap();
    let loss = losses::softmax_cross_entropy(&mut model, logits, labels).unwrap();
    let step = optimizer.minimize(&mut model, loss).unwrap();
    let used = net(&mut model.inference(), x).unwrap();
    let used = losses::softmax_cross_entropy(&mut model, used, labels).unwrap();
    let (step, used) = (name(&model, step), model.name_of(used));
    let run = Run::new(&model);
    let (rows, right) = sequences(64, 6);
    let feeds = [("x:0", rows), ("labels:0", right)];
    let before = run.scalar(&feeds, &used);
    for _ in 0..60 {
        run.session.run(&feeds, &[], &[&step]).unwrap();
    }
    (before, run.scalar(&feeds, &used))
}

#[test]
fn nets_of_every_kind_learn() {
    type Net = fn(&mut Model, Output) -> Result<Output>;
    let nets: [(&str, Net); 4] = [
        ("lstm", |model, x| {
            let x = Embedding::new(6, 8).apply(model, x)?;
            let x = Lstm::new(16).apply(model, x)?;
            Dense::new(2).apply(model, x)
        }),
        ("gru", |model, x| {
            let x = Embedding::new(6, 8).apply(model, x)?;
            let x = Gru::new(16).sequence().apply(model, x)?;
            let x = Gru::new(16).apply(model, x)?;
            Dense::new(2).apply(model, x)
        }),
        ("transformer", |model, x| {
            let x = Embedding::new(6, 16).apply(model, x)?;
            let mixed = Attention::new(2).apply(model, x)?;
            let x = model.add("AddV2", &[x, mixed])?;
            let x = LayerNorm::new().apply(model, x)?;
            let x = Attention::new(4).causal().apply(model, x)?;
            let x = Flatten.apply(model, x)?;
            let net = Sequential::new().then(Dense::new(32).relu()).then(Dropout::new(0.1));
            let x = net.apply(model, x)?;
            Dense::new(2).apply(model, x)
        }),
        ("convolution", |model, x| {
            let x = Embedding::new(6, 8).shards(3).apply(model, x)?;
            let shape = model.ints(&[-1, 2, 3, 8])?;
            let x = model.add("Reshape", &[x, shape])?;
            let x = Conv::new(16, [2, 2]).without_bias().apply(model, x)?;
            let x = BatchNorm::new().momentum(0.5).apply(model, x)?;
            let x = model.add("Relu", &[x])?;
            let x = MaxPool::new(2).stride(1).padding(Padding::Same).apply(model, x)?;
            let x = AveragePool::new(1).apply(model, x)?;
            let x = global_average_pool(model, x)?;
            Dense::new(2).l2(1e-4).apply(model, x)
        }),
    ];
    for (name, net) in nets {
        let (before, after) = learn(net, &Optimizer::adam(0.02).clip(Clip::GlobalNorm(5.0)));
        assert!(after < before * 0.75, "{name}: the loss went from {before} to {after}");
    }
}

#[test]
fn a_table_in_parts_gives_the_rows_of_a_whole_one() {
    let ids = Tensor::from_slice(Shape::new(&[2, 3]).unwrap(), &[4i64, 0, 3, 3, 1, 2]).unwrap();
    let mut model = model();
    let x = model.input("ids", DType::Int64, &[None, None]).unwrap();
    let layer = Embedding::new(5, 2).shards(2);
    let found = layer.apply(&mut model, x).unwrap();
    let tables = layer.tables(&model.inference().layer("embedding")).unwrap();
    // Row i of the whole table is [i, i]: part 0 has rows 0, 2, 4, part 1 rows 1 and 3.
    let sets: Vec<String> = [vec![0.0f32, 0.0, 2.0, 2.0, 4.0, 4.0], vec![1.0, 1.0, 3.0, 3.0]]
        .into_iter()
        .zip(&tables)
        .map(|(rows, table)| {
            let rows = Tensor::from_slice(table.shape.clone(), &rows).unwrap();
            let rows = model.constant(&rows).unwrap();
            let set = model.op("AssignVariableOp").inputs(&[table.handle, rows]).build_node();
            name(&model, set.unwrap())
        })
        .collect();
    let found = model.name_of(found);
    let run = Run::new(&model);
    run.session.run(&[], &[], &[&sets[0], &sets[1]]).unwrap();
    let got = run.session.run(&[("ids:0", ids)], &[&found], &[]).unwrap();
    assert_eq!(got[0].shape().dims(), [2, 3, 2]);
    let wanted = [4.0f32, 4.0, 0.0, 0.0, 3.0, 3.0, 3.0, 3.0, 1.0, 1.0, 2.0, 2.0];
    assert_eq!(got[0].as_slice::<f32>().unwrap(), wanted);
}

#[test]
fn sampled_losses_go_down() {
    type Loss = fn(&mut Model, Output, Output) -> Result<Output>;
    fn tables(model: &mut Model) -> Result<[Vec<thalweg_train::Variable>; 2]> {
        let weights = Embedding::new(50, 8).shards(2).tables(&model.layer("classes"))?;
        let biases = Embedding::new(50, 1).shards(2).tables(&model.layer("biases"))?;
        Ok([weights, biases])
    }
    const SAMPLED: losses::Sampled = losses::Sampled { count: 10, classes: 50, removes_hits: true };
    let losses: [(&str, Loss); 2] = [
        ("softmax", |model, x, labels| {
            let [weights, biases] = tables(model)?;
            losses::sampled_softmax(model, &weights, &biases, x, labels, SAMPLED)
        }),
        ("nce", |model, x, labels| {
            let [weights, biases] = tables(model)?;
            losses::nce(model, &weights, &biases, x, labels, SAMPLED)
        }),
    ];
    for (kind, build) in losses {
        let mut model = model();
        let words = model.input("words", DType::Int64, &[None]).unwrap();
        let x = Embedding::new(50, 8).apply(&mut model, words).unwrap();
        let loss = build(&mut model, x, words).unwrap();
        let step = Optimizer::adam(0.1).minimize(&mut model, loss).unwrap();
        let (step, loss) = (name(&model, step), model.name_of(loss));
        let run = Run::new(&model);
        let words = Tensor::vector(&(0..50).collect::<Vec<i64>>()).unwrap();
        let feeds = [("words:0", words)];
        let before = run.scalar(&feeds, &loss);
        for _ in 0..60 {
            run.session.run(&feeds, &[], &[&step]).unwrap();
        }
        let after = run.scalar(&feeds, &loss);
        assert!(after < before * 0.5, "{kind}: the loss went from {before} to {after}");
    }
}

#[test]
fn averages_metrics_and_limits() {
    let mut model = model();
    let x = model.input("x", DType::Float, &[None]).unwrap();
    let weight = model.variable("weight", &[], &thalweg_train::Initializer::Ones).unwrap();
    let value = weight.read(&mut model).unwrap();
    let product = model.add("Mul", &[x, value]).unwrap();
    let loss = losses::sum(&mut model, product).unwrap();
    // The gradient is the sum of x: 30, cut to 2.
    let optimizer = Optimizer::sgd(Rate::Warmup { steps: 1.0, then: Box::new(0.5.into()) });
    let step = optimizer.clip(Clip::Norm(2.0)).minimize(&mut model, loss).unwrap();
    let average = MovingAverage::new(0.5);
    let follow = average.update(&mut model, std::slice::from_ref(&weight), &[step]).unwrap();
    let kept = average.of(&model, &weight).unwrap().read(&mut model).unwrap();
    let mean = metrics::StreamingMean::new(&mut model, "mean", x).unwrap();
    let names = [name(&model, follow), name(&model, mean.update), name(&model, mean.reset)];
    let [follow, update, reset] = names;
    let (value, kept, mean) =
        (model.name_of(value), model.name_of(kept), model.name_of(mean.value));
    let run = Run::new(&model);
    let feeds = [("x:0", Tensor::vector(&[10.0f32, 20.0]).unwrap())];
    run.session.run(&feeds, &[], &[&follow]).unwrap();
    // Step 0 of a warm-up has rate 0.
    assert_eq!(run.scalar(&[], &value), 1.0);
    run.session.run(&feeds, &[], &[&follow]).unwrap();
    assert_eq!(run.scalar(&[], &value), 0.0);
    assert_eq!(run.scalar(&[], &kept), 0.5);
    assert_eq!(run.scalar(&[], &mean), 0.0);
    run.session.run(&feeds, &[], &[&update]).unwrap();
    let more = [("x:0", Tensor::vector(&[60.0f32]).unwrap())];
    run.session.run(&more, &[], &[&update]).unwrap();
    assert_eq!(run.scalar(&[], &mean), 30.0);
    run.session.run(&[], &[], &[&reset]).unwrap();
    assert_eq!(run.scalar(&[], &mean), 0.0);
}

#[test]
fn variables_are_placed_and_their_slots_beside_them() {
    let mut model = model().place(Placement::RoundRobin { job: "ps".into(), tasks: 2 });
    let x = model.input("x", DType::Float, &[None, Some(3)]).unwrap();
    let y = Dense::new(1).apply(&mut model, x).unwrap();
    let loss = losses::mean(&mut model, y).unwrap();
    Optimizer::momentum(0.1, 0.9).minimize(&mut model, loss).unwrap();
    let device = |name: &str| model.find(name).unwrap().device;
    assert_eq!(device("dense/kernel"), "/job:ps/task:0");
    assert_eq!(device("dense/bias"), "/job:ps/task:1");
    assert_eq!(device("dense/bias/Momentum"), "/job:ps/task:1");
    assert_eq!(device("global_step"), "/job:ps/task:0");
}

#[test]
fn mistakes_are_named() {
    let mut model = model();
    let x = model.input("x", DType::Float, &[None, None]).unwrap();
    let error = Dense::new(1).apply(&mut model, x).unwrap_err();
    assert_eq!(error.code(), Code::InvalidArgument);
    assert!(error.message().contains("last dimension of 'x:0'"), "{error}");
    let error = Dropout::new(1.0).apply(&mut model, x).unwrap_err();
    assert!(error.message().contains("dropout rate"), "{error}");
    model.variable("v", &[2], &thalweg_train::Initializer::Zeros).unwrap();
    let error = model.variable("v", &[3], &thalweg_train::Initializer::Zeros).unwrap_err();
    assert!(error.message().contains("variable 'v'"), "{error}");
    let free = model.float(1.0).unwrap();
    let error = Optimizer::sgd(0.1).minimize(&mut model, free).unwrap_err();
    assert!(error.message().contains("depends on no trainable variable"), "{error}");
}

/// What a schedule gives at these steps.
fn rates(rate: &Rate, steps: &[i64]) -> Vec<f32> {
    let mut model = model();
    let step = model.input("step", DType::Int64, &[]).unwrap();
    let value = rate.build(&mut model, step).unwrap();
    let value = model.name_of(value);
    let run = Run::new(&model);
    steps.iter().map(|step| run.scalar(&[("step:0", Tensor::scalar(*step))], &value)).collect()
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
/// `x` each, the variables' values.
fn scaled_steps(scale: LossScale, xs: &[f32]) -> Vec<(f32, i64, f32)> {
    let mut model = model();
    let x = model.input("x", DType::Float, &[None]).unwrap();
    let weight = model.variable("weight", &[], &thalweg_train::Initializer::Ones).unwrap();
    let value = weight.read(&mut model).unwrap();
    let product = model.add("Mul", &[x, value]).unwrap();
    let each = model.add("Exp", &[product]).unwrap();
    let loss = losses::mean(&mut model, each).unwrap();
    let step = Optimizer::momentum(0.1, 0.5).loss_scale(scale).minimize(&mut model, loss).unwrap();
    let step = name(&model, step);
    let reads = ["weight", "global_step", "loss_scale"].map(|variable| {
        let variable = model.find(variable)?;
        let value = variable.read(&mut model.top()).unwrap();
        Some(model.name_of(value))
    });
    let run = Run::new(&model);
    let steps = xs.iter().map(|x| {
        let feeds = [("x:0", Tensor::vector(&[*x]).unwrap())];
        run.session.run(&feeds, &[], &[&step]).unwrap();
        let read = |i: usize| {
            let read = reads[i].as_ref()?;
            Some(run.session.run(&[], &[read], &[]).unwrap().remove(0))
        };
        let scale = read(2).map_or(0.0, |scale| scale.scalar_value().unwrap());
        (read(0).unwrap().scalar_value().unwrap(), read(1).unwrap().scalar_value().unwrap(), scale)
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
    let x: Vec<f32> = (0..7).map(|i| 0.3 * i as f32 - 1.0).collect();
    let y: Vec<f32> = x.iter().map(|x| 2.0 * x + 1.0).collect();
    let trained = |parts: Option<[usize; 3]>| -> Vec<f32> {
        let mut model = model();
        let input = model.input("x", DType::Float, &[None, Some(1)]).unwrap();
        let labels = model.input("y", DType::Float, &[None, Some(1)]).unwrap();
        let line = Dense::new(1).apply(&mut model, input).unwrap();
        let loss = losses::mean_squared_error(&mut model, line, labels).unwrap();
        let optimizer = Optimizer::adam(0.1);
        let gradients = optimizer.gradients(&mut model, loss).unwrap();
        let accumulation = Accumulation::new(&mut model, &gradients).unwrap();
        let whole = optimizer.apply(&mut model, &gradients).unwrap();
        let summed = optimizer.apply(&mut model, &accumulation.gradients).unwrap();
        let kernel = model.find("dense/kernel").unwrap().read(&mut model).unwrap();
        let [whole, summed, first, add] =
            [whole, summed, accumulation.first, accumulation.add].map(|node| name(&model, node));
        let (kernel, weight) = (model.name_of(kernel), model.name_of(accumulation.weight));
        let run = Run::new(&model);
        let column = |values: &[f32]| {
            Tensor::from_slice(Shape::new(&[values.len(), 1]).unwrap(), values).unwrap()
        };
        let at = |range: std::ops::Range<usize>, target: &str| {
            let part = range.len() as f32 / 7.0;
            let feeds = [
                ("x:0", column(&x[range.clone()])),
                ("y:0", column(&y[range])),
                (&*weight, Tensor::scalar(part)),
            ];
            run.session.run(&feeds, &[], &[target]).unwrap();
        };
        (0..4)
            .map(|_| {
                match parts {
                    None => at(0..7, &whole),
                    Some([a, b, c]) => {
                        at(0..a, &first);
                        at(a..a + b, &add);
                        at(a + b..a + b + c, &summed);
                    }
                }
                run.session.run(&[], &[&kernel], &[]).unwrap()[0].as_slice::<f32>().unwrap()[0]
            })
            .collect()
    };
    let (whole, parts) = (trained(None), trained(Some([3, 3, 1])));
    assert!(whole.iter().zip(&parts).all(|(a, b)| (a - b).abs() < 1e-5), "{whole:?} {parts:?}");
}
