//! Marks expressions whose value is JSON because the values they choose from are (`coalesce`, `CASE`), and lists of
//! JSON. What the text of a statement shows to be JSON is marked before planning; for columns only the types in the
//! plan tell. Operators between values that are now known to be JSON become operators on JSON.

use std::iter::repeat_n;
use std::sync::Arc;

use arrow::datatypes::{Field, Schema};
use datafusion::catalog::cte_worktable::CteWorkTable;
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TreeNodeRecursion};
use datafusion::common::{Column, DFSchema, Result, ScalarValue, TableReference};
use datafusion::datasource::provider_as_source;
use datafusion::logical_expr::utils::merge_schema;
use datafusion::logical_expr::{
    BinaryExpr, Expr, ExprSchemable as _, LogicalPlan, LogicalPlanBuilder, RecursiveQuery, ScalarUDF, TableScan,
    TableScanBuilder, cast,
};
use datafusion::optimizer::AnalyzerRule;

use super::document_operators::{DocumentOperators, operation};
use crate::functions::{Room, is_document, is_json, is_json_list, of_documents, untyped_literal};
use crate::plan_walk::{any_expression, change_expressions, change_nodes};

/// The function that gathers values in a list.
const GATHERING: &str = "array_agg";
/// Aggregates that give one of their values, and do not say that it is a document: `(array_agg(x))[2]` is `nth_value`.
const PICKING: [&str; 3] = ["mode", "mode_last", "nth_value"];
/// The functions that mark a document, and a list of some.
const KNOWN: &str = "json_known";
const KNOWN_LIST: &str = "json_known_list";
/// Functions that give documents to those that put them together, within what one call of a statement stands for.
const PIECES: [&str; 3] = ["json_outer_row", "json_row", "to_json"];
/// Functions whose lists have items of their first argument alone.
const PARTS: [&str; 6] =
    ["array_distinct", "array_remove_all", "array_reverse", "array_slice", "array_sort", "or_empty"];
/// Functions whose lists have items of all arguments, which are lists and items.
const JOINED: [&str; 4] = ["array_append", "array_concat", "array_prepend", "array_replace_all"];

/// What a value is marked as.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mark {
    Document,
    List,
}

impl Mark {
    fn of_field(field: &Field) -> Option<Self> {
        if is_json(field) { Some(Self::Document) } else { is_json_list(field).then_some(Self::List) }
    }
}

/// The rule. It precedes type coercion, after whose casts types no longer tell.
#[derive(Debug)]
pub(crate) struct Documents {
    known: Arc<ScalarUDF>,
    listed: Arc<ScalarUDF>,
    operators: DocumentOperators,
}

impl Documents {
    /// Makes the rule; its functions take memory from `room`.
    pub(crate) fn new(room: &Room) -> Self {
        let of = |name: &str| of_documents(name, room).expect("a function of ours");
        Self { known: of(KNOWN), listed: of(KNOWN_LIST), operators: DocumentOperators::new(room) }
    }

    /// A value with its mark.
    fn marked_as(&self, mark: Mark, value: Expr) -> Expr {
        match mark {
            Mark::Document => self.known.call(vec![value]),
            Mark::List => self.listed.call(vec![value]),
        }
    }

    /// An expression, marked if it is a document or a list of some, and with the operator that it has between documents.
    fn marked(&self, expr: Expr, schema: &DFSchema) -> Transformed<Expr> {
        match expr {
            // It has been marked twice: by the statement, and as what is in it.
            Expr::ScalarFunction(mut call) if call.func.name() == KNOWN => match call.args.pop() {
                Some(inner) if is_call(&inner, KNOWN) => Transformed::yes(inner),
                inner => {
                    call.args.extend(inner);
                    Transformed::no(Expr::ScalarFunction(call))
                }
            },
            Expr::BinaryExpr(BinaryExpr { left, op, right }) => match operation(op, &left, &right, schema) {
                Some(operation) => Transformed::yes(self.operators.applied(operation, *left, *right)),
                None => Transformed::no(Expr::BinaryExpr(BinaryExpr { left, op, right })),
            },
            other => match made(&other, schema) {
                Some(mark) => Transformed::yes(self.marked_as(mark, other)),
                None => Transformed::no(other),
            },
        }
    }

    /// A node whose columns are marked that are documents, or lists of some: no expression of its own can say so.
    fn with_marked_columns(&self, node: LogicalPlan) -> Result<Transformed<LogicalPlan>> {
        let marks = made_by_node(&node);
        self.with_marks(node, &marks)
    }

