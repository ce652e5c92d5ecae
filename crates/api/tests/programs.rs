//! Programs by handle: operators, values of all forms, variables, views, growing graphs.

use thalweg_api::{
    Graph, Init, NewOp, Output, Result, RunSteps, Tensor, TensorType, Variable, feed,
    session_options,
};

/// The value of a tensor that depends on no feed.
fn value<T: TensorType, R: thalweg_api::FromTensor<T>>(x: &Output<T>) -> R {
    x.graph().session().and_then(|session| session.run(x, (), &[])).expect("the step succeeds")
}

#[test]
fn operators_take_handles_variables_and_values() {
    let g = Graph::new();
    let x = g.constant([1.0f32, 2.0]);
    let w: Variable<f32> = g.variable("w", Init::constant(3.0, [2]));
    let n = g.constant([7i32, -7]);
    for (result, expected) in [
        (&x + &x, [2.0, 4.0]),
        (x.clone() + x.clone(), [2.0, 4.0]),
        (&x - 1.0, [0.0, 1.0]),
        (1.0 - &x, [0.0, -1.0]),
        (&x * &w, [3.0, 6.0]),
        (&w * &x, [3.0, 6.0]),
        (w.clone() / x.clone(), [3.0, 1.5]),
        (2.0 / &w, [2.0 / 3.0, 2.0 / 3.0]),
        (-&x, [-1.0, -2.0]),
        (-&w, [-3.0, -3.0]),
        (&x + [10.0, 20.0], [11.0, 22.0]),
        (&x * vec![0.5, 0.25], [0.5, 0.5]),
        (&x + &Tensor::vector(&[1.0f32, 1.0]).unwrap(), [2.0, 3.0]),
        (x.maximum(1.5), [1.5, 2.0]),
        (x.less(1.5).select(&x, -1.0), [1.0, -1.0]),
    ] {
        assert_eq!(value::<f32, [f32; 2]>(&result), expected, "{result:?}");
    }
    // Integers divide as in Rust.
    assert_eq!(value::<i32, [i32; 2]>(&(&n / 2)), [3, -3]);
    assert_eq!(value::<i32, [i32; 2]>(&n.floor_div(2)), [3, -4]);
    assert_eq!(value::<bool, [bool; 2]>(&n.greater(0)), [true, false]);
}

#[test]
fn methods_compute_what_they_say() {
    let g = Graph::new();
    let x = g.constant([[1.0f32, 2.0], [3.0, 4.0]]);
    assert_eq!(value::<f32, f32>(&x.mean()), 2.5);
    assert_eq!(value::<f32, [f32; 2]>(&x.sum_axes([0])), [4.0, 6.0]);
    assert_eq!(value::<f32, [[f32; 1]; 2]>(&x.max_keepdims([1i64])), [[2.0], [4.0]]);
    assert_eq!(value::<i64, [i64; 2]>(&x.argmax(1)), [1, 1]);
    assert_eq!(value::<f32, Vec<f32>>(&x.reshape([-1])), [1.0, 2.0, 3.0, 4.0]);
    assert_eq!(value::<f32, [[f32; 2]; 2]>(&x.transpose([1, 0])), [[1.0, 3.0], [2.0, 4.0]]);
    assert_eq!(value::<i32, [[i32; 2]; 2]>(&x.cast::<i32>()), [[1, 2], [3, 4]]);
    assert_eq!(value::<f32, [[f32; 2]; 1]>(&x.gather([1])), [[3.0, 4.0]]);
    assert_eq!(value::<f32, [[f32; 2]; 3]>(&g.concat(&[&x, &x.gather([0])], 0))[2], [1.0, 2.0]);
    assert_eq!(g.stack(&[&x, &x, &x], 0).shape().to_shape().unwrap().dims(), [3, 2, 2]);
    assert_eq!(value::<f32, [f32; 2]>(&g.fill([2], 5.0f32)), [5.0; 2]);
    assert_eq!(value::<i32, Vec<i32>>(&g.range(0, 6, 2)), [0, 2, 4]);
    assert_eq!(value::<f32, Vec<f32>>(&g.ones([3])), [1.0; 3]);
    let batch: Output<f32> = g.ones([5, 2, 3]);
    assert_eq!(batch.matmul(g.ones([5, 3, 4])).shape().to_shape().unwrap().dims(), [5, 2, 4]);
    let strings = g.constant(["a", "bc"]);
    assert_eq!(value::<String, Vec<String>>(&strings), ["a", "bc"]);
    assert!(g.check().is_ok());
}

