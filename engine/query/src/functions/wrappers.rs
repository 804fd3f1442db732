//! For serialized plans: takes apart our functions that wrap others, and finds functions by name that no session
//! registers.

use std::sync::Arc;

use datafusion::common::internal_datafusion_err;
use datafusion::error::{DataFusionError, Result};
use datafusion::logical_expr::{AggregateUDF, ScalarUDF, WindowUDF};

use super::bounded::BoundedFunction;
use super::concat_operator::ConcatFunction;
use super::result_memory::Room;
use super::{
    decimals, expression_results, frame_exclusion, intervals, plain_digits, sums, text_output, trace_trees,
    window_functions,
};
use crate::engine::QueryEngine;
use crate::relational::{cancellable_joins, overflow, patterns};

/// A function that may wrap another one.
pub trait FunctionWrapper: Sized {
    /// Its own state and the wrapped function; `None` if it wraps none.
    ///
    /// # Errors
    ///
    /// Internal: it cannot be serialized.
    fn taken_apart(&self) -> Result<Option<(Vec<u8>, Arc<Self>)>>;

    /// Rebuilds the function for plans of an engine.
    ///
    /// # Errors
    ///
    /// Internal: the bytes are invalid.
    fn put_around(engine: &QueryEngine, bytes: &[u8], inner: Arc<Self>) -> Result<Arc<Self>>;
}

fn damaged(error: impl std::fmt::Display) -> DataFusionError {
    internal_datafusion_err!("the written form of a function is damaged: {error}")
}

impl FunctionWrapper for ScalarUDF {
    fn taken_apart(&self) -> Result<Option<(Vec<u8>, Arc<Self>)>> {
        let Some(bounded) = self.inner().downcast_ref::<BoundedFunction>() else { return Ok(None) };
        let (is_alike, inner) = bounded.parts();
        Ok(Some((postcard::to_allocvec(&is_alike).map_err(damaged)?, Arc::clone(inner))))
    }

    fn put_around(engine: &QueryEngine, bytes: &[u8], inner: Arc<Self>) -> Result<Arc<Self>> {
        let is_alike: bool = postcard::from_bytes(bytes).map_err(damaged)?;
        let name = inner.name().to_owned();
        let bounded = BoundedFunction::of_parts(is_alike, inner, engine.planning.room.clone());
        let bounded = bounded.ok_or_else(|| damaged(format_args!("`{name}` has no bound")))?;
        Ok(Arc::new(Self::from(bounded)))
    }
}

impl FunctionWrapper for AggregateUDF {
    fn taken_apart(&self) -> Result<Option<(Vec<u8>, Arc<Self>)>> {
        let Some((parts, inner)) = window_functions::aggregate_parts(self) else { return Ok(None) };
        Ok(Some((postcard::to_allocvec(&parts).map_err(damaged)?, inner)))
    }

    fn put_around(engine: &QueryEngine, bytes: &[u8], inner: Arc<Self>) -> Result<Arc<Self>> {
        let parts = postcard::from_bytes(bytes).map_err(damaged)?;
        Ok(window_functions::aggregate_of(parts, inner, &engine.planning.room))
    }
}

impl FunctionWrapper for WindowUDF {
    fn taken_apart(&self) -> Result<Option<(Vec<u8>, Arc<Self>)>> {
        let Some((collects, inner)) = window_functions::function_parts(self) else { return Ok(None) };
        Ok(Some((postcard::to_allocvec(&collects).map_err(damaged)?, inner)))
    }

    fn put_around(engine: &QueryEngine, bytes: &[u8], inner: Arc<Self>) -> Result<Arc<Self>> {
        let collects: bool = postcard::from_bytes(bytes).map_err(damaged)?;
        Ok(window_functions::function_of(collects, inner, &engine.planning.room))
    }
}

/// The state of a window function and the aggregate that it wraps; `None` if it wraps none.
///
/// # Errors
///
/// Internal: it cannot be serialized.
pub fn aggregate_within(function: &WindowUDF) -> Result<Option<(Vec<u8>, Arc<AggregateUDF>)>> {
    let Some((parts, inner)) = frame_exclusion::parts(function) else { return Ok(None) };
    Ok(Some((postcard::to_allocvec(&parts).map_err(damaged)?, inner)))
}

/// Rebuilds the window function.
///
/// # Errors
///
/// Internal: the bytes are invalid.
pub fn over_aggregate(bytes: &[u8], inner: Arc<AggregateUDF>) -> Result<Arc<WindowUDF>> {
    Ok(frame_exclusion::function(postcard::from_bytes(bytes).map_err(damaged)?, inner))
}

/// The functions that rules insert into plans; users cannot call them.
pub(crate) fn unregistered(room: &Room) -> Vec<Arc<ScalarUDF>> {
    let others = [
        ScalarUDF::from(ConcatFunction::new()),
        decimals::function(),
        intervals::product(),
        intervals::quotient(),
        intervals::length(),
        intervals::spread(),
        intervals::micros(),
        intervals::seconds(),
        text_output::function(),
        plain_digits::function(),
        cancellable_joins::function(),
        overflow::checked_negation(),
    ];
    let all = others.into_iter().chain(overflow::checks()).chain(patterns::functions()).map(Arc::new);
    all.chain(trace_trees::scalars()).chain([expression_results::function(room)]).collect()
}

/// The aggregate that replaces DataFusion's of that name.
pub(crate) fn sum_by_name(name: &str) -> Option<Arc<AggregateUDF>> {
    Some(sums::function()).filter(|sum| sum.name() == name)
}
