//! Folds the nodes of a plan into SELECTs. A block is one SELECT to which more nodes may be added; a node that it
//! cannot take (a filter above a limit, a group over groups) becomes a new SELECT with the block as its relation.

use std::collections::{BTreeMap, HashSet};
use std::fmt::Write as _;

use datafusion::common::tree_node::{Transformed, TreeNode as _, TreeNodeRecursion};
use datafusion::common::{Column, DFSchema, JoinType, NullEquality, ScalarValue, TableReference, not_impl_err};
use datafusion::datasource::source_as_provider;
use datafusion::functions_table::generate_series::GenerateSeriesTable;
use datafusion::logical_expr::expr::Sort as SortExpr;
use datafusion::logical_expr::{
    Aggregate, Distinct, Expr, ExprSchemable as _, FetchType, Join, LogicalPlan, Operator, SkipType, TableScan,
    binary_expr, cast, lit,
};
use datafusion::sql::unparser::Unparser;
use datafusion::sql::unparser::dialect::{CustomDialect, CustomDialectBuilder};

use quiver_query::tables::models::OLAP_SCHEMA;
use quiver_query::{of_visible_rows, quoting};

use super::alias_of;
use super::values::Params;
use crate::error::OlapResult;
use crate::model::catalog::Catalog;
use crate::model::{Model, Source};
use crate::plan::model_error;

/// If the outputs of a block have more nodes than this, it becomes a relation, so that the text does not grow by
/// repetition.
const NODES_MAX: usize = 4_000;

/// A SELECT under construction.
#[derive(Debug, Default)]
struct Block {
    /// The `FROM` clause; `None` for one row without columns.
    from: Option<String>,
    /// Whether that is a single relation, so that it may be the right side of a join.
    is_single: bool,
    /// For each column of the plan's schema, an expression over columns of `from`.
    items: Vec<Expr>,
    filter: Option<Expr>,
    groups: Option<Vec<Expr>>,
    having: Option<Expr>,
    has_windows: bool,
    order: Vec<SortExpr>,
    skip: usize,
    fetch: Option<usize>,
}

impl Block {
    fn of(from: String, items: Vec<Expr>) -> Self {
        Self { from: Some(from), is_single: true, items, ..Self::default() }
    }

    fn is_cut(&self) -> bool {
        self.skip > 0 || self.fetch.is_some()
    }

    /// Whether a condition can be added: a SELECT computes windows behind its conditions, and is cut last.
    fn takes_condition(&self) -> bool {
        !self.has_windows && !self.is_cut()
    }

    /// Whether it can be grouped: a SELECT groups once, before windows.
    fn takes_groups(&self) -> bool {
        self.groups.is_none() && self.takes_condition()
    }

    /// Whether windows can be added. Beside groups they would be over groups.
    fn takes_windows(&self) -> bool {
        self.groups.is_none() && !self.is_cut()
    }

    /// Whether an order or a limit can be added.
    fn takes_cut(&self) -> bool {
        !self.is_cut()
    }

    /// Whether it consists only of relations and conditions on them.
    fn is_rows(&self) -> bool {
        self.from.is_some() && self.groups.is_none() && !self.has_windows && !self.is_cut()
    }

    /// Rewrites an expression over a schema as one over the block's relations.
    fn put(&self, expr: &Expr, schema: &DFSchema) -> OlapResult<Expr> {
        let put = expr.clone().unalias_nested().data.transform_down(|e| match &e {
            Expr::Column(c) => {
                let at = schema.index_of_column(c)?;
                Ok(Transformed::new(self.items[at].clone(), true, TreeNodeRecursion::Jump))
            }
            _ => Ok(Transformed::no(e)),
        })?;
        Ok(put.data)
    }

    fn put_all(&self, exprs: &[Expr], schema: &DFSchema) -> OlapResult<Vec<Expr>> {
        exprs.iter().map(|e| self.put(e, schema)).collect()
    }
}

