//! Pipes that make some fields of each row from some others: the frame around the functions of `row_functions`.

use std::sync::Arc;

use arrow::array::{ArrayRef, StringViewBuilder};
use arrow::buffer::BooleanBuffer;
use arrow::record_batch::RecordBatch;
use datafusion::error::{DataFusionError, Result};
use quiver_query::to_datafusion;
use quiver_types::logs::LogFilter;
use quiver_types::{Error, ErrorKind};
use serde::{Deserialize, Serialize};

use super::filter::evaluate;
use crate::ast::field::FieldPattern;
use crate::ast::literal::Overwrite;
use crate::chunked_stream::OutputChunk;
use crate::row_functions::VALUE_LEN_MAX;
use crate::rows::{Rest, RestBuilder, Shape, Texts, as_view, batch, empty_rest, missing, push_text, texts_of};

/// Writes the targets of a row from its sources.
pub(crate) type Compute = Box<dyn FnMut(&[&str], &mut [String]) + Send>;

/// Which fields are made of which.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) struct Cells {
    /// Fields that are read.
    pub(crate) sources: Vec<String>,
    /// Fields that are made.
    pub(crate) targets: Vec<String>,
    /// Whether a result takes the place of a value that the row has already.
    pub(crate) overwrite: Overwrite,
    /// Rows that do not match stay as they are; `None`: all are changed.
    pub(crate) condition: Option<LogFilter>,
}

impl Cells {
    /// Makes the fields of the first rows of a batch.
    pub(crate) fn apply(
        &self,
        compute: &mut Compute,
        rows: &RecordBatch,
        room: usize,
        input: &Shape,
        output: &Shape,
    ) -> Result<OutputChunk> {
        let count = rows.num_rows();
        let mask = mask(self.condition.as_ref(), rows, input)?;
        let sources = self.sources.iter().map(|name| texts_of(rows, input, name)).collect::<Result<Vec<_>>>()?;
        let olds = self.targets.iter().map(|name| texts_of(rows, input, name)).collect::<Result<Vec<_>>>()?;
        let mut builders: Vec<_> = self.targets.iter().map(|_| StringViewBuilder::with_capacity(count)).collect();
        let mut scratch = vec![String::new(); sources.len()];
        let mut made = vec![String::new(); self.targets.len()];
        let mut old_scratch = String::new();
        let (mut taken, mut bytes) = (0, 0);
        for row in 0..count {
            let chosen = mask.as_ref().is_none_or(|mask| mask.value(row));
            if chosen {
                made.iter_mut().for_each(String::clear);
                let values: Vec<&str> =
                    sources.iter().zip(&mut scratch).map(|(s, buffer)| s.get(row, buffer)).collect();
                compute(&values, &mut made);
                bytes += bounded(made.iter().map(String::len))?;
            }
            for ((builder, new), old) in builders.iter_mut().zip(&made).zip(&olds) {
                let keep = !chosen
                    || match self.overwrite {
                        Overwrite::Always => false,
                        Overwrite::SkipEmpty => new.is_empty(),
                        Overwrite::KeepOriginal => !old.is_empty(row),
                    };
                push_text(builder, if keep { old.get(row, &mut old_scratch) } else { new });
            }
            taken += 1;
            if bytes >= room {
                break;
            }
        }
        let arrays = builders.iter_mut().map(|b| Arc::new(b.finish()) as ArrayRef);
        let made: Vec<(&str, ArrayRef)> = self.targets.iter().map(String::as_str).zip(arrays).collect();
        let batch = assemble(&rows.slice(0, taken), input, output, &made)?;
        Ok(OutputChunk { batch, taken, bytes })
    }
}

/// Fields of rows that patterns mean, in the order of the patterns.
pub(crate) struct SelectedFields<'a> {
    columns: Vec<(&'a str, Texts)>,
    rest: Option<Rest>,
    patterns: &'a [FieldPattern],
}

impl<'a> SelectedFields<'a> {
    /// Over the rows of a batch.
    pub(crate) fn new(rows: &RecordBatch, shape: &'a Shape, patterns: &'a [FieldPattern]) -> Result<Self> {
        let columns = shape.names().map(|name| Ok((name, texts_of(rows, shape, name)?))).collect::<Result<Vec<_>>>()?;
        Ok(Self { columns, rest: Rest::of(rows, shape), patterns })
    }

    /// Names and values of a row that are not empty.
    pub(crate) fn row(&self, row: usize) -> Vec<(String, String)> {
        let mut scratch = String::new();
        let mut found = Vec::new();
        for pattern in self.patterns {
            for (name, texts) in self.columns.iter().filter(|(name, _)| pattern.matches(name)) {
                found.push(((*name).to_owned(), texts.get(row, &mut scratch).to_owned()));
            }
            let more = self.rest.iter().flat_map(|rest| rest.row(row)).filter(|(name, _)| pattern.matches(name));
            found.extend(more.map(|(name, value)| (name.to_owned(), value.to_owned())));
        }
        found.retain(|(_, value)| !value.is_empty());
        found
    }

