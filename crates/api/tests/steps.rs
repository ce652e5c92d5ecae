//! Prepared steps, arrays, gradients, branches and loops, sessions on servers.

use thalweg_api::{
    FromTensor, Graph, Init, Operation, Output, Result, RunSteps, Session, Step, Target, Tensor,
    TensorType, Variable, cond, custom_gradient, ellipsis, feed, gradients, new_axis, stepped,
    while_loop,
};

/// The value of a tensor that depends on no feed.
#[track_caller]
fn value<T: TensorType, R: FromTensor<T>>(x: &Output<T>) -> R {
    x.graph().session().and_then(|session| session.run(x, (), &[])).expect("the step succeeds")
}

fn is_shareable<T: Send + Sync>(_: &T) {}

#[test]
fn prepared_steps_are_typed_and_run_on_many_threads() -> Result<()> {
    let g = Graph::new();
    let x = g.placeholder::<f32>("x", [None]);
    let n = g.placeholder::<i64>("n", []);
    let y = x.sum() + n.cast::<f32>();
    let count: Variable<i32> = g.variable("count", Init::zeros([]));
    let add = count.assign_add(1);
    let session = g.session()?;
    let step = session.prepare((&x, &n), (&y, &x), &[&add])?;
    is_shareable(&step);
    is_shareable(&session);
    is_shareable(&g);
    std::thread::scope(|threads| {
        for i in 0..4i64 {
            let step = &step;
            threads.spawn(move || {
                let (sum, same): (f32, Vec<f32>) = step.run(([1.0, 2.0], i)).unwrap();
                assert_eq!((sum, same), (3.0 + i as f32, vec![1.0, 2.0]));
            });
        }
    });
    assert_eq!(session.run::<_, i32>(&count, (), &[])?, 4);
    let one: Step<_, Output<f32>> = session.prepare(&n, &n.cast::<f32>(), &[])?;
    assert_eq!(one.run::<f32>(7)?, 7.0);
    let none = session.prepare((), &count, &[])?;
    assert_eq!(none.run::<i32>(())?, 4);
    let told = step.run::<(f32, Tensor)>((vec![vec![1.0f32]], 1)).err().map(|e| e.to_string());
    assert_eq!(
        told.as_deref(),
        Some("INVALID_ARGUMENT: feed of 'x': its shape is [?], but the tensor fed has shape [1,1]")
    );
    // A handle of another graph.
    let other = Graph::new().placeholder::<f32>("other", []);
    let error = session.prepare(&other, &y, &[]).err().unwrap();
    assert_eq!(error.message(), "'other:0' belongs to another graph");
    Ok(())
}

#[cfg(feature = "ndarray")]
#[test]
fn arrays_are_fed_fetched_and_computed_with() -> Result<()> {
    use ndarray::{Array1, Array2, ArrayD, array};
    let g = Graph::new();
    let x = g.placeholder::<f32>("x", [None, Some(2)]);
    let y = x.matmul(array![[1.0f32], [10.0]]);
    let session = g.session()?;
    let rows = array![[1.0f32, 2.0], [3.0, 4.0], [5.0, 6.0]];
    let (y_value, x_value): (Array2<f32>, ArrayD<f32>) =
        session.run((&y, &x), feed! { x: &rows }, &[])?;
    assert_eq!(y_value, array![[21.0], [43.0], [65.0]]);
    assert_eq!(x_value.into_dimensionality::<ndarray::Ix2>().unwrap(), rows);
    // Not in row-major order.
    let columns = array![[1.0f32, 3.0], [2.0, 4.0]];
    let flipped: Array2<f32> = session.run(&x, feed! { x: columns.t() }, &[])?;
    assert_eq!(flipped, array![[1.0, 2.0], [3.0, 4.0]]);
    let error = session.run::<_, Array1<f32>>(&y, feed! { x: rows }, &[]).unwrap_err();
    let wanted = "fetch of 'MatMul:0': an array of rank 1 was asked for, but the tensor has shape \
                  [3,1]";
    assert_eq!(error.message(), wanted);
    Ok(())
}

