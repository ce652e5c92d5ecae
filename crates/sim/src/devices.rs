//! `devices.toml`: devices and links with their speeds, for simulations, servers and calibration.
//!
//! ```toml
//! [[device]]
//! name = "/job:worker/task:0/device:GPU:0"
//! flops = 60e12
//! memory_bandwidth = "3 TB/s"
//! memory = "80 GB"
//!
//! [link]                      # all links
//! latency = "50 us"
//! bandwidth = "1.2 GB/s"
//!
//! [[link]]                    # one link, in both directions
//! between = ["/job:ps/task:0", "/job:worker/task:0"]
//! latency = "1 ms"
//! ```

use std::collections::BTreeSet;

use thalweg_kernel::{DeviceDescription, DeviceName, DeviceSpec};
use thalweg_plan::{DeviceSpeed, DeviceSpeeds, Links};
use thalweg_tensor::{Context, Result, bail, ensure, err};
use toml::{Table, Value};

use crate::units;

/// Most devices of a file.
const DEVICES_MAX: usize = 100_000;
/// Memory of a device whose file does not say how much it has.
const MEMORY_BYTES: u64 = 16 << 30;

/// Devices and the links between them.
#[derive(Clone, Debug, Default)]
pub struct Machines {
    /// The devices, by the name or pattern that the file gives, with what it says of them.
    pub devices: Vec<(DeviceSpec, DeviceSpeed)>,
    /// The links.
    pub links: Links,
}

impl Machines {
    /// Reads the text of a file; an error names the entry.
    pub fn parse(text: &str) -> Result<Machines> {
        let table: Table = with_link_entries(text)
            .parse()
            .map_err(|e: toml::de::Error| err!(InvalidArgument, "{}", e.to_string().trim_end()))?;
        check_keys(&table, &["device", "link"])?;
        let mut machines = Machines::default();
        for (i, entry) in entries(&table, "device")?.into_iter().enumerate() {
            machines.add_device(entry).context(|| format!("[[device]] number {}", i + 1))?;
        }
        for (i, entry) in entries(&table, "link")?.into_iter().enumerate() {
            machines.add_link(entry).context(|| format!("[[link]] number {}", i + 1))?;
        }
        Ok(machines)
    }

    fn add_device(&mut self, entry: &Table) -> Result<()> {
        check_keys(entry, &["name", "tasks", "flops", "memory_bandwidth", "start", "memory"])?;
        let name = text_of(entry, "name")?
            .ok_or_else(|| err!(InvalidArgument, "it lacks its name, /job:JOB/task:N"))?;
        let spec: DeviceSpec = name.parse()?;
        let speed = DeviceSpeed {
            flops_per_second: positive(entry, "flops", units::rate)?,
            memory_bytes_per_second: positive(entry, "memory_bandwidth", units::rate)?,
            start_seconds: quantity(entry, "start", units::seconds)?,
            memory_bytes: positive(entry, "memory", units::bytes)?.map(|b| b as u64),
        };
        let Some(tasks) = entry.get("tasks") else {
            self.devices.push((spec, speed));
            return self.check_count();
        };
        let tasks = tasks.as_integer().filter(|n| (1..=DEVICES_MAX as i64).contains(n));
        let tasks = tasks.ok_or_else(|| {
            err!(InvalidArgument, "tasks must be a number from 1 to {DEVICES_MAX}")
        })?;
        let first = spec.task.unwrap_or(0);
        for task in 0..tasks as u32 {
            self.devices.push((DeviceSpec { task: Some(first + task), ..spec.clone() }, speed));
            self.check_count()?;
        }
        Ok(())
    }

    fn check_count(&self) -> Result<()> {
        let count = self.devices.len();
        ensure!(count <= DEVICES_MAX, InvalidArgument, "there are more than {DEVICES_MAX} devices");
        Ok(())
    }

