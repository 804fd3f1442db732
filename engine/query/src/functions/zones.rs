//! `time AT TIME ZONE zone`, as in PostgreSQL: turns an instant into the local time of the zone, and a local time into
//! the instant. DataFusion leaves the instant unchanged in both cases, and only shows it in the zone.

use std::sync::Arc;

use arrow::array::timezone::Tz;
use arrow::array::{AsArray, IntervalMonthDayNanoArray, StringViewArray, TimestampNanosecondArray};
use arrow::compute::cast;
use arrow::datatypes::{DataType, IntervalMonthDayNanoType, IntervalUnit, TimeUnit, TimestampNanosecondType};
use chrono::{DateTime, LocalResult, Offset as _, TimeDelta, TimeZone as _};
use datafusion::common::{exec_err, plan_err};
use datafusion::error::Result;
use datafusion::logical_expr::{ColumnarValue, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility};

use crate::zone_names::zone_name;

const SECOND_NS: i64 = 1_000_000_000;
/// Longer than clocks are ever put forward.
const GAP: TimeDelta = TimeDelta::hours(4);

#[derive(Debug, PartialEq, Eq, Hash)]
struct AtTimeZone {
    signature: Signature,
}

pub(super) fn function() -> Arc<ScalarUDF> {
    Arc::new(ScalarUDF::from(AtTimeZone { signature: Signature::user_defined(Volatility::Immutable) }))
}

fn moment() -> DataType {
    DataType::Timestamp(TimeUnit::Nanosecond, Some("UTC".into()))
}

fn reading() -> DataType {
    DataType::Timestamp(TimeUnit::Nanosecond, None)
}

impl ScalarUDFImpl for AtTimeZone {
    fn name(&self) -> &'static str {
        "at_time_zone"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn coerce_types(&self, types: &[DataType]) -> Result<Vec<DataType>> {
        let [time, zone] = types else { return plan_err!("`AT TIME ZONE` has a time and a zone") };
        let time = match time {
            DataType::Timestamp(_, None) | DataType::Date32 | DataType::Date64 => reading(),
            // A text without a type is a moment, as in PostgreSQL.
            DataType::Timestamp(_, Some(_)) | DataType::Null => moment(),
            other if other.is_string() => moment(),
            other => return plan_err!("`AT TIME ZONE` stands behind a time, not behind `{other}`"),
        };
        let zone = match zone {
            DataType::Interval(_) => DataType::Interval(IntervalUnit::MonthDayNano),
            other if other.is_string() || other.is_null() => DataType::Utf8View,
            other => return plan_err!("`AT TIME ZONE` takes the name of a zone, not `{other}`"),
        };
        Ok(vec![time, zone])
    }

    fn return_type(&self, types: &[DataType]) -> Result<DataType> {
        Ok(if matches!(types, [DataType::Timestamp(_, Some(_)), _]) { reading() } else { moment() })
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let [times, zones] = args.args.as_slice() else { return exec_err!("`AT TIME ZONE` has a time and a zone") };
        let is_moment = matches!(times.data_type(), DataType::Timestamp(_, Some(_)));
        let times = times.to_array(args.number_rows)?;
        let given = times.as_primitive::<TimestampNanosecondType>();
        let zones = zones.to_array(args.number_rows)?;
        let shifted = match zones.as_primitive_opt::<IntervalMonthDayNanoType>() {
            Some(by) => moved(given, by, is_moment)?,
            None => shifted(given, cast(&zones, &DataType::Utf8View)?.as_string_view(), is_moment)?,
        };
        let shifted = if is_moment { shifted } else { shifted.with_timezone("UTC") };
        Ok(ColumnarValue::Array(Arc::new(shifted)))
    }
}

fn shifted(
    times: &TimestampNanosecondArray,
    zones: &StringViewArray,
    is_moment: bool,
) -> Result<TimestampNanosecondArray> {
    let mut out = TimestampNanosecondArray::builder(times.len());
    // Rows have the zone of the row before, as a rule.
    let mut last: Option<(&str, Tz)> = None;
    for (time, name) in times.iter().zip(zones.iter()) {
        let (Some(time), Some(name)) = (time, name) else {
            out.append_null();
            continue;
        };
        let zone = match last {
            Some((known, zone)) if known == name => zone,
            _ => {
                let Some(zone) = zone_of(name) else { return exec_err!("there is no time zone `{name}`") };
                last = Some((name, zone));
                zone
            }
        };
        let found = if is_moment { clock(time, zone) } else { moment_of(time, zone) };
        let Some(found) = found else { return exec_err!("a time is beyond what can be told in another zone") };
        out.append_value(found);
    }
    Ok(out.finish())
}

