//! `thalweg_fuzz::graph_binary` under cargo-fuzz.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| thalweg_fuzz::graph_binary(bytes));
