//! A table from series numbers to values, in pages of 1024.
//!
//! The least number that is free is handed out, so live ones lie close together; a page goes when its last entry goes,
//! and the directory ends with the last page, which keeps churn from growing the table.

const PAGE: usize = 1024;

/// A sparse array.
#[derive(Debug)]
pub(crate) struct Paged<T> {
    pages: Vec<Option<Box<Page<T>>>>,
    len: usize,
    live_pages: usize,
}

#[derive(Debug)]
struct Page<T> {
    live: usize,
    items: Vec<Option<T>>,
}

impl<T> Default for Paged<T> {
    fn default() -> Self {
        Self { pages: Vec::new(), len: 0, live_pages: 0 }
    }
}

impl<T> Paged<T> {
    /// Finds an entry.
    pub(crate) fn get(&self, number: u32) -> Option<&T> {
        let page = self.pages.get(number as usize / PAGE)?.as_ref()?;
        page.items[number as usize % PAGE].as_ref()
    }

    /// Puts an entry, replacing what was there.
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

    /// Takes an entry out.
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

    /// Bytes of the table itself, without what entries hold on the heap.
    pub(crate) fn bytes(&self) -> usize {
        self.live_pages * PAGE * size_of::<Option<T>>() + self.pages.capacity() * size_of::<usize>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_come_and_go() {
        let mut t = Paged::default();
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
}
