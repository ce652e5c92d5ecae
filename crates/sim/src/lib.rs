//! Steps in virtual time: a planned step played on devices that need not exist, and one form for
//! simulated and measured steps, from which the critical path and the attribution of time follow.

pub mod timeline;

pub use timeline::{Attribution, Segment, SegmentKind, Span, SpanKind, Timeline};
