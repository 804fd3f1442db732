//! Patterns of `to_date` and `to_timestamp`: PostgreSQL's (`YYYY-MM-DD HH24:MI`) are translated to DataFusion's
//! (`%Y-%m-%d %H:%M`). Patterns with `%` are DataFusion's already. `to_char` has functions of its own, one for
//! patterns of numbers and one for patterns of times.

use datafusion::sql::sqlparser::ast::{BinaryOperator, Expr};
use quiver_types::{Error, ErrorKind, Result};

use super::decimals::exact;
use super::expressions::{call, text};
use super::patterns::folded;

/// PostgreSQL's words, DataFusion's, and DataFusion's without padding (for words behind `FM`). Longer words come
/// before their prefixes.
const WORDS: [(&str, &str, &str); 24] = [
    ("YYYY", "%Y", "%-Y"),
    ("IYYY", "%G", "%-G"),
    ("YY", "%y", "%-y"),
    ("HH24", "%H", "%-H"),
    ("HH12", "%I", "%-I"),
    ("HH", "%I", "%-I"),
    ("MI", "%M", "%-M"),
    ("MM", "%m", "%-m"),
    ("MS", "%3f", "%3f"),
    ("US", "%6f", "%6f"),
    ("SS", "%S", "%-S"),
    ("DDD", "%j", "%-j"),
    ("DD", "%d", "%-d"),
    ("ID", "%u", "%u"),
    ("IW", "%V", "%-V"),
    ("AM", "%p", "%p"),
    ("PM", "%p", "%p"),
    ("am", "%P", "%P"),
    ("pm", "%P", "%P"),
    ("Month", "%B", "%B"),
    ("Day", "%A", "%A"),
    ("Mon", "%b", "%b"),
    ("Dy", "%a", "%a"),
    // `TH` behind a number makes it an ordinal.
    ("TH", "", ""),
];
/// Words whose case matters. Names of months and days are read in any case.
const OF_CASE: [&str; 4] = ["AM", "PM", "am", "pm"];

/// Words of number patterns.
const NUMBERS: [&str; 18] =
    ["EEEE", "RN", "TH", "V", "FM", "MI", "PL", "SG", "PR", "S", "D", "G", "L", "B", ".", ",", "9", "0"];

/// A call with a translated pattern; `None` if it needs no translation.
pub(super) fn translate(name: &str, args: &[Expr]) -> Result<Option<Expr>> {
    let [value, pattern] = args else { return Ok(None) };
    let Some(Some(pattern)) = folded(pattern) else {
        // The pattern differs by row, or is a parameter without a value yet.
        return Ok((name == "to_char").then(|| call("row_to_char", args.to_vec())));
    };
    let has_numbers = name == "to_char" && is_of_numbers(&pattern);
    if name == "to_number" {
        only_reads(&pattern)?;
    }
    if has_numbers {
        let value = exact(value).unwrap_or_else(|| value.clone());
        return Ok(Some(call("number_to_char", vec![value, args[1].clone()])));
    }
    if pattern.contains('%') || name == "to_number" {
        return Ok(None);
    }
    if name == "to_char" {
        return Ok(Some(call("time_to_char", args.to_vec())));
    }
    let Some(found) = translated(&pattern)? else { return Ok(None) };
    let (more, words) = left_out(&found);
    let value = if more.is_empty() {
        value.clone()
    } else {
        let (left, right) = (Box::new(Expr::Nested(Box::new(value.clone()))), Box::new(text(&more)));
        Expr::BinaryOp { left, op: BinaryOperator::StringConcat, right }
    };
    Ok(Some(call(name, vec![value, text(&(found + &words))])))
}

/// What PostgreSQL takes for fields that a pattern does not have, and their pattern: both are put behind what is there.
/// DataFusion reads a time of which the minutes are not there as a date, and no date without a day.
fn left_out(pattern: &str) -> (String, String) {
    let behind = pattern.split('%').skip(1);
    let word =
        |part: &str| part.trim_start_matches(|first: char| first == '-' || first.is_ascii_digit()).chars().next();
    let found: Vec<char> = behind.filter_map(word).collect();
    let has = |words: &str| found.iter().any(|word| words.contains(*word));
    let (is_day, is_time) = (has("Yy") && !has("GVj"), has("HIMSfpP"));
    let fields = [
        (is_day && !has("mbB"), " 01", " %m"),
        (is_day && !has("d"), " 01", " %d"),
        (is_time && !has("HI"), " 00", " %H"),
        (has("I") && !has("pP"), " AM", " %p"),
        (is_time && !has("M"), " 00", " %M"),
    ];
    let missing = || fields.iter().filter(|(is_missing, ..)| *is_missing);
    (missing().map(|(_, value, _)| *value).collect(), missing().map(|(.., word)| *word).collect())
}

/// Whether a pattern is one of numbers: it has digits or Roman ones, and only words of number patterns.
fn is_of_numbers(pattern: &str) -> bool {
    words(pattern).is_some_and(|words| words.iter().any(|word| matches!(*word, "9" | "0" | "RN")))
}

/// Refuses words of a pattern of numbers by which none are read.
fn only_reads(pattern: &str) -> Result<()> {
    let words = words(pattern).unwrap_or_default();
    match words.into_iter().find(|word| matches!(*word, "EEEE" | "RN" | "V")) {
        Some(word) => {
            let text = format!("`{word}` in the pattern `{pattern}` of `to_number` is not supported");
            Err(Error::new(ErrorKind::Unsupported, text))
        }
        None => Ok(()),
    }
}

