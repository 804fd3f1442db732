//! `age(to, from)`: the difference of two times in years, months, days and time, as PostgreSQL computes it.

use std::sync::Arc;

use arrow::array::{AsArray, IntervalMonthDayNanoArray};
use arrow::compute::cast;
use arrow::datatypes::{DataType, IntervalMonthDayNano, IntervalUnit, TimeUnit, TimestampNanosecondType};
use datafusion::common::{exec_err, plan_err};
use datafusion::error::Result;
use datafusion::logical_expr::{ColumnarValue, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility};
use quiver_types::time::calendar::{date_of, days_of_month};

const DAY_NS: i64 = 86_400_000_000_000;

#[derive(Debug, PartialEq, Eq, Hash)]
struct Age {
    signature: Signature,
}

pub(super) fn function() -> Arc<ScalarUDF> {
    Arc::new(ScalarUDF::from(Age { signature: Signature::user_defined(Volatility::Immutable) }))
}

fn time() -> DataType {
    DataType::Timestamp(TimeUnit::Nanosecond, None)
}

impl ScalarUDFImpl for Age {
    fn name(&self) -> &'static str {
        "age"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn coerce_types(&self, types: &[DataType]) -> Result<Vec<DataType>> {
        let is_time = |kind: &DataType| match kind {
            DataType::Timestamp(..) | DataType::Date32 | DataType::Date64 | DataType::Null => true,
            other => other.is_string(),
        };
        match types {
            [to, from] if is_time(to) && is_time(from) => Ok(vec![time(), time()]),
            _ => plan_err!("`age` is called as `age(to, from)`, or `age(from)`, of times"),
        }
    }

    fn return_type(&self, _types: &[DataType]) -> Result<DataType> {
        Ok(DataType::Interval(IntervalUnit::MonthDayNano))
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let [to, from] = args.args.as_slice() else { return exec_err!("`age` is called as `age(to, from)`") };
        let times = |value: &ColumnarValue| -> Result<_> { Ok(cast(&value.to_array(args.number_rows)?, &time())?) };
        let (to, from) = (times(to)?, times(from)?);
        let (to, from) = (to.as_primitive::<TimestampNanosecondType>(), from.as_primitive::<TimestampNanosecondType>());
        let ages = to.iter().zip(from).map(|(to, from)| Some(between(to?, from?)));
        Ok(ColumnarValue::Array(Arc::new(ages.collect::<IntervalMonthDayNanoArray>())))
    }
}

fn between(to: i64, from: i64) -> IntervalMonthDayNano {
    let (late, early, sign) = if to < from { (from, to, -1) } else { (to, from, 1) };
    let (year, month, day) = date_of(late.div_euclid(DAY_NS));
    let (first_year, first_month, first_day) = date_of(early.div_euclid(DAY_NS));
    let mut months = (year - first_year) * 12 + i64::from(month) - i64::from(first_month);
    let mut days = i64::from(day) - i64::from(first_day);
    let mut time = late.rem_euclid(DAY_NS) - early.rem_euclid(DAY_NS);
    if time < 0 {
        time += DAY_NS;
        days -= 1;
    }
    if days < 0 {
        days += i64::from(days_of_month(first_year, first_month));
        months -= 1;
    }
    IntervalMonthDayNano::new((months * sign) as i32, (days * sign) as i32, time * sign)
}

#[cfg(test)]
mod tests {
    use arrow::array::Date32Array;

    use super::super::testing::{call, column, draws, text};
    use super::*;

    #[test]
    fn ages_are_those_of_postgresql() {
        // 2024-03-01, 2024-01-31, 2023-12-31 and 2024-02-29 as days since 1970.
        let check = |to: i64, from: i64, expected: (i32, i32, i64)| {
            let found = between(to, from);
            assert_eq!((found.months, found.days, found.nanoseconds), expected, "{to} {from}");
        };
        check(19_783 * DAY_NS, 19_753 * DAY_NS, (1, 1, 0));
        check(19_753 * DAY_NS, 19_783 * DAY_NS, (-1, -1, 0));
        check(19_782 * DAY_NS, 19_722 * DAY_NS, (1, 29, 0));
        check(5, -DAY_NS, (0, 1, 5));
        check(19_783 * DAY_NS, 19_782 * DAY_NS + 1, (0, 0, DAY_NS - 1));
    }

    /// Adding months, then days, then the rest to the earlier time gives the later one.
    #[test]
    fn ages_lead_from_one_time_to_the_other() {
        let mut draw = draws(121);
        for _ in 0..1_000 {
            let mut time = || (draw(40_000) as i64 - 10_000) * DAY_NS + draw(86_400) as i64 * 1_000_000_000;
            let (one, other) = (time(), time());
            let (age, turned) = (between(one, other), between(other, one));
            let negated = IntervalMonthDayNano::new(-age.months, -age.days, -age.nanoseconds);
            assert_eq!(turned, negated, "{one} {other}");
            let (late, early, age) = if one < other { (other, one, turned) } else { (one, other, age) };
            assert!(
                age.months >= 0 && (0..31).contains(&age.days) && (0..DAY_NS).contains(&age.nanoseconds),
                "{age:?}"
            );
            // If the last month does not have the day of the month, its last day counts.
            let (year, month, day) = date_of(early.div_euclid(DAY_NS));
            let months = year * 12 + i64::from(month) - 1 + i64::from(age.months);
            let (late_year, late_month, late_day) = date_of(late.div_euclid(DAY_NS));
            let late_months = late_year * 12 + i64::from(late_month) - 1;
            let clock = late.rem_euclid(DAY_NS) - early.rem_euclid(DAY_NS);
            let days = i64::from(late_day) - i64::from(day) - i64::from(clock < 0);
            if days >= 0 {
                assert_eq!((months, i64::from(age.days)), (late_months, days), "{one} {other}");
            } else {
                assert_eq!(months, late_months - 1, "{one} {other}");
                assert_eq!(i64::from(age.days), days + i64::from(days_of_month(year, month)), "{one} {other}");
            }
            assert_eq!(age.nanoseconds, clock.rem_euclid(DAY_NS));
        }
    }

    #[test]
    fn dates_and_texts_have_ages() {
        let days = column(Date32Array::from(vec![Some(19_783), None]));
        let found = call(&function(), &[days, text("2024-01-31")], 2).unwrap();
        let expected = IntervalMonthDayNanoArray::from(vec![Some(IntervalMonthDayNano::new(1, 1, 0)), None]);
        assert_eq!(found.as_primitive::<arrow::datatypes::IntervalMonthDayNanoType>(), &expected);
        for types in [vec![], vec![DataType::Date32], vec![DataType::Date32, DataType::Int64]] {
            let refused = function().coerce_types(&types).unwrap_err().to_string();
            assert!(refused.contains("`age` is called as `age(to, from)`, or `age(from)`, of times"), "{refused}");
        }
    }
}
