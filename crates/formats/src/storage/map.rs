//! Memory-mapped local files.
#![expect(unsafe_code, reason = "mapping a file is asking the system for memory")]

use std::fs::File;
use std::io;

use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};
use thalweg_tensor::Bytes;

/// Pages of a file, mapped for reading.
struct Mapping {
    start: *mut std::ffi::c_void,
    length: usize,
}

// SAFETY: the pages are only read, from any thread, and unmapped once, when the last reference is dropped.
unsafe impl Send for Mapping {}
// SAFETY: as above.
unsafe impl Sync for Mapping {}

impl AsRef<[u8]> for Mapping {
    fn as_ref(&self) -> &[u8] {
        // SAFETY: `start` is the beginning of `length` mapped bytes, which stay mapped as long as
        // `self` lives. This process does not write to them, and the caller of `ReadAt::map`
        // guarantees that no other process changes the file.
        unsafe { std::slice::from_raw_parts(self.start.cast(), self.length) }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: `map` mapped these pages, and this is the last reference to them.
        let _ = unsafe { munmap(self.start, self.length) };
    }
}

/// Maps the first `length` bytes of a file, which must exist.
pub(super) fn map(file: &File, length: usize) -> io::Result<Bytes> {
    if length == 0 {
        return Ok(Bytes::new());
    }
    // SAFETY: the kernel chooses the address, so no existing mapping is replaced; the pages are private
    // and read-only.
    let start =
        unsafe { mmap(std::ptr::null_mut(), length, ProtFlags::READ, MapFlags::PRIVATE, file, 0) }?;
    Ok(Bytes::from_owner(Mapping { start, length }))
}
