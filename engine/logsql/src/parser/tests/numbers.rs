//! Functions of `stats`, expressions of `math`, options, and pipes that join each other, in canonical text.

use super::*;

#[test]
fn functions_of_stats() {
    let stats = |written: &str, printed: &str| check(&format!("* | stats {written}"), &format!("* | stats {printed}"));
    stats("count() n", "count(*) as n");
    stats("count(a, b*) as n", "count(a, b*) as n");
    stats("count(a, *) n", "count(*) as n");
    stats("count_empty(a) n", "count_empty(a) as n");
    stats("count_uniq(a,b) limit 5 n", "count_uniq(a, b) limit 5 as n");
    stats("count_uniq_hash(a) limit 0 n", "count_uniq_hash(a) as n");
    stats("count_uniq_hll(a, b) n", "count_uniq_hll(a, b) as n");
    stats("sum('a b') s", "sum(\"a b\") as s");
    stats("avg() m, stddev(a) d", "avg(*) as m, stddev(a) as d");
    stats("MIN(a) l, max(a*) g, median(a) m", "min(a) as l, max(a*) as g, median(a) as m");
    stats("quantile(0.5, a, b) q", "quantile(0.5, a, b) as q");
    stats("quantile(0.99) q", "quantile(0.99) as q");
    stats("quantile(0.5, a, *) q", "quantile(0.5) as q");
    stats("rate() r, rate_sum(a) s", "rate() as r, rate_sum(a) as s");
    stats("uniq_values(a) limit 2 u, values() v", "uniq_values(a) limit 2 as u, values(*) as v");
    stats("json_values(a) order by (b desc, c asc) limit 3 v", "json_values(a) sort by (b desc, c) limit 3 as v");
    stats(
        "row_any(a) v, row_min(a) x, row_max(a, b, c*) y",
        "row_any(a) as v, row_min(a) as x, row_max(a, b, c*) as y",
    );
    stats("any(a) v, field_min(a, b) x, field_max(a, b) y", "any(a) as v, field_min(a, b) as x, field_max(a, b) as y");
    stats("sum_len(a*) s, histogram(a) h", "sum_len(a*) as s, histogram(a) as h");
    // What is given no name is called as it is written.
    stats("sum(a)", "sum(a) as \"sum(a)\"");
    stats("count() if (b:c d)", "count(*) if (b:c d) as \"count(*) if (b:c d)\"");
    stats("count() if () n", "count(*) if (*) as n");
}

#[test]
fn groups_and_cases_of_stats() {
    let stats = |written: &str, printed: &str| check(&format!("* | stats {written}"), &format!("* | stats {printed}"));
    stats("(a) count() n", "by (a) count(*) as n");
    stats("by (a, 'b c':100) count() n", "by (a, \"b c\":100) count(*) as n");
    stats("by (_time:5m offset 1h) count() n", "by (_time:5m offset 1h) count(*) as n");
    stats("by (_time:Day, a:WEEK, b:month, c:Year) count() n", "by (_time:day, a:week, b:month, c:year) count(*) as n");
    stats("by (ip:/24, size:1.5KiB) count() n", "by (ip:/24, size:1.5KiB) count(*) as n");
    stats("count() switch(case (a:1) x, default y)", "count(*) if (a:1) as x, count(*) if (!a:1) as y");
    stats(
        "sum(b) switch(case (a:1) as x, if (a:2) as y, default as z), count() n",
        "sum(b) if (a:1) as x, sum(b) if (a:2) as y, sum(b) if (!(a:1 or a:2)) as z, count(*) as n",
    );
    check("* | by (a) count() n", "* | stats by (a) count(*) as n");
    check("* | count() n, sum(b) s", "* | stats count(*) as n, sum(b) as s");
}

