//! Responses of `load`: rows in three formats, annotations, totals (`olap-api.md` 6).

use std::collections::HashMap;

use arrow::array::{ArrayRef, RecordBatch};
use arrow::compute::concat_batches;
use serde_json::{Value, json};

use crate::engine::ResultSet;
use crate::error::OlapResult;
use crate::metadata::annotation;
use crate::model::MemberId;
use crate::model::catalog::{Catalog, MemberKind};
use crate::plan::exemplars::COLUMNS;
use crate::plan::json_values::cells;
use crate::query::request::Request;
use crate::query::{Format, Query};

/// What every response contains.
#[derive(Debug, Clone)]
pub struct Frame<'a> {
    /// Titles, types and formats of members are taken from it for the annotations.
    pub catalog: &'a Catalog,
    /// Time of the snapshot: RFC 3339.
    pub refreshed: String,
    /// Id of the HTTP request; empty outside of one.
    pub request_id: String,
    /// Whether an older result is given.
    pub slow: bool,
}

/// Columns of an answer with their cells.
struct Table {
    members: Vec<String>,
    columns: Vec<Vec<Value>>,
}

impl Frame<'_> {
    /// Writes a whole answer.
    ///
    /// # Errors
    /// Values that cannot be shown.
    pub fn load(&self, request: &Request, sets: &[ResultSet], is_multi: bool) -> OlapResult<Value> {
        self.answer(request, sets, is_multi, false)
    }

    /// The same with the rows of the default format in columns, for whoever writes them by [`packed_columns`]: to make an
    /// object of each row takes longer than to write it.
    ///
    /// # Errors
    /// Values that cannot be shown.
    pub fn packed(&self, request: &Request, sets: &[ResultSet], is_multi: bool) -> OlapResult<Value> {
        self.answer(request, sets, is_multi, true)
    }

    fn answer(&self, request: &Request, sets: &[ResultSet], is_multi: bool, packed: bool) -> OlapResult<Value> {
        let results = request.queries.iter().zip(sets).map(|(query, set)| self.one(request, query, set, packed));
        let mut results = results.collect::<OlapResult<Vec<_>>>()?;
        if !is_multi {
            let mut one = results.remove(0);
            one["slowQuery"] = self.slow.into();
            return Ok(one);
        }
        // What stands within `json!` is copied.
        let mut all = json!({
            "queryType": request.query_type.word(),
            "pivotQuery": request.pivot_query(),
            "slowQuery": self.slow,
        });
        all["results"] = results.into();
        Ok(all)
    }

    /// Writes some rows of the one query of a request as objects, for forms that give them batch by batch.
    ///
    /// # Errors
    /// Values that cannot be shown.
    pub fn rows(&self, request: &Request, columns: &[String], batch: &RecordBatch) -> OlapResult<Vec<Value>> {
        Ok(objects(self.table(request, &request.queries[0], columns, batch)?))
    }

    fn one(&self, request: &Request, query: &Query, set: &ResultSet, packed: bool) -> OlapResult<Value> {
        let mut table = self.table(request, query, &set.columns, &whole(set)?)?;
        if let Some(exemplars) = &set.exemplars {
            let column = self.exemplars(query, &table, exemplars)?;
            table.members.push("_exemplars".to_owned());
            table.columns.push(column);
        }
        let data = match query.format.unwrap_or(Format::Default) {
            Format::Default if packed => named("columns", table.members, table.columns),
            format => data(table, format),
        };
        let mut out = json!({
            "query": query.to_json(),
            "annotation": annotation(self.catalog, query, &set.schema),
            "lastRefreshTime": self.refreshed,
            "dataSource": "default",
            "dbType": "datafusion",
            "extDbType": "datafusion",
            "external": false,
            "slowQuery": self.slow,
            "requestId": self.request_id,
        });
        out["data"] = data;
        if let Some(total) = set.total {
            out["total"] = total.into();
        }
        if let Some(used) = &set.used {
            out["usedPreAggregations"] = used.to_json();
        }
        Ok(out)
    }

    /// Rows with all that an answer shows beside their own columns.
    fn table(&self, request: &Request, query: &Query, columns: &[String], all: &RecordBatch) -> OlapResult<Table> {
        let mut table = Table { members: Vec::new(), columns: Vec::new() };
        for (name, column) in columns.iter().zip(all.columns()) {
            table.columns.push(self.column(query, name, column)?);
            table.members.push(name.clone());
        }
        // The finest bucket stands for the plain time, unless that is asked for itself.
        let mut times: Vec<&MemberId> = Vec::new();
        for time in query.times.iter().filter(|t| t.granularity.is_some()) {
            if !times.contains(&&time.member) && !query.dimensions.contains(&time.member) {
                times.push(&time.member);
            }
        }
        for member in times {
            let buckets = query.times.iter().filter(|t| t.member == *member && t.granularity.is_some());
            let finest = buckets.min_by_key(|t| t.granularity.as_ref().map_or(i64::MAX, |g| g.buckets.about_ns()));
            let column = finest
                .and_then(crate::query::TimeEntry::column)
                .and_then(|c| table.members.iter().position(|m| *m == c));
            if let Some(at) = column {
                table.members.push(member.to_string());
                table.columns.push(table.columns[at].clone());
            }
        }
        if let Some((name, value)) = request.extra_column(query) {
            let column = if let Some(text) = value {
                vec![Value::from(text); all.num_rows()]
            } else {
                let first = query.times.iter().find_map(crate::query::TimeEntry::column);
                let at = first.and_then(|c| table.members.iter().position(|m| *m == c));
                at.map(|at| table.columns[at].clone()).unwrap_or_default()
            };
            table.members.push(name);
            table.columns.push(column);
        }
        Ok(table)
    }

    /// The exemplars of each row: those whose groups are the row's.
    fn exemplars(&self, query: &Query, table: &Table, set: &ResultSet) -> OlapResult<Vec<Value>> {
        let all = whole(set)?;
        let groups = set.columns.len() - COLUMNS.len();
        let named = set.columns.iter().zip(all.columns());
        let written = |(name, column): (&String, &ArrayRef)| match name.as_str() {
            "time" => cells(column, query.tz),
            name => self.column(query, name, column),
        };
        let cells = named.map(written).collect::<OlapResult<Vec<_>>>()?;
        let mut of: HashMap<String, Vec<Value>> = HashMap::new();
        for row in 0..all.num_rows() {
            let key: Vec<&Value> = cells[..groups].iter().map(|column| &column[row]).collect();
            let own =
                COLUMNS.iter().zip(&cells[groups..]).map(|(name, column)| ((*name).to_owned(), column[row].clone()));
            of.entry(json!(key).to_string()).or_default().push(Value::Object(own.collect()));
        }
        let columns: Vec<&Vec<Value>> = set.columns[..groups]
            .iter()
            .filter_map(|name| table.members.iter().position(|member| member == name))
            .map(|at| &table.columns[at])
            .collect();
        let rows = table.columns.first().map_or(0, Vec::len);
        let key = |row: usize| json!(columns.iter().map(|column| &column[row]).collect::<Vec<_>>()).to_string();
        Ok((0..rows).map(|row| of.get(&key(row)).cloned().unwrap_or_default().into()).collect())
    }

    fn column(&self, query: &Query, name: &str, column: &ArrayRef) -> OlapResult<Vec<Value>> {
        let found = MemberId::parse(name).and_then(|id| self.catalog.find(&id));
        // Measures that are times are rendered in UTC, unless the model says that they follow the zone.
        let local = |f: &crate::model::catalog::ResolvedMember<'_>| {
            matches!(f.kind, MemberKind::Measure(_)) && f.common().meta.as_ref().is_some_and(|m| m["localTime"] == true)
        };
        let zone = if found.is_some_and(|f| local(&f)) { query.tz } else { chrono_tz::Tz::UTC };
        cells(column, zone)
    }
}

