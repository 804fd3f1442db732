//! Which stored secret `<secret>` stands for. In a list it goes with its item, not with the number of that: who removes
//! the first of two webhooks must not tell the second by the address of the first.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use serde_json::{Map, Value, json};

use crate::fields::SECRET;

/// Splits the place of a secret into the list at the top that it is in, the number of the item, and the rest.
fn parts(place: &str) -> Option<(&str, usize, &str)> {
    let (list, rest) = place.strip_prefix('/')?.split_once('/')?;
    let end = rest.find('/').unwrap_or(rest.len());
    let (number, rest) = rest.split_at(end);
    Some((list, number.parse().ok()?, rest))
}

/// Gives the stored places that the placeholders of a new body stand for, by their own places. One is missing where
/// that is not clear, or nothing is stored.
pub(super) fn kept_places(stored: &Map<String, Value>, body: &Value, places: &[String]) -> BTreeMap<String, String> {
    let keeps = |place: &&String| body.pointer(place).is_some_and(|given| given == SECRET);
    let mut hidden = body.clone();
    for place in places {
        if let Some(slot) = hidden.pointer_mut(place) {
            *slot = json!(SECRET);
        }
    }
    let mut keeping: BTreeMap<&str, BTreeSet<usize>> = BTreeMap::new();
    for (list, number, _) in places.iter().filter(keeps).filter_map(|place| parts(place)) {
        keeping.entry(list).or_default().insert(number);
    }
    let items = |list: Option<&Value>| list.and_then(Value::as_array).cloned().unwrap_or_default();
    let former: BTreeMap<&str, BTreeMap<usize, usize>> = keeping
        .into_iter()
        .map(|(list, numbers)| (list, former_items(&items(stored.get(list)), &items(hidden.get(list)), &numbers)))
        .collect();
    let whole = Value::Object(stored.clone());
    let kept = |place: &String| match parts(place) {
        None => lost_nothing(&whole, &hidden, place).then(|| place.clone()),
        Some((list, number, rest)) => {
            let former = *former.get(list)?.get(&number)?;
            let item = |list: Option<&Value>, number: usize| list.and_then(|list| list.get(number)).cloned();
            let (was, is) = (item(stored.get(list), former)?, item(hidden.get(list), number)?);
            lost_nothing(&was, &is, rest).then(|| format!("/{list}/{former}{rest}"))
        }
    };
    places.iter().filter(keeps).filter_map(|place| Some((place.clone(), kept(place)?))).collect()
}

/// Says whether the lists that a place leads through have no fewer members than before: those of headers with secret
/// values.
fn lost_nothing(was: &Value, is: &Value, rest: &str) -> bool {
    let count = |item: &Value, above: &str| item.pointer(above).and_then(Value::as_array).map_or(0, Vec::len);
    rest.match_indices('/').all(|(end, _)| count(was, &rest[..end]) <= count(is, &rest[..end]))
}

/// Items that look the same, by their numbers.
#[derive(Default)]
struct Alike {
    stored: BTreeSet<usize>,
    /// New ones that keep secrets.
    keeping: Vec<usize>,
}

