//! `thalweg_fuzz::graph_text` under cargo-fuzz.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| thalweg_fuzz::graph_text(bytes));
