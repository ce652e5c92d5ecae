//! Clients and their devices.

use std::fmt;
use std::sync::Arc;

use thalweg_tensor::{Code, Context, Result, Tensor, ensure, err};

use super::buffer::element_type;
use super::{Buffer, Executable, OptionValue, Plugin, raw};

/// A connection to the devices of a plugin.
pub struct Client {
    raw: Arc<raw::Client>,
    plugin: Arc<Plugin>,
    platform_name: String,
    platform_version: String,
    devices: Vec<Device>,
}

/// A device that programs of this process can use.
pub struct Device {
    pub(super) client: Arc<raw::Client>,
    ordinal: usize,
    id: i32,
    kind: String,
    debug: String,
    /// Name of its memory, for messages.
    pub(super) space: Arc<str>,
}

/// The memory of a device, as far as the plugin says.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MemoryStats {
    /// Bytes in use.
    pub bytes_in_use: Option<u64>,
    /// The most bytes that were in use at once.
    pub peak_bytes_in_use: Option<u64>,
    /// The most bytes that may be.
    pub bytes_limit: Option<u64>,
}

/// How a program is compiled.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct CompileOptions {
    /// Index in [`Client::devices`] of the device on which the program runs.
    pub device: usize,
    /// XLA's debug options by name, without `--`: `("xla_cpu_enable_fast_math", Bool(false))`.
    pub overrides: Vec<(String, OptionValue)>,
}

impl Client {
    /// A client with the plugin's own options: `cpu_device_count` of XLA's CPU backend,
    /// `memory_fraction`, `preallocate` and `visible_devices` of its GPU backend. The memories of its devices
    /// have names after the platform, `CPU:0 memory`.
    pub fn create(plugin: &Arc<Plugin>, options: &[(&str, OptionValue)]) -> Result<Arc<Client>> {
        Self::create_as(plugin, options, None)
    }

    /// As [`Client::create`]; the names of memories begin with `device_type`: `GPU:0 memory`.
    pub fn create_named(
        plugin: &Arc<Plugin>,
        options: &[(&str, OptionValue)],
        device_type: &str,
    ) -> Result<Arc<Client>> {
        Self::create_as(plugin, options, Some(device_type))
    }

    fn create_as(
        plugin: &Arc<Plugin>,
        options: &[(&str, OptionValue)],
        device_type: Option<&str>,
    ) -> Result<Arc<Client>> {
        let raw = raw::Client::create(plugin.api, options)
            .context(|| format!("creating a client of {}", plugin.path().display()))?;
        let platform_name = raw.platform_name()?;
        let device_type = device_type.map_or_else(|| platform_name.to_uppercase(), str::to_owned);
        let device = |ordinal: usize| {
            let raw::DeviceInfo { id, kind, debug } = raw.device_info(ordinal)?;
            let space = format!("{device_type}:{ordinal} memory").into();
            Ok(Device { client: raw.clone(), ordinal, id, kind, debug, space })
        };
        let devices = (0..raw.device_count()).map(device).collect::<Result<Vec<Device>>>()?;
        let platform_version = raw.platform_version()?;
        let plugin = plugin.clone();
        Ok(Arc::new(Client { raw, plugin, platform_name, platform_version, devices }))
    }

    /// The plugin.
    pub fn plugin(&self) -> &Arc<Plugin> {
        &self.plugin
    }

    /// What the devices are: `cpu`, `cuda`, `tpu`.
    pub fn platform_name(&self) -> &str {
        &self.platform_name
    }

    /// Version of the platform, as its maker writes it.
    pub fn platform_version(&self) -> &str {
        &self.platform_version
    }

    /// The devices that this process can use. A device is named by its index here, its ordinal.
    pub fn devices(&self) -> &[Device] {
        &self.devices
    }

    fn device(&self, ordinal: usize) -> Result<&Device> {
        let n = self.devices.len();
        let device = self.devices.get(ordinal);
        device.ok_or_else(|| err!(InvalidArgument, "there is no device {ordinal}, only {n}"))
    }

    /// Compiles a StableHLO module (text) whose public function `main` is the program.
    pub fn compile(&self, program: &str, options: &CompileOptions) -> Result<Arc<Executable>> {
        let device = self.device(options.device)?;
        let raw = self.raw.compile(program.as_bytes(), &options.encode(device.id)?);
        // XLA gives a text that is no StableHLO this code.
        let raw = raw.map_err(|e| match e.code() {
            Code::Unknown => e.with_code(Code::InvalidArgument),
            _ => e,
        })?;
        Executable::new(raw, device)
    }

    /// Loads what [`Executable::serialize`] gave in the same version of the plugin, for the device in
    /// `options`.
    pub fn deserialize(
        &self,
        serialized: &[u8],
        options: &CompileOptions,
    ) -> Result<Arc<Executable>> {
        let device = self.device(options.device)?;
        let raw = self.raw.deserialize(serialized, &options.encode(device.id)?)?;
        Executable::new(raw, device)
    }

    /// Starts copying a tensor of the host to a device. The tensor may be dropped at once: its memory is
    /// kept until it has been read.
    pub fn upload(&self, tensor: &Tensor, device: usize) -> Result<Buffer> {
        let (device, element_type) = (self.device(device)?, element_type(tensor.dtype())?);
        let raw = self.raw.upload(tensor, element_type, device.ordinal)?;
        let (dtype, shape) = (tensor.dtype(), tensor.shape().clone());
        Ok(Buffer { raw, dtype, shape, device: device.ordinal, space: device.space.clone() })
    }
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Client({}, {} devices)", self.platform_name, self.devices.len())
    }
}

