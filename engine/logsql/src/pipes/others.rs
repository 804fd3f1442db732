//! The first groups by themselves, all others as one: what `hits` asks for.

use std::fmt::{self, Display, Formatter};
use std::sync::Arc;

use arrow::array::{ArrayRef, StringViewBuilder};
use arrow::datatypes::SchemaRef;
use arrow::record_batch::RecordBatch;
use datafusion::error::Result;
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use serde::{Deserialize, Serialize};

use super::kind::{At, PipeKind};
use super::syntax::names;
use crate::needs::Needs;
use crate::ops::cells::assemble;
use crate::ops::keys::Keys;
use crate::parser::PipeDef;
use crate::pieces::map_batches;
use crate::planned::Planned;
use crate::print::word;
use crate::rows::{Shape, push_text, texts_of};
use crate::step::{Batches, Step, StepKind, StepReader};

/// Empties the fields of a group, and says so, in the rows behind the first groups; rows come group by group.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Others {
    /// Fields whose values together make a group.
    pub by: Vec<String>,
    /// How many of the first groups stay as they are.
    pub limit: u64,
    /// The column that is `1` in the rows of others.
    pub to: String,
}

/// It is no pipe by name: requests put it into queries.
pub(super) const DEFS: &[PipeDef] = &[];

const STEPS: &[StepReader] = &[StepReader::of::<FirstGroups>()];

impl Display for Others {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "others by ({}) limit {} as {}", names(&self.by), self.limit, word(&self.to))
    }
}

impl PipeKind for Others {
    fn before(&self, after: &Needs) -> Needs {
        let mut needs = after.clone();
        needs.remove(&self.to);
        needs.add_all(self.by.iter().map(String::as_str));
        needs
    }

    fn mentions(&self) -> Vec<String> {
        self.by.iter().chain([&self.to]).cloned().collect()
    }

    fn steps() -> &'static [StepReader] {
        STEPS
    }

    fn plan(&self, rows: Planned, _: At<'_>) -> quiver_types::Result<Planned> {
        let made = self.by.iter().chain([&self.to]).map(String::as_str);
        let (input, output) = (rows.shape.clone(), rows.shape.with_texts(made));
        rows.then(FirstGroups { of: self.clone(), input, output: output.clone() }, output)
    }
}

/// Lacks in DataFusion: a limit of groups whose rows come one after the other, that lets rows behind it through.
#[derive(Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
struct FirstGroups {
    of: Others,
    input: Shape,
    output: Shape,
}

impl StepKind for FirstGroups {
    const KIND: &'static str = "others";
}

impl Step for FirstGroups {
    fn name(&self) -> &'static str {
        "LogsOthers"
    }

    fn detail(&self) -> String {
        self.of.to_string()
    }

    fn schema(&self) -> SchemaRef {
        self.output.schema()
    }

    fn once(&self) -> bool {
        true
    }

    fn open(self: Arc<Self>, rows: SendableRecordBatchStream, task: Arc<TaskContext>) -> Result<Batches> {
        let mut seen = Seen::default();
        Ok(map_batches(rows, &task, Box::new(move |rows| self.map(&rows, &mut seen))))
    }
}

/// The groups that came.
#[derive(Default)]
struct Seen {
    groups: u64,
    /// The key of the last one.
    last: Vec<u8>,
}

impl FirstGroups {
    fn map(&self, rows: &RecordBatch, seen: &mut Seen) -> Result<RecordBatch> {
        let (by, count) = (&self.of.by, rows.num_rows());
        let mut keys = Keys::new(rows, &self.input, by)?;
        let columns = by.iter().map(|name| texts_of(rows, &self.input, name)).collect::<Result<Vec<_>>>()?;
        let mut builders: Vec<_> = by.iter().map(|_| StringViewBuilder::with_capacity(count)).collect();
        let mut others = StringViewBuilder::with_capacity(count);
        let mut scratch = String::new();
        for row in 0..count {
            let key = keys.of(row);
            if seen.groups == 0 || key != seen.last.as_slice() {
                seen.groups += 1;
                seen.last.clear();
                seen.last.extend_from_slice(key);
            }
            let is_other = seen.groups > self.of.limit;
            for (builder, texts) in builders.iter_mut().zip(&columns) {
                push_text(builder, if is_other { "" } else { texts.get(row, &mut scratch) });
            }
            push_text(&mut others, if is_other { "1" } else { "" });
        }
        let arrays = builders.iter_mut().map(|b| Arc::new(b.finish()) as ArrayRef);
        let mut made: Vec<(&str, ArrayRef)> = by.iter().map(String::as_str).zip(arrays).collect();
        made.push((&self.of.to, Arc::new(others.finish())));
        assemble(rows, &self.input, &self.output, &made)
    }
}

#[cfg(test)]
mod tests {
    use quiver_types::logs::TIME;

    use crate::ast::Pipe;
    use crate::parse;
    use crate::pipes::rows::Rows;
    use crate::pipes::testing::run_pipes;
    use crate::request::hits;

    fn counted(fields: &[&str], limit: u64) -> Vec<String> {
        let row = |(hour, app): (u32, &str)| {
            let time = format!("2025-01-01T{hour:02}:30:00Z");
            vec![(TIME.to_owned(), time), ("app".to_owned(), app.to_owned())]
        };
        let rows = [(0, "x"), (1, "w"), (0, "x"), (0, "z"), (1, "x"), (1, "y"), (1, "y"), (0, "")];
        let mut pipes: Vec<Pipe> = vec![Rows(rows.map(row).to_vec()).into()];
        let fields: Vec<String> = fields.iter().map(|&name| name.to_owned()).collect();
        let query = parse("*").expect("a query");
        pipes.extend(hits(query, (3_600_000_000_000, "1h"), None, &fields, limit).pipes);
        let shown = run_pipes(pipes).into_iter().map(|row| row.replace("2025-01-01T", "").replace("__q_", ""));
        shown.collect()
    }

    #[test]
    fn the_largest_groups_stay() {
        let all = [
            "hits=1 _time=00:00:00Z",
            "hits=1 _time=01:00:00Z app=w",
            "hits=2 _time=00:00:00Z app=x",
            "hits=1 _time=01:00:00Z app=x",
            "hits=2 _time=01:00:00Z app=y",
            "hits=1 _time=00:00:00Z app=z",
        ];
        assert_eq!(counted(&["app"], 5), all);
        let two = [
            "hits=2 _time=00:00:00Z app=x",
            "hits=1 _time=01:00:00Z app=x",
            "hits=2 _time=01:00:00Z app=y",
            "hits=2 other=1 _time=00:00:00Z",
            "hits=1 other=1 _time=01:00:00Z",
        ];
        assert_eq!(counted(&["app"], 2), two);
        assert_eq!(counted(&[], 1), ["hits=4 _time=00:00:00Z", "hits=4 _time=01:00:00Z"]);
    }
}
