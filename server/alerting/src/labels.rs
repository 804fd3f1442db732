//! Label sets of alerts: identity, order, groups.

use std::cmp::Ordering;

use quiver_types::LabelSet;

use crate::text::quote;

/// 64-bit FNV-1a.
pub(crate) fn fnv64(bytes: &[u8]) -> u64 {
    fnv64_from(0xcbf2_9ce4_8422_2325, bytes)
}

fn fnv64_from(state: u64, bytes: &[u8]) -> u64 {
    bytes.iter().fold(state, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3))
}

/// Gives the fingerprint of an alert as Alertmanager does: name, 0xFF, value, 0xFF of each label in order of names.
pub fn fingerprint(labels: &LabelSet) -> u64 {
    labels.iter().fold(fnv64(&[]), |hash, (name, value)| {
        let hash = fnv64_from(fnv64_from(hash, name.as_bytes()), &[0xff]);
        fnv64_from(fnv64_from(hash, value.as_bytes()), &[0xff])
    })
}

/// Writes a fingerprint: 16 hex digits.
pub fn fingerprint_text(fingerprint: u64) -> String {
    format!("{fingerprint:016x}")
}

/// Writes labels as group keys do: `{a="b", c="d"}`.
pub fn show(labels: &LabelSet) -> String {
    let shown: Vec<String> = labels.iter().map(|(name, value)| format!("{name}={}", quote(value))).collect();
    format!("{{{}}}", shown.join(", "))
}

/// The order of label sets in Alertmanager: fewer labels first, then values by label name, a missing one before all.
pub fn compare(a: &LabelSet, b: &LabelSet) -> Ordering {
    // Both go by name, and are walked once: an alert may have as many labels as fit in 64 KiB.
    a.iter().count().cmp(&b.iter().count()).then_with(|| match a.iter().zip(b.iter()).find(|(x, y)| x != y) {
        Some(((x, of_x), (y, of_y))) if x == y => of_x.cmp(of_y),
        // The smaller name is one that the other set lacks.
        Some(((x, _), (y, _))) => y.cmp(x),
        None => Ordering::Equal,
    })
}

/// The order of alerts in messages: by `job`, then `instance` (without: last), then as label sets.
pub fn compare_alerts(a: &LabelSet, b: &LabelSet) -> Ordering {
    for name in ["job", "instance"] {
        let order = match (a.get(name), b.get(name)) {
            ("", "") => Ordering::Equal,
            ("", _) => Ordering::Greater,
            (_, "") => Ordering::Less,
            (x, y) => x.cmp(y),
        };
        if order != Ordering::Equal {
            return order;
        }
    }
    compare(a, b)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn identity_and_order() {
        let set = |pairs: &[(&str, &str)]| LabelSet::from_pairs(pairs.iter().copied());
        assert_eq!(fingerprint_text(fingerprint(&LabelSet::default())), "cbf29ce484222325");
        assert_eq!(fingerprint_text(fingerprint(&set(&[("foo", "bar")]))), "3fff2c2d7595e046");
        assert_eq!(show(&set(&[("job", "web"), ("alertname", "Hi\"gh")])), "{alertname=\"Hi\\\"gh\", job=\"web\"}");
        let mut alerts = [
            set(&[("a", "2")]),
            set(&[("job", "x"), ("b", "1")]),
            set(&[("a", "1")]),
            set(&[("job", "w"), ("c", "1")]),
        ];
        assert_eq!(compare(&set(&[("b", "1")]), &set(&[("a", "1")])), Ordering::Less);
        alerts.sort_by(compare_alerts);
        assert_eq!(
            alerts.map(|a| show(&a)),
            ["{c=\"1\", job=\"w\"}", "{b=\"1\", job=\"x\"}", "{a=\"1\"}", "{a=\"2\"}"]
        );
    }

    /// Fingerprints are those of Prometheus' label sets, so links and kept states of Alertmanager find their alerts.
    #[test]
    fn fingerprints() {
        let of = |pairs: &[(&str, &str)]| fingerprint_text(fingerprint(&LabelSet::from_pairs(pairs.iter().copied())));
        // The hash of FNV itself, by its published examples.
        for (text, expected) in
            [("", 0xcbf2_9ce4_8422_2325), ("a", 0xaf63_dc4c_8601_ec8c), ("foobar", 0x8594_4171_f739_67e8)]
        {
            assert_eq!(fnv64(text.as_bytes()), expected, "{text}");
        }
        let all = [
            of(&[("a", "b")]),
            of(&[("ab", "")]),
            of(&[("", "ab")]),
            of(&[("a", "bc")]),
            of(&[("ab", "c")]),
            of(&[("a", "b"), ("c", "d")]),
            of(&[("a", "d"), ("c", "b")]),
        ];
        let own: std::collections::BTreeSet<&String> = all.iter().collect();
        assert_eq!(own.len(), all.len(), "where names end counts: {all:?}");
        assert_eq!(of(&[("a", "1"), ("b", "2")]), of(&[("b", "2"), ("a", "1")]), "the order of pairs does not");
        assert_eq!(of(&[("a", "1"), ("b", "")]), of(&[("a", "1")]), "an empty label is none");
        assert_eq!(fingerprint_text(0xf), "000000000000000f");
    }

    #[test]
    fn sets_of_many_labels_are_ordered() {
        let names: Vec<String> = (0..14_000).map(|n| format!("l{n:05}")).collect();
        let set = |last: &str| LabelSet::from_pairs(names.iter().map(|name| (name.as_str(), "1")).chain([("z", last)]));
        let mut sets: Vec<LabelSet> = ["c", "a", "d", "b"].map(set).to_vec();
        sets.sort_by(compare_alerts);
        assert_eq!(sets.iter().map(|set| set.get("z")).collect::<String>(), "abcd");
    }

    #[test]
    fn orders() {
        let set = |text: &str| {
            LabelSet::from_pairs(text.split(' ').filter(|t| !t.is_empty()).map(|t| t.split_once('=').expect(t)))
        };
        for (a, b, expected) in [
            ("", "", Ordering::Equal),
            ("", "a=1", Ordering::Less),
            ("b=9", "a=1 b=1", Ordering::Less),
            ("a=1", "a=2", Ordering::Less),
            ("a=10", "a=9", Ordering::Less),
            ("a=1", "b=1", Ordering::Greater),
            ("a=1 c=1", "b=1 c=1", Ordering::Greater),
            ("a=1 b=2", "a=1 b=2", Ordering::Equal),
            ("a=1 b=2", "a=1 b=3", Ordering::Less),
        ] {
            assert_eq!(compare(&set(a), &set(b)), expected, "{a} | {b}");
            assert_eq!(compare(&set(b), &set(a)), expected.reverse(), "{b} | {a}");
        }
        for (a, b, expected) in [
            ("job=a", "job=b", Ordering::Less),
            ("job=a z=1", "job=b", Ordering::Less),
            ("job=z", "", Ordering::Less),
            ("job=a instance=2", "job=a instance=1", Ordering::Greater),
            ("job=a instance=2", "job=a", Ordering::Less),
            ("instance=1", "instance=2 a=1", Ordering::Less),
            ("a=1", "a=1 b=1", Ordering::Less),
            ("job=a instance=1 x=1", "job=a instance=1 x=2", Ordering::Less),
        ] {
            assert_eq!(compare_alerts(&set(a), &set(b)), expected, "{a} | {b}");
            assert_eq!(compare_alerts(&set(b), &set(a)), expected.reverse(), "{b} | {a}");
        }
    }
}
