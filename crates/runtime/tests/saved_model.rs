//! SavedModels written from a session and loaded into others.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use thalweg_graph::{OpRegistry, Scope};
use thalweg_kernel::{Cancellation, KernelRegistry};
use thalweg_runtime::{
    LoadOptions, RunOptions, SavedModel, SavedModelBuilder, Session, SessionOptions,
};
use thalweg_tensor::{Code, DType, Error, PartialShape, Shape, Tensor};

fn registries() -> (Arc<OpRegistry>, Arc<KernelRegistry>) {
    let families = thalweg_ops::FAMILIES;
    (thalweg_ops::op_registry(families).unwrap(), thalweg_ops::kernel_registry(families))
}

/// A folder of its own for one test, removed at its end.
struct Folder(PathBuf);

impl Folder {
    fn new(test: &str) -> Folder {
        let path =
            std::env::temp_dir().join(format!("thalweg-model-{test}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&path);
        std::fs::create_dir_all(&path).unwrap();
        Folder(path)
    }

    fn path(&self, name: &str) -> String {
        self.0.join(name).to_str().unwrap().to_owned()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// `y = factor * x`, exported to `folder` with the signatures `serving_default` and `twice`.
fn export_factor(folder: &str, factor: f32) {
    let mut scope = Scope::new(registries().0);
    let x = scope.placeholder(DType::Float, &PartialShape::new([None, Some(2)])).unwrap();
    let factor = scope.constant(&Tensor::scalar(factor)).unwrap();
    let y = scope.add("Mul", &[x, factor]).unwrap();
    let twice = scope.add("AddV2", &[y, y]).unwrap();
    let (x, y, twice) = (scope.name_of(x), scope.name_of(y), scope.name_of(twice));
    let session =
        Session::new(scope.to_graph(), registries().1, SessionOptions::default()).unwrap();
    SavedModelBuilder::new(&session)
        .signature("serving_default", &[("x", &x)], &[("y", &y), ("twice", &twice)])
        .unwrap()
        .signature("twice", &[("x", &x)], &[("out", &twice)])
        .unwrap()
        .save(folder)
        .unwrap();
}

fn load(folder: &str) -> Result<SavedModel, Error> {
    SavedModel::load(folder, &["serve"], registries(), LoadOptions::default())
}

fn row(values: [f32; 2]) -> Tensor {
    Tensor::from_slice(Shape::new(&[1, 2]).unwrap(), &values).unwrap()
}

fn refused<T>(result: Result<T, Error>, code: Code, words: &[&str]) {
    let error = result.err().expect("it is refused");
    assert_eq!(error.code(), code, "{error}");
    for word in words {
        assert!(error.message().contains(word), "{error} must say {word:?}");
    }
}

#[test]
fn versions_run_side_by_side_from_many_threads() {
    let folder = Folder::new("versions");
    for (version, factor) in [("1", 2.0), ("2", 3.0)] {
        export_factor(&folder.path(version), factor);
    }
    let models = [load(&folder.path("1")).unwrap(), load(&folder.path("2")).unwrap()];
    std::thread::scope(|threads| {
        for i in 0..4 {
            let models = &models;
            threads.spawn(move || {
                for (model, factor) in models.iter().zip([2.0, 3.0]) {
                    let given = row([i as f32, 1.0]);
                    let outputs = model.run("serving_default", &[("x", given)]).unwrap();
                    let y = outputs["y"].as_slice::<f32>().unwrap();
                    assert_eq!(y, [factor * i as f32, factor]);
                    assert_eq!(outputs["twice"].as_slice::<f32>().unwrap()[1], 2.0 * factor);
                }
            });
        }
    });
    let step = models[0].step("serving_default", &[("x", row([1.0, 1.0]))], &["twice"]).unwrap();
    let (tensors, _) = models[0].run_step(&RunOptions::default(), &step).unwrap();
    assert_eq!((tensors.len(), tensors[0].as_slice::<f32>().unwrap()), (1, &[4.0, 4.0][..]));
}

#[test]
fn errors_list_the_known_signatures_and_inputs() {
    let folder = Folder::new("mistakes");
    export_factor(&folder.path("m"), 1.0);
    let model = load(&folder.path("m")).unwrap();
    let run = |signature: &str, inputs: &[(&str, Tensor)]| model.run(signature, inputs);
    let x = || ("x", row([1.0, 2.0]));
    refused(run("other", &[x()]), Code::NotFound, &["'other'", "'serving_default', 'twice'"]);
    refused(run("twice", &[]), Code::InvalidArgument, &["'x' is missing", "are x (float [?,2])"]);
    refused(run("twice", &[("z", row([0.0; 2]))]), Code::InvalidArgument, &["no input 'z'"]);
    refused(run("twice", &[x(), x()]), Code::InvalidArgument, &["given twice"]);
    let scalar = ("x", Tensor::scalar(1.0f32));
    refused(run("twice", &[scalar]), Code::InvalidArgument, &["shape [?,2] was expected"]);
    let double = ("x", Tensor::scalar(1.0f64));
    refused(run("twice", &[double]), Code::InvalidArgument, &["float was expected, double"]);
    let step = model.step("twice", &[x()], &["y"]);
    refused(step, Code::InvalidArgument, &["no output 'y'", "are out (float [?,2])"]);
    let tags = SavedModel::load(&folder.path("m"), &["gpu"], registries(), Default::default());
    refused(tags, Code::NotFound, &["[gpu]", "[serve]"]);
    // A signature that names what the graph does not have is found when the model is loaded.
    let file = folder.path("m/saved_model.pb");
    let bytes = std::fs::read(&file).unwrap();
    let mut model: thalweg_proto::SavedModel = prost::Message::decode(&bytes[..]).unwrap();
    let signature = model.meta_graphs[0].signature_def.get_mut("twice").unwrap();
    signature.inputs.get_mut("x").unwrap().dtype = DType::Int32.to_proto();
    std::fs::write(&file, prost::Message::encode_to_vec(&model)).unwrap();
    let wrong = load(&folder.path("m"));
    refused(wrong, Code::InvalidArgument, &["signature 'twice', 'x'", "is float", "says int32"]);
}

#[test]
fn versions_are_numbered() {
    let folder = Folder::new("numbers");
    let mut scope = Scope::new(registries().0);
    let x = scope.placeholder(DType::Float, &PartialShape::unknown()).unwrap();
    let x = scope.name_of(x);
    let session =
        Session::new(scope.to_graph(), registries().1, SessionOptions::default()).unwrap();
    let builder = || SavedModelBuilder::new(&session).signature("s", &[("x", &x)], &[("x", &x)]);
    let base = folder.path("model");
    assert_eq!(builder().unwrap().save_version(&base).unwrap(), 1);
    std::fs::create_dir(folder.path("model/7")).unwrap();
    assert_eq!(builder().unwrap().save_version(&base).unwrap(), 8);
    refused(builder().unwrap().save(&folder.path("model/8")), Code::AlreadyExists, &["new folder"]);
    let wrong = SavedModelBuilder::new(&session).signature("s", &[("x", "absent")], &[]);
    refused(wrong, Code::NotFound, &["signature 's'", "absent"]);
    let wrong = builder().unwrap().init_op("absent").save(&folder.path("model/9"));
    refused(wrong, Code::NotFound, &["absent"]);
    refused(SavedModelBuilder::new(&session).save(&base), Code::InvalidArgument, &["signature"]);
}

#[test]
fn loading_can_be_stopped() {
    let folder = Folder::new("stopped");
    export_factor(&folder.path("m"), 1.0);
    let load = |options| SavedModel::load(&folder.path("m"), &[], registries(), options);
    let cancellation = Cancellation::default();
    cancellation.cancel(Error::new(Code::Cancelled, "not needed any more"));
    let cancelled = LoadOptions { cancellation: Some(cancellation), ..Default::default() };
    refused(load(cancelled), Code::Cancelled, &["not needed any more"]);
    let late = LoadOptions { timeout: Some(Duration::ZERO), ..Default::default() };
    refused(load(late), Code::DeadlineExceeded, &["loading"]);
    let mut small = LoadOptions::default();
    small.session.memory_limit_bytes = 100;
    refused(load(small), Code::ResourceExhausted, &["saved_model.pb"]);
}

/// `y = x * w + b` with a resource and a reference variable, and ops that set and change them.
fn with_variables() -> Session {
    let mut s = Scope::new(registries().0);
    let vector = PartialShape::new([Some(2)]);
    let input = |s: &mut Scope, name: &str| {
        s.op("Placeholder").name(name).attr("dtype", DType::Float).attr("shape", &vector).build()
    };
    let (x, value) = (input(&mut s, "x").unwrap(), input(&mut s, "value").unwrap());
    let declared = s.op("VarHandleOp").name("save/w").attr("dtype", DType::Float);
    let w = declared.attr("shape", &vector).build().unwrap();
    let declared = s.op("VariableV2").name("b").attr("dtype", DType::Float);
    let b = declared.attr("shape", &vector).build().unwrap();
    s.op("AssignVariableOp").name("set_w").inputs(&[w, value]).build_node().unwrap();
    s.op("Assign").name("set_b").inputs(&[b, value]).build_node().unwrap();
    let read = s.op("ReadVariableOp").input(w).attr("dtype", DType::Float).build().unwrap();
    let product = s.add("Mul", &[x, read]).unwrap();
    s.op("AddV2").name("y").inputs(&[product, b]).build().unwrap();
    Session::new(s.to_graph(), registries().1, SessionOptions::default()).unwrap()
}

fn vector(values: [f32; 2]) -> Tensor {
    Tensor::vector(&values).unwrap()
}

fn save(session: &Session, folder: &str) -> Result<(), Error> {
    SavedModelBuilder::new(session).signature("s", &[("x", "x")], &[("y", "y")])?.save(folder)
}

#[test]
fn variables_come_along_and_versions_keep_their_own() {
    let folder = Folder::new("state");
    let session = with_variables();
    let uninitialized = save(&session, &folder.path("0"));
    refused(uninitialized, Code::FailedPrecondition, &["variables cannot be saved"]);
    assert_eq!(std::fs::read_dir(folder.path("")).unwrap().count(), 0, "nothing is left of it");
    for (version, value) in [("1", [2.0, 3.0]), ("2", [5.0, 7.0])] {
        session.run(&[("value", vector(value))], &[], &["set_w", "set_b"]).unwrap();
        save(&session, &folder.path(version)).unwrap();
    }
    // Later updates of the session do not change the saved model.
    session.run(&[("value", vector([0.0, 0.0]))], &[], &["set_w"]).unwrap();
    let models = [load(&folder.path("1")).unwrap(), load(&folder.path("2")).unwrap()];
    for (model, expected) in models.iter().zip([[22.0, 33.0], [55.0, 77.0]]) {
        let outputs = model.run("s", &[("x", vector([10.0, 10.0]))]).unwrap();
        assert_eq!(outputs["y"].as_slice::<f32>().unwrap(), expected);
    }
    // One that was loaded is written again, with a saver beside that it came with.
    let again = models[1].session();
    again.run(&[("value", vector([1.0, 1.0]))], &[], &["set_b"]).unwrap();
    save(again, &folder.path("3")).unwrap();
    let outputs = load(&folder.path("3")).unwrap().run("s", &[("x", vector([1.0, 1.0]))]).unwrap();
    assert_eq!(outputs["y"].as_slice::<f32>().unwrap(), [6.0, 8.0]);
}

#[test]
fn loading_a_model_reports_damaged_variables() {
    let folder = Folder::new("damaged");
    let session = with_variables();
    session.run(&[("value", vector([1.0, 2.0]))], &[], &["set_w", "set_b"]).unwrap();
    save(&session, &folder.path("m")).unwrap();
    let data = folder.path("m/variables/variables.data-00000-of-00001");
    let whole = std::fs::read(&data).unwrap();
    std::fs::write(&data, &whole[..1]).unwrap();
    let error = load(&folder.path("m")).err().unwrap();
    assert!(error.message().contains("variables cannot be restored"), "{error}");
    std::fs::write(&data, whole).unwrap();
    load(&folder.path("m")).unwrap();
}
