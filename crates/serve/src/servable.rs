//! A loaded version of a model: signatures as callable methods.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::RwLock;
use thalweg_formats::saved_model::{DEFAULT_SIGNATURE, Signature};
use thalweg_kernel::{Cancellation, Clock};
use thalweg_proto as pb;
use thalweg_runtime::on_pool;
use thalweg_runtime::saved_model::{check, described};
use thalweg_runtime::{RunOptions, SavedModel};
use thalweg_tensor::{Context, Result, Tensor, bail, ensure, err};
use tokio::sync::oneshot;

use crate::batching::{Batcher, Batching, Counts, Totals};
use crate::examples::{CLASSIFY_METHOD, REGRESS_METHOD};
use crate::memory_reservation::MemoryReservation;
use crate::metrics::{Api, Metrics};
use crate::sizes::{PlanLimiter, Sizes};

/// The maximum number of methods kept per version: callers choose the outputs, so the number must
/// be bounded.
const METHODS_MAX: usize = 256;

/// A loaded version of a model.
pub struct Servable {
    model: String,
    version: i64,
    saved: SavedModel,
    signature_defs: BTreeMap<String, pb::SignatureDef>,
    methods: RwLock<BTreeMap<MethodKey, Arc<Method>>>,
    reservation: MemoryReservation,
    metrics: Arc<Metrics>,
    clock: Arc<dyn Clock>,
    batching: Option<Batching>,
    batched: Arc<Totals>,
    plan_limiter: Arc<PlanLimiter>,
}

/// A signature name and the requested outputs, sorted.
type MethodKey = (String, Vec<String>);

/// A planned signature with the requested outputs.
pub struct Method {
    /// The name of the signature.
    pub name: String,
    /// Its inputs and outputs.
    pub signature: Arc<Signature>,
    /// The names of the outputs, sorted, in the order of the result.
    pub outputs: Vec<String>,
    sizes: Arc<Sizes>,
    batcher: Option<Arc<Batcher>>,
}

/// Cancels a step when its caller's future is dropped.
pub(crate) struct CancelOnDrop(Option<Cancellation>);

impl CancelOnDrop {
    /// Cancels this on drop unless it is disarmed before.
    pub(crate) fn new(cancellation: Cancellation) -> CancelOnDrop {
        CancelOnDrop(Some(cancellation))
    }

    /// The step has ended by itself.
    pub(crate) fn disarm(&mut self) {
        self.0 = None;
    }
}

impl Drop for CancelOnDrop {
    fn drop(&mut self) {
        if let Some(cancellation) = self.0.take() {
            cancellation.cancel(err!(Cancelled, "the client disconnected"));
        }
    }
}

impl Servable {
    /// A loaded model with the signatures of its file. Its runs are timed.
    pub(crate) fn new(
        model: String,
        version: i64,
        saved: SavedModel,
        signature_defs: BTreeMap<String, pb::SignatureDef>,
        reservation: MemoryReservation,
        watch: (Arc<Metrics>, Arc<dyn Clock>),
    ) -> Servable {
        let (metrics, clock) = watch;
        Servable {
            model,
            version,
            saved,
            signature_defs,
            methods: RwLock::default(),
            reservation,
            metrics,
            plan_limiter: PlanLimiter::new(clock.clone()),
            clock,
            batching: None,
            batched: Arc::default(),
        }
    }

    /// Sets whether and how requests are batched.
    #[must_use]
    pub fn with_batching(self, batching: Option<Batching>) -> Servable {
        Servable { batching, ..self }
    }

    /// The model's name.
    pub fn model(&self) -> &str {
        &self.model
    }

    /// The version number.
    pub fn version(&self) -> i64 {
        self.version
    }

    /// The loaded SavedModel.
    pub fn saved(&self) -> &SavedModel {
        &self.saved
    }

    /// All signatures of the file, including those for loaders.
    pub fn signature_defs(&self) -> &BTreeMap<String, pb::SignatureDef> {
        &self.signature_defs
    }

