//! The hash that Prometheus uses to sample series (`limit_ratio`): XXH64 of the labels in the encoding of
//! `model/labels/labels_stringlabels.go`, so that both select the same series.

use xxhash_rust::xxh64::xxh64;

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
    xxh64(&data, 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_those_of_prometheus() {
        assert_eq!(labels_hash([]), 0xEF46_DB37_51D8_E999, "nothing");
        assert_eq!(labels_hash([("a", "b")]), xxh64(b"\x01a\x01b", 0));
        let long = "v".repeat(300);
        let expected = [&b"\x01a\xff\x2c\x01\x00"[..], long.as_bytes()].concat();
        assert_eq!(labels_hash([("a", &long[..])]), xxh64(&expected, 0));
    }
}
