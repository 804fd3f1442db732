//! Describes a statement without running it: its result columns and the types of its parameters.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;
use std::sync::Arc;

use arrow::datatypes::{DataType, Field, FieldRef, Schema, SchemaRef};
use datafusion::catalog::MemTable;
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{TreeNode as _, TreeNodeRecursion};
use datafusion::logical_expr::expr::Placeholder;
use datafusion::logical_expr::{Expr, LogicalPlan};
use datafusion::optimizer::AnalyzerRule as _;
use datafusion::optimizer::analyzer::type_coercion::TypeCoercion;
use datafusion::sql::sqlparser::ast::{
    ArrayElemTypeDef, BinaryOperator, DataType as SqlType, Expr as Ast, FunctionArg, FunctionArgExpr,
    FunctionArguments, NamedWindowDefinition, NamedWindowExpr, ObjectName, Query, Select, TableFactor,
    TableFunctionArgs, Value, Visitor, VisitorMut, WindowFrame, WindowFrameBound, WindowFrameUnits, WindowSpec,
    WindowType,
};
use futures::FutureExt as _;
use futures::future::BoxFuture;
use quiver_query::functions::json_field;
use quiver_query::tables::DomainAccess;
use quiver_query::{Names, QueryContext};
use quiver_types::{Error, ErrorKind, Result};

use super::{NamedQuery, Request, SqlEngine, VisibleTables, in_zone, shown_names, translated, zone_of};
use crate::catalog::types::{PG_TYPES, pg_type, type_oid};
use crate::names::parts;
use crate::parse::{ExplainOptions, Param, Params, ReadStatement, params_of, parse_open, put_params};
use crate::statement_walk::{walk, walk_mut};
use crate::table_functions;

/// The most parameters of a statement.
const PARAMS_MAX: usize = 1_000;
/// The type of parameters that nothing determines: `text`.
const TEXT: u32 = 25;
/// The type that clients declare to leave it to the server: `unknown`.
const UNKNOWN: u32 = 705;
/// The type of row counts.
const INT8: u32 = 20;
/// The type of digits that functions round to.
const INT4: u32 = 23;
/// The type of OIDs.
const OID: u32 = 26;
/// The type of seconds with fractions.
const FLOAT8: u32 = 701;
/// The type of decimals.
const NUMERIC: u32 = 1700;

/// What clients are told of a statement before it runs.
#[derive(Debug, Clone)]
pub struct StatementDescription {
    /// OIDs of the types of `$1`, `$2`, …: as declared, else as inferred from their use, else `text`.
    pub params: Vec<u32>,
    /// Names and types of the columns.
    pub columns: SchemaRef,
}