/// Prints blocks.
pub(super) struct Printer<'a> {
    catalog: &'a Catalog,
    /// SQL of the models whose rows are a SELECT.
    selects: &'a BTreeMap<String, String>,
    /// Names of columns that the plan uses; relations select no others.
    used: HashSet<String>,
    dialect: CustomDialect,
    pub(super) params: Params,
    relations: usize,
}

/// The model whose rows a node represents.
pub(super) fn model_of<'c>(node: &LogicalPlan, catalog: &'c Catalog) -> Option<&'c Model> {
    match node {
        LogicalPlan::SubqueryAlias(alias) => {
            catalog.models.get(alias.alias.table()).filter(|_| !is_of_statement(&alias.input))
        }
        _ => None,
    }
}

/// Whether a plan contains tables of a statement over models: names above these are the statement's.
fn is_of_statement(plan: &LogicalPlan) -> bool {
    plan.exists(|node| {
        let LogicalPlan::SubqueryAlias(alias) = node else { return Ok(false) };
        Ok(alias.alias.schema() == Some(OLAP_SCHEMA))
    })
    .unwrap_or(true)
}

fn and(old: Option<Expr>, new: Expr) -> Expr {
    match old {
        Some(old) => old.and(new),
        None => new,
    }
}

/// A unique name that is derived from one that may be taken.
fn free(name: String, taken: &mut HashSet<String>) -> String {
    let mut free = if name.is_empty() { "column".to_owned() } else { name };
    let mut n = 1;
    while !taken.insert(free.clone()) {
        n += 1;
        free = format!("{}_{n}", free.trim_end_matches(&format!("_{}", n - 1)));
    }
    free
}

impl<'a> Printer<'a> {
    pub(super) fn new(catalog: &'a Catalog, selects: &'a BTreeMap<String, String>, used: HashSet<String>) -> Self {
        let dialect = CustomDialectBuilder::new().with_identifier_quote_style('"').build();
        Self { catalog, selects, used, dialect, params: Params::default(), relations: 0 }
    }

    /// The statement for a plan, and the names of its columns.
    pub(super) fn statement(&mut self, plan: &LogicalPlan, columns: &[String]) -> OlapResult<(String, Vec<String>)> {
        let mut taken = HashSet::new();
        let aliases: Vec<String> = columns.iter().map(|c| free(alias_of(c), &mut taken)).collect();
        Ok((self.named(plan, &aliases)?, aliases))
    }

    /// The statement for a plan with the given column names.
    pub(super) fn named(&mut self, plan: &LogicalPlan, aliases: &[String]) -> OlapResult<String> {
        let block = self.block(plan)?;
        let outputs: Vec<(Expr, &str)> = block.items.iter().cloned().zip(aliases.iter().map(String::as_str)).collect();
        self.select(&block, outputs)
    }

    fn expr(&mut self, expr: Expr) -> OlapResult<String> {
        // Subqueries in expressions are printed the same way, and substituted for placeholder names.
        let mut inner: Vec<(String, String)> = Vec::new();
        let mut plans = Vec::new();
        let named = expr.transform_up(|e| match e {
            Expr::InSubquery(_) | Expr::Exists(_) | Expr::SetComparison(_) => {
                not_impl_err!("a subquery that rows are compared with cannot be written as SQL")
            }
            Expr::ScalarSubquery(query) => {
                plans.push(query.subquery);
                Ok(Transformed::yes(Expr::Column(Column::new_unqualified(format!("__query_{}", plans.len())))))
            }
            other => Ok(Transformed::no(other)),
        })?;
        for (i, plan) in plans.iter().enumerate() {
            let columns: Vec<String> = plan.schema().fields().iter().map(|f| f.name().clone()).collect();
            let (text, _) = self.statement(plan, &columns)?;
            inner.push((format!("\"__query_{}\"", i + 1), format!("({text})")));
        }
        let text = self.plain(named.data)?;
        Ok(inner.iter().fold(text, |text, (name, query)| text.replace(name, query)))
    }

