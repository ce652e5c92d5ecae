//! Remote sessions: our client against our server.
#![allow(clippy::disallowed_methods, reason = "a test has threads and time of its own")]
#![allow(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

mod support;

use std::time::{Duration, Instant};

use support::*;
use thalweg_cluster::grpc::ServerOptions;
use thalweg_cluster::{Connect, ConnectOptions, RemoteSession};
use thalweg_kernel::Cancellation;
use thalweg_proto as pb;
use thalweg_runtime::{RunOptions, Session};
use thalweg_tensor::{Code, DType, Shape, Tensor, err};

#[test]
fn a_session_runs_grows_and_closes() {
    let server = TestServer::new();
    let mut s = scope();
    let x = placeholder(&mut s, "x");
    let double = s.op("AddV2").name("double").inputs(&[x, x]).build().unwrap();
    let session = Session::connect(&server.target(), &s.to_graph()).unwrap();
    let fed = [("x", Tensor::vector(&[1.0f32, 2.0]).unwrap())];
    let got = session.run(&fed, &["double:0", "x", "double"], &[]).unwrap();
    assert_eq!(got[0].as_slice::<f32>().unwrap(), [2.0, 4.0]);
    assert_eq!(got[1].as_slice::<f32>().unwrap(), [1.0, 2.0]);
    assert_eq!(got[2].as_slice::<f32>().unwrap(), [2.0, 4.0]);
    let old = s.to_graph().to_def().node.len();
    s.op("Neg").name("minus").input(double).build().unwrap();
    let mut more = s.to_graph().to_def();
    more.node.drain(..old);
    session.extend(more.clone()).unwrap();
    let e = session.extend(more).unwrap_err();
    assert_eq!(e.code(), Code::InvalidArgument);
    assert!(e.message().contains("created by a previous call to Create or Extend"), "{e}");
    let got = session.run(&fed, &["minus"], &[]).unwrap();
    assert_eq!(got[0].as_slice::<f32>().unwrap(), [-2.0, -4.0]);
    let devices = session.list_devices().unwrap();
    assert_eq!(devices[0].name, "/job:local/replica:0/task:0/device:CPU:0");
    assert_eq!(server.master.session_count(), 1);
    session.close().unwrap();
    assert_eq!(server.master.session_count(), 0);
    assert_eq!(session.run(&fed, &["minus"], &[]).unwrap_err().code(), Code::Aborted);
}

#[test]
fn strings_and_numbers_round_trip() {
    let server = TestServer::new();
    let mut s = scope();
    let strings = s.op("Placeholder").name("s").attr("dtype", DType::String).build().unwrap();
    s.op("Identity").name("same_s").input(strings).build().unwrap();
    let ints = s.op("Placeholder").name("i").attr("dtype", DType::Int64).build().unwrap();
    s.op("Identity").name("same_i").input(ints).build().unwrap();
    let session = server.open(&s);
    let texts = Tensor::from_strings(
        Shape::new(&[2]).unwrap(),
        vec!["ab".to_owned().into(), String::new().into()],
    )
    .unwrap();
    let large: Vec<i64> = (0..300_000).collect();
    let large = Tensor::vector(&large).unwrap();
    let fed = [("s", texts.clone()), ("i", large.clone())];
    let got = session.run(&fed, &["same_i", "same_s"], &[]).unwrap();
    assert_eq!(got[0].as_slice::<i64>().unwrap(), large.as_slice::<i64>().unwrap());
    assert_eq!(got[1].strings().unwrap(), texts.strings().unwrap());
    let empty = Tensor::zeros(DType::Int64, Shape::new(&[0, 3]).unwrap()).unwrap();
    let got = session.run(&[("i", empty.clone())], &["same_i"], &[]).unwrap();
    assert_eq!((got[0].dtype(), got[0].shape()), (empty.dtype(), empty.shape()));
}

