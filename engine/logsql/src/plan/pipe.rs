//! Each pipe → nodes over the rows before it.

use std::collections::BTreeSet;
use std::sync::Arc;

use arrow::array::{ArrayRef, AsArray, StringViewBuilder, TimestampNanosecondArray};
use arrow::datatypes::{SchemaRef, TimestampNanosecondType};
use datafusion::catalog::Session;
use datafusion::logical_expr::{EmptyRelation, LogicalPlan};
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::empty::EmptyExec;
use datafusion::physical_plan::union::UnionExec;
use futures::StreamExt;
use quiver_query::{Operator, from_datafusion, operator_plan};
use quiver_types::Result;
use quiver_types::logs::{MSG, STREAM, STREAM_ID, TIME};

use super::filter::{TimeScope, lower};
use super::{Planned, Planner, internal, stats};
use crate::ast::pipe::{Sort, SortForm, Top, Uniq};
use crate::ast::{FieldPattern, Filter, Pipe, Query, RowPipe, Test};
use crate::needs::Needs;
use crate::nodes::{Open, StreamExec};
use crate::ops::aggregate::{Aggregate, Call, Key};
use crate::ops::context::{Context, stream_context as stream_context_rows};
use crate::ops::unpack::{Format, Packing};
use crate::ops::{cells, facets, filter, join, limit, names, project, row, sort, stream, unpack, unroll, window};
use crate::pieces::{BatchMap, ValueMap, map_batches, map_values};
use crate::rowfn::SyslogContext;
use crate::rows::{Column, Kind, Shape, batch, push_text};
use crate::stats_fn::Function;

/// An operator over streams: a name for plans, the shape of its rows, and what runs.
struct Streamed {
    name: &'static str,
    detail: String,
    output: Shape,
    /// Whether all partitions become one first.
    once: bool,
    open: Open,
}

impl std::fmt::Debug for Streamed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Streamed").field("name", &self.name).field("output", &self.output).finish_non_exhaustive()
    }
}

impl Operator for Streamed {
    fn name(&self) -> &'static str {
        self.name
    }

    fn detail(&self) -> String {
        self.detail.clone()
    }

    fn schema(&self) -> SchemaRef {
        self.output.schema()
    }

    fn physical(
        self: Arc<Self>,
        mut inputs: Vec<Arc<dyn ExecutionPlan>>,
        _: &dyn Session,
    ) -> datafusion::error::Result<Arc<dyn ExecutionPlan>> {
        let input = inputs.pop().unwrap_or_else(|| Arc::new(EmptyExec::new(self.output.schema())));
        let open = Arc::clone(&self.open);
        Ok(if self.once { StreamExec::once(&*self, input, open) } else { StreamExec::each(&*self, input, open) })
    }
}

/// Adds a function of batches.
fn each(
    planned: Planned,
    name: &'static str,
    detail: String,
    output: Shape,
    make: impl Fn(Shape, Shape) -> BatchMap + Send + Sync + 'static,
) -> Result<Planned> {
    let (input, out) = (planned.shape.clone(), output.clone());
    let open = map_batches(move || make(input.clone(), out.clone()));
    streamed(planned, Streamed { name, detail, output, once: false, open })
}

/// Adds a function of batches that makes values.
fn values(
    planned: Planned,
    name: &'static str,
    detail: String,
    output: Shape,
    make: impl Fn(Shape, Shape) -> ValueMap + Send + Sync + 'static,
) -> Result<Planned> {
    let (input, out) = (planned.shape.clone(), output.clone());
    let open = map_values(move || make(input.clone(), out.clone()));
    streamed(planned, Streamed { name, detail, output, once: false, open })
}

/// Adds a function of the stream of all rows.
fn once(planned: Planned, name: &'static str, detail: String, output: Shape, open: Open) -> Result<Planned> {
    streamed(planned, Streamed { name, detail, output, once: true, open })
}

fn streamed(planned: Planned, operator: Streamed) -> Result<Planned> {
    let shape = operator.output.clone();
    Ok(Planned { plan: operator_plan(operator, vec![planned.plan])?, shape, ..planned })
}

