use super::*;

#[test]
fn floats() {
    let check = |text: &str, expected: &[f64]| {
        let got: Vec<f64> = items(text)
            .unwrap()
            .into_iter()
            .map(|s| match s.value {
                Some(Value::Float(v)) => v,
                _ => -999.0,
            })
            .collect();
        assert_eq!(got, expected, "{text}");
    };
    check("1 _ -1.5 1e3", &[1.0, -999.0, -1.5, 1e3]);
    check("0+10x2 5-1x1 3x2", &[0.0, 10.0, 20.0, 5.0, 4.0, 3.0, 3.0, 3.0]);
    check("_x2 0x2 -Inf", &[-999.0, -999.0, 0.0, 0.0, 0.0, f64::NEG_INFINITY]);
    check("0.1E+2 .5", &[10.0, 0.5]);
    check("_x0 1 _x1 2", &[1.0, -999.0, 2.0]);
    let bads = "1é|_é|1+é|é|1xé|1+1|1-1 2|1++1x2|1--1x2|Infx2|1+NaNx2|stalex2|Stale|1+1x|1+1x-1|5m|1+1mx2";
    for bad in bads.split('|') {
        assert!(items(bad).is_err(), "{bad}");
    }
}

#[test]
fn no_more_is_made_than_there_is_room_for() {
    let within = |text: &str, slots: usize| items_within(text, &mut Room { slots, numbers: 1000 });
    for text in ["1x18446744073709551615", "1+1x18446744073709551615", "{{count:1}}x18446744073709551615 2"] {
        assert_eq!(within(text, 3).expect(text).len(), 3, "{text}");
        assert!(within(text, usize::MAX).is_err(), "{text}");
    }
    assert!(within("1x9 oops", 3).is_err());
    assert!(within("{{buckets:[1 1 1 1]}}x60", usize::MAX).is_err());
}

#[test]
fn labels_are_read_as_in_promql() {
    let goods = r#"a|a:b{c='d',}|{}|{"a b"}|a{__name__="b"}|sum{on="x"}|a{ b = `c` , d="e" }"#;
    for good in goods.split('|') {
        assert!(labels(good).is_ok_and(|(_, _, rest)| rest.is_empty()), "{good}");
    }
    assert_eq!(labels("a{__name__=\"b\"}").expect("valid").0.metric(), "a");
    let bads = r#"a{b}|a{,}|a{b="c" d="e"}|{"a","b"}|a{b="c",b="d"}|NaN|a{1="x"}|a{b=~"c"}|a{b="c""#;
    for bad in bads.split('|') {
        assert!(labels(bad).is_err(), "{bad}");
    }
    // What is no name is left, and refused by whoever reads on.
    assert!(["1a", "a@b", "a.b"].iter().all(|text| labels(text).is_ok_and(|(_, _, rest)| !rest.is_empty())));
}

/// What promtool shows of the same.
#[test]
fn zero_buckets_are_as_wide_as_both_can_be() {
    let second = |text: &str| match &items(text).expect(text)[1].value {
        Some(Value::Histogram(h)) => crate::unit_tests::histogram_text(h),
        other => panic!("{text}: {other:?}"),
    };
    let check = |text: &str, expected: &str| assert_eq!(second(text), expected, "{text}");
    check(
        "{{sum:100}}+{{count:3 z_bucket:2 z_bucket_w:0.01 buckets:[1]}}x1",
        "{{count:3 sum:100 z_bucket:2 z_bucket_w:0.01 buckets:[1]}}",
    );
    // A bucket up to 1 that the wider zero bucket reaches into is taken in as a whole.
    check(
        "{{count:3 buckets:[2 1]}}+{{count:1 z_bucket:1 z_bucket_w:0.6}}x1",
        "{{count:4 z_bucket:3 z_bucket_w:1 offset:1 buckets:[1]}}",
    );
    check(
        "{{count:1 z_bucket:1 z_bucket_w:0.6}}+{{count:2 buckets:[1 2] n_buckets:[3]}}x1",
        "{{count:3 z_bucket:5 z_bucket_w:1 offset:1 buckets:[2]}}",
    );
}

#[test]
fn histograms_are_as_strict_as_upstream() {
    let goods = "{{}}|{{ }}|{{SUM:-Inf count:NaN}}|{{buckets:[1 -2.5  3 ] offset:-1 }}|{{sum:1}}x2 5";
    for good in goods.split('|') {
        assert!(items(good).is_ok(), "{good}");
    }
    let bads = "{{sum:1 sum:2}}|{{buckets:[]}}|{{buckets:1}}|{{sum:[1]}}|{{schema:+1}}|{{count:5m}}|{{sum:+1}}\
        |{{ sum:1}}|{{sum :1}}|{{sum: 1}}|{{buckets:[ 1]}}|{{buckets:[1]sum:2}}|{{sum:stale}}|{{sum:.5}}\
        |{{offset:1.5}}|{{buckets:[1 2}}";
    for bad in bads.split('|') {
        assert!(items(bad).is_err(), "{bad}");
    }
}

#[test]
fn sums_of_histograms_keep_within_their_numbers() {
    let fine = "{{buckets:[1]}}+{{schema:2000000000 buckets:[1]}}x2";
    assert!(items(fine).is_err_and(|e| e.contains("invalid schema")));
    assert!(items("{{schema:-2147483648}}+{{schema:8}}x2").is_err());
    let edge = "{{offset:2147483647 buckets:[1 1]}}+{{offset:-2147483648 buckets:[1 1]}}x2";
    assert!(items(edge).is_ok_and(|slots| slots.len() == 3));
    assert!(start_items("x3").is_err() && start_items("éx3").is_err());
}

#[test]
fn histograms_and_labels() {
    let (set, starts, rest) = labels(r#"m{a="b", "c d"="\"x"}@st 1"#).unwrap();
    assert_eq!((set.metric(), set.get("c d"), starts, rest), ("m", "\"x", true, "1"));
    assert_eq!(labels(r#"{"a.b", c="d"} 1"#).unwrap().0.metric(), "a.b");
    let slots = items("{{schema:0 count:3 buckets:[1 2] counter_reset_hint:gauge}}+{{buckets:[1]}}x1 _").unwrap();
    assert_eq!(slots.len(), 3);
    let Some(Value::Histogram(h)) = &slots[1].value else { panic!() };
    assert_eq!((h.positive.as_slice(), slots[0].hinted), (&[2.0, 2.0][..], true));
    assert_eq!(
        start_items("_ -30s-1mx2 -1ms").unwrap(),
        [None, Some(-30_000), Some(-90_000), Some(-150_000), Some(-1)]
    );
}
