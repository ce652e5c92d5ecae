//! Branches and loops as `Switch`, `Merge`, `Enter`, `Exit` and `NextIteration`: results, dead values,
//! overlapping iterations, moved buffers, and the errors of malformed graphs.
#![allow(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

mod support;

use std::time::Duration;

use support::flow::{Flow, ints};
use support::*;
use thalweg_runtime::{RunOptions, Session};
use thalweg_tensor::{Code, DType, Result, Shape, Tensor};

fn zero() -> Flow {
    let mut flow = Flow::default();
    flow.constant("zero", Tensor::scalar(0i32), &[]);
    flow
}

fn counting(limit: i32, parallel: i64) -> Flow {
    let mut flow = zero();
    flow.count("", "zero", limit, parallel);
    flow
}

/// `a` behind a `Switch` whose choice is fed: `s:0`, `s:1`.
fn branch() -> Flow {
    let mut flow = Flow::default();
    flow.constant("a", Tensor::scalar(7i32), &[]);
    flow.node("p", "Placeholder", &[]).attr("dtype", DType::Bool);
    flow.int("s", "Switch", &["a", "p"]);
    flow
}

fn run(flow: &Flow, fetches: &[&str]) -> Vec<i32> {
    ints(&flow.session(2).unwrap().run(&[], fetches, &[]).unwrap())
}

fn error(flow: &Flow, fetches: &[&str], targets: &[&str]) -> (Code, String) {
    let options = RunOptions { timeout: Some(Duration::from_millis(500)), ..Default::default() };
    let run = |s: Session| s.run_with(&options, &[], fetches, targets).map(drop);
    let e = flow.session(2).and_then(run).unwrap_err();
    (e.code(), e.message().to_owned())
}

#[test]
fn loops_count() {
    for (limit, parallel) in [(0, 10), (1, 10), (5, 1), (5, 2), (1000, 1), (1000, 3), (1000, 32)] {
        for threads in [1, 4] {
            let session = counting(limit, parallel).session(threads).unwrap();
            for _ in 0..3 {
                let out = session.run(&[], &["exit", "exit"], &[]).unwrap();
                assert_eq!(ints(&out), [limit, limit], "{limit} {parallel} {threads}");
            }
        }
    }
    // One after the other, and the second begins where the first ends.
    let mut flow = counting(3, 10);
    flow.count("then_", "exit", 9, 10);
    assert_eq!(run(&flow, &["then_exit", "exit"]), [9, 3]);
    assert_eq!(flow.session(1).unwrap().run(&[], &[], &["next"]).unwrap().len(), 0);
}

/// `for i in 0..6 { for j in i..4 {} }`; the sum of what the inner loops end with.
#[test]
fn loops_nest() {
    let mut flow = counting(6, 4);
    flow.count("in_", "body", 4, 2);
    flow.enter("sum_enter", "zero", "frame").merge("sum", &["sum_enter", "sum_next"]);
    flow.int("sum_switch", "Switch", &["sum", "cond"]);
    flow.int("sum_add", "AddV2", &["sum_switch:1", "in_exit"]);
    flow.int("sum_next", "NextIteration", &["sum_add"]);
    flow.int("sum_exit", "Exit", &["sum_switch"]);
    for threads in [1, 2, 4] {
        let session = flow.session(threads).unwrap();
        for _ in 0..20 {
            let out = session.run(&[], &["sum_exit", "exit"], &[]).unwrap();
            assert_eq!(ints(&out), [4 * 5 + 5, 6]);
        }
    }
}

#[test]
fn loop_constants_enter_once() {
    let mut flow = counting(50, 10);
    flow.constant("ten", Tensor::scalar(10i32), &[]);
    flow.enter("step", "ten", "frame").attr("is_constant", true);
    // In each iteration from constants alone.
    flow.int("twenty", "AddV2", &["step", "step"]);
    flow.rewire("add", 1, "twenty");
    for threads in [1, 4] {
        let session = flow.session(threads).unwrap();
        assert_eq!(ints(&session.run(&[], &["exit"], &[]).unwrap()), [60]);
        assert_eq!(ints(&session.run(&[], &["exit"], &[]).unwrap()), [60]);
    }
}

