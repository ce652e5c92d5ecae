//! Our client against TensorFlow's server and ours: both must give the same results.
//!
//! The environment variable `TENSORFLOW_PYTHON` names a Python that has TensorFlow; `cargo xtask test
//! peers` sets it.
#![allow(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]
#![allow(clippy::disallowed_methods, reason = "a test has processes of its own")]

mod support;

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use support::*;
use thalweg_cluster::{ConnectOptions, RemoteSession};
use thalweg_runtime::RunOptions;
use thalweg_tensor::{Code, DType, PartialShape, Tensor};

struct TensorFlowServer {
    child: Child,
    target: String,
}

impl TensorFlowServer {
    fn start() -> TensorFlowServer {
        let python = std::env::var("TENSORFLOW_PYTHON")
            .expect("TENSORFLOW_PYTHON must name a Python with TensorFlow");
        let program =
            concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/clients/tensorflow_server.py");
        let mut child = Command::new(python).arg(program).stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let target = format!("grpc://{}", line.split_whitespace().last().unwrap());
        TensorFlowServer { child, target }
    }
}

impl Drop for TensorFlowServer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Makes calls whose results must be the same on both servers.
fn check_server(target: &str) {
    let mut s = scope();
    let (a, b) = (placeholder(&mut s, "a"), placeholder(&mut s, "b"));
    let sum = s.op("AddV2").name("sum").inputs(&[a, b]).build().unwrap();
    s.op("Neg").name("minus").input(sum).build().unwrap();
    queue(&mut s, a);
    let declared = s.op("VariableV2").name("v").attr("dtype", DType::Float);
    let variable = declared.attr("shape", &PartialShape::new([])).build().unwrap();
    s.op("Assign").name("assign").inputs(&[variable, a]).build().unwrap();
    s.op("AssignAdd").name("add").inputs(&[variable, a]).build().unwrap();
    let graph = s.to_graph().to_def();
    let session = RemoteSession::open(target, graph.clone(), ConnectOptions::default()).unwrap();

    let fed = [("a", number(1.0)), ("b", number(2.0))];
    assert_eq!(numbers(&session.run(&fed, &["minus", "sum"], &[]).unwrap()), [-3.0, 3.0]);
    session.run(&fed, &[], &["assign"]).unwrap();
    assert_eq!(numbers(&session.run(&fed, &["add"], &[]).unwrap()), [2.0]);
    let large = Tensor::vector(&vec![0.5f32; 1 << 20]).unwrap();
    let got = session.run(&[("a", large.clone()), ("b", large)], &["sum"], &[]).unwrap();
    assert!(got[0].as_slice::<f32>().unwrap().iter().all(|&x| x == 1.0));

    let e = session.run(&[], &["sum"], &[]).unwrap_err();
    assert_eq!(e.code(), Code::InvalidArgument);
    assert!(e.message().contains("You must feed a value for placeholder tensor"), "{e}");
    assert_eq!(session.run(&[], &["nope"], &[]).unwrap_err().code(), Code::NotFound);
    assert_eq!(session.extend(graph).unwrap_err().code(), Code::InvalidArgument);

    let callable = session.make_callable(&["b", "a"], &["sum", "minus"], &[]).unwrap();
    assert_eq!(numbers(&callable.call(&[number(5.0), number(1.0)]).unwrap()), [6.0, -6.0]);
    let run = session.partial_run(&["a", "b"], &["sum", "minus"], &[]).unwrap();
    assert_eq!(numbers(&run.run(&fed, &["sum"]).unwrap()), [3.0]);
    assert_eq!(numbers(&run.run(&[], &["minus"]).unwrap()), [-3.0]);
    let e = run.run(&[], &["minus"]).unwrap_err();
    assert_eq!(e.message(), "Must run PartialRunSetup before performing partial runs");

    let options = RunOptions { trace: true, partition_graphs: true, ..Default::default() };
    let (_, report) = session.run_with(&options, &fed, &["sum"], &[]).unwrap();
    let traced = report.nodes.iter().find(|n| &*n.node == "sum").unwrap();
    assert_eq!((traced.op.as_str(), traced.outputs[0].bytes), ("AddV2", 4));
    assert!(report.partition_graphs[0].node.iter().any(|n| n.name == "sum"));

    let options = RunOptions { timeout: Some(Duration::from_millis(300)), ..Default::default() };
    let e = session.run_with(&options, &[], &["dequeue"], &[]).map(|_| ()).unwrap_err();
    assert_eq!(e.code(), Code::DeadlineExceeded);
    assert!(!session.list_devices().unwrap().is_empty());
    session.close().unwrap();
    assert_eq!(session.run(&fed, &["sum"], &[]).unwrap_err().code(), Code::Aborted);
}

#[test]
fn our_server_passes_the_checks() {
    check_server(&TestServer::new().target());
}

#[test]
#[ignore = "needs TensorFlow: `cargo xtask test peers`"]
fn tensorflows_server_passes_the_same_checks() {
    check_server(&TensorFlowServer::start().target);
}
