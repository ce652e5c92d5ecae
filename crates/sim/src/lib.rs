//! Steps in virtual time: a planned step played on devices that need not exist, and one form for
//! simulated and measured steps, from which the critical path and the attribution of time follow.

pub mod costs;
pub mod devices;
pub mod json;
pub mod simulation;
pub mod step;
pub mod timeline;
pub mod units;

pub use devices::Machines;
pub use simulation::{PlacedRow, PlannedStep, Simulation, StepChoice};
pub use step::{Factors, PlayedStep, StepProgram};
pub use timeline::{Attribution, Segment, SegmentKind, Span, SpanKind, Timeline};