impl SqlEngine {
    /// Describes a statement. `declared` are OIDs of its parameters' types, 0 where unspecified.
    ///
    /// # Errors
    ///
    /// Like [`Self::query`], except those of running.
    pub fn describe<'a>(
        &'a self,
        request: Request,
        declared: &'a [u32],
        access: &'a DomainAccess,
        ctx: &'a QueryContext,
    ) -> BoxFuture<'a, Result<StatementDescription>> {
        async move {
            let zone = request.time_zone.as_deref().map(zone_of).transpose()?;
            let snapshot = self.tables.snapshot();
            let (own, access, inner, declared) = (self.clone(), access.clone(), ctx.clone(), declared.to_vec());
            let work = async move {
                let catalog = Arc::new(own.catalog(&*snapshot, &access, &request.session));
                let seen = VisibleTables { snapshot: &snapshot, catalog: &catalog, access: &access };
                Box::pin(own.described(request, &declared, seen, &inner)).await
            };
            let mut described = self.engine.run(ctx, work).await?;
            described.columns = shown_names(&in_zone(&described.columns, zone.as_ref()));
            Ok(described)
        }
        .boxed()
    }

    async fn described(
        &self,
        request: Request,
        declared: &[u32],
        seen: VisibleTables<'_>,
        ctx: &QueryContext,
    ) -> Result<StatementDescription> {
        let read = parse_open(&request.text)?;
        let count = match &read.statement {
            ReadStatement::Query(query) => params_of(query),
            _ => 0,
        };
        if count > PARAMS_MAX {
            let text = format!("a statement has at most {PARAMS_MAX} parameters");
            return Err(Error::new(ErrorKind::LimitExceeded, text));
        }
        let explained = read.explain;
        let known = |oid: &u32| !matches!(*oid, 0 | UNKNOWN);
        let said = match &read.statement {
            ReadStatement::Query(query) => OperandTypes::said_in(query),
            _ => OperandTypes::default(),
        };
        let of_place = |at: usize| declared.get(at).copied().filter(known).or_else(|| said.of(at));
        let mut types: Vec<Option<u32>> = (0..count).map(of_place).collect();
        if types.iter().any(Option::is_none) {
            let open = types.iter().enumerate();
            let open = open.map(|(at, known)| known.and_then(|oid| said.sample(at, oid)).unwrap_or(Param::Open));
            let params = Params::positional(open.collect());
            let mut scalar = read.statement.clone();
            let lists = match &mut scalar {
                ReadStatement::Query(query) => compared_to_one(query),
                _ => BTreeSet::new(),
            };
            let found = self.planned(&scalar, &params, &request, seen, ctx).await;
            // If the planner fails for want of one type, the other sources of types must do.
            let plan = found.ok();
            let found = plan.as_ref().and_then(|plan| plan.get_parameter_types().ok()).unwrap_or_default();
            let places = plan.map(typed).as_ref().map(said_by_place).unwrap_or_default();
            let written = match &read.statement {
                ReadStatement::Query(query) => written_types(query),
                _ => BTreeMap::new(),
            };
            for (at, known) in types.iter_mut().enumerate().filter(|(_, known)| known.is_none()) {
                let name = format!("${}", at + 1);
                let said = found.get(&name).and_then(Option::as_ref);
                let said = said.map(type_oid).or_else(|| places.get(&name).copied());
                *known = written.get(&name).copied().or(said);
                if lists.contains(&name) {
                    *known = Some(list_of(known.unwrap_or(TEXT)));
                }
            }
        }
        let types: Vec<u32> = types.into_iter().map(|known| known.unwrap_or(TEXT)).collect();
        let samples = types.iter().enumerate().map(|(at, oid)| said.sample(at, *oid).unwrap_or(Param::Null));
        let samples = Params::positional(samples.collect());
        let plan = self.planned(&read.statement, &samples, &request, seen, ctx).await?;
        let columns = match explained {
            Some(explained) => columns_of(explained),
            None => Arc::new(plan.schema().as_arrow().clone()),
        };
        Ok(StatementDescription { params: types, columns })
    }

    async fn planned(
        &self,
        statement: &ReadStatement,
        params: &Params,
        request: &Request,
        seen: VisibleTables<'_>,
        ctx: &QueryContext,
    ) -> Result<LogicalPlan> {
        let mut read = crate::parse::Read { statement: statement.clone(), explain: None };
        if let ReadStatement::Query(query) = &mut read.statement {
            put_params(query, params)?;
        }
        let query: Query = translated(&self.engine, read, seen.catalog, &request.session)?;
        let mut names = Names::new(self.engine.relational());
        for (name, args) in table_functions::shapes(&query, &names)? {
            let columns = self.languages.columns(&name);
            let table = MemTable::try_new(columns, vec![Vec::new()]).map_err(quiver_query::from_datafusion)?;
            names.add_call(&name, &args, Arc::new(table));
        }
        let named = NamedQuery { query, names, session: &request.session };
        self.plan_named(named, seen, None, ctx).await
    }
}

/// Parameters whose type an operator says by itself, and without which the planner takes no statement.
#[derive(Debug, Default)]
struct OperandTypes {
    /// By name.
    types: BTreeMap<String, u32>,
    /// Those that count the rows of a frame, which no NULL can stand for.
    counts: BTreeSet<String>,
}

impl OperandTypes {
    fn said_in(query: &Query) -> Self {
        let mut found = Self::default();
        // The visitor never breaks.
        let _ = walk(query, &mut found);
        found
    }

    fn of_frame(&mut self, frame: &WindowFrame) {
        // The distance of `RANGE` has the type of the order.
        if frame.units == WindowFrameUnits::Range {
            return;
        }
        for bound in std::iter::once(&frame.start_bound).chain(&frame.end_bound) {
            if let WindowFrameBound::Preceding(Some(rows)) | WindowFrameBound::Following(Some(rows)) = bound
                && let Some(name) = placeholder(rows)
            {
                self.counts.insert(name.to_owned());
                self.types.insert(name.to_owned(), INT8);
            }
        }
    }

    /// The type of the parameter at a place, from 0.
    fn of(&self, at: usize) -> Option<u32> {
        self.types.get(&format!("${}", at + 1)).copied()
    }

