//! Ports of this machine that nobody listens on.

use std::io;
use std::net::TcpListener;

/// Finds free ports. They are held until it is dropped, so that none is found twice; then they are
/// there for whoever is quick, which on a machine that is one's own is whoever was told of them.
#[derive(Default)]
pub(crate) struct FreePorts(Vec<TcpListener>);

impl FreePorts {
    /// So many addresses of this machine.
    pub(crate) fn addresses(&mut self, count: usize) -> io::Result<Vec<String>> {
        let mut next = || {
            let listener = TcpListener::bind("127.0.0.1:0")?;
            let address = listener.local_addr()?.to_string();
            self.0.push(listener);
            Ok(address)
        };
        (0..count).map(|_| next()).collect()
    }
}