#[test]
fn branches_choose_and_merge() {
    let mut flow = branch();
    flow.int("plus", "AddV2", &["s:1", "s:1"]).int("minus", "Neg", &["s"]);
    flow.merge("m", &["plus", "minus"]);
    flow.merge("late", &["plus", "minus", "^m"]);
    flow.node("t", "ControlTrigger", &["^plus", "^minus"]);
    flow.constant("always", Tensor::scalar(1i32), &["^t"]);
    flow.constant("never", Tensor::scalar(1i32), &["^plus", "^minus"]);
    let session = flow.session(2).unwrap();
    let run = |p: bool, fetches: &[&str], targets: &[&str]| {
        session.run(&[("p", Tensor::scalar(p))], fetches, targets)
    };
    let fetches = ["m", "m:1", "late", "late:1", "always"];
    for _ in 0..5 {
        assert_eq!(ints(&run(true, &fetches, &["never"]).unwrap()), [14, 0, 14, 0, 1]);
        assert_eq!(ints(&run(false, &fetches, &["never"]).unwrap()), [-7, 1, -7, 1, 1]);
    }
    for (p, dead) in [(true, "minus"), (false, "plus"), (false, "s:1"), (true, "never")] {
        let e = run(p, &["m", dead], &[]).unwrap_err();
        assert_eq!(
            (e.code(), e.message()),
            (Code::InvalidArgument, "Retval[1] does not have value")
        );
    }
}

#[test]
fn one_of_many_outputs() {
    let mut flow = Flow::default();
    flow.node("i", "Placeholder", &[]).attr("dtype", DType::Int32);
    flow.constant("a", Tensor::scalar(7i32), &[]);
    flow.int("s", "_SwitchN", &["a", "i"]).attr("num_outs", 3i64);
    flow.merge("m", &["s", "s:1", "s:2"]);
    let session = flow.session(1).unwrap();
    for (i, taken) in [(0, 0), (1, 1), (2, 2), (3, 2), (-1, 2), (i32::MIN, 2)] {
        let out = session.run(&[("i", Tensor::scalar(i))], &["m", "m:1"], &[]).unwrap();
        assert_eq!(ints(&out), [7, taken]);
    }
    let vector = Tensor::from_slice(Shape::new(&[2]).unwrap(), &[0i32, 1]).unwrap();
    let e = session.run(&[("i", vector)], &["m"], &[]).unwrap_err();
    assert_eq!(e.code(), Code::InvalidArgument);
}

/// A loop in a branch: it does nothing where the branch is not taken.
#[test]
fn a_loop_in_a_dead_branch() {
    let mut flow = branch();
    flow.count("", "s:1", 20, 3);
    flow.constant("k", Tensor::scalar(5i32), &["^s"]);
    flow.int("k1", "Identity", &["s:1"]);
    flow.enter("k_in", "k1", "frame").attr("is_constant", true);
    flow.int("use", "AddV2", &["body", "k_in"]).int("gone", "Identity", &["k_in"]);
    flow.merge("m", &["exit", "s"]);
    for threads in [1, 4] {
        let session = flow.session(threads).unwrap();
        for (p, wanted) in [(true, [20, 0]), (false, [7, 1]), (true, [20, 0])] {
            let feeds = [("p", Tensor::scalar(p))];
            let out = session.run(&feeds, &["m", "m:1"], &["use", "gone"]).unwrap();
            assert_eq!(ints(&out), wanted);
        }
    }
}

/// Iterations overlap: the body of each waits a while on another thread.
#[test]
#[expect(clippy::disallowed_methods, reason = "the test is about time")]
fn iterations_overlap() {
    let slow = |parallel: i64| {
        let mut flow = counting(12, parallel);
        flow.node("f", "Cast", &["body"]).attr("SrcT", DType::Int32).attr("DstT", DType::Float);
        flow.node("wait", "ToyAsync", &["f"]).attr("mode", "slow");
        let session = flow.session(2).unwrap();
        let begin = std::time::Instant::now();
        session.run(&[], &["exit"], &["wait"]).unwrap();
        begin.elapsed()
    };
    let (overlapped, one_by_one) = (slow(12), slow(1));
    assert!(overlapped * 3 < one_by_one, "{overlapped:?} and {one_by_one:?}");
    assert!(one_by_one > Duration::from_millis(12 * 300), "{one_by_one:?}");
}

