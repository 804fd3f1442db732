//! The kinds of look-ups in the index of series, and the snapshot that they read.

use std::fmt;
use std::sync::Arc;

use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use quiver_types::{Access, Matcher, MillisRange, SeriesSnapshot};
use serde::{Deserialize, Serialize};

use crate::context::QueryContext;

/// What is looked up.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub enum LookUp {
    /// Label sets of the series that match one of the selectors; one that matches two comes twice.
    Series(Vec<Vec<Matcher>>, MillisRange),
    /// Names of their labels, sorted; of all series when there are no selectors.
    Names(Vec<Vec<Matcher>>, MillisRange),
    /// Values of a label of them, sorted.
    Values(String, Vec<Vec<Matcher>>, MillisRange),
    /// Type, unit and help, sorted by metric; of one metric when it is named.
    Metadata(Option<String>),
    /// Exemplars of series that match one of the selectors, series by series.
    Exemplars(Vec<Vec<Matcher>>, MillisRange),
    /// How many series have each value of each label; a row without a label counts all series.
    Cardinality,
}

fn write_selectors(f: &mut fmt::Formatter<'_>, selectors: &[Vec<Matcher>], range: MillisRange) -> fmt::Result {
    for selector in selectors {
        let matchers: Vec<String> =
            selector.iter().map(|m| format!("{}{}{:?}", m.name, m.op.as_str(), m.value)).collect();
        write!(f, ", match={{{}}}", matchers.join(", "))?;
    }
    if range == MillisRange::ALL { Ok(()) } else { write!(f, ", time=[{}, {}]", range.min, range.max) }
}

impl fmt::Display for LookUp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Series(selectors, range) => {
                f.write_str("series")?;
                write_selectors(f, selectors, *range)
            }
            Self::Names(selectors, range) => {
                f.write_str("label names")?;
                write_selectors(f, selectors, *range)
            }
            Self::Values(name, selectors, range) => {
                write!(f, "values of {name:?}")?;
                write_selectors(f, selectors, *range)
            }
            Self::Metadata(None) => f.write_str("metadata"),
            Self::Metadata(Some(metric)) => write!(f, "metadata of {metric:?}"),
            Self::Exemplars(selectors, range) => {
                f.write_str("exemplars")?;
                write_selectors(f, selectors, *range)
            }
            Self::Cardinality => f.write_str("series by label and value"),
        }
    }
}

impl LookUp {
    /// Columns of its rows.
    pub(super) fn schema(&self) -> SchemaRef {
        let text = |name: &str| Field::new(name, DataType::Utf8, false);
        Arc::new(Schema::new(match self {
            Self::Series(..) => vec![text("labels")],
            Self::Names(..) => vec![text("name")],
            Self::Values(..) => vec![text("value")],
            Self::Metadata(_) => {
                let place = Field::new("place", DataType::UInt64, false);
                vec![text("metric"), text("type"), text("unit"), text("help"), place]
            }
            Self::Exemplars(..) => {
                let traces = DataType::List(Arc::new(Field::new_list_field(DataType::Utf8, true)));
                vec![
                    Field::new("series", DataType::UInt64, false),
                    text("series_labels"),
                    Field::new("time", DataType::Int64, false),
                    Field::new("value", DataType::Float64, false),
                    text("labels"),
                    Field::new("traces", traces, false),
                ]
            }
            Self::Cardinality => vec![
                Field::new("label", DataType::Utf8, true),
                Field::new("value", DataType::Utf8, true),
                Field::new("series", DataType::UInt64, false),
            ],
        }))
    }
}

/// Where look-ups are made: one moment, seen with the rights of one caller.
#[derive(Debug, Clone)]
pub struct IndexSource {
    pub(crate) snapshot: Arc<dyn SeriesSnapshot>,
    pub(crate) access: Access,
}

impl IndexSource {
    /// Takes the rights of a query.
    pub fn new(snapshot: Arc<dyn SeriesSnapshot>, ctx: &QueryContext) -> Self {
        Self { snapshot, access: ctx.access.clone() }
    }
}
