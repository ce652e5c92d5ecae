//! Simulates the experiments of "TensorFlow: A System for Large-Scale Machine Learning" (OSDI 2016,
//! section 6) and sets the results beside the paper's numbers.
//!
//! `cargo run --release -p thalweg-sim --example osdi16 -- FOLDER [FIGURE...]` writes one table
//! (CSV) and one chart (SVG) per figure.
//!
//! What the paper does not say is assumed: the network, and how much longer some steps take. The
//! distribution of stragglers is chosen so that three backup workers of 50 pay, and serves all figures.

mod chart;

use std::fmt::Write as _;
use std::path::Path;

use chart::{Chart, Line};
use thalweg_sim::train::{NetDescription, Network, Straggler, TrainJob, TrainReport};
use thalweg_tensor::{Result, err};
use thalweg_train::Mode;

/// Numbers of workers on the axis of the paper's figure 6.
const NULL_WORKERS: [u32; 6] = [1, 5, 10, 25, 50, 100];
/// Median null steps in seconds, with 1 and with 100 workers (figure 6 and its text). Of sparse steps
/// the text says that they take 5 to 20 ms.
const NULL_PAPER: [(&str, f64, f64); 5] = [
    ("scalar", 1.8e-3, 8.8e-3),
    ("sparse 1 GB", 5e-3, 20e-3),
    ("sparse 16 GB", 5e-3, 20e-3),
    ("dense 100 MB", 0.147, 0.613),
    ("dense 1 GB", 1.01, 7.16),
];
/// Numbers of workers of figures 7 and 8, with 17 parameter servers.
const SCALE_WORKERS: [u32; 4] = [25, 50, 100, 200];
/// By how much the median synchronous step is longer than the asynchronous one (section 6.3).
const SYNC_TO_ASYNC_PAPER: f64 = 1.10;
/// The number of backup workers of 50 with the shortest step, that step, the number with the highest
/// normalized speedup, and that speedup (figure 8).
const BACKUP_PAPER: (usize, f64, usize, f64) = (4, 1.93, 3, 1.095);

