//! Intervals of some fields (`interval '1 02:03' DAY TO MINUTE`), or of some digits (`interval(2) '1.234'`): what is below the
//! last field is cut off, and seconds are rounded. The planner knows one field behind a whole number.

use arrow::compute::kernels::cast_utils::parse_interval_month_day_nano;
use datafusion::sql::sqlparser::ast::{DataType, DateTimeField, Expr, Interval, IntervalFields};
use quiver_query::durations::worded;
use quiver_types::{Error, Result};

use super::expressions::{expr, is_null, literal};
use crate::error::unsupported;

const SECOND_NS: i64 = 1_000_000_000;
const MINUTE_NS: i64 = 60 * SECOND_NS;
const HOUR_NS: i64 = 60 * MINUTE_NS;

/// The last field of an interval, which is that of a number without a unit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum LastField {
    Year,
    Month,
    Day,
    Hour,
    Minute,
    /// With the digits behind the point that stay.
    Second(Option<u64>),
}

impl LastField {
    fn of(field: &DateTimeField, digits: Option<u64>) -> Option<Self> {
        Some(match field {
            DateTimeField::Year => Self::Year,
            DateTimeField::Month => Self::Month,
            DateTimeField::Day => Self::Day,
            DateTimeField::Hour => Self::Hour,
            DateTimeField::Minute => Self::Minute,
            DateTimeField::Second => Self::Second(digits),
            _ => return None,
        })
    }

    fn of_type(fields: Option<&IntervalFields>, digits: Option<u64>) -> Self {
        match fields {
            Some(IntervalFields::Year) => Self::Year,
            Some(IntervalFields::Month | IntervalFields::YearToMonth) => Self::Month,
            Some(IntervalFields::Day) => Self::Day,
            Some(IntervalFields::Hour | IntervalFields::DayToHour) => Self::Hour,
            Some(IntervalFields::Minute | IntervalFields::DayToMinute | IntervalFields::HourToMinute) => Self::Minute,
            _ => Self::Second(digits),
        }
    }

    fn unit(self) -> &'static str {
        match self {
            Self::Year => "years",
            Self::Month => "months",
            Self::Day => "days",
            Self::Hour => "hours",
            Self::Minute => "minutes",
            Self::Second(_) => "seconds",
        }
    }
}

/// An interval literal with fields; `None` if the planner takes it as it is.
///
/// # Errors
/// Invalid: the text is no interval.
pub(super) fn of_literal(interval: &Interval) -> Result<Option<Expr>> {
    let (Some(first), Some(text)) = (&interval.leading_field, literal(&interval.value)) else { return Ok(None) };
    let digits = interval.fractional_seconds_precision.or(interval.leading_precision);
    if interval.last_field.is_none() && digits.is_none() && text.trim().parse::<i64>().is_ok() {
        return Ok(None);
    }
    let is_clock_of_minutes = *first == DateTimeField::Minute && interval.last_field == Some(DateTimeField::Second);
    match LastField::of(interval.last_field.as_ref().unwrap_or(first), digits) {
        Some(last) => limited(text, last, is_clock_of_minutes).map(Some),
        None => Ok(None),
    }
}

/// A cast to a type of intervals with fields or digits; `None` if it has none.
///
/// # Errors
/// Invalid: the text is no interval. Unsupported: the value is not written out.
pub(super) fn of_cast(data_type: &DataType, value: &Expr) -> Result<Option<Expr>> {
    let DataType::Interval { fields, precision } = data_type else { return Ok(None) };
    if fields.is_none() && precision.is_none() {
        return Ok(None);
    }
    if is_null(value) {
        return expr("CAST(NULL AS INTERVAL)").map(Some);
    }
    let Some(text) = literal(value) else {
        return Err(unsupported(format!(
            "`{data_type}` is supported of texts that are written out: cast to `interval`"
        )));
    };
    let is_clock_of_minutes = matches!(fields, Some(IntervalFields::MinuteToSecond));
    limited(text, LastField::of_type(fields.as_ref(), *precision), is_clock_of_minutes).map(Some)
}

