//! Client sessions on remote servers, ours or TensorFlow's.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use thalweg_graph::Graph;
use thalweg_proto as pb;
use thalweg_rpc::{
    Channel, ConnectPolicy, Method, Pieces, block_on, check_status, decode_response, spawn_detached,
};
use thalweg_runtime::{RunMetadata, RunOptions, Session, memory_limit_bytes, system_environment};
use thalweg_tensor::{Budget, Result, Tensor, ensure, err};

use crate::errors::received;
use crate::master::config;
use crate::network::grpc::methods;
use crate::network::trace_messages::{StepResponseExtension, StepTrace};

/// Creates remote sessions: `Session::connect("grpc://host:port", &graph)`.
pub trait Connect {
    /// A session over `graph` on the server that `target`, `grpc://host:port`, names.
    fn connect(target: &str, graph: &Graph) -> Result<RemoteSession>;
}

impl Connect for Session {
    fn connect(target: &str, graph: &Graph) -> Result<RemoteSession> {
        RemoteSession::open(target, graph.to_def(), ConnectOptions::default())
    }
}

/// Options of a remote session.
#[derive(Clone, Debug)]
pub struct ConnectOptions {
    /// The session's config; `operation_timeout_in_ms` bounds every call.
    pub config: pb::ConfigProto,
    /// How long to try to reach the server.
    pub connect_timeout: Duration,
}

impl Default for ConnectOptions {
    fn default() -> Self {
        ConnectOptions {
            config: pb::ConfigProto::default(),
            connect_timeout: Duration::from_secs(30),
        }
    }
}

/// A session on a server, with the calls of the local [`Session`]. Dropping it closes it.
pub struct RemoteSession {
    server: Arc<ServerSession>,
    graph_version: Mutex<i64>,
    is_closed: AtomicBool,
}

/// The server and the session's handle, shared by a session and its callables.
struct ServerSession {
    channel: Channel,
    handle: String,
    operation_timeout: Option<Duration>,
}

/// `host:port` of a target.
fn parse_target(target: &str) -> Result<String> {
    let address = target.strip_prefix("grpc://").filter(|a| a.contains(':') && !a.contains('/'));
    let address = address.ok_or_else(|| {
        err!(InvalidArgument, "'{target}' is not a target; expected grpc://host:port")
    })?;
    Ok(address.to_owned())
}

/// A random id for deduplication; zero would mean none.
fn request_id() -> i64 {
    system_environment().entropy.next_u64().max(1) as i64
}

fn channel(target: &str, options: &ConnectOptions) -> Result<Channel> {
    let incoming = Budget::new(memory_limit_bytes());
    let policy = ConnectPolicy::Retry(options.connect_timeout);
    Ok(Channel::new(Arc::new(parse_target(target)?), policy, incoming))
}

impl RemoteSession {
    /// Opens a session over a graph.
    pub fn open(
        target: &str,
        graph: pb::GraphDef,
        options: ConnectOptions,
    ) -> Result<RemoteSession> {
        let channel = channel(target, &options)?;
        let operation_timeout = config::milliseconds(options.config.operation_timeout_in_ms);
        let request = pb::CreateSessionRequest {
            graph_def: Some(graph),
            config: Some(options.config),
            target: target.to_owned(),
        };
        let (channel, response) = block_on(
            async move {
                let response: pb::CreateSessionResponse =
                    channel.call(methods::CREATE_SESSION, &request, operation_timeout).await?;
                Ok((channel, response))
            },
            None,
        )?;
        ensure!(
            !response.session_handle.is_empty(),
            DataLoss,
            "the server at {target} answered CreateSession with an empty session handle"
        );
        let server = ServerSession { channel, handle: response.session_handle, operation_timeout };
        Ok(RemoteSession {
            server: Arc::new(server),
            graph_version: Mutex::new(response.graph_version),
            is_closed: AtomicBool::new(false),
        })
    }

    /// Empties containers of the server at `target`, the default one if none is named, and closes
    /// all its sessions.
    pub fn reset(target: &str, containers: &[&str]) -> Result<()> {
        let options = ConnectOptions::default();
        let channel = channel(target, &options)?;
        let container = containers.iter().map(|&c| c.to_owned()).collect();
        let request = pb::ResetRequest { container, ..Default::default() };
        block_on(
            async move {
                channel.call(methods::RESET, &request, None).await.map(|_: pb::ResetResponse| ())
            },
            None,
        )
    }

    /// Adds nodes to the graph.
    pub fn extend(&self, def: pb::GraphDef) -> Result<()> {
        // Serialized: each call needs the version that the one before returned.
        let mut version = self.graph_version.lock();
        let request = pb::ExtendSessionRequest {
            session_handle: self.server.handle.clone(),
            graph_def: Some(def),
            current_graph_version: *version,
        };
        let response: pb::ExtendSessionResponse =
            self.server.call(methods::EXTEND_SESSION, request)?;
        *version = response.new_graph_version;
        Ok(())
    }