    fn plain(&mut self, expr: Expr) -> OlapResult<String> {
        let printed = self.params.with_placeholders(expr)?;
        let (marked, orders) = orders_marked(printed)?;
        let mut text = self.printed(&marked)?;
        for (n, order) in orders.iter().enumerate() {
            let keys = order.iter().map(|key| {
                let (way, nulls) =
                    (if key.asc { "ASC" } else { "DESC" }, if key.nulls_first { "FIRST" } else { "LAST" });
                Ok(format!("{} {way} NULLS {nulls}", self.printed(&key.expr)?))
            });
            let keys = keys.collect::<OlapResult<Vec<_>>>()?.join(", ");
            text = text.replace(&format!(", '{}'", order_mark(n)), &format!(" ORDER BY {keys}"));
        }
        Ok(text)
    }

    fn printed(&self, expr: &Expr) -> OlapResult<String> {
        let printed = Unparser::new(&self.dialect).with_pretty(true).expr_to_sql(expr);
        let printed =
            printed.map_err(|e| model_error(format!("`{expr}` cannot be written as SQL: {}", e.strip_backtrace())))?;
        Ok(printed.to_string())
    }

    fn list(&mut self, exprs: &[Expr]) -> OlapResult<String> {
        let texts = exprs.iter().map(|e| self.expr(e.clone())).collect::<OlapResult<Vec<_>>>()?;
        Ok(texts.join(", "))
    }

    fn select(&mut self, block: &Block, outputs: Vec<(Expr, &str)>) -> OlapResult<String> {
        // Outputs are referred to by position: the planner would otherwise take a constant within a key for an
        // output.
        let place = |expr: &Expr| outputs.iter().position(|(output, _)| output == expr).map(|at| at + 1);
        let places: Vec<Option<usize>> = block.order.iter().map(|sort| place(&sort.expr)).collect();
        let mut outs = Vec::new();
        for (expr, alias) in outputs {
            outs.push(format!("{} AS {}", self.expr(expr)?, quoting::name(alias)));
        }
        if outs.is_empty() {
            outs.push("1 AS \"one\"".to_owned());
        }
        let mut text = format!("SELECT {}", outs.join(", "));
        let wrote = |_| model_error("a statement cannot be written");
        if let Some(from) = &block.from {
            write!(text, " FROM {from}").map_err(wrote)?;
        }
        if let Some(filter) = &block.filter {
            write!(text, " WHERE {}", self.expr(filter.clone())?).map_err(wrote)?;
        }
        if let Some(groups) = block.groups.as_ref().filter(|g| !g.is_empty()) {
            write!(text, " GROUP BY {}", self.list(groups)?).map_err(wrote)?;
        }
        if let Some(having) = &block.having {
            write!(text, " HAVING {}", self.expr(having.clone())?).map_err(wrote)?;
        }
        let mut order = Vec::new();
        // A constant does not sort, and a number would be read as a position.
        for (sort, place) in block.order.iter().zip(places).filter(|(s, _)| !matches!(s.expr, Expr::Literal(..))) {
            let direction = if sort.asc { "ASC" } else { "DESC" };
            let nulls = if sort.nulls_first { "NULLS FIRST" } else { "NULLS LAST" };
            let key = place.map_or_else(|| self.expr(sort.expr.clone()), |place| Ok(place.to_string()))?;
            order.push(format!("{key} {direction} {nulls}"));
        }
        if !order.is_empty() {
            write!(text, " ORDER BY {}", order.join(", ")).map_err(wrote)?;
        }
        if let Some(fetch) = block.fetch {
            write!(text, " LIMIT {fetch}").map_err(wrote)?;
        }
        if block.skip > 0 {
            write!(text, " OFFSET {}", block.skip).map_err(wrote)?;
        }
        Ok(text)
    }

