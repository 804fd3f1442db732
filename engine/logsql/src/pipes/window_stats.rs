//! `running_stats` and `total_stats`: what the rows before, or all rows, of a group add up to, added to each row.

use std::cmp::Ordering;
use std::collections::{HashMap, VecDeque};
use std::fmt::{self, Display, Formatter};
use std::sync::Arc;

use arrow::array::{ArrayRef, StringViewBuilder};
use arrow::datatypes::SchemaRef;
use arrow::record_batch::RecordBatch;
use datafusion::error::{DataFusionError, Result};
use datafusion::execution::memory_pool::MemoryConsumer;
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use futures::StreamExt;
use quiver_query::unpinned;
use serde::{Deserialize, Serialize};

use super::pipe::{At, Pipe, PipeKind};
use super::syntax::{different, names};
use crate::ast::FieldPattern;
use crate::chunked_stream::map_batches;
use crate::kernels::values::{compare, parse_float, push_f64};
use crate::ops::computed_fields::assemble;
use crate::ops::keys::Keys;
use crate::parser::names::or_all;
use crate::parser::{Parser, PipeDef};
use crate::partial_plan::PartialPlan;
use crate::print::stats::arguments;
use crate::print::{list, word};
use crate::required_fields::Needs;
use crate::rows::{Rest, Shape, Texts, push_text, texts_of};
use crate::series_columns::StatsColumns;
use crate::step::{Batches, Step, StepKind, StepReader};

/// `running_stats [by (...)] f(...) as r, ..`, `total_stats ..`
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct WindowStats {
    /// Up to the row (running) or over all rows (total).
    pub running: bool,
    /// What rows are grouped by; all rows are one group without it.
    pub by: Vec<String>,
    /// `count sum min max first last`.
    pub calls: Vec<WindowCall>,
}

/// One function of `running_stats` and `total_stats`.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct WindowCall {
    /// What is computed.
    pub func: WindowFunc,
    /// Its fields; `*` for `count()`.
    pub fields: Vec<FieldPattern>,
    /// Of `first` and `last`: so many rows behind the first one, or before the last one.
    pub offset: usize,
    /// The name of the result.
    pub name: String,
}

/// Functions of `running_stats` and `total_stats`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum WindowFunc {
    /// `count(a, b)`: rows with a value in one of the fields; `count()`: rows
    Count,
    /// `sum(a, b)`: of the values that are plain numbers; NaN without any
    Sum,
    /// `min(a, b)`: the least value, as text; numbers compare as numbers
    Min,
    /// `max(a, b)`: the greatest value, as text; numbers compare as numbers
    Max,
    /// `first(a)`: value of the first row of the group
    First,
    /// `last(a)`: value of the last row of the group
    Last,
}

pub(super) const DEFS: &[PipeDef] = &[
    PipeDef {
        names: &["running_stats"],
        doc: "Adds to each row what it and the rows before it in its group add up to.",
        parse: |p| parse(p, true),
    },
    PipeDef {
        names: &["total_stats"],
        doc: "Adds to each row what all rows of its group add up to.",
        parse: |p| parse(p, false),
    },
];

const STEPS: &[StepReader] = &[StepReader::of::<Window>()];

/// Greatest `offset` of `first` and `last`: values of so many rows are kept per group.
const WINDOW_OFFSET_MAX: usize = 1000;

const FUNCS: &[(&str, WindowFunc)] = &[
    ("count", WindowFunc::Count),
    ("first", WindowFunc::First),
    ("last", WindowFunc::Last),
    ("max", WindowFunc::Max),
    ("min", WindowFunc::Min),
    ("sum", WindowFunc::Sum),
];

fn parse(parser: &mut Parser<'_>, running: bool) -> crate::error::Result<Pipe> {
    let by = if parser.skip("by") || parser.is("(") { parser.in_parens(Parser::field)? } else { Vec::new() };
    let at = parser.next;
    let calls = parser.with_commas(call)?;
    different(parser, at, calls.iter().map(|call| &call.name), std::iter::empty())?;
    Ok(WindowStats { running, by, calls }.into())
}

