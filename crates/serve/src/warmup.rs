//! Warm-up: requests that run before a version is available, so that no client waits for planning
//! and memory allocation.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use prost::Message;
use thalweg_formats::record::{ReadOptions, RecordReader};
use thalweg_formats::saved_model::{Signature, TensorSpec};
use thalweg_formats::storage::{Storage, join};
use thalweg_proto::tensorflow::serving::{self as pb, prediction_log::LogType};
use thalweg_tensor::{Budget, Context, Result, Shape, Tensor, ensure, err};

use crate::examples;
use crate::inference::{predict, session_run, spec_signature, tensors};
use crate::servable::Servable;

/// The file of recorded warm-up requests in a SavedModel.
const FILE: &str = "assets.extra/tf_serving_warmup_requests";
/// The maximum number of recorded requests, as in TensorFlow Serving.
const RECORDS_MAX: usize = 1000;
/// The maximum size of a recorded request.
const RECORD_BYTES_MAX: usize = 256 << 20;
/// The maximum number of elements of a generated input.
const ELEMENTS_MAX: usize = 1 << 24;

/// The warm-up of a version.
#[derive(Clone, Debug)]
pub struct WarmUp {
    /// Whether to run the recorded requests of the model.
    pub recorded: bool,
    /// How often each recorded request is run.
    pub iterations: u32,
    /// Whether to run each signature once on zeros if the model has no recorded requests.
    pub generated: bool,
    /// The deadline of each run.
    pub timeout: Duration,
}

impl Default for WarmUp {
    fn default() -> Self {
        let timeout = Duration::from_secs(60);
        WarmUp { recorded: true, iterations: 1, generated: true, timeout }
    }
}

/// Warms up a version. Recorded requests must succeed; generated ones may fail.
pub fn warm(servable: &Arc<Servable>, options: &WarmUp, storage: &dyn Storage) -> Result<()> {
    let path = join(servable.saved().folder(), FILE);
    // A runtime of its own: loading runs on a blocking thread.
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .build()
        .map_err(|e| err!(ResourceExhausted, "cannot start the warm-up runtime: {e}"))?;
    if options.recorded && storage.exists(&path)? {
        runtime.block_on(replay(servable, options, storage, &path))?;
    } else if options.generated {
        runtime.block_on(generated(servable, options));
    }
    servable.prepare_sizes();
    Ok(())
}

async fn replay(
    servable: &Arc<Servable>,
    options: &WarmUp,
    storage: &dyn Storage,
    path: &str,
) -> Result<()> {
    let read = ReadOptions { record_bytes_max: RECORD_BYTES_MAX, ..Default::default() };
    let mut reader = RecordReader::open(storage, path, read)?;
    let mut records = 0;
    while let Some(record) = reader.next_record()? {
        records += 1;
        let at = || format!("warm-up request {records} of {path}");
        ensure!(
            records <= RECORDS_MAX,
            InvalidArgument,
            "{path} has more than {RECORDS_MAX} warm-up requests"
        );
        let log = pb::PredictionLog::decode(record)
            .map_err(|e| err!(DataLoss, "the record is not a PredictionLog: {e}"))
            .context(at)?;
        for _ in 0..options.iterations.max(1) {
            let run = one(servable, log.log_type.as_ref());
            let ended = tokio::time::timeout(options.timeout, run).await;
            let late =
                |_| err!(DeadlineExceeded, "the request took longer than {:?}", options.timeout);
            ended.map_err(late).flatten().context(at)?;
        }
    }
    Ok(())
}

async fn one(servable: &Arc<Servable>, log: Option<&LogType>) -> Result<()> {
    let budget = Budget::new(usize::MAX);
    let missing = || err!(InvalidArgument, "the PredictionLog has no request");
    match log {
        Some(LogType::PredictLog(log)) => {
            let request = log.request.clone().ok_or_else(missing)?;
            let inputs = tensors(request.inputs, &budget)?;
            let signature = spec_signature(request.model_spec.as_ref());
            predict(servable, signature, inputs, &request.output_filter).await.map(|_| ())
        }
        Some(LogType::ClassifyLog(log)) => {
            let request = log.request.as_ref().ok_or_else(missing)?;
            let signature = spec_signature(request.model_spec.as_ref());
            examples::classify(servable, signature, request.input.as_ref()).await.map(|_| ())
        }
        Some(LogType::RegressLog(log)) => {
            let request = log.request.as_ref().ok_or_else(missing)?;
            let signature = spec_signature(request.model_spec.as_ref());
            examples::regress(servable, signature, request.input.as_ref()).await.map(|_| ())
        }
        Some(LogType::MultiInferenceLog(log)) => {
            let request = log.request.as_ref().ok_or_else(missing)?;
            examples::multi_inference(servable, request).await.map(|_| ())
        }
        Some(LogType::SessionRunLog(log)) => {
            let request = log.request.as_ref().ok_or_else(missing)?;
            session_run(servable, request, &budget).await.map(|_| ())
        }
        Some(LogType::PredictStreamedLog(_)) | None => Err(err!(
            Unimplemented,
            "the PredictionLog holds a streaming request, which is not supported"
        )),
    }
}

/// Runs each signature on zeros. Failures are ignored, since zeros may be invalid inputs; the plan
/// is made either way.
async fn generated(servable: &Arc<Servable>, options: &WarmUp) {
    for (name, signature) in servable.saved().signatures() {
        let Some(inputs) = zeros(signature) else { continue };
        let run = predict(servable, name, inputs, &[]);
        let _ = tokio::time::timeout(options.timeout, run).await;
    }
}

/// A batch of one example of zeros for each input; `None` if it would be too large, or if inputs
/// are not plain tensors.
fn zeros(signature: &Signature) -> Option<BTreeMap<String, Tensor>> {
    let one = |spec: &TensorSpec| {
        let dims: Vec<usize> = spec.shape.dims()?.iter().map(|d| d.unwrap_or(1)).collect();
        let elements = dims.iter().try_fold(1usize, |n, &d| n.checked_mul(d))?;
        if elements > ELEMENTS_MAX {
            return None;
        }
        Tensor::zeros(spec.dtype, Shape::new(&dims).ok()?).ok()
    };
    signature.inputs.iter().map(|(name, spec)| Some((name.clone(), one(spec)?))).collect()
}
