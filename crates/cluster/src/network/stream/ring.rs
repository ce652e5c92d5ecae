//! Shared memory of two tasks on one machine: the sender copies chunks of large tensors into slots, the receiver
//! copies them out, which is faster than a unix socket.
//!
//! The receiver allocates the memory (a sealed memfd) and sends the file descriptor's number; the sender opens
//! that descriptor of the peer process under `/proc`. Messages on the socket say which slots are filled or free,
//! so nothing but content of tensors is ever read from the shared memory, and the loss of a task is noticed on
//! the socket. If shared memory cannot be set up, all content is sent over the socket.

use std::io;
use std::sync::Arc;

use super::frame::{RingOffer, SlotRange};
pub(super) use super::slot_set::{SLOTS, SlotSet};

/// Size of a slot; small enough that all slots stay in the L2 cache.
pub(super) const SLOT_BYTES: usize = 512 << 10;
/// Size of the shared memory.
pub(super) const BYTES: usize = SLOTS * SLOT_BYTES;
/// The first tensor of at least this size has shared memory allocated.
pub(super) const RING_TENSOR_BYTES_MIN: u64 = 1 << 20;
/// Content below this size is sent over the socket: filling, announcing and freeing a slot costs more.
pub(super) const SLOT_CONTENT_BYTES_MIN: usize = 64 << 10;

pub(super) use system::Ring;

/// Whether a slot range lies within a ring.
pub(super) fn is_valid(range: SlotRange) -> bool {
    range.slot < SLOTS && range.count <= SLOT_BYTES
}

#[cfg(target_os = "linux")]
mod system {
    use std::ffi::CStr;
    use std::fs::{File, OpenOptions};
    use std::io;
    use std::os::fd::{AsRawFd, FromRawFd};
    use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
    use std::ptr::NonNull;

    use super::{BYTES, RingOffer, SLOT_BYTES, SlotRange, is_valid};

    const NAME: &CStr = c"thalweg-ring";
    /// The target of the symbolic link under `/proc/PID/fd`.
    const LINK_TARGET: &str = "/memfd:thalweg-ring (deleted)";
    /// The file cannot shrink: access to a truncated page would raise SIGBUS.
    const SEALS: libc::c_int = libc::F_SEAL_SHRINK | libc::F_SEAL_GROW | libc::F_SEAL_SEAL;

    /// The mapped slots.
    pub(in super::super) struct Ring {
        start: NonNull<u8>,
        offer: RingOffer,
        /// Kept open, so that the other process can open it under `/proc`.
        _file: File,
    }

    // SAFETY: the pages are reached through the ring alone in this process, and by any thread.
    unsafe impl Send for Ring {}

    impl Ring {
        /// Allocates a ring with all of its pages.
        pub(in super::super) fn allocate() -> io::Result<Ring> {
            let flags = libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING;
            // SAFETY: the name ends with a zero byte.
            let fd = check(unsafe { libc::memfd_create(NAME.as_ptr(), flags) })?;
            // SAFETY: the descriptor was just created, and nothing else owns it.
            let file = unsafe { File::from_raw_fd(fd) };
            // SAFETY: the call takes integers only, of an open file.
            match unsafe { libc::posix_fallocate(fd, 0, BYTES as libc::off_t) } {
                0 => {}
                code => return Err(io::Error::from_raw_os_error(code)),
            }
            // SAFETY: as above.
            check(unsafe { libc::fcntl(fd, libc::F_ADD_SEALS, SEALS) })?;
            Ring::map(file)
        }

        /// Opens the ring that a process offers. Fails if the descriptor is any other file: in another PID
        /// namespace the same process id means another process.
        pub(in super::super) fn open(process: i32, offer: RingOffer) -> io::Result<Ring> {
            let path = format!("/proc/{process}/fd/{}", offer.fd);
            // Opening another kind of file could block or have side effects.
            if std::fs::read_link(&path)?.as_os_str() != LINK_TARGET {
                return Err(io::ErrorKind::InvalidInput.into());
            }
            let mut options = OpenOptions::new();
            let file = options.read(true).write(true).custom_flags(libc::O_NONBLOCK).open(path)?;
            // SAFETY: the call takes integers only, of an open file.
            let seals = check(unsafe { libc::fcntl(file.as_raw_fd(), libc::F_GET_SEALS) })?;
            let metadata = file.metadata()?;
            if seals & SEALS != SEALS
                || (metadata.len(), metadata.ino()) != (BYTES as u64, offer.inode)
            {
                return Err(io::ErrorKind::InvalidInput.into());
            }
            Ring::map(file)
        }

