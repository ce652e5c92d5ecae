//! Numbers with units: `50 us`, `1.2 GB/s`, `80 GB`.

use thalweg_tensor::{Result, err};

/// Units of which a second has so many: dividing gives the number that a person would write.
const SECONDS: &[(&str, f64)] = &[("ns", 1e9), ("us", 1e6), ("ms", 1e3), ("s", 1.0)];
const BYTES: &[(&str, f64)] = &[
    ("kB", 1e3),
    ("KB", 1e3),
    ("MB", 1e6),
    ("GB", 1e9),
    ("TB", 1e12),
    ("KiB", 1024.0),
    ("MiB", 1_048_576.0),
    ("GiB", 1_073_741_824.0),
    ("TiB", 1_099_511_627_776.0),
    ("B", 1.0),
];

/// A time in seconds.
pub fn seconds(text: &str) -> Result<f64> {
    parse(text, SECONDS)
        .map(|(number, unit)| number / unit)
        .ok_or_else(|| err!(InvalidArgument, "'{text}' is not a time: write 50 us, 1.5 ms or 2 s"))
}

/// A number of bytes.
pub fn bytes(text: &str) -> Result<f64> {
    parse(text, BYTES).map(|(number, unit)| number * unit).ok_or_else(|| {
        err!(InvalidArgument, "'{text}' is not a size: write 512 MB, 80 GB or 16 GiB")
    })
}

/// Bytes, or operations, per second.
pub fn rate(text: &str) -> Result<f64> {
    let known = text.trim().strip_suffix("/s").and_then(|text| parse(text, BYTES));
    let known = known.map(|(number, unit)| number * unit);
    known.or_else(|| text.trim().parse().ok()).ok_or_else(|| {
        err!(InvalidArgument, "'{text}' is not a rate: write 1.2 GB/s, or a number without unit")
    })
}

/// The number, and the factor of its unit.
fn parse(text: &str, units: &[(&str, f64)]) -> Option<(f64, f64)> {
    let text = text.trim();
    // `B` ends the other units of bytes, so it is the last of them.
    let (number, factor) =
        units.iter().find_map(|(unit, factor)| Some((text.strip_suffix(unit)?, *factor)))?;
    Some((number.trim().parse().ok()?, factor))
}

/// A time as people write it.
pub fn time_text(seconds: f64) -> String {
    match seconds {
        s if s >= 1.0 => format!("{s:.3} s"),
        s if s >= 1e-3 => format!("{:.3} ms", s * 1e3),
        s => format!("{:.1} us", s * 1e6),
    }
}

/// A size as people write it.
pub fn bytes_text(bytes: f64) -> String {
    match bytes {
        b if b >= 1e9 => format!("{:.2} GB", b / 1e9),
        b if b >= 1e6 => format!("{:.2} MB", b / 1e6),
        b if b >= 1e3 => format!("{:.1} kB", b / 1e3),
        b => format!("{b:.0} B"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_are_read() {
        assert_eq!(seconds("50 us").unwrap(), 50e-6);
        assert_eq!(seconds("2s").unwrap(), 2.0);
        assert_eq!(bytes("80 GB").unwrap(), 80e9);
        assert_eq!(bytes("1 GiB").unwrap(), 1_073_741_824.0);
        assert_eq!(bytes("12 B").unwrap(), 12.0);
        assert_eq!(rate("1.2 GB/s").unwrap(), 1.2e9);
        assert_eq!(rate("6e13").unwrap(), 6e13);
        for wrong in ["", "us", "1", "1 GB", "x s"] {
            assert!(seconds(wrong).is_err(), "{wrong}");
        }
        assert_eq!((time_text(0.0123), bytes_text(4e6)), ("12.300 ms".into(), "4.00 MB".into()));
    }
}
