//! `thalweg checkpoint` and `thalweg inspect` on files of TensorFlow's, on our own, and on mistakes.
#![cfg(feature = "cli")]
#![expect(clippy::unwrap_used, reason = "helpers of tests may panic")]

#[path = "support/folder.rs"]
mod folder;

use std::path::Path;
use std::process::{Command, Output};
use std::sync::Arc;

use folder::Folder;
use prost::Message;
use serde_json::Value as Json;
use thalweg::formats::checkpoint::{BundleWriter, CheckpointState, WriteOptions};
use thalweg::formats::record::{Compression, RecordWriter};
use thalweg::formats::{LocalStorage, Storage};
use thalweg::prelude::*;
use thalweg::proto as pb;
use thalweg::tensor::npy;

fn recorded(name: &str) -> String {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("testdata/checkpoints");
    folder.join(name).to_str().unwrap().to_owned()
}

fn thalweg(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_thalweg")).args(args).output().unwrap()
}

fn text(args: &[&str]) -> String {
    let output = thalweg(args);
    assert!(output.status.success(), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

fn json(args: &[&str]) -> Json {
    serde_json::from_str(&text(args)).unwrap()
}

/// Fails with exit code 1; what it said on both streams.
fn failed(args: &[&str]) -> String {
    let output = thalweg(args);
    let said = [output.stdout, output.stderr].concat();
    let said = String::from_utf8(said).unwrap();
    assert_eq!(output.status.code(), Some(1), "{args:?}: {said}");
    assert!(!said.contains("panicked"), "{said}");
    said
}

fn storage() -> Arc<dyn Storage> {
    Arc::new(LocalStorage { syncs: false })
}

fn save(prefix: &str, tensors: &[(&str, Tensor)]) {
    let mut writer = BundleWriter::create(&storage(), prefix, WriteOptions::default()).unwrap();
    for (name, tensor) in tensors {
        writer.add(name, tensor).unwrap();
    }
    writer.finish().unwrap();
}

fn small(prefix: &str) {
    let kernel = Tensor::vector(&[1.0f32, 2.0, 3.0]).unwrap();
    save(prefix, &[("kernel", kernel), ("step", Tensor::scalar(7i64))]);
}

#[test]
fn lists() {
    let listed = text(&["checkpoint", "list", &recorded("slices")]);
    assert!(listed.contains("rows float [4,3] in slices 0,1:- 1,3:-\n"), "{listed}");
    assert!(listed.contains("whole float [4,3]\n"), "{listed}");
    let all = json(&["checkpoint", "list", &recorded("dtypes"), "--json"]);
    assert_eq!(all["tensors"].as_array().unwrap().len(), 27);
    assert_eq!(all["format"], "checkpoint");
    let first = json(&["checkpoint", "list", &recorded("first"), "--json"]);
    assert_eq!(first["format"], "V1 checkpoint");
    assert_eq!(first["tensors"][0]["name"], "bool");
    let arrays = text(&["checkpoint", "list", &recorded("compressed.npz")]);
    assert!(arrays.contains("a/b int64 [2]\n"), "{arrays}");
}

#[test]
fn other_paths_of_a_checkpoint() {
    for wrong in ["mixed.index", "mixed.data-00000-of-00001"] {
        let output = thalweg(&["checkpoint", "list", &recorded(wrong)]);
        assert!(output.status.success());
        let note = String::from_utf8(output.stderr).unwrap();
        assert!(note.contains(&format!("the checkpoint is {}", recorded("mixed"))), "{note}");
    }
    let said = failed(&["checkpoint", "list", &recorded("mixd")]);
    assert!(said.contains("there is no checkpoint") && said.contains("/mixed"), "{said}");
    let said = failed(&["checkpoint", "list", &recorded("record.py")]);
    assert!(said.contains("is not a checkpoint"), "{said}");
    let folder = Folder::new("checkpoints-other");
    std::fs::write(folder.path("x.data-00000-of-00001"), b"").unwrap();
    let said = failed(&["checkpoint", "list", &folder.path("x.data-00000-of-00001")]);
    assert!(said.contains("x.index is missing"), "{said}");
}

#[test]
fn folders() {
    let folder = Folder::new("checkpoints-folders");
    small(&folder.path("model-1"));
    small(&folder.path("model-2"));
    let said = failed(&["checkpoint", "list", &folder.path("")]);
    assert!(said.contains("2 checkpoints and no checkpoint state file"), "{said}");
    let state = CheckpointState {
        latest: folder.path("model-2"),
        all: vec![folder.path("model-1"), folder.path("model-2")],
        ..Default::default()
    };
    state.write(&*storage(), folder.0.to_str().unwrap()).unwrap();
    let listed = json(&["checkpoint", "list", folder.0.to_str().unwrap(), "--json"]);
    assert_eq!(listed["path"], folder.path("model-2"));
    let found = json(&["inspect", folder.0.to_str().unwrap(), "--json"]);
    assert_eq!(found["kind"], "folder of checkpoints");
    assert_eq!(found["latest"], folder.path("model-2"));
    std::fs::remove_file(folder.path("model-1.index")).unwrap();
    let said = failed(&["inspect", &folder.path("checkpoint")]);
    assert!(said.contains("model-1 is listed and missing"), "{said}");
}

#[test]
fn verifies() {
    // One tensor of this one was saved in part only.
    let said = failed(&["checkpoint", "verify", &recorded("slices")]);
    assert!(said.contains("'half'") && said.contains("5 of 6 tensors are intact"), "{said}");
    let all = [recorded("mixed"), recorded("dtypes"), recorded("first"), recorded("plain.npz")];
    let mut args = vec!["checkpoint", "verify", "--json"];
    args.extend(all.iter().map(String::as_str));
    let report = json(&args);
    assert_eq!(report["problems"], 0);
    assert_eq!(report["checkpoints"][1]["intact"], 27);
    let folder = Folder::new("checkpoints-verify");
    let prefix = folder.path("m");
    small(&prefix);
    let data = format!("{prefix}.data-00000-of-00001");
    let mut bytes = std::fs::read(&data).unwrap();
    bytes[5] ^= 1;
    std::fs::write(&data, &bytes).unwrap();
    let said = failed(&["checkpoint", "verify", &prefix]);
    assert!(said.contains("the checksum of tensor 'kernel'") && said.contains(&data), "{said}");
    assert!(said.contains("1 of 2 tensors are intact"), "{said}");
    // Sizes alone do not tell; sums do.
    assert_eq!(json(&["inspect", &prefix, "--json"])["intact"], true);
    let said = failed(&["inspect", &prefix, "--verify"]);
    assert!(said.contains("DAMAGED"), "{said}");
    std::fs::write(&data, &bytes[..10]).unwrap();
    let said = failed(&["inspect", &prefix]);
    assert!(said.contains("byte 10: the file ends"), "{said}");
}

#[test]
fn differences() {
    let folder = Folder::new("checkpoints-diff");
    let (a, b) = (folder.path("a"), folder.path("b"));
    let vector = |x: f32| Tensor::vector(&[1.0f32, x, f32::NAN]).unwrap();
    let word = |w: &'static str| Tensor::scalar_string(w);
    let scalar = || Tensor::scalar(1);
    save(&a, &[("v", vector(2.0)), ("w", word("x")), ("only", scalar()), ("k", scalar())]);
    save(&b, &[("v", vector(2.5)), ("w", word("y")), ("new", scalar()), ("k", vector(1.0))]);
    let said = failed(&["checkpoint", "diff", &a, &b]);
    for line in [
        "! k: int32 [], float [3]\n",
        "+ new\n",
        "- only\n",
        "~ v: 1 of 3 elements differ, by up to 0.5\n",
        "~ w: 1 of 1 elements differ\n",
        "5 of 5 tensors differ",
    ] {
        assert!(said.contains(line), "{line} in {said}");
    }
    let said = failed(&["checkpoint", "diff", &a, &b, "--tolerance", "0.5"]);
    assert!(!said.contains("~ v"), "{said}");
    assert_eq!(text(&["checkpoint", "diff", &a, &a]), "4 tensors are the same\n");
    let npz = recorded("plain.npz");
    assert!(text(&["checkpoint", "diff", &npz, &recorded("compressed.npz")]).contains("same"));
}

#[test]
fn conversions_and_back() {
    let folder = Folder::new("checkpoints-convert");
    for (input, is_kept_by_all) in [("objects", true), ("first", false), ("dtypes", false)] {
        for kind in ["npz", "safetensors"] {
            let (there, back) = (folder.path(&format!("{input}.{kind}")), folder.path("back"));
            let input = recorded(input);
            let mut args = vec!["checkpoint", "convert", &input, &there, "--no-sync"];
            if !is_kept_by_all {
                let said = failed(&args);
                assert!(said.contains("--skip-unsupported"), "{said}");
                assert!(!Path::new(&there).exists());
                args.push("--skip-unsupported");
            }
            let said = text(&args);
            assert_eq!(said.contains("left out"), !is_kept_by_all, "{said}");
            text(&["checkpoint", "convert", &there, &back]);
            let differs = thalweg(&["checkpoint", "diff", &input, &back]);
            let differs = String::from_utf8(differs.stdout).unwrap();
            let lost = differs.lines().all(|line| line.starts_with("- ") || line.ends_with("same"));
            assert!(lost, "{there}: {differs}");
        }
    }
    // The first format becomes the second as it is.
    let second = folder.path("second");
    text(&["checkpoint", "convert", &recorded("first-slices"), &second]);
    text(&["checkpoint", "diff", &recorded("first-slices"), &second]);
    let said = failed(&["checkpoint", "convert", &second, &folder.path("x.index")]);
    assert!(said.contains("the output must be its prefix"), "{said}");
}

#[test]
fn files_of_checkpoints_are_told() {
    let found = json(&["inspect", &recorded("mixed.index"), "--json"]);
    assert_eq!(found["kind"], "index of a checkpoint");
    assert_eq!(found["prefix"], recorded("mixed"));
    let said = text(&["inspect", &recorded("mixed.data-00000-of-00001")]);
    assert!(
        said.contains(&format!("commands take the checkpoint's prefix: {}", recorded("mixed")))
    );
    let folder = Folder::new("checkpoints-told");
    small(&folder.path("m"));
    std::fs::write(folder.path("m.data-00000-of-00007"), b"").unwrap();
    let said = failed(&["inspect", &folder.path("m.data-00000-of-00007")]);
    assert!(said.contains("belongs to another checkpoint"), "{said}");
    let found = json(&["inspect", &recorded("objects"), "--json", "--verify"]);
    assert_eq!((&found["objects"], &found["verified"]), (&7.into(), &true.into()));
    let found = json(&["inspect", &recorded("first"), "--json"]);
    assert_eq!(found["kind"], "V1 checkpoint");
}

#[test]
fn graphs_are_told() {
    let graphs = Path::new(env!("CARGO_MANIFEST_DIR")).join("testdata/graphs");
    let mut forms = Vec::new();
    for entry in std::fs::read_dir(graphs).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|e| e == "pb" || e == "pbtxt") {
            let found = json(&["inspect", path.to_str().unwrap(), "--json"]);
            assert_eq!(found["kind"], "GraphDef", "{found}");
            assert!(found["nodes"].as_u64().unwrap() > 0);
            forms.push(found["form"].as_str().unwrap().to_owned());
        }
    }
    assert!(forms.contains(&"binary".to_owned()), "{forms:?}");
    let folder = Folder::new("checkpoints-graphs");
    std::fs::write(folder.path("t.pbtxt"), "node { name: 'x' op: 'Placeholder' }").unwrap();
    let said = text(&["inspect", &folder.path("t.pbtxt")]);
    assert!(said.contains("GraphDef, text, 1 node") && said.contains("takes x"), "{said}");
    std::fs::write(folder.path("noise"), b"\xff\xfe\xfd").unwrap();
    let said = failed(&["inspect", &folder.path("noise")]);
    assert!(said.contains("of unknown kind"), "{said}");
    let said = failed(&["inspect", &folder.path("nowhere")]);
    assert!(said.contains("there is no checkpoint"), "{said}");
}