fn call(parser: &mut Parser<'_>) -> crate::error::Result<WindowCall> {
    let at = parser.next;
    let Some(&(name, func)) = FUNCS.iter().find(|(name, _)| parser.is(name)) else {
        return Err(parser.unknown(at, "function", FUNCS.iter().map(|(name, _)| *name)));
    };
    parser.advance();
    let fields = or_all(parser.in_parens(Parser::field_pattern)?);
    let of_ends = matches!(func, WindowFunc::First | WindowFunc::Last);
    if of_ends && !matches!(*fields, [FieldPattern::Name(_)]) {
        return Err(parser.fault_at(at, format!("`{name}` takes one field")));
    }
    let mut offset = 0;
    if of_ends && parser.skip("offset") {
        let at = parser.next;
        let rows = parser.count("a number of rows")?;
        offset = usize::try_from(rows).ok().filter(|&n| n <= WINDOW_OFFSET_MAX).ok_or_else(|| {
            parser.fault_at(at, format!("an offset of at most {WINDOW_OFFSET_MAX} rows expected, got `{rows}`"))
        })?;
    }
    let result = parser.as_name()?;
    let mut call = WindowCall { func, fields, offset, name: String::new() };
    call.name = result.unwrap_or_else(|| call.text());
    Ok(call)
}

impl WindowCall {
    /// Writes the call as a query has it, without `as`: `sum(a, b)`.
    fn text(&self) -> String {
        let name = FUNCS.iter().find(|(_, func)| *func == self.func).map_or("", |(name, _)| name);
        let text = format!("{name}({})", arguments(&self.fields));
        if self.offset == 0 { text } else { format!("{text} offset {}", self.offset) }
    }

    fn counts_rows(&self) -> bool {
        self.func == WindowFunc::Count && self.fields.iter().any(FieldPattern::is_all)
    }
}

impl Display for WindowStats {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str(if self.running { "running_stats" } else { "total_stats" })?;
        if !self.by.is_empty() {
            write!(f, " by ({})", names(&self.by))?;
        }
        write!(f, " {}", list(&self.calls, |call| format!("{} as {}", call.text(), word(&call.name))))
    }
}

impl WindowStats {
    /// Whether what it gives depends on the order of rows.
    pub(crate) fn is_ordered(&self) -> bool {
        let by_order = |call: &WindowCall| matches!(call.func, WindowFunc::First | WindowFunc::Last);
        self.running || self.calls.iter().any(by_order)
    }
}

impl PipeKind for WindowStats {
    fn before(&self, after: &Needs) -> Needs {
        let mut needs = after.clone();
        self.calls.iter().for_each(|call| needs.remove(&call.name));
        needs.add_all(self.by.iter().map(String::as_str));
        for field in self.calls.iter().flat_map(|call| &call.fields) {
            // Counting rows looks at no field.
            if !field.is_all() || self.calls.iter().any(|c| c.fields.contains(field) && !c.counts_rows()) {
                needs.add_pattern(field);
            }
        }
        needs
    }

    fn mentions(&self) -> Vec<String> {
        self.calls.iter().map(|call| call.name.clone()).collect()
    }

    fn follow_columns(&self, columns: &mut StatsColumns) -> quiver_types::Result<()> {
        self.calls.iter().try_for_each(|call| columns.add_value(self, &call.name))
    }

    fn steps() -> &'static [StepReader] {
        STEPS
    }

    fn plan(&self, rows: PartialPlan, _: At<'_>) -> quiver_types::Result<PartialPlan> {
        let output = rows.shape.with_texts(self.calls.iter().map(|call| call.name.as_str()));
        let step = Window { of: self.clone(), input: rows.shape.clone(), output: output.clone() };
        rows.then(step, output)
    }
}

