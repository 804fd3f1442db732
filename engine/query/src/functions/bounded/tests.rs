//! What a call makes is bounded before it is made, and takes memory as long as it is there.

use arrow::array::{ArrayRef, Int64Array, StringArray, StringViewArray};
use arrow::datatypes::{DataType, Field, FieldRef};
use datafusion::execution::memory_pool::{GreedyMemoryPool, MemoryPool};
use datafusion::functions::string::{repeat, upper};
use datafusion::functions::unicode::{lpad, rpad};

use super::super::testing::{column, room, shown, text};
use super::*;

fn pool(bytes: usize) -> (Arc<dyn MemoryPool>, Room) {
    let pool: Arc<dyn MemoryPool> = Arc::new(GreedyMemoryPool::new(bytes));
    (Arc::clone(&pool), Room::new(pool))
}

fn repeated(room: &Room) -> BoundedFunction {
    BoundedFunction { inner: repeat(), growth: Growth::Times, room: room.clone() }
}

fn called(
    function: &BoundedFunction,
    args: Vec<ColumnarValue>,
    rows: usize,
    is_planning: bool,
) -> Result<ColumnarValue> {
    let mut options = ConfigOptions::default();
    if is_planning {
        options.extensions.insert(PlanningFlag);
    }
    let field = |kind: DataType| -> FieldRef { Arc::new(Field::new("a", kind, true)) };
    let arg_fields: Vec<FieldRef> = args.iter().map(|arg| field(arg.data_type())).collect();
    let kinds: Vec<DataType> = arg_fields.iter().map(|field| field.data_type().clone()).collect();
    let return_field = field(function.return_type(&kinds)?);
    let config_options = Arc::new(options);
    function.invoke_with_args(ScalarFunctionArgs { args, arg_fields, number_rows: rows, return_field, config_options })
}

fn words(words: &[&str]) -> ColumnarValue {
    column(StringViewArray::from(words.to_vec()))
}

fn counts(counts: &[i64]) -> ColumnarValue {
    column(Int64Array::from(counts.to_vec()))
}

fn count(count: i64) -> ColumnarValue {
    ColumnarValue::Scalar(ScalarValue::from(count))
}

#[test]
fn too_much_is_refused_before_it_is_made() {
    let most = BYTES_MAX as i64;
    for (args, rows, bytes) in [
        (vec![words(&["x"]), counts(&[most + 1])], 1, most + 1),
        (vec![words(&["x", "xy"]), counts(&[most, 1])], 2, most + 2),
        (vec![words(&["xyz"]), counts(&[i64::MAX / 4])], 1, i64::MAX / 4 * 3),
        (vec![text("x"), count(most + 1)], 1_000, most + 1),
        (vec![text("x"), counts(&[most / 2, most / 2, 1])], 3, most + 1),
    ] {
        let refused = called(&repeated(&room()), args, rows, false).unwrap_err().to_string();
        let said = format!("`repeat` would give {bytes} bytes at once, at most {BYTES_MAX} are allowed");
        assert!(refused.contains(&said), "{refused}");
    }
}

#[test]
fn lengths_below_zero_take_no_room() {
    let texts = || column(StringArray::from(vec!["ab", "c", "d"]));
    for inner in [lpad(), rpad()] {
        let function = BoundedFunction { inner, growth: Growth::Length, room: room() };
        for (lengths, expected) in [
            (counts(&[i64::MIN, 1, -1]), ["", "c", ""]),
            (counts(&[-1, i64::MIN, i64::MIN]), ["", "", ""]),
            (count(i64::MIN), ["", "", ""]),
        ] {
            let found = called(&function, vec![texts(), lengths, texts()], 3, false).unwrap().into_array(3).unwrap();
            let found: Vec<Option<&str>> = found.as_string::<i32>().iter().collect();
            assert_eq!(found, expected.map(Some), "{}", function.name());
        }
    }
}

#[test]
fn constants_of_plans_are_short() {
    let long = |count: usize, is_planning| {
        called(&repeated(&room()), vec![text("x"), self::count(count as i64)], 1, is_planning)
    };
    let most = CONSTANT_MAX as usize;
    for is_planning in [false, true] {
        let ColumnarValue::Scalar(value) = long(most, is_planning).unwrap() else { panic!("one value for all rows") };
        assert_eq!(value.try_as_str().flatten().map(str::len), Some(most));
    }
    let refused = long(most + 1, true).unwrap_err().to_string();
    assert!(refused.contains("`repeat` would give 65537 bytes at once, at most 65536 are allowed"), "{refused}");
    assert!(long(most + 1, false).is_ok());
}

