//! The MNIST data set, compiled into the program: no file is read, nothing is downloaded.
//!
//! ```
//! use thalweg_train::mnist;
//!
//! # fn main() -> thalweg_tensor::Result<()> {
//! let digits = mnist::test()?;
//! let (images, labels) = digits.batch(&[0, 1, 2])?;
//! assert_eq!(images.shape().dims(), [3, 28, 28, 1]);
//! assert_eq!(labels.as_slice::<i64>()?, [7, 2, 1]);
//! # Ok(())
//! # }
//! ```

use thalweg_api::{Graph, Output};
use thalweg_formats::record::Compression;
use thalweg_tensor::{Bytes, Context, Result, Shape, Tensor, ensure, err};

use crate::Rng;

/// Height and width of an image in pixels.
pub const SIDE: usize = 28;
/// The number of classes.
pub const CLASSES: usize = 10;

const PIXELS: usize = SIDE * SIDE;
const IMAGES_MAGIC: u32 = 0x803;
const LABELS_MAGIC: u32 = 0x801;
/// An upper bound on the uncompressed size of a file.
const BYTES_MAX: usize = 64 << 20;

/// Images with their labels.
#[derive(Clone, Debug)]
pub struct Digits {
    pixels: Bytes,
    labels: Bytes,
}

/// The training set: 60,000 images.
pub fn train() -> Result<Digits> {
    Digits::parse(
        include_bytes!("../data/mnist/train-images-idx3-ubyte.gz"),
        include_bytes!("../data/mnist/train-labels-idx1-ubyte.gz"),
    )
}

/// The test set: 10,000 images.
pub fn test() -> Result<Digits> {
    Digits::parse(
        include_bytes!("../data/mnist/t10k-images-idx3-ubyte.gz"),
        include_bytes!("../data/mnist/t10k-labels-idx1-ubyte.gz"),
    )
}

impl Digits {
    /// The images and labels of two uncompressed IDX files.
    pub fn parse(images: &[u8], labels: &[u8]) -> Result<Digits> {
        let sizes = [SIDE as u32, SIDE as u32];
        let pixels = idx(images, IMAGES_MAGIC, &sizes).context(|| "images")?;
        let labels = idx(labels, LABELS_MAGIC, &[]).context(|| "labels")?;
        let count = pixels.len() / PIXELS;
        ensure!(
            count == labels.len(),
            DataLoss,
            "there are {count} images and {} labels",
            labels.len()
        );
        let wrong = labels.iter().find(|&&label| usize::from(label) >= CLASSES);
        ensure!(wrong.is_none(), DataLoss, "a label is {}", wrong.copied().unwrap_or_default());
        Ok(Digits { pixels, labels })
    }

    /// The number of images.
    pub fn len(&self) -> usize {
        self.labels.len()
    }

    /// Whether there are no images.
    pub fn is_empty(&self) -> bool {
        self.labels.is_empty()
    }

    /// The first images, at most `count`.
    #[must_use]
    pub fn first(&self, count: usize) -> Digits {
        let count = count.min(self.len());
        Digits { pixels: self.pixels.slice(..count * PIXELS), labels: self.labels.slice(..count) }
    }

    /// Pixels of one image, row-major; 0 is background.
    pub fn image(&self, index: usize) -> Result<&[u8]> {
        let found = self.pixels.chunks_exact(PIXELS).nth(index);
        found.ok_or_else(|| err!(OutOfRange, "there is no image {index} among {}", self.len()))
    }

    /// The label of an image.
    pub fn label(&self, index: usize) -> Result<u8> {
        let found = self.labels.get(index).copied();
        found.ok_or_else(|| err!(OutOfRange, "there is no label {index} among {}", self.len()))
    }

    /// A batch of images that are drawn at random, with replacement, as [`Digits::batch`].
    pub fn random_batch(&self, rng: &mut Rng, size: usize) -> Result<(Tensor, Tensor)> {
        let indices: Vec<usize> = (0..size).map(|_| rng.below(self.len())).collect();
        self.batch(&indices)
    }

    /// All images as one batch, as [`Digits::batch`].
    pub fn all(&self) -> Result<(Tensor, Tensor)> {
        self.batch(&(0..self.len()).collect::<Vec<usize>>())
    }

    /// An image in characters, two rows of pixels per line.
    pub fn drawing(&self, index: usize) -> Result<String> {
        let line = |rows: &[u8]| -> String {
            let (upper, lower) = rows.split_at(SIDE);
            let shade = |(a, b): (&u8, &u8)| [' ', '.', '+', '#'][usize::from(a.midpoint(*b)) / 64];
            upper.iter().zip(lower).map(shade).collect()
        };
        Ok(self.image(index)?.chunks(2 * SIDE).map(line).collect::<Vec<_>>().join("\n"))
    }

    /// A batch as tensors: float images `[n, 28, 28, 1]` in `[0, 1]`, and int64 labels.
    pub fn batch(&self, indices: &[usize]) -> Result<(Tensor, Tensor)> {
        let mut pixels = Vec::with_capacity(indices.len() * PIXELS);
        let mut labels = Vec::with_capacity(indices.len());
        for &index in indices {
            pixels.extend(self.image(index)?.iter().map(|&p| f32::from(p) / 255.0));
            labels.push(i64::from(self.label(index)?));
        }
        let shape = Shape::new(&[indices.len(), SIDE, SIDE, 1])?;
        Ok((Tensor::from_slice(shape, &pixels)?, Tensor::vector(&labels)?))
    }
}

