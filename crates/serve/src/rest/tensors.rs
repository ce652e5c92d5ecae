//! JSON tensors: parsed in one pass, without a tree.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use thalweg_formats::saved_model::{Signature, TensorSpec};
use thalweg_tensor::{DType, Result, Shape, Tensor, bail, bf16, ensure, err, f16};

use super::json::{Kind, Reader, base64_object};
use crate::growing::GrowingCharge;

/// The format of a request's inputs; the answer has its outputs in the same format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Format {
    /// Row format: `instances`, example by example.
    Row,
    /// Columnar format: `inputs`, tensor by tensor.
    Column,
}

/// The members of a request's object.
pub(crate) type Members<'a> = [(Cow<'a, str>, &'a [u8])];

/// The text of a member's value.
pub(crate) fn member<'a>(members: &Members<'a>, name: &str) -> Option<&'a [u8]> {
    members.iter().find(|(key, _)| key == name).map(|(_, value)| *value)
}

/// The signature name of a request; empty if there is none.
pub(crate) fn signature_name<'a>(members: &Members<'a>) -> Result<Cow<'a, str>> {
    let Some(value) = member(members, "signature_name") else { return Ok(Cow::Borrowed("")) };
    let mut reader = Reader::new(value);
    ensure!(
        reader.kind()? == Kind::Text,
        InvalidArgument,
        "JSON Value: {} not formatted correctly. 'signature_name' key must be a string value.",
        shown(value)
    );
    reader.text()
}

/// The input tensors of a request; their memory is charged to `charge`.
pub(crate) fn inputs(
    members: &Members<'_>,
    signature: &Signature,
    charge: &mut GrowingCharge,
) -> Result<(Format, BTreeMap<String, Tensor>)> {
    match (member(members, "instances"), member(members, "inputs")) {
        (Some(_), Some(_)) => bail!(
            InvalidArgument,
            "Not formatted correctly expecting only one of 'inputs' or 'instances' keys to exist"
        ),
        (Some(rows), None) => Ok((Format::Row, from_rows(rows, signature, charge)?)),
        (None, Some(columns)) => Ok((Format::Column, from_columns(columns, signature, charge)?)),
        (None, None) => bail!(InvalidArgument, "Missing 'inputs' or 'instances' key"),
    }
}

type Specs = BTreeMap<String, TensorSpec>;

fn from_rows(
    text: &[u8],
    signature: &Signature,
    charge: &mut GrowingCharge,
) -> Result<BTreeMap<String, Tensor>> {
    let specs = &signature.inputs;
    let mut reader = Reader::new(text);
    ensure!(
        reader.kind()? == Kind::List,
        InvalidArgument,
        "Excepting 'instances' to be an list/array"
    );
    ensure!(reader.enter()?, InvalidArgument, "No values in 'instances' array");
    let mut builders: BTreeMap<&str, Builder> = BTreeMap::new();
    let are_objects = is_object(&reader)?;
    ensure!(
        are_objects || specs.len() == 1,
        InvalidArgument,
        "instances is a plain list, but expecting list of objects as multiple input tensors required \
         as per tensorinfo_map"
    );
    let mut rows = 0;
    loop {
        let at = |e: thalweg_tensor::Error| {
            let code = e.code().name();
            e.map_message(|m| {
                format!("Failed to process element: {rows} of 'instances' list. Error: {code}: {m}")
            })
        };
        ensure!(
            are_objects == is_object(&reader)?,
            InvalidArgument,
            "Expecting {} at item {rows} of input list",
            if are_objects { "object but got value/list" } else { "value/list but got object" }
        );
        if are_objects {
            add_row(&mut reader, specs, (&mut builders, charge), rows).map_err(at)?;
        } else if let Some((name, spec)) = specs.first_key_value() {
            let builder = builders.entry(name).or_insert_with(|| Builder::new(spec.dtype));
            builder.value(&mut reader, 1, charge).map_err(at)?;
        }
        rows += 1;
        if !reader.next()? {
            break;
        }
    }
    let lacks = |name: &String| {
        !builders.contains_key(name.as_str()) && !signature.defaults.contains_key(name)
    };
    if specs.keys().any(lacks) {
        return Err(keys_differ(specs));
    }
    let finish =
        |(name, builder): (&str, Builder)| Ok((name.to_owned(), builder.finish(Some(rows))?));
    builders.into_iter().map(finish).collect()
}

