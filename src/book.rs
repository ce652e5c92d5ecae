//! The Rust blocks of the book are tests of documentation: a page is that of an item here.
//! `cargo xtask docs --check` tells which page is missing.

#[doc = include_str!("../docs/src/concepts/control-flow.md")]
struct ControlFlow;

#[doc = include_str!("../docs/src/concepts/gradients.md")]
struct Gradients;

#[doc = include_str!("../docs/src/concepts/rust-api.md")]
struct RustApi;

#[doc = include_str!("../docs/src/how-to/accelerators.md")]
struct Accelerators;

#[doc = include_str!("../docs/src/how-to/checkpoints.md")]
struct Checkpoints;

#[doc = include_str!("../docs/src/how-to/files.md")]
struct Files;

#[doc = include_str!("../docs/src/how-to/input.md")]
struct Input;

#[doc = include_str!("../docs/src/how-to/logging.md")]
struct Logging;

#[doc = include_str!("../docs/src/how-to/models.md")]
struct Models;

#[doc = include_str!("../docs/src/how-to/server.md")]
struct Server;

#[doc = include_str!("../docs/src/how-to/training.md")]
struct Training;

#[doc = include_str!("../docs/src/tutorial/graphs.md")]
struct Graphs;

#[doc = include_str!("../docs/src/tutorial/own-net.md")]
struct OwnNet;