/// A loop variable is never copied: its last reader in an iteration has the only reference.
#[test]
fn values_move_through_loops() {
    let mut flow = counting(5, 10);
    flow.node("x", "Placeholder", &[]).attr("dtype", DType::Float);
    let float = |flow: &mut Flow, name: &str, op: &str, inputs: &[&str]| {
        flow.node(name, op, inputs).attr("T", DType::Float);
    };
    float(&mut flow, "x1", "Neg", &["x"]);
    float(&mut flow, "x_in", "Enter", &["x1"]);
    flow.attr("frame_name", "frame");
    float(&mut flow, "x_merge", "Merge", &["x_in", "x_next"]);
    flow.attr("N", 2i64);
    float(&mut flow, "x_switch", "Switch", &["x_merge", "cond"]);
    float(&mut flow, "x_next", "NextIteration", &["x_switch:1"]);
    float(&mut flow, "x_exit", "Exit", &["x_switch"]);
    flow.node("alone", "ToyUnique", &["x_exit"]);
    let session = flow.session(1).unwrap();
    for _ in 0..3 {
        let out = session.run(&[("x", number(1.0))], &["alone"], &[]).unwrap();
        assert!(out[0].scalar_value::<bool>().unwrap());
    }
}

#[test]
fn references_pass() {
    let mut flow = Flow::default();
    flow.node("v", "VariableV2", &[]).attr("dtype", DType::Int32);
    flow.attr("shape", &thalweg_tensor::PartialShape::scalar());
    flow.node("p", "Placeholder", &[]).attr("dtype", DType::Bool);
    flow.constant("three", Tensor::scalar(3i32), &[]);
    flow.int("init", "Assign", &["v", "three"]);
    flow.int("s", "RefSwitch", &["v", "p"]);
    flow.int("inc", "AssignAdd", &["s:1", "three"]).int("dec", "AssignSub", &["s", "three"]);
    flow.int("m", "RefMerge", &["inc", "dec"]).attr("N", 2i64);
    flow.int("e", "RefEnter", &["m"]).attr("frame_name", "f");
    flow.int("x", "RefExit", &["e"]);
    flow.int("twice", "AssignAdd", &["x", "x"]);
    let session = flow.session(1).unwrap();
    session.run(&[], &[], &["init"]).unwrap();
    let run =
        |p: bool| ints(&session.run(&[("p", Tensor::scalar(p))], &["twice", "m:1"], &[]).unwrap());
    assert_eq!(run(true), [12, 0]);
    assert_eq!(run(false), [18, 1]);
}

#[test]
fn a_failing_node_ends_the_loop() {
    let mut flow = counting(1_000_000_000, 10);
    flow.node("f", "Cast", &["body"]).attr("SrcT", DType::Int32).attr("DstT", DType::Float);
    flow.node("bad", "ToyFail", &["f"]);
    for threads in [1, 4] {
        let e = flow.session(threads).unwrap().run(&[], &["exit"], &["bad"]).unwrap_err();
        assert_eq!(e.code(), Code::OutOfRange, "{e}");
    }
}

#[test]
fn an_endless_loop_ends_with_the_callers_deadline() {
    watched("an endless loop", || {
        let mut flow = counting(1, 10);
        flow.int("same", "Identity", &["body"]).rewire("add", 0, "same");
        flow.rewire("next", 0, "same");
        for threads in [1, 4] {
            let session = flow.session(threads).unwrap();
            let options =
                RunOptions { timeout: Some(Duration::from_millis(50)), ..Default::default() };
            for _ in 0..2 {
                let e = session.run_with(&options, &[], &["exit"], &[]).unwrap_err();
                assert_eq!(e.code(), Code::DeadlineExceeded);
            }
            let caller = thalweg_kernel::Cancellation::default();
            let options = RunOptions { cancellation: Some(caller.clone()), ..Default::default() };
            std::thread::scope(|s| {
                s.spawn(|| {
                    std::thread::sleep(Duration::from_millis(30));
                    caller.cancel(thalweg_tensor::err!(Cancelled, "enough"));
                });
                let e = session.run_with(&options, &[], &["exit"], &[]).unwrap_err();
                assert_eq!(e.code(), Code::Cancelled);
            });
        }
    });
}

