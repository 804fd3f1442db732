//! Functions whose result can be far larger than their arguments (`repeat('x', 1000000000)`). The size of the result
//! for a batch of rows is computed and limited before it is made, and the result is charged to the query as long as it
//! exists ([`result_memory`](super::result_memory)), since one statement may hold the results of many calls.

use std::any::Any;
use std::collections::HashMap;
use std::sync::Arc;

use arrow::array::{Array as _, ArrayRef, AsArray as _};
use arrow::datatypes::Int64Type;
use datafusion::common::config::{ConfigEntry, ConfigExtension, ConfigOptions, ExtensionOptions};
use datafusion::common::tree_node::Transformed;
use datafusion::common::{DFSchema, ScalarValue, internal_err};
use datafusion::error::{DataFusionError, Result};
use datafusion::execution::session_state::SessionState;
use datafusion::logical_expr::expr::ScalarFunction;
use datafusion::logical_expr::registry::FunctionRegistry as _;
use datafusion::logical_expr::utils::merge_schema;
use datafusion::logical_expr::{
    ColumnarValue, Expr, LogicalPlan, Operator, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl,
};
use datafusion::optimizer::{AnalyzerRule, Optimizer};
use quiver_types::{Error, ErrorKind};

use super::concat_operator::{ConcatFunction, JOINED, sides};
use super::delegated_head::delegated_head;
use super::regex_functions;
use super::result_memory::{self, BYTES_MAX, COUNTED, Room};
use super::result_size::Growth;
use super::{array_containment, array_position, list_slices};
use crate::error::to_datafusion;
use crate::plan_walk::{any_expression, change_expressions, change_nodes};
use crate::relational::{patterns, single_table};

/// Bytes at most of a constant that becomes part of a plan, where nothing counts it and each use copies it. Longer ones are
/// made when the plan runs.
const CONSTANT_MAX: i128 = 64 << 10;

/// Bytes from which on what a builder has too much is given back.
const SHRUNK: usize = 1 << 20;

const GROWING: &[(&str, Growth)] = &[
    ("repeat", Growth::Times),
    ("lpad", Growth::Length),
    ("rpad", Growth::Length),
    ("concat", Growth::Joined),
    ("concat_ws", Growth::Separated),
    ("overlay", Growth::Joined),
    ("replace", Growth::Replaced),
    ("regexp_like", Growth::Alike),
    ("regexp_replace", Growth::Matched),
    ("regexp_match", Growth::Groups),
    ("regexp_count", Growth::Alike),
    ("regexp_instr", Growth::Alike),
    ("translate", Growth::Wider(4)),
    ("upper", Growth::Wider(1)),
    ("lower", Growth::Wider(1)),
    ("initcap", Growth::Wider(1)),
    ("reverse", Growth::Wider(1)),
    ("encode", Growth::Wider(2)),
    ("decode", Growth::Wider(1)),
    ("to_char", Growth::Formatted),
    ("levenshtein", Growth::Compared),
    ("string_to_array", Growth::Pieces),
    ("array_to_string", Growth::Spelled),
    ("array_repeat", Growth::Items),
    ("array_resize", Growth::Resized),
    ("array_replace", Growth::Exchanged),
    ("array_replace_n", Growth::Exchanged),
    ("array_replace_all", Growth::Exchanged),
    ("make_array", Growth::Joined),
    ("array_append", Growth::Joined),
    ("array_prepend", Growth::Joined),
    ("array_concat", Growth::Joined),
    ("array_union", Growth::Sets),
    ("array_intersect", Growth::Sets),
    ("array_except", Growth::Sets),
    ("array_distinct", Growth::Sets),
    ("generate_series", Growth::Series),
    ("range", Growth::Series),
];

#[derive(Debug, PartialEq, Eq, Hash)]
pub(super) struct BoundedFunction {
    inner: Arc<ScalarUDF>,
    growth: Growth,
    room: Room,
}

/// Whether a function of that name has a bound already.
pub(super) fn is_bounded(name: &str) -> bool {
    name == JOINED || GROWING.iter().any(|(growing, _)| *growing == name)
}

/// How the results of a function of that name grow; none: it has no bound.
fn growth_of(name: &str) -> Option<Growth> {
    let known = GROWING.iter().find(|(growing, _)| *growing == name);
    known.map(|(_, growth)| *growth).or_else(|| (name == JOINED).then_some(Growth::Joined))
}

