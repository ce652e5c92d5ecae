//! Inference requests: JSON, followed by raw tensors of Triton's binary extension.

use std::borrow::Cow;
use std::collections::BTreeMap;

use bytes::Bytes;
use thalweg_formats::saved_model::Signature;
use thalweg_tensor::{Context, DType, RANK_MAX, Result, Shape, Tensor, bail, ensure, err};

use super::super::json::{Kind, Reader, members};
use super::super::tensors::{Builder, Members, member, shown};
use crate::growing::GrowingCharge;
use crate::kserve;

/// A parsed request.
#[derive(Debug)]
pub(in crate::rest) struct Infer {
    /// The id that the client gave the request.
    pub(super) id: Option<String>,
    /// The signature to run; empty for the default one.
    pub(super) signature: String,
    pub(super) inputs: BTreeMap<String, Tensor>,
    /// The requested outputs, and whether each is raw; empty for all.
    pub(super) outputs: Vec<(String, Option<bool>)>,
    /// Whether outputs are raw by default.
    pub(super) is_binary: bool,
}

/// Parses a body whose first `json_len` bytes are JSON, or all of it; `signature` finds a signature
/// by name.
pub(in crate::rest) fn read<'s>(
    body: &Bytes,
    json_len: Option<usize>,
    charge: &mut GrowingCharge,
    signature: impl FnOnce(&str) -> Result<&'s Signature>,
) -> Result<Infer> {
    let json_len = json_len.unwrap_or(body.len());
    ensure!(
        json_len <= body.len(),
        InvalidArgument,
        "the JSON should have {json_len} bytes, the body has {}",
        body.len()
    );
    let members = members(&body[..json_len])?;
    let parameters = parameters(&members)?;
    let name = parameters.signature.unwrap_or_default();
    let found = signature(&name)?;
    Ok(Infer {
        id: text(&members, "id")?.map(Cow::into_owned),
        inputs: inputs(&members, found, body.slice(json_len..), charge)?,
        outputs: outputs(&members, found)?,
        is_binary: parameters.binary_data_output.unwrap_or(false),
        signature: name,
    })
}

/// The supported parameters of a request, an input or an output.
#[derive(Default)]
struct Parameters {
    signature: Option<String>,
    binary_data_output: Option<bool>,
    binary_data: Option<bool>,
    binary_data_size: Option<usize>,
}

fn parameters(of: &Members<'_>) -> Result<Parameters> {
    let mut found = Parameters::default();
    let Some(value) = member(of, "parameters") else { return Ok(found) };
    for (name, value) in members(value).context(|| "'parameters'")? {
        kserve::check_parameter(&name)?;
        let mut reader = Reader::new(value);
        let kind = reader.kind()?;
        match (&*name, kind) {
            (kserve::SIGNATURE_NAME, Kind::Text) => {
                found.signature = Some(reader.text()?.into_owned());
            }
            ("binary_data_output", Kind::Bool) => {
                found.binary_data_output = Some(reader.boolean()?);
            }
            ("binary_data", Kind::Bool) => found.binary_data = Some(reader.boolean()?),
            ("binary_data_size", Kind::Number) => {
                let size = reader.number()?.parse().ok();
                found.binary_data_size = Some(size.ok_or_else(|| wrong(&name, value))?);
            }
            (
                kserve::SIGNATURE_NAME | "binary_data_output" | "binary_data" | "binary_data_size",
                _,
            ) => return Err(wrong(&name, value)),
            // A hint.
            _ => {}
        }
    }
    Ok(found)
}

fn wrong(name: &str, value: &[u8]) -> thalweg_tensor::Error {
    err!(InvalidArgument, "'{name}' cannot be {}", shown(value))
}

/// A member that must be a string if it is present.
fn text<'a>(members: &Members<'a>, name: &str) -> Result<Option<Cow<'a, str>>> {
    let Some(value) = member(members, name) else { return Ok(None) };
    let mut reader = Reader::new(value);
    if reader.kind()? != Kind::Text {
        return Err(wrong(name, value));
    }
    reader.text().map(Some)
}

