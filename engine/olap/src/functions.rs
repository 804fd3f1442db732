//! Functions that analytics plans need: wall-clock time, its buckets and steps, exact percentiles.

mod percentile;

use std::sync::Arc;

use arrow::array::{Array as _, ArrayRef, AsArray, TimestampNanosecondArray};
use arrow::datatypes::{DataType, Int64Type, TimeUnit, TimestampNanosecondType};
use chrono_tz::Tz;
use datafusion::common::{Result, ScalarValue, exec_err};
use datafusion::logical_expr::{
    ColumnarValue, Expr, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, TypeSignature, Volatility, lit,
};

use crate::dates::granularity::{Buckets, Interval};
use crate::dates::zone::{Edge, Walls, utc_ns};

pub(crate) use percentile::exact as exact_percentile;

/// Functions that texts of plans name: a session that reads these knows them.
pub fn session_functions() -> Vec<Arc<ScalarUDF>> {
    vec![WallBucket::udf(), WallEdge::udf(), WallMove::udf()]
}

/// `wall_bucket(time, zone, months, nanos, origin, shift_months, shift_nanos)`: the start of the bucket of wall time that an
/// instant, moved by a shift, falls into; without a length the wall time itself. Timestamp(ns) without a zone.
#[derive(Debug, PartialEq, Eq, Hash)]
pub(crate) struct WallBucket {
    signature: Signature,
}

pub(crate) fn instant_type() -> DataType {
    DataType::Timestamp(TimeUnit::Nanosecond, Some("UTC".into()))
}

/// Type of wall times.
fn wall_type() -> DataType {
    DataType::Timestamp(TimeUnit::Nanosecond, None)
}

/// A number among the arguments of a function that is the same for all rows.
fn constant(args: &ScalarFunctionArgs, function: &str, at: usize) -> Result<i64> {
    let ColumnarValue::Scalar(ScalarValue::Int64(Some(n))) = &args.args[at] else {
        return exec_err!("argument {} of {function} must be a constant", at + 1);
    };
    Ok(*n)
}

/// A length among the arguments of a function: months, then nanoseconds.
fn interval(args: &ScalarFunctionArgs, function: &str, at: usize) -> Result<Interval> {
    let months = constant(args, function, at)?;
    let Ok(months) = i32::try_from(months) else { return exec_err!("{months} months of {function} are too many") };
    Ok(Interval { months, nanos: constant(args, function, at + 1)? })
}

/// Buckets among the arguments of a function: their length, then their origin; none: the length is nothing.
fn buckets(args: &ScalarFunctionArgs, function: &str, at: usize) -> Result<Option<Buckets>> {
    let length = interval(args, function, at)?;
    if length.is_zero() {
        return Ok(None);
    }
    // Searching for the bucket of a time would never end.
    if !length.makes_buckets() {
        return exec_err!("buckets of {function} are either months or nanoseconds long, and more than nothing");
    }
    Ok(Some(Buckets { length, origin_ns: constant(args, function, at + 2)? }))
}

impl WallBucket {
    /// Makes it a function that a session can register.
    pub(crate) fn udf() -> Arc<ScalarUDF> {
        let long = DataType::Int64;
        let arguments =
            vec![instant_type(), DataType::Utf8, long.clone(), long.clone(), long.clone(), long.clone(), long];
        let signature = Signature::one_of(vec![TypeSignature::Exact(arguments)], Volatility::Immutable);
        Arc::new(ScalarUDF::new_from_impl(Self { signature }))
    }

    pub(crate) fn call(time: Expr, tz: Tz, buckets: Option<Buckets>, shift: Interval) -> Expr {
        let (length, origin) = buckets.map_or((Interval::default(), 0), |b| (b.length, b.origin_ns));
        let numbers = [i64::from(length.months), length.nanos, origin, i64::from(shift.months), shift.nanos];
        let arguments = [time, lit(tz.name())].into_iter().chain(numbers.map(lit)).collect();
        Self::udf().call(arguments)
    }
}

impl ScalarUDFImpl for WallBucket {
    fn name(&self) -> &'static str {
        "wall_bucket"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _arguments: &[DataType]) -> Result<DataType> {
        Ok(wall_type())
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let ColumnarValue::Scalar(ScalarValue::Utf8(Some(zone))) = &args.args[1] else {
            return exec_err!("wall_bucket takes a constant zone");
        };
        let Ok(tz) = zone.parse::<Tz>() else { return exec_err!("unknown time zone `{zone}`") };
        let buckets = buckets(&args, "wall_bucket", 2)?;
        let shift = interval(&args, "wall_bucket", 5)?;
        let times = args.args[0].to_array(args.number_rows)?;
        let times = times.as_primitive::<TimestampNanosecondType>();
        Ok(ColumnarValue::Array(walls(times, tz, buckets, shift)))
    }
}

