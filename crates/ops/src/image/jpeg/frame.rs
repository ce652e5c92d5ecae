//! The segments of a JPEG file, and the coefficients of its scans.

use thalweg_kernel::KernelContext;
use thalweg_tensor::{DType, Error, Result, Shape, Tensor, bail, ensure, err};

use super::entropy::{Bits, Huffman};

/// Position in a block of each coefficient in zigzag order.
const ZIGZAG: [u8; 64] = [
    0, 1, 8, 16, 9, 2, 3, 10, 17, 24, 32, 25, 18, 11, 4, 5, 12, 19, 26, 33, 40, 48, 41, 34, 27, 20,
    13, 6, 7, 14, 21, 28, 35, 42, 49, 56, 57, 50, 43, 36, 29, 22, 15, 23, 30, 37, 44, 51, 58, 59,
    52, 45, 38, 31, 39, 46, 53, 60, 61, 54, 47, 55, 62, 63,
];

/// Maximum number of scans: each takes time, and no ordinary file has more.
const SCANS_MAX: usize = 256;

pub(super) fn invalid(what: &str) -> Error {
    err!(InvalidArgument, "Invalid JPEG data: {what}")
}

/// One color component.
pub(super) struct Component {
    id: u8,
    /// Sampling factors.
    pub(super) h: usize,
    pub(super) v: usize,
    table: usize,
    /// Blocks across and down, rounded up to whole MCUs.
    pub(super) blocks: [usize; 2],
    /// Blocks across and down that contain pixels of the image.
    image_blocks: [usize; 2],
    /// Coefficients of all blocks.
    pub(super) coefficients: Tensor,
    /// Quantization table, known after the component's first scan.
    pub(super) quantization: Option<[u16; 64]>,
}

/// Decoded coefficients of a file.
pub(super) struct Frame {
    pub(super) height: usize,
    pub(super) width: usize,
    pub(super) h_max: usize,
    pub(super) v_max: usize,
    pub(super) components: Vec<Component>,
    is_progressive: bool,
    pub(super) has_jfif: bool,
    /// Color transform code of the Adobe segment.
    pub(super) adobe: Option<u8>,
    /// Whether the file ended before the image was complete.
    pub(super) is_truncated: bool,
}

impl Frame {
    pub(super) fn ids(&self) -> [u8; 3] {
        let id = |i: usize| self.components.get(i).map_or(0, |c| c.id);
        [id(0), id(1), id(2)]
    }
}

struct Reader<'a, 'c> {
    ctx: &'a KernelContext<'c>,
    data: &'a [u8],
    at: usize,
    quantization: [Option<[u16; 64]>; 4],
    dc: [Option<Huffman>; 4],
    ac: [Option<Huffman>; 4],
    restart_interval: usize,
    frame: Option<Frame>,
    has_jfif: bool,
    adobe: Option<u8>,
    scans: usize,
    has_end: bool,
}

/// Reads a whole file.
pub(super) fn read(ctx: &KernelContext<'_>, data: &[u8]) -> Result<Frame> {
    let mut reader = Reader {
        ctx,
        data,
        at: 0,
        quantization: [None; 4],
        dc: [const { None }; 4],
        ac: [const { None }; 4],
        restart_interval: 0,
        frame: None,
        has_jfif: false,
        adobe: None,
        scans: 0,
        has_end: false,
    };
    ensure!(data.starts_with(&[0xff, 0xd8]), InvalidArgument, "not a JPEG file");
    reader.at = 2;
    while let Some(marker) = reader.next_marker() {
        if marker == 0xd9 {
            reader.has_end = true;
            break;
        }
        if matches!(marker, 0x01 | 0xd0..=0xd8) {
            continue;
        }
        let Some(segment) = reader.segment() else { break };
        reader.take(marker, segment)?;
    }
    let Reader { frame, scans, has_end, has_jfif, adobe, .. } = reader;
    let mut frame = frame.ok_or_else(|| invalid("it has no frame"))?;
    ensure!(scans > 0, InvalidArgument, "Invalid JPEG data: it has no scan");
    frame.is_truncated = !has_end;
    (frame.has_jfif, frame.adobe) = (has_jfif, adobe);
    Ok(frame)
}

