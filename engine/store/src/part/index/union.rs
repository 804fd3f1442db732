//! The union of the series of many values, most of which belong to few series.

use roaring::RoaringBitmap;

/// Series of several (label, value) pairs: short lists are gathered and sorted once.
#[derive(Debug, Default)]
pub(super) struct Union {
    bitmap: RoaringBitmap,
    loose: Vec<u32>,
}

/// Beyond so many loose numbers they become a bitmap.
const LOOSE_MAX: usize = 1 << 16;

impl Union {
    /// Adds the series of a pair, ascending.
    pub(super) fn add_list(&mut self, series: &[u32]) {
        self.loose.extend_from_slice(series);
        if self.loose.len() > LOOSE_MAX {
            self.settle();
        }
    }

    /// Adds those of a bitmap in the portable format; `None` when it is none.
    pub(super) fn add(&mut self, bytes: &[u8]) -> Option<()> {
        match short_list(bytes) {
            Some(list) => {
                self.loose.extend(list);
                if self.loose.len() > LOOSE_MAX {
                    self.settle();
                }
            }
            None => self.bitmap |= RoaringBitmap::deserialize_from(bytes).ok()?,
        }
        Some(())
    }

    /// Adds a bitmap.
    pub(super) fn add_bitmap(&mut self, bitmap: &RoaringBitmap) {
        self.bitmap |= bitmap;
    }

    /// Bytes of what is united.
    pub(super) fn bytes(&self) -> usize {
        self.bitmap.serialized_size() + size_of_val(&self.loose[..])
    }

    fn settle(&mut self) {
        self.loose.sort_unstable();
        self.loose.dedup();
        let loose = RoaringBitmap::from_sorted_iter(self.loose.drain(..)).expect("sorted and without repeats");
        self.bitmap |= loose;
    }

    /// Gives all.
    pub(super) fn finish(mut self) -> RoaringBitmap {
        self.settle();
        self.bitmap
    }
}

/// Reads a bitmap of one container that is a short list (most values belong to few series), by the portable format:
/// cookie, number of containers, key and number of entries less one, place, entries.
fn short_list(bytes: &[u8]) -> Option<impl Iterator<Item = u32>> {
    const COOKIE: u32 = 12346;
    let word = |at: usize| Some(u32::from_le_bytes(bytes.get(at..at + 4)?.try_into().ok()?));
    let (len, containers) = (bytes.len(), word(4)?);
    if word(0)? != COOKIE || containers != 1 || len > 16 + 2 * 64 {
        return None;
    }
    let key = u32::from(u16::from_le_bytes([*bytes.get(8)?, *bytes.get(9)?])) << 16;
    let entries = usize::from(u16::from_le_bytes([*bytes.get(10)?, *bytes.get(11)?])) + 1;
    let list = bytes.get(16..).filter(|list| list.len() == 2 * entries)?;
    Some(list.chunks_exact(2).map(move |two| key | u32::from(u16::from_le_bytes([two[0], two[1]]))))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_lists_are_what_the_format_says() {
        for list in [vec![7u32], vec![1 << 20, (1 << 20) + 3], (0..64).map(|n| 70_000 + 2 * n).collect::<Vec<_>>()] {
            let bitmap: RoaringBitmap = list.iter().copied().collect();
            let mut bytes = Vec::new();
            bitmap.serialize_into(&mut bytes).unwrap();
            assert_eq!(short_list(&bytes).unwrap().collect::<Vec<_>>(), list);
            let mut union = Union::default();
            union.add(&bytes).unwrap();
            assert_eq!(union.finish(), bitmap);
            assert!(short_list(&bytes[..bytes.len() - 1]).is_none());
        }
        let mut run: RoaringBitmap = (5..500).collect();
        run.optimize();
        let mut bytes = Vec::new();
        run.serialize_into(&mut bytes).unwrap();
        assert!(short_list(&bytes).is_none());
        let mut union = Union::default();
        union.add(&bytes).unwrap();
        assert_eq!(union.finish(), run);
        assert!(Union::default().add(&bytes[..3]).is_none());
    }
}
