//! Times and intervals, as PostgreSQL has them.

use super::gives;

#[test]
fn times_move_by_intervals() {
    gives(&[
        ("date '2024-01-31' + interval '1 month'", "2024-02-29 00:00:00"),
        ("date '2024-01-31' + 1", "2024-02-01"),
        ("date '2024-03-01' - date '2024-02-01'", "29"),
        ("timestamp '2024-03-31 12:00' - interval '1 month'", "2024-02-29 12:00:00"),
        ("timestamp '2024-01-02 03:04:05' - timestamp '2024-01-01'", "1 day 03:04:05"),
        ("interval '1 day' + interval '2 hours'", "1 day 02:00:00"),
        ("interval '1 hour' * 1.5", "01:30:00"),
        ("interval '1 hour' / 4", "00:15:00"),
        ("-interval '1 hour 30 minutes'", "-01:30:00"),
        ("2 * interval '1 month'", "2 mons"),
        ("interval '1 mon -1 day' / 10", "3 days -02:24:00"),
        ("interval '1 day -01:30'", "1 day -01:30:00"),
        ("interval 'P1Y2M3DT4H5M6S'", "1 year 2 mons 3 days 04:05:06"),
        ("interval '90' minute", "01:30:00"),
        ("interval '1 month' > interval '29 days'", "true"),
        ("interval '30 days' = interval '1 month'", "true"),
        ("interval '24 hours' = interval '1 day'", "true"),
        ("make_interval(days => 10, hours => 2)", "10 days 02:00:00"),
        ("make_date(2013, 7, 15)", "2013-07-15"),
        ("make_timestamp(2013, 7, 15, 8, 15, 23.5)", "2013-07-15 08:15:23.5"),
        ("age(timestamp '2001-04-10', timestamp '1957-06-13')", "43 years 9 mons 27 days"),
        ("justify_hours(interval '27 hours')", "1 day 03:00:00"),
        ("justify_days(interval '35 days')", "1 mon 5 days"),
        ("justify_interval(interval '1 mon -1 hour')", "29 days 23:00:00"),
        (
            "(timestamp '2024-01-01', timestamp '2024-02-01') overlaps (timestamp '2024-01-31', timestamp '2024-03-01')",
            "true",
        ),
        ("(date '2024-01-01', date '2024-02-01') overlaps (date '2024-02-01', date '2024-03-01')", "false"),
    ]);
}

#[test]
fn parts_of_times() {
    gives(&[
        ("extract(year from timestamp '2024-02-29 13:14:15.5')", "2024"),
        ("extract(quarter from date '2024-05-01')", "2"),
        ("extract(dow from date '2024-03-03')", "0"),
        ("extract(isodow from date '2024-03-03')", "7"),
        ("extract(doy from date '2024-12-31')", "366"),
        (
            "(select string_agg(date_part(f, timestamp '2024-03-05 06:07:08.9')::text, ' ' order by f) \
             from (values ('hours'), ('year'), ('second'), (null)) t (f))",
            "6 8.9 2024",
        ),
        ("date_part(lower('YEAR'), date '2024-03-05')", "2024"),
        ("date_part(null, now())", "NULL"),
        (
            "(select string_agg(date_trunc(f, timestamp '2024-03-05 06:07:08.9')::text, '|' order by f) \
             from (values ('mins'), ('milliseconds'), ('century')) t (f))",
            "2001-01-01 00:00:00|2024-03-05 06:07:08.9|2024-03-05 06:07:00",
        ),
        ("make_time(8, 15, 23.5) = time '08:15:23.5'", "true"),
        ("make_time(8, 15, 0)", "08:15:00"),
        ("make_time(1, 6, 60)", "01:07:00"),
        ("make_time(1, null, 60)", "NULL"),
        ("make_timestamp(2024, 1, 1, 24, 0, 0)", "2024-01-02 00:00:00"),
        ("make_timestamp(2024, 1, 1, 23, 59, 59.9999999)", "2024-01-02 00:00:00"),
        ("extract(week from date '2005-01-01')", "53"),
        ("extract(isoyear from date '2006-01-01')", "2005"),
        ("extract(second from timestamp '2024-02-29 13:14:15.5')", "15.5"),
        ("time '13:14:15.5'", "13:14:15.5"),
        ("extract(second from interval '04:05:06.7')", "6.7"),
        ("extract(milliseconds from interval '-04:05:06.7')", "-6700"),
        ("extract(microseconds from timestamp '2024-01-01 00:00:06.7' - timestamp '2023-01-01')", "6700000"),
        ("extract(milliseconds from timestamp '2024-02-29 13:14:15.678901')", "15678.901"),
        ("extract(epoch from interval '5 days 3 hours')", "442800"),
        ("extract(epoch from timestamp '1970-01-02 00:00:01')", "86401"),
        ("extract(century from date '2000-12-16')", "20"),
        ("extract(century from date '2001-02-16')", "21"),
        ("extract(decade from date '2001-02-16')", "200"),
        ("extract(millennium from date '2001-02-16')", "3"),
        ("extract(hour from interval '30 hours')", "30"),
        ("extract(quarter from interval '5 months')", "2"),
        ("extract(century from interval '15000 months')", "12"),
        ("date_part('millennium', '15000 months'::interval)", "1"),
        ("extract(day from interval '40 days 1 minute')", "40"),
        ("date_part('hour', timestamp '2001-02-16 20:38:40')", "20"),
        ("date_trunc('hour', timestamp '2001-02-16 20:38:40')", "2001-02-16 20:00:00"),
        ("date_trunc('week', timestamp '2024-03-03 10:00')", "2024-02-26 00:00:00"),
        ("date_trunc('quarter', date '2024-05-17')", "2024-04-01 00:00:00+00"),
        ("date_trunc('decade', timestamp '2001-02-16 20:38:40')", "2000-01-01 00:00:00"),
        ("date_trunc('century', timestamp '2001-02-16 20:38:40')", "2001-01-01 00:00:00"),
        // What is taken away may be a time or an interval.
        ("date_trunc('decade', timestamp '2001-02-16 20:38:40' - interval '1 day' * 60)", "2000-01-01 00:00:00"),
        ("date_trunc('century', timestamp '2001-02-16 20:38:40' - interval '1 day' * 60)", "1901-01-01 00:00:00"),
        (
            "date_trunc('Millennium', timestamptz '2001-02-16 12:00+00' - interval '1 day' * 6)",
            "2001-01-01 00:00:00+00",
        ),
        ("date_trunc('decade', null::timestamp - interval '1 day' * 6)", "NULL"),
        ("date_bin('15 minutes', timestamp '2020-02-11 15:44:17', timestamp '2001-01-01')", "2020-02-11 15:30:00"),
        (
            "date_bin(interval '15 minutes', timestamp '2020-02-11 15:44:17', timestamp '2001-01-01 00:02:30')",
            "2020-02-11 15:32:30",
        ),
        ("time_bucket(interval '1 hour', timestamp '2024-01-01 01:59:59')", "2024-01-01 01:00:00"),
    ]);
}

