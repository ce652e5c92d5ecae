//! `thalweg_fuzz::tensor_file` under cargo-fuzz.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| thalweg_fuzz::tensor_file(bytes));
