//! The numbers of the series that have one label pair. Most pairs belong to one series or to very many, so there are
//! three forms: one number, a short sorted list, a Roaring bitmap.

use roaring::RoaringBitmap;

/// Longest list; more numbers become a bitmap.
const LIST_MAX: usize = 128;

/// Ascending series numbers.
#[derive(Debug)]
pub(crate) enum Postings {
    /// A single series.
    One(u32),
    /// Up to [`LIST_MAX`] series.
    List(Vec<u32>),
    /// More than [`LIST_MAX`] series.
    Bitmap(Box<RoaringBitmap>),
}

impl Postings {
    /// Adds a number that is not in the list yet; mostly it is the greatest.
    pub(crate) fn insert(&mut self, number: u32) {
        match self {
            Self::One(first) => *self = Self::List(vec![(*first).min(number), (*first).max(number)]),
            Self::List(list) if list.len() < LIST_MAX => {
                let at = if list.last() < Some(&number) { list.len() } else { list.partition_point(|&n| n < number) };
                list.insert(at, number);
            }
            Self::List(list) => {
                let mut bitmap: RoaringBitmap = list.iter().copied().collect();
                bitmap.insert(number);
                *self = Self::Bitmap(Box::new(bitmap));
            }
            Self::Bitmap(bitmap) => {
                bitmap.insert(number);
            }
        }
    }

    /// Removes a number; returns whether none is left.
    pub(crate) fn remove(&mut self, number: u32) -> bool {
        match self {
            Self::One(first) => *first == number,
            Self::List(list) => {
                if let Ok(at) = list.binary_search(&number) {
                    list.remove(at);
                }
                list.is_empty()
            }
            Self::Bitmap(bitmap) => {
                bitmap.remove(number);
                bitmap.is_empty()
            }
        }
    }

    /// Gives the numbers as a bitmap.
    pub(crate) fn to_bitmap(&self) -> RoaringBitmap {
        match self {
            Self::One(number) => RoaringBitmap::from_iter([*number]),
            Self::List(list) => list.iter().copied().collect(),
            Self::Bitmap(bitmap) => (**bitmap).clone(),
        }
    }
}

/// Unites posting lists; short ones are collected, and sorted once.
#[derive(Debug, Default)]
pub(crate) struct Union {
    bitmap: RoaringBitmap,
    loose: Vec<u32>,
}

impl Union {
    /// Adds the numbers of one pair.
    pub(crate) fn add(&mut self, postings: &Postings) {
        match postings {
            Postings::One(number) => self.loose.push(*number),
            Postings::List(list) => self.loose.extend_from_slice(list),
            Postings::Bitmap(bitmap) => self.bitmap |= &**bitmap,
        }
    }

    /// Gives all numbers.
    pub(crate) fn finish(mut self) -> RoaringBitmap {
        self.loose.sort_unstable();
        self.loose.dedup();
        let loose = RoaringBitmap::from_sorted_iter(self.loose).expect("sorted and without repeats");
        if self.bitmap.is_empty() { loose } else { self.bitmap | loose }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_forms_hold_the_same() {
        for n in [1u32, 2, 128, 129, 130, 1000] {
            let mut p = Postings::One(3);
            (1..n).for_each(|i| p.insert(3 + 7 * i));
            let mut backwards = Postings::One(3 + 7 * (n - 1));
            (0..n - 1).rev().for_each(|i| backwards.insert(3 + 7 * i));
            assert_eq!(backwards.to_bitmap(), p.to_bitmap());
            let expected: RoaringBitmap = (0..n).map(|i| 3 + 7 * i).collect();
            assert_eq!(p.to_bitmap(), expected);
            let mut union = Union::default();
            union.add(&p);
            union.add(&Postings::One(3));
            union.add(&Postings::List(vec![1, 10]));
            assert_eq!(union.finish(), &expected | RoaringBitmap::from_iter([1, 10]));
            let left: Vec<bool> = (0..n).map(|i| p.remove(3 + 7 * i)).collect();
            assert_eq!(left.iter().filter(|&&empty| empty).count(), 1);
            assert!(left[n as usize - 1]);
        }
    }

    /// Numbers in any order, taken out in any order, and some that are not there.
    #[test]
    fn whatever_is_done_they_hold_what_a_set_would() {
        let mut seed = 3u64;
        let mut random = |below: u64| {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            ((seed >> 33) % below) as u32
        };
        // One number, lists alone, and up to bitmaps and down again.
        for range in [2, 100, 400] {
            let mut set = std::collections::BTreeSet::from([7]);
            let mut postings = Postings::One(7);
            for step in 0..3000 {
                let number = random(range);
                let share = if step % 1000 < 600 { 3 } else { 1 };
                if random(5) < share {
                    if set.insert(number) {
                        postings.insert(number);
                    }
                } else if set.len() > 1 {
                    // The index takes out what is there; what is not must change nothing.
                    let is_there = set.remove(&number);
                    let is_empty = postings.remove(number);
                    assert!(!is_empty, "{is_there}: {number} of {set:?}");
                }
                assert_eq!(postings.to_bitmap().len(), set.len() as u64, "step {step}");
            }
            assert!(postings.to_bitmap().iter().eq(set.iter().copied()));
            let all: Vec<u32> = set.into_iter().collect();
            let (last, others) = all.split_last().expect("one at least");
            for &number in others {
                assert!(!postings.remove(number));
            }
            assert!(postings.remove(*last), "none is left");
        }
    }

    #[test]
    fn a_union_of_nothing_and_of_all_forms() {
        assert!(Union::default().finish().is_empty());
        let mut union = Union::default();
        let many: RoaringBitmap = (1000..2000).collect();
        union.add(&Postings::Bitmap(Box::new(many)));
        union.add(&Postings::List(vec![5, 1500, u32::MAX]));
        union.add(&Postings::Bitmap(Box::new((1999..2001).collect())));
        union.add(&Postings::One(0));
        union.add(&Postings::One(5));
        let expected: RoaringBitmap = [0, 5].into_iter().chain(1000..2001).chain([u32::MAX]).collect();
        assert_eq!(union.finish(), expected);
    }
}