    /// Writes the first value of a row that is not empty, and says whether there is one.
    pub(crate) fn first(&self, row: usize, out: &mut String) -> bool {
        let mut scratch = String::new();
        out.clear();
        for pattern in self.patterns {
            for (_, texts) in self.columns.iter().filter(|(name, _)| pattern.matches(name)) {
                out.push_str(texts.get(row, &mut scratch));
                if !out.is_empty() {
                    return true;
                }
            }
            let mut more = self.rest.iter().flat_map(|rest| rest.row(row));
            if let Some((_, value)) = more.find(|(name, _)| pattern.matches(name)) {
                out.push_str(value);
                return true;
            }
        }
        false
    }
}

/// Says that values grew beyond all bounds.
fn too_large(what: &str, max: usize) -> DataFusionError {
    let text = format!("{what} come to more than {} MiB", max >> 20);
    to_datafusion(Error::new(ErrorKind::LimitExceeded, text))
}

/// The length of some values together; an error when one is too long.
pub(crate) fn bounded(lengths: impl Iterator<Item = usize>) -> Result<usize> {
    let mut sum = 0;
    for length in lengths {
        if length > VALUE_LEN_MAX {
            return Err(too_large("the bytes of a value that a pipe makes", VALUE_LEN_MAX));
        }
        sum += length;
    }
    Ok(sum)
}

/// Which rows a condition chooses; all without one.
pub(crate) fn mask(condition: Option<&LogFilter>, rows: &RecordBatch, shape: &Shape) -> Result<Option<BooleanBuffer>> {
    condition.map(|filter| evaluate(filter, rows, shape)).transpose()
}

/// Puts a batch together: columns that were made, those of the input under the same names, else nothing. What the input
/// has in its map and the output as a column moves over, and the other way round.
pub(crate) fn assemble(
    rows: &RecordBatch,
    input: &Shape,
    output: &Shape,
    made: &[(&str, ArrayRef)],
) -> Result<RecordBatch> {
    let count = rows.num_rows();
    let rest = Rest::of(rows, input);
    let mut columns = Vec::with_capacity(output.columns.len() + 1);
    for column in &output.columns {
        let new = made.iter().rev().find(|(name, _)| *name == column.name).map(|(_, array)| Arc::clone(array));
        let array = match (new, input.index(&column.name), &rest) {
            (Some(array), ..) => array,
            (None, Some(i), _) if input.columns[i].kind == column.kind => Arc::clone(rows.column(i)),
            (None, Some(i), _) => as_view(rows.column(i))?,
            (None, None, Some(rest)) => from_rest(rest, &column.name, count),
            (None, None, None) => missing(count),
        };
        columns.push(array);
    }
    if output.rest {
        columns.push(rest_of(rows, input, output, rest.as_ref())?);
    }
    batch(output, columns, count)
}

fn from_rest(rest: &Rest, name: &str, rows: usize) -> ArrayRef {
    let mut builder = StringViewBuilder::with_capacity(rows);
    for row in 0..rows {
        push_text(&mut builder, rest.row(row).find(|(own, _)| *own == name).map_or("", |(_, value)| value));
    }
    Arc::new(builder.finish())
}

/// The map of what has no column in the output.
fn rest_of(rows: &RecordBatch, input: &Shape, output: &Shape, rest: Option<&Rest>) -> Result<ArrayRef> {
    let lost: Vec<&str> = input.names().filter(|name| output.index(name).is_none()).collect();
    let gained = output.names().any(|name| input.index(name).is_none());
    if lost.is_empty() && !gained && input.rest {
        return Ok(Arc::clone(rows.column(rows.num_columns() - 1)));
    }
    if lost.is_empty() && rest.is_none() {
        return empty_rest(rows.num_rows());
    }
    let columns = lost.iter().map(|name| texts_of(rows, input, name)).collect::<Result<Vec<_>>>()?;
    let mut builder = RestBuilder::new(rows.num_rows());
    let mut scratch = String::new();
    for row in 0..rows.num_rows() {
        for (name, column) in lost.iter().zip(&columns) {
            builder.push(name, column.get(row, &mut scratch));
        }
        for (name, value) in rest.iter().flat_map(|rest| rest.row(row)) {
            if output.index(name).is_none() {
                builder.push(name, value);
            }
        }
        builder.end_row();
    }
    builder.finish()
}

#[cfg(test)]
mod tests {
    use arrow::array::{AsArray, StringViewArray};
    use quiver_query::from_datafusion;

    use super::*;

    fn column(values: &[&str]) -> ArrayRef {
        Arc::new(values.iter().map(|value| Some(*value).filter(|v| !v.is_empty())).collect::<StringViewArray>())
    }

    fn shown(rows: &RecordBatch, place: usize) -> Vec<String> {
        rows.column(place).as_string_view().iter().map(|value| value.unwrap_or("").to_owned()).collect()
    }

    fn rest(rows: &[&[(&str, &str)]]) -> ArrayRef {
        let mut builder = RestBuilder::new(rows.len());
        for row in rows {
            for (name, value) in *row {
                builder.push(name, value);
            }
            builder.end_row();
        }
        builder.finish().expect("a map")
    }