/// Adds the results to each row, in the order in which rows come. Lacks in DataFusion: its window functions have rows
/// sorted by group, and lose the order in which they came; values that are compared as numbers, times or texts, as they
/// look; groups of fields by prefix.
#[derive(Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
struct Window {
    of: WindowStats,
    input: Shape,
    output: Shape,
}

impl StepKind for Window {
    const KIND: &'static str = "window_stats";
}

impl Step for Window {
    fn name(&self) -> &'static str {
        "LogsWindowStats"
    }

    fn detail(&self) -> String {
        self.of.to_string()
    }

    fn schema(&self) -> SchemaRef {
        self.output.schema()
    }

    fn needs_all_rows(&self) -> bool {
        true
    }

    fn open(self: Arc<Self>, mut rows: SendableRecordBatchStream, task: Arc<TaskContext>) -> Result<Batches> {
        let mut groups = Groups::default();
        if self.of.running {
            let memory = MemoryConsumer::new("running_stats").register(task.memory_pool());
            let map = move |batch: RecordBatch| {
                let made = groups.with_results(&self, &batch, true)?;
                memory.try_resize(groups.bytes)?;
                Ok(made)
            };
            return Ok(map_batches(rows, &task, Box::new(map)));
        }
        let held = async move {
            let memory = MemoryConsumer::new("total_stats").register(task.memory_pool());
            let (schema, mut batches, mut held) = (rows.schema(), Vec::new(), 0);
            while let Some(batch) = rows.next().await {
                let batch = unpinned(batch?);
                let bytes = batch.get_array_memory_size();
                held += bytes;
                memory.try_resize(held + groups.bytes)?;
                groups.walk(&self, &batch, true, None)?;
                memory.try_resize(held + groups.bytes)?;
                batches.push((batch, bytes));
            }
            // Results are made as they are taken: those of all rows at once would be counted nowhere.
            let mut taken = 0;
            let batches = batches.into_iter().map(move |(batch, bytes)| {
                memory.shrink(taken);
                taken = bytes;
                Ok::<_, DataFusionError>(batch)
            });
            let rows = RecordBatchStreamAdapter::new(schema, futures::stream::iter(batches));
            let map = move |batch: RecordBatch| groups.with_results(&self, &batch, false);
            Ok::<_, DataFusionError>(map_batches(Box::pin(rows), &task, Box::new(map)))
        };
        let batches = futures::stream::once(held).map(|all| match all {
            Ok(batches) => batches,
            Err(e) => futures::stream::iter([Err(e)]).boxed(),
        });
        Ok(batches.flatten().boxed())
    }
}

/// What a function has seen of a group.
#[derive(Debug, Clone, Default)]
struct WindowState {
    count: u64,
    sum: Option<f64>,
    text: Option<String>,
    /// Of `last` with an offset: the values of the last rows.
    recent: VecDeque<String>,
}

/// What a text takes beside its contents.
const TEXT_BYTES: usize = 32;
/// What a group takes beside its key and what was seen of it.
const GROUP_BYTES: usize = 96;

impl WindowState {
    /// Adds a value of a row; what `count` counts is known for whole rows only. Gives how many bytes of texts more are
    /// kept than before.
    fn add(&mut self, call: &WindowCall, value: &str) -> isize {
        match call.func {
            WindowFunc::Sum => {
                if let Some(n) = parse_float(value) {
                    self.sum = Some(self.sum.unwrap_or(0.0) + n);
                }
                0
            }
            WindowFunc::Min | WindowFunc::Max => {
                let wanted = if call.func == WindowFunc::Min { Ordering::Less } else { Ordering::Greater };
                let better = self.text.as_deref().is_none_or(|old| compare(value, old) == wanted);
                // Of one field, a row without it has the least value of all.
                if better && (!value.is_empty() || matches!(*call.fields, [FieldPattern::Name(_)])) {
                    self.keep(value.to_owned())
                } else {
                    0
                }
            }
            WindowFunc::First if self.count == call.offset as u64 => self.keep(value.to_owned()),
            WindowFunc::Count | WindowFunc::First => 0,
            WindowFunc::Last => {
                let grown = (value.len() + TEXT_BYTES) as isize;
                self.recent.push_back(value.to_owned());
                if self.recent.len() <= call.offset {
                    return grown;
                }
                let oldest = self.recent.pop_front().unwrap_or_default();
                let left = (oldest.len() + TEXT_BYTES) as isize;
                grown - left + self.keep(oldest)
            }
        }
    }

