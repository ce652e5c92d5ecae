//! What a program is told about its mistakes: the messages, with source lines.

use thalweg_api::{
    Any, Code, DType, Graph, Init, NewOp, OpGradient, Output, Result, Tensor, Variable, cond,
    custom_gradient, feed, gradients, tf, while_loop,
};

const FILE: &str = file!();

/// The text of the mistakes so far.
fn told(g: &Graph) -> String {
    let error = g.check().expect_err("there is a mistake");
    assert_eq!(error.code(), Code::InvalidArgument, "{error}");
    error.message().to_owned()
}

#[test]
fn a_wrong_dtype_is_told_with_its_line() {
    let g = Graph::new();
    let x = g.placeholder::<bool>("x", [Some(2)]);
    let (_, line) = (x.relu(), line!());
    let text = told(&g);
    let begin = format!("{FILE}:{line}: node 'Relu' (Relu): ");
    assert!(text.starts_with(&begin), "{text}");
    assert!(text.contains("bool"), "{text}");
    assert_eq!(g.session().err().unwrap().message(), text);
}

#[test]
fn an_untyped_handle_is_checked_when_it_is_typed() {
    let g = Graph::new();
    let x: Output<Any> = g.placeholder::<i64>("x", [None]).any();
    let (_, line) = (x.typed::<f32>(), line!());
    let wanted = format!("{FILE}:{line}: 'x:0' holds int64, where float was expected");
    assert_eq!(told(&g), wanted);
}

#[test]
fn a_wrong_shape_is_told_with_its_line() {
    let g = Graph::new();
    let x = g.placeholder::<f32>("x", [None, Some(3)]);
    let w = g.variable("w", Init::zeros([4, 2]));
    let (y, line) = (x.matmul(&w), line!());
    // What follows from a mistake is none.
    let _ = (y.relu() + 1.0).mean().shape();
    let text = told(&g);
    let begin = format!("{FILE}:{line}: node 'MatMul' (MatMul): ");
    assert!(text.starts_with(&begin), "{text}");
    assert!(text.contains("[?,3]") && text.contains("[4,2]"), "{text}");
    assert_eq!(g.mistakes().len(), 1);
}

#[test]
fn a_handle_of_another_graph_is_a_mistake() {
    let (g, other) = (Graph::new(), Graph::new());
    let x = g.placeholder::<f32>("x", [None]);
    let y = other.placeholder::<f32>("y", [None]);
    let (_, line) = (&x + &y, line!());
    let wanted = format!("{FILE}:{line}: input 1 of AddV2: 'y:0' belongs to another graph");
    assert_eq!(told(&g), wanted);
    assert!(other.check().is_ok());
    // As a fetch, a feed and a target too.
    let session = other.session().unwrap();
    let error = session.run::<_, Tensor>(&x, (), &[]).unwrap_err();
    assert_eq!(error.message(), "'x:0' belongs to another graph");
    let error = session.run::<_, Tensor>(&y, feed! { x: [1.0] }, &[]).unwrap_err();
    assert_eq!(error.message(), "'x:0' belongs to another graph");
    let error = session.run::<_, ()>((), (), &[&x]).unwrap_err();
    assert_eq!(error.message(), "'x' belongs to another graph");
}

#[test]
fn several_mistakes_are_reported_together() {
    let g = Graph::new();
    let x = g.placeholder::<f32>("x", [None, Some(3)]);
    let first = line!() + 1;
    let a = x.matmul([[1.0], [2.0]]);
    let b = x.reshape([3, 2]) + &a;
    let c = x.reshape([0.5f32]);
    let _ = g.constant::<f32>(vec![vec![1.0], vec![2.0, 3.0]]);
    let _ = (b, c);
    let text = told(&g);
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines[0], "the graph has 3 mistakes:");
    for (line, (offset, what)) in lines[1..].iter().zip([
        (0, "(MatMul): "),
        (2, "(Reshape): "),
        (3, "rows have 1 and 2 elements: a tensor cannot be ragged"),
    ]) {
        let begin = format!("  {FILE}:{}: ", first + offset);
        assert!(line.starts_with(&begin) && line.contains(what), "{line}");
    }
    let error = g.session().err().expect("a session tells of the mistakes");
    assert_eq!(error.message(), text);
}

