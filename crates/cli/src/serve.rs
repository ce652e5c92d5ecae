//! `thalweg serve`: SavedModels behind TensorFlow Serving's interfaces, with its flags.

mod check;
mod flags;

use std::io::Write;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use thalweg_formats::{LocalStorage, Storage};
use thalweg_proto::tensorflow::serving as pb;
use thalweg_runtime::{LoadOptions, Pool, memory_limit_bytes};
use thalweg_serve::loader::{Loader, LoaderOptions};
use thalweg_serve::store::{Store, StoreOptions};
use thalweg_serve::versions::{Attempts, Transition};
use thalweg_serve::warmup::WarmUp;
use thalweg_serve::{
    Batching, BatchingParameters, ConnectionTimeouts, Engine, ModelConfig, ReadOnly, Server,
    ServerOptions, config,
};
use thalweg_storage::{AllowedUrls, ByUrl};
use thalweg_tensor::{Context, Result, bail, ensure, err};
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;
use tracing::warn;

pub use flags::Args;
use flags::ModelFlags;

use crate::orphans::{self, Children};
use crate::server::{IO_THREADS, join, parent_gone, parent_pipe};
use crate::{Failure, Registry, descriptors};

const MEGABYTE: usize = 1 << 20;

/// Serves until a signal arrives, or checks one model.
pub fn run(args: &Args, registry: &Registry, out: &mut dyn Write) -> Result<(), Failure> {
    if let Some(threads) = args.limits.threads {
        Pool::start_global(threads as usize);
    }
    let usage = |e: thalweg_tensor::Error| Failure::Usage(e.to_string());
    let loader = Arc::new(loader(args, registry).map_err(usage)?);
    if let Some(model) = &args.check {
        return check::run(model, (&args.models.model_name, args.json), &loader, out);
    }
    let models = models(&args.models, &loader).map_err(usage)?;
    let options = server_options(args, &loader).map_err(usage)?;
    descriptors::raise_limit();
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(IO_THREADS)
        .thread_name("thalweg-io")
        .enable_all()
        .build()
        .map_err(Failure::Output)?;
    runtime.block_on(serve(args, models, loader, options, out))
}

fn loader(args: &Args, registry: &Registry) -> Result<Loader> {
    let files = ByUrl::new(Arc::new(LocalStorage::default()), AllowedUrls::All);
    let memory =
        args.limits.memory_limit.map_or_else(memory_limit_bytes, |mb| mb.saturating_mul(MEGABYTE));
    let mut session = LoadOptions::default().session;
    session.environment.storage = Arc::new(ReadOnly(Arc::new(files)));
    session.memory_limit_bytes = memory;
    session = args.accelerators.apply(None, session)?;
    let warm_up = WarmUp {
        recorded: args.loading.enable_model_warmup,
        iterations: args.loading.num_request_iterations_for_warmup.unwrap_or(1),
        generated: args.loading.enable_model_warmup && args.loading.generated_warmup,
        ..Default::default()
    };
    let tags = args.models.saved_model_tags.split(',').filter(|t| !t.is_empty()).map(str::to_owned);
    let options = LoaderOptions {
        batching: batching(args, &*session.environment.storage)?,
        batching_per_model: args.batching.enable_per_model_batching_parameters,
        session,
        tags: tags.collect(),
        memory_limit_bytes: memory,
        warm_up,
    };
    Ok(Loader::new((registry.ops.clone(), registry.kernels.clone()), options))
}

/// The batching of the arguments, if any.
fn batching(args: &Args, storage: &dyn Storage) -> Result<Option<Batching>> {
    let args = &args.batching;
    if let Some(goal) = args.latency_goal_ms {
        let goal = Duration::from_millis(goal.into());
        return Ok(Some(Batching::Automatic { goal, batch_rows: args.max_batch_rows as usize }));
    }
    let parameters = match (&args.batching_parameters_file, args.enable_batching) {
        (Some(path), _) => {
            BatchingParameters::read(storage, path).context(|| "--batching-parameters-file")?
        }
        (None, true) => BatchingParameters::default(),
        (None, false) => return Ok(None),
    };
    Ok(Some(Batching::Set(parameters)))
}

