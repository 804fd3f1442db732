//! What pipes share that compute some fields of a row from others, all of which are known by name; and the step that
//! runs them.

use std::fmt::{Debug, Display};
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use arrow::datatypes::SchemaRef;
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use quiver_query::to_datafusion;
use quiver_types::Result;
use quiver_types::logs::{LogFilter, TIME};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::pipe::{At, PipeKind};
use crate::ast::{Filter, Overwrite};
use crate::chunked_stream::map_values;
use crate::filter_fields::add_needs;
use crate::ops::computed_fields::{Cells, Compute};
use crate::partial_plan::PartialPlan;
use crate::plan::filter::lower;
use crate::required_fields::Needs;
use crate::rows::Shape;
use crate::series_columns::{StatsColumns, refused};
use crate::step::{Batches, Step, StepKind, StepReader};

/// A pipe over one row at a time.
pub(crate) trait RowPipe:
    Debug + Display + Clone + PartialEq + Serialize + DeserializeOwned + Send + Sync + 'static
{
    /// Like [`StepKind::KIND`], of the step that it is.
    const KIND: &'static str;

    /// The fields that it reads, in the order in which [`Self::compute`] is given their values.
    fn sources(&self) -> Vec<String>;

    /// The fields that it makes, in the order in which [`Self::compute`] writes them.
    fn targets(&self) -> Vec<String>;

    /// Makes the function of one partition.
    ///
    /// # Errors
    /// A pattern or an expression that is none, which the parser refused already.
    fn compute(&self, now_ns: i64) -> crate::error::Result<Compute>;

    /// Whether a result takes the place of a value that the row has already.
    fn overwrite(&self) -> Overwrite {
        Overwrite::Always
    }

    /// `if (f)`: rows that do not match stay as they are.
    fn condition(&self) -> Option<&Filter> {
        None
    }

    /// The condition to be changed: subqueries in it are replaced by their values.
    fn condition_mut(&mut self) -> Option<&mut Filter> {
        None
    }

    /// Follows labels and results of `stats` through the pipe, as [`PipeKind::follow_columns`].
    fn follow(&self, _: &mut StatsColumns) -> Result<()> {
        Err(refused(format!("`{self}` cannot stand behind `stats` here")))
    }
}

/// Implements the condition of a [`RowPipe`] that has it in a field `condition`.
macro_rules! conditional {
    () => {
        fn condition(&self) -> Option<&$crate::ast::Filter> {
            self.condition.as_ref()
        }

        fn condition_mut(&mut self) -> Option<&mut $crate::ast::Filter> {
            self.condition.as_mut()
        }
    };
}

pub(super) use conditional;

impl<P: RowPipe> StepKind for MadeFields<P> {
    const KIND: &'static str = P::KIND;
}

impl<P: RowPipe> MadeFields<P> {
    const STEPS: &'static [StepReader] = &[StepReader::of::<Self>()];
}

impl<P: RowPipe> PipeKind for P {
    fn steps() -> &'static [StepReader] {
        MadeFields::<P>::STEPS
    }

    fn before(&self, after: &Needs) -> Needs {
        let (mut needs, made) = (after.clone(), self.targets());
        if !made.iter().any(|name| after.has(name)) {
            return needs;
        }
        let kept = self.condition().is_some() || self.overwrite() != Overwrite::Always;
        if !kept {
            for name in &made {
                needs.remove(name);
            }
        }
        needs.add_all(self.sources().iter().map(String::as_str));
        if kept {
            needs.add_all(made.iter().map(String::as_str));
        }
        of_condition(self.condition(), &mut needs);
        needs
    }

    fn mentions(&self) -> Vec<String> {
        mentioned(self.targets().into_iter().chain(self.sources()), self.condition())
    }

    fn keeps_time(&self) -> bool {
        !self.targets().iter().any(|name| name == TIME)
    }

    fn keeps_rows(&self) -> bool {
        self.keeps_time()
    }

    fn follows(&self) -> bool {
        true
    }

    fn filters_mut(&mut self) -> Vec<&mut Filter> {
        self.condition_mut().into_iter().collect()
    }

    fn follow_columns(&self, columns: &mut StatsColumns) -> Result<()> {
        self.follow(columns)
    }

    fn plan(&self, rows: PartialPlan, at: At<'_>) -> Result<PartialPlan> {
        let cells = Cells {
            sources: self.sources(),
            targets: self.targets(),
            overwrite: self.overwrite(),
            condition: lowered(self.condition(), at)?,
        };
        if !cells.targets.iter().any(|name| at.needs.has(name)) {
            return Ok(rows);
        }
        let output = rows.shape.with_texts(cells.targets.iter().map(String::as_str));
        let input = rows.shape.clone();
        let step = MadeFields { pipe: self.clone(), cells, now_ns: at.scope.now_ns, input, output: output.clone() };
        rows.then(step, output)
    }
}

/// Adds the fields that a condition looks at.
pub(crate) fn of_condition(condition: Option<&Filter>, needs: &mut Needs) {
    if let Some(filter) = condition {
        add_needs(filter, needs);
    }
}

/// Names, and those that a condition speaks of.
pub(crate) fn mentioned(names: impl IntoIterator<Item = String>, condition: Option<&Filter>) -> Vec<String> {
    let mut needs = Needs::of(names);
    of_condition(condition, &mut needs);
    needs.names.into_iter().collect()
}

/// A condition as it is evaluated.
pub(crate) fn lowered(condition: Option<&Filter>, at: At<'_>) -> Result<Option<LogFilter>> {
    condition.map(|filter| lower(filter, at.scope)).transpose()
}

/// Makes fields of each row. Lacks in DataFusion: values that are made of a batch only as far as there is room for them,
/// conditions over fields in maps, and what a row keeps where it has the field.
#[derive(Debug, Serialize, Deserialize)]
struct MadeFields<P> {
    pipe: P,
    cells: Cells,
    /// What `now` means, and the seed of what is random.
    now_ns: i64,
    input: Shape,
    output: Shape,
}

// The canonical text of a pipe says all of it.
impl<P: RowPipe> PartialEq for MadeFields<P> {
    fn eq(&self, other: &Self) -> bool {
        self.cells == other.cells
            && self.now_ns == other.now_ns
            && self.input == other.input
            && self.pipe.to_string() == other.pipe.to_string()
    }
}

impl<P: RowPipe> Eq for MadeFields<P> {}

impl<P: RowPipe> Hash for MadeFields<P> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.pipe.to_string().hash(state);
        self.input.hash(state);
    }
}

impl<P: RowPipe> Step for MadeFields<P> {
    fn name(&self) -> &'static str {
        "LogsRowPipe"
    }

    fn detail(&self) -> String {
        self.pipe.to_string()
    }

    fn schema(&self) -> SchemaRef {
        self.output.schema()
    }

    fn open(
        self: Arc<Self>,
        rows: SendableRecordBatchStream,
        task: Arc<TaskContext>,
    ) -> datafusion::error::Result<Batches> {
        let mut compute = self.pipe.compute(self.now_ns).map_err(to_datafusion)?;
        let map = move |rows: &_, room| self.cells.apply(&mut compute, rows, room, &self.input, &self.output);
        Ok(map_values(rows, &task, Box::new(map)))
    }
}

/// A function of one value.
pub(crate) fn of_one(mut write: impl FnMut(&str, &mut String) + Send + 'static) -> Compute {
    Box::new(move |values, out| write(values[0], &mut out[0]))
}