/// Whether the next value is an object other than `{"b64": ...}`.
fn is_object(reader: &Reader<'_>) -> Result<bool> {
    let mut ahead = reader.clone();
    Ok(ahead.kind()? == Kind::Object && base64_object(&mut ahead)?.is_none())
}

fn add_row<'s>(
    reader: &mut Reader<'_>,
    specs: &'s Specs,
    (builders, charge): (&mut BTreeMap<&'s str, Builder>, &mut GrowingCharge),
    row: usize,
) -> Result<()> {
    let mut seen = BTreeSet::new();
    let mut goes_on = reader.enter()?;
    while goes_on {
        let key = reader.key()?;
        let Some((name, spec)) = specs.get_key_value(&*key) else {
            let key = shown(key.as_bytes());
            bail!(InvalidArgument, "JSON object: does not have named input: {key}")
        };
        ensure!(seen.insert(name), InvalidArgument, "the key {name} occurs twice");
        let is_late = row > 0 && !builders.contains_key(name.as_str());
        if !is_late {
            let builder = builders.entry(name).or_insert_with(|| Builder::new(spec.dtype));
            builder.value(reader, 1, charge)?;
        }
        if is_late {
            return Err(keys_differ(specs));
        }
        goes_on = reader.next()?;
    }
    if seen.len() != builders.len() || row == 0 && seen.is_empty() {
        return Err(keys_differ(specs));
    }
    Ok(())
}

fn keys_differ(specs: &Specs) -> thalweg_tensor::Error {
    let names: Vec<&str> = specs.keys().map(String::as_str).collect();
    err!(InvalidArgument, "keys must be equal to: {}", names.join(","))
}

fn from_columns(
    text: &[u8],
    signature: &Signature,
    charge: &mut GrowingCharge,
) -> Result<BTreeMap<String, Tensor>> {
    let specs = &signature.inputs;
    let mut reader = Reader::new(text);
    let mut found = BTreeMap::new();
    if !is_object(&reader)? {
        ensure!(
            specs.len() == 1,
            InvalidArgument,
            "inputs is a plain value/list, but expecting an object as multiple input tensors required \
             as per tensorinfo_map"
        );
        if let Some((name, spec)) = specs.first_key_value() {
            let mut builder = Builder::new(spec.dtype);
            builder.value(&mut reader, 0, charge)?;
            found.insert(name.clone(), builder.finish(None)?);
        }
        return Ok(found);
    }
    let mut goes_on = reader.enter()?;
    while goes_on {
        let key = reader.key()?;
        match specs.get(&*key) {
            Some(spec) => {
                let mut builder = Builder::new(spec.dtype);
                builder
                    .value(&mut reader, 0, charge)
                    .map_err(|e| e.map_message(|m| format!("input '{key}': {m}")))?;
                found.insert(key.into_owned(), builder.finish(None)?);
            }
            // As in TensorFlow Serving, keys that the signature does not name are ignored.
            None => drop(reader.skip()?),
        }
        goes_on = reader.next()?;
    }
    let lacks =
        |name: &&String| !found.contains_key(*name) && !signature.defaults.contains_key(*name);
    if let Some(name) = specs.keys().find(lacks) {
        bail!(InvalidArgument, "Missing named input: {name} in 'inputs' object.");
    }
    Ok(found)
}

/// Growing lists have up to twice the capacity that their elements need.
pub(super) const GROWTH: usize = 2;

/// A tensor under construction.
pub(super) struct Builder {
    dtype: DType,
    /// Numeric elements, little-endian.
    bytes: Vec<u8>,
    strings: Vec<Bytes>,
    /// The sizes of the lists at each level, once one is complete.
    sizes: Vec<Option<usize>>,
    /// The nesting level of the values, once one has been read.
    rank: Option<usize>,
}

