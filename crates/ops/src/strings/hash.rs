//! Hash functions whose values are stored in users' data: hash buckets, feature crosses,
//! fingerprints. Each equals the published function bit for bit.

/// MurmurHash64A with TensorFlow's seed: `Hash64`.
pub(crate) fn hash64(bytes: &[u8]) -> u64 {
    const MULTIPLIER: u64 = 0xc6a4_a793_5bd1_e995;
    const SEED: u64 = 0x00de_cafc_affe;
    let mut h = SEED ^ (bytes.len() as u64).wrapping_mul(MULTIPLIER);
    let (words, tail) = bytes.as_chunks::<8>();
    for word in words {
        let mut k = u64::from_le_bytes(*word).wrapping_mul(MULTIPLIER);
        k ^= k >> 47;
        h ^= k.wrapping_mul(MULTIPLIER);
        h = h.wrapping_mul(MULTIPLIER);
    }
    if !tail.is_empty() {
        let rest = tail.iter().rev().fold(0u64, |rest, &b| rest << 8 | u64::from(b));
        h = (h ^ rest).wrapping_mul(MULTIPLIER);
    }
    h ^= h >> 47;
    h = h.wrapping_mul(MULTIPLIER);
    h ^ h >> 47
}

/// SipHash-2-4.
pub(crate) fn sip_hash(key: [u64; 2], bytes: &[u8]) -> u64 {
    let mut v = [
        key[0] ^ 0x736f_6d65_7073_6575,
        key[1] ^ 0x646f_7261_6e64_6f6d,
        key[0] ^ 0x6c79_6765_6e65_7261,
        key[1] ^ 0x7465_6462_7974_6573,
    ];
    let mut absorb = |word: u64| {
        v[3] ^= word;
        sip_round(&mut v);
        sip_round(&mut v);
        v[0] ^= word;
    };
    let (words, tail) = bytes.as_chunks::<8>();
    words.iter().for_each(|w| absorb(u64::from_le_bytes(*w)));
    let mut last = [0; 8];
    last[..tail.len()].copy_from_slice(tail);
    // The last word has the length in its highest byte.
    last[7] = bytes.len() as u8;
    absorb(u64::from_le_bytes(last));
    v[2] ^= 0xff;
    (0..4).for_each(|_| sip_round(&mut v));
    v[0] ^ v[1] ^ v[2] ^ v[3]
}

fn sip_round(v: &mut [u64; 4]) {
    v[0] = v[0].wrapping_add(v[1]);
    v[1] = v[1].rotate_left(13) ^ v[0];
    v[0] = v[0].rotate_left(32);
    v[2] = v[2].wrapping_add(v[3]);
    v[3] = v[3].rotate_left(16) ^ v[2];
    v[0] = v[0].wrapping_add(v[3]);
    v[3] = v[3].rotate_left(21) ^ v[0];
    v[2] = v[2].wrapping_add(v[1]);
    v[1] = v[1].rotate_left(17) ^ v[2];
    v[2] = v[2].rotate_left(32);
}

const K0: u64 = 0xc3a5_c85c_97cb_3127;
const K1: u64 = 0xb492_b66f_be98_f273;
const K2: u64 = 0x9ae1_6a3b_2f90_404f;

/// FarmHash's `Fingerprint64`.
pub(crate) fn fingerprint64(bytes: &[u8]) -> u64 {
    match bytes.len() {
        0..=16 => farm_up_to_16(bytes),
        17..=32 => farm_up_to_32(bytes),
        33..=64 => farm_up_to_64(bytes),
        _ => farm_long(bytes),
    }
}

fn word64(bytes: &[u8], at: usize) -> u64 {
    bytes[at..].first_chunk().map_or(0, |w| u64::from_le_bytes(*w))
}

fn word32(bytes: &[u8], at: usize) -> u64 {
    bytes[at..].first_chunk().map_or(0, |w| u64::from(u32::from_le_bytes(*w)))
}

fn shift_mix(value: u64) -> u64 {
    value ^ value >> 47
}

fn mix(u: u64, v: u64, multiplier: u64) -> u64 {
    let a = shift_mix((u ^ v).wrapping_mul(multiplier));
    shift_mix((v ^ a).wrapping_mul(multiplier)).wrapping_mul(multiplier)
}

/// The multiplier for short inputs.
fn length_multiplier(len: usize) -> u64 {
    K2.wrapping_add(len as u64 * 2)
}

