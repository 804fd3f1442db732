//! `json_array_len(f) as r`.

use super::json::array_items;

/// Gives the number of items of a JSON array; 0 for what is none.
pub fn json_array_len(value: &str) -> usize {
    if value.trim_ascii_start().starts_with('[') { array_items(value).map_or(0, |items| items.len()) } else { 0 }
}
