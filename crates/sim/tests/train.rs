//! Training jobs in virtual time: modes, failures, checkpoints, and what must hold in any job.
#![allow(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

use thalweg_sim::train::{Failure, NetDescription, Network, Straggler, TrainJob, TrainReport};
use thalweg_train::{Mode, Optimizer, Order, Rng};

/// Compute of one step in seconds.
const COMPUTE: f64 = 0.1;

/// Small parameters, and a step that takes `COMPUTE`.
fn job(workers: u32, ps: u32, mode: Mode) -> TrainJob {
    let mut job = TrainJob::new(workers, ps, mode, NetDescription::dense(40_000, 4, 1e10, 8));
    job.worker.flops_per_second = 1e10 / COMPUTE;
    let each = if job.is_asynchronous() { u64::from(workers) } else { 1 };
    TrainJob { updates: 20 * each, ..job }
}

fn with_slow_worker(job: TrainJob, worker: u32, factor: f64) -> TrainJob {
    let straggler = Straggler { slow_workers: vec![(worker, factor)], ..Straggler::default() };
    TrainJob { straggler, ..job }
}

fn noisy(job: TrainJob, sigma: f64) -> TrainJob {
    TrainJob { straggler: Straggler { sigma, ..Straggler::default() }, ..job }
}

fn fails(job: TrainJob, failures: &[&str]) -> TrainJob {
    TrainJob { failures: failures.iter().map(|text| text.parse().unwrap()).collect(), ..job }
}

fn close(found: f64, expected: f64, tolerance: f64) -> bool {
    (found / expected - 1.0).abs() <= tolerance
}

#[test]
fn a_synchronous_round_waits_for_the_slowest() {
    for order in [Order::Arrival, Order::Worker] {
        let job = with_slow_worker(job(5, 2, Mode::Sync { order }), 3, 4.0);
        let report = job.run().unwrap();
        assert!(close(report.steps_per_second, 1.0 / (4.0 * COMPUTE), 0.1), "{report:?}");
        assert_eq!(report.dropped_gradients, 0);
        assert!(report.lead_max <= 1);
    }
}

#[test]
fn asynchronous_workers_wait_for_nobody() {
    let job = with_slow_worker(job(5, 2, Mode::Async), 3, 4.0);
    let report = job.run().unwrap();
    assert!(close(report.steps_per_second, (4.0 + 0.25) / COMPUTE, 0.1), "{report:?}");
    assert!(report.lead_max > 10, "nobody holds the fast ones back: {}", report.lead_max);
}

#[test]
fn backup_workers_replace_stragglers() {
    let job = with_slow_worker(job(5, 2, Mode::Backup { spare: 1 }), 3, 4.0);
    let report = job.run().unwrap();
    assert!(close(report.steps_per_second, 1.0 / COMPUTE, 0.1), "{report:?}");
    // The slow worker computes a gradient in four rounds, each in vain.
    assert!((3..=6).contains(&report.dropped_gradients), "{}", report.dropped_gradients);
    let without = TrainJob { mode: Mode::Backup { spare: 0 }, ..job }.run().unwrap();
    assert!(report.steps_per_second > 3.0 * without.steps_per_second);
    assert_eq!(without.dropped_gradients, 0);
}

#[test]
fn a_bound_holds_the_fast_workers_back() {
    let rate = |mode| with_slow_worker(job(4, 2, mode), 1, 5.0).run().unwrap();
    let free = rate(Mode::Async);
    let mut last = 0.0;
    for bound in [1, 3, 6] {
        let report = rate(Mode::Stale { bound });
        // Clocks tick before clients know that their steps have ended.
        let (lead, bound) = (report.lead_max, bound as u64);
        assert!(lead <= bound && lead + 1 >= bound, "bound {bound}: {lead}");
        assert!(report.steps_per_second >= last, "a looser bound is not slower");
        last = report.steps_per_second;
    }
    assert!(last < free.steps_per_second);
    // In the long run all have the pace of the slowest.
    let tight =
        TrainJob { updates: 200, ..with_slow_worker(job(4, 2, Mode::Stale { bound: 1 }), 1, 5.0) };
    let report = tight.run().unwrap();
    assert!(close(report.steps_per_second, 4.0 / (5.0 * COMPUTE), 0.1), "{report:?}");
}

