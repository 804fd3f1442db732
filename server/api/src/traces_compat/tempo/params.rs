//! Reads parameters. Error messages are those of Tempo: clients show them, and they are compared with recorded responses.

use quiver_traces::ParamError;
use quiver_traces::traceql::TracePart;

use crate::traces_api::Call;
use crate::traces_params::TraceParams;

/// Latest second of a time range.
const SECONDS_MAX: u64 = 100_000_000_000;

/// An error that is reported as its text alone.
pub(super) fn text_error(text: impl Into<String>) -> ParamError {
    ParamError::new("", text)
}

/// Parses an integer up to a maximum.
pub(super) fn whole(call: &Call, name: &str, most: u64) -> Result<Option<u64>, ParamError> {
    let Some(text) = call.params.one(name)? else { return Ok(None) };
    let is_digits = text.bytes().all(|b| b.is_ascii_digit());
    if let Some(number) = text.parse::<u64>().ok().filter(|number| is_digits && *number <= most) {
        Ok(Some(number))
    } else {
        let reason = if is_digits { "value out of range" } else { "invalid syntax" };
        Err(text_error(format!("invalid {name}: strconv.ParseUint: parsing {text:?}: {reason}")))
    }
}

/// Parses `limit`, which must be at least 1.
pub(super) fn limit(call: &Call, most: u64) -> Result<Option<usize>, ParamError> {
    match whole(call, "limit", most)? {
        Some(0) => Err(text_error("invalid limit: must be a positive number")),
        number => Ok(number.map(|n| n as usize)),
    }
}

/// Parses a duration.
pub(super) fn duration(call: &Call, name: &str) -> Result<Option<i64>, ParamError> {
    call.params.go_duration(name).map_err(|e| match call.params.one(name) {
        Ok(Some(text)) => text_error(format!("invalid {name}: time: {} {text:?}", no_duration(text))),
        _ => e,
    })
}

/// Why a text is not a duration.
fn no_duration(text: &str) -> String {
    let mut rest = text.strip_prefix(['+', '-']).unwrap_or(text);
    while rest.starts_with(|c: char| c.is_ascii_digit() || c == '.') {
        rest = rest.trim_start_matches(|c: char| c.is_ascii_digit() || c == '.');
        let end = rest.find(|c: char| c.is_ascii_digit() || c == '.').unwrap_or(rest.len());
        let (unit, behind) = rest.split_at(end);
        match unit {
            "" => return "missing unit in duration".into(),
            "ns" | "us" | "µs" | "μs" | "ms" | "s" | "m" | "h" => rest = behind,
            _ => return format!("unknown unit {unit:?} in duration"),
        }
    }
    "invalid duration".into()
}

/// Parses `start` and `end` in seconds; `None` if absent.
pub(super) fn window(call: &Call) -> Result<(Option<i64>, Option<i64>), ParamError> {
    let seconds = |name: &str| Ok::<_, ParamError>(whole(call, name, SECONDS_MAX)?.filter(|s| *s > 0));
    let (start, end) = (seconds("start")?, seconds("end")?);
    if let Some((start, end)) = start.zip(end)
        && start > end
    {
        return Err(disordered(start as i64, end as i64));
    }
    Ok((start.map(nanos), end.map(nanos)))
}

/// Parses which part of a trace is asked for; `None` if all of it is. The levels above count only if they are asked for.
pub(super) fn part_asked(params: &TraceParams) -> Result<Option<TracePart>, ParamError> {
    let Some(text) = params.one("q")?.map(str::trim).filter(|text| !text.is_empty()) else { return Ok(None) };
    let is_above = match params.one("keep_hierarchy")?.unwrap_or_default() {
        "" | "0" | "f" | "F" | "false" | "False" | "FALSE" => false,
        "1" | "t" | "T" | "true" | "True" | "TRUE" => true,
        other => {
            let reason = format!("strconv.ParseBool: parsing {other:?}: invalid syntax");
            return Err(text_error(format!("invalid value for keep_hierarchy: {reason}")));
        }
    };
    let below = depth(params, "match_depth", 0)?;
    let above = if is_above { depth(params, "ancestor_depth", usize::MAX)? } else { 0 };
    TracePart::parse(text, above, below).map(Some).map_err(text_error)
}

/// Parses a number of levels; -1 is any.
fn depth(params: &TraceParams, name: &str, default: usize) -> Result<usize, ParamError> {
    let Some(text) = params.one(name)?.filter(|text| !text.is_empty()) else { return Ok(default) };
    match text.parse::<i64>() {
        Ok(-1) => Ok(usize::MAX),
        Ok(levels) => {
            usize::try_from(levels).map_err(|_| text_error(format!("invalid value for {name}: must be >= -1")))
        }
        Err(_) => Err(text_error(format!("invalid value for {name}: strconv.Atoi: parsing {text:?}: invalid syntax"))),
    }
}

/// Converts a second to nanoseconds, saturating.
fn nanos(seconds: u64) -> i64 {
    i64::try_from(seconds).unwrap_or(i64::MAX).saturating_mul(1_000_000_000)
}

/// The error for a range, in seconds, that ends before it begins.
pub(super) fn disordered(start: i64, end: i64) -> ParamError {
    text_error(format!("http parameter start must be before end. received start={start} end={end}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_say_it_all() {
        for (error, text) in [
            (text_error("why"), "why"),
            (disordered(5, 3), "http parameter start must be before end. received start=5 end=3"),
            (disordered(-1, 0), "http parameter start must be before end. received start=-1 end=0"),
        ] {
            assert_eq!((error.name.as_str(), error.reason.as_str()), ("", text), "no name is put before it");
        }
    }

    #[test]
    fn what_is_wrong_about_durations() {
        for (text, expected) in [
            ("5", "missing unit in duration"),
            ("1h5", "missing unit in duration"),
            ("10seconds", "unknown unit \"seconds\" in duration"),
            ("1msec", "unknown unit \"msec\" in duration"),
            ("1d", "unknown unit \"d\" in duration"),
            ("", "invalid duration"),
            ("x", "invalid duration"),
            ("-", "invalid duration"),
            ("1s-", "unknown unit \"s-\" in duration"),
        ] {
            assert_eq!(no_duration(text), expected, "`{text}`");
        }
    }

    /// Would fail if a range until the year 3000 overflowed: nanoseconds in an `i64` end in 2262.
    #[test]
    fn seconds_behind_all_times_are_its_end() {
        const LAST: u64 = 9_223_372_036;
        for (seconds, expected) in [
            (0, 0),
            (1, 1_000_000_000),
            (1_741_600_001, 1_741_600_001_000_000_000),
            (LAST, 9_223_372_036_000_000_000),
            (LAST + 1, i64::MAX),
            (32_503_680_000, i64::MAX),
            (SECONDS_MAX, i64::MAX),
            (u64::MAX, i64::MAX),
        ] {
            assert_eq!(nanos(seconds), expected, "{seconds}");
        }
    }
}