/// Other steps of the session go on beside it.
#[test]
fn an_endless_loop_does_not_block_other_steps() {
    watched("steps beside an endless loop", || {
        let mut flow = counting(1, 10);
        flow.int("same", "Identity", &["body"]).rewire("next", 0, "same");
        flow.count("other_", "zero", 20, 10);
        for threads in [1, 4] {
            let session = flow.session(threads).unwrap();
            let caller = thalweg_kernel::Cancellation::default();
            let options = RunOptions { cancellation: Some(caller.clone()), ..Default::default() };
            std::thread::scope(|s| {
                let endless = s.spawn(|| session.run_with(&options, &[], &["exit"], &[]));
                for _ in 0..50 {
                    let out = session.run(&[], &["other_exit"], &[]).unwrap();
                    assert_eq!(ints(&out), [20]);
                }
                assert!(!endless.is_finished());
                caller.cancel(thalweg_tensor::err!(Cancelled, "enough"));
                let e = endless.join().unwrap().unwrap_err();
                assert_eq!(e.code(), Code::Cancelled);
            });
        }
    });
}

/// Nodes that an asynchronous kernel makes ready run on the thread that runs the loop, if it is the only
/// one that may run nodes of the step: the caller's (`run`), or one of the pool (`start`).
#[test]
fn an_endless_loop_does_not_starve_ready_nodes() {
    watched("ready nodes beside an endless loop", || {
        let mut flow = counting(1, 10);
        flow.int("same", "Identity", &["body"]).rewire("next", 0, "same");
        flow.constant("f", Tensor::scalar(1.0f32), &[]);
        flow.node("later", "ToyAsync", &["f"]).attr("mode", "slow");
        flow.node("bad", "ToyFail", &["later"]);
        let session = flow.session(1).unwrap();
        let options = RunOptions { timeout: Some(Duration::from_secs(10)), ..Default::default() };
        let e = session.run_with(&options, &[], &["exit"], &["bad"]).unwrap_err();
        assert_eq!(e.code(), Code::OutOfRange, "{e}");
        let (sender, end) = std::sync::mpsc::channel();
        let (fetches, targets) = (vec!["exit".to_owned()], vec!["bad".to_owned()]);
        let done = move |result: Result<_>| sender.send(result.map(drop)).unwrap();
        session.start(options, vec![], fetches, targets, done);
        let e = end.recv().unwrap().unwrap_err();
        assert_eq!(e.code(), Code::OutOfRange, "{e}");
    });
}

#[test]
fn malformed_loops_get_tensorflows_errors() {
    watched("a malformed loop", || {
        let edit = |edit: &dyn Fn(&mut Flow)| {
            let mut flow = counting(5, 10);
            edit(&mut flow);
            flow
        };
        let crossing = edit(&|f| {
            f.constant("k", Tensor::scalar(3i32), &[]).int("bad", "AddV2", &["body", "k"]);
        });
        let (code, text) = error(&crossing, &["exit"], &["bad"]);
        assert_eq!(code, Code::InvalidArgument, "{text}");
        assert!(text.contains("{{node bad}} has inputs from different frames"), "{text}");

        let control = edit(&|f| {
            f.node("out", "NoOp", &[]);
            let add = f.def.node.iter_mut().find(|n| n.name == "add").unwrap();
            add.input.push("^out".into());
        });
        assert_eq!(error(&control, &["exit"], &[]).0, Code::InvalidArgument);

        let two = edit(&|f| {
            f.count("b_", "zero", 3, 1);
            f.merge("bad", &["body", "b_body"]);
        });
        assert_eq!(error(&two, &[], &["bad"]).0, Code::InvalidArgument);

        let outside = edit(&|f| {
            f.int("n", "NextIteration", &["zero"]).int("x", "Exit", &["zero"]);
        });
        assert_eq!(error(&outside, &["n"], &[]).0, Code::InvalidArgument);
        let (code, text) = error(&outside, &["x"], &[]);
        assert_eq!(code, Code::InvalidArgument);
        assert!(text.contains("Invalid Exit op: Cannot find a corresponding Enter op."), "{text}");

        let parents = edit(&|f| {
            f.enter("p1", "zero", "one").enter("p2", "zero", "two");
            f.enter("c1", "p1", "c").enter("c2", "p2", "c").int("sum", "AddV2", &["c1", "c2"]);
        });
        let (code, text) = error(&parents, &[], &["sum"]);
        assert_eq!(code, Code::Internal);
        assert!(text.contains("Mismatched parent frames for \"c\""), "{text}");

        let fetched_inside = edit(&|_| ());
        let (code, text) = error(&fetched_inside, &["body"], &[]);
        assert_eq!(code, Code::Internal);
        assert!(text.starts_with("Retval[0] has already been set."), "{text}");

        let twice_out = edit(&|f| {
            f.int("x", "Exit", &["body"]);
        });
        assert_eq!(error(&twice_out, &["x"], &[]).0, Code::InvalidArgument);

        let constant_merged =
            edit(&|f| {
                f.def.node.iter_mut().find(|n| n.name == "enter").unwrap().attr.insert(
                    "is_constant".into(),
                    thalweg_graph::IntoAttr::into_attr(true).to_proto(),
                );
            });
        assert_eq!(error(&constant_merged, &["exit"], &[]).0, Code::InvalidArgument);
    });
}

