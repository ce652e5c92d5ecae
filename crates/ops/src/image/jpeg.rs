//! JPEG decoding: baseline and progressive, 8 bits.
//!
//! The integer arithmetic is that of libjpeg-turbo, which TensorFlow uses, so decoded pixels are
//! equal.

mod entropy;
mod frame;
mod samples;
mod transform;

use samples::Window;
use thalweg_graph::NodeAttrs;
use thalweg_kernel::KernelContext;
use thalweg_tensor::{Result, Tensor, bail, ensure, err};
use transform::Method;

/// How a JPEG is decoded.
#[derive(Clone, Copy)]
pub(super) struct JpegSettings {
    samples: samples::Settings,
    recovers_truncated: bool,
}

impl Default for JpegSettings {
    fn default() -> Self {
        let samples = samples::Settings { method: Method::Fast, ratio: 1, is_smooth: true };
        JpegSettings { samples, recovers_truncated: false }
    }
}

impl JpegSettings {
    pub(super) fn from_attrs(attrs: NodeAttrs<'_>) -> Result<JpegSettings> {
        let ratio = attrs.int("ratio")?;
        ensure!(
            matches!(ratio, 1 | 2 | 4 | 8),
            InvalidArgument,
            "ratio must be 1, 2, 4, or 8, got {ratio}"
        );
        let method = attrs.bytes("dct_method")?;
        ensure!(
            matches!(&method[..], b"" | b"INTEGER_FAST" | b"INTEGER_ACCURATE"),
            InvalidArgument,
            "dct_method must be one of {{'', 'INTEGER_FAST', 'INTEGER_ACCURATE'}}, is '{}'",
            String::from_utf8_lossy(method)
        );
        let is_accurate = &method[..] == b"INTEGER_ACCURATE";
        Ok(JpegSettings {
            samples: samples::Settings {
                method: if is_accurate { Method::Accurate } else { Method::Fast },
                ratio: ratio as usize,
                is_smooth: attrs.bool("fancy_upscaling")?,
            },
            recovers_truncated: attrs.bool("try_recover_truncated")?,
        })
    }
}

/// A crop window.
#[derive(Clone, Copy, Debug)]
pub(super) struct Crop {
    pub(super) y: i32,
    pub(super) x: i32,
    pub(super) height: i32,
    pub(super) width: i32,
}

/// Image dimensions from a file's header.
#[derive(Clone, Copy, Debug)]
pub(super) struct Header {
    pub(super) height: usize,
    pub(super) width: usize,
    pub(super) components: usize,
}

impl Header {
    /// Reads segments up to the start of a frame.
    pub(super) fn read(bytes: &[u8]) -> Result<Header> {
        let invalid = || err!(InvalidArgument, "Invalid JPEG data, size {}", bytes.len());
        let mut rest = bytes.strip_prefix(&[0xff, 0xd8]).ok_or_else(invalid)?;
        loop {
            // Any number of 0xff fill bytes may precede a marker.
            let start = rest.iter().position(|&b| b == 0xff).ok_or_else(invalid)?;
            rest = &rest[start..];
            let start = rest.iter().position(|&b| b != 0xff).ok_or_else(invalid)?;
            let marker = rest[start];
            rest = &rest[start + 1..];
            match marker {
                // Markers without a segment.
                0x00 | 0x01 | 0xd0..=0xd7 => continue,
                0xd8..=0xda => return Err(invalid()),
                _ => {}
            }
            let [high, low, ..] = *rest else { return Err(invalid()) };
            let len = usize::from(u16::from_be_bytes([high, low]));
            let segment = rest.get(2..len).ok_or_else(invalid)?;
            rest = &rest[len..];
            let is_frame = matches!(marker, 0xc0..=0xcf) && !matches!(marker, 0xc4 | 0xc8 | 0xcc);
            if !is_frame {
                continue;
            }
            let [_, h1, h0, w1, w0, components, ..] = *segment else { return Err(invalid()) };
            let header = Header {
                height: usize::from(u16::from_be_bytes([h1, h0])),
                width: usize::from(u16::from_be_bytes([w1, w0])),
                components: usize::from(components),
            };
            let is_possible =
                header.height > 0 && header.width > 0 && (1..=4).contains(&header.components);
            return if is_possible { Ok(header) } else { Err(invalid()) };
        }
    }
}

