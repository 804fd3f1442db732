//! Rows as CSV (`format=csv`, RFC 4180): a line with the names of the fields, then a line for each row.

use std::collections::{BTreeSet, HashMap, VecDeque};

use quiver_logsql::Rows;
use quiver_logsql::ast::Query;
use quiver_logsql::pipes::field_names::FieldNames;
use quiver_logsql::request_params::fixed_fields;
use quiver_query::QueryReservation;
use quiver_types::Result;

use super::Ask;
use super::response::text_bytes;
use crate::state::AppState;

/// The column of names in a list of fields.
const NAME: &str = "__q_name";

/// Most rows of an answer, and most bytes of their texts, that are held to see which fields they have.
const FEW_ROWS: usize = 10_000;
const FEW_BYTES: usize = 4 << 20;

/// The columns of an answer.
#[derive(Debug)]
pub(super) struct Columns {
    names: Vec<String>,
    places: HashMap<String, usize>,
    /// Memory of the names.
    _memory: QueryReservation,
}

impl Columns {
    /// Finds the columns of a query: those that its pipes name, in that order. Where they name none, these are the
    /// fields that the rows have, by name. Few rows are found for that, and given back as the whole answer; where there
    /// are more, the query runs once to find the names.
    pub(super) async fn of(state: &AppState, ask: &Ask, query: &Query) -> Result<(Self, Option<VecDeque<Rows>>)> {
        let memory = state.engines.logsql.collected("columns", &ask.ctx);
        if let Some(fixed) = fixed_fields(query) {
            return Ok((Self::new(fixed, memory), None));
        }
        let mut names = BTreeSet::new();
        let few = few_rows(state, ask, query, &mut names, &memory).await?;
        if few.is_none() {
            let mut listing = query.clone();
            listing.pipes.push(FieldNames { name: NAME.to_owned(), filter: None }.into());
            // A run of its own: the end of this one must not end that of the rows.
            let ctx = ask.ctx.another_run();
            let read = state.engines.logsql.each_row(&listing, &ask.scope, &ctx, |row| {
                for (field, name) in row {
                    if field == NAME {
                        add_name(name, &mut names, &memory)?;
                    }
                }
                Ok(())
            });
            read.await?;
        }
        Ok((Self::new(names.into_iter().collect(), memory), few))
    }

    fn new(mut names: Vec<String>, memory: QueryReservation) -> Self {
        let mut places = HashMap::with_capacity(names.len());
        names.retain(|name| {
            let (next, is_new) = (places.len(), !places.contains_key(name));
            if is_new {
                places.insert(name.clone(), next);
            }
            is_new
        });
        Self { names, places, _memory: memory }
    }

    /// The line with the names.
    pub(super) fn head(&self) -> String {
        let mut out = String::new();
        push_line(&mut out, &self.names);
        out
    }

    /// Appends a line for each row.
    pub(super) fn push_rows(&self, out: &mut String, rows: &Rows) -> Result<()> {
        let mut cells = vec![String::new(); self.names.len()];
        rows.each_row(|fields| {
            cells.iter_mut().for_each(String::clear);
            for (name, value) in fields {
                if let Some(&place) = self.places.get(name) {
                    cells[place].push_str(value);
                }
            }
            push_line(out, &cells);
        })
    }
}

fn add_name(name: &str, names: &mut BTreeSet<String>, memory: &QueryReservation) -> Result<()> {
    if !names.contains(name) {
        // Here and as its place.
        memory.add(2 * text_bytes(name))?;
        names.insert(name.to_owned());
    }
    Ok(())
}

/// All rows of an answer, and the names of their fields; `None`: there are many. A second run may find others: with `limit`
/// any rows, and those that came meanwhile.
async fn few_rows(
    state: &AppState,
    ask: &Ask,
    query: &Query,
    names: &mut BTreeSet<String>,
    memory: &QueryReservation,
) -> Result<Option<VecDeque<Rows>>> {
    // A run of its own: where it ends early, another one follows.
    let mut stream = state.engines.logsql.stream(query, &ask.scope, &ask.ctx.another_run());
    let (mut all, mut count, mut bytes) = (VecDeque::new(), 0, 0);
    while let Some(rows) = stream.next().await {
        let rows = rows?;
        count += rows.len();
        bytes += note_fields(&rows, names, memory)?;
        if count > FEW_ROWS || bytes > FEW_BYTES {
            return Ok(None);
        }
        all.push_back(rows);
    }
    Ok(Some(all))
}

/// Adds the names of the fields of rows; gives the bytes of their texts.
fn note_fields(rows: &Rows, names: &mut BTreeSet<String>, memory: &QueryReservation) -> Result<usize> {
    let (mut bytes, mut outcome) = (0, Ok(()));
    rows.each_row(|fields| {
        for (name, value) in fields {
            bytes += name.len() + value.len();
            if outcome.is_ok() {
                outcome = add_name(name, names, memory);
            }
        }
    })?;
    outcome.map(|()| bytes)
}

fn push_line(out: &mut String, cells: &[String]) {
    for (place, cell) in cells.iter().enumerate() {
        if place > 0 {
            out.push(',');
        }
        if cell.contains([',', '"', '\n', '\r']) {
            out.push('"');
            out.push_str(&cell.replace('"', "\"\""));
            out.push('"');
        } else {
            out.push_str(cell);
        }
    }
    out.push('\n');
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cells_are_quoted_where_they_must_be() {
        let line = |cells: &[&str]| {
            let (mut out, cells) = (String::new(), cells.iter().map(|cell| (*cell).to_owned()).collect::<Vec<_>>());
            push_line(&mut out, &cells);
            out
        };
        assert_eq!(line(&[]), "\n");
        assert_eq!(line(&["a", "", "b c"]), "a,,b c\n");
        assert_eq!(line(&["a,b", "say \"x\"", "1\n2", "\r"]), "\"a,b\",\"say \"\"x\"\"\",\"1\n2\",\"\r\"\n");
        assert_eq!(line(&["'a'", "\t", "größe;"]), "'a',\t,größe;\n");
    }
}