    /// A node whose columns have marks; no marks at all: none has.
    fn with_marks(&self, node: LogicalPlan, marks: &[Option<Mark>]) -> Result<Transformed<LogicalPlan>> {
        if marks.iter().all(Option::is_none) {
            return Ok(Transformed::no(node));
        }
        let columns = node.schema().iter().zip(marks).map(|((table, field), mark)| {
            let column = Expr::Column(Column::new(table.cloned(), field.name()));
            match mark {
                Some(mark) => self.marked_as(*mark, column).alias_qualified(table.cloned(), field.name()),
                None => column,
            }
        });
        let columns: Vec<Expr> = columns.collect();
        LogicalPlanBuilder::from(node).project(columns)?.build().map(Transformed::yes)
    }

    /// A common table that reads itself, whose terms say the same of their columns, as they must: the planner casts one to the
    /// types of the first rows, and casts do not say what they give.
    fn with_equal_terms(&self, query: RecursiveQuery) -> Result<Transformed<LogicalPlan>> {
        let RecursiveQuery { name, static_term, recursive_term, is_distinct, schema } = query;
        let (first, next) = (marks_of(&static_term), marks_of(&recursive_term));
        let all: Vec<Option<Mark>> = first.iter().zip(&next).map(|(first, next)| first.or(*next)).collect();
        if all.iter().all(Option::is_none) {
            let same = RecursiveQuery { name, static_term, recursive_term, is_distinct, schema };
            return Ok(Transformed::no(LogicalPlan::RecursiveQuery(same)));
        }
        let lacking = |own: &[Option<Mark>]| -> Vec<Option<Mark>> {
            all.iter().zip(own).map(|(mark, own)| mark.filter(|_| own.is_none())).collect()
        };
        let first = self.with_marks(Arc::unwrap_or_clone(static_term), &lacking(&first))?.data;
        let (term, is_other) = reading(Arc::unwrap_or_clone(recursive_term), &name, first.schema())?;
        let term = if is_other { self.with_documents(term, true)? } else { term };
        let term = self.as_first(term, first.schema(), &all)?;
        let query = RecursiveQuery::try_new(name, Arc::new(first), Arc::new(term), is_distinct)?;
        Ok(Transformed::yes(LogicalPlan::RecursiveQuery(query)))
    }

    /// A term whose documents have the types and the marks of those in the first rows.
    fn as_first(&self, term: LogicalPlan, first: &DFSchema, all: &[Option<Mark>]) -> Result<LogicalPlan> {
        let mut is_other = false;
        let columns = term.schema().iter().enumerate().map(|(at, (table, field))| {
            let column = Expr::Column(Column::new(table.cloned(), field.name()));
            let (kind, mark) = (first.field(at).data_type(), all.get(at).copied().flatten());
            let is_same = field.data_type() == kind;
            let Some(mark) = mark.filter(|_| !is_same || Mark::of_field(field).is_none()) else { return column };
            is_other = true;
            let value = if is_same { column } else { cast(column, kind.clone()) };
            self.marked_as(mark, value).alias_qualified(table.cloned(), field.name())
        });
        let columns: Vec<Expr> = columns.collect();
        if is_other { LogicalPlanBuilder::from(term).project(columns)?.build() } else { Ok(term) }
    }

    /// A plan with its documents marked; `is_any`: types of columns have changed in it.
    fn with_documents(&self, plan: LogicalPlan, mut is_any: bool) -> Result<LogicalPlan> {
        change_nodes(plan, &mut |node| {
            let changed = if any_expression(&node, &may_be)? {
                let schema = merge_schema(&node.inputs());
                change_expressions(node, &mut |expr| Ok(self.marked(expr, &schema)))?
            } else {
                Transformed::no(node)
            };
            is_any |= changed.transformed;
            // What is above tells from the types of the columns below.
            let node = if is_any { changed.data.recompute_schema()? } else { changed.data };
            let with_marks = match node {
                LogicalPlan::RecursiveQuery(query) => self.with_equal_terms(query)?,
                node => self.with_marked_columns(node)?,
            };
            is_any |= with_marks.transformed;
            Ok(Transformed::new_transformed(with_marks.data, is_any))
        })
    }
}

impl AnalyzerRule for Documents {
    fn name(&self) -> &'static str {
        "documents"
    }

    fn analyze(&self, plan: LogicalPlan, _: &ConfigOptions) -> Result<LogicalPlan> {
        if !has_documents(&plan)? {
            return Ok(plan);
        }
        self.with_documents(plan, false)
    }
}

