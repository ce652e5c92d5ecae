//! `/api/runs`, `/api/scalars`, `/api/histograms`, `/api/images`, `/api/image` and `/api/texts`.

use serde_json::{Value as Json, json};
use thalweg_tensor::{Bytes, Result, err};

use super::Logdir;
use super::store::Series;
use super::value::{Image, Timed};
use crate::web::query::encoded;

impl Logdir {
    /// The runs and their tags.
    pub(crate) fn runs(&self) -> Json {
        let store = self.reader.store.lock();
        let runs = store.runs.iter().map(|(run, found)| {
            let tags = found.tags.iter().filter_map(|(tag, found)| {
                Some(json!({ "tag": tag, "kind": found.series.as_ref()?.kind() }))
            });
            json!({ "run": run, "tags": tags.collect::<Vec<_>>() })
        });
        json!({ "runs": runs.collect::<Vec<_>>() })
    }

    /// The scalars of a tag from position `after`. `next` is the position to ask for later: a long series is
    /// thinned, so that it may be larger than the number of points.
    pub(crate) fn scalars(&self, run: &str, tag: &str, after: u64) -> Result<Json> {
        let store = self.reader.store.lock();
        let Series::Scalars(series) = store.series(run, tag)? else {
            return Err(other_kind(run, tag, "scalars"));
        };
        let points = series.since(after).map(|p| json!([p.step, p.wall_time, p.value]));
        Ok(json!({ "points": points.collect::<Vec<_>>(), "next": series.total() }))
    }

    /// The histograms of a tag.
    pub(crate) fn histograms(&self, run: &str, tag: &str) -> Result<Json> {
        let store = self.reader.store.lock();
        let Series::Histograms(series) = store.series(run, tag)? else {
            return Err(other_kind(run, tag, "histograms"));
        };
        let step = |h: &Timed<Vec<[f64; 3]>>| json!({ "step": h.step, "wall_time": h.wall_time, "buckets": h.value });
        Ok(json!({ "steps": series.since(0).map(step).collect::<Vec<_>>() }))
    }

    /// The images of a tag, without their bytes.
    pub(crate) fn images(&self, run: &str, tag: &str) -> Result<Json> {
        let store = self.reader.store.lock();
        let Series::Images(series) = store.series(run, tag)? else {
            return Err(other_kind(run, tag, "images"));
        };
        let (run, tag) = (encoded(run), encoded(tag));
        let mut images = Vec::new();
        for of_step in series.since(0) {
            for (index, image) in of_step.value.iter().enumerate() {
                let step = of_step.step;
                images.push(json!({
                    "step": step,
                    "wall_time": of_step.wall_time,
                    "width": image.width,
                    "height": image.height,
                    "url": format!("/api/image?run={run}&tag={tag}&step={step}&index={index}"),
                }));
            }
        }
        Ok(json!({ "images": images }))
    }

    /// The content type and the bytes of an image; of several at one step, the last.
    pub(crate) fn image(
        &self,
        run: &str,
        tag: &str,
        step: i64,
        index: usize,
    ) -> Result<(&'static str, Bytes)> {
        let store = self.reader.store.lock();
        let Series::Images(series) = store.series(run, tag)? else {
            return Err(other_kind(run, tag, "images"));
        };
        let of_step = series.since(0).filter(|images| images.step == step).last();
        let image: Option<&Image> = of_step.and_then(|images| images.value.get(index));
        let image = image.ok_or_else(|| {
            err!(NotFound, "there is no image {index} at step {step}; it may have been thinned out")
        })?;
        Ok((image.kind, image.bytes.clone()))
    }

    /// The texts of a tag.
    pub(crate) fn texts(&self, run: &str, tag: &str) -> Result<Json> {
        let store = self.reader.store.lock();
        let Series::Texts(series) = store.series(run, tag)? else {
            return Err(other_kind(run, tag, "texts"));
        };
        let text = |t: &Timed<String>| json!({ "step": t.step, "wall_time": t.wall_time, "text": t.value });
        Ok(json!({ "texts": series.since(0).map(text).collect::<Vec<_>>() }))
    }
}

