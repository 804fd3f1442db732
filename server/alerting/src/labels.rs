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
    let (x, y) = (a.iter().count(), b.iter().count());
    x.cmp(&y).then_with(|| {
        let names: std::collections::BTreeSet<&str> = a.iter().chain(b.iter()).map(|(name, _)| name).collect();
        for name in names {
            let has = |set: &LabelSet| set.iter().any(|(n, _)| n == name);
            match (has(a), has(b)) {
                (false, true) => return Ordering::Less,
                (true, false) => return Ordering::Greater,
                _ => {}
            }
            let order = a.get(name).cmp(b.get(name));
            if order != Ordering::Equal {
                return order;
            }
        }
        Ordering::Equal
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
}
