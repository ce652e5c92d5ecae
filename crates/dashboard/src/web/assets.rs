//! The files of the page, compiled in.

use thalweg_formats::crc32c;

/// A file of the page.
pub(crate) struct Asset {
    path: &'static str,
    pub(crate) kind: &'static str,
    pub(crate) bytes: &'static [u8],
}

const HTML: &str = "text/html; charset=utf-8";
const IMAGE: &str = "image/svg+xml";
const SCRIPT: &str = "text/javascript; charset=utf-8";
const STYLE: &str = "text/css; charset=utf-8";

macro_rules! asset {
    ($path:literal, $kind:expr) => {
        Asset { path: $path, kind: $kind, bytes: include_bytes!(concat!("../../assets/", $path)) }
    };
}

/// All files of `assets/`, as a test checks.
const ASSETS: &[Asset] = &[
    asset!("app.js", SCRIPT),
    asset!("chart.js", SCRIPT),
    asset!("cluster.js", SCRIPT),
    asset!("graph.js", SCRIPT),
    asset!("graph_canvas.js", SCRIPT),
    asset!("graph_layout.js", SCRIPT),
    asset!("graph_model.js", SCRIPT),
    asset!("graph_worker.js", SCRIPT),
    asset!("icon.svg", IMAGE),
    asset!("index.html", HTML),
    asset!("raster.js", SCRIPT),
    asset!("simulation.js", SCRIPT),
    asset!("style.css", STYLE),
    asset!("timeline.js", SCRIPT),
    asset!("timeline_canvas.js", SCRIPT),
    asset!("timeline_panel.js", SCRIPT),
    asset!("training.js", SCRIPT),
    asset!("tree.js", SCRIPT),
    asset!("ui.js", SCRIPT),
];

/// The file of a URL's path.
pub(crate) fn find(path: &str) -> Option<&'static Asset> {
    let name = match path.strip_prefix('/')? {
        "" => "index.html",
        name => name,
    };
    ASSETS.iter().find(|asset| asset.path == name)
}

impl Asset {
    /// The entity tag: it changes with the content.
    pub(crate) fn tag(&self) -> String {
        format!("\"{:x}-{:08x}\"", self.bytes.len(), crc32c(self.bytes))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::path::Path;

    use super::*;

    fn files(folder: &Path, prefix: &str, found: &mut BTreeSet<String>) {
        for entry in std::fs::read_dir(folder).unwrap() {
            let entry = entry.unwrap();
            let name = format!("{prefix}{}", entry.file_name().to_str().unwrap());
            match entry.file_type().unwrap().is_dir() {
                true => files(&entry.path(), &format!("{name}/"), found),
                false => drop(found.insert(name)),
            }
        }
    }

    #[test]
    fn every_file_is_served() {
        let mut there = BTreeSet::new();
        files(&Path::new(env!("CARGO_MANIFEST_DIR")).join("assets"), "", &mut there);
        let served: BTreeSet<String> = ASSETS.iter().map(|a| a.path.to_owned()).collect();
        assert_eq!(served, there);
    }

    #[test]
    fn the_root_is_the_page() {
        assert_eq!(find("/").unwrap().path, "index.html");
        assert!(find("/../Cargo.toml").is_none() && find("").is_none());
        let tag = find("/").unwrap().tag();
        assert!(tag.starts_with('"') && tag.ends_with('"'), "{tag}");
    }
}