fn needed<'a>(members: &Members<'a>, name: &str) -> Result<Cow<'a, str>> {
    text(members, name)?.ok_or_else(|| err!(InvalidArgument, "there is no '{name}'"))
}

/// Calls a function for each element of a list.
fn each<'a>(
    name: &str,
    value: &'a [u8],
    mut one: impl FnMut(&'a [u8]) -> Result<()>,
) -> Result<()> {
    let mut reader = Reader::new(value);
    if reader.kind()? != Kind::List {
        return Err(wrong(name, value));
    }
    let mut goes_on = reader.enter()?;
    while goes_on {
        one(reader.skip()?)?;
        goes_on = reader.next()?;
    }
    Ok(())
}

fn outputs(request: &Members<'_>, signature: &Signature) -> Result<Vec<(String, Option<bool>)>> {
    let mut found: Vec<(String, Option<bool>)> = Vec::new();
    let Some(value) = member(request, "outputs") else { return Ok(found) };
    each("outputs", value, |value| {
        let members = members(value).context(|| "'outputs'")?;
        let name = needed(&members, "name").context(|| "'outputs'")?;
        kserve::check_output(signature, &name)?;
        let is_new = found.iter().all(|(known, _)| *known != name);
        ensure!(is_new, InvalidArgument, "the request has output '{name}' twice");
        found.push((name.into_owned(), parameters(&members)?.binary_data));
        Ok(())
    })?;
    Ok(found)
}

fn inputs(
    request: &Members<'_>,
    signature: &Signature,
    mut raw: Bytes,
    charge: &mut GrowingCharge,
) -> Result<BTreeMap<String, Tensor>> {
    let value = member(request, "inputs");
    let value = value.ok_or_else(|| err!(InvalidArgument, "there is no 'inputs'"))?;
    let mut found = BTreeMap::new();
    each("inputs", value, |value| {
        let members = members(value).context(|| "'inputs'")?;
        let name = needed(&members, "name").context(|| "'inputs'")?;
        kserve::check_input(signature, &name)?;
        ensure!(
            !found.contains_key(&*name),
            InvalidArgument,
            "the request has input '{name}' twice"
        );
        let tensor = input(&members, &mut raw, charge).context(|| format!("input '{name}'"))?;
        found.insert(name.into_owned(), tensor);
        Ok(())
    })?;
    ensure!(
        raw.is_empty(),
        InvalidArgument,
        "{} bytes after the JSON belong to no input",
        raw.len()
    );
    Ok(found)
}

fn input(members: &Members<'_>, raw: &mut Bytes, charge: &mut GrowingCharge) -> Result<Tensor> {
    let dtype = kserve::dtype(&needed(members, "datatype")?)?;
    let shape = shape(members)?;
    match (parameters(members)?.binary_data_size, member(members, "data")) {
        (Some(_), Some(_)) => {
            bail!(InvalidArgument, "the input has both 'data' and 'binary_data_size'")
        }
        (None, None) => {
            bail!(InvalidArgument, "the input has neither 'data' nor 'binary_data_size'")
        }
        (None, Some(value)) => data(value, dtype, shape, charge),
        (Some(size), None) => {
            ensure!(
                size <= raw.len(),
                InvalidArgument,
                "binary_data_size is {size}, but only {} bytes after the JSON are left",
                raw.len()
            );
            if dtype == DType::String {
                // Each has its length in front.
                charge.add(size / size_of::<u32>() * size_of::<Bytes>())?;
            }
            kserve::from_raw(dtype, shape, raw.split_to(size))
        }
    }
}