fn farm_up_to_16(s: &[u8]) -> u64 {
    let len = s.len();
    if len >= 8 {
        let multiplier = length_multiplier(len);
        let a = word64(s, 0).wrapping_add(K2);
        let b = word64(s, len - 8);
        let c = b.rotate_right(37).wrapping_mul(multiplier).wrapping_add(a);
        let d = a.rotate_right(25).wrapping_add(b).wrapping_mul(multiplier);
        return mix(c, d, multiplier);
    }
    if len >= 4 {
        let a = (word32(s, 0) << 3).wrapping_add(len as u64);
        return mix(a, word32(s, len - 4), length_multiplier(len));
    }
    if len == 0 {
        return K2;
    }
    let (a, b, c) = (u32::from(s[0]), u32::from(s[len / 2]), u32::from(s[len - 1]));
    let y = u64::from(a + (b << 8)).wrapping_mul(K2);
    let z = u64::from(len as u32 + (c << 2)).wrapping_mul(K0);
    shift_mix(y ^ z).wrapping_mul(K2)
}

fn farm_up_to_32(s: &[u8]) -> u64 {
    let len = s.len();
    let multiplier = length_multiplier(len);
    let a = word64(s, 0).wrapping_mul(K1);
    let b = word64(s, 8);
    let c = word64(s, len - 8).wrapping_mul(multiplier);
    let d = word64(s, len - 16).wrapping_mul(K2);
    let left = a.wrapping_add(b).rotate_right(43).wrapping_add(c.rotate_right(30)).wrapping_add(d);
    let right = a.wrapping_add(b.wrapping_add(K2).rotate_right(18)).wrapping_add(c);
    mix(left, right, multiplier)
}

fn farm_up_to_64(s: &[u8]) -> u64 {
    let len = s.len();
    let multiplier = length_multiplier(len);
    let a = word64(s, 0).wrapping_mul(K2);
    let b = word64(s, 8);
    let c = word64(s, len - 8).wrapping_mul(multiplier);
    let d = word64(s, len - 16).wrapping_mul(K2);
    let y = a.wrapping_add(b).rotate_right(43).wrapping_add(c.rotate_right(30)).wrapping_add(d);
    let z = mix(y, a.wrapping_add(b.wrapping_add(K2).rotate_right(18)).wrapping_add(c), multiplier);
    let e = word64(s, 16).wrapping_mul(multiplier);
    let f = word64(s, 24);
    let g = y.wrapping_add(word64(s, len - 32)).wrapping_mul(multiplier);
    let h = z.wrapping_add(word64(s, len - 24)).wrapping_mul(multiplier);
    let left = e.wrapping_add(f).rotate_right(43).wrapping_add(g.rotate_right(30)).wrapping_add(h);
    let right = e.wrapping_add(f.wrapping_add(a).rotate_right(18)).wrapping_add(g);
    mix(left, right, multiplier)
}

/// FarmHash's `WeakHashLen32WithSeeds`.
fn weak_32(s: &[u8], at: usize, a: u64, b: u64) -> (u64, u64) {
    let (w, x, y, z) = (word64(s, at), word64(s, at + 8), word64(s, at + 16), word64(s, at + 24));
    let a = a.wrapping_add(w);
    let b = b.wrapping_add(a).wrapping_add(z).rotate_right(21);
    let c = a;
    let a = a.wrapping_add(x).wrapping_add(y);
    let b = b.wrapping_add(a.rotate_right(44));
    (a.wrapping_add(z), b.wrapping_add(c))
}

