use std::time::{Duration, Instant};

use super::*;
use crate::cancellation::Watch;
use crate::matcher::{affordable, builder, translate};
use crate::read_stats::Gate;
use crate::{Error, ErrorKind, Result};

/// A query that ends at a time.
#[derive(Debug)]
struct Until(Instant);

impl Gate for Until {
    fn take(&self, _: usize) -> Result<()> {
        Ok(())
    }

    fn give_back(&self, _: usize) {}

    fn check(&self) -> Result<()> {
        if Instant::now() < self.0 { Ok(()) } else { Err(Error::new(ErrorKind::Timeout, "it is over")) }
    }
}

fn watched(pattern: &str) -> Option<WatchedRegex> {
    let text = translate(pattern).ok()?;
    affordable(&text).ok()?;
    builder(&text).build().ok().map(WatchedRegex::new)
}

/// Conditions with the same text are one test, whether one of them ran before or not.
#[test]
fn what_it_met_is_no_part_of_how_it_is_shown() {
    let (fresh, used) = (watched("a.*b").expect("a pattern"), watched("a.*b").expect("a pattern"));
    assert!(used.is_match(&thrown(64 << 10)));
    assert_eq!(format!("{fresh:?}"), format!("{used:?}"));
    assert_ne!(format!("{fresh:?}"), format!("{:?}", watched("a.*c").expect("a pattern")));
}

/// A text of letters `a` and `b` as a die throws them, which makes machines meet the most states.
fn thrown(bytes: usize) -> String {
    let mut state = 7_u64;
    let mut letter = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        if state >> 63 == 0 { 'a' } else { 'b' }
    };
    (0..bytes).map(|_| letter()).collect()
}

/// Twenty kinds of patterns in five sizes.
fn hostile() -> Vec<String> {
    let kinds: [fn(usize) -> String; 20] = [
        |n| format!("(a*)*{}$", "b".repeat(n)),
        |n| format!("((a*)*b*){{0,{n}}}z"),
        |n| format!("(.{{{n}}}){{{n}}}z"),
        |n| format!("(?:[ab]{{1,{n}}}){{1,40}}[xz]"),
        |n| format!("(?i)(?:.{{0,{n}}}[ab]){{20}}[xz]"),
        |n| format!("[ab]*a[ab]{{{n}}}z"),
        |n| format!("(a|b)*a(a|b){{{n}}}c"),
        |n| format!("(a?){{{n}}}a{{{n}}}z"),
        |n| format!("(?:a|aa|ab){{{n}}}z"),
        |n| format!("(.*)(.*)(.*)(.*)[xz]{{{n}}}"),
        |n| format!("({})+z", (0..n).map(|i| format!("a{{{}}}b", i % 50)).collect::<Vec<_>>().join("|")),
        |n| (0..n * 20).map(|i| format!("word{i}")).collect::<Vec<_>>().join("|"),
        |n| format!(r"(\w+\s?){{{n}}}z$"),
        |n| format!(r"(?:\pL{{1,{n}}}\pN?)+!"),
        |n| format!("(?:(?:a.?){{1,{n}}}b.?){{1,10}}z"),
        |n| format!("(?s)a.{{{n}}}b.{{{n}}}z"),
        |n| format!("{}a{}z", "(".repeat(n), ")".repeat(n)),
        |n| format!("(?:a+b+){{{n}}}(?:b+a+){{{n}}}z"),
        |n| format!("[^x]{{{n},}}x[^z]{{{n},}}z"),
        |n| format!("(?:[ab][ab]?){{{n},1000}}z"),
    ];
    kinds.iter().flat_map(|kind| [1, 5, 20, 100, 500].map(kind)).collect()
}

/// Measures a time until it is below its bound: what is slow by itself is so each time, whatever else the machine does.
fn within(bound: Duration, pattern: &str, mut measure: impl FnMut() -> Duration) {
    let mut best = Duration::MAX;
    for _ in 0..4 {
        best = best.min(measure());
        if best < bound {
            return;
        }
    }
    panic!("{pattern:.80}: {best:?}");
}