impl Builder {
    /// An empty tensor of this dtype.
    pub(super) fn new(dtype: DType) -> Builder {
        Builder { dtype, bytes: Vec::new(), strings: Vec::new(), sizes: Vec::new(), rank: None }
    }

    /// Adds a value at this nesting depth. The reader bounds the depth.
    pub(super) fn value(
        &mut self,
        reader: &mut Reader<'_>,
        level: usize,
        charge: &mut GrowingCharge,
    ) -> Result<()> {
        if reader.kind()? == Kind::List {
            return self.list(reader, level, charge);
        }
        let rank = *self.rank.get_or_insert(level);
        ensure!(
            rank == level,
            InvalidArgument,
            "JSON Value: {} found at incorrect level: {} in the JSON DOM. Expected at level: {rank}",
            next_shown(reader),
            level + 1
        );
        if self.dtype == DType::String {
            let string = self.string(reader)?;
            charge.add(string.len() + GROWTH * size_of::<Bytes>())?;
            self.strings.push(string);
            return Ok(());
        }
        charge.add(GROWTH * self.dtype.size())?;
        self.number(reader)
    }

    fn list(
        &mut self,
        reader: &mut Reader<'_>,
        level: usize,
        charge: &mut GrowingCharge,
    ) -> Result<()> {
        if let Some(rank) = self.rank {
            ensure!(
                level < rank,
                InvalidArgument,
                "Encountered list at unexpected level: {level} expected < {rank}"
            );
        }
        if self.sizes.len() <= level {
            self.sizes.resize(level + 1, None);
        }
        let mut count = 0;
        let mut goes_on = reader.enter()?;
        while goes_on {
            self.value(reader, level + 1, charge)?;
            count += 1;
            goes_on = reader.next()?;
        }
        if count == 0 {
            self.rank.get_or_insert(level + 1);
        }
        let size = *self.sizes[level].get_or_insert(count);
        ensure!(
            size == count,
            InvalidArgument,
            "Encountered list at unexpected size: {count} at level: {level} expected size: {size}"
        );
        Ok(())
    }

    fn string(&self, reader: &mut Reader<'_>) -> Result<Bytes> {
        match reader.kind()? {
            Kind::Text => Ok(Bytes::from(reader.text()?.into_owned())),
            Kind::Object => match base64_object(reader)? {
                Some(bytes) => Ok(Bytes::from(bytes)),
                None => bail!(
                    InvalidArgument,
                    "JSON Value: {} not formatted correctly for base64 data",
                    next_shown(reader)
                ),
            },
            _ => Err(self.type_error(reader)),
        }
    }

    fn number(&mut self, reader: &mut Reader<'_>) -> Result<()> {
        let kind = reader.kind()?;
        if self.dtype == DType::Bool {
            ensure!(kind == Kind::Bool, InvalidArgument, "{}", self.type_error(reader).message());
            self.bytes.push(u8::from(reader.boolean()?));
            return Ok(());
        }
        if kind != Kind::Number {
            return Err(self.type_error(reader));
        }
        let before = reader.clone();
        let text = reader.number()?;
        macro_rules! integer {
            ($t:ty) => {
                match text.parse::<$t>() {
                    Ok(value) => self.bytes.extend_from_slice(&value.to_le_bytes()),
                    Err(_) => return Err(self.type_error(&before)),
                }
            };
        }
        match self.dtype {
            DType::Float => {
                let value = decimal(text, f64::from(f32::MAX), 24, "float")? as f32;
                self.bytes.extend_from_slice(&value.to_le_bytes());
            }
            DType::Double => {
                let value = decimal(text, f64::MAX, 53, "double")?;
                self.bytes.extend_from_slice(&value.to_le_bytes());
            }
            DType::Half => {
                let value = f16::from_f64(decimal(text, f16::MAX.to_f64(), 11, "half")?);
                self.bytes.extend_from_slice(&value.to_le_bytes());
            }
            DType::BFloat16 => {
                let value = bf16::from_f64(decimal(text, bf16::MAX.to_f64(), 8, "bfloat16")?);
                self.bytes.extend_from_slice(&value.to_le_bytes());
            }
            DType::Int8 => integer!(i8),
            DType::Int16 => integer!(i16),
            DType::Int32 => integer!(i32),
            DType::Int64 => integer!(i64),
            DType::UInt8 => integer!(u8),
            DType::UInt16 => integer!(u16),
            DType::UInt32 => integer!(u32),
            DType::UInt64 => integer!(u64),
            other => bail!(
                Unimplemented,
                "Conversion of JSON Value: {} to type: {other}",
                shown(text.as_bytes())
            ),
        }
        Ok(())
    }

