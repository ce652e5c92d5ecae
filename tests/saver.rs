//! `Saver` from Rust: what it keeps, what it restores, what it says when it cannot.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::time::Duration;

use thalweg::SaverOptions;
use thalweg::graph::Output;
use thalweg::prelude::*;
use thalweg::runtime::Session;

/// A folder of this test's own.
struct Folder(String);

impl Folder {
    fn new(name: &str) -> Folder {
        let path = std::env::temp_dir().join(format!("thalweg-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&path);
        Folder(path.to_str().unwrap().to_owned())
    }

    fn at(&self, name: &str) -> String {
        format!("{}/{name}", self.0)
    }

    /// Steps of the checkpoints that are there.
    fn steps(&self) -> Vec<u32> {
        let names = std::fs::read_dir(&self.0).unwrap().map(|e| e.unwrap().file_name());
        let names = names.map(|name| name.into_string().unwrap());
        let mut steps: Vec<u32> = names
            .filter_map(|n| n.strip_prefix("m-")?.strip_suffix(".index")?.parse().ok())
            .collect();
        steps.sort_unstable();
        steps
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// A resource variable `w`, a reference variable `old`, and nodes that set and read both.
fn variables() -> Scope {
    let mut scope = thalweg::scope();
    let shape = PartialShape::new([Some(2)]);
    let value = scope.op("Placeholder").name("value").attr("dtype", DType::Float).build().unwrap();
    let w = scope
        .op("VarHandleOp")
        .name("w")
        .attr("dtype", DType::Float)
        .attr("shape", &shape)
        .attr("shared_name", "w")
        .build()
        .unwrap();
    let old = scope
        .op("VariableV2")
        .name("old")
        .attr("dtype", DType::Float)
        .attr("shape", &shape)
        .build()
        .unwrap();
    let a = scope.op("AssignVariableOp").inputs(&[w, value]).build_node().unwrap();
    let b = scope.op("Assign").inputs(&[old, value]).build_node().unwrap();
    scope.op("NoOp").name("set").after(&[a, b]).build_node().unwrap();
    scope.op("ReadVariableOp").name("read").input(w).attr("dtype", DType::Float).build().unwrap();
    scope.op("Identity").name("read_old").input(old).build().unwrap();
    scope
}

fn set(session: &Session, x: f32) {
    let value = Tensor::vector(&[x, -x]).unwrap();
    session.run(&[("value:0", value)], &[], &["set"]).unwrap();
}

fn get(session: &Session) -> Vec<f32> {
    let both = session.run(&[], &["read", "read_old"], &[]).unwrap();
    both.iter().flat_map(|t| t.as_slice::<f32>().unwrap().to_vec()).collect()
}

#[test]
fn the_newest_are_kept_and_restored() {
    let folder = Folder::new("saver");
    let mut scope = variables();
    let options = SaverOptions { max_to_keep: 2, ..SaverOptions::default() };
    let mut saver = Saver::of_all(&mut scope).unwrap().with_options(options.clone());
    let session = thalweg::session(&scope).unwrap();
    assert_eq!(saver.latest(&folder.0).unwrap(), None);
    for step in 1..=4 {
        set(&session, step as f32);
        let prefix = saver.save(&session, &folder.at("m"), Some(step)).unwrap();
        assert_eq!(prefix, folder.at(&format!("m-{step}")));
        assert_eq!(saver.latest(&folder.0).unwrap(), Some(prefix));
    }
    assert_eq!(folder.steps(), [3, 4]);
    set(&session, 0.0);
    saver.restore(&session, &folder.at("m-3")).unwrap();
    assert_eq!(get(&session), [3.0, -3.0, 3.0, -3.0]);

    // Another process: nothing is there but the files.
    let mut scope = variables();
    let mut saver = Saver::of_all(&mut scope).unwrap().with_options(options);
    let session = thalweg::session(&scope).unwrap();
    assert_eq!(saver.resume(&session, &folder.0).unwrap(), Some(folder.at("m-4")));
    assert_eq!(get(&session), [4.0, -4.0, 4.0, -4.0]);
    saver.save(&session, &folder.at("m"), Some(5)).unwrap();
    assert_eq!(folder.steps(), [4, 5]);
    // A list that names what somebody deleted leads to the newest that is there.
    std::fs::remove_file(folder.at("m-5.index")).unwrap();
    assert_eq!(saver.latest(&folder.0).unwrap(), Some(folder.at("m-4")));
}

#[test]
fn one_of_each_span_is_kept() {
    let folder = Folder::new("saver-spans");
    let mut scope = variables();
    let options = SaverOptions {
        max_to_keep: 1,
        keep_every: Some(Duration::from_nanos(1)),
        ..SaverOptions::default()
    };
    let mut saver = Saver::of_all(&mut scope).unwrap().with_options(options);
    let session = thalweg::session(&scope).unwrap();
    set(&session, 1.0);
    for step in 1..=4 {
        saver.save(&session, &folder.at("m"), Some(step)).unwrap();
    }
    // The first begins the first span, so it is the one that goes.
    assert_eq!(folder.steps(), [2, 3, 4]);
}

#[test]
fn mistakes_are_told() {
    let folder = Folder::new("saver-mistakes");
    let mut scope = thalweg::scope();
    assert_eq!(Saver::of_all(&mut scope).err().unwrap().code(), Code::InvalidArgument);
    let x = scope.constant(&Tensor::scalar(1.0f32)).unwrap();
    let error = Saver::new(&mut scope, &[("x".into(), x)]).err().unwrap();
    assert_eq!(error.code(), Code::InvalidArgument, "{error}");

    let mut scope = variables();
    let mut saver = Saver::of_all(&mut scope).unwrap();
    let session = thalweg::session(&scope).unwrap();
    let error = saver.save(&session, &folder.at("m"), None).unwrap_err();
    assert_eq!(error.code(), Code::FailedPrecondition, "nothing is initialised: {error}");
    let error = saver.restore(&session, &folder.at("nothing")).unwrap_err();
    assert_eq!(error.code(), Code::NotFound, "{error}");
    set(&session, 1.0);
    let prefix = saver.save(&session, &folder.at("m"), None).unwrap();
    // Another graph has another variable.
    let mut scope = variables();
    let w = scope.with_graph(|graph| graph.find("w")).unwrap();
    let saver = Saver::new(&mut scope, &[("elsewhere".into(), Output { node: w, index: 0 })]);
    let session = thalweg::session(&scope).unwrap();
    let error = saver.unwrap().restore(&session, &prefix).unwrap_err();
    assert_eq!(error.code(), Code::NotFound, "{error}");
    assert!(error.message().contains("elsewhere") && error.message().contains(&prefix), "{error}");
}
