//! `hash(f) as r`: XXH64 of the value, its lower 53 bits, so that the number survives as a double.

const P1: u64 = 0x9e37_79b1_85eb_ca87;
const P2: u64 = 0xc2b2_ae3d_27d4_eb4f;
const P3: u64 = 0x1656_67b1_9e37_79f9;
const P4: u64 = 0x85eb_ca77_c2b2_ae63;
const P5: u64 = 0x27d4_eb2f_1656_67c5;

/// Gives the hash of a value.
pub fn hash(value: &str) -> u64 {
    xxh64(value.as_bytes()) & ((1 << 53) - 1)
}

fn word(bytes: &[u8]) -> u64 {
    u64::from_le_bytes(bytes[..8].try_into().expect("eight bytes"))
}

fn round(lane: u64, input: u64) -> u64 {
    lane.wrapping_add(input.wrapping_mul(P2)).rotate_left(31).wrapping_mul(P1)
}

/// XXH64 with seed 0.
pub(crate) fn xxh64(mut bytes: &[u8]) -> u64 {
    let length = bytes.len() as u64;
    let mut hash = if bytes.len() >= 32 {
        let mut lanes = [P1.wrapping_add(P2), P2, 0, 0_u64.wrapping_sub(P1)];
        while bytes.len() >= 32 {
            for (lane, input) in lanes.iter_mut().zip(bytes.chunks_exact(8)) {
                *lane = round(*lane, word(input));
            }
            bytes = &bytes[32..];
        }
        let mixed = [1, 7, 12, 18].iter().zip(&lanes).fold(0_u64, |h, (r, l)| h.wrapping_add(l.rotate_left(*r)));
        lanes.iter().fold(mixed, |h, lane| (h ^ round(0, *lane)).wrapping_mul(P1).wrapping_add(P4))
    } else {
        P5
    };
    hash = hash.wrapping_add(length);
    while bytes.len() >= 8 {
        hash = (hash ^ round(0, word(bytes))).rotate_left(27).wrapping_mul(P1).wrapping_add(P4);
        bytes = &bytes[8..];
    }
    if bytes.len() >= 4 {
        let half = u64::from(u32::from_le_bytes(bytes[..4].try_into().expect("four bytes")));
        hash = (hash ^ half.wrapping_mul(P1)).rotate_left(23).wrapping_mul(P2).wrapping_add(P3);
        bytes = &bytes[4..];
    }
    for &b in bytes {
        hash = (hash ^ u64::from(b).wrapping_mul(P5)).rotate_left(11).wrapping_mul(P1);
    }
    hash = (hash ^ hash >> 33).wrapping_mul(P2);
    hash = (hash ^ hash >> 29).wrapping_mul(P3);
    hash ^ hash >> 32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_hashes() {
        assert_eq!(hash("abcde"), 957_726_378_018_795);
        assert_eq!(hash("abc"), 7_930_733_036_767_641);
        assert_eq!(hash(""), 1_929_880_503_118_233);
        assert_eq!(xxh64(b"Nobody inspects the spammish repetition"), 0xfbce_a83c_8a37_8bf1);
    }
}
