//! Intervals of equal length are one group, and one row of `DISTINCT`. The plan groups by length and shows the first
//! interval of each group, as PostgreSQL does.

use std::sync::Arc;

use datafusion::common::tree_node::Transformed;
use datafusion::common::{Column, Result};
use datafusion::functions_aggregate::first_last::first_value_udaf;
use datafusion::logical_expr::{Aggregate, Distinct, DistinctOn, Expr, GroupingSet, LogicalPlan, Projection, when};

use super::interval::{in_order, is_interval, length};

/// Rewrites a node that groups or removes duplicates; other nodes stay.
pub(super) fn gathered(node: LogicalPlan) -> Result<Transformed<LogicalPlan>> {
    match node {
        LogicalPlan::Aggregate(aggregate) => grouped(aggregate),
        LogicalPlan::Distinct(Distinct::All(input)) => {
            let columns: Vec<Expr> = input.schema().columns().into_iter().map(Expr::Column).collect();
            if !columns.iter().any(|column| is_interval(column, input.schema())) {
                return Ok(Transformed::no(LogicalPlan::Distinct(Distinct::All(input))));
            }
            grouped(Aggregate::try_new(input, columns, Vec::new())?)
        }
        LogicalPlan::Distinct(Distinct::On(mut rows)) => {
            let is_changed = picked(&mut rows);
            Ok(Transformed::new_transformed(LogicalPlan::Distinct(Distinct::On(rows)), is_changed))
        }
        other => Ok(Transformed::no(other)),
    }
}

/// Groups by lengths, with a projection above that restores the column names.
fn grouped(aggregate: Aggregate) -> Result<Transformed<LogicalPlan>> {
    let schema = Arc::clone(aggregate.input.schema());
    if let [Expr::GroupingSet(sets)] = aggregate.group_expr.as_slice() {
        return match in_sets(&aggregate, sets)? {
            Some(shown) => Ok(Transformed::yes(shown)),
            None => Ok(Transformed::no(LogicalPlan::Aggregate(aggregate))),
        };
    }
    let has_intervals = aggregate.group_expr.iter().any(|key| is_interval(key, &schema));
    if !has_intervals {
        return Ok(Transformed::no(LogicalPlan::Aggregate(aggregate)));
    }
    let mut keys = Vec::with_capacity(aggregate.group_expr.len());
    let mut measures = aggregate.aggr_expr.clone();
    let mut outputs = Vec::with_capacity(aggregate.schema.fields().len());
    for (at, key) in aggregate.group_expr.iter().enumerate() {
        let (table, field) = aggregate.schema.qualified_field(at);
        if is_interval(key, &schema) {
            let first = format!("first of key {at}");
            keys.push(length(key.clone().unalias()).alias(format!("length of key {at}")));
            measures.push(first_value_udaf().call(vec![key.clone().unalias()]).alias(first.clone()));
            outputs.push(Expr::Column(Column::new_unqualified(first)).alias_qualified(table.cloned(), field.name()));
        } else {
            keys.push(key.clone());
            outputs.push(Expr::Column(Column::from((table, field))));
        }
    }
    let of_measures = aggregate.group_expr.len()..aggregate.schema.fields().len();
    outputs.extend(of_measures.map(|at| Expr::Column(Column::from(aggregate.schema.qualified_field(at)))));
    let made = Aggregate::try_new(Arc::clone(&aggregate.input), keys, measures)?;
    let made = Arc::new(LogicalPlan::Aggregate(made));
    let shown = Projection::try_new_with_schema(outputs, made, Arc::clone(&aggregate.schema))?;
    Ok(Transformed::yes(LogicalPlan::Projection(shown)))
}

