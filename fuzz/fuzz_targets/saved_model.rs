//! `thalweg_fuzz::saved_model` under cargo-fuzz.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let folder = std::env::temp_dir().join(format!("thalweg-fuzz-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("there is room for a folder");
    thalweg_fuzz::saved_model(&folder, bytes);
});
