//! Identities without an account: everybody while access control is off, and callers that sent no credentials.

use std::sync::{Arc, LazyLock};

use quiver_auth::Identity;

/// Any caller while access control is off.
pub(crate) static ANYONE: LazyLock<Arc<Identity>> = LazyLock::new(|| Arc::new(Identity::anyone()));
/// A caller that sent no credentials.
pub(crate) static NOBODY: LazyLock<Arc<Identity>> = LazyLock::new(|| Arc::new(Identity::nobody()));