    /// Keeps a text in place of the one before.
    fn keep(&mut self, text: String) -> isize {
        let before = self.text.as_ref().map_or(0, String::len);
        let after = text.len();
        self.text = Some(text);
        after as isize - before as isize
    }

    fn write(&self, func: WindowFunc, out: &mut String) {
        match func {
            WindowFunc::Count => out.push_str(&self.count.to_string()),
            WindowFunc::Sum => push_f64(out, self.sum.unwrap_or(f64::NAN)),
            _ => out.push_str(self.text.as_deref().unwrap_or("")),
        }
    }
}

/// What was seen, by group.
#[derive(Debug, Default)]
struct Groups {
    by_key: HashMap<Box<[u8]>, Vec<WindowState>>,
    /// Memory of the groups and of what they keep, about.
    bytes: usize,
}

impl Groups {
    /// The group of a key.
    fn of(&mut self, key: &[u8], calls: usize) -> &mut Vec<WindowState> {
        if !self.by_key.contains_key(key) {
            self.bytes += GROUP_BYTES + calls * size_of::<WindowState>() + key.len();
            self.by_key.insert(key.into(), vec![WindowState::default(); calls]);
        }
        self.by_key.get_mut(key).expect("it is there now")
    }

    /// Walks over rows; `add` says whether they are added, and the results are written when asked for.
    fn walk(
        &mut self,
        window: &Window,
        rows: &RecordBatch,
        add: bool,
        mut out: Option<&mut [StringViewBuilder]>,
    ) -> Result<()> {
        let (shape, calls) = (&window.input, &window.of.calls);
        let mut keys = Keys::new(rows, shape, &window.of.by)?;
        let columns: Vec<(&str, Texts)> =
            shape.names().map(|name| Ok((name, texts_of(rows, shape, name)?))).collect::<Result<_>>()?;
        let rest = Rest::of(rows, shape);
        let (mut scratch, mut text) = (String::new(), String::new());
        for row in 0..rows.num_rows() {
            let mut grown = 0;
            let seen = self.of(keys.of(row), calls.len());
            for (call, seen) in calls.iter().zip(seen.iter_mut()).filter(|_| add) {
                let rows = matches!(call.func, WindowFunc::First | WindowFunc::Last);
                let mut any = rows || call.fields.iter().any(FieldPattern::is_all);
                let mut each = |name: &str, value: &str| {
                    if call.fields.iter().any(|field| field.matches(name)) {
                        any |= !value.is_empty();
                        grown += seen.add(call, value);
                    }
                };
                for (name, texts) in &columns {
                    each(name, texts.get(row, &mut scratch));
                }
                rest.iter().flat_map(|rest| rest.row(row)).for_each(|(name, value)| each(name, value));
                seen.count += u64::from(any);
            }
            if let Some(builders) = &mut out {
                for ((call, seen), builder) in calls.iter().zip(seen.iter()).zip(builders.iter_mut()) {
                    text.clear();
                    seen.write(call.func, &mut text);
                    push_text(builder, &text);
                }
            }
            self.bytes = self.bytes.saturating_add_signed(grown);
        }
        Ok(())
    }

