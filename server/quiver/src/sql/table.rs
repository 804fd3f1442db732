//! Rows as a table on a terminal: the first rows determine the widths of the columns, then rows are written one by
//! one.

use std::io::Write;

use arrow::array::RecordBatch;
use arrow::datatypes::{DataType, SchemaRef};
use arrow::error::ArrowError;
use arrow::util::display::{ArrayFormatter, FormatOptions};
use quiver_query::functions::{is_open_numeric, needed_digits};
use quiver_types::{Error, Result};

use super::unwritten;

/// How many rows determine the widths.
const ROWS_FIRST: usize = 1_000;
/// Largest width of a column; longer values stick out.
const WIDTH_MAX: usize = 80;

/// Writes rows as a table.
pub(super) struct Table<'w> {
    schema: SchemaRef,
    to: &'w mut dyn Write,
    /// Rows that are held until the widths are known.
    first: Vec<Vec<String>>,
    widths: Option<Vec<usize>>,
    rows: usize,
}

fn width(text: &str) -> usize {
    text.chars().count()
}

fn is_number(data_type: &DataType) -> bool {
    data_type.is_numeric()
}

impl<'w> Table<'w> {
    pub(super) fn new(schema: SchemaRef, to: &'w mut dyn Write) -> Self {
        Self { schema, to, first: Vec::new(), widths: None, rows: 0 }
    }

    pub(super) fn rows(&mut self, batch: &RecordBatch) -> Result<()> {
        let options = FormatOptions::default().with_null("");
        let failed = |e| Error::internal("cannot show a column").with_source(e);
        let columns = batch.columns().iter().map(|column| -> Result<_, ArrowError> {
            Ok((ArrayFormatter::try_new(column, &options)?, is_open_numeric(column.data_type())))
        });
        let columns = columns.collect::<Result<Vec<_>, _>>().map_err(failed)?;
        for row in 0..batch.num_rows() {
            // A row is one line, whatever its values contain.
            let cell = |(column, is_open): &(ArrayFormatter<'_>, bool)| {
                let written = column.value(row).to_string();
                without_controls(if *is_open { needed_digits(&written).to_owned() } else { written })
            };
            let cells: Vec<String> = columns.iter().map(cell).collect();
            self.rows += 1;
            if self.widths.is_some() {
                self.line(&cells)?;
            } else {
                self.first.push(cells);
                if self.first.len() == ROWS_FIRST {
                    self.begin()?;
                }
            }
        }
        Ok(())
    }

    /// Determines the widths, writes the header and the rows held so far.
    fn begin(&mut self) -> Result<()> {
        let rows = std::mem::take(&mut self.first);
        let names: Vec<String> =
            self.schema.fields().iter().map(|field| without_controls(field.name().clone())).collect();
        let widest = |at: usize| {
            let cells = rows.iter().map(|row| width(&row[at]));
            cells.chain([width(&names[at])]).max().unwrap_or(0).min(WIDTH_MAX)
        };
        let widths: Vec<usize> = (0..names.len()).map(widest).collect();
        let rule: Vec<String> = widths.iter().map(|width| "-".repeat(*width + 2)).collect();
        self.widths = Some(widths);
        self.line(&names)?;
        writeln!(self.to, "{}", rule.join("+")).map_err(unwritten)?;
        rows.iter().try_for_each(|row| self.line(row))
    }

    fn line(&mut self, cells: &[String]) -> Result<()> {
        let Some(widths) = &self.widths else { return Ok(()) };
        let mut line = String::new();
        for (at, ((cell, wanted), field)) in cells.iter().zip(widths).zip(self.schema.fields()).enumerate() {
            // Not by what is written already: a column without a name may have width 0.
            if at > 0 {
                line.push_str(" | ");
            }
            let pad = " ".repeat(wanted.saturating_sub(width(cell)));
            if is_number(field.data_type()) {
                line.push_str(&pad);
                line.push_str(cell);
            } else {
                line.push_str(cell);
                line.push_str(&pad);
            }
        }
        writeln!(self.to, " {}", line.trim_end()).map_err(unwritten)
    }

    pub(super) fn end(mut self) -> Result<()> {
        if self.widths.is_none() {
            self.begin()?;
        }
        let rows = if self.rows == 1 { "row" } else { "rows" };
        writeln!(self.to, "({} {rows})", self.rows).map_err(unwritten)
    }
}

