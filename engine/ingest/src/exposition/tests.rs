use quiver_types::label::Pairs;

use super::*;

fn decode(text: &str, open_metrics: bool, extra: &[(&str, &str)]) -> Decoded {
    let extra_labels = extra.iter().map(|(n, v)| ((*n).to_owned(), (*v).to_owned())).collect();
    let mut decoder =
        ExpositionDecoder::new(ExpositionOptions { open_metrics, now_ms: 77, extra_labels, sender: None });
    // The smallest chunks: every line is cut everywhere.
    text.as_bytes().chunks(1).for_each(|chunk| decoder.feed(chunk).unwrap());
    let decoded = decoder.finish().unwrap();
    crate::fuzz::check(&decoded.batch);
    decoded
}

fn lines(decoded: &Decoded) -> Vec<String> {
    let b = &decoded.batch;
    let line = |i: usize| {
        let pairs: Vec<String> = Pairs::new(b.labels(b.sample_series[i])).map(|(n, v)| format!("{n}={v}")).collect();
        format!("{} {} {}", pairs.join(","), b.values[i], b.ts[i])
    };
    (0..b.ts.len()).map(line).collect()
}

#[test]
fn samples() {
    let check = |text: &str, expected: &[&str]| assert_eq!(lines(&decode(text, false, &[])), expected, "{text}");
    check("up 1", &["__name__=up 1 77"]);
    check("up 1 5\n\n  up\t2 -6 \r\n", &["__name__=up 1 5", "__name__=up 2 -6"]);
    check("a:b{x=\"1\",y=\"\"} 1e3", &["__name__=a:b,x=1 1000 77"]);
    check("m { b = \"2\" , a = \"1\" , } +Inf 9", &["__name__=m,a=1,b=2 inf 9"]);
    check("m{a=\"q\\\"\\\\\\n\\x}\"}-Inf", &["__name__=m,a=q\"\\\n\\x} -inf 77"]);
    check("{\"my.metric\",\"a.b\"=\"ü\"} 1", &["__name__=my.metric,a.b=ü 1 77"]);
    check("# a comment\n#\n# EOF\n", &[]);
    let nan = decode("m NaN", false, &[]);
    assert_eq!(nan.batch.values[0].to_bits(), NORMAL_NAN);
    let extra = decode("m{job=\"x\",a=\"1\"} 1", false, &[("job", "y"), ("zone", "eu")]);
    assert_eq!(lines(&extra), ["__name__=m,a=1,job=y,zone=eu 1 77"]);
}

#[test]
fn bad_lines() {
    for line in [
        "m",
        "m ",
        "1m 1",
        "m x",
        "m 1 x",
        "m 1 2 3",
        "m{a=1} 1",
        "m{a=\"1\" 1",
        "m{a=\"1\"b=\"2\"} 1",
        "{} 1",
        "{a=\"1\"} 1",
        "m{a=\"1\",a=\"2\"} 1",
        "m{\"\"=\"x\"} 1",
        "m{a} 1",
        "m{\"other\"} 1",
        "é 1",
        "m 1 # {a=\"1\"} 2",
        "m{a=\"1",
        "m{a=\"\\",
    ] {
        let decoded = decode(&format!("ok 1\n{line}\nok 2"), false, &[]);
        assert_eq!(decoded.samples, 2, "{line}");
        let [bad] = &decoded.rejected[..] else { panic!("{line}: {:?}", decoded.rejected) };
        assert_eq!((bad.reason, bad.count), (Reason::BadLine, 1), "{line}");
        assert!(bad.example.starts_with("line 2: "), "{}", bad.example);
    }
    let long = format!("ok 1\nm{{a=\"{}\"}} 1\nok 2\n", "x".repeat(TEXT_MAX_BYTES));
    for chunk_bytes in [1 << 30, 1 << 16] {
        let mut decoder = ExpositionDecoder::new(ExpositionOptions::default());
        long.as_bytes().chunks(chunk_bytes).for_each(|chunk| decoder.feed(chunk).unwrap());
        let decoded = decoder.finish().unwrap();
        assert_eq!((decoded.samples, decoded.rejected[0].count), (2, 1));
        assert!(decoded.rejected[0].example.starts_with("line 2: "), "{:?}", decoded.rejected);
    }
}

#[test]
fn open_metrics() {
    let text = "# TYPE http counter\n# HELP http All \\\"requests\\\"\\n.\n# UNIT http requests\n\
        http_total{code=\"200\"} 5 1.5 # {trace_id=\"abc\"} 0.25 1.25\nhttp_total 1 # {} 7\n\
        # TYPE \"my.gauge\" gauge\n# TYPE odd thing\n# EOF";
    let decoded = decode(text, true, &[]);
    assert_eq!(lines(&decoded), ["__name__=http_total,code=200 5 1500", "__name__=http_total 1 77"]);
    let exemplars: Vec<_> = decoded.batch.exemplars.iter().map(|e| (e.series, e.ts, e.value)).collect();
    assert_eq!(exemplars, [(0, 1250, 0.25), (1, 77, 7.0)]);
    assert_eq!(Pairs::new(&decoded.batch.exemplars[0].labels).collect::<Vec<_>>(), [("trace_id", "abc")]);
    let metadata = |metric: &str, metric_type: &str, help: &str, unit: &str| MetricMetadata {
        metric: metric.into(),
        metric_type: metric_type.into(),
        help: help.into(),
        unit: unit.into(),
    };
    let expected = [
        metadata("http", "counter", "All \"requests\"\n.", "requests"),
        metadata("my.gauge", "gauge", "", ""),
        metadata("odd", "unknown", "", ""),
    ];
    assert_eq!(decoded.batch.metadata, expected);
    assert!(decoded.rejected.is_empty());
}

/// Breaks where the first quote in a name is taken for its end.
#[test]
fn comments_with_quoted_names() {
    let text = "# TYPE \"a\\\"b\\\\\" gauge\n# HELP \"a\\\"b\\\\\" what \"it\" is\n{\"a\\\"b\\\\\"} 1\n\
        # TYPE \"open\n# TYPE \"open\\\" gauge\n# TYPE \"é\\";
    let decoded = decode(text, false, &[]);
    assert_eq!(lines(&decoded), ["__name__=a\"b\\ 1 77"]);
    let [family] = &decoded.batch.metadata[..] else { panic!("{:?}", decoded.batch.metadata) };
    let told = (family.metric.as_str(), family.metric_type.as_str(), family.help.as_str());
    assert_eq!(told, ("a\"b\\", "gauge", "what \"it\" is"));
    assert_eq!((decoded.rejected[0].count, decoded.rejected.len()), (3, 1));
    assert_eq!(decoded.rejected[0].example, "line 4: unclosed name: # TYPE \"open");
}

#[test]
fn taking() {
    let mut decoder = ExpositionDecoder::new(ExpositionOptions::default());
    decoder.feed(b"a 1\nb 2\nbad\nc").unwrap();
    assert_eq!(decoder.samples(), 2);
    let first = decoder.take();
    assert_eq!((first.samples, first.rejected.len(), decoder.samples()), (2, 1, 0));
    decoder.feed(b" 3\n").unwrap();
    assert_eq!(decoder.finish().unwrap().samples, 1);
}