/// Like [`grouped`] for grouping sets; `None` if no key is an interval. A key that is not in the set of a group must
/// be shown as NULL.
fn in_sets(aggregate: &Aggregate, sets: &GroupingSet) -> Result<Option<LogicalPlan>> {
    let schema = aggregate.input.schema();
    let keys: Vec<Expr> = sets.distinct_expr().into_iter().cloned().collect();
    if !keys.iter().any(|key| is_interval(key, schema)) {
        return Ok(None);
    }
    let all = |keys: &Vec<Expr>| -> Vec<Expr> {
        let measured = |key: &Expr| {
            if is_interval(key, schema) { length(key.clone().unalias()) } else { key.clone() }
        };
        keys.iter().map(measured).collect()
    };
    let sets = match sets {
        GroupingSet::Rollup(keys) => GroupingSet::Rollup(all(keys)),
        GroupingSet::Cube(keys) => GroupingSet::Cube(all(keys)),
        GroupingSet::GroupingSets(sets) => GroupingSet::GroupingSets(sets.iter().map(all).collect()),
    };
    let mut measures = aggregate.aggr_expr.clone();
    for (at, key) in keys.iter().enumerate().filter(|(_, key)| is_interval(key, schema)) {
        measures.push(first_value_udaf().call(vec![key.clone().unalias()]).alias(format!("first of key {at}")));
    }
    let made = Aggregate::try_new(Arc::clone(&aggregate.input), vec![Expr::GroupingSet(sets)], measures)?;
    let mut outputs = Vec::with_capacity(aggregate.schema.fields().len());
    for at in 0..aggregate.schema.fields().len() {
        let value = Expr::Column(Column::from(made.schema.qualified_field(at)));
        let (table, field) = aggregate.schema.qualified_field(at);
        outputs.push(match keys.get(at) {
            Some(key) if is_interval(key, schema) => {
                let first = Expr::Column(Column::new_unqualified(format!("first of key {at}")));
                when(value.is_not_null(), first).end()?.alias_qualified(table.cloned(), field.name())
            }
            _ => value,
        });
    }
    let made = Arc::new(LogicalPlan::Aggregate(made));
    let shown = Projection::try_new_with_schema(outputs, made, Arc::clone(&aggregate.schema))?;
    Ok(Some(LogicalPlan::Projection(shown)))
}

/// `DISTINCT ON` by lengths; returns whether there were intervals.
fn picked(rows: &mut DistinctOn) -> bool {
    let schema = Arc::clone(rows.input.schema());
    let mut is_changed = rows.sort_expr.as_mut().is_some_and(|order| in_order(order, &schema));
    for key in rows.on_expr.iter_mut().filter(|key| is_interval(key, &schema)) {
        *key = length(key.clone());
        is_changed = true;
    }
    is_changed
}

#[cfg(test)]
mod tests {
    use crate::testing::answered;

    const DAYS: &str = "(values (1, interval '1 day'), (1, interval '24 hours'), (2, interval '2 days'), \
                        (2, interval '24 hours'), (3, null)) as t(k, i)";

    #[tokio::test]
    async fn intervals_of_one_length_are_one() {
        for (statement, expected) in [
            (format!("select count(*) from (select distinct i from {DAYS}) as q"), vec!["3"]),
            (format!("select count(*) from (select distinct k, i from {DAYS}) as q"), vec!["4"]),
            (format!("select count(distinct i) from {DAYS}"), vec!["2"]),
            (
                format!("select n from (select i, count(*) as n from {DAYS} group by i) as q order by n"),
                vec!["1", "1", "3"],
            ),
            (
                format!("select k, count(*) as n from {DAYS} group by k, i order by k, n"),
                vec!["1|2", "2|1", "2|1", "3|1"],
            ),
            (
                format!("select k from (select distinct on (i) k, i from {DAYS} order by i, k desc) as q order by k"),
                vec!["2", "2", "3"],
            ),
        ] {
            assert_eq!(answered(&statement).await.unwrap(), expected, "{statement}");
        }
    }

    #[tokio::test]
    async fn a_group_shows_the_interval_that_it_saw() {
        let only = "(values (interval '36 hours', 5)) as t(i, n)";
        let shown = format!("select i = interval '1 day 12 hours', i::text, sum(n) as s from {only} group by i");
        let plain = format!("select i = interval '1 day 12 hours', i::text, n from {only}");
        assert_eq!(answered(&shown).await.unwrap(), answered(&plain).await.unwrap(), "it is no length");
        let sets = "select k, count(*) from (values (1, interval '1 day'), (1, interval '24 hours'), \
                    (2, interval '24 hours')) as t(k, i) group by rollup(k, i) order by 1, 2";
        assert_eq!(answered(sets).await.unwrap(), ["1|2", "1|2", "2|1", "2|1", "NULL|3"]);
    }
}
