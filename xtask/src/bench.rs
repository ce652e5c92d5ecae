//! `cargo xtask bench`: our peer beside TensorFlow's, PyTorch's and TensorBoard's, short batches in
//! turn.
//!
//! The machine drifts (frequency, neighbours), so all peers are measured in each round and the
//! order rotates; what is reported is the median of each and the median of the rounds' ratios.

mod peer;
mod report;
mod rows;

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};
use peer::{Answer, Peer};
use report::{COLUMNS, Measured, Row};

use crate::venv::{SERVING_CLIENTS, TENSORBOARD, TENSORFLOW};
use crate::{run, venv};

/// A batch takes at least this long, so that a cold start or a late interrupt does not show.
const BATCH_SECONDS: f64 = 0.02;
const ROUNDS: usize = 15;

struct Options {
    filter: Vec<String>,
    json: Option<PathBuf>,
    venv: Option<PathBuf>,
    rounds: usize,
    list: bool,
}

pub(crate) fn run(args: &[&str]) -> Result<()> {
    let options = parse(args)?;
    let wanted = |row: &&rows::RowSpec| {
        options.filter.is_empty() || options.filter.iter().any(|f| row.name.contains(f.as_str()))
    };
    let rows: Vec<rows::RowSpec> = rows::all();
    let rows: Vec<&rows::RowSpec> = rows.iter().filter(wanted).collect();
    ensure!(!rows.is_empty(), "no row matches; `cargo xtask bench --list` shows them");
    if options.list {
        rows.iter().for_each(|row| println!("{}  ({})", row.name, row.unit.name()));
        return Ok(());
    }
    let mut peers = start_peers(options.venv.as_deref())?;
    let mut measured = Vec::new();
    for row in rows {
        eprint!("{} ... ", row.name);
        let result = measure(row, &mut peers, options.rounds)?;
        eprintln!("{}", result.line());
        measured.push(result);
    }
    report::print_table(&measured);
    if let Some(path) = &options.json {
        let text = report::json(&measured);
        std::fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))?;
    }
    Ok(())
}

/// Round trips of a client to a server of ours, compared with round trips to other servers.
pub(crate) fn server(args: &[&str]) -> Result<()> {
    build(&["thalweg", "thalweg-null-server"])?;
    let venv = venv::make(&run::target_dir().join("clients"), &[&[TENSORFLOW]])?;
    let release = run::target_dir().join("release");
    let mut speed = run::command(venv.join("bin/python"), &["benches/server/speed.py"]);
    speed.arg("--server").arg(release.join("thalweg"));
    speed.arg("--null").arg(release.join("thalweg-null-server"));
    run::check(speed.args(args))
}

/// Transfers between tasks: ours, TensorFlow's, and bare sockets.
pub(crate) fn transfer(args: &[&str]) -> Result<()> {
    beside_tensorflow("benches/cluster/transfer.py", args)
}

/// Checkpoints saved and restored by a server of ours, beside TensorFlow's.
pub(crate) fn checkpoints(args: &[&str]) -> Result<()> {
    beside_tensorflow("benches/checkpoints/speed.py", args)
}

/// Small steps of a cluster of ours, beside TensorFlow's.
pub(crate) fn steps(args: &[&str]) -> Result<()> {
    beside_tensorflow("benches/steps/speed.py", args)
}

/// Requests to a model server, beside one that only sends them back.
pub(crate) fn serving(args: &[&str]) -> Result<()> {
    build(&["thalweg", "thalweg-load"])?;
    let target = run::target_dir();
    let venv = venv::make(&target.join("clients"), &[&[TENSORFLOW]])?;
    let python = venv.join("bin/python");
    let api = venv::extra(&python, &target.join("serving-clients"), SERVING_CLIENTS)?;
    let (program, args) = match args {
        ["latency", rest @ ..] => ("benches/serving/latency.py", rest),
        ["reload", rest @ ..] => ("benches/serving/reload.py", rest),
        all => ("benches/serving/speed.py", all),
    };
    let mut speed = run::command(python, &[program]);
    speed.arg("--server").arg(target.join("release/thalweg"));
    speed.arg("--load").arg(target.join("release/thalweg-load"));
    run::check(speed.args(args).env("PYTHONPATH", api))
}

/// A program that starts servers of ours and TensorFlow's, and measures them in turn.
fn beside_tensorflow(program: &str, args: &[&str]) -> Result<()> {
    build(&["thalweg"])?;
    let venv = venv::make(&run::target_dir().join("clients"), &[&[TENSORFLOW]])?;
    let mut speed = run::command(venv.join("bin/python"), &[program]);
    speed.arg("--server").arg(run::target_dir().join("release/thalweg"));
    run::check(speed.args(args))
}

/// Builds `programs`, optimised.
fn build(programs: &[&str]) -> Result<()> {
    let mut build = run::cargo(&["build", "--release", "--quiet", "--workspace"]);
    programs.iter().for_each(|program| {
        build.args(["--bin", program]);
    });
    run::check(&mut build)
}

