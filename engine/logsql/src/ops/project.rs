//! `fields`, `delete`, `copy`, `rename`: which columns go on, under which names.

use datafusion::error::Result;

use super::cells::assemble;
use super::unpack::Writer;
use crate::ast::{FieldPattern, Overwrite, PatternPair};
use crate::pieces::{BatchMap, Made, ValueMap};
use crate::rows::{Column, Kind, Rest, Shape, Texts, batch, rest_without, texts_of, unique};

/// The columns after `fields`.
pub(crate) fn fields_shape(input: &Shape, patterns: &[FieldPattern]) -> Shape {
    let mut names = Vec::new();
    for pattern in patterns {
        match pattern {
            FieldPattern::Name(name) => names.push(name.clone()),
            FieldPattern::Prefix(prefix) => {
                names.extend(input.names().filter(|name| name.starts_with(prefix.as_str())).map(str::to_owned));
            }
        }
    }
    let rest = input.rest && patterns.iter().any(|pattern| pattern.name().is_none());
    let columns = unique(names).into_iter().map(|name| column(input, &name)).collect();
    Shape { columns, rest }
}

fn column(input: &Shape, name: &str) -> Column {
    let kind = input.index(name).map_or(Kind::Text, |i| input.columns[i].kind);
    Column { name: name.to_owned(), kind }
}

/// The columns after `delete`.
pub(crate) fn delete_shape(input: &Shape, patterns: &[FieldPattern]) -> Shape {
    let kept = |c: &&Column| !patterns.iter().any(|pattern| pattern.matches(&c.name));
    Shape { columns: input.columns.iter().filter(kept).cloned().collect(), rest: input.rest }
}

/// Keeps what the output names, and of the map what a condition keeps.
pub(crate) fn keep(input: Shape, output: Shape, kept: impl Fn(&str) -> bool + Send + 'static) -> BatchMap {
    Box::new(move |rows| {
        let count = rows.num_rows();
        let mut columns = Vec::with_capacity(output.columns.len() + 1);
        for column in &output.columns {
            match input.index(&column.name) {
                Some(i) => columns.push(std::sync::Arc::clone(rows.column(i))),
                None => {
                    let narrow = Shape { columns: vec![column.clone()], rest: false };
                    columns.push(std::sync::Arc::clone(assemble(&rows, &input, &narrow, &[])?.column(0)));
                }
            }
        }
        if output.rest
            && let Some(rest) = Rest::of(&rows, &input)
        {
            columns.push(rest_without(&rest, count, |name| !kept(name) || output.index(name).is_some())?);
        }
        batch(&output, columns, count)
    })
}

/// The columns after `copy` or `rename`.
pub(crate) fn pairs_shape(input: &Shape, pairs: &[PatternPair], rename: bool) -> Shape {
    let mut shape = input.clone();
    for pair in pairs {
        match (&pair.source, &pair.target) {
            (FieldPattern::Name(source), FieldPattern::Name(target)) => {
                if source == target {
                    continue;
                }
                let kind = column(&shape, source).kind;
                if rename {
                    shape.columns.retain(|c| c.name != *source);
                }
                shape.columns.retain(|c| c.name != *target);
                shape.columns.push(Column { name: target.clone(), kind });
            }
            (FieldPattern::Name(_), FieldPattern::Prefix(_)) => {}
            (FieldPattern::Prefix(_), _) => {
                let moved: Vec<(String, String)> =
                    shape.names().filter_map(|name| Some((name.to_owned(), renamed(pair, name)?))).collect();
                if rename {
                    shape.columns.retain(|c| !moved.iter().any(|(old, _)| *old == c.name));
                }
                shape = shape.with_texts(moved.iter().map(|(_, new)| new.as_str()));
                if let Some(name) = pair.target.name() {
                    shape = shape.with_texts([name]);
                }
                // Rows are written anew, as text.
                shape.columns.iter_mut().for_each(|c| c.kind = Kind::Text);
            }
        }
    }
    shape
}

/// The name that a pair gives to a field, if it means the field.
fn renamed(pair: &PatternPair, name: &str) -> Option<String> {
    if !pair.source.matches(name) {
        return None;
    }
    Some(match (&pair.source, &pair.target) {
        (_, FieldPattern::Name(target)) => target.clone(),
        (FieldPattern::Name(_), FieldPattern::Prefix(new)) => new.clone(),
        (FieldPattern::Prefix(old), FieldPattern::Prefix(new)) => format!("{new}{}", &name[old.len()..]),
    })
}

