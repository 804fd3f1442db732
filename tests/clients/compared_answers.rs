//! Compares the responses of two servers to the same request.

use std::collections::BTreeMap;

use serde_json::Value;

/// How much values may differ, relative to the larger one.
const TOLERANCE: f64 = 1e-12;

/// Compares two answers: the same type, series and times, values within the tolerance.
pub(crate) fn same(theirs: &Value, ours: &Value) -> Result<(), String> {
    if theirs["resultType"] != ours["resultType"] {
        return Err(format!("{} instead of {}", ours["resultType"], theirs["resultType"]));
    }
    if !matches!(theirs["resultType"].as_str(), Some("vector" | "matrix")) {
        return same_point(&theirs["result"], &ours["result"]);
    }
    let (theirs, ours) = (by_labels(theirs), by_labels(ours));
    let missing: Vec<_> = theirs.keys().filter(|k| !ours.contains_key(*k)).take(3).collect();
    let extra: Vec<_> = ours.keys().filter(|k| !theirs.contains_key(*k)).take(3).collect();
    if !missing.is_empty() || !extra.is_empty() {
        return Err(format!("{} series instead of {}: without {missing:?}, with {extra:?}", ours.len(), theirs.len()));
    }
    for (labels, points) in &theirs {
        let found = &ours[labels];
        if points.len() != found.len() {
            return Err(format!("{labels}: {} points instead of {}", found.len(), points.len()));
        }
        for (a, b) in points.iter().zip(found) {
            same_point(a, b).map_err(|e| format!("{labels}: {e}"))?;
        }
    }
    Ok(())
}

/// Gives the series of an answer with their points.
pub(crate) fn by_labels(data: &Value) -> BTreeMap<String, Vec<Value>> {
    let one = |series: &Value| {
        let single = || vec![series["value"].clone()];
        (series["metric"].to_string(), series["values"].as_array().cloned().unwrap_or_else(single))
    };
    data["result"].as_array().into_iter().flatten().map(one).collect()
}

/// Compares time and value.
pub(crate) fn same_point(theirs: &Value, ours: &Value) -> Result<(), String> {
    let number = |point: &Value| point[1].as_str().and_then(|v| v.parse::<f64>().ok());
    let equal = theirs[1] == ours[1]
        || number(theirs)
            .zip(number(ours))
            .is_some_and(|(a, b)| (a != 0.0 || b != 0.0) && (a - b).abs() <= TOLERANCE * a.abs().max(b.abs()));
    if theirs[0] == ours[0] && equal { Ok(()) } else { Err(format!("{ours} instead of {theirs}")) }
}
