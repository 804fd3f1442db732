//! Callers that have no account: all of them while access control is off, and those that have not said who they are.

use std::sync::{Arc, LazyLock};

use quiver_auth::Identity;

/// Whoever, while access control is off.
pub(crate) static ANYONE: LazyLock<Arc<Identity>> = LazyLock::new(|| Arc::new(Identity::anyone()));
/// Whoever has not said who it is.
pub(crate) static NOBODY: LazyLock<Arc<Identity>> = LazyLock::new(|| Arc::new(Identity::nobody()));
