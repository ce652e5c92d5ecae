//! Summary ops of a model, for TensorBoard.

use thalweg_graph::Output;
use thalweg_tensor::Result;

use crate::ModelScope;

impl ModelScope {
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
}