    fn add_link(&mut self, entry: &Table) -> Result<()> {
        check_keys(entry, &["between", "latency", "bandwidth"])?;
        let latency = quantity(entry, "latency", units::seconds)?;
        let bandwidth = positive(entry, "bandwidth", units::rate)?;
        let over = |(own_latency, own_bandwidth): (f64, f64)| {
            (latency.unwrap_or(own_latency), bandwidth.unwrap_or(own_bandwidth))
        };
        let Some(between) = entry.get("between") else {
            self.links.between_tasks = over(self.links.between_tasks);
            return Ok(());
        };
        let ends: Option<Vec<&str>> =
            between.as_array().map(|ends| ends.iter().filter_map(Value::as_str).collect());
        let Some([from, to]) = ends.as_deref() else {
            bail!(InvalidArgument, "between must be a list of two device names");
        };
        let (from, to): (DeviceSpec, DeviceSpec) = (from.parse()?, to.parse()?);
        let is_within = from.job.is_some() && (&from.job, from.task) == (&to.job, to.task);
        let usual = if is_within { self.links.within_task } else { self.links.between_tasks };
        self.links.exceptions.push((from.clone(), to.clone(), over(usual)));
        self.links.exceptions.push((to, from, over(usual)));
        Ok(())
    }

    /// The speeds, for devices that exist.
    pub fn speeds(&self) -> DeviceSpeeds {
        DeviceSpeeds(self.devices.clone())
    }

    /// Descriptions of the devices, which need not exist; parts that a name leaves out are those of
    /// CPU 0 of task 0. The first one is the client's.
    pub fn descriptions(&self) -> Result<Vec<DeviceDescription>> {
        ensure!(!self.devices.is_empty(), InvalidArgument, "there is no [[device]]");
        let mut seen = BTreeSet::new();
        let mut all = Vec::with_capacity(self.devices.len());
        for (spec, speed) in &self.devices {
            let name = DeviceName {
                job: spec.job.clone().unwrap_or_else(|| "localhost".into()),
                replica: spec.replica.unwrap_or(0),
                task: spec.task.unwrap_or(0),
                device_type: spec.device_type.clone().unwrap_or_else(|| "CPU".into()),
                index: spec.index.unwrap_or(0),
            };
            ensure!(seen.insert(name.clone()), InvalidArgument, "{name} is there twice");
            all.push(description(name, speed));
        }
        Ok(all)
    }
}

fn description(name: DeviceName, speed: &DeviceSpeed) -> DeviceDescription {
    let mut device = DeviceDescription::cpu(name, speed.memory_bytes.unwrap_or(MEMORY_BYTES));
    if device.is_accelerator() {
        device.flops_per_second = 5e13;
        device.memory_bytes_per_second = 2e12;
        device.start_seconds = 1e-7;
        device.shares_host_memory = false;
    }
    let everything = DeviceSpec::default();
    DeviceSpeeds(vec![(everything, *speed)]).describe(device)
}

/// The text with `[link]` as one more `[[link]]`: TOML itself allows only one of the two forms.
fn with_link_entries(text: &str) -> String {
    let line = |line: &str| match line.split('#').next().map(str::trim) {
        Some("[link]") => "[[link]]".to_owned(),
        _ => line.to_owned(),
    };
    text.lines().map(line).collect::<Vec<_>>().join("\n")
}

fn entries<'a>(table: &'a Table, key: &str) -> Result<Vec<&'a Table>> {
    let Some(value) = table.get(key) else { return Ok(Vec::new()) };
    let list = value.as_array().map(|list| list.iter().map(Value::as_table).collect());
    let list: Option<Option<Vec<&Table>>> = list;
    list.flatten().ok_or_else(|| err!(InvalidArgument, "{key} must be written [[{key}]]"))
}

fn check_keys(table: &Table, known: &[&str]) -> Result<()> {
    match table.keys().find(|key| !known.contains(&key.as_str())) {
        Some(key) => {
            bail!(InvalidArgument, "there is no key '{key}': there are {}", known.join(", "))
        }
        None => Ok(()),
    }
}

fn text_of<'a>(table: &'a Table, key: &str) -> Result<Option<&'a str>> {
    match table.get(key) {
        None => Ok(None),
        Some(Value::String(text)) => Ok(Some(text)),
        Some(_) => bail!(InvalidArgument, "{key} must be a string"),
    }
}

