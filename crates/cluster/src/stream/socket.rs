//! Sockets of fast streams: unix ones within a machine, TCP between machines.

use std::time::Duration;

use socket2::{SockRef, TcpKeepalive};
use thalweg_kernel::Entropy;
use tokio::net::{TcpStream, UnixListener, UnixStream};

/// Bytes under way in a socket; the system may allow less.
const BUFFER_BYTES: usize = 4 << 20;
/// A peer that has said nothing for that long is asked by the system whether it is there.
const KEEP_ALIVE: Duration = Duration::from_secs(60);

/// A unix socket with a name that nobody can guess, and the name. It leaves nothing in the file
/// system; only processes of the same network namespace can reach it.
pub(crate) fn listen(entropy: &dyn Entropy) -> std::io::Result<(UnixListener, String)> {
    let name = format!("thalweg-{:016x}{:016x}", entropy.next_u64(), entropy.next_u64());
    let listener = bind(&name)?;
    listener.set_nonblocking(true)?;
    Ok((UnixListener::from_std(listener)?, name))
}

/// Connects to the socket of that name.
pub(crate) fn connect(name: &str) -> std::io::Result<UnixStream> {
    let stream = connect_std(name)?;
    stream.set_nonblocking(true)?;
    UnixStream::from_std(stream)
}

#[cfg(target_os = "linux")]
mod names {
    use std::os::linux::net::SocketAddrExt;
    use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};

    pub(super) fn bind(name: &str) -> std::io::Result<UnixListener> {
        UnixListener::bind_addr(&SocketAddr::from_abstract_name(name)?)
    }

    pub(super) fn connect_std(name: &str) -> std::io::Result<UnixStream> {
        UnixStream::connect_addr(&SocketAddr::from_abstract_name(name)?)
    }
}

/// Other systems have no names outside the file system; there TCP does it.
#[cfg(not(target_os = "linux"))]
mod names {
    use std::io::{Error, ErrorKind, Result};
    use std::os::unix::net::{UnixListener, UnixStream};

    pub(super) fn bind(_: &str) -> Result<UnixListener> {
        Err(Error::from(ErrorKind::Unsupported))
    }

    pub(super) fn connect_std(_: &str) -> Result<UnixStream> {
        Err(Error::from(ErrorKind::Unsupported))
    }
}

use names::{bind, connect_std};

/// Makes room in a unix socket, so that its two ends seldom wait for each other.
pub(crate) fn tune_unix(stream: &UnixStream) {
    // What the system does not allow only costs speed.
    let _ = SockRef::from(stream).set_send_buffer_size(BUFFER_BYTES);
}

/// A small request must not wait for more bytes to send, and a host that is gone must be noticed.
pub(crate) fn tune_tcp(stream: &TcpStream) {
    let _ = stream.set_nodelay(true);
    let keepalive = TcpKeepalive::new().with_time(KEEP_ALIVE);
    let _ = SockRef::from(stream).set_tcp_keepalive(&keepalive);
}
