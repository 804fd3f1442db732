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
        let minutes = (hours.abs() * 60.0) as i64;
        let rest = if minutes % 60 > 0 { format!(":{:02}", minutes % 60) } else { String::new() };
        let clock = format!("{:02}{rest}", minutes / 60);
        let (east, west) = if hours < 0.0 { ('-', '+') } else { ('+', '-') };
        return Some(format!("<{east}{clock}>{west}{clock}"));
    }
    let value = if value.eq_ignore_ascii_case("utc") || value == "default" { "UTC" } else { value };
    // Names ignore case, and are shown in their usual spelling.
    let named = TZ_VARIANTS.iter().map(|zone| zone.name()).find(|name| name.eq_ignore_ascii_case(value));
    let value = named.unwrap_or(value);
    value.parse::<arrow::array::timezone::Tz>().is_ok().then(|| value.to_owned())
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
