//! The rights behind a running query: the engine asks whether the caller still has them.

use std::fmt;
use std::sync::Arc;

use quiver_auth::Identity;
use quiver_query::Permit;

use super::Identities;

/// A caller, and the rights with which it was admitted.
pub(crate) struct CurrentRights {
    identities: Arc<Identities>,
    identity: Arc<Identity>,
}

impl CurrentRights {
    /// Remembers what a caller has now.
    pub(crate) fn new(identities: Arc<Identities>, identity: Arc<Identity>) -> Self {
        Self { identities, identity }
    }
}

impl fmt::Debug for CurrentRights {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("CurrentRights").field(&self.identity.subject).finish()
    }
}

impl Permit for CurrentRights {
    fn holds(&self) -> bool {
        let now = self.identities.auth.renewed(&self.identity);
        now.is_ok_and(|now| now.rights.show_all_of(&self.identity.rights, None))
    }
}
