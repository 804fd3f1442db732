//! Estimates the cost of case-insensitive character classes. Each character of a class is looked up in Unicode's tables
//! when a pattern is parsed: a class of all characters takes milliseconds, and a pattern may contain 100,000 of them.

use std::convert::Infallible;

use regex_syntax::ast::parse::Parser;
use regex_syntax::ast::{Ast, ClassPerlKind, ClassSetItem, Visitor, visit};

/// Characters of Unicode.
const ALL: u64 = 0x11_0000;
/// Letters, marks and digits of all scripts, about.
const WORD: u64 = ALL / 8;
/// Characters in all classes of a pattern: a tenth of a second, about.
const CHARACTERS_MAX: u64 = 16 * ALL;

/// Says whether a pattern would take long for the classes that it has.
pub(super) fn is_costly(pattern: &str) -> bool {
    if !folds(pattern) {
        return false;
    }
    // What is no regular expression is for others to say.
    let Ok(ast) = Parser::new().parse(pattern) else { return false };
    let Ok(characters) = visit(&ast, Classes(0));
    characters > CHARACTERS_MAX
}

/// Says whether some part of a pattern may be matched in any case; it is, if the flag is set.
fn folds(pattern: &str) -> bool {
    let flags = |after: &str| after.chars().take_while(char::is_ascii_alphabetic).any(|c| c == 'i');
    pattern.split("(?").skip(1).any(flags)
}

/// Counts the characters of classes.
struct Classes(u64);

impl Visitor for Classes {
    type Output = u64;
    type Err = Infallible;

    fn finish(self) -> Result<u64, Infallible> {
        Ok(self.0)
    }

    fn visit_pre(&mut self, ast: &Ast) -> Result<(), Infallible> {
        if let Ast::ClassUnicode(_) = ast {
            self.0 += ALL;
        }
        Ok(())
    }

    fn visit_class_set_item_pre(&mut self, item: &ClassSetItem) -> Result<(), Infallible> {
        self.0 += match item {
            ClassSetItem::Range(range) => u64::from(u32::from(range.end.c).abs_diff(u32::from(range.start.c))),
            ClassSetItem::Unicode(_) => ALL,
            ClassSetItem::Perl(class) if class.negated => ALL,
            ClassSetItem::Perl(class) if class.kind == ClassPerlKind::Word => WORD,
            ClassSetItem::Bracketed(class) if class.negated => ALL,
            _ => 1,
        };
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_patterns() {
        let check = |pattern: &str, expected: bool| assert_eq!(is_costly(pattern), expected, "{pattern:.40}");
        let wide = "[ -\u{10ffff}]";
        check(&wide.repeat(1000), false);
        check(&format!("(?i){}", wide.repeat(15)), false);
        check(&format!("(?i){}", wide.repeat(17)), true);
        check(&format!("a(?s-i:b)(?si:{})", wide.repeat(17)), true);
        check(&format!("a(?-i:{})", wide.repeat(17)), false);
        check(&format!("(?i){}", r"\pL".repeat(17)), true);
        check(&format!("(?i){}", r"[\W]".repeat(17)), true);
        check(&format!("(?i){}", r"[a[^b]]".repeat(17)), true);
        check(&format!("(?i){}", r"[a-z0-9_]+[^a]\w\d.".repeat(1000)), false);
        check(&format!("(?i){}", r"[\w.-]+@[\w-]+".repeat(20)), false);
        check("(?i)(", false);
    }
}
