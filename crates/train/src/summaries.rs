//! Summary ops of a model, for TensorBoard.

use thalweg_formats::events::summary::text_metadata;
use thalweg_graph::Output;
use thalweg_tensor::{Result, Tensor};

use crate::{Model, Phase};

/// Tags have the name of the layer as prefix. A network that is built again (for inference, or as a
/// tower) adds no second summary: the first one with a tag stays.
impl Model {
    /// Adds a scalar summary.
    pub fn scalar_summary(&mut self, tag: &str, x: Output) -> Result<()> {
        self.summary(tag, |model, tag| model.add("ScalarSummary", &[tag, x]))
    }

    /// Adds a histogram summary.
    pub fn histogram_summary(&mut self, tag: &str, x: Output) -> Result<()> {
        self.summary(tag, |model, tag| model.add("HistogramSummary", &[tag, x]))
    }

    /// Adds an image summary of up to `most` images of a batch `[batch, height, width, channels]`
    /// with 1, 3 or 4 channels; bytes, or floats that are scaled.
    pub fn image_summary(&mut self, tag: &str, images: Output, most: usize) -> Result<()> {
        self.summary(tag, |model, tag| {
            let node = model.op("ImageSummary").inputs(&[tag, images]);
            node.attr("max_images", most as i64).build()
        })
    }

    /// Adds a text summary; the strings are Markdown.
    pub fn text_summary(&mut self, tag: &str, texts: Output) -> Result<()> {
        self.summary(tag, |model, tag| {
            let metadata = Tensor::scalar_string(text_metadata());
            let metadata = model.constant(&metadata)?;
            model.add("TensorSummaryV2", &[tag, texts, metadata])
        })
    }

    /// All summaries merged into one serialized `Summary`; `None` if there are none.
    /// `EventWriter::write_summary` takes the fetched value.
    pub fn summaries(&mut self) -> Result<Option<Output>> {
        let all = self.kept_summaries();
        if all.is_empty() {
            return Ok(None);
        }
        let mut summaries = self.with_scope(self.child("summaries"));
        summaries.op("MergeSummary").inputs(&all).attr("N", all.len() as i64).build().map(Some)
    }

    fn summary(
        &mut self,
        tag: &str,
        build: impl FnOnce(&mut Model, Output) -> Result<Output>,
    ) -> Result<()> {
        let full = self.full_name(tag);
        if self.phase() == Phase::Inference || self.has_summary(&full) {
            return Ok(());
        }
        let mut summaries = self.with_scope(self.child("summaries"));
        let tag = summaries.constant(&Tensor::scalar_string(full.clone()))?;
        let summary = build(&mut summaries, tag)?;
        self.keep_summary(full, summary);
        Ok(())
    }
}