/// Says of items that keep secrets which of the stored ones each of them was: one that looks the same, the one at its
/// place first; or the one at its place, unless some were removed, since then it may have been another. Where one of
/// several that look the same is gone, nobody can tell which.
fn former_items(stored: &[Value], now: &[Value], keeping: &BTreeSet<usize>) -> BTreeMap<usize, usize> {
    let mut groups: HashMap<&Value, Alike> = HashMap::new();
    for (former, item) in stored.iter().enumerate() {
        groups.entry(item).or_default().stored.insert(former);
    }
    let mut changed = BTreeSet::new();
    for &number in keeping {
        match now.get(number).and_then(|item| groups.get_mut(item)) {
            Some(group) => group.keeping.push(number),
            None => {
                changed.insert(number);
            }
        }
    }
    let all_stay = now.len() >= stored.len();
    let stays = |place: &usize, item: &Value| all_stay && (changed.contains(place) || now.get(*place) == Some(item));
    let (mut found, mut at_places) = (BTreeMap::new(), Vec::new());
    for (item, Alike { stored: mut free, keeping }) in groups {
        let are_fewer = keeping.len() < free.len();
        if are_fewer && !free.iter().all(|place| stays(place, item)) {
            continue;
        }
        let (same, others): (Vec<usize>, Vec<usize>) = keeping.into_iter().partition(|number| free.remove(number));
        found.extend(same.into_iter().map(|number| (number, number)));
        for number in others.into_iter().filter(|_| !are_fewer) {
            match free.pop_first() {
                Some(former) => {
                    found.insert(number, former);
                }
                None => at_places.push(number),
            }
        }
    }
    let taken: BTreeSet<usize> = found.values().copied().collect();
    let is_free = |number: &usize| all_stay && *number < stored.len() && !taken.contains(number);
    found.extend(changed.into_iter().chain(at_places).filter(is_free).map(|number| (number, number)));
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Items are written as their channel; one in capitals names its secret, others keep one.
    fn kept(stored: &str, now: &str) -> String {
        let item = |name: &str, url: &str| json!({"channel": name.to_lowercase(), "url": url});
        let list = |names: &str, url: &dyn Fn(&str) -> &'static str| -> Value {
            names.split_whitespace().map(|name| item(name, url(name))).collect()
        };
        let own = |name: &str| if name.chars().all(char::is_uppercase) { "http://new" } else { SECRET };
        let stored = json!({"hooks": list(stored, &|_| SECRET)});
        let now = json!({"hooks": list(now, &own)});
        let count = now["hooks"].as_array().unwrap().len();
        let places: Vec<String> = (0..count).map(|n| format!("/hooks/{n}/url")).collect();
        let found = kept_places(stored.as_object().unwrap(), &now, &places);
        let shown = places.iter().map(|place| {
            let at = found.get(place).and_then(|former| former.split('/').nth(2));
            at.unwrap_or("-").to_owned()
        });
        shown.collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn secrets_go_with_their_items() {
        for (stored, now, expected) in [
            ("a b", "a b", "0 1"),
            ("a b", "b", "1"),
            ("a b", "b a", "1 0"),
            ("a b c", "c a", "2 0"),
            // What is new says its own secret.
            ("a b", "N a b", "- 0 1"),
            ("a b", "a b N", "0 1 -"),
            ("a b", "A b", "- 1"),
            ("a", "A a", "- 0"),
            // Alike ones stay where they are.
            ("a a", "a a", "0 1"),
            ("a a b", "a b a", "0 2 1"),
            // A changed one is the one at its place, as long as none is gone.
            ("a b", "x b", "0 1"),
            ("a b", "x y", "0 1"),
            ("a b", "x b N", "0 1 -"),
            ("a b", "N x b", "- - 1"),
            ("a b", "x", "-"),
            ("a b c", "x c", "- 2"),
            ("", "a", "-"),
            ("a", "a b", "0 -"),
            ("a b", "a a", "0 1"),
            // Which of some that look alike is gone nobody can tell, unless the others are where they were.
            ("a a", "a", "-"),
            ("a a b", "a b", "- 2"),
            ("a a b", "a b N", "- 2 -"),
            ("a a", "a N", "- -"),
            ("a a", "N a a", "- 1 0"),
            ("a a", "a x", "0 1"),
            ("a a", "x a", "0 1"),
            ("a a", "a A", "0 -"),
            ("a a", "A x a", "- 1 -"),
        ] {
            assert_eq!(kept(stored, now), expected, "{stored} | {now}");
        }
    }

    /// What is left of a list within an item may be any of its members.
    #[test]
    fn lists_within_items() {
        let hook = |secrets: &[&str]| json!({"hooks": [{"x": {"secrets": secrets}}]});
        let kept = |stored: &[&str], now: &[&str]| {
            let (stored, now) = (hook(stored), hook(now));
            let count = now["hooks"][0]["x"]["secrets"].as_array().unwrap().len();
            let places: Vec<String> = (0..count).map(|n| format!("/hooks/0/x/secrets/{n}")).collect();
            let kept = kept_places(stored.as_object().unwrap(), &now, &places);
            assert!(kept.iter().all(|(place, former)| place == former));
            kept.len()
        };
        assert_eq!(kept(&[SECRET, SECRET], &[SECRET, SECRET]), 2);
        assert_eq!(kept(&[SECRET], &[SECRET, "new"]), 1);
        assert_eq!(kept(&[SECRET, SECRET], &[SECRET]), 0);
    }

    #[test]
    fn places_outside_of_lists_stay() {
        let of = |body: Value, places: &[&str]| {
            let places: Vec<String> = places.iter().map(|place| (*place).to_owned()).collect();
            kept_places(&Map::new(), &body, &places).into_iter().collect::<Vec<_>>()
        };
        let same = |place: &str| vec![(place.to_owned(), place.to_owned())];
        assert_eq!(of(json!({"options": {"key": SECRET}}), &["/options/key"]), same("/options/key"));
        assert_eq!(of(json!({"key": SECRET, "other": "given"}), &["/key", "/other", "/none"]), same("/key"));
        assert!(of(json!({"hooks": [{"key": SECRET}]}), &["/hooks/0/key"]).is_empty());
        let header = |secrets: &[&str]| json!({"http_config": {"x": {"secrets": secrets}}});
        let (two, one) = (header(&[SECRET, SECRET]), header(&[SECRET]));
        let place = ["/http_config/x/secrets/0".to_owned()];
        let kept = |now: &Value| kept_places(two.as_object().unwrap(), now, &place).len();
        assert_eq!((kept(&two), kept(&one)), (1, 0), "the first of two that is left may be either");
        assert_eq!(parts("/a_configs/12/http_config/x/0"), Some(("a_configs", 12, "/http_config/x/0")));
        assert_eq!([parts("/a"), parts("/a/b/c"), parts(""), parts("/a/0")], [None, None, None, Some(("a", 0, ""))]);
    }
}
