//! Compares every type and level with sums of products computed directly.

use std::sync::atomic::{AtomicUsize, Ordering};

use half::{bf16, f16};
use num_complex::Complex;

use super::element::Number;
use super::*;

/// A linear congruential generator with a fixed seed, so that failures repeat.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % bound
    }
}

/// Test values: small integers, whose sums are exact, and a comparison.
trait Sample: Element + PartialEq + std::fmt::Debug {
    fn sample(random: &mut Random) -> Self;
}

macro_rules! samples {
    ($($t:ty: $random:ident => $sample:expr;)+) => { $(
        impl Sample for $t {
            fn sample($random: &mut Random) -> Self {
                $sample
            }
        }
    )+ };
}

samples! {
    f32: r => r.below(17) as f32 - 8.0;
    f64: r => r.below(17) as f64 - 8.0;
    bf16: r => bf16::from_f32(r.below(5) as f32 - 2.0);
    f16: r => f16::from_f32(r.below(5) as f32 - 2.0);
    i8: r => r.below(256) as i8;
    u8: r => r.below(256) as u8;
    i16: r => r.below(1 << 16) as i16;
    u16: r => r.below(1 << 16) as u16;
    i32: r => r.below(1 << 31) as i32;
    u32: r => r.below(1 << 31) as u32;
    i64: r => (r.below(1 << 31) << 32 | r.below(1 << 31)) as i64;
    u64: r => r.below(1 << 31) << 33 | r.below(1 << 31);
    Complex<f32>: r => Complex::new(r.below(9) as f32 - 4.0, r.below(9) as f32 - 4.0);
    Complex<f64>: r => Complex::new(r.below(9) as f64 - 4.0, r.below(9) as f64 - 4.0);
}

const LEVELS: [Level; 3] = [Level::Portable, Level::Avx2, Level::Avx512];

/// Memory layout of a factor.
#[derive(Clone, Copy, Debug)]
enum Order {
    Rows,
    Columns,
    /// Padded rows.
    Padded,
    /// Neither stride is 1.
    Scattered,
}

const ORDERS: [Order; 4] = [Order::Rows, Order::Columns, Order::Padded, Order::Scattered];

struct Factor<T> {
    data: Vec<T>,
    size: (usize, usize),
    strides: (usize, usize),
}

impl<T: Sample> Factor<T> {
    fn new(random: &mut Random, rows: usize, cols: usize, order: Order) -> Self {
        let strides = match order {
            Order::Rows => (cols, 1),
            Order::Columns => (1, rows),
            Order::Padded => (cols + 3, 1),
            Order::Scattered => (2 * cols + 1, 2),
        };
        let len =
            if rows * cols == 0 { 0 } else { (rows - 1) * strides.0 + (cols - 1) * strides.1 + 1 };
        Self { data: (0..len).map(|_| T::sample(random)).collect(), size: (rows, cols), strides }
    }

    fn view(&self) -> MatRef<'_, T> {
        MatRef::new(&self.data, self.size, self.strides).expect("the strides fit the data")
    }

    fn at(&self, i: usize, j: usize) -> T::Sum {
        self.data[i * self.strides.0 + j * self.strides.1].widen()
    }
}

fn serial(count: usize, work: &(dyn Fn(usize) + Sync)) {
    (0..count).for_each(work);
}

fn two_threads(count: usize, work: &(dyn Fn(usize) + Sync)) {
    let next = AtomicUsize::new(0);
    let claim = || {
        loop {
            let i = next.fetch_add(1, Ordering::Relaxed);
            if i >= count {
                break;
            }
            work(count - 1 - i);
        }
    };
    std::thread::scope(|scope| {
        scope.spawn(claim);
        claim();
    });
}

fn run<T: Sample>(
    product: &Gemm<'_, T>,
    c: MatMut<'_, T>,
    write: Write,
    parallel: ParallelFor<'_>,
) {
    let mut scratch: Vec<u8> = Vec::new();
    scratch.try_reserve_exact(product.scratch_len()).expect("enough memory for a test");
    product.run(c, write, scratch.spare_capacity_mut(), parallel).expect("the sizes agree");
}

