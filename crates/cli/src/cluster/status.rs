//! `thalweg cluster status`: the state of each task of a cluster, and which steps wait.

use std::collections::BTreeMap;
use std::io::Write;
use std::time::Duration;

use serde_json::{Value, json};
use thalweg_cluster::grpc::{TaskReport, TaskState, status_of};
use thalweg_cluster::own_messages::{AcceleratorInfo, WaitInfo, WaitKind};
use thalweg_cluster::{ClusterSpec, TaskName};
use thalweg_kernel::DeviceName;
use thalweg_tensor::Result;

use crate::Failure;

/// The deadline of a status request.
const LIMIT: Duration = Duration::from_millis(2500);
/// The maximum number of waits that a task reports.
const WAITS_MAX: u32 = 1000;

/// The output format.
#[derive(Clone, Copy, Debug)]
pub(super) struct Form {
    pub json: bool,
    pub waits: bool,
}

/// Queries all tasks and prints their state; fails if a task does not answer.
pub(super) fn show(cluster: &ClusterSpec, form: Form, out: &mut dyn Write) -> Result<(), Failure> {
    let waits_max = if form.waits { WAITS_MAX } else { 0 };
    let reports = status_of(cluster, waits_max, LIMIT)?;
    let waits = all_waits(&reports);
    if form.json {
        let tasks: Vec<Value> = reports.iter().map(task_json).collect();
        let mut all = json!({ "tasks": tasks });
        if form.waits {
            all["waits"] = waits.iter().map(wait_json).collect();
        }
        writeln!(out, "{all}")?;
    } else {
        table(&reports, out)?;
        if form.waits {
            writeln!(out)?;
            show_waits(&waits, out)?;
        }
    }
    let answers = |r: &TaskReport| matches!(r.state, TaskState::Alive(_) | TaskState::Foreign(_));
    if reports.iter().all(answers) { Ok(()) } else { Err(Failure::Exit(1)) }
}

/// The short name `ps/0`.
fn short(task: &TaskName) -> String {
    format!("{}/{}", task.job, task.index)
}

/// The short form of a full task name; other names are unchanged.
fn shortened(name: &str) -> String {
    name.parse::<TaskName>().map_or_else(|_| name.to_owned(), |task| short(&task))
}

fn table(reports: &[TaskReport], out: &mut dyn Write) -> Result<(), Failure> {
    let head =
        "TASK STATE ADDRESS VERSION DEVICES UP SESSIONS MASTER-STEPS WORKER-STEPS MEMORY VARIABLES";
    let mut rows = vec![head.split(' ').map(str::to_owned).collect::<Vec<_>>()];
    rows.extend(reports.iter().map(row));
    let columns = rows[0].len();
    let width = |column: usize| {
        let cells = rows.iter().filter(|row| row.len() == columns || column < 3);
        cells.filter_map(|row| Some(row.get(column)?.chars().count())).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..columns).map(width).collect();
    for row in &rows {
        let cells = row.iter().zip(&widths).map(|(cell, width)| format!("{cell:width$}"));
        writeln!(out, "{}", cells.collect::<Vec<_>>().join("  ").trim_end())?;
    }
    for report in reports {
        let TaskState::Alive(status) = &report.state else { continue };
        for device in &status.accelerators {
            writeln!(out, "{}: {}", short(&report.task), accelerator(device))?;
        }
        for silent in &status.silent {
            let seconds = seconds(silent.silent_ms);
            let (who, whom) = (short(&report.task), shortened(&silent.task));
            writeln!(out, "{who} has had no answer from {whom} for {seconds}")?;
        }
    }
    Ok(())
}

/// The table row of a task; a task without details has a sentence after its address.
fn row(report: &TaskReport) -> Vec<String> {
    let (task, address) = (short(&report.task), report.address.clone());
    let cells = |state: &str, rest: Vec<String>| {
        [vec![task.clone(), state.to_owned(), address.clone()], rest].concat()
    };
    match &report.state {
        TaskState::Alive(s) => {
            let failed = |good: u64, bad: u64| match bad {
                0 => good.to_string(),
                _ => format!("{good} ({bad} failed)"),
            };
            let rest = vec![
                s.version.clone(),
                devices(&s.devices),
                seconds(s.uptime_ms),
                format!("{}+{}", s.master_sessions, s.worker_sessions),
                failed(s.master_steps, s.master_steps_failed),
                failed(s.worker_steps, s.worker_steps_failed),
                bytes(s.resident_bytes),
                format!("{} ({})", s.variables, bytes(s.variable_bytes)),
            ];
            let is_itself = s.task.parse::<TaskName>().is_ok_and(|name| name == report.task);
            cells(if is_itself { "alive" } else { "alive, as another task" }, rest)
        }
        TaskState::Foreign(found) => {
            cells("alive", vec![format!("a TensorFlow task with {}", devices(found))])
        }
        TaskState::Silent => {
            cells("silent", vec![format!("no answer within {} s", LIMIT.as_secs_f32())])
        }
        TaskState::Dead(why) => cells("dead", vec![why.clone()]),
    }
}