/// Skips and limits rows in the order in which they come.
pub(super) fn window(planned: Planned, skip: u64, fetch: Option<u64>) -> Result<Planned> {
    let (shape, detail) = (planned.shape.clone(), format!("skip={skip} fetch={fetch:?}"));
    once(planned, "LogsLimit", detail, shape, limit::window(skip, fetch))
}

/// Chooses rows and their neighbours, of rows by stream and time.
pub(super) fn stream_context(planned: Planned, context: Context) -> Result<Planned> {
    let operator = sort::Sort {
        input: planned.shape.clone(),
        by: vec![(STREAM_ID.to_owned(), false), (TIME.to_owned(), false)],
        offset: 0,
        limit: None,
        partition_by: Vec::new(),
        rank: None,
        descending: false,
        of_top: false,
    };
    let planned = sorted(operator, planned)?;
    let (shape, detail) = (planned.shape.clone(), format!("before={} after={}", context.before, context.after));
    let open = stream_context_rows(context, shape.clone());
    once(planned, "LogsStreamContext", detail, shape, open)
}

/// Moves `_time` forward.
pub(super) fn shift_time(planned: Planned, offset_ns: i64) -> Result<Planned> {
    let shape = planned.shape.clone();
    each(planned, "LogsShiftTime", format!("{offset_ns} ns"), shape, move |input, output| {
        Box::new(move |rows| {
            let mut columns = rows.columns().to_vec();
            if let Some(i) = input.index(TIME) {
                let times = columns[i].as_primitive::<TimestampNanosecondType>();
                let moved: TimestampNanosecondArray = times.unary(|ns| ns.saturating_add(offset_ns));
                columns[i] = Arc::new(moved.with_timezone("UTC"));
            }
            batch(&output, columns, rows.num_rows())
        })
    })
}

/// `field_names` over counts of fields, as scans give them.
pub(super) fn sum_field_names(pipe: &Pipe, planned: Planned) -> Result<Planned> {
    let Pipe::FieldNames { name, filter } = pipe else { return Err(internal("no names to count")) };
    let output = field_names_shape(name);
    let open = names::sum_field_counts(output.clone(), filter.clone());
    once(planned, "LogsFieldNames", pipe.to_string(), output, open)
}

/// `facets` over counts of values, as scans give them too.
pub(super) fn add_facets(pipe: &Pipe, planned: Planned) -> Result<Planned> {
    let Pipe::Facets(of) = pipe else { return Err(internal("no values to count")) };
    once(planned, "LogsFacets", pipe.to_string(), facets::shape(), facets::facets(of.clone()))
}

fn field_names_shape(name: &str) -> Shape {
    Shape::of_texts([name, if name == "hits" { "hitss" } else { "hits" }], false)
}

/// Rows that do not come from the store.
pub(super) fn own_rows(pipe: &Pipe) -> Result<Planned> {
    let (name, detail, (output, open)) = match pipe {
        Pipe::GenerateSequence(count) => ("LogsSequence", count.to_string(), sequence(*count)),
        Pipe::Rows(rows) => ("LogsRows", rows.len().to_string(), written_rows(rows)?),
        _ => return Err(internal("a pipe without rows of its own")),
    };
    let operator = Streamed { name, detail, output: output.clone(), once: true, open };
    let nothing = LogicalPlan::EmptyRelation(EmptyRelation {
        produce_one_row: false,
        schema: Arc::new(datafusion::common::DFSchema::empty()),
    });
    let plan = operator_plan(operator, vec![nothing])?;
    Ok(Planned { plan, shape: output, time: (i64::MIN, i64::MAX) })
}

/// Rows that stand in the query.
fn written_rows(rows: &[Vec<(String, String)>]) -> Result<(Shape, Open)> {
    let names: BTreeSet<&str> = rows.iter().flatten().map(|(name, _)| name.as_str()).collect();
    let shape = Shape::of_texts(names.iter().copied(), false);
    let column = |name: &&str| {
        let mut builder = StringViewBuilder::with_capacity(rows.len());
        for row in rows {
            let value = row.iter().rev().find(|(own, _)| own == name).map_or("", |(_, value)| value);
            push_text(&mut builder, value);
        }
        Arc::new(builder.finish()) as ArrayRef
    };
    let made = batch(&shape, names.iter().map(column).collect(), rows.len()).map_err(from_datafusion)?;
    Ok((shape, Arc::new(move |_, _| futures::stream::iter([Ok(made.clone())]).boxed())))
}

