//! `thalweg serve --check`: loads and warms up a model as the server would, and describes it.

use std::collections::BTreeMap;
use std::io::Write;
use std::sync::Arc;

use serde_json::json;
use thalweg_formats::saved_model::{Signature, TensorSpec};
use thalweg_serve::{Loader, ModelConfig, Servable};
use thalweg_tensor::err;

use crate::Failure;

/// Loads the latest version in a folder, or the SavedModel that the folder is.
pub(super) fn run(
    folder: &str,
    (name, is_json): (&Option<String>, bool),
    loader: &Loader,
    out: &mut dyn Write,
) -> Result<(), Failure> {
    let name = name.clone().unwrap_or_else(|| "default".to_owned());
    let config = ModelConfig::new(name, folder);
    let found = loader.find(&config)?;
    let Some((version, path)) = found.last_key_value() else {
        return Err(
            err!(NotFound, "{folder} is not a SavedModel and contains no version of one").into()
        );
    };
    let clock = loader.session().environment.clock.clone();
    let begin = clock.monotonic();
    let servable = loader.load(&config.name, *version, path)?;
    let took = clock.monotonic().saturating_sub(begin);
    if is_json {
        writeln!(out, "{}", as_json(&servable, path, took.as_secs_f64()))?;
    } else {
        report(&servable, path, took.as_secs_f64(), out)?;
    }
    Ok(())
}

fn as_json(servable: &Servable, path: &str, seconds: f64) -> serde_json::Value {
    let specs = |specs: &BTreeMap<String, TensorSpec>| -> serde_json::Value {
        let one = |(key, spec): (&String, &TensorSpec)| {
            // -1 stands for an unknown dimension, as in TensorShapeProto; null for an unknown rank.
            let dims = spec.shape.dims();
            let dims: Option<Vec<i64>> =
                dims.map(|dims| dims.iter().map(|dim| dim.map_or(-1, |dim| dim as i64)).collect());
            (key.clone(), json!({"dtype": spec.dtype.to_string(), "shape": dims}))
        };
        specs.iter().map(one).collect()
    };
    let signature = |(name, found): (&String, &Arc<Signature>)| {
        let (inputs, outputs) = (specs(&found.inputs), specs(&found.outputs));
        let found = json!({"method": found.method, "inputs": inputs, "outputs": outputs});
        (name.clone(), found)
    };
    let signatures: serde_json::Value =
        servable.saved().signatures().iter().map(signature).collect();
    json!({
        "model": servable.model(),
        "version": servable.version(),
        "path": path,
        "seconds": seconds,
        "memory_bytes": servable.memory_bytes(),
        "signatures": signatures,
    })
}

fn report(
    servable: &Servable,
    path: &str,
    seconds: f64,
    out: &mut dyn Write,
) -> std::io::Result<()> {
    let megabytes = servable.memory_bytes() as f64 / f64::from(1 << 20);
    let (model, version) = (servable.model(), servable.version());
    writeln!(out, "model '{model}' version {version}: {path}")?;
    writeln!(out, "loaded and warmed up in {seconds:.3} s, {megabytes:.1} MB")?;
    for (name, signature) in servable.saved().signatures() {
        writeln!(out, "signature '{name}' ({})", signature.method)?;
        for (kind, specs) in [("input", &signature.inputs), ("output", &signature.outputs)] {
            for (key, spec) in specs {
                writeln!(out, "  {kind} {key}: {} {}", spec.dtype, spec.shape)?;
            }
        }
    }
    Ok(())
}