/// Puts bounds on the functions of a session, and on what its planner calls by itself: operators, and functions that it
/// does not look up.
///
/// # Errors
/// Those of the registry.
pub(super) fn bound(state: &mut SessionState, room: &Room) -> Result<()> {
    let bounded = |inner, growth| Arc::new(ScalarUDF::from(BoundedFunction { inner, growth, room: room.clone() }));
    let mut functions = HashMap::new();
    for (name, growth) in GROWING {
        let inner = state.scalar_functions().get(*name).map(Arc::clone);
        let Some(inner) = inner else { return internal_err!("there is no function `{name}`") };
        let function = bounded(inner, *growth);
        state.register_udf(Arc::clone(&function))?;
        functions.insert(*name, function);
    }
    // These need no limit. They are registered here because they also replace the operators `@>`, `<@` and `= ANY`, and
    // `list[1:3:2]`.
    let others = [array_position::function(), list_slices::function()];
    for (name, function) in array_containment::functions().into_iter().chain(others) {
        state.register_udf(Arc::clone(&function))?;
        functions.insert(name, function);
    }
    let joined = bounded(Arc::new(ScalarUDF::from(ConcatFunction::new())), Growth::Joined);
    state.add_analyzer_rule(Arc::new(Bounds { functions, joined }));
    Ok(())
}

/// The rule that puts functions with bounds in the place of others; it comes after those that give types.
#[derive(Debug)]
struct Bounds {
    functions: HashMap<&'static str, Arc<ScalarUDF>>,
    joined: Arc<ScalarUDF>,
}

impl Bounds {
    /// The function in the place of an expression.
    fn instead(&self, expr: &Expr, schema: &DFSchema) -> Result<Option<Expr>> {
        if let Some((left, right)) = sides(expr, schema)? {
            return Ok(Some(self.joined.call(vec![left.clone(), right.clone()])));
        }
        let Expr::ScalarFunction(call) = expr else { return Ok(None) };
        if patterns::is_operator(call) {
            return Ok(None);
        }
        let other = self.functions.get(call.func.name()).filter(|function| !Arc::ptr_eq(function, &call.func));
        Ok(other.map(|func| Expr::ScalarFunction(ScalarFunction { func: Arc::clone(func), args: call.args.clone() })))
    }
}

/// Whether there is something to do in a node.
fn calls(node: &LogicalPlan) -> Result<bool> {
    let is_call = |e: &Expr| match e {
        Expr::ScalarFunction(_) => true,
        Expr::BinaryExpr(binary) => binary.op == Operator::StringConcat,
        _ => false,
    };
    any_expression(node, &is_call)
}

impl AnalyzerRule for Bounds {
    fn name(&self) -> &'static str {
        "bounds"
    }

    fn analyze(&self, plan: LogicalPlan, _: &ConfigOptions) -> Result<LogicalPlan> {
        change_nodes(plan, &mut |node| {
            // As with whole numbers: counts of limits are constants, and scans calculate nothing yet.
            if matches!(node, LogicalPlan::Limit(_) | LogicalPlan::TableScan(_)) || !calls(&node)? {
                return Ok(Transformed::no(node));
            }
            let schema = merge_schema(&node.inputs());
            // Within the condition of an aggregate (FILTER) a function is printed by its own name.
            change_expressions(node, &mut |e| {
                Ok(match self.instead(&e, &schema)? {
                    Some(other) => Transformed::yes(other),
                    None => Transformed::no(e),
                })
            })
        })
    }
}

/// Says that constants are being looked for, in the options that functions are called with.
#[derive(Debug, Clone)]
struct PlanningFlag;

impl ConfigExtension for PlanningFlag {
    const PREFIX: &'static str = "quiver_planning";
}

impl ExtensionOptions for PlanningFlag {
    fn as_any(&self) -> &dyn Any {
        self
    }

    fn as_any_mut(&mut self) -> &mut dyn Any {
        self
    }

    fn cloned(&self) -> Box<dyn ExtensionOptions> {
        Box::new(self.clone())
    }

    fn set(&mut self, key: &str, _: &str) -> Result<()> {
        internal_err!("`{key}` is no setting")
    }

    fn entries(&self) -> Vec<ConfigEntry> {
        Vec::new()
    }
}

/// What plans of a session are made with.
#[derive(Debug)]
pub(crate) struct PlanOptions {
    /// The options of the session, which say that it plans.
    pub(crate) options: Arc<ConfigOptions>,
    /// Where what the plans make takes memory from.
    pub(crate) room: Room,
    /// The rules for plans of one table.
    pub(crate) plain: Optimizer,
}

/// Gives what plans of a session are made with.
pub(crate) fn planning(state: &SessionState, room: Room) -> PlanOptions {
    let mut options = ConfigOptions::clone(state.config_options());
    options.extensions.insert(PlanningFlag);
    PlanOptions { options: Arc::new(options), room, plain: single_table::rules(state.optimizer()) }
}

