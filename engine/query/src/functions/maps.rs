//! What maps of texts hold.

use std::sync::Arc;

use arrow::array::{Array as _, ArrayRef, AsArray as _, MapArray, StringArray, StringViewBuilder};
use datafusion::common::exec_err;
use datafusion::error::Result;

/// Looks each row's key up in its map.
pub(super) fn found(maps: &MapArray, wanted: &StringArray) -> Result<ArrayRef> {
    let (Some(keys), Some(values)) = (maps.keys().as_string_opt::<i32>(), maps.values().as_string_opt::<i32>()) else {
        return exec_err!("`attr` reads maps of texts");
    };
    let ends = maps.value_offsets();
    let mut out = StringViewBuilder::with_capacity(maps.len());
    for row in 0..maps.len() {
        let entries =
            if maps.is_valid(row) && wanted.is_valid(row) { ends[row] as usize..ends[row + 1] as usize } else { 0..0 };
        let value = entries.into_iter().find(|&at| keys.value(at) == wanted.value(row)).map(|at| values.value(at));
        // An empty text is NULL, as in all tables.
        out.append_option(value.filter(|text| !text.is_empty()));
    }
    Ok(Arc::new(out.finish()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tables::TextMaps;

    #[test]
    fn keys_are_looked_up() {
        let mut maps = TextMaps::default();
        maps.push("a", "1");
        maps.push("b", "");
        maps.end();
        maps.end();
        maps.push("b", "2");
        maps.end();
        let maps = maps.finish().unwrap();
        let check = |keys: [Option<&str>; 3], expected: [Option<&str>; 3]| {
            let values = found(&maps, &StringArray::from(keys.to_vec())).unwrap();
            assert_eq!(values.as_string_view().iter().collect::<Vec<_>>(), expected);
        };
        check([Some("a"); 3], [Some("1"), None, None]);
        check([Some("b"); 3], [None, None, Some("2")]);
        check([None, Some("a"), Some("b")], [None, None, Some("2")]);
    }
}
