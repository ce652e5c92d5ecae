//! Steps whose feeds and fetches come in parts.
#![allow(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

mod support;

use std::time::Duration;

use support::*;
use thalweg_runtime::{RunOptions, Session};
use thalweg_tensor::{Code, Result, Tensor};

/// first = a + b; second = first + c; other = a + a; poison and never as their names say.
fn graph(threads: usize) -> Session {
    let mut s = scope();
    let (a, b, c) = (feed(&mut s, "a"), feed(&mut s, "b"), feed(&mut s, "c"));
    let first = toy(&mut s, "ToyAdd", "first", &[a, b]);
    toy(&mut s, "ToyAdd", "second", &[first, c]);
    toy(&mut s, "ToyAdd", "other", &[a, a]);
    toy(&mut s, "ToyFail", "poison", &[b]);
    toy_async(&mut s, "forever", "never", c);
    toy_async(&mut s, "thread", "later", a);
    session(s.to_graph(), threads)
}

fn one(result: Result<Vec<Tensor>>) -> f32 {
    numbers(&result.unwrap())[0]
}

#[track_caller]
fn refused(result: Result<Vec<Tensor>>, words: &str) {
    let e = result.unwrap_err();
    assert_eq!((e.code(), e.message()), (Code::InvalidArgument, words));
}

#[test]
fn parts_come_in_any_order_that_can_be_computed() {
    for threads in [1, 2] {
        let s = graph(threads);
        let run = s.partial_run(&["a", "b", "c"], &["first", "second", "later"], &[]).unwrap();
        assert_eq!(one(run.run(&[("a", number(1.0)), ("b", number(2.0))], &["first"])), 3.0);
        assert!(!run.is_over());
        assert_eq!(one(run.run(&[], &["later"])), 2.0);
        assert_eq!(one(run.run(&[("c", number(5.0))], &["second"])), 8.0);
        assert!(run.is_over());
        refused(run.run(&[], &["second"]), "The fetch second has already been fetched.");
    }
}

/// A step that has run to its end is not over before its last fetch has been taken.
#[test]
fn fetches_wait_to_be_taken() {
    let s = graph(1);
    let run = s.partial_run(&["a", "b"], &["first", "other"], &[]).unwrap();
    assert_eq!(one(run.run(&[("a", number(1.0)), ("b", number(2.0))], &["first"])), 3.0);
    std::thread::sleep(Duration::from_millis(20));
    assert!(!run.is_over());
    assert_eq!(one(run.run(&[], &["other"])), 2.0);
    assert!(run.is_over());
}

#[test]
fn mistakes_change_nothing() {
    let s = graph(2);
    let run = s.partial_run(&["a", "b", "c"], &["first", "second"], &[]).unwrap();
    let (a, b) = (("a", number(1.0)), ("b", number(2.0)));
    refused(
        run.run(&[a.clone(), b.clone()], &["second"]),
        "Fetch c:0 can't be computed from the feeds that have been fed so far.",
    );
    refused(
        run.run(std::slice::from_ref(&a), &["other"]),
        "The fetch other was not specified in partial_run_setup.",
    );
    refused(
        run.run(&[("first", number(1.0))], &[]),
        "The feed first was not specified in partial_run_setup.",
    );
    refused(run.run(&[a.clone(), a.clone()], &[]), "The feed a has already been fed.");
    assert_eq!(one(run.run(&[a.clone(), b], &["first"])), 3.0);
    refused(run.run(&[a], &["second"]), "The feed a has already been fed.");
    assert_eq!(one(run.run(&[("c", number(1.0))], &["second"])), 4.0);
}

#[test]
fn setups_are_checked() {
    let s = graph(1);
    let setup = |feeds: &[&str], fetches: &[&str], targets: &[&str]| {
        s.partial_run(feeds, fetches, targets).map(|_| ()).unwrap_err().code()
    };
    assert_eq!(setup(&["a"], &[], &[]), Code::InvalidArgument);
    assert_eq!(setup(&["a"], &["a"], &[]), Code::InvalidArgument);
    assert_eq!(setup(&["a", "a:0"], &["other"], &[]), Code::InvalidArgument);
    assert_eq!(setup(&["a"], &["other", "other:0"], &[]), Code::InvalidArgument);
    assert_eq!(setup(&["nope"], &["other"], &[]), Code::NotFound);
    assert_eq!(setup(&["a"], &["nope"], &[]), Code::NotFound);
}

