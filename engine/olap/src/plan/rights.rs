//! Restricts models to the rows that the caller may see (`olap-api.md` 12.1).

use datafusion::logical_expr::{Expr, LogicalPlan, LogicalPlanBuilder, lit};
use quiver_query::visible_rows;
use quiver_types::Access;

use super::{Planner, Stage};
use crate::error::OlapResult;
use crate::model::{Model, Reads};

impl Planner<'_> {
    /// The rows of a model that the caller may see.
    pub(super) fn visible(&self, stage: &Stage, rows: LogicalPlan, model: &Model) -> OlapResult<LogicalPlan> {
        let Some(filter) = self.row_filter(stage, model)? else { return Ok(rows) };
        let is_guarded = self.sources.is_guarded(&model.common.name) && filter != lit(false);
        let visible = LogicalPlanBuilder::from(rows).filter(filter)?.build()?;
        // What a statement computes must not meet the others. Where there is none, it meets none.
        Ok(if is_guarded { visible_rows(visible) } else { visible })
    }

    /// The condition for visible rows of a model; `None` if the caller sees all.
    fn row_filter(&self, stage: &Stage, model: &Model) -> OlapResult<Option<Expr>> {
        if self.access.is_full_everywhere() {
            return Ok(None);
        }
        let Some(right) = &model.row_right else { return Ok(Some(lit(false))) };
        if right.reads == Reads::Visible {
            return Ok(None);
        }
        let is_full = self.access.is_full(right.domain);
        if is_full && !right.deny {
            return Ok(None);
        }
        let own = match &right.own {
            Some(own) if !self.caller.is_empty() => {
                Some(self.own_dimension(stage, model, own)?.eq(self.value(lit(self.caller))))
            }
            _ => None,
        };
        if right.services.is_empty() {
            // Rows of a model without a service are visible to callers who see all of its domain, and to others only
            // if they are their own.
            return Ok((!is_full || right.deny).then(|| own.unwrap_or_else(|| lit(false))));
        }
        let access = self.access.get(right.domain);
        let services: Vec<Expr> =
            right.services.iter().map(|name| self.own_dimension(stage, model, name)).collect::<OlapResult<_>>()?;
        let named = services.iter().cloned().map(Expr::is_not_null).reduce(Expr::or).unwrap_or_else(|| lit(false));
        let mut visible = named;
        for service in &services {
            visible = visible.and(service.clone().is_null().or(self.allows(&access, service)?));
        }
        Ok(Some(match own {
            Some(own) => visible.or(own),
            None => visible,
        }))
    }

    fn own_dimension(&self, stage: &Stage, model: &Model, name: &str) -> OlapResult<Expr> {
        let id = crate::model::MemberId::new(&model.common.name, name);
        self.dimension(stage, &id)
    }

    /// A condition that a service is visible.
    fn allows(&self, access: &Access, service: &Expr) -> OlapResult<Expr> {
        let mut names = Vec::new();
        let mut any: Option<Expr> = None;
        for pattern in access.patterns() {
            match pattern.strip_suffix('*') {
                Some("") => return Ok(service.clone().not_eq(lit(""))),
                Some(prefix) => {
                    let begins = self.scalar("starts_with", vec![service.clone(), self.value(lit(prefix))])?;
                    any = Some(any.map_or_else(|| begins.clone(), |a| a.or(begins.clone())));
                }
                None => names.push(self.value(lit(pattern))),
            }
        }
        let listed = (!names.is_empty()).then(|| service.clone().in_list(names, false));
        Ok(match (listed, any) {
            (Some(a), Some(b)) => a.or(b),
            (Some(one), None) | (None, Some(one)) => one,
            (None, None) => lit(false),
        })
    }
}