impl<'a> Reader<'a, '_> {
    fn next_marker(&mut self) -> Option<u8> {
        loop {
            let start = self.data.get(self.at..)?.iter().position(|&b| b == 0xff)?;
            self.at += start;
            let skipped = self.data[self.at..].iter().position(|&b| b != 0xff)?;
            let marker = self.data[self.at + skipped];
            self.at += skipped + 1;
            if marker != 0 {
                return Some(marker);
            }
        }
    }

    /// The content of the segment that begins here.
    fn segment(&mut self) -> Option<&'a [u8]> {
        let size = self.data.get(self.at..self.at + 2)?;
        let len = usize::from(u16::from_be_bytes([size[0], size[1]]));
        let segment = self.data.get(self.at + 2..self.at + len)?;
        self.at += len;
        Some(segment)
    }

    fn take(&mut self, marker: u8, segment: &[u8]) -> Result<()> {
        match marker {
            0xdb => self.take_quantization(segment),
            0xc4 => self.take_huffman(segment),
            0xc0..=0xc2 => self.take_frame(segment, marker == 0xc2),
            0xc3 | 0xc5..=0xc7 | 0xc9..=0xcf => {
                bail!(InvalidArgument, "JPEG files of kind {marker:#x} are not decoded")
            }
            0xdd => {
                let [high, low, ..] = *segment else { return Err(invalid("a restart interval")) };
                self.restart_interval = usize::from(u16::from_be_bytes([high, low]));
                Ok(())
            }
            0xda => self.take_scan(segment),
            0xe0 => {
                self.has_jfif |= segment.starts_with(b"JFIF\0");
                Ok(())
            }
            0xee => {
                if segment.starts_with(b"Adobe") && segment.len() >= 12 {
                    self.adobe = Some(segment[11]);
                }
                Ok(())
            }
            _ => Ok(()),
        }
    }

    fn take_quantization(&mut self, mut segment: &[u8]) -> Result<()> {
        while let [head, rest @ ..] = segment {
            let (is_wide, number) = (head >> 4 != 0, usize::from(head & 15));
            let bytes = if is_wide { 128 } else { 64 };
            let values = rest.get(..bytes).ok_or_else(|| invalid("a quantization table"))?;
            let slot = self.quantization.get_mut(number);
            let slot = slot.ok_or_else(|| invalid("a quantization table's number"))?;
            let mut table = [0; 64];
            for (i, &place) in ZIGZAG.iter().enumerate() {
                table[usize::from(place)] = match is_wide {
                    true => u16::from_be_bytes([values[2 * i], values[2 * i + 1]]),
                    false => u16::from(values[i]),
                };
            }
            *slot = Some(table);
            segment = &rest[bytes..];
        }
        Ok(())
    }

    fn take_huffman(&mut self, mut segment: &[u8]) -> Result<()> {
        while let [head, rest @ ..] = segment {
            let (counts, rest) =
                rest.split_first_chunk::<16>().ok_or_else(|| invalid("a Huffman table"))?;
            let total = counts.iter().map(|&n| usize::from(n)).sum::<usize>();
            let symbols = rest.get(..total).filter(|s| s.len() <= 256);
            let symbols = symbols.ok_or_else(|| invalid("a Huffman table"))?;
            let tables = if head >> 4 == 0 { &mut self.dc } else { &mut self.ac };
            let slot = tables.get_mut(usize::from(head & 15));
            *slot.ok_or_else(|| invalid("a Huffman table's number"))? =
                Some(Huffman::new(counts, symbols)?);
            segment = &rest[total..];
        }
        Ok(())
    }

    fn take_frame(&mut self, segment: &[u8], is_progressive: bool) -> Result<()> {
        ensure!(self.frame.is_none(), InvalidArgument, "Invalid JPEG data: it has two frames");
        let [8, h1, h0, w1, w0, count, ref specs @ ..] = *segment else {
            return Err(invalid("a frame that is not of 8 bits"));
        };
        let height = usize::from(u16::from_be_bytes([h1, h0]));
        let width = usize::from(u16::from_be_bytes([w1, w0]));
        let specs = specs.as_chunks::<3>().0.get(..usize::from(count));
        let specs = specs.filter(|s| matches!(s.len(), 1 | 3 | 4) && height > 0 && width > 0);
        let specs = specs.ok_or_else(|| invalid("a frame"))?;
        let factors = |spec: &[u8; 3]| (usize::from(spec[1] >> 4), usize::from(spec[1] & 15));
        let is_factor = |x: usize| (1..=4).contains(&x);
        ensure!(
            specs.iter().all(|s| is_factor(factors(s).0) && is_factor(factors(s).1)),
            InvalidArgument,
            "Invalid JPEG data: sampling factors"
        );
        let h_max = specs.iter().map(|s| factors(s).0).max().unwrap_or(1);
        let v_max = specs.iter().map(|s| factors(s).1).max().unwrap_or(1);
        let units = [width.div_ceil(8 * h_max), height.div_ceil(8 * v_max)];
        let mut components = Vec::with_capacity(specs.len());
        for spec in specs {
            let (h, v) = factors(spec);
            let blocks = [units[0] * h, units[1] * v];
            let shape = Shape::new(&[blocks[1], blocks[0], 64])?;
            components.push(Component {
                id: spec[0],
                h,
                v,
                table: usize::from(spec[2]),
                blocks,
                image_blocks: [
                    (width * h).div_ceil(h_max).div_ceil(8),
                    (height * v).div_ceil(v_max).div_ceil(8),
                ],
                coefficients: self.ctx.zeros(DType::Int16, shape)?,
                quantization: None,
            });
        }
        self.frame = Some(Frame {
            height,
            width,
            h_max,
            v_max,
            components,
            is_progressive,
            has_jfif: false,
            adobe: None,
            is_truncated: false,
        });
        Ok(())
    }

    fn take_scan(&mut self, segment: &[u8]) -> Result<()> {
        self.scans += 1;
        ensure!(self.scans <= SCANS_MAX, InvalidArgument, "Invalid JPEG data: too many scans");
        let mut frame = self.frame.take().ok_or_else(|| invalid("a scan before the frame"))?;
        let scan = Scan::read(segment, &frame)?;
        for &(index, ..) in &scan.parts {
            // A component uses the quantization table at the time of its first scan.
            let component = &mut frame.components[index];
            if component.quantization.is_none() {
                let table = self.quantization.get(component.table).copied().flatten();
                let table = table.ok_or_else(|| invalid("a quantization table is missing"))?;
                component.quantization = Some(table);
            }
        }
        let mut bits = Bits::new(self.data, self.at);
        let tables = Tables { dc: &self.dc, ac: &self.ac };
        let result = scan.decode(self.ctx, &mut frame, &tables, self.restart_interval, &mut bits);
        self.at = bits.position();
        self.frame = Some(frame);
        result
    }
}

