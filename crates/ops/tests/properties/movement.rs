//! Ops that rearrange elements.

use thalweg_tensor::*;

use crate::array::{Array, indices};
use crate::harness::*;

#[test]
fn transposes() {
    check("Transpose", 100, |random| {
        let dims = random.dims(0, 6, 4);
        let order = random.permutation(dims.len());
        let array = Array::counting(&dims);
        let moved: Vec<usize> = order.iter().map(|&axis| dims[axis]).collect();
        let expected = Array::from_fn(&moved, |index| {
            let mut at = vec![0; dims.len()];
            for (&axis, &i) in order.iter().zip(index) {
                at[axis] = i;
            }
            array.at(&at)
        });
        let given = array.to_tensor(random.pick(MOVABLE));
        let index_type = random.pick(INDICES);
        let call = Call::new("Transpose").tensor(given.clone()).sizes(&order, index_type);
        call.gives(&expected)?;
        let inverse = Call::new("InvertPermutation").sizes(&order, index_type).output()?;
        Call::new("Transpose").tensor(call.output()?).tensor(inverse).gives_back(&given)
    });
}

/// Paddings for each dimension, and the padded dimensions.
fn pads(
    random: &mut Random,
    dims: &[usize],
    most: impl Fn(usize) -> usize,
) -> (Vec<[usize; 2]>, Vec<usize>) {
    let pads: Vec<[usize; 2]> = dims
        .iter()
        .map(|&d| [random.size(0, most(d).min(3)), random.size(0, most(d).min(3))])
        .collect();
    let padded = dims.iter().zip(&pads).map(|(d, [before, after])| d + before + after).collect();
    (pads, padded)
}

fn pad_matrix(pads: &[[usize; 2]]) -> Array {
    Array::vector(&signed(&pads.concat())).reshaped(&[pads.len(), 2])
}

#[test]
fn pads_with_a_constant() {
    check("PadV2", 80, |random| {
        let dims = random.few_dims(0, 5, 3);
        let array = Array::counting(&dims);
        let (pads, padded) = pads(random, &dims, |_| 3);
        let with_value = random.flag();
        let fill = if with_value { 7.0 } else { 0.0 };
        let expected = Array::from_fn(&padded, |index| {
            let at: Vec<Option<usize>> = (0..dims.len())
                .map(|i| index[i].checked_sub(pads[i][0]).filter(|&x| x < dims[i]))
                .collect();
            at.into_iter().collect::<Option<Vec<usize>>>().map_or(fill, |at| array.at(&at))
        });
        let dtype = random.pick(MOVABLE);
        let call = Call::new(if with_value { "PadV2" } else { "Pad" }).array(&array, dtype);
        let call = call.array(&pad_matrix(&pads), random.pick(INDICES));
        let call = if with_value { call.scalar(7, dtype) } else { call };
        call.gives(&expected)
    });
}

#[test]
fn pads_with_a_mirror() {
    check("MirrorPad", 80, |random| {
        let mut dims = random.few_dims(0, 4, 4);
        let (mode, edge) = random.pick(&[("REFLECT", 1), ("SYMMETRIC", 0)]);
        if mode == "REFLECT" {
            // An empty dimension cannot be reflected; TensorFlow rejects it even without padding.
            dims.iter_mut().for_each(|d| *d = (*d).max(1));
        }
        let array = Array::counting(&dims);
        let (pads, padded) = pads(random, &dims, |d| d.saturating_sub(edge));
        let expected = Array::from_fn(&padded, |index| {
            let at: Vec<usize> = (0..dims.len())
                .map(|i| {
                    let (x, dim) = (index[i] as i64 - pads[i][0] as i64, dims[i] as i64);
                    let shift = 1 - edge as i64;
                    let inside = if x < 0 { -x - shift } else { x };
                    let last = dim - 1;
                    let inside = if inside > last { 2 * last + shift - inside } else { inside };
                    inside as usize
                })
                .collect();
            array.at(&at)
        });
        let call = Call::new("MirrorPad").array(&array, random.pick(MOVABLE));
        let call = call.array(&pad_matrix(&pads), random.pick(INDICES));
        call.attr("mode", mode).gives(&expected)
    });
}

#[test]
fn reverses() {
    check("ReverseV2", 60, |random| {
        let dims = random.dims(0, 5, 4);
        let count = random.size(0, dims.len());
        let axes = random.permutation(dims.len())[..count].to_vec();
        let written: Vec<i64> = axes.iter().map(|&a| random.signed(a, dims.len())).collect();
        let array = Array::counting(&dims);
        let expected = Array::from_fn(&dims, |index| {
            let flip = |(axis, &i): (usize, &usize)| {
                if axes.contains(&axis) { dims[axis] - 1 - i } else { i }
            };
            array.at(&index.iter().enumerate().map(flip).collect::<Vec<_>>())
        });
        let call = Call::new("ReverseV2").array(&array, random.pick(MOVABLE));
        call.ints(&written, random.pick(INDICES)).gives(&expected)
    });
}

#[test]
fn rolls() {
    check("Roll", 80, |random| {
        let dims = random.dims(1, 4, 5);
        let array = Array::counting(&dims);
        // An axis may be repeated; its shifts are summed.
        let shifts: Vec<(usize, i64)> = (0..random.size(1, 3))
            .map(|_| (random.below(dims.len()), random.between(-7, 7)))
            .collect();
        let expected = Array::from_fn(&dims, |index| {
            let mut at = index.to_vec();
            for &(axis, shift) in &shifts {
                at[axis] = (at[axis] as i64 - shift).rem_euclid(dims[axis] as i64) as usize;
            }
            array.at(&at)
        });
        let (axes, by): (Vec<usize>, Vec<i64>) = shifts.iter().copied().unzip();
        let call = Call::new("Roll").array(&array, random.pick(MOVABLE));
        let call = call.ints(&by, random.pick(INDICES));
        call.sizes(&axes, random.pick(INDICES)).gives(&expected)
    });
}

