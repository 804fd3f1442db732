//! An empty store in process, as the binary wires it.

use std::sync::Arc;

use quiver::settings::LoadedSettings;
use quiver::wiring;
use quiver_api::AppState;
use quiver_types::SystemClock;
use tempfile::TempDir;
use tokio::runtime::Runtime;

/// Opens a store that keeps rows of any age, in a folder that goes with the value that is given beside it.
pub(crate) fn empty_store(runtime: &Runtime) -> Result<(Arc<AppState>, TempDir), String> {
    let dir = tempfile::tempdir().map_err(|e| e.to_string())?;
    let flags = [
        ("store.data", dir.path().display().to_string()),
        ("store.retention", "none".to_owned()),
        ("rbac.mode", "off".to_owned()),
        ("query.through_codec", quiver_tests::through_codec().to_string()),
    ];
    let loaded = LoadedSettings::load(None, std::iter::empty(), &flags).map_err(|e| e.to_string())?;
    let built = wiring::build(&loaded.settings, Arc::new(SystemClock));
    let app = runtime.block_on(built).map_err(|e| e.to_string())?;
    Ok((app, dir))
}