/// A zone by its name. A number is one of POSIX: `+02` lies two hours west of Greenwich.
fn zone_of(name: &str) -> Option<Tz> {
    zone_name(name)?.parse().ok()
}

/// Times moved by intervals: a zone that is one lies so far east.
fn moved(
    times: &TimestampNanosecondArray,
    by: &IntervalMonthDayNanoArray,
    is_moment: bool,
) -> Result<TimestampNanosecondArray> {
    let mut out = TimestampNanosecondArray::builder(times.len());
    for (time, by) in times.iter().zip(by.iter()) {
        let (Some(time), Some(by)) = (time, by) else {
            out.append_null();
            continue;
        };
        if by.months != 0 || by.days != 0 {
            return exec_err!("an interval that is a time zone has no months and no days");
        }
        let found = if is_moment { time.checked_add(by.nanoseconds) } else { time.checked_sub(by.nanoseconds) };
        let Some(found) = found else { return exec_err!("a time is beyond what can be told in another zone") };
        out.append_value(found);
    }
    Ok(out.finish())
}

/// What the clocks of a zone show at a moment.
fn clock(ns: i64, zone: Tz) -> Option<i64> {
    let offset = zone.offset_from_utc_datetime(&DateTime::from_timestamp_nanos(ns).naive_utc());
    ns.checked_add(i64::from(offset.fix().local_minus_utc()) * SECOND_NS)
}

/// The moment at which the clocks of a zone show a time: of two the later one, and of a time that they leave out the moment
/// at which they would show it, had they not been put forward yet.
fn moment_of(ns: i64, zone: Tz) -> Option<i64> {
    let shown = DateTime::from_timestamp_nanos(ns).naive_utc();
    let offset = match zone.offset_from_local_datetime(&shown) {
        LocalResult::Single(offset) | LocalResult::Ambiguous(_, offset) => offset,
        LocalResult::None => zone.offset_from_local_datetime(&(shown - GAP)).latest()?,
    };
    ns.checked_sub(i64::from(offset.fix().local_minus_utc()) * SECOND_NS)
}

#[cfg(test)]
mod tests {
    use super::super::testing::{call, column, text, texts};
    use super::*;

    fn ns(text: &str) -> i64 {
        text.parse::<DateTime<chrono::Utc>>().unwrap().timestamp_nanos_opt().unwrap()
    }

    #[test]
    fn clocks_and_moments_are_those_of_postgresql() {
        let berlin: Tz = "Europe/Berlin".parse().unwrap();
        for (moment, shown) in [
            ("2024-01-01T08:00:00Z", "2024-01-01T09:00:00Z"),
            ("2024-07-01T08:00:00Z", "2024-07-01T10:00:00Z"),
            ("2024-10-27T01:30:00Z", "2024-10-27T02:30:00Z"),
        ] {
            assert_eq!(clock(ns(moment), berlin), Some(ns(shown)), "{moment}");
            assert_eq!(moment_of(ns(shown), berlin), Some(ns(moment)), "{shown}");
        }
        assert_eq!(moment_of(ns("2024-03-31T02:30:00Z"), berlin), Some(ns("2024-03-31T01:30:00Z")));
        assert_eq!(clock(i64::MAX, berlin), None);
    }

    #[test]
    fn intervals_are_zones() {
        let times = TimestampNanosecondArray::from(vec![Some(0), None, Some(0)]);
        let by = |months, ns| Some(arrow::datatypes::IntervalMonthDayNano::new(months, 0, ns));
        let zones = IntervalMonthDayNanoArray::from(vec![by(0, 5), by(0, 5), None]);
        for (is_moment, expected) in [(true, 5), (false, -5)] {
            let found = moved(&times, &zones, is_moment).unwrap();
            assert_eq!(found, TimestampNanosecondArray::from(vec![Some(expected), None, None]));
        }
        let months = IntervalMonthDayNanoArray::from(vec![by(1, 0)]);
        assert!(moved(&TimestampNanosecondArray::from(vec![0_i64]), &months, true).is_err());
    }