struct Tables<'a> {
    dc: &'a [Option<Huffman>; 4],
    ac: &'a [Option<Huffman>; 4],
}

fn table(tables: &[Option<Huffman>; 4], number: usize) -> Result<&Huffman> {
    let table = tables.get(number).and_then(Option::as_ref);
    table.ok_or_else(|| invalid("a Huffman table is missing"))
}

struct Scan {
    /// Components of the scan: index, DC table, AC table.
    parts: Vec<(usize, usize, usize)>,
    /// Spectral selection: first and last coefficient in zigzag order.
    start: usize,
    end: usize,
    /// Successive approximation: bit positions of the previous scan and of this one.
    high: u32,
    low: u32,
}

impl Scan {
    fn read(segment: &[u8], frame: &Frame) -> Result<Scan> {
        let [count, ref rest @ ..] = *segment else { return Err(invalid("a scan")) };
        let specs = rest.as_chunks::<2>().0.get(..usize::from(count));
        let specs =
            specs.filter(|s| (1..=4).contains(&s.len())).ok_or_else(|| invalid("a scan"))?;
        let mut parts: Vec<(usize, usize, usize)> = Vec::with_capacity(specs.len());
        for &[id, tables] in specs {
            let index = frame.components.iter().position(|c| c.id == id);
            let index = index.ok_or_else(|| invalid("a scan of an unknown component"))?;
            ensure!(
                parts.iter().all(|p| p.0 != index),
                InvalidArgument,
                "Invalid JPEG data: a scan has a component twice"
            );
            parts.push((index, usize::from(tables >> 4), usize::from(tables & 15)));
        }
        let [start, end, approximation] = match rest.get(2 * specs.len()..2 * specs.len() + 3) {
            Some(&[start, end, approximation]) => [start, end, approximation],
            _ => return Err(invalid("a scan")),
        };
        let mut scan = Scan { parts, start: 0, end: 63, high: 0, low: 0 };
        if frame.is_progressive {
            (scan.start, scan.end) = (usize::from(start), usize::from(end));
            (scan.high, scan.low) = (u32::from(approximation >> 4), u32::from(approximation & 15));
            let is_dc = scan.start == 0 && scan.end == 0;
            let is_ac = scan.start > 0 && scan.start <= scan.end && scan.end < 64;
            ensure!(
                (is_dc || (is_ac && scan.parts.len() == 1)) && scan.low <= 13 && scan.high <= 13,
                InvalidArgument,
                "Invalid JPEG data: a progressive scan"
            );
        }
        Ok(scan)
    }