/// A SavedModel with one variable and one asset.
fn saved_model(folder: &Folder) -> String {
    let model = folder.path("model");
    let node = pb::NodeDef { name: "v".into(), op: "VarHandleOp".into(), ..Default::default() };
    let info = |name: &str| pb::TensorInfo {
        dtype: 1,
        tensor_shape: Some(Shape::new(&[2]).unwrap().to_proto()),
        encoding: Some(pb::tensor_info::Encoding::Name(name.into())),
    };
    let signature = pb::SignatureDef {
        inputs: [("x".to_owned(), info("x:0"))].into(),
        outputs: [("y".to_owned(), info("y:0"))].into(),
        method_name: "tensorflow/serving/predict".into(),
        ..Default::default()
    };
    let meta = pb::MetaGraphDef {
        meta_info_def: Some(pb::meta_graph_def::MetaInfoDef {
            tags: vec!["serve".into()],
            tensorflow_version: "2.21.0".into(),
            ..Default::default()
        }),
        graph_def: Some(pb::GraphDef { node: vec![node], ..Default::default() }),
        signature_def: [("serving_default".to_owned(), signature)].into(),
        asset_file_def: vec![pb::AssetFileDef {
            filename: "vocabulary.txt".into(),
            ..Default::default()
        }],
        ..Default::default()
    };
    let proto = pb::SavedModel { saved_model_schema_version: 1, meta_graphs: vec![meta] };
    std::fs::create_dir_all(format!("{model}/assets")).unwrap();
    std::fs::write(format!("{model}/assets/vocabulary.txt"), "a").unwrap();
    std::fs::write(format!("{model}/saved_model.pb"), proto.encode_to_vec()).unwrap();
    small(&format!("{model}/variables/variables"));
    model
}

