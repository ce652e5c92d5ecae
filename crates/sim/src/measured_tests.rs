use thalweg_runtime::{SentTensor, TracedOutput};
use thalweg_tensor::{DType, Shape};

use super::*;
use crate::timeline::SegmentKind;

const PS: &str = "/job:ps/replica:0/task:0/device:CPU:0";
const WORKER: &str = "/job:worker/replica:0/task:0/device:CPU:0";

/// A node by its label, with when it became ready, started and ended in ms.
fn node(device: &str, label: &str, [ready, start, end]: [u64; 3]) -> NodeTiming {
    let (name, call) = label.split_once(" = ").unwrap();
    let op = call.split_once('(').unwrap().0;
    let output =
        TracedOutput { slot: 0, dtype: DType::Float, shape: Shape::new(&[2]).unwrap(), bytes: 8 };
    NodeTiming {
        node: name.into(),
        op: op.into(),
        device: device.into(),
        thread: 0,
        ready_ns: ready * 1_000_000,
        start_ns: start * 1_000_000,
        end_ns: end * 1_000_000,
        label: label.into(),
        outputs: vec![output],
    }
}

/// A worker's master that has `w` read on the parameter server, multiplied there and used on the worker. Times are
/// those of the call's way, of `product`, of the request for it and of its own way.
fn step(request: u64) -> RunMetadata {
    let send = format!("product_S1 = _Send(product, edge_1_product @{WORKER})");
    let recv = format!("product_S2 = _Recv(edge_1_product @{PS})");
    let nodes = vec![
        node(WORKER, "x = Const()", [0, 1, 1]),
        node(PS, "w = VariableV2()", [20, 20, 21]),
        node(PS, "product = MatMul(w, w)", [21, 25, 50]),
        node(PS, &send, [50, 50, 50]),
        node(WORKER, &recv, [0, 1, 70]),
        node(WORKER, "sum = AddV2(product_S2, x)", [70, 71, 72]),
    ];
    let ms = |ms: u64| ms * 1_000_000;
    let dispatch = Dispatch {
        task: "/job:ps/replica:0/task:0".into(),
        asked_ns: 0,
        sent_ns: ms(0),
        began_ns: ms(20),
        ended_ns: ms(50),
        answered_ns: ms(70),
    };
    let key = format!("{PS};0000000000000001;{WORKER};edge_1_product;0:0");
    let sent = SentTensor { key, requested_ns: ms(request), sent_ns: ms(request.max(50)) };
    RunMetadata {
        started_ns: 1,
        nodes,
        step: 9,
        master: "/job:worker/replica:0/task:0".into(),
        dispatches: vec![dispatch],
        sent: vec![sent],
        ..Default::default()
    }
}

/// The critical path as kinds and ms.
fn path(timeline: &Timeline) -> Vec<(SegmentKind, f64)> {
    let ms = |seconds: f64| (seconds * 1e6).round() / 1e3;
    timeline.critical_path().iter().map(|s| (s.kind, ms(s.end - s.start))).collect()
}

#[test]
fn the_path_goes_from_the_call_through_both_tasks() {
    let timeline = measured(&step(21));
    assert_eq!(timeline.devices, [Arc::from(PS), Arc::from(WORKER)]);
    assert!((timeline.seconds - 0.072).abs() < 1e-9);
    // The master ends the step when a thread is free.
    let (ending_ns, duration_ns) = (100_000_000, 144_000_000);
    let ended = measured(&RunMetadata { ending_ns, duration_ns, ..step(21) });
    let last = path(&ended).split_off(7);
    assert_eq!(last, [(SegmentKind::Queueing(1), 28.0), (SegmentKind::Compute(1), 44.0)]);
    // What is not known is charged to nothing.
    let longer = measured(&RunMetadata { ending_ns: u64::MAX, duration_ns, ..step(21) });
    assert!((longer.attribution().charged_share(&longer) - 0.5).abs() < 1e-6);
    let expected = [
        (SegmentKind::Link(1, 0), 20.0),
        (SegmentKind::Compute(0), 1.0),
        (SegmentKind::Queueing(0), 4.0),
        (SegmentKind::Compute(0), 25.0),
        (SegmentKind::Link(0, 1), 20.0),
        (SegmentKind::Queueing(1), 1.0),
        (SegmentKind::Compute(1), 1.0),
    ];
    assert_eq!(path(&timeline), expected);
    let attribution = timeline.attribution();
    assert!(attribution.charged_share(&timeline) > 0.999_999);
    // Idle from the end of `x` on.
    let waited = attribution.waits[&(1, 0)];
    assert!((waited - 0.069).abs() < 1e-9, "{waited}");
}

#[test]
fn a_request_that_comes_late_is_charged_to_its_own_direction() {
    let timeline = measured(&step(60));
    let link =
        |from, to| timeline.attribution().critical.get(&SegmentKind::Link(from, to)).copied();
    // The value was there before the request, which took 59 ms.
    let (there, back) = (link(1, 0).unwrap(), link(0, 1).unwrap());
    assert!((there - 0.059).abs() < 1e-9 && (back - 0.010).abs() < 1e-9, "{there} {back}");
}

