//! `justify_hours`, `justify_days` and `justify_interval`: turn 24 hours into a day, and 30 days into a month.

use std::sync::Arc;

use arrow::array::{Array as _, AsArray as _, IntervalMonthDayNanoArray};
use arrow::datatypes::{DataType, IntervalMonthDayNano, IntervalMonthDayNanoType, IntervalUnit};
use datafusion::common::{exec_err, plan_err};
use datafusion::error::Result;
use datafusion::logical_expr::{ColumnarValue, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility};

use super::intervals::spread_out;

const DAY_NS: i64 = 86_400_000_000_000;
const MONTH_DAYS: i32 = 30;

#[derive(Debug, PartialEq, Eq, Hash)]
struct Justify {
    name: &'static str,
    of_hours: bool,
    of_days: bool,
    signature: Signature,
}

pub(super) fn functions() -> impl Iterator<Item = Arc<ScalarUDF>> {
    let named = [("justify_hours", true, false), ("justify_days", false, true), ("justify_interval", true, true)];
    named.into_iter().map(|(name, of_hours, of_days)| {
        let signature = Signature::user_defined(Volatility::Immutable);
        Arc::new(ScalarUDF::from(Justify { name, of_hours, of_days, signature }))
    })
}

impl ScalarUDFImpl for Justify {
    fn name(&self) -> &'static str {
        self.name
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn coerce_types(&self, types: &[DataType]) -> Result<Vec<DataType>> {
        match types {
            // What lies between two times has days, which a cast would make hours of.
            [length @ DataType::Duration(_)] => Ok(vec![length.clone()]),
            [DataType::Interval(_) | DataType::Null] => Ok(vec![DataType::Interval(IntervalUnit::MonthDayNano)]),
            _ => plan_err!("`{}` takes an interval", self.name),
        }
    }

    fn return_type(&self, _types: &[DataType]) -> Result<DataType> {
        Ok(DataType::Interval(IntervalUnit::MonthDayNano))
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let [value] = args.args.as_slice() else { return exec_err!("`{}` takes an interval", self.name) };
        let values = value.to_array(args.number_rows)?;
        let is_length = matches!(values.data_type(), DataType::Duration(_));
        let values = if is_length { spread_out(&values)? } else { values };
        let Some(values) = values.as_primitive_opt::<IntervalMonthDayNanoType>() else {
            return exec_err!("`{}` takes an interval", self.name);
        };
        let mut out = IntervalMonthDayNanoArray::builder(args.number_rows);
        for value in values {
            match value.map(|value| justified(value, self.of_hours, self.of_days)) {
                None => out.append_null(),
                Some(Some(value)) => out.append_value(value),
                Some(None) => return exec_err!("an interval is too long"),
            }
        }
        Ok(ColumnarValue::Array(Arc::new(out.finish())))
    }
}

/// The interval with its parts of one sign; none: it is too long.
fn justified(value: IntervalMonthDayNano, of_hours: bool, of_days: bool) -> Option<IntervalMonthDayNano> {
    let (mut months, mut days, mut time) = (value.months, value.days, value.nanoseconds);
    if of_hours {
        days = days.checked_add(i32::try_from(time / DAY_NS).ok()?)?;
        time %= DAY_NS;
    }
    if of_days {
        months = months.checked_add(days / MONTH_DAYS)?;
        days %= MONTH_DAYS;
        // What stands behind the months goes the other way.
        let behind = if of_hours && days == 0 { time.signum() } else { i64::from(days.signum()) };
        if months > 0 && behind < 0 {
            (months, days) = (months - 1, days + MONTH_DAYS);
        } else if months < 0 && behind > 0 {
            (months, days) = (months + 1, days - MONTH_DAYS);
        }
    }
    if of_hours && days > 0 && time < 0 {
        (days, time) = (days - 1, time + DAY_NS);
    } else if of_hours && days < 0 && time > 0 {
        (days, time) = (days + 1, time - DAY_NS);
    }
    Some(IntervalMonthDayNano::new(months, days, time))
}

