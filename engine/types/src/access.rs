//! What a caller may see. A scan, and every index look-up, takes an [`Access`]; there is no way around it.

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::rights::Services;

/// The services whose telemetry a caller may read (`identity-and-access` section 4).
///
/// Rows without a service are visible to full access only. Caches key on the whole value.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Access {
    services: Option<Arc<Visible>>,
}

/// Services by name, and beginnings of names.
#[derive(Debug, PartialEq, Eq, Hash, Default)]
struct Visible {
    names: BTreeSet<String>,
    prefixes: BTreeSet<String>,
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
        let names = services.into_iter().map(Into::into).collect();
        Self { services: Some(Arc::new(Visible { names, ..Visible::default() })) }
    }

    /// Sees the services of some triples.
    pub(crate) fn of<'a>(services: impl Iterator<Item = &'a Services>) -> Self {
        let mut visible = Visible::default();
        for one in services {
            match one.prefix() {
                Some("") => return Self::full(),
                Some(prefix) => visible.prefixes.insert(prefix.to_owned()),
                None => visible.names.insert(one.as_str().to_owned()),
            };
        }
        Self { services: Some(Arc::new(visible)) }
    }

    /// Names and patterns of the visible services, `*` for all.
    pub fn patterns(&self) -> Vec<String> {
        let Some(visible) = &self.services else { return vec!["*".to_owned()] };
        let prefixes = visible.prefixes.iter().map(|p| format!("{p}*"));
        visible.names.iter().cloned().chain(prefixes).collect()
    }

    /// The one service that is visible, where it is one and named.
    pub fn only_service(&self) -> Option<&str> {
        let visible = self.services.as_ref()?;
        let one = visible.names.len() == 1 && visible.prefixes.is_empty();
        visible.names.first().filter(|_| one).map(String::as_str)
    }

    /// Says whether everything is visible, so that a scan can skip the check per series.
    pub fn is_full(&self) -> bool {
        self.services.is_none()
    }

    /// Says whether rows of this service are visible; the empty text means "no service".
    pub fn allows(&self, service: &str) -> bool {
        match &self.services {
            None => true,
            Some(_) if service.is_empty() => false,
            Some(visible) => {
                visible.names.contains(service) || visible.prefixes.iter().any(|p| service.starts_with(p.as_str()))
            }
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