/// `_msg` counts from 0.
fn sequence(count: u64) -> (Shape, Open) {
    let output = Shape::of_texts([MSG], false);
    let shape = output.clone();
    let open: Open = Arc::new(move |_, _| {
        let shape = shape.clone();
        const ROWS: u64 = 8192;
        let starts = (0..count.div_ceil(ROWS)).map(move |i| i * ROWS);
        futures::stream::iter(starts)
            .map(move |start| {
                let end = count.min(start + ROWS);
                let mut builder = StringViewBuilder::with_capacity((end - start) as usize);
                (start..end).for_each(|n| builder.append_value(n.to_string()));
                batch(&shape, vec![Arc::new(builder.finish()) as ArrayRef], (end - start) as usize)
            })
            .then(|batch| async move {
                // Nothing here ever waits, and who ends the query must get a word in.
                tokio::task::yield_now().await;
                batch
            })
            .boxed()
    });
    (output, open)
}

impl Planner<'_> {
    /// Adds a pipe; `needs` is what is needed of its rows.
    pub(super) fn pipe(&self, pipe: &Pipe, planned: Planned, needs: &Needs, scope: TimeScope) -> Result<Planned> {
        let text = pipe.to_string();
        match pipe {
            Pipe::Fields(patterns) => {
                let output = project::fields_shape(&planned.shape, patterns);
                let patterns = patterns.clone();
                each(planned, "LogsFields", text, output, move |input, output| {
                    let patterns = patterns.clone();
                    project::keep(input, output, move |name| patterns.iter().any(|pattern| pattern.matches(name)))
                })
            }
            Pipe::Delete(patterns) => {
                let output = project::delete_shape(&planned.shape, patterns);
                let patterns = patterns.clone();
                each(planned, "LogsDelete", text, output, move |input, output| {
                    let patterns = patterns.clone();
                    project::keep(input, output, move |name| !patterns.iter().any(|pattern| pattern.matches(name)))
                })
            }
            Pipe::Copy(pairs) | Pipe::Rename(pairs) => {
                let rename = matches!(pipe, Pipe::Rename(_));
                let output = project::pairs_shape(&planned.shape, pairs, rename);
                let pairs = pairs.clone();
                values(planned, "LogsRename", text, output, move |input, output| {
                    project::copy(pairs.clone(), rename, input, output)
                })
            }
            Pipe::Filter(condition) => {
                let (condition, shape) = (lower(condition, scope)?, planned.shape.clone());
                each(planned, "LogsFilter", text, shape, move |input, _| filter::keep(condition.clone(), input))
            }
            Pipe::Sort(by) => sort_rows(by, planned),
            Pipe::Limit(n) => window(planned, 0, Some(*n)),
            Pipe::Offset(n) => window(planned, *n, None),
            Pipe::Uniq(uniq) => uniq_rows(uniq, planned, text),
            Pipe::Top(top) => top_rows(top, planned, text),
            Pipe::FieldValues { field, limit, filter } => {
                let hits = if field == "hits" { "hitss" } else { "hits" };
                let by = vec![field.clone()];
                let uniq = Uniq { by, hits: Some(hits.to_owned()), limit: *limit, filter: filter.clone() };
                uniq_rows(&uniq, planned, text)
            }
            Pipe::FieldNames { name, filter } => {
                let output = field_names_shape(name);
                let open = names::field_names(planned.shape.clone(), output.clone(), filter.clone());
                once(planned, "LogsFieldNames", text, output, open)
            }
            Pipe::Facets(of) => {
                let (limits, detail) = (facets::limits(of), planned.shape.to_string());
                let (output, open) = (facets::counts_shape(), facets::count(limits, planned.shape.clone()));
                let counted = Streamed { name: "LogsValueCounts", detail, output, once: false, open };
                add_facets(pipe, streamed(planned, counted)?)
            }
            Pipe::Stats(of) => {
                let planned = with_columns(planned, &stats::named(of))?;
                let (min, max) = planned.time;
                let bounded = min != i64::MIN && max != i64::MAX && min <= max;
                let seconds = bounded.then(|| (max as f64 - min as f64 + 1.0) / 1e9);
                group(stats::aggregate(of, planned.shape.clone(), scope, seconds)?, planned)
            }
            Pipe::WindowStats { running, by, calls } => {
                let output = planned.shape.with_texts(calls.iter().map(|call| call.name.as_str()));
                let (input, out) = (planned.shape.clone(), output.clone());
                let open = window::window(*running, by.clone(), calls.clone(), input, out);
                once(planned, "LogsWindowStats", text, output, open)
            }
            Pipe::Join(of) => self.join(of, planned, needs),
            Pipe::Union(query) => self.union(query, planned, needs),
            Pipe::StreamContext(_) => Err(internal("`stream_context` is planned with the scan")),
            Pipe::Sample(n) => {
                let (n, seed, shape) = (*n, self.now_ns as u64, planned.shape.clone());
                each(planned, "LogsSample", text, shape, move |_, _| limit::sample(n, seed))
            }
            Pipe::GenerateSequence(_) | Pipe::Rows(_) => own_rows(pipe),
            Pipe::BlockStats => {
                let output = stream::block_stats_shape();
                each(planned, "LogsBlockStats", text, output, |input, output| stream::block_stats(input, output))
            }
            Pipe::BlocksCount(name) => {
                let output = Shape::of_texts([name.as_str()], false);
                let open = stream::blocks_count(output.clone());
                once(planned, "LogsBlocksCount", text, output, open)
            }
            Pipe::QueryStats => {
                let output = stream::query_stats_shape(&self.ctx.stats);
                let open = stream::query_stats(Arc::clone(&self.ctx.stats), output.clone());
                once(planned, "LogsQueryStats", text, output, open)
            }
            Pipe::SetStreamFields { fields, condition } => {
                let output = planned.shape.with_texts([STREAM, STREAM_ID]);
                let condition = condition.as_ref().map(|filter| lower(filter, scope)).transpose()?;
                let fields = fields.clone();
                each(planned, "LogsSetStream", text, output, move |input, output| {
                    stream::set_stream_fields(fields.clone(), condition.clone(), input, output)
                })
            }
            Pipe::Row { pipe, condition } => self.row(pipe, condition.as_ref(), planned, needs, scope, text),
        }
    }

    fn row(
        &self,
        pipe: &RowPipe,
        condition: Option<&Filter>,
        planned: Planned,
        needs: &Needs,
        scope: TimeScope,
        text: String,
    ) -> Result<Planned> {
        let condition = condition.map(|filter| lower(filter, scope)).transpose()?;
        if let Some(made) = row::cells(pipe, condition.clone(), self.now_ns)? {
            if !made.targets.iter().any(|name| needs.has(name)) {
                return Ok(planned);
            }
            let output = planned.shape.with_texts(made.targets.iter().map(String::as_str));
            return values(planned, "LogsRowPipe", text, output, move |input, output| made.map(input, output));
        }
        let shape = planned.shape.clone();
        match pipe {
            RowPipe::UnpackJson(of) => unpack_field(Format::Json, of, condition, planned, needs, text),
            RowPipe::UnpackLogfmt(of) => unpack_field(Format::Logfmt, of, condition, planned, needs, text),
            RowPipe::UnpackSyslog { unpack, offset } => {
                let zone_ns = offset.as_ref().map_or(0, |offset| offset.value);
                let format = Format::Syslog(SyslogContext { now_ns: self.now_ns, zone_ns });
                unpack_field(format, unpack, condition, planned, needs, text)
            }
            RowPipe::PackJson { fields, to } | RowPipe::PackLogfmt { fields, to } => {
                let packing = if matches!(pipe, RowPipe::PackJson { .. }) { Packing::Json } else { Packing::Logfmt };
                let (fields, to) = (fields.clone(), to.clone());
                values(planned, "LogsPack", text, shape.with_texts([to.as_str()]), move |input, output| {
                    unpack::pack(packing, fields.clone(), to.clone(), input, output)
                })
            }
            RowPipe::Unroll(fields) => {
                let (output, fields) = (shape.with_texts(fields.iter().map(String::as_str)), fields.clone());
                values(planned, "LogsUnroll", text, output, move |input, output| {
                    unroll::unroll(fields.clone(), condition.clone(), input, output)
                })
            }
            RowPipe::Coalesce { fields, default, to } => {
                let (fields, default, to) = (fields.clone(), default.clone(), to.clone());
                each(planned, "LogsCoalesce", text, shape.with_texts([to.as_str()]), move |input, output| {
                    stream::coalesce(fields.clone(), default.clone(), to.clone(), input, output)
                })
            }
            RowPipe::DropEmptyFields => {
                each(planned, "LogsDropEmpty", text, shape, |input, _| unpack::drop_empty(input))
            }
            _ => Err(internal("a row pipe without a function")),
        }
    }

    fn join(&self, of: &crate::ast::pipe::Join, planned: Planned, needs: &Needs) -> Result<Planned> {
        let mut wanted = Needs::of(&of.by);
        if needs.open() {
            wanted.add_needs(&Needs::all());
        }
        wanted
            .names
            .extend(needs.names.iter().filter_map(|name| name.strip_prefix(of.prefix.as_str())).map(str::to_owned));
        let right = with_columns(self.query(&of.query, &wanted)?, &of.by)?;
        let left = with_columns(planned, &of.by)?;
        let operator = join::Join {
            left: left.shape.clone(),
            right: right.shape.clone(),
            by: of.by.clone(),
            inner: of.inner,
            prefix: of.prefix.clone(),
        };
        let shape = operator.output();
        Ok(Planned { plan: operator_plan(operator, vec![left.plan, right.plan])?, shape, time: left.time })
    }

    fn union(&self, query: &Query, planned: Planned, needs: &Needs) -> Result<Planned> {
        let other = self.query(query, needs)?;
        let mut shape = planned.shape.clone();
        shape.columns.extend(other.shape.columns.iter().filter(|c| planned.shape.index(&c.name).is_none()).cloned());
        shape.rest |= other.shape.rest;
        let same = |c: &Column| {
            [&planned.shape, &other.shape].iter().all(|s| s.index(&c.name).is_some_and(|i| s.columns[i].kind == c.kind))
        };
        let kinds: Vec<Kind> = shape.columns.iter().map(|c| if same(c) { c.kind } else { Kind::Text }).collect();
        shape.columns.iter_mut().zip(kinds).for_each(|(c, kind)| c.kind = kind);
        let time = planned.time;
        let inputs = [planned, other]
            .into_iter()
            .map(|side| {
                let align =
                    |input, output| -> BatchMap { Box::new(move |rows| cells::assemble(&rows, &input, &output, &[])) };
                Ok(each(side, "LogsAlign", String::new(), shape.clone(), align)?.plan)
            })
            .collect::<Result<Vec<_>>>()?;
        Ok(Planned { plan: operator_plan(Union(shape.clone()), inputs)?, shape, time })
    }
}

