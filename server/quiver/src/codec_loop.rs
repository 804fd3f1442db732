//! `query.through_codec`: plans are serialized by the engine that makes them, and run by a second engine that reads
//! them.

use std::sync::Arc;

use quiver_query::QueryEngine;
use quiver_types::Result;

/// Sends the plans of an engine to another one.
///
/// # Errors
/// Invalid: this binary was built without the feature `codec`.
#[cfg(feature = "codec")]
pub fn send(engine: &Arc<QueryEngine>, other: Arc<QueryEngine>) -> Result<()> {
    let forms: Vec<Arc<dyn quiver_query::NodeCodec>> = vec![
        Arc::new(quiver_query::PlanForms::new(&other)),
        Arc::new(quiver_query::LeafForms::new(Arc::new(quiver_store::PlanForms::default()))),
        Arc::new(quiver_promql::PlanForms),
        Arc::new(quiver_logsql::PlanForms),
        Arc::new(quiver_traces::PlanForms),
    ];
    engine.send_through(Arc::new(quiver_codec::PlanCodec::new(other, forms)))
}

/// Fails, since this binary lacks the feature.
///
/// # Errors
/// Invalid, in any case.
#[cfg(not(feature = "codec"))]
pub fn send(_engine: &Arc<QueryEngine>, _other: Arc<QueryEngine>) -> Result<()> {
    let text = "`query.through_codec` needs a binary that was built with the feature `codec`";
    Err(quiver_types::Error::invalid(text))
}