    #[test]
    fn each_row_has_its_zone() {
        let times = TimestampNanosecondArray::from(vec![Some(0), Some(0), None]);
        let zones = StringViewArray::from(vec![Some("Asia/Tokyo"), None, Some("Nowhere/None")]);
        let found = shifted(&times, &zones, true).unwrap();
        assert_eq!(found, TimestampNanosecondArray::from(vec![Some(9 * 3_600 * SECOND_NS), None, None]));
        let numbers = StringViewArray::from(vec!["+02", "-05:30", "UTC"]);
        let found = shifted(&TimestampNanosecondArray::from(vec![0_i64; 3]), &numbers, true).unwrap();
        let hours = |hours: f64| (hours * 3_600.0) as i64 * SECOND_NS;
        assert_eq!(found, TimestampNanosecondArray::from(vec![hours(-2.0), hours(5.5), 0]));
        let names = StringViewArray::from(vec!["utc", "asia/tokyo", "PST"]);
        let found = shifted(&TimestampNanosecondArray::from(vec![0_i64; 3]), &names, true).unwrap();
        assert_eq!(found, TimestampNanosecondArray::from(vec![0, hours(9.0), hours(-8.0)]));
        let wrong = StringViewArray::from(vec!["Nowhere/None"]);
        let error = shifted(&TimestampNanosecondArray::from(vec![0_i64]), &wrong, true).unwrap_err();
        assert!(error.to_string().contains("`Nowhere/None`"), "{error}");
    }

    /// Breaks if the hour that clocks leave out, or show twice, is told by other rules than PostgreSQL's.
    #[test]
    fn clocks_that_are_put_forward_and_back() {
        let zone = |name: &str| name.parse::<Tz>().unwrap();
        for (name, shown, moment) in [
            // Put forward by an hour, by half an hour, and by none.
            ("America/New_York", "2024-03-10T02:30:00Z", "2024-03-10T07:30:00Z"),
            ("America/New_York", "2024-03-10T01:59:59Z", "2024-03-10T06:59:59Z"),
            ("America/New_York", "2024-03-10T03:00:00Z", "2024-03-10T07:00:00Z"),
            ("Australia/Lord_Howe", "2024-10-06T02:15:00Z", "2024-10-05T15:45:00Z"),
            ("Asia/Kathmandu", "2024-06-01T00:00:00Z", "2024-05-31T18:15:00Z"),
            // Put back: the later one of two.
            ("America/New_York", "2024-11-03T01:30:00Z", "2024-11-03T06:30:00Z"),
            ("Europe/Berlin", "2024-10-27T02:00:00Z", "2024-10-27T01:00:00Z"),
            ("Europe/Berlin", "2024-10-27T03:00:00Z", "2024-10-27T02:00:00Z"),
            // A day that was left out.
            ("Pacific/Apia", "2011-12-29T12:00:00Z", "2011-12-29T22:00:00Z"),
            ("Pacific/Apia", "2011-12-31T12:00:00Z", "2011-12-30T22:00:00Z"),
        ] {
            assert_eq!(moment_of(ns(shown), zone(name)), Some(ns(moment)), "{name} {shown}");
        }
        // What is no reading of a clock twice comes back as it was.
        for name in ["Europe/Berlin", "America/St_Johns", "Asia/Kolkata", "UTC", "+05:45"] {
            for hours in 0..24 * 30 {
                let moment = ns("2024-02-01T00:00:00Z") + hours * 3_600 * SECOND_NS;
                let shown = clock(moment, zone(name)).unwrap();
                assert_eq!(moment_of(shown, zone(name)), Some(moment), "{name} {hours}");
            }
        }
        assert_eq!(moment_of(i64::MIN, zone("Asia/Tokyo")), None);
        assert_eq!(clock(i64::MIN, zone("America/New_York")), None);
    }

    #[test]
    fn moments_become_readings_and_readings_moments() {
        let readings = TimestampNanosecondArray::from(vec![Some(0), None]);
        let found = call(&function(), &[column(readings.clone()), text("Asia/Tokyo")], 2).unwrap();
        let expected = TimestampNanosecondArray::from(vec![Some(-9 * 3_600 * SECOND_NS), None]).with_timezone("UTC");
        assert_eq!(found.as_primitive::<TimestampNanosecondType>(), &expected);
        let moments = readings.with_timezone("Europe/Berlin");
        let zones = texts(&[Some("America/New_York"), Some("UTC")]);
        let found = call(&function(), &[column(moments), zones], 2).unwrap();
        let expected = TimestampNanosecondArray::from(vec![Some(-5 * 3_600 * SECOND_NS), None]);
        assert_eq!(found.as_primitive::<TimestampNanosecondType>(), &expected);
        for (types, said) in [
            (vec![DataType::Int64, DataType::Utf8], "stands behind a time, not behind `Int64`"),
            (vec![DataType::Date32, DataType::Int64], "takes the name of a zone, not `Int64`"),
            (vec![DataType::Date32], "has a time and a zone"),
        ] {
            let refused = function().coerce_types(&types).unwrap_err().to_string();
            assert!(refused.contains(said), "{types:?}: {refused}");
        }
        let beyond =
            call(&function(), &[column(TimestampNanosecondArray::from(vec![i64::MIN])), text("Asia/Tokyo")], 1);
        assert!(beyond.unwrap_err().to_string().contains("beyond what can be told in another zone"));
    }
}
