//! Writing of objects: small ones by one request, large ones by multipart upload.

use std::collections::VecDeque;
use std::sync::Arc;

use bytes::Bytes;
use thalweg_formats::storage::WriteFile;
use thalweg_tensor::{Error, Result};

use super::client::{Client, Object};
use super::objects::Part;
use crate::driver::{Driver, Pending};

/// The size of a part, and the maximum size that is written by one request. S3 requires parts of at
/// least 5 MiB.
pub(super) const PART_BYTES: usize = 8 << 20;
/// The maximum number of concurrent parts.
const PARTS_UNDER_WAY: usize = 4;
/// After this many parts the part size doubles. An upload has at most 10,000 parts, which then hold
/// more than the 5 TB limit of an object.
const PARTS_OF_ONE_SIZE: u32 = 1000;

/// When readers see the content.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum Visibility {
    /// When the file is finished.
    Finished,
    /// Also at each flush.
    Flushed,
}

/// An object that is written.
pub(super) struct Writer {
    client: Arc<Client>,
    driver: Driver,
    object: Object,
    visibility: Visibility,
    /// The number of leading bytes that are copied from the existing object: those that a flush
    /// wrote.
    before: u64,
    upload: Option<Upload>,
    /// The bytes after the parts that were sent.
    pending: Vec<u8>,
    /// Whether bytes were written that the object does not have yet.
    is_behind: bool,
    /// The error after which nothing more is written.
    failure: Option<Error>,
}

struct Upload {
    name: Arc<str>,
    parts: Vec<Part>,
    under_way: VecDeque<Pending<Part>>,
    number: u32,
    bytes: u64,
}

impl Writer {
    /// Writes an object whose content begins with `before` bytes of the existing object, then
    /// `pending`. With `is_behind` the object is written even if nothing is appended.
    pub(super) fn new(
        client: Arc<Client>,
        driver: Driver,
        object: Object,
        visibility: Visibility,
    ) -> Writer {
        Writer {
            client,
            driver,
            object,
            visibility,
            before: 0,
            upload: None,
            pending: Vec::new(),
            is_behind: true,
            failure: None,
        }
    }

    /// Continues after the object's existing content.
    pub(super) fn after(mut self, before: u64, pending: Vec<u8>) -> Writer {
        (self.before, self.pending, self.is_behind) = (before, pending, false);
        self
    }

    fn part_bytes(&self) -> usize {
        let number = self.upload.as_ref().map_or(0, |upload| upload.number);
        PART_BYTES << (number / PARTS_OF_ONE_SIZE).min(16)
    }

    fn checked<T>(&mut self, result: Result<T>) -> Result<T> {
        if let Err(e) = &result {
            self.failure = Some(e.clone());
            self.abort();
        }
        result
    }

    fn add(&mut self, mut content: &[u8]) -> Result<()> {
        self.is_behind |= !content.is_empty();
        while !content.is_empty() {
            let room = self.part_bytes().saturating_sub(self.pending.len());
            let (now, later) = content.split_at(room.min(content.len()));
            self.pending.extend_from_slice(now);
            content = later;
            if self.pending.len() >= self.part_bytes() {
                self.send_part()?;
            }
        }
        Ok(())
    }

    fn send_part(&mut self) -> Result<()> {
        if self.upload.is_none() {
            self.upload = Some(self.start_upload()?);
        }
        let upload = self.upload.as_mut().expect("made above");
        if upload.under_way.len() >= PARTS_UNDER_WAY
            && let Some(part) = upload.under_way.pop_front()
        {
            upload.parts.push(part.wait()?);
        }
        upload.number += 1;
        let body = Bytes::from(std::mem::take(&mut self.pending));
        upload.bytes += body.len() as u64;
        let (client, object) = (Arc::clone(&self.client), self.object.clone());
        let (name, number) = (Arc::clone(&upload.name), upload.number);
        let sending = async move { client.put_part(&object, &name, number, body).await };
        upload.under_way.push_back(self.driver.start(sending));
        Ok(())
    }

    fn start_upload(&self) -> Result<Upload> {
        let (client, object, before) = (Arc::clone(&self.client), self.object.clone(), self.before);
        let (name, parts) = self.driver.wait(async move {
            let name = client.start_upload(&object).await?;
            if before == 0 {
                return Ok((name, Vec::new()));
            }
            match client.copy_parts(&object, &object, &name, before).await {
                Ok(parts) => Ok((name, parts)),
                Err(e) => {
                    let _ = client.abort_upload(&object, &name).await;
                    Err(e)
                }
            }
        })?;
        let number = parts.len() as u32;
        let under_way = VecDeque::new();
        Ok(Upload { name: name.into(), parts, under_way, number, bytes: before })
    }

    /// Makes the object have all bytes that were written.
    fn commit(&mut self) -> Result<()> {
        if !self.is_behind {
            return Ok(());
        }
        let (client, object) = (Arc::clone(&self.client), self.object.clone());
        if self.upload.is_none() && self.before == 0 {
            // Kept: later content is uploaded together with it.
            let body = Bytes::copy_from_slice(&self.pending);
            self.driver.wait(async move { client.put(&object, body).await })?;
            self.is_behind = false;
            return Ok(());
        }
        if !self.pending.is_empty() {
            self.send_part()?;
        }
        let Some(upload) = &mut self.upload else { return Ok(()) };
        while let Some(part) = upload.under_way.pop_front() {
            upload.parts.push(part.wait()?);
        }
        let (name, bytes) = (Arc::clone(&upload.name), upload.bytes);
        let parts = std::mem::take(&mut upload.parts);
        self.driver
            .wait(async move { client.complete_upload(&object, &name, &parts, bytes).await })?;
        (self.before, self.upload, self.is_behind) = (bytes, None, false);
        Ok(())
    }

    /// Aborts the multipart upload, whose parts would otherwise be billed.
    fn abort(&mut self) {
        let Some(upload) = self.upload.take() else { return };
        let (client, object) = (Arc::clone(&self.client), self.object.clone());
        let Upload { name, under_way, .. } = upload;
        drop(under_way);
        let _ = self.driver.wait(async move { client.abort_upload(&object, &name).await });
    }

    fn check(&self) -> Result<()> {
        self.failure.clone().map_or(Ok(()), Err)
    }
}

impl WriteFile for Writer {
    fn path(&self) -> &str {
        &self.object.url
    }

    fn write(&mut self, content: &[u8]) -> Result<()> {
        self.check()?;
        let added = self.add(content);
        self.checked(added)
    }

    fn flush(&mut self) -> Result<()> {
        self.check()?;
        if self.visibility == Visibility::Finished {
            return Ok(());
        }
        let committed = self.commit();
        self.checked(committed)
    }

    fn sync(&mut self) -> Result<()> {
        self.flush()
    }

    fn finish(mut self: Box<Self>) -> Result<()> {
        self.check()?;
        let committed = self.commit();
        self.is_behind = false;
        self.checked(committed)
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        if self.visibility == Visibility::Flushed && self.is_behind && self.failure.is_none() {
            let _ = self.commit();
        }
        self.abort();
    }
}
