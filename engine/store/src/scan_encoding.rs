//! Serialized forms of scans: access, filters, the division of the work, and the snapshot by its number
//! (`quiver_types::Pins`).
//!
//! A scan that is read back is planned again over the same snapshot, so each of its partitions reads what it did
//! before.

#[cfg(test)]
mod tests;

use std::any::Any;
use std::sync::Arc;

use quiver_types::scan::{PlannedScan, ScanForms};
use serde::{Deserialize, Serialize};

use crate::error::{Context, Result};
use crate::logs::{LogsForm, LogsScan};
use crate::scan::{SamplesForm, SamplesScan};
use crate::spans::{LiveRollup, Repeats, RollupForm, RollupScan, SpansForm, SpansScan, TagForm, TagScan};

/// Writes and reads the scans of stores. What it keeps of spans saves work, as it does for those who ask a store.
#[derive(Debug, Default)]
pub struct PlanForms {
    live: Arc<LiveRollup>,
    repeats: Arc<Repeats>,
}

/// One of the scans.
#[derive(Debug, Serialize, Deserialize)]
enum Form {
    Samples(SamplesForm),
    Logs(LogsForm),
    Spans(SpansForm),
    Rollups(RollupForm),
    Tags(TagForm),
}

impl Form {
    fn of(scan: &dyn PlannedScan) -> Result<Option<Self>> {
        let scan: &dyn Any = scan;
        if let Some(logs) = scan.downcast_ref::<LogsScan>() {
            return Ok(Some(Self::Logs(logs.form()?)));
        }
        let samples = || scan.downcast_ref::<SamplesScan>().map(|scan| Self::Samples(scan.form()));
        let spans = || scan.downcast_ref::<SpansScan>().map(|scan| Self::Spans(scan.form()));
        let rollups = || scan.downcast_ref::<RollupScan>().map(|scan| Self::Rollups(scan.form()));
        let tags = || scan.downcast_ref::<TagScan>().map(|scan| Self::Tags(scan.form()));
        Ok(samples().or_else(spans).or_else(rollups).or_else(tags))
    }
}

impl ScanForms for PlanForms {
    fn write(&self, scan: &dyn PlannedScan) -> Result<Option<Vec<u8>>> {
        let Some(form) = Form::of(scan)? else { return Ok(None) };
        postcard::to_allocvec(&form).internal(format!("{} has no written form", scan.name())).map(Some)
    }

    fn read(&self, bytes: &[u8]) -> Result<Arc<dyn PlannedScan>> {
        let form: Form = postcard::from_bytes(bytes).internal("these are no bytes of a scan")?;
        let Self { live, repeats } = self;
        let scan: Arc<dyn PlannedScan> = match form {
            Form::Samples(form) => Arc::new(form.scan()?),
            Form::Logs(form) => Arc::new(form.scan()?),
            Form::Spans(form) => Arc::new(form.scan(repeats)?),
            Form::Rollups(form) => Arc::new(form.scan(live, repeats)?),
            Form::Tags(form) => Arc::new(form.scan(repeats)?),
        };
        Ok(scan)
    }
}
