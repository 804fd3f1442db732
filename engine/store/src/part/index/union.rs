//! Unites the series of many values, most of which have only few series.

use roaring::RoaringBitmap;

/// The union of several lists of series. Short lists are collected, and sorted once.
#[derive(Debug, Default)]
pub(super) struct Union {
    bitmap: RoaringBitmap,
    loose: Vec<u32>,
}

/// When more numbers than this are collected, they are merged into the bitmap.
const LOOSE_MAX: usize = 1 << 16;

impl Union {
    /// Adds an ascending list of series.
    pub(super) fn add_list(&mut self, series: &[u32]) {
        self.loose.extend_from_slice(series);
        if self.loose.len() > LOOSE_MAX {
            self.merge_loose();
        }
    }

    /// Adds a bitmap in Roaring's portable format; `None` if it is malformed.
    pub(super) fn add(&mut self, bytes: &[u8]) -> Option<()> {
        match short_list(bytes) {
            Some(list) => {
                self.loose.extend(list);
                if self.loose.len() > LOOSE_MAX {
                    self.merge_loose();
                }
            }
            None => self.bitmap |= RoaringBitmap::deserialize_from(bytes).ok()?,
        }
        Some(())
    }

    pub(super) fn add_bitmap(&mut self, bitmap: &RoaringBitmap) {
        self.bitmap |= bitmap;
    }

    /// Current size in bytes.
    pub(super) fn bytes(&self) -> usize {
        self.bitmap.serialized_size() + size_of_val(&self.loose[..])
    }

    fn merge_loose(&mut self) {
        self.loose.sort_unstable();
        self.loose.dedup();
        let loose = RoaringBitmap::from_sorted_iter(self.loose.drain(..)).expect("sorted and without repeats");
        self.bitmap |= loose;
    }

    /// The union of everything added.
    pub(super) fn finish(mut self) -> RoaringBitmap {
        self.merge_loose();
        self.bitmap
    }
}

/// Decodes a bitmap that consists of one array container, which is the common case as most values have few series.
/// `None` for other bitmaps. The portable format is: cookie, number of containers, key and number of entries minus one,
/// offset, entries.
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
    /// What was added is the same whether it stands in the list, in the bitmap, or in both.
    #[test]
    fn many_numbers_become_a_bitmap_on_the_way() {
        let mut union = Union::default();
        let mut expected = RoaringBitmap::new();
        for start in [30_000, 0, 29_000, 100_000] {
            let list: Vec<u32> = (start..start + 40_000).collect();
            expected.extend(list.iter().copied());
            union.add_list(&list);
            assert!(union.loose.len() <= LOOSE_MAX, "{start}");
        }
        let of_bitmap: RoaringBitmap = [5, 69_999, 4_000_000_000].into_iter().collect();
        union.add_bitmap(&of_bitmap);
        expected |= of_bitmap;
        union.add_list(&[7, 7, 3]);
        assert!(union.bytes() >= 12, "what is loose counts, too");
        assert_eq!(union.finish(), expected);
        assert!(Union::default().finish().is_empty());
    }

    #[test]
    fn only_one_short_container_is_read_as_a_list() {
        let bytes = |list: &[u32]| {
            let mut bytes = Vec::new();
            list.iter().copied().collect::<RoaringBitmap>().serialize_into(&mut bytes).unwrap();
            bytes
        };
        let none = bytes(&[]);
        assert!(short_list(&none).is_none() && Union::default().add(&none).is_some());
        // Two containers, and one of more than 64 numbers that are no run.
        assert!(short_list(&bytes(&[1, 1 << 16])).is_none());
        let many: Vec<u32> = (0..65).map(|n| 3 * n).collect();
        assert!(short_list(&bytes(&many)).is_none());
        let mut union = Union::default();
        union.add(&bytes(&many)).unwrap();
        union.add(&bytes(&[u32::MAX])).unwrap();
        assert!(union.finish().iter().eq(many.into_iter().chain([u32::MAX])));
    }
}