#[test]
fn times_are_written_in_forms() {
    gives(&[
        ("to_char(timestamp '2002-04-20 17:31:12.66', 'HH12:MI:SS')", "05:31:12"),
        ("to_char(timestamp '2002-04-20 17:31:12.66', 'YYYY-MM-DD HH24:MI:SS.MS')", "2002-04-20 17:31:12.660"),
        ("to_char(timestamp '2002-04-20 17:31:12.66', 'Day, DD Mon YYYY')", "Saturday , 20 Apr 2002"),
        ("to_date('January 5, 2024', 'Month DD, YYYY')", "2024-01-05"),
        ("to_date('Fri 5 DEC 2025', 'Dy DD MON YYYY')", "2025-12-05"),
        ("to_timestamp('MARCH 5 2024 10:11', 'MONTH DD YYYY HH24:MI')", "2024-03-05 10:11:00+00"),
        ("to_char(timestamp '2002-04-05 05:00', 'FMDay, FMDD FMMonth FMHH12 AM')", "Friday, 5 April 5 AM"),
        ("to_char(timestamp '2002-04-20', 'DDD IW IYYY Q D ID')", "110 16 2002 2 7 6"),
        (r#"to_char(timestamp '2002-04-20', '"quoted YYYY" YY')"#, "quoted YYYY 02"),
        ("to_char(timestamp '2002-04-21', 'DDth')", "21st"),
        ("to_char(timestamp '2002-04-20 17:31:12', 'month MONTH')", "april     APRIL    "),
        ("to_char(interval '15h 2m 12s', 'HH24:MI:SS')", "15:02:12"),
        ("to_char(interval '-1 day -2 hours', 'DD HH24')", "-1 -02"),
        ("to_char(interval '7 months', 'Q MM')", "3 07"),
        ("to_char(interval '-3 months', 'Q MM')", "0 -03"),
        ("to_date('05 Dec 2000', 'DD Mon YYYY')", "2000-12-05"),
        ("to_date('2024-05', 'YYYY-MM')", "2024-05-01"),
        ("array['Jan 5, 2024', '2024-01-06', null]::date[]::text", "{2024-01-05,2024-01-06,NULL}"),
        ("(array['epoch']::timestamp[])[1]", "1970-01-01 00:00:00"),
        ("to_timestamp('2024', 'YYYY')", "2024-01-01 00:00:00+00"),
        ("to_timestamp('2024-05-01 10', 'YYYY-MM-DD HH24')", "2024-05-01 10:00:00+00"),
        ("to_timestamp('2024-05-01 10:20:30', 'YYYY-MM-DD HH:MI:SS')", "2024-05-01 10:20:30+00"),
        ("to_timestamp(0) at time zone 'UTC'", "1970-01-01 00:00:00"),
        ("'2024-01-01 12:00:00+02'::timestamptz at time zone 'UTC'", "2024-01-01 10:00:00"),
        ("timestamp '2024-07-01 12:00' at time zone 'Europe/Berlin'", "2024-07-01 10:00:00+00"),
        ("timestamptz '2024-07-01 12:00+00' at time zone 'Europe/Berlin'", "2024-07-01 14:00:00"),
        ("'2024-01-01T00:00:00Z'::timestamptz", "2024-01-01 00:00:00+00"),
        ("'2024-02-03 04:05'::timestamp::date", "2024-02-03"),
        ("'2024-02-03 04:05:06.789'::timestamp::time", "04:05:06.789"),
        ("'04:05'::time", "04:05:00"),
        ("'allballs'::time", "00:00:00"),
        ("time 'AllBalls'", "00:00:00"),
    ]);
}
