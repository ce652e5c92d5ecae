//! A simulation that the dashboard's sliders change.

use std::collections::BTreeMap;

use parking_lot::Mutex;
use serde_json::{Value, json};
use thalweg_dashboard::{Changes, Simulated, TrainChanges};
use thalweg_plan::Choice;
use thalweg_sim::train::{NetDescription, Straggler, TrainJob};
use thalweg_sim::{Factors, PlannedStep, Simulation, StepChoice, trace_json};
use thalweg_tensor::{Result, ensure, err};

use crate::simulate::{report, train};

/// Most tasks whose links are listed one by one.
const LISTED_TASKS_MAX: usize = 8;
/// Most workers and parameter servers of the sliders.
const WORKERS_MAX: u64 = 64;
const PS_MAX: u64 = 16;
/// Updates of the training that is played.
const UPDATES: u64 = 40;

/// A step and the training of which it is one, on the described devices.
pub(crate) struct SimulatedStep {
    simulation: Simulation,
    step: StepChoice,
    choice: Choice,
    /// The training that was asked for last; none until one is.
    train: Mutex<Option<TrainSettings>>,
}

#[derive(Clone)]
struct TrainSettings {
    workers: u64,
    ps: u64,
    spare: u64,
    mode: String,
    failures: Vec<String>,
    straggler: f64,
}

impl Default for TrainSettings {
    fn default() -> TrainSettings {
        TrainSettings {
            workers: 4,
            ps: 2,
            spare: 1,
            mode: "sync".into(),
            failures: Vec::new(),
            straggler: 0.0,
        }
    }
}

impl TrainSettings {
    fn change(&mut self, changes: &TrainChanges) {
        self.workers = changes.workers.unwrap_or(self.workers).clamp(1, WORKERS_MAX);
        self.ps = changes.ps.unwrap_or(self.ps).clamp(1, PS_MAX);
        self.spare = changes.spare.unwrap_or(self.spare).min(self.workers - 1);
        if let Some(mode) = &changes.mode {
            self.mode.clone_from(mode);
        }
        if !changes.failures.is_empty() {
            self.failures.clone_from(&changes.failures);
        }
        self.straggler = changes.straggler.unwrap_or(self.straggler);
    }
}

impl SimulatedStep {
    pub(crate) fn new(simulation: Simulation, step: StepChoice, choice: Choice) -> SimulatedStep {
        SimulatedStep { simulation, step, choice, train: Mutex::default() }
    }

    /// For each task, its short name and the position of its first device.
    fn tasks(&self) -> Vec<(String, u32)> {
        let mut tasks: Vec<(String, u32)> = Vec::new();
        for (device, i) in self.simulation.devices().iter().zip(0..) {
            let name = format!("/job:{}/task:{}", device.name.job, device.name.task);
            if !tasks.iter().any(|(known, _)| *known == name) {
                tasks.push((name, i));
            }
        }
        tasks
    }

    fn factors(&self, changes: &Changes) -> Result<Factors> {
        let mut factors = Factors::default();
        for (name, factor) in &changes.device_speed {
            let devices = self.simulation.devices();
            let device = devices.iter().position(|d| d.name.to_string() == *name);
            let device = device.ok_or_else(|| err!(InvalidArgument, "no device '{name}'"))?;
            factors.devices.insert(device as u32, *factor);
        }
        let tasks: BTreeMap<String, u32> =
            self.tasks().into_iter().zip(0..).map(|((name, _), i)| (name, i)).collect();
        for (name, factor) in &changes.link_speed {
            if name == "*" {
                factors.all_links = *factor;
                continue;
            }
            let ends = name.split_once("->");
            let ends = ends.and_then(|(a, b)| Some((*tasks.get(a)?, *tasks.get(b)?)));
            let ends = ends.ok_or_else(|| err!(InvalidArgument, "no link '{name}'"))?;
            factors.links.insert(ends, *factor);
        }
        Ok(factors)
    }