/// The models of flags, a file or the environment.
fn models(args: &ModelFlags, loader: &Loader) -> Result<Vec<ModelConfig>> {
    if let Some(path) = &args.model_config_file {
        ensure!(
            args.models.is_empty(),
            InvalidArgument,
            "--model-config-file names all models; --model does not go with it"
        );
        // TensorFlow Serving's container always passes both of these.
        for (flag, value) in
            [("model-name", &args.model_name), ("model-base-path", &args.model_base_path)]
        {
            if value.is_some() {
                warn!(
                    target: "thalweg::serve",
                    "--{flag} has no effect beside --model-config-file"
                );
            }
        }
        let (models, warnings) = read_models(path, loader)?;
        warnings.iter().for_each(|what| warn!(target: "thalweg::serve", "{what}"));
        return Ok(models);
    }
    let mut found = Vec::new();
    for model in &args.models {
        let Some((name, path)) =
            model.split_once('=').filter(|(n, p)| !n.is_empty() && !p.is_empty())
        else {
            bail!(InvalidArgument, "--model {model} must be NAME=DIR")
        };
        found.push(ModelConfig::new(name, path));
    }
    let variable = |name: &str| std::env::var(name).ok().filter(|v| !v.is_empty());
    let (name, base) = (variable("MODEL_NAME"), variable("MODEL_BASE_PATH"));
    if let Some(path) = &args.model_base_path {
        let name = args.model_name.clone().or(name).unwrap_or_else(|| "default".to_owned());
        found.push(ModelConfig::new(name, path));
    } else if found.is_empty() && (name.is_some() || base.is_some()) {
        // As the entry point of TensorFlow Serving's container joins them.
        let name = args.model_name.clone().or(name).unwrap_or_else(|| "model".to_owned());
        let base = base.unwrap_or_else(|| "/models".to_owned());
        let path = thalweg_formats::storage::join(&base, &name);
        found.push(ModelConfig::new(name, path));
    }
    ensure!(
        !found.is_empty(),
        InvalidArgument,
        "no model to serve: give --model NAME=DIR, --model-name NAME --model-base-path DIR, \
         --model-config-file FILE, or MODEL_NAME and MODEL_BASE_PATH in the environment"
    );
    config::check_names(&found)?;
    Ok(found)
}

/// The models of a file, and its settings that have no effect.
fn read_models(path: &str, loader: &Loader) -> Result<(Vec<ModelConfig>, Vec<String>)> {
    let full_name = "tensorflow.serving.ModelServerConfig";
    let file: pb::ModelServerConfig = config::read_text(&**loader.storage(), path, full_name)
        .context(|| "--model-config-file")?;
    let models = config::models(&file).context(|| format!("--model-config-file {path}"))?;
    Ok((models, config::without_effect(&file)))
}

fn store_options(args: &Args) -> StoreOptions {
    let seconds = args.models.file_system_poll_wait_seconds;
    StoreOptions {
        poll_interval: u64::try_from(seconds).ok().filter(|&s| s > 0).map(Duration::from_secs),
        transition: match args.models.transition {
            flags::TransitionFlag::AvailabilityPreserving => Transition::KeepAvailable,
            flags::TransitionFlag::ResourcePreserving => Transition::KeepResources,
        },
        attempts: Attempts {
            retries: args.loading.max_num_load_retries,
            interval: Duration::from_micros(args.loading.load_retry_interval_micros),
        },
        load_threads: args.loading.num_load_threads.max(1) as usize,
    }
}

