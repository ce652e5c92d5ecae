//! `cargo xtask test`: everything CI runs, each part timed, all parts even if one fails.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, ensure};

use crate::venv::{OLDER_TENSORFLOW, SERVING_CLIENTS, TENSORBOARD, TENSORFLOW};
use crate::{book, docs, programs, run, tidy, valgrind, venv};

/// A program that the parts need.
struct Need {
    program: &'static str,
    args: &'static [&'static str],
    how: &'static str,
}

const NEEDS: &[Need] = &[
    Need { program: "cargo", args: &["fmt", "--version"], how: "rustup component add rustfmt" },
    Need { program: "cargo", args: &["clippy", "--version"], how: "rustup component add clippy" },
    Need { program: "git", args: &["--version"], how: "install git (apt-get install git)" },
    Need {
        program: "cc",
        args: &["--version"],
        how: "install a C compiler, to link and for mimalloc (apt-get install gcc libc6-dev)",
    },
    Need {
        program: "python3",
        args: &["--version"],
        how: "install Python 3 (apt-get install python3)",
    },
];

/// One part: its name and what it does; `Ok` may say that it was skipped.
type Part = (&'static str, fn() -> Result<Outcome>);

enum Outcome {
    Done,
    Skipped(&'static str),
}

/// Parts that may be skipped where the machine lacks a program or a right. Any other part that is
/// skipped counts as failed.
const SKIPPABLE: &[&str] =
    &["licences", "hdfs", "container", "older", "accelerator", "accelerator-all"];

/// How a part went.
struct Row {
    name: &'static str,
    result: String,
    elapsed: Duration,
    is_ok: bool,
    is_skipped: bool,
    /// Tests of the part that did not run, and why.
    skipped_tests: Vec<String>,
}

const PARTS: &[Part] = &[
    ("format", || cargo(&["fmt", "--all", "--check"])),
    ("tidy", || tidy::run().map(|()| Outcome::Done)),
    ("python", python),
    ("clippy", || {
        cargo(&["clippy", "--workspace", "--all-targets", "--quiet", "--", "-D", "warnings"])
    }),
    ("rustdoc", rustdoc),
    ("tests", || cargo(&["test", "--workspace", "--quiet"])),
    // Once more for what it prints: the recorded cases that wait for an op, by that op.
    ("golden", || {
        let test = ["test", "--quiet", "--workspace", "--test", "golden"];
        cargo(&[&test[..], &["--", "--nocapture", "as_planned"]].concat())
    }),
    ("clients", clients),
    ("cluster", cluster),
    ("recorded", recorded_through_the_client),
    ("accelerator", || accelerator(&[])),
    ("models", models),
    ("serving", serving),
    ("dashboard", dashboard),
    ("examples", examples),
    ("docs", || docs::check().map(|()| Outcome::Done)),
    ("book", || run_book("").map(|()| Outcome::Done)),
    ("loom", || loom(&[])),
    ("valgrind", || valgrind::quick().map(|()| Outcome::Done)),
    ("outside", outside),
    ("licences", licences),
];

/// What takes too long for every change: tests marked `#[ignore]`, optimised.
const LONG_PARTS: &[Part] = &[
    ("long", || {
        let test = ["test", "--workspace", "--quiet", "--release", "--", "--ignored"];
        // Those are the parts `peers`, `s3` and `hdfs`.
        let skip =
            ["--skip", "tensorflows_server", "--skip", "s3s_server", "--skip", "hdfs_server"];
        cargo(&[&test[..], &skip].concat())
    }),
    ("loom-all", || loom(&["--include-ignored"])),
    ("valgrind-all", || valgrind::long().map(|()| Outcome::Done)),
    // Every recorded case that has a lowering, where `accelerator` runs a tenth.
    ("accelerator-all", || accelerator(&[("RECORDED", "all")])),
    ("learning", whole_examples),
    ("by-grpc", cluster_by_grpc),
    ("scale", cluster_scale),
    ("s3", s3_server),
    ("hdfs", hdfs_server),
    ("failures", failures),
    ("container", container),
    ("peers", clients_of_tensorflow),
    ("older", older_clients),
    ("door", two_way_door),
    ("published", published_models),
];

/// Runs the parts called `names`, or every part; with `all` the long ones too.
pub(crate) fn run(all: bool, names: &[&str]) -> Result<()> {
    let parts: Vec<&Part> =
        PARTS.iter().chain(LONG_PARTS).filter(|(name, _)| names.contains(name)).collect();
    ensure!(parts.len() == names.len(), "the parts are: {}", part_names().join(", "));
    let parts = match names {
        [] => PARTS.iter().chain(LONG_PARTS.iter().filter(|_| all)).collect(),
        _ => parts,
    };
    check_needs()?;
    let begin = Instant::now();
    let rows: Vec<Row> = parts.into_iter().map(run_part).collect::<Result<_>>()?;
    print_table(&rows, begin.elapsed());
    let failed: Vec<&str> = rows.iter().filter(|row| !row.is_ok).map(|row| row.name).collect();
    ensure!(failed.is_empty(), "failed: {}", failed.join(", "));
    Ok(())
}

/// Runs one part. An error is one of this program; a part that fails is a row.
fn run_part((name, part): &Part) -> Result<Row> {
    let skips = run::skipped_tests();
    if skips.exists() {
        std::fs::remove_file(&skips)?;
    }
    println!("\n== {name}");
    let start = Instant::now();
    let outcome = part();
    let elapsed = start.elapsed();
    let (is_ok, is_skipped, result) = match &outcome {
        Ok(Outcome::Done) => (true, false, "ok".to_owned()),
        Ok(Outcome::Skipped(why)) if SKIPPABLE.contains(name) => {
            (true, true, format!("skipped: {why}"))
        }
        Ok(Outcome::Skipped(why)) => (false, true, format!("FAILED: must not be skipped: {why}")),
        Err(error) => {
            eprintln!("error: {error:#}");
            (false, false, "FAILED".to_owned())
        }
    };
    println!("== {name}: {result}, {}", seconds(elapsed));
    let mut skipped_tests: Vec<String> = match skips.exists() {
        true => std::fs::read_to_string(&skips)?.lines().map(str::to_owned).collect(),
        false => Vec::new(),
    };
    skipped_tests.sort();
    skipped_tests.dedup();
    Ok(Row { name, result, elapsed, is_ok, is_skipped, skipped_tests })
}

/// Prints how every part went, with the tests that were skipped, and by name what did not run.
fn print_table(rows: &[Row], elapsed: Duration) {
    println!("\n{:10} {:>9}  result", "part", "time");
    for row in rows {
        println!("{:10} {:>9}  {}", row.name, seconds(row.elapsed), row.result);
        for test in &row.skipped_tests {
            println!("{:20}  skipped test {test}", "");
        }
    }
    println!("{:10} {:>9}", "all", seconds(elapsed));
    let skipped: Vec<&str> = rows.iter().filter(|row| row.is_skipped).map(|row| row.name).collect();
    let tests: usize = rows.iter().map(|row| row.skipped_tests.len()).sum();
    match skipped[..] {
        [] => println!("no part was skipped; {tests} tests were"),
        _ => println!("skipped parts: {}; skipped tests: {tests}", skipped.join(", ")),
    }
}

fn part_names() -> Vec<&'static str> {
    PARTS.iter().chain(LONG_PARTS).map(|(name, _)| *name).collect()
}

fn seconds(elapsed: Duration) -> String {
    format!("{:.1} s", elapsed.as_secs_f64())
}

fn check_needs() -> Result<()> {
    let is_missing = |need: &&Need| match need.program {
        "cargo" => !run::succeeds(&mut run::cargo(need.args)),
        program => !run::succeeds(&mut run::command(program, need.args)),
    };
    let missing: Vec<String> = NEEDS
        .iter()
        .filter(is_missing)
        .map(|need| format!("  {} {}: {}", need.program, need.args[0], need.how))
        .collect();
    ensure!(missing.is_empty(), "missing, and how to get it:\n{}", missing.join("\n"));
    Ok(())
}

fn done(command: &mut Command) -> Result<Outcome> {
    run::check(command)?;
    Ok(Outcome::Done)
}

fn cargo(args: &[&str]) -> Result<Outcome> {
    done(&mut run::cargo(args))
}

/// Every Python file of the repository parses.
fn python() -> Result<Outcome> {
    let files = crate::source::files()?;
    let mut args =
        vec!["-c", "import ast, sys\nfor f in sys.argv[1:]: ast.parse(open(f).read(), f)"];
    args.extend(files.iter().map(|f| f.path.as_str()).filter(|p| p.ends_with(".py")));
    ensure!(args.len() > 2, "no Python file was found");
    done(&mut run::command("python3", &args))
}

fn rustdoc() -> Result<Outcome> {
    let mut doc = run::cargo(&["doc", "--workspace", "--no-deps", "--quiet"]);
    done(doc.env("RUSTDOCFLAGS", "-D warnings"))
}

/// Models of the concurrent parts in every order of their threads.
fn loom(args: &[&str]) -> Result<Outcome> {
    let manifest = ["--manifest-path", "tests/loom/Cargo.toml"];
    run::check(run::cargo(&["fmt", "--check"]).args(manifest))?;
    let mut test = run::cargo(&["test", "--quiet", "--locked"]);
    test.args(manifest).args(["--test", "models", "--"]).args(args);
    // Its dependencies have features of their own.
    done(test.env("CARGO_TARGET_DIR", run::target_dir().join("loom")))
}

/// Every program in `examples/` runs to its end.
fn examples() -> Result<Outcome> {
    run_examples(&["run", "--quiet"])
}

/// The same, optimised: those that learn do so from more, and are to learn more.
fn whole_examples() -> Result<Outcome> {
    run_examples(&["run", "--quiet", "--release"])
}

fn run_examples(command: &[&str]) -> Result<Outcome> {
    let folder = run::root().join("examples");
    let mut names = Vec::new();
    for entry in std::fs::read_dir(&folder).context("examples/")? {
        let path = entry?.path();
        if path.extension().is_some_and(|e| e == "rs") {
            names.extend(path.file_stem().and_then(|n| n.to_str()).map(str::to_owned));
        }
    }
    names.sort();
    ensure!(!names.is_empty(), "examples/ holds no programs");
    for name in &names {
        println!("-- {name}");
        run::check(&mut run::cargo(&[command, &["--example", name]].concat()))?;
    }
    Ok(Outcome::Done)
}

/// A crate that depends only on `thalweg` adds an op and builds its own binary, which knows that op.
fn outside() -> Result<Outcome> {
    let program = ["run", "--quiet", "--package", "outside", "--"];
    let args = ["run", "tests/outside/graph.pbtxt", "--feed", "x=3", "--fetch", "y", "--json"];
    let printed = run::output(&mut run::cargo(&[&program[..], &args].concat()))?;
    ensure!(printed.contains("\"values\":10}"), "expected 3 * 3 + 1, got:\n{printed}");
    Ok(Outcome::Done)
}

/// Programs of TensorFlow's own client drive a server of ours.
fn clients() -> Result<Outcome> {
    run_clients(&client_python()?, "run.py", &["--server", &server()?])
}

/// XLA's CPU backend as an accelerator: the caller of plugins, recorded cases, sessions, and programs of
/// TensorFlow's own client.
fn accelerator(variables: &[(&str, &str)]) -> Result<Outcome> {
    if !cfg!(target_arch = "x86_64") {
        return Ok(Outcome::Skipped("the plugin of XLA's CPU backend is for x86-64 only"));
    }
    let plugin = venv::pjrt_cpu_plugin(&run::target_dir().join("pjrt-cpu"))?;
    let mut test = run::cargo(&["test", "--quiet", "--package", "thalweg-accel"]);
    test.env("THALWEG_TEST_PJRT_PLUGIN", &plugin).envs(variables.iter().copied());
    run::check(&mut test)?;
    let mut test =
        run::cargo(&["test", "--quiet", "--package", "thalweg", "--test", "accelerators"]);
    run::check(test.env("THALWEG_TEST_PJRT_PLUGIN", &plugin))?;
    let models = ["test", "--quiet", "--package", "thalweg-bench", "--bin", "thalweg-bench-gpu"];
    run::check(run::cargo(&models).env("THALWEG_TEST_PJRT_PLUGIN", &plugin))?;
    let (python, server) = (client_python()?, server()?);
    let program = ["tests/accelerator/run.py", "--server", &server, "--plugin"];
    done(run::command(python, &program).arg(&plugin))
}

/// Programs of TensorFlow's own client drive clusters of several processes, ours and TensorFlow's.
fn cluster() -> Result<Outcome> {
    let (python, server) = (client_python()?, server()?);
    run::check(&mut run::command(&python, &["tests/cluster/run.py", "--server", &server]))?;
    run_failures(&python, &server, &["--short"])?;
    run_kills(&python, &server, "500")?;
    launched(&python, &server)?;
    configured(&python, &server)?;
    restarted(&python, &server)
}

/// The same programs where all tensors go by gRPC.
fn cluster_by_grpc() -> Result<Outcome> {
    let args = ["tests/cluster/run.py", "--transport", "grpc", "--server"];
    done(run::command(client_python()?, &args).arg(server()?))
}

/// Every kind of failure of every kind of task, as the book says.
fn failures() -> Result<Outcome> {
    let (python, server) = (client_python()?, server()?);
    run_failures(&python, &server, &[])?;
    run_kills(&python, &server, "10000")
}

fn run_failures(python: &Path, server: &str, args: &[&str]) -> Result<Outcome> {
    let table = "tests/cluster/failure_table.py";
    run::check(&mut run::command(python, &[table, "--check", "docs/src/concepts/failures.md"]))?;
    let program = ["tests/cluster/failures.py", "--server", server];
    done(&mut run::command(python, &[&program[..], args].concat()))
}

/// Training while workers are killed at random: every step counts once.
fn run_kills(python: &Path, server: &str, steps: &str) -> Result<Outcome> {
    let args = ["tests/cluster/kills.py", "--server", server, "--steps", steps];
    done(&mut run::command(python, &args))
}

/// Clusters of many tasks, and of much state.
fn cluster_scale() -> Result<Outcome> {
    cargo(&["build", "--quiet", "--release", "--package", "thalweg"])?;
    let server = run::target_dir().join("release/thalweg").display().to_string();
    done(&mut run::command(client_python()?, &["tests/cluster/scale.py", "--server", &server]))
}

/// A program that starts its own servers, with every task ours: each worker's steps count exactly.
fn launched(python: &Path, thalweg: &str) -> Result<Outcome> {
    let text = launch(python, thalweg, &["--ps", "2", "--workers", "3"], "train.py")?;
    let stream = "tensors of /job:ps/replica:0/task:0 come by a unix socket";
    for line in ["[worker/0] counts [200, 200, 200]", &format!("INFO {stream}")] {
        ensure!(text.contains(line), "'{line}' is not in:\n{text}");
    }
    // What the servers say at their end proves that our masters and workers ran the steps: a
    // worker's master its 200 and those that open the session, the parameter server all of them.
    for (task, of_clients_min, of_others_min) in [
        ("worker/0", 200, 0),
        ("worker/1", 200, 0),
        ("worker/2", 200, 0),
        ("ps/0", 0, 600),
        ("ps/1", 0, 600),
    ] {
        let (of_clients, of_others) = steps_said(&text, task)
            .with_context(|| format!("{task} did not say what it ran:\n{text}"))?;
        ensure!(
            of_clients >= of_clients_min && of_others >= of_others_min,
            "{task} ran {of_clients} steps of clients and {of_others} parts:\n{text}"
        );
    }
    println!("ok     a program that starts its own servers");
    Ok(Outcome::Done)
}

/// A program that configures its servers: what we have is heeded, what is not is named.
fn configured(python: &Path, thalweg: &str) -> Result<Outcome> {
    let args = ["--ps", "1", "--workers", "1", "--transport", "grpc", "--memory-limit", "300"];
    let text = launch(python, thalweg, &args, "configured.py")?;
    let ignored = "the server ignores gpu_options.allow_growth, graph_options.place_pruned_graph";
    for line in [
        format!("[worker/0] memory [{}]", 300 << 20),
        format!("[ps/0] thalweg: {ignored}\n"),
        format!("[worker/0] thalweg: {ignored}\n"),
        "INFO count: (VariableV2): /job:ps/replica:0/task:0/device:CPU:1".into(),
    ] {
        ensure!(text.contains(&line), "'{line}' is not in:\n{text}");
    }
    ensure!(!text.contains("come by a"), "there is a stream:\n{text}");
    println!("ok     a program that configures its servers");
    Ok(Outcome::Done)
}

/// A program whose parameter server is killed under it: launch starts it again, and it carries on.
fn restarted(python: &Path, thalweg: &str) -> Result<Outcome> {
    let text = launch(python, thalweg, &["--ps", "1", "--workers", "1"], "restarted.py")?;
    for line in ["[ps/0] thalweg: the server at 127.0.0.1:", "[worker/0] carried on to 60 after 1"]
    {
        ensure!(text.contains(line), "'{line}' is not in:\n{text}");
    }
    println!("ok     a program whose server is killed under it");
    Ok(Outcome::Done)
}

/// What a program of `tests/cluster` prints that runs on a cluster of ours, to a good end.
fn launch(python: &Path, thalweg: &str, args: &[&str], program: &str) -> Result<String> {
    let mut launch = run::command(thalweg, &["launch"]);
    launch.args(args).arg("--log-dir").arg(run::target_dir().join("launched"));
    let output = launch.arg("--").arg(python).arg(format!("tests/cluster/{program}")).output()?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    ensure!(output.status.success(), "thalweg launch ended with {}:\n{text}", output.status);
    Ok(text)
}

/// The steps of clients and the parts of others' that a server said at its end to have run.
fn steps_said(text: &str, task: &str) -> Option<(u64, u64)> {
    let of_task = |line: &&str| line.starts_with(&format!("[{task}]"));
    let (_, rest) = text.lines().filter(of_task).find_map(|line| line.split_once("ends after "))?;
    let mut numbers = rest.split(' ').filter_map(|word| word.parse().ok());
    Some((numbers.next()?, numbers.next()?))
}

/// The image of `deploy/` around a static program builds, and its compose file trains.
fn container() -> Result<Outcome> {
    let has = |program| run::succeeds(&mut run::command(program, &["--version"]));
    let is_root = run::output(&mut run::command("id", &["-u"]))?.trim() == "0";
    if !is_root || !has("apt-get") || !has("unshare") {
        return Ok(Outcome::Skipped("a docker daemon needs root and Debian's packages"));
    }
    let architecture = std::env::consts::ARCH;
    let target = format!("{architecture}-unknown-linux-gnu");
    let flags = format!("CARGO_TARGET_{}_UNKNOWN_LINUX_GNU_RUSTFLAGS", architecture.to_uppercase());
    let build = ["build", "--quiet", "--release", "--package", "thalweg", "--target", &target];
    run::check(run::cargo(&build).env(flags, "-C target-feature=+crt-static"))?;
    let program = run::target_dir().join(target).join("release/thalweg");
    done(run::command("python3", &["tests/container/run.py", "--program"]).arg(program))
}

/// The recorded cases, sent to a server of ours by TensorFlow's own client.
fn recorded_through_the_client() -> Result<Outcome> {
    run_clients(&client_python()?, "golden.py", &["--server", &server()?])
}

/// The same programs on TensorFlow's server: they, not we, say what is right.
fn clients_of_tensorflow() -> Result<Outcome> {
    let python = client_python()?;
    run_clients(&python, "run.py", &["--tensorflow"])?;
    // Our own client has to get along with it too.
    let test = ["test", "--quiet", "--package", "thalweg-cluster", "--test", "stock_server"];
    let mut test = run::cargo(&[&test[..], &["--", "--ignored"]].concat());
    done(test.env("TENSORFLOW_PYTHON", python))
}

/// Training that goes from TensorFlow to a server of ours and back, 500 steps in each place.
fn two_way_door() -> Result<Outcome> {
    let args = ["--server", &server()?, "--long", "saver/the_two_way_door"];
    run_clients(&client_python()?, "run.py", &args)
}

/// The same programs with a client of an older TensorFlow, on a server of ours.
fn older_clients() -> Result<Outcome> {
    let Some(python) = venv::older_python() else {
        return Ok(Outcome::Skipped("the older TensorFlow needs Python 3.9 to 3.11"));
    };
    let folder = run::target_dir().join("clients-older");
    let venv = venv::make_with(&python, &folder, &[&[OLDER_TENSORFLOW]])?;
    run_clients(&venv.join("bin/python"), "run.py", &["--server", &server()?])
}

/// The shell blocks of the book, or of pages whose path contains `filter`, do what they say.
pub(crate) fn run_book(filter: &str) -> Result<()> {
    let server = server()?;
    for example in book::shell::examples()? {
        cargo(&["build", "--quiet", "--package", "thalweg", "--example", &example])?;
    }
    book::shell::run(Path::new(&server), filter)
}

/// Builds the command; its path.
fn server() -> Result<String> {
    cargo(&["build", "--quiet", "--package", "thalweg"])?;
    Ok(run::target_dir().join("debug/thalweg").display().to_string())
}

fn client_python() -> Result<PathBuf> {
    let folder = run::target_dir().join("clients");
    Ok(venv::make(&folder, &[&[TENSORFLOW, TENSORBOARD]])?.join("bin/python"))
}

fn run_clients(python: &Path, program: &str, args: &[&str]) -> Result<Outcome> {
    let program = format!("tests/clients/{program}");
    done(run::command(python, &[&program]).args(args))
}

/// Small models that TensorFlow's Keras traced or saved give TensorFlow's answers, and what we save
/// or train runs there.
fn models() -> Result<Outcome> {
    let thalweg = server()?;
    run_models("run.py", &["--thalweg", &thalweg])?;
    let example = |name: &str| -> Result<String> {
        cargo(&["build", "--quiet", "--package", "thalweg", "--example", name])?;
        Ok(run::target_dir().join("debug/examples").join(name).display().to_string())
    };
    run_models("saved_models.py", &["--thalweg", &thalweg, "--export", &example("export")?])?;
    run_models("trained.py", &["--sharded", &example("sharded")?])
}

/// The stock client of TensorFlow Serving, and plain HTTP, ask a server of ours.
fn serving() -> Result<Outcome> {
    let python = client_python()?;
    let api = venv::extra(&python, &run::target_dir().join("serving-clients"), SERVING_CLIENTS)?;
    let mut program = run::command(&python, &["tests/serving/run.py", "--thalweg", &server()?]);
    done(program.env("PYTHONPATH", api))
}

/// The page of the dashboard, in a browser.
fn dashboard() -> Result<Outcome> {
    let venv = venv::make(&run::target_dir().join("browser"), &[&[venv::BROWSER_DRIVER]])?;
    let program = ["tests/dashboard/run.py", "--thalweg", &server()?];
    done(&mut run::command(venv.join("bin/python"), &program))
}

/// The models as they were published do so too.
fn published_models() -> Result<Outcome> {
    cargo(&["build", "--quiet", "--release", "--package", "thalweg"])?;
    let thalweg = run::target_dir().join("release/thalweg").display().to_string();
    run_models("run.py", &["--all", "--thalweg", &thalweg])?;
    run_models("saved_models.py", &["--all", "--thalweg", &thalweg])
}

fn run_models(program: &str, args: &[&str]) -> Result<Outcome> {
    let program = format!("tests/models/{program}");
    done(run::command(client_python()?, &[&program]).args(args))
}

/// Storage on a real S3 server, and over encrypted connections.
fn s3_server() -> Result<Outcome> {
    let program = programs::install("s3s-fs", "0.14.1", &["--features", "binary"])?;
    let test = ["test", "--quiet", "--package", "thalweg-storage", "--features", "https"];
    cargo(&[&test[..], &["--test", "s3_https"]].concat())?;
    let test = [&test[..], &["--test", "s3_server", "--", "--ignored"]].concat();
    done(run::cargo(&test).env("S3S_FS", program))
}

/// Storage on a real HDFS.
fn hdfs_server() -> Result<Outcome> {
    let has = |program| run::succeeds(&mut run::command(program, &["--version"]));
    if !has("java") || !has("apt-get") {
        return Ok(Outcome::Skipped("HDFS needs Java and Debian's packages"));
    }
    let cache = run::target_dir().join("programs").join("hdfs");
    std::fs::create_dir_all(&cache)?;
    let data = std::env::temp_dir().join(format!("thalweg-hdfs-{}", std::process::id()));
    let mut server = run::command("python3", &["tests/storage/hdfs.py"])
        .arg(&cache)
        .arg(&data)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()?;
    let mut url = String::new();
    let printed = server.stdout.take().context("its output is piped")?;
    BufReader::new(printed).read_line(&mut url)?;
    let tested = if url.is_empty() {
        Err(anyhow!("HDFS did not start"))
    } else {
        let test = ["test", "--quiet", "--package", "thalweg-storage", "--features", "hdfs"];
        let test = [&test[..], &["--test", "hdfs_server", "--", "--ignored"]].concat();
        done(run::cargo(&test).env("HDFS_URL", url.trim()))
    };
    // The server ends when its standard input is closed.
    drop(server.stdin.take());
    server.wait()?;
    let _ = std::fs::remove_dir_all(data);
    tested
}

fn licences() -> Result<Outcome> {
    if !run::succeeds(&mut run::cargo(&["deny", "--version"])) {
        return Ok(Outcome::Skipped("cargo-deny is not installed (cargo install cargo-deny)"));
    }
    cargo(&["deny", "--log-level", "error", "check"])
}
