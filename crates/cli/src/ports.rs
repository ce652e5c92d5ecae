//! Ports: those of flags, and free ones of this machine.

use std::io;
use std::net::TcpListener;

/// The value of a flag that is a port. 0 stands for a free port that the system picks; `any` is an
/// older spelling of that.
pub(crate) fn parse_port(text: &str) -> Result<u16, String> {
    if text == "any" {
        return Ok(0);
    }
    text.parse().map_err(|_| "a port is a number from 0 to 65535; 0 picks a free one".to_owned())
}

/// Finds free ports. They are bound until this is dropped, so that none is found twice; afterwards
/// another process could take them before the task does.
#[derive(Default)]
pub(crate) struct FreePorts(Vec<TcpListener>);

impl FreePorts {
    /// This many addresses of this machine.
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
