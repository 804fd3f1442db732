//! Servers that are stopped at a fail point for as long as a test needs, so that tests do not depend on timing.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use tempfile::TempDir;

/// Longest wait for a server to come to its point.
const PATIENCE: Duration = Duration::from_mins(5);

/// Holds what passes a fail point, until it is released or dropped.
#[derive(Debug)]
pub struct Hold {
    folder: TempDir,
}

impl Default for Hold {
    fn default() -> Self {
        let hold = Self { folder: tempfile::tempdir().expect("a folder") };
        hold.set();
        hold
    }
}

impl Hold {
    fn file(&self) -> PathBuf {
        self.folder.path().join("hold")
    }

    fn mark(&self) -> PathBuf {
        self.file().with_extension("reached")
    }

    /// What arms a fail point so that it is held here.
    pub fn at(&self, point: &str) -> String {
        format!("{point}=hold:{}", self.file().display())
    }

    /// Holds who comes from now on.
    pub fn set(&self) {
        let _ = std::fs::remove_file(self.mark());
        std::fs::write(self.file(), "").expect("writable");
    }

    /// Lets all go on.
    pub fn release(&self) {
        let _ = std::fs::remove_file(self.file());
    }

    /// Says whether somebody is held.
    pub fn is_reached(&self) -> bool {
        self.mark().exists()
    }

    /// Waits until somebody is held.
    pub async fn reached(&self) {
        let began = Instant::now();
        while !self.is_reached() {
            assert!(began.elapsed() < PATIENCE, "nobody comes to the fail point");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }
}
