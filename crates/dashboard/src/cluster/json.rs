//! `/api/cluster`.

use serde_json::{Map, Value, json};
use thalweg_cluster::grpc::TaskState;
use thalweg_cluster::own_messages::{StatusResponse, WaitInfo, WaitKind};

use super::history::{History, Task};

impl History {
    /// The tasks and the events.
    pub(super) fn to_json(&self) -> Value {
        let events = self.events.iter().map(|event| {
            let level = if event.is_warning { "warning" } else { "info" };
            json!({ "time_ms": event.time_ms, "level": level, "text": event.text })
        });
        json!({
            "time_ms": self.time_ms,
            "tasks": self.tasks.iter().map(task_json).collect::<Vec<_>>(),
            "staleness": self.tasks.iter().find_map(staleness),
            "events": events.collect::<Vec<_>>(),
        })
    }
}

/// The clock of a worker that has left is greater than any number of steps.
const LEFT: i64 = i64::MAX / 4;

/// By how many steps each worker is behind the one that is furthest, if the task keeps their clocks; null
/// for those that have left.
fn staleness(task: &Task) -> Option<Value> {
    let Some(TaskState::Alive(status)) = &task.state else { return None };
    let furthest = status.clocks.iter().filter(|clock| **clock < LEFT).max()?;
    let behind = |clock: &i64| (*clock < LEFT).then(|| furthest.saturating_sub(*clock));
    Some(json!({ "worker": status.clocks.iter().map(behind).collect::<Vec<_>>() }))
}

fn task_json(task: &Task) -> Value {
    let (state, detail) = match &task.state {
        Some(TaskState::Alive(status)) if is_other(task, status) => {
            ("alive", format!("the task at this address is {}", status.task))
        }
        Some(TaskState::Alive(_)) => ("alive", String::new()),
        Some(TaskState::Foreign(_)) => ("alive", "a task of TensorFlow".to_owned()),
        Some(TaskState::Silent) => ("silent", "no answer in time".to_owned()),
        Some(TaskState::Dead(why)) => ("dead", why.clone()),
        None => ("silent", "not asked yet".to_owned()),
    };
    let mut json = match (&task.state, &task.last) {
        (Some(TaskState::Foreign(devices)), _) => foreign_json(devices),
        (_, Some(status)) => status_json(status),
        (_, None) => foreign_json(&[]),
    };
    // What was true of a task before it died no longer is.
    if !matches!(task.state, Some(TaskState::Alive(_))) {
        for field in ["waits", "queues"] {
            json.insert(field.into(), json!([]));
        }
        json.insert("steps_now".into(), json!(0));
    }
    json.insert("task".into(), json!(task.of.name));
    json.insert("address".into(), json!(task.of.address));
    json.insert("state".into(), json!(state));
    json.insert("detail".into(), json!(detail));
    Value::Object(json)
}

/// Whether another task than expected has answered. A task is watched by its address until its name is
/// known.
fn is_other(task: &Task, status: &StatusResponse) -> bool {
    status.task != task.of.name && task.of.name != task.of.address
}

/// A task that says no more than its devices: its numbers are unknown.
fn foreign_json(devices: &[String]) -> Map<String, Value> {
    let mut json = status_json(&StatusResponse { devices: devices.to_vec(), ..Default::default() });
    let numbers: Vec<String> =
        json.iter().filter(|(_, value)| value.is_number()).map(|(name, _)| name.clone()).collect();
    for name in numbers {
        json.insert(name, Value::Null);
    }
    json.insert("version".into(), Value::Null);
    json
}