/// Whether a plan has documents.
fn has_documents(plan: &LogicalPlan) -> Result<bool> {
    let makes = |expr: &Expr| matches!(expr, Expr::ScalarFunction(call) if call.func.name().starts_with("json"));
    let mut has_any = false;
    plan.apply_with_subqueries(|node| {
        has_any = node.schema().fields().iter().any(|field| is_json(field)) || any_expression(node, &makes)?;
        Ok(if has_any { TreeNodeRecursion::Stop } else { TreeNodeRecursion::Continue })
    })?;
    Ok(has_any)
}

/// What the types of the columns of a node say that they are.
fn marks_of(node: &LogicalPlan) -> Vec<Option<Mark>> {
    node.schema().fields().iter().map(|field| Mark::of_field(field)).collect()
}

/// The term of a common table that reads itself, for which the rows before say of their columns what the first rows do; and
/// whether they said something else.
fn reading(term: LogicalPlan, name: &str, first: &DFSchema) -> Result<(LogicalPlan, bool)> {
    let mut is_other = false;
    let table = TableReference::from(name);
    let term = change_nodes(term, &mut |node| match node {
        LogicalPlan::TableScan(scan) if scan.table_name == table => {
            let own = scan.source.schema();
            let told = own.fields().iter().zip(first.fields());
            let told = told.map(|(own, first)| Field::clone(own).with_metadata(first.metadata().clone()));
            let schema = Arc::new(Schema::new_with_metadata(told.collect::<Vec<Field>>(), own.metadata().clone()));
            if schema == own {
                return Ok(Transformed::no(LogicalPlan::TableScan(scan)));
            }
            is_other = true;
            let TableScan { table_name, projection, filters, fetch, .. } = scan;
            let source = provider_as_source(Arc::new(CteWorkTable::new(name, schema)));
            let scan = TableScanBuilder::new(table_name, source).with_projection(projection);
            let scan = scan.with_filters(filters).with_fetch(fetch).build()?;
            Ok(Transformed::yes(LogicalPlan::TableScan(scan)))
        }
        node => Ok(Transformed::no(node)),
    })?;
    Ok((term, is_other))
}

fn is_call(value: &Expr, name: &str) -> bool {
    matches!(value, Expr::ScalarFunction(call) if call.func.name() == name)
}

/// Whether an expression may be changed.
fn may_be(expr: &Expr) -> bool {
    matches!(expr, Expr::BinaryExpr(_) | Expr::Case(_) | Expr::ScalarFunction(_) | Expr::ScalarSubquery(_))
}

/// What the type of a value says that it is.
fn shown(value: &Expr, schema: &DFSchema) -> Option<Mark> {
    // What is in a mark is not looked at, since chains of calls may be long.
    if is_call(value, KNOWN) {
        return Some(Mark::Document);
    }
    if is_call(value, KNOWN_LIST) {
        return Some(Mark::List);
    }
    value.to_field(schema).ok().and_then(|(_, field)| Mark::of_field(&field))
}

/// Whether a value takes the type of those beside it, and would be a document, or an empty list.
fn is_open(value: &Expr) -> bool {
    match value {
        Expr::Literal(value, _) if value.is_null() => true,
        Expr::Literal(
            ScalarValue::Utf8(Some(text)) | ScalarValue::Utf8View(Some(text)) | ScalarValue::LargeUtf8(Some(text)),
            _,
        ) => is_document(text),
        Expr::ScalarFunction(call) if call.func.name() == untyped_literal::NAME => call.args.iter().all(is_open),
        Expr::Cast(cast) => is_empty_list(&cast.expr),
        other => is_empty_list(other),
    }
}

fn is_empty_list(value: &Expr) -> bool {
    matches!(value, Expr::ScalarFunction(call) if call.func.name() == "make_array" && call.args.is_empty())
}

/// What all of several values are: one shows it, and the others do, or may be it.
fn are_all<'v>(values: impl IntoIterator<Item = &'v Expr>, schema: &DFSchema) -> Option<Mark> {
    let mut all: Option<Mark> = None;
    for value in values {
        match shown(value, schema) {
            Some(mark) if all.is_none_or(|all| all == mark) => all = Some(mark),
            None if is_open(value) => {}
            _ => return None,
        }
    }
    all
}

