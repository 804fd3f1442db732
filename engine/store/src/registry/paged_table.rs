//! A table from series numbers to values, in pages of 1024 entries.
//!
//! The smallest free number is assigned first, so numbers in use are close together. A page is freed with its last
//! entry, and the directory ends with the last page, so churn does not make the table grow.

const PAGE: usize = 1024;

/// A sparse array.
#[derive(Debug)]
pub(crate) struct PagedTable<T> {
    pages: Vec<Option<Box<Page<T>>>>,
    len: usize,
    live_pages: usize,
}

#[derive(Debug)]
struct Page<T> {
    live: usize,
    items: Vec<Option<T>>,
}

impl<T> Default for PagedTable<T> {
    fn default() -> Self {
        Self { pages: Vec::new(), len: 0, live_pages: 0 }
    }
}

impl<T> PagedTable<T> {
    /// Finds an entry.
    pub(crate) fn get(&self, number: u32) -> Option<&T> {
        let page = self.pages.get(number as usize / PAGE)?.as_ref()?;
        page.items[number as usize % PAGE].as_ref()
    }

    /// Finds an entry, to change it.
    pub(crate) fn get_mut(&mut self, number: u32) -> Option<&mut T> {
        let page = self.pages.get_mut(number as usize / PAGE)?.as_mut()?;
        page.items[number as usize % PAGE].as_mut()
    }

    /// Sets an entry, replacing an existing one.
    pub(crate) fn insert(&mut self, number: u32, value: T) {
        let at = number as usize / PAGE;
        if self.pages.len() <= at {
            self.pages.resize_with(at + 1, || None);
        }
        let live_pages = &mut self.live_pages;
        let page = self.pages[at].get_or_insert_with(|| {
            *live_pages += 1;
            Box::new(Page { live: 0, items: std::iter::repeat_with(|| None).take(PAGE).collect() })
        });
        if page.items[number as usize % PAGE].replace(value).is_none() {
            page.live += 1;
            self.len += 1;
        }
    }

    /// Removes an entry.
    pub(crate) fn remove(&mut self, number: u32) -> Option<T> {
        let slot = self.pages.get_mut(number as usize / PAGE)?;
        let page = slot.as_mut()?;
        let value = page.items[number as usize % PAGE].take()?;
        page.live -= 1;
        self.len -= 1;
        if page.live == 0 {
            *slot = None;
            self.live_pages -= 1;
            let end = self.pages.iter().rposition(Option::is_some).map_or(0, |last| last + 1);
            self.pages.truncate(end);
            if self.pages.capacity() > 2 * end + 64 {
                self.pages.shrink_to(end + end / 2);
            }
        }
        Some(value)
    }

    /// Number of entries.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Memory of the table itself, without heap memory of the entries.
    pub(crate) fn bytes(&self) -> usize {
        self.live_pages * PAGE * size_of::<Option<T>>() + self.pages.capacity() * size_of::<usize>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_come_and_go() {
        let mut t = PagedTable::default();
        for n in 0..3000 {
            t.insert(n, n * 2);
        }
        assert_eq!((t.get(2999), t.get(3000), t.len()), (Some(&5998), None, 3000));
        let full = t.bytes();
        for n in 1024..2048 {
            assert_eq!(t.remove(n), Some(n * 2));
            assert_eq!(t.remove(n), None);
        }
        assert!(t.bytes() < full);
        assert_eq!((t.get(1500), t.len()), (None, 1976));
        t.insert(1500, 7);
        t.insert(1500, 8);
        assert_eq!((t.get(1500), t.len()), (Some(&8), 1977));
    }

    #[test]
    fn far_apart_entries_cost_their_pages_alone() {
        let mut t = PagedTable::default();
        assert_eq!((t.get(0), t.len(), t.bytes()), (None::<&u64>, 0, 0));
        assert_eq!((t.remove(0), t.remove(u32::MAX)), (None, None));
        let (first, far) = (PAGE as u32 - 1, 500 * PAGE as u32);
        t.insert(first, 1);
        let one = t.bytes();
        t.insert(far, 2);
        assert!(t.bytes() < 2 * one + 600 * size_of::<usize>() * 2, "{} bytes", t.bytes());
        assert_eq!((t.get(first), t.get(first + 1), t.get(far), t.get(far - 1)), (Some(&1), None, Some(&2), None));
        // The last page goes, and the directory with it.
        assert_eq!((t.remove(far), t.len()), (Some(2), 1));
        assert!(t.pages.len() == 1 && t.pages.capacity() <= 64 + 2, "{}", t.pages.capacity());
        assert_eq!((t.remove(first), t.len()), (Some(1), 0));
        assert!(t.pages.is_empty() && t.live_pages == 0);
    }

    #[test]
    fn whatever_is_done_it_holds_what_a_map_would() {
        let (mut table, mut map, mut seed) = (PagedTable::default(), std::collections::BTreeMap::new(), 11u64);
        for step in 0..4000u64 {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            // Half of the numbers are few, the others lie in many pages.
            let number = if seed >> 63 == 0 { (seed >> 33) as u32 % 64 } else { (seed >> 33) as u32 % 50_000 };
            if (seed >> 20).is_multiple_of(3) {
                assert_eq!(table.remove(number), map.remove(&number), "step {step}");
            } else {
                table.insert(number, step);
                map.insert(number, step);
            }
            assert_eq!((table.get(number), table.len()), (map.get(&number), map.len()), "step {step}");
        }
        let pages: std::collections::BTreeSet<usize> = map.keys().map(|&number| number as usize / PAGE).collect();
        assert_eq!(table.live_pages, pages.len());
        assert_eq!(table.pages.len(), pages.last().map_or(0, |last| last + 1));
        assert!(map.iter().all(|(&number, value)| table.get(number) == Some(value)));
    }
}