#[test]
#[expect(clippy::reversed_empty_ranges, reason = "they are stepped through backward")]
fn indices_take_what_they_say() {
    let g = Graph::new();
    let x = g.constant([[[1, 2, 3], [4, 5, 6]], [[7, 8, 9], [10, 11, 12]]]);
    assert_eq!(value::<i32, [[i32; 3]; 2]>(&x.index(1)), [[7, 8, 9], [10, 11, 12]]);
    assert_eq!(value::<i32, i32>(&x.index((0, 1, 2))), 6);
    assert_eq!(value::<i32, i32>(&x.index((-1, -1, -1))), 12);
    assert_eq!(value::<i32, [i32; 2]>(&x.index((0, .., -2))), [2, 5]);
    assert_eq!(value::<i32, [[i32; 2]; 2]>(&x.index((.., 0, ..2))), [[1, 2], [7, 8]]);
    assert_eq!(value::<i32, [[i32; 2]; 2]>(&x.index((ellipsis(), 0))), [[1, 4], [7, 10]]);
    assert_eq!(value::<i32, [i32; 2]>(&x.index((0, 0, 0..=1))), [1, 2]);
    let last = -1;
    assert_eq!(value::<i32, [i32; 2]>(&x.index((0, 0, 1..=last))), [2, 3]);
    assert_eq!(value::<i32, [i32; 3]>(&x.index((0, 0, stepped(.., -1)))), [3, 2, 1]);
    assert_eq!(value::<i32, [[i32; 1]; 2]>(&x.index((1, .., stepped(0..3, 3)))), [[7], [10]]);
    let line = g.constant([0, 1, 2, 3, 4]);
    assert_eq!(value::<i32, Vec<i32>>(&line.index(stepped(3..1, -1))), [3, 2]);
    assert_eq!(value::<i32, Vec<i32>>(&line.index(stepped(3..=1, -1))), [3, 2, 1]);
    assert_eq!(value::<i32, Vec<i32>>(&line.index(stepped(4..=0, -2))), [4, 2, 0]);
    assert_eq!(value::<i32, Vec<i32>>(&line.index(stepped(-1..=-2, -1))), [4, 3]);
    assert_eq!(value::<i32, Vec<i32>>(&line.index(stepped(..=last, 2))), [0, 2, 4]);
    assert_eq!(value::<i32, Vec<i32>>(&line.index(3..usize::MAX)), [3, 4]);
    let wide = x.index((0, new_axis(), 0));
    assert_eq!(value::<i32, [[i32; 3]; 1]>(&wide), [[1, 2, 3]]);
    assert_eq!(x.index(0usize..1).shape().to_shape().unwrap().dims(), [1, 2, 3]);
    let _ = x.index(5);
    let error = g.check().unwrap_err();
    assert!(error.message().contains("StridedSlice"), "{error}");
    // It is not the last element, which -1 is.
    let g = Graph::new();
    let _ = g.constant([1, 2]).index(usize::MAX);
    assert!(g.check().is_err());
}

#[test]
fn gradients_of_variables_rows_and_nothing() -> Result<()> {
    let g = Graph::new();
    let w: Variable<f32> = g.variable("w", Init::values([1.0, 2.0, 3.0, 4.0], [2, 2]));
    let x = g.constant([[1.0f32, -1.0]]);
    let unused = g.constant([5.0f32]);
    let y = w.gather_rows(&g.constant([1])) * &x;
    let (dw, dx, none) = gradients(&y, (&w, &x, &unused));
    let [again] = gradients(&y.sum(), [&w]);
    let list = gradients(&y, &[&x, &unused][..]);
    let session = g.session()?;
    let values: ([[f32; 2]; 2], [[f32; 2]; 1], [f32; 1]) =
        session.run((&dw, &dx, &none), (), &[])?;
    assert_eq!(values, ([[0.0, 0.0], [1.0, -1.0]], [[3.0, 4.0]], [0.0]));
    assert_eq!(session.run::<_, [[f32; 2]; 2]>(&again, (), &[])?, values.0);
    assert_eq!(list.len(), 2);
    let line = line!() + 1;
    let _ = gradients(&g.constant("text"), &x);
    let error = g.check().unwrap_err();
    assert!(error.message().starts_with(&format!("{}:{line}: ", file!())), "{error}");
    Ok(())
}