/// Escapes line breaks and other characters that a terminal acts on.
fn without_controls(text: String) -> String {
    if !text.contains(char::is_control) {
        return text;
    }
    text.chars().map(|c| if c.is_control() { c.escape_default().to_string() } else { c.to_string() }).collect()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::array::{ArrayRef, Decimal128Array, Int64Array, StringArray};

    use super::*;

    #[test]
    fn a_table() {
        let batch = RecordBatch::try_from_iter([
            ("name", Arc::new(StringArray::from(vec![Some("a\nb"), None])) as ArrayRef),
            ("n", Arc::new(Int64Array::from(vec![5, 123]))),
        ])
        .unwrap();
        let mut out = Vec::new();
        let mut table = Table::new(batch.schema(), &mut out);
        table.rows(&batch).unwrap();
        table.end().unwrap();
        let text = String::from_utf8(out).unwrap();
        assert_eq!(
            text,
            " name | n\n------+-----\n a\\nb |   5\n      | 123\n(2 rows)\n".replace(" name | n\n", " name |   n\n")
        );
    }

    /// As PostgreSQL shows them; a declared number of digits is kept.
    #[test]
    fn decimals_have_the_digits_that_they_need() {
        let decimals = |values: Vec<Option<i128>>, precision, scale| {
            Arc::new(Decimal128Array::from(values).with_precision_and_scale(precision, scale).unwrap()) as ArrayRef
        };
        let batch = RecordBatch::try_from_iter([
            ("open", decimals(vec![Some(30_000_000_000), Some(-15_000_000_000), None], 38, 10)),
            ("declared", decimals(vec![Some(150), Some(0), None], 10, 2)),
        ])
        .unwrap();
        let mut out = Vec::new();
        let mut table = Table::new(batch.schema(), &mut out);
        table.rows(&batch).unwrap();
        table.end().unwrap();
        let told = String::from_utf8(out).unwrap();
        let cells: Vec<Vec<&str>> = told.lines().skip(2).map(|line| line.split_whitespace().collect()).collect();
        assert_eq!(cells, [vec!["3", "|", "1.50"], vec!["-1.5", "|", "0.00"], vec!["|"], vec!["(3", "rows)"]]);
    }

    /// The table of some texts, one list per column.
    fn shown(columns: &[(&str, &[&str])]) -> String {
        let columns = columns.iter().map(|(name, texts)| {
            let texts = StringArray::from(texts.iter().map(|text| Some(*text)).collect::<Vec<_>>());
            (*name, Arc::new(texts) as ArrayRef)
        });
        let batch = RecordBatch::try_from_iter(columns).unwrap();
        let mut out = Vec::new();
        let mut table = Table::new(batch.schema(), &mut out);
        table.rows(&batch).unwrap();
        table.end().unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn one_line_for_each_row() {
        for (text, expected) in [
            ("a", "a"),
            ("", ""),
            ("a\tb", "a\\tb"),
            ("a\r\nb", "a\\r\\nb"),
            ("\u{1b}[31m", "\\u{1b}[31m"),
            ("é🙂", "é🙂"),
            ("a\\b", "a\\b"),
        ] {
            let told = shown(&[("t", &[text])]);
            let lines: Vec<&str> = told.lines().collect();
            assert_eq!((lines.len(), lines[2].trim_start()), (4, expected), "{text:?}");
            assert_eq!(lines[3], "(1 row)");
        }
    }

    /// Breaks if the name of a column, which a server elsewhere gives, is acted on by the terminal.
    #[test]
    fn one_line_for_the_head() {
        let told = shown(&[("a\n\u{1b}[31m", &["x"]), ("é", &["y"])]);
        let lines: Vec<&str> = told.lines().collect();
        assert_eq!((lines.len(), lines[0]), (4, " a\\n\\u{1b}[31m | é"), "{told}");
    }

    /// Columns are aligned even if one has neither name nor values, and a value that is too long does not widen its
    /// column.
    #[test]
    fn widths() {
        let nameless = shown(&[("", &["", ""]), ("b", &["x", "yy"])]);
        assert_eq!(nameless, "  | b\n--+----\n  | x\n  | yy\n(2 rows)\n");
        let long = "x".repeat(WIDTH_MAX + 20);
        let wide = shown(&[("a", &[long.as_str(), "y"]), ("b", &["1", "2"])]);
        let lines: Vec<&str> = wide.lines().collect();
        assert_eq!(lines[1].find('+'), Some(WIDTH_MAX + 2));
        assert_eq!(lines[2], format!(" {long} | 1"));
        assert_eq!(lines[3].find('|'), Some(WIDTH_MAX + 2));
    }

    #[test]
    fn nothing_has_a_head() {
        let batch = RecordBatch::try_from_iter([("n", Arc::new(Int64Array::from(Vec::<i64>::new())) as ArrayRef)]);
        let mut out = Vec::new();
        Table::new(batch.unwrap().schema(), &mut out).end().unwrap();
        assert_eq!(String::from_utf8(out).unwrap(), " n\n---\n(0 rows)\n");
    }

    /// Rows after those that determine the widths are written at once.
    #[test]
    fn many_rows() {
        let texts = vec!["a"; ROWS_FIRST + 5];
        let told = shown(&[("t", texts.as_slice())]);
        assert_eq!(told.lines().count(), ROWS_FIRST + 5 + 3);
        assert!(told.ends_with(&format!("({} rows)\n", ROWS_FIRST + 5)));
    }
}