fn status_json(status: &StatusResponse) -> Map<String, Value> {
    let devices = status.devices.iter().map(|name| json!({ "name": name }));
    let accelerators = status.accelerators.iter().map(|device| {
        json!({
            "name": device.name,
            "kind": device.kind,
            "memory_used_bytes": device.memory_used_bytes,
            "memory_limit_bytes": device.memory_limit_bytes,
        })
    });
    let queues = status
        .queues
        .iter()
        .map(|queue| json!({ "name": queue.name, "size": queue.size, "capacity": queue.capacity }));
    let links = status.received.iter().map(|r| json!({ "to": r.from, "bytes": r.bytes }));
    let json = json!({
        "version": status.version,
        "process": status.process,
        "uptime_ms": status.uptime_ms,
        "devices": devices.collect::<Vec<_>>(),
        "accelerators": accelerators.collect::<Vec<_>>(),
        "resident_bytes": status.resident_bytes,
        "memory_limit_bytes": status.memory_limit_bytes,
        "variables": status.variables,
        "variable_bytes": status.variable_bytes,
        "resources": status.resources,
        "sessions": status.master_sessions,
        "steps_now": status.steps_now,
        "steps": status.master_steps,
        "steps_failed": status.master_steps_failed,
        "partition_steps": status.worker_steps,
        "partition_steps_failed": status.worker_steps_failed,
        "waits": status.waits.iter().map(wait_json).collect::<Vec<_>>(),
        "queues": queues.collect::<Vec<_>>(),
        "links": links.collect::<Vec<_>>(),
    });
    match json {
        Value::Object(map) => map,
        _ => Map::new(),
    }
}

fn wait_json(wait: &WaitInfo) -> Value {
    let kind = match wait.kind() {
        WaitKind::Node => "node",
        WaitKind::Tensor => "tensor",
        WaitKind::Partition => "partition",
        WaitKind::Task => "task",
    };
    json!({
        "kind": kind,
        "of": wait.of,
        "what": wait.what,
        "op": wait.op,
        "on": wait.on,
        "ms": wait.waited_ms,
    })
}

#[cfg(test)]
mod tests {
    use thalweg_cluster::own_messages::{QueueInfo, ReceivedInfo};

    use super::super::Watched;
    use super::*;

    #[test]
    fn tasks_have_all_fields_in_every_state() {
        let names = ["/job:ps/replica:0/task:0", "/job:worker/replica:0/task:0", "h:3", "h:4"];
        let watched = names.map(|name| Watched { name: name.into(), address: "h:1".into() });
        let mut history = History::default();
        history.watch(watched.to_vec());
        let status = StatusResponse {
            task: names[0].into(),
            variables: 3,
            devices: vec!["/job:ps/replica:0/task:0/device:CPU:0".into()],
            queues: vec![QueueInfo { name: "q".into(), size: 3, capacity: -1 }],
            received: vec![ReceivedInfo { from: names[1].into(), bytes: 9 }],
            clocks: vec![5, 7, i64::MAX / 2],
            waits: vec![WaitInfo {
                op: "QueueDequeueV2".into(),
                on: "q".into(),
                ..Default::default()
            }],
            ..Default::default()
        };
        let alive = || TaskState::Alive(Box::new(status.clone()));
        let rest =
            || [TaskState::Foreign(Vec::new()), TaskState::Silent, TaskState::Dead("x".into())];
        history.report([alive()].into_iter().chain(rest()).collect(), 5);
        let json = history.to_json();
        assert_eq!(json["staleness"], json!({ "worker": [2, 0, null] }));
        let fields = |i: usize| json["tasks"][i].as_object().unwrap().keys().collect::<Vec<_>>();
        for i in 1..4 {
            assert_eq!(fields(i), fields(0));
        }
        let ps = &json["tasks"][0];
        assert_eq!(ps["queues"], json!([{ "name": "q", "size": 3, "capacity": -1 }]));
        assert_eq!(ps["links"], json!([{ "to": names[1], "bytes": 9 }]));
        assert_eq!(ps["waits"][0]["kind"], "node");
        let states: Vec<_> = (0..4).map(|i| json["tasks"][i]["state"].as_str().unwrap()).collect();
        assert_eq!(states, ["alive", "alive", "silent", "dead"]);
        assert_eq!(json["tasks"][3]["detail"], "x");
        // A dead task keeps what it was, but waits for nothing.
        history.report([TaskState::Dead("y".into())].into_iter().chain(rest()).collect(), 6);
        let json = history.to_json();
        assert_eq!(
            (&json["tasks"][0]["variables"], &json["tasks"][0]["waits"]),
            (&json!(3), &json!([]))
        );
        assert_eq!(json["time_ms"], 6);
    }
}