/// Checks one product at every level, with values whose sum does not depend on the order of
/// summation.
fn check<T: Sample>((m, n, k): (usize, usize, usize), a_order: Order, b_order: Order) {
    let mut random = Random((m * 1_000_003 + n * 1009 + k) as u64);
    let a = Factor::<T>::new(&mut random, m, k, a_order);
    let b = Factor::<T>::new(&mut random, k, n, b_order);
    let row_stride = n + 2;
    let before: Vec<T> = (0..m * row_stride).map(|_| T::sample(&mut random)).collect();
    // Large products are checked at a stride that visits every row and column.
    let step = if m * n * k > 1 << 20 { 37 } else { 1 };
    let sums: Vec<(usize, T::Sum)> = (0..m * n)
        .step_by(step)
        .map(|at| {
            let (i, j) = (at / n, at % n);
            let terms = (0..k).map(|p| (a.at(i, p), b.at(p, j)));
            (i * row_stride + j, terms.fold(T::Sum::ZERO, |sum, (x, y)| sum.plus_product(x, y)))
        })
        .collect();
    for level in LEVELS {
        let product = Gemm::with_level(a.view(), b.view(), level).expect("the inner sizes agree");
        for write in [Write::Overwrite, Write::Accumulate] {
            let case = format!("{m}x{n}x{k} {a_order:?} {b_order:?} {level:?} {write:?}");
            let mut c = before.clone();
            let view = MatMut::new(&mut c, (m, n), row_stride).expect("the rows fit");
            run(&product, view, write, &serial);
            for &(at, sum) in &sums {
                let old = before[at].widen();
                let sum = if write == Write::Accumulate { old.plus(sum) } else { sum };
                assert_eq!(c[at], T::narrow(sum), "{case} at {at}");
            }
            for row in 0..m {
                let gap = row * row_stride + n..(row + 1) * row_stride;
                assert_eq!(c[gap.clone()], before[gap], "{case} beside row {row}");
            }
        }
    }
}

fn check_type<T: Sample>() {
    let sizes = [1, 2, 7, 13, 17, 33];
    for m in sizes {
        for n in sizes {
            for k in [1, 5, 37] {
                let i = m + n + k;
                check::<T>((m, n, k), ORDERS[i % 4], ORDERS[i / 4 % 4]);
            }
        }
    }
    for size in [(0, 3, 4), (3, 0, 4), (3, 4, 0), (0, 0, 0)] {
        check::<T>(size, Order::Rows, Order::Rows);
    }
    for a_order in ORDERS {
        for b_order in ORDERS {
            check::<T>((29, 67, 23), a_order, b_order);
        }
    }
}

macro_rules! type_tests {
    ($($name:ident: $t:ty;)+) => { $(
        #[test]
        fn $name() {
            check_type::<$t>();
        }
    )+ };
}

type_tests! {
    multiplies_f32: f32;
    multiplies_f64: f64;
    multiplies_bf16: bf16;
    multiplies_f16: f16;
    multiplies_i8: i8;
    multiplies_u8: u8;
    multiplies_i16: i16;
    multiplies_u16: u16;
    multiplies_i32: i32;
    multiplies_u32: u32;
    multiplies_i64: i64;
    multiplies_u64: u64;
    multiplies_complex_f32: Complex<f32>;
    multiplies_complex_f64: Complex<f64>;
}

/// Sizes that reach packing, several parts of the depth and many blocks.
#[test]
fn multiplies_large() {
    check::<f32>((61, 389, 1031), Order::Rows, Order::Rows);
    check::<f32>((61, 129, 1031), Order::Columns, Order::Columns);
    check::<f32>((61, 259, 1024), Order::Rows, Order::Padded);
    check::<f64>((61, 193, 1031), Order::Rows, Order::Rows);
    check::<bf16>((61, 65, 521), Order::Rows, Order::Columns);
    check::<i32>((37, 65, 521), Order::Rows, Order::Rows);
}

/// Matrix-vector and vector-matrix products.
#[test]
fn multiplies_vectors() {
    for order in ORDERS {
        check::<f32>((1, 1031, 253), Order::Rows, order);
        check::<f32>((1031, 1, 253), order, Order::Rows);
        check::<f32>((131, 1, 253), order, Order::Scattered);
        check::<bf16>((1, 131, 253), Order::Rows, order);
        check::<i16>((131, 1, 253), order, Order::Rows);
    }
    check::<f32>((1, 2100, 253), Order::Rows, Order::Rows);
    check::<f32>((2100, 1, 253), Order::Rows, Order::Rows);
}

