//! The rights of who asked a query, as long as it runs: the engine asks whether they still hold.

use std::fmt;
use std::sync::Arc;

use quiver_auth::Identity;
use quiver_query::Permit;

use super::Identities;

/// Who asked, and what he was let in with.
pub(crate) struct Held {
    identities: Arc<Identities>,
    identity: Arc<Identity>,
}

impl Held {
    /// What a caller holds.
    pub(crate) fn new(identities: Arc<Identities>, identity: Arc<Identity>) -> Self {
        Self { identities, identity }
    }
}

impl fmt::Debug for Held {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Held").field(&self.identity.subject).finish()
    }
}

impl Permit for Held {
    fn holds(&self) -> bool {
        let now = self.identities.auth.renewed(&self.identity);
        now.is_ok_and(|now| now.rights.show_all_of(&self.identity.rights, None))
    }
}
