//! The data model: cubes and views from YAML files (`olap-api.md` 10), read, checked and linked.
//!
//! `parse` makes the structures below from one file, `template` parses the SQL texts in it, `check` resolves names
//! across all files, `problem_location` finds the model that a problem in a file belongs to, `catalog` is the checked result,
//! `load` reads folders. Nothing here knows tables or plans.

mod added_groups;
pub mod catalog;
mod check;
mod cube_syntax;
pub mod load;
mod open_dimensions;
mod parse;
pub mod problem;
mod problem_location;
pub mod template;
mod views;

use std::sync::Arc;

use quiver_yaml::problem::Place;
use serde_json::Value;

use crate::dates::granularity::{Granularity, Interval};
pub use added_groups::AddedGroup;
pub use open_dimensions::OpenMembers;
pub use template::{Piece, Template};
pub use views::{Folder, FolderItem, Include, View, ViewHierarchy, ViewMember, ViewPart};

/// A member of a model by both names.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct MemberId {
    /// Model or view.
    pub model: String,
    /// Name of a dimension, measure or segment of it.
    pub member: String,
}

impl MemberId {
    /// Makes an id of names that are known to be right; nothing is checked.
    pub fn new(model: impl Into<String>, member: impl Into<String>) -> Self {
        Self { model: model.into(), member: member.into() }
    }

    /// Reads the form `Model.member`; none: there is not exactly one dot, or a part is no name.
    pub fn parse(text: &str) -> Option<Self> {
        let (model, member) = text.split_once('.')?;
        (is_name(model) && is_name(member)).then(|| Self::new(model, member))
    }
}

impl std::fmt::Display for MemberId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}.{}", self.model, self.member)
    }
}

/// Whether a text may be a name of a model or member.
pub fn is_name(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_')
}

/// What all members and models have.
#[derive(Debug, Clone, Default)]
pub struct Common {
    /// Name in queries, without that of the model: ASCII letters, digits and `_`.
    pub name: String,
    /// What people read; none: made of the name.
    pub title: Option<String>,
    /// What it is and what it is for, for people; shown by `/meta`.
    pub description: Option<String>,
    /// Whether queries may name it; none: as its kind has it.
    pub public: Option<bool>,
    /// Whatever the model's writer puts beside it.
    pub meta: Option<Value>,
    /// `percent`, `currency`, and the like.
    pub format: Option<Value>,
    /// Currency of an amount, as the model writes it, like `EUR`.
    pub currency: Option<String>,
    /// Where it stands.
    pub place: Place,
}

impl Common {
    /// Gives the title without that of the model.
    pub fn short_title(&self) -> String {
        self.title.clone().unwrap_or_else(|| crate::member_titles::of_name(&self.name))
    }
}

/// Type of a dimension.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DimensionType {
    /// Text; filters may also ask for a part of it, ignoring case.
    String,
    /// Number of any kind.
    Number,
    /// `true` or `false`.
    Boolean,
    /// Instant in nanoseconds UTC; queries group it into buckets of their time zone.
    Time,
    /// Place on earth; its value is the text `latitude,longitude`.
    Geo,
    /// One of listed texts.
    Switch,
}

impl DimensionType {
    /// All types with their words.
    pub const ALL: [(Self, &'static str); 6] = [
        (Self::String, "string"),
        (Self::Number, "number"),
        (Self::Boolean, "boolean"),
        (Self::Time, "time"),
        (Self::Geo, "geo"),
        (Self::Switch, "switch"),
    ];

    /// Its word in model files and in `/meta`.
    pub fn word(self) -> &'static str {
        Self::ALL[self as usize].1
    }

    /// Type of its values in annotations: those of a switch are texts.
    pub fn value_type(self) -> &'static str {
        if self == Self::Switch { Self::String.word() } else { self.word() }
    }
}

/// Type of a measure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MeasureType {
    /// Rows, or values that are not NULL.
    Count,
    /// Number of different values, NULL not counted; exact.
    CountDistinct,
    /// Number of different values, estimated by a sketch of fixed size.
    CountDistinctApprox,
    /// Sum of the values that are not NULL; NULL if there are none.
    Sum,
    /// Mean of the values that are not NULL.
    Avg,
    /// Smallest value that is not NULL.
    Min,
    /// Largest value that is not NULL.
    Max,
    /// An expression that is a number.
    Number,
    /// An aggregate that is written in SQL; with stages one over the groups of an inner query.
    NumberAgg,
    /// An expression that is a text.
    String,
    /// An expression that is a truth value.
    Boolean,
    /// An expression that is an instant.
    Time,
    /// Sum from the beginning on.
    RunningTotal,
    /// Place among the groups.
    Rank,
}