#[test]
fn gradient_functions_of_ones_own() -> Result<()> {
    let g = Graph::new();
    let x = g.placeholder::<f32>("x", [None]);
    // A gradient that is clipped, as in reversal layers and clipped losses.
    let same = custom_gradient(&x, |x| x + 0.0, |_, dy| dy.clip(-1.0, 1.0));
    let dx = gradients(&(same * 100.0), &x);
    g.set_gradient("Sign", |op| {
        let tanh = op.inputs[0].typed::<f32>().tanh();
        let slope = (1.0 - tanh.square()) * &op.gradients[0].typed();
        vec![Some(slope.any())]
    });
    let ds = gradients(&x.sign(), &x);
    // Within a branch as well: its gradient is built in the graph of a function.
    let branch = cond(&x.sum().greater(0.0), || x.sign(), || x.clone());
    let db = gradients(&branch, &x);
    let session = g.session()?;
    let step: ([f32; 2], [f32; 2], [f32; 2]) =
        session.run((&dx, &ds, &db), feed! { x: [0.0, 50.0] }, &[])?;
    assert_eq!(step, ([1.0, 1.0], [1.0, 0.0], [1.0, 0.0]));
    g.set_gradient("Floor", |_| Vec::new());
    let _ = gradients(&x.floor(), &x);
    let error = g.check().unwrap_err();
    let wanted = "the gradient function returned 0 gradients for 1 inputs";
    assert!(error.message().contains(wanted), "{error}");
    Ok(())
}

#[test]
fn branches_and_loops_are_closures() -> Result<()> {
    let g = Graph::new();
    let x = g.placeholder::<f32>("x", []);
    let w: Variable<f32> = g.variable("w", Init::constant(2.0, []));
    let (big, twice) =
        cond(&x.greater(10.0), || (x.sqrt(), g.constant(1i32)), || (&x * &w, g.constant(2i32)));
    // Collatz steps.
    let n = g.placeholder::<i64>("n", []);
    let (_, steps) = while_loop(
        (n.clone(), g.constant(0i64)),
        |(n, _)| n.greater(1),
        |(n, steps)| {
            let next = cond(&n.floor_mod(2).equal(0), || &n / 2, || &n * 3 + 1);
            (next, steps + 1)
        },
    );
    let dx = gradients(&big, &x);
    let session = g.session()?;
    let run = |value: f32| -> Result<(f32, i32, f32)> {
        session.run((&big, &twice, &dx), feed! { x: value }, &[])
    };
    assert_eq!(run(16.0)?, (4.0, 1, 0.125));
    assert_eq!(run(3.0)?, (6.0, 2, 2.0));
    assert_eq!(session.run::<_, i64>(&steps, feed! { n: 27 }, &[])?, 111);
    Ok(())
}

#[test]
fn bodies_keep_their_tensors_and_their_mistakes() {
    let g = Graph::new();
    let x = g.constant(1.0f32);
    let mut kept = None;
    let y = cond(
        &x.greater(0.0),
        || {
            let inner = &x * 2.0;
            kept = Some(inner.clone());
            inner
        },
        || x.clone(),
    );
    assert_eq!(value::<f32, f32>(&y), 2.0);
    let line = line!() + 1;
    let _ = kept.unwrap() + 1.0;
    let wanted = format!(
        "{}:{line}: input 0 of AddV2: the tensor belongs to the body of a branch or loop: return it \
         from the closure to use it outside",
        file!()
    );
    assert_eq!(g.check().unwrap_err().message(), wanted);

    // A mistake in a body is told once, and the branch itself is poisoned.
    let g = Graph::new();
    let x = g.constant([1.0f32, 2.0]);
    let line = line!() + 1;
    let y = cond(&x.sum().greater(0.0), || x.matmul(&x), || x.clone());
    let _ = y + 1.0;
    let text = g.check().unwrap_err().message().to_owned();
    assert!(text.starts_with(&format!("{}:{line}: ", file!())), "{text}");
    assert_eq!(g.mistakes().len(), 1);
    // Branches of other shapes of results.
    let g = Graph::new();
    let x = g.constant(1.0f32);
    let line = line!() + 1;
    let _ = cond(&x.greater(0.0), || vec![x.clone()], || vec![x.clone(), x.clone()]);
    let text = g.check().unwrap_err().message().to_owned();
    assert!(text.starts_with(&format!("{}:{line}: branches must return", file!())), "{text}");
}

