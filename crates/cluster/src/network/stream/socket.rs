//! Sockets of the stream protocol: unix sockets within a machine, TCP between machines.

use std::io::{ErrorKind, Result};
use std::time::Duration;

use socket2::{SockRef, TcpKeepalive};
use thalweg_kernel::Entropy;
use tokio::net::{TcpStream, UnixListener, UnixStream};

/// Size of a socket's buffers; the system may allow less.
const BUFFER_BYTES: usize = 4 << 20;
/// TCP keep-alive: idle time before the first probe.
const KEEP_ALIVE: Duration = Duration::from_secs(60);

/// Prefix of the names of unix sockets.
const NAME_PREFIX: &str = "thalweg-";

/// Listens on a unix socket with a random name in the abstract namespace; returns the name too. Every process
/// of the same network namespace can connect to it; [`is_of`] checks the user.
pub(crate) fn listen(entropy: &dyn Entropy) -> Result<(UnixListener, String)> {
    let name = format!("{NAME_PREFIX}{:016x}{:016x}", entropy.next_u64(), entropy.next_u64());
    let listener = bind(&name)?;
    listener.set_nonblocking(true)?;
    Ok((UnixListener::from_std(listener)?, name))
}

/// Connects to the socket of this name, which another task sent; its process must be of our user.
pub(crate) async fn connect(name: &str) -> Result<UnixStream> {
    if !name.starts_with(NAME_PREFIX) {
        return Err(ErrorKind::InvalidInput.into());
    }
    let stream = UnixStream::connect(address(name)?).await?;
    match is_of(own_user()?, &stream) {
        true => Ok(stream),
        false => Err(ErrorKind::PermissionDenied.into()),
    }
}

/// The effective user id of this process.
pub(crate) fn own_user() -> Result<u32> {
    // Peer credentials of a socket pair are our own.
    Ok(UnixStream::pair()?.0.peer_cred()?.uid())
}

/// Whether the process at the other end has this user id. Other users use TCP.
pub(crate) fn is_of(user: u32, stream: &UnixStream) -> bool {
    stream.peer_cred().is_ok_and(|peer| peer.uid() == user)
}

#[cfg(target_os = "linux")]
mod names {
    use std::io::Result;
    use std::os::linux::net::SocketAddrExt;
    use std::os::unix::net::{SocketAddr, UnixListener};

    pub(super) fn bind(name: &str) -> Result<UnixListener> {
        UnixListener::bind_addr(&SocketAddr::from_abstract_name(name)?)
    }

    /// The address in tokio's notation.
    pub(super) fn address(name: &str) -> Result<String> {
        Ok(format!("\0{name}"))
    }
}

/// Other systems have no abstract namespace; streams use TCP there.
#[cfg(not(target_os = "linux"))]
mod names {
    use std::io::{Error, ErrorKind, Result};
    use std::os::unix::net::UnixListener;

    pub(super) fn bind(_: &str) -> Result<UnixListener> {
        Err(Error::from(ErrorKind::Unsupported))
    }

    pub(super) fn address(_: &str) -> Result<String> {
        Err(Error::from(ErrorKind::Unsupported))
    }
}

use names::{address, bind};

/// Enlarges the buffers of a unix socket.
pub(crate) fn tune_unix(stream: &UnixStream) {
    // A smaller buffer only costs speed.
    let _ = SockRef::from(stream).set_send_buffer_size(BUFFER_BYTES);
}

/// Sends small requests at once (no Nagle), and detects dead hosts by keep-alive.
pub(crate) fn tune_tcp(stream: &TcpStream) {
    let _ = stream.set_nodelay(true);
    let keepalive = TcpKeepalive::new().with_time(KEEP_ALIVE);
    let _ = SockRef::from(stream).set_tcp_keepalive(&keepalive);
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    struct Counter(std::sync::atomic::AtomicU64);

    impl Entropy for Counter {
        fn next_u64(&self) -> u64 {
            let pid = u64::from(std::process::id());
            (pid << 32) | self.0.fetch_add(1, std::sync::atomic::Ordering::Relaxed)
        }
    }

    #[test]
    fn only_sockets_of_ours_and_of_our_user_are_used() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build().unwrap();
        runtime.block_on(async {
            let (listener, name) = listen(&Counter(0.into())).unwrap();
            let stream = connect(&name).await.unwrap();
            let (accepted, _) = listener.accept().await.unwrap();
            let user = own_user().unwrap();
            for end in [&stream, &accepted] {
                assert!(is_of(user, end) && !is_of(user ^ 1, end));
            }
            let foreign = format!("other-{name}");
            let _other = bind(&foreign).unwrap();
            for (name, kind) in [
                (&*foreign, ErrorKind::InvalidInput),
                ("", ErrorKind::InvalidInput),
                ("thalweg-unbound", ErrorKind::ConnectionRefused),
            ] {
                assert_eq!(connect(name).await.err().unwrap().kind(), kind, "{name:?}");
            }
            let long = connect(&format!("thalweg-{}", "x".repeat(200))).await.err().unwrap();
            assert_eq!(long.kind(), ErrorKind::InvalidInput, "{long}");
        });
    }

    /// A listener that accepts no connections must not block the connecting thread.
    #[test]
    fn connecting_to_a_full_backlog_does_not_block() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build().unwrap();
        runtime.block_on(async {
            let name = format!("thalweg-full-{}", std::process::id());
            let full = socket2::Socket::new(socket2::Domain::UNIX, socket2::Type::STREAM, None);
            let full = full.unwrap();
            full.bind(&socket2::SockAddr::unix(address(&name).unwrap()).unwrap()).unwrap();
            full.listen(0).unwrap();
            let mut accepted = Vec::new();
            let refused = loop {
                match connect(&name).await {
                    Ok(stream) => accepted.push(stream),
                    Err(e) => break e,
                }
                assert!(accepted.len() < 10, "the backlog is bounded");
            };
            assert_eq!(refused.kind(), ErrorKind::WouldBlock);
        });
    }
}