        /// Maps a file of `BYTES` bytes that cannot shrink.
        fn map(file: File) -> io::Result<Ring> {
            let fd = file.as_raw_fd();
            let offer = RingOffer { fd: fd as u64, inode: file.metadata()?.ino() };
            let protection = libc::PROT_READ | libc::PROT_WRITE;
            let flags = libc::MAP_SHARED | libc::MAP_POPULATE;
            // SAFETY: the kernel chooses the address, so no mapping of ours is replaced.
            let start =
                unsafe { libc::mmap(std::ptr::null_mut(), BYTES, protection, flags, fd, 0) };
            if start == libc::MAP_FAILED {
                return Err(io::Error::last_os_error());
            }
            let start = NonNull::new(start.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
            Ok(Ring { start, offer, _file: file })
        }

        /// The offer by which another process opens it.
        pub(in super::super) fn offer(&self) -> RingOffer {
            self.offer
        }

        /// Copies into a slot; panics if the bytes exceed it.
        pub(in super::super) fn write(&mut self, slot: usize, bytes: &[u8]) {
            assert!(
                is_valid(SlotRange { slot, count: bytes.len() }),
                "the range lies within a slot"
            );
            // SAFETY: the slot lies within the mapped pages, which no reference of ours points to. A
            // peer that violates the protocol may access it concurrently, which only garbles the content.
            unsafe {
                let target = self.start.as_ptr().add(slot * SLOT_BYTES);
                std::ptr::copy_nonoverlapping(bytes.as_ptr(), target, bytes.len());
            }
        }

        /// Copies out of a slot; panics if the target exceeds it.
        pub(in super::super) fn read(&self, slot: usize, target: &mut [u8]) {
            assert!(
                is_valid(SlotRange { slot, count: target.len() }),
                "the range lies within a slot"
            );
            // SAFETY: as for `write`; every byte value is valid.
            unsafe {
                let source = self.start.as_ptr().add(slot * SLOT_BYTES);
                std::ptr::copy_nonoverlapping(source, target.as_mut_ptr(), target.len());
            }
        }
    }

    impl Drop for Ring {
        fn drop(&mut self) {
            // SAFETY: these pages were mapped by `map`, and nothing points to them any more.
            unsafe { libc::munmap(self.start.as_ptr().cast(), BYTES) };
        }
    }

    fn check(result: libc::c_int) -> io::Result<libc::c_int> {
        if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
    }
}

/// Other systems send all content over the socket.
#[cfg(not(target_os = "linux"))]
mod system {
    use std::io;

    use super::RingOffer;

    /// Uninhabited: there is no shared memory.
    pub(in super::super) enum Ring {}

    impl Ring {
        pub(in super::super) fn allocate() -> io::Result<Ring> {
            Err(io::ErrorKind::Unsupported.into())
        }

        pub(in super::super) fn open(_: i32, _: RingOffer) -> io::Result<Ring> {
            Err(io::ErrorKind::Unsupported.into())
        }

        pub(in super::super) fn offer(&self) -> RingOffer {
            match *self {}
        }

        pub(in super::super) fn write(&mut self, _: usize, _: &[u8]) {
            match *self {}
        }

        pub(in super::super) fn read(&self, _: usize, _: &mut [u8]) {
            match *self {}
        }
    }
}

/// The sender's side of a ring: the slots, and the set of those that are free.
pub(super) struct RingWriter {
    ring: Ring,
    free: Arc<SlotSet>,
}

impl RingWriter {
    /// Opens the ring that a process offers, with all slots free; also returns the set of free slots, to which
    /// the reader of `SlotFreed` frames adds.
    pub(super) fn open(process: i32, offer: RingOffer) -> io::Result<(RingWriter, Arc<SlotSet>)> {
        let free = Arc::new(SlotSet::all());
        Ok((RingWriter { ring: Ring::open(process, offer)?, free: free.clone() }, free))
    }

