//! Names of result columns. PostgreSQL allows two outputs of one name (`SELECT count(*), count(id)`), a plan does
//! not: the second gets a suffix of a marker and a number, and so does an output that is named like a sort column.
//! Rows that are JSON objects need unique names, too, so such a column is called `count_2`; its field's metadata
//! holds the original name for clients that can show it twice.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use arrow::datatypes::{Field, Schema, SchemaRef};

use crate::dialect::AGAIN;

/// Metadata key of the original name of a renamed column.
const NAME: &str = "quiver.output";

/// The original name of an output, which may not be unique.
pub fn output_name(field: &Field) -> &str {
    field.metadata().get(NAME).unwrap_or_else(|| field.name())
}

/// Replaces the markers in names of columns.
pub(super) fn shown_names(schema: &SchemaRef) -> SchemaRef {
    if !schema.fields().iter().any(|field| field.name().contains(AGAIN)) {
        return Arc::clone(schema);
    }
    let plain = schema.fields().iter().filter(|field| !field.name().contains(AGAIN));
    let mut taken: HashSet<String> = plain.map(|field| field.name().clone()).collect();
    let mut next: HashMap<&str, usize> = HashMap::new();
    let mut shown = Vec::with_capacity(schema.fields().len());
    for field in schema.fields() {
        let Some((name, _)) = field.name().split_once(AGAIN) else {
            shown.push(Arc::clone(field));
            continue;
        };
        if taken.insert(name.to_owned()) {
            shown.push(Arc::new(field.as_ref().clone().with_name(name)));
            continue;
        }
        let times = next.entry(name).or_insert(1);
        let free = loop {
            *times += 1;
            let free = format!("{name}_{times}");
            if !taken.contains(&free) {
                break free;
            }
        };
        taken.insert(free.clone());
        let mut metadata = field.metadata().clone();
        metadata.insert(NAME.to_owned(), name.to_owned());
        shown.push(Arc::new(field.as_ref().clone().with_name(free).with_metadata(metadata)));
    }
    Arc::new(Schema::new_with_metadata(shown, schema.metadata().clone()))
}

#[cfg(test)]
mod tests {
    use arrow::datatypes::DataType;

    use super::*;

    #[test]
    fn names_that_come_again_are_told_apart() {
        let field = |name: &str| Field::new(name, DataType::Int64, true);
        let names = ["a", "a\u{2063}2", "a_2", "a\u{2063}3", "b"];
        let given: SchemaRef = Arc::new(Schema::new(names.map(field).to_vec()));
        let found = shown_names(&given);
        let names: Vec<&str> = found.fields().iter().map(|field| field.name().as_str()).collect();
        assert_eq!(names, ["a", "a_3", "a_2", "a_4", "b"]);
        let outputs: Vec<&str> = found.fields().iter().map(|field| output_name(field)).collect();
        assert_eq!(outputs, ["a", "a", "a_2", "a", "b"]);
        let hidden: SchemaRef = Arc::new(Schema::new(["a\u{2063}1", "b", "a\u{2063}2"].map(field).to_vec()));
        let found = shown_names(&hidden);
        assert_eq!(found, Arc::new(Schema::new(vec![field("a"), field("b"), found.field(2).clone()])));
        assert_eq!((found.field(2).name().as_str(), output_name(found.field(2))), ("a_2", "a"));
        let plain: SchemaRef = Arc::new(Schema::new(vec![field("a")]));
        assert!(Arc::ptr_eq(&plain, &shown_names(&plain)));
    }
}
