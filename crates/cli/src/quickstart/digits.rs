//! MNIST images in a terminal.

use std::io::{self, Write};

use thalweg_train::mnist::{Digits, SIDE};

/// Images side by side.
const ABREAST: usize = 5;
/// Width and height of a downsampled cell in pixels.
const CELL: usize = 2;

/// Shows images, each with its predicted class and probability.
pub(super) fn show(
    digits: &Digits,
    predictions: &[(usize, (i64, f32))],
    out: &mut dyn Write,
) -> io::Result<()> {
    for group in predictions.chunks(ABREAST) {
        let pictures: Vec<Vec<String>> = group
            .iter()
            .map(|&(index, _)| digits.image(index).map(picture).map_err(io::Error::other))
            .collect::<io::Result<_>>()?;
        for row in 0..SIDE / CELL / 2 {
            let rows: Vec<&str> = pictures.iter().map(|picture| picture[row].as_str()).collect();
            writeln!(out, "  {}", rows.join(" "))?;
        }
        for &(index, (class, sure)) in group {
            let label = digits.label(index).map_err(io::Error::other)?;
            let mark =
                if class == i64::from(label) { String::new() } else { format!(" ≠ {label}") };
            let text = format!("{class} ({:.0} %){mark}", sure * 100.0);
            write!(out, "  {text:13}")?;
        }
        writeln!(out, "\n")?;
    }
    Ok(())
}

/// The lines of an image; a character is two cells, one above the other.
fn picture(image: &[u8]) -> Vec<String> {
    let cells = SIDE / CELL;
    let is_dark = |row: usize, column: usize| {
        let pixels = (0..CELL).flat_map(|i| (0..CELL).map(move |j| (i, j)));
        let sum: u32 = pixels
            .map(|(i, j)| image[(row * CELL + i) * SIDE + column * CELL + j])
            .map(u32::from)
            .sum();
        sum > 90 * (CELL * CELL) as u32
    };
    let character = |row: usize, column: usize| match (
        is_dark(2 * row, column),
        is_dark(2 * row + 1, column),
    ) {
        (true, true) => '█',
        (true, false) => '▀',
        (false, true) => '▄',
        (false, false) => ' ',
    };
    (0..cells / 2).map(|row| (0..cells).map(|column| character(row, column)).collect()).collect()
}

#[cfg(test)]
mod tests {
    use thalweg_train::mnist;

    use super::*;

    #[test]
    fn ten_digits_fit_a_terminal() {
        let digits = mnist::test().unwrap();
        let predictions: Vec<(usize, (i64, f32))> = (0..10)
            .map(|i| (i, (i64::from(digits.label(i).unwrap()) + i64::from(i == 9), 0.99)))
            .collect();
        let mut page = Vec::new();
        show(&digits, &predictions, &mut page).unwrap();
        let text = String::from_utf8(page).unwrap();
        assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
        assert!(text.contains("7 (99 %)") && text.contains("10 (99 %) ≠ 9"), "{text}");
        assert!(text.matches('█').count() > 50, "{text}");
    }
}
