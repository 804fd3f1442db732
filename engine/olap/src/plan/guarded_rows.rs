//! Rows of models that read tables of which the caller himself would see other rows: printed SQL reads them by
//! `model_rows`, which applies the model's rights. So the SQL returns what `load` returns, whoever runs it. The same
//! is done for a SELECT so long that a statement with a few of them would exceed the limit.

use std::collections::{BTreeMap, BTreeSet};

use datafusion::common::Column;
use datafusion::logical_expr::{Expr, LogicalPlan, LogicalPlanBuilder, lit};
use quiver_query::quoting;
use quiver_query::tables::models::{MODEL_ROWS, ModelRows};

use super::ranges::time_of;
use super::references::{MemberReferences, read_names};
use super::{Planner, of_model};
use crate::error::OlapResult;
use crate::model::catalog::Catalog;
use crate::model::{MemberId, Model, OpenMembers};
use crate::query::Query;
use crate::sql_text::instant_text;

/// The longest SELECT of a model that is printed in place.
pub(super) const SELECT_BYTES_MAX: usize = 8 << 10;

/// The columns of a model's rows that printed SQL may name, and others that members refer to. Which of them a query
/// needs is only known when all of it is planned, since times and rights are added on the way.
pub(super) fn columns(catalog: &Catalog, model: &Model, rows: &LogicalPlan, spoken: &BTreeSet<String>) -> Vec<String> {
    let names = rows.schema().fields().iter().map(|field| field.name());
    names.filter(|name| spoken.contains(*name) || is_readable(catalog, model, name)).cloned().collect()
}

/// A model's rows with just these columns, since printed SQL names every column of a plan.
pub(super) fn narrowed(rows: LogicalPlan, columns: Vec<String>) -> OlapResult<LogicalPlan> {
    let columns = columns.into_iter().map(|name| Expr::Column(Column::new_unqualified(name))).collect();
    Ok(LogicalPlanBuilder::from(rows).project(one_at_least(columns))?.build()?)
}

/// Rows must have a column, even if none is needed.
fn one_at_least(columns: Vec<Expr>) -> Vec<Expr> {
    if columns.is_empty() { vec![lit(1_i64).alias("one")] } else { columns }
}

/// The SELECT for columns of a model's rows.
pub(super) fn text(model: &Model, columns: &[String], range: Option<(i64, i64)>) -> String {
    let bound = |ns: Option<i64>| ns.map_or_else(|| "NULL".to_owned(), |ns| quoting::text(&instant_text(ns, true)));
    let mut args = vec![quoting::text(&model.common.name), bound(range.map(|r| r.0)), bound(range.map(|r| r.1))];
    args.extend(columns.iter().map(|name| quoting::text(name)));
    format!("SELECT * FROM {MODEL_ROWS}({})", args.join(", "))
}

/// The first of these columns that no accessible member uses, and nobody may read.
pub(crate) fn unreadable<'c>(catalog: &Catalog, model: &Model, columns: &'c [String]) -> Option<&'c String> {
    columns.iter().find(|column| !is_readable(catalog, model, column))
}

fn is_readable(catalog: &Catalog, model: &Model, column: &str) -> bool {
    catalog.readable(&model.common.name, readable).contains(column)
        || model.open.as_ref().is_some_and(|open| is_opened(open, column))
}

/// For each model the columns that accessible members use; [`Catalog::readable`] caches it.
fn readable(catalog: &Catalog) -> BTreeMap<String, BTreeSet<String>> {
    let reached = reached_by_all(catalog);
    catalog.models.keys().map(|name| (name.clone(), reached.spoken_of(catalog, name))).collect()
}

/// Everything in a catalog that queries can reach.
fn reached_by_all(catalog: &Catalog) -> MemberReferences {
    let mut reached = MemberReferences::default();
    let mut add = |id: MemberId| {
        if catalog.find(&id).is_some_and(|found| catalog.is_public(&found)) {
            reached.add(catalog, &id);
        }
    };
    for (name, model) in &catalog.models {
        for member in model.member_names() {
            add(MemberId::new(name, member));
        }
    }
    for (name, view) in &catalog.views {
        for member in &view.members {
            add(MemberId::new(name, &member.common.name));
        }
    }
    // Ranges read times, even if no query names these.
    for (time, first) in catalog.models.values().filter_map(time_of) {
        reached.add(catalog, &time);
        reached.add(catalog, &first);
    }
    reached.add_joins(catalog);
    reached
}

/// Whether a column is that of an open dimension.
fn is_opened(open: &OpenMembers, column: &str) -> bool {
    let mut names = BTreeSet::new();
    read_names(&open.sql.text, &mut names);
    names.iter().any(|name| {
        let around = [":flat_key", ":key"].into_iter().find_map(|key| name.split_once(key));
        around.is_some_and(|(before, behind)| {
            column.strip_prefix(before).and_then(|rest| rest.strip_suffix(behind)).is_some_and(|key| !key.is_empty())
        })
    })
}

impl Planner<'_> {
    /// The rows of a model that the caller may see, with some of its columns.
    pub(crate) fn guarded(&self, model: &Model, rows: &ModelRows, now_ns: i64) -> OlapResult<LogicalPlan> {
        let stage = self.stage_of(&Query::empty(now_ns))?;
        let visible = self.visible(&stage, self.sources.plan(&rows.model)?, model)?;
        let columns = rows.columns.iter().map(|name| of_model(&rows.model, name)).collect();
        Ok(LogicalPlanBuilder::from(visible).project(one_at_least(columns))?.build()?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::load::{SourceFile, load};

    const MODELS: &str = r#"
cubes:
  - name: Sales
    sql_table: public.sales
    row_right: {service: shop, domain: traces}
    open: {prefix: attr_, sql: '"labels.:key"'}
    joins: [{name: Shops, relationship: many_to_one, sql: '{CUBE}.shop_id = {Shops}.id'}]
    dimensions:
      - {name: id, type: number, sql: sale_id, primary_key: true, public: false}
      - {name: shop, type: string, sql: shop_name, public: false}
      - {name: cost, type: number, sql: bought_for, public: false}
      - {name: hidden, type: number, sql: secret, public: false}
    measures:
      - {name: total, type: sum, sql: amount}
      - {name: spent, type: sum, sql: '{cost}', public: false}
      - {name: margin, type: number, sql: '{total} - {spent}'}
      - {name: secrets, type: sum, sql: secret, public: false}
  - name: Shops
    sql_table: public.shops
    dimensions: [{name: id, type: number, sql: id, primary_key: true}, {name: area, type: string, sql: amount_of_area}]
"#;

    #[test]
    fn columns_that_nothing_public_is_made_of_are_nobodys() {
        let source = SourceFile { name: "m.yml".to_owned(), text: MODELS.to_owned(), builtin: false };
        let catalog = load(&[source]).unwrap().0;
        let found = |names: &[&str]| {
            let columns: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
            unreadable(&catalog, &catalog.models["Sales"], &columns).cloned()
        };
        assert_eq!(found(&["sale_id", "shop_name", "shop_id", "bought_for", "amount", "labels.mode"]), None);
        for name in ["secret", "amount_of_area", "labels.", "labelsX", "other"] {
            assert_eq!(found(&["amount", name]).as_deref(), Some(name));
        }
    }
}
