//! Intervals as people write them: `1 day 02:03`, `1-2`, `P1Y2M`, `@ 1 hour ago`, `1h30m`. PostgreSQL accepts all of
//! these, Arrow only numbers with units. So interval literals of a statement are rewritten to Arrow's form before they
//! are cast.

/// An interval with a unit behind each number; none: it is in that form, or is no interval.
pub fn worded(text: &str) -> Option<String> {
    let whole = match standard(text) {
        Some(whole) => whole,
        None => words_of(text)?.join(" "),
    };
    (whole != text).then_some(whole)
}

fn is_whole(part: &str) -> bool {
    !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit())
}

/// The sign of a number, if it is below zero, and what is behind its sign.
fn signed(number: &str) -> (&str, &str) {
    match number.strip_prefix('-') {
        Some(rest) => ("-", rest),
        None => ("", number.strip_prefix('+').unwrap_or(number)),
    }
}

/// `P1Y2M3DT4H5M6.5S` as `1 years 2 months 3 days 4 hours 5 minutes 6.5 seconds`, and so `P0001-02-03T04:05:06.5`; none:
/// it is no interval of ISO 8601.
fn standard(text: &str) -> Option<String> {
    let text = text.trim().strip_prefix('P')?;
    let parts: Vec<&str> = text.splitn(3, '-').collect();
    if let [year, month, rest] = parts[..]
        && is_whole(year)
    {
        let (day, clock) = rest.split_once('T').unwrap_or((rest, ""));
        let number = |part: &str| if is_whole(part) { part.parse::<u32>().ok() } else { None };
        let date = format!("{} years {} months {} days", number(year)?, number(month)?, number(day)?);
        return if clock.is_empty() { Some(date) } else { Some(format!("{date} {}", clock_of(clock)?)) };
    }
    let (mut words, mut number, mut in_day) = (Vec::new(), String::new(), false);
    for letter in text.chars() {
        let unit = match (letter, in_day) {
            ('T', false) if number.is_empty() => {
                in_day = true;
                continue;
            }
            ('0'..='9' | '.' | '-' | '+', _) => {
                number.push(letter);
                continue;
            }
            ('Y', false) => "years",
            ('M', false) => "months",
            ('W', false) => "weeks",
            ('D', false) => "days",
            ('H', true) => "hours",
            ('M', true) => "minutes",
            ('S', true) => "seconds",
            _ => return None,
        };
        number.parse::<f64>().ok()?;
        words.extend([std::mem::take(&mut number), unit.to_owned()]);
    }
    in_known_units(&mut words);
    (number.is_empty() && !words.is_empty()).then(|| words.join(" "))
}

/// Numbers and units of what is written with clocks, with signs apart, or without blanks; none: a sign stands before nothing.
fn words_of(text: &str) -> Option<Vec<String>> {
    let text = text.trim();
    let text = text.strip_prefix('@').unwrap_or(text);
    let (text, is_ago) = match text.rsplit_once(char::is_whitespace) {
        Some((before, last)) if last.eq_ignore_ascii_case("ago") => (before, true),
        _ => (text, false),
    };
    let mut words = Vec::<String>::new();
    let mut sign = "";
    for word in text.split(|letter: char| letter.is_whitespace() || letter == ',').filter(|word| !word.is_empty()) {
        if sign.is_empty() && matches!(word, "-" | "+") {
            sign = word;
            continue;
        }
        let word = format!("{sign}{word}");
        sign = "";
        let clock = clock_of(&word);
        // A number alone before a clock is one of days.
        if clock.is_some() && words.last().is_some_and(|word| word.parse::<i64>().is_ok()) {
            words.push("days".to_owned());
        }
        match clock.or_else(|| years_of(&word)).or_else(|| apart(&word)) {
            Some(several) => words.extend(several.split(' ').map(str::to_owned)),
            None => words.push(plain(&word).to_owned()),
        }
    }
    // A number alone, or behind all others, is one of seconds; arrow's casts take it for one of months.
    let is_number = |word: &String| word.parse::<f64>().is_ok_and(f64::is_finite);
    if words.len() % 2 == 1 && words.iter().step_by(2).all(is_number) {
        words.push("seconds".to_owned());
    }
    in_known_units(&mut words);
    if is_ago {
        for word in words.iter_mut().filter(|word| word.parse::<f64>().is_ok()) {
            *word = match signed(word) {
                ("-", number) => number.to_owned(),
                (_, number) => format!("-{number}"),
            };
        }
    }
    sign.is_empty().then_some(words)
}

/// A number without a sign that says nothing, and without a point behind it.
fn plain(word: &str) -> &str {
    let word = word.strip_prefix('+').filter(|rest| rest.starts_with(|l: char| l.is_ascii_digit())).unwrap_or(word);
    word.strip_suffix('.').filter(|rest| is_whole(signed(rest).1)).unwrap_or(word)
}

