//! Branches by position, and loops over rows: values, shapes, gradients, mistakes.

use thalweg_api::{
    Code, FromTensor, Graph, Init, LoopOptions, NewOp, Output, Result, TensorType, Variable, case,
    cond, feed, foldl, gradients, map_fn, scan, session_options, switch_case, tf, while_loop,
};
use thalweg_graph::{Attrs, IntoAttr};
use thalweg_runtime::RunOptions;

const FILE: &str = file!();

/// The value of a tensor that depends on no feed.
#[track_caller]
fn value<T: TensorType, R: FromTensor<T>>(x: &Output<T>) -> R {
    x.graph().session().and_then(|session| session.run(x, (), &[])).expect("the step succeeds")
}

/// The text of the mistakes so far.
#[track_caller]
fn told(g: &Graph) -> String {
    let error = g.check().expect_err("there is a mistake");
    assert_eq!(error.code(), Code::InvalidArgument, "{error}");
    error.message().to_owned()
}

#[test]
fn an_index_chooses_a_branch() -> Result<()> {
    let g = Graph::new();
    let x = g.placeholder::<f32>("x", []);
    let i = g.placeholder::<i32>("i", []);
    let w: Variable<f32> = g.variable("w", Init::constant(3.0, []));
    let (y, label) = switch_case(
        &i,
        (|| (x.square(), g.constant(0i64)), || (&x * &w, g.constant(1i64))),
        || (-&x, g.constant(2i64)),
    );
    let (dx, dw) = gradients(&y, (&x, &w));
    let of_array =
        switch_case(&i, [1.0f32, 2.0].map(|scale| &x * scale).map(|y| move || y), || {
            x.zeros_like()
        });
    let powers: Vec<_> = (1..4).map(|n| move |x: &Output<f32>| x.pow(n as f32)).collect();
    let of_list =
        switch_case(&i, powers.iter().map(|f| || f(&x)).collect::<Vec<_>>(), || x.clone());
    let session = g.session()?;
    let run = |index: i32| -> Result<(f32, i64, f32, f32)> {
        session.run((&y, &label, &dx, &dw), feed! { x: 5.0, i: index }, &[])
    };
    assert_eq!(run(0)?, (25.0, 0, 10.0, 0.0));
    assert_eq!(run(1)?, (15.0, 1, 3.0, 5.0));
    for other in [2, 100, -1] {
        assert_eq!(run(other)?, (-5.0, 2, -1.0, 0.0));
    }
    let both = |index: i32| -> Result<(f32, f32)> {
        session.run((&of_array, &of_list), feed! { x: 2.0, i: index }, &[])
    };
    assert_eq!(both(0)?, (2.0, 2.0));
    assert_eq!(both(1)?, (4.0, 4.0));
    assert_eq!(both(2)?, (0.0, 8.0));
    assert_eq!(both(3)?, (0.0, 2.0));
    Ok(())
}

#[test]
fn only_the_chosen_branch_runs() -> Result<()> {
    let g = Graph::new();
    let counts: [Variable<i32>; 2] =
        ["a", "b"].map(|name| g.variable(name, Init::zeros([]).not_trainable()));
    let i = g.placeholder::<i32>("i", []);
    let count = |which: usize| {
        let add = counts[which].assign_add(1);
        counts[which].read_within(&g.after(&[&add]))
    };
    let y = switch_case(&i, [|| count(0)], || count(1));
    let session = g.session()?;
    for (index, expected) in [(0, 1), (0, 2), (7, 1)] {
        assert_eq!(session.run::<_, i32>(&y, feed! { i: index }, &[])?, expected);
    }
    assert_eq!(session.run::<_, [i32; 2]>(&counts, (), &[])?, [2, 1]);
    Ok(())
}

#[test]
fn the_first_true_condition_chooses() -> Result<()> {
    let g = Graph::new();
    let x = g.placeholder::<f32>("x", []);
    let (negative, small) = (x.less(0.0), x.less(1.0));
    let y = case(((&negative, || -&x), (&small, || x.sqrt())), || x.square());
    let list = vec![(&negative, || x.clone())];
    let clipped = case(list, || x.zeros_like());
    let same = case([(&small, || x.ones_like())], || x.clone());
    let none: Output<f32> = case(Vec::<(&Output<bool>, fn() -> Output<f32>)>::new(), || x.clone());
    let dy = gradients(&y, &x);
    let session = g.session()?;
    let run = |value: f32| -> Result<[f32; 5]> {
        session.run([&y, &dy, &clipped, &same, &none], feed! { x: value }, &[])
    };
    assert_eq!(run(-4.0)?, [4.0, -1.0, -4.0, 1.0, -4.0]);
    assert_eq!(run(0.25)?, [0.5, 1.0, 0.0, 1.0, 0.25]);
    assert_eq!(run(3.0)?, [9.0, 6.0, 0.0, 3.0, 3.0]);
    Ok(())
}

