//! What the language asks of a pipe, and the pipe of a query: any type that answers it.

use std::any::Any;
use std::fmt::{self, Debug, Display, Formatter};

use quiver_types::Result;
use quiver_types::logs::{LogFilter, LogRequest};

use crate::ast::{Filter, Query};
use crate::partial_plan::{PartialPlan, internal};
use crate::reference_time::TimeScope;
use crate::required_fields::Needs;
use crate::series_columns::{StatsColumns, refused};
use crate::step::StepReader;

/// A pipe, as it was parsed: one of the types in the files beside this one.
pub struct Pipe(Box<dyn PipeKind>);

impl<P: PipeKind> From<P> for Pipe {
    fn from(pipe: P) -> Self {
        Self(Box::new(pipe))
    }
}

impl Pipe {
    /// Gives the pipe as a trait object.
    pub(crate) fn kind(&self) -> &dyn PipeKind {
        self.0.as_ref()
    }

    /// Like [`Self::kind`], mutable, to change filters and queries in it.
    pub(crate) fn kind_mut(&mut self) -> &mut dyn PipeKind {
        self.0.as_mut()
    }

    /// Whether it is a pipe of this type.
    pub fn is<P: 'static>(&self) -> bool {
        self.downcast_ref::<P>().is_some()
    }

    /// The pipe, if it is of this type.
    pub fn downcast_ref<P: 'static>(&self) -> Option<&P> {
        let kind: &dyn Any = self.kind();
        kind.downcast_ref()
    }

    /// Like [`Self::downcast_ref`], to change it.
    pub(crate) fn downcast_mut<P: 'static>(&mut self) -> Option<&mut P> {
        let kind: &mut dyn Any = self.kind_mut();
        kind.downcast_mut()
    }
}

impl Clone for Pipe {
    fn clone(&self) -> Self {
        Self(self.kind().boxed())
    }
}

impl PartialEq for Pipe {
    fn eq(&self, other: &Self) -> bool {
        self.kind().equals(other.kind())
    }
}

impl Debug for Pipe {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        Debug::fmt(self.kind(), f)
    }
}

impl Display for Pipe {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        Display::fmt(self.kind(), f)
    }
}

/// Object-safe versions of `Clone` and `PartialEq`; implemented for all pipes.
pub(crate) trait PipeValue: Any {
    /// A copy of it.
    fn boxed(&self) -> Box<dyn PipeKind>;

    /// Says whether the other is of the same type and equal.
    fn equals(&self, other: &dyn Any) -> bool;
}

impl<P: PipeKind + Clone + PartialEq> PipeValue for P {
    fn boxed(&self) -> Box<dyn PipeKind> {
        Box::new(self.clone())
    }

    fn equals(&self, other: &dyn Any) -> bool {
        other.downcast_ref::<P>() == Some(self)
    }
}

/// Plans whole queries, for pipes that hold a subquery.
pub(crate) trait QueryPlanner: Debug {
    /// Plans a query; `needs` are the fields of its rows that are used.
    fn query(&self, query: &Query, needs: &Needs) -> Result<PartialPlan>;
}

/// The place of a pipe in a plan.
#[derive(Debug, Clone, Copy)]
pub(crate) struct At<'a> {
    pub(crate) planner: &'a dyn QueryPlanner,
    /// The fields of its rows that are used after it.
    pub(crate) needs: &'a Needs,
    pub(crate) scope: TimeScope,
}

/// What a pipe does to the order of rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Order {
    /// Its rows have the order of the rows before it.
    Kept,
    /// Its rows have no defined order.
    Lost,
    /// It sorts its rows.
    Made,
}

/// Which fields the rows of a pipe have, for callers that need a single one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Output<'a> {
    /// The fields of the rows before the pipe.
    Same,
    /// Each row has this field and no other.
    One(&'a str),
    /// Several, or unknown ones.
    Others,
}

/// A selection of rows by position only.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RowSlice {
    /// Only the first rows.
    Limit(u64),
    /// All but the first rows.
    Offset(u64),
}

