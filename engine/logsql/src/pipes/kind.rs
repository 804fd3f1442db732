//! What the language asks of a pipe, and the pipe of a query: any type that answers it.

use std::any::Any;
use std::fmt::{self, Debug, Display, Formatter};

use quiver_types::Result;
use quiver_types::logs::{LogFilter, LogRequest};

use crate::ast::{Filter, Query};
use crate::needs::Needs;
use crate::planned::{Planned, internal};
use crate::series_columns::{StatsColumns, refused};
use crate::step::StepReader;
use crate::time_scope::TimeScope;

/// A pipe, as it was parsed: one of the types in the files beside this one.
pub struct Pipe(Box<dyn PipeKind>);

impl<P: PipeKind> From<P> for Pipe {
    fn from(pipe: P) -> Self {
        Self(Box::new(pipe))
    }
}

impl Pipe {
    /// What is known of the pipe.
    pub(crate) fn kind(&self) -> &dyn PipeKind {
        self.0.as_ref()
    }

    /// As [`Self::kind`], to change filters and queries in it.
    pub(crate) fn kind_mut(&mut self) -> &mut dyn PipeKind {
        self.0.as_mut()
    }

    /// Whether it is a pipe of this type.
    pub fn is<P: 'static>(&self) -> bool {
        self.downcast_ref::<P>().is_some()
    }

    /// The pipe, if it is of this type.
    pub fn downcast_ref<P: 'static>(&self) -> Option<&P> {
        self.kind().as_any().downcast_ref()
    }

    /// As [`Self::downcast_ref`], to change it.
    pub(crate) fn downcast_mut<P: 'static>(&mut self) -> Option<&mut P> {
        self.kind_mut().as_any_mut().downcast_mut()
    }
}

impl Clone for Pipe {
    fn clone(&self) -> Self {
        Self(self.kind().boxed())
    }
}

impl PartialEq for Pipe {
    fn eq(&self, other: &Self) -> bool {
        self.kind().equals(other.kind().as_any())
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

/// What every pipe is as a value, whichever type it is of.
pub(crate) trait PipeValue {
    /// A copy of it.
    fn boxed(&self) -> Box<dyn PipeKind>;

    /// Whether the other is of the same type, and equal.
    fn equals(&self, other: &dyn Any) -> bool;

    /// Itself, to ask for its type.
    fn as_any(&self) -> &dyn Any;

    /// As [`Self::as_any`], to change it.
    fn as_any_mut(&mut self) -> &mut dyn Any;
}

impl<P: PipeKind + Clone + PartialEq> PipeValue for P {
    fn boxed(&self) -> Box<dyn PipeKind> {
        Box::new(self.clone())
    }

    fn equals(&self, other: &dyn Any) -> bool {
        other.downcast_ref::<P>() == Some(self)
    }

    fn as_any(&self) -> &dyn Any {
        self
    }

    fn as_any_mut(&mut self) -> &mut dyn Any {
        self
    }
}

/// Plans whole queries: what a pipe asks for that has one beside its own rows.
pub(crate) trait QueryPlanner: Debug {
    /// Plans a query of whose rows these fields are needed.
    fn query(&self, query: &Query, needs: &Needs) -> Result<Planned>;
}

/// Where in a plan a pipe stands.
#[derive(Debug, Clone, Copy)]
pub(crate) struct At<'a> {
    pub(crate) planner: &'a dyn QueryPlanner,
    /// What is needed of its rows.
    pub(crate) needs: &'a Needs,
    pub(crate) scope: TimeScope,
}

/// What becomes of the order of rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Order {
    /// The rows after the pipe come as those before it.
    Kept,
    /// The rows after the pipe come in any order.
    Lost,
    /// The pipe puts its rows in an order of its own.
    Made,
}

/// What fields the rows of an answer have, as far as one alone can be told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Output<'a> {
    /// The fields of the rows before the pipe.
    Same,
    /// Each row has this field and no other.
    One(&'a str),
    /// Several, or none that is known.
    Others,
}

