//! Finds the model and member that a problem in a YAML file belongs to, and suggests field names.

use std::collections::HashSet;

use quiver_types::suggestions::did_you_mean;
use quiver_yaml::problem::Place;
use quiver_yaml::{Node, NodeKind};

/// Lists in a model whose entries have names.
const LISTS: [&str; 8] =
    ["dimensions", "measures", "segments", "joins", "hierarchies", "pre_aggregations", "cubes", "folders"];

/// A hint with the field name that was probably meant.
pub(super) fn near_field(wrong: &str, known: &HashSet<&'static str>) -> String {
    did_you_mean(wrong, known.iter().copied())
}

/// The model, or `Model.member`, that contains a position in a file.
pub(super) fn owner(documents: &[Node], at: Place) -> Option<String> {
    let model = around(documents.iter().flat_map(|root| ["cubes", "views"].map(|key| entries(root, key))), at)?;
    let name = name(model)?;
    let member = around(LISTS.map(|key| entries(model, key)).into_iter(), at).and_then(self::name);
    Some(member.map_or_else(|| name.to_owned(), |member| format!("{name}.{member}")))
}

fn entries<'n>(node: &'n Node, key: &str) -> &'n [Node] {
    match node.get(key).map(|list| &list.kind) {
        Some(NodeKind::List(items)) => items,
        _ => &[],
    }
}

fn name(node: &Node) -> Option<&str> {
    node.get("name").and_then(Node::text).filter(|name| !name.is_empty())
}

/// The last entry that begins before a position and contains it: what follows an entry is indented less.
fn around<'n>(lists: impl Iterator<Item = &'n [Node]>, at: Place) -> Option<&'n Node> {
    let last = lists.flatten().filter(|node| node.place <= at).max_by_key(|node| node.place)?;
    (last.place.line == at.line || at.column >= last.place.column).then_some(last)
}

#[cfg(test)]
mod tests {
    use quiver_yaml::read;

    use super::*;

    #[test]
    fn places_lie_in_models_and_members() {
        let text = "cubes:
  - name: A
    sql_table: a
    measures:
      - name: count
        type: count
      - {name: sum, type: sum, sql: x}
    wrong: 1
views:
  - name: V
    cubes: []
other: 1
";
        let documents = read(text).unwrap();
        let of = |line, column| owner(&documents, Place { line, column });
        assert_eq!(of(3, 5).as_deref(), Some("A"));
        assert_eq!(of(6, 9).as_deref(), Some("A.count"));
        assert_eq!(of(7, 31).as_deref(), Some("A.sum"));
        assert_eq!(of(8, 5).as_deref(), Some("A"));
        assert_eq!(of(11, 5).as_deref(), Some("V"));
        assert_eq!((of(12, 1), of(1, 1)), (None, None));
    }

    #[test]
    fn fields_that_may_have_been_meant() {
        let known = HashSet::from(["sql_table", "sql", "measures"]);
        assert_eq!(near_field("sql_tabel", &known), "; did you mean `sql_table`?");
        assert_eq!(near_field("colour", &known), "");
    }
}
