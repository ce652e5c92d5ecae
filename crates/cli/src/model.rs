//! `thalweg run` with a SavedModel: runs a signature.

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::path::Path;

use thalweg_formats::saved_model::{
    DEFAULT_SIGNATURE, MetaGraph, SavedModelFile, Signature, TensorSpec, unknown_signature,
};
use thalweg_runtime::{LoadOptions, SavedModel};
use thalweg_tensor::{Context, Result, ensure, err};

use crate::run::{Args, session_options, split_all};
use crate::step::{AnySession, Step};
use crate::{Failure, Registry, value};

/// The maximum number of functions in a listing.
const FUNCTIONS_SHOWN: usize = 20;

/// Runs a SavedModel.
pub(crate) fn run(args: &Args, registry: &Registry, out: &mut dyn Write) -> Result<(), Failure> {
    let inputs = split_all(&args.feeds, "feed", "VALUE")?;
    let saves = split_all(&args.saves, "save", "FILE")?;
    let mut options = LoadOptions { timeout: args.timeout, ..Default::default() };
    options.session = session_options(args, options.session)?;
    let meta = open(args, &options)?;
    // After `open`, which fails if the folder is not a SavedModel.
    refuse_graph_options(args)?;
    let name = wanted(args, &meta, inputs.is_empty(), out)?;
    let model = SavedModel::of(meta, (registry.ops.clone(), registry.kernels.clone()), options)?;
    let signature = model.signature(&name)?;
    let is_lacking = |(key, _): &(&String, &TensorSpec)| !signature.defaults.contains_key(*key);
    if inputs.is_empty() && signature.inputs.iter().any(|input| is_lacking(&input)) {
        return Err(list_one(&name, &signature, out)?);
    }
    let step = step(args, &signature, &inputs, &saves).context(|| format!("signature '{name}'"))?;
    step.run_and_write(args, &AnySession::Local(model.session()), out)
}

fn refuse_graph_options(args: &Args) -> Result<(), Failure> {
    if args.targets.is_empty() && args.inits.is_empty() {
        return Ok(());
    }
    let sentence = "a SavedModel is run by signature: --feed INPUT=VALUE and --fetch OUTPUT; \
                    --target and --init are for graphs only";
    Err(Failure::Usage(sentence.to_owned()))
}

fn open(args: &Args, options: &LoadOptions) -> Result<MetaGraph> {
    let folder = args.graph.to_str().ok_or_else(|| {
        err!(InvalidArgument, "{}: the path of the folder must be UTF-8", args.graph.display())
    })?;
    let session = &options.session;
    let storage = &*session.environment.storage;
    let file = SavedModelFile::read(storage, folder, session.memory_limit_bytes)?;
    file.select(&args.tags.iter().map(String::as_str).collect::<Vec<_>>())
}

/// The requested signature. Errors are reported before variables are read.
fn wanted(
    args: &Args,
    meta: &MetaGraph,
    lists: bool,
    out: &mut dyn Write,
) -> Result<String, Failure> {
    let signatures = meta.signatures()?;
    let name = match (&args.signature, signatures.len()) {
        (Some(name), _) => name.clone(),
        (None, _) if signatures.contains_key(DEFAULT_SIGNATURE) => DEFAULT_SIGNATURE.to_owned(),
        (None, 1) => signatures.keys().next().cloned().unwrap_or_default(),
        (None, _) => {
            list(meta, &signatures, out)?;
            return Err(Failure::Usage(
                "the model has several signatures; choose one: --signature NAME".to_owned(),
            ));
        }
    };
    let Some(signature) = signatures.get(&name) else {
        let functions = meta.functions();
        return match functions.find(&name)? {
            Some(_) => Ok(name),
            None => {
                Err(unknown_signature(meta.folder(), &name, signatures.keys(), &functions).into())
            }
        };
    };
    if lists && signature.inputs.keys().any(|key| !signature.defaults.contains_key(key)) {
        if args.signature.is_none() {
            list(meta, &signatures, out)?;
            return Err(Failure::Usage(how_to(&name, signature)));
        }
        return Err(list_one(&name, signature, out)?);
    }
    Ok(name)
}

