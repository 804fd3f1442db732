//! The hash by which Prometheus samples series (`limit_ratio`): XXH64 of the labels in the byte form of
//! `model/labels/labels_stringlabels.go`, so that both keep the same series.

/// Hashes labels in name order.
pub(crate) fn labels_hash<'a>(labels: impl IntoIterator<Item = (&'a str, &'a str)>) -> u64 {
    let mut data = Vec::with_capacity(128);
    for (name, value) in labels {
        for text in [name, value] {
            if text.len() < 255 {
                data.push(text.len() as u8);
            } else {
                data.push(255);
                data.extend_from_slice(&(text.len() as u32).to_le_bytes()[..3]);
            }
            data.extend_from_slice(text.as_bytes());
        }
    }
    xxh64(&data)
}

const P1: u64 = 0x9E37_79B1_85EB_CA87;
const P2: u64 = 0xC2B2_AE3D_27D4_EB4F;
const P3: u64 = 0x1656_67B1_9E37_79F9;
const P4: u64 = 0x85EB_CA77_C2B2_AE63;
const P5: u64 = 0x27D4_EB2F_1656_67C5;

fn round(acc: u64, lane: u64) -> u64 {
    acc.wrapping_add(lane.wrapping_mul(P2)).rotate_left(31).wrapping_mul(P1)
}

/// XXH64 with seed 0.
fn xxh64(data: &[u8]) -> u64 {
    let lane = |b: &[u8]| u64::from_le_bytes(b.try_into().expect("eight bytes"));
    let stripes = data.chunks_exact(32);
    let rest = stripes.remainder();
    let mut hash = if data.len() >= 32 {
        let mut accs = [P1.wrapping_add(P2), P2, 0, 0u64.wrapping_sub(P1)];
        for stripe in stripes {
            for (acc, bytes) in accs.iter_mut().zip(stripe.chunks_exact(8)) {
                *acc = round(*acc, lane(bytes));
            }
        }
        let rotations = [1, 7, 12, 18];
        let mixed = accs.iter().zip(rotations).fold(0u64, |h, (a, r)| h.wrapping_add(a.rotate_left(r)));
        accs.iter().fold(mixed, |h, a| (h ^ round(0, *a)).wrapping_mul(P1).wrapping_add(P4))
    } else {
        P5
    };
    hash = hash.wrapping_add(data.len() as u64);
    let words = rest.chunks_exact(8);
    let mut tail = words.remainder();
    for bytes in words {
        hash = (hash ^ round(0, lane(bytes))).rotate_left(27).wrapping_mul(P1).wrapping_add(P4);
    }
    if let Some((four, after)) = tail.split_at_checked(4) {
        let half = u64::from(u32::from_le_bytes(four.try_into().expect("four bytes")));
        hash = (hash ^ half.wrapping_mul(P1)).rotate_left(23).wrapping_mul(P2).wrapping_add(P3);
        tail = after;
    }
    for &byte in tail {
        hash = (hash ^ u64::from(byte).wrapping_mul(P5)).rotate_left(11).wrapping_mul(P1);
    }
    hash ^= hash >> 33;
    hash = hash.wrapping_mul(P2);
    hash ^= hash >> 29;
    hash = hash.wrapping_mul(P3);
    hash ^ (hash >> 32)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_hashes() {
        assert_eq!(xxh64(b""), 0xEF46_DB37_51D8_E999);
        assert_eq!(xxh64(b"a"), 0xD24E_C4F1_A98C_6E5B);
        assert_eq!(xxh64(b"abc"), 0x44BC_2CF5_AD77_0999);
        assert_eq!(xxh64(b"Nobody inspects the spammish repetition"), 0xFBCE_A83C_8A37_8BF1);
    }
}