/// The device names of a task: `CPU:0`, and `CPU:0-3` for consecutive ones.
fn devices(names: &[String]) -> String {
    let mut runs: Vec<(String, u32, u32)> = Vec::new();
    for name in names {
        let Ok(DeviceName { device_type, index, .. }) = name.parse() else {
            // A device name in another format is printed unchanged.
            runs.push((name.clone(), 0, 0));
            continue;
        };
        match runs.last_mut() {
            Some((of, _, last)) if *of == device_type && *last + 1 == index => *last = index,
            _ => runs.push((device_type, index, index)),
        }
    }
    let run = |(kind, first, last): &(String, u32, u32)| match (kind.contains('/'), first == last) {
        (true, _) => kind.clone(),
        (false, true) => format!("{kind}:{first}"),
        (false, false) => format!("{kind}:{first}-{last}"),
    };
    let runs: Vec<String> = runs.iter().map(run).collect();
    if runs.is_empty() { "none".into() } else { runs.join(",") }
}

/// A sentence about an accelerator.
fn accelerator(device: &AcceleratorInfo) -> String {
    format!(
        "{} ({}) has compiled {} programs, loaded {} and run them {} times; {} of {} in use, {} at most",
        devices(std::slice::from_ref(&device.name)),
        device.kind,
        device.compilations,
        device.loads,
        device.executions,
        bytes(device.memory_used_bytes),
        bytes(device.memory_limit_bytes),
        bytes(device.memory_peak_bytes),
    )
}

fn accelerator_json(device: &AcceleratorInfo) -> Value {
    json!({
        "name": device.name,
        "kind": device.kind,
        "compilations": device.compilations,
        "loads": device.loads,
        "executions": device.executions,
        "bytes_from_host": device.bytes_from_host,
        "bytes_to_host": device.bytes_to_host,
        "memory": {
            "used_bytes": device.memory_used_bytes,
            "peak_bytes": device.memory_peak_bytes,
            "limit_bytes": device.memory_limit_bytes,
        },
    })
}

fn seconds(milliseconds: u64) -> String {
    match milliseconds / 1000 {
        0..60 => format!("{}.{} s", milliseconds / 1000, milliseconds % 1000 / 100),
        s @ 60..7200 => format!("{} min {} s", s / 60, s % 60),
        s => format!("{} h {} min", s / 3600, s % 3600 / 60),
    }
}

fn bytes(count: u64) -> String {
    match count {
        0..1_000 => format!("{count} B"),
        1_000..1_000_000 => format!("{:.1} kB", count as f64 / 1e3),
        1_000_000..1_000_000_000 => format!("{:.1} MB", count as f64 / 1e6),
        _ => format!("{:.2} GB", count as f64 / 1e9),
    }
}

fn task_json(report: &TaskReport) -> Value {
    let mut json = json!({ "task": short(&report.task), "address": report.address });
    let more = match &report.state {
        TaskState::Alive(s) => json!({
            "state": "alive",
            "name": s.task,
            "version": s.version,
            "incarnation": s.incarnation,
            "process": s.process,
            "uptime_seconds": s.uptime_ms as f64 / 1e3,
            "devices": s.devices,
            "accelerators": s.accelerators.iter().map(accelerator_json).collect::<Vec<_>>(),
            "threads": s.threads,
            "sessions": { "of_clients": s.master_sessions, "of_masters": s.worker_sessions },
            "steps": {
                "as_master": s.master_steps,
                "as_master_failed": s.master_steps_failed,
                "as_worker": s.worker_steps,
                "as_worker_failed": s.worker_steps_failed,
                "now": s.steps_now,
            },
            "memory": { "resident_bytes": s.resident_bytes, "limit_bytes": s.memory_limit_bytes },
            "variables": { "count": s.variables, "bytes": s.variable_bytes },
            "other_state": s.resources,
            "silent": s.silent.iter().map(|silent| json!({
                "task": shortened(&silent.task),
                "seconds": silent.silent_ms as f64 / 1e3,
            })).collect::<Vec<_>>(),
        }),
        TaskState::Foreign(devices) => {
            json!({ "state": "alive", "version": Value::Null, "devices": devices })
        }
        TaskState::Silent => json!({ "state": "silent" }),
        TaskState::Dead(why) => json!({ "state": "dead", "why": why }),
    };
    if let (Value::Object(json), Value::Object(more)) = (&mut json, more) {
        json.extend(more);
    }
    json
}

/// The waits of all tasks, longest first. A tensor that both its sender and its receiver report
/// counts once.
fn all_waits(reports: &[TaskReport]) -> Vec<WaitInfo> {
    let mut found: BTreeMap<(i32, u64, String, String, String), WaitInfo> = BTreeMap::new();
    for report in reports {
        let TaskState::Alive(status) = &report.state else { continue };
        for wait in &status.waits {
            let (task, of, what) = (wait.task.clone(), wait.of.clone(), wait.what.clone());
            let kept =
                found.entry((wait.kind, wait.step, task, of, what)).or_insert_with(|| wait.clone());
            kept.waited_ms = kept.waited_ms.max(wait.waited_ms);
        }
    }
    let mut waits: Vec<WaitInfo> = found.into_values().collect();
    waits.sort_by_key(|wait| std::cmp::Reverse(wait.waited_ms));
    waits
}

