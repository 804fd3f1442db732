//! Names of time zones as PostgreSQL takes them: in any case, abbreviations (`CEST`), and POSIX's hours west of
//! Greenwich (`UTC+2`). Arrow takes names as they are listed, and hours east.

use arrow::array::timezone::Tz;
use chrono_tz::TZ_VARIANTS;

/// Zones that have a name of letters alone, with their hours from UTC.
const ZONES: [(&str, i32); 43] = [
    ("z", 0),
    ("utc", 0),
    ("gmt", 0),
    ("ut", 0),
    ("uct", 0),
    ("zulu", 0),
    ("wet", 0),
    ("west", 1),
    ("bst", 1),
    ("cet", 1),
    ("met", 1),
    ("cest", 2),
    ("mest", 2),
    ("eet", 2),
    ("ist", 2),
    ("sast", 2),
    ("eest", 3),
    ("idt", 3),
    ("msk", 3),
    ("msd", 4),
    ("ict", 7),
    ("awst", 8),
    ("hkt", 8),
    ("sgt", 8),
    ("jst", 9),
    ("kst", 9),
    ("aest", 10),
    ("aedt", 11),
    ("nzst", 12),
    ("nzdt", 13),
    ("adt", -3),
    ("ast", -4),
    ("edt", -4),
    ("est", -5),
    ("cdt", -5),
    ("cst", -6),
    ("mdt", -6),
    ("mst", -7),
    ("pdt", -7),
    ("pst", -8),
    ("akdt", -8),
    ("akst", -9),
    ("hst", -10),
];

/// The name by which arrow knows a zone; `None` if there is no such zone. An abbreviation is one of hours, also where a
/// zone of the same name puts its clocks forward (`CET`).
pub fn zone_name(name: &str) -> Option<String> {
    if let Some(hours) = abbreviated(name) {
        return Some(if hours == 0 { "UTC".to_owned() } else { format!("{hours:+03}:00") });
    }
    if name.starts_with(['+', '-']) {
        return turned(name);
    }
    if name.parse::<Tz>().is_ok() {
        return Some(name.to_owned());
    }
    if let Some(listed) = TZ_VARIANTS.iter().map(|zone| zone.name()).find(|listed| listed.eq_ignore_ascii_case(name)) {
        return Some(listed.to_owned());
    }
    let hours = name.trim_start_matches(|letter: char| letter.is_ascii_alphabetic());
    if name.len() < hours.len() + 3 { None } else { turned(hours) }
}

/// The hours from UTC of a zone that is called by an abbreviation, in any case.
pub(crate) fn abbreviated(name: &str) -> Option<i32> {
    ZONES.iter().find(|(known, _)| known.eq_ignore_ascii_case(name)).map(|(_, hours)| *hours)
}

/// `+02:00` of that, of `+2`, `+02` and of `+0200`.
pub(crate) fn offset_of(offset: &str) -> Option<String> {
    let (sign, digits) = offset.split_at_checked(1)?;
    let (hours, minutes) = match digits.split_once(':') {
        Some((hours, minutes)) => (hours, minutes),
        None if digits.len() == 4 => digits.split_at_checked(2)?,
        None => (digits, "0"),
    };
    let number = |field: &str| {
        let is_number = matches!(field.len(), 1 | 2) && field.bytes().all(|byte| byte.is_ascii_digit());
        if is_number { field.parse::<u32>().ok() } else { None }
    };
    let (hours, minutes) = (number(hours)?, number(minutes)?);
    (hours < 16 && minutes < 60).then(|| format!("{sign}{hours:02}:{minutes:02}"))
}

/// Hours west of Greenwich as hours east.
fn turned(west: &str) -> Option<String> {
    match west.strip_prefix('-') {
        Some(hours) => offset_of(&format!("+{hours}")),
        None => offset_of(&format!("-{}", west.strip_prefix('+').unwrap_or(west))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_of_postgresql() {
        for (name, expected) in [
            ("UTC", "UTC"),
            ("utc", "UTC"),
            ("Z", "UTC"),
            ("Europe/Berlin", "Europe/Berlin"),
            ("america/port-au-prince", "America/Port-au-Prince"),
            ("est5edt", "EST5EDT"),
            ("Etc/GMT+2", "Etc/GMT+2"),
            // Abbreviations are of hours, and have no summer.
            ("CET", "+01:00"),
            ("cest", "+02:00"),
            ("PST", "-08:00"),
            ("UTC+2", "-02:00"),
            ("GMT-3", "+03:00"),
            ("xyz5:30", "-05:30"),
            ("+02", "-02:00"),
            ("-5", "+05:00"),
            ("-05:30", "+05:30"),
        ] {
            let found = zone_name(name);
            assert_eq!(found.as_deref(), Some(expected), "{name}");
            assert!(expected.parse::<Tz>().is_ok(), "{expected}");
        }
        for none in ["", "+", "Nowhere/None", "ab3", "xyz", "+99", "UTC+x", "é", "12"] {
            assert_eq!(zone_name(none), None, "{none}");
        }
    }

    #[test]
    fn abbreviations_are_told_apart() {
        for (at, (name, _)) in ZONES.iter().enumerate() {
            assert!(ZONES[at + 1..].iter().all(|(other, _)| other != name), "{name}");
        }
    }
}
