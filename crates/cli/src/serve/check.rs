//! `thalweg serve --check`: loads and warms a model as the server would, and says what it found.

use std::io::Write;

use thalweg_serve::{Loader, ModelConfig, Servable};
use thalweg_tensor::err;

use crate::Failure;

/// Loads the newest version in a folder, or the model that the folder is.
pub(super) fn run(
    folder: &str,
    name: &Option<String>,
    loader: &Loader,
    out: &mut dyn Write,
) -> Result<(), Failure> {
    let name = name.clone().unwrap_or_else(|| "default".to_owned());
    let config = ModelConfig::new(name, folder);
    let found = loader.find(&config)?;
    let Some((version, path)) = found.last_key_value() else {
        return Err(err!(NotFound, "{folder}: no SavedModel lies in it, nor is it one").into());
    };
    let clock = loader.session().environment.clock.clone();
    let begin = clock.monotonic();
    let servable = loader.load(&config.name, *version, path)?;
    let took = clock.monotonic().saturating_sub(begin);
    report(&servable, path, took.as_secs_f64(), out)?;
    Ok(())
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
    writeln!(out, "loaded and warmed in {seconds:.3} s, {megabytes:.1} MB")?;
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