fn walls(times: &TimestampNanosecondArray, tz: Tz, buckets: Option<Buckets>, shift: Interval) -> ArrayRef {
    let mut walls = Walls::new(tz);
    // Neighbouring rows mostly share a bucket, and a calendar is slow.
    let mut last = (1, 0, 0);
    let mut wall = |time: i64| {
        let wall = walls.wall_ns(time);
        let moved = if shift.is_zero() { wall } else { shift.add_to(wall) };
        let Some(buckets) = buckets else { return moved };
        if !(last.0 <= moved && moved < last.1) {
            let start = buckets.floor(moved);
            last = (start, buckets.next(start), start);
        }
        last.2
    };
    let out: Vec<i64> = if times.null_count() == 0 {
        times.values().iter().map(|time| wall(*time)).collect()
    } else {
        times.iter().map(|time| time.map_or(0, &mut wall)).collect()
    };
    Arc::new(TimestampNanosecondArray::new(out.into(), times.nulls().cloned()))
}

/// `wall_edge(wall, zone, months, nanos, origin, is_end)`: the instant at which a bucket of wall time begins, or ends.
#[derive(Debug, PartialEq, Eq, Hash)]
pub(crate) struct WallEdge {
    signature: Signature,
}

impl WallEdge {
    fn udf() -> Arc<ScalarUDF> {
        let long = DataType::Int64;
        let arguments = vec![wall_type(), DataType::Utf8, long.clone(), long.clone(), long, DataType::Boolean];
        let signature = Signature::one_of(vec![TypeSignature::Exact(arguments)], Volatility::Immutable);
        Arc::new(ScalarUDF::new_from_impl(Self { signature }))
    }

    /// A call of it; without buckets the instant of the wall time itself.
    pub(crate) fn call(wall: Expr, tz: Tz, buckets: Option<Buckets>, is_end: bool) -> Expr {
        let (length, origin) = buckets.map_or((Interval::default(), 0), |b| (b.length, b.origin_ns));
        let numbers = [i64::from(length.months), length.nanos, origin].map(lit);
        let arguments = [wall, lit(tz.name())].into_iter().chain(numbers).chain([lit(is_end)]).collect();
        Self::udf().call(arguments)
    }
}

impl ScalarUDFImpl for WallEdge {
    fn name(&self) -> &'static str {
        "wall_edge"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _arguments: &[DataType]) -> Result<DataType> {
        Ok(instant_type())
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let (
            ColumnarValue::Scalar(ScalarValue::Utf8(Some(zone))),
            ColumnarValue::Scalar(ScalarValue::Boolean(Some(is_end))),
        ) = (&args.args[1], &args.args[5])
        else {
            return exec_err!("wall_edge takes a constant zone and edge");
        };
        let Ok(tz) = zone.parse::<Tz>() else { return exec_err!("unknown time zone `{zone}`") };
        let buckets = buckets(&args, "wall_edge", 2)?;
        let edge = if *is_end { Edge::End } else { Edge::Start };
        let walls = args.args[0].to_array(args.number_rows)?;
        let walls = walls.as_primitive::<TimestampNanosecondType>();
        let instant = |wall| {
            let at = match buckets {
                Some(buckets) if *is_end => buckets.next(wall),
                _ => wall,
            };
            utc_ns(tz, at, edge)
        };
        let out: TimestampNanosecondArray = walls.unary(instant);
        Ok(ColumnarValue::Array(Arc::new(out.with_timezone("UTC"))))
    }
}

/// `wall_move(wall, count, months, nanos)`: a wall time moved by so many times a length; days that a month lacks become its
/// last.
#[derive(Debug, PartialEq, Eq, Hash)]
pub(crate) struct WallMove {
    signature: Signature,
}

impl WallMove {
    fn udf() -> Arc<ScalarUDF> {
        let arguments = vec![wall_type(), DataType::Int64, DataType::Int64, DataType::Int64];
        let signature = Signature::one_of(vec![TypeSignature::Exact(arguments)], Volatility::Immutable);
        Arc::new(ScalarUDF::new_from_impl(Self { signature }))
    }

    /// A call of it; of no length the wall time itself.
    pub(crate) fn call(wall: Expr, count: Expr, length: Interval) -> Expr {
        if length.is_zero() {
            return wall;
        }
        Self::udf().call(vec![wall, count, lit(i64::from(length.months)), lit(length.nanos)])
    }
}

