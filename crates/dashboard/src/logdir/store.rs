//! What was read from event files: runs, and the series of their tags, in bounded memory.

use std::collections::BTreeMap;

use thalweg_proto as pb;
use thalweg_tensor::{Bytes, Result, err};

use super::thinned::{Size, Thinned};
use super::value::{Image, Timed, Value};

/// Most runs, and tags of all runs together; what is beyond is ignored.
const RUNS_MAX: usize = 500;
const TAGS_MAX: usize = 5_000;
/// Longest name of a tag in bytes; values of longer ones are ignored.
const TAG_BYTES_MAX: usize = 1_024;
/// Most values kept of a tag by kind: a longer series is thinned.
const SCALARS_MAX: usize = 1_000;
const HISTOGRAMS_MAX: usize = 60;
const IMAGES_MAX: usize = 10;
const TEXTS_MAX: usize = 10;
/// Most bytes of all histograms, images, texts and graphs; beyond, those that come are ignored.
const BYTES_MAX: usize = 256 << 20;
/// Largest graph.
const GRAPH_BYTES_MAX: usize = 64 << 20;

/// All runs by name.
#[derive(Debug, Default)]
pub(super) struct Store {
    pub(super) runs: BTreeMap<String, Run>,
    tags: usize,
    bytes: usize,
}

/// One run: the event files of a folder.
#[derive(Debug, Default)]
pub(super) struct Run {
    pub(super) tags: BTreeMap<String, Tag>,
    /// The last graph, a serialized GraphDef.
    pub(super) graph: Option<Bytes>,
}

/// A tag: the plugin that its first value named, and its series once a value could be read.
#[derive(Debug)]
pub(super) struct Tag {
    plugin: String,
    pub(super) series: Option<Series>,
}

/// The values of a tag.
#[derive(Debug)]
pub(super) enum Series {
    Scalars(Thinned<Timed<f64>>),
    Histograms(Thinned<Timed<Vec<[f64; 3]>>>),
    Images(Thinned<Timed<Vec<Image>>>),
    Texts(Thinned<Timed<String>>),
}

impl Series {
    /// The name of its kind in `/api/runs`.
    pub(super) fn kind(&self) -> &'static str {
        match self {
            Series::Scalars(_) => "scalar",
            Series::Histograms(_) => "histogram",
            Series::Images(_) => "image",
            Series::Texts(_) => "text",
        }
    }

    fn of(value: &Value) -> Series {
        match value {
            Value::Scalar(_) => Series::Scalars(Thinned::new(SCALARS_MAX)),
            Value::Histogram(_) => Series::Histograms(Thinned::new(HISTOGRAMS_MAX)),
            Value::Images(_) => Series::Images(Thinned::new(IMAGES_MAX)),
            Value::Text(_) => Series::Texts(Thinned::new(TEXTS_MAX)),
        }
    }
}

/// Appends a value if the budget allows it.
fn push<T>(series: &mut Thinned<Timed<T>>, value: Timed<T>, used: &mut usize)
where
    Timed<T>: Size,
{
    if used.saturating_add(value.bytes()) <= BYTES_MAX {
        let before = series.bytes();
        series.push(value);
        *used = (*used + series.bytes()).saturating_sub(before);
    }
}

impl Store {
    /// Adds the summary and the graph of an event.
    pub(super) fn add(&mut self, run: &str, event: pb::Event) {
        let (step, wall_time) = (event.step, event.wall_time);
        if !self.runs.contains_key(run) && self.runs.len() >= RUNS_MAX {
            return;
        }
        match event.what {
            Some(pb::event::What::Summary(summary)) => {
                for value in summary.value {
                    self.add_value(run, value, step, wall_time);
                }
            }
            Some(pb::event::What::GraphDef(graph)) => self.add_graph(run, &graph),
            _ => {}
        }
    }

