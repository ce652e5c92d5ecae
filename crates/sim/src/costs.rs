//! Measured costs as JSON, to be saved and loaded.

use serde_json::{Value, json};
use thalweg_plan::{MeasuredCosts, Measurement};
use thalweg_tensor::{Result, Shape, bail, err};

/// The number of the format.
const VERSION: u64 = 1;

/// The text of a file.
pub fn to_json(costs: &MeasuredCosts) -> String {
    let entry = |(node, device, m): (&str, &str, &Measurement)| {
        let shapes = m.shapes.iter().map(|(slot, shape)| json!([slot, shape.dims()]));
        json!({
            "node": node,
            "device": device,
            "seconds": m.seconds,
            "count": m.count,
            "shapes": shapes.collect::<Vec<_>>(),
            "bytes": m.bytes,
        })
    };
    // One measurement on a line: such files are compared.
    let lines: Vec<String> = costs.iter().map(|found| entry(found).to_string()).collect();
    format!("{{\"version\":{VERSION},\"measurements\":[\n{}\n]}}\n", lines.join(",\n"))
}

/// The measurements in the text of a file.
pub fn from_json(text: &str) -> Result<MeasuredCosts> {
    let value: Value = serde_json::from_str(text)
        .map_err(|e| err!(InvalidArgument, "these are no measured costs: {e}"))?;
    if value["version"] != json!(VERSION) {
        bail!(
            InvalidArgument,
            "these are no measured costs of version {VERSION}: the version is {}",
            value["version"]
        );
    }
    let list = value["measurements"].as_array();
    let list = list.ok_or_else(|| err!(InvalidArgument, "measured costs lack 'measurements'"))?;
    let mut costs = MeasuredCosts::default();
    for (i, entry) in list.iter().enumerate() {
        let (node, device, measurement) = measurement(entry)
            .ok_or_else(|| err!(InvalidArgument, "measurement {i} is malformed: {entry}"))?;
        costs.insert(node, device, measurement);
    }
    Ok(costs)
}

fn measurement(entry: &Value) -> Option<(&str, &str, Measurement)> {
    let shape = |pair: &Value| {
        let slot = u32::try_from(pair.get(0)?.as_u64()?).ok()?;
        let dims: Option<Vec<i64>> = pair.get(1)?.as_array()?.iter().map(Value::as_i64).collect();
        Some((slot, Shape::from_i64(&dims?).ok()?))
    };
    let seconds = entry["seconds"].as_f64().filter(|s| s.is_finite() && *s >= 0.0)?;
    let shapes: Option<Vec<_>> = entry["shapes"].as_array()?.iter().map(shape).collect();
    let bytes: Option<Vec<u64>> = entry["bytes"].as_array()?.iter().map(Value::as_u64).collect();
    let measurement =
        Measurement { seconds, count: entry["count"].as_u64()?, shapes: shapes?, bytes: bytes? };
    Some((entry["node"].as_str()?, entry["device"].as_str()?, measurement))
}

#[cfg(test)]
mod tests {
    use thalweg_plan::NodeRun;

    use super::*;

    #[test]
    fn what_is_saved_is_loaded() {
        let mut costs = MeasuredCosts::default();
        let shape = Shape::new(&[2, 3]).unwrap();
        for seconds in [5.0, 1.0, 2.0] {
            let outputs = vec![(0, shape.clone(), 24)];
            costs.record(&NodeRun { node: "a/b", device: "/job:x", seconds, outputs });
        }
        let text = to_json(&costs);
        let loaded = from_json(&text).unwrap();
        assert_eq!(to_json(&loaded), text);
        let (node, device, m) = loaded.iter().next().unwrap();
        assert_eq!((node, device, m.count, m.bytes[0]), ("a/b", "/job:x", 3, 24));
        // The first run is forgotten, later ones decay.
        assert_eq!(m.seconds, 1.25);
    }

    #[test]
    fn mistakes_are_named() {
        for (text, part) in [
            ("[", "no measured costs"),
            ("{}", "version"),
            ("{\"version\":1}", "lack 'measurements'"),
            ("{\"version\":1,\"measurements\":[{\"node\":1}]}", "measurement 0 is malformed"),
            (
                "{\"version\":1,\"measurements\":[{\"node\":\"a\",\"device\":\"b\",\"seconds\":-1,\
              \"count\":1,\"shapes\":[],\"bytes\":[]}]}",
                "malformed",
            ),
        ] {
            let e = from_json(text).unwrap_err();
            assert!(e.to_string().contains(part), "{text}: {e}");
        }
    }
}
