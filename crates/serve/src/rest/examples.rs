//! JSON examples of `:classify` and `:regress`.

use bytes::Bytes;
use thalweg_proto::tensorflow::serving::{self as pb, input::Kind as InputKind};
use thalweg_proto::{BytesList, Example, Feature, Features, FloatList, Int64List, feature};
use thalweg_tensor::{Result, bail, ensure};

use super::json::{Kind, Reader, base64_object};
use super::tensors::{GROWTH, Members, member, shown};
use crate::growing::GrowingCharge;

/// The examples of a request and their context; their memory is charged to `charge`.
pub(crate) fn input(members: &Members<'_>, charge: &mut GrowingCharge) -> Result<pb::Input> {
    let context = member(members, "context")
        .map(|text| example(&mut Reader::new(text), charge))
        .transpose()?;
    let Some(text) = member(members, "examples") else {
        bail!(InvalidArgument, "the key 'examples' is expected and was not found")
    };
    let mut reader = Reader::new(text);
    ensure!(
        reader.kind()? == Kind::List,
        InvalidArgument,
        "Expecting 'examples' value to be an list/array"
    );
    ensure!(reader.enter()?, InvalidArgument, "'examples' value is an empty array");
    let mut examples = Vec::new();
    loop {
        charge.add(EXAMPLE_BYTES)?;
        examples.push(example(&mut reader, charge)?);
        if !reader.next()? {
            break;
        }
    }
    let kind = match context {
        None => InputKind::ExampleList(pb::ExampleList { examples }),
        Some(context) => InputKind::ExampleListWithContext(pb::ExampleListWithContext {
            examples,
            context: Some(context),
        }),
    };
    Ok(pb::Input { kind: Some(kind) })
}

/// The maximum length of a feature name in an error message.
const NAME_BYTES_MAX: usize = 4096;

/// The memory of an example in a growing list, and of its serialized form.
const EXAMPLE_BYTES: usize = GROWTH * size_of::<Example>() + size_of::<Bytes>();
/// The memory of a feature: a map node holds eleven entries and is at least half full.
const FEATURE_BYTES: usize = size_of::<String>() + size_of::<Feature>();
const NODE_BYTES: usize = 12 * FEATURE_BYTES;

fn example(reader: &mut Reader<'_>, charge: &mut GrowingCharge) -> Result<Example> {
    let kind = reader.kind()?;
    ensure!(
        kind == Kind::Object,
        InvalidArgument,
        "Example must be JSON object but got JSON {}",
        kind.name()
    );
    let mut features = Features::default();
    let mut goes_on = reader.enter()?;
    while goes_on {
        let name = reader.key()?.into_owned();
        ensure!(name.len() <= NAME_BYTES_MAX, InvalidArgument, "a feature's name is too long");
        let map_bytes =
            if features.feature.is_empty() { NODE_BYTES } else { GROWTH * FEATURE_BYTES };
        // The name is held by the example and by its serialized form.
        charge.add(map_bytes + 2 * name.len())?;
        let feature = feature(reader, &name, charge)?;
        features.feature.insert(name, feature);
        goes_on = reader.next()?;
    }
    Ok(Example { features: Some(features) })
}

/// One value, or a list of values of one kind.
fn feature(reader: &mut Reader<'_>, name: &str, charge: &mut GrowingCharge) -> Result<Feature> {
    let mut feature = Feature::default();
    if reader.kind()? != Kind::List {
        add(reader, (name, &mut feature), charge)?;
        return Ok(feature);
    }
    let mut goes_on = reader.enter()?;
    while goes_on {
        add(reader, (name, &mut feature), charge)?;
        goes_on = reader.next()?;
    }
    Ok(feature)
}

enum Value {
    Bytes(Bytes),
    Float(f32),
    Int(i64),
}

fn add(
    reader: &mut Reader<'_>,
    (name, feature): (&str, &mut Feature),
    charge: &mut GrowingCharge,
) -> Result<()> {
    let value = value(reader, name)?;
    charge.add(match &value {
        Value::Bytes(bytes) => GROWTH * size_of::<Bytes>() + 2 * bytes.len(),
        Value::Float(_) | Value::Int(_) => (GROWTH + 1) * size_of::<i64>(),
    })?;
    let kind = feature.kind.get_or_insert_with(|| match value {
        Value::Bytes(_) => feature::Kind::BytesList(BytesList::default()),
        Value::Float(_) => feature::Kind::FloatList(FloatList::default()),
        Value::Int(_) => feature::Kind::Int64List(Int64List::default()),
    });
    match (kind, value) {
        (feature::Kind::BytesList(list), Value::Bytes(value)) => list.value.push(value),
        (feature::Kind::FloatList(list), Value::Float(value)) => list.value.push(value),
        (feature::Kind::Int64List(list), Value::Int(value)) => list.value.push(value),
        (kind, _) => {
            let expected = match kind {
                feature::Kind::BytesList(_) => "bytes",
                feature::Kind::FloatList(_) => "float",
                feature::Kind::Int64List(_) => "int64",
            };
            bail!(
                InvalidArgument,
                "Unexpected element type in feature: {name} expecting type: {expected}"
            )
        }
    }
    Ok(())
}

