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

/// Reports granularities that their dimensions do not have.
pub(super) fn check(models: &[Model], problems: &mut Vec<ModelProblem>) {
    for model in models {
        let added = model.measures.iter().flat_map(|m| named(m).map(move |added| (m, added)));
        for (measure, added) in added {
            let Some(name) = &added.granularity else { continue };
            // Missing members have been reported already.
            let is_there = |m: &&Model| m.member_names().any(|own| own == added.member.member);
            let of = models.iter().find(|m| m.common.name == added.member.model).filter(is_there);
            let Some(of) = of else { continue };
            let dimension = of.dimension(&added.member.member);
            let text = match dimension.filter(|d| d.ty == DimensionType::Time) {
                None => format!("`{}` is not a time dimension, so it has no granularity `{name}`", added.member),
                Some(dimension) if dimension.granularity(name).is_some() => continue,
                Some(dimension) => {
                    let known = dimension.granularities.iter().map(|g| g.name.as_str());
                    let known = known.chain(crate::dates::granularity::STANDARD);
                    let hint = did_you_mean(name, known);
                    format!("`{}` has no granularity `{name}`{hint}", added.member)
                }
            };
            problems.push(ModelProblem::new(model, measure.common.place, Some(&measure.common.name), text));
        }
    }
}
