//! Notations of a [`ClusterSpec`]: job lists, TensorFlow's flag syntax, JSON, `TF_CONFIG`, a file.

use thalweg_tensor::{Result, ensure, err};

use crate::addresses::ClusterFile;
use crate::cluster_spec::{ClusterSpec, TaskName};

/// Parses a cluster: `ps=a:1,b:2;worker=c:3`, TensorFlow's `ps|a:1;b:2,worker|c:3`, or JSON as
/// [`json_cluster`] accepts it.
pub fn parse_cluster(text: &str) -> Result<ClusterSpec> {
    if text.trim_start().starts_with('{') {
        let json = serde_json::from_str(text)
            .map_err(|e| err!(InvalidArgument, "the cluster is not valid JSON: {e}"))?;
        return json_cluster(&json);
    }
    ensure!(
        !is_toml(text),
        InvalidArgument,
        "this is a file for `thalweg cluster up`, which only the command reads; \
         write job=host:port,host:port;job=... or JSON"
    );
    text.trim().parse()
}

/// Reads what [`parse_cluster`] accepts, or, after `@`, the name of a file that holds it.
pub fn read_cluster(text: &str) -> Result<ClusterSpec> {
    match text.strip_prefix('@') {
        Some(path) => Ok(ClusterFile::open(path.as_ref(), parse_cluster)?.cluster()),
        None => parse_cluster(text),
    }
}

/// Whether `text` is TOML with a table: no other notation has a line that begins with `[`.
pub fn is_toml(text: &str) -> bool {
    text.lines().any(|line| line.trim_start().starts_with('['))
}

/// `{"job": ["host:port"]}`, or `{"job": {"0": "host:port"}}`; a whole `TF_CONFIG` is accepted too.
pub fn json_cluster(json: &serde_json::Value) -> Result<ClusterSpec> {
    if let Some(cluster) = json.get("cluster") {
        return json_cluster(cluster);
    }
    let Some(jobs) = json.as_object() else {
        ensure!(json.is_null(), InvalidArgument, "the cluster is not an object of jobs: {json}");
        return Ok(ClusterSpec::default());
    };
    let mut cluster = ClusterSpec::default();
    for (job, tasks) in jobs {
        let list: Option<Vec<(u32, &str)>> = match tasks {
            serde_json::Value::Array(list) => {
                list.iter().zip(0..).map(|(t, i)| Some((i, t.as_str()?))).collect()
            }
            serde_json::Value::Object(map) => {
                map.iter().map(|(i, t)| Some((i.parse().ok()?, t.as_str()?))).collect()
            }
            _ => None,
        };
        let list = list.ok_or_else(|| {
            err!(InvalidArgument, "job '{job}' is not a list of host:port: {tasks}")
        })?;
        for (index, address) in list {
            cluster.add(TaskName::new(job, index), address)?;
        }
    }
    Ok(cluster)
}

#[cfg(test)]
mod tests {
    use thalweg_tensor::Code;

    use super::*;

    #[test]
    fn one_cluster_in_every_form() {
        let wanted: ClusterSpec = "ps=a:1,b:2;worker=c:3".parse().unwrap();
        for text in [
            "ps=a:1,b:2;worker=c:3\n",
            "ps|a:1;b:2,worker|c:3",
            r#"{"ps": ["a:1", "b:2"], "worker": ["c:3"]}"#,
            r#"{"ps": {"1": "b:2", "0": "a:1"}, "worker": ["c:3"]}"#,
            r#" {"cluster": {"ps": ["a:1", "b:2"], "worker": ["c:3"]}, "task": {"type": "ps"}}"#,
        ] {
            assert_eq!(read_cluster(text).unwrap(), wanted, "{text}");
        }
        let name = format!("thalweg-cluster-text-{}", std::process::id());
        let path = std::env::temp_dir().join(name);
        std::fs::write(&path, "ps=a:1,b:2;worker=c:3\n").unwrap();
        let read = read_cluster(&format!("@{}", path.display()));
        std::fs::remove_file(&path).unwrap();
        assert_eq!(read.unwrap(), wanted);
    }

    #[test]
    fn mistakes_are_named() {
        for (text, words) in [
            ("{", "not valid JSON"),
            (r#"{"ps": 1}"#, "not a list of host:port"),
            (r#"{"ps": ["a"]}"#, "not host:port"),
            ("ps", "not job=host:port"),
            ("[job.ps]\ntasks = [\"a:1\"]", "thalweg cluster up"),
            ("@/nonexistent/cluster", "/nonexistent/cluster"),
        ] {
            let error = read_cluster(text).unwrap_err();
            assert_eq!(error.code(), Code::InvalidArgument, "{text:?}: {error}");
            assert!(error.message().contains(words), "{text:?}: {error}");
        }
    }
}
