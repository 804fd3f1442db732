//! Lists of lists that are written out: `'{{1,2},{3,4}}'`, `ARRAY[[1, 2], [3, 4]]`. PostgreSQL has one type for lists of all
//! depths, whatever a cast says, and `unnest` gives their values, not the lists within.

use datafusion::sql::sqlparser::ast::{Array, ArrayElemTypeDef, DataType, Expr};
use quiver_types::{Error, Result};

use super::expressions::{arguments, bare, call, items_of_text};

/// Most levels that lists have, as in PostgreSQL.
const LEVELS_MAX: usize = 6;

/// The lists of a text; `None`: it is a list of values, or none.
///
/// # Errors
/// Invalid: lists within are not alike.
pub(super) fn of_text(written: &str) -> Result<Option<Expr>> {
    let is_nested = written.trim().strip_prefix('{').is_some_and(|inner| inner.trim_start().starts_with('{'));
    if !is_nested {
        return Ok(None);
    }
    match lists(written, 1) {
        Some((list, _)) => Ok(Some(list)),
        None => Err(Error::invalid(format!("malformed array literal: \"{}\"", written.escape_debug()))),
    }
}

/// A list, and how many items the lists of each level have.
fn lists(written: &str, level: usize) -> Option<(Expr, Vec<usize>)> {
    let inner = written.trim().strip_prefix('{')?.strip_suffix('}')?;
    if !inner.trim_start().starts_with('{') {
        let items = items_of_text(written)?;
        let lengths = vec![items.len()];
        return Some((call("make_array", items), lengths));
    }
    if level >= LEVELS_MAX {
        return None;
    }
    let (mut found, mut lengths) = (Vec::new(), None);
    for piece in pieces(inner) {
        let (list, own) = lists(piece, level + 1)?;
        if *lengths.get_or_insert_with(|| own.clone()) != own {
            return None;
        }
        found.push(list);
    }
    let mut all = vec![found.len()];
    all.extend(lengths?);
    Some((call("make_array", found), all))
}

/// What commas outside of quotes and brackets divide.
fn pieces(inner: &str) -> Vec<&str> {
    let (mut pieces, mut begin, mut open) = (Vec::new(), 0, 0_usize);
    let (mut is_quoted, mut is_escaped) = (false, false);
    for (at, letter) in inner.char_indices() {
        match letter {
            _ if is_escaped => is_escaped = false,
            '\\' => is_escaped = true,
            '"' => is_quoted = !is_quoted,
            '{' if !is_quoted => open += 1,
            '}' if !is_quoted => open = open.saturating_sub(1),
            ',' if !is_quoted && open == 0 => {
                pieces.push(&inner[begin..at]);
                begin = at + 1;
            }
            _ => {}
        }
    }
    pieces.push(&inner[begin..]);
    pieces
}

/// How many levels of lists an expression has, as far as they are written out.
pub(super) fn depth(list: &Expr) -> usize {
    match list {
        Expr::Nested(inner) | Expr::Cast { expr: inner, .. } => depth(inner),
        Expr::Array(list) => 1 + list.elem.first().map_or(0, depth),
        Expr::Function(function) if bare(&function.name).as_deref() == Some("make_array") => {
            1 + arguments(&function.args).and_then(|items| items.first().map(depth)).unwrap_or(0)
        }
        _ => 0,
    }
}

/// The type of the values in lists of a type, whatever their depth.
pub(super) fn of_values(data_type: &DataType) -> &DataType {
    match data_type {
        DataType::Array(ArrayElemTypeDef::SquareBracket(item, _)) => of_values(item),
        other => other,
    }
}

/// Makes a type of lists one of as many levels as what is cast to it has.
pub(super) fn deepen(data_type: &mut DataType, depth: usize) {
    let (mut known, mut kind) = (0, &*data_type);
    while let DataType::Array(ArrayElemTypeDef::SquareBracket(item, _)) = kind {
        (known, kind) = (known + 1, &**item);
    }
    for _ in known..depth {
        *data_type = DataType::Array(ArrayElemTypeDef::SquareBracket(Box::new(data_type.clone()), None));
    }
}

/// The values of lists of lists side by side; `None` if there are no lists within, or it is written as other databases have
/// it (`[[1], [2]]`), which give the lists within.
pub(super) fn flattened(list: &Expr) -> Option<Expr> {
    let levels = match list {
        Expr::Array(Array { named: false, .. }) => 1,
        other => depth(other),
    };
    (levels > 1).then(|| (1..levels).fold(list.clone(), |list, _| call("flatten", vec![list])))
}