    /// The value that stands for the parameter at a place while the statement is described.
    fn sample(&self, at: usize, oid: u32) -> Option<Param> {
        if self.counts.contains(&format!("${}", at + 1)) {
            return Some(Param::Typed(Some("1".to_owned()), pg_type(oid)?));
        }
        null_of(oid)
    }
}

impl Visitor for OperandTypes {
    type Break = ();

    fn pre_visit_expr(&mut self, expr: &Ast) -> ControlFlow<()> {
        match expr {
            Ast::BinaryOp { op, right, .. } if is_about_several(op) => {
                if let Some(name) = placeholder(right) {
                    self.types.insert(name.to_owned(), list_of(TEXT));
                }
            }
            Ast::Function(call) => {
                if let Some(WindowType::WindowSpec(WindowSpec { window_frame: Some(frame), .. })) = &call.over {
                    self.of_frame(frame);
                }
            }
            _ => {}
        }
        ControlFlow::Continue(())
    }

    fn pre_visit_select(&mut self, select: &Select) -> ControlFlow<()> {
        for NamedWindowDefinition(_, window) in &select.named_window {
            if let NamedWindowExpr::WindowSpec(WindowSpec { window_frame: Some(frame), .. }) = window {
                self.of_frame(frame);
            }
        }
        ControlFlow::Continue(())
    }
}

/// Whether an operator of JSON takes several keys: a path, or a choice of members.
fn is_about_several(op: &BinaryOperator) -> bool {
    use BinaryOperator::{HashArrow, HashLongArrow, HashMinus, QuestionAnd, QuestionPipe};
    matches!(op, HashArrow | HashLongArrow | HashMinus | QuestionAnd | QuestionPipe)
}

/// The name of a parameter, in parentheses or without.
fn placeholder(expr: &Ast) -> Option<&str> {
    match expr {
        Ast::Nested(inner) => placeholder(inner),
        Ast::Value(value) => match &value.value {
            Value::Placeholder(name) => Some(name),
            _ => None,
        },
        _ => None,
    }
}

/// Rewrites `a = ANY($n)` and similar as a comparison with `$n` itself, so that the planner infers its type from the
/// other side, as it does for `a = $n` in the place of `a && $n`. Returns the names of those that are lists of that type.
fn compared_to_one(query: &mut Query) -> BTreeSet<String> {
    struct Comparer(BTreeSet<String>);
    impl VisitorMut for Comparer {
        type Break = ();

        fn pre_visit_expr(&mut self, place: &mut Ast) -> ControlFlow<()> {
            if let Ast::BinaryOp { left, op, right } = &mut *place
                && *op == BinaryOperator::PGOverlap
                && (placeholder(left).is_some() || placeholder(right).is_some())
            {
                *op = BinaryOperator::Eq;
                return ControlFlow::Continue(());
            }
            let (Ast::AnyOp { left, compare_op, right, .. } | Ast::AllOp { left, compare_op, right }) = &mut *place
            else {
                return ControlFlow::Continue(());
            };
            let mut inner = &**right;
            while let Ast::Nested(nested) = inner {
                inner = nested;
            }
            if let Ast::Value(value) = inner
                && let Value::Placeholder(name) = &value.value
            {
                self.0.insert(name.clone());
                let (left, op, right) = (left.clone(), compare_op.clone(), Box::new(inner.clone()));
                *place = Ast::BinaryOp { left, op, right };
            }
            ControlFlow::Continue(())
        }
    }
    let mut comparer = Comparer(BTreeSet::new());
    // The visitor never breaks.
    let _ = walk_mut(query, &mut comparer);
    comparer.0
}

/// Parameters that are cast to types which no column has, and arguments of functions of several types. The planner sees texts
/// and integers instead, and drivers would send these.
fn written_types(query: &Query) -> BTreeMap<String, u32> {
    struct Finder(BTreeMap<String, u32>);
    impl Finder {
        fn arguments(&mut self, name: &ObjectName, args: &[FunctionArg]) {
            let name = parts(name).pop().unwrap_or_default();
            for (at, arg) in args.iter().enumerate() {
                if let FunctionArg::Unnamed(FunctionArgExpr::Expr(Ast::Value(value))) = arg
                    && let Value::Placeholder(param) = &value.value
                    && let Some(oid) = of_argument(&name, args, at)
                {
                    self.0.entry(param.clone()).or_insert(oid);
                }
            }
        }
    }
    impl Visitor for Finder {
        type Break = ();

        fn pre_visit_table_factor(&mut self, factor: &TableFactor) -> ControlFlow<()> {
            if let TableFactor::Table { name, args: Some(TableFunctionArgs { args, .. }), .. }
            | TableFactor::Function { name, args, .. } = factor
            {
                self.arguments(name, args);
            }
            ControlFlow::Continue(())
        }

        fn pre_visit_expr(&mut self, expr: &Ast) -> ControlFlow<()> {
            if let Ast::Function(call) = expr
                && let FunctionArguments::List(list) = &call.args
            {
                self.arguments(&call.name, &list.args);
            }
            if let Ast::Cast { expr, data_type, .. } = expr
                && let Ast::Value(value) = &**expr
                && let Value::Placeholder(name) = &value.value
                && let Some(oid) = own_type(data_type)
            {
                self.0.insert(name.clone(), oid);
            }
            ControlFlow::Continue(())
        }
    }
    let mut finder = Finder(BTreeMap::new());
    // The visitor never breaks.
    let _ = walk(query, &mut finder);
    finder.0
}