    fn add_value(&mut self, run: &str, mut value: pb::summary::Value, step: i64, wall_time: f64) {
        let tag = std::mem::take(&mut value.tag);
        let plugin = value.metadata.take().and_then(|m| m.plugin_data).map(|p| p.plugin_name);
        let tags = &mut self.runs.entry(run.to_owned()).or_default().tags;
        let known = match tags.get_mut(&tag) {
            Some(known) => known,
            None if self.tags >= TAGS_MAX || tag.len() > TAG_BYTES_MAX => return,
            None => {
                self.tags += 1;
                let plugin = plugin.unwrap_or_default();
                tags.entry(tag).or_insert(Tag { plugin, series: None })
            }
        };
        let Some(value) = Value::read(value, &known.plugin) else { return };
        let used = &mut self.bytes;
        match (known.series.get_or_insert_with(|| Series::of(&value)), value) {
            // Scalars are bounded by the number of tags.
            (Series::Scalars(series), Value::Scalar(value)) => {
                series.push(Timed { step, wall_time, value });
            }
            (Series::Histograms(series), Value::Histogram(value)) => {
                push(series, Timed { step, wall_time, value }, used);
            }
            (Series::Images(series), Value::Images(value)) => {
                push(series, Timed { step, wall_time, value }, used);
            }
            (Series::Texts(series), Value::Text(value)) => {
                push(series, Timed { step, wall_time, value }, used);
            }
            // A tag has one kind, that of its first value.
            _ => {}
        }
    }

    fn add_graph(&mut self, run: &str, graph: &Bytes) {
        let run = self.runs.entry(run.to_owned()).or_default();
        let replaced = run.graph.as_ref().map_or(0, Bytes::len);
        let used = (self.bytes - replaced).saturating_add(graph.len());
        if graph.len() <= GRAPH_BYTES_MAX && used <= BYTES_MAX {
            self.bytes = used;
            run.graph = Some(Bytes::copy_from_slice(graph));
        }
    }

    /// The series of a tag.
    pub(super) fn series(&self, run: &str, tag: &str) -> Result<&Series> {
        let tags =
            &self.runs.get(run).ok_or_else(|| err!(NotFound, "there is no run '{run}'"))?.tags;
        let known = tags.get(tag).and_then(|tag| tag.series.as_ref());
        known.ok_or_else(|| err!(NotFound, "run '{run}' has no values under the tag '{tag}'"))
    }
}

#[cfg(test)]
mod tests {
    use thalweg_formats::events::summary;

    use super::*;

    fn event(step: i64, value: pb::summary::Value) -> pb::Event {
        let summary = pb::Summary { value: vec![value] };
        pb::Event {
            step,
            wall_time: step as f64,
            what: Some(pb::event::What::Summary(summary)),
            ..Default::default()
        }
    }

    #[test]
    fn the_number_of_runs_tags_and_bytes_is_bounded() {
        let mut store = Store::default();
        for i in 0..TAGS_MAX + 10 {
            store.add("a", event(1, summary::scalar(&format!("t{i}"), 1.0).unwrap()));
        }
        assert_eq!(store.runs["a"].tags.len(), TAGS_MAX);
        store.add("b", event(1, summary::scalar(&"x".repeat(2000), 1.0).unwrap()));
        assert_eq!(store.runs["b"].tags.len(), 0);
        for i in 0..RUNS_MAX + 10 {
            store.add(&format!("r{i}"), event(1, summary::scalar("t", 1.0).unwrap()));
        }
        assert_eq!(store.runs.len(), RUNS_MAX);
    }

    #[test]
    fn images_are_charged_and_released() {
        let mut store = Store::default();
        let mut png = vec![0; 1 << 20];
        png[..4].copy_from_slice(b"\x89PNG");
        let png = Bytes::from(png);
        for step in 0..100 {
            store.add(
                "a",
                event(step, summary::images("i", 1, 1, std::slice::from_ref(&png)).unwrap()),
            );
            assert!(store.bytes <= (IMAGES_MAX + 1) * (png.len() + 100), "{}", store.bytes);
        }
        for i in 0..400 {
            let tag = format!("i{i}");
            store.add(
                "a",
                event(1, summary::images(&tag, 1, 1, std::slice::from_ref(&png)).unwrap()),
            );
        }
        assert!(store.bytes <= BYTES_MAX, "{}", store.bytes);
    }

    #[test]
    fn a_tag_keeps_its_plugin_and_its_kind() {
        let mut store = Store::default();
        store.add("a", event(1, summary::scalar("t", 1.0).unwrap()));
        let later = summary::scalar("t", 2.0).unwrap();
        store.add("a", event(2, pb::summary::Value { metadata: None, ..later }));
        store.add("a", event(3, summary::text("t", &["x"]).unwrap()));
        let Series::Scalars(series) = store.series("a", "t").unwrap() else { panic!("scalars") };
        assert_eq!(series.since(0).map(|v| v.value).collect::<Vec<_>>(), [1.0, 2.0]);
        assert!(store.series("a", "none").is_err() && store.series("b", "t").is_err());
    }
}
