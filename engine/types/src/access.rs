//! What a caller may see. A scan, and every index look-up, takes an [`Access`]; there is no way around it.

use std::collections::BTreeSet;
use std::sync::Arc;

/// The services whose telemetry a caller may read (`identity-and-access` section 4).
///
/// Rows without a service are visible to full access only. Caches key on the whole value.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Access {
    services: Option<Arc<BTreeSet<String>>>,
}

impl Access {
    /// Sees everything.
    pub fn full() -> Self {
        Self { services: None }
    }

    /// Sees only rows of the named services.
    pub fn services<I, S>(services: I) -> Self
    where
        I: IntoIterator<Item = S>,
        S: Into<String>,
    {
        Self { services: Some(Arc::new(services.into_iter().map(Into::into).collect())) }
    }

    /// Says whether everything is visible, so that a scan can skip the check per series.
    pub fn is_full(&self) -> bool {
        self.services.is_none()
    }

    /// Says whether rows of this service are visible; the empty text means "no service".
    pub fn allows(&self, service: &str) -> bool {
        match &self.services {
            None => true,
            Some(services) => !service.is_empty() && services.contains(service),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_without_service_need_full_access() {
        assert!(Access::full().allows(""));
        assert!(!Access::services([""]).allows(""));
        assert!(Access::services(["a"]).allows("a"));
        assert!(!Access::services(["a"]).allows("b"));
    }
}