    fn type_error(&self, reader: &Reader<'_>) -> thalweg_tensor::Error {
        let mut ahead = reader.clone();
        let kind = ahead.kind().map_or("Null", Kind::name);
        err!(
            InvalidArgument,
            "JSON Value: {} Type: {kind} is not of expected type: {}",
            next_shown(reader),
            self.dtype
        )
    }

    /// The finished tensor; `rows` is the size of the list that the caller iterated over itself.
    pub(super) fn finish(mut self, rows: Option<usize>) -> Result<Tensor> {
        if let (Some(rows), Some(outer)) = (rows, self.sizes.first_mut()) {
            *outer = Some(rows);
        } else if rows.is_some() {
            self.sizes.push(rows);
        }
        let rank = self.rank.unwrap_or(0);
        let dims: Vec<usize> = self.sizes.iter().take(rank).map(|size| size.unwrap_or(0)).collect();
        let shape = Shape::new(&dims)?;
        match self.dtype {
            DType::String => Tensor::from_strings(shape, self.strings),
            dtype => Tensor::from_bytes(dtype, shape, Bytes::from(self.bytes)),
        }
    }
}

/// A number from text; integers must fit into `digits` bits, others be below `max`.
fn decimal(text: &str, max: f64, digits: u32, target: &str) -> Result<f64> {
    let lossy = || {
        err!(
            InvalidArgument,
            "Cannot convert JSON value: {} to {target} without loss of precision.",
            shown(text.as_bytes())
        )
    };
    let positive = text.strip_prefix('-').unwrap_or(text);
    let value = match positive {
        "NaN" => return Ok(f64::NAN),
        "Infinity" | "Inf" => f64::INFINITY,
        digits => digits.parse::<f64>().map_err(|_| lossy())?,
    };
    let is_whole = positive.bytes().all(|b| b.is_ascii_digit());
    if is_whole && positive.parse::<u64>().is_ok_and(|whole| whole >= 1 << digits) {
        return Err(lossy());
    }
    let is_named = positive.starts_with('I');
    if !is_named && value > max {
        return Err(lossy());
    }
    Ok(if positive.len() < text.len() { -value } else { value })
}

/// The maximum bytes of request text in an error message.
const SHOWN_BYTES: usize = 80;

/// The beginning of a text, for error messages.
pub(super) fn shown(text: &[u8]) -> String {
    let cut = &text[..text.len().min(SHOWN_BYTES)];
    let dots = if cut.len() < text.len() { "..." } else { "" };
    format!("{}{dots}", String::from_utf8_lossy(cut))
}

fn next_shown(reader: &Reader<'_>) -> String {
    reader.clone().skip().map_or_else(|_| String::new(), shown)
}

#[cfg(test)]
mod tests {
    use super::super::json::members;
    use super::*;
    use std::sync::Arc;
    use thalweg_tensor::{Budget, Code, PartialShape};

    fn signature(inputs: &[(&str, DType)]) -> Signature {
        let spec =
            |dtype| TensorSpec { tensor: "x:0".into(), dtype, shape: PartialShape::unknown() };
        Signature {
            inputs: inputs.iter().map(|&(n, dtype)| (n.to_owned(), spec(dtype))).collect(),
            ..Default::default()
        }
    }