    pub(super) fn is_full(&self) -> bool {
        self.free.is_empty()
    }

    /// Copies up to a slot of the first bytes into a free slot; none if no slot is free.
    pub(super) fn write(&mut self, bytes: &[u8]) -> Option<SlotRange> {
        let slot = self.free.take()?;
        let count = bytes.len().min(SLOT_BYTES);
        self.ring.write(slot, &bytes[..count]);
        Some(SlotRange { slot, count })
    }
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    #[test]
    fn the_receiver_reads_what_the_sender_wrote() {
        let ours = Ring::allocate().unwrap();
        let mut theirs = Ring::open(std::process::id() as i32, ours.offer()).unwrap();
        for slot in 0..SLOTS {
            theirs.write(slot, &vec![slot as u8 + 1; SLOT_BYTES]);
        }
        drop(theirs);
        for slot in 0..SLOTS {
            let mut got = vec![0; SLOT_BYTES];
            ours.read(slot, &mut got);
            assert!(got.iter().all(|byte| *byte == slot as u8 + 1), "{slot}");
        }
    }

    /// A file that can shrink could raise SIGBUS, and opening a pipe could block.
    #[test]
    fn only_the_offered_ring_is_opened() {
        use std::os::fd::AsRawFd;
        use std::os::unix::fs::MetadataExt;
        let own = std::process::id() as i32;
        let kind = |offer: RingOffer| Ring::open(own, offer).err().map(|e| e.kind());
        let (end, _other) = io::pipe().unwrap();
        let executable = std::fs::File::open(std::env::current_exe().unwrap()).unwrap();
        // SAFETY: the name ends with a zero byte.
        let unsealed = unsafe {
            libc::memfd_create(
                c"thalweg-ring".as_ptr(),
                libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING,
            )
        };
        // SAFETY: the descriptor was just created.
        let unsealed = unsafe { <std::fs::File as std::os::fd::FromRawFd>::from_raw_fd(unsealed) };
        unsealed.set_len(BYTES as u64).unwrap();
        let unsealed_inode = unsealed.metadata().unwrap().ino();
        let wrong = Some(io::ErrorKind::InvalidInput);
        for (fd, inode) in [
            (end.as_raw_fd(), 0),
            (executable.as_raw_fd(), executable.metadata().unwrap().ino()),
            (unsealed.as_raw_fd(), unsealed_inode),
        ] {
            assert_eq!(kind(RingOffer { fd: fd as u64, inode }), wrong);
        }
        let (ring, other) = (Ring::allocate().unwrap(), Ring::allocate().unwrap());
        assert_eq!(
            kind(RingOffer { inode: other.offer().inode, ..ring.offer() }),
            wrong,
            "another ring"
        );
        assert_eq!(kind(ring.offer()), None);
        let nowhere = RingOffer { fd: u64::MAX, inode: 0 };
        assert_eq!(kind(nowhere), Some(io::ErrorKind::NotFound));
        // A process of another PID namespace.
        assert!(Ring::open(0, ring.offer()).is_err_and(|e| e.kind() == io::ErrorKind::NotFound));
    }

    /// Neither process can truncate the memory under the other.
    #[test]
    fn a_ring_keeps_its_pages() {
        let ring = Ring::allocate().unwrap();
        let path = format!("/proc/self/fd/{}", ring.offer().fd);
        let file = std::fs::OpenOptions::new().write(true).open(path).unwrap();
        for len in [0, BYTES as u64 + 1] {
            let e = file.set_len(len).unwrap_err();
            assert_eq!(e.kind(), io::ErrorKind::PermissionDenied, "{len}: {e}");
        }
        let mut got = [1];
        ring.read(SLOTS - 1, &mut got);
        assert_eq!(got, [0]);
    }
}