#[test]
fn mistakes_of_branches_are_told_with_their_lines() {
    let g = Graph::new();
    let x = g.constant(1.0f32);
    let i = g.constant(0i32);
    let line = line!() + 1;
    let y = switch_case(&i, [|| vec![x.clone()]], || vec![x.clone(), x.clone()]);
    assert_eq!(y.len(), 1);
    let begin = format!("{FILE}:{line}: branches must return the same types");
    assert!(told(&g).starts_with(&begin), "{}", told(&g));

    // A mistake in a branch is told once; an index that is poisoned causes none.
    let g = Graph::new();
    let (x, i) = (g.constant([1.0f32, 2.0]), g.constant(0i32));
    let line = line!() + 1;
    let y = switch_case(&i, (|| x.clone(), || x.matmul(&x)), || x.clone());
    let again = switch_case(&i.matmul(&i), (|| &x + 1.0, || &x + 2.0), || &x + &y);
    let _ = again + 1.0;
    let mistakes = g.mistakes();
    assert_eq!(mistakes.len(), 2, "{mistakes:?}");
    assert_eq!((mistakes[0].caller.line(), mistakes[1].caller.line()), (line, line + 1));

    let (g, other) = (Graph::new(), Graph::new());
    let (x, i) = (other.constant(1.0f32), g.constant(0i32));
    let line = line!() + 1;
    let _ = switch_case(&i, [|| x.clone()], || x.clone());
    let wanted = format!("{FILE}:{line}: 'Const:0' belongs to another graph");
    assert_eq!(told(&g), wanted);
}

#[test]
fn rows_are_mapped() -> Result<()> {
    let g = Graph::new();
    let x = g.placeholder::<f32>("x", [None, Some(2)]);
    let n = g.constant([1i32, 2, 3]);
    let w: Variable<f32> = g.variable("w", Init::values([10.0, 100.0], [2]));
    // Another structure, other types, captured handles of the graph.
    let (scaled, [twice, label]) = map_fn((&x, [&n, &n]), |(row, [n, same])| {
        ((&row * &w).sum() + n.cast::<f32>(), [&same * 2, 7 - n])
    });
    // The three rows of `n` are known.
    assert_eq!(scaled.shape().to_string(), "[3]");
    let rows = map_fn(&x, |row| g.stack(&[&row, &row], 0));
    assert_eq!(rows.shape().to_string(), "[?,2,2]");
    let words = map_fn(g.constant(["b", "a"]), |word| tf::string_join(&g, &[word.clone(), word]));
    let of_variable = map_fn(&w, |w| w.less(50.0));
    let session = g.session()?;
    let data = [[1.0f32, 2.0], [3.0, 4.0], [5.0, 6.0]];
    let (scaled, twice, label): ([f32; 3], [i32; 3], [i32; 3]) =
        session.run((&scaled, &twice, &label), feed! { x: data }, &[])?;
    assert_eq!((scaled, twice, label), ([211.0, 432.0, 653.0], [2, 4, 6], [6, 5, 4]));
    let rows: Vec<[[f32; 2]; 2]> = session.run(&rows, feed! { x: &data[..2] }, &[])?;
    assert_eq!(rows, [[[1.0, 2.0]; 2], [[3.0, 4.0]; 2]]);
    assert_eq!(session.run::<_, Vec<String>>(&words, (), &[])?, ["bb", "aa"]);
    assert_eq!(session.run::<_, [bool; 2]>(&of_variable, (), &[])?, [true, false]);
    Ok(())
}

