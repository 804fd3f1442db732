use std::collections::BTreeMap;

use quiver_types::Access;
use quiver_types::label::Pairs;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

use super::*;

fn decode(text: &str, open_metrics: bool, extra: &[(&str, &str)]) -> DecodedMetrics {
    let extra_labels = extra.iter().map(|(n, v)| ((*n).to_owned(), (*v).to_owned())).collect();
    let options = ExpositionOptions { open_metrics, now_ms: 77, extra_labels, ..ExpositionOptions::default() };
    let mut decoder = ExpositionDecoder::new(options);
    // The smallest chunks: every line is cut everywhere.
    text.as_bytes().chunks(1).for_each(|chunk| decoder.feed(chunk).unwrap());
    let decoded = decoder.finish().unwrap();
    crate::fuzz::check(&decoded.batch);
    decoded
}

fn lines(decoded: &DecodedMetrics) -> Vec<String> {
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

/// Breaks if times of our own clock pass for those of senders.
#[test]
fn times_of_arrival_are_told_from_those_of_senders() {
    let check = |given_ms: Option<i64>, text: &str, times: &[i64], given: &[i64]| {
        let options = ExpositionOptions { now_ms: 77, given_ms, ..ExpositionOptions::default() };
        let mut decoder = ExpositionDecoder::new(options);
        decoder.feed(text.as_bytes()).unwrap();
        let batch = decoder.finish().unwrap().batch;
        assert_eq!((&*batch.ts, batch.given_times().collect::<Vec<_>>()), (times, given.to_vec()), "{text}");
    };
    check(None, "a 1 5\nb 1 77", &[5, 77], &[5, 77]);
    check(None, "a 1 5\nb 1\nc 1 8", &[5, 77, 8], &[5, 8]);
    check(None, "a 1\n", &[77], &[]);
    check(Some(9), "a 1 5\nb 1", &[5, 9], &[5, 9]);
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

/// Breaks if the first quote in a name is taken for its end.
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

#[test]
fn no_more_is_read_than_may_gather() {
    let extra_labels = vec![("long".to_owned(), "x".repeat(1000))];
    let text = (0..100).map(|n| format!("a{n} 1\n")).collect::<Vec<_>>().concat();
    let mut decoder = ExpositionDecoder::new(ExpositionOptions { extra_labels, ..ExpositionOptions::default() });
    let (mut rest, mut batches) = (text.as_bytes(), Vec::new());
    while !rest.is_empty() {
        let read = decoder.feed_until(rest, 10_000).unwrap();
        assert!(read > 0 && (decoder.bytes() >= 10_000 || read == rest.len()));
        assert!(decoder.bytes() < 10_000 + 1200, "one line beyond: {}", decoder.bytes());
        rest = &rest[read..];
        batches.push(decoder.take());
    }
    assert!(batches.len() > 5, "{}", batches.len());
    assert_eq!(batches.iter().map(|batch| batch.samples).sum::<u64>(), 100);
    // What has no end yet waits for it.
    assert_eq!(decoder.feed_until(b"b", 0).unwrap(), 1);
    assert_eq!(decoder.feed_until(b" 1\nc 2\n", 0).unwrap(), 3);
    assert_eq!(decoder.samples(), 1);
}

#[test]
fn values_and_times() {
    let check = |sample: &str, open_metrics: bool, expected: Option<(f64, i64)>| {
        let decoded = decode(&format!("m {sample}"), open_metrics, &[]);
        let found = decoded.batch.values.first().map(|v| (*v, decoded.batch.ts[0]));
        assert_eq!(found, expected, "{sample}");
        assert_eq!(decoded.rejected.len(), usize::from(expected.is_none()), "{sample}");
    };
    check("-1.5e-3 1", false, Some((-0.0015, 1)));
    check("-inf", false, Some((f64::NEG_INFINITY, 77)));
    check("1 9223372036854775807", false, Some((1.0, i64::MAX)));
    check("1 -9223372036854775808", false, Some((1.0, i64::MIN)));
    check("1 9223372036854775808", false, None);
    check("1 1.5", false, None);
    check("1,5", false, None);
    check("1.7976931348623157e308", false, Some((f64::MAX, 77)));
    check("1.8e308", false, None);
    check("-1e400 1", true, None);
    check("1e-400", false, Some((0.0, 77)));
    check("1_000", false, None);
    check("\u{a0}1", false, None);
    // OpenMetrics has seconds.
    check("1 1.5", true, Some((1.0, 1500)));
    check("1 -0.5", true, Some((1.0, -500)));
    check("1 1e3", true, Some((1.0, 1_000_000)));
    check("1 8.9e15", true, Some((1.0, 8_900_000_000_000_000_000)));
    check("1 9e15", true, None);
    check("1 +Inf", true, None);
    check("1 NaN", true, None);
    check("1 1 #", true, None);
    check("1 1 # {a=\"b\"}", true, None);
    check("1 1 # {a=\"b\"} x", true, None);
    check("1 1 # {a=\"b\"} 1 1 1", true, None);
    let zero = decode("m -0", false, &[]).batch.values[0];
    assert_eq!(zero.to_bits(), (-0.0_f64).to_bits());
}

#[test]
fn families_of_comments() {
    let told = |text: &str, open_metrics: bool| -> Vec<[String; 4]> {
        let metadata = decode(text, open_metrics, &[]).batch.metadata;
        metadata.into_iter().map(|m| [m.metric, m.metric_type, m.help, m.unit]).collect()
    };
    let check = |text: &str, open_metrics: bool, expected: &[[&str; 4]]| {
        assert_eq!(
            told(text, open_metrics),
            expected.iter().map(|m| m.map(str::to_owned)).collect::<Vec<_>>(),
            "{text}"
        );
    };
    check("# TYPE a counter\n# HELP a  Of  it. \na 1\n", false, &[["a", "counter", "Of  it.", ""]]);
    // Only exposition text of OpenMetrics has escaped quotes in help.
    check("# HELP a \\\\ \\n \\\" \\x", false, &[["a", "unknown", "\\ \n \\\" \\x", ""]]);
    check("# HELP a \\\\ \\n \\\" \\x", true, &[["a", "unknown", "\\ \n \" \\x", ""]]);
    check("# TYPE a GAUGE\n# UNIT a s\n# TYPE a summary", false, &[["a", "summary", "", "s"]]);
    check(
        "# TYPE a gauge\n# TYPE b info\n# HELP a again",
        false,
        &[["a", "gauge", "", ""], ["b", "info", "", ""], ["a", "unknown", "again", ""]],
    );
    check("# TYPED a gauge\n# type a gauge\n# help\n#", false, &[]);
    check("\t#\tTYPE\ta\tgauge", false, &[["a", "gauge", "", ""]]);
    for (bad, what) in [("# TYPE", "comment without a metric name"), ("# HELP \"\" x", "comment without a metric name")]
    {
        let decoded = decode(bad, false, &[]);
        assert_eq!(decoded.rejected[0].example, format!("line 1: {what}: {bad}"));
    }
    let mut decoder = ExpositionDecoder::new(ExpositionOptions::default());
    decoder.feed(b"# HELP a \xff\na 1\n").unwrap();
    let decoded = decoder.finish().unwrap();
    assert_eq!((decoded.samples, decoded.rejected[0].count, decoded.batch.metadata.len()), (1, 1, 0));
}

#[test]
fn counts_start_anew_and_line_numbers_go_on() {
    let mut decoder = ExpositionDecoder::new(ExpositionOptions::default());
    assert_eq!((decoder.samples(), decoder.bytes()), (0, 0));
    decoder.feed(b"ok 1\n\nbad\nworse\n").unwrap();
    assert!(decoder.bytes() > 0);
    let first = decoder.take();
    assert_eq!((first.rejected[0].count, first.rejected[0].example.as_str()), (2, "line 3: expected a number: bad"));
    decoder.feed(b"\rbad").unwrap();
    decoder.feed(b"ly").unwrap();
    let last = decoder.finish().unwrap();
    assert_eq!((last.samples, last.rejected[0].count), (0, 1));
    assert!(last.rejected[0].example.starts_with("line 5: "), "{}", last.rejected[0].example);
}

#[test]
fn senders_of_some_services() {
    let names: Arc<[String]> = ["service_name", "job"].map(str::to_owned).into();
    let text = "# TYPE m counter\nm{job=\"a\"} 1\nm{job=\"b\"} 2\nm 3\n# TYPE n gauge\nn{job=\"b\"} 4\n";
    let decode = |services: &[&str]| {
        let sender = Sender::of(Access::services(services.iter().copied()), Arc::clone(&names));
        let mut decoder = ExpositionDecoder::new(ExpositionOptions { sender, ..ExpositionOptions::default() });
        decoder.feed(text.as_bytes()).unwrap();
        decoder.finish().unwrap()
    };
    let families =
        |decoded: &DecodedMetrics| decoded.batch.metadata.iter().map(|m| m.metric.clone()).collect::<Vec<_>>();
    // Who may write one service means it.
    let one = decode(&["a"]);
    assert_eq!(lines(&one), ["__name__=m,job=a 1 0", "__name__=m,service_name=a 3 0"]);
    assert_eq!((one.forbidden(), one.first_forbidden(), families(&one)), (2, Some("b"), vec!["m".to_owned()]));
    let two = decode(&["a", "c"]);
    assert_eq!(lines(&two), ["__name__=m,job=a 1 0"]);
    assert_eq!((two.forbidden(), two.first_forbidden()), (3, Some("b")));
    let none = decode(&["c"]);
    assert_eq!((lines(&none), none.forbidden()), (vec!["__name__=m,service_name=c 3 0".to_owned()], 3));
    assert_eq!(families(&none), ["m"]);
}

/// Whatever stands in names and values is read back, in any order of labels, and of names that repeat nothing is.
#[test]
fn any_text_in_quotes_is_read_back() {
    const PIECES: [&str; 14] = ["a", "Z", "9", "_", ":", "\\", "\"", "\n", "{", "}", ",", "=", "é", " # "];
    let mut rng = StdRng::seed_from_u64(7);
    let quoted = |text: &str| format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n"));
    for round in 0..400 {
        let mut text = |least: usize| -> String {
            (0..rng.random_range(least..6)).map(|_| PIECES[rng.random_range(0..PIECES.len())]).collect()
        };
        let name = text(1);
        let mut labels: Vec<(String, String)> = (0..4).map(|_| (text(1), text(0))).collect();
        if round % 4 == 0 {
            labels.push((labels[0].0.clone(), "again".to_owned()));
        }
        let pairs: Vec<String> = labels.iter().map(|(n, v)| format!("{} = {}", quoted(n), quoted(v))).collect();
        let line = format!("{{{},{}}} {round}", quoted(&name), pairs.join(" ,"));
        let decoded = decode(&line, false, &[]);
        let names: BTreeMap<&str, &str> = labels.iter().map(|(n, v)| (n.as_str(), v.as_str())).collect();
        if names.len() < labels.len() {
            assert_eq!((decoded.samples, decoded.rejected[0].count), (0, 1), "{line}");
            continue;
        }
        let mut expected: BTreeMap<&str, &str> = names.into_iter().filter(|(_, v)| !v.is_empty()).collect();
        expected.insert("__name__", &name);
        let found: BTreeMap<&str, &str> = Pairs::new(decoded.batch.labels(0)).collect();
        assert_eq!((found, decoded.batch.values[0]), (expected, f64::from(round)), "{line}");
    }
}
