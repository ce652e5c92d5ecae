//! `thalweg_fuzz::checkpoint_index` under cargo-fuzz.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| thalweg_fuzz::checkpoint_index(bytes));
