//! Types, casts, intervals with zones, and what is NULL, as PostgreSQL has them.

use super::gives;

#[test]
fn types_have_their_names() {
    gives(&[
        ("pg_typeof(1)", "bigint"),
        ("pg_typeof(1::int)", "integer"),
        ("pg_typeof(1::smallint)", "smallint"),
        ("pg_typeof(1.5)", "double precision"),
        ("pg_typeof('a'::text)", "text"),
        ("pg_typeof(true)", "boolean"),
        ("pg_typeof(date '2024-01-01')", "date"),
        ("pg_typeof(timestamp '2024-01-01')", "timestamp without time zone"),
        ("pg_typeof(now())", "timestamp with time zone"),
        ("pg_typeof(interval '1 day')", "interval"),
        ("pg_typeof(array[1, 2])", "bigint[]"),
        ("pg_typeof(array['a'])", "text[]"),
        ("pg_typeof(null)", "unknown"),
        ("pg_typeof(1::real)", "real"),
        ("pg_typeof(time '04:05')", "time without time zone"),
        ("pg_typeof(now() - now())", "interval"),
        ("pg_typeof(1 / 2.0)", "double precision"),
        ("pg_typeof(count(*))", "bigint"),
        ("pg_typeof(sum(1))", "bigint"),
        ("pg_typeof(avg(1))", "double precision"),
        ("pg_typeof(1 = 1)", "boolean"),
        ("pg_typeof('a' || 'b')", "text"),
        (r"pg_typeof('\x41'::bytea)", "bytea"),
    ]);
}