#[test]
fn operators_bind_as_they_are_written() {
    let math = |written: &str, printed: &str| {
        check(&format!("* | math {written} as x"), &format!("* | math {printed} as x"));
    };
    math("a", "a");
    math("+a", "a");
    math("a+b+c", "(a + b + c)");
    math("a-(b-c)", "(a - (b - c))");
    math("(a-b)-c", "(a - b - c)");
    math("a*(b/c)%d", "(a * (b / c) % d)");
    math("(a+b)*c", "((a + b) * c)");
    math("a+b*c", "(a + b * c)");
    math("a^b^c", "(a ^ b ^ c)");
    math("a^(b^c)", "(a ^ (b ^ c))");
    math("a*b^c", "(a * b ^ c)");
    math("-a^2", "(-a ^ 2)");
    math("-(a+b)", "-(a + b)");
    math("-5", "-5");
    math("a - -5", "(a - -5)");
    math("a & b xor c or d default 1", "(a & b xor c or d default 1)");
    math("a & (b xor (c or (d default 1)))", "(a & (b xor (c or (d default 1))))");
    math("(a default 1) or b", "((a default 1) or b)");
    math("max(a, b+1, 2) / min(a, b)", "(max(a, b + 1, 2) / min(a, b))");
    math("ROUND(a, 0.1) + abs(-a)", "(round(a, 0.1) + abs(-a))");
    math("now() - rand()", "(now() - rand())");
    math("'a b' * 1e-5", "(\"a b\" * 1e-5)");
    // The sign of an exponent belongs to it; that behind hexadecimal digits is an operator.
    math("2E+3-1", "(2E+3 - 1)");
    math("0x1e-5", "(0x1e - 5)");
    math("0X1E-5", "(0X1E - 5)");
    math("1e - 5", "(1e - 5)");
    math("1.5KiB + 5m + 0xff + 1.2.3.4", "(1.5KiB + 5m + 0xff + 1.2.3.4)");
    check("* | math a + 1 x, b y", "* | math (a + 1) as x, b as y");
    check("* | eval a + b", "* | math (a + b) as \"a + b\"");
}

#[test]
fn options_have_one_order() {
    check("options() a", "a");
    check("options(concurrency=0) a", "a");
    check(
        "options(allow_partial_response=1, concurrency=2, ignore_global_time_filter=F, parallel_readers=3) a",
        "options(concurrency=2, parallel_readers=3, ignore_global_time_filter=false, allow_partial_response=true) a",
    );
    check("options(global_filter=(a * b)) c", "options(global_filter=(a b)) c");
    // Subqueries have those of the query around them, and their own first.
    check(
        "options(concurrency=2) a:in(b | fields c)",
        "options(concurrency=2) a:in(options(concurrency=2) b | fields c)",
    );
    check(
        "options(concurrency=2, parallel_readers=3) a:in(options(concurrency=5) b | fields c)",
        "options(concurrency=2, parallel_readers=3) a:in(options(concurrency=5, parallel_readers=3) b | fields c)",
    );
}

#[test]
fn pipes_join_each_other() {
    check("* | limit 10 | limit 5 | limit 7", "* | limit 5");
    check("* | offset 2 | offset 3", "* | offset 5");
    check("* | offset 0", "*");
    check("* | offset 2 | limit 3", "* | limit 5 | offset 2");
    check("* | limit 5 | offset 7", "* | limit 0");
    check("* | sort by (a) | limit 3 | limit 2", "* | sort by (a) limit 2");
    check("* | sort by (a) limit 5 | offset 2", "* | sort by (a) offset 2 limit 3");
    check("* | sort by (a) limit 2 | offset 2", "* | limit 0");
    check("* | sort by (a) | limit 0", "* | sort by (a) | limit 0");
    check("* | uniq by (a) | limit 3", "* | uniq by (a) limit 3");
    check("* | uniq by (a) limit 2 | limit 3", "* | uniq by (a) limit 2");
    check("a | filter b | filter c or d", "a b (c or d)");
    check("a | fields x | filter b | filter c", "a | fields x | filter b c");
    // Of places and partitions the limit is another one.
    check("* | sort by (a) rank as r | limit 3", "* | sort by (a) rank as r | limit 3");
    check("* | sort by (a) partition by (b) limit 2 | limit 3", "* | sort by (a) partition by (b) limit 2 | limit 3");
}
