//! The values of some fields of a row as one key.

use arrow::record_batch::RecordBatch;
use datafusion::error::Result;

use crate::rows::{Shape, Texts, texts_of};

/// Keys of the rows of a batch: each text after its length, in one buffer that is written anew for each row.
pub(crate) struct Keys {
    columns: Vec<Texts>,
    key: Vec<u8>,
    scratch: String,
}

impl Keys {
    /// Over these fields.
    pub(crate) fn new(rows: &RecordBatch, shape: &Shape, by: &[String]) -> Result<Self> {
        let columns = by.iter().map(|name| texts_of(rows, shape, name)).collect::<Result<_>>()?;
        Ok(Self { columns, key: Vec::new(), scratch: String::new() })
    }

    /// The key of a row.
    pub(crate) fn of(&mut self, row: usize) -> &[u8] {
        self.key.clear();
        for texts in &self.columns {
            let text = texts.get(row, &mut self.scratch);
            self.key.extend_from_slice(&(text.len() as u64).to_le_bytes());
            self.key.extend_from_slice(text.as_bytes());
        }
        &self.key
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::array::{ArrayRef, StringViewArray};

    use super::*;

    #[test]
    fn texts_do_not_run_together() {
        let shape = Shape::of_texts(["a", "b"]);
        let column = |values: [&str; 3]| Arc::new(StringViewArray::from_iter_values(values)) as ArrayRef;
        let columns = vec![column(["ab", "a", "ab"]), column(["c", "bc", "c"])];
        let rows = crate::rows::batch(&shape, columns, 3).expect("rows");
        let mut keys = Keys::new(&rows, &shape, &["a".to_owned(), "b".to_owned()]).expect("keys");
        let all: Vec<Vec<u8>> = (0..3).map(|row| keys.of(row).to_vec()).collect();
        assert_ne!(all[0], all[1]);
        assert_eq!(all[0], all[2]);
    }
}