#[test]
fn tiles() {
    check("Tile", 60, |random| {
        let dims = random.few_dims(0, 4, 3);
        let times: Vec<usize> = dims.iter().map(|_| random.size(0, 3)).collect();
        let tiled: Vec<usize> = dims.iter().zip(&times).map(|(d, t)| d * t).collect();
        let array = Array::counting(&dims);
        let expected = Array::from_fn(&tiled, |index| {
            let at: Vec<usize> = index.iter().zip(&dims).map(|(i, d)| i % d).collect();
            array.at(&at)
        });
        let call = Call::new("Tile").array(&array, random.pick(MOVABLE));
        call.sizes(&times, random.pick(INDICES)).gives(&expected)
    });
}

#[test]
fn reshapes() {
    check("Reshape", 60, |random| {
        let dims = random.dims(0, 4, 4);
        let array = Array::counting(&dims);
        // A random factorization of the number of elements.
        let mut target = dims.clone();
        random.shuffle(&mut target);
        while target.len() > 1 && random.flag() {
            let last = target.pop().unwrap();
            target[0] *= last;
        }
        let expected = array.reshaped(&target);
        let mut written = signed(&target);
        if !array.values.is_empty() && !written.is_empty() && random.flag() {
            let open = random.below(written.len());
            written[open] = -1;
        }
        let call = Call::new("Reshape").array(&array, random.pick(MOVABLE));
        call.ints(&written, random.pick(INDICES)).gives(&expected)
    });
}

#[test]
fn expanding_and_squeezing() {
    check("Squeeze of ExpandDims", 60, |random| {
        let dims = random.dims(0, 4, 3);
        let given = Array::counting(&dims).to_tensor(random.pick(MOVABLE));
        let (axis, written) = random.axis(dims.len() + 1);
        let mut expanded = dims.clone();
        expanded.insert(axis, 1);
        let call = Call::new("ExpandDims").tensor(given.clone());
        let call = call.scalar(written, random.pick(INDICES));
        call.gives(&Array::of(&given).reshaped(&expanded))?;
        let squeeze = Call::new("Squeeze").tensor(call.output()?);
        squeeze.clone().attr("squeeze_dims", &[written][..]).gives_back(&given)?;
        let left: Vec<usize> = dims.iter().copied().filter(|&d| d != 1).collect();
        squeeze.gives(&Array::of(&given).reshaped(&left))
    });
}

#[test]
fn space_and_batch() {
    check("BatchToSpaceND of SpaceToBatchND", 60, |random| {
        let spatial = random.size(1, 3);
        let blocks: Vec<usize> = (0..spatial).map(|_| random.size(1, 3)).collect();
        let batch = random.size(1, 3);
        let (mut dims, mut pads) = (vec![batch], Vec::new());
        let mut cells = Vec::new();
        for &block in &blocks {
            let cell = random.size(1, 3);
            let padding = random.size(0, (cell * block - 1).min(3));
            let before = random.size(0, padding);
            pads.push([before, padding - before]);
            dims.push(cell * block - padding);
            cells.push(cell);
        }
        let rest = random.few_dims(0, 2, 3);
        dims.extend(&rest);
        let array = Array::counting(&dims);
        let count: usize = blocks.iter().product();
        let mut expected = Array::filled(&[&[batch * count], &cells[..], &rest[..]].concat(), 0.0);
        for index in indices(&dims) {
            let (mut target, mut offset) = (index.clone(), 0);
            for i in 0..spatial {
                let padded = index[i + 1] + pads[i][0];
                target[i + 1] = padded / blocks[i];
                offset = offset * blocks[i] + padded % blocks[i];
            }
            target[0] = offset * batch + index[0];
            *expected.at_mut(&target) = array.at(&index);
        }
        let given = array.to_tensor(random.pick(NUMBERS));
        let call = Call::new("SpaceToBatchND").tensor(given.clone());
        let call = call.sizes(&blocks, random.pick(INDICES));
        let call = call.array(&pad_matrix(&pads), random.pick(INDICES));
        call.gives(&expected)?;
        let back = Call::new("BatchToSpaceND").tensor(call.output()?);
        let back = back.sizes(&blocks, random.pick(INDICES));
        back.array(&pad_matrix(&pads), random.pick(INDICES)).gives_back(&given)
    });
}

#[test]
fn space_and_depth() {
    check("DepthToSpace of SpaceToDepth", 40, |random| {
        let block = random.size(2, 3);
        let [batch, rows, columns, depth] = [2, 2, 3, 3].map(|most| random.size(1, most));
        let array = Array::counting(&[batch, rows * block, columns * block, depth]);
        let deep = [batch, rows, columns, depth * block * block];
        let expected = Array::from_fn(&deep, |index| {
            let (cell, channel) = (index[3] / depth, index[3] % depth);
            let row = index[1] * block + cell / block;
            array.at(&[index[0], row, index[2] * block + cell % block, channel])
        });
        let given = array.to_tensor(random.pick(&[DType::Float, DType::Int32, DType::UInt8]));
        let call = Call::new("SpaceToDepth").tensor(given.clone());
        let call = call.attr("block_size", block as i64);
        call.gives(&expected)?;
        let back = Call::new("DepthToSpace").tensor(call.output()?);
        back.attr("block_size", block as i64).gives_back(&given)
    });
}
