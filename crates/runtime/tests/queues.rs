//! Queues, staging areas and barriers between concurrent steps. A watchdog turns a hang into a failure.
#![allow(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]
#![expect(clippy::disallowed_methods, reason = "tests have threads and clocks of their own")]

mod support;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::{JoinHandle, spawn};
use std::time::Duration;

use support::*;
use thalweg_graph::Graph;
use thalweg_kernel::{Cancellation, ResourceManager};
use thalweg_runtime::{RunOptions, Session, SessionOptions};
use thalweg_tensor::{Code, Error, Result, Tensor, err};

/// A node in text format; attrs are given as `key value` pairs.
fn node(name: &str, op: &str, inputs: &[&str], attrs: &[(&str, &str)]) -> String {
    let inputs: String = inputs.iter().map(|i| format!(r#" input: "{i}""#)).collect();
    let attrs: String = attrs
        .iter()
        .map(|(key, value)| format!(r#" attr {{ key: "{key}" value {{ {value} }} }}"#))
        .collect();
    format!(r#"node {{ name: "{name}" op: "{op}"{inputs}{attrs} }} "#)
}

/// A queue `q` of int64 scalars and one node for everything that can be done with it.
fn queue_graph(op: &str, capacity: i64, more: &[(&str, &str)]) -> String {
    let v2 = if op.ends_with("V2") { "V2" } else { "" };
    let is_priority = op.starts_with("Priority");
    let payload = if is_priority { "" } else { "type: DT_INT64" };
    let payload_shape = if is_priority { "list { }" } else { "list { shape { } }" };
    let payload_types = format!("list {{ {payload} }}");
    let capacity = format!("i: {capacity}");
    let mut attrs = vec![
        ("component_types", &*payload_types),
        ("shapes", payload_shape),
        ("capacity", &*capacity),
    ];
    attrs.extend_from_slice(more);
    let types = ("component_types", "list { type: DT_INT64 }");
    let inputs = ("Tcomponents", "list { type: DT_INT64 }");
    let on = |op: &str| format!("{op}{v2}");
    [
        node("q", op, &[], &attrs),
        node("x", "Placeholder", &[], &[("dtype", "type: DT_INT64")]),
        node("n", "Placeholder", &[], &[("dtype", "type: DT_INT32")]),
        node("put", &on("QueueEnqueue"), &["q", "x"], &[inputs]),
        node("put_many", &on("QueueEnqueueMany"), &["q", "x"], &[inputs]),
        node("get", &on("QueueDequeue"), &["q"], &[types]),
        node("get_many", &on("QueueDequeueMany"), &["q", "n"], &[types]),
        node("get_up_to", &on("QueueDequeueUpTo"), &["q", "n"], &[types]),
        node("close", &on("QueueClose"), &["q"], &[]),
        node("cancel", &on("QueueClose"), &["q"], &[("cancel_pending_enqueues", "b: true")]),
        node("is_closed", &on("QueueIsClosed"), &["q"], &[]),
        node("size", &on("QueueSize"), &["q"], &[]),
    ]
    .concat()
}

/// Steps on a queue.
#[derive(Clone)]
struct Client(Arc<Session>);

impl Client {
    fn new(op: &str, capacity: i64) -> Client {
        Client(Arc::new(text_session(&queue_graph(op, capacity, &[]), 2).unwrap()))
    }

    fn put(&self, x: i64) -> Result<()> {
        self.put_with(&RunOptions::default(), x)
    }

    fn put_with(&self, options: &RunOptions, x: i64) -> Result<()> {
        self.0.run_with(options, &[("x", Tensor::scalar(x))], &[], &["put"]).map(drop)
    }

    fn put_many(&self, xs: &[i64]) -> Result<()> {
        self.0.run(&[("x", Tensor::vector(xs).unwrap())], &[], &["put_many"]).map(drop)
    }

    fn get(&self) -> Result<i64> {
        self.get_with(&RunOptions::default())
    }

    fn get_with(&self, options: &RunOptions) -> Result<i64> {
        self.0.run_with(options, &[], &["get"], &[]).map(|(t, _)| t[0].scalar_value().unwrap())
    }

    fn get_batch(&self, node: &str, options: &RunOptions, n: i32) -> Result<Vec<i64>> {
        let (tensors, _) = self.0.run_with(options, &[("n", Tensor::scalar(n))], &[node], &[])?;
        Ok(tensors[0].as_slice().unwrap().to_vec())
    }

    fn get_many(&self, n: i32) -> Result<Vec<i64>> {
        self.get_batch("get_many", &RunOptions::default(), n)
    }

    fn target(&self, node: &str) -> Result<()> {
        self.0.run(&[], &[], &[node]).map(drop)
    }

    fn size(&self) -> i32 {
        self.0.run(&[], &["size"], &[]).unwrap()[0].scalar_value().unwrap()
    }

    fn wait_for_size(&self, size: i32) {
        while self.size() != size {
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

fn deadline(ms: u64) -> RunOptions {
    RunOptions { timeout: Some(Duration::from_millis(ms)), ..Default::default() }
}

/// Gives a step that was just started time to block; the tests pass without it, but test less.
fn pause() {
    std::thread::sleep(Duration::from_millis(30));
}

fn code(result: &Result<impl Sized>) -> Option<Code> {
    result.as_ref().err().map(Error::code)
}

fn later<T: Send + 'static>(
    client: &Client,
    work: impl FnOnce(Client) -> T + Send + 'static,
) -> JoinHandle<T> {
    let client = client.clone();
    spawn(move || work(client))
}

const KINDS: [&str; 8] = [
    "FIFOQueueV2",
    "FIFOQueue",
    "PaddingFIFOQueueV2",
    "PaddingFIFOQueue",
    "RandomShuffleQueueV2",
    "RandomShuffleQueue",
    "PriorityQueueV2",
    "PriorityQueue",
];

#[test]
fn producers_and_consumers() {
    const EACH: i64 = 200;
    watched("producers and consumers", || {
        for kind in KINDS {
            let client = Client::new(kind, 7);
            let producers: Vec<_> = (0..4)
                .map(|p| {
                    later(&client, move |client| {
                        let mut next = p * EACH;
                        while next < (p + 1) * EACH {
                            if next % 3 == 0 {
                                let end = (next + 10).min((p + 1) * EACH);
                                client.put_many(&(next..end).collect::<Vec<_>>()).unwrap();
                                next = end;
                            } else {
                                client.put(next).unwrap();
                                next += 1;
                            }
                        }
                    })
                })
                .collect();
            let consumers: Vec<_> = (0..4)
                .map(|c| {
                    later(&client, move |client| {
                        let mut got = Vec::new();
                        loop {
                            let some = match c {
                                0 => client.get_batch("get_up_to", &RunOptions::default(), 5),
                                _ => client.get().map(|x| vec![x]),
                            };
                            match some {
                                Ok(some) => got.extend(some),
                                Err(e) => {
                                    assert_eq!(e.code(), Code::OutOfRange, "{e}");
                                    return got;
                                }
                            }
                        }
                    })
                })
                .collect();
            producers.into_iter().for_each(|p| p.join().unwrap());
            client.target("close").unwrap();
            let mut all = Vec::new();
            for consumer in consumers {
                let got = consumer.join().unwrap();
                if kind.contains("FIFO") {
                    // Of one producer's elements, every consumer sees the earlier ones first.
                    for p in 0..4 {
                        let own: Vec<i64> = got.iter().copied().filter(|x| x / EACH == p).collect();
                        assert!(own.is_sorted(), "{kind}: {own:?}");
                    }
                }
                all.extend(got);
            }
            all.sort_unstable();
            assert_eq!(all, (0..4 * EACH).collect::<Vec<_>>(), "{kind}");
            assert_eq!(client.size(), 0);
        }
    });
}

#[test]
fn closing_a_queue_ends_waiting_steps() {
    watched("closing", || {
        for kind in KINDS {
            let client = Client::new(kind, 2);
            let waiting = [
                later(&client, |c| c.get().map(drop)),
                later(&client, |c| c.get_many(3).map(drop)),
            ];
            pause();
            client.target("close").unwrap();
            for thread in waiting {
                let e = thread.join().unwrap().unwrap_err();
                assert_eq!(e.code(), Code::OutOfRange, "{kind}: {e}");
                let kind = kind.trim_end_matches("V2");
                assert!(e.message().contains(&format!("{kind} '_")), "{e}");
                assert!(e.message().contains("_q' is closed and has insufficient elements"), "{e}");
            }
            let e = client.put(1).unwrap_err();
            assert_eq!(e.code(), Code::Cancelled);
            assert!(e.message().contains("_q' is closed."), "{e}");
            assert_eq!(code(&client.target("close")), Some(Code::Cancelled));
            client.target("cancel").unwrap();
            let closed = client.0.run(&[], &["is_closed"], &[]).unwrap();
            assert!(closed[0].scalar_value::<bool>().unwrap());
        }
    });
}

#[test]
fn a_plain_close_waits_for_enqueues_and_the_other_cancels_them() {
    watched("closing a full queue", || {
        let client = Client::new("FIFOQueueV2", 2);
        client.put(1).unwrap();
        let put = later(&client, |c| c.put_many(&[2, 3]));
        client.wait_for_size(2);
        let close = later(&client, |c| c.target("close"));
        pause();
        assert_eq!(client.get().unwrap(), 1);
        put.join().unwrap().unwrap();
        close.join().unwrap().unwrap();
        assert_eq!(client.get_many(2).unwrap(), [2, 3]);
        assert_eq!(code(&client.get()), Some(Code::OutOfRange));

        let client = Client::new("FIFOQueueV2", 2);
        let put = later(&client, |c| c.put_many(&[1, 2, 3, 4]));
        client.wait_for_size(2);
        pause();
        let close = later(&client, |c| c.target("close"));
        pause();
        client.target("cancel").unwrap();
        let e = put.join().unwrap().unwrap_err();
        assert_eq!(e.code(), Code::Cancelled);
        assert!(e.message().contains("Enqueue operation was cancelled"), "{e}");
        assert_eq!(code(&close.join().unwrap()), Some(Code::Cancelled));
        let rest = client.get_batch("get_up_to", &RunOptions::default(), 5).unwrap();
        assert_eq!(rest, [1, 2], "what was in stays");
    });
}

#[test]
fn a_cancelled_step_leaves_the_queue() {
    watched("cancellation", || {
        let client = Client::new("FIFOQueueV2", 3);
        let handle = Cancellation::default();
        let options = RunOptions { cancellation: Some(handle.clone()), ..Default::default() };
        let mut waiting = Vec::new();
        for _ in 0..8 {
            let options = options.clone();
            waiting.push(later(&client, move |c| c.get_with(&options).map(drop)));
        }
        pause();
        handle.cancel(err!(Aborted, "the client is gone"));
        for thread in waiting {
            assert_eq!(code(&thread.join().unwrap()), Some(Code::Aborted));
        }
        assert_eq!(code(&client.get_with(&deadline(20))), Some(Code::DeadlineExceeded));
        // None of the cancelled steps takes the element.
        client.put(1).unwrap();
        assert_eq!(client.size(), 1);

        client.put_many(&[2, 3]).unwrap();
        assert_eq!(code(&client.put_with(&deadline(20), 4)), Some(Code::DeadlineExceeded));
        assert_eq!(client.get_many(3).unwrap(), [1, 2, 3]);
        assert_eq!(client.size(), 0);
    });
}

#[test]
fn elements_of_a_failed_batch_return_to_the_queue() {
    watched("a batch that fails", || {
        for kind in ["FIFOQueueV2", "PaddingFIFOQueue", "PriorityQueueV2"] {
            let client = Client::new(kind, 10);
            client.put_many(&[1, 2]).unwrap();
            let late = client.get_batch("get_many", &deadline(20), 3);
            assert_eq!(code(&late), Some(Code::DeadlineExceeded));
            assert_eq!(client.size(), 2, "{kind}");
            let waiting = later(&client, |c| c.get_many(4));
            pause();
            client.put(3).unwrap();
            client.target("close").unwrap();
            assert_eq!(code(&waiting.join().unwrap()), Some(Code::OutOfRange));
            assert_eq!(client.get_many(3).unwrap(), [1, 2, 3], "{kind}");
        }
    });
}

#[test]
fn concurrent_dequeues_get_distinct_elements() {
    const WAITERS: i64 = 100;
    watched("many waiters", || {
        let client = Client::new("FIFOQueueV2", -1);
        let before = client.0.memory_used_bytes();
        let waiting: Vec<_> = (0..WAITERS).map(|_| later(&client, |c| c.get().unwrap())).collect();
        pause();
        client.put_many(&(0..WAITERS).collect::<Vec<_>>()).unwrap();
        let mut got: Vec<i64> = waiting.into_iter().map(|w| w.join().unwrap()).collect();
        got.sort_unstable();
        assert_eq!(got, (0..WAITERS).collect::<Vec<_>>());
        assert_eq!(client.0.memory_used_bytes(), before);
    });
}

#[test]
fn a_step_on_one_thread_may_enqueue_what_it_dequeues() {
    watched("a step of its own", || {
        for kind in KINDS {
            let s = text_session(&queue_graph(kind, 1, &[]), 1).unwrap();
            for x in 0..50 {
                let got = s.run(&[("x", Tensor::scalar(x))], &["get"], &["put"]).unwrap();
                assert_eq!(got[0].scalar_value::<i64>().unwrap(), x, "{kind}");
            }
        }
    });
}

#[test]
fn random_cancellations_lose_and_duplicate_no_element() {
    watched("random cancellations", || {
        for seed in 0..6u64 {
            let client = Client::new(KINDS[seed as usize % KINDS.len()], 4);
            let failed = Arc::new(AtomicUsize::new(0));
            let producers: Vec<_> = (0..3i64)
                .map(|p| {
                    let failed = failed.clone();
                    later(&client, move |client| {
                        let mut random = seed * 31 + p as u64;
                        let mut put = Vec::new();
                        for i in 0..150 {
                            random = random.wrapping_mul(6_364_136_223_846_793_005) + 1;
                            let x = p * 1000 + i;
                            match client.put_with(&deadline(1 + (random >> 61)), x) {
                                Ok(()) => put.push(x),
                                Err(e) => {
                                    assert_eq!(e.code(), Code::DeadlineExceeded, "{e}");
                                    failed.fetch_add(1, Ordering::Relaxed);
                                }
                            }
                        }
                        put
                    })
                })
                .collect();
            let consumers: Vec<_> = (0..3u64)
                .map(|c| {
                    later(&client, move |client| {
                        let mut random = seed * 77 + c;
                        let (mut got, mut failed) = (Vec::new(), 0);
                        loop {
                            random = random.wrapping_mul(6_364_136_223_846_793_005) + 1;
                            let options = deadline(1 + (random >> 61));
                            let some = match random >> 40 & 1 {
                                0 => client.get_with(&options).map(|x| vec![x]),
                                _ => client.get_batch("get_up_to", &options, 3),
                            };
                            match some {
                                Ok(some) => got.extend(some),
                                Err(e) if e.code() == Code::DeadlineExceeded => failed += 1,
                                Err(e) => {
                                    assert_eq!(e.code(), Code::OutOfRange, "{e}");
                                    return (got, failed);
                                }
                            }
                        }
                    })
                })
                .collect();
            let mut put: Vec<i64> = producers.into_iter().flat_map(|p| p.join().unwrap()).collect();
            client.target("close").unwrap();
            let (mut got, mut failed_gets) = (Vec::new(), 0);
            for consumer in consumers {
                let (some, failed) = consumer.join().unwrap();
                got.extend(some);
                failed_gets += failed;
            }
            put.sort_unstable();
            got.sort_unstable();
            assert!(got.windows(2).all(|w| w[0] != w[1]), "seed {seed}");
            // A deadline that comes after a step's last kernel fails the step all the same: what it
            // put is in, what it got is gone.
            let lost = put.iter().filter(|x| got.binary_search(x).is_err()).count();
            let more = got.iter().filter(|x| put.binary_search(x).is_err()).count();
            assert!(lost <= 3 * failed_gets, "seed {seed}: {lost} lost by {failed_gets} steps");
            assert!(more <= failed.load(Ordering::Relaxed), "seed {seed}");
        }
    });
}

fn session_with(text: &str, resources: &Arc<ResourceManager>) -> Session {
    let def = thalweg_proto::text::decode("tensorflow.GraphDef", text).unwrap();
    let (ops, kernels) = registries();
    let options = SessionOptions { resources: Some(resources.clone()), ..options(2) };
    Session::new(Graph::from_def(ops, def).unwrap(), kernels, options).unwrap()
}

#[test]
fn named_queues_are_shared_and_others_are_not() {
    let resources = ResourceManager::new("worker");
    let named = queue_graph("FIFOQueue", 9, &[("shared_name", r#"s: "ours""#)]);
    let (a, b) = (session_with(&named, &resources), session_with(&named, &resources));
    a.run(&[("x", Tensor::scalar(5i64))], &[], &["put"]).unwrap();
    let got = b.run(&[], &["get", "q"], &[]).unwrap();
    assert_eq!(got[0].scalar_value::<i64>().unwrap(), 5);
    assert_eq!(got[1].strings().unwrap(), ["worker", "ours"]);
    let other = queue_graph("FIFOQueueV2", 8, &[("shared_name", r#"s: "ours""#)]);
    let e = session_with(&other, &resources).run(&[], &["size"], &[]).unwrap_err();
    assert_eq!(e.code(), Code::InvalidArgument);
    assert!(e.message().contains("'ours' has capacity 9 but requested capacity was 8"), "{e}");

    let unnamed = queue_graph("FIFOQueueV2", 9, &[]);
    let (a, b) = (session_with(&unnamed, &resources), session_with(&unnamed, &resources));
    a.run(&[("x", Tensor::scalar(5i64))], &[], &["put"]).unwrap();
    let size = |s: &Session| s.run(&[], &["size"], &[]).unwrap()[0].scalar_value::<i32>().unwrap();
    assert_eq!((size(&a), size(&b)), (1, 0));
    // A private queue goes with its session, also if handles of it are left.
    let handle = a.run(&[], &["q"], &[]).unwrap().swap_remove(0);
    assert_eq!(b.run(&[("q", handle.clone())], &["get"], &[]).unwrap().len(), 1);
    drop(a);
    let e = b.run(&[("q", handle)], &["size"], &[]).unwrap_err();
    assert_eq!(e.code(), Code::NotFound, "{e}");
}

#[test]
fn resetting_a_container_ends_waiting_steps() {
    watched("a reset", || {
        let resources = ResourceManager::new("worker");
        let text = queue_graph("FIFOQueueV2", 9, &[("container", r#"s: "box""#)]);
        let client = Client(Arc::new(session_with(&text, &resources)));
        client.put(7).unwrap();
        let waiting = later(&client, |c| c.get_many(2).map(drop));
        client.wait_for_size(0);
        resources.reset("box");
        assert_eq!(code(&waiting.join().unwrap()), Some(Code::Cancelled));
        client.put(1).unwrap();
        assert_eq!(client.get().unwrap(), 1);
    });
}

#[test]
fn staging_areas_hand_over_in_order_and_within_bounds() {
    watched("a staging area", || {
        let area = [
            ("dtypes", "list { type: DT_INT64 }"),
            ("capacity", "i: 3"),
            ("shared_name", r#"s: "area""#),
        ];
        let text = [
            node("x", "Placeholder", &[], &[("dtype", "type: DT_INT64")]),
            node("i", "Placeholder", &[], &[("dtype", "type: DT_INT32")]),
            node("put", "Stage", &["x"], &area),
            node("get", "Unstage", &[], &area),
            node("peek", "StagePeek", &["i"], &area),
            node("size", "StageSize", &[], &area),
            node("clear", "StageClear", &[], &area),
        ]
        .concat();
        let client = Client(Arc::new(text_session(&text, 2).unwrap()));
        let producer = later(&client, |c| (0..200).for_each(|x| c.put(x).unwrap()));
        let got: Vec<i64> = (0..200).map(|_| client.get().unwrap()).collect();
        assert!(got.iter().copied().eq(0..200));
        producer.join().unwrap();
        let peek = |i: i32, options: &RunOptions| {
            client.0.run_with(options, &[("i", Tensor::scalar(i))], &["peek"], &[])
        };
        assert_eq!(code(&peek(0, &deadline(20))), Some(Code::DeadlineExceeded));
        assert_eq!(code(&peek(-1, &deadline(20))), Some(Code::InvalidArgument));
        (7..10).for_each(|x| client.put(x).unwrap());
        assert_eq!(code(&client.put_with(&deadline(20), 10)), Some(Code::DeadlineExceeded));
        let (second, _) = peek(1, &deadline(60_000)).unwrap();
        assert_eq!(second[0].scalar_value::<i64>().unwrap(), 8);
        let waiting = later(&client, |c| c.put(11));
        pause();
        client.target("clear").unwrap();
        waiting.join().unwrap().unwrap();
        assert_eq!((client.size(), client.get().unwrap()), (1, 11));
    });
}

#[test]
fn values_wait_for_their_keys() {
    watched("a staging area by key", || {
        for ordered in ["", "Ordered"] {
            let area = [
                ("dtypes", "list { type: DT_INT64 type: DT_INT64 }"),
                ("fake_dtypes", "list { type: DT_INT64 type: DT_INT64 }"),
                ("shared_name", r#"s: "area""#),
            ];
            let one = [("dtypes", area[0].1), ("fake_dtypes", "list { type: DT_INT64 }"), area[2]];
            let on = |op: &str| format!("{ordered}{op}");
            let text = [
                node("key", "Placeholder", &[], &[("dtype", "type: DT_INT64")]),
                node("at", "Placeholder", &[], &[("dtype", "type: DT_INT32")]),
                node("x", "Placeholder", &[], &[("dtype", "type: DT_INT64")]),
                node("put", &on("MapStage"), &["key", "at", "x", "x"], &area),
                node("put_one", &on("MapStage"), &["key", "at", "x"], &one),
                node("get", &on("MapUnstage"), &["key", "at"], &[area[0], area[2]]),
                node("any", &on("MapUnstageNoKey"), &["at"], &[area[0], area[2]]),
                node("size", &on("MapSize"), &[], &[area[0], area[2]]),
                node("parts", &on("MapIncompleteSize"), &[], &[area[0], area[2]]),
            ]
            .concat();
            let client = Client(Arc::new(text_session(&text, 2).unwrap()));
            let put = |node: &str, key: i64, at: &[i32], x: i64| {
                let at = ("at", Tensor::vector(at).unwrap());
                let key = ("key", Tensor::scalar(key));
                client.0.run(&[key, at, ("x", Tensor::scalar(x))], &[], &[node])
            };
            let waiting = later(&client, |c| {
                let at = ("at", Tensor::vector(&[0i32, 1]).unwrap());
                let got = c.0.run(&[("key", Tensor::scalar(3i64)), at], &["get:0", "get:1"], &[]);
                got.unwrap().iter().map(|t| t.scalar_value::<i64>().unwrap()).collect::<Vec<_>>()
            });
            pause();
            put("put", 9, &[0, 1], 90).unwrap();
            put("put", 5, &[0, 1], 50).unwrap();
            put("put_one", 3, &[1], 31).unwrap();
            assert_eq!(code(&put("put_one", 3, &[1], 31)), Some(Code::InvalidArgument));
            assert_eq!(code(&put("put_one", 3, &[2], 31)), Some(Code::InvalidArgument));
            assert_eq!(code(&put("put", 4, &[1, 0], 31)), Some(Code::InvalidArgument));
            let parts = client.0.run(&[], &["parts"], &[]).unwrap();
            assert_eq!(parts[0].scalar_value::<i32>().unwrap(), 1);
            put("put_one", 3, &[0], 30).unwrap();
            assert_eq!(waiting.join().unwrap(), [30, 31]);
            assert_eq!(client.size(), 2);
            let at = ("at", Tensor::vector(&[0i32, 1]).unwrap());
            let got = client.0.run(&[at], &["any:0", "any:1"], &[]).unwrap();
            assert_eq!(got[0].scalar_value::<i64>().unwrap(), 5);
            assert_eq!(got[1].scalar_value::<i64>().unwrap(), 50);
        }
    });
}

#[test]
fn a_barrier_joins_components_by_key() {
    watched("a barrier", || {
        let types = ("component_types", "list { type: DT_INT64 type: DT_INT64 }");
        let insert = |component: i64| format!("i: {component}");
        let (first, second) = (insert(0), insert(1));
        let t = ("T", "type: DT_INT64");
        let small = [types, ("allow_small_batch", "b: true")];
        let text = [
            node("b", "Barrier", &[], &[types, ("shapes", "list { shape { } shape { } }")]),
            node("keys", "Placeholder", &[], &[("dtype", "type: DT_STRING")]),
            node("x", "Placeholder", &[], &[("dtype", "type: DT_INT64")]),
            node("n", "Placeholder", &[], &[("dtype", "type: DT_INT32")]),
            node("a", "BarrierInsertMany", &["b", "keys", "x"], &[t, ("component_index", &first)]),
            node("c", "BarrierInsertMany", &["b", "keys", "x"], &[t, ("component_index", &second)]),
            node("take", "BarrierTakeMany", &["b", "n"], &[types]),
            node("take_small", "BarrierTakeMany", &["b", "n"], &small),
            node("close", "BarrierClose", &["b"], &[]),
            node("size", "BarrierReadySize", &["b"], &[]),
            node("left", "BarrierIncompleteSize", &["b"], &[]),
        ]
        .concat();
        let client = Client(Arc::new(text_session(&text, 2).unwrap()));
        let insert = |node: &str, keys: &[&'static str], xs: &[i64]| {
            let shape = thalweg_tensor::Shape::new(&[keys.len()]).unwrap();
            let keys = keys.iter().map(|&k| k.into()).collect();
            let keys = ("keys", Tensor::from_strings(shape, keys).unwrap());
            client.0.run(&[keys, ("x", Tensor::vector(xs).unwrap())], &[], &[node])
        };
        let take = |client: &Client, node: &str, n: i32| -> Result<Vec<(String, i64, i64)>> {
            let names = [1, 2, 3].map(|i| format!("{node}:{i}"));
            let names = names.each_ref().map(String::as_str);
            let got = client.0.run(&[("n", Tensor::scalar(n))], &names, &[])?;
            let keys = got[0].strings()?.iter().map(|k| String::from_utf8_lossy(k).into_owned());
            let values = got[1].as_slice::<i64>()?.iter().zip(got[2].as_slice::<i64>()?);
            Ok(keys.zip(values).map(|(k, (&a, &c))| (k, a, c)).collect())
        };
        let waiting = later(&client, move |c| take(&c, "take", 2));
        pause();
        insert("a", &["x"], &[1]).unwrap();
        insert("a", &["y", "z"], &[2, 3]).unwrap();
        assert_eq!(code(&insert("a", &["x"], &[7])), Some(Code::InvalidArgument));
        assert_eq!(code(&insert("a", &["v", "w"], &[7])), Some(Code::InvalidArgument));
        insert("c", &["z", "x"], &[30, 10]).unwrap();
        let got = waiting.join().unwrap().unwrap();
        assert_eq!(got, [("x".to_owned(), 1, 10), ("z".to_owned(), 3, 30)]);
        client.target("close").unwrap();
        assert_eq!(code(&client.target("close")), Some(Code::Cancelled));
        assert_eq!(code(&insert("a", &["new"], &[7])), Some(Code::Cancelled));
        let waiting = later(&client, move |c| take(&c, "take", 1));
        pause();
        insert("c", &["y"], &[20]).unwrap();
        assert_eq!(waiting.join().unwrap().unwrap(), [("y".to_owned(), 2, 20)]);
        assert_eq!(code(&take(&client, "take_small", 3)), Some(Code::OutOfRange));
        assert_eq!(code(&take(&client, "take", 1)), Some(Code::OutOfRange));
    });
}
