//! The API with a tracer and a simulation of the test's own.

use std::sync::atomic::{AtomicUsize, Ordering};

use thalweg_cluster::grpc::LocalCluster;
use thalweg_cluster::{ConnectOptions, RemoteSession, TaskOptions};
use thalweg_graph::Scope;
use thalweg_runtime::system_environment;
use thalweg_sim::Timeline;
use tokio::runtime::Runtime;

use super::*;
use crate::cluster::ClusterSource;
use crate::steps::StepTimeline;

fn sources() -> Sources {
    Sources {
        title: "test".into(),
        cluster: None,
        logdir: None,
        graph: None,
        registry: Registry::built_in(),
        steps: Arc::default(),
        tracer: None,
        simulation: None,
        simulated: Mutex::default(),
        last_graph: Mutex::default(),
    }
}

fn runtime() -> Runtime {
    tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap()
}

fn body(reply: &Reply) -> Value {
    serde_json::from_slice(&reply.body).unwrap()
}

/// Every trace has a step, or none has.
struct Steady {
    calls: AtomicUsize,
    has_step: bool,
}

impl Tracer for Steady {
    fn trace_next(&self, address: &str, timeout: Duration) -> Result<StepTimeline> {
        assert_eq!(timeout, TRACE_LIMIT);
        self.calls.fetch_add(1, Ordering::Relaxed);
        if !self.has_step {
            bail!(DeadlineExceeded, "no client ran a step")
        }
        let timeline = Timeline { seconds: 0.5, ..Timeline::default() };
        Ok(StepTimeline { label: format!("of {address}"), timeline, ..StepTimeline::default() })
    }
}

#[test]
fn the_next_step_is_traced_where_a_client_has_a_session() {
    let registry = Registry::built_in();
    let (ops, kernels) = (registry.ops.clone(), registry.kernels.clone());
    let cluster = LocalCluster::start(&[("worker", 3)], TaskOptions::default(), ops, kernels);
    let cluster = cluster.unwrap();
    let runtime = runtime();
    let source = ClusterSource::Spec(cluster.spec().clone());
    let watched = ClusterWatch::new(source, system_environment().clock);
    let tracer = Arc::new(Steady { calls: AtomicUsize::new(0), has_step: true });
    let api = |tracer: Arc<Steady>| {
        Api::new(Sources { cluster: Some(watched.clone()), tracer: Some(tracer), ..sources() })
    };
    let working = runtime.spawn(watched.clone().run());
    let traces = api(tracer.clone());
    let reply = runtime.block_on(traces.post("/api/trace", b"{}"));
    assert_eq!((reply.status, tracer.calls.load(Ordering::Relaxed)), (StatusCode::CONFLICT, 0));
    assert!(body(&reply)["error"].as_str().unwrap().contains("no client has a session"));

    let sessions: Vec<RemoteSession> = cluster
        .spec()
        .tasks()
        .skip(1)
        .map(|(_, address)| {
            let graph = Scope::new(registry.ops.clone()).to_graph().to_def();
            RemoteSession::open(&format!("grpc://{address}"), graph, ConnectOptions::default())
                .unwrap()
        })
        .collect();
    let mut traced = Value::Null;
    for _ in 0..100 {
        let reply = runtime.block_on(traces.post("/api/trace", b"{}"));
        if reply.status == StatusCode::OK {
            traced = body(&reply);
            break;
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    let id = traced["id"].as_str().expect("a step was traced").to_owned();
    let step = body(&runtime.block_on(traces.get("/api/step", &format!("id={id}"))));
    assert_eq!((&step["step_seconds"], &step["clocks"]), (&json!(0.5), &json!([])));
    assert_eq!(tracer.calls.load(Ordering::Relaxed), sessions.len());

    let idle = api(Arc::new(Steady { calls: AtomicUsize::new(0), has_step: false }));
    let reply = runtime.block_on(idle.post("/api/trace", b"{}"));
    assert_eq!(reply.status, StatusCode::GATEWAY_TIMEOUT);
    assert_eq!(body(&reply), json!({ "error": "no step was run" }));
    working.abort();
}

/// A simulation whose step is as long as the factor of all links says.
#[derive(Default)]
struct Elastic {
    runs: AtomicUsize,
}

impl Simulation for Elastic {
    fn describe(&self) -> Value {
        json!({ "algorithms": ["default"] })
    }

    fn simulate(&self, changes: &Changes) -> Result<Simulated> {
        self.runs.fetch_add(1, Ordering::Relaxed);
        let factor = changes.link_speed.get("*").copied().unwrap_or(1.0);
        if factor > 100.0 {
            bail!(InvalidArgument, "no link is that fast")
        }
        let placement = json!([{ "node": "x", "device": "/job:sim", "reason": "only device" }]);
        Ok(Simulated {
            timeline: json!({ "step_seconds": 1.0 / factor, "placement": placement }),
            trace_events: r#"{"traceEvents":[]}"#.into(),
            train: Value::Null,
        })
    }
}

#[test]
fn a_simulation_is_a_step_and_places_the_graph() {
    let runtime = runtime();
    let simulation = Arc::new(Elastic::default());
    let node = pb::NodeDef { name: "x".into(), op: "NoOp".into(), ..Default::default() };
    let graph = pb::GraphDef { node: vec![node], ..Default::default() };
    let api =
        Api::new(Sources { simulation: Some(simulation.clone()), graph: Some(graph), ..sources() });
    let get = |path: &str, query: &str| body(&runtime.block_on(api.get(path, query)));
    let state = get("/api/state", "");
    assert_eq!((&state["mode"], &state["has"]["timeline"]), (&json!("simulation"), &json!(true)));
    assert_eq!(get("/api/simulation", "")["algorithms"], json!(["default"]));
    assert_eq!(get("/api/step", "id=simulated")["step_seconds"], 1.0);
    let steps = get("/api/steps", "");
    assert_eq!(steps["steps"][0]["id"], "simulated");
    assert_eq!(simulation.runs.load(Ordering::Relaxed), 1, "the original is simulated once");
    let changed = runtime.block_on(api.post("/api/simulation", br#"{"link_speed":{"*":2}}"#));
    assert_eq!(body(&changed)["timeline"]["step_seconds"], 0.5);
    assert_eq!(get("/api/step", "id=simulated")["step_seconds"], 0.5);
    let graph = get("/api/graph", "");
    assert_eq!(
        (&graph["devices"], &graph["reason"]),
        (&json!(["/job:sim"]), &json!(["only device"]))
    );
    let refused = runtime.block_on(api.post("/api/simulation", br#"{"link_speed":{"*":200}}"#));
    assert_eq!(refused.status, StatusCode::BAD_REQUEST);
    assert_eq!(get("/api/step", "id=simulated")["step_seconds"], 0.5, "the last good one stays");
}