#[test]
fn one_seed_gives_the_same_bytes() {
    for mode in [Mode::Async, Mode::sync(), Mode::Backup { spare: 1 }, Mode::Stale { bound: 2 }] {
        let job = noisy(job(6, 3, mode), 0.3);
        let job = fails(job, &["worker/2@0.35s"]);
        let [a, b] = [job.run().unwrap(), job.run().unwrap()];
        assert_eq!(a.to_json().to_string(), b.to_json().to_string(), "{mode:?}");
        assert_eq!(a, b);
        let other = TrainJob { seed: 2, ..job }.run().unwrap();
        assert_ne!(a.updates, other.updates, "{mode:?}");
    }
}

#[test]
fn a_parameter_server_loses_what_no_checkpoint_has() {
    for mode in [Mode::Async, Mode::sync(), Mode::Backup { spare: 1 }, Mode::Stale { bound: 2 }] {
        let job = TrainJob { checkpoint_every: 5, ..job(3, 2, mode) };
        let each = job.updates / 20;
        let job = fails(TrainJob { updates: 40 * each, ..job }, &["ps/0@1.75s"]);
        let report = job.run().unwrap();
        let before = report.updates.iter().filter(|(at, _)| *at < 1.75).count() as u64;
        // A checkpoint of these few bytes takes no time: the last multiple of 5 is kept.
        assert_eq!(report.lost_updates, before % 5, "{mode:?}: {report:?}");
        assert_eq!(report.updates_done, 40 * each);
        assert_eq!(report.updates.len() as u64, report.updates_done + report.lost_updates);
        let away = report.updates.iter().filter(|(at, _)| (1.76..4.7).contains(at)).count();
        assert_eq!(away, 0, "{mode:?}: nobody trains without the server");
        let texts: Vec<&str> = report.events.iter().map(|(_, text)| text.as_str()).collect();
        assert_eq!(texts.len(), 3, "{texts:?}");
        assert!(texts[0] == "ps/0 fails" && texts[2].contains("updates lost"), "{texts:?}");
        // Without checkpoints all is lost.
        let without = TrainJob { checkpoint_every: 0, ..job }.run().unwrap();
        assert_eq!(without.lost_updates, before);
        assert!(without.seconds > report.seconds);
    }
}

#[test]
fn a_worker_that_fails_loses_its_step_alone() {
    let report = fails(job(4, 2, Mode::Async), &["worker/2@0.55s"]).run().unwrap();
    assert_eq!((report.lost_updates, report.lost_steps), (0, 1));
    let healthy = job(4, 2, Mode::Async).run().unwrap();
    assert!(report.seconds < 1.5 * healthy.seconds, "the others continue");
    // A round waits until the worker is back, and then goes on without loss.
    let report = fails(job(4, 2, Mode::sync()), &["worker/2@0.55s"]).run().unwrap();
    let healthy = job(4, 2, Mode::sync()).run().unwrap();
    let waited = report.seconds - healthy.seconds;
    assert!((3.0..3.3).contains(&waited), "{waited}");
    assert_eq!((report.lost_updates, report.updates_done), (0, 20));
    // With a backup worker nobody waits.
    let report = fails(job(4, 2, Mode::Backup { spare: 1 }), &["worker/2@0.55s"]).run().unwrap();
    let healthy = job(4, 2, Mode::Backup { spare: 1 }).run().unwrap();
    assert!(close(report.seconds, healthy.seconds, 0.1), "{} {}", report.seconds, healthy.seconds);
}

