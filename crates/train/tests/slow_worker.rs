//! A small version of the experiment in `examples/coordination`.
#![allow(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]
#![allow(clippy::disallowed_methods, reason = "a test has threads and time of its own")]

#[path = "../examples/coordination/race.rs"]
mod race;

use std::time::Duration;

use race::{Point, Race};
use thalweg_train::Mode;

/// Where a training of five workers ends of which one takes eight times as long as the others.
fn end(mode: Mode) -> Point {
    let race = Race {
        mode,
        workers: 5,
        pace: Duration::from_millis(40),
        slowness: 8,
        length: Duration::from_secs(3),
        interval: Duration::from_millis(500),
    };
    let points = race.run().unwrap();
    let (first, last) = (points[0], points[points.len() - 1]);
    assert!(last.loss < first.loss, "{mode:?} learns: {first:?}, {last:?}");
    last
}

#[test]
fn a_slow_worker_holds_up_those_who_wait_for_it() {
    let synchronous = end(Mode::sync());
    let backup = end(Mode::Backup { spare: 1 });
    let asynchronous = end(Mode::Async);
    assert_eq!((synchronous.dropped, asynchronous.dropped), (0, 0));
    assert!(backup.dropped > 0, "{backup:?}");
    // Rounds per second: spare workers gain far more than the tenth that the experiment asks for.
    let rate = |point: &Point| point.updates as f64 / point.seconds;
    assert!(rate(&backup) > 1.1 * rate(&synchronous), "{backup:?}, {synchronous:?}");
    // Gradients per second: nobody waits for the slow one.
    let gradients = |point: &Point| point.used as f64 / point.seconds;
    assert!(gradients(&asynchronous) > 1.5 * gradients(&synchronous), "{asynchronous:?}");
}
