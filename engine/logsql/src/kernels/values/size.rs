//! Sizes: `10KB`, `1.5MiB`, `1MiB500KiB200B`; in bytes.

use super::duration::sum;

/// Reads a size as bytes: numbers with the units `K M G T`, `KB MB GB TB` (powers of 1000), `Ki Mi Gi Ti`,
/// `KiB MiB GiB TiB` (powers of 1024) and `B`, several joined, a leading `-`. An integer without unit is one too.
/// Values beyond what fits are the greatest that does.
pub fn parse_size(text: &str) -> Option<i64> {
    sum(text, |number, tail| if tail.is_empty() && number.fract() != 0.0 { None } else { unit(tail) })
}

fn unit(bytes: &[u8]) -> Option<(i64, usize)> {
    let (decimal, binary) = match bytes.first() {
        None => return Some((1, 0)),
        Some(b'B') => return Some((1, 1)),
        Some(b'K') => (1_000, 1 << 10),
        Some(b'M') => (1_000_000, 1 << 20),
        Some(b'G') => (1_000_000_000, 1 << 30),
        Some(b'T') => (1_000_000_000_000, 1 << 40),
        _ => return None,
    };
    Some(match &bytes[1..] {
        [b'i', b'B', ..] => (binary, 3),
        [b'i', ..] => (binary, 2),
        [b'B', ..] => (decimal, 2),
        _ => (decimal, 1),
    })
}