/// Decodes an image to `channels` channels (0: as in the file).
pub(super) fn decode(
    ctx: &KernelContext<'_>,
    bytes: &[u8],
    channels: usize,
    settings: JpegSettings,
    crop: Option<Crop>,
) -> Result<Tensor> {
    let frame = frame::read(ctx, bytes)?;
    ensure!(
        !frame.is_truncated || settings.recovers_truncated,
        InvalidArgument,
        "Invalid JPEG data, size {}: it ends before the image does",
        bytes.len()
    );
    let channels = match (channels, frame.components.len()) {
        (0, 1) => 1,
        (0, _) => 3,
        (channels, _) => channels,
    };
    let side = |size: usize| size.div_ceil(settings.samples.ratio);
    let window = window(side(frame.height), side(frame.width), crop)?;
    samples::image(ctx, &frame, channels, settings.samples, &window)
}

/// The rows and columns of the crop window, for an image of this size.
fn window(height: usize, width: usize, crop: Option<Crop>) -> Result<Window> {
    let Some(crop) = crop else { return Ok(Window { rows: 0..height, columns: 0..width }) };
    let part = |start: i32, len: i32, size: usize| {
        let (start, len) = (usize::try_from(start).ok()?, usize::try_from(len).ok()?);
        let end = start.checked_add(len)?;
        (len > 0 && end <= size).then_some(start..end)
    };
    match (part(crop.y, crop.height, height), part(crop.x, crop.width, width)) {
        (Some(rows), Some(columns)) => Ok(Window { rows, columns }),
        _ => bail!(InvalidArgument, "{crop:?} does not lie within an image of {height} by {width}"),
    }
}

#[cfg(test)]
mod tests {
    use crate::testing::{call, code};
    use thalweg_tensor::{Code, Result, Tensor};