    fn with_results(&mut self, window: &Window, rows: &RecordBatch, add: bool) -> Result<RecordBatch> {
        let calls = &window.of.calls;
        let mut builders: Vec<_> = calls.iter().map(|_| StringViewBuilder::with_capacity(rows.num_rows())).collect();
        self.walk(window, rows, add, Some(&mut builders))?;
        let arrays = builders.iter_mut().map(|b| Arc::new(b.finish()) as ArrayRef);
        let made: Vec<(&str, ArrayRef)> = calls.iter().map(|call| call.name.as_str()).zip(arrays).collect();
        assemble(rows, &window.input, &window.output, &made)
    }
}

#[cfg(test)]
mod tests {
    use arrow::array::{AsArray as _, StringViewArray};
    use datafusion::prelude::SessionContext;

    use super::*;
    use crate::pipes::testing::{gives, reads, refuses};

    #[tokio::test]
    async fn rows_that_are_not_taken_yet_count() {
        let call = WindowCall {
            func: WindowFunc::First,
            fields: vec![FieldPattern::Name("a".to_owned())],
            offset: 0,
            name: "n".to_owned(),
        };
        let of = WindowStats { running: false, by: Vec::new(), calls: vec![call] };
        let input = Shape::of_texts(["a"]);
        let schema = input.schema();
        let output = input.with_texts(["n"]);
        let batch = |n: usize| {
            let texts: StringViewArray = (0..1000).map(|row| Some(format!("row {row} of batch {n}"))).collect();
            Ok::<_, DataFusionError>(RecordBatch::try_new(Arc::clone(&schema), vec![Arc::new(texts)]).unwrap())
        };
        let batches = futures::stream::iter((0..3).map(batch).collect::<Vec<_>>());
        let rows = Box::pin(RecordBatchStreamAdapter::new(Arc::clone(&schema), batches));
        let task = SessionContext::new().task_ctx();
        let held = || task.memory_pool().reserved();
        let mut made = Arc::new(Window { of, input, output }).open(rows, Arc::clone(&task)).unwrap();
        let mut seen = Vec::new();
        while let Some(batch) = made.next().await {
            let batch = batch.unwrap();
            let last = batch.num_rows() - 1;
            assert_eq!(batch.column_by_name("n").unwrap().as_string_view().value(last), "row 0 of batch 0");
            seen.push((batch.num_rows(), held()));
        }
        drop(made);
        assert_eq!(seen.iter().map(|(rows, _)| rows).sum::<usize>(), 3000);
        assert!(seen.first().unwrap().1 > 3 * 16_000 && seen.last().unwrap().1 < 2 * 40_000, "{seen:?}");
        assert_eq!(held(), 0);
    }

    #[test]
    fn cases() {
        reads(&[
            ("running_stats by (a) count() n, last(b) l", "running_stats by (a) count(*) as n, last(b) as l"),
            ("total_stats sum(a, b*)", "total_stats sum(a, b*) as \"sum(a, b*)\""),
            ("running_stats first(a) offset 2 x", "running_stats first(a) offset 2 as x"),
        ]);
        refuses(&[
            ("running_stats avg(a)", "unknown function `avg`"),
            ("total_stats first(a, b)", "`first` takes one field"),
            ("total_stats last(a) offset 1001", "at most 1000 rows"),
            ("total_stats count() x, sum(a) x", "two results have the name `x`"),
        ]);
        let rows = ["g=x n=1", "g=y n=5", "g=x n=2"];
        gives(
            "sort by (n) | running_stats by (g) count() c, sum(n) s",
            &rows,
            &["g=x n=1 c=1 s=1", "g=x n=2 c=2 s=3", "g=y n=5 c=1 s=5"],
        );
        gives("sort by (n) | total_stats max(n) m, min(g) f | limit 1", &rows, &["g=x n=1 m=5 f=x"]);
        gives("sort by (n) | total_stats first(n) offset 1 a, last(n) b | fields a, b | limit 1", &rows, &["a=2 b=5"]);
        gives("sort by (n) | running_stats last(n) offset 1 a | fields a", &rows, &["", "a=1", "a=2"]);
    }
}
