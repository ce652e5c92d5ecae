//! `thalweg health`: a health check of a server, for container probes.

use std::io::Write;
use std::time::Duration;

use serde_json::json;
use thalweg_cluster::grpc::check_health;

use crate::run::parse_seconds;
use crate::{Failure, server};

/// Check the health of a server: exit code 0 if it serves, else 1.
#[derive(clap::Args, Clone, Debug)]
pub struct Args {
    /// The server [default: this machine, with the port of this task in TF_CONFIG, or 2222]
    #[arg(long, alias = "address", value_name = "HOST:PORT", help_heading = "Request")]
    server: Option<String>,

    /// Deadline of the request in seconds
    #[arg(long, value_name = "SECONDS", default_value = "3", value_parser = parse_seconds,
          help_heading = "Request")]
    timeout: Duration,

    /// Print one JSON object instead of text
    #[arg(long, help_heading = "Output")]
    json: bool,
}

/// Queries the server.
pub fn run(args: &Args, out: &mut dyn Write) -> Result<(), Failure> {
    let address = match &args.server {
        Some(address) => address.clone(),
        None => server::own_address(),
    };
    let health = check_health(&address, args.timeout);
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