    const BASE: &str = "ffd8ffe000104a46494600010101012c012c0000ffdb00430006040506050406060506070706080a100a0a09090a140e0f0c1017141818171416161a1d251f1a1b231c1616202c20232627292a29191f2d302d283025282928ffdb0043010707070a080a130a0a13281a161a2828282828282828282828282828282828282828282828282828282828282828282828282828282828282828282828282828ffc00011080012001603012200021101031101ffc4001f0000010501010101010100000000000000000102030405060708090a0bffc400b5100002010303020403050504040000017d01020300041105122131410613516107227114328191a1082342b1c11552d1f02433627282090a161718191a25262728292a3435363738393a434445464748494a535455565758595a636465666768696a737475767778797a838485868788898a92939495969798999aa2a3a4a5a6a7a8a9aab2b3b4b5b6b7b8b9bac2c3c4c5c6c7c8c9cad2d3d4d5d6d7d8d9dae1e2e3e4e5e6e7e8e9eaf1f2f3f4f5f6f7f8f9faffc4001f0100030101010101010101010000000000000102030405060708090a0bffc400b51100020102040403040705040400010277000102031104052131061241510761711322328108144291a1b1c109233352f0156272d10a162434e125f11718191a262728292a35363738393a434445464748494a535455565758595a636465666768696a737475767778797a82838485868788898a92939495969798999aa2a3a4a5a6a7a8a9aab2b3b4b5b6b7b8b9bac2c3c4c5c6c7c8c9cad2d3d4d5d6d7d8d9dae2e3e4e5e6e7e8e9eaf2f3f4f5f6f7f8f9faffda000c03010002110311003f00ddb3d7eded1f7498c7d6bcdfe245c2eb77e1edfa6ecf15d1f8874531db646471eb49e1af0a7daed4ca46768cf35bd2c152fa8ba986774995f55c2ce6a5425799e711685394079fca8af4c9ed85b4862c0f968af11f1357a6f92db1f614e855505a1b9e27ff008f4fc2b4bc0fff0020993fdca28afa2c93fe44d2f53e1728ff007b4737abff00c7fc9451457e6b5ff892f53f5087c28fffd9";
    const FULL: &str = "ffd8ffe000104a46494600010101012c012c0000ffdb0043000302020302020303030304030304050805050404050a070706080c0a0c0c0b0a0b0b0d0e12100d0e110e0b0b1016101113141515150c0f171816141812141514ffdb00430103040405040509050509140d0b0d1414141414141414141414141414141414141414141414141414141414141414141414141414141414141414141414141414ffc00011080012001603011100021101031101ffc4001f0000010501010101010100000000000000000102030405060708090a0bffc400b5100002010303020403050504040000017d01020300041105122131410613516107227114328191a1082342b1c11552d1f02433627282090a161718191a25262728292a3435363738393a434445464748494a535455565758595a636465666768696a737475767778797a838485868788898a92939495969798999aa2a3a4a5a6a7a8a9aab2b3b4b5b6b7b8b9bac2c3c4c5c6c7c8c9cad2d3d4d5d6d7d8d9dae1e2e3e4e5e6e7e8e9eaf1f2f3f4f5f6f7f8f9faffc4001f0100030101010101010101010000000000000102030405060708090a0bffc400b51100020102040403040705040400010277000102031104052131061241510761711322328108144291a1b1c109233352f0156272d10a162434e125f11718191a262728292a35363738393a434445464748494a535455565758595a636465666768696a737475767778797a82838485868788898a92939495969798999aa2a3a4a5a6a7a8a9aab2b3b4b5b6b7b8b9bac2c3c4c5c6c7c8c9cad2d3d4d5d6d7d8d9dae2e3e4e5e6e7e8e9eaf2f3f4f5f6f7f8f9faffda000c03010002110311003f00eef48f89ba7e87379b3636f5e4d78b90f0ee230d5b9a47163b86f138a872c4f9bbf690d523f885afacf63f77cd2dc735ef66d49d0aea52e8ce0c0659572aa91855dcf34b5f86d7f242ac33cfb57b786e26c350a4a9cba1fbe602a2fabc4fa47e21fc3d7b5d3b70c8e0f4357c2bc40b39c4fb23f3a8717aa0eec67c34f829fdb7a5b5db26f289bb24d7afc5f967b3e666f092e20ab1acbd4b77ba4269170d6bb00d9ed5fc9f9856953c44a373f5ac1655c94628ee3e27ff00c827fe026bf5cf0c7fe461f347f21e23e13a3f81ff00f22a5cff00d70ff0afde38d3699faef06ff0d1e71e2eff0090edc7d6bf88b36ff7b99fd0f86fe1a3ffd9";
    const PROG: &str = "ffd8ffe000104a46494600010101012c012c0000ffdb00430006040506050406060506070706080a100a0a09090a140e0f0c1017141818171416161a1d251f1a1b231c1616202c20232627292a29191f2d302d283025282928ffdb0043010707070a080a130a0a13281a161a2828282828282828282828282828282828282828282828282828282828282828282828282828282828282828282828282828ffc20011080012001603012200021101031101ffc4001800010003010000000000000000000000000004050601ffc4001801000203000000000000000000000000000506010204ffda000c030100021003100000019d9bb2e5e738d331189d24220ab42d347fffc4001e10000103040300000000000000000000000201030400051232111333ffda000801010001050207c46ae45dc68c2d4867818d172151c564eb07c9ddff00ffc4001d110002020105000000000000000000000000010211030413213133ffda0008010301013f01dac4ddc1f24612a349ea2e8fffc4001e11000202000700000000000000000000000002010304121315213234ffda0008010201013f015a57433566e6ebc182f1c8fda4ffc400191000020301000000000000000000000000000110112122ffda0008010100063f02d399b2a18cffc4001a1000020301010000000000000000000000001001117151a1ffda0008010100013f2195b105fd1452638c82fc4b7fffda000c03010002000300000010d80000ffc4001811010003010000000000000000000000000001113121ffda0008010301013f10a3b4c38f19b27fffc40019110002030100000000000000000000000000011121a131ffda0008010201013f109e6ca4c6d5786e361fffc4001d1000020201050000000000000000000000011100211031517191b1ffda0008010100013f10a58b9807a56a8789bea19a18ade3e30d1dc1994479e477ffd9";
    const GREY: &str = "ffd8ffe000104a46494600010101012c012c0000ffdb0043000503040404030504040405050506070c08070707070f0b0b090c110f1212110f111113161c1713141a1511111821181a1d1d1f1f1f13172224221e241c1e1f1effc0000b080012001601011100ffc40017000101010100000000000000000000000007050306ffc4002a100000050302020b00000000000000000000010204060305110712082213313334353641517382c1ffda0008010100003f00b0e59d42401cd44b7d5a97ea2459ed47771c8fba55a6928b3d5ec2ec9e424c1af499f41a41e1853a422e5b376ce7c85361164b06a96db0b90016a1f86fd4c3270b1e5a57c25f811df77950ffd9";

