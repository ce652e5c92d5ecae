//! gRPC over HTTP/2 for messages that hold tensors: framing, responses and the client side.
//!
//! The framing is done here rather than by a library so that the bytes of a tensor are copied once on
//! the way in, from HTTP/2 frames to the memory in which they stay, and not at all on the way out. There
//! is no service here: `cluster` and `serve` route requests by their path themselves.

mod body;
mod client;
mod descriptors;
mod gather;
mod http2;
mod message;
mod pieces;
mod rope;
mod status;

pub use body::{MessageBody, message, not_grpc, response, status, status_with_origin};
pub use client::{Channel, ConnectPolicy, Method, Resolve, block_on, runtime, spawn_detached};
pub use descriptors::{connect_error, report_accept_error};
pub use gather::FieldPath;
pub use http2::server_builder;
pub use message::{ReceiveLimits, decode, decode_response, is_large, read};
pub use pieces::{Pieces, field_len};
pub use rope::Rope;
pub use status::{check_status, parse_timeout};