/// Unpacks a field into fields.
fn unpack_field(
    format: Format,
    of: &crate::ast::Unpack,
    condition: Option<quiver_types::logs::LogFilter>,
    planned: Planned,
    needs: &Needs,
    text: String,
) -> Result<Planned> {
    // What is needed behind by name has a column, also where the rows had no map so far.
    let made = needs.names.iter().filter(|name| name.starts_with(of.result_prefix.as_str()));
    let mut output = planned.shape.with_texts(made.map(String::as_str));
    output.columns.iter_mut().for_each(|column| column.kind = Kind::Text);
    output.rest |= needs.open();
    let of = of.clone();
    values(planned, "LogsUnpack", text, output, move |input, output| {
        unpack::unpack(format, of.clone(), condition.clone(), input, output)
    })
}

/// Sorts rows.
fn sort_rows(by: &Sort, planned: Planned) -> Result<Planned> {
    let reversed = by.descending != (by.form == SortForm::Last);
    let operator = sort::Sort {
        input: planned.shape.clone(),
        by: by.by.iter().map(|(name, descending)| (name.clone(), *descending != reversed)).collect(),
        offset: by.offset,
        limit: by.limit,
        partition_by: by.partition_by.clone(),
        rank: by.rank.clone(),
        descending: reversed,
        of_top: false,
    };
    sorted(operator, planned)
}