impl Device {
    /// Index in [`Client::devices`].
    pub fn ordinal(&self) -> usize {
        self.ordinal
    }

    /// The plugin's number for it, which is unique among the devices of all processes.
    pub fn id(&self) -> i32 {
        self.id
    }

    /// The model: `NVIDIA H200`.
    pub fn kind(&self) -> &str {
        &self.kind
    }

    /// What the plugin shows in messages.
    pub fn debug_string(&self) -> &str {
        &self.debug
    }

    /// Name of the device's memory, for messages.
    pub fn space(&self) -> &str {
        &self.space
    }

    /// The state of the device's memory. Some plugins say `Unimplemented`.
    pub fn memory_stats(&self) -> Result<MemoryStats> {
        let [bytes_in_use, peak_bytes_in_use, bytes_limit] =
            self.client.memory_stats(self.ordinal)?;
        Ok(MemoryStats { bytes_in_use, peak_bytes_in_use, bytes_limit })
    }
}

impl fmt::Debug for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Device({}, {})", self.ordinal, self.debug)
    }
}

impl CompileOptions {
    /// As XLA's `CompileOptionsProto`, for the device with this id.
    fn encode(&self, device_id: i32) -> Result<Vec<u8>> {
        let id = u64::try_from(device_id);
        let id = id.map_err(|_| err!(Internal, "the plugin numbers a device {device_id}"))?;
        // DeviceAssignmentProto: one replica of one computation, on that device.
        let mut computation = Vec::new();
        put_bytes(&mut computation, 1, &varint(id));
        let mut assignment = Vec::new();
        put_varint(&mut assignment, 1, 1);
        put_varint(&mut assignment, 2, 1);
        put_bytes(&mut assignment, 3, &computation);
        // ExecutableBuildOptionsProto: the ordinal -1 leaves the choice to the assignment.
        let mut build = Vec::new();
        put_varint(&mut build, 1, u64::MAX);
        put_varint(&mut build, 4, 1);
        put_varint(&mut build, 5, 1);
        put_bytes(&mut build, 9, &assignment);
        let mut options = Vec::new();
        put_bytes(&mut options, 3, &build);
        for (name, value) in &self.overrides {
            let mut entry = Vec::new();
            put_bytes(&mut entry, 1, name.as_bytes());
            put_bytes(&mut entry, 2, &encode_override(name, value)?);
            put_bytes(&mut options, 7, &entry);
        }
        Ok(options)
    }
}

/// An `OptionOverrideProto`.
fn encode_override(name: &str, value: &OptionValue) -> Result<Vec<u8>> {
    let mut out = Vec::new();
    match value {
        OptionValue::Str(s) => put_bytes(&mut out, 1, s.as_bytes()),
        OptionValue::Bool(b) => put_varint(&mut out, 2, u64::from(*b)),
        OptionValue::Int(n) => put_varint(&mut out, 3, *n as u64),
        OptionValue::Float(x) => {
            // Field 4, eight bytes.
            out.push(4 << 3 | 1);
            out.extend(f64::from(*x).to_le_bytes());
        }
        OptionValue::IntList(_) => {
            ensure!(false, InvalidArgument, "the compile option {name} cannot be a list");
        }
    }
    Ok(out)
}

fn varint(mut value: u64) -> Vec<u8> {
    let mut bytes = Vec::new();
    while value >= 0x80 {
        bytes.push(value as u8 | 0x80);
        value >>= 7;
    }
    bytes.push(value as u8);
    bytes
}

fn put_varint(out: &mut Vec<u8>, field: u8, value: u64) {
    out.push(field << 3);
    out.extend(varint(value));
}

fn put_bytes(out: &mut Vec<u8>, field: u8, bytes: &[u8]) {
    out.push(field << 3 | 2);
    out.extend(varint(bytes.len() as u64));
    out.extend(bytes);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_are_a_compile_options_proto() {
        let overrides = vec![
            ("s".to_owned(), OptionValue::Str("v".into())),
            ("b".to_owned(), OptionValue::Bool(true)),
            ("i".to_owned(), OptionValue::Int(300)),
            ("f".to_owned(), OptionValue::Float(0.5)),
        ];
        let options = CompileOptions { device: 0, overrides };
        let mut expected = vec![0x1a, 27];
        // The ordinal -1, one replica, one partition.
        expected.extend([0x08, 255, 255, 255, 255, 255, 255, 255, 255, 255, 1, 0x20, 1, 0x28, 1]);
        // One replica of one computation, on device 200.
        expected.extend([0x4a, 10, 0x08, 1, 0x10, 1, 0x1a, 4, 0x0a, 2, 200, 1]);
        expected.extend([0x3a, 8, 0x0a, 1, b's', 0x12, 3, 0x0a, 1, b'v']);
        expected.extend([0x3a, 7, 0x0a, 1, b'b', 0x12, 2, 0x10, 1]);
        expected.extend([0x3a, 8, 0x0a, 1, b'i', 0x12, 3, 0x18, 0xac, 0x02]);
        expected.extend([0x3a, 14, 0x0a, 1, b'f', 0x12, 9, 0x21]);
        expected.extend(0.5f64.to_le_bytes());
        assert_eq!(options.encode(200).unwrap(), expected);
    }

    #[test]
    fn a_device_has_a_number() {
        assert!(CompileOptions::default().encode(-1).is_err());
    }
}