/// What an expression makes of documents and of lists of them.
fn made(value: &Expr, schema: &DFSchema) -> Option<Mark> {
    match value {
        Expr::Case(case) => {
            let results = case.when_then_expr.iter().map(|(_, then)| &**then);
            are_all(results.chain(case.else_expr.as_deref()), schema)
        }
        // What reads its value no longer sees its type once the query is planned.
        Expr::ScalarSubquery(_) => shown(value, schema),
        Expr::ScalarFunction(call) => made_by_call(call.func.name(), &call.args, schema),
        _ => None,
    }
}

fn made_by_call(name: &str, args: &[Expr], schema: &DFSchema) -> Option<Mark> {
    let first = || args.first().and_then(|value| shown(value, schema));
    match name {
        "coalesce" | "greatest" | "least" => are_all(args, schema),
        "nullif" => first(),
        "array_element" => (first() == Some(Mark::List)).then_some(Mark::Document),
        "make_array" => (are_all(args, schema) == Some(Mark::Document)).then_some(Mark::List),
        name if PARTS.contains(&name) => first().filter(|mark| *mark == Mark::List),
        name if JOINED.contains(&name) => are_joined(args, schema).then_some(Mark::List),
        _ => None,
    }
}

/// Whether one of several lists and items shows documents, and the others do, or may be some.
fn are_joined(values: &[Expr], schema: &DFSchema) -> bool {
    let mut is_any = false;
    for value in values {
        let is_shown = shown(value, schema).is_some();
        if !is_shown && !is_open(value) {
            return false;
        }
        is_any |= is_shown;
    }
    is_any
}

/// What the columns of a node are that it makes of documents, and whose types do not say so; empty: it makes none.
fn made_by_node(node: &LogicalPlan) -> Vec<Option<Mark>> {
    match node {
        LogicalPlan::Aggregate(aggregate) => {
            let schema = aggregate.input.schema();
            let keys = node.schema().fields().len() - aggregate.aggr_expr.len();
            repeat_n(None, keys).chain(aggregate.aggr_expr.iter().map(|value| gathered(value, schema))).collect()
        }
        LogicalPlan::Window(window) => {
            let schema = window.input.schema();
            let kept = repeat_n(None, schema.fields().len());
            kept.chain(window.window_expr.iter().map(|value| gathered(value, schema))).collect()
        }
        LogicalPlan::Unnest(unnest) => {
            let fields = unnest.input.schema().fields();
            let item_of = |at: &usize| {
                let is_item = unnest.list_type_columns.iter().any(|(list, column)| list == at && column.depth == 1);
                (is_item && fields.get(*at).is_some_and(|list| is_json_list(list))).then_some(Mark::Document)
            };
            unnest.dependency_indices.iter().map(item_of).collect()
        }
        _ => Vec::new(),
    }
}