#[test]
fn what_a_sender_does_not_log_is_on_its_way_from_the_send_or_the_request_on() {
    let metadata = RunMetadata { sent: Vec::new(), ..step(0) };
    let timeline = measured(&metadata);
    let way = |t: &Timeline| {
        let span = t.spans.iter().find(|s| &*s.op == "_Recv").unwrap().clone();
        (span.start, span.end, span.kind)
    };
    assert_eq!(way(&timeline), (0.05, 0.07, SpanKind::Transfer { from: 0, bytes: 8 }));
    // A task of TensorFlow reports what computed the tensor, but no `_Send`; then nothing at all.
    let mut metadata = metadata;
    metadata.nodes.retain(|n| n.op != "_Send");
    assert_eq!(way(&measured(&metadata)).0, 0.05);
    metadata.nodes.retain(|n| n.op != "MatMul");
    let (start, end, _) = way(&measured(&metadata));
    assert_eq!((start, end), (0.001, 0.07));
}

#[test]
fn what_a_task_received_that_reports_no_receives_has_its_way() {
    let send = format!("x_S2 = _Send(x, edge_2_x @{PS})");
    let nodes = vec![
        node(WORKER, "x = Const()", [0, 1, 2]),
        node(WORKER, &send, [2, 2, 3]),
        node(PS, "w = VariableV2()", [0, 0, 1]),
        node(PS, "sum = AddV2(w, x_R2)", [9, 10, 11]),
        node(PS, "odd = AddV2(w, y_R7, z_R, _R3)", [9, 10, 11]),
    ];
    let timeline = measured(&RunMetadata { started_ns: 1, nodes, ..Default::default() });
    let expected = [
        (SegmentKind::Queueing(1), 1.0),
        (SegmentKind::Compute(1), 2.0),
        (SegmentKind::Link(1, 0), 6.0),
        (SegmentKind::Queueing(0), 1.0),
        (SegmentKind::Compute(0), 1.0),
    ];
    let sum = timeline.spans.iter().position(|s| &*s.node == "sum").unwrap();
    let upto = Timeline { spans: timeline.spans[..=sum].to_vec(), ..timeline };
    let merged: BTreeMap<SegmentKind, f64> =
        path(&upto).into_iter().fold(BTreeMap::new(), |mut sums, (kind, ms)| {
            *sums.entry(kind).or_default() += ms;
            sums
        });
    assert_eq!(merged, BTreeMap::from(expected));
    let way = upto.spans.iter().find(|s| &*s.op == "_Recv").unwrap();
    assert_eq!(way.kind, SpanKind::Transfer { from: 1, bytes: 8 });
}

#[test]
fn runs_of_a_loop_and_odd_reports_break_nothing() {
    let nodes = vec![
        node(PS, "enter = Enter(c)", [0, 0, 1]),
        node(PS, "body = Mul(enter, next)", [1, 1, 2]),
        node(PS, "next = NextIteration(body)", [2, 2, 2]),
        node(PS, "body = Mul(enter, next)", [2, 3, 4]),
        node(PS, "self = Odd(self, self:1, ^self)", [3, 3, 3]),
        node(PS, "alone = _Recv()", [0, 0, 9]),
        node(PS, "take = QueueDequeueV2(self)", [3, 3, 12]),
    ];
    let timeline = measured(&RunMetadata { started_ns: 1, nodes, ..Default::default() });
    assert_eq!(timeline.spans.len(), 7);
    for (i, span) in timeline.spans.iter().enumerate() {
        assert!(span.cause.is_none_or(|cause| (cause as usize) < i), "{span:?}");
        assert!(span.ready <= span.start && span.start <= span.end, "{span:?}");
    }
    let second = timeline.spans.iter().find(|s| &*s.node == "body" && s.start > 0.002).unwrap();
    let cause = &timeline.spans[second.cause.unwrap() as usize];
    assert_eq!(&*cause.node, "next", "the iteration before made it ready");
    assert_eq!(path(&timeline), [(SegmentKind::Waiting(0), 9.0)]);
    assert_eq!(measured(&RunMetadata::default()), Timeline::default());
}

#[test]
fn spans_of_one_lane_lie_within_or_beside_each_other() {
    let nodes = vec![
        node(PS, "a = A()", [0, 0, 4]),
        node(PS, "b = B()", [0, 1, 2]),
        node(PS, "c = C()", [0, 3, 6]),
        node(PS, "d = D()", [0, 6, 7]),
    ];
    let timeline = measured(&RunMetadata { started_ns: 1, nodes, ..Default::default() });
    let lane = |name: &str| timeline.spans.iter().find(|s| &*s.node == name).unwrap().lane;
    assert_eq!(["a", "b", "c", "d"].map(lane), [0, 0, 1, 0]);
}
