//! Frames and windows that make large tensors fast; HTTP/2's defaults are made for web pages.

use std::time::Duration;

use hyper::server::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioTimer};

/// Bytes of one frame.
pub(crate) const FRAME_BYTES: u32 = 1 << 20;
/// Bytes under way in one call.
pub(crate) const STREAM_WINDOW_BYTES: u32 = 8 << 20;
/// Bytes under way on one connection.
pub(crate) const CONNECTION_WINDOW_BYTES: u32 = 16 << 20;
/// Bytes of one call that wait to be sent.
pub(crate) const SEND_BUFFER_BYTES: usize = 4 << 20;
/// A peer that is silent this long is asked whether it is there, and dropped if it does not answer.
const KEEP_ALIVE: Duration = Duration::from_secs(60);

/// The listening side of a connection on which `calls_max` calls may be open at once; more wait.
pub fn accepting(calls_max: u32) -> http2::Builder<TokioExecutor> {
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
