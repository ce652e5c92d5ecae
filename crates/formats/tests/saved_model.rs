//! SavedModels as folders: what is read from them, what is refused, what is written.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::path::PathBuf;
use std::sync::Arc;

use prost::Message;
use thalweg_formats::saved_model::{
    Export, MetaGraph, PREDICT_METHOD, SavedModelFile, Signature, TensorSpec, is_saved_model,
};
use thalweg_formats::{LocalStorage, Storage};
use thalweg_proto as pb;
use thalweg_tensor::{Bytes, Code, DType, Error, PartialShape};

const STORAGE: LocalStorage = LocalStorage { syncs: false };
const BYTES_MAX: usize = 1 << 20;

fn storage() -> Arc<dyn Storage> {
    Arc::new(STORAGE)
}

/// A folder of its own for one test, removed at its end.
struct Folder(PathBuf);

impl Folder {
    fn new(test: &str) -> Folder {
        let path =
            std::env::temp_dir().join(format!("thalweg-saved-{test}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&path);
        std::fs::create_dir_all(&path).unwrap();
        Folder(path)
    }

    fn path(&self, name: &str) -> String {
        self.0.join(name).to_str().unwrap().to_owned()
    }

    fn write(&self, name: &str, content: impl AsRef<[u8]>) {
        let path = self.0.join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, content).unwrap();
    }

    fn read(&self) -> Result<SavedModelFile, Error> {
        SavedModelFile::read(&STORAGE, &self.path(""), BYTES_MAX)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

const MODEL: &str = r#"
    saved_model_schema_version: 1
    meta_graphs {
      meta_info_def { tags: "serve" }
      graph_def {
        node { name: "x" op: "Placeholder" attr { key: "dtype" value { type: DT_FLOAT } } }
        node { name: "w" op: "VarHandleOp" attr { key: "dtype" value { type: DT_FLOAT } } }
        node { name: "file" op: "Const" attr { key: "_class" value { i: 1 } } attr { key: "value" value { i: 2 } } }
        node { name: "y" op: "Identity" input: "x" }
      }
      saver_def { filename_tensor_name: "save/Const:0" restore_op_name: "save/restore_all" version: V2 }
      collection_def { key: "legacy_init_op" value { node_list { value: "older" } } }
      collection_def { key: "saved_model_main_op" value { node_list { value: "init:0" } } }
      signature_def {
        key: "serving_default"
        value {
          inputs { key: "x" value { name: "x:0" dtype: DT_FLOAT tensor_shape { dim { size: -1 } dim { size: 2 } } } }
          outputs { key: "y" value { name: "y:0" dtype: DT_FLOAT_REF tensor_shape { unknown_rank: true } } }
          method_name: "tensorflow/serving/predict"
        }
      }
      signature_def { key: "__saved_model_train_op" value { outputs { key: "t" value { name: "t" } } } }
    }
    meta_graphs { meta_info_def { tags: "serve" tags: "gpu" } }"#;

fn model() -> pb::SavedModel {
    pb::text::decode("tensorflow.SavedModel", MODEL).unwrap()
}

fn with_asset(file: &str) -> pb::SavedModel {
    let mut model = model();
    let encoding = Some(pb::tensor_info::Encoding::Name("file:0".into()));
    let tensor_info = Some(pb::TensorInfo { encoding, ..Default::default() });
    let def = pb::AssetFileDef { tensor_info, filename: file.into() };
    model.meta_graphs[0].asset_file_def.push(def);
    model
}

fn serving(folder: &Folder, model: &pb::SavedModel) -> MetaGraph {
    folder.write("saved_model.pb", model.encode_to_vec());
    folder.read().unwrap().select(&["serve"]).unwrap()
}

fn refused<T>(result: Result<T, Error>, code: Code, words: &[&str]) {
    let error = result.err().expect("it is refused");
    assert_eq!(error.code(), code, "{error}");
    for word in words {
        assert!(error.message().contains(word), "{error} must say {word:?}");
    }
}

#[test]
fn text_is_read_as_binary_is() {
    let folder = Folder::new("text");
    folder.write("saved_model.pbtxt", MODEL);
    assert!(is_saved_model(&STORAGE, &folder.path("")));
    let text = folder.read().unwrap().select(&[]).unwrap();
    let binary = serving(&folder, &model());
    assert_eq!(text.def(), binary.def());
    let signatures = binary.signatures().unwrap();
    assert_eq!(signatures.keys().collect::<Vec<_>>(), ["serving_default"], "others are internal");
    let signature = &signatures["serving_default"];
    assert_eq!(signature.inputs["x"].shape.to_string(), "[?,2]");
    assert_eq!(signature.outputs["y"].dtype, DType::Float, "what a reference refers to");
    assert_eq!(binary.init_op().unwrap().as_deref(), Some("init"), "the newer of both");
}

#[test]
fn tags_are_a_set() {
    let folder = Folder::new("tags");
    folder.write("saved_model.pb", model().encode_to_vec());
    let select = |tags: &[&str]| folder.read().unwrap().select(tags);
    assert_eq!(select(&["gpu", "serve"]).unwrap().def().signature_def.len(), 0);
    assert!(select(&[]).unwrap().def().graph_def.is_some(), "without tags, that for serving");
    refused(select(&["gpu"]), Code::NotFound, &["[gpu]", "[serve], [gpu, serve]"]);
    let mut other = model();
    other.meta_graphs[0].meta_info_def = None;
    folder.write("saved_model.pb", other.encode_to_vec());
    refused(select(&[]), Code::InvalidArgument, &["choose one by its tags"]);
}

#[test]
fn what_is_no_model_is_told_from_what_is() {
    let folder = Folder::new("none");
    refused(folder.read(), Code::NotFound, &["neither saved_model.pb nor"]);
    let read = |name: &str| SavedModelFile::read(&STORAGE, &folder.path(name), BYTES_MAX);
    refused(read("absent"), Code::NotFound, &["there is no folder"]);
    folder.write("file", "");
    refused(read("file"), Code::InvalidArgument, &["this is a file"]);
    folder.write("9/saved_model.pb", "");
    folder.write("10/saved_model.pb", "");
    folder.write("11/other", "");
    refused(folder.read(), Code::NotFound, &["versions", "(10, 9)", "/10 for instance"]);
    folder.write("saved_model.cpb", "");
    refused(folder.read(), Code::Unimplemented, &["2 GB"]);
    folder.write("saved_model.pb", "");
    refused(folder.read(), Code::DataLoss, &["no MetaGraph"]);
    folder.write("saved_model.pb", vec![0; BYTES_MAX + 1]);
    refused(folder.read(), Code::ResourceExhausted, &["saved_model.pb"]);
}

/// Every truncation and every flipped bit is an error or a model, never a panic.
#[test]
fn damage_is_told() {
    let folder = Folder::new("damage");
    let whole = with_asset("vocab.txt").encode_to_vec();
    let mut errors = 0;
    let mut cases: Vec<Vec<u8>> = (0..whole.len()).map(|end| whole[..end].to_vec()).collect();
    for i in 0..whole.len() {
        for bit in [0, 7] {
            let mut case = whole.clone();
            case[i] ^= 1 << bit;
            cases.push(case);
        }
    }
    for case in cases {
        folder.write("saved_model.pb", case);
        let file = match folder.read() {
            Ok(file) => file,
            Err(e) => {
                assert!(e.message().contains("saved_model.pb"), "{e}");
                errors += 1;
                continue;
            }
        };
        for mut meta in file.into_meta_graphs() {
            let _ = (meta.signatures(), meta.init_op(), meta.restore(&storage()));
            let _ = meta.resolve_assets(&STORAGE);
            let _ = meta.functions();
        }
    }
    assert!(errors > 100, "{errors} of them cannot be read");
}

#[test]
fn variables_that_are_missing_are_missed() {
    let folder = Folder::new("variables");
    let mut meta = serving(&folder, &model());
    refused(
        meta.restore(&storage()),
        Code::NotFound,
        &["variables.index is missing", "1 variables"],
    );
    folder.write("variables/variables.index", "");
    let restore = meta.restore(&storage()).unwrap().unwrap();
    assert_eq!(restore.prefix, folder.path("variables/variables"));
    assert_eq!((&*restore.ops[0], &*restore.filename_tensor), ("save/restore_all", "save/Const:0"));
    let mut without = model();
    without.meta_graphs[0].saver_def = None;
    assert_eq!(serving(&folder, &without).restore(&storage()).unwrap(), None);
}

#[test]
fn assets_stay_in_their_folder() {
    let folder = Folder::new("assets");
    for name in ["../secret", "/etc/passwd", "a/../../b", "", ".", "./a", "s3://bucket/x"] {
        let mut meta = serving(&folder, &with_asset(name));
        refused(meta.resolve_assets(&STORAGE), Code::InvalidArgument, &["asset", "folder"]);
    }
    let mut meta = serving(&folder, &with_asset("words/vocab.txt"));
    refused(meta.resolve_assets(&STORAGE), Code::NotFound, &["assets/words/vocab.txt is missing"]);
    folder.write("assets/words/vocab.txt", "a\n");
    meta.resolve_assets(&STORAGE).unwrap();
    let graph = meta.take_graph().unwrap();
    let node = graph.node.iter().find(|n| n.name == "file").unwrap();
    let Some(pb::attr_value::Value::Tensor(value)) = &node.attr["value"].value else { panic!() };
    assert_eq!(value.string_val, [folder.path("assets/words/vocab.txt").into_bytes()]);
    assert!(node.attr.contains_key("_class") && node.op == "Const");
    let mut wrong = with_asset("vocab.txt");
    wrong.meta_graphs[0].graph_def.as_mut().unwrap().node[2].op = "StringJoin".into();
    folder.write("assets/vocab.txt", "");
    let mut meta = serving(&folder, &wrong);
    refused(meta.resolve_assets(&STORAGE), Code::InvalidArgument, &["'file' (StringJoin)"]);
}

#[test]
fn composite_inputs_are_their_parts() {
    let text = r#"
        inputs { key: "s" value { dtype: DT_FLOAT coo_sparse {
          values_tensor_name: "v:0" indices_tensor_name: "i:0" dense_shape_tensor_name: "d:0" } } }
        inputs { key: "r" value { composite_tensor {
          components { name: "a:0" dtype: DT_STRING } components { name: "b:0" dtype: DT_INT64 } } } }
        defaults { key: "s/values" value { dtype: DT_FLOAT tensor_shape { dim { size: 1 } } float_val: 2 } }"#;
    let def: pb::SignatureDef = pb::text::decode("tensorflow.SignatureDef", text).unwrap();
    let signature = Signature::from_proto(&def).unwrap();
    let inputs: Vec<String> = signature
        .inputs
        .iter()
        .map(|(name, s)| format!("{name} {} {} {}", s.tensor, s.dtype, s.shape))
        .collect();
    let expected = [
        "r/0 a:0 string <unknown>",
        "r/1 b:0 int64 <unknown>",
        "s/dense_shape d:0 int64 [?]",
        "s/indices i:0 int64 [?,?]",
        "s/values v:0 float [?]",
    ];
    assert_eq!(inputs, expected);
    assert_eq!(signature.defaults["s/values"].as_slice::<f32>().unwrap(), [2.0]);
    for wrong in ["inputs { key: 'x' value { } }", "inputs { key: 'x' value { name: 'y:0' } }"] {
        let def = pb::text::decode("tensorflow.SignatureDef", wrong).unwrap();
        refused(Signature::from_proto(&def), Code::InvalidArgument, &["input 'x'"]);
    }
}

#[test]
fn functions_of_objects_know_what_they_captured() {
    let text = r#"
        graph_def {
          node { name: "w_1" op: "VarHandleOp" }
          node { name: "b" op: "VarHandleOp" }
          node { name: "c" op: "Const" }
          node { name: "functions/taken" op: "NoOp" }
          node { name: "call" op: "StatefulPartitionedCall" input: "x" input: "w_1" input: "^c"
                 attr { key: "f" value { func { name: "wrapper" } } } }
          library {
            function { signature { name: "f" input_arg { name: "x" type: DT_FLOAT } input_arg { name: "w" type: DT_RESOURCE }
              input_arg { name: "b" type: DT_RESOURCE } input_arg { name: "c" type: DT_FLOAT } output_arg { name: "identity" type: DT_FLOAT } } }
            function { signature { name: "g" input_arg { name: "t" type: DT_RESOURCE } } }
            function { signature { name: "wrapper" } }
          }
        }
        object_graph_def {
          nodes { children { node_id: 1 local_name: "inner" } children { node_id: 6 local_name: "signatures" } user_object { } }
          nodes { children { node_id: 2 local_name: "f" } children { node_id: 0 local_name: "outer" } children { node_id: 7 local_name: "g" }
                  children { node_id: 8 local_name: "_hidden" } children { node_id: 99 local_name: "wrong" } user_object { } }
          nodes { function { concrete_functions: "f" } }
          nodes { variable { name: "w" } }
          nodes { variable { name: "b" } }
          nodes { constant { operation: "c" } }
          nodes { children { node_id: 2 local_name: "f" } }
          nodes { function { concrete_functions: "g" concrete_functions: "h" } }
          nodes { function { concrete_functions: "h" } }
          concrete_functions { key: "wrapper" value { bound_inputs: 3 } }
          concrete_functions { key: "g" value { bound_inputs: 42 } }
          concrete_functions { key: "f" value {
            bound_inputs: 3 bound_inputs: 4 bound_inputs: 5
            canonicalized_input_signature { tuple_value {
              values { tuple_value { values { tensor_spec_value { name: "image" dtype: DT_FLOAT shape { dim { size: -1 } } } } values { int64_value: 2 } } }
              values { dict_value { } } } }
            output_signature { dict_value { fields { key: "y" value { tensor_spec_value { dtype: DT_FLOAT } } } } } } }
        }"#;
    let meta: pb::MetaGraphDef = pb::text::decode("tensorflow.MetaGraphDef", text).unwrap();
    let folder = Folder::new("functions");
    let model = pb::SavedModel { saved_model_schema_version: 1, meta_graphs: vec![meta] };
    folder.write("saved_model.pb", model.encode_to_vec());
    let functions = folder.read().unwrap().select(&[]).unwrap().functions();
    let paths: Vec<&String> = functions.by_path().keys().collect();
    assert_eq!(paths, ["inner.f", "inner.g"]);
    assert_eq!(functions.find("inner.f").unwrap(), Some("f"));
    assert_eq!(functions.find("f").unwrap(), Some("f"));
    assert_eq!(functions.find("nothing").unwrap(), None);
    refused(functions.find("inner.g"), Code::InvalidArgument, &["name one of g (), h ()"]);
    let call = functions.call("f").unwrap();
    let signature = Signature::from_proto(&call.signature).unwrap();
    assert_eq!(signature.inputs["image"].shape.to_string(), "[?]");
    assert_eq!(signature.outputs["y"].tensor, "functions_/f/call:0");
    let argument = "functions_/f/argument_0";
    assert_eq!(call.nodes[1].input, [argument, "w_1", "b", "c"]);
    refused(functions.call("g"), Code::Unimplemented, &["captures object 42"]);
}

fn export() -> Export {
    let spec = |tensor: &str| TensorSpec {
        tensor: tensor.to_owned(),
        dtype: DType::Float,
        shape: PartialShape::unknown(),
    };
    let signature = Signature {
        inputs: [("x".to_owned(), spec("x:0"))].into(),
        outputs: [("y".to_owned(), spec("y:0"))].into(),
        method: PREDICT_METHOD.to_owned(),
        ..Default::default()
    };
    Export {
        graph: model().meta_graphs.swap_remove(0).graph_def.unwrap(),
        signatures: [("serving_default".to_owned(), signature)].into(),
        tags: ["serve".to_owned()].into(),
        ..Default::default()
    }
}

#[test]
fn what_is_written_is_read_back() {
    let folder = Folder::new("write");
    folder.write("vocab.txt", "a\nb\n");
    let export = Export {
        assets: vec![("file:0".into(), folder.path("vocab.txt"))],
        init_op: Some("init".into()),
        ..export()
    };
    let prepared = export.prepare().unwrap();
    let step = prepared.save_step().unwrap();
    let has = |tensor: &str| {
        let name = tensor.strip_suffix(":0").unwrap();
        prepared.graph().node.iter().any(|n| n.name == name)
    };
    assert!(has(&step.filename_tensor) && has(&step.saved_tensor));
    let target = folder.path("versions/1");
    std::fs::create_dir_all(folder.path("versions")).unwrap();
    let save = |prefix: &str| {
        assert!(!prefix.starts_with(&target), "it is written under another name");
        std::fs::write(format!("{prefix}.index"), "")
            .map_err(|e| Error::new(Code::Unknown, e.to_string()))
    };
    prepared.write(&STORAGE, &target, save).unwrap();
    assert_eq!(std::fs::read_dir(folder.path("versions")).unwrap().count(), 1);
    let mut meta =
        SavedModelFile::read(&STORAGE, &target, BYTES_MAX).unwrap().select(&["serve"]).unwrap();
    assert!(meta.restore(&storage()).unwrap().is_some());
    assert_eq!(meta.init_op().unwrap().as_deref(), Some("init"));
    meta.resolve_assets(&STORAGE).unwrap();
    assert_eq!(meta.signatures().unwrap()["serving_default"].inputs["x"].tensor, "x:0");
    assert_eq!(std::fs::read(format!("{target}/assets/vocab.txt")).unwrap(), b"a\nb\n");
    let name = &meta.take_graph().unwrap().node[1].attr["shared_name"];
    assert_eq!(name.value, Some(pb::attr_value::Value::S(Bytes::from_static(b"w"))));
    let again = prepared.write(&STORAGE, &target, |_| Ok(()));
    refused(again, Code::AlreadyExists, &["exists"]);
}

#[test]
fn a_model_that_cannot_be_written_leaves_nothing() {
    let folder = Folder::new("half");
    let failing = export().prepare().unwrap().write(&STORAGE, &folder.path("m"), |prefix| {
        std::fs::write(format!("{prefix}.data-00000-of-00001"), "half").unwrap();
        Err(Error::new(Code::ResourceExhausted, "the disk is full"))
    });
    refused(failing, Code::ResourceExhausted, &["the disk is full"]);
    let absent = Export { assets: vec![("file".into(), folder.path("absent"))], ..export() };
    let absent = absent.prepare().unwrap().write(&STORAGE, &folder.path("m"), |_| Ok(()));
    refused(absent, Code::NotFound, &["absent"]);
    assert_eq!(std::fs::read_dir(folder.path("")).unwrap().count(), 0);
    let nothing = Export { signatures: Default::default(), ..export() };
    refused(nothing.prepare(), Code::InvalidArgument, &["needs at least one signature"]);
    let dots = Export { assets: vec![("file".into(), "..".into())], ..export() };
    refused(dots.prepare(), Code::InvalidArgument, &["asset"]);
}