/// Keeps one row of each combination.
fn uniq_rows(uniq: &Uniq, planned: Planned, text: String) -> Result<Planned> {
    let planned = with_columns(planned, &uniq.by)?;
    let mut planned = containing(planned, &uniq.by, uniq.filter.as_deref())?;
    let keys = uniq.by.iter().map(|field| Key { field: field.clone(), bucket: None }).collect();
    let calls = uniq.hits.iter().map(|name| count_call(name)).collect();
    planned = group(Aggregate { input: planned.shape.clone(), keys, calls, text }, planned)?;
    match (uniq.limit, &uniq.hits) {
        (None, _) => Ok(planned),
        (Some(limit), None) => window(planned, 0, Some(limit)),
        (Some(limit), Some(hits)) => {
            let shape = planned.shape.clone();
            let open = stream::limit_hits(limit, hits.clone(), shape.clone());
            once(planned, "LogsLimitHits", limit.to_string(), shape, open)
        }
    }
}

/// Keeps the most frequent combinations.
fn top_rows(top: &Top, planned: Planned, text: String) -> Result<Planned> {
    let planned = with_columns(planned, &top.by)?;
    let keys = top.by.iter().map(|field| Key { field: field.clone(), bucket: None }).collect();
    let calls = vec![count_call(&top.hits)];
    let planned = group(Aggregate { input: planned.shape.clone(), keys, calls, text }, planned)?;
    let by = std::iter::once((top.hits.clone(), true)).chain(top.by.iter().map(|name| (name.clone(), false)));
    let operator = sort::Sort {
        input: planned.shape.clone(),
        by: by.collect(),
        offset: 0,
        limit: Some(top.limit),
        partition_by: Vec::new(),
        rank: top.rank.clone(),
        descending: false,
        of_top: true,
    };
    sorted(operator, planned)
}

