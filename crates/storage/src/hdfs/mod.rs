//! HDFS over its native protocol, without a JVM.
//!
//! Settings come from the files in `HADOOP_CONF_DIR` (or `HADOOP_HOME`), if there are any: name
//! services with several name nodes, security. The user is `HADOOP_USER_NAME` or the user of the
//! process.

mod error;
mod writer;

use std::collections::HashMap;
use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use hdfs_native::client::FileStatus;
use hdfs_native::file::FileReader;
use hdfs_native::{Client, ClientBuilder, HdfsError};
use parking_lot::Mutex;
use thalweg_formats::storage::{Metadata, ReadAt, Storage, WriteFile};
use thalweg_tensor::{Code, Result, ensure, err};

use crate::clock;
use crate::driver::Driver;
use crate::remote_file::{RangeFuture, Ranges, RemoteFile};
use crate::url::Url;
use error::failed;
use writer::Writer;

/// The timeout of one operation.
const TIME_MAX: Duration = Duration::from_secs(60);
/// How long read operations are retried.
const RETRY_TIME_MAX: Duration = Duration::from_secs(10);
/// The first retry delay; it doubles with each attempt.
const PAUSE: Duration = Duration::from_millis(100);
/// The maximum number of name node clients.
const CLIENTS_MAX: usize = 64;
/// The maximum number of names of a listing.
const NAMES_MAX: usize = 10_000_000;
/// The permissions of created folders.
const FOLDER_MODE: u32 = 0o755;

/// An HDFS storage.
pub struct HdfsStorage {
    driver: Driver,
    /// Clients by host and port.
    clients: Mutex<HashMap<String, Arc<Client>>>,
}

/// A path on a name node.
#[derive(Clone)]
struct NameNodePath {
    client: Arc<Client>,
    /// The URL that the caller gave.
    url: String,
    /// The path, from `/` on.
    node_path: String,
}

impl HdfsStorage {
    /// A storage that has not connected yet.
    pub fn new() -> Result<HdfsStorage> {
        Ok(HdfsStorage::with_driver(Driver::new()?))
    }

    pub(crate) fn with_driver(driver: Driver) -> HdfsStorage {
        HdfsStorage { driver, clients: Mutex::default() }
    }

    fn parse_path(&self, text: &str) -> Result<NameNodePath> {
        let url = Url::parse(text).filter(|url| url.scheme == "hdfs");
        let url = url.ok_or_else(|| {
            err!(InvalidArgument, "{text}: expected a URL of the form hdfs://HOST:PORT/PATH")
        })?;
        let path = match url.path.trim_end_matches('/') {
            "" => "/".to_owned(),
            path => path.to_owned(),
        };
        Ok(NameNodePath {
            client: self.client(text, url.authority)?,
            url: text.to_owned(),
            node_path: path,
        })
    }

    fn client(&self, url: &str, authority: &str) -> Result<Arc<Client>> {
        let mut clients = self.clients.lock();
        if let Some(client) = clients.get(authority) {
            return Ok(Arc::clone(client));
        }
        ensure!(
            clients.len() < CLIENTS_MAX,
            ResourceExhausted,
            "{url}: the process has connections to {CLIENTS_MAX} name nodes, its maximum"
        );
        let mut builder = ClientBuilder::new().with_io_runtime(self.driver.handle());
        // Without a host the name node comes from the settings.
        if !authority.is_empty() {
            builder = builder.with_url(format!("hdfs://{authority}"));
        }
        // A host and port are one name node: there is no other to fail over to. The pauses between
        // attempts grow fast.
        if authority.contains(':') {
            builder = builder.with_config([("dfs.client.failover.max.attempts", "4")]);
        }
        let client = Arc::new(builder.build().map_err(|e| failed(url, "reach it", &e))?);
        clients.insert(authority.to_owned(), Arc::clone(&client));
        Ok(client)
    }