#[test]
fn a_hundred_hostile_patterns_are_refused_or_end_within_a_second_on_a_mebibyte() {
    const ENDS: Duration = Duration::from_millis(400);
    let text = thrown(1 << 20);
    let patterns = hostile();
    assert_eq!(patterns.len(), 100);
    for pattern in patterns {
        within(Duration::from_secs(1), &pattern, || {
            let began = Instant::now();
            let Some(regex) = watched(&pattern) else { return began.elapsed() };
            let began = Instant::now();
            let watch = Watch::new(Arc::new(Until(began + ENDS)));
            let found = watch.over(|| regex.is_match(&text));
            let took = began.elapsed();
            assert!(!found || pattern.starts_with("(a*)*"), "{pattern:.80} matches");
            took
        });
    }
}

#[test]
fn patterns_that_come_to_rest_answer_without_an_end() {
    let text = thrown(1 << 20);
    for pattern in ["(?:[ab]{1,50}){1,40}[xz]", "(?i)(?:.{0,30}[ab]){20}[xz]", "(.{10}){10}z", "(a|b)*[xz]{500}"] {
        let regex = watched(pattern).expect("a pattern");
        let watch = Watch::new(Arc::new(Until(Instant::now() + Duration::from_hours(1))));
        within(Duration::from_secs(10), pattern, || {
            let began = Instant::now();
            let found =
                [text.clone(), format!("{text}x{}", "z".repeat(500))].map(|t| watch.over(|| regex.is_match(&t)));
            assert_eq!(found, [false, true], "{pattern}");
            began.elapsed()
        });
    }
}

#[test]
fn the_machine_says_what_the_crate_says() {
    let text = thrown(400);
    let texts = [text.as_str(), "", "a", "abz", "a b\nc", "\u{e4}\u{f6} \u{1f600}z", "x ab", "ABZ", "ab\n", "za"];
    let patterns = ["z", "^z", "z$", "a.?b", "^$", "", "(?m)^c$", r"\bab\b", "(?i)abz", "[^a]{3}", "(?s)b.c"];
    for pattern in patterns.into_iter().chain(["a[ab]{30}b", "\u{e4}.", r"\pL\pL ", "(?:a|b)*$", r"\x7a\141*"]) {
        let regex = watched(pattern).expect("a pattern");
        let machine = machine(regex.as_str()).expect("a machine");
        for text in texts {
            let said = search(&machine, text, 7);
            assert!(said.is_none_or(|said| said == regex.regex.is_match(text)), "{pattern} on {text:?}: {said:?}");
        }
    }
}

#[test]
fn patterns_with_flags_beside_their_text_are_left_to_the_crate() {
    let folded = WatchedRegex::with_flags(builder("a{9}z").case_insensitive(true).build().expect("a pattern"));
    let text = format!("{}AAAAAAAAAZ", thrown(1 << 21));
    assert!(folded.is_match(&text) && folded.dfa(1 << 20).is_none());
}

/// Places of all groups of all matches, as the crate gives them.
fn of_the_crate(regex: &WatchedRegex, text: &str) -> Vec<Vec<Option<(usize, usize)>>> {
    let place = |group: Option<regex::Match<'_>>| group.map(|group| (group.start(), group.end()));
    regex.regex.captures_iter(text).map(|captures| captures.iter().map(place).collect()).collect()
}

