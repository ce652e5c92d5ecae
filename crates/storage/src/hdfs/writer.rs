//! Writing of HDFS files.

use std::future::Future;
use std::sync::Arc;

use bytes::Bytes;
use hdfs_native::file::FileWriter;
use hdfs_native::{Client, HdfsError, WriteOptions};
use thalweg_formats::storage::WriteFile;
use thalweg_tensor::{Error, Result};

use super::{NameNodePath, bounded};
use crate::driver::Driver;

/// The size of the write buffer.
const BUFFER_BYTES: usize = 4 << 20;

/// A file that is written.
///
/// Readers see completed blocks only. A flush therefore closes the file, and the next write opens
/// it for appending.
pub(super) struct Writer {
    target: NameNodePath,
    driver: Driver,
    /// The path that is written: the file itself, or its temporary name.
    at: String,
    open: Option<FileWriter>,
    pending: Vec<u8>,
    failure: Option<Error>,
    is_finished: bool,
}

impl Writer {
    /// Creates a file under the name `at`.
    pub(super) fn create(target: NameNodePath, driver: Driver, at: String) -> Result<Writer> {
        let (client, path) = (Arc::clone(&target.client), at.clone());
        let opened = driver.wait(bounded(target.url.clone(), "write it", async move {
            client.create(&path, WriteOptions::default().overwrite(true)).await
        }))?;
        let (pending, failure) = (Vec::new(), None);
        Ok(Writer { target, driver, at, open: Some(opened), pending, failure, is_finished: false })
    }

    /// Appends to an existing file.
    pub(super) fn append(target: NameNodePath, driver: Driver) -> Writer {
        let (at, pending) = (target.node_path.clone(), Vec::new());
        Writer { target, driver, at, open: None, pending, failure: None, is_finished: false }
    }

    fn takes_name(&self) -> bool {
        self.at != self.target.node_path
    }

    fn wait<T: Send + 'static>(
        &self,
        operation: &'static str,
        work: impl Future<Output = Result<T, HdfsError>> + Send + 'static,
    ) -> Result<T> {
        self.driver.wait(bounded(self.target.url.clone(), operation, work))
    }

    fn send(&mut self) -> Result<()> {
        if self.pending.is_empty() {
            return Ok(());
        }
        let content = Bytes::from(std::mem::take(&mut self.pending));
        let (client, at) = (Arc::clone(&self.target.client), self.at.clone());
        let open = self.open.take();
        let writing = async move {
            let mut open = match open {
                Some(open) => open,
                None => appending(&client, &at).await?,
            };
            open.write_bytes(content).await?;
            Ok(open)
        };
        self.open = Some(self.wait("write to it", writing)?);
        Ok(())
    }

    /// Sends the buffered bytes and closes the file.
    fn close(&mut self, syncs: bool) -> Result<()> {
        self.send()?;
        let Some(mut open) = self.open.take() else { return Ok(()) };
        self.wait("finish writing it", async move {
            if syncs {
                open.hsync().await?;
            }
            open.close().await
        })
    }

    fn finish_or_fail(&mut self) -> Result<()> {
        self.check()?;
        self.close(false)?;
        if self.takes_name() {
            let (client, target) = (Arc::clone(&self.target.client), self.target.node_path.clone());
            let at = self.at.clone();
            self.wait("rename it", async move { client.rename(&at, &target, true).await })?;
        }
        Ok(())
    }

    fn check(&self) -> Result<()> {
        self.failure.clone().map_or(Ok(()), Err)
    }

    fn checked(&mut self, result: Result<()>) -> Result<()> {
        if let Err(e) = &result {
            self.failure = Some(e.clone());
        }
        result
    }
}

/// Opens a file for appending; retries while another writer's lease is being released.
async fn appending(client: &Client, path: &str) -> Result<FileWriter, HdfsError> {
    for pause_ms in [100, 200, 400, 800, 1600] {
        match client.append(path).await {
            Err(HdfsError::RPCError(class, _))
                if class.ends_with("RecoveryInProgressException")
                    || class.ends_with("AlreadyBeingCreatedException") =>
            {
                tokio::time::sleep(std::time::Duration::from_millis(pause_ms)).await;
            }
            result => return result,
        }
    }
    client.append(path).await
}

impl WriteFile for Writer {
    fn path(&self) -> &str {
        &self.target.url
    }

    fn write(&mut self, mut content: &[u8]) -> Result<()> {
        self.check()?;
        while !content.is_empty() {
            let room = BUFFER_BYTES - self.pending.len();
            let (now, later) = content.split_at(room.min(content.len()));
            self.pending.extend_from_slice(now);
            content = later;
            if self.pending.len() == BUFFER_BYTES {
                let sent = self.send();
                self.checked(sent)?;
            }
        }
        Ok(())
    }

    fn flush(&mut self) -> Result<()> {
        self.check()?;
        // Under its temporary name the file is invisible to readers.
        let flushed = if self.takes_name() { self.send() } else { self.close(false) };
        self.checked(flushed)
    }

    fn sync(&mut self) -> Result<()> {
        self.check()?;
        let synced = if self.takes_name() { self.send() } else { self.close(true) };
        self.checked(synced)
    }

    fn finish(mut self: Box<Self>) -> Result<()> {
        let finished = self.finish_or_fail();
        self.is_finished = finished.is_ok();
        finished
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        if self.is_finished {
            return;
        }
        if !self.takes_name() {
            let _ = self.close(false);
            return;
        }
        self.pending.clear();
        let _ = self.close(false);
        let (client, at) = (Arc::clone(&self.target.client), self.at.clone());
        let _ = self.wait("delete it", async move { client.delete(&at, false).await });
    }
}