/// What an aggregate makes of documents.
fn gathered(value: &Expr, schema: &DFSchema) -> Option<Mark> {
    let (name, args) = match value {
        Expr::Alias(alias) => return gathered(&alias.expr, schema),
        Expr::AggregateFunction(call) => (call.func.name(), &call.params.args),
        Expr::WindowFunction(call) => (call.fun.name(), &call.params.args),
        _ => return None,
    };
    let item = args.first()?;
    let is_piece = matches!(item, Expr::ScalarFunction(call) if PIECES.contains(&call.func.name()));
    match name {
        GATHERING if !is_piece => (shown(item, schema) == Some(Mark::Document)).then_some(Mark::List),
        name if PICKING.contains(&name) => shown(item, schema),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use crate::testing::answered;

    const OF: &str = r#"(select json_value(column1) as g, json_value(column2) as h, column2 as s
                         from (values ('{"x": 1}', '[2]'), (null, '3'))) as t"#;

    #[tokio::test]
    async fn what_is_made_of_documents_is_known_to_be_some() {
        for (asked, expected) in [
            ("coalesce(g, h)", [r#"{"x": 1}"#, "3"]),
            ("coalesce(g, '{}')", [r#"{"x": 1}"#, "{}"]),
            ("nullif(g, '1')", [r#"{"x": 1}"#, "NULL"]),
            ("case when g is null then h end", ["NULL", "3"]),
            ("case when g is null then '[]' else g end", [r#"{"x": 1}"#, "[]"]),
            ("coalesce(coalesce(g, null), h)", [r#"{"x": 1}"#, "3"]),
            ("json_known(coalesce(g, h))", [r#"{"x": 1}"#, "3"]),
            ("make_array(g, h)", [r#"[{"x": 1},[2]]"#, "[null,3]"]),
            ("make_array(g, h)[1]", [r#"{"x": 1}"#, "NULL"]),
            ("make_array(g, h)[1:1]", [r#"[{"x": 1}]"#, "[null]"]),
            ("array_append(make_array(h), g)", [r#"[[2],{"x": 1}]"#, "[3,null]"]),
            ("array_concat(make_array(g), make_array(h))", [r#"[{"x": 1},[2]]"#, "[null,3]"]),
            ("coalesce(case when g is null then null else make_array(g) end, make_array(h))", [r#"[{"x": 1}]"#, "[3]"]),
            ("(select array_agg(json_value('[5]')))", ["[[5]]", "[[5]]"]),
            ("(select json_value('[5]'))", ["[5]", "[5]"]),
        ] {
            assert_eq!(answered(&format!("select to_json({asked}) from {OF}")).await.unwrap(), expected, "{asked}");
        }
    }

    #[tokio::test]
    async fn gathered_documents_are_known() {
        let gathered = format!("(select array_agg(g) as l, array_agg(s) as s, count(*) as n from {OF}) as u");
        for (asked, expected) in [
            (format!("select to_json(l) from {gathered}"), r#"[{"x": 1},null]"#),
            (format!("select to_json(l[1]), n from {gathered}"), r#"{"x": 1}|2"#),
            (format!("select json_build_object('a', array_agg(h)) from {OF}"), r#"{"a" : [[2],3]}"#),
            (format!("select to_json(array_agg(h)) from {OF} where g is null group by s"), "[3]"),
            (format!("select to_json(s) from {gathered}"), r#"["[2]","3"]"#),
            (format!("select to_json(array_agg(g)[1]) from {OF}"), r#"{"x": 1}"#),
            (format!("select to_json(array_agg(h order by s)[2]) from {OF}"), "[2]"),
            (format!("select to_json(array_sort(array_agg(distinct h))) from {OF}"), "[3,[2]]"),
            (format!("select to_json(nth_value(s, 1)), to_json(array_agg(s)[2]) from {OF}"), r#""[2]"|"3""#),
            (format!("select to_json(array_agg(g) over ()) from {OF} limit 1"), r#"[{"x": 1},null]"#),
            (format!("select to_json(u) from (select unnest(l) as u, n from {gathered}) as v limit 1"), r#"{"x": 1}"#),
            (format!("select to_json(u) from (select unnest(s) as u from {gathered}) as v limit 1"), r#""[2]""#),
        ] {
            assert_eq!(answered(&asked).await.unwrap(), [expected], "{asked}");
        }
    }

    #[tokio::test]
    async fn tables_that_read_themselves_keep_documents() {
        for (first, next) in [
            ("json_value('[0]')", "jsonb_concat(d, to_json(n))"),
            ("json_value('[0]')", "json_value('[0]')"),
            ("coalesce(json_value('[0]'), d0)", "coalesce(d, '[0]')"),
            ("(select json_value('[0]'))", "d"),
        ] {
            let asked = format!(
                "with recursive r as (select 1 as n, {first} as d from (select json_value('[1]') as d0) as f \
                 union all select n + 1, {next} from r where n < 3) select to_json(d) from r where n = 2"
            );
            let expected = if next.starts_with("jsonb_concat") { "[0, 1]" } else { "[0]" };
            assert_eq!(answered(&asked).await.unwrap(), [expected], "{asked}");
        }
        let lists = "with recursive r as (select 1 as n, make_array(json_value('[0]')) as d \
                     union all select n + 1, array_append(d, json_value('{}')) from r where n < 3) \
                     select to_json(d) from r where n = 2";
        assert_eq!(answered(lists).await.unwrap(), ["[[0],{}]"]);
    }

    #[tokio::test]
    async fn texts_among_documents_make_texts() {
        for (asked, expected) in [
            ("coalesce(s, '[]')", [r#""[2]""#, r#""3""#]),
            ("coalesce(g, s)", [r#""{\"x\": 1}""#, r#""3""#]),
            ("coalesce(g, 'none')", [r#""{\"x\": 1}""#, r#""none""#]),
            ("make_array(g, s)", [r#"["{\"x\": 1}","[2]"]"#, r#"[null,"3"]"#]),
            ("array_append(make_array(s), g)", [r#"["[2]","{\"x\": 1}"]"#, r#"["3",null]"#]),
            ("array_concat(make_array(g), make_array(s))", [r#"["{\"x\": 1}","[2]"]"#, r#"[null,"3"]"#]),
            ("(select '[5]')", [r#""[5]""#, r#""[5]""#]),
        ] {
            assert_eq!(answered(&format!("select to_json({asked}) from {OF}")).await.unwrap(), expected, "{asked}");
        }
    }
}
