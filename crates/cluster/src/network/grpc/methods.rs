//! The gRPC methods that tasks and clients call, and where their messages hold tensors.

use thalweg_rpc::{FieldPath, Method};

const MASTER: &str = "tensorflow.MasterService";
const WORKER: &str = "tensorflow.WorkerService";
const PEER: &str = "thalweg.Peer";

pub(crate) const CREATE_SESSION: Method = Method::new(MASTER, "CreateSession");
pub(crate) const EXTEND_SESSION: Method = Method::new(MASTER, "ExtendSession");
pub(crate) const CLOSE_SESSION: Method = Method::new(MASTER, "CloseSession");
pub(crate) const LIST_DEVICES: Method = Method::new(MASTER, "ListDevices");
pub(crate) const MAKE_CALLABLE: Method = Method::new(MASTER, "MakeCallable");
pub(crate) const PARTIAL_RUN_SETUP: Method = Method::new(MASTER, "PartialRunSetup");
pub(crate) const RELEASE_CALLABLE: Method = Method::new(MASTER, "ReleaseCallable");
pub(crate) const RESET: Method = Method::new(MASTER, "Reset");
pub(crate) const RUN_CALLABLE: Method =
    Method { service: MASTER, name: "RunCallable", tensors: &[1, 4] };
pub(crate) const RUN_STEP: Method =
    Method { service: MASTER, name: "RunStep", tensors: &[1, 2, 4] };

pub(crate) const CLEANUP_ALL: Method = Method::new(WORKER, "CleanupAll");
pub(crate) const CLEANUP_GRAPH: Method = Method::new(WORKER, "CleanupGraph");
pub(crate) const CREATE_WORKER_SESSION: Method = Method::new(WORKER, "CreateWorkerSession");
pub(crate) const DELETE_WORKER_SESSION: Method = Method::new(WORKER, "DeleteWorkerSession");
pub(crate) const DEREGISTER_GRAPH: Method = Method::new(WORKER, "DeregisterGraph");
pub(crate) const GET_STATUS: Method = Method::new(WORKER, "GetStatus");
pub(crate) const RECV_TENSOR: Method =
    Method { service: WORKER, name: "RecvTensor", tensors: &[1, 4] };
pub(crate) const REGISTER_GRAPH: Method = Method::new(WORKER, "RegisterGraph");
pub(crate) const RUN_GRAPH: Method =
    Method { service: WORKER, name: "RunGraph", tensors: &[1, 2, 4] };

pub(crate) const CLOCK: Method = Method::new(PEER, "Clock");
pub(crate) const HELLO: Method = Method::new(PEER, "Hello");
pub(crate) const STATUS: Method = Method::new(PEER, "Status");
pub(crate) const STOP: Method = Method::new(PEER, "Stop");
pub(crate) const TRACE: Method = Method::new(PEER, "Trace");

pub(crate) const HEALTH_CHECK: Method = Method::new("grpc.health.v1.Health", "Check");

/// Where the request of a method of `MasterService` or `WorkerService` holds tensors.
pub(super) fn request_tensors(method: &str) -> FieldPath {
    match method {
        "RunStep" => &[2, 2, 4],
        "RunCallable" => &[3, 4],
        "RunGraph" => &[3, 2, 4],
        _ => &[],
    }
}