impl MeasureType {
    /// All types: word in models, `aggType` in meta.
    pub const ALL: [(Self, &'static str, &'static str); 14] = [
        (Self::Count, "count", "count"),
        (Self::CountDistinct, "count_distinct", "countDistinct"),
        (Self::CountDistinctApprox, "count_distinct_approx", "countDistinctApprox"),
        (Self::Sum, "sum", "sum"),
        (Self::Avg, "avg", "avg"),
        (Self::Min, "min", "min"),
        (Self::Max, "max", "max"),
        (Self::Number, "number", "number"),
        (Self::NumberAgg, "number_agg", "numberAgg"),
        (Self::String, "string", "string"),
        (Self::Boolean, "boolean", "boolean"),
        (Self::Time, "time", "time"),
        (Self::RunningTotal, "running_total", "runningTotal"),
        (Self::Rank, "rank", "rank"),
    ];

    /// The word that `/meta` shows as `aggType`, in camel case.
    pub fn agg_type(self) -> &'static str {
        Self::ALL[self as usize].2
    }

    /// Type of its values in annotations.
    pub fn value_type(self) -> &'static str {
        match self {
            Self::String => "string",
            Self::Boolean => "boolean",
            Self::Time => "time",
            _ => "number",
        }
    }

    /// Whether its SQL is a whole expression, not the argument of an aggregate.
    pub fn is_expression(self) -> bool {
        matches!(self, Self::Number | Self::NumberAgg | Self::String | Self::Boolean | Self::Time)
    }
}

/// `case` of a dimension or measure.
#[derive(Debug, Clone)]
pub struct Case {
    /// Conditions with what they give.
    pub when: Vec<(Template, Label)>,
    /// What rows have for which no condition is true; none: NULL.
    pub otherwise: Option<Label>,
}

/// What a case gives.
#[derive(Debug, Clone)]
pub enum Label {
    /// Text as it stands.
    Text(String),
    /// SQL expression over a row of the model.
    Sql(Template),
}

/// Something that rows are grouped and filtered by: a value of each row.
#[derive(Debug, Clone)]
#[allow(clippy::struct_excessive_bools, reason = "the switches of the format of models")]
pub struct Dimension {
    /// Name and what people read.
    pub common: Common,
    /// Type of its values.
    pub ty: DimensionType,
    /// Expression over a row; except for a switch, exactly one of this, `case` and `geo` is there.
    pub sql: Option<Template>,
    /// Conditions that are tried in order, in place of `sql`.
    pub case: Option<Case>,
    /// SQL of latitude and longitude, in place of `sql`.
    pub geo: Option<(Template, Template)>,
    /// Whether it is part of the key.
    pub primary_key: bool,
    /// Whether values are suggested.
    pub suggest: bool,
    /// Whether its SQL is a measure of another query.
    pub sub_query: bool,
    /// Whether filters of the query enter that one.
    pub propagate_filters: bool,
    /// Whether the time range of the query enters that one.
    pub propagate_range: bool,
    /// Whether the sub-query has a value for each bucket of the query.
    pub per_bucket: bool,
    /// The member from which on a row lives.
    pub since: Option<String>,
    /// Granularities that the model defines for it, beside the built-in ones like `day`.
    pub granularities: Vec<Granularity>,
    /// The words that it may have; empty but for a switch.
    pub values: Vec<String>,
    /// Whether it comes from `open`: its column says which type its values have.
    pub is_opened: bool,
}

/// Reach of a rolling window.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reach {
    /// As far as there are rows.
    Unbounded,
    /// As long as this from the border.
    Of(Interval),
}

/// Rows that a bucket's value is made of.
#[derive(Debug, Clone, PartialEq)]
pub enum RollingWindow {
    /// Around an end of the bucket.
    Around {
        /// Back from it.
        trailing: Reach,
        /// Ahead of it.
        leading: Reach,
        /// Whether the start of the bucket is meant, not its end.
        from_start: bool,
    },
    /// From the start of a unit on.
    ToDate(Granularity),
}