    /// Feeds tensors, runs what the fetches and targets need, returns the fetches in order.
    pub fn run(
        &self,
        feeds: &[(&str, Tensor)],
        fetches: &[&str],
        targets: &[&str],
    ) -> Result<Vec<Tensor>> {
        self.run_with(&RunOptions::default(), feeds, fetches, targets).map(|(tensors, _)| tensors)
    }

    /// As [`RemoteSession::run`], with options and a report.
    pub fn run_with(
        &self,
        options: &RunOptions,
        feeds: &[(&str, Tensor)],
        fetches: &[&str],
        targets: &[&str],
    ) -> Result<(Vec<Tensor>, RunMetadata)> {
        let targets = targets.iter().map(|&t| t.to_owned()).collect();
        self.server.run_step(options, feeds, fetches, targets, String::new())
    }

    /// Prepares a callable.
    pub fn make_callable(
        &self,
        feeds: &[&str],
        fetches: &[&str],
        targets: &[&str],
    ) -> Result<RemoteCallable> {
        let options = pb::CallableOptions {
            feed: feeds.iter().map(|f| full_name(f)).collect(),
            fetch: fetches.iter().map(|f| full_name(f)).collect(),
            target: targets.iter().map(|&t| t.to_owned()).collect(),
            ..Default::default()
        };
        let request = pb::MakeCallableRequest {
            session_handle: self.server.handle.clone(),
            options: Some(options),
            request_id: request_id(),
        };
        let response: pb::MakeCallableResponse =
            self.server.call(methods::MAKE_CALLABLE, request)?;
        let (feeds, fetches) = (feeds.len(), fetches.len());
        Ok(RemoteCallable { server: self.server.clone(), handle: response.handle, feeds, fetches })
    }

    /// Prepares a partial run; each feed and fetch is used once.
    pub fn partial_run(
        &self,
        feeds: &[&str],
        fetches: &[&str],
        targets: &[&str],
    ) -> Result<RemotePartialRun> {
        let request = pb::PartialRunSetupRequest {
            session_handle: self.server.handle.clone(),
            feed: feeds.iter().map(|f| full_name(f)).collect(),
            fetch: fetches.iter().map(|f| full_name(f)).collect(),
            target: targets.iter().map(|&t| t.to_owned()).collect(),
            request_id: request_id(),
        };
        let response: pb::PartialRunSetupResponse =
            self.server.call(methods::PARTIAL_RUN_SETUP, request)?;
        Ok(RemotePartialRun { server: self.server.clone(), handle: response.partial_run_handle })
    }

    /// The devices of the session.
    pub fn list_devices(&self) -> Result<Vec<pb::DeviceAttributes>> {
        let request = pb::ListDevicesRequest { session_handle: self.server.handle.clone() };
        let response: pb::ListDevicesResponse = self.server.call(methods::LIST_DEVICES, request)?;
        Ok([response.local_device, response.remote_device].concat())
    }

    /// Closes the session; its steps end with `Cancelled`.
    pub fn close(&self) -> Result<()> {
        if self.is_closed.swap(true, Ordering::Relaxed) {
            return Ok(());
        }
        let request = pb::CloseSessionRequest { session_handle: self.server.handle.clone() };
        self.server.call(methods::CLOSE_SESSION, request).map(|_: pb::CloseSessionResponse| ())
    }
}

impl Drop for RemoteSession {
    fn drop(&mut self) {
        if !self.is_closed.swap(true, Ordering::Relaxed) {
            let request = pb::CloseSessionRequest { session_handle: self.server.handle.clone() };
            self.server.spawn_detached(methods::CLOSE_SESSION, &request);
        }
    }
}

/// A tensor's name with its output index, without which TensorFlow's servers hang.
fn full_name(name: &str) -> String {
    if name.contains(':') { name.to_owned() } else { format!("{name}:0") }
}