#[test]
fn groups_are_found_where_the_crate_finds_them() {
    let text = thrown(200);
    let texts = [text.as_str(), "", "a", "abz", "a b\nc", "\u{e4}\u{f6} \u{1f600}z", "x ab", "k=v k2=v2,k3=", "aaa"];
    let patterns = [
        "",
        "a*",
        "(a*)",
        "(a*?)(b*)",
        "(a|ab)(b|)z?",
        "^(a)",
        "(a)$",
        r"(\w+)=(\w*)",
        r"\b(a)(?:b)?\b",
        "(?m)^(.*)$",
        "(?:(a)|(b))*",
        "((a)|b)+",
        "(.)",
        r"(\pL)|( )",
        "(?i)(A+)(B+)?",
        "(x)?(y)?",
        "(?s)(.*)(b)",
        "(a+?)(a*)",
    ];
    for pattern in patterns {
        let regex = watched(pattern).expect("a pattern");
        for text in texts {
            let wanted = of_the_crate(&regex, text);
            let groups = regex.regex.captures_len();
            let all = |places: &Places| (0..groups).map(|group| places.get(group)).collect::<Vec<_>>();
            let mut found = Vec::new();
            regex.each(text, &mut regex.group_places(), |places| {
                found.push(all(places));
                true
            });
            assert_eq!(found, wanted, "{pattern} on {text:?}");
            let mut whole = Vec::new();
            regex.each(text, &mut regex.match_places(), |places| {
                whole.push(places.get(0));
                true
            });
            assert_eq!(whole, wanted.iter().map(|groups| groups[0]).collect::<Vec<_>>(), "{pattern} on {text:?}");
            // Each match again, step by step.
            let nfa = capture_groups::states(regex.as_str()).expect("states");
            let (mut scratch, mut own) = (capture_groups::Scratch::new(&nfa, 2 * groups), vec![0; 2 * groups]);
            for (from, _) in text.char_indices() {
                let mut places = regex.group_places();
                let has = regex.find(text, from, &mut places);
                assert_eq!(
                    capture_groups::search(&nfa, &mut scratch, text, from, &mut own),
                    Some(has),
                    "{pattern} on {text:?}"
                );
                if has {
                    let place = |group: usize| {
                        let (start, end) = (own[2 * group], own[2 * group + 1]);
                        (start != capture_groups::NOWHERE && end != capture_groups::NOWHERE).then_some((start, end))
                    };
                    let stepped: Vec<_> = (0..groups).map(place).collect();
                    assert_eq!(stepped, all(&places), "{pattern} on {text:?} from {from}");
                }
            }
        }
    }
}

#[test]
fn groups_of_long_texts_end_with_their_query() {
    const ENDS: Duration = Duration::from_millis(400);
    let text = thrown(1 << 20);
    let patterns = ["((?:[ab]{1,50}){1,40})([ab]*)$", "(a|b)*?a((?:a|b){100})b", "(.*)(.*)(.*)b", "([ab])|([ab].*z)"];
    for pattern in patterns {
        let regex = watched(pattern).expect("a pattern");
        within(Duration::from_secs(2), pattern, || {
            let began = Instant::now();
            let watch = Watch::new(Arc::new(Until(began + ENDS)));
            watch.over(|| regex.each(&text, &mut regex.group_places(), |_| true));
            began.elapsed()
        });
    }
}

#[test]
fn empty_matches_behind_others_are_those_of_postgresql_or_of_go() {
    let check = |pattern: &str, text: &str, of_postgresql: &[(usize, usize)], of_go: &[(usize, usize)]| {
        let regex = watched(pattern).expect("a pattern");
        let (mut all, mut apart) = (Vec::new(), Vec::new());
        let mut places = regex.match_places();
        regex.each_from(text, 0, &mut places, |places| {
            all.extend(places.get(0));
            true
        });
        regex.each(text, &mut places, |places| {
            apart.extend(places.get(0));
            true
        });
        assert_eq!((&all[..], &apart[..]), (of_postgresql, of_go), "{pattern} in {text}");
    };
    check("b*", "abc", &[(0, 0), (1, 2), (2, 2), (3, 3)], &[(0, 0), (1, 2), (3, 3)]);
    check("a*", "aab", &[(0, 2), (2, 2), (3, 3)], &[(0, 2), (3, 3)]);
    check("", "äb", &[(0, 0), (2, 2), (3, 3)], &[(0, 0), (2, 2), (3, 3)]);
    check("c|$", "c", &[(0, 1), (1, 1)], &[(0, 1)]);
}

#[test]
fn templates_are_those_of_the_crate() {
    let regex = watched("(?P<key>k[0-9]*)=(v)?").expect("a pattern");
    let text = "a k=v k2= b";
    for template in ["$1", "${1}x", "$key:$2$3", "$$1", "$", "${key}-${2}", "x"] {
        let (mut own, mut wanted) = (String::new(), String::new());
        regex.each(text, &mut regex.group_places(), |places| {
            regex.expand(text, places, template, &mut own);
            true
        });
        regex.regex.captures_iter(text).for_each(|captures| captures.expand(template, &mut wanted));
        assert_eq!(own, wanted, "{template}");
    }
}