impl ScalarUDFImpl for WallMove {
    fn name(&self) -> &'static str {
        "wall_move"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _arguments: &[DataType]) -> Result<DataType> {
        Ok(wall_type())
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let length = interval(&args, "wall_move", 2)?;
        let walls = args.args[0].to_array(args.number_rows)?;
        let counts = args.args[1].to_array(args.number_rows)?;
        let counts = counts.as_primitive::<Int64Type>();
        let moved = walls.as_primitive::<TimestampNanosecondType>().iter().zip(counts);
        let moved = moved.map(|(wall, count)| Some(length.times(count?).add_to(wall?)));
        Ok(ColumnarValue::Array(Arc::new(moved.collect::<TimestampNanosecondArray>())))
    }
}

#[cfg(test)]
mod tests {
    use arrow::array::Int64Array;
    use arrow::datatypes::Field;
    use datafusion::common::config::ConfigOptions;

    use super::*;
    use crate::dates::zone::{of_naive, write_wall};

    fn called(function: &ScalarUDF, args: Vec<ColumnarValue>, rows: usize) -> Result<ArrayRef> {
        let fields = args.iter().map(|arg| Arc::new(Field::new("a", arg.data_type(), true))).collect();
        let args = ScalarFunctionArgs {
            args,
            arg_fields: fields,
            number_rows: rows,
            return_field: Arc::new(Field::new("out", function.inner().return_type(&[])?, true)),
            config_options: Arc::new(ConfigOptions::default()),
        };
        function.invoke_with_args(args)?.to_array(rows)
    }

    /// Statements of users may call them, too. Breaks where one looks for its bucket without end.
    #[test]
    fn buckets_that_hold_no_time_are_refused() {
        let number = |n| ColumnarValue::Scalar(ScalarValue::Int64(Some(n)));
        let zone = ColumnarValue::Scalar(ScalarValue::from("Europe/Berlin"));
        let time = |zone: Option<&str>| {
            ColumnarValue::Scalar(ScalarValue::TimestampNanosecond(Some(i64::MAX), zone.map(Into::into)))
        };
        let bucket = |months, nanos| {
            let numbers = [months, nanos, i64::MIN, 0, 0].map(number);
            called(&WallBucket::udf(), [time(Some("UTC")), zone.clone()].into_iter().chain(numbers).collect(), 1)
        };
        let edge = |months, nanos| {
            let numbers = [months, nanos, i64::MIN].map(number);
            let is_end = ColumnarValue::Scalar(ScalarValue::Boolean(Some(true)));
            let args = [time(None), zone.clone()].into_iter().chain(numbers).chain([is_end]).collect();
            called(&WallEdge::udf(), args, 1)
        };
        for (months, nanos) in [(-1, 0), (0, -1), (1, 1), (-1, 1), (1 << 32, 0), (i64::MIN, 0)] {
            assert!(bucket(months, nanos).is_err(), "{months} months, {nanos} ns");
            assert!(edge(months, nanos).is_err(), "{months} months, {nanos} ns");
        }
        for (months, nanos) in [(0, 0), (1, 0), (i64::from(i32::MAX), 0), (0, 1), (0, i64::MAX)] {
            bucket(months, nanos).unwrap();
            edge(months, nanos).unwrap();
        }
    }

    #[test]
    fn wall_times_are_moved_by_their_calendar() {
        let wall = |text: &str| of_naive(text.parse().unwrap());
        let walls = [Some(wall("2026-01-31T10:00:00")), Some(wall("2026-01-31T10:00:00")), None, Some(0)];
        let counts = [Some(1), Some(-2), Some(1), None];
        let numbers = [1, 3_600 * 1_000_000_000].map(|n| ColumnarValue::Scalar(ScalarValue::Int64(Some(n))));
        let columns: [ArrayRef; 2] =
            [Arc::new(TimestampNanosecondArray::from(walls.to_vec())), Arc::new(Int64Array::from(counts.to_vec()))];
        let args: Vec<_> = columns.into_iter().map(ColumnarValue::Array).chain(numbers).collect();
        let moved = called(&WallMove::udf(), args, 4).unwrap();
        let moved: Vec<Option<String>> =
            moved.as_primitive::<TimestampNanosecondType>().iter().map(|wall| wall.map(write_wall)).collect();
        let expected = ["2026-02-28T11:00:00.000", "2025-11-30T08:00:00.000"].map(|t| Some(t.to_owned()));
        assert_eq!(moved, [&expected[..], &[None, None]].concat());
    }
}