    /// Runs an operation once.
    fn wait<T: Send + 'static, F>(
        &self,
        target: &NameNodePath,
        operation: &'static str,
        work: impl FnOnce(Arc<Client>, String) -> F,
    ) -> Result<T>
    where
        F: Future<Output = Result<T, HdfsError>> + Send + 'static,
    {
        let work = work(Arc::clone(&target.client), target.node_path.clone());
        self.driver.wait(bounded(target.url.clone(), operation, work))
    }

    /// The status of a file or folder.
    fn status(&self, target: &NameNodePath, operation: &'static str) -> Result<FileStatus> {
        let NameNodePath { client, url, node_path: path } = target.clone();
        self.driver.wait(retried(url, operation, move || {
            let (client, path) = (Arc::clone(&client), path.clone());
            async move { client.get_file_info(&path).await }
        }))
    }

    /// Fails unless the path is a file.
    fn check_file(&self, target: &NameNodePath, operation: &'static str) -> Result<()> {
        let is_folder = self.status(target, operation)?.isdir;
        ensure!(
            !is_folder,
            FailedPrecondition,
            "{}: cannot {operation}: it is a folder",
            target.url
        );
        Ok(())
    }

    /// Fails if the path is a folder.
    fn check_no_folder(&self, target: &NameNodePath) -> Result<()> {
        match self.check_file(target, "write it") {
            Err(e) if e.code() == Code::NotFound => Ok(()),
            result => result,
        }
    }
}

/// Runs `work` with a timeout.
async fn bounded<T>(
    url: String,
    operation: &'static str,
    work: impl Future<Output = Result<T, HdfsError>> + Send,
) -> Result<T> {
    match tokio::time::timeout(TIME_MAX, work).await {
        Ok(result) => result.map_err(|e| failed(&url, operation, &e)),
        Err(_) => {
            Err(err!(Unavailable, "{url}: cannot {operation}: no answer within {TIME_MAX:?}"))
        }
    }
}

/// As [`bounded`] for read operations, which are retried while the name node is unavailable.
async fn retried<T, F>(
    url: String,
    operation: &'static str,
    mut attempt: impl FnMut() -> F + Send,
) -> Result<T>
where
    F: Future<Output = Result<T, HdfsError>> + Send,
{
    let (begin, mut pause) = (clock::now(), PAUSE);
    loop {
        let result = bounded(url.clone(), operation, attempt()).await;
        let is_passing = matches!(&result, Err(e) if e.code() == Code::Unavailable);
        if !is_passing || begin.elapsed() + pause > RETRY_TIME_MAX {
            return result;
        }
        tokio::time::sleep(pause).await;
        pause *= 2;
    }
}

/// A unique temporary name beside `path`.
fn temporary_name(path: &str) -> String {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let (folder, name) = path.rsplit_once('/').unwrap_or(("", path));
    let (number, process) = (NEXT.fetch_add(1, Ordering::Relaxed), std::process::id());
    // Process ids are not unique across machines.
    let time = clock::wall().as_nanos();
    format!("{folder}/.{name}.{process}-{time:x}-{number}.tmp")
}

impl Storage for HdfsStorage {
    fn open(&self, path: &str) -> Result<Arc<dyn ReadAt>> {
        let target = self.parse_path(path)?;
        self.check_file(&target, "open it")?;
        let NameNodePath { client, url, node_path: at } = target;
        let reader = self.driver.wait(retried(url, "open it", move || {
            let (client, at) = (Arc::clone(&client), at.clone());
            async move { client.read(&at).await }
        }))?;
        let size = reader.file_length() as u64;
        let source = Source { url: path.to_owned(), reader: Arc::new(reader) };
        Ok(Arc::new(RemoteFile::new(path, size, source, self.driver.clone())))
    }

    fn create(&self, path: &str) -> Result<Box<dyn WriteFile>> {
        let target = self.parse_path(path)?;
        self.check_no_folder(&target)?;
        let at = target.node_path.clone();
        let mut writer = Writer::create(target, self.driver.clone(), at)?;
        // Readers see an empty file at once.
        writer.flush()?;
        Ok(Box::new(writer))
    }

    fn append(&self, path: &str) -> Result<Box<dyn WriteFile>> {
        let target = self.parse_path(path)?;
        match self.check_file(&target, "open it for appending") {
            Ok(()) => Ok(Box::new(Writer::append(target, self.driver.clone()))),
            Err(e) if e.code() == Code::NotFound => self.create(path),
            Err(e) => Err(e),
        }
    }

