//! The public interface of a session: feeds, fetches, targets, errors, extension of the graph.
#![allow(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

mod support;

use support::*;
use thalweg_runtime::{RunOptions, Session};
use thalweg_tensor::{Code, DType, Tensor};

/// x -> two (y, z) -> sum; and what must not run.
fn diamond() -> Session {
    let mut s = scope();
    let x = feed(&mut s, "x");
    let two = s.op("ToyTwo").name("two").input(x).build_all().unwrap();
    toy(&mut s, "ToyAdd", "sum", &two);
    toy(&mut s, "ToyFail", "poison", &[x]);
    session(s.to_graph(), 2)
}

#[test]
fn any_tensor_can_be_fed_and_fetched() {
    let s = diamond();
    let run =
        |feeds: &[(&str, Tensor)], fetches: &[&str]| numbers(&s.run(feeds, fetches, &[]).unwrap());
    assert_eq!(run(&[("x", number(1.0))], &["sum"]), [5.0]);
    assert_eq!(run(&[("x:0", number(1.0))], &["sum:0", "two:1", "sum"]), [5.0, 3.0, 5.0]);
    // One of two outputs: the other is still computed.
    assert_eq!(run(&[("x", number(1.0)), ("two:1", number(10.0))], &["sum"]), [12.0]);
    // Both: then `x` is not needed.
    assert_eq!(run(&[("two", number(20.0)), ("two:1", number(10.0))], &["sum"]), [30.0]);
    // What is fed can be fetched, and nothing runs.
    assert_eq!(run(&[("sum", number(7.0))], &["sum", "sum"]), [7.0, 7.0]);
    // Another shape than declared.
    assert_eq!(run(&[("two", four(1.0)), ("two:1", four(2.0))], &["sum"]), [3.0]);
    // As in TensorFlow, a step does something.
    let e = s.run(&[], &[], &[]).unwrap_err();
    assert_eq!(e.code(), Code::InvalidArgument, "{e}");
}

#[test]
fn targets_run_and_nothing_else_does() {
    let s = diamond();
    assert!(s.run(&[("x", number(1.0))], &[], &["sum"]).unwrap().is_empty());
    assert!(s.run(&[("x", number(1.0))], &[], &["sum:0"]).is_ok());
    let e = s.run(&[("x", number(1.0))], &["sum"], &["poison"]).unwrap_err();
    assert_eq!(e.code(), Code::OutOfRange);
    assert_eq!(e.message(), "the toy is broken\n\t [[{{node poison}}]]");
    assert_eq!(s.planned_nodes(&["x"], &["sum"], &[]).unwrap(), 4);
}

#[test]
fn mistakes_have_tensorflows_codes() {
    let s = diamond();
    let x = || ("x", number(1.0));
    type Case<'a> = (Vec<(&'a str, Tensor)>, &'a [&'a str], &'a [&'a str], Code, &'a str);
    let cases: Vec<Case<'_>> = vec![
        (
            vec![],
            &["sum"],
            &[],
            Code::InvalidArgument,
            "You must feed a value for placeholder tensor 'x' with dtype float\n\t [[{{node x}}]]",
        ),
        (
            vec![("x", Tensor::scalar(1i32))],
            &["sum"],
            &[],
            Code::InvalidArgument,
            "'x' is float, but int32 was fed",
        ),
        (
            vec![("nope:0", number(1.0))],
            &["sum"],
            &[],
            Code::NotFound,
            "FeedInputs: unable to find feed output nope:0",
        ),
        (vec![x()], &["nope:0"], &[], Code::NotFound, "FetchOutputs node nope:0: not found"),
        (
            vec![x()],
            &[],
            &["nope", "sum", "no"],
            Code::NotFound,
            "PruneForTargets: Some target nodes not found: nope no ",
        ),
        (
            vec![x()],
            &["sum:1"],
            &[],
            Code::InvalidArgument,
            "'sum:1' is not a tensor: node 'sum' has 1 outputs",
        ),
        (vec![x(), ("x:0", number(1.0))], &["sum"], &[], Code::InvalidArgument, "'x' is fed twice"),
    ];
    for (feeds, fetches, targets, code, message) in cases {
        let e = s.run(&feeds, fetches, targets).unwrap_err();
        assert_eq!((e.code(), e.message()), (code, message));
    }
    assert_eq!(numbers(&s.run(&[x()], &["sum"], &[]).unwrap()), [5.0]);
}

#[test]
fn kernels_that_misbehave_end_their_step_only() {
    let mut s = scope();
    let x = feed(&mut s, "x");
    let bad = [
        ("ToyPanic", "panicked", Code::Internal),
        ("ToyNothing", "did not set output 0", Code::Internal),
        ("ToyWrong", "must be float", Code::Internal),
        ("ToyNoKernel", "no kernel", Code::Unimplemented),
    ];
    for (op, _, _) in bad {
        toy(&mut s, op, op, &[x]);
    }
    let modes = ["dropped", "empty", "wrong", "many", "panic"];
    for mode in modes {
        toy_async(&mut s, mode, mode, x);
    }
    toy(&mut s, "ToyExpensive", "good", &[x]);
    let s = session(s.to_graph(), 2);
    for _ in 0..3 {
        let run = |name: &str| s.run(&[("x", number(1.0))], &[name], &[]);
        for (op, what, code) in bad {
            let e = run(op).unwrap_err();
            assert_eq!(e.code(), code, "{e}");
            assert!(e.message().contains(what), "{e}");
            assert!(e.message().ends_with(&format!("[[{{{{node {op}}}}}]]")), "{e}");
        }
        for mode in modes {
            let e = run(mode).unwrap_err();
            assert_eq!(e.code(), Code::Internal, "{mode}: {e}");
            assert!(e.message().ends_with(&format!("[[{{{{node {mode}}}}}]]")), "{e}");
        }
        assert_eq!(numbers(&run("good").unwrap()), [2.0]);
    }
}

