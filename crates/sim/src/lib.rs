//! Steps in virtual time: a planned step played on devices that need not exist, and one form for
//! simulated and measured steps, from which the critical path and the attribution of time follow.

pub mod costs;
pub mod devices;
pub mod json;
pub mod measured;
pub mod perfetto;
pub mod simulation;
pub mod step;
pub mod summary;
pub mod timeline;
pub mod train;
pub mod units;

pub use devices::Machines;
pub use measured::measured;
pub use perfetto::trace_json;
pub use simulation::{PlacedRow, PlannedStep, Simulation, StepChoice, StepWork, VariableSize};
pub use step::{Factors, PlayedStep, StepProgram};
pub use summary::Summary;
pub use timeline::{Attribution, Segment, SegmentKind, Span, SpanKind, Timeline};
