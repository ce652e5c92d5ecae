//! Accelerators: devices of PJRT plugins, which run regions of graphs as compiled programs.
//!
//! `pjrt` calls plugins. An [`Accelerator`] is a device of a session: of a partition that is placed on it,
//! `plan` makes regions; `compile` lowers a region for the shapes it meets, and `region` runs it.

mod attention;
mod cells;
mod compile;
mod control;
mod device;
mod discover;
mod inputs;
mod loops;
mod measure;
mod memory;
pub mod pjrt;
mod programs;
mod region;
mod results;
mod trips;

pub use device::{Accelerator, AcceleratorOptions, Counters, Precision, ProgramCache};
pub use discover::{
    Choice, PLUGIN_VARIABLE, PluginChoice, candidates, default_program_folder, open, open_physical,
    searched_folders,
};
pub use measure::Probe;