impl ServerSession {
    fn call<M: prost::Message + Default + 'static>(
        self: &Arc<Self>,
        method: Method,
        request: impl prost::Message + 'static,
    ) -> Result<M> {
        let server = self.clone();
        let call =
            async move { server.channel.call(method, &request, server.operation_timeout).await };
        block_on(call, None)
    }

    fn spawn_detached(self: &Arc<Self>, method: Method, request: &impl prost::Message) {
        let mut pieces = Pieces::default();
        pieces.put_fields(request);
        let server = self.clone();
        let limit = server.operation_timeout.unwrap_or(Duration::from_secs(10));
        spawn_detached(async move { server.channel.send(method, pieces, Some(limit)).await });
    }

    fn send<M: prost::Message + Default + 'static>(
        self: &Arc<Self>,
        method: Method,
        pieces: Pieces,
        options: &RunOptions,
    ) -> Result<(M, Option<StepTrace>)> {
        let (server, timeout) = (self.clone(), options.timeout.or(self.operation_timeout));
        let call = async move { server.channel.send(method, pieces, timeout).await };
        let rope = block_on(call, options.cancellation.as_ref())?;
        let extension = match options.trace {
            true => decode_response(rope.clone())?,
            false => StepResponseExtension::default(),
        };
        Ok((decode_response(rope)?, extension.trace))
    }

    fn tensor(&self, proto: &pb::TensorProto) -> Result<Tensor> {
        Tensor::from_proto(proto, Some(self.channel.incoming()))
    }

    fn run_step(
        self: &Arc<Self>,
        options: &RunOptions,
        feeds: &[(&str, Tensor)],
        fetches: &[&str],
        target: Vec<String>,
        partial_run_handle: String,
    ) -> Result<(Vec<Tensor>, RunMetadata)> {
        let wanted: Vec<String> = fetches.iter().map(|f| full_name(f)).collect();
        let mut fetch = wanted.clone();
        fetch.sort();
        fetch.dedup();
        let request = pb::RunStepRequest {
            session_handle: self.handle.clone(),
            fetch,
            target,
            options: Some(run_options(options, self.operation_timeout)),
            partial_run_handle,
            store_errors_in_response_body: true,
            request_id: request_id(),
            ..Default::default()
        };
        let mut pieces = Pieces::default();
        pieces.put_fields(&request);
        for (name, tensor) in feeds {
            pieces.put_named_tensor(2, &full_name(name), tensor)?;
        }
        let (response, trace): (pb::RunStepResponse, _) =
            self.send(methods::RUN_STEP, pieces, options)?;
        let message = response.status_error_message;
        check_status(response.status_code.into(), || message).map_err(received)?;
        let mut tensors = Vec::with_capacity(wanted.len());
        for name in &wanted {
            let found = response.tensor.iter().find(|t| t.name == *name);
            let proto = found.and_then(|t| t.tensor.as_ref());
            let proto = proto.ok_or_else(|| {
                err!(DataLoss, "the response of RunStep lacks the fetch '{name}'")
            })?;
            tensors.push(self.tensor(proto)?);
        }
        Ok((tensors, StepTrace::join(response.metadata.unwrap_or_default(), trace)))
    }
}

fn run_options(options: &RunOptions, operation_timeout: Option<Duration>) -> pb::RunOptions {
    let level = match options.trace {
        true => pb::run_options::TraceLevel::FullTrace,
        false => pb::run_options::TraceLevel::NoTrace,
    };
    let timeout = options.timeout.or(operation_timeout).unwrap_or_default();
    pb::RunOptions {
        trace_level: level as i32,
        // At least a millisecond: zero would mean no limit.
        timeout_in_ms: match timeout.is_zero() {
            true => 0,
            false => timeout.as_millis().clamp(1, i64::MAX as u128) as i64,
        },
        output_partition_graphs: options.partition_graphs,
        ..Default::default()
    }
}

/// A callable of a remote session. Dropping it releases it.
pub struct RemoteCallable {
    server: Arc<ServerSession>,
    handle: i64,
    feeds: usize,
    fetches: usize,
}

impl RemoteCallable {
    /// Runs the step with feeds in the order they were named.
    pub fn call(&self, feeds: &[Tensor]) -> Result<Vec<Tensor>> {
        self.call_with(&RunOptions::default(), feeds).map(|(tensors, _)| tensors)
    }

    /// As [`RemoteCallable::call`]; uses the timeout and the cancellation of `options`.
    pub fn call_with(
        &self,
        options: &RunOptions,
        feeds: &[Tensor],
    ) -> Result<(Vec<Tensor>, RunMetadata)> {
        ensure!(
            feeds.len() == self.feeds,
            InvalidArgument,
            "{} feeds expected, got {}",
            self.feeds,
            feeds.len()
        );
        let request = pb::RunCallableRequest {
            session_handle: self.server.handle.clone(),
            handle: self.handle,
            request_id: request_id(),
            ..Default::default()
        };
        let mut pieces = Pieces::default();
        pieces.put_fields(&request);
        for tensor in feeds {
            pieces.put_tensor(3, tensor)?;
        }
        let (response, trace): (pb::RunCallableResponse, _) =
            self.server.send(methods::RUN_CALLABLE, pieces, options)?;
        ensure!(
            response.fetch.len() == self.fetches,
            DataLoss,
            "expected {} fetched tensors, the server sent {}",
            self.fetches,
            response.fetch.len()
        );
        let tensors: Result<Vec<Tensor>> =
            response.fetch.iter().map(|proto| self.server.tensor(proto)).collect();
        Ok((tensors?, StepTrace::join(response.metadata.unwrap_or_default(), trace)))
    }
}

impl Drop for RemoteCallable {
    fn drop(&mut self) {
        let session_handle = self.server.handle.clone();
        let request = pb::ReleaseCallableRequest { session_handle, handle: self.handle };
        self.server.spawn_detached(methods::RELEASE_CALLABLE, &request);
    }
}

/// A partial run of a remote session.
pub struct RemotePartialRun {
    server: Arc<ServerSession>,
    handle: String,
}

impl RemotePartialRun {
    /// Feeds some tensors and waits for some fetches.
    pub fn run(&self, feeds: &[(&str, Tensor)], fetches: &[&str]) -> Result<Vec<Tensor>> {
        let options = RunOptions::default();
        let handle = self.handle.clone();
        let ran = self.server.run_step(&options, feeds, fetches, Vec::new(), handle)?;
        Ok(ran.0)
    }
}