#[test]
fn what_is_made_is_held_as_long_as_it_is_there() {
    let (pool, room) = pool(1 << 20);
    let bounded = repeated(&room);
    let large = COUNTED as i64 * 2;
    let made = called(&bounded, vec![words(&["x", "y"]), counts(&[large, 1])], 2, false).unwrap();
    assert!(pool.reserved() >= large as usize, "{}", pool.reserved());
    let made = made.into_array(2).unwrap();
    assert_eq!(shown(&made.slice(1, 1)), [Some("y".to_owned())]);
    let slice = made.slice(0, 1);
    drop(made);
    assert!(pool.reserved() >= large as usize);
    drop(slice);
    assert_eq!(pool.reserved(), 0);
    // What is small does not count, and what has no room is not made.
    let small = called(&bounded, vec![words(&["x"]), counts(&[10])], 1, false).unwrap();
    assert_eq!(pool.reserved(), 0);
    drop(small);
    let refused = called(&bounded, vec![words(&["x"]), counts(&[2 << 20])], 1, false).unwrap_err().to_string();
    assert!(refused.contains("values of functions"), "{refused}");
    assert_eq!(pool.reserved(), 0);
}

/// A constant that is too long to be one value becomes a column that counts: views of one text once, others per row.
#[test]
fn long_constants_are_spread_over_their_rows() {
    let length = COUNTED + 1;
    for (constant, rows, least, most) in [
        (ScalarValue::Utf8View(Some("x".to_owned())), 100, length, 2 * length),
        (ScalarValue::Utf8(Some("x".to_owned())), 3, 3 * length, 4 * length),
    ] {
        let (pool, room) = pool(1 << 20);
        let args = vec![ColumnarValue::Scalar(constant), count(length as i64)];
        let made = called(&repeated(&room), args, rows, false).unwrap();
        let ColumnarValue::Array(array) = &made else { panic!("it is one value") };
        assert_eq!(array.len(), rows);
        assert!((least..most).contains(&pool.reserved()), "{}", pool.reserved());
        drop(made);
        assert_eq!(pool.reserved(), 0);
    }
    // Of a form that is there once per row, rows may be too many.
    let args = vec![ColumnarValue::Scalar(ScalarValue::Utf8(Some("x".to_owned()))), count(length as i64)];
    let refused = called(&repeated(&room()), args, 1_000, false).unwrap_err().to_string();
    assert!(refused.contains(&format!("at most {BYTES_MAX} are allowed")), "{refused}");
}

#[test]
fn results_like_their_arguments_count_once_they_are_made() {
    let (pool, room) = pool(1 << 20);
    let alike = BoundedFunction::alike(upper(), room.clone());
    let long: ArrayRef = Arc::new(StringViewArray::from(vec!["x".repeat(2 * COUNTED)]));
    let made = called(&alike, vec![ColumnarValue::Array(long)], 1, false).unwrap();
    assert!(pool.reserved() >= 2 * COUNTED, "{}", pool.reserved());
    drop(made);
    assert_eq!(pool.reserved(), 0);
}

#[test]
fn functions_come_apart_and_together() {
    let room = room();
    let (is_alike, inner) = (repeated(&room).parts().0, Arc::clone(repeated(&room).parts().1));
    assert!(!is_alike);
    assert_eq!(BoundedFunction::of_parts(false, Arc::clone(&inner), room.clone()), Some(repeated(&room)));
    let alike = BoundedFunction::of_parts(true, inner, room.clone()).unwrap();
    assert!(alike.parts().0 && alike != repeated(&room));
    // Without a bound of its own there is none to put around.
    assert_eq!(BoundedFunction::of_parts(false, datafusion::functions::string::ascii(), room.clone()), None);
    let joined = BoundedFunction::of_parts(false, Arc::new(ScalarUDF::from(ConcatFunction::new())), room).unwrap();
    assert_eq!(joined.growth, Growth::Joined);
    assert!(is_bounded("repeat") && is_bounded(JOINED) && !is_bounded("ascii"));
}

/// Breaks if two names of one list say what the results of a function grow by.
#[test]
fn each_function_has_one_bound() {
    for (at, (name, _)) in GROWING.iter().enumerate() {
        assert!(GROWING[..at].iter().all(|(known, _)| known != name), "{name}");
    }
}