    /// Copies `a` into `b`.
    fn copied(a: &[&str], b: &[&str], overwrite: Overwrite, room: usize) -> Result<OutputChunk> {
        let shape = Shape::of_texts(["a", "b"]);
        let rows = batch(&shape, vec![column(a), column(b)], a.len())?;
        let cells = Cells { sources: vec!["a".to_owned()], targets: vec!["b".to_owned()], overwrite, condition: None };
        let mut compute: Compute = Box::new(|values, made| made[0].push_str(values[0]));
        cells.apply(&mut compute, &rows, room, &shape, &shape)
    }

    #[test]
    fn old_values_stay_or_go() {
        for (overwrite, want) in [
            (Overwrite::Always, ["x", "", "y"]),
            (Overwrite::SkipEmpty, ["x", "old", "y"]),
            (Overwrite::KeepOriginal, ["old", "old", "y"]),
        ] {
            let made = copied(&["x", "", "y"], &["old", "old", ""], overwrite, usize::MAX).expect("made");
            assert_eq!(shown(&made.batch, 1), want, "{overwrite:?}");
            assert_eq!((made.taken, made.bytes), (3, 2));
        }
    }

    #[test]
    fn no_more_is_made_than_there_is_room_for() {
        for (room, taken) in [(0, 1), (2, 1), (3, 2), (4, 2), (5, 3), (usize::MAX, 4)] {
            let made = copied(&["xx", "yy", "zz", "w"], &["", "", "", ""], Overwrite::Always, room).expect("made");
            assert_eq!((made.taken, made.batch.num_rows()), (taken, taken), "{room}");
        }
        let longest = "x".repeat(VALUE_LEN_MAX);
        assert!(copied(&[&longest], &[""], Overwrite::Always, usize::MAX).is_ok());
        let error = copied(&[&format!("{longest}x")], &[""], Overwrite::Always, usize::MAX).err().expect("too long");
        let error = from_datafusion(error);
        assert_eq!(error.kind, ErrorKind::LimitExceeded);
        assert_eq!(error.message, "the bytes of a value that a pipe makes come to more than 8 MiB");
        assert_eq!(bounded([1, 2, VALUE_LEN_MAX].into_iter()).expect("a sum"), VALUE_LEN_MAX + 3);
    }

    #[test]
    fn fields_move_between_columns_and_the_map() {
        let input = Shape::of_texts(["a"]).with_rest();
        let maps = rest(&[&[("b", "2"), ("c", "3")], &[("b", "4")]]);
        let rows = batch(&input, vec![column(&["1", ""]), maps], 2).expect("rows");
        let output = Shape::of_texts(["b"]).with_rest();
        let made = assemble(&rows, &input, &output, &[]).expect("rows");
        assert_eq!(shown(&made, 0), ["2", "4"]);
        let map = Rest::of(&made, &output).expect("a map");
        assert_eq!(map.row(0).collect::<Vec<_>>(), [("a", "1"), ("c", "3")]);
        assert_eq!(map.row(1).count(), 0);
        let narrow = assemble(&rows, &input, &Shape::of_texts(["c", "none", "a"]), &[]).expect("rows");
        assert_eq!([0, 1, 2].map(|i| shown(&narrow, i)), [["3", ""], ["", ""], ["1", ""]]);
        // What was made comes first; of two under a name the last.
        let new = [("a", column(&["x", "y"])), ("a", column(&["z", ""]))];
        let made = assemble(&rows, &input, &input, &new).expect("rows");
        assert_eq!(shown(&made, 0), ["z", ""]);
    }

    #[test]
    fn fields_that_patterns_mean() {
        let shape = Shape::of_texts(["b", "a1", "a2"]).with_rest();
        let maps = rest(&[&[("a0", "r"), ("c", "s")], &[("a0", "t")]]);
        let rows =
            batch(&shape, vec![column(&["1", ""]), column(&["", ""]), column(&["3", ""]), maps], 2).expect("rows");
        let of = |patterns: &[FieldPattern], row: usize| {
            let chosen = SelectedFields::new(&rows, &shape, patterns).expect("texts");
            let mut first = "old".to_owned();
            let found = chosen.first(row, &mut first);
            let all =
                chosen.row(row).iter().map(|(name, value)| format!("{name}={value}")).collect::<Vec<_>>().join(" ");
            assert_eq!(found, !all.is_empty());
            (all, first)
        };
        let name = |name: &str| FieldPattern::Name(name.to_owned());
        let prefix = |name: &str| FieldPattern::Prefix(name.to_owned());
        assert_eq!(of(&[name("c"), prefix("a")], 0), ("c=s a2=3 a0=r".to_owned(), "s".to_owned()));
        assert_eq!(of(&[name("a1"), name("b")], 0), ("b=1".to_owned(), "1".to_owned()));
        assert_eq!(of(&[name("b"), prefix("a")], 1), ("a0=t".to_owned(), "t".to_owned()));
        assert_eq!(of(&[name("none")], 0), (String::new(), String::new()));
    }
}