fn step<'a>(
    args: &'a Args,
    signature: &'a Signature,
    inputs: &[(&'a str, &'a str)],
    saves: &[(&'a str, &'a str)],
) -> Result<Step<'a>> {
    let mut step = Step::new(args)?;
    for name in &args.fetches {
        let (name, spec) = find(&signature.outputs, name).context(|| "--fetch")?;
        step.show(name, &spec.tensor);
    }
    if args.fetches.is_empty() && saves.is_empty() {
        signature.outputs.iter().for_each(|(name, spec)| step.show(name, &spec.tensor));
    }
    for &(name, path) in saves {
        let (name, spec) = find(&signature.outputs, name).context(|| "--save")?;
        step.save(name, &spec.tensor, Path::new(path))?;
    }
    let mut given = BTreeMap::new();
    for &(name, text) in inputs {
        let at = || format!("--feed {name}");
        let (key, spec) = find(&signature.inputs, name).context(at)?;
        let tensor = value::tensor(text, spec.dtype, &spec.shape).context(at)?;
        ensure!(
            given.insert(key, tensor).is_none(),
            InvalidArgument,
            "--feed {name} is given twice"
        );
    }
    for (name, spec) in &signature.inputs {
        let value = given.remove(name.as_str()).or_else(|| signature.defaults.get(name).cloned());
        let value = value.ok_or_else(|| {
            err!(
                InvalidArgument,
                "the input '{name}' is missing: --feed {name}=VALUE, {} {}",
                spec.dtype,
                spec.shape
            )
        })?;
        step.feeds.push((&spec.tensor, value));
    }
    Ok(step)
}

fn find<'a>(
    specs: &'a BTreeMap<String, TensorSpec>,
    name: &str,
) -> Result<(&'a str, &'a TensorSpec)> {
    specs.get_key_value(name).map(|(name, spec)| (name.as_str(), spec)).ok_or_else(|| {
        let there: Vec<String> = specs.keys().map(|k| format!("'{k}'")).collect();
        err!(NotFound, "the signature has no '{name}'; it has {}", there.join(", "))
    })
}

/// Lists the signatures of a model.
fn list(
    meta: &MetaGraph,
    signatures: &BTreeMap<String, Signature>,
    out: &mut dyn Write,
) -> io::Result<()> {
    let tags = meta.def().meta_info_def.as_ref().map(|i| i.tags.join(", ")).unwrap_or_default();
    writeln!(out, "tags: {tags}")?;
    for (name, signature) in signatures {
        write_signature(name, signature, out)?;
    }
    let functions = meta.functions();
    let names: Vec<&str> = functions.by_path().keys().map(String::as_str).collect();
    if !names.is_empty() {
        let more = match names.len().saturating_sub(FUNCTIONS_SHOWN) {
            0 => String::new(),
            n => format!(" and {n} more"),
        };
        let shown = names[..names.len().min(FUNCTIONS_SHOWN)].join(", ");
        writeln!(out, "functions, for --signature too: {shown}{more}")?;
    }
    Ok(())
}

/// Lists the inputs and outputs of one signature; returns the usage error.
fn list_one(name: &str, signature: &Signature, out: &mut dyn Write) -> io::Result<Failure> {
    write_signature(name, signature, out)?;
    Ok(Failure::Usage(how_to(name, signature)))
}

fn how_to(name: &str, signature: &Signature) -> String {
    let lacking = signature.inputs.keys().filter(|key| !signature.defaults.contains_key(*key));
    let inputs: Vec<String> = lacking.map(|key| format!("--feed {key}=VALUE")).collect();
    format!("signature '{name}' needs values for its inputs: {}", inputs.join(" "))
}

fn write_signature(name: &str, signature: &Signature, out: &mut dyn Write) -> io::Result<()> {
    writeln!(out, "signature {name}:")?;
    let all = signature.inputs.keys().chain(signature.outputs.keys());
    let width = all.map(String::len).max().unwrap_or(0);
    for (what, specs) in [("input ", &signature.inputs), ("output", &signature.outputs)] {
        for (key, spec) in specs {
            let default = match signature.defaults.contains_key(key) && what == "input " {
                true => " (optional: it has a default)",
                false => "",
            };
            writeln!(out, "  {what}  {key:width$}  {} {}{default}", spec.dtype, spec.shape)?;
        }
    }
    Ok(())
}
