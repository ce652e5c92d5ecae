//! What the dashboard needs of a simulator, and the changes that a client asks for.

use std::collections::BTreeMap;

use serde_json::{Map, Value};
use thalweg_tensor::{Result, bail, ensure, err};

/// Most devices, links and failures that a request names.
const CHANGES_MAX: usize = 10_000;
/// Most bytes of a name in a request.
const NAME_BYTES_MAX: usize = 1_024;
/// Factors of speeds.
const FACTORS: std::ops::RangeInclusive<f64> = 1e-6..=1e6;
/// Most workers and parameter servers.
const TASKS_MAX: u64 = 100_000;

/// Simulates a graph on devices that need not exist.
pub trait Simulation: Send + Sync {
    /// `GET /api/simulation`: the devices, links and algorithms there are.
    fn describe(&self) -> Value;

    /// Simulates with these changes; blocks while it does.
    fn simulate(&self, changes: &Changes) -> Result<Simulated>;
}

/// The result of a simulation.
pub struct Simulated {
    /// One step, as `/api/step` has it, with `placement` and `what_if`.
    pub timeline: Value,
    /// The same step as trace events.
    pub trace_events: String,
    /// The training, or null.
    pub train: Value,
}

/// What differs from the original; what is absent is unchanged.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Changes {
    /// The algorithm of the placement.
    pub algorithm: Option<String>,
    /// Factors of the speeds of devices.
    pub device_speed: BTreeMap<String, f64>,
    /// Factors of the speeds of links; `*` is all of them.
    pub link_speed: BTreeMap<String, f64>,
    /// The training.
    pub train: Option<TrainChanges>,
}

/// What differs in the training.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TrainChanges {
    /// Number of workers.
    pub workers: Option<u64>,
    /// Number of parameter servers.
    pub ps: Option<u64>,
    /// Number of spare workers.
    pub spare: Option<u64>,
    /// `sync`, `async`, `backup` or `stale`.
    pub mode: Option<String>,
    /// Failures, such as `ps/0@3s`.
    pub failures: Vec<String>,
    /// How much slower stragglers are.
    pub straggler: Option<f64>,
}

impl Changes {
    /// Reads the body of `POST /api/simulation`.
    pub(crate) fn parse(body: &[u8]) -> Result<Changes> {
        let json: Value = serde_json::from_slice(body)
            .map_err(|e| err!(InvalidArgument, "the request is not JSON: {e}"))?;
        let mut changes = Changes::default();
        for (key, value) in object("the request", &json)? {
            match key.as_str() {
                "algorithm" => changes.algorithm = Some(name(key, value)?),
                "device_speed" => changes.device_speed = factors(key, value)?,
                "link_speed" => changes.link_speed = factors(key, value)?,
                "train" if value.is_null() => {}
                "train" => changes.train = Some(TrainChanges::read(value)?),
                _ => bail!(InvalidArgument, "the request has an unknown key '{key}'"),
            }
        }
        Ok(changes)
    }
}

impl TrainChanges {
    fn read(value: &Value) -> Result<TrainChanges> {
        let mut train = TrainChanges::default();
        for (key, value) in object("train", value)? {
            match key.as_str() {
                "workers" => train.workers = Some(count(key, value)?),
                "ps" => train.ps = Some(count(key, value)?),
                "spare" => train.spare = Some(count(key, value)?),
                "mode" => train.mode = Some(name(key, value)?),
                "straggler" => train.straggler = Some(number(key, value)?),
                "failures" => {
                    let list = value.as_array().filter(|list| list.len() <= CHANGES_MAX);
                    let list = list.ok_or_else(|| {
                        err!(InvalidArgument, "'failures' must be a list of at most {CHANGES_MAX}")
                    })?;
                    train.failures = list.iter().map(|v| name(key, v)).collect::<Result<_>>()?;
                }
                _ => bail!(InvalidArgument, "'train' has an unknown key '{key}'"),
            }
        }
        Ok(train)
    }
}

fn object<'a>(what: &str, value: &'a Value) -> Result<&'a Map<String, Value>> {
    value.as_object().ok_or_else(|| err!(InvalidArgument, "{what} must be a JSON object"))
}

fn name(key: &str, value: &Value) -> Result<String> {
    let text = value.as_str().filter(|text| text.len() <= NAME_BYTES_MAX);
    text.map(str::to_owned).ok_or_else(|| err!(InvalidArgument, "'{key}' must be a short text"))
}

fn number(key: &str, value: &Value) -> Result<f64> {
    let number = value.as_f64().filter(|x| x.is_finite() && *x >= 0.0);
    number.ok_or_else(|| err!(InvalidArgument, "'{key}' must be a number of at least 0"))
}

fn count(key: &str, value: &Value) -> Result<u64> {
    let count = value.as_u64().filter(|&count| count <= TASKS_MAX);
    count.ok_or_else(|| err!(InvalidArgument, "'{key}' must be a number from 0 to {TASKS_MAX}"))
}

fn factors(key: &str, value: &Value) -> Result<BTreeMap<String, f64>> {
    let factors = object(&format!("'{key}'"), value)?;
    ensure!(
        factors.len() <= CHANGES_MAX,
        InvalidArgument,
        "'{key}' has more than {CHANGES_MAX} entries"
    );
    let factor = |(of, value): (&String, &Value)| {
        let factor = number(of, value)?;
        ensure!(
            FACTORS.contains(&factor),
            InvalidArgument,
            "the factor of '{of}' must be from {:e} to {:e}",
            FACTORS.start(),
            FACTORS.end()
        );
        Ok((of.clone(), factor))
    };
    factors.iter().map(factor).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_example_of_the_api_is_read() {
        let changes = Changes::parse(
            br#"{"algorithm":"etf","device_speed":{"/job:a":2.0},"link_speed":{"*":0.5},
                "train":{"workers":8,"ps":2,"spare":1,"mode":"backup","failures":["ps/0@3s"],"straggler":0.1}}"#,
        )
        .unwrap();
        assert_eq!(
            (changes.algorithm.as_deref(), changes.device_speed["/job:a"]),
            (Some("etf"), 2.0)
        );
        let train = changes.train.unwrap();
        assert_eq!((train.workers, train.ps, train.spare), (Some(8), Some(2), Some(1)));
        assert_eq!((train.failures, train.straggler), (vec!["ps/0@3s".to_owned()], Some(0.1)));
        assert_eq!(Changes::parse(br#"{"train":null}"#).unwrap(), Changes::default());
    }

    #[test]
    fn what_is_not_understood_is_refused() {
        for body in [
            "",
            "[]",
            "{",
            r#"{"unknown":1}"#,
            r#"{"algorithm":7}"#,
            r#"{"device_speed":{"a":0}}"#,
            r#"{"device_speed":{"a":-1}}"#,
            r#"{"link_speed":{"a":1e9}}"#,
            r#"{"link_speed":[]}"#,
            r#"{"train":{"workers":-1}}"#,
            r#"{"train":{"workers":1e9}}"#,
            r#"{"train":{"workers":1.5}}"#,
            r#"{"train":{"failures":"x"}}"#,
            r#"{"train":{"x":1}}"#,
            r#"{"train":7}"#,
            r#"{"train":{"straggler":-0.5}}"#,
        ] {
            assert!(Changes::parse(body.as_bytes()).is_err(), "{body}");
        }
        // Nesting is bounded by the reader of JSON.
        assert!(Changes::parse("[".repeat(60_000).as_bytes()).is_err());
    }
}