    /// MCUs across and down; in a scan of a single component, its blocks.
    fn units(&self, frame: &Frame) -> [usize; 2] {
        match self.parts[..] {
            [(only, ..)] => frame.components[only].image_blocks,
            _ => [frame.width.div_ceil(8 * frame.h_max), frame.height.div_ceil(8 * frame.v_max)],
        }
    }

    fn decode(
        &self,
        ctx: &KernelContext<'_>,
        frame: &mut Frame,
        tables: &Tables<'_>,
        restart_interval: usize,
        bits: &mut Bits<'_>,
    ) -> Result<()> {
        let [across, down] = self.units(frame);
        let mut state = State::default();
        let mut until_restart = restart_interval;
        for y in 0..down {
            ctx.check_cancelled()?;
            for x in 0..across {
                if restart_interval > 0 && until_restart == 0 {
                    if !bits.restart() {
                        return Ok(());
                    }
                    (state, until_restart) = (State::default(), restart_interval);
                }
                until_restart = until_restart.saturating_sub(1);
                self.decode_unit(frame, tables, [x, y], &mut state, bits)?;
                // Coefficients that the file does not contain keep their values.
                if bits.is_exhausted() && restart_interval == 0 {
                    return Ok(());
                }
            }
        }
        Ok(())
    }

    fn decode_unit(
        &self,
        frame: &mut Frame,
        tables: &Tables<'_>,
        [x, y]: [usize; 2],
        state: &mut State,
        bits: &mut Bits<'_>,
    ) -> Result<()> {
        let is_alone = self.parts.len() == 1;
        let is_progressive = frame.is_progressive;
        for &(index, dc, ac) in &self.parts {
            let component = &mut frame.components[index];
            let (h, v) = if is_alone { (1, 1) } else { (component.h, component.v) };
            let across = component.blocks[0];
            let blocks = component.coefficients.as_mut_slice::<i16>()?.as_chunks_mut::<64>().0;
            for by in 0..v {
                for bx in 0..h {
                    let block = &mut blocks[(y * v + by) * across + x * h + bx];
                    let predicted = &mut state.predicted[index];
                    match (is_progressive, self.start, self.high) {
                        (false, ..) => {
                            let (dc, ac) = (table(tables.dc, dc)?, table(tables.ac, ac)?);
                            sequential(bits, dc, ac, predicted, block);
                        }
                        (true, 0, 0) => {
                            let size = u32::from(bits.symbol(table(tables.dc, dc)?));
                            *predicted = predicted.wrapping_add(bits.number(size));
                            block[0] = (*predicted << self.low) as i16;
                        }
                        (true, 0, _) => block[0] |= (bits.read(1) << self.low) as i16,
                        (true, _, 0) => self.first(bits, table(tables.ac, ac)?, state, block),
                        (true, ..) => self.refine(bits, table(tables.ac, ac)?, state, block),
                    }
                }
            }
        }
        Ok(())
    }

