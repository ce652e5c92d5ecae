//! Calls a gRPC method again and again with one message, from a process of its own.
//!
//!     thalweg-load call ADDRESS METHOD MESSAGE_FILE SECONDS IN_FLIGHT [RATE]
//!     thalweg-load echo
//!
//! Without a rate each of the calls in flight is followed by the next: how much a server can do. With
//! one, calls are due at even distances whether or not earlier ones were answered, and a time counts
//! from the moment at which the call was due: what a caller waits at that load. `echo` is a bare
//! server, hyper and nothing else, that sends every message back.
#![expect(clippy::disallowed_methods, reason = "it measures time")]

mod call;
mod echo;

use std::error::Error;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

type Outcome<T> = Result<T, Box<dyn Error + Send + Sync>>;

fn main() -> Outcome<()> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    match args[..] {
        ["echo"] => tokio::runtime::Runtime::new()?.block_on(echo::serve()),
        ["call", address, method, file, seconds, in_flight, ref rate @ ..] => {
            let load = call::Load {
                address: address.to_owned(),
                method: method.to_owned(),
                message: std::fs::read(file)?,
                seconds: seconds.parse()?,
                in_flight: in_flight.parse()?,
                rate: rate.first().map(|rate| rate.parse()).transpose()?,
            };
            // One thread, so that the server has the other cores.
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
            println!("{}", runtime.block_on(load.run())?);
            Ok(())
        }
        _ => Err("call ADDRESS METHOD MESSAGE_FILE SECONDS IN_FLIGHT [RATE], or echo".into()),
    }
}