#[test]
fn a_missing_feed_names_the_placeholder() -> Result<()> {
    let g = Graph::new();
    let line = line!() + 1;
    let x = g.placeholder::<f32>("images", [None, Some(2)]);
    let y = x.sum();
    let session = g.session()?;
    let error = session.run::<_, f32>(&y, (), &[]).unwrap_err();
    let wanted = format!(
        "placeholder 'images' (float [?,2], added at {FILE}:{line}) was not fed: this step needs a \
         value for it, as in `feed! {{ images: value }}`"
    );
    assert_eq!(error.message().lines().next(), Some(&*wanted));
    assert_eq!(error.code(), Code::InvalidArgument);
    Ok(())
}

#[test]
fn feeds_and_fetches_are_checked() -> Result<()> {
    let g = Graph::new();
    let x = g.placeholder::<f32>("x", [None, Some(2)]);
    let y = &x * 2.0;
    let session = g.session()?;
    let run = |feed| session.run::<_, Vec<Vec<f32>>>(&y, [feed], &[]);
    assert_eq!(run(x.feed([[1.0, 2.0]]))?, [[2.0, 4.0]]);
    let told = |feed| run(feed).unwrap_err().message().to_owned();
    let wanted = "feed of 'x': its shape is [?,2], but the tensor fed has shape [1,3]";
    assert_eq!(told(x.feed([[1.0, 2.0, 3.0]])), wanted);
    let wanted = "feed of 'x:0': the tensor holds int64, where float was expected";
    assert_eq!(told(x.feed(Tensor::scalar(1i64))), wanted);
    let wanted = "feed of 'x:0': rows have 2 and 1 elements: a tensor cannot be ragged";
    assert_eq!(told(x.feed(vec![vec![1.0, 2.0], vec![3.0]])), wanted);
    let wanted = "feed of 'x': it holds float, but the tensor fed holds double";
    assert_eq!(told(x.any().feed(Tensor::zeros(DType::Double, x_shape()?)?)), wanted);
    let error = session.run::<_, f32>(&y, feed! { x: [[1.0, 2.0]] }, &[]).unwrap_err();
    let wanted = "fetch of 'Mul:0': a scalar was asked for, but the tensor has shape [1,2]: fetch it \
                  as a Vec, an array or a Tensor";
    assert_eq!(error.message(), wanted);
    Ok(())
}

fn x_shape() -> Result<thalweg_api::Shape> {
    thalweg_api::Shape::new(&[1, 2])
}

#[test]
fn a_failed_step_tells_the_line_of_the_node() -> Result<()> {
    let g = Graph::new();
    let i = g.placeholder::<i32>("i", []);
    let (y, line) = (g.constant([1.0f32, 2.0]).gather(&i), line!());
    let session = g.session()?;
    assert_eq!(session.run::<_, f32>(&y, feed! { i: 1 }, &[])?, 2.0);
    let error = session.run::<_, f32>(&y, feed! { i: 5 }, &[]).unwrap_err();
    let at = format!("(node 'GatherV2' was added at {FILE}:{line})");
    assert!(error.message().contains(&at), "{error}");
    Ok(())
}

#[test]
fn state_and_steps_stay_outside_of_bodies() -> Result<()> {
    let g = Graph::new();
    let x = g.constant(1.0f32);
    let session = g.session()?;
    let mut refused = None;
    let (_, line) = (
        cond(
            &x.greater(0.0),
            || {
                refused = session.run::<_, f32>(&(&x + 1.0), (), &[]).err();
                g.variable::<f32>("v", Init::ones([])).value().clone()
            },
            || x.clone(),
        ),
        line!() - 4,
    );
    let begin = format!("{FILE}:{line}: variable 'v': it would belong to the body of a branch");
    assert!(told(&g).starts_with(&begin), "{}", told(&g));
    assert_eq!(g.mistakes().len(), 1);
    assert!(g.variables().is_empty());
    let refused = refused.expect("a step within a body is refused");
    assert_eq!(refused.code(), Code::FailedPrecondition, "{refused}");
    Ok(())
}

