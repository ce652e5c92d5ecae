//! Concurrent steps, asynchronous kernels, deadlines and cancellation. A watchdog turns a hang into a failure.
#![allow(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]
#![expect(clippy::disallowed_methods, reason = "tests have threads and clocks of their own")]

mod support;

use std::sync::Arc;
use std::time::{Duration, Instant};

use support::*;
use thalweg_graph::Output;
use thalweg_kernel::Cancellation;
use thalweg_runtime::RunOptions;
use thalweg_tensor::{Code, err};

fn deadline(ms: u64) -> RunOptions {
    RunOptions { timeout: Some(Duration::from_millis(ms)), ..Default::default() }
}

#[test]
fn deadlines_end_waits_chains_and_loops() {
    watched("a deadline", || {
        let mut s = scope();
        let x = feed(&mut s, "x");
        toy_async(&mut s, "forever", "wait", x);
        toy(&mut s, "ToyLoop", "loop", &[x]);
        let mut chain = x;
        for i in 0..100_000 {
            chain = toy(&mut s, "ToyExpensive", &format!("c{i}"), &[chain]);
        }
        let s = session(s.to_graph(), 2);
        s.make_callable(&["x"], &["c99999"], &[]).unwrap();
        for name in ["wait", "loop", "c99999"] {
            let begin = Instant::now();
            let e = s.run_with(&deadline(30), &[("x", number(0.0))], &[name], &[]).unwrap_err();
            assert_eq!(e.code(), Code::DeadlineExceeded, "{name}: {e}");
            assert!(begin.elapsed() < Duration::from_secs(20), "{name}");
        }
        // The cancellation of a step that passed its deadline is not that of the next step.
        for _ in 0..50 {
            let (y, _) =
                s.run_with(&deadline(60_000), &[("x", number(1.0))], &["c0"], &[]).unwrap();
            assert_eq!(numbers(&y), [2.0]);
        }
    });
}

#[test]
fn a_callers_handle_ends_its_steps_and_stays_its_own() {
    watched("cancellation", || {
        let mut s = scope();
        let x = feed(&mut s, "x");
        toy_async(&mut s, "forever", "wait", x);
        toy(&mut s, "ToyFail", "fail", &[x]);
        toy(&mut s, "ToyExpensive", "good", &[x]);
        let s = Arc::new(session(s.to_graph(), 2));
        let handle = Cancellation::default();
        let options = RunOptions { cancellation: Some(handle.clone()), ..Default::default() };
        let run = |name: &str| s.run_with(&options, &[("x", number(1.0))], &[name], &[]);
        assert_eq!(run("fail").unwrap_err().code(), Code::OutOfRange);
        assert!(handle.check().is_ok(), "a step's error is not the caller's wish");
        assert!(run("good").is_ok());
        let other = {
            let handle = handle.clone();
            std::thread::spawn(move || {
                std::thread::sleep(Duration::from_millis(20));
                handle.cancel(err!(Aborted, "enough"));
            })
        };
        let e = run("wait").unwrap_err();
        assert_eq!((e.code(), e.message()), (Code::Aborted, "enough"));
        other.join().unwrap();
        assert_eq!(run("good").unwrap_err().code(), Code::Aborted);
        assert!(s.run(&[("x", number(1.0))], &["good"], &[]).is_ok());
    });
}

#[test]
fn the_first_error_is_a_real_one() {
    watched("errors", || {
        let mut s = scope();
        let x = feed(&mut s, "x");
        let mut names = Vec::new();
        for i in 0..8 {
            let wait = toy_async(&mut s, "forever", &format!("w{i}"), x);
            let expensive = toy(&mut s, "ToyExpensive", &format!("d{i}"), &[x]);
            let fail = toy(&mut s, "ToyFail", &format!("f{i}"), &[expensive]);
            toy(&mut s, "ToyAdd", &format!("n{i}"), &[wait, fail]);
            names.push(format!("n{i}"));
        }
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        for threads in [1, 2, 4] {
            let s = session(s.to_graph(), threads);
            for _ in 0..50 {
                let e = s.run(&[("x", number(1.0))], &names, &[]).unwrap_err();
                assert_eq!(e.code(), Code::OutOfRange, "{e}");
                assert!(e.message().contains("[[{{node f"), "{e}");
            }
        }
    });
}

