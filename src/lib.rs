//! Thalweg: the distributed TensorFlow system, made anew in Rust.