/// Sums that round have the same bits with one thread and with two.
#[test]
fn same_bits_on_two_threads() {
    let mut random = Random(7);
    let mut uniform = |len: usize| -> Vec<f32> {
        (0..len).map(|_| random.below(1 << 24) as f32 / 8_388_608.0 - 1.0).collect()
    };
    for (m, n, k) in [(120, 130, 140), (60, 200, 600), (1, 2100, 300), (2100, 1, 300)] {
        let (a, b) = (uniform(m * k), uniform(k * n));
        let rows = (MatRef::row_major(&a, m, k), MatRef::row_major(&b, k, n));
        let columns = (MatRef::row_major(&a, k, m), MatRef::row_major(&b, n, k));
        let columns = (columns.0.map(MatRef::transposed), columns.1.map(MatRef::transposed));
        for (a, b) in [rows, columns] {
            for level in LEVELS {
                let product = Gemm::with_level(a.expect("m x k"), b.expect("k x n"), level);
                let product = product.expect("the inner sizes agree");
                let bits = |parallel: ParallelFor<'_>| -> Vec<u32> {
                    let mut c = vec![f32::NAN; m * n];
                    let view = MatMut::row_major(&mut c, m, n).expect("m x n");
                    run(&product, view, Write::Overwrite, parallel);
                    c.into_iter().map(f32::to_bits).collect()
                };
                assert!(bits(&serial) == bits(&two_threads), "{m}x{n}x{k} {level:?}");
            }
        }
    }
}

#[test]
fn halves_round_once() {
    // Rounded after each term, the sum would stay at 1.
    let a = [bf16::ONE; 513];
    let mut b = [bf16::from_f32(1.0 / 256.0); 513 * 3];
    b[..3].fill(bf16::ONE);
    for level in LEVELS {
        let (a, b) = (MatRef::row_major(&a, 1, 513), MatRef::row_major(&b, 513, 3));
        let product = Gemm::with_level(a.expect("1 x 513"), b.expect("513 x 3"), level);
        let mut c = [bf16::ZERO; 3];
        let view = MatMut::row_major(&mut c, 1, 3).expect("1 x 3");
        run(&product.expect("the inner sizes agree"), view, Write::Overwrite, &serial);
        assert_eq!(c, [bf16::from_f32(3.0); 3], "{level:?}");
    }
}

#[test]
fn zero_times_infinity_is_not_skipped() {
    let a = [0.0_f32; 20 * 20];
    let mut b = [1.0_f32; 20 * 20];
    b[20 * 7 + 3] = f32::INFINITY;
    for level in LEVELS {
        let (a, b) = (MatRef::row_major(&a, 20, 20), MatRef::row_major(&b, 20, 20));
        let product = Gemm::with_level(a.expect("20 x 20"), b.expect("20 x 20"), level);
        let mut c = [1.0; 20 * 20];
        let view = MatMut::row_major(&mut c, 20, 20).expect("20 x 20");
        run(&product.expect("the inner sizes agree"), view, Write::Overwrite, &serial);
        for (at, x) in c.iter().enumerate() {
            assert_eq!(x.is_nan(), at % 20 == 3, "{level:?} at {at}");
        }
    }
}

#[test]
fn refuses_what_does_not_fit() {
    let data = [0.0_f32; 12];
    assert!(MatRef::new(&data, (3, 4), (4, 1)).is_some());
    assert!(MatRef::new(&data, (3, 5), (4, 1)).is_none());
    assert!(MatRef::new(&data, (usize::MAX, 2), (1, 1)).is_none());
    assert!(MatRef::new(&data, (2, 2), (usize::MAX, 1)).is_none());
    assert!(MatRef::new(&data, (1 << 60, 1 << 60), (0, 0)).is_some());
    let mut out = [0.0_f32; 12];
    assert!(MatMut::new(&mut out, (3, 4), 3).is_none());
    assert!(MatMut::new(&mut out, (3, 4), 5).is_none());

    let a = MatRef::row_major(&data, 3, 4).expect("3 x 4");
    assert!(Gemm::new(a, a).is_none());
    let square = Gemm::new(a, a.transposed()).expect("4 inner columns");
    let view = MatMut::row_major(&mut out, 2, 3).expect("2 x 3");
    let error = square.run(view, Write::Overwrite, &mut [], &serial);
    assert_eq!(error, Err(Error::ShapeMismatch));
    let view = MatMut::row_major(&mut out, 3, 3).expect("3 x 3");
    let error = square.run(view, Write::Overwrite, &mut [], &serial);
    assert_eq!(error, Err(Error::ScratchTooSmall));
    // A view with strides of 0 may have any size; only the destination would take memory.
    let huge = MatRef::new(&data, (1 << 60, 1 << 60), (0, 0)).expect("one element, repeated");
    assert!(Gemm::new(huge, huge).expect("square").scratch_len() > 1 << 60);
}