/// Moves the range of an inner query.
#[derive(Debug, Clone)]
pub struct TimeShift {
    /// Which time dimension; none: all of the query.
    pub time_dimension: Option<MemberId>,
    /// How far ahead of the inner rows the outer ones are.
    pub interval: Interval,
    /// By how many lengths of the query's range they are ahead besides.
    pub ranges: i64,
}

/// Something that is computed over the rows of a group, mostly an aggregate.
#[derive(Debug, Clone)]
pub struct Measure {
    /// Name and what people read.
    pub common: Common,
    /// Which aggregate it is, or which type its expression has.
    pub ty: MeasureType,
    /// Argument of the aggregate, or the whole expression where the type is no aggregate; none: `count` counts rows.
    pub sql: Option<Template>,
    /// Conditions that are tried in order, in place of `sql`.
    pub case: Option<Case>,
    /// Conditions on rows.
    pub filters: Vec<Template>,
    /// Members that are shown of the rows behind a value; empty: those of the first measure of the model that has some.
    pub drill_members: Vec<MemberId>,
    /// Window of time.
    pub rolling_window: Option<RollingWindow>,
    /// Whether it is made of the result of an inner query.
    pub multi_stage: bool,
    /// Dimensions that the inner query keeps, times in longer buckets where a granularity is named.
    pub group_by: Option<Vec<AddedGroup>>,
    /// Dimensions that the inner query lacks.
    pub reduce_by: Vec<MemberId>,
    /// Dimensions that the inner query has beside the others.
    pub add_group_by: Vec<AddedGroup>,
    /// Order of a rank: expression, and whether it descends.
    pub order_by: Vec<(Template, bool)>,
    /// Shifts of time.
    pub time_shift: Vec<TimeShift>,
    /// Whether measures of other models are computed in queries of their own.
    pub apart: bool,
}

/// A named filter.
#[derive(Debug, Clone)]
pub struct Segment {
    /// Name and what people read.
    pub common: Common,
    /// SQL condition; the rows, or groups where it names measures, for which it is true stay.
    pub sql: Template,
    /// Members that a condition over measures goes by; empty: the key.
    pub by: Vec<MemberId>,
}

/// How rows of two models meet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Relationship {
    /// One to one.
    OneToOne,
    /// One to many.
    OneToMany,
    /// Many to one.
    ManyToOne,
}

impl Relationship {
    /// All words, old ones too.
    pub const WORDS: [(&'static str, Self); 12] = [
        ("one_to_one", Self::OneToOne),
        ("one_to_many", Self::OneToMany),
        ("many_to_one", Self::ManyToOne),
        ("hasOne", Self::OneToOne),
        ("hasMany", Self::OneToMany),
        ("belongsTo", Self::ManyToOne),
        ("has_one", Self::OneToOne),
        ("has_many", Self::OneToMany),
        ("belongs_to", Self::ManyToOne),
        ("oneToOne", Self::OneToOne),
        ("oneToMany", Self::OneToMany),
        ("manyToOne", Self::ManyToOne),
    ];

    /// Its word in model files and in `/meta`.
    pub fn word(self) -> &'static str {
        Self::WORDS[self as usize].0
    }
}

/// A join to another model.
#[derive(Debug, Clone)]
pub struct Join {
    /// The other model.
    pub target: String,
    /// How rows meet.
    pub relationship: Relationship,
    /// SQL condition over a row of each of the two models.
    pub sql: Template,
    /// Where it stands.
    pub place: Place,
}

/// What the rows of a model are.
#[derive(Debug, Clone)]
pub enum Source {
    /// A table: schema, where one is named, and name.
    Table(Option<String>, String),
    /// SQL text of a SELECT, used as a subquery.
    Select(String),
}

/// Which rows of its table a model is made of.
#[derive(Debug, Clone)]
pub struct OwnRows {
    /// SQL condition over a row of the table.
    pub sql: Template,
    /// The segment with which a query has all rows.
    pub unless: Option<String>,
}

/// Who sees a row (`olap-api.md` 12.1).
#[derive(Debug, Clone)]
pub struct RowRight {
    /// Members that name services.
    pub services: Vec<String>,
    /// Domain in which a caller needs the right to see the row.
    pub domain: quiver_types::Domain,
    /// Member that names the caller.
    pub own: Option<String>,
    /// Whether rows without a service need scope `*` in all domains, not only in this one.
    pub deny: bool,
    /// Which rows of the tables below make those of the model.
    pub reads: Reads,
}

