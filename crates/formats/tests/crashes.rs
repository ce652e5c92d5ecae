//! A checkpoint that is replaced is the old one or the new one, whatever happens to its writer: killed
//! at any moment, out of room on the disk, with writes, syncs or renames that fail.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod failing;

use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use failing::{Failing, Plan};
use thalweg_formats::checkpoint::{
    BundleReader, BundleWriter, Item, MergeOptions, Slice, WriteOptions, merge,
};
use thalweg_formats::{LocalStorage, Storage};
use thalweg_tensor::{Bytes, Code, Result, Shape, Tensor};

const UNSYNCED: WriteOptions = WriteOptions { sync: false };
/// Set in the process that is to be killed: the folder it writes in.
const FOLDER: &str = "THALWEG_CRASH_FOLDER";

/// A folder of this test's own.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Folder {
        let folder = std::env::temp_dir().join(format!("thalweg-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&folder);
        std::fs::create_dir_all(&folder).unwrap();
        Folder(folder)
    }

    fn at(&self, name: &str) -> String {
        self.0.join(name).to_str().unwrap().to_owned()
    }

    /// Names in it, sorted.
    fn names(&self) -> Vec<String> {
        let entries = std::fs::read_dir(&self.0).unwrap();
        let mut names: Vec<String> =
            entries.map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn local() -> Arc<dyn Storage> {
    Arc::new(LocalStorage::default())
}

/// The tensors of the checkpoint with this number: some large, some small, strings, two slices.
fn tensors(number: u64) -> Vec<(String, Option<&'static str>, Tensor)> {
    let mut all = Vec::new();
    let mut state = number.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    // Sizes differ from checkpoint to checkpoint, so that parts of two do not fit.
    for (i, elements) in [60_000, 1, 0, 500 + number as usize % 700].into_iter().enumerate() {
        let values: Vec<u64> = (0..elements).map(|_| next()).collect();
        all.push((format!("t{i}"), None, Tensor::vector(&values).unwrap()));
    }
    let words = (0..20).map(|i| Bytes::from(format!("{number}/{i}").repeat(i))).collect();
    let shape = Shape::new(&[20]).unwrap();
    all.push(("words".to_owned(), None, Tensor::from_strings(shape, words).unwrap()));
    for slice in ["0,3", "3,2"] {
        let count = Slice::parse(slice).unwrap().shape_in(&Shape::new(&[5]).unwrap()).unwrap();
        let values: Vec<u64> = (0..count.num_elements()).map(|_| next()).collect();
        all.push(("parts".to_owned(), Some(slice), Tensor::vector(&values).unwrap()));
    }
    all
}

fn add(
    writer: &mut BundleWriter,
    tensors: &[(String, Option<&'static str>, Tensor)],
) -> Result<()> {
    for (name, slice, tensor) in tensors {
        match slice {
            Some(slice) => {
                let shape = Shape::new(&[5])?;
                writer.add_slice(name, &shape, &Slice::parse(slice)?, tensor)?;
            }
            None => writer.add(name, tensor)?,
        }
    }
    Ok(())
}

/// Writes three data files at the same time.
fn save_in_parallel(
    storage: &Arc<dyn Storage>,
    prefix: &str,
    tensors: &[(String, Option<&'static str>, Tensor)],
    options: WriteOptions,
) -> Result<()> {
    let whole = Shape::new(&[5])?;
    let slices: Vec<Option<Slice>> =
        tensors.iter().map(|t| t.1.map(Slice::parse).transpose()).collect::<Result<_>>()?;
    let items: Vec<Item<'_>> = tensors
        .iter()
        .zip(&slices)
        .map(|((name, _, tensor), slice)| Item {
            name,
            part: slice.as_ref().map(|slice| (&whole, slice)),
            tensor,
        })
        .collect();
    let spread = |count: usize, work: &(dyn Fn(usize) + Sync)| {
        std::thread::scope(|scope| {
            for i in 0..count {
                scope.spawn(move || work(i));
            }
        });
    };
    let mut writer = BundleWriter::create_files(storage, prefix, options, 3)?;
    writer.add_all(&items, &|| Ok(()), &spread)?;
    writer.finish_with(&spread)
}

/// Writes a checkpoint in one piece, in three at the same time or, for odd numbers, as two that are
/// merged.
fn save(
    storage: &Arc<dyn Storage>,
    prefix: &str,
    number: u64,
    options: WriteOptions,
) -> Result<()> {
    let tensors = tensors(number);
    if number.is_multiple_of(4) {
        return save_in_parallel(storage, prefix, &tensors, options);
    }
    if number.is_multiple_of(2) {
        let mut writer = BundleWriter::create(storage, prefix, options)?;
        add(&mut writer, &tensors)?;
        return writer.finish();
    }
    let parts: Vec<String> = (0..2).map(|i| format!("{prefix}_temp/part-{i}")).collect();
    let (first, second) = tensors.split_at(2);
    for (part, tensors) in parts.iter().zip([first, second]) {
        let mut writer = BundleWriter::create(storage, part, options)?;
        add(&mut writer, tensors)?;
        writer.finish()?;
    }
    let parts: Vec<&str> = parts.iter().map(String::as_str).collect();
    let how = MergeOptions { delete_old_dirs: true, allow_missing: false, write: options };
    merge(storage, &parts, prefix, how)
}

/// The number of the checkpoint that is there; fails unless all of it is there, bit for bit.
fn restored(prefix: &str, candidates: &[u64]) -> u64 {
    let reader = BundleReader::open(&local(), prefix).unwrap();
    let report = reader.verify();
    assert!(report.problems.is_empty(), "{:?}", report.problems);
    for &number in candidates {
        let is_same = |(name, slice, tensor): &(String, Option<&str>, Tensor)| {
            let got = match slice {
                Some(slice) => reader.read_slice(name, &Slice::parse(slice).unwrap()).unwrap(),
                None => reader.read(name).unwrap(),
            };
            got.shape() == tensor.shape()
                && match tensor.strings() {
                    Ok(words) => got.strings().unwrap() == words,
                    Err(_) => got.as_bytes().unwrap() == tensor.as_bytes().unwrap(),
                }
        };
        let all = tensors(number);
        if reader.entry("t3").unwrap().shape == *all[3].2.shape() && all.iter().all(is_same) {
            assert_eq!(reader.len(), 6);
            return number;
        }
    }
    panic!("the checkpoint is none of {candidates:?}");
}

/// Not a test of its own: what the killed processes run.
#[test]
fn writer_process() {
    let Ok(prefix) = std::env::var(FOLDER) else { return };
    for number in 1.. {
        save(&local(), &prefix, number, UNSYNCED).unwrap();
        println!("\nsaved {number}");
    }
}

struct Writing {
    child: Child,
    lines: std::io::Lines<BufReader<std::process::ChildStdout>>,
}

impl Writing {
    fn start(prefix: &str) -> Writing {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "writer_process", "--nocapture"])
            .env(FOLDER, prefix)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        Writing { child, lines }
    }

    /// The next number that was saved; none when the process is gone.
    fn next(&mut self) -> Option<u64> {
        loop {
            let line = self.lines.next()?.ok()?;
            if let Some(number) = line.strip_prefix("saved ") {
                return number.parse().ok();
            }
        }
    }
}

/// Kills a writer at so many random moments.
fn kill(times: u64) {
    let folder = Folder::new("crash");
    let prefix = folder.at("model");
    let mut kept = [0, 0];
    for i in 0..times {
        let mut writing = Writing::start(&prefix);
        // The first may take any time; the moment after it is what varies.
        let mut last = writing.next().unwrap();
        std::thread::sleep(Duration::from_micros(i.wrapping_mul(7919) % 20_000));
        // SIGKILL.
        writing.child.kill().unwrap();
        while let Some(number) = writing.next() {
            last = number;
        }
        writing.child.wait().unwrap();
        // What was told to be saved is there, or what was about to be.
        let found = restored(&prefix, &[last, last + 1]);
        kept[(found - last) as usize] += 1;
        if i % 10 == 9 {
            // The next save clears away what the killed ones left.
            save(&local(), &prefix, 2, UNSYNCED).unwrap();
            assert_eq!(restored(&prefix, &[2]), 2);
            let names = folder.names();
            let others: Vec<_> = names.iter().filter(|n| !n.ends_with("_temp")).collect();
            assert_eq!(others.len(), 2, "{names:?}");
        }
    }
    println!("killed {times} times: {} old, {} new", kept[0], kept[1]);
    assert!(kept[0] > 0, "no writer was killed while it wrote");
}

#[test]
fn a_killed_writer_leaves_the_old_or_the_new() {
    kill(20);
}

#[test]
#[ignore = "long"]
fn a_killed_writer_leaves_the_old_or_the_new_200_times() {
    kill(200);
}

/// Saves over checkpoint 2 (or 3) in every way to fail; what is there after is whole.
fn every_failure(new: u64, plans: impl Fn(usize) -> Plan) -> usize {
    let folder = Folder::new(&format!("failing-{new}-{}", plans(0).name()));
    let prefix = folder.at("model");
    let mut failures = 0;
    for n in 0.. {
        save(&local(), &prefix, 2, UNSYNCED).unwrap();
        let failing = Failing::new(plans(n));
        let storage: Arc<dyn Storage> = Arc::new(failing.clone());
        let result = save(&storage, &prefix, new, WriteOptions::default());
        let found = restored(&prefix, &[2, new]);
        if !failing.has_failed() {
            result.unwrap();
            assert_eq!(found, new);
            return failures;
        }
        failures += 1;
        // A failure to clear away what was replaced is no failure of the save.
        match result {
            Ok(()) => assert_eq!(found, new, "step {n}"),
            Err(e) => {
                assert_eq!(e.code(), Code::ResourceExhausted, "{e}");
                assert!(e.message().contains("/thalweg-failing-"), "{e}");
            }
        }
        let unfinished: Vec<_> =
            folder.names().into_iter().filter(|n| n.ends_with(".tmp")).collect();
        assert!(unfinished.is_empty(), "{unfinished:?}");
    }
    failures
}

#[test]
fn a_full_disk_leaves_the_old() {
    for new in [4, 5, 6] {
        assert!(every_failure(new, |n| Plan::FullAfter(n * 20_011)) > 20);
    }
}

#[test]
fn a_failing_step_leaves_the_old_or_the_new() {
    for new in [4, 5, 6] {
        assert!(every_failure(new, Plan::Step) > 8);
        assert!(every_failure(new, Plan::Finish) > 1);
    }
}

/// The system itself refuses: files may not grow beyond a limit.
#[test]
fn a_limit_of_the_system_leaves_the_old() {
    if let Ok(prefix) = std::env::var("THALWEG_LIMITED") {
        let error = save(&local(), &prefix, 4, WriteOptions::default()).unwrap_err();
        assert_eq!(error.code(), Code::ResourceExhausted, "{error}");
        assert_eq!(restored(&prefix, &[2]), 2);
        return;
    }
    let folder = Folder::new("limited");
    let prefix = folder.at("model");
    save(&local(), &prefix, 2, UNSYNCED).unwrap();
    // Blocks of 512 bytes or more; the signal that comes with the refusal is ignored.
    let script =
        "trap '' XFSZ; ulimit -f 200; exec \"$0\" --exact a_limit_of_the_system_leaves_the_old";
    let status = Command::new("sh")
        .args(["-c", script])
        .arg(std::env::current_exe().unwrap())
        .env("THALWEG_LIMITED", &prefix)
        .stdout(Stdio::null())
        .status()
        .unwrap();
    assert!(status.success());
    assert_eq!(restored(&prefix, &[2]), 2);
    assert_eq!(folder.names().len(), 2, "{:?}", folder.names());
}
