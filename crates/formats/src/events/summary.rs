//! Summary values for TensorBoard's plugins.

use prost::Message;
use thalweg_proto as pb;
use thalweg_proto::summary::value::Value as Content;
use thalweg_proto::summary_metadata::PluginData;
use thalweg_tensor::{Bytes, Result, Shape, Tensor};

use super::Histogram;

/// A scalar.
pub fn scalar(tag: &str, value: f32) -> Result<pb::summary::Value> {
    for_plugin(tag, "scalars", Bytes::new(), pb::DataClass::Scalar, &Tensor::scalar(value))
}

/// Text in Markdown; several texts are a table of one column.
pub fn text(tag: &str, texts: &[&str]) -> Result<pb::summary::Value> {
    let strings = texts.iter().map(|text| Bytes::copy_from_slice(text.as_bytes())).collect();
    let tensor = Tensor::from_strings(Shape::new(&[texts.len()])?, strings)?;
    for_plugin(tag, "text", Bytes::new(), pb::DataClass::Tensor, &tensor)
}

/// A histogram.
pub fn histogram(tag: &str, histogram: Histogram) -> pb::summary::Value {
    plain(tag, Content::Histo(histogram.into_proto()))
}

/// PNG images of one size.
pub fn images(tag: &str, width: u32, height: u32, files: &[Bytes]) -> Result<pb::summary::Value> {
    let mut strings: Vec<Bytes> = vec![width.to_string().into(), height.to_string().into()];
    strings.extend_from_slice(files);
    let tensor = Tensor::from_strings(Shape::new(&[strings.len()])?, strings)?;
    for_plugin(tag, "images", Bytes::new(), pb::DataClass::BlobSequence, &tensor)
}

/// WAV audio.
pub fn audio(tag: &str, files: &[Bytes]) -> Result<pb::summary::Value> {
    // Field 2, `encoding`, is WAV.
    const WAV: &[u8] = &[0x10, 11];
    let strings = files.iter().flat_map(|file| [file.clone(), Bytes::new()]).collect();
    let tensor = Tensor::from_strings(Shape::new(&[files.len(), 2])?, strings)?;
    let content = Bytes::from_static(WAV);
    for_plugin(tag, "audio", content, pb::DataClass::BlobSequence, &tensor)
}

/// A value without plugin metadata, as TensorFlow 1 writes it.
pub fn plain(tag: &str, content: Content) -> pb::summary::Value {
    pb::summary::Value { tag: tag.to_owned(), value: Some(content), ..Default::default() }
}

/// A tensor for a plugin.
pub fn for_plugin(
    tag: &str,
    plugin: &str,
    content: Bytes,
    data_class: pb::DataClass,
    tensor: &Tensor,
) -> Result<pb::summary::Value> {
    Ok(pb::summary::Value {
        tag: tag.to_owned(),
        metadata: Some(metadata(plugin, content, data_class)),
        value: Some(Content::Tensor(tensor.to_proto()?)),
        ..Default::default()
    })
}

/// The serialized metadata of text summaries, an input of `TensorSummaryV2`.
pub fn text_metadata() -> Vec<u8> {
    metadata("text", Bytes::new(), pb::DataClass::Tensor).encode_to_vec()
}

fn metadata(plugin: &str, content: Bytes, data_class: pb::DataClass) -> pb::SummaryMetadata {
    pb::SummaryMetadata {
        plugin_data: Some(PluginData { plugin_name: plugin.to_owned(), content }),
        data_class: data_class as i32,
        ..Default::default()
    }
}