    fn replace(&self, path: &str) -> Result<Box<dyn WriteFile>> {
        let target = self.parse_path(path)?;
        self.check_no_folder(&target)?;
        let at = temporary_name(&target.node_path);
        Ok(Box::new(Writer::create(target, self.driver.clone(), at)?))
    }

    fn metadata(&self, path: &str) -> Result<Metadata> {
        let status = self.status(&self.parse_path(path)?, "stat it")?;
        Ok(Metadata {
            bytes: if status.isdir { 0 } else { status.length as u64 },
            is_folder: status.isdir,
            modified: Duration::from_millis(status.modification_time),
        })
    }

    fn list(&self, folder: &str) -> Result<Vec<String>> {
        let target = self.parse_path(folder)?;
        ensure!(
            self.status(&target, "list it")?.isdir,
            FailedPrecondition,
            "{folder}: cannot list it: it is not a folder"
        );
        let names = self.wait(&target, "list it", |client, path| async move {
            let (entries, mut names) = (client.list_status_iter(&path, false), Vec::new());
            while let Some(entry) = entries.next().await {
                let path = entry?.path;
                names.push(path.rsplit('/').next().unwrap_or_default().to_owned());
                if names.len() > NAMES_MAX {
                    break;
                }
            }
            Ok(names)
        })?;
        ensure!(
            names.len() <= NAMES_MAX,
            ResourceExhausted,
            "{folder}: it has more than {NAMES_MAX} names"
        );
        Ok(names)
    }

    fn remove(&self, path: &str) -> Result<()> {
        let target = self.parse_path(path)?;
        self.check_file(&target, "delete it")?;
        self.wait(&target, "delete it", |client, path| async move {
            client.delete(&path, false).await.map(drop)
        })
    }

    fn remove_folder(&self, path: &str) -> Result<()> {
        let target = self.parse_path(path)?;
        ensure!(
            self.status(&target, "delete it")?.isdir,
            FailedPrecondition,
            "{path}: cannot delete it: it is not a folder"
        );
        self.wait(&target, "delete it", |client, path| async move {
            client.delete(&path, false).await.map(drop)
        })
    }

    /// An atomic rename on the name node.
    fn rename(&self, from: &str, to: &str) -> Result<()> {
        let (source, target) = (self.parse_path(from)?, self.parse_path(to)?);
        ensure!(
            Arc::ptr_eq(&source.client, &target.client),
            Unimplemented,
            "Renaming {from} to {to} not implemented"
        );
        let target = target.node_path;
        self.wait(&source, "rename it", |client, path| async move {
            client.rename(&path, &target, true).await
        })
    }

    fn create_folder(&self, path: &str) -> Result<()> {
        let target = self.parse_path(path)?;
        let made = self.wait(&target, "make the folder", |client, path| async move {
            client.mkdirs(&path, FOLDER_MODE, true).await
        });
        made.map_err(|e| match e.code() {
            Code::AlreadyExists => {
                err!(FailedPrecondition, "{path}: cannot make the folder: it is a file")
            }
            _ => e,
        })
    }
}

/// A file that is open for reading.
struct Source {
    url: String,
    reader: Arc<FileReader>,
}

impl Ranges for Source {
    fn fetch(self: Arc<Self>, begin: u64, bytes: usize) -> RangeFuture {
        let begin = usize::try_from(begin).unwrap_or(usize::MAX);
        Box::pin(async move {
            // The library panics on ranges beyond the end of the file.
            let length = self.reader.file_length();
            ensure!(
                begin.saturating_add(bytes) <= length,
                OutOfRange,
                "{}: the range of {bytes} bytes at {begin} exceeds the file's {length} bytes",
                self.url
            );
            let reader = Arc::clone(&self.reader);
            retried(self.url.clone(), "read it", move || {
                let reader = Arc::clone(&reader);
                async move { reader.read_range(begin, bytes).await }
            })
            .await
        })
    }
}