#[test]
fn no_rows_make_no_rows() -> Result<()> {
    let g = Graph::new();
    let x = g.placeholder::<f32>("x", [None, Some(2)]);
    let mapped = map_fn(&x, |row| row.reshape([1, 2]));
    let states = scan(&x, g.zeros::<f32>([2]), |state, row| state + row);
    let last = foldl(&x, g.ones::<f32>([2]), |state, row| state + row);
    let session = g.session()?;
    let none = vec![[0.0f32; 2]; 0];
    let (mapped, states, last): (thalweg_api::Tensor, thalweg_api::Tensor, [f32; 2]) =
        session.run((&mapped, &states, &last), feed! { x: none }, &[])?;
    assert_eq!(mapped.shape().dims(), [0, 1, 2]);
    assert_eq!(states.shape().dims(), [0, 2]);
    assert_eq!(last, [1.0, 1.0]);
    Ok(())
}

#[test]
fn states_are_scanned_and_folded() -> Result<()> {
    let g = Graph::new();
    let x = g.constant([[1i64, 10], [2, 20], [3, 30]]);
    // Sum and number of rows.
    let init = (g.constant([0i64, 0]), g.constant(0i32));
    let (sums, counts) = scan(&x, init.clone(), |(sum, n), row| (sum + row, n + 1));
    assert_eq!(sums.shape().to_string(), "[3,2]");
    assert_eq!(counts.shape().to_string(), "[3]");
    let (sum, count) = foldl(&x, init, |(sum, n), row| (sum + row, n + 1));
    assert_eq!(sum.shape().to_string(), "[2]");
    assert_eq!(value::<i64, [[i64; 2]; 3]>(&sums), [[1, 10], [3, 30], [6, 60]]);
    assert_eq!(value::<i32, [i32; 3]>(&counts), [1, 2, 3]);
    assert_eq!(value::<i64, [i64; 2]>(&sum), [6, 60]);
    assert_eq!(value::<i32, i32>(&count), 3);
    // Several tensors, as a slice; nested loops; a branch within.
    let y = g.constant([[4i64, 5], [6, 7], [8, 9]]);
    let dots = map_fn(&[&x, &y][..], |rows| {
        foldl((&rows[0], &rows[1]), g.constant(0i64), |sum, (a, b)| {
            cond(&a.greater(2), || &sum + &a * &b, || sum.clone())
        })
    });
    assert_eq!(value::<i64, [i64; 3]>(&dots), [50, 140, 294]);
    Ok(())
}

/// `y[i] = sum(sin(w * x[i]))`: `dw = sum(x * cos(w * x))`, `dx = w * cos(w * x)`.
#[test]
fn a_map_is_differentiated() -> Result<()> {
    let g = Graph::new();
    let data = [[0.5f32, -1.0], [2.0, 0.25], [1.5, -0.75]];
    let x = g.constant(data);
    let w: Variable<f32> = g.variable("w", Init::constant(1.25, []));
    let y = map_fn(&x, |row| (&row * &w).sin().sum());
    let (dx, dw) = gradients(&y, (&x, &w));
    let second = gradients(&dw, &w);
    let session = g.session()?;
    let (y, dx, dw, second): ([f32; 3], [[f32; 2]; 3], f32, f32) =
        session.run((&y, &dx, &dw, &second), (), &[])?;
    let w = 1.25f32;
    let close = |a: f32, b: f32| assert!((a - b).abs() < 1e-5, "{a} is not {b}");
    for i in 0..3 {
        close(y[i], data[i].iter().map(|x| (w * x).sin()).sum());
        (0..2).for_each(|j| close(dx[i][j], w * (w * data[i][j]).cos()));
    }
    let all = || data.iter().flatten();
    close(dw, all().map(|x| x * (w * x).cos()).sum());
    close(second, all().map(|x| -x * x * (w * x).sin()).sum());
    Ok(())
}