/// The values of lists of lists that are written out, side by side; `None` if there are no lists within, or not only lists.
pub(super) fn values(list: &Expr) -> Option<Vec<Expr>> {
    let mut found = Vec::new();
    (depth(list) > 1 && gather(list, &mut found)).then_some(found)
}

fn gather(list: &Expr, found: &mut Vec<Expr>) -> bool {
    let items = match list {
        Expr::Nested(inner) => return gather(inner, found),
        Expr::Array(list) => list.elem.clone(),
        Expr::Function(function) => arguments(&function.args).unwrap_or_default(),
        _ => return false,
    };
    if items.iter().all(|item| depth(item) == 0) {
        found.extend(items);
        return true;
    }
    items.iter().all(|item| depth(item) > 0 && gather(item, found))
}

#[cfg(test)]
mod tests {
    use super::super::expressions::expr;
    use super::*;

    #[test]
    fn texts_hold_lists_of_lists() {
        let of = |written: &str| of_text(written).map(|list| list.map(|list| list.to_string()));
        for (written, expected) in [
            ("{{1,2},{3,4}}", Some("make_array(make_array('1', '2'), make_array('3', '4'))")),
            (" { {a} , {NULL} } ", Some("make_array(make_array('a'), make_array(NULL))")),
            ("{{{x}}}", Some("make_array(make_array(make_array('x')))")),
            (r#"{{"a,}",b}}"#, Some("make_array(make_array('a,}', 'b'))")),
            ("{1,2}", None),
            (r#"{"{1}"}"#, None),
            ("x", None),
        ] {
            assert_eq!(of(written).unwrap().as_deref(), expected, "{written}");
        }
        for written in ["{{1,2},{3}}", "{{1},2}", "{{1},{2}", "{{1},{2}}}", "{{{{{{{1}}}}}}}", "{{1},}", "{{1},{{2}}}"]
        {
            let error = of(written).unwrap_err();
            assert!(error.message.contains("malformed array literal"), "{written}: {error}");
        }
    }

    #[test]
    fn types_are_as_deep_as_what_is_cast() {
        let of = |cast: &str| {
            let Expr::Cast { expr: inner, mut data_type, .. } = expr(cast).unwrap() else { panic!("{cast}") };
            deepen(&mut data_type, depth(&inner));
            (data_type.to_string(), of_values(&data_type).to_string())
        };
        let pair = |list: &str| (list.to_owned(), "INT".to_owned());
        assert_eq!(of("ARRAY[[1, 2]]::int[]"), pair("INT[][]"));
        assert_eq!(of("ARRAY[1, 2]::int[]"), pair("INT[]"));
        assert_eq!(of("tags::int[][]"), pair("INT[][]"));
    }

    #[test]
    fn values_of_lists_within_stand_side_by_side() {
        let of = |list: &str| flattened(&expr(list).unwrap()).map(|list| list.to_string());
        assert_eq!(of("ARRAY[[1, 2], [3, 4]]").as_deref(), Some("flatten(ARRAY[[1, 2], [3, 4]])"));
        assert_eq!(of("make_array(make_array(make_array(1)))").map(|list| list.matches("flatten").count()), Some(2));
        for other in ["ARRAY[1, 2]", "[[1], [2]]", "tags", "make_array()"] {
            assert_eq!(of(other), None, "{other}");
        }
    }

    #[test]
    fn all_values_are_found() {
        let of = |list: &str| {
            let found = values(&expr(list).unwrap())?;
            Some(found.iter().map(ToString::to_string).collect::<Vec<_>>().join(" "))
        };
        assert_eq!(of("ARRAY[[1, 2], [x, NULL]]").as_deref(), Some("1 2 x NULL"));
        assert_eq!(of("ARRAY[ARRAY[[1], [2]], (ARRAY[[3], [4]])]").as_deref(), Some("1 2 3 4"));
        assert_eq!(of("make_array(make_array('a'), make_array('b'))").as_deref(), Some("'a' 'b'"));
        for other in ["ARRAY[1, 2]", "ARRAY[[1], tags]", "tags", "ARRAY[]"] {
            assert_eq!(of(other), None, "{other}");
        }
    }
}