#[test]
fn variables_are_initialized_updated_and_read_in_order() -> Result<()> {
    let g = Graph::new();
    let layer = g.scope("layer");
    let w: Variable<f32> = layer.variable("w", Init::glorot([20, 30]));
    let again: Variable<f32> = layer.variable("w", Init::zeros([2]));
    let count: Variable<i64> = g.variable("count", Init::zeros([]).not_trainable());
    assert_eq!(w.info()?.name, "layer/w");
    assert_eq!(again.info()?.name, "layer/w_1");
    let trainable = g.variables().into_iter().filter(|v| v.is_trainable).count();
    assert_eq!(trainable, 2);

    let add = count.assign_add(2);
    let after = count.read_within(&g.after(&[&add]));
    let session = g.session()?;
    let (values, zeros): (Vec<Vec<f32>>, [f32; 2]) = session.run((&w, &again), (), &[])?;
    let limit = (6.0f32 / 50.0).sqrt();
    assert!(values.iter().flatten().all(|x| x.abs() <= limit) && values[0][0] != values[0][1]);
    assert_eq!(zeros, [0.0; 2]);
    assert_eq!(session.run::<_, i64>(&after, (), &[])?, 2);
    session.run::<_, ()>((), (), &[&add])?;
    assert_eq!(session.run::<_, i64>(&count, (), &[])?, 4);
    session.run::<_, ()>((), (), &[&count.assign(1)])?;
    assert_eq!(session.run::<_, i64>(&count, (), &[])?, 1);
    session.initialize()?;
    assert_eq!(session.run::<_, i64>(&count, (), &[])?, 0);
    Ok(())
}

#[test]
fn a_session_follows_its_graph() -> Result<()> {
    let g = Graph::new();
    let x = g.placeholder::<f32>("x", []);
    let w: Variable<f32> = g.variable("w", Init::ones([]));
    let session = g.session()?;
    session.run::<_, ()>((), (), &[&w.assign(5.0)])?;
    // A new variable is initialized, the old one keeps its value.
    let b: Variable<f32> = g.variable("b", Init::constant(0.5, []));
    let y = &x * &w + &b;
    assert_eq!(session.run::<_, f32>(&y, feed! { x: 2.0 }, &[])?, 10.5);
    let error = session.run::<_, ()>((), (), &[]).unwrap_err();
    assert_eq!(error.message(), "Must specify at least one target to fetch or execute.");
    // A later mistake is told by the next step.
    let _ = y.matmul(&y);
    assert!(session.run::<_, f32>(&y, feed! { x: 2.0 }, &[]).is_err());
    Ok(())
}

#[test]
fn only_new_variables_are_initialized_by_growth() -> Result<()> {
    let g = Graph::new();
    let w: Variable<f32> = g.variable("w", Init::zeros([]));
    let restore = w.assign(5.0);
    let session = g.uninitialized_session_with(session_options())?;
    session.run::<_, ()>((), (), &[&restore])?;
    let b: Variable<f32> = g.variable("b", Init::ones([]));
    assert_eq!(session.run::<_, f32>(&(&w + &b), (), &[])?, 6.0);
    // Those that no step has used yet, too.
    let c: Variable<f32> = g.variable("c", Init::ones([]));
    session.initialize()?;
    assert_eq!(session.run::<_, (f32, f32)>((&w, &c), (), &[])?, (0.0, 1.0));
    Ok(())
}

#[test]
fn threads_wait_until_new_variables_have_values() -> Result<()> {
    for _ in 0..20 {
        let g = Graph::new();
        let session = g.session()?;
        let add = |i| -> Variable<f32> { g.variable("v", Init::constant(f64::from(i), [8, 8])) };
        let variables: Vec<_> = (0..20).map(add).collect();
        let sum = variables.iter().fold(g.zeros([8, 8]), |sum, v| sum + v).mean();
        std::thread::scope(|threads| {
            for _ in 0..4 {
                threads.spawn(|| assert_eq!(session.run::<_, f32>(&sum, (), &[]), Ok(190.0)));
            }
        });
    }
    Ok(())
}