    fn train(&self, changes: &Changes, factors: &Factors) -> Result<Value> {
        let mut settings = self.train.lock();
        match (&changes.train, &mut *settings) {
            (Some(wanted), settings) => {
                settings.get_or_insert_with(TrainSettings::default).change(wanted);
            }
            (None, None) => *settings = Some(TrainSettings::default()),
            (None, Some(_)) => {}
        }
        let settings = settings.clone().unwrap_or_default();
        let work = self.simulation.work(&self.step)?;
        let bytes: u64 = work.variables.iter().map(|v| v.bytes).sum();
        if bytes == 0 {
            return Ok(Value::Null);
        }
        let net = NetDescription::dense(bytes as usize, work.variables.len(), work.flops, 32);
        let mode = train::mode(&settings.mode, settings.spare as usize, 4)?;
        let job = TrainJob::new(settings.workers as u32, settings.ps as u32, mode, net);
        let mut job = train::on_machines(job, self.simulation.machines())?;
        for (device, description) in self.simulation.devices().iter().zip(0u32..) {
            let Some(factor) = factors.devices.get(&description) else { continue };
            let of_job = match device.name.job.as_str() {
                "ps" => &mut job.server,
                _ => &mut job.worker,
            };
            of_job.flops_per_second *= factor;
            of_job.memory_bytes_per_second *= factor;
        }
        if factors.all_links > 0.0 {
            job.network.latency /= factors.all_links;
            job.network.worker_bandwidth *= factors.all_links;
            job.network.server_bandwidth *= factors.all_links;
        }
        job.straggler = Straggler { sigma: settings.straggler, ..Straggler::default() };
        job.failures =
            settings.failures.iter().map(|text| text.parse()).collect::<Result<Vec<_>>>()?;
        job.updates = UPDATES;
        job.checkpoint_every = 10;
        Ok(job.run()?.to_json())
    }
}

impl thalweg_dashboard::Simulation for SimulatedStep {
    fn describe(&self) -> Value {
        let device = |d: &thalweg_kernel::DeviceDescription| {
            json!({
                "name": d.name.to_string(),
                "type": d.name.device_type,
                "flops": d.flops_per_second,
                "memory_bandwidth": d.memory_bytes_per_second,
            })
        };
        let devices = self.simulation.devices();
        let tasks = self.tasks();
        let mut links = Vec::new();
        for (from, a) in tasks.iter().take(LISTED_TASKS_MAX) {
            for (to, b) in tasks.iter().take(LISTED_TASKS_MAX).filter(|(to, _)| to != from) {
                let (a, b) = (&devices[*a as usize].name, &devices[*b as usize].name);
                let (latency, bandwidth) = self.simulation.machines().links.between(a, b);
                links.push(json!({
                    "from": from, "to": to, "latency": latency, "bandwidth": bandwidth,
                }));
            }
        }
        let has_variables = self.simulation.work(&self.step).is_ok_and(|w| !w.variables.is_empty());
        let settings = self.train.lock().clone().unwrap_or_default();
        let train = json!({
            "workers": settings.workers,
            "workers_max": WORKERS_MAX,
            "ps": settings.ps,
            "ps_max": PS_MAX,
            "spare": settings.spare,
            "mode": settings.mode,
        });
        json!({
            "devices": devices.iter().map(device).collect::<Vec<_>>(),
            "links": links,
            "algorithms": Choice::NAMES.map(|(name, _)| name),
            "train": if has_variables { train } else { Value::Null },
        })
    }

    fn simulate(&self, changes: &Changes) -> Result<Simulated> {
        let choice = match &changes.algorithm {
            Some(name) => {
                let choice = Choice::from_name(name);
                choice.ok_or_else(|| err!(InvalidArgument, "no algorithm '{name}'"))?
            }
            None => self.choice,
        };
        let factors = self.factors(changes)?;
        let planned: PlannedStep = self.simulation.plan_with(&self.step, choice, &factors)?;
        ensure!(!planned.program.is_empty(), InvalidArgument, "the step has no nodes");
        let played = planned.play(&Factors::default());
        let what_if = planned.what_if(&played, &Factors::default());
        Ok(Simulated {
            timeline: report(&planned, &played, &what_if),
            trace_events: trace_json(&played.timeline),
            train: self.train(changes, &factors)?,
        })
    }
}