#[test]
fn a_typed_output_is_checked_when_its_node_is_added() {
    let g = Graph::new();
    let x = g.constant([3.0f32, 1.0]);
    let line = line!() + 1;
    let y: Output<f64> = NewOp::new(&g, "Relu").name("y").input(&x).output();
    // What follows from it is no mistake.
    let _ = y.sqrt() + 1.0;
    let wanted = format!(
        "{FILE}:{line}: output 0 of node 'y' (Relu) holds float, where double was expected"
    );
    assert_eq!(told(&g), wanted);
    assert_eq!(g.session().err().unwrap().message(), wanted);

    // The others of the node can be used.
    let g = Graph::new();
    let x = g.constant([3.0f32, 1.0]);
    let (top, line) = (NewOp::new(&g, "TopKV2").input(&x).input(1i32).build(), line!());
    let (values, wrong): (Output<f32>, Output<i64>) = (top.output(0), top.named("indices"));
    let (untyped, none): (Output<Any>, Output<Any>) = (top.output(1), top.output(2));
    assert_eq!((values.dtype(), untyped.dtype()), (Some(DType::Float), Some(DType::Int32)));
    assert_eq!((wrong.dtype(), none.dtype()), (None, None));
    let wanted = format!(
        "the graph has 2 mistakes:\n  {FILE}:{line}: output 1 of node 'TopKV2' (TopKV2) holds int32, \
         where int64 was expected\n  {FILE}:{line}: node 'TopKV2' (TopKV2) has 2 outputs, no output 2"
    );
    assert_eq!(told(&g), wanted);

    // Each of a list, and in a function of an op that is inferred.
    let g = Graph::new();
    let line = line!() + 1;
    let op = NewOp::new(&g, "Split").input(0i32).input([1i64, 2]);
    let split = op.attr("num_split", 2i64).build();
    let parts: Vec<Output<i32>> = split.outputs("output", 2);
    assert_eq!((parts.len(), g.mistakes().len()), (2, 2));
    assert!(g.mistakes().iter().all(|mistake| mistake.caller.line() == line));
}

#[test]
fn what_makes_tensors_of_any_type_must_be_told_which() {
    for (function, make) in [
        ("zeros", (|g| g.zeros([2])) as fn(&Graph) -> Output<Any>),
        ("ones", |g| g.ones([2])),
        ("random_uniform", |g| g.random_uniform([2])),
        ("random_normal", |g| g.random_normal([2])),
        ("placeholder", |g| g.placeholder("x", [None])),
    ] {
        let g = Graph::new();
        let _ = make(&g).shape_tensor() + 1;
        let text = told(&g);
        let wanted = format!(
            "`{function}` must know the element type of what it makes, as in `{function}::<f32>`: \
             `Any` says none"
        );
        assert_eq!(g.mistakes().len(), 1);
        assert!(text.starts_with(&format!("{FILE}:")) && text.ends_with(&wanted), "{text}");
    }
    let g = Graph::new();
    let (_, line) = (g.zeros::<Any>([2]), line!());
    assert!(told(&g).starts_with(&format!("{FILE}:{line}: ")), "{}", told(&g));
    let g = Graph::new();
    let (_, line): (Variable<Any>, u32) = (g.variable("w", Init::ones([2])), line!());
    let wanted =
        format!("{FILE}:{line}: variable 'w': its element type must be known, such as f32");
    assert_eq!(told(&g), wanted);
    // The same of ops: their defaults are not guessed, but inputs say their types.
    let g = Graph::new();
    let x = g.constant([1.0f32, 2.0]);
    let line = line!() + 1;
    let _ = tf::shape::<Any, _>(&x);
    let _ = tf::cast::<Any, _>(&x);
    let mistakes: Vec<String> = g.mistakes().iter().map(ToString::to_string).collect();
    let wanted =
        [(line, "Shape", "out_type"), (line + 1, "Cast", "DstT")].map(|(line, op, attr)| {
            format!(
                "{FILE}:{line}: the inputs of {op} do not determine its attr '{attr}': it needs an \
             element type, such as f32, where `Any` was given"
            )
        });
    assert_eq!(mistakes, wanted);
    assert_eq!(tf::add_n(&g, &[x.any(), x.any()]).dtype(), Some(DType::Float));
    // A value of any type has one.
    let g = Graph::new();
    assert_eq!(g.fill::<Any>([2], &g.constant(1u8).any()).dtype(), Some(DType::UInt8));
    assert_eq!(g.constant(1u8).any().zeros_like().dtype(), Some(DType::UInt8));
}