    /// Its memory in bytes: the memory of its session, at least the size of its files. Shared
    /// variables count for each version.
    pub fn memory_bytes(&self) -> usize {
        self.reservation.bytes().max(self.saved.session().memory_used_bytes())
    }

    /// Shares the memory of variables that are equal to those of `other`; returns whether there are
    /// any.
    pub(crate) fn share_with(&self, other: &Servable) -> bool {
        let shared = self.saved.session().share_variables(other.saved.session());
        shared.iter().for_each(|variable| self.reservation.share(&other.reservation, variable));
        !shared.is_empty()
    }

    /// The number of plans that its methods keep for specific input shapes.
    pub(crate) fn sized_plans(&self) -> usize {
        self.plan_limiter.plans()
    }

    /// Its batching statistics; `None` without batching.
    pub(crate) fn batched(&self) -> Option<Counts> {
        self.batching.as_ref().map(|_| self.batched.now())
    }

    /// The signature with this name; the default one if the name is empty.
    pub fn signature(&self, name: &str) -> Result<(&str, &Arc<Signature>)> {
        let name = if name.is_empty() { DEFAULT_SIGNATURE } else { name };
        let found = self.saved.signatures().get_key_value(name).ok_or_else(|| {
            let there: Vec<&str> = self.saved.signatures().keys().map(String::as_str).collect();
            err!(
                FailedPrecondition,
                "Serving signature key \"{name}\" not found. The model has {{{}}}",
                there.join(", ")
            )
        })?;
        Ok((found.0, found.1))
    }

    /// The method that fetches these outputs of a signature, all of them if none is named. A new
    /// method is planned on the pool.
    pub async fn method(
        self: &Arc<Self>,
        signature: &str,
        outputs: &[String],
    ) -> Result<Arc<Method>> {
        let (name, _) = self.signature(signature)?;
        let mut key = (name.to_owned(), outputs.to_vec());
        // The order in which a caller names outputs does not matter.
        key.1.sort_unstable();
        if let Some(method) = self.methods.read().get(&key) {
            return Ok(method.clone());
        }
        let this = self.clone();
        on_pool(move || this.plan(key)).await
    }

    fn plan(&self, key: MethodKey) -> Result<Arc<Method>> {
        let (name, signature) = self.signature(&key.0)?;
        let outputs = chosen_outputs(signature, &key.1)?;
        let feeds: Vec<&str> = signature.inputs.values().map(|s| s.tensor.as_str()).collect();
        let fetches: Vec<&str> =
            outputs.iter().map(|o| signature.outputs[o].tensor.as_str()).collect();
        let callable = self
            .saved
            .session()
            .make_callable(&feeds, &fetches, &[])
            .context(|| format!("signature '{name}'"))?;
        let batching = self.batching.clone().filter(|_| takes_any_rows(signature));
        let (clock, batched) = (&self.clock, &self.batched);
        let sizes = Sizes::new(callable, self.plan_limiter.clone());
        let batcher = batching.map(|batching| {
            Arc::new(Batcher::new(batching, sizes.clone(), clock.clone(), batched.clone()))
        });
        let method = Arc::new(Method {
            name: name.to_owned(),
            signature: signature.clone(),
            outputs,
            sizes,
            batcher,
        });
        let mut methods = self.methods.write();
        if methods.len() >= METHODS_MAX {
            // Methods that fetch all outputs are at most as many as the signatures.
            methods.retain(|(_, outputs), _| outputs.is_empty());
        }
        Ok(methods.entry(key).or_insert(method).clone())
    }

    /// Plans for the allowed batch sizes, with rows shaped like those of earlier requests.
    pub(crate) fn prepare_sizes(&self) {
        let Some(Batching::Set(parameters)) = &self.batching else { return };
        let methods: Vec<Arc<Method>> = self.methods.read().values().cloned().collect();
        for method in methods.iter().filter(|method| method.batcher.is_some()) {
            method.sizes.prepare(&parameters.allowed_batch_sizes);
        }
    }