/// Hours, minutes and maybe seconds, all of the sign before them.
fn clock_of(word: &str) -> Option<String> {
    let (sign, digits) = signed(word);
    let mut parts = digits.split(':');
    let (hours, minutes) = (parts.next()?, parts.next()?);
    let seconds = parts.next().unwrap_or("0");
    let (whole, fraction) = seconds.split_once('.').unwrap_or((seconds, "0"));
    let fits = parts.next().is_none() && [hours, minutes, whole, fraction].into_iter().all(is_whole);
    let below = |part: &str| part.parse::<u32>().is_ok_and(|number| number < 60);
    (fits && below(minutes) && below(whole))
        .then(|| format!("{sign}{hours} hours {sign}{minutes} minutes {sign}{seconds} seconds"))
}

/// `1-2`: years and months, both of the sign before them.
fn years_of(word: &str) -> Option<String> {
    let (sign, digits) = signed(word);
    let (years, months) = digits.split_once('-')?;
    (is_whole(years) && is_whole(months)).then(|| format!("{sign}{years} years {sign}{months} months"))
}

/// `1h30m` with blanks between its numbers and units.
fn apart(word: &str) -> Option<String> {
    let mut parts = Vec::new();
    let mut rest = word;
    while !rest.is_empty() {
        let (sign, digits) = signed(rest);
        let end = digits.find(|letter: char| !(letter.is_ascii_digit() || letter == '.'))?;
        let (number, unit) = digits.split_at(end);
        let end = unit.find(|letter: char| !letter.is_ascii_alphabetic()).unwrap_or(unit.len());
        if !number.starts_with(|letter: char| letter.is_ascii_digit()) || end == 0 {
            return None;
        }
        parts.push(format!("{sign}{} {}", plain(number), &unit[..end]));
        rest = &unit[end..];
    }
    (!parts.is_empty()).then(|| parts.join(" "))
}

/// Names of a unit, the last of which is written.
const DAYS: &[&str] = &["d", "day", "days"];
const YEARS: &[&str] = &["y", "yr", "yrs", "year", "years"];
const DAY_NS: f64 = 86_400e9;

/// A number of a unit that arrow does not know, or of weeks, whose fractions it takes for hours alone, in one that it knows.
fn known(number: &str, unit: &str) -> Option<(f64, &'static [&'static str])> {
    let amount = number.parse::<f64>().ok()?;
    match unit.to_ascii_lowercase().as_str() {
        "w" | "week" | "weeks" if number.contains('.') => Some((amount * 7.0, DAYS)),
        "mil" | "mils" | "millennium" | "millennia" => Some((amount * 1000.0, YEARS)),
        _ => None,
    }
}

