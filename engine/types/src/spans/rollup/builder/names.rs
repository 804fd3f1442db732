//! Interns names: each distinct text is stored once and has a number.

use std::sync::Arc;

use foldhash::fast::FixedState;
use hashbrown::HashMap;

#[derive(Debug, Default)]
pub(super) struct Names {
    list: Vec<Arc<str>>,
    pub(super) of: HashMap<Arc<str>, u32, FixedState>,
}

impl Names {
    pub(super) fn number(&mut self, name: &str) -> u32 {
        if let Some(&known) = self.of.get(name) {
            return known;
        }
        let shared: Arc<str> = name.into();
        self.list.push(Arc::clone(&shared));
        self.of.insert(shared, self.list.len() as u32 - 1);
        self.list.len() as u32 - 1
    }

    pub(super) fn get(&self, number: u32) -> &str {
        &self.list[number as usize]
    }

    /// By number the place of a name among all of them in their order.
    pub(super) fn ranks(&self) -> Vec<u32> {
        let mut order: Vec<usize> = (0..self.list.len()).collect();
        order.sort_unstable_by_key(|&number| &self.list[number]);
        let mut ranks = vec![0; order.len()];
        order.into_iter().zip(0..).for_each(|(number, rank)| ranks[number] = rank);
        ranks
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_have_numbers_as_they_come_and_ranks_by_their_texts() {
        let mut names = Names::default();
        let numbers = ["pay", "", "cart", "pay", "Cart"].map(|name| names.number(name));
        assert_eq!(numbers, [0, 1, 2, 0, 3]);
        assert_eq!([0, 1, 2, 3].map(|number| names.get(number)), ["pay", "", "cart", "Cart"]);
        assert_eq!(names.ranks(), [3, 0, 2, 1]);
    }
}