    /// Runs a method, batched if configured. The step is cancelled if the future is dropped.
    pub async fn run(&self, method: &Method, feeds: Vec<Tensor>) -> Result<Vec<Tensor>> {
        let begin = self.clock.monotonic();
        let result = match method.batcher.as_ref().and_then(|batcher| batcher.run(&feeds)) {
            Some(batched) => batched.await,
            None => method.run_alone(feeds).await,
        };
        self.metrics.run(&self.model, method.api(), self.clock.monotonic().saturating_sub(begin));
        result
    }
}

impl Method {
    /// The API of its signature.
    fn api(&self) -> Api {
        match self.signature.method.as_str() {
            CLASSIFY_METHOD => Api::Classify,
            REGRESS_METHOD => Api::Regress,
            _ => Api::Predict,
        }
    }

    async fn run_alone(&self, feeds: Vec<Tensor>) -> Result<Vec<Tensor>> {
        let cancellation = Cancellation::default();
        let mut guard = CancelOnDrop::new(cancellation.clone());
        let options = RunOptions { cancellation: Some(cancellation), ..Default::default() };
        let (sender, receiver) = oneshot::channel();
        self.sizes.start_with(
            options,
            move || Ok(feeds),
            move |result| {
                // The receiver is dropped if the client has disconnected.
                let _ = sender.send(result.map(|(tensors, _)| tensors));
            },
        );
        let result = receiver.await.unwrap_or_else(|_| {
            Err(err!(Internal, "internal error: the step was dropped without a result"))
        });
        guard.disarm();
        result
    }

    /// Checks the inputs of a caller and puts them in order.
    pub fn feeds(&self, mut given: BTreeMap<String, Tensor>) -> Result<Vec<Tensor>> {
        let signature = &*self.signature;
        let mut feeds = Vec::with_capacity(signature.inputs.len());
        let (mut extra, mut missing) = (Vec::new(), Vec::new());
        let names: Vec<String> = given.keys().cloned().collect();
        for (name, spec) in &signature.inputs {
            match given.remove(name).or_else(|| signature.defaults.get(name).cloned()) {
                Some(value) => {
                    check(spec, &value).context(|| format!("input '{name}'"))?;
                    feeds.push(value);
                }
                None => missing.push(name.as_str()),
            }
        }
        extra.extend(given.keys().map(String::as_str));
        if !extra.is_empty() || !missing.is_empty() {
            bail!(
                InvalidArgument,
                "the inputs do not match signature '{}': it takes {{{}}} and {{{}}} came. Not known: \
                 {{{}}}. Missing: {{{}}}.",
                self.name,
                described(&signature.inputs),
                names.join(", "),
                extra.join(", "),
                missing.join(", ")
            );
        }
        Ok(feeds)
    }
}

/// Whether all inputs and outputs have an unknown first dimension, so that requests can be batched.
fn takes_any_rows(signature: &Signature) -> bool {
    let mut specs = signature.inputs.values().chain(signature.outputs.values());
    specs.all(|spec| spec.shape.dims().is_none_or(|dims| dims.first() == Some(&None)))
}

/// The outputs that `wanted`, which is sorted, names; all if it is empty.
fn chosen_outputs(signature: &Signature, wanted: &[String]) -> Result<Vec<String>> {
    for (i, name) in wanted.iter().enumerate() {
        ensure!(
            signature.outputs.contains_key(name),
            InvalidArgument,
            "output tensor alias not found in signature: {name}; the outputs are {{{}}}",
            described(&signature.outputs)
        );
        ensure!(
            i == 0 || wanted[i - 1] != *name,
            InvalidArgument,
            "duplicate output tensor alias: {name}"
        );
    }
    match wanted {
        [] => Ok(signature.outputs.keys().cloned().collect()),
        some => Ok(some.to_vec()),
    }
}