    /// Makes a block a relation with the same columns.
    fn wrap(&mut self, block: &Block, schema: &DFSchema, alias: Option<&str>) -> OlapResult<Block> {
        self.relations += 1;
        let alias = alias.map_or_else(|| format!("q{}", self.relations), str::to_owned);
        let relation = TableReference::bare(alias.as_str());
        let mut taken = HashSet::new();
        let (mut names, mut items) = (Vec::new(), Vec::new());
        for (i, field) in schema.fields().iter().enumerate() {
            if self.used.contains(field.name()) {
                let name = free(alias_of(field.name()), &mut taken);
                items.push(Expr::Column(Column::new(Some(relation.clone()), name.as_str())));
                names.push((block.items[i].clone(), name));
            } else {
                items.push(lit(ScalarValue::Null));
            }
        }
        let outputs = names.iter().map(|(e, name)| (e.clone(), name.as_str())).collect();
        let inner = self.select(block, outputs)?;
        Ok(Block::of(format!("({inner}) AS {}", quoting::name(&alias)), items))
    }

    /// A subselect with a name and column names.
    fn relation(&mut self, rows: &str, schema: &DFSchema) -> Block {
        self.relations += 1;
        let alias = format!("q{}", self.relations);
        let relation = TableReference::bare(alias.as_str());
        let names = || schema.fields().iter().map(|f| f.name().as_str());
        let items = names().map(|name| Expr::Column(Column::new(Some(relation.clone()), name))).collect();
        let heads: Vec<String> = names().map(quoting::name).collect();
        Block::of(format!("{rows} AS {} ({})", quoting::name(&alias), heads.join(", ")), items)
    }

    fn child(&mut self, plan: &LogicalPlan, may_stay: impl Fn(&Block) -> bool) -> OlapResult<Block> {
        let block = self.block(plan)?;
        if may_stay(&block) { Ok(block) } else { self.wrap(&block, plan.schema(), None) }
    }