#[test]
fn saved_models_are_told() {
    let folder = Folder::new("checkpoints-models");
    let model = saved_model(&folder);
    let said = text(&["inspect", &model, "--verify"]);
    for words in [
        "SavedModel, version 1, binary, 1 graph, variables: 2 tensors",
        "1 asset: intact, verified",
        "graph [serve]: 1 node, 0 functions, written by TensorFlow 2.21.0",
        "signature serving_default (tensorflow/serving/predict)",
        "takes x: float [2]",
        "gives y: float [2]",
    ] {
        assert!(said.contains(words), "{words} in {said}");
    }
    let found = json(&["inspect", &model, "--json"]);
    assert_eq!(found["graphs"][0]["signatures"]["serving_default"]["inputs"]["x"], "float [2]");
    assert_eq!(found["variables"]["tensors"][0]["name"], "kernel");
    let listed = json(&["checkpoint", "list", &model, "--json"]);
    assert_eq!(listed["path"], format!("{model}/variables/variables"));
    std::fs::create_dir_all(folder.path("served")).unwrap();
    std::fs::rename(&model, folder.path("served/12")).unwrap();
    let said = text(&["inspect", &folder.path("served")]);
    assert!(said.contains("folder of a served model, 1 version"), "{said}");
    std::fs::remove_file(folder.path("served/12/assets/vocabulary.txt")).unwrap();
    std::fs::remove_file(folder.path("served/12/variables/variables.index")).unwrap();
    let said = failed(&["inspect", &folder.path("served/12")]);
    assert!(
        said.contains("vocabulary.txt is missing") && said.contains("variables.index"),
        "{said}"
    );
}