#[test]
fn the_chief_aborts_a_round_when_it_is_back() {
    let job = fails(job(4, 2, Mode::sync()), &["worker/0@0.55s"]);
    let report = job.run().unwrap();
    assert_eq!((report.lost_updates, report.updates_done), (0, 20));
    assert!(report.dropped_gradients > 0, "gradients of the aborted round are not used");
}

#[test]
fn checkpoints_take_time_beside_training() {
    let net = NetDescription::dense(400_000_000, 4, 1e10, 8);
    let mut slow =
        TrainJob { net, checkpoint_every: 1, disk_bandwidth: 1e8, ..job(2, 2, Mode::sync()) };
    slow.worker.flops_per_second = 1e11;
    let report = slow.run().unwrap();
    // Each takes 2 s, and the next begins with the first update after it.
    let least = (report.seconds / 2.5) as u64;
    assert!((least.saturating_sub(2)..=least + 2).contains(&report.checkpoints), "{report:?}");
    assert!(report.checkpoints < report.updates_done);
    let without = TrainJob { checkpoint_every: 0, ..slow }.run().unwrap();
    assert_eq!(without.seconds, report.seconds);
}

#[test]
fn interfaces_are_shared() {
    let net = NetDescription::dense(100_000_000, 4, 0.0, 1);
    let step =
        |workers| TrainJob::new(workers, 4, Mode::Async, net.clone()).run().unwrap().median_seconds;
    let (one, eight, sixteen) = (step(1), step(8), step(16));
    // One worker is limited by its own interface, many by those of the servers.
    assert!(one > 0.08 && one < 0.2, "{one}");
    assert!(close(sixteen, 2.0 * eight, 0.2), "{eight} {sixteen}");
    let fast =
        Network { worker_bandwidth: 1.25e10, server_bandwidth: 1.25e10, ..Network::default() };
    let faster = TrainJob { network: fast, ..TrainJob::new(16, 4, Mode::Async, net.clone()) };
    assert!(faster.run().unwrap().median_seconds < sixteen / 2.0);
}

#[test]
fn rows_of_an_embedding_do_not_depend_on_its_size() {
    let step = |bytes, mode| {
        let net = NetDescription::embedding(bytes, 4, 256, 32);
        TrainJob::new(4, 4, mode, net).run().unwrap().median_seconds
    };
    for mode in [Mode::Async, Mode::sync(), Mode::Backup { spare: 1 }] {
        let (small, large) = (step(10_000_000, mode), step(10_000_000_000, mode));
        assert!(close(large, small, 0.01), "{mode:?}: {small} {large}");
        assert!(large < 0.02, "{mode:?}: {large}");
    }
}

#[test]
fn nonsense_is_refused() {
    let refused = |job: TrainJob| assert!(job.run().is_err());
    refused(job(0, 1, Mode::Async));
    refused(job(1, 0, Mode::Async));
    refused(job(100_000_000, 1, Mode::Async));
    refused(job(20_000, 1, Mode::Stale { bound: 1 }));
    refused(job(2, 1, Mode::Backup { spare: 2 }));
    refused(job(2, 1, Mode::Stale { bound: 0 }));
    refused(fails(job(2, 1, Mode::Async), &["ps/1@1s"]));
    refused(TrainJob { updates: 0, ..job(2, 1, Mode::Async) });
    refused(TrainJob { disk_bandwidth: f64::NAN, ..job(2, 1, Mode::Async) });
    refused(TrainJob { restart_seconds: -1.0, ..job(2, 1, Mode::Async) });
    refused(noisy(job(2, 1, Mode::Async), f64::INFINITY));
    let empty = NetDescription { layers: Vec::new(), batch: 1 };
    refused(TrainJob { net: empty, ..job(2, 1, Mode::Async) });
    let network = Network { worker_bandwidth: 0.0, ..Network::default() };
    refused(TrainJob { network, ..job(2, 1, Mode::Async) });
}