/// `h[t] = a h[t - 1] + x[t]` from `h[-1] = b`: of the sum of all states, `dx[t]` is
/// `1 + a + ... + a^(n - 1 - t)`, `db` is `a + ... + a^n`, and `da` the sum over the states of their
/// own derivatives, `d[t] = h[t - 1] + a d[t - 1]`.
#[test]
fn a_scan_is_differentiated() -> Result<()> {
    let g = Graph::new();
    let data = [1.0f32, -2.0, 0.5, 3.0];
    let (a, b) = (0.75f32, 2.0f32);
    let x = g.placeholder::<f32>("x", [None]);
    let decay: Variable<f32> = g.variable("a", Init::constant(f64::from(a), []));
    let init: Variable<f32> = g.variable("b", Init::constant(f64::from(b), []));
    let states = scan(&x, init.value().clone(), |h, x| h * &decay + x);
    let last = foldl(&x, init.value().clone(), |h, x| h * &decay + x);
    let (dx, da, db) = gradients(&states, (&x, &decay, &init));
    let (dx_last, db_last) = gradients(&last, (&x, &init));
    let session = g.session()?;
    let feeds = feed! { x: data };
    let (states, dx, da, db): ([f32; 4], [f32; 4], f32, f32) =
        session.run((&states, &dx, &da, &db), feeds.clone(), &[])?;
    let (dx_last, db_last): ([f32; 4], f32) = session.run((&dx_last, &db_last), feeds, &[])?;

    let close = |got: f32, wanted: f32| assert!((got - wanted).abs() < 1e-5, "{got} not {wanted}");
    let (mut h, mut d, mut of_a) = (b, 0.0, 0.0);
    for t in 0..4 {
        (h, d) = (a * h + data[t], h + a * d);
        of_a += d;
        close(states[t], h);
        close(dx[t], (0..4 - t as i32).map(|n| a.powi(n)).sum());
        close(dx_last[t], a.powi(3 - t as i32));
    }
    close(da, of_a);
    close(db, (1..=4).map(|n| a.powi(n)).sum());
    close(db_last, a.powi(4));
    Ok(())
}

#[test]
fn mistakes_of_loops_over_rows_are_told_with_their_lines() {
    for (told, wanted) in [
        (
            mistake(&|g| {
                let y = map_fn(g.constant(1.0f32), |row| row + 1.0);
                let _ = y * 2.0;
                line!() - 2
            }),
            "a scalar has no rows",
        ),
        (
            mistake(&|g| {
                let _ = map_fn((&g.constant([1, 2]), &g.constant([1, 2, 3])), |(a, b)| a + b);
                line!() - 1
            }),
            "elems must have the same number of rows, got 2 and 3",
        ),
        (
            mistake(&|g| {
                let _ = map_fn(&Vec::<Output<f32>>::new()[..], |_| g.constant(1));
                line!() - 1
            }),
            "elems must have at least one tensor",
        ),
        (
            mistake(&|g| {
                let _ = scan(Vec::<Output<f32>>::new(), g.constant(1), |state, _| state);
                line!() - 1
            }),
            "elems must have at least one tensor",
        ),
        (
            mistake(&|g| {
                let init = g.constant(1i32).any();
                let _ = scan(g.constant([1.0f32]), init, |_, row| row.any());
                line!() - 1
            }),
            "the body returns [float] for a state of [int32]",
        ),
        (
            mistake(&|g| {
                let init = vec![g.constant(1i32)];
                let _ = foldl(g.constant([1.0f32]), init, |_, _| Vec::new());
                line!() - 1
            }),
            "the body returns [] for a state of [int32]",
        ),
        (
            mistake(&|g| {
                let options = LoopOptions::new().parallel_iterations(0);
                let _ = options.map_fn(g.constant([1.0f32]), |row| row * 2.0);
                line!() - 1
            }),
            "parallel_iterations must be at least 1",
        ),
        (
            mistake(&|g| {
                let _ = map_fn(g.constant([1, 2]), |_| Graph::new().constant(1.0f32));
                line!() - 1
            }),
            "'Const:0' belongs to another graph",
        ),
    ] {
        assert_eq!(told, wanted);
    }
}

/// The text of the only mistake that `add` makes in a new graph, after its location: `add` returns the line.
fn mistake(add: &dyn Fn(&Graph) -> u32) -> String {
    let g = Graph::new();
    let line = add(&g);
    let text = told(&g);
    assert_eq!(g.mistakes().len(), 1, "{text}");
    let begin = format!("{FILE}:{line}: ");
    assert!(text.starts_with(&begin), "{text} is not of line {line}");
    text[begin.len()..].to_owned()
}

