//! Texts with `<name>` in them, for `extract` and `format`.

use crate::kernels::values::code;

/// A text and, mostly, the field that follows it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Step {
    /// The text before the field.
    pub text: String,
    /// The field; empty for `<>`, `<_>`, `<*>` and after the last text.
    pub field: String,
    /// What stands before the field and a colon.
    pub option: String,
}

/// Cuts a template into steps. Entities such as `&lt;` stand for their characters in texts.
///
/// # Errors
/// The reason: a `<` without its `>`, or a field with `*`.
pub fn parse(template: &str) -> Result<Vec<Step>, String> {
    let mut steps = Vec::new();
    let mut rest = template;
    while !rest.is_empty() {
        let Some(open) = rest.find('<') else {
            steps.push(Step { text: unescape_entities(rest), ..Step::default() });
            break;
        };
        let tail = &rest[open + 1..];
        let close = tail.find('>').ok_or_else(|| format!("missing `>` after `<{tail}`"))?;
        let (option, field) = match tail[..close].split_once(':') {
            Some((option, field)) => (option.trim(), field.trim()),
            None => ("", tail[..close].trim()),
        };
        let field = if field == "_" || field == "*" { "" } else { field };
        if field.ends_with('*') {
            return Err(format!("the field `{field}` of a template cannot be a group of fields"));
        }
        steps.push(Step { text: unescape_entities(&rest[..open]), field: field.to_owned(), option: option.to_owned() });
        rest = &tail[close + 1..];
    }
    Ok(steps)
}

/// Gives the names of the fields, each once, in their order.
pub fn fields(template: &str) -> Vec<String> {
    crate::rows::unique(parse(template).unwrap_or_default().into_iter().map(|step| step.field))
        .into_iter()
        .filter(|name| !name.is_empty())
        .collect()
}

/// Longest name of an entity.
const ENTITY_BYTES_MAX: usize = 10;

/// Replaces the entities of HTML that texts need.
fn unescape_entities(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find('&') {
        out.push_str(&rest[..at]);
        let tail = &rest[at + 1..];
        // Not looked for in all that follows: it would be, again from each `&`.
        let end = tail.bytes().take(ENTITY_BYTES_MAX + 1).position(|b| b == b';');
        let entity = end.and_then(|end| Some((entity(&tail[..end])?, end)));
        if let Some((c, end)) = entity {
            out.push(c);
            rest = &tail[end + 1..];
        } else {
            out.push('&');
            rest = tail;
        }
    }
    out.push_str(rest);
    out
}

fn entity(name: &str) -> Option<char> {
    Some(match name {
        "lt" => '<',
        "gt" => '>',
        "amp" => '&',
        "quot" => '"',
        "apos" => '\'',
        "nbsp" => '\u{a0}',
        _ => {
            let number = name.strip_prefix('#')?;
            let code = match number.strip_prefix(['x', 'X']) {
                Some(hex) => code(hex, 16)?,
                None => code(number, 10)?,
            };
            char::from_u32(code)?
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps() {
        let step = |text: &str, field: &str, option: &str| Step {
            text: text.into(),
            field: field.into(),
            option: option.into(),
        };
        let check = |template: &str, want: &[Step]| assert_eq!(parse(template).as_deref(), Ok(want), "{template}");
        check("", &[]);
        check("foobar", &[step("foobar", "", "")]);
        check("<>", &[step("", "", "")]);
        check("<>bar<foo>", &[step("", "", ""), step("bar", "foo", "")]);
        check("bar<foo>abc<_>", &[step("bar", "foo", ""), step("abc", "", "")]);
        check("< plain : bar >]", &[step("", "bar", "plain"), step("]", "", "")]);
        check("&lt;&amp;&gt;&#65;&#x42;&nosuch; & x", &[step("<&>AB&nosuch; & x", "", "")]);
        check("&#x+41;&#+65;&#;", &[step("&#x+41;&#+65;&#;", "", "")]);
        check("&apos;&quot;&nbsp;&#128512;&#x1F600;", &[step("'\"\u{a0}😀😀", "", "")]);
        check("&amp;lt;&&lt;&", &[step("&lt;&<&", "", "")]);
        // The longest name there is, one that is longer, and numbers of no character.
        check("&#000000065;&#0000000065;", &[step("A&#0000000065;", "", "")]);
        check("&#xd800;&#x110000;&#4294967361;&äöü;", &[step("&#xd800;&#x110000;&#4294967361;&äöü;", "", "")]);
        check("<a:b:c><d >é<\u{a0}e>", &[step("", "b:c", "a"), step("", "d", ""), step("é", "e", "")]);
        assert!(parse("<foo").is_err() && parse("foo<bar").is_err() && parse("<foo*>x").is_err());
    }

    #[test]
    fn signs_that_begin_no_entity_are_read_once() {
        // Where each sign was looked behind again, a megabyte took half a minute.
        let signs = "&".repeat(1 << 18);
        assert_eq!(parse(&signs).expect("a text")[0].text.len(), signs.len());
    }

    #[test]
    fn names_are_given_once() {
        let check = |template: &str, want: &[&str]| assert_eq!(fields(template), want, "{template}");
        check("<b> <q:a> <b> <_> <> text", &["b", "a"]);
        check("no fields", &[]);
        check("<a", &[]);
    }
}