#[test]
fn slow_things_do_not_overflow_time() {
    let mut slow = noisy(job(3, 2, Mode::sync()), 10.0);
    slow.net = NetDescription::dense(1 << 40, 2, 1e300, 1);
    slow.network = Network { worker_bandwidth: 1.0, server_bandwidth: 1.0, ..slow.network };
    let report = TrainJob { seconds_max: 1e9, ..slow }.run().unwrap();
    assert_eq!(report.updates_done, 0);
}

#[test]
fn training_ends_when_its_time_is_over() {
    let report = TrainJob { seconds_max: 0.55, ..job(2, 1, Mode::sync()) }.run().unwrap();
    assert_eq!(report.updates_done, 5);
}

/// A job drawn from all that there are.
fn any_job(rng: &mut Rng) -> TrainJob {
    let workers = 1 + rng.below(7) as u32;
    let mode = match rng.below(5) {
        0 => Mode::Async,
        1 => Mode::sync(),
        2 => Mode::Sync { order: Order::Worker },
        3 => Mode::Backup { spare: rng.below(workers as usize) },
        _ => Mode::Stale { bound: 1 + rng.below(4) },
    };
    let ps = 1 + rng.below(4) as u32;
    let mut job = noisy(job(workers, ps, mode), f64::from(rng.unit()));
    job.net = NetDescription::dense(1 << (4 + rng.below(20)), 1 + rng.below(6), 1e10, 8);
    job.seed = rng.bits();
    job.restart_seconds = f64::from(rng.unit());
    job.checkpoint_every = rng.below(12) as u64;
    if rng.below(3) == 0 {
        job.optimizer = Optimizer::momentum(0.1, 0.9);
    }
    for _ in 0..rng.below(4) {
        let (role, count) = if rng.below(2) == 0 { ("ps", ps) } else { ("worker", workers) };
        let failure = format!("{role}/{}@{}s", rng.below(count as usize), 2.0 * rng.unit());
        job.failures.push(failure.parse::<Failure>().unwrap());
    }
    job
}

/// What must hold whatever happened.
fn check(job: &TrainJob, report: &TrainReport) {
    let TrainReport { updates, lost_updates, .. } = report;
    assert_eq!(report.updates_done, job.updates);
    assert_eq!(updates.len() as u64, report.updates_done + lost_updates, "each counts once");
    assert!(updates.windows(2).all(|w| w[0].0 <= w[1].0), "time goes forwards");
    assert!(updates.iter().all(|(at, _)| (0.0..=report.seconds).contains(at)));
    let mut undone = 0;
    for pair in updates.windows(2) {
        let (from, to) = (pair[0].1, pair[1].1);
        assert!(to <= from + 1, "{from} to {to}");
        undone += from + 1 - to;
    }
    assert!(undone <= *lost_updates);
    if job.checkpoint_every == 0 {
        assert_eq!(report.checkpoints, 0);
    }
    let used = report.worker_steps - report.dropped_gradients;
    match job.mode {
        Mode::Stale { bound } => {
            if job.failures.is_empty() {
                assert!(report.lead_max <= bound as u64, "{} > {bound}", report.lead_max);
            }
            assert!(used <= updates.len() as u64);
        }
        Mode::Async => assert!(used <= updates.len() as u64),
        Mode::Sync { .. } => {
            assert!(used <= updates.len() as u64 * u64::from(job.workers));
            if job.failures.is_empty() {
                assert_eq!(report.dropped_gradients, 0);
                assert!(report.lead_max <= 1);
            }
        }
        Mode::Backup { .. } => assert!(used <= updates.len() as u64 * u64::from(job.workers)),
    }
    if job.failures.is_empty() {
        assert_eq!((*lost_updates, report.lost_steps), (0, 0));
    }
    for device in &report.devices {
        assert!((0.0..=1.0).contains(&device.busy), "{device:?}");
    }
    let out: u64 = report.devices.iter().map(|device| device.bytes_out).sum();
    let into: u64 = report.devices.iter().map(|device| device.bytes_in).sum();
    assert!(into <= out, "what is received was sent");
}