#[cfg(test)]
mod tests {
    use arrow::array::DurationSecondArray;

    use super::super::testing::{call, column, draws, named};
    use super::*;

    #[test]
    fn parts_have_one_sign() {
        const HOUR: i64 = DAY_NS / 24;
        let check = |of: (bool, bool), value: (i32, i32, i64), expected: (i32, i32, i64)| {
            let found = justified(IntervalMonthDayNano::new(value.0, value.1, value.2), of.0, of.1).unwrap();
            assert_eq!((found.months, found.days, found.nanoseconds), expected, "{value:?}");
        };
        check((true, false), (0, 0, 27 * HOUR), (0, 1, 3 * HOUR));
        check((true, false), (0, 1, -HOUR), (0, 0, 23 * HOUR));
        check((false, true), (0, 35, HOUR), (1, 5, HOUR));
        check((false, true), (1, -5, 0), (0, 25, 0));
        check((true, true), (1, 0, -HOUR), (0, 29, 23 * HOUR));
        check((true, true), (-1, 0, HOUR), (0, -29, -23 * HOUR));
        assert_eq!(justified(IntervalMonthDayNano::new(i32::MAX, 60, 0), false, true), None);
    }

    /// However an interval is put, it is as long as before, counted in days of 24 hours and months of 30 days.
    #[test]
    fn lengths_stay() {
        let length = |value: IntervalMonthDayNano| {
            let days = i128::from(value.months) * i128::from(MONTH_DAYS) + i128::from(value.days);
            days * i128::from(DAY_NS) + i128::from(value.nanoseconds)
        };
        let mut draw = draws(91);
        for _ in 0..2_000 {
            let mut part = |most: usize| draw(2 * most + 1) as i64 - most as i64;
            let value = IntervalMonthDayNano::new(part(3) as i32, part(70) as i32, part(80) * (DAY_NS / 24) + part(1));
            for (of_hours, of_days) in [(true, false), (false, true), (true, true)] {
                let found = justified(value, of_hours, of_days).unwrap();
                assert_eq!(length(found), length(value), "{value:?}");
                if of_hours {
                    assert!(found.nanoseconds.abs() < DAY_NS, "{value:?}: {found:?}");
                    assert!(i64::from(found.days.signum()) * found.nanoseconds.signum() >= 0, "{value:?}: {found:?}");
                }
                if of_days {
                    assert!(found.days.abs() < MONTH_DAYS, "{value:?}: {found:?}");
                    assert!(found.months.signum() * found.days.signum() >= 0, "{value:?}: {found:?}");
                }
            }
        }
    }

    #[test]
    fn columns_are_justified() {
        let lengths = column(DurationSecondArray::from(vec![Some(90_000), None]));
        let value = IntervalMonthDayNano::new(0, 0, 90_000_000_000_000);
        let given = column(IntervalMonthDayNanoArray::from(vec![Some(value), None]));
        let expected =
            IntervalMonthDayNanoArray::from(vec![Some(IntervalMonthDayNano::new(0, 1, 3_600_000_000_000)), None]);
        let hours = named(functions(), "justify_hours");
        for values in [given, lengths] {
            let found = call(&hours, &[values], 2).unwrap();
            assert_eq!(found.as_primitive::<IntervalMonthDayNanoType>(), &expected);
        }
        let most = IntervalMonthDayNanoArray::from(vec![IntervalMonthDayNano::new(0, i32::MAX, DAY_NS)]);
        let refused = call(&hours, &[column(most)], 1).unwrap_err().to_string();
        assert!(refused.contains("an interval is too long"), "{refused}");
        let refused = hours.coerce_types(&[DataType::Int64]).unwrap_err().to_string();
        assert!(refused.contains("`justify_hours` takes an interval"), "{refused}");
    }
}
