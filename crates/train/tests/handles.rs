//! Optimizers and layers by handle.

use thalweg_api::{Graph, Init, Operation, Output, Result, Variable, feed};
use thalweg_train::{
    Adadelta, Adagrad, Adam, AdamW, Adamax, Clip, Dense, Dropout, Embedding, Ftrl, Initializer,
    Layer, Model, Momentum, MovingAverage, Optimizer, Phase, Rate, RmsProp, Saver, Sequential, Sgd,
    losses,
};

#[test]
fn every_optimizer_minimizes() -> Result<()> {
    type Minimize<'a> = &'a dyn Fn(&Output<f32>) -> Operation;
    let steps: [(&str, Minimize<'_>); 10] = [
        ("sgd", &|loss| Sgd::new(0.1).minimize(loss)),
        ("momentum", &|loss| Momentum::new(0.02).coefficient(0.8).minimize(loss)),
        ("nesterov", &|loss| Momentum::new(0.02).nesterov().minimize(loss)),
        ("adam", &|loss| Adam::new(0.1).betas(0.9, 0.99).epsilon(1e-6).minimize(loss)),
        ("adamw", &|loss| AdamW::new(0.1).weight_decay(0.001).minimize(loss)),
        ("adamax", &|loss| Adamax::new(0.1).minimize(loss)),
        ("adagrad", &|loss| Adagrad::new(0.5).minimize(loss)),
        ("adadelta", &|loss| Adadelta::new(20.0).minimize(loss)),
        ("rmsprop", &|loss| RmsProp::new(0.05).minimize(loss)),
        ("ftrl", &|loss| Ftrl::new(0.5).clip(Clip::GlobalNorm(5.0)).minimize(loss)),
    ];
    for (name, minimize) in steps {
        let g = Graph::new();
        let w: Variable<f32> = g.variable("w", Init::zeros([2]));
        let fixed: Variable<f32> = g.variable("fixed", Init::ones([2]).not_trainable());
        let loss = (&w - [1.0, -1.0]).square().sum() + fixed.sum() * 0.0;
        let train = minimize(&loss);
        let session = g.session()?;
        let first: f32 = session.run(&loss, (), &[])?;
        for _ in 0..60 {
            session.run::<_, ()>((), (), &[&train])?;
        }
        let (last, fixed): (f32, [f32; 2]) = session.run((&loss, &fixed), (), &[])?;
        assert!(last < 0.3 * first, "{name}: from {first} to {last}");
        assert_eq!(fixed, [1.0; 2], "{name}");
    }
    Ok(())
}

#[test]
fn a_loss_without_variables_is_a_mistake_of_its_line() {
    let g = Graph::new();
    let loss = g.constant(1.0f32);
    let line = line!() + 1;
    let train = Adam::new(Rate::Constant(0.1)).minimize(&loss);
    let error = g.session().err().unwrap();
    let wanted = format!("{}:{line}: the loss 'Const:0' depends on no trainable variable", file!());
    assert_eq!(error.message(), wanted);
    assert!(train.name().is_err());
    // A loss that is poisoned causes no further mistake.
    let _ = Sgd::new(0.1).minimize(&loss.matmul(&loss));
    assert_eq!(g.mistakes().len(), 2);
}

#[test]
fn a_net_finds_its_variables_again() -> Result<()> {
    let g = Graph::new();
    let x = g.placeholder::<f32>("x", [None, Some(4)]);
    let net =
        || Sequential::new().then(Dense::new(8).relu()).then(Dropout::new(0.5)).then(Dense::new(2));
    let trained = net().forward(Phase::Training, &x);
    let used = net().forward(Phase::Inference, &x);
    let critic = g.scope("critic");
    let other = net().forward(Phase::Training, &x.within(&critic));
    let names: Vec<String> = g.variables().into_iter().map(|variable| variable.name).collect();
    let wanted = ["dense/kernel", "dense/bias", "dense_1/kernel", "dense_1/bias"];
    assert_eq!(names[..4], wanted);
    assert_eq!(names[4..], wanted.map(|name| format!("critic/{name}")));
    let _ = (trained, other);
    let session = g.session()?;
    let row = [[1.0, 2.0, 3.0, 4.0]];
    // Nothing is dropped, so it is the same each time.
    let first: Vec<[f32; 2]> = session.run(&used, feed! { x: row }, &[])?;
    let second: Vec<[f32; 2]> = session.run(&used, feed! { x: row }, &[])?;
    assert_eq!(first, second);
    let bad = g.placeholder::<f32>("bad", [None, None]);
    let line = line!() + 1;
    let _ = Dense::new(3).forward(Phase::Training, &bad);
    let error = g.check().unwrap_err();
    assert!(error.message().starts_with(&format!("{}:{line}: ", file!())), "{error}");
    Ok(())
}

#[test]
fn a_saver_keeps_what_an_optimizer_keeps() -> Result<()> {
    let folder = std::env::temp_dir().join(format!("thalweg-handles-{}", std::process::id()));
    let path = folder.join("model").to_str().unwrap().to_owned();
    let build = || {
        let g = Graph::new();
        let w: Variable<f32> = g.variable("w", Init::zeros([]));
        let loss = (&w - 3.0).square();
        (g, Adam::new(0.2).minimize(&loss), w)
    };
    let (g, train, w) = build();
    let mut saver = Saver::of(&g)?;
    let session = g.session()?;
    for _ in 0..5 {
        session.run::<_, ()>((), (), &[&train])?;
    }
    let saved: f32 = session.run(&w, (), &[])?;
    saver.save(&session, &path, Some(5))?;
    session.run::<_, ()>((), (), &[&train])?;
    let next: f32 = session.run(&w, (), &[])?;

    let (g, train, w) = build();
    let mut saver = Saver::of(&g)?;
    let session = g.session()?;
    assert!(saver.resume(&session, folder.to_str().unwrap())?.is_some());
    assert_eq!(session.run::<_, f32>(&w, (), &[])?, saved);
    session.run::<_, ()>((), (), &[&train])?;
    assert_eq!(session.run::<_, f32>(&w, (), &[])?, next);
    std::fs::remove_dir_all(folder).unwrap();
    Ok(())
}

#[test]
fn layers_refuse_handles_of_another_graph() {
    let (model, other) = (Model::new(), Graph::new());
    // More nodes than the model has, so that their numbers mean nothing there.
    let x: Output<f32> = other.placeholder("x", [None, Some(4)]);
    let ids = (0..50).fold(other.placeholder("ids", [None]), |ids: Output<i32>, _| ids + 1);
    let first = line!() + 1;
    let _ = Dense::new(3).apply(&model, &x);
    let _ = Embedding::new(10, 2).apply(&model, &ids);
    let _ = Embedding::new(10, 2).table(&model).lookup(&model, &ids);
    model.add_penalty("penalty", &x.sum());
    model.add_update(&x.sum().operation());
    let mistakes: Vec<String> = model.mistakes().iter().map(ToString::to_string).collect();
    let last = ids.name().unwrap();
    for (i, name) in ["x:0", &last, &last, "Sum:0", "Sum_1"].into_iter().enumerate() {
        let line = first + i as u32;
        let wanted = format!("{}:{line}: '{name}' belongs to another graph", file!());
        assert_eq!(mistakes.get(i), Some(&wanted), "{mistakes:?}");
    }
    assert_eq!(mistakes.len(), 5, "{mistakes:?}");
    assert!(other.check().is_ok());
}

#[test]
fn variables_of_another_graph_are_refused() {
    let (model, other) = (Model::new(), Model::new());
    // More nodes than the model has, so that their numbers mean nothing there.
    let _ = (0..50).fold(other.placeholder("ids", [None]), |ids: Output<i32>, _| ids + 1);
    let table = Embedding::new(10, 2).shards(2).table(&other);
    let biases = Embedding::new(10, 1).table_named(&other, "biases");
    let weight = other.variable::<f32>("weight", Init::ones([]));
    let weights = other.trainable();
    assert_eq!(weights.len(), 4);
    let ids = model.constant([1i32, 2]);
    let inputs = model.constant([[1.0f32, 2.0], [3.0, 4.0]]);
    let train = model.operation(inputs.endpoint().unwrap().node);
    let sampled = losses::Sampled { count: 2, classes: 10, removes_hits: false };

    let first = line!() + 1;
    assert!(table.lookup(&model, &ids).endpoint().is_err());
    assert_eq!(table.values(&model).len(), 2);
    let _ = losses::nce(&model, (&table, &biases), (&inputs, &ids), sampled);
    let _ = MovingAverage::new(0.9).follow(&model, &weights[3..], &train);
    let _ = model.existing_variable::<f32>(weight.info().ok().cloned());
    let shard = |i: usize| format!("embedding/embeddings/part_{i}");
    let wanted = [
        (0, shard(0)),
        (1, shard(0)),
        (1, shard(1)),
        (2, shard(0)),
        (3, "weight".to_owned()),
        (4, "weight".to_owned()),
    ];
    let mistakes: Vec<String> = model.mistakes().iter().map(ToString::to_string).collect();
    let wanted = wanted.map(|(i, name)| {
        let line = first + i;
        format!("{}:{line}: variable '{name}' belongs to another graph", file!())
    });
    assert_eq!(mistakes, wanted);
    // A slot of its own name is none for a variable of another graph.
    let error = MovingAverage::new(0.9).of(&model, &weights[3]).unwrap_err();
    assert_eq!(error.message(), "variable 'weight' belongs to another graph");
    assert!(other.check().is_ok());
    assert!(MovingAverage::new(0.9).of(&other, &weights[3]).is_ok());
}

/// Mistakes in what the library adds are those of the program's lines.
#[test]
fn mistakes_have_the_lines_of_the_program() {
    let model = Model::new();
    let _ = model.parameter("w", &[2], &Initializer::Zeros);
    let first = line!() + 1;
    let _ = model.value_of::<i64>("w");
    let _ = model.value_of::<f32>("v");
    let _ = Optimizer::sgd(0.1).apply(&model, &Vec::new());
    let other = Model::new();
    let _ = Optimizer::sgd(0.1).apply(&other, &Vec::new());
    let mistakes = [&model, &other].map(|model| {
        model.mistakes().iter().map(ToString::to_string).collect::<Vec<_>>().join("\n")
    });
    let wanted = [
        format!(
            "{0}:{1}: output 0 of node 'ReadVariableOp_1' (ReadVariableOp) holds float, where int64 was \
             expected\n{0}:{2}: the model has no variable 'v'",
            file!(),
            first,
            first + 1
        ),
        format!("{}:{}: there are no gradients to apply", file!(), first + 4),
    ];
    assert_eq!(mistakes, wanted);
}