#[test]
fn what_must_hold_holds_in_any_job() {
    let mut rng = Rng::new(20_161_102);
    for i in 0..60 {
        let job = any_job(&mut rng);
        let report = job.run().unwrap_or_else(|e| panic!("job {i}: {e}: {job:?}"));
        check(&job, &report);
        if i % 10 == 0 {
            assert_eq!(job.run().unwrap(), report, "job {i} repeats");
        }
    }
}

/// The size that the simulator is made for: seconds with optimizations, much longer without.
#[test]
#[ignore = "slow without optimizations: run it with --release"]
fn a_thousand_workers_and_a_hundred_servers() {
    let net = NetDescription::dense(100_000_000, 20, 1e12, 32);
    let mut job = noisy(TrainJob::new(1000, 100, Mode::sync(), net), 0.1);
    job.worker.flops_per_second = 1e12;
    let report = job.run().unwrap();
    assert_eq!((report.updates_done, report.dropped_gradients), (20, 0));
    println!("{} events, {} s a round", report.events_simulated, report.seconds / 20.0);
}

#[test]
fn null_steps_have_the_shape_of_the_paper() {
    // OSDI 2016, figure 6: 16 parameter servers; the ends of its curves for 1 and 100 workers.
    let step = |workers, net: &NetDescription| {
        let network = Network { message_seconds: 2e-6, ..Network::default() };
        let job = TrainJob { network, ..TrainJob::new(workers, 16, Mode::sync(), net.clone()) };
        TrainJob { updates: 5, ..job }.run().unwrap().median_seconds
    };
    let scalar = NetDescription::dense(64, 16, 0.0, 1);
    let dense = NetDescription::dense(1_000_000_000, 16, 0.0, 1);
    let rows = NetDescription::embedding(16_000_000_000, 16, 256, 32);
    let mut last = [0.0; 3];
    for workers in [1, 10, 40] {
        let steps = [&scalar, &rows, &dense].map(|net| step(workers, net));
        assert!(steps.iter().zip(last).all(|(now, before)| *now > before), "{steps:?} {last:?}");
        assert!(steps[0] <= 1.1 * steps[1] && steps[1] < steps[2] / 10.0, "{steps:?}");
        last = steps;
    }
    let one = step(1, &dense);
    assert!((0.7..1.5).contains(&one), "1.01 s in the paper, {one} here");
    // Many workers share the servers' interfaces: the step grows with their number.
    assert!(close(last[2], 40.0 * 1e9 / 16.0 / 1.25e9, 0.5), "{last:?}");
}

#[test]
fn few_backup_workers_pay_most() {
    // OSDI 2016, figure 8: of 50 workers with 0 to 5 more, 3 more have the best normalized speedup.
    // A worker that was late begins its next step late, so that one straggler costs several rounds.
    let round = |spare: usize| {
        let mut job = job(50 + spare as u32, 2, Mode::Backup { spare });
        job.net.layers.truncate(1);
        let mut straggler = Straggler { sigma: 0.02, ..Straggler::default() };
        (straggler.probability, straggler.factor) = (0.033, 1.25);
        let report = TrainJob { straggler, updates: 80, ..job }.run().unwrap();
        let mut rounds: Vec<f64> = report.updates.windows(2).map(|w| w[1].0 - w[0].0).collect();
        rounds.sort_by(f64::total_cmp);
        rounds[rounds.len() / 2]
    };
    let [none, one, three, five] = [0, 1, 3, 5].map(round);
    let speedup = |round: f64, spare: f64| none / round * 50.0 / (50.0 + spare);
    let speedups = [speedup(one, 1.0), speedup(three, 3.0), speedup(five, 5.0)];
    assert!(speedups[1] > speedups[0].max(speedups[2]), "{speedups:?}");
    assert!(speedups[1] > 1.05, "1.095 in the paper: {speedups:?}");
}