#[test]
fn notices_blocks_left_out() {
    let data = vec![1.0_f32; 300 * 300];
    let a = MatRef::row_major(&data, 300, 300).expect("300 x 300");
    let product = Gemm::new(a, a).expect("square");
    let mut c = vec![0.0; 300 * 300];
    let view = MatMut::row_major(&mut c, 300, 300).expect("300 x 300");
    let lazy = |count: usize, work: &(dyn Fn(usize) + Sync)| (1..count).for_each(work);
    let error = product.run(view, Write::Overwrite, &mut [], &lazy);
    assert_eq!(error, Err(Error::Interrupted));
}

/// A right factor that was packed once gives the same product as packing at each call.
#[test]
fn right_factors_are_kept() {
    let mut random = Random(9);
    for (m, k, n) in [(20, 70, 100), (1, 40, 33), (14, 600, 64), (3, 5, 1), (2, 0, 3), (30, 9, 40)]
    {
        for order in ORDERS {
            let b = Factor::<f32>::new(&mut random, k, n, order);
            let left: Vec<Factor<f32>> =
                [Order::Rows, Order::Columns].map(|o| Factor::new(&mut random, m, k, o)).into();
            let kept = Gemm::prepacked_right(m, b.view());
            let mut scratch = vec![MaybeUninit::uninit(); kept.scratch_len()];
            kept.pack(&mut scratch, &two_threads).unwrap();
            for a in &left {
                let (mut got, mut expected) = (vec![1.0f32; m * n], vec![1.0f32; m * n]);
                let whole = Gemm::new(a.view(), b.view()).unwrap();
                let c = MatMut::row_major(&mut expected, m, n).unwrap();
                let mut own = vec![MaybeUninit::uninit(); whole.scratch_len()];
                whole.run(c, Write::Accumulate, &mut own, &serial).unwrap();
                let c = MatMut::row_major(&mut got, m, n).unwrap();
                // SAFETY: the factor was packed into this scratch above.
                unsafe { kept.run_packed(a.view(), c, Write::Accumulate, &scratch, &two_threads) }
                    .unwrap();
                assert_eq!(got, expected, "{m} {k} {n} {order:?}");
            }
        }
    }
}

/// A sum over a strided batch, whose factors may overlap, equals the sum of the products.
#[test]
fn products_of_several_places_are_summed() {
    let mut random = Random(11);
    let data: Vec<f32> = (0..4000).map(|_| f32::sample(&mut random)).collect();
    for (m, k, n, count) in
        [(14, 6, 32, 3), (5, 3, 40, 2), (20, 9, 7, 4), (1, 1, 1, 1), (3, 2, 5, 0)]
    {
        let a = StridedBatch { data: &data, size: (m, k), strides: (2, 1), step: 17 };
        let b =
            StridedBatch { data: &data[100..], size: (k, n), strides: (n + 1, 1), step: k * 50 };
        let mut got = vec![2.0f32; m * n];
        let c = MatMut::row_major(&mut got, m, n).unwrap();
        sum_products(a, b, count, c, Write::Accumulate).unwrap();
        for i in 0..m {
            for j in 0..n {
                let term = |s: usize, p: usize| {
                    data[s * 17 + i * 2 + p] * data[100 + s * k * 50 + p * (n + 1) + j]
                };
                let pairs = (0..count).flat_map(|s| (0..k).map(move |p| (s, p)));
                let sum: f32 = pairs.map(|(s, p)| term(s, p)).sum();
                assert_eq!(got[i * n + j], 2.0 + sum, "{m} {k} {n} {count}");
            }
        }
    }
    let a = StridedBatch { data: &data, size: (2, 2), strides: (2, 1), step: 3999 };
    let b = StridedBatch { data: &data, size: (2, 2), strides: (2, 1), step: 0 };
    let mut got = [0.0f32; 4];
    let c = MatMut::row_major(&mut got, 2, 2).unwrap();
    assert_eq!(sum_products(a, b, 2, c, Write::Overwrite), Err(Error::ShapeMismatch));
    let halves = [bf16::ONE; 4];
    let a = StridedBatch { data: &halves, size: (2, 2), strides: (2, 1), step: 0 };
    let mut got = [bf16::ONE; 4];
    let c = MatMut::row_major(&mut got, 2, 2).unwrap();
    assert_eq!(sum_products(a, a, 1, c, Write::Overwrite), Err(Error::Unsupported));
}