fn written(number: f64) -> String {
    let text = format!("{number:.9}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

/// Puts numbers in units that arrow knows. It takes each unit once, so they are added to what is there of the same.
fn in_known_units(words: &mut Vec<String>) {
    let found: Vec<_> = (1..words.len()).filter_map(|at| Some((at, known(&words[at - 1], &words[at])?))).collect();
    for (at, (amount, names)) in &found {
        let (at, amount) = (*at, *amount);
        let same = (1..words.len()).find_map(|other| {
            let is_same = names.contains(&words[other].to_ascii_lowercase().as_str());
            // What comes from the same unit twice stays twice, which is an error.
            let is_own = found.iter().any(|(own, _)| *own == other);
            if is_same && !is_own { Some((other, words[other - 1].parse::<f64>().ok()?)) } else { None }
        });
        let Some((other, there)) = same else {
            words[at - 1] = written(amount);
            names.last().copied().unwrap_or_default().clone_into(&mut words[at]);
            continue;
        };
        // A part of a day is hours of its own: a day less half a one is not half a day.
        let whole = if *names == DAYS { amount.trunc() } else { amount };
        words[other - 1] = written(there + whole);
        let rest = ((amount - whole) * DAY_NS).round();
        let pair =
            if rest == 0.0 { [String::new(), String::new()] } else { [format!("{rest:.0}"), "nanoseconds".to_owned()] };
        words[at - 1..=at].clone_from_slice(&pair);
    }
    words.retain(|word| !word.is_empty());
}

#[cfg(test)]
mod tests {
    use arrow::compute::kernels::cast_utils::parse_interval_month_day_nano;

    use super::*;

    #[test]
    fn intervals_have_several_forms() {
        for (text, expected) in [
            ("P1Y2M3DT4H5M6.5S", Some("1 years 2 months 3 days 4 hours 5 minutes 6.5 seconds")),
            ("P0001-02-03T04:05:06", Some("1 years 2 months 3 days 04 hours 05 minutes 06 seconds")),
            ("PT-36H", Some("-36 hours")),
            ("P-1DT-2H", Some("-1 days -2 hours")),
            ("P2W", Some("2 weeks")),
            ("1-2", Some("1 years 2 months")),
            ("-1-2 +3 -4:05:06", Some("-1 years -2 months 3 days -4 hours -05 minutes -06 seconds")),
            ("3 4:05:06", Some("3 days 4 hours 05 minutes 06 seconds")),
            ("1 day 02:03", Some("1 day 02 hours 03 minutes 0 seconds")),
            ("1 month - 1 day +2 hours", Some("1 month -1 day 2 hours")),
            ("1 day, 2 hours", Some("1 day 2 hours")),
            ("@ 1 year -3 days 04:05 ago", Some("-1 year 3 days -04 hours -05 minutes -0 seconds")),
            ("1h30m", Some("1 h 30 m")),
            ("  3   days ", Some("3 days")),
            ("5. days", Some("5 days")),
            ("10", Some("10 seconds")),
            ("-1.5", Some("-1.5 seconds")),
            ("1 day 10", Some("1 day 10 seconds")),
            ("2.5 weeks", Some("17.5 days")),
            ("1.1 weeks", Some("7.7 days")),
            ("1 millennium", Some("1000 years")),
            ("1 millennium 2 yrs", Some("1002 yrs")),
            ("P1.5W", Some("10.5 days")),
            ("P1.5W2D", Some("43200000000000 nanoseconds 12 days")),
            ("1.5 weeks 2 days", Some("43200000000000 nanoseconds 12 days")),
            ("2.0 weeks 1 day", Some("15 day")),
            ("1.5 weeks 2 days ago", Some("-43200000000000 nanoseconds -12 days")),
            ("1.5 weeks 1.5 w", Some("10.5 days 10.5 days")),
            ("P1H", None),
            ("P", None),
            ("1 day", None),
            ("2 weeks", None),
            ("1 day -", None),
            ("123:45:67", None),
            ("ago", None),
            ("", None),
        ] {
            assert_eq!(worded(text).as_deref(), expected, "{text}");
        }
    }

    #[test]
    fn signs_units_and_blanks_in_any_order() {
        for (text, expected) in [
            ("P1.5D", Some("1.5 days")),
            ("P1M", Some("1 months")),
            ("PT1M", Some("1 minutes")),
            ("P1DT1M", Some("1 days 1 minutes")),
            ("P0001-02-03", Some("1 years 2 months 3 days")),
            ("P0001-02-03T04:05", Some("1 years 2 months 3 days 04 hours 05 minutes 0 seconds")),
            ("-1h+30m", Some("-1 h 30 m")),
            ("1.5h", Some("1.5 h")),
            ("1d12h ago", Some("-1 d -12 h")),
            ("1 DAY AGO", Some("-1 DAY")),
            ("-1 day ago", Some("1 day")),
            ("1 12:00 ago", Some("-1 days -12 hours -00 minutes -0 seconds")),
            ("@ 1 hour", Some("1 hour")),
            ("+1 day", Some("1 day")),
            ("- 1 day", Some("-1 day")),
            ("2 millennia", Some("2000 years")),
            ("-0.5 weeks", Some("-3.5 days")),
            ("1\u{a0}day", Some("1 day")),
            ("1:59:59.999", Some("1 hours 59 minutes 59.999 seconds")),
        ] {
            let found = worded(text);
            assert_eq!(found.as_deref(), expected, "{text}");
            assert_eq!(found.as_deref().and_then(worded), None, "{text}: it is in that form now");
        }
    }

    #[test]
    fn what_is_no_interval_is_left_as_it_is() {
        for text in [
            "PT",
            "P1Y2",
            "P1D1H",
            "P--1D",
            "P0001-xx-03",
            "1:60",
            "1:02:03:04",
            "1::2",
            ":",
            "\u{ff11} day",
            "1día",
            "1 día",
            "ü",
            "day 1",
            "infinity",
        ] {
            assert_eq!(worded(text), None, "{text}");
        }
    }

    #[test]
    fn arrow_reads_what_was_meant() {
        const SECOND: i64 = 1_000_000_000;
        for (text, months, days, nanos) in [
            ("P1Y2M3DT4H5M6.5S", 14, 3, 14_706 * SECOND + SECOND / 2),
            ("1-2 3 4:05:06", 14, 3, 14_706 * SECOND),
            ("-1-2", -14, 0, 0),
            ("1 day 02:03:04.25", 0, 1, 7_384 * SECOND + SECOND / 4),
            ("@ 1 hour ago", 0, 0, -3_600 * SECOND),
            ("-1:30", 0, 0, -5_400 * SECOND),
            ("2 weeks 1 day", 0, 15, 0),
            ("0.5 weeks", 0, 3, 43_200 * SECOND),
            ("P1.5W", 0, 10, 43_200 * SECOND),
            ("P1.5W2D", 0, 12, 43_200 * SECOND),
            ("1.5 weeks 2 days", 0, 12, 43_200 * SECOND),
            ("2 days 1.5 weeks 03:00", 0, 12, 54_000 * SECOND),
            ("0.5 weeks -10 days", 0, -7, 43_200 * SECOND),
            ("-1.5 weeks 2 days", 0, -8, -43_200 * SECOND),
            ("1 millennium", 12_000, 0, 0),
            ("1 millennium -2.5 years", 11_970, 0, 0),
            ("1h30m", 0, 0, 5_400 * SECOND),
            ("10", 0, 0, 10 * SECOND),
        ] {
            let form = worded(text).unwrap_or_else(|| text.to_owned());
            let read = parse_interval_month_day_nano(&form).unwrap_or_else(|e| panic!("{text}: {e}"));
            assert_eq!((read.months, read.days, read.nanoseconds), (months, days, nanos), "{text}");
        }
    }
}