/// All rows of some plans.
#[derive(Debug)]
struct Union(Shape);

impl Operator for Union {
    fn name(&self) -> &'static str {
        "LogsUnion"
    }

    fn detail(&self) -> String {
        String::new()
    }

    fn schema(&self) -> SchemaRef {
        self.0.schema()
    }

    fn physical(
        self: Arc<Self>,
        inputs: Vec<Arc<dyn ExecutionPlan>>,
        _: &dyn Session,
    ) -> datafusion::error::Result<Arc<dyn ExecutionPlan>> {
        UnionExec::try_new(inputs)
    }
}

fn count_call(name: &str) -> Call {
    Call { function: Function::CountRows, args: Vec::new(), condition: None, name: name.to_owned() }
}

fn group(operator: Aggregate, planned: Planned) -> Result<Planned> {
    let shape = operator.output();
    Ok(Planned { plan: operator_plan(operator, vec![planned.plan])?, shape, ..planned })
}

fn sorted(operator: sort::Sort, planned: Planned) -> Result<Planned> {
    let shape = operator.output();
    Ok(Planned { plan: operator_plan(operator, vec![planned.plan])?, shape, ..planned })
}

/// Gives columns to fields that have none yet.
fn with_columns(planned: Planned, names: &[String]) -> Result<Planned> {
    let missing: Vec<&str> =
        names.iter().map(String::as_str).filter(|name| planned.shape.index(name).is_none()).collect();
    if missing.is_empty() {
        return Ok(planned);
    }
    let output = planned.shape.with_texts(missing);
    each(planned, "LogsColumns", String::new(), output, |input, output| {
        Box::new(move |rows| cells::assemble(&rows, &input, &output, &[]))
    })
}

/// Keeps rows of which one of the fields holds a text.
fn containing(planned: Planned, fields: &[String], text: Option<&str>) -> Result<Planned> {
    let Some(text) = text else { return Ok(planned) };
    let any = fields
        .iter()
        .map(|name| Filter::Field { field: FieldPattern::Name(name.clone()), test: Test::Substring(text.to_owned()) });
    let condition = lower(&Filter::Or(any.collect()), TimeScope { now_ns: 0, offset_ns: 0 })?;
    let shape = planned.shape.clone();
    each(planned, "LogsFilter", text.to_owned(), shape, move |input, _| filter::keep(condition.clone(), input))
}
