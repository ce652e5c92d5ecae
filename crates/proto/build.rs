//! Compiles every file under `proto/` to Rust, without `protoc`.

use std::error::Error;
use std::path::{Path, PathBuf};
use std::{env, fs, io};

use prost::Message as _;

const ROOT: &str = "proto";

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo:rerun-if-changed={ROOT}");
    println!("cargo:rerun-if-changed=build.rs");

    let mut files = Vec::new();
    collect_proto_files(Path::new(ROOT), &mut files)?;
    // The file system's order is not ours: equal inputs must give equal output.
    files.sort();

    let mut descriptors = protox::compile(&files, [ROOT])?;
    prost_build::Config::new()
        .bytes(["."])
        .btree_map(["."])
        // Most attrs are a number or a type; without boxes each would take a tensor's room.
        .boxed("tensorflow.AttrValue.value.tensor")
        .boxed("tensorflow.AttrValue.value.list")
        .enable_type_names()
        // Else `google.protobuf.Any` would cost a dependency and hold a `Vec`.
        .compile_well_known_types()
        .compile_fds(descriptors.clone())?;

    // Comments became rustdoc above; at run time nobody reads them.
    for file in &mut descriptors.file {
        file.source_code_info = None;
    }
    let out_dir = PathBuf::from(env::var("OUT_DIR")?);
    fs::write(out_dir.join("descriptors.bin"), descriptors.encode_to_vec())?;
    Ok(())
}

fn collect_proto_files(dir: &Path, files: &mut Vec<PathBuf>) -> io::Result<()> {
    for entry in fs::read_dir(dir)? {
        let path = entry?.path();
        if path.is_dir() {
            collect_proto_files(&path, files)?;
        } else if path.extension().is_some_and(|extension| extension == "proto") {
            files.push(path);
        }
    }
    Ok(())
}