#[test]
fn odd_loops_do_what_tensorflow_does() {
    // The first value that comes is the one; without `LoopCond`; with no way out.
    let mut flow = counting(5, 10);
    flow.constant("b", Tensor::scalar(2i32), &[]).merge("m", &["zero", "b"]);
    flow.enter("e", "b", "other").int("x", "Exit", &["e"]);
    assert_eq!(run(&flow, &["x", "e"]), [2, 2]);
    assert!([0, 2].contains(&run(&flow, &["m"])[0]));
    flow.rewire("switch", 1, "less");
    assert_eq!(run(&flow, &["exit"]), [5]);
    assert!(flow.session(2).unwrap().run(&[], &[], &["add"]).is_ok());
    // Two `Enter`s of one frame with different `parallel_iterations`.
    flow.enter("e2", "b", "other").attr("parallel_iterations", 3i64);
    flow.int("sum", "AddV2", &["e", "e2"]).int("sum_out", "Exit", &["sum"]);
    assert_eq!(run(&flow, &["sum_out"]), [4]);
    // A number of parallel iterations that is not positive.
    for parallel in [0, -5, i64::MIN, i64::MAX] {
        assert_eq!(run(&counting(40, parallel), &["exit"]), [40]);
    }
}

/// An exit that nothing reaches, and a loop that never begins.
#[test]
fn fetches_that_no_value_reaches_fail() {
    watched("a loop that cannot end well", || {
        let mut flow = counting(3, 10);
        // Enters only after the loop is over.
        flow.enter("late", "exit", "frame").int("both", "AddV2", &["late", "body"]);
        flow.int("both_out", "Exit", &["both"]);
        let (code, text) = error(&flow, &["both_out"], &[]);
        assert_eq!(code, Code::InvalidArgument, "{text}");
        assert!(text.starts_with("Retval[0] does not have value"), "{text}");
        let session = flow.session(2).unwrap();
        for _ in 0..3 {
            session.run(&[], &[], &["both_out"]).unwrap();
        }
    });
}

/// A session on two devices.
fn on_two(flow: &Flow) -> Session {
    use std::sync::Arc;
    use thalweg_kernel::{Device, DeviceDescription, DeviceName, HostDevice};
    let device = |i: u32| -> Arc<dyn Device> {
        HostDevice::shared(DeviceDescription::cpu(DeviceName::cpu("localhost", 0, i), 1 << 30))
    };
    let (ops, kernels) = registries();
    let graph = thalweg_graph::Graph::from_def(ops, flow.def.clone()).unwrap();
    let mut options = options(2);
    options.devices = vec![device(0), device(1)];
    Session::new(graph, kernels, options).unwrap()
}

fn put(flow: &mut Flow, node: &str, device: &str) {
    flow.def.node.iter_mut().find(|n| n.name == node).unwrap().device = device.into();
}

/// Values cross devices dead or alive.
#[test]
fn branches_across_devices() {
    let mut flow = branch();
    flow.int("there", "Neg", &["s:1"]);
    put(&mut flow, "there", "/cpu:1");
    flow.constant("ctl", Tensor::scalar(1i32), &["^there"]);
    flow.merge("m", &["there", "s"]);
    flow.count("", "m", 9, 4);
    let session = on_two(&flow);
    let run = |p: bool, fetches: &[&str]| session.run(&[("p", Tensor::scalar(p))], fetches, &[]);
    assert_eq!(ints(&run(true, &["m", "exit", "ctl"]).unwrap()), [-7, 9, 1]);
    assert_eq!(ints(&run(false, &["m", "exit"]).unwrap()), [7, 9]);
    let e = run(false, &["there"]).unwrap_err();
    assert_eq!(e.code(), Code::InvalidArgument, "{e}");
    assert_eq!(run(false, &["ctl"]).unwrap_err().code(), Code::InvalidArgument);
}

