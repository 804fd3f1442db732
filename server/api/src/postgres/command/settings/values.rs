//! Values of settings: how they are written, and what PostgreSQL shows of them.

use std::time::Duration;

use chrono_tz::TZ_VARIANTS;

/// A time in the largest unit that needs no fraction.
pub(super) fn length(time: Duration) -> String {
    let ms = time.as_millis();
    let units = [("d", 86_400_000), ("h", 3_600_000), ("min", 60_000), ("s", 1_000), ("ms", 1)];
    let unit = units.into_iter().find(|(_, factor)| ms > 0 && ms.is_multiple_of(*factor));
    unit.map_or_else(|| "0".to_owned(), |(unit, factor)| format!("{}{unit}", ms / factor))
}

/// Splits the `options` parameter at blanks; a backslash escapes a blank.
pub(super) fn words_of(text: &str) -> Vec<String> {
    let mut words: Vec<String> = Vec::new();
    let (mut is_within, mut is_escaped) = (false, false);
    for letter in text.chars() {
        if letter.is_whitespace() && !is_escaped {
            is_within = false;
            continue;
        }
        if !is_within {
            words.push(String::new());
            is_within = true;
        }
        is_escaped = letter == '\\' && !is_escaped;
        if !is_escaped && let Some(word) = words.last_mut() {
            word.push(letter);
        }
    }
    words
}

/// Whether two values are equal; booleans may be written in several ways.
pub(super) fn same(known: &str, value: &str) -> bool {
    let plain = |value: &str| match value.to_lowercase().as_str() {
        "true" | "yes" | "1" => "on".to_owned(),
        "false" | "no" | "0" => "off".to_owned(),
        other => other.to_owned(),
    };
    plain(known) == plain(value)
}

/// The engine's name of a time zone.
pub(super) fn zone(value: &str) -> Option<String> {
    if let Ok(hours) = value.parse::<f64>() {
        // NaN is no offset.
        if hours.is_nan() || hours.abs() > 14.0 {
            return None;
        }
        return Some(zone_of_minutes((hours * 60.0) as i64));
    }
    // As it is shown, which clients set again.
    if let Some((east, _)) = value.strip_prefix('<').and_then(|rest| rest.split_once('>')) {
        return zone_of_interval(east, true).filter(|known| known == value);
    }
    let value = if value.eq_ignore_ascii_case("utc") || value == "default" { "UTC" } else { value };
    // Names ignore case, and are shown in their usual spelling.
    let named = TZ_VARIANTS.iter().map(|zone| zone.name()).find(|name| name.eq_ignore_ascii_case(value));
    let value = named.unwrap_or(value);
    value.parse::<arrow::array::timezone::Tz>().is_ok().then(|| value.to_owned())
}

/// The name of the zone that is so many minutes east of UTC, as PostgreSQL shows it.
fn zone_of_minutes(minutes: i64) -> String {
    let (east, west) = if minutes < 0 { ('-', '+') } else { ('+', '-') };
    let (hours, minutes) = (minutes.abs() / 60, minutes.abs() % 60);
    let rest = if minutes > 0 { format!(":{minutes:02}") } else { String::new() };
    format!("<{east}{hours:02}{rest}>{west}{hours:02}{rest}")
}

/// The zone of an offset from UTC that is an interval: `+05:30`, or hours alone if these are meant; at most 14 hours.
pub(in crate::postgres::command) fn zone_of_interval(text: &str, are_hours: bool) -> Option<String> {
    let text = text.trim();
    let (sign, clock) = match text.strip_prefix('-') {
        Some(clock) => (-1, clock),
        None => (1, text.strip_prefix('+').unwrap_or(text)),
    };
    let number = |part: &str| {
        let is_short = part.len() <= 2 && part.bytes().all(|byte| byte.is_ascii_digit());
        is_short.then(|| part.parse::<i64>().ok()).flatten()
    };
    let minutes = match clock.split_once(':') {
        Some((hours, minutes)) => number(hours)? * 60 + number(minutes).filter(|minutes| *minutes < 60)?,
        None if are_hours => number(clock)? * 60,
        None => return None,
    };
    (minutes <= 14 * 60).then(|| zone_of_minutes(sign * minutes))
}

/// Checks a list of schemas: each must exist.
pub(super) fn search_path(value: &str) -> Option<String> {
    // No schema at all: such a client qualifies each table.
    if matches!(value, "" | "\"\"") {
        return Some(String::new());
    }
    let mut found = Vec::new();
    for part in value.split(',').map(|part| part.trim().trim_matches('"')) {
        match part {
            "public" | "quiver" | "olap" | "pg_catalog" | "information_schema" => found.push(part.to_owned()),
            // Users have no schemas.
            "$user" => {}
            _ => return None,
        }
    }
    Some(found.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blanks_behind_backslashes_part_no_words() {
        for (text, expected) in [
            ("-c a=b", &["-c", "a=b"][..]),
            ("", &[]),
            (" \t ", &[]),
            ("  a\n\tb  ", &["a", "b"]),
            (r"a\ b c", &["a b", "c"]),
            (r"a\\ b", &[r"a\", "b"]),
            (r"a\\\ b", &[r"a\ b"]),
            (r"\ ", &[" "]),
            (r"a\bc", &["abc"]),
            (r"é\ ü", &["é ü"]),
            // A backslash at the end escapes nothing.
            (r"a\", &["a"]),
            (r"a \", &["a", ""]),
        ] {
            assert_eq!(words_of(text), expected, "{text:?}");
        }
    }
}
