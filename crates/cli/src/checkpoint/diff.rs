//! `thalweg checkpoint diff`: compares two checkpoints.

use std::io::Write;

use serde_json::{Value as Json, json};
use thalweg_tensor::{DType, Result, Tensor, err};

use super::open;
use super::source::Source;
use crate::Failure;
use crate::output::{Elements, Scalar};

/// The difference of one tensor.
enum Difference {
    OnlyLeft,
    OnlyRight,
    /// Other dtypes or shapes.
    Kind(String, String),
    Values(Values),
}

/// Different elements of two tensors with the same dtype and shape.
struct Values {
    count: usize,
    all: usize,
    /// The maximum absolute difference, for numbers.
    distance: Option<f64>,
}

impl Difference {
    fn json(&self, name: &str) -> Json {
        match self {
            Difference::OnlyLeft => json!({"name": name, "what": "only left"}),
            Difference::OnlyRight => json!({"name": name, "what": "only right"}),
            Difference::Kind(left, right) => {
                json!({"name": name, "what": "kind", "left": left, "right": right})
            }
            Difference::Values(values) => json!({
                "name": name, "what": "values", "different": values.count, "elements": values.all,
                "largest": values.distance,
            }),
        }
    }

    fn text(&self, name: &str) -> String {
        match self {
            Difference::OnlyLeft => format!("- {name}"),
            Difference::OnlyRight => format!("+ {name}"),
            Difference::Kind(left, right) => format!("! {name}: {left}, {right}"),
            Difference::Values(Values { count, all, distance }) => {
                let by = distance.map_or(String::new(), |d| format!(", by up to {d}"));
                format!("~ {name}: {count} of {all} elements differ{by}")
            }
        }
    }
}

/// Prints the differences; fails if there are any.
pub(super) fn run(
    left: &str,
    right: &str,
    tolerance: f64,
    json: bool,
    out: &mut dyn Write,
) -> Result<(), Failure> {
    if tolerance.is_nan() || tolerance < 0.0 {
        return Err(Failure::Usage(format!(
            "--tolerance {tolerance} must be 0 or a positive number"
        )));
    }
    let (left, right) = (open(left)?, open(right)?);
    let (mut names, others) = (left.names(), right.names());
    let mut count = 0;
    names.extend(others.iter().filter(|name| left.info(name).is_err()).cloned());
    names.sort();
    let mut listed = Vec::new();
    for name in &names {
        let Some(difference) = compare(&left, &right, name, tolerance)? else { continue };
        count += 1;
        if json {
            listed.push(difference.json(name));
        } else {
            writeln!(out, "{}", difference.text(name))?;
        }
    }
    if json {
        let all = json!({
            "left": left.path, "right": right.path, "tensors": names.len(), "different": listed,
        });
        writeln!(out, "{all}")?;
    } else if count == 0 {
        writeln!(out, "{} tensors are the same", names.len())?;
    }
    match count {
        0 => Ok(()),
        n => Err(err!(Aborted, "{n} of {} tensors differ", names.len()).into()),
    }
}

fn compare(
    left: &Source,
    right: &Source,
    name: &str,
    tolerance: f64,
) -> Result<Option<Difference>> {
    let (Ok(a), b) = (left.info(name), right.info(name)) else {
        return Ok(Some(Difference::OnlyRight));
    };
    let Ok(b) = b else { return Ok(Some(Difference::OnlyLeft)) };
    if (a.dtype, &a.shape) != (b.dtype, &b.shape) {
        let shown = |dtype, shape| format!("{dtype} {shape}");
        let (a, b) = (shown(a.dtype, a.shape), shown(b.dtype, b.shape));
        return Ok(Some(Difference::Kind(a, b)));
    }
    let values = compare_values(&left.read(name)?, &right.read(name)?, tolerance)?;
    Ok(values.map(Difference::Values))
}

fn compare_values(a: &Tensor, b: &Tensor, tolerance: f64) -> Result<Option<Values>> {
    if let (Ok(a), Ok(b)) = (a.as_bytes(), b.as_bytes())
        && a == b
    {
        return Ok(None);
    }
    let mut values = Values { count: 0, all: a.num_elements(), distance: None };
    if a.dtype() == DType::Variant {
        let (a, b) = (a.to_proto()?.variant_val, b.to_proto()?.variant_val);
        values.count = a.iter().zip(&b).filter(|(a, b)| a != b).count();
        return Ok((values.count > 0).then_some(values));
    }
    let (x, y) = (Elements::new(a)?, Elements::new(b)?);
    for i in 0..a.num_elements() {
        let (a, b) = (x.get(i), y.get(i));
        if a == b {
            continue;
        }
        let distance = distance(&a, &b);
        // NaN equals NaN here.
        if matches!(distance, Some(Some(d)) if d <= tolerance) || distance == Some(None) {
            continue;
        }
        values.count += 1;
        let distance = distance.flatten().unwrap_or(0.0);
        values.distance = match values.distance {
            Some(old) if old >= distance || old.is_nan() => Some(old),
            _ if distance > 0.0 || distance.is_nan() => Some(distance),
            old => old,
        };
    }
    Ok((values.count > 0).then_some(values))
}

/// The absolute difference of two numbers, `Some(None)` if both are NaN; `None` for other
/// elements.
fn distance(a: &Scalar, b: &Scalar) -> Option<Option<f64>> {
    let between =
        |a: f64, b: f64| if a.is_nan() && b.is_nan() { None } else { Some((a - b).abs()) };
    match (a, b) {
        (Scalar::Single(a), Scalar::Single(b)) => Some(between((*a).into(), (*b).into())),
        (Scalar::Double(a), Scalar::Double(b)) => Some(between(*a, *b)),
        (Scalar::Int(a), Scalar::Int(b)) => Some(Some(a.abs_diff(*b) as f64)),
        (Scalar::Complex(a, b), Scalar::Complex(c, d)) => Some(Some((a - c).hypot(b - d))),
        _ => None,
    }
}