fn other_kind(run: &str, tag: &str, wanted: &str) -> thalweg_tensor::Error {
    err!(InvalidArgument, "the tag '{tag}' of run '{run}' has no {wanted}")
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use thalweg_formats::LocalStorage;
    use thalweg_formats::events::{EventWriter, Histogram, summary};
    use thalweg_runtime::system_environment;

    use super::*;
    use crate::folder_tests::TestFolder;
    use crate::web::query::Query;

    const PNG: &[u8] = b"\x89PNG and so on";

    fn written(test: &str) -> Arc<Logdir> {
        let folder = TestFolder::new(test);
        let storage = Arc::new(LocalStorage::default());
        let mut histogram = Histogram::new();
        histogram.add(1.0);
        for run in ["/a b/train", ""].map(|run| format!("{}{run}", folder.0)) {
            let mut writer =
                EventWriter::create(&*storage, &run, Duration::from_secs(9), "").unwrap();
            for step in 1..=3 {
                let values = vec![
                    summary::scalar("loss", 1.0 / step as f32).unwrap(),
                    summary::scalar("nan", f32::NAN).unwrap(),
                    summary::histogram("w", histogram.clone()),
                    summary::images("image/0", 28, 14, &[PNG.into(), PNG.into()]).unwrap(),
                    summary::text("note", &["hello"]).unwrap(),
                ];
                writer.summary(Duration::from_secs(step), step as i64, values).unwrap();
            }
            writer.flush().unwrap();
        }
        let logdir =
            Logdir::open(storage, &folder.0, (Arc::default(), system_environment().clock)).unwrap();
        logdir.read();
        logdir
    }

    #[test]
    fn runs_are_folders_and_tags_have_kinds() {
        let runs = written("runs").runs();
        let names: Vec<_> = (0..2).map(|i| runs["runs"][i]["run"].clone()).collect();
        assert_eq!(names, [".", "a b/train"]);
        let expected = [
            ("image/0", "image"),
            ("loss", "scalar"),
            ("nan", "scalar"),
            ("note", "text"),
            ("w", "histogram"),
        ];
        let expected = expected.map(|(tag, kind)| json!({ "tag": tag, "kind": kind }));
        assert_eq!(runs["runs"][1]["tags"], json!(expected));
    }

    #[test]
    fn values_are_there_in_their_forms() {
        let logdir = written("values");
        let json = logdir.scalars(".", "loss", 0).unwrap();
        assert_eq!(json["points"][1], json!([2, 2.0, 0.5]));
        assert_eq!((json["points"].as_array().unwrap().len(), &json["next"]), (3, &json!(3)));
        assert_eq!(logdir.scalars(".", "loss", 3).unwrap()["points"], json!([]));
        assert_eq!(logdir.scalars(".", "nan", 2).unwrap()["points"], json!([[3, 3.0, null]]));
        assert_eq!(logdir.texts(".", "note").unwrap()["texts"][2]["text"], "hello");
        let histograms = logdir.histograms("a b/train", "w").unwrap();
        assert_eq!(histograms["steps"][0]["buckets"][0][2], 1.0);
        assert!(logdir.scalars(".", "w", 0).is_err() && logdir.texts("none", "note").is_err());
    }

    #[test]
    fn the_url_of_an_image_leads_to_it() {
        let logdir = written("images");
        let images = logdir.images("a b/train", "image/0").unwrap();
        let images = images["images"].as_array().unwrap();
        assert_eq!((images.len(), &images[3]["width"]), (6, &json!(28)));
        let url = images[3]["url"].as_str().unwrap();
        let query = Query::parse(url.strip_prefix("/api/image?").unwrap()).unwrap();
        let (run, tag) = (query.required("run").unwrap(), query.required("tag").unwrap());
        let (step, index) = (query.number("step", None).unwrap(), query.number("index", None));
        let (kind, bytes) = logdir.image(run, tag, step, index.unwrap()).unwrap();
        assert_eq!((kind, &bytes[..], step), ("image/png", PNG, 2));
        assert!(logdir.image(run, tag, 9, 0).is_err() && logdir.image(run, tag, 2, 2).is_err());
    }
}