#[test]
fn records_and_arrays_are_told() {
    let folder = Folder::new("checkpoints-records");
    let path = folder.path("data");
    for (compression, verified) in [(Compression::None, false), (Compression::Gzip, true)] {
        let file = storage().create(&path).unwrap();
        let mut writer = RecordWriter::new(file, compression);
        (0..10u8).for_each(|i| writer.write(&[i; 100]).unwrap());
        writer.finish().unwrap();
        let found = json(&["inspect", &path, "--json"]);
        assert_eq!(found["kind"], "TFRecord file");
        assert_eq!((&found["records"], &found["verified"]), (&10.into(), &verified.into()));
        assert_eq!(json(&["inspect", &path, "--json", "--verify"])["records"], 10);
    }
    let mut writer = RecordWriter::new(storage().create(&path).unwrap(), Compression::None);
    writer.write(b"abc").unwrap();
    writer.write(b"defg").unwrap();
    writer.finish().unwrap();
    let bytes = std::fs::read(&path).unwrap();
    std::fs::write(&path, &bytes[..bytes.len() - 1]).unwrap();
    let said = failed(&["inspect", &path]);
    assert!(said.contains("1 record,") && said.contains("record at byte 19"), "{said}");

    let array = folder.path("a.npy");
    let bytes = npy::write(&Tensor::vector(&[1i16, 2]).unwrap()).unwrap();
    std::fs::write(&array, &bytes).unwrap();
    assert!(text(&["inspect", &array]).contains("NumPy array, int16 [2], 4 bytes: intact"));
    std::fs::write(&array, &bytes[..bytes.len() - 1]).unwrap();
    assert!(failed(&["inspect", &array]).contains("DAMAGED"));
    let said = text(&["inspect", "--verify", &recorded("plain.npz")]);
    assert!(said.contains("archive of NumPy arrays, 5 tensors"), "{said}");
    let safe = folder.path("x.safetensors");
    text(&["checkpoint", "convert", &recorded("plain.npz"), &safe]);
    assert_eq!(json(&["inspect", &safe, "--json"])["kind"], "safetensors file");
    let both = thalweg(&["inspect", &safe, &array, "--json"]);
    assert_eq!(both.status.code(), Some(1));
    assert_eq!(String::from_utf8(both.stdout).unwrap().lines().count(), 2);
}