#[test]
fn a_session_grows_and_forgets_old_plans() {
    let mut s = scope();
    let x = feed(&mut s, "x");
    for i in 0..20 {
        let one = s.constant(&number(i as f32)).unwrap();
        toy(&mut s, "ToyAdd", &format!("y{i}"), &[x, one]);
    }
    let mut options = options(1);
    options.plans_max = 4;
    let s = Session::new(s.to_graph(), registries().1, options).unwrap();
    let kept = s.make_callable(&["x"], &["y0"], &[]).unwrap();
    for round in 0..3 {
        for i in 0..20 {
            let y = s.run(&[("x", number(1.0))], &[&format!("y{i}")], &[]).unwrap();
            assert_eq!(numbers(&y), [i as f32 + 1.0], "round {round}");
            assert!(s.cached_plans() <= 4);
        }
    }
    assert_eq!(numbers(&kept.call(&[number(2.0)]).unwrap()), [2.0]);
    assert_eq!(kept.call(&[]).unwrap_err().code(), Code::InvalidArgument);
    let more = r#"node { name: "z" op: "ToyAdd" input: "y0" input: "y1" }"#;
    let decode = |t: &str| thalweg_proto::text::decode("tensorflow.GraphDef", t).unwrap();
    s.extend(decode(more)).unwrap();
    let nodes = s.with_graph(thalweg_graph::Graph::len);
    let broken = r#"node { name: "a" op: "ToyExpensive" input: "y0" } node { name: "b" op: "ToyExpensive" input: "c" }"#;
    assert_eq!(s.extend(decode(broken)).unwrap_err().code(), Code::InvalidArgument);
    assert_eq!(s.with_graph(thalweg_graph::Graph::len), nodes);
    assert_eq!(s.run(&[], &["a"], &[]).unwrap_err().code(), Code::NotFound);
    assert_eq!(numbers(&s.run(&[("x", number(1.0))], &["z"], &[]).unwrap()), [3.0]);
    drop(s);
    assert_eq!(numbers(&kept.call(&[number(5.0)]).unwrap()), [5.0]);
}

#[test]
fn a_step_frees_its_memory_and_its_session() {
    let mut s = scope();
    let x = feed(&mut s, "x");
    let (kernels, big) = (registries().1, 1 << 20);
    toy(&mut s, "ToyAdd", "sum", &[x, x]);
    let s = Session::new(s.to_graph(), kernels.clone(), options(1)).unwrap();
    let wide = Tensor::zeros(DType::Float, thalweg_tensor::Shape::new(&[big]).unwrap()).unwrap();
    // The sum is computed, and no node reads it.
    s.run(&[("x", wide)], &[], &["sum"]).unwrap();
    assert_eq!(s.memory_used_bytes(), 0);
    let before = std::sync::Arc::strong_count(&kernels);
    drop(s);
    assert_eq!(std::sync::Arc::strong_count(&kernels), before - 1, "the session is still there");
}

#[test]
fn a_trace_names_every_node() {
    let s = diamond();
    let options = RunOptions { trace: true, ..Default::default() };
    let (_, report) = s.run_with(&options, &[("x", number(1.0))], &["sum"], &[]).unwrap();
    let mut names: Vec<&str> = report.nodes.iter().map(|n| &*n.node).collect();
    names.sort_unstable();
    assert_eq!(names, ["_recv_x_0", "_send_sum_0", "sum", "two"]);
    assert!(report.nodes.iter().all(|n| n.start_ns <= n.end_ns));
}

#[test]
fn a_graph_cannot_stand_for_the_client() {
    let arg = r#"node { name: "a" op: "_Arg" attr { key: "T" value { type: DT_FLOAT } } attr { key: "index" value { i: 2147483647 } } }"#;
    let s = text_session(arg, 1).unwrap();
    assert_eq!(s.run(&[], &["a"], &[]).unwrap_err().code(), Code::InvalidArgument);
    let recv = r#"node { name: "r" op: "_Recv" attr { key: "tensor_type" value { type: DT_FLOAT } }
        attr { key: "tensor_name" value { s: "x" } } attr { key: "send_device" value { s: "d" } }
        attr { key: "send_device_incarnation" value { i: 1 } } attr { key: "recv_device" value { s: "d" } }
        attr { key: "client_terminated" value { b: CLIENT } } }"#;
    for client in ["true", "false"] {
        let s = text_session(&recv.replace("CLIENT", client), 1).unwrap();
        assert_eq!(s.run(&[], &["r"], &[]).unwrap_err().code(), Code::InvalidArgument);
    }
}

/// The state of a seeded random op belongs to the session's node: all plans with the node share it.
#[test]
fn plans_share_the_state_of_a_node() {
    let draw = |split: bool| -> Vec<f32> {
        let mut s = scope();
        let shape = s.constant(&Tensor::vector(&[1i32]).unwrap()).unwrap();
        let random = s.op("RandomUniform").name("r").input(shape).attr("dtype", DType::Float);
        let random = random.attr("seed", 7i64).attr("seed2", 3i64).build().unwrap();
        toy(&mut s, "Identity", "same", &[random]);
        let s = session(s.to_graph(), 1);
        let fetch = |i: usize| if split && i % 2 == 1 { "same" } else { "r" };
        (0..4).flat_map(|i| numbers(&s.run(&[], &[fetch(i)], &[]).unwrap())).collect()
    };
    let drawn = draw(false);
    assert!(drawn.windows(2).all(|w| w[0] != w[1]), "{drawn:?}");
    assert_eq!(draw(true), drawn);
}
