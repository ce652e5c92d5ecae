//! Frames and windows that make large tensors fast; HTTP/2's defaults are made for web pages.

/// Bytes of one frame.
pub const FRAME_BYTES: u32 = 1 << 20;
/// Bytes under way in one call.
pub const STREAM_WINDOW_BYTES: u32 = 8 << 20;
/// Bytes under way on one connection.
pub const CONNECTION_WINDOW_BYTES: u32 = 16 << 20;
/// Bytes of one call that wait to be sent.
pub const SEND_BUFFER_BYTES: usize = 4 << 20;