/// A number, or a string with a unit.
fn quantity(table: &Table, key: &str, parse: fn(&str) -> Result<f64>) -> Result<Option<f64>> {
    let value = match table.get(key) {
        None => return Ok(None),
        Some(Value::Integer(n)) => *n as f64,
        Some(Value::Float(x)) => *x,
        Some(Value::String(text)) => parse(text).context(|| key)?,
        Some(_) => bail!(InvalidArgument, "{key} must be a number, or a string with a unit"),
    };
    ensure!(
        value.is_finite() && value >= 0.0,
        InvalidArgument,
        "{key} must be a finite number that is not negative"
    );
    Ok(Some(value))
}

fn positive(table: &Table, key: &str, parse: fn(&str) -> Result<f64>) -> Result<Option<f64>> {
    let value = quantity(table, key, parse)?;
    ensure!(value != Some(0.0), InvalidArgument, "{key} must be above 0");
    Ok(value)
}

#[cfg(test)]
mod tests {
    use thalweg_tensor::Code;

    use super::*;

    const FILE: &str = r#"
[[device]]
name = "/job:worker/task:0/device:GPU:0"
flops = 60e12
memory_bandwidth = 3e12
memory = "80 GB"
[[device]]
name = "/job:ps"
tasks = 2
[link]  # all
latency = "50 us"
bandwidth = "1.2 GB/s"
[[link]]
between = ["/job:ps/task:0", "/job:worker/task:0"]
latency = "1 ms"
"#;

    #[test]
    fn devices_and_links_are_read() {
        let machines = Machines::parse(FILE).unwrap();
        let devices = machines.descriptions().unwrap();
        let names: Vec<String> = devices.iter().map(|d| d.name.to_string()).collect();
        let expected = [
            "/job:worker/replica:0/task:0/device:GPU:0",
            "/job:ps/replica:0/task:0/device:CPU:0",
            "/job:ps/replica:0/task:1/device:CPU:0",
        ];
        assert_eq!(names, expected);
        assert_eq!((devices[0].flops_per_second, devices[0].memory_bytes), (60e12, 80_000_000_000));
        let link = |a: usize, b: usize| machines.links.between(&devices[a].name, &devices[b].name);
        assert_eq!(link(0, 1), (1e-3, 1.2e9));
        assert_eq!(link(1, 0), (1e-3, 1.2e9));
        assert_eq!(link(0, 2), (5e-5, 1.2e9));
    }

    #[test]
    fn mistakes_name_their_entry() {
        for (text, part) in [
            ("[[device]]\nname = 3", "[[device]] number 1: name must be a string"),
            ("[[device]]\nflops = 1", "lacks its name"),
            ("[[device]]\nname = \"/job:a\"\nflops = 0", "flops must be above 0"),
            ("[[device]]\nname = \"/job:a\"\nflops = -1", "not negative"),
            ("[[device]]\nname = \"/job:a\"\nmemory = \"8 apples\"", "apples"),
            ("[[device]]\nname = \"/job:a\"\ntasks = 1000000000", "tasks must be"),
            ("[[device]]\nname = \"nonsense\"", "malformed device specification"),
            ("[[link]]\nbetween = [\"/job:a\"]", "two device names"),
            ("[[link]]\nlatency = \"1 day\"", "day"),
            ("speed = 1", "there is no key 'speed'"),
            ("[[device", "TOML"),
        ] {
            let e = Machines::parse(text).and_then(|m| m.descriptions()).unwrap_err();
            assert_eq!(e.code(), Code::InvalidArgument, "{text}");
            assert!(e.to_string().contains(part), "{text}: {e}");
        }
        let twice = "[[device]]\nname = \"/job:a\"\n[[device]]\nname = \"/job:a\"";
        let e = Machines::parse(twice).unwrap().descriptions().unwrap_err();
        assert!(e.to_string().contains("is there twice"), "{e}");
    }
}