fn show_waits(waits: &[WaitInfo], out: &mut dyn Write) -> Result<(), Failure> {
    if waits.is_empty() {
        writeln!(out, "no step waits")?;
    }
    for wait in waits {
        let (who, whom) = (shortened(&wait.task), shortened(&wait.of));
        let what = match wait.kind() {
            WaitKind::Tensor => format!("for {} of {whom}", tensor(&wait.what)),
            WaitKind::Partition => format!("for {whom} to run its partition"),
            WaitKind::Task => format!("for {whom} to start, to open a session"),
            WaitKind::Node if wait.on.is_empty() => format!("in '{}' ({})", wait.what, wait.op),
            WaitKind::Node => {
                format!("in '{}' ({}) on '{}'", wait.what, wait.op, wait.on)
            }
        };
        let step = if wait.step == 0 { String::new() } else { format!(" in step {}", wait.step) };
        writeln!(out, "{who} has waited for {}{step} {what}", seconds(wait.waited_ms))?;
    }
    Ok(())
}

/// The tensor of a rendezvous key.
fn tensor(key: &str) -> String {
    let parts: Vec<&str> = key.split(';').collect();
    match parts[..] {
        [_, _, _, name, "0:0"] => format!("tensor {name}"),
        [_, _, _, name, frame] => format!("tensor {name} of iteration {frame}"),
        _ => format!("tensor {key}"),
    }
}

fn wait_json(wait: &WaitInfo) -> Value {
    let kind = match wait.kind() {
        WaitKind::Node => "node",
        WaitKind::Tensor => "tensor",
        WaitKind::Partition => "part",
        WaitKind::Task => "task",
    };
    let some = |text: &str| if text.is_empty() { Value::Null } else { json!(text) };
    json!({
        "kind": kind,
        "step": wait.step,
        "task": shortened(&wait.task),
        "of": some(&shortened(&wait.of)),
        "what": some(&wait.what),
        "op": some(&wait.op),
        "on": some(&wait.on),
        "seconds": wait.waited_ms as f64 / 1e3,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use thalweg_cluster::own_messages::StatusResponse;

    fn alive(job: &str, waits: Vec<WaitInfo>) -> TaskReport {
        let task = TaskName::new(job, 0);
        let status = StatusResponse {
            task: task.to_string(),
            version: "1.0".into(),
            devices: (0..2).map(|i| DeviceName::cpu(job, 0, i).to_string()).collect(),
            variables: 2,
            variable_bytes: 1500,
            uptime_ms: 61_000,
            waits,
            ..Default::default()
        };
        let state = TaskState::Alive(Box::new(status));
        TaskReport { task, address: "h:1".into(), state }
    }

    #[test]
    fn tables_have_a_row_for_each_task() {
        let dead = TaskReport {
            task: TaskName::new("worker", 3),
            address: "host:22222".into(),
            state: TaskState::Dead("it is gone".into()),
        };
        let mut text = Vec::new();
        table(&[alive("ps", Vec::new()), dead], &mut text).unwrap();
        let text = String::from_utf8(text).unwrap();
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines.len(), 3, "{text}");
        assert!(
            lines[1].starts_with("ps/0      alive  h:1         1.0      CPU:0-1  1 min"),
            "{text}"
        );
        assert!(lines[1].ends_with("2 (1.5 kB)"), "{text}");
        assert_eq!(lines[2], "worker/3  dead   host:22222  it is gone");
    }

    #[test]
    fn devices_in_short() {
        let names = |words: &[&str]| {
            let name = |word: &&str| format!("/job:ps/replica:0/task:0/device:{word}");
            devices(&words.iter().map(name).collect::<Vec<_>>())
        };
        assert_eq!(names(&["CPU:0"]), "CPU:0");
        assert_eq!(names(&["CPU:0", "CPU:1", "CPU:2", "GPU:0", "GPU:2"]), "CPU:0-2,GPU:0,GPU:2");
        assert_eq!(names(&[]), "none");
        assert_eq!(devices(&["/odd".into(), "/odd".into()]), "/odd,/odd");
    }

    #[test]
    fn both_sides_of_a_wait_are_one() {
        let key = "/job:ps/replica:0/task:0/device:CPU:0;0000000000000001;\
                   /job:worker/replica:0/task:0/device:CPU:0;edge_1_v;0:0";
        let wait = |waited_ms| WaitInfo {
            kind: WaitKind::Tensor as i32,
            step: 9,
            task: "/job:worker/replica:0/task:0".into(),
            of: "/job:ps/replica:0/task:0".into(),
            what: key.into(),
            waited_ms,
            ..Default::default()
        };
        let reports = [alive("ps", vec![wait(1000)]), alive("worker", vec![wait(1200)])];
        let waits = all_waits(&reports);
        let mut text = Vec::new();
        show_waits(&waits, &mut text).unwrap();
        let expected = "worker/0 has waited for 1.2 s in step 9 for tensor edge_1_v of ps/0\n";
        assert_eq!(String::from_utf8(text).unwrap(), expected);
    }
}
