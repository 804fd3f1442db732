//! Numbers, as PostgreSQL has them.

use super::{gives, refuses};

#[test]
fn whole_numbers_are_divided_as_such() {
    gives(&[
        ("7 / 2", "3"),
        ("-7 / 2", "-3"),
        ("7 % 3", "1"),
        ("-7 % 3", "-1"),
        ("mod(7, -3)", "1"),
        ("7 / 2.0", "3.5"),
        ("div(7, 2)", "3"),
        ("2 ^ 10", "1024"),
        ("2 ^ 3 ^ 2", "64"),
        ("-2 ^ 2", "4"),
        ("2 ^ -1", "0.5"),
        ("5 & 3", "1"),
        ("5 | 3", "7"),
        ("5 # 3", "6"),
        ("~5", "-6"),
        ("1 << 4", "16"),
        ("-8 >> 1", "-4"),
        ("@ -5", "5"),
        ("|/ 25", "5"),
        ("||/ 27", "3"),
        ("1.5::int", "2"),
        ("2.5::int", "3"),
        ("-1.5::int", "-2"),
        ("(-1.5)::int", "-2"),
        ("2.5::float8::int", "2"),
        ("3.5::float8::int", "4"),
        ("' 12 '::int", "12"),
        ("'1e3'::float8", "1000"),
        ("true::int", "1"),
        ("0::boolean", "false"),
        ("'yes'::boolean", "true"),
        ("'off'::boolean", "false"),
        ("'t'::bool and not 'n'::bool", "true"),
        ("9223372036854775807::bigint", "9223372036854775807"),
        ("'-9223372036854775808'::bigint", "-9223372036854775808"),
        ("'NaN'::float8", "NaN"),
        ("'infinity'::float8", "Infinity"),
        ("'-inf'::float8", "-Infinity"),
        ("'NaN'::float8 = 'NaN'::float8", "true"),
        ("'NaN'::float8 > 'infinity'::float8", "true"),
    ]);
}

#[test]
fn zeros_of_decimals_have_no_sign() {
    gives(&[
        ("round(-0.4)", "0"),
        ("ceil(-0.5)", "0"),
        ("trunc(-0.9)", "0"),
        ("0 * -1.5", "0"),
        ("-0.0", "0"),
        ("mod(-4.5, 1.5)", "0"),
        ("round(-1.6)", "-2"),
        ("-1.5 * 2", "-3"),
        ("round(-0.4::float8)", "-0"),
        ("0 * -1.5::float8", "-0"),
        ("(select round(x) from (values (-0.4::float8)) t (x))", "-0"),
    ]);
}

#[test]
fn nothing_by_zero_is_nothing() {
    gives(&[
        ("(select sum(x) / count(*) from (values (1)) t(x) where x > 1)", "NULL"),
        ("(select max(x / y) from (values (null::float8, 0::float8), (6, 3)) t(x, y))", "2"),
        ("(select x / 0 from (values (null::int)) t(x))", "NULL"),
        ("(select x % y from (values (null::int, 0)) t(x, y))", "NULL"),
    ]);
    refuses(&[
        ("(select max(x / y) from (values (null::int, 0), (6, 0)) t(x, y))", "division by zero"),
        ("(select sum(x) / count(y) from (values (1, null::int)) t(x, y))", "division by zero"),
    ]);
}

#[test]
fn numbers_are_rounded_and_cut() {
    gives(&[
        ("round(-2.5::float8)", "-2"),
        ("round(2.5::float8 + 0)", "2"),
        ("round(2.5)", "3"),
        ("round(-2.5)", "-3"),
        ("to_hex(-1)", "ffffffff"),
        ("to_hex(-2147483648)", "80000000"),
        ("to_hex(255)", "ff"),
        ("round(42.4382, 2)", "42.44"),
        ("round(1.005, 2)", "1.01"),
        ("round(-(1.005), 2)", "-1.01"),
        ("round(1.5, 4)", "1.5000"),
        ("round(2.5, 0)", "3"),
        ("round(1234.56, -2)", "1200"),
        ("trunc(42.8)", "42"),
        ("trunc(-42.8)", "-42"),
        ("trunc(42.4382, 2)", "42.43"),
        ("scale(8.4100)", "4"),
        ("scale(7)", "0"),
        ("min_scale(8.4100)", "2"),
        ("trim_scale(8.4100)", "8.41"),
        ("min_scale(8.41::numeric(9, 4))", "2"),
        ("scale(8.41::numeric(9, 4))", "4"),
        ("scale(null)", "NULL"),
        ("ceil(-42.8)", "-42"),
        ("ceiling(42.2)", "43"),
        ("floor(-42.8)", "-43"),
        ("abs(-17.4)", "17.4"),
        ("sign(-8.4)", "-1"),
        ("sign(0)", "0"),
        ("sqrt(2)", "1.4142135623730951"),
        ("cbrt(27)", "3"),
        ("exp(0)", "1"),
        ("ln(1)", "0"),
        ("log(100)", "2"),
        ("log(2, 64)", "6"),
        ("log10(1000)", "3"),
        ("power(9, 3)", "729"),
        ("gcd(1071, 462)", "21"),
        ("lcm(1071, 462)", "23562"),
        ("factorial(5)", "120"),
        ("degrees(pi())", "180"),
        ("radians(180) = pi()", "true"),
        ("sin(0)", "0"),
        ("atan2(0, 1)", "0"),
        ("width_bucket(5.35, 0.024, 10.06, 5)", "3"),
        ("width_bucket(-1, 0, 10, 5)", "0"),
        ("width_bucket(10, 0, 10, 5)", "6"),
        ("greatest(1, null, 3)", "3"),
        ("least(2, 1, null)", "1"),
        ("greatest(null, null)", "NULL"),
        ("nullif(1, 1)", "NULL"),
        ("nullif(1, 2)", "1"),
        ("coalesce(null, 2, 3)", "2"),
        ("num_nulls(1, null, null)", "2"),
        ("num_nonnulls(1, null, 'a')", "2"),
    ]);
}