    fn read(text: &str, wanted: &[(&str, DType)]) -> Result<BTreeMap<String, Tensor>> {
        let charge = &mut GrowingCharge::new(&Budget::new(1 << 20));
        inputs(&members(text.as_bytes())?, &signature(wanted), charge).map(|(_, tensors)| tensors)
    }

    #[test]
    fn tensors_are_charged() {
        for (element, dtype, times) in [("\"\"", DType::String, 10), ("0", DType::Double, 4)] {
            let text =
                format!("{{\"inputs\": [{}{element}]}}", format!("{element},").repeat(10_000));
            let read = |budget: &Arc<Budget>| {
                let charge = &mut GrowingCharge::new(budget);
                let read = inputs(&members(text.as_bytes())?, &signature(&[("x", dtype)]), charge);
                read.map(|_| budget.used_bytes())
            };
            let used = read(&Budget::new(1 << 30)).unwrap();
            assert!(used > times * text.len(), "{dtype}: {used} for {}", text.len());
            let small = Budget::new(2 * text.len());
            assert_eq!(read(&small).unwrap_err().code(), Code::ResourceExhausted, "{dtype}");
            assert_eq!(small.used_bytes(), 0);
        }
    }

    fn one(text: &str, dtype: DType) -> Result<Tensor> {
        read(text, &[("x", dtype)]).map(|mut tensors| tensors.remove("x").unwrap())
    }