/// A figure's name, and what computes its table and its chart.
type Figure = (&'static str, fn() -> Result<(String, Chart)>);

const FIGURES: [Figure; 3] = [("null-step", null_step), ("scaling", scaling), ("backup", backup)];

fn main() -> Result<()> {
    let mut args = std::env::args().skip(1);
    let folder = args.next().unwrap_or_else(|| "osdi16".to_owned());
    let chosen: Vec<String> = args.collect();
    let folder = Path::new(&folder);
    let failed = |e: std::io::Error| err!(Unavailable, "{}: {e}", folder.display());
    std::fs::create_dir_all(folder).map_err(failed)?;
    for (name, figure) in FIGURES {
        if !chosen.is_empty() && !chosen.iter().any(|other| other == name) {
            continue;
        }
        let (csv, chart) = figure()?;
        println!("{name}\n{csv}");
        std::fs::write(folder.join(format!("{name}.csv")), csv).map_err(failed)?;
        std::fs::write(folder.join(format!("{name}.svg")), chart.svg()).map_err(failed)?;
    }
    Ok(())
}

/// What the paper's cluster may have had. Latency and the time of a message are fitted to the two ends
/// of the scalar curve, the bandwidth, 8 Gb/s, to one worker with 1 GB; all other numbers follow.
fn network() -> Network {
    Network { latency: 100e-6, message_seconds: 2e-6, worker_bandwidth: 1e9, server_bandwidth: 1e9 }
}

/// Figure 6: synchronous steps that fetch parameters from 16 tasks and compute nothing.
fn null_step() -> Result<(String, Chart)> {
    const MB: usize = 1_000_000;
    let nets = [
        NetDescription::dense(16 * 4, 16, 0.0, 1),
        NetDescription::embedding(1000 * MB, 16, 256, 32),
        NetDescription::embedding(16_000 * MB, 16, 256, 32),
        NetDescription::dense(100 * MB, 16, 0.0, 1),
        NetDescription::dense(1000 * MB, 16, 0.0, 1),
    ];
    let mut csv = "model,workers,median_seconds,p10,p90,paper_seconds\n".to_owned();
    let mut lines = Vec::new();
    for ((name, first, last), net) in NULL_PAPER.into_iter().zip(nets) {
        let mut points = Vec::new();
        for workers in NULL_WORKERS {
            let straggler = Straggler { sigma: 0.1, ..Straggler::default() };
            let job = TrainJob {
                updates: 20,
                network: network(),
                straggler,
                ..job(workers, 16, Mode::sync(), &net)
            };
            let report = job.run()?;
            let paper = match workers {
                1 => first.to_string(),
                100 => last.to_string(),
                _ => String::new(),
            };
            row(&mut csv, &format!("{name},{workers}"), &report, &paper);
            points.push((f64::from(workers), report.median_seconds));
        }
        lines.push(Line::new(name, points));
        lines.push(Line::dots(vec![(1.0, first), (100.0, last)]));
    }
    let chart = Chart {
        title: "Null steps with 16 parameter servers (dots: the paper's figure 6)",
        x: "workers",
        y: "median step, s",
        is_logarithmic: true,
        lines,
    };
    Ok((csv, chart))
}

/// Something like Inception-v3 on a K40: 100 MB of parameters, 1.53 s of compute for 32 images.
fn inception() -> NetDescription {
    NetDescription::dense(100_000_000, 17, 1.53 * FLOPS, 32)
}

const FLOPS: f64 = 4e12;

/// A few per cent of noise, and one step in 15 that takes 1.3 times as long.
fn stragglers() -> Straggler {
    Straggler { sigma: 0.02, probability: 0.065, factor: 1.3, slow_workers: Vec::new() }
}

fn inception_job(workers: u32, mode: Mode) -> TrainJob {
    let mut job = job(workers, 17, mode, &inception());
    job.worker.flops_per_second = FLOPS;
    job.network = network();
    job.straggler = stragglers();
    job
}

/// Figures 7 and 8: steps with 25 to 200 workers.
fn scaling() -> Result<(String, Chart)> {
    let mut csv =
        "mode,workers,median_seconds,p10,p90,images_per_second,ratio_to_async\n".to_owned();
    let mut lines = Vec::new();
    let mut medians = Vec::new();
    for (name, mode) in [("asynchronous", Mode::Async), ("synchronous", Mode::sync())] {
        let mut of = [const { Vec::new() }; 3];
        for (i, workers) in SCALE_WORKERS.into_iter().enumerate() {
            let job = inception_job(workers, mode);
            let steps = if job.is_asynchronous() { u64::from(workers) } else { 1 };
            let report = TrainJob { updates: 30 * steps, ..job }.run()?;
            let median = report.median_seconds;
            let ratio = medians.get(i).map_or(1.0, |first: &f64| median / first);
            medians.push(median);
            let more = format!("{:.0},{ratio:.3}", report.samples_per_second);
            row(&mut csv, &format!("{name},{workers}"), &report, &more);
            let all = [median, report.p10_seconds, report.p90_seconds];
            of.iter_mut().zip(all).for_each(|(line, y)| line.push((f64::from(workers), y)));
        }
        let [median, p10, p90] = of;
        lines.push(Line::new(name, median));
        lines.push(Line::thin(p10));
        lines.push(Line::thin(p90));
    }
    let _ = writeln!(csv, "paper,,,,,,{SYNC_TO_ASYNC_PAPER}");
    let chart = Chart {
        title: "Steps of an Inception-like net with 17 parameter servers (thin: 10th, 90th percentile)",
        x: "workers",
        y: "step, s",
        is_logarithmic: false,
        lines,
    };
    Ok((csv, chart))
}

/// Figure 8 (c): 50 workers and up to 5 backup workers.
fn backup() -> Result<(String, Chart)> {
    let mut csv = "backups,median_seconds,p10,p90,normalized_speedup\n".to_owned();
    let (mut times, mut speedups) = (Vec::new(), Vec::new());
    for spare in 0..=5 {
        let job = inception_job(50 + spare as u32, Mode::Backup { spare });
        let report = TrainJob { updates: 80, ..job }.run()?;
        // A round, not a worker's step: a late worker's step is longer than a round.
        let median = round_median(&report);
        let first = times.first().map_or(median, |(_, first)| *first);
        let speedup = first / median * 50.0 / (50.0 + spare as f64);
        let _ = writeln!(
            csv,
            "{spare},{median:.4},{:.4},{:.4},{speedup:.4}",
            report.p10_seconds, report.p90_seconds
        );
        times.push((spare as f64, median));
        speedups.push((spare as f64, speedup));
    }
    let (shortest, seconds, best, speedup) = BACKUP_PAPER;
    let _ =
        writeln!(csv, "paper: shortest at {shortest} ({seconds} s), best at {best} ({speedup})");
    let chart = Chart {
        title: "50 workers with backup workers (dots: the paper's optima)",
        x: "backup workers",
        y: "median round, s; normalized speedup",
        is_logarithmic: false,
        lines: vec![
            Line::new("round", times),
            Line::dots(vec![(shortest as f64, seconds)]),
            Line::new("normalized speedup", speedups),
            Line::dots(vec![(best as f64, speedup)]),
        ],
    };
    Ok((csv, chart))
}

fn round_median(report: &TrainReport) -> f64 {
    let mut rounds: Vec<f64> = report.updates.windows(2).map(|w| w[1].0 - w[0].0).collect();
    rounds.sort_by(f64::total_cmp);
    rounds.get(rounds.len() / 2).copied().unwrap_or(0.0)
}

fn job(workers: u32, ps: u32, mode: Mode, net: &NetDescription) -> TrainJob {
    TrainJob::new(workers, ps, mode, net.clone())
}

fn row(csv: &mut String, key: &str, report: &TrainReport, more: &str) {
    let TrainReport { median_seconds, p10_seconds, p90_seconds, .. } = report;
    let _ = writeln!(csv, "{key},{median_seconds:.6},{p10_seconds:.6},{p90_seconds:.6},{more}");
}
