//! `thalweg health`: a health check of a server, for container probes.

use std::io::Write;
use std::time::Duration;

use serde_json::json;
use thalweg_cluster::grpc::check_health;

use crate::Failure;
use crate::server;

/// Check the health of a server: exit code 0 if it serves, else 1.
#[derive(clap::Args, Clone, Debug)]
pub struct Args {
    /// The server, host:port [default: this machine, with the port of this task in TF_CONFIG, or
    /// 2222]
    #[arg(long, value_name = "ADDRESS")]
    address: Option<String>,

    /// Deadline in seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 3.0)]
    timeout: f64,

    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// Queries the server.
pub fn run(args: &Args, out: &mut dyn Write) -> Result<(), Failure> {
    let address = match &args.address {
        Some(address) => address.clone(),
        None => server::own_address(),
    };
    let limit = Duration::try_from_secs_f64(args.timeout)
        .map_err(|e| Failure::Usage(format!("--timeout {}: {e}", args.timeout)))?;
    let health = check_health(&address, limit);
    if args.json {
        let why = health.as_ref().err().map(|e| e.message().to_owned());
        writeln!(out, "{}", json!({"address": address, "serving": health.is_ok(), "why": why}))?;
    } else {
        match &health {
            Ok(()) => writeln!(out, "{address} serves")?,
            Err(e) => writeln!(out, "{address} does not serve: {}", e.message())?,
        }
    }
    health.map_err(|_| Failure::Exit(1))
}