/// Copies or renames fields, pair after pair.
pub(crate) fn copy(pairs: Vec<PatternPair>, rename: bool, input: Shape, output: Shape) -> ValueMap {
    if pairs.iter().all(|pair| pair.source.name().is_some()) {
        return Box::new(move |rows, _| {
            let batch = copy_columns(&pairs, rename, rows, &input, &output)?;
            Ok(Made { batch, taken: rows.num_rows(), bytes: 0 })
        });
    }
    Box::new(move |rows, room| {
        let mut writer = Writer::new(rows, &input, &output)?;
        let columns: Vec<(String, Texts)> =
            input.names().map(|name| Ok((name.to_owned(), texts_of(rows, &input, name)?))).collect::<Result<_>>()?;
        let rest = Rest::of(rows, &input);
        let mut scratch = String::new();
        for row in 0..rows.num_rows() {
            let mut fields: Vec<(String, String)> = columns
                .iter()
                .map(|(name, texts)| (name.clone(), texts.get(row, &mut scratch).to_owned()))
                .chain(rest.iter().flat_map(|r| r.row(row)).map(|(name, value)| (name.to_owned(), value.to_owned())))
                .collect();
            pairs.iter().for_each(|pair| copy_pair(pair, rename, &mut fields));
            writer.begin_empty();
            for (name, value) in &fields {
                writer.put(name, value, Overwrite::Always);
            }
            writer.end();
            if writer.bytes >= room {
                break;
            }
        }
        writer.finish(&output)
    })
}

fn copy_pair(pair: &PatternPair, rename: bool, fields: &mut Vec<(String, String)>) {
    let made: Vec<(String, String)> = fields
        .iter()
        .filter(|(_, value)| pair.target.name().is_none() || !value.is_empty())
        .filter_map(|(name, value)| Some((renamed(pair, name)?, value.clone())))
        .collect();
    if rename {
        fields.retain(|(name, _)| !pair.source.matches(name));
    }
    fields.retain(|(name, _)| !made.iter().any(|(new, _)| new == name));
    fields.extend(made);
}

fn copy_columns(
    pairs: &[PatternPair],
    rename: bool,
    rows: &arrow::record_batch::RecordBatch,
    input: &Shape,
    output: &Shape,
) -> Result<arrow::record_batch::RecordBatch> {
    let mut shape = input.clone();
    let mut rows = rows.clone();
    for pair in pairs {
        let (Some(source), Some(target)) = (pair.source.name(), pair.target.name()) else { continue };
        if source == target {
            continue;
        }
        let next = pairs_shape(&shape, std::slice::from_ref(pair), rename);
        let narrow = Shape { columns: vec![column(&shape, source)], rest: false };
        let array = std::sync::Arc::clone(assemble(&rows, &shape, &narrow, &[])?.column(0));
        // What was renamed is gone: it must not reappear in the map.
        let dropped = Shape { columns: shape.columns.clone(), rest: false };
        let kept = if shape.rest { &shape } else { &dropped };
        rows = move_column(&rows, kept, &next, target, array)?;
        shape = next;
    }
    if shape == *output { Ok(rows) } else { assemble(&rows, &shape, output, &[]) }
}

fn move_column(
    rows: &arrow::record_batch::RecordBatch,
    input: &Shape,
    output: &Shape,
    target: &str,
    array: arrow::array::ArrayRef,
) -> Result<arrow::record_batch::RecordBatch> {
    let mut columns = Vec::with_capacity(output.columns.len() + 1);
    for column in &output.columns {
        columns.push(match input.index(&column.name) {
            _ if column.name == target => std::sync::Arc::clone(&array),
            Some(i) => std::sync::Arc::clone(rows.column(i)),
            None => crate::rows::missing(rows.num_rows()),
        });
    }
    if output.rest
        && let Some(rest) = Rest::of(rows, input)
    {
        columns.push(rest_without(&rest, rows.num_rows(), |name| output.index(name).is_some())?);
    }
    batch(output, columns, rows.num_rows())
}