#[test]
fn a_waiting_step_does_not_block_other_steps() {
    watched("a waiting step", || {
        let mut s = scope();
        let x = feed(&mut s, "x");
        toy_async(&mut s, "slow", "slow", x);
        toy(&mut s, "ToyExpensive", "good", &[x]);
        let s = Arc::new(session(s.to_graph(), 2));
        let waiting: Vec<_> = (0..8)
            .map(|_| {
                let s = s.clone();
                std::thread::spawn(move || s.run(&[("x", number(1.0))], &["slow"], &[]).unwrap())
            })
            .collect();
        for i in 0..100 {
            let y = s.run(&[("x", number(i as f32))], &["good"], &[]).unwrap();
            assert_eq!(numbers(&y), [i as f32 + 1.0]);
        }
        for thread in waiting {
            assert_eq!(numbers(&thread.join().unwrap()), [2.0]);
        }
    });
}

/// A seeded pseudo-random number generator, so that a seed reproduces a case.
struct Random(u64);

impl Random {
    fn below(&mut self, n: usize) -> usize {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        ((self.0 >> 33) as usize) % n
    }
}

/// A random graph over `x`, and the value of its last node for x = 1.
fn random_graph(seed: u64) -> (thalweg_graph::Graph, String, f32) {
    let mut random = Random(seed);
    let mut s = scope();
    let mut nodes: Vec<(Output, f32)> = vec![(feed(&mut s, "x"), 1.0)];
    for i in 0..3 + random.below(40) {
        let (a, b) = (nodes[random.below(nodes.len())], nodes[random.below(nodes.len())]);
        let name = format!("n{i}");
        nodes.push(match random.below(8) {
            0 => (toy_async(&mut s, "inline", &name, a.0), a.1 + 1.0),
            1 if i % 4 == 0 => (toy_async(&mut s, "thread", &name, a.0), a.1 + 1.0),
            2 | 3 => (toy(&mut s, "ToyExpensive", &name, &[a.0]), a.1 + 1.0),
            4 => (toy(&mut s, "Identity", &name, &[a.0]), a.1),
            _ => (toy(&mut s, "ToyAdd", &name, &[a.0, b.0]), (a.1 + b.1) % 1024.0),
        });
        // Sums stay small enough to be exact.
        if nodes[nodes.len() - 1].1 + 50.0 > 1e6 || a.1 + b.1 >= 1024.0 {
            let last = nodes.len() - 1;
            nodes[last] = (nodes[0].0, 1.0);
        }
    }
    // The sum of all nodes, so that all run.
    let (mut total, mut value) = nodes[0];
    for (i, &(node, x)) in nodes.iter().enumerate().skip(1) {
        total = toy(&mut s, "ToyAdd", &format!("t{i}"), &[total, node]);
        value += x;
    }
    let name = s.name_of(total);
    (s.to_graph(), name, value)
}

#[test]
fn random_graphs_on_random_threads() {
    watched("a random graph", || {
        let begin = Instant::now();
        let limit =
            Duration::from_secs(std::env::var("STRESS_S").map_or(5, |s| s.parse().unwrap()));
        let mut seed = 0;
        while seed < 3000 && begin.elapsed() < limit || seed < 100 {
            let (graph, fetch, expected) = random_graph(seed);
            let s = session(graph, [1, 2, 4][seed as usize % 3]);
            for step in 0..4 {
                let y = s.run(&[("x", number(1.0))], &[&fetch], &[]).unwrap();
                assert_eq!(numbers(&y), [expected], "seed {seed}, step {step}");
            }
            seed += 1;
        }
        println!("{seed} graphs");
    });
}

#[test]
fn many_threads_share_a_session() {
    watched("a shared session", || {
        let (graph, fetch, expected) = random_graph(7);
        let s = Arc::new(session(graph, 2));
        let threads: Vec<_> = (0..6)
            .map(|t| {
                let (s, fetch) = (s.clone(), fetch.clone());
                std::thread::spawn(move || {
                    for i in 0..100 {
                        let name = if (i + t) % 3 == 0 { "x:0" } else { &*fetch };
                        let y = s.run(&[("x", number(1.0))], &[name], &[]).unwrap();
                        let expected = if name == "x:0" { 1.0 } else { expected };
                        assert_eq!(numbers(&y), [expected]);
                    }
                })
            })
            .collect();
        threads.into_iter().for_each(|t| t.join().unwrap());
    });
}
