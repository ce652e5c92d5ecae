//! Loads a SavedModel from its folder into a session.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use thalweg_formats::saved_model::{MetaGraph, SavedModelFile, Signature};
use thalweg_graph::{Graph, OpRegistry};
use thalweg_kernel::{Cancellation, Clock, KernelRegistry};
use thalweg_plan::StepSignature;
use thalweg_tensor::{Context, Result, Tensor, ensure};

use super::SavedModel;
use crate::{RunOptions, Session, SessionOptions};

/// Options of loading.
#[derive(Clone)]
pub struct LoadOptions {
    /// The session that it will run in. A file larger than the session's memory is refused.
    pub session: SessionOptions,
    /// Loading ends with `DeadlineExceeded` after this long.
    pub timeout: Option<Duration>,
    /// Cancelling this ends loading.
    pub cancellation: Option<Cancellation>,
}

impl Default for LoadOptions {
    fn default() -> Self {
        let mut session = SessionOptions::default();
        // Models say on which device they were trained; here there may be another.
        session.plan.allow_soft_placement = true;
        LoadOptions { session, timeout: None, cancellation: None }
    }
}

/// Op and kernel registries.
pub type Registries = (Arc<OpRegistry>, Arc<KernelRegistry>);

impl SavedModel {
    /// Loads the graph of `folder` that has exactly these tags; without tags, the only graph or that
    /// for serving.
    pub fn load(
        folder: &str,
        tags: &[&str],
        registries: Registries,
        options: LoadOptions,
    ) -> Result<SavedModel> {
        let session = &options.session;
        let storage = session.environment.storage.clone();
        let file = SavedModelFile::read(&*storage, folder, session.memory_limit_bytes)?;
        SavedModel::of(file.select(tags)?, registries, options)
    }

    /// Makes a graph's session, restores its variables and runs its initializer.
    pub fn of(
        mut meta: MetaGraph,
        registries: Registries,
        options: LoadOptions,
    ) -> Result<SavedModel> {
        let LoadOptions { session, timeout, cancellation } = options;
        let limits = Limits::new(session.environment.clock.clone(), timeout, cancellation);
        let storage = session.environment.storage.clone();
        let folder = meta.folder().to_owned();
        let folder = folder.as_str();
        limits.check()?;
        let (signatures, functions) = (meta.signatures()?, meta.functions());
        meta.resolve_assets(&*storage)?;
        let (restore, init_op) = (meta.restore(&storage)?, meta.init_op()?);
        let (ops, kernels) = registries;
        let graph = Graph::from_def(ops, meta.take_graph()?).context(|| folder)?;
        check_signatures(&graph, &signatures).context(|| folder)?;
        let session = Session::new(graph, kernels, session)?;
        if let Some(restore) = restore {
            let prefix = Tensor::scalar_string(restore.prefix.clone());
            let feeds = [(restore.filename_tensor.as_str(), prefix)];
            let ops: Vec<&str> = restore.ops.iter().map(String::as_str).collect();
            session
                .run_with(&limits.options()?, &feeds, &[], &ops)
                .context(|| format!("{}: its variables cannot be restored", restore.prefix))?;
        }
        if let Some(node) = init_op {
            session
                .run_with(&limits.options()?, &[], &[], &[&node])
                .context(|| format!("{folder}: its initializer '{node}' failed"))?;
        }
        Ok(SavedModel {
            folder: folder.to_owned(),
            session,
            signatures: signatures.into_iter().map(|(n, s)| (n, Arc::new(s))).collect(),
            functions,
            called: Mutex::default(),
        })
    }
}

/// Checks that the tensors of a signature exist and have its dtypes.
fn check_signatures(graph: &Graph, signatures: &BTreeMap<String, Signature>) -> Result<()> {
    for (name, signature) in signatures {
        for (key, spec) in signature.inputs.iter().chain(&signature.outputs) {
            let at = || format!("signature '{name}', '{key}'");
            let found = StepSignature::resolve(graph, &[], &[&spec.tensor], &[]).context(at)?;
            let dtype = graph.output(found.fetches[0]).dtype;
            ensure!(
                dtype == spec.dtype,
                InvalidArgument,
                "{}: '{}' is {dtype}, the signature says {}",
                at(),
                spec.tensor,
                spec.dtype
            );
        }
    }
    Ok(())
}

/// The deadline and cancellation of loading.
struct Limits {
    clock: Arc<dyn Clock>,
    end: Option<Duration>,
    cancellation: Option<Cancellation>,
}

impl Limits {
    fn new(
        clock: Arc<dyn Clock>,
        timeout: Option<Duration>,
        cancellation: Option<Cancellation>,
    ) -> Limits {
        let end = timeout.map(|t| clock.monotonic().saturating_add(t));
        Limits { clock, end, cancellation }
    }

    fn check(&self) -> Result<()> {
        self.options().map(|_| ())
    }

    /// Options of the next step, with the time that is left.
    fn options(&self) -> Result<RunOptions> {
        if let Some(cancellation) = &self.cancellation {
            cancellation.check()?;
        }
        let left = self.end.map(|end| end.saturating_sub(self.clock.monotonic()));
        ensure!(
            left.is_none_or(|left| !left.is_zero()),
            DeadlineExceeded,
            "loading the model took longer than it may"
        );
        Ok(RunOptions {
            timeout: left,
            cancellation: self.cancellation.clone(),
            ..Default::default()
        })
    }
}