/// The words of a pattern of numbers; `None`: it has others.
fn words(pattern: &str) -> Option<Vec<&'static str>> {
    let (mut rest, mut found) = (pattern, Vec::new());
    while let Some(first) = rest.chars().next() {
        if let Some((_, behind)) = rest.strip_prefix('"').and_then(|rest| rest.split_once('"')) {
            rest = behind;
            continue;
        }
        let begins = |word: &&&str| rest.get(..word.len()).is_some_and(|begin| begin.eq_ignore_ascii_case(word));
        if let Some(word) = NUMBERS.iter().find(begins) {
            found.push(*word);
            rest = &rest[word.len()..];
        } else if first.is_ascii_alphabetic() {
            return None;
        } else {
            rest = &rest[first.len_utf8()..];
        }
    }
    Some(found)
}

/// The translated pattern; `None` if it has no words of times.
fn translated(pattern: &str) -> Result<Option<String>> {
    let unsupported = |what: &str| {
        let text = format!("`{what}` in the pattern `{pattern}` is not supported");
        Error::new(ErrorKind::Unsupported, text)
    };
    let (mut out, mut rest, mut is_known) = (String::with_capacity(pattern.len() + 8), pattern, false);
    while let Some(first) = rest.chars().next() {
        if let Some(quoted) = rest.strip_prefix('"') {
            let (literal, behind) = quoted.split_once('"').ok_or_else(|| unsupported("\""))?;
            out.push_str(literal);
            rest = behind;
            continue;
        }
        let (is_short, word) = match rest.strip_prefix("FM").or_else(|| rest.strip_prefix("fm")) {
            Some(behind) => (true, behind),
            None => (false, rest),
        };
        let begins = |known: &str| {
            let begin = word.get(..known.len());
            begin.is_some_and(|b| b == known || (!OF_CASE.contains(&known) && b.eq_ignore_ascii_case(known)))
        };
        if let Some(&(known, padded, short)) = WORDS.iter().find(|word| begins(word.0)) {
            let form = if is_short { short } else { padded };
            if form.is_empty() {
                return Err(unsupported(known));
            }
            (is_known, rest) = (true, &word[known.len()..]);
            out.push_str(form);
        } else if first.is_ascii_alphabetic() && !matches!(first, 'T' | 'Z') {
            // Other words of PostgreSQL (`Q`, `WW`, `TZ`) must not be printed as they stand.
            return if is_known { Err(unsupported(&first.to_string())) } else { Ok(None) };
        } else {
            out.push(first);
            rest = &rest[first.len_utf8()..];
        }
    }
    Ok(is_known.then_some(out))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_that_a_pattern_leaves_out() {
        for (pattern, value, words) in [
            ("%Y-%m-%d", "", ""),
            ("%Y-%m-%d %H:%M", "", ""),
            ("%Y", " 01 01", " %m %d"),
            ("%-Y-%b", " 01", " %d"),
            ("%Y-%j", "", ""),
            ("%G-%V-%u", "", ""),
            ("%Y-%m-%d %H", " 00", " %M"),
            ("%Y-%m-%d %I:%M:%S", " AM", " %p"),
            ("%Y-%m-%d %I %p", " 00", " %M"),
            ("%Y-%m-%d %M", " 00", " %H"),
            ("%d.%m.%y %S.%3f", " 00 00", " %H %M"),
        ] {
            assert_eq!(left_out(pattern), (value.to_owned(), words.to_owned()), "{pattern}");
        }
    }

    #[test]
    fn patterns_are_those_of_postgresql() {
        let check = |pattern: &str, expected: Option<&str>| {
            assert_eq!(translated(pattern).unwrap().as_deref(), expected, "{pattern}");
        };
        check("YYYY-MM-DD HH24:MI:SS.MS", Some("%Y-%m-%d %H:%M:%S.%3f"));
        check("yyyy-mm-dd\"T\"hh24:mi:ssZ", Some("%Y-%m-%dT%H:%M:%SZ"));
        check("DD Mon YYYY HH12:MI AM", Some("%d %b %Y %I:%M %p"));
        check("FMMonth FMDD, DDD", Some("%B %-d, %j"));
        check("Day, MONTH DD mon YYYY", Some("%A, %B %d %b %Y"));
        check("999.00", None);
        check("other", None);
        for (pattern, expected) in [
            ("FM9,990.00%", true),
            ("S999MI", true),
            ("999 \"per day\"", true),
            ("YYYY-MM-01", false),
            ("MI:SS", false),
            ("%Y", false),
            ("DD", false),
            ("DDTH", false),
            ("9.99EEEE", true),
            ("FMrn", true),
            ("999TH", true),
            ("9V9", true),
        ] {
            assert_eq!(is_of_numbers(pattern), expected, "{pattern}");
        }
        for wrong in ["9.99EEEE", "RN", "9V9"] {
            assert_eq!(only_reads(wrong).unwrap_err().kind, ErrorKind::Unsupported, "{wrong}");
        }
        assert!(only_reads("9,999th").is_ok());
        for wrong in ["DDTH", "YYYY-Q", "YYYY \"open"] {
            assert_eq!(translated(wrong).unwrap_err().kind, ErrorKind::Unsupported, "{wrong}");
        }
    }
}
