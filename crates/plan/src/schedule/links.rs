//! Links between devices by position, since a look-up by name would be most of the time of a plan.

use rustc_hash::FxHashMap;
use thalweg_kernel::{DeviceDescription, DeviceSpec};

use crate::{Links, Target};

pub(super) struct LinkTable<'a> {
    /// For each device, a number of its task.
    tasks: Vec<u32>,
    is_accelerator: Vec<bool>,
    links: &'a Links,
    exceptions: FxHashMap<(u32, u32), (f64, f64)>,
}

impl<'a> LinkTable<'a> {
    pub(super) fn new(target: &Target<'a>) -> LinkTable<'a> {
        let devices = target.devices;
        let mut numbers = FxHashMap::default();
        let tasks = devices.iter().map(|d| {
            let next = numbers.len() as u32;
            *numbers.entry((&d.name.job, d.name.replica, d.name.task)).or_insert(next)
        });
        let tasks = tasks.collect();
        let mut exceptions = FxHashMap::default();
        for (from, to, link) in &target.links.exceptions {
            let matching = |spec: &DeviceSpec| -> Vec<u32> {
                let all = devices.iter().zip(0u32..);
                all.filter(|(d, _)| spec.matches(&d.name)).map(|(_, i)| i).collect()
            };
            let (sources, targets) = (matching(from), matching(to));
            let pairs = sources.iter().flat_map(|&a| targets.iter().map(move |&b| (a, b)));
            exceptions.extend(pairs.map(|pair| (pair, *link)));
        }
        LinkTable {
            tasks,
            is_accelerator: devices.iter().map(DeviceDescription::is_accelerator).collect(),
            links: target.links,
            exceptions,
        }
    }

    /// Time to transfer `bytes` from one device to another.
    pub(super) fn seconds(&self, from: u32, to: u32, bytes: u64) -> f64 {
        if from == to {
            return 0.0;
        }
        let (a, b) = (from as usize, to as usize);
        let (latency, rate) = match self.exceptions.get(&(from, to)) {
            Some(&link) => link,
            None => self.links.usual(
                self.tasks[a] == self.tasks[b],
                self.is_accelerator[a] || self.is_accelerator[b],
            ),
        };
        latency + bytes as f64 / rate
    }

    /// Time to transfer `bytes` over the usual link.
    pub(super) fn usual_seconds(&self, bytes: u64) -> f64 {
        let is_one_task = self.tasks.windows(2).all(|w| w[0] == w[1]);
        let (latency, rate) = self.links.usual(is_one_task, false);
        latency + bytes as f64 / rate
    }
}