fn shape(members: &Members<'_>) -> Result<Shape> {
    let value = member(members, "shape");
    let value = value.ok_or_else(|| err!(InvalidArgument, "there is no 'shape'"))?;
    let mut sizes: Vec<i64> = Vec::new();
    each("shape", value, |size| {
        let mut reader = Reader::new(size);
        let parsed = match reader.kind()? {
            Kind::Number => reader.number()?.parse().ok(),
            _ => None,
        };
        sizes.push(parsed.ok_or_else(|| wrong("shape", value))?);
        ensure!(
            sizes.len() <= RANK_MAX,
            InvalidArgument,
            "the shape has more than {RANK_MAX} sizes"
        );
        Ok(())
    })?;
    kserve::shape(&sizes)
}

/// Values in a flat list, or nested as the shape says.
fn data(value: &[u8], dtype: DType, shape: Shape, charge: &mut GrowingCharge) -> Result<Tensor> {
    let mut builder = Builder::new(dtype);
    builder.value(&mut Reader::new(value), 0, charge)?;
    let tensor = builder.finish(None)?;
    let is_flat = tensor.rank() <= 1 && tensor.num_elements() == shape.num_elements();
    ensure!(
        is_flat || *tensor.shape() == shape,
        InvalidArgument,
        "data of shape {} are not a tensor of shape {shape}",
        tensor.shape()
    );
    tensor.reshaped(shape)
}

#[cfg(test)]
mod tests {
    use thalweg_tensor::Code;

    use super::*;
    use thalweg_formats::saved_model::TensorSpec;
    use thalweg_tensor::{Budget, PartialShape};

    fn signature() -> Signature {
        let spec = |dtype| {
            let shape = PartialShape::unknown();
            TensorSpec { tensor: "x:0".into(), dtype, shape }
        };
        Signature {
            inputs: BTreeMap::from([("x".into(), spec(DType::Float))]),
            outputs: BTreeMap::from([("y".into(), spec(DType::Float))]),
            ..Default::default()
        }
    }

    fn read_inputs(text: &str, raw: &'static [u8]) -> Result<Tensor> {
        let members = members(text.as_bytes())?;
        let charge = &mut GrowingCharge::new(&Budget::new(1 << 20));
        let found = inputs(&members, &signature(), Bytes::from_static(raw), charge)?;
        Ok(found["x"].clone())
    }

    fn one(datatype: &str, shape: &str, data: &str) -> Result<Tensor> {
        let text = format!(
            r#"{{"inputs": [{{"name": "x", "datatype": "{datatype}", "shape": {shape}, "data": {data}}}]}}"#
        );
        read_inputs(&text, b"")
    }

