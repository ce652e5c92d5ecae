//! Everything that CI does.
fn main() {}