fn farm_long(s: &[u8]) -> u64 {
    const SEED: u64 = 81;
    let len = s.len();
    let mut x = SEED.wrapping_mul(K2).wrapping_add(word64(s, 0));
    let mut y = SEED.wrapping_mul(K1).wrapping_add(113);
    let mut z = shift_mix(y.wrapping_mul(K2).wrapping_add(113)).wrapping_mul(K2);
    let (mut v, mut w) = ((0u64, 0u64), (0u64, 0u64));
    let end = (len - 1) / 64 * 64;
    for at in (0..end).step_by(64) {
        x = x.wrapping_add(y).wrapping_add(v.0).wrapping_add(word64(s, at + 8));
        x = x.rotate_right(37).wrapping_mul(K1);
        y = y.wrapping_add(v.1).wrapping_add(word64(s, at + 48));
        y = y.rotate_right(42).wrapping_mul(K1);
        x ^= w.1;
        y = y.wrapping_add(v.0).wrapping_add(word64(s, at + 40));
        z = z.wrapping_add(w.0).rotate_right(33).wrapping_mul(K1);
        v = weak_32(s, at, v.1.wrapping_mul(K1), x.wrapping_add(w.0));
        w = weak_32(s, at + 32, z.wrapping_add(w.1), y.wrapping_add(word64(s, at + 16)));
        std::mem::swap(&mut z, &mut x);
    }
    let multiplier = K1.wrapping_add((z & 0xff) << 1);
    // The last 64 bytes, which may overlap the block before.
    let last = len - 64;
    w.0 = w.0.wrapping_add((len as u64 - 1) & 63);
    v.0 = v.0.wrapping_add(w.0);
    w.0 = w.0.wrapping_add(v.0);
    x = x.wrapping_add(y).wrapping_add(v.0).wrapping_add(word64(s, last + 8));
    x = x.rotate_right(37).wrapping_mul(multiplier);
    y = y.wrapping_add(v.1).wrapping_add(word64(s, last + 48));
    y = y.rotate_right(42).wrapping_mul(multiplier);
    x ^= w.1.wrapping_mul(9);
    y = y.wrapping_add(v.0.wrapping_mul(9)).wrapping_add(word64(s, last + 40));
    z = z.wrapping_add(w.0).rotate_right(33).wrapping_mul(multiplier);
    v = weak_32(s, last, v.1.wrapping_mul(multiplier), x.wrapping_add(w.0));
    w = weak_32(s, last + 32, z.wrapping_add(w.1), y.wrapping_add(word64(s, last + 16)));
    std::mem::swap(&mut z, &mut x);
    let left =
        mix(v.0, w.0, multiplier).wrapping_add(shift_mix(y).wrapping_mul(K0)).wrapping_add(z);
    mix(left, mix(v.1, w.1, multiplier).wrapping_add(x), multiplier)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// TensorFlow 2.21's values modulo this many buckets.
    const BUCKETS: u64 = (1 << 62) + 12345;

    #[test]
    fn values_are_tensorflows() {
        let repeated = |byte: u8, len: usize| vec![byte; len];
        for (text, murmur, farm, sip) in [
            (vec![], 105434511174483401, 1936946117179596765, 443797209252316937),
            (b"a".to_vec(), 2996632905371535868, 3694432073954563441, 546566331822558397),
            (b"abc".to_vec(), 1046625677629742461, 2640714258260161385, 1250540936487805170),
            (b"abcd".to_vec(), 404301170780137434, 1897425971756105985, 4277338952175873064),
            (b"abcdefg".to_vec(), 2960345911509175758, 4341691227789030229, 957890530879302020),
            (b"abcdefgh".to_vec(), 3429851175771700306, 4533385575889606750, 2649018002260485418),
            (repeated(b'x', 16), 1260831952859275569, 3320895591121647644, 2083976100733438865),
            (repeated(b'y', 17), 1430365920931517632, 426471879119003573, 1541948060395801178),
            (repeated(b'w', 32), 2268683058579065657, 3295925585737188473, 281212933293847754),
            (repeated(b'w', 33), 614313809260735069, 1065610773926103544, 1083027582118535766),
            (repeated(b'w', 64), 417399292188722093, 4555407945498560506, 961158343003684371),
            (repeated(b'v', 65), 3467302144011609886, 978096718525182510, 4591866492097362903),
            (repeated(b'v', 128), 2558498886995214774, 532160357238168636, 3099678683810900928),
            (repeated(b'u', 129), 4476303568601948767, 1186471084750888585, 3733714009906162634),
            (repeated(b'u', 1000), 3558003479337047679, 299803447157189756, 3307119672566207444),
            ((0..=255).collect(), 738269575436937580, 679971070136936166, 3966507365264910919),
        ] {
            let len = text.len();
            assert_eq!(hash64(&text) % BUCKETS, murmur, "Hash64 of {len} bytes");
            assert_eq!(fingerprint64(&text) % BUCKETS, farm, "Fingerprint64 of {len} bytes");
            assert_eq!(sip_hash([1, 2], &text) % BUCKETS, sip, "SipHash of {len} bytes");
        }
        assert_eq!(sip_hash([u64::MAX, 1 << 62], b"ab") % BUCKETS, 3828907908646197038);
    }
}