impl BoundedFunction {
    /// A function whose results count once they are made.
    pub(super) fn alike(inner: Arc<ScalarUDF>, room: Room) -> Self {
        Self { inner, growth: Growth::Alike, room }
    }

    /// What it is made of: whether its results count once they are made, and the function within.
    pub(super) fn parts(&self) -> (bool, &Arc<ScalarUDF>) {
        (self.growth == Growth::Alike, &self.inner)
    }

    /// The same again out of its parts; none: such a function has no bound.
    pub(super) fn of_parts(is_alike: bool, inner: Arc<ScalarUDF>, room: Room) -> Option<Self> {
        let growth = if is_alike { Growth::Alike } else { growth_of(inner.name())? };
        Some(Self { inner, growth, room })
    }

    fn too_much(&self, bytes: i128, most: i128) -> DataFusionError {
        let text = format!("`{}` would give {bytes} bytes at once, at most {most} are allowed", self.inner.name());
        to_datafusion(Error::new(ErrorKind::LimitExceeded, text))
    }

    /// One value for all rows, as an array that counts: constants do not.
    fn spread(&self, value: &ScalarValue, rows: usize) -> Result<ColumnarValue> {
        let is_shared = matches!(value, ScalarValue::Utf8View(_) | ScalarValue::BinaryView(_));
        let bytes = value.size() as i128 * if is_shared { 1 } else { rows as i128 };
        if bytes > BYTES_MAX {
            return Err(self.too_much(bytes, BYTES_MAX));
        }
        let memory = self.room.take(bytes as usize)?;
        Ok(ColumnarValue::Array(result_memory::with_memory(&value.to_array_of_size(rows)?, memory)))
    }
}

/// Replaces negative lengths by zero, which gives the same result: some of DataFusion's functions would allocate for them
/// as if they were unsigned.
fn without_signs(args: &mut [ColumnarValue]) {
    match args.get_mut(1) {
        Some(ColumnarValue::Scalar(ScalarValue::Int64(Some(length)))) => *length = (*length).max(0),
        Some(ColumnarValue::Array(lengths)) => {
            if let Some(numbers) = lengths.as_primitive_opt::<Int64Type>()
                && numbers.iter().flatten().any(|length| length < 0)
            {
                let whole: ArrayRef = Arc::new(numbers.unary::<_, Int64Type>(|length| length.max(0)));
                *lengths = whole;
            }
        }
        _ => {}
    }
}

impl ScalarUDFImpl for BoundedFunction {
    delegated_head!(inner);

    fn schema_name(&self, args: &[Expr]) -> Result<String> {
        self.inner.inner().schema_name(args)
    }

    fn invoke_with_args(&self, mut args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let _written = regex_functions::written(self.inner.name(), &mut args.args, &self.room)?;
        if self.growth == Growth::Length {
            without_signs(&mut args.args);
        }
        let is_constant = args.args.iter().all(|arg| matches!(arg, ColumnarValue::Scalar(_)));
        let is_planning = args.config_options.extensions.get::<PlanningFlag>().is_some();
        let most = if is_planning { CONSTANT_MAX } else { BYTES_MAX };
        let rows = args.number_rows;
        regex_functions::few(self.inner.name(), &args.args)?;
        let bytes = self.growth.bytes(&args.args, if is_constant { 1 } else { rows })?;
        if bytes > most && bytes - self.growth.input_bytes(&args.args, rows)? > most {
            return Err(self.too_much(bytes, most));
        }
        let bytes = bytes.max(0) as usize;
        let shared = if self.growth == Growth::Alike { result_memory::addresses(&args.args) } else { Vec::new() };
        let memory = (bytes > COUNTED).then(|| self.room.take(bytes)).transpose()?;
        let mut array = match regex_functions::invoke(&self.inner, args, &self.room)? {
            ColumnarValue::Array(array) => array,
            ColumnarValue::Scalar(value) if value.size() <= COUNTED => return Ok(ColumnarValue::Scalar(value)),
            ColumnarValue::Scalar(value) if is_planning => {
                return Err(self.too_much(value.size() as i128, most));
            }
            ColumnarValue::Scalar(value) => {
                drop(memory);
                return self.spread(&value, rows);
            }
        };
        let whole = result_memory::fresh(&array, &shared);
        if whole <= COUNTED {
            return Ok(ColumnarValue::Array(array));
        }
        // Builders double what they have.
        if whole > SHRUNK {
            array.shrink_to_fit();
        }
        let whole = result_memory::fresh(&array, &shared);
        let memory = match memory {
            Some(memory) => memory.try_resize(whole).map(|()| memory)?,
            None => self.room.take(whole)?,
        };
        Ok(ColumnarValue::Array(result_memory::with_memory(&array, memory)))
    }
}

#[cfg(test)]
mod tests;
