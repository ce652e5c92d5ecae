//! Records as text.

use std::io::Write;

use base64::Engine;
use prost::Message;
use serde_json::{Map, Value as Json};
use thalweg_formats::record::RecordReader;
use thalweg_proto as pb;
use thalweg_proto::feature::Kind;

use crate::Failure;

/// Prints records, one line each unless `raw`.
pub(super) fn cat(
    reader: &mut RecordReader,
    skip: u64,
    limit: Option<u64>,
    raw: bool,
    out: &mut dyn Write,
) -> Result<(), Failure> {
    let end = limit.map_or(u64::MAX, |limit| skip.saturating_add(limit));
    let mut number = 0;
    while number < end {
        let Some(record) = reader.next_record()? else { break };
        if number >= skip {
            if raw {
                out.write_all(record)?;
            } else {
                let shown = record_json(record);
                let offset = reader.record_offset();
                let mut line = serde_json::json!({"record": number, "offset": offset});
                if let (Some(line), Json::Object(shown)) = (line.as_object_mut(), shown) {
                    line.extend(shown);
                }
                writeln!(out, "{line}")?;
            }
        }
        number += 1;
    }
    Ok(())
}

/// The record as JSON if it is a `tf.Example`, else as base64.
fn record_json(record: &[u8]) -> Json {
    let example = pb::Example::decode(record).ok();
    let features = example.and_then(|e| e.features).filter(|f| !f.feature.is_empty());
    match features {
        Some(features) => {
            let shown: Map<String, Json> =
                features.feature.iter().map(|(name, f)| (name.clone(), feature(f))).collect();
            serde_json::json!({ "example": shown })
        }
        None => {
            serde_json::json!({"data": base64::engine::general_purpose::STANDARD.encode(record)})
        }
    }
}

fn feature(feature: &pb::Feature) -> Json {
    match &feature.kind {
        Some(Kind::BytesList(list)) => list.value.iter().map(|bytes| text(bytes)).collect(),
        Some(Kind::FloatList(list)) => list.value.iter().map(|&x| Json::from(x)).collect(),
        Some(Kind::Int64List(list)) => list.value.iter().map(|&x| Json::from(x)).collect(),
        None => Json::Null,
    }
}

/// UTF-8 text, or an object with base64.
fn text(bytes: &[u8]) -> Json {
    match std::str::from_utf8(bytes) {
        Ok(text) if !text.contains('\0') => Json::from(text),
        _ => {
            serde_json::json!({"base64": base64::engine::general_purpose::STANDARD.encode(bytes)})
        }
    }
}
