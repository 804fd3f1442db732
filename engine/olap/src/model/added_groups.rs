//! Dimensions by which the inner query of a measure is grouped in addition to those of the query (`olap-api.md`
//! 11.4): `Model.member`, or `Model.member.granularity` for buckets of a time dimension.

use quiver_types::suggestions::did_you_mean;

use super::problem::ModelProblem;
use super::{Dimension, DimensionType, Measure, MemberId, Model};
use crate::dates::granularity::Granularity;

/// An additional group of an inner query.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AddedGroup {
    /// The dimension.
    pub member: MemberId,
    /// The granularity of the buckets; `None` groups by the values themselves.
    pub granularity: Option<String>,
}

impl std::fmt::Display for AddedGroup {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &self.granularity {
            Some(granularity) => write!(f, "{}.{granularity}", self.member),
            None => write!(f, "{}", self.member),
        }
    }
}

impl Dimension {
    /// A granularity by name: one of the dimension's own, or a standard one.
    pub fn granularity(&self, name: &str) -> Option<Granularity> {
        let own = self.granularities.iter().find(|g| g.name == name).cloned();
        own.or_else(|| Granularity::standard(name)).filter(|_| self.ty == DimensionType::Time)
    }
}

/// The groups of a measure that may have a granularity.
fn named(measure: &Measure) -> impl Iterator<Item = &AddedGroup> {
    measure.add_group_by.iter().chain(measure.group_by.iter().flatten())
}

/// Why a member has no granularity of that name; `None` if it has, or is missing, which has been reported already.
pub(super) fn granularity_fault(models: &[Model], id: &MemberId, name: &str) -> Option<String> {
    let is_there = |m: &&Model| m.member_names().any(|own| own == id.member);
    let of = models.iter().find(|m| m.common.name == id.model).filter(is_there)?;
    let Some(dimension) = of.dimension(&id.member).filter(|d| d.ty == DimensionType::Time) else {
        return Some(format!("`{id}` is not a time dimension, so it has no granularity `{name}`"));
    };
    if dimension.granularity(name).is_some() {
        return None;
    }
    let known = dimension.granularities.iter().map(|g| g.name.as_str()).chain(crate::dates::granularity::STANDARD);
    Some(format!("`{id}` has no granularity `{name}`{}", did_you_mean(name, known)))
}

/// Reports granularities that their dimensions do not have.
pub(super) fn check(models: &[Model], problems: &mut Vec<ModelProblem>) {
    for model in models {
        let added = model.measures.iter().flat_map(|m| named(m).map(move |added| (m, added)));
        for (measure, added) in added {
            let Some(name) = &added.granularity else { continue };
            if let Some(text) = granularity_fault(models, &added.member, name) {
                problems.push(ModelProblem::new(model, measure.common.place, Some(&measure.common.name), text));
            }
        }
    }
}
