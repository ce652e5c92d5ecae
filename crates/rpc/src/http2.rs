//! HTTP/2 settings for large tensors: frame size, flow-control windows, send buffer, keep-alive.

use std::time::Duration;

use hyper::server::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioTimer};

/// Bytes of one frame.
pub(crate) const FRAME_BYTES: u32 = 1 << 20;
/// Flow-control window of one call.
pub(crate) const STREAM_WINDOW_BYTES: u32 = 8 << 20;
/// Flow-control window of one connection.
pub(crate) const CONNECTION_WINDOW_BYTES: u32 = 16 << 20;
/// Bytes of one call that are buffered for sending.
pub(crate) const SEND_BUFFER_BYTES: usize = 4 << 20;
/// After this long without traffic a PING is sent; a connection that does not answer it is closed.
const KEEP_ALIVE: Duration = Duration::from_secs(60);

/// The server side of connections on which at most `calls_max` calls are open at once.
pub fn server_builder(calls_max: u32) -> http2::Builder<TokioExecutor> {
    let mut builder = http2::Builder::new(TokioExecutor::new());
    builder
        .timer(TokioTimer::new())
        .max_frame_size(FRAME_BYTES)
        .initial_stream_window_size(STREAM_WINDOW_BYTES)
        .initial_connection_window_size(CONNECTION_WINDOW_BYTES)
        .max_send_buf_size(SEND_BUFFER_BYTES)
        .max_concurrent_streams(calls_max)
        .keep_alive_interval(KEEP_ALIVE);
    builder
}