/// The type that PostgreSQL takes for an argument that has none, where a function has several to choose from.
fn of_argument(name: &str, args: &[FunctionArg], at: usize) -> Option<u32> {
    let is_number = |arg: &FunctionArg| {
        matches!(arg, FunctionArg::Unnamed(FunctionArgExpr::Expr(Ast::Value(value)))
            if matches!(value.value, Value::Number(..)))
    };
    match (name, args.len(), at) {
        ("to_timestamp", 1, _) => Some(FLOAT8),
        ("round" | "trunc", 2, 0) => Some(NUMERIC),
        ("round" | "trunc", 2, 1) => Some(INT4),
        // Series of times have a step.
        ("generate_series", 2, _) => Some(INT8),
        ("generate_series", 3, _) => args.iter().any(is_number).then_some(INT8),
        _ => None,
    }
}

/// The OID of a type that the planner represents by another one.
fn own_type(data_type: &SqlType) -> Option<u32> {
    match data_type {
        SqlType::Uuid => Some(2950),
        SqlType::JSON => Some(114),
        SqlType::JSONB => Some(3802),
        SqlType::Custom(name, _) => parts(name).last().is_some_and(|name| name == "oid").then_some(OID),
        SqlType::Array(ArrayElemTypeDef::SquareBracket(item, _)) => own_type(item).map(list_of),
        _ => None,
    }
}

/// The OID of the array type for an item type; that of `text[]` if there is none.
fn list_of(oid: u32) -> u32 {
    let array = |oid: u32| PG_TYPES.iter().find(|known| known.oid == oid && known.array != 0).map(|known| known.array);
    array(oid).or_else(|| array(TEXT)).unwrap_or(TEXT)
}

/// A plan in which parameters are cast to the types of the values beside them (`coalesce(time, $1)`); the plan
/// unchanged if some get no type.
fn typed(plan: LogicalPlan) -> LogicalPlan {
    TypeCoercion::new().analyze(plan.clone(), &ConfigOptions::default()).unwrap_or(plan)
}

/// Parameters whose types follow from their position, which the planner does not infer: limits, and operands of
/// casts. Those that it inferred in one position stay open for it where another one says nothing (`$1 is null`).
fn said_by_place(plan: &LogicalPlan) -> BTreeMap<String, u32> {
    let (mut found, mut inferred) = (BTreeMap::new(), BTreeMap::new());
    let walked = plan.apply_with_subqueries(|node| {
        let bounds = match node {
            LogicalPlan::Limit(limit) => [&limit.skip, &limit.fetch].map(Option::as_deref),
            _ => [None, None],
        };
        for bound in bounds.into_iter().flatten() {
            bound.apply(|expr| {
                if let Expr::Placeholder(placeholder) = expr {
                    found.insert(placeholder.id.clone(), INT8);
                }
                Ok(TreeNodeRecursion::Continue)
            })?;
        }
        node.apply_expressions(|expr| {
            expr.apply(|expr| {
                if let Expr::Cast(cast) = expr
                    && let Expr::Placeholder(placeholder) = &*cast.expr
                {
                    found.entry(placeholder.id.clone()).or_insert_with(|| type_oid(cast.field.data_type()));
                }
                if let Expr::Placeholder(Placeholder { id, field: Some(field) }) = expr {
                    inferred.entry(id.clone()).or_insert_with(|| type_oid(field.data_type()));
                }
                Ok(TreeNodeRecursion::Continue)
            })
        })
    });
    found.extend(inferred);
    // The visitors never fail.
    walked.map(|_| found).unwrap_or_default()
}