#[test]
fn handles_of_gradient_functions_have_a_graph_of_their_own() {
    let inside = "a gradient function can use its arguments and what it computes of them";
    // A handle from outside is used inside.
    let g = Graph::new();
    let (x, scale) = (g.constant(2.0f32), g.constant(0.5f32).named("scale"));
    let first = line!() + 1;
    let y = custom_gradient(&x, |x| x.square(), move |_, dy| dy * &scale);
    let _ = gradients(&y, &x);
    let wanted = format!(
        "{FILE}:{}: gradient of 'IdentityN' (IdentityN): {FILE}:{first}: input 1 of Mul: 'scale:0' \
         belongs to another graph: {inside}",
        first + 1
    );
    assert_eq!(told(&g), wanted);

    // It is returned as it is.
    let g = Graph::new();
    let x = g.constant(2.0f32);
    let outside = x.clone();
    let first = line!() + 1;
    let y = custom_gradient(&x, |x| x.square(), move |_, _| outside.clone());
    let _ = gradients(&y, &x);
    let wanted = format!(
        "{FILE}:{}: gradient of 'IdentityN' (IdentityN): 'Const:0' belongs to another graph: {inside}",
        first + 1
    );
    assert_eq!(told(&g), wanted);

    // A handle from inside is used outside.
    let g = Graph::new();
    let x = g.constant(2.0f32);
    let kept = std::sync::Arc::new(std::sync::Mutex::new(None));
    let keep = kept.clone();
    g.set_gradient("Square", move |op: &OpGradient| {
        *keep.lock().unwrap() = Some(op.gradients[0].typed::<f32>().named("kept"));
        vec![Some(op.gradients[0].clone())]
    });
    let _ = gradients(&x.square(), &x);
    assert!(g.check().is_ok());
    let kept = kept.lock().unwrap().take().unwrap();
    let line = line!() + 1;
    let _ = &x + &kept;
    let wanted = format!(
        "{FILE}:{line}: input 1 of AddV2: 'gradients/Square_grad/kept:0' belongs to another graph, that of a gradient \
         function: only what the function returns leaves it"
    );
    assert_eq!(told(&g), wanted);
}

#[test]
fn a_gradient_function_works_within_a_loop() -> Result<()> {
    let g = Graph::new();
    let x = g.constant(2.0f32);
    let start = (g.constant(0i32), x.clone());
    let (_, y) = while_loop(
        start,
        |(i, _)| i.less(3),
        |(i, y)| (i + 1, custom_gradient(&y, |y| y * 2.0, |y, dy| dy * y)),
    );
    // The values before the iterations: 2, 4 and 8.
    let dx = gradients(&y, &x);
    let (y, dx): (f32, f32) = g.session()?.run((&y, &dx), (), &[])?;
    assert_eq!((y, dx), (16.0, 64.0));
    Ok(())
}

#[test]
fn an_output_that_a_node_has_not_cannot_be_fed() -> Result<()> {
    let g = Graph::new();
    let node = NewOp::new(&g, "NoOp").operation().node()?;
    let none: Output<f32> = g.output(thalweg_graph::Endpoint { node, index: 0 });
    let error = g.session()?.run::<_, f32>(&none, feed! { none: 1.0 }, &[]).unwrap_err();
    assert_eq!(error.message(), "feed of 'NoOp:0': the node has 0 outputs");
    Ok(())
}