    fn block(&mut self, plan: &LogicalPlan) -> OlapResult<Block> {
        if let Some(model) = model_of(plan, self.catalog) {
            return rows_of(model, self.selects, plan.schema());
        }
        if let Some(rows) = of_visible_rows(plan) {
            return self.block(rows);
        }
        match plan {
            LogicalPlan::SubqueryAlias(alias) => {
                let block = self.block(&alias.input)?;
                self.wrap(&block, alias.input.schema(), Some(alias.alias.table()))
            }
            LogicalPlan::Projection(node) => {
                let schema = node.input.schema();
                let mut block = self.block(&node.input)?;
                let mut items = block.put_all(&node.expr, schema)?;
                // Outputs that name others repeat their text each time.
                if nodes(&items)? > NODES_MAX {
                    block = self.wrap(&block, schema, None)?;
                    items = block.put_all(&node.expr, schema)?;
                }
                Ok(Block { items, ..block })
            }
            LogicalPlan::Filter(node) => {
                let mut block = self.child(&node.input, Block::takes_condition)?;
                let condition = block.put(&node.predicate, node.input.schema())?;
                if block.groups.is_some() {
                    block.having = Some(and(block.having, condition));
                } else {
                    block.filter = Some(and(block.filter, condition));
                }
                Ok(block)
            }
            LogicalPlan::Aggregate(node) => self.aggregate(node),
            LogicalPlan::Distinct(Distinct::All(input)) => {
                let block = self.child(input, Block::takes_groups)?;
                Ok(Block { groups: Some(block.items.clone()), order: Vec::new(), ..block })
            }
            LogicalPlan::Window(node) => {
                let mut block = self.child(&node.input, Block::takes_windows)?;
                let more = block.put_all(&node.window_expr, node.input.schema())?;
                block.items.extend(more);
                block.has_windows = true;
                Ok(block)
            }
            LogicalPlan::Sort(node) => {
                let mut block = self.child(&node.input, Block::takes_cut)?;
                let sort = |s: &SortExpr| Ok(SortExpr { expr: block.put(&s.expr, node.input.schema())?, ..s.clone() });
                let order = node.expr.iter().map(sort).collect::<OlapResult<Vec<_>>>()?;
                block.order = order;
                block.fetch = node.fetch;
                Ok(block)
            }
            LogicalPlan::Limit(node) => {
                let (SkipType::Literal(skip), FetchType::Literal(fetch)) =
                    (node.get_skip_type()?, node.get_fetch_type()?)
                else {
                    return Err(model_error("a limit that is no number cannot be written as SQL"));
                };
                let mut block = self.child(&node.input, Block::takes_cut)?;
                (block.skip, block.fetch) = (skip, fetch);
                Ok(block)
            }
            LogicalPlan::Join(node) => self.join(node),
            LogicalPlan::Values(node) => {
                let mut rows = Vec::new();
                for row in &node.values {
                    rows.push(format!("({})", self.list(row)?));
                }
                Ok(self.relation(&format!("(VALUES {})", rows.join(", ")), &node.schema))
            }
            LogicalPlan::TableScan(node) if is_series(node) => {
                Ok(self.relation(node.table_name.table(), &node.projected_schema))
            }
            LogicalPlan::EmptyRelation(node) => {
                let filter = (!node.produce_one_row).then(|| lit(false));
                let nulls =
                    node.schema.fields().iter().map(|f| lit(ScalarValue::Null).cast_to(f.data_type(), &node.schema));
                Ok(Block { items: nulls.collect::<Result<_, _>>()?, filter, ..Block::default() })
            }
            other => Err(model_error(format!("a plan with the node `{}` cannot be written as SQL", other.display()))),
        }
    }

    fn aggregate(&mut self, node: &Aggregate) -> OlapResult<Block> {
        let schema = node.input.schema();
        let block = self.child(&node.input, Block::takes_groups)?;
        let groups = block.put_all(&node.group_expr, schema)?;
        // A number would be read as a position.
        let ordinal = |e: Expr| match &e {
            Expr::Literal(value, _) => {
                let ty = value.data_type();
                cast(e, ty)
            }
            _ => e,
        };
        let groups: Vec<Expr> = groups.into_iter().map(ordinal).collect();
        let mut items = groups.clone();
        items.extend(block.put_all(&node.aggr_expr, schema)?);
        Ok(Block { items, groups: Some(groups), order: Vec::new(), ..block })
    }