#[test]
fn views_set_names_devices_and_control_inputs() -> Result<()> {
    let g = Graph::new();
    let x = g.placeholder::<f32>("x", [None]);
    let layer = g.scope("layer1").device("/cpu:0");
    let y = x.within(&layer).relu();
    assert_eq!(y.name()?, "layer1/Relu:0");
    assert_eq!((&y + &x).name()?, "layer1/AddV2:0");
    assert_eq!(y.named("out").name()?, "layer1/out:0");
    assert_eq!(g.scope("layer1").as_scope().prefix(), "layer1_1/");
    let node = y.endpoint()?.node;
    assert_eq!(g.as_scope().with_graph(|g| g.node(node).device.to_string()), "/cpu:0");

    let count: Variable<i32> = g.variable("count", Init::zeros([]));
    let add = count.assign_add(1);
    let group = g.group("all", &[&add, &y]);
    let session = g.session()?;
    session.run::<_, ()>((), feed! { x: [1.0] }, &[&group])?;
    assert_eq!(session.run::<_, i32>(&count, (), &[])?, 1);
    Ok(())
}

#[test]
fn feeds_take_values_of_every_form() -> Result<()> {
    let g = Graph::new();
    let x = g.placeholder::<f32>("x", [None, None]);
    let s = g.placeholder::<String>("s", [None]);
    let session = g.session()?;
    let rows = vec![vec![1.0f32, 2.0], vec![3.0, 4.0]];
    let slices: Vec<&[f32]> = rows.iter().map(Vec::as_slice).collect();
    let tensor = Tensor::from_slice(thalweg_api::Shape::new(&[2, 2])?, &[1.0f32, 2.0, 3.0, 4.0])?;
    let array = [[1.0f32, 2.0], [3.0, 4.0]];
    for feed in [
        x.feed(array),
        x.feed(array),
        x.feed(&array[..]),
        x.feed(&rows),
        x.feed(rows.clone()),
        x.feed(slices),
        x.feed(&tensor),
        x.feed(tensor.clone()),
        x.any().feed(&tensor),
    ] {
        let result: Vec<Vec<f32>> = session.run(&x, feed, &[])?;
        assert_eq!(result, rows);
    }
    let words = ["a", "b"].map(String::from);
    let feeds = [s.feed(["a", "b"]), s.feed(&words), s.feed(words.to_vec())];
    for feed in feeds {
        assert_eq!(session.run::<_, Vec<String>>(&s, feed, &[])?, words);
    }
    // Of values without rows the type tells the shape.
    for feed in [x.feed(Vec::<[f32; 2]>::new()), x.feed([[0.0f32; 2]; 0])] {
        assert_eq!(session.run::<_, Tensor>(&x, feed, &[])?.shape().dims(), [0, 2]);
    }
    assert_eq!(
        session.run::<_, Tensor>(&x, x.feed(Vec::<Vec<f32>>::new()), &[])?.shape().dims(),
        [0, 0]
    );
    let both: (Vec<[f32; 2]>, [String; 2]) =
        session.run((&x, &s), feed! { x: array, s: words.clone() }, &[])?;
    assert_eq!(both, (array.to_vec(), words));
    let list: [Tensor; 2] = session.run([&x, &x], feed! { x: array }, &[])?;
    assert_eq!(list[1].as_slice::<f32>()?, [1.0, 2.0, 3.0, 4.0]);
    Ok(())
}

#[test]
fn handles_cross_threads() -> Result<()> {
    let g = Graph::new();
    let sums: Vec<Output<f32>> = std::thread::scope(|threads| {
        let add = |i: usize| {
            let g = g.clone();
            threads.spawn(move || (0..100).fold(g.constant(i as f32), |sum, _| sum + 1.0))
        };
        let threads: Vec<_> = (0..4).map(add).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    let session = g.session()?;
    let results: Vec<f32> = session.run(&sums, (), &[])?;
    assert_eq!(results, [100.0, 101.0, 102.0, 103.0]);
    let names = session.run_step(&[], &[&sums[0].name()?], &[])?;
    assert_eq!(names[0].scalar_value::<f32>()?, 100.0);
    Ok(())
}

#[test]
fn ops_by_name_take_handles_too() {
    let g = Graph::new();
    let x = g.constant([3.0f32, 1.0, 2.0]);
    let top = NewOp::new(&g, "TopKV2").name("top").input(&x).input(2i32).build();
    let (values, indices): (Output<f32>, Output<i32>) = (top.output(0), top.named("indices"));
    assert_eq!(value::<f32, [f32; 2]>(&values), [3.0, 2.0]);
    assert_eq!(value::<i32, [i32; 2]>(&indices), [0, 2]);
    let _: Output<f32> = NewOp::new(&g, "NoSuchOp").input(&x).output();
    let error = g.check().unwrap_err();
    assert!(error.message().contains("NoSuchOp"), "{error}");
}