/// How many nodes of a name ran on each of two devices.
fn ran_on(session: &Session, fetches: &[&str], name: &str) -> ([usize; 2], Vec<i32>) {
    let traced = RunOptions { trace: true, ..Default::default() };
    let (out, report) = session.run_with(&traced, &[], fetches, &[]).unwrap();
    let ran = |device: &str| {
        let nodes = report.nodes.iter().filter(|n| &*n.node == name);
        nodes.filter(|n| n.device.ends_with(device)).count()
    };
    ([ran("CPU:0"), ran("CPU:1")], ints(&out))
}

/// A part of the body, the condition, or the whole way round may be elsewhere.
#[test]
fn loops_across_devices() {
    watched("a loop on two devices", || {
        for (there, parallel) in
            [("add", 1), ("add", 10), ("less", 10), ("body", 3), ("one", 10), ("limit", 2)]
        {
            let mut flow = counting(50, parallel);
            put(&mut flow, "zero", "/cpu:0");
            put(&mut flow, there, "/cpu:1");
            for name in ["add", "less", "body"].into_iter().filter(|&n| n != there) {
                put(&mut flow, name, "/cpu:0");
            }
            let session = on_two(&flow);
            for _ in 0..3 {
                assert_eq!(ints(&session.run(&[], &["exit"], &[]).unwrap()), [50], "{there}");
            }
            let (ran, _) = ran_on(&session, &["exit"], there);
            let wanted = if ["less", "limit"].contains(&there) { 51 } else { 50 };
            assert_eq!(ran, [0, wanted], "{there}");
        }
    });
}

/// A nested loop whose inner loop spans devices, and a loop in a branch that is not taken.
#[test]
fn nested_loops_across_devices() {
    watched("nested loops on two devices", || {
        let mut flow = counting(4, 10);
        flow.constant("three", Tensor::scalar(3i32), &["^body"]);
        flow.int("up", "AddV2", &["body", "three"]);
        // From `body` to `up`: never entered with more than three steps to go.
        flow.count("in_", "body", 6, 10);
        put(&mut flow, "in_add", "/cpu:1");
        put(&mut flow, "in_less", "/cpu:0");
        put(&mut flow, "add", "/cpu:0");
        flow.int("both", "AddV2", &["in_exit", "up"]);
        flow.int("back", "Sub", &["both", "up"]);
        // in_exit is 6 in each iteration.
        flow.int("same", "Sub", &["back", "in_exit"]);
        flow.int("on", "AddV2", &["same", "add"]).rewire("next", 0, "on");
        let session = on_two(&flow);
        let (ran, out) = ran_on(&session, &["exit"], "in_add");
        assert_eq!((ran, out), ([0, 6 + 5 + 4 + 3], vec![4]));

        let mut flow = branch();
        flow.count("", "s:1", 9, 4);
        put(&mut flow, "add", "/cpu:1");
        put(&mut flow, "less", "/cpu:0");
        flow.merge("m", &["exit", "s"]);
        let session = on_two(&flow);
        for (p, wanted) in [(true, 9), (false, 7), (true, 9)] {
            let out = session.run(&[("p", Tensor::scalar(p))], &["m"], &[]).unwrap();
            assert_eq!(ints(&out), [wanted]);
        }
    });
}

/// An error on one device, or the caller's deadline, ends the loop on both.
#[test]
fn a_loop_across_devices_ends_with_its_step() {
    watched("a loop on two devices that is ended", || {
        let mut flow = counting(1_000_000_000, 10);
        put(&mut flow, "add", "/cpu:1");
        put(&mut flow, "less", "/cpu:0");
        flow.node("f", "Cast", &["add"]).attr("SrcT", DType::Int32).attr("DstT", DType::Float);
        flow.node("bad", "ToyFail", &["f"]);
        put(&mut flow, "bad", "/cpu:1");
        let session = on_two(&flow);
        let e = session.run(&[], &["exit"], &["bad"]).unwrap_err();
        assert_eq!(e.code(), Code::OutOfRange, "{e}");
        let options = RunOptions { timeout: Some(Duration::from_millis(50)), ..Default::default() };
        let e = session.run_with(&options, &[], &["exit"], &[]).unwrap_err();
        assert_eq!(e.code(), Code::DeadlineExceeded, "{e}");
    });
}