/// What is left of rows by their places alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Cut {
    /// No more than so many of the first.
    Limit(u64),
    /// All but so many of the first.
    Offset(u64),
}

/// What becomes of a pipe and the one behind it.
#[derive(Debug)]
pub(crate) enum Joined {
    /// They stay as they are.
    Apart,
    /// The first does what both did, and the other goes.
    One,
    /// These do what both did, and both go.
    Others(Vec<Pipe>),
}

/// A pipe. What it does not say of itself holds for pipes that may do anything.
pub(crate) trait PipeKind: PipeValue + Display + Debug + Send + Sync + 'static {
    /// What the rows before it need to have, given what is needed of those after it.
    fn before(&self, after: &Needs) -> Needs;

    /// How the steps are read that are its own.
    fn steps() -> &'static [StepReader]
    where
        Self: Sized,
    {
        &[]
    }

    /// Adds its nodes to those of the rows before it.
    fn plan(&self, rows: Planned, at: At<'_>) -> Result<Planned>;

    /// The names that it speaks of beside those that it needs of any rows: they get columns wherever a map of other
    /// fields is.
    fn mentions(&self) -> Vec<String> {
        Vec::new()
    }

    /// Whether the rows after it have nothing of those before it but what it says.
    fn is_barrier(&self) -> bool {
        false
    }

    /// What becomes of the order of rows.
    fn order(&self) -> Order {
        if self.is_barrier() { Order::Lost } else { Order::Kept }
    }

    /// Whether each of its rows has the time of the row that it is made of: then the scan may give rows by time before it.
    fn keeps_time(&self) -> bool {
        false
    }

    /// Whether it works on rows one by one and leaves their time, so that the newest of them are the newest of all.
    fn keeps_rows(&self) -> bool {
        false
    }

    /// Whether a live tail may have it: it works on rows as they come.
    fn follows(&self) -> bool {
        self.keeps_rows()
    }

    /// What fields its rows have.
    fn output(&self) -> Output<'_> {
        Output::Others
    }

    /// Fields whose codes and numbers serve it better than texts, as the first pipe behind a scan.
    fn stored(&self) -> Vec<String> {
        Vec::new()
    }

    /// What it leaves of rows by their places, if it does nothing else.
    fn cut(&self) -> Option<Cut> {
        None
    }

    /// The filter, if it does nothing but keep the rows that match.
    fn only_filter(&mut self) -> Option<&mut Filter> {
        None
    }

    /// Takes over what the pipe behind it does, where both are written as one.
    fn take_over(&mut self, _: &mut Pipe) -> Joined {
        Joined::Apart
    }

    /// Whether it only counts rows by values, so that one row may stand for many alike.
    fn counts_rows(&self) -> bool {
        false
    }

    /// How many rows it needs to see at most: a scan right before it may stop there; `None`: all.
    fn most_rows(&self) -> Option<u64> {
        None
    }

    /// The request to a scan that counts, in place of rows, what the pipe is about; `None`: there is no such scan.
    fn counted_by_scan(&self, _: &LogFilter) -> Option<LogRequest> {
        None
    }

    /// Adds up the counts of [`Self::counted_by_scan`] from all parts of the scan.
    fn add_counts(&self, _: Planned) -> Result<Planned> {
        Err(internal("a pipe without counts"))
    }

    /// Plans its own rows, for a pipe that does not read those before it.
    fn own_rows(&self) -> Option<Result<Planned>> {
        None
    }

    /// The filters that it holds itself (not those of its queries).
    fn filters_mut(&mut self) -> Vec<&mut Filter> {
        Vec::new()
    }

    /// The queries that it runs beside its own rows.
    fn queries_mut(&mut self) -> Vec<&mut Query> {
        Vec::new()
    }

    /// Follows labels and results of `stats` through it, for the Prometheus form.
    fn follow_columns(&self, _: &mut StatsColumns) -> Result<()> {
        Err(refused(format!("`{self}` cannot stand behind `stats` here")))
    }
}