#[test]
fn numbers_are_written_in_forms() {
    gives(&[
        ("to_char(1234567.891, '9,999,999.99')", " 1,234,567.89"),
        ("to_char(-1.5, '999.9')", "  -1.5"),
        ("to_char(5, '009')", " 005"),
        ("to_char('NaN'::float8, '99999')", "   NaN"),
        ("to_hex((-1)::int)", "ffffffff"),
        ("to_hex(-(255::int))", "ffffff01"),
        ("to_hex((-1)::bigint)", "ffffffffffffffff"),
        ("to_hex(255::int)", "ff"),
        ("to_char('-Infinity'::float8, '999D99')", "-###.##"),
        ("to_char(5, 'FM009')", "005"),
        ("to_char(0.5, 'FM9.99')", ".5"),
        ("to_char(0.5, 'FM0.00')", "0.50"),
        ("to_char(12, 'S99')", "+12"),
        ("to_char(-12, 'FM99MI')", "12-"),
        ("to_char(-12, '99PR')", "<12>"),
        ("to_char(12345, '99')", " ##"),
        ("to_char(485, 'FMRN')", "CDLXXXV"),
        ("to_char(485, 'rn')", "        cdlxxxv"),
        ("to_char(4000, 'RN')", "###############"),
        ("to_char(482, '999th')", " 482nd"),
        ("to_char(1234, 'FM9,999TH')", "1,234TH"),
        ("to_char(-1, '9th')", "-1"),
        ("to_char(1.5, '9.9th')", " 1.5"),
        ("to_char(12, '99V999')", " 12000"),
        ("to_char(1234, '9,999V99')", " 1,23400"),
        ("to_char(485, '9.99EEEE')", " 4.85e+02"),
        ("to_char(-0.0004859, '9.99EEEE')", "-4.86e-04"),
        ("to_char('NaN'::float8, '9.99EEEE')", " #.######"),
        ("to_number('1,234.5', '9,999.9')", "1234.5"),
        ("pg_size_pretty(0::bigint)", "0 bytes"),
        ("pg_size_pretty(10239::bigint)", "10239 bytes"),
        ("pg_size_pretty(10240::bigint)", "10 kB"),
        ("pg_size_pretty(1048576::bigint * 20)", "20 MB"),
    ]);
}

#[test]
fn numbers_that_doubles_do_not_hold_are_refused() {
    refuses(&[
        ("1e400::float8", "\"1e400\" is out of range for type double precision"),
        ("-1e400", "\"1e400\" is out of range for type double precision"),
        ("'-1e400'::float8", "\"-1e400\" is out of range for type double precision"),
        ("1e-400::float8", "\"1e-400\" is out of range for type double precision"),
        ("'1e39'::real", "\"1e39\" is out of range for type real"),
        ("real '1e-60'", "\"1e-60\" is out of range for type real"),
    ]);
    gives(&[("1e308::float8 > 1e307", "true"), ("1e-300::float8 > 0", "true"), ("0.0::real", "0")]);
}

/// One row of telemetry does not take the others along, but where DataFusion does as PostgreSQL.
#[test]
fn what_has_no_logarithm_is_no_number() {
    gives(&[("ln(0)", "-Infinity"), ("ln(-1)", "NaN"), ("log(-1)", "NaN"), ("power(-1, 0.5)", "NaN")]);
    refuses(&[
        ("(select max(sqrt(x)) from (values (4), (-1)) t (x))", "square root of a negative number"),
        ("power(0, -1)", "zero raised to a negative power"),
    ]);
}