/// Which rows of the product's tables a model is made of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reads {
    /// Those that the caller sees; of the model's rows those whose services he sees.
    Both,
    /// Those that the caller sees; what is made of them, he sees.
    Visible,
    /// All, since rows that he does not see decide which of the model's he does; of these those whose services he sees.
    All,
}

/// Levels from coarse to fine.
#[derive(Debug, Clone)]
pub struct Hierarchy {
    /// Name and what people read.
    pub common: Common,
    /// Dimensions, the coarsest first.
    pub levels: Vec<MemberId>,
}

/// A rollup that the model asks for.
#[derive(Debug, Clone)]
pub struct PreAggregation {
    /// Name without that of the model; answers show `Model.name`.
    pub name: String,
    /// `rollup`, `original_sql`, `rollup_join`, `rollup_lambda`.
    pub kind: String,
    /// Measures that are kept of each group.
    pub measures: Vec<MemberId>,
    /// Dimensions by which its rows are grouped.
    pub dimensions: Vec<MemberId>,
    /// Segments by which its rows are grouped too, as truth values.
    pub segments: Vec<MemberId>,
    /// Time dimension and granularity.
    pub time: Option<(MemberId, String)>,
}

/// A model (`cubes` in files): rows of one table or SELECT with the members that are read of them.
#[derive(Debug, Clone)]
pub struct Model {
    /// Name and what people read.
    pub common: Common,
    /// File that it stands in.
    pub file: Arc<str>,
    /// The cube whose members it takes over.
    pub extends: Option<String>,
    /// Where the rows are read; none: where the cube that it extends reads them.
    pub source: Option<Source>,
    /// Which of the rows of `source` are the model's; none: all.
    pub rows: Option<OwnRows>,
    /// Whether a row is a record of an entity, the key: joins then see one row for each key.
    pub entities: bool,
    /// Columns of its SELECT that are made of all rows there are, whatever the range of a query.
    pub whole: Vec<String>,
    /// Joins to other models.
    pub joins: Vec<Join>,
    /// Dimensions, in the order of the file.
    pub dimensions: Vec<Dimension>,
    /// Measures, in the order of the file.
    pub measures: Vec<Measure>,
    /// Segments, in the order of the file.
    pub segments: Vec<Segment>,
    /// Dimensions that are made of their names.
    pub open: Option<OpenMembers>,
    /// Hierarchies, in the order of the file.
    pub hierarchies: Vec<Hierarchy>,
    /// Rollups that may be kept for quicker answers, in the order of the file.
    pub pre_aggregations: Vec<PreAggregation>,
    /// When the reference reads rows anew, as the model says it.
    pub refresh_key: Option<Value>,
    /// Who sees a row; none: only callers who see everything do.
    pub row_right: Option<RowRight>,
}

impl Model {
    /// Finds a dimension.
    pub fn dimension(&self, name: &str) -> Option<&Dimension> {
        self.dimensions.iter().find(|d| d.common.name == name)
    }

    /// Finds a measure.
    pub fn measure(&self, name: &str) -> Option<&Measure> {
        self.measures.iter().find(|m| m.common.name == name)
    }

    /// Finds a segment.
    pub fn segment(&self, name: &str) -> Option<&Segment> {
        self.segments.iter().find(|s| s.common.name == name)
    }

    /// The dimensions that make the key.
    pub fn key(&self) -> impl Iterator<Item = &Dimension> {
        self.dimensions.iter().filter(|d| d.primary_key)
    }

    /// Names of all members.
    pub fn member_names(&self) -> impl Iterator<Item = &str> {
        let dimensions = self.dimensions.iter().map(|d| &d.common);
        let measures = self.measures.iter().map(|m| &m.common);
        let segments = self.segments.iter().map(|s| &s.common);
        dimensions.chain(measures).chain(segments).map(|c| c.name.as_str())
    }

    /// Whether queries may name it.
    pub fn is_public(&self) -> bool {
        self.common.public.unwrap_or(true)
    }

    /// What people read.
    pub fn title(&self) -> String {
        self.common.short_title()
    }
}