/// All rows as one batch.
fn whole(set: &ResultSet) -> OlapResult<RecordBatch> {
    concat_batches(&set.schema, &set.batches)
        .map_err(|e| crate::OlapError::from(datafusion::error::DataFusionError::from(e)))
}

/// An object for each row.
fn objects(table: Table) -> Vec<Value> {
    let rows = table.columns.first().map_or(0, Vec::len);
    let members = table.members;
    let row = |cells: Vec<Value>| Value::Object(members.iter().cloned().zip(cells).collect());
    lists(table.columns, rows).into_iter().map(row).collect()
}

fn data(table: Table, format: Format) -> Value {
    let rows = table.columns.first().map_or(0, Vec::len);
    match format {
        Format::Default => objects(table).into(),
        Format::Columnar if rows == 0 => json!({"members": [], "columns": []}),
        Format::Compact if rows == 0 => json!({"members": [], "dataset": []}),
        Format::Columnar => named("columns", table.members, table.columns),
        Format::Compact => named("dataset", table.members, lists(table.columns, rows)),
    }
}

/// Members, and lists of cells under a name.
fn named(name: &str, members: Vec<String>, cells: Vec<Vec<Value>>) -> Value {
    let of = [("members".to_owned(), members.into()), (name.to_owned(), cells.into())];
    Value::Object(of.into_iter().collect())
}

/// A column of a result: the name of its member, its cells.
pub type PackedColumn<'a> = (&'a str, &'a [Value]);

/// The columns of one result of [`Frame::packed`] in the order in which objects have them; none: they are not packed.
pub fn packed_columns(result: &Value) -> Option<Vec<PackedColumn<'_>>> {
    let format = result["query"].get("responseFormat").and_then(Value::as_str);
    if format.is_some_and(|format| format != Format::Default.word()) {
        return None;
    }
    let (members, columns) = (result["data"].get("members")?.as_array()?, result["data"].get("columns")?.as_array()?);
    let named = members.iter().zip(columns);
    let named = named.map(|(name, cells)| Some((name.as_str()?, cells.as_array()?.as_slice())));
    let mut columns = named.collect::<Option<Vec<PackedColumn<'_>>>>()?;
    columns.sort_by_key(|(name, _)| *name);
    Some(columns)
}

/// Columns to rows.
fn lists(columns: Vec<Vec<Value>>, rows: usize) -> Vec<Vec<Value>> {
    let mut columns: Vec<_> = columns.into_iter().map(Vec::into_iter).collect();
    (0..rows).map(|_| columns.iter_mut().filter_map(Iterator::next).collect()).collect()
}

/// What `dry-run` says of a request: nothing is executed.
pub fn dry_run(request: &Request) -> Value {
    let first = &request.queries[0];
    let order = first.effective_order();
    let order = order.iter().map(|k| json!({k.id.clone(): if k.descends { "desc" } else { "asc" }}));
    json!({
        "queryType": request.query_type.word(),
        "normalizedQueries": request.queries.iter().map(Query::to_json).collect::<Vec<_>>(),
        "queryOrder": order.collect::<Vec<_>>(),
        "transformedQueries": request.queries.iter().map(Query::to_json).collect::<Vec<_>>(),
        "pivotQuery": request.pivot_query(),
    })
}
