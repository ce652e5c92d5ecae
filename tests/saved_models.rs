//! `thalweg run` and `thalweg check` on SavedModels that TensorFlow wrote, and on damaged ones.
#![cfg(feature = "cli")]
#![expect(clippy::unwrap_used, reason = "helpers of tests may panic")]

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use prost::Message;
use serde_json::Value as Json;
use thalweg::proto as pb;

fn thalweg(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_thalweg")).args(args).output().unwrap()
}

fn models() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("testdata/saved_models")
}

/// A copy of a recorded model that a test may damage; removed at its end.
struct Copy(PathBuf);

impl Copy {
    fn of(model: &str, test: &str) -> Copy {
        let target = std::env::temp_dir().join(format!("thalweg-{test}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&target);
        for folder in ["", "variables", "assets"] {
            std::fs::create_dir_all(target.join(folder)).unwrap();
            for entry in std::fs::read_dir(models().join(model).join(folder)).unwrap() {
                let path = entry.unwrap().path();
                if path.is_file() {
                    std::fs::copy(&path, target.join(folder).join(path.file_name().unwrap()))
                        .unwrap();
                }
            }
        }
        Copy(target)
    }

    fn path(&self) -> &str {
        self.0.to_str().unwrap()
    }

    fn change(&self, change: impl FnOnce(&mut pb::MetaGraphDef)) {
        let file = self.0.join("saved_model.pb");
        let mut model = pb::SavedModel::decode(&std::fs::read(&file).unwrap()[..]).unwrap();
        change(&mut model.meta_graphs[0]);
        std::fs::write(file, model.encode_to_vec()).unwrap();
    }
}

impl Drop for Copy {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Fails with this exit code and these words on either stream.
fn refused(args: &[&str], code: i32, words: &[&str]) {
    let output = thalweg(args);
    let said = [output.stdout, output.stderr].concat();
    let said = String::from_utf8(said).unwrap();
    assert_eq!(output.status.code(), Some(code), "{args:?}: {said}");
    for word in words {
        assert!(said.contains(word), "{args:?} must say {word:?}, said {said:?}");
    }
    assert!(!said.contains("panicked"), "{args:?}: {said}");
}

fn assert_close(got: &Json, wanted: &Json, at: &str) {
    match (got, wanted) {
        (Json::Array(got), Json::Array(wanted)) => {
            assert_eq!(got.len(), wanted.len(), "{at}");
            got.iter().zip(wanted).for_each(|(g, w)| assert_close(g, w, at));
        }
        (Json::Number(got), Json::Number(wanted)) => {
            let (got, wanted) = (got.as_f64().unwrap(), wanted.as_f64().unwrap());
            assert!((got - wanted).abs() <= 1e-5 * wanted.abs().max(1.0), "{at}: {got}, {wanted}");
        }
        _ => assert_eq!(got, wanted, "{at}"),
    }
}

#[test]
fn recorded_models_give_tensorflows_numbers() {
    for name in ["v1", "v2"] {
        let folder = models().join(name);
        let cases = std::fs::read(models().join(format!("{name}.json"))).unwrap();
        let cases: Vec<Json> = serde_json::from_slice(&cases).unwrap();
        assert!(cases.len() >= 3, "{name}");
        for case in cases {
            let mut args = vec!["run", folder.to_str().unwrap(), "--json"];
            args.extend(case["args"].as_array().unwrap().iter().map(|a| a.as_str().unwrap()));
            let output = thalweg(&args);
            assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
            let got: Json = serde_json::from_slice(&output.stdout).unwrap();
            let wanted = case["outputs"].as_object().unwrap();
            assert_eq!(got["fetches"].as_object().unwrap().len(), wanted.len(), "{args:?}");
            for (output, wanted) in wanted {
                let got = &got["fetches"][output];
                assert_eq!(got["shape"], wanted["shape"], "{output} of {args:?}");
                assert_close(&got["values"], &wanted["values"], &format!("{output} of {args:?}"));
            }
        }
        let checked = thalweg(&["check", folder.to_str().unwrap()]);
        assert!(checked.status.success(), "{}", String::from_utf8_lossy(&checked.stdout));
    }
}

#[test]
fn mistakes_say_what_there_is() {
    let v2 = models().join("v2");
    let v2 = v2.to_str().unwrap();
    refused(&["run", v2], 2, &["tags: serve", "signature look:", "input   x  float [?,2]"]);
    refused(&["run", v2], 2, &["functions, for --signature too: look, scaled, serve"]);
    refused(&["run", v2, "--signature=look"], 2, &["words  string [?]", "--feed words=VALUE"]);
    refused(&["run", v2, "--signature=scaled"], 2, &["x         float [2]", "--feed x=VALUE"]);
    refused(&["run", v2, "--signature=no"], 1, &["NOT_FOUND", "'look', 'serving_default'"]);
    refused(&["run", v2, "--saved-model-tags=no"], 1, &["NOT_FOUND", "[no]", "[serve]"]);
    refused(&["run", v2, "--feed=y=1"], 1, &["--feed y", "it has 'x'"]);
    refused(&["run", v2, "--feed=x=1"], 1, &["--feed x", "[?,2] was expected"]);
    refused(&["run", v2, "--feed=x"], 2, &["--feed \"x\" must be NAME=VALUE"]);
    refused(&["run", v2, "--feed=x=[[1,2]]", "--fetch=w"], 1, &["--fetch", "'y', 'z'"]);
    refused(&["run", v2, "--target=y"], 2, &["--feed INPUT=VALUE", "are for graphs only"]);
    refused(&["run", &format!("{v2}/saved_model.pb")], 1, &["name the folder"]);
    refused(&["run", &format!("{v2}/variables")], 1, &["neither saved_model.pb nor"]);
    refused(
        &["run", &format!("{v2}/saved_model.pb"), "--signature=s"],
        2,
        &["for SavedModels only"],
    );
}

#[test]
fn missing_and_damaged_files_are_named() {
    let copy = Copy::of("v2", "saved-missing");
    let run = ["run", copy.path(), "--feed=x=[[1,2]]"];
    let data = copy.0.join("variables/variables.data-00000-of-00001");
    let mut bytes = std::fs::read(&data).unwrap();
    bytes[1] ^= 0xff;
    std::fs::write(&data, bytes).unwrap();
    refused(&run, 1, &["variables.data-00000-of-00001"]);
    std::fs::remove_file(data).unwrap();
    refused(&run, 1, &["NOT_FOUND", "variables.data-00000-of-00001"]);
    std::fs::remove_file(copy.0.join("variables/variables.index")).unwrap();
    refused(&run, 1, &["NOT_FOUND", "variables.index is missing"]);
    refused(&["check", copy.path()], 1, &["file", "variables.index is missing"]);
    std::fs::remove_file(copy.0.join("assets/vocabulary.txt")).unwrap();
    refused(&run, 1, &["NOT_FOUND", "assets/vocabulary.txt is missing"]);
    refused(&["check", copy.path()], 1, &["assets/vocabulary.txt is missing"]);
    let file = copy.0.join("saved_model.pb");
    let bytes = std::fs::read(&file).unwrap();
    std::fs::write(&file, &bytes[..bytes.len() / 2]).unwrap();
    refused(&run, 1, &["DATA_LOSS", "saved_model.pb"]);
    std::fs::remove_file(file).unwrap();
    refused(&run, 1, &["NOT_FOUND", "neither saved_model.pb nor"]);
}

#[test]
fn models_cannot_reach_out_of_their_folder() {
    let copy = Copy::of("v2", "saved-outside");
    copy.change(|meta| meta.asset_file_def[0].filename = "../../../etc/passwd".to_owned());
    refused(&["run", copy.path(), "--feed=x=[[1,2]]"], 1, &["INVALID_ARGUMENT", "is refused"]);
    refused(&["check", copy.path()], 1, &["is refused"]);
}

#[test]
fn what_a_model_needs_is_what_its_signatures_need() {
    let copy = Copy::of("v2", "saved-needs");
    copy.change(|meta| {
        let graph = meta.graph_def.as_mut().unwrap();
        let node = |name: &str, op: &str| pb::NodeDef {
            name: name.to_owned(),
            op: op.to_owned(),
            ..Default::default()
        };
        graph.node.push(node("unused", "NobodyKnowsThisOp"));
    });
    let checked = thalweg(&["check", copy.path()]);
    assert!(checked.status.success(), "{}", String::from_utf8_lossy(&checked.stdout));
    copy.change(|meta| {
        let graph = meta.graph_def.as_mut().unwrap();
        let init = graph.node.iter_mut().find(|n| n.name == "NoOp").unwrap();
        init.input.push("^unused".to_owned());
    });
    refused(&["check", copy.path()], 1, &["op NobodyKnowsThisOp", "needed by unused"]);
}