/// NULL of a type; for an array type, a list of one NULL.
fn null_of(oid: u32) -> Option<Param> {
    let item = PG_TYPES.iter().find(|known| known.array == oid && oid != 0);
    match pg_type(oid) {
        Some(known) => Some(Param::Typed(None, known)),
        None => item.map(|item| Param::List(vec![Param::Typed(None, item)])),
    }
}

/// The columns of an `EXPLAIN` result.
fn columns_of(explained: ExplainOptions) -> SchemaRef {
    let name = "QUERY PLAN";
    let lines = || FieldRef::new(Field::new(name, DataType::Utf8, true));
    let field = if explained.as_json { json_field(name, DataType::Utf8) } else { lines() };
    Arc::new(Schema::new(vec![field]))
}

/// The columns of the plan that an `EXPLAIN` statement returns: JSON or lines.
///
/// # Errors
///
/// Invalid: it cannot be parsed.
pub fn plan_columns(text: &str) -> Result<SchemaRef> {
    Ok(columns_of(parse_open(text)?.explain.unwrap_or_default()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn casts_say_what_drivers_send() {
        let ReadStatement::Query(query) =
            parse_open("select $1::oid[], $2::uuid, $3::jsonb, $4::int, $5::text[], $6::uuid[]").unwrap().statement
        else {
            panic!("no query")
        };
        let found = written_types(&query);
        let found: Vec<(&str, u32)> = found.iter().map(|(name, oid)| (name.as_str(), *oid)).collect();
        assert_eq!(found, [("$1", 1028), ("$2", 2950), ("$3", 3802), ("$6", 2951)]);
    }

    #[test]
    fn operators_say_what_they_take() {
        let text = "select a #>> $1, a #> ($2), a ?| $3, a ?& $4, a #- $5, a -> $6, a #>> $7::text, \
                    sum(b) over (order by b rows between $8 preceding and $9 following), \
                    sum(b) over (order by b range between $10 preceding and current row) from t";
        let ReadStatement::Query(query) = parse_open(text).unwrap().statement else { panic!("no query") };
        let said = OperandTypes::said_in(&query);
        let found: Vec<Option<u32>> = (0..10).map(|at| said.of(at)).collect();
        let list = Some(1009);
        assert_eq!(found, [list, list, list, list, list, None, None, Some(20), Some(20), None]);
        assert_eq!(said.sample(7, 20), Some(Param::Typed(Some("1".to_owned()), pg_type(20).expect("a type"))));
        assert_eq!((said.sample(0, 1009), said.sample(6, 25)), (null_of(1009), null_of(25)));
    }

    #[test]
    fn lists_are_compared_as_their_items() {
        let text = "select a = any($1), b <> all(($2)), c = any(array[$3]), $4 from t where $name = any($5) and d && ($6) \
                    and e && f";
        let ReadStatement::Query(mut query) = parse_open(text).unwrap().statement else { panic!("no query") };
        let lists = compared_to_one(&mut query);
        assert_eq!(lists.iter().collect::<Vec<_>>(), ["$1", "$2", "$5"]);
        let expected = "SELECT a = $1, b <> $2, c = ANY(ARRAY[$3]), $4 FROM t WHERE $name = $5 AND d = ($6) AND e && f";
        assert_eq!(query.to_string(), expected);
    }

    #[test]
    fn types_of_lists() {
        // Item types without an array type become lists of texts.
        for (item, list) in [(23, 1007), (25, 1009), (114, 199), (UNKNOWN, 1009), (1007, 1009), (0, 1009)] {
            assert_eq!(list_of(item), list, "{item}");
        }
        let typed = |oid: u32| Param::Typed(None, pg_type(oid).expect("a type"));
        assert_eq!(null_of(20), Some(typed(20)));
        assert_eq!(null_of(1016), Some(Param::List(vec![typed(20)])));
        assert_eq!((null_of(0), null_of(424_242)), (None, None));
    }

    #[test]
    fn plans_are_lines_or_documents() {
        for (text, as_json) in [
            ("explain select 1", false),
            ("explain (format json) select 1", true),
            ("explain (analyze, format text) select 1", false),
            ("select 1", false),
        ] {
            let columns = plan_columns(text).unwrap();
            let found: Vec<(&str, u32)> = columns
                .fields()
                .iter()
                .map(|field| (field.name().as_str(), crate::catalog::types::field_oid(field)))
                .collect();
            assert_eq!(found, [("QUERY PLAN", if as_json { 114 } else { TEXT })], "{text}");
        }
        assert!(plan_columns("explain (format xml) select 1").is_err());
    }
}
