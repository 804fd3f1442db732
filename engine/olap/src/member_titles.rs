//! Titles of members from their names: `errorCount` becomes "Error Count" (`olap-api.md` 6.3).

/// Words that stay small inside of a title.
const SMALL: [&str; 22] = [
    "a", "an", "and", "at", "but", "by", "for", "from", "in", "into", "nor", "of", "off", "on", "onto", "or", "out",
    "over", "so", "the", "to", "with",
];

/// Gives the title of a name.
pub(crate) fn of_name(name: &str) -> String {
    let titled = words(name).into_iter().enumerate().map(|(i, word)| {
        let lower = word.to_lowercase();
        if lower == "id" {
            "ID".to_owned()
        } else if lower == "ids" {
            "IDs".to_owned()
        } else if i > 0 && SMALL.contains(&lower.as_str()) {
            lower
        } else {
            let mut chars = lower.chars();
            chars.next().map(|c| c.to_uppercase().collect::<String>() + chars.as_str()).unwrap_or_default()
        }
    });
    titled.collect::<Vec<_>>().join(" ")
}

/// Splits a name at underscores and where a small letter or digit is followed by a capital one, and behind digits.
fn words(name: &str) -> Vec<String> {
    let mut words: Vec<String> = Vec::new();
    let chars: Vec<char> = name.chars().collect();
    let mut word = String::new();
    for (i, c) in chars.iter().enumerate() {
        if *c == '_' || c.is_whitespace() {
            words.push(std::mem::take(&mut word));
            continue;
        }
        let before = i.checked_sub(1).map(|j| chars[j]);
        let after = chars.get(i + 1);
        let begins = c.is_uppercase()
            && before
                .is_some_and(|b| b.is_lowercase() || b.is_ascii_digit() || after.is_some_and(|a| a.is_lowercase()));
        let behind = c.is_alphabetic() && before.is_some_and(|b| b.is_ascii_digit());
        if (begins || behind) && !word.is_empty() {
            words.push(std::mem::take(&mut word));
        }
        word.push(*c);
    }
    words.push(word);
    words.retain(|w| !w.is_empty());
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn titles() {
        let check = |name: &str, expected: &str| assert_eq!(of_name(name), expected, "{name}");
        check("errorCount", "Error Count");
        check("id", "ID");
        check("orderIds", "Order IDs");
        check("acknowledgedBy", "Acknowledged by");
        check("startsAt", "Starts at");
        check("five_minutes", "Five Minutes");
        check("count3d", "Count3 D");
        check("avgSpansPerService", "Avg Spans Per Service");
        check("Alerts_firingCount", "Alerts Firing Count");
    }
}