#[test]
fn values_are_cast() {
    gives(&[
        ("1::text", "1"),
        ("1.0::float8::text", "1"),
        ("0.1::float8 + 0.2::float8", "0.30000000000000004"),
        ("1e20::float8", "1e+20"),
        ("1e-7::float8", "1e-07"),
        ("123456789012345678::bigint::text", "123456789012345678"),
        ("true::text", "true"),
        ("'2024-01-02'::date::text", "2024-01-02"),
        ("'2024-01-02 03:04:05.678'::timestamp::text", "2024-01-02 03:04:05.678"),
        ("'2024-01-02 03:04:05'::timestamp::date::timestamp", "2024-01-02 00:00:00"),
        ("'20240102'::date", "2024-01-02"),
        ("'2024-01-02T03:04'::timestamp", "2024-01-02 03:04:00"),
        ("'1 day'::interval + '01:00'::interval", "1 day 01:00:00"),
        ("'{1,2}'::int[]::text", "{1,2}"),
        ("array[1, 2]::text[]::text", "{1,2}"),
        ("'abc'::varchar(2)", "ab"),
        ("'abc'::char(2)", "ab"),
        (r#"'{"a": 1}'::json::text"#, r#"{"a": 1}"#),
        ("'A0EEBC99-9C0B-4EF8-BB6D-6BB9BD380A11'::uuid", "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11"),
        (r"encode('\x4142'::bytea, 'hex')", "4142"),
        (r"encode(overlay('\x123456'::bytea placing '\xff'::bytea from 2 for 1), 'hex')", "12ff56"),
        (r"encode(overlay('\x123456'::bytea placing '\xffee'::bytea from 2), 'hex')", "12ffee"),
        ("encode('abc'::bytea, 'base64')", "YWJj"),
        ("encode('a', 'base64')", "YQ=="),
        ("cast('12' as int) + 1", "13"),
        ("'12' + 1", "13"),
        ("'2024-01-01' < date '2024-01-02'", "true"),
        ("'1' = 1", "true"),
        ("1 = 1.0", "true"),
        ("'a' < 'b'", "true"),
        ("'B' < 'a'", "true"),
        ("'' is null", "false"),
        ("not true = false", "true"),
        ("1 + 2 * 3 - 4 / 2", "5"),
        ("(1 + 2) * 3", "9"),
        ("2 + 3 = 5 and not 1 > 2 or false", "true"),
        ("1 < 2 is true", "true"),
        ("-5 % 3", "-2"),
        ("'a' || 'b' = 'ab'", "true"),
        (
            "(select bool_and(x::numeric = y) from (values ('1e5', 100000), ('-2.5E-1', -0.25), ('3', 3)) v (x, y))",
            "true",
        ),
    ]);
}

#[test]
fn intervals_and_zones() {
    gives(&[
        ("extract(epoch from interval '1 month')", "2592000"),
        ("extract(month from interval '14 months')", "2"),
        ("extract(year from interval '14 months')", "1"),
        ("extract(minute from interval '1 hour 90 minutes')", "30"),
        ("extract(second from interval '61.5 seconds')", "1.5"),
        ("interval '1 year 2 months 3 days 04:05:06.5'", "1 year 2 mons 3 days 04:05:06.5"),
        ("interval '-1 day +02:00'", "-1 days +02:00:00"),
        ("interval '1.5 hours'", "01:30:00"),
        ("interval '1 week'", "7 days"),
        ("interval '100 milliseconds'", "00:00:00.1"),
        ("interval '1 day' * 2 + interval '30 minutes'", "2 days 00:30:00"),
        ("interval '1 hour' < interval '61 minutes'", "true"),
        ("interval '0'", "00:00:00"),
        ("'10'::interval", "00:00:10"),
        ("timestamp '2024-01-01' + '90'", "2024-01-01 00:01:30"),
        ("now() - now() = interval '0'", "true"),
        ("date '2024-03-31' - interval '1 month'", "2024-02-29 00:00:00"),
        ("timestamp '2024-01-01' + interval '1 day' * 31", "2024-02-01 00:00:00"),
        ("timestamptz '2024-03-30 12:00+01' + interval '1 day'", "2024-03-31 11:00:00+00"),
        ("timestamptz '2024-10-27 00:30+00' at time zone 'Europe/Berlin'", "2024-10-27 02:30:00"),
        ("timestamptz '2024-10-27 01:30+00' at time zone 'Europe/Berlin'", "2024-10-27 02:30:00"),
        ("timestamp '2024-03-31 02:30' at time zone 'Europe/Berlin'", "2024-03-31 01:30:00+00"),
        ("timestamptz '2024-01-01 00:00+00' at time zone interval '2 hours'", "2024-01-01 02:00:00"),
        ("timezone('Asia/Tokyo', timestamptz '2024-01-01 00:00+00')", "2024-01-01 09:00:00"),
        ("date_trunc('day', timestamptz '2024-01-01 23:30+00', 'Europe/Berlin')", "2024-01-01 23:00:00+00"),
        ("age(timestamp '2024-03-01', timestamp '2024-02-29')", "1 day"),
        ("age(timestamp '2024-02-29', timestamp '2024-03-01')", "-1 days"),
        ("to_timestamp(1700000000.123)", "2023-11-14 22:13:20.123+00"),
        ("to_timestamp('2024-01-02 03:04', 'YYYY-MM-DD HH24:MI')", "2024-01-02 03:04:00+00"),
        ("date_part('epoch', timestamp '1970-01-01 00:01:00')", "60"),
        ("isfinite(date '2024-01-01')", "true"),
        ("date '2024-01-01' = timestamp '2024-01-01 00:00'", "true"),
        ("timestamp '2024-01-01 12:00'::date = date '2024-01-01'", "true"),
        (r#"to_char(date '2024-01-05', 'YYYY"w"WW')"#, "2024w01"),
        ("to_char(timestamp '2024-01-05 13:00', 'HH12 PM')", "01 PM"),
        ("to_char(timestamp '2024-01-05 00:30', 'HH12:MI am')", "12:30 am"),
    ]);
}

#[test]
fn what_is_null_stays_null() {
    gives(&[
        ("upper(null)", "NULL"),
        ("length(null)", "NULL"),
        ("substr(null, 1)", "NULL"),
        ("replace('a', null, 'b')", "NULL"),
        ("null || 'a'", "NULL"),
        ("null + 1", "NULL"),
        ("null = null", "NULL"),
        ("null <> 1", "NULL"),
        ("null is null", "true"),
        ("(select 1 where false) is null", "true"),
        ("round(null)", "NULL"),
        ("greatest(1, null)", "1"),
        ("concat(null, 'a')", "a"),
        ("concat_ws('-', null, 'a', 'b')", "a-b"),
        ("date_trunc('day', null::timestamp)", "NULL"),
        ("extract(year from null::timestamp)", "NULL"),
        ("to_char(null::timestamp, 'YYYY')", "NULL"),
        ("array_length(null::int[], 1)", "NULL"),
        ("(null::int[])[1]", "NULL"),
        (r#"'{"a":1}'::json -> null"#, "NULL"),
        ("split_part(null, ',', 1)", "NULL"),
        ("regexp_replace(null, 'a', 'b')", "NULL"),
        ("case when null then 'a' else 'b' end", "b"),
        ("case null when null then 'a' else 'b' end", "b"),
        ("nullif(null, 1)", "NULL"),
        ("coalesce(null, null)", "NULL"),
        ("null between 1 and 2", "NULL"),
        ("1 between null and 0", "false"),
        ("null in (1, 2)", "NULL"),
        ("null like 'a%'", "NULL"),
        ("null ~ 'a'", "NULL"),
    ]);
}

#[test]
fn texts_are_of_the_type_of_what_is_beside_them() {
    gives(&[
        ("coalesce(null::date, '2024-02-02') + 1", "2024-02-03"),
        ("coalesce(null::timestamp, '2024-02-02 10:00')", "2024-02-02 10:00:00"),
        ("case when true then '1' else 2 end + 1", "2"),
        ("case when false then date '2024-01-01' else '2024-02-02' end", "2024-02-02"),
        ("case when true then 'x' else 'y' end", "x"),
        ("greatest('10', 9)", "10"),
        ("least('2024-01-02', date '2024-01-03')", "2024-01-02"),
        ("array[1, '2', null]", "{1,2,NULL}"),
        ("array[date '2024-01-01', '2024-02-02']", "{2024-01-01,2024-02-02}"),
        ("array[array[1], '{2}']", "{{1},{2}}"),
        ("(select max(x) from (values ('9'), (10)) v(x))", "10"),
        ("(select max(x) from (values ('9'), ((select 10))) v(x))", "10"),
        ("(select max(x) from (select '9' as x union all select 10) v)", "10"),
        (
            "(select string_agg(x::text, ',' order by x) \
             from (select date '2024-05-05' as x union select '2024-01-01') v)",
            "2024-01-01,2024-05-05",
        ),
        ("(select bool_and(x) from (values (true), ('f')) v(x))", "false"),
        ("(select count(*) from (values ('1'), ('2')) v(x) where x = '1')", "1"),
        ("date '2024-01-10' - '2024-01-01'", "9"),
        ("'2024-01-10' - date '2024-01-01'", "9"),
        ("timestamp '2024-01-10' - '2024-01-09'", "1 day"),
        ("'1 day' + timestamp '2024-01-01'", "2024-01-02 00:00:00"),
        ("interval '1 day' + '2 hours'", "1 day 02:00:00"),
        ("interval '1 day' * '2'", "2 days"),
        ("array[1, 2] = '{1,2}'", "true"),
        ("'{1,2}' < array[1, 3]", "true"),
    ]);
}

#[test]
fn times_and_intervals_are_written_in_many_ways() {
    gives(&[
        ("'Jan 5, 2024'::date", "2024-01-05"),
        ("'1/8/1999'::date", "1999-01-08"),
        ("date '2024-01-05 10:00+02'", "2024-01-05"),
        ("timestamp '2024-01-05T10:00:00+02:00'", "2024-01-05 10:00:00"),
        ("timestamptz '2024-01-05 10:00 PM'", "2024-01-05 22:00:00+00"),
        ("timestamptz '2024-01-05 10:00 Europe/Berlin'", "2024-01-05 09:00:00+00"),
        ("timestamptz '20240105T101112.25Z'", "2024-01-05 10:11:12.25+00"),
        ("timestamptz '2024-01-05Z'", "2024-01-05 00:00:00+00"),
        ("time '4:05pm'", "16:05:00"),
        ("date '2024-01-05' = 'January 5, 2024'", "true"),
        ("timestamptz '2024-01-05 10:00Z' > '2024-01-05 10:30 CET'", "true"),
        ("now() >= 'today' and now() < 'tomorrow' and now() > 'yesterday'", "true"),
        ("current_date = 'today' and current_date - 1 = 'yesterday'", "true"),
        ("now() = 'now'", "true"),
        ("interval '2.5 weeks'", "17 days 12:00:00"),
        ("interval '1 day ago'", "-1 days"),
        ("interval '-1-2 +3 -4:05:06'", "-1 years -2 mons +3 days -04:05:06"),
        ("interval '1 month -1 day +2 hours'", "1 mon -1 days +02:00:00"),
        ("interval '1h30m'", "01:30:00"),
        ("interval '1 day, 2 hours'", "1 day 02:00:00"),
        ("interval 'P0001-02-03T04:05:06'", "1 year 2 mons 3 days 04:05:06"),
        ("interval '1 day' < '1 day 00:00:01'", "true"),
    ]);
}

#[test]
fn seconds_have_as_many_digits_as_are_asked_for() {
    gives(&[
        ("'2024-01-01 10:11:12.567'::timestamp(0)", "2024-01-01 10:11:13"),
        ("'1969-12-31 23:59:59.6'::timestamp(1)", "1969-12-31 23:59:59.6"),
        ("timestamp(2) '2024-01-01 10:11:12.567'", "2024-01-01 10:11:12.57"),
        ("timestamptz '2024-01-01 10:11:12.5674Z'::timestamptz(3)", "2024-01-01 10:11:12.567+00"),
        ("'10:11:12.567'::time(0)", "10:11:13"),
        ("timestamp '2024-01-01 10:11:12.123456'::timestamp(6)", "2024-01-01 10:11:12.123456"),
        ("current_timestamp(0) - now() < interval '1 second'", "true"),
        ("localtimestamp(3) is null", "false"),
    ]);
}
