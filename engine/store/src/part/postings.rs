//! Postings of one label: for each value the series that have it, as one list cut by value.

/// Rows by code, each list ascending.
#[derive(Debug)]
pub(super) struct Postings {
    ends: Vec<u32>,
    rows: Vec<u32>,
}

impl Postings {
    /// Sorts rows by their code (a counting sort); `values` is the number of codes. Rows with code 0 (label absent)
    /// are left out.
    pub(super) fn of(codes: impl Iterator<Item = u32> + Clone, values: usize) -> Self {
        let mut ends = vec![0u32; values];
        for code in codes.clone() {
            ends[code as usize] += 1;
        }
        ends[0] = 0;
        let mut sum = 0;
        for end in &mut ends {
            let count = *end;
            *end = sum;
            sum += count;
        }
        let mut rows = vec![0u32; sum as usize];
        for (row, code) in codes.enumerate().filter(|(_, code)| *code != 0) {
            let at = &mut ends[code as usize];
            rows[*at as usize] = row as u32;
            *at += 1;
        }
        Self { ends, rows }
    }

    /// Gives the rows of a code.
    pub(super) fn rows(&self, code: usize) -> &[u32] {
        let start = if code == 0 { 0 } else { self.ends[code - 1] };
        &self.rows[start as usize..self.ends[code] as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_by_code() {
        let p = Postings::of([2u32, 0, 1, 2, 0, 2].into_iter(), 4);
        let check = |code, rows: &[u32]| assert_eq!(p.rows(code), rows);
        check(0, &[]);
        check(1, &[2]);
        check(2, &[0, 3, 5]);
        check(3, &[]);
    }
}
