use super::pretty::Pretty;
use super::*;
use crate::parser::parse;

fn check(query: &str, expected: &str) {
    assert_eq!(print(&parse(query).expect(query)), expected, "{query}");
}

fn same(query: &str) {
    check(query, query);
}

#[test]
fn in_one_line() {
    check("sum by() (m)", "sum(m)");
    check("sum(m) by(code)", "sum by (code) (m)");
    same("sum without () (m)");
    same("count by (\"ü\", job) (m)");
    same("topk(5, m{a=\"b\"})");
    same("count_values(\"value\", m)");
    check("a-on()c", "a - on () c");
    check("a - on(b) group_left c", "a - on (b) group_left () c");
    check("a - ignoring() c", "a - c");
    check("a - ignoring() group_right(x,y) c", "a - ignoring () group_right (x, y) c");
    check("a + fill(-23) b", "a + fill (-23) b");
    check("a + fill_left(5) fill_right(5) b", "a + fill (5) b");
    check(
        "a + on(b) group_left fill_right(0x10) fill_left(2) c",
        "a + on (b) group_left () fill_left (2) fill_right (16) c",
    );
    same("up > bool 0");
    same("a </ 2 >/ 1");
    same("a offset -7m");
    check("a offset 90", "a offset 1m30s");
    same("a[1h:5m] offset 1m");
    same("a[1h:]");
    check("a[3600]", "a[1h]");
    same("a[0.0014]");
    same("a anchored");
    check("a{b=\"c\"}[5m] offset 1m @ start() smoothed", "a{b=\"c\"}[5m] smoothed @ start() offset 1m");
    check("a @ 10 offset 1m anchored", "a @ 10.000 anchored offset 1m");
    check("{__name__='a'}", "{__name__=\"a\"}");
    check("{'a b', c!='d'}", "{__name__=\"a b\",c!=\"d\"}");
    check("{``=\"0\", 'a.b'=~`\\d`, _0!~'x', '0'='1'}", "{\"\"=\"0\",\"0\"=\"1\",\"a.b\"=~\"\\\\d\",_0!~\"x\"}");
    same("{__name__=\"\",a=\"x\"}");
    check("1048576 + 0x1F + 1e3 + .5", "1048576 + 31 + 1000 + 0.5");
    check("inf - -Inf * NaN", "+Inf - -Inf * NaN");
    check("-5m + 1e-7 + 1e21", "-5m + 0.0000001 + 1000000000000000000000");
    check("- (1) ^ -a", "-(1) ^ -a");
    check("'a\\'\"' ", "\"a'\\\"\"");
    check("info(a, {})", "info(a, {})");
    check("SUM(a) AND b OR c", "sum(a) and b or c");
}

#[test]
fn durations() {
    check("foo[-(step())]", "foo[-(step())]");
    check("foo offset +(5)", "foo offset (5)");
    same("foo offset -(5)");
    check("foo offset +min_of(10s,20s)", "foo offset min_of(10s, 20s)");
    check("foo offset -min_of(10s, +max_of(step()^2, 2))", "foo offset -min_of(10s, max_of(step() ^ 2, 2))");
    check("foo[200-min_of(-step()^+step(),1)]", "foo[200 - min_of(-step() ^ step(), 1)]");
    check("foo[((5m)):(1m)]", "foo[(5m):(1m)]");
    check("foo offset (5s)-8", "foo offset (5s) - 8");
    check("foo offset 5s-8", "foo offset 5s - 8");
    check("foo offset --5s-8", "foo offset (5s - 8)");
    check("foo[max_of(range(), 5s) / 2 % 7]", "foo[max_of(range(), 5s) / 2 % 7]");
}

fn spread(query: &str, line_bytes_max: usize, expected: &str) {
    let expr = parse(query).expect(query);
    let shown = text(|out| Pretty { out, line_bytes_max }.write(&expr, 0));
    assert_eq!(shown, expected, "{query}");
}

#[test]
fn over_lines() {
    spread("sum(foo)", 10, "sum(foo)");
    spread("sum(m{job='s'}) without(job,foo)", 10, "sum without (job, foo) (\n  m{job=\"s\"}\n)");
    spread("topk(10, metric)", 10, "topk(\n  10,\n  metric\n)");
    spread("a == bool 1", 10, "  a\n== bool\n  1");
    spread("foo + baar + foo_3", 10, "  foo + baar\n+\n  foo_3");
    spread(
        "foo_1 + ignoring(foo) foo_2 + on(i) group_right foo_4",
        10,
        "    foo_1\n  + ignoring (foo)\n    foo_2\n+ on (i) group_right ()\n  foo_4",
    );
    spread("quantile_over_time(0.9, foo[1m])", 10, "quantile_over_time(\n  0.9,\n  foo[1m]\n)");
    spread(
        "max_over_time(rate(demo_count[1m])[1m:] @ start() offset 1m)",
        10,
        "max_over_time(\n  rate(\n    demo_count[1m]\n  )[1m:] @ start() offset 1m\n)",
    );
    spread("((_foo_long_))", 10, "(\n  (\n    _foo_long_\n  )\n)");
    spread("(foo_long + bar_long)", 10, "(\n    foo_long\n  +\n    bar_long\n)");
    spread(
        "(-histogram_quantile(0.9, -rate(foo[1m])))",
        10,
        "(\n  -histogram_quantile(\n    0.9,\n    -rate(\n      foo[1m]\n    )\n  )\n)",
    );
    let line =
        "sum by (job) (rate(a_metric_with_quite_a_names_total{job=\"some job\",instance=\"localhost:9090\"}[5m]))";
    assert_eq!(line.len(), 100);
    assert_eq!(pretty(&parse(line).unwrap()).lines().count(), 1);
    assert_eq!(pretty(&parse(&line.replace("names", "namess")).unwrap()).lines().count(), 3);
}

#[test]
fn long_chains_stay_small() {
    let query = format!("1{}", " + 1".repeat(20_000));
    let expr = parse(&query).unwrap();
    assert_eq!(print(&expr), query);
    assert!(pretty(&expr).len() < 3 * query.len());
}
