//! A folder of its own for one test, gone at its end.

use std::path::PathBuf;

pub(crate) struct Folder(pub(crate) PathBuf);

impl Folder {
    /// An empty one. `test` is a name that no other test of the workspace has.
    pub(crate) fn new(test: &str) -> Folder {
        let folder = std::env::temp_dir().join(format!("thalweg-{test}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&folder);
        std::fs::create_dir_all(&folder).unwrap();
        Folder(folder)
    }

    /// Where a file of it is.
    pub(crate) fn path(&self, name: &str) -> String {
        self.0.join(name).to_str().unwrap().to_owned()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