fn server_options(args: &Args, loader: &Loader) -> Result<ServerOptions> {
    let limits = &args.limits;
    let mut options = ServerOptions {
        // A protobuf message has at most 2^31 - 1 bytes.
        message_bytes_max: (limits.message_limit as usize * MEGABYTE).min(i32::MAX as usize),
        connections_max: limits.connection_limit as usize,
        timeouts: ConnectionTimeouts {
            idle: Duration::from_secs(limits.idle_timeout.into()),
            answer: Duration::from_secs(limits.write_timeout.into()),
        },
        session_service: args.listen.enable_session_service,
        lame_duck: Duration::from_secs(args.shutdown.lame_duck_seconds.into()),
        drain_limit: Duration::from_secs(args.shutdown.drain_timeout.into()),
        ..Default::default()
    };
    options.rest.body_bytes_max = limits.body_limit as usize * MEGABYTE;
    options.rest.timeout = Duration::from_millis(args.listen.http_timeout_ms);
    options.rest.cors = args.listen.enable_cors;
    if let Some(path) = &args.listen.monitoring_config_file {
        let full_name = "tensorflow.serving.MonitoringConfig";
        let monitoring: pb::MonitoringConfig =
            config::read_text(&**loader.storage(), path, full_name)
                .context(|| "--monitoring-config-file")?;
        let prometheus = monitoring.prometheus_config.unwrap_or_default();
        options.rest.metrics_path = match (prometheus.enable, prometheus.path.as_str()) {
            (false, _) => None,
            (true, "") => options.rest.metrics_path,
            (true, path) => Some(path.to_owned()),
        };
    }
    Ok(options)
}

async fn serve(
    args: &Args,
    models: Vec<ModelConfig>,
    loader: Arc<Loader>,
    options: ServerOptions,
    out: &mut dyn Write,
) -> Result<(), Failure> {
    let mut parent = args.shutdown.with_parent.then(parent_pipe).transpose()?;
    let host = args.listen.host.as_deref().unwrap_or("127.0.0.1");
    let grpc = listen(host, args.listen.grpc()).await?;
    let rest = listen(host, args.listen.http()).await?;
    let (mut terminate, mut interrupt) =
        (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
    orphans::reap(&Children::default())?;
    for (what, listener) in [("gRPC", &grpc), ("HTTP", &rest)] {
        if let Some(listener) = listener {
            let address: SocketAddr = listener.local_addr()?;
            writeln!(out, "{what} listening on {address}")?;
        }
    }
    out.flush()?;
    args.warn_of_ignored();
    let incoming_max = loader.session().memory_limit_bytes / 2;
    let store = Store::start(models, loader.clone(), store_options(args));
    let engine = Arc::new(Engine::new(store, &loader, incoming_max));
    if let Some(path) = &args.models.model_config_file
        && args.models.model_config_file_poll_wait_seconds > 0
    {
        let interval = Duration::from_secs(args.models.model_config_file_poll_wait_seconds);
        tokio::spawn(watch_config(path.clone(), interval, loader, engine.clone()));
    }
    let (stop, stopped) = watch::channel(false);
    let serving = tokio::spawn(Server::new(engine, options).serve(grpc, rest, stopped));
    tokio::select! {
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
        () = parent_gone(parent.as_mut()) => {}
    }
    let _ = stop.send(true);
    tokio::select! {
        _ = serving => {}
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
    }
    Ok(())
}

/// Binds the port; `None` stands for an interface that is disabled.
async fn listen(host: &str, port: Option<u16>) -> Result<Option<TcpListener>, Failure> {
    let Some(port) = port else { return Ok(None) };
    let address = join(host, port);
    let listener = TcpListener::bind(&address).await;
    listener
        .map(Some)
        .map_err(|e| Failure::Failed(err!(Unavailable, "cannot listen on {address}: {e}")))
}

/// Polls the configuration file and reloads the models.
async fn watch_config(path: String, interval: Duration, loader: Arc<Loader>, engine: Arc<Engine>) {
    let mut last = read_models(&path, &loader).ok().map(|(models, _)| models);
    loop {
        tokio::time::sleep(interval).await;
        match read_models(&path, &loader) {
            Ok((models, warnings)) if last.as_ref() != Some(&models) => {
                last = Some(models.clone());
                warnings.iter().for_each(|what| warn!(target: "thalweg::serve", "{what}"));
                if let Err(e) = engine.store.reload(models).await {
                    warn!(target: "thalweg::serve", path, "{path}: {e}");
                }
            }
            Ok(_) => {}
            Err(e) => warn!(target: "thalweg::serve", path, "{e}"),
        }
    }
}