    type Case = (&'static str, i64, bool, bool, i64, [usize; 3], u64);

    /// File, ratio, accurate DCT, fancy upsampling, channels; then the shape and the hash of the
    /// image that TensorFlow decodes.
    const CASES: &[Case] = &[
        (BASE, 1, false, true, 0, [18, 22, 3], 14979285987826552218),
        (BASE, 1, false, true, 1, [18, 22, 1], 17306593404057789643),
        (BASE, 1, false, true, 3, [18, 22, 3], 14979285987826552218),
        (BASE, 1, false, false, 0, [18, 22, 3], 13181510699217565607),
        (BASE, 1, false, false, 1, [18, 22, 1], 17306593404057789643),
        (BASE, 1, false, false, 3, [18, 22, 3], 13181510699217565607),
        (BASE, 1, true, true, 0, [18, 22, 3], 2078011700120609669),
        (BASE, 1, true, true, 1, [18, 22, 1], 2378947641632380995),
        (BASE, 1, true, true, 3, [18, 22, 3], 2078011700120609669),
        (BASE, 1, true, false, 0, [18, 22, 3], 12501873853390272693),
        (BASE, 1, true, false, 1, [18, 22, 1], 2378947641632380995),
        (BASE, 1, true, false, 3, [18, 22, 3], 12501873853390272693),
        (BASE, 2, false, true, 0, [9, 11, 3], 8264267830332170883),
        (BASE, 2, false, false, 0, [9, 11, 3], 8264267830332170883),
        (BASE, 4, false, true, 0, [5, 6, 3], 17572572887209904718),
        (BASE, 4, false, false, 0, [5, 6, 3], 17572572887209904718),
        (BASE, 8, false, true, 0, [3, 3, 3], 16051355946311348695),
        (BASE, 8, false, false, 0, [3, 3, 3], 16051355946311348695),
        (FULL, 1, false, true, 0, [18, 22, 3], 10466356752127338721),
        (FULL, 1, false, true, 1, [18, 22, 1], 12725788509253402499),
        (FULL, 1, false, true, 3, [18, 22, 3], 10466356752127338721),
        (FULL, 1, false, false, 0, [18, 22, 3], 10466356752127338721),
        (FULL, 1, false, false, 1, [18, 22, 1], 12725788509253402499),
        (FULL, 1, false, false, 3, [18, 22, 3], 10466356752127338721),
        (FULL, 1, true, true, 0, [18, 22, 3], 16993051294006847145),
        (FULL, 1, true, true, 1, [18, 22, 1], 9265545876001955799),
        (FULL, 1, true, true, 3, [18, 22, 3], 16993051294006847145),
        (FULL, 1, true, false, 0, [18, 22, 3], 16993051294006847145),
        (FULL, 1, true, false, 1, [18, 22, 1], 9265545876001955799),
        (FULL, 1, true, false, 3, [18, 22, 3], 16993051294006847145),
        (FULL, 2, false, true, 0, [9, 11, 3], 13042815216445351192),
        (FULL, 2, false, false, 0, [9, 11, 3], 13042815216445351192),
        (FULL, 4, false, true, 0, [5, 6, 3], 2818493591905989398),
        (FULL, 4, false, false, 0, [5, 6, 3], 2818493591905989398),
        (FULL, 8, false, true, 0, [3, 3, 3], 17579358344124271827),
        (FULL, 8, false, false, 0, [3, 3, 3], 17579358344124271827),
        (PROG, 1, false, true, 0, [18, 22, 3], 14979285987826552218),
        (PROG, 1, false, true, 1, [18, 22, 1], 17306593404057789643),
        (PROG, 1, false, true, 3, [18, 22, 3], 14979285987826552218),
        (PROG, 1, false, false, 0, [18, 22, 3], 13181510699217565607),
        (PROG, 1, false, false, 1, [18, 22, 1], 17306593404057789643),
        (PROG, 1, false, false, 3, [18, 22, 3], 13181510699217565607),
        (PROG, 1, true, true, 0, [18, 22, 3], 2078011700120609669),
        (PROG, 1, true, true, 1, [18, 22, 1], 2378947641632380995),
        (PROG, 1, true, true, 3, [18, 22, 3], 2078011700120609669),
        (PROG, 1, true, false, 0, [18, 22, 3], 12501873853390272693),
        (PROG, 1, true, false, 1, [18, 22, 1], 2378947641632380995),
        (PROG, 1, true, false, 3, [18, 22, 3], 12501873853390272693),
        (PROG, 2, false, true, 0, [9, 11, 3], 8264267830332170883),
        (PROG, 2, false, false, 0, [9, 11, 3], 8264267830332170883),
        (PROG, 4, false, true, 0, [5, 6, 3], 17572572887209904718),
        (PROG, 4, false, false, 0, [5, 6, 3], 17572572887209904718),
        (PROG, 8, false, true, 0, [3, 3, 3], 16051355946311348695),
        (PROG, 8, false, false, 0, [3, 3, 3], 16051355946311348695),
        (GREY, 1, false, true, 0, [18, 22, 1], 6049772000772726383),
        (GREY, 1, false, true, 1, [18, 22, 1], 6049772000772726383),
        (GREY, 1, false, true, 3, [18, 22, 3], 1431487490957358123),
        (GREY, 1, false, false, 0, [18, 22, 1], 6049772000772726383),
        (GREY, 1, false, false, 1, [18, 22, 1], 6049772000772726383),
        (GREY, 1, false, false, 3, [18, 22, 3], 1431487490957358123),
        (GREY, 1, true, true, 0, [18, 22, 1], 18020892441027249763),
        (GREY, 1, true, true, 1, [18, 22, 1], 18020892441027249763),
        (GREY, 1, true, true, 3, [18, 22, 3], 1549500673614314587),
        (GREY, 1, true, false, 0, [18, 22, 1], 18020892441027249763),
        (GREY, 1, true, false, 1, [18, 22, 1], 18020892441027249763),
        (GREY, 1, true, false, 3, [18, 22, 3], 1549500673614314587),
        (GREY, 2, false, true, 0, [9, 11, 1], 4620172853342916050),
        (GREY, 2, false, false, 0, [9, 11, 1], 4620172853342916050),
        (GREY, 4, false, true, 0, [5, 6, 1], 3074693793271619622),
        (GREY, 4, false, false, 0, [5, 6, 1], 3074693793271619622),
        (GREY, 8, false, true, 0, [3, 3, 1], 17633969717589142057),
        (GREY, 8, false, false, 0, [3, 3, 1], 17633969717589142057),
    ];

    fn bytes(hex: &str) -> Vec<u8> {
        let digit = |i: usize| u8::from_str_radix(&hex[i..i + 2], 16).unwrap();
        (0..hex.len()).step_by(2).map(digit).collect()
    }

    /// FNV-1a hash.
    fn hash(bytes: &[u8]) -> u64 {
        bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, &byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
        })
    }

    #[test]
    fn pixels_are_tensorflow_s() {
        for &(file, ratio, is_accurate, is_smooth, channels, shape, expected) in CASES {
            let got = call("DecodeJpeg")
                .input(Tensor::scalar_string(bytes(file)))
                .attr("ratio", ratio)
                .attr("dct_method", if is_accurate { "INTEGER_ACCURATE" } else { "" })
                .attr("fancy_upscaling", is_smooth)
                .attr("channels", channels)
                .run()
                .unwrap();
            assert_eq!(got.shape().dims(), shape);
            let case = (&file[400..410], ratio, is_accurate, is_smooth, channels);
            assert_eq!(hash(got.as_bytes().unwrap()), expected, "{case:?}: {got:?}");
        }
    }

    #[test]
    fn a_truncated_file_is_refused_or_recovered() {
        let whole = bytes(BASE);
        for end in (2..whole.len() - 1).step_by(7) {
            let decode = |recovers: bool| -> Result<Tensor> {
                call("DecodeJpeg")
                    .input(Tensor::scalar_string(whole[..end].to_vec()))
                    .attr("try_recover_truncated", recovers)
                    .run()
            };
            assert_eq!(code(decode(false)), Some(Code::InvalidArgument));
            if let Ok(image) = decode(true) {
                assert_eq!(image.shape().dims(), [18, 22, 3]);
            }
        }
    }
}