fn limited(text: &str, last: LastField, is_clock_of_minutes: bool) -> Result<Expr> {
    let mut words: Vec<String> = text.split_whitespace().map(str::to_owned).collect();
    if let Some(word) = words.last_mut() {
        let is_number = word.bytes().all(|byte| byte.is_ascii_digit() || b".+-".contains(&byte));
        if is_number && word.parse::<f64>().is_ok() {
            let at = words.len() - 1;
            words.push(last.unit().to_owned());
            // A number before it is one of days: `'1 10' DAY TO HOUR`.
            if at > 0 && words[at - 1].parse::<i64>().is_ok() {
                words.insert(at, "days".to_owned());
            }
        } else if is_clock_of_minutes && word.matches(':').count() == 1 {
            let digits = word.trim_start_matches(['-', '+']);
            *word = format!("{}00:{digits}", &word[..word.len() - digits.len()]);
        }
    }
    let text_of_units = words.join(" ");
    let form = worded(&text_of_units).unwrap_or(text_of_units);
    let read = parse_interval_month_day_nano(&form)
        .map_err(|_| Error::invalid(format!("invalid input syntax for type interval: \"{text}\"")))?;
    let (mut months, mut days, mut nanos) = (read.months, read.days, read.nanoseconds);
    match last {
        LastField::Year => (months, days, nanos) = (months - months % 12, 0, 0),
        LastField::Month => (days, nanos) = (0, 0),
        LastField::Day => nanos = 0,
        LastField::Hour => nanos -= nanos % HOUR_NS,
        LastField::Minute => nanos -= nanos % MINUTE_NS,
        LastField::Second(None | Some(6..)) => {}
        LastField::Second(Some(digits)) => {
            let unit = (0..digits).fold(SECOND_NS, |unit, _| unit / 10);
            nanos = nanos.saturating_add(nanos.signum() * (unit / 2)) / unit * unit;
        }
    }
    expr(&format!("INTERVAL '{months} months {days} days {nanos} nanoseconds'"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_below_the_last_field_is_cut_off() {
        for (written, expected) in [
            ("'1 02:03' DAY TO MINUTE", (0, 1, 2 * HOUR_NS + 3 * MINUTE_NS)),
            ("'1 day 02:03:04.567' DAY TO MINUTE", (0, 1, 2 * HOUR_NS + 3 * MINUTE_NS)),
            ("'1 10' DAY TO HOUR", (0, 1, 10 * HOUR_NS)),
            ("'10:20' MINUTE TO SECOND", (0, 0, 10 * MINUTE_NS + 20 * SECOND_NS)),
            ("'-10:20' HOUR TO MINUTE", (0, 0, -10 * HOUR_NS - 20 * MINUTE_NS)),
            ("'1-2' YEAR TO MONTH", (14, 0, 0)),
            ("'14 months' YEAR", (12, 0, 0)),
            ("'1.5' DAY", (0, 1, 0)),
            ("'90 minutes' HOUR", (0, 0, HOUR_NS)),
            ("'1.235' SECOND(2)", (0, 0, 1_240_000_000)),
            ("'-1.235' SECOND(2)", (0, 0, -1_240_000_000)),
            ("'1 00:00:01.5' DAY TO SECOND(0)", (0, 1, 2 * SECOND_NS)),
        ] {
            let Expr::Interval(interval) = expr(&format!("INTERVAL {written}")).unwrap() else { panic!("{written}") };
            let found = of_literal(&interval).unwrap().unwrap();
            let (months, days, nanos) = expected;
            let form = format!("INTERVAL '{months} months {days} days {nanos} nanoseconds'");
            assert_eq!(found.to_string(), form, "{written}");
        }
        for same in ["'5' DAY", "'5 days'"] {
            let Expr::Interval(interval) = expr(&format!("INTERVAL {same}")).unwrap() else { panic!("{same}") };
            assert!(of_literal(&interval).unwrap().is_none(), "{same}");
        }
    }

    #[test]
    fn types_have_fields_and_digits() {
        let of = |cast: &str| {
            let Expr::Cast { expr: value, data_type, .. } = expr(cast).unwrap() else { panic!("{cast}") };
            of_cast(&data_type, &value)
        };
        let shown = |cast: &str| of(cast).unwrap().map(|found| found.to_string());
        assert_eq!(
            shown("'1.23456 seconds'::interval(2)").as_deref(),
            Some("INTERVAL '0 months 0 days 1230000000 nanoseconds'")
        );
        assert_eq!(
            shown("cast('10' as interval hour)").as_deref(),
            Some("INTERVAL '0 months 0 days 36000000000000 nanoseconds'")
        );
        assert_eq!(shown("null::interval(2)").as_deref(), Some("CAST(NULL AS INTERVAL)"));
        assert_eq!(shown("'1 day'::interval"), None);
        assert_eq!(of("a::interval(2)").unwrap_err().kind, quiver_types::ErrorKind::Unsupported);
        assert_eq!(of("'x'::interval day").unwrap_err().kind, quiver_types::ErrorKind::Invalid);
    }
}