    fn join(&mut self, node: &Join) -> OlapResult<Block> {
        let (left_schema, right_schema) = (node.left.schema(), node.right.schema());
        let (left_stays, right_stays) = match node.join_type {
            JoinType::Inner => (true, true),
            JoinType::Left => (true, false),
            JoinType::Right => (false, true),
            JoinType::Full => (false, false),
            other => return Err(model_error(format!("a join of type `{other}` cannot be written as SQL"))),
        };
        // On the nullable side of a join, conditions and computed values must stay below the join, and so must values
        // in a condition that is evaluated for each pair of rows.
        let used = self.used.clone();
        let is_tried = node.filter.is_some();
        let may_stay = move |b: &Block, schema: &DFSchema, stays: bool| {
            let items = b.items.iter().zip(schema.fields());
            let is_plain = || items.filter(|(_, f)| used.contains(f.name())).all(|(e, _)| matches!(e, Expr::Column(_)));
            b.is_rows() && (stays || b.filter.is_none()) && (stays && !is_tried || is_plain())
        };
        let mut left = self.child(&node.left, |b| may_stay(b, left_schema, left_stays))?;
        let mut right = self.child(&node.right, |b| b.is_single && may_stay(b, right_schema, right_stays))?;
        let filter = left.filter.take().into_iter().chain(right.filter.take()).reduce(Expr::and);
        let equal = match node.null_equality {
            NullEquality::NullEqualsNull => Operator::IsNotDistinctFrom,
            NullEquality::NullEqualsNothing => Operator::Eq,
        };
        let mut conditions = Vec::new();
        for (a, b) in &node.on {
            conditions.push(binary_expr(left.put(a, left_schema)?, equal, right.put(b, right_schema)?));
        }
        let mut items = std::mem::take(&mut left.items);
        items.append(&mut right.items);
        let (Some(left_from), Some(right_from)) = (left.from, right.from) else {
            return Err(model_error("a join of rows without a table cannot be written as SQL"));
        };
        let mut block = Block { from: None, is_single: false, items, filter, ..Block::default() };
        if let Some(condition) = &node.filter {
            conditions.push(block.put(condition, &node.schema)?);
        }
        let on = conditions.into_iter().reduce(Expr::and);
        block.from = Some(match (on, node.join_type) {
            (None, JoinType::Inner) => format!("{left_from} CROSS JOIN {right_from}"),
            (on, ty) => {
                let on = self.expr(on.unwrap_or_else(|| lit(true)))?;
                format!("{left_from} {} JOIN {right_from} ON {on}", ty.to_string().to_uppercase())
            }
        });
        Ok(block)
    }
}

/// Whether a table is DataFusion's `generate_series`; its name is the call.
fn is_series(scan: &TableScan) -> bool {
    source_as_provider(&scan.source).is_ok_and(|table| table.is::<GenerateSeriesTable>())
}

/// The rows of a model as its file defines them.
fn rows_of(model: &Model, selects: &BTreeMap<String, String>, schema: &DFSchema) -> OlapResult<Block> {
    let name = quoting::name(&model.common.name);
    let of_select = |sql: &str| format!("({}) AS {name}", sql.trim().trim_end_matches(';'));
    let from = match (selects.get(&model.common.name), &model.source) {
        (Some(sql), _) | (None, Some(Source::Select(sql))) => of_select(sql),
        (None, Some(Source::Table(Some(schema), table))) => {
            format!("{}.{} AS {name}", quoting::name(schema), quoting::name(table))
        }
        (None, Some(Source::Table(None, table))) => format!("{} AS {name}", quoting::name(table)),
        (None, None) => return Err(model_error(format!("model `{}` has no rows", model.common.name))),
    };
    Ok(Block::of(from, schema.columns().into_iter().map(Expr::Column).collect()))
}

/// The number of nodes of expressions.
fn nodes(exprs: &[Expr]) -> OlapResult<usize> {
    let mut count = 0;
    for expr in exprs {
        expr.apply(|_| {
            count += 1;
            Ok(TreeNodeRecursion::Continue)
        })?;
    }
    Ok(count)
}

/// A placeholder for the order of an aggregate's input until it is printed; no query contains its character.
fn order_mark(n: usize) -> String {
    format!("\u{1}order {n}")
}

/// DataFusion's printer omits the order of an aggregate's input (`first_value(x ORDER BY y)`): a placeholder becomes
/// its last argument, and the orders are returned.
fn orders_marked(expr: Expr) -> OlapResult<(Expr, Vec<Vec<SortExpr>>)> {
    let mut orders = Vec::new();
    let marked = expr.transform_up(|e| match e {
        Expr::AggregateFunction(mut call)
            if !call.params.order_by.is_empty() && !call.func.supports_within_group_clause() =>
        {
            call.params.args.push(lit(order_mark(orders.len())));
            orders.push(std::mem::take(&mut call.params.order_by));
            Ok(Transformed::yes(Expr::AggregateFunction(call)))
        }
        other => Ok(Transformed::no(other)),
    });
    let marked = marked.map_err(|e| model_error(e.strip_backtrace()))?;
    Ok((marked.data, orders))
}
