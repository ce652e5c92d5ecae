//! `thalweg checkpoint convert`: converts the tensors of a file to another file format.

use std::collections::BTreeMap;
use std::io::Write;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use prost::Message;
use thalweg_formats::checkpoint::{BundleWriter, WriteOptions, object_graph, prefix_of};
use thalweg_formats::npz::NpzWriter;
use thalweg_formats::safetensors::{SafetensorsWriter, dtype_name};
use thalweg_proto::TensorProto;
use thalweg_tensor::{Context, DType, Error, Result, Shape, Tensor, bail, ensure, err, npy};

use super::open;
use super::source::{Source, Tensors, storage};
use crate::Failure;

/// The prefix of metadata entries in a safetensors file that hold string tensors.
const STRINGS: &str = "thalweg.strings:";

/// Converts, and reports what was written.
pub(super) fn run(
    input: &str,
    output: &str,
    skip_unsupported: bool,
    sync: bool,
    out: &mut dyn Write,
) -> Result<(), Failure> {
    let source = open(input)?;
    let mut conversion =
        Conversion { source: &source, output, skip_unsupported, sync, written: 0, skipped: vec![] };
    if output.ends_with(".npz") {
        conversion.write_npz()?;
    } else if output.ends_with(".safetensors") {
        conversion.write_safetensors()?;
    } else {
        conversion.write_bundle()?;
    }
    for reason in &conversion.skipped {
        writeln!(out, "left out: {reason}")?;
    }
    Ok(writeln!(out, "{} tensors of {} in {output}", conversion.written, source.path)?)
}

struct Conversion<'a> {
    source: &'a Source,
    output: &'a str,
    skip_unsupported: bool,
    sync: bool,
    written: usize,
    /// Why tensors were left out.
    skipped: Vec<String>,
}

impl Conversion<'_> {
    fn options(&self) -> WriteOptions {
        WriteOptions { sync: self.sync }
    }

    /// Continues after a tensor that the output format does not support, if `--skip-unsupported` is
    /// set.
    fn skip(&mut self, error: Error) -> Result<()> {
        if !self.skip_unsupported {
            return Err(
                error.map_message(|m| format!("{m} (--skip-unsupported leaves such tensors out)"))
            );
        }
        self.skipped.push(error.message().to_owned());
        Ok(())
    }

    fn write_bundle(&mut self) -> Result<()> {
        if let Some(prefix) = prefix_of(self.output) {
            bail!(
                InvalidArgument,
                "{} is a file of a checkpoint; the output must be its prefix: {prefix}",
                self.output
            );
        }
        let mut writer = BundleWriter::create(&storage(), self.output, self.options())?;
        for name in self.source.names() {
            let mut tensor = self.source.read(&name)?;
            let is_bytes = tensor.dtype() == DType::UInt8 && tensor.rank() == 1;
            if name == object_graph::KEY && is_bytes {
                tensor = Tensor::scalar_string(tensor.to_bytes()?);
            }
            writer.add(&name, &tensor)?;
            self.written += 1;
        }
        if let Tensors::Safetensors(reader) = self.source.tensors() {
            for (key, text) in reader.metadata() {
                let Some(name) = key.strip_prefix(STRINGS) else { continue };
                let tensor =
                    strings_of(text).context(|| format!("{}: '{key}'", self.source.path))?;
                writer.add(name, &tensor)?;
                self.written += 1;
            }
        }
        writer.finish()
    }

    fn write_npz(&mut self) -> Result<()> {
        let storage = storage();
        storage.create_folder_of(self.output)?;
        let mut writer = NpzWriter::new(self.options().replace(&*storage, self.output)?);
        for name in self.source.names() {
            let mut tensor = self.source.read(&name)?;
            if name == object_graph::KEY
                && let Ok([text]) = tensor.strings()
            {
                // A NumPy string array drops trailing zero bytes.
                tensor =
                    Tensor::from_bytes(DType::UInt8, Shape::new(&[text.len()])?, text.clone())?;
            }
            if let Err(e) = check_npz(&tensor) {
                self.skip(e.map_message(|m| format!("tensor '{name}': {m}")))?;
                continue;
            }
            writer.add(&name, &tensor).context(|| format!("tensor '{name}'"))?;
            self.written += 1;
        }
        writer.finish()
    }

    fn write_safetensors(&mut self) -> Result<()> {
        let (mut tensors, mut texts) = (Vec::new(), BTreeMap::new());
        for name in self.source.names() {
            let info = self.source.info(&name)?;
            if info.dtype == DType::String {
                let proto = self.source.read(&name)?.to_proto()?;
                texts.insert(format!("{STRINGS}{name}"), STANDARD.encode(proto.encode_to_vec()));
                self.written += 1;
            } else if dtype_name(info.dtype).is_none() {
                self.skip(err!(
                    InvalidArgument,
                    "tensor '{name}': the safetensors format has no dtype {}",
                    info.dtype
                ))?;
            } else {
                tensors.push((name, info.dtype, info.shape));
            }
        }
        let storage = storage();
        storage.create_folder_of(self.output)?;
        let file = self.options().replace(&*storage, self.output)?;
        let mut writer = SafetensorsWriter::new(file, tensors, &texts)?;
        while let Some(name) = writer.next_name() {
            let tensor = self.source.read(name)?;
            writer.add(&tensor)?;
            self.written += 1;
        }
        writer.finish()
    }
}

/// Fails if an npz file cannot represent a tensor.
fn check_npz(tensor: &Tensor) -> Result<()> {
    let dtype = tensor.dtype();
    if dtype == DType::String {
        return npy::write(tensor).map(drop);
    }
    ensure!(
        matches!(dtype, DType::Bool | DType::Half | DType::BFloat16 | DType::Float | DType::Double)
            || dtype.is_complex()
            || dtype.is_integer() && !matches!(dtype.name(), "int4" | "uint4" | "int2" | "uint2"),
        InvalidArgument,
        "an .npy file does not keep the type {dtype}"
    );
    Ok(())
}

fn strings_of(text: &str) -> Result<Tensor> {
    let bytes = STANDARD.decode(text).map_err(|e| err!(DataLoss, "not base64: {e}"))?;
    let proto =
        TensorProto::decode(&bytes[..]).map_err(|e| err!(DataLoss, "not a TensorProto: {e}"))?;
    Tensor::from_proto(&proto, None)
}