/// How a pipe and the next one are merged, in the normal form of a query.
#[derive(Debug)]
pub(crate) enum PipeMerge {
    /// They are not merged.
    Apart,
    /// The first one now does what both did; the other is removed.
    One,
    /// Both are replaced by these.
    Others(Vec<Pipe>),
}

/// A pipe. The default methods are right for any pipe; a pipe overrides them to allow better plans.
pub(crate) trait PipeKind: PipeValue + Display + Debug + Send + Sync + 'static {
    /// Gives the fields that it needs of the rows before it, given those that are needed of its own rows.
    fn before(&self, after: &Needs) -> Needs;

    /// Readers for the serialized forms of its own steps.
    fn steps() -> &'static [StepReader]
    where
        Self: Sized,
    {
        &[]
    }

    /// Adds its nodes to the plan of the rows before it.
    fn plan(&self, rows: PartialPlan, at: At<'_>) -> Result<PartialPlan>;

    /// Names that it mentions besides the fields that it needs. They get columns of their own wherever the remaining
    /// fields are kept in a map.
    fn mentions(&self) -> Vec<String> {
        Vec::new()
    }

    /// Says whether its rows have no fields of the rows before it except those that it names.
    fn is_barrier(&self) -> bool {
        false
    }

    /// Says what it does to the order of rows.
    fn order(&self) -> Order {
        if self.is_barrier() { Order::Lost } else { Order::Kept }
    }

    /// Says whether each of its rows keeps the time of the row that it is made from. Then a scan below it may give
    /// rows sorted by time.
    fn keeps_time(&self) -> bool {
        false
    }

    /// Says whether it maps each row to one row with the same time, so that the newest rows before it become the
    /// newest after it.
    fn keeps_rows(&self) -> bool {
        false
    }

    /// Says whether a live tail may use it, because it processes rows one by one as they arrive.
    fn follows(&self) -> bool {
        self.keeps_rows()
    }

    /// Says which fields its rows have.
    fn output(&self) -> Output<'_> {
        Output::Others
    }

    /// Fields that it wants in stored form (dictionary codes, numbers) rather than as text if it comes right after a
    /// scan.
    fn stored(&self) -> Vec<String> {
        Vec::new()
    }

    /// Gives the selection of rows by position, if it does nothing else.
    fn cut(&self) -> Option<RowSlice> {
        None
    }

    /// Gives its filter, if it does nothing but filter rows.
    fn only_filter(&mut self) -> Option<&mut Filter> {
        None
    }

    /// Merges the next pipe into it, if both can be written as one.
    fn take_over(&mut self, _: &mut Pipe) -> PipeMerge {
        PipeMerge::Apart
    }

    /// Says whether it only counts rows by values, so that one row with a count may stand for many equal ones.
    fn counts_rows(&self) -> bool {
        false
    }

    /// Gives the number of rows after which a scan right before it may stop; `None`: it needs all.
    fn most_rows(&self) -> Option<u64> {
        None
    }

    /// Gives the request for a scan that returns counts instead of rows, if the store can count what the pipe counts.
    fn counted_by_scan(&self, _: &LogFilter) -> Option<LogRequest> {
        None
    }

    /// Plans the sum of the counts that a scan by [`Self::counted_by_scan`] returns per block.
    fn add_counts(&self, _: PartialPlan) -> Result<PartialPlan> {
        Err(internal("a pipe without counts"))
    }

    /// Plans its rows, for a pipe that reads no rows before it.
    fn own_rows(&self) -> Option<Result<PartialPlan>> {
        None
    }

    /// Its own filters (not those of its subqueries).
    fn filters_mut(&mut self) -> Vec<&mut Filter> {
        Vec::new()
    }

    /// The queries within it, such as that of `join`, in order.
    fn queries_mut(&mut self) -> Vec<&mut Query> {
        Vec::new()
    }

    /// Updates the columns of labels and values of a `stats` result, for the Prometheus form.
    fn follow_columns(&self, _: &mut StatsColumns) -> Result<()> {
        Err(refused(format!("`{self}` cannot stand behind `stats` here")))
    }
}