/// Placeholders for batches of [`Digits`]: float images `[batch, 28, 28, 1]` and int64 labels.
#[track_caller]
pub fn inputs(graph: &Graph) -> (Output<f32>, Output<i64>) {
    let images = graph.placeholder("images", [None, Some(SIDE), Some(SIDE), Some(1)]);
    (images, graph.placeholder("labels", [None]))
}

/// The bytes after the header of an IDX file. The header must hold `magic`, a count, and `sizes` of
/// each element.
fn idx(file: &[u8], magic: u32, sizes: &[u32]) -> Result<Bytes> {
    let content =
        Compression::Gzip.decompress("IDX file", &Bytes::copy_from_slice(file), BYTES_MAX)?;
    let header = 4 * (2 + sizes.len());
    ensure!(content.len() >= header, DataLoss, "the file ends after {} bytes", content.len());
    let mut numbers = content[..header]
        .chunks_exact(4)
        .map(|n| u32::from_be_bytes(n.try_into().expect("chunks have four bytes")));
    let found = numbers.next().unwrap_or_default();
    ensure!(found == magic, DataLoss, "the file begins with {found:#x}, not {magic:#x}");
    let count = numbers.next().unwrap_or_default();
    let found: Vec<u32> = numbers.collect();
    ensure!(found == sizes, DataLoss, "the items have sizes {found:?}, not {sizes:?}");
    let each: u64 = sizes.iter().map(|&size| u64::from(size)).product();
    let wanted = u64::from(count).checked_mul(each);
    let has = (content.len() - header) as u64;
    ensure!(wanted == Some(has), DataLoss, "{count} items of {each} bytes are not {has} bytes");
    Ok(content.slice(header..))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn batches_and_drawings() {
        let digits = test().unwrap().first(5);
        let (images, labels) = digits.all().unwrap();
        assert_eq!((images.shape().dims(), labels.shape().dims()), (&[5, 28, 28, 1][..], &[5][..]));
        let (images, _) = digits.random_batch(&mut Rng::new(1), 3).unwrap();
        assert_eq!(images.shape().dims(), [3, 28, 28, 1]);
        let drawing = digits.drawing(0).unwrap();
        assert!(drawing.contains('#') && drawing.lines().count() == SIDE / 2, "{drawing}");
        assert!(digits.drawing(5).is_err());
    }

    #[test]
    fn all_of_them_are_there() {
        for (digits, counts) in [
            (train(), [5923, 6742, 5958, 6131, 5842, 5421, 5918, 6265, 5851, 5949]),
            (test(), [980, 1135, 1032, 1010, 982, 892, 958, 1028, 974, 1009]),
        ] {
            let digits = digits.unwrap();
            let mut found = [0; CLASSES];
            for i in 0..digits.len() {
                found[usize::from(digits.label(i).unwrap())] += 1;
            }
            assert_eq!(found, counts);
        }
        let digits = test().unwrap();
        let (images, labels) = digits.first(100).batch(&[99, 0]).unwrap();
        assert_eq!(images.shape().dims(), [2, SIDE, SIDE, 1]);
        assert_eq!(labels.as_slice::<i64>().unwrap(), [9, 7]);
        let brightest = images.as_slice::<f32>().unwrap().iter().copied().fold(0.0, f32::max);
        assert_eq!(brightest, 1.0);
        assert!(digits.first(100).batch(&[100]).is_err());
        assert!(digits.image(usize::MAX).is_err());
    }

    /// A gzip file that holds `content` as it is.
    fn stored(content: &[u8]) -> Vec<u8> {
        let mut crc = !0u32;
        for &byte in content {
            crc ^= u32::from(byte);
            for _ in 0..8 {
                crc = (crc >> 1) ^ (0xedb8_8320 & 0u32.wrapping_sub(crc & 1));
            }
        }
        let length = content.len() as u16;
        let mut file = vec![0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 255, 1];
        file.extend([length.to_le_bytes(), (!length).to_le_bytes()].concat());
        file.extend(content);
        file.extend((!crc).to_le_bytes());
        file.extend(u32::from(length).to_le_bytes());
        file
    }

    #[test]
    fn broken_files_are_refused() {
        let header = |numbers: &[u32]| -> Vec<u8> {
            numbers.iter().flat_map(|number| number.to_be_bytes()).collect()
        };
        let images = |count: u32, bytes: usize| {
            stored(&[header(&[IMAGES_MAGIC, count, 28, 28]), vec![1; bytes]].concat())
        };
        let labels = |labels: &[u8]| {
            stored(&[header(&[LABELS_MAGIC, labels.len() as u32]), labels.to_vec()].concat())
        };
        assert_eq!(Digits::parse(&images(2, 2 * PIXELS), &labels(&[3, 9])).unwrap().len(), 2);
        for (images, labels, words) in [
            (images(2, 2 * PIXELS), labels(&[3]), "2 images and 1 labels"),
            (images(1, PIXELS), labels(&[10]), "a label is 10"),
            (images(1, PIXELS - 1), labels(&[1]), "783 bytes"),
            (images(u32::MAX, PIXELS), labels(&[1]), "4294967295 items"),
            (stored(&header(&[IMAGES_MAGIC, 0, 28, 27])), labels(&[]), "[28, 27]"),
            (stored(&header(&[LABELS_MAGIC, 0, 28, 28])), labels(&[]), "begins with 0x801"),
            (stored(&[0; 3]), labels(&[]), "ends after 3"),
            (b"not gzip".to_vec(), labels(&[]), "images: "),
        ] {
            let error = Digits::parse(&images, &labels).unwrap_err();
            assert!(error.to_string().contains(words), "{error}");
        }
    }
}