#[test]
fn rows_stay_in_their_bodies() {
    let g = Graph::new();
    let mut kept = None;
    let y = map_fn(g.constant([1.0f32, 2.0]), |row| {
        kept = Some(row.clone());
        row * 2.0
    });
    assert_eq!(value::<f32, [f32; 2]>(&y), [2.0, 4.0]);
    let line = line!() + 1;
    let _ = kept.unwrap() + 1.0;
    let wanted = format!(
        "{FILE}:{line}: input 0 of AddV2: the tensor belongs to the body of a branch or loop: return \
         it from the closure to use it outside"
    );
    assert_eq!(told(&g), wanted);

    // The same of a node whose outputs are taken outside.
    let g = Graph::new();
    let mut kept = None;
    let x = g.constant([1.0f32, 2.0]);
    let _ = map_fn(&x, |row| {
        let node = NewOp::new(&g, "Square").input(&row).build();
        let square = node.output::<f32>(0);
        kept = Some(node);
        square
    });
    let node = kept.expect("the body was called");
    let (typed, named, all) =
        (node.output::<i64>(7), node.named::<f32>("y"), node.outputs::<f32>("y", 1));
    assert!(node.operation().name().is_err());
    let first = line!() + 1;
    let _ = typed + 1;
    let _ = named + 1.0;
    let _ = &all[0] + 1.0;
    assert_eq!(g.mistakes().len(), 3);
    for (line, mistake) in (first..).zip(g.mistakes()) {
        assert_eq!(mistake.caller.line(), line);
        assert!(mistake.error.message().contains("belongs to the body"), "{mistake}");
    }

    // A mistake in the body is told once, with its line, and poisons what the loop returns.
    let g = Graph::new();
    let x = g.constant([[1.0f32, 2.0]]);
    let line = line!() + 1;
    let (y, n) = map_fn(&x, |row| (row.matmul(&row), g.constant(1i64)));
    let _ = (y.sum(), n.sum(), scan(&y, g.constant(0.0f32), |_, row| row.sum()));
    assert!(told(&g).starts_with(&format!("{FILE}:{line}: ")), "{}", told(&g));
    assert_eq!(g.mistakes().len(), 1, "{}", told(&g));
}

/// The attr `parallel_iterations` of the loops of a graph.
fn limits(g: &Graph) -> Vec<i64> {
    g.as_scope().with_graph(|g| {
        let loops = g.nodes().iter().filter(|node| node.op.name.ends_with("While"));
        loops.map(|node| node.attrs().int("parallel_iterations").expect("loops have it")).collect()
    })
}

#[test]
fn loops_and_their_gradients_have_their_limit_of_iterations() {
    let g = Graph::new();
    let x = g.constant([1.0f32, 2.0]);
    let options = LoopOptions::new().parallel_iterations(3);
    let y = options.map_fn(&x, |row| row.square());
    let dx = gradients(&y, &x);
    assert_eq!(limits(&g), [3, 3]);
    let start = || (g.constant(0), g.constant(1.0f32));
    let _ = options.while_loop(start(), |(i, _)| i.less(2), |(i, x)| (i + 1, x * 2.0));
    let _ = options.scan(&x, g.constant(0.0f32), |sum, x| sum + x);
    let _ = options.foldl(&x, g.constant(0.0f32), |sum, x| sum + x);
    let _ = while_loop(start(), |(i, _)| i.less(2), |(i, x)| (i + 1, x * 2.0));
    let _ = map_fn(&x, |row| row.square());
    assert_eq!(limits(&g), [3, 3, 3, 3, 3, 10, 10]);
    assert_eq!(value::<f32, [f32; 2]>(&dx), [2.0, 4.0]);
}

#[test]
fn frames_of_lowered_loops_have_the_limit() -> Result<()> {
    let g = Graph::new();
    let x = g.constant([1.0f32, 2.0, 3.0]);
    let y = LoopOptions::new().parallel_iterations(3).map_fn(&x, |row| row.square());
    let dx = gradients(&y, &x);
    let mut options = session_options();
    options.plan.lower = true;
    let session = g.session_with(options)?;
    let run = RunOptions { partition_graphs: true, ..RunOptions::default() };
    let (found, report) = session.run_with::<_, ([f32; 3], [f32; 3])>(&run, (&y, &dx), (), &[])?;
    assert_eq!(found, ([1.0, 4.0, 9.0], [2.0, 4.0, 6.0]));
    let nodes = || report.partition_graphs.iter().flat_map(|graph| &graph.node);
    assert!(nodes().all(|node| !node.op.ends_with("While")));
    let enters: Vec<_> = nodes().filter(|node| node.op == "Enter").collect();
    assert!(enters.len() > 2, "{} nodes", enters.len());
    for enter in enters {
        let attrs = Attrs::from_proto(&enter.attr);
        assert_eq!(attrs.get("parallel_iterations"), Some(&3i64.into_attr()), "{}", enter.name);
    }
    Ok(())
}