#[test]
fn an_error_fails_every_call_of_a_partial_run() {
    let s = graph(2);
    let run = s.partial_run(&["a", "b"], &["other", "first"], &["poison"]).unwrap();
    assert_eq!(one(run.run(&[("a", number(1.0))], &["other"])), 2.0);
    let e = run.run(&[("b", number(1.0))], &["first"]).unwrap_err();
    assert_eq!(e.code(), Code::OutOfRange, "{e}");
    assert!(run.is_over());
    // The session is as good as before.
    assert_eq!(one(s.run(&[("a", number(2.0))], &["other"], &[])), 4.0);
}

#[test]
fn a_feed_of_another_type_is_an_error_of_its_node() {
    let s = graph(1);
    let run = s.partial_run(&["a"], &["other"], &[]).unwrap();
    let e = run.run(&[("a", Tensor::scalar(1i32))], &["other"]).unwrap_err();
    assert_eq!(e.code(), Code::Internal);
    assert!(e.message().contains("Output 0 of type int32 does not match declared output type"));
}

#[test]
fn timeouts_and_dropping_end_a_run() {
    let s = graph(2);
    let run = s.partial_run(&["a", "c"], &["other", "never"], &[]).unwrap();
    let (sender, receiver) = std::sync::mpsc::channel();
    let options = RunOptions { timeout: Some(Duration::from_millis(30)), ..Default::default() };
    let feeds = vec![("c".to_owned(), number(1.0))];
    run.start(options, feeds, vec!["never".to_owned()], move |result| sender.send(result).unwrap());
    let e = receiver.recv().unwrap().map(|_| ()).unwrap_err();
    assert_eq!(e.code(), Code::DeadlineExceeded);
    assert!(run.is_over());

    // Calls go on while another waits, until the run is dropped.
    let run = s.partial_run(&["a", "b", "c"], &["other", "first", "never"], &[]).unwrap();
    let (sender, receiver) = std::sync::mpsc::channel();
    let feeds = vec![("c".to_owned(), number(1.0))];
    run.start(RunOptions::default(), feeds, vec!["never".to_owned()], move |result| {
        sender.send(result).unwrap();
    });
    assert_eq!(one(run.run(&[("a", number(1.0))], &["other"])), 2.0);
    drop(run);
    let e = receiver.recv().unwrap().map(|_| ()).unwrap_err();
    assert_eq!(e.code(), Code::Cancelled);
}

#[test]
fn the_last_part_brings_the_reports() {
    let s = graph(1);
    let run = s.partial_run(&["a", "b"], &["other", "first"], &[]).unwrap();
    let call = |feeds: Vec<(String, Tensor)>, fetch: &str| {
        let (sender, receiver) = std::sync::mpsc::channel();
        let options = RunOptions { trace: true, partition_graphs: true, ..Default::default() };
        run.start(options, feeds, vec![fetch.to_owned()], move |r| sender.send(r).unwrap());
        receiver.recv().unwrap().unwrap()
    };
    assert!(call(vec![("a".to_owned(), number(1.0))], "other").1.is_none());
    let report = call(vec![("b".to_owned(), number(1.0))], "first").1.unwrap();
    let first = report.nodes.iter().find(|n| &*n.node == "first").unwrap();
    assert_eq!(first.label, "first = ToyAdd(_recv_a_0, _recv_b_0)");
    assert_eq!(first.outputs[0].bytes, 4);
    assert!(report.started_ns > 1_600_000_000_000_000_000);
    assert_eq!(report.partition_graphs.len(), 1);
    let device = &report.partition_graphs[0].node[0].device;
    assert_eq!(device, "/job:localhost/replica:0/task:0/device:CPU:0");
}

#[test]
fn costs_are_reported() {
    let s = graph(1);
    let options = RunOptions { cost_graph: true, ..Default::default() };
    let feeds = [("a", number(1.0)), ("b", number(1.0))];
    let (_, report) = s.run_with(&options, &feeds, &["first"], &[]).unwrap();
    assert!(report.nodes.is_empty(), "no trace was asked for");
    let costs = report.cost_graph.unwrap().node;
    let names: Vec<&str> = costs.iter().map(|n| n.name.as_str()).collect();
    assert_eq!(names, ["_SOURCE", "_SINK", "_recv_a_0", "_recv_b_0", "first", "_send_first_0"]);
    let first = &costs[4];
    assert_eq!((first.id, first.input_info[1].preceding_node), (4, 3));
    assert_eq!(first.output_info[0].size, 4);
    assert!(costs[5].is_final && costs[1].control_input.contains(&5));
}