    /// The first scan of a band of coefficients.
    fn first(&self, bits: &mut Bits<'_>, code: &Huffman, state: &mut State, block: &mut [i16; 64]) {
        if state.run > 0 {
            state.run -= 1;
            return;
        }
        let mut k = self.start;
        while k <= self.end {
            let symbol = bits.symbol(code);
            let (zeroes, size) = (usize::from(symbol >> 4), u32::from(symbol & 15));
            if size == 0 {
                if zeroes < 15 {
                    state.run = (1 << zeroes) - 1 + bits.read(zeroes as u32);
                    return;
                }
                k += 16;
                continue;
            }
            k += zeroes;
            let value = bits.number(size);
            let Some(&place) = ZIGZAG.get(k) else { return };
            block[usize::from(place)] = (value << self.low) as i16;
            k += 1;
        }
    }

    /// A refinement scan of a band of coefficients.
    fn refine(
        &self,
        bits: &mut Bits<'_>,
        code: &Huffman,
        state: &mut State,
        block: &mut [i16; 64],
    ) {
        let bit = 1i16 << self.low;
        let mut k = self.start;
        if state.run == 0 {
            while k <= self.end {
                let symbol = bits.symbol(code);
                let (mut zeroes, size) = (i32::from(symbol >> 4), symbol & 15);
                let mut value = 0;
                if size == 0 {
                    if zeroes < 15 {
                        state.run = (1 << zeroes) + bits.read(zeroes as u32);
                        break;
                    }
                } else {
                    value = if bits.read(1) == 1 { bit } else { -bit };
                }
                while k <= self.end {
                    let coefficient = &mut block[usize::from(ZIGZAG[k])];
                    if *coefficient != 0 {
                        correct(bits, coefficient, bit);
                    } else {
                        if zeroes == 0 {
                            *coefficient = value;
                            k += 1;
                            break;
                        }
                        zeroes -= 1;
                    }
                    k += 1;
                }
                if bits.is_exhausted() {
                    return;
                }
            }
        }
        if state.run > 0 {
            while k <= self.end {
                let coefficient = &mut block[usize::from(ZIGZAG[k])];
                if *coefficient != 0 {
                    correct(bits, coefficient, bit);
                }
                k += 1;
            }
            state.run -= 1;
        }
    }
}

/// Decoder state carried from block to block.
#[derive(Default)]
struct State {
    predicted: [i32; 4],
    /// Remaining blocks of an end-of-band run.
    run: u32,
}

/// Reads a correction bit of a nonzero coefficient.
fn correct(bits: &mut Bits<'_>, coefficient: &mut i16, bit: i16) {
    if bits.read(1) == 1 && *coefficient & bit == 0 {
        *coefficient = coefficient.wrapping_add(if *coefficient >= 0 { bit } else { -bit });
    }
}

/// A block of a sequential (baseline) scan.
fn sequential(
    bits: &mut Bits<'_>,
    dc: &Huffman,
    ac: &Huffman,
    predicted: &mut i32,
    block: &mut [i16; 64],
) {
    let size = u32::from(bits.symbol(dc));
    *predicted = predicted.wrapping_add(bits.number(size));
    block[0] = *predicted as i16;
    let mut k = 1;
    while k < 64 {
        let symbol = bits.symbol(ac);
        let (zeroes, size) = (usize::from(symbol >> 4), u32::from(symbol & 15));
        if size == 0 {
            if zeroes < 15 {
                return;
            }
            k += 16;
            continue;
        }
        k += zeroes;
        let value = bits.number(size);
        let Some(&place) = ZIGZAG.get(k) else { return };
        block[usize::from(place)] = value as i16;
        k += 1;
    }
}