/// Trains `w` to 3 in steps of one session; whichever session it is.
fn train(session: &Session, x: &Output<f32>, step: &Operation, w: &Variable<f32>) -> Result<f32> {
    for _ in 0..20 {
        session.run::<_, ()>((), feed! { x: 3.0 }, &[step])?;
    }
    session.run(w, (), &[])
}

#[cfg(feature = "remote")]
#[test]
fn a_session_on_a_server_is_like_any_other() -> Result<()> {
    use thalweg_cluster::TaskOptions;
    use thalweg_cluster::grpc::LocalCluster;
    let registry = thalweg_api::Registry::built_in();
    let jobs = [("ps", 1), ("worker", 2)];
    let cluster =
        LocalCluster::start(&jobs, TaskOptions::default(), registry.ops, registry.kernels)?;
    let addresses: Vec<String> = cluster
        .spec()
        .tasks()
        .filter(|(task, _)| task.job == "worker")
        .map(|(_, address)| format!("grpc://{address}"))
        .collect();
    let build = || {
        let g = Graph::new();
        let x = g.placeholder::<f32>("x", []);
        let ps = g.device("/job:ps/task:0");
        let w: Variable<f32> = ps.variable("w", Init::zeros([]));
        let slope = gradients(&(&x - &w).square(), &w);
        let step = w.assign_sub(slope * 0.25);
        (g, x, step, w)
    };
    let (g, x, step, w) = build();
    let session = g.session_on(&addresses[0])?;
    let reached = train(&session, &x, &step, &w)?;
    assert!((reached - 3.0).abs() < 1e-3, "{reached}");
    // Another worker shares the variable, and does not initialize it again.
    let (g, _, _, w) = build();
    let second = g.session_on(&addresses[1])?;
    assert_eq!(second.run::<_, f32>(&w, (), &[])?, reached);
    // The graph grows there, too.
    let double = &w * 2.0;
    let b: Variable<f32> = g.variable("b", Init::ones([]));
    let both: (f32, f32) = second.run((&double, &b), (), &[])?;
    assert_eq!(both, (2.0 * reached, 1.0));
    let prepared = second.prepare((), &double, &[])?;
    assert_eq!(prepared.run::<f32>(())?, 2.0 * reached);
    assert!(second.local().is_none());
    // What the server refuses is told with the line.
    let y = g.placeholder::<f32>("y", []);
    let error = second.run::<_, f32>(&(&y + 1.0), (), &[]).unwrap_err();
    assert!(error.message().contains("placeholder 'y'"), "{error}");
    Ok(())
}

#[test]
fn any_session_runs_steps_by_name() -> Result<()> {
    let g = Graph::new();
    let x = g.placeholder::<f32>("x", []);
    let y = (&x * 2.0).named("y");
    let session = g.session()?;
    let result = session.run_step(&[("x:0", Tensor::scalar(4.0f32))], &["y"], &[])?;
    assert_eq!(result[0].scalar_value::<f32>()?, 8.0);
    let target: &dyn Target = &y;
    assert_eq!(target.to_operation().name()?, "y");
    Ok(())
}

#[test]
fn rows_without_elements_are_bounded() {
    let g = Graph::new();
    let x = g.placeholder::<f32>("x", [None, None]);
    let session = g.session().unwrap();
    let empty = |rows: usize| {
        Tensor::from_slice::<f32>(thalweg_api::Shape::new(&[rows, 0]).unwrap(), &[]).unwrap()
    };
    let fetch = |rows| session.run::<_, Vec<Vec<f32>>>(&x, feed! { x: empty(rows) }, &[]);
    assert_eq!(fetch(3).unwrap(), [[0.0f32; 0]; 3]);
    let error = fetch(1 << 40).unwrap_err();
    assert_eq!(error.code(), thalweg_api::Code::ResourceExhausted, "{error}");
    let array = session.run::<_, [[f32; 0]; 2]>(&x, feed! { x: empty(1 << 40) }, &[]);
    assert_eq!(array.unwrap_err().code(), thalweg_api::Code::InvalidArgument);
}
