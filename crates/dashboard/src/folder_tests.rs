//! A folder of its own for one test.

/// A folder, removed at the end of its test.
pub(crate) struct TestFolder(pub(crate) String);

impl TestFolder {
    /// An empty one; `test` is a name that no other test of this crate has.
    pub(crate) fn new(test: &str) -> TestFolder {
        let name = format!("thalweg-dashboard-{test}-{}", std::process::id());
        let path = std::env::temp_dir().join(name);
        let _ = std::fs::remove_dir_all(&path);
        std::fs::create_dir_all(&path).unwrap();
        TestFolder(path.to_str().unwrap().to_owned())
    }
}

impl Drop for TestFolder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
