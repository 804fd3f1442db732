//! Errors across DataFusion and back, so that kind and text survive the trip through a plan.

use datafusion::error::DataFusionError;
use quiver_types::{Error, ErrorKind};

/// Wraps an error so that [`from_datafusion`] finds it again.
pub fn to_datafusion(error: Error) -> DataFusionError {
    DataFusionError::External(Box::new(error))
}

/// Finds our own error inside of DataFusion's; others become LimitExceeded (memory, spill) or Internal.
pub fn from_datafusion(error: DataFusionError) -> Error {
    let mut cause: Option<&(dyn std::error::Error + 'static)> = Some(&error);
    while let Some(e) = cause {
        if let Some(own) = e.downcast_ref::<Error>() {
            return own.clone();
        }
        if let Some(DataFusionError::Shared(shared)) = e.downcast_ref::<DataFusionError>() {
            cause = Some(&**shared);
            continue;
        }
        if let Some(DataFusionError::External(inner)) = e.downcast_ref::<DataFusionError>() {
            cause = Some(&**inner);
            continue;
        }
        cause = e.source();
    }
    if let DataFusionError::ResourcesExhausted(why) = error.find_root() {
        let (what, setting) = if why.contains("disk space") || why.contains("temp_directory") {
            ("more room for spill files", "query.spill_max")
        } else {
            ("more memory", "memory.limit")
        };
        let text = format!("query needs {what} than its limit allows (setting `{setting}`)");
        return Error::new(ErrorKind::LimitExceeded, text).with_source(error);
    }
    Error::internal("the query failed inside of the engine").with_source(error)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_survive() {
        let own = Error::new(ErrorKind::Execution, "many-to-many");
        let wrapped = to_datafusion(own).context("while joining");
        let back = from_datafusion(wrapped);
        assert_eq!((back.kind, back.message.as_str()), (ErrorKind::Execution, "many-to-many"));
        let shared = DataFusionError::Shared(std::sync::Arc::new(to_datafusion(Error::invalid("x"))));
        assert_eq!(from_datafusion(shared).kind, ErrorKind::Invalid);
        assert_eq!(from_datafusion(DataFusionError::ResourcesExhausted("m".into())).kind, ErrorKind::LimitExceeded);
        assert_eq!(from_datafusion(DataFusionError::Internal("m".into())).kind, ErrorKind::Internal);
    }
}