fn value(reader: &mut Reader<'_>, name: &str) -> Result<Value> {
    let kind = reader.kind()?;
    Ok(match kind {
        Kind::Bool => Value::Int(i64::from(reader.boolean()?)),
        Kind::Text => Value::Bytes(Bytes::from(reader.text()?.into_owned())),
        Kind::Number => number(reader.number()?, name)?,
        Kind::Object => match base64_object(reader)? {
            Some(bytes) => Value::Bytes(bytes.into()),
            None => bail!(
                InvalidArgument,
                "Feature: {name} has element with unexpected JSON type: Object"
            ),
        },
        Kind::List | Kind::Null => bail!(
            InvalidArgument,
            "Feature: {name} has element with unexpected JSON type: {}",
            kind.name()
        ),
    })
}

/// A number; without a decimal point it is an integer.
fn number(text: &str, name: &str) -> Result<Value> {
    if text.bytes().all(|b| b.is_ascii_digit() || b == b'-') {
        return match text.parse() {
            Ok(value) => Ok(Value::Int(value)),
            Err(_) => bail!(
                InvalidArgument,
                "Feature: {name} has the element {}. Only int64 is supported.",
                shown(text.as_bytes())
            ),
        };
    }
    let positive = text.strip_prefix('-').unwrap_or(text);
    let value = match positive {
        "NaN" => f64::NAN,
        "Infinity" | "Inf" => f64::INFINITY,
        digits => digits.parse().unwrap_or(f64::INFINITY),
    };
    let is_named = positive.starts_with(['N', 'I']);
    ensure!(
        is_named || value <= f64::from(f32::MAX),
        InvalidArgument,
        "Cannot convert JSON value: {} to float without loss of precision.",
        shown(text.as_bytes())
    );
    let value = value as f32;
    Ok(Value::Float(if positive.len() < text.len() { -value } else { value }))
}

#[cfg(test)]
mod tests {
    use thalweg_tensor::{Budget, Code};

    use super::super::json::members;
    use super::*;

    fn read(text: &str) -> Result<pb::Input> {
        let budget = Budget::new(1 << 20);
        input(&members(text.as_bytes())?, &mut GrowingCharge::new(&budget))
    }

    #[test]
    fn examples_are_charged() {
        // Each of these few bytes becomes a map with a string and a list.
        let text = format!("{{\"examples\": [{}{{}}]}}", "{\"a\":1},".repeat(10_000));
        let budget = Budget::new(1 << 30);
        let mut charge = GrowingCharge::new(&budget);
        input(&members(text.as_bytes()).unwrap(), &mut charge).unwrap();
        assert!(budget.used_bytes() > 50 * text.len(), "{} {}", budget.used_bytes(), text.len());
        let small = Budget::new(10 * text.len());
        let error = input(&members(text.as_bytes()).unwrap(), &mut GrowingCharge::new(&small));
        assert_eq!(error.unwrap_err().code(), Code::ResourceExhausted);
        drop(charge);
        assert_eq!((budget.used_bytes(), small.used_bytes()), (0, 0));
    }

    #[test]
    fn features_of_all_kinds() {
        let text = r#"{"context": {"c": 1}, "examples": [
            {"a": 1.5, "b": [1, 2], "s": ["x", {"b64": "eQ=="}], "t": true, "n": []}, {}]}"#;
        let Some(InputKind::ExampleListWithContext(list)) = read(text).unwrap().kind else {
            panic!()
        };
        assert_eq!(list.examples.len(), 2);
        let features = &list.examples[0].features.as_ref().unwrap().feature;
        let kind = |name: &str| features[name].kind.clone();
        assert_eq!(kind("a"), Some(feature::Kind::FloatList(FloatList { value: vec![1.5] })));
        assert_eq!(kind("b"), Some(feature::Kind::Int64List(Int64List { value: vec![1, 2] })));
        assert_eq!(kind("t"), Some(feature::Kind::Int64List(Int64List { value: vec![1] })));
        let strings = BytesList { value: vec!["x".into(), "y".into()] };
        assert_eq!(kind("s"), Some(feature::Kind::BytesList(strings)));
        assert_eq!(kind("n"), None);
        assert!(list.context.is_some());
        let Some(InputKind::ExampleList(_)) = read(r#"{"examples": [{}]}"#).unwrap().kind else {
            panic!()
        };
    }

    #[test]
    fn mistakes() {
        for text in [
            "{}",
            r#"{"examples": 1}"#,
            r#"{"examples": []}"#,
            r#"{"examples": [1]}"#,
            r#"{"examples": [{"a": null}]}"#,
            r#"{"examples": [{"a": [[1]]}]}"#,
            r#"{"examples": [{"a": {"x": 1}}]}"#,
            r#"{"examples": [{"a": [1, 1.5]}]}"#,
            r#"{"examples": [{"a": [1.5, "x"]}]}"#,
            r#"{"examples": [{"a": 1e39}]}"#,
            r#"{"examples": [{"a": 99999999999999999999}]}"#,
            r#"{"examples": [{}], "context": 1}"#,
        ] {
            assert_eq!(read(text).err().map(|e| e.code()), Some(Code::InvalidArgument), "{text}");
        }
    }
}