#[test]
fn errors_keep_their_codes() {
    let server = TestServer::new();
    let mut s = scope();
    let x = placeholder(&mut s, "x");
    s.op("Neg").name("minus").input(x).build().unwrap();
    let session = server.open(&s);
    let e = session.run(&[], &["minus"], &[]).unwrap_err();
    assert_eq!(e.code(), Code::InvalidArgument);
    assert!(e.message().contains("[[{{node x}}]]"), "{e}");
    assert_eq!(session.run(&[], &["nope"], &[]).unwrap_err().code(), Code::NotFound);
    let e = session.make_callable(&[], &["nope"], &[]).map(|_| ()).unwrap_err();
    assert_eq!(e.code(), Code::NotFound);
    let open = |target: &str| {
        let graph = pb::GraphDef::default();
        let connect_timeout = Duration::from_millis(200);
        let options = ConnectOptions { connect_timeout, ..Default::default() };
        RemoteSession::open(target, graph, options).map(|_| ()).unwrap_err().code()
    };
    assert_eq!(open("127.0.0.1:1"), Code::InvalidArgument);
    assert_eq!(open("grpc://127.0.0.1:1"), Code::Unavailable);
    let e = RemoteSession::open(
        &server.target(),
        pb::GraphDef {
            node: vec![pb::NodeDef { name: "n".into(), op: "No".into(), ..Default::default() }],
            ..Default::default()
        },
        ConnectOptions::default(),
    );
    assert_eq!(e.map(|_| ()).unwrap_err().code(), Code::NotFound);
}

#[test]
fn callables_and_partial_runs() {
    let server = TestServer::new();
    let mut s = scope();
    let (a, b) = (placeholder(&mut s, "a"), placeholder(&mut s, "b"));
    let sum = s.op("AddV2").name("sum").inputs(&[a, b]).build().unwrap();
    s.op("Neg").name("minus").input(sum).build().unwrap();
    let session = server.open(&s);
    let callable = session.make_callable(&["b", "a"], &["minus", "sum"], &[]).unwrap();
    let got = callable.call(&[number(1.0), number(2.0)]).unwrap();
    assert_eq!(numbers(&got), [-3.0, 3.0]);
    assert_eq!(callable.call(&[]).unwrap_err().code(), Code::InvalidArgument);

    let run = session.partial_run(&["a", "b"], &["sum", "minus"], &[]).unwrap();
    assert!(run.run(&[("a", number(1.0))], &[]).unwrap().is_empty());
    let e = run.run(&[("a", number(1.0))], &["sum"]).unwrap_err();
    assert_eq!(e.message(), "The feed a:0 has already been fed.");
    assert_eq!(numbers(&run.run(&[("b", number(2.0))], &["sum"]).unwrap()), [3.0]);
    assert_eq!(numbers(&run.run(&[], &["minus"]).unwrap()), [-3.0]);
    let e = run.run(&[], &["minus"]).unwrap_err();
    assert_eq!(e.message(), "Must run PartialRunSetup before performing partial runs");
}

#[test]
fn reports_come_with_the_results() {
    let server = TestServer::new();
    let mut s = scope();
    constant_sum(&mut s);
    let mut config = pb::ConfigProto::default();
    // Without constant folding, so that nodes run.
    config.graph_options.get_or_insert_default().build_cost_model = 1;
    config
        .graph_options
        .get_or_insert_default()
        .optimizer_options
        .get_or_insert_default()
        .opt_level = -1;
    let options = ConnectOptions { config, ..Default::default() };
    let graph = s.to_graph().to_def();
    let session = RemoteSession::open(&server.target(), graph, options).unwrap();
    let options = RunOptions { trace: true, partition_graphs: true, ..Default::default() };
    let (_, report) = session.run_with(&options, &[], &["sum"], &[]).unwrap();
    let sum = report.nodes.iter().find(|n| &*n.node == "sum").expect("sum was traced");
    assert_eq!(sum.op, "AddV2");
    assert_eq!(sum.outputs[0].bytes, 4);
    assert!(report.partition_graphs[0].node.iter().any(|n| n.name == "sum"));
    assert!(report.cost_graph.unwrap().node.iter().any(|n| n.name == "sum"));
    let (_, report) = session.run_with(&RunOptions::default(), &[], &["sum"], &[]).unwrap();
    assert!(report.nodes.is_empty() && report.partition_graphs.is_empty());
}

#[test]
fn timeouts_cancellation_and_closing_end_a_step() {
    let server = TestServer::new();
    let mut s = scope();
    let x = placeholder(&mut s, "x");
    let (_, _) = queue(&mut s, x);
    let session = server.open(&s);
    let options = RunOptions { timeout: Some(Duration::from_millis(100)), ..Default::default() };
    let e = session.run_with(&options, &[], &["dequeue"], &[]).map(|_| ()).unwrap_err();
    assert_eq!(e.code(), Code::DeadlineExceeded);

    let cancellation = Cancellation::default();
    let options = RunOptions { cancellation: Some(cancellation.clone()), ..Default::default() };
    std::thread::scope(|scope| {
        let step = scope.spawn(|| session.run_with(&options, &[], &["dequeue"], &[]).map(|_| ()));
        wait_for_steps(&server, 1);
        cancellation.cancel(err!(Aborted, "enough"));
        assert_eq!(step.join().unwrap().unwrap_err().code(), Code::Aborted);
        wait_for_steps(&server, 0);

        let step = scope.spawn(|| session.run(&[], &["dequeue"], &[]));
        wait_for_steps(&server, 1);
        session.close().unwrap();
        let e = step.join().unwrap().unwrap_err();
        assert_eq!(e.code(), Code::Cancelled);
        assert!(e.message().contains("Session::Close()"), "{e}");
    });
    wait_for_steps(&server, 0);
}