    #[test]
    fn rows_and_columns() {
        for (text, shape, values) in [
            (r#"{"instances": [1.0, 2, 5e0]}"#, "[3]", vec![1.0, 2.0, 5.0]),
            (r#"{"instances": [[1, 2], [3, 4], [5, 6]]}"#, "[3,2]", vec![1., 2., 3., 4., 5., 6.]),
            (r#"{"instances": [{"x": [1]}, {"x": [2]}]}"#, "[2,1]", vec![1.0, 2.0]),
            (r#"{"instances": [{"x": 1}]}"#, "[1]", vec![1.0]),
            (r#"{"instances": [[]]}"#, "[1,0]", vec![]),
            (r#"{"inputs": 3}"#, "[]", vec![3.0]),
            (r#"{"inputs": [[1], [2]]}"#, "[2,1]", vec![1.0, 2.0]),
            (r#"{"inputs": {"x": [7], "other": {"a": []}}}"#, "[1]", vec![7.0]),
            (r#"{"inputs": []}"#, "[0]", vec![]),
            (r#"{"inputs": [[], []]}"#, "[2,0]", vec![]),
            (
                r#"{"inputs": [-Infinity, Inf, -0.5]}"#,
                "[3]",
                vec![f32::NEG_INFINITY, f32::INFINITY, -0.5],
            ),
        ] {
            let tensor = one(text, DType::Float).unwrap();
            assert_eq!(tensor.shape().to_string(), shape, "{text}");
            assert_eq!(tensor.as_slice::<f32>().unwrap(), values, "{text}");
        }
        assert!(
            one(r#"{"inputs": NaN}"#, DType::Float).unwrap().as_slice::<f32>().unwrap()[0].is_nan()
        );
    }

    #[test]
    fn several_inputs() {
        let wanted = [("a", DType::Int32), ("b", DType::String)];
        let text = r#"{"signature_name": "s", "instances": [{"a": 1, "b": "x"}, {"b": {"b64": "eQ=="}, "a": 2}]}"#;
        let found = read(text, &wanted).unwrap();
        assert_eq!(found["a"].as_slice::<i32>().unwrap(), [1, 2]);
        assert_eq!(found["b"].strings().unwrap(), ["x", "y"]);
        assert_eq!(signature_name(&members(text.as_bytes()).unwrap()).unwrap(), "s");
        let text = r#"{"inputs": {"a": [[1]], "b": ["p", "q"]}}"#;
        let found = read(text, &wanted).unwrap();
        assert_eq!(found["b"].shape().to_string(), "[2]");
        for (text, words) in [
            (r#"{"instances": [1, 2]}"#, "plain list"),
            (r#"{"instances": [{"a": 1}]}"#, "keys must be equal to: a,b"),
            (r#"{"instances": [{"a": 1, "b": ""}, {"a": 1}]}"#, "keys must be equal to: a,b"),
            (r#"{"instances": [{"a": 1, "b": ""}, 5]}"#, "at item 1"),
            (r#"{"instances": [{"a": 1, "b": "", "c": 1}]}"#, "does not have named input: c"),
            (r#"{"instances": [{"a": 1, "a": 2, "b": ""}]}"#, "occurs twice"),
            (r#"{"inputs": [1]}"#, "plain value/list"),
            (r#"{"inputs": {"b": []}}"#, "Missing named input: a"),
        ] {
            let message = read(text, &wanted).unwrap_err().to_string();
            assert!(message.contains(words), "{text}: {message}");
        }
    }

    #[test]
    fn strings_and_bytes() {
        let text = r#"{"instances": [{"b64": "AP8="}, "h\u00e9"]}"#;
        let tensor = one(text, DType::String).unwrap();
        assert_eq!(tensor.strings().unwrap()[0], [0u8, 255][..]);
        assert_eq!(tensor.strings().unwrap()[1], "h\u{e9}");
        assert_eq!(one(r#"{"inputs": {"b64": "eA=="}}"#, DType::String).unwrap().rank(), 0);
    }

    #[test]
    fn numbers_have_to_fit() {
        for (value, dtype, fits) in [
            ("16777215", DType::Float, true),
            ("16777216", DType::Float, false),
            ("16777216.0", DType::Float, true),
            ("-16777216", DType::Float, false),
            ("1e39", DType::Float, false),
            ("1e39", DType::Double, true),
            ("1e400", DType::Double, false),
            ("9007199254740992", DType::Double, false),
            ("127", DType::Int8, true),
            ("128", DType::Int8, false),
            ("-1", DType::UInt8, false),
            ("1.0", DType::Int32, false),
            ("9223372036854775807", DType::Int64, true),
            ("9223372036854775808", DType::Int64, false),
            ("18446744073709551615", DType::UInt64, true),
            ("true", DType::Int32, false),
            ("1", DType::Bool, false),
            ("false", DType::Bool, true),
            ("\"1\"", DType::Float, false),
            ("null", DType::Float, false),
            ("1", DType::String, false),
            ("{\"b64\": \"\"}", DType::Float, false),
            ("{\"a\": \"\"}", DType::String, false),
            ("1.5", DType::Half, true),
            ("1", DType::Complex64, false),
        ] {
            let result = one(&format!("{{\"inputs\": [{value}]}}"), dtype);
            let code = match dtype {
                DType::Complex64 => Code::Unimplemented,
                _ => Code::InvalidArgument,
            };
            let refused = (!fits).then_some(code);
            assert_eq!(result.err().map(|e| e.code()), refused, "{value} as {dtype}");
        }
    }

    #[test]
    fn ragged_lists_are_refused() {
        for text in [
            "[[1, 2], [3]]",
            "[1, [2]]",
            "[[1], 2]",
            "[[], [1]]",
            "[[1], []]",
            "[[[1]], [1]]",
            "[[1], [[1]]]",
        ] {
            for key in ["inputs", "instances"] {
                let result = one(&format!("{{\"{key}\": {text}}}"), DType::Float);
                assert_eq!(
                    result.as_ref().err().map(thalweg_tensor::Error::code),
                    Some(Code::InvalidArgument),
                    "{key} {text}: {result:?}"
                );
            }
        }
        for text in [
            "{}",
            r#"{"instances": 1}"#,
            r#"{"instances": []}"#,
            r#"{"instances": {}}"#,
            r#"{"inputs": 1, "instances": [1]}"#,
            r#"{"signature_name": 1}"#,
        ] {
            assert_eq!(
                one(text, DType::Float).err().map(|e| e.code()),
                Some(Code::InvalidArgument),
                "{text}"
            );
        }
    }
}