    #[test]
    fn flat_and_nested() {
        for data in ["[1, 2, 3, 4]", "[[1, 2], [3, 4]]"] {
            let tensor = one("FP32", "[2, 2]", data).unwrap();
            assert_eq!(tensor.shape().dims(), [2, 2]);
            assert_eq!(tensor.as_slice::<f32>().unwrap(), [1.0, 2.0, 3.0, 4.0]);
        }
        assert_eq!(one("INT64", "[]", "[7]").unwrap().scalar_value::<i64>().unwrap(), 7);
        assert_eq!(one("INT64", "[]", "7").unwrap().scalar_value::<i64>().unwrap(), 7);
        assert_eq!(one("UINT8", "[0, 3]", "[]").unwrap().shape().dims(), [0, 3]);
        assert_eq!(one("BOOL", "[1]", "[true]").unwrap().as_slice::<bool>().unwrap(), [true]);
        let strings = one("BYTES", "[2]", r#"["a", {"b64": "eHk="}]"#).unwrap();
        assert_eq!(strings.strings().unwrap(), ["a", "xy"]);
        assert_eq!(one("FP16", "[1]", "[1.5]").unwrap().dtype(), DType::Half);
    }

    #[test]
    fn raw_tensors_after_the_json() {
        let text = r#"{"inputs": [{"name": "x", "datatype": "BYTES", "shape": [1],
            "parameters": {"binary_data_size": 6}}]}"#;
        assert_eq!(read_inputs(text, b"\x02\0\0\0ab").unwrap().strings().unwrap(), ["ab"]);
        assert!(read_inputs(text, b"\x02\0").unwrap_err().message().contains("only 2 bytes"));
        let more = read_inputs(text, b"\x02\0\0\0abcd").unwrap_err();
        assert!(more.message().contains("2 bytes after the JSON belong to no input"), "{more}");
    }

    #[test]
    fn invalid_requests_are_rejected() {
        for (datatype, shape, data, words) in [
            ("FP32", "[2]", "[1]", "data of shape [1] are not a tensor of shape [2]"),
            ("FP32", "[1099511627776]", "[1]", "are not a tensor of shape"),
            ("FP32", "[4]", "[[1, 2], [3, 4]]", "data of shape [2,2]"),
            ("FP32", "[-1]", "[1]", "at least 0"),
            ("FP32", "[1.5]", "[1]", "'shape' cannot be [1.5]"),
            ("FP32", "[1e3]", "[1]", "'shape' cannot be"),
            ("FP32", "2", "[1]", "'shape' cannot be 2"),
            ("FLOAT", "[1]", "[1]", "unknown datatype 'FLOAT'"),
            ("INT8", "[1]", "[300]", "is not of expected type"),
            ("BOOL", "[1]", "[1]", "is not of expected type"),
        ] {
            let error = one(datatype, shape, data).unwrap_err();
            assert!(error.message().contains(words), "{error}");
            assert!(error.message().starts_with("input 'x': "), "{error}");
        }
        let sizes = format!("[{}1]", "1, ".repeat(100_000));
        assert!(one("FP32", &sizes, "[1]").unwrap_err().message().len() < 300);
        for (text, words) in [
            ("{}", "there is no 'inputs'"),
            (r#"{"inputs": {}}"#, "'inputs' cannot be {}"),
            (r#"{"inputs": [1]}"#, "'inputs': JSON Value: Is not object"),
            (r#"{"inputs": [{}]}"#, "'inputs': there is no 'name'"),
            (r#"{"inputs": [{"name": "z"}]}"#, "unexpected input 'z'"),
            (r#"{"inputs": [{"name": "x"}]}"#, "there is no 'datatype'"),
            (r#"{"inputs": [{"name": "x", "datatype": "FP32"}]}"#, "there is no 'shape'"),
        ] {
            let error = read_inputs(text, b"").unwrap_err();
            assert!(error.message().contains(words), "{error}");
        }
    }

    #[test]
    fn outputs_and_parameters() {
        let read = |text: &str| outputs(&members(text.as_bytes())?, &signature());
        let asked = read(r#"{"outputs": [{"name": "y", "parameters": {"binary_data": true}}]}"#);
        assert_eq!(asked.unwrap(), [("y".to_owned(), Some(true))]);
        assert_eq!(
            read(r#"{"outputs": [{"name": "y"}, {"name": "y"}]}"#).err().map(|e| e.code()),
            Some(Code::InvalidArgument)
        );
        assert!(read(r#"{"outputs": [{"name": "x"}]}"#).unwrap_err().message().contains("'x'"));
        let read = |text: &str| parameters(&members(text.as_bytes())?);
        let found = read(r#"{"parameters": {"signature_name": "f", "priority": [1]}}"#).unwrap();
        assert_eq!(found.signature.as_deref(), Some("f"));
        for (text, code) in [
            (r#"{"parameters": {"signature_name": 1}}"#, Code::InvalidArgument),
            (r#"{"parameters": {"binary_data_size": -1}}"#, Code::InvalidArgument),
            (r#"{"parameters": {"sequence_id": 1}}"#, Code::Unimplemented),
            (r#"{"parameters": []}"#, Code::InvalidArgument),
        ] {
            assert_eq!(read(text).err().map(|e| e.code()), Some(code), "{text}");
        }
    }
}