/// A thousand steps that wait for a queue occupy no threads, and a task at its maximum of steps refuses more.
#[test]
fn blocked_steps_occupy_no_threads() {
    const BLOCKED: usize = 1000;
    let task = thalweg_cluster::TaskOptions { steps_max: BLOCKED, ..Default::default() };
    let server = TestServer::with(task, Default::default());
    let mut s = scope();
    let x = placeholder(&mut s, "x");
    queue(&mut s, x);
    constant_sum(&mut s);
    let session = server.open(&s);
    let cancellation = Cancellation::default();
    let options = RunOptions { cancellation: Some(cancellation.clone()), ..Default::default() };
    let before = threads();
    std::thread::scope(|scope| {
        let waiting = || session.run_with(&options, &[], &["dequeue"], &[]).map(|_| ());
        let steps: Vec<_> = (0..BLOCKED).map(|_| scope.spawn(waiting)).collect();
        wait_for_steps(&server, BLOCKED);
        // The threads of the callers are this test's own.
        assert!(threads() <= before + BLOCKED + 8, "{before} -> {}", threads());
        let e = session.run(&[], &["sum"], &[]).unwrap_err();
        assert_eq!(e.code(), Code::ResourceExhausted, "{e}");
        cancellation.cancel(err!(Cancelled, "enough"));
        for step in steps {
            assert_eq!(step.join().unwrap().unwrap_err().code(), Code::Cancelled);
        }
    });
    wait_for_steps(&server, 0);
    assert_eq!(numbers(&session.run(&[], &["sum"], &[]).unwrap()), [3.0]);
}

#[test]
fn sixty_four_sessions_at_once() {
    let server = TestServer::new();
    std::thread::scope(|scope| {
        for i in 0..64 {
            let server = &server;
            scope.spawn(move || {
                let mut s = support::scope();
                let x = placeholder(&mut s, "x");
                let own = s.constant(&number(i as f32)).unwrap();
                s.op("AddV2").name("sum").inputs(&[x, own]).build().unwrap();
                let session = server.open(&s);
                for k in 0..50 {
                    let got = session.run(&[("x", number(k as f32 * 100.0))], &["sum"], &[]);
                    assert_eq!(numbers(&got.unwrap()), [k as f32 * 100.0 + i as f32]);
                }
                session.close().unwrap();
            });
        }
    });
    assert_eq!(server.master.session_count(), 0);
}

#[test]
fn dropped_sessions_close_and_reset_closes_all() {
    let server = TestServer::new();
    let mut s = scope();
    constant_sum(&mut s);
    drop(server.open(&s));
    let begin = Instant::now();
    while server.master.session_count() > 0 {
        assert!(begin.elapsed() < Duration::from_secs(20), "the session stays open");
        std::thread::sleep(Duration::from_millis(2));
    }
    let session = server.open(&s);
    RemoteSession::reset(&server.target(), &[]).unwrap();
    assert_eq!(session.run(&[], &["sum"], &[]).unwrap_err().code(), Code::Aborted);
}

#[test]
fn connections_beyond_the_limit_wait() {
    let options = ServerOptions { connections_max: 1, ..Default::default() };
    let server = TestServer::with(Default::default(), options);
    let first = server.open(&scope());
    let config = pb::ConfigProto { operation_timeout_in_ms: 200, ..Default::default() };
    let options = ConnectOptions { config, ..Default::default() };
    let second = RemoteSession::open(&server.target(), Default::default(), options);
    assert_eq!(second.map(|_| ()).unwrap_err().code(), Code::DeadlineExceeded);
    first.close().unwrap();
    drop(first);
    server.assert_alive();
}

fn threads() -> usize {
    std::fs::read_dir("/proc/self/task").map_or(0, Iterator::count)
}

#[track_caller]
fn wait_for_steps(server: &TestServer, count: usize) {
    let begin = Instant::now();
    while server.master.task().steps() != count {
        let steps = server.master.task().steps();
        assert!(begin.elapsed() < Duration::from_secs(30), "{steps} steps, not {count}");
        std::thread::sleep(Duration::from_millis(2));
    }
}