fn parse(args: &[&str]) -> Result<Options> {
    let mut options = Options {
        filter: Vec::new(),
        json: None,
        venv: std::env::var_os("THALWEG_BENCH_VENV").map(PathBuf::from),
        rounds: ROUNDS,
        list: false,
    };
    let mut args = args.iter();
    while let Some(&name) = args.next() {
        if name == "--list" {
            options.list = true;
            continue;
        }
        let value = *args.next().with_context(|| format!("{name} needs a value"))?;
        match name {
            "--filter" => options.filter.extend(value.split(',').map(str::to_owned)),
            "--json" => options.json = Some(value.into()),
            "--venv" => options.venv = Some(value.into()),
            "--rounds" => {
                options.rounds = value.parse().context("--rounds takes a number")?;
                ensure!(options.rounds > 0, "--rounds must be at least 1");
            }
            _ => bail!("'{name}' is not an option of bench"),
        }
    }
    Ok(options)
}

/// The peers and the columns that they fill; ours is the first. Two may share a column: a row is one's
/// or the other's.
type Peers = Vec<(usize, Peer)>;

/// Builds and starts ours and the others.
fn start_peers(venv: Option<&Path>) -> Result<Peers> {
    let folder = run::target_dir().join("bench");
    let graphs = folder.join("graphs");
    std::fs::create_dir_all(&graphs)?;
    build(&["thalweg-bench"])?;
    let ours = run::target_dir().join("release/thalweg-bench");
    let venv = match venv {
        Some(venv) => venv.to_owned(),
        None => make_venv(&folder)?,
    };
    let tensorflow = folder.join("tf_session");
    let build = run::root().join("benches/peers/build.sh");
    run::check(run::command(&build, &[]).arg(&venv).arg(&tensorflow))?;
    let python = venv.join("bin/python");
    let start =
        |column: usize, name: &str, program: &Path, args: &[&Path]| -> Result<(usize, Peer)> {
            let log = folder.join(format!("{name}.log"));
            Ok((column, Peer::start(name, program, args, &log, &graphs)?))
        };
    let script = |column: usize, name: &str| {
        let file = run::root().join(format!("benches/peers/{name}_peer.py"));
        start(column, name, &python, &[&file])
    };
    Ok(vec![
        start(0, "ours", &ours, &[])?,
        start(1, "tf_session", &tensorflow, &[])?,
        script(1, "tensorflow")?,
        script(2, "torch")?,
        script(3, "tensorboard")?,
    ])
}

/// A virtual environment with the peers' libraries.
fn make_venv(folder: &Path) -> Result<PathBuf> {
    venv::make(folder, &[&[TENSORFLOW, TENSORBOARD, "torch"]])
}

/// One row on every peer that has it.
fn measure(row: &rows::RowSpec, peers: &mut Peers, rounds: usize) -> Result<Measured> {
    let limit = measure_limit(row, peers)?;
    let mut absent = Vec::new();
    let mut ready: Vec<(usize, f64, u64)> = Vec::new();
    for (i, (_, peer)) in peers.iter_mut().enumerate() {
        match peer.prepare(&row.name)? {
            Answer::Ready(units) => ready.push((i, units, calibrate(peer)?)),
            Answer::Absent(why) => absent.push((i, format!("{}: {why}", peer.name()))),
        }
    }
    let filled: Vec<usize> = ready.iter().map(|(i, ..)| peers[*i].0).collect();
    absent.retain(|(i, _)| !filled.contains(&peers[*i].0));
    let absent = absent.into_iter().map(|(_, why)| why).collect();
    let mut seconds: [Vec<f64>; COLUMNS.len()] = Default::default();
    let mut units = [0.0; COLUMNS.len()];
    for round in 0..rounds {
        for k in 0..ready.len() {
            let (i, work, runs) = ready[(round + k) % ready.len()];
            let (column, peer) = &mut peers[i];
            units[*column] = work;
            seconds[*column].push(peer.time(runs)? / runs as f64);
        }
    }
    let all = units.iter().copied().fold(0.0, f64::max);
    let differs = units.iter().any(|&u| u > 0.0 && (u - all).abs() > all * 1e-9);
    ensure!(!differs, "{}: the peers do not do the same work: {units:?}", row.name);
    Ok(Measured::new(
        Row { name: row.name.clone(), unit: row.unit, units: all, limit, target: row.target },
        &seconds,
        absent,
    ))
}

/// What the machine could do at best, in the row's unit, from a loop that does nothing else.
fn measure_limit(row: &rows::RowSpec, peers: &mut Peers) -> Result<Option<f64>> {
    let (Some(limit), Some((_, ours))) = (&row.limit, peers.first_mut()) else {
        return Ok(None);
    };
    let Answer::Ready(work) = ours.prepare(&limit.row)? else { return Ok(None) };
    let runs = calibrate(ours)?;
    let mut best = f64::MAX;
    for _ in 0..5 {
        best = best.min(ours.time(runs)? / runs as f64);
    }
    Ok(Some(row.unit.show(work / limit.work_per_unit, best)))
}

/// Runs that make a batch of at least [`BATCH_SECONDS`].
fn calibrate(peer: &mut Peer) -> Result<u64> {
    let mut runs = 1u64;
    loop {
        let seconds = peer.time(runs)?;
        if seconds >= BATCH_SECONDS {
            return Ok(runs);
        }
        let wanted = BATCH_SECONDS * 1.2 / seconds.max(1e-9) * runs as f64;
        runs = (wanted.ceil() as u64).clamp(runs + 1, runs.saturating_mul(100));
    }
}
