//! The directory of an index of labels, from the file's footer: which rows belong to which label.

use std::sync::Arc;

/// Label names in ascending order, and the first row of each, followed by the total number of rows.
#[derive(Debug)]
pub(super) struct Directory {
    pub(super) names: Vec<Arc<str>>,
    pub(super) starts: Vec<u64>,
}

impl Directory {
    /// Parses `[["label", first row, rows], …]`; `None` if names are not ascending, or rows have gaps or a wrong total.
    pub(super) fn parse(text: &str, rows: u64) -> Option<Self> {
        let list: Vec<(String, u64, u64)> = serde_json::from_str(text).ok()?;
        let (mut names, mut starts): (Vec<Arc<str>>, _) = (Vec::with_capacity(list.len()), vec![0]);
        for (name, first, len) in list {
            if starts.last() != Some(&first) || names.last().is_some_and(|last| **last >= *name) {
                return None;
            }
            names.push(Arc::from(name));
            starts.push(first.checked_add(len)?);
        }
        (starts.last() == Some(&rows)).then_some(Self { names, starts })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn directories_have_no_gaps() {
        let check = |text: &str, good: bool| assert_eq!(Directory::parse(text, 5).is_some(), good, "{text}");
        check(r#"[["a",0,2],["b",2,3]]"#, true);
        check(r#"[["a",0,2],["b",2,2]]"#, false);
        check(r#"[["a",0,2],["b",3,2]]"#, false);
        check(r#"[["b",0,2],["a",2,3]]"#, false);
        check("{}", false);
        check("[]", false);
        check(r#"[["a",0,2],["a",2,3]]"#, false);
        check(r#"[["a",0,18446744073709551615],["b",18446744073709551615,6]]"#, false);
        check(r#"[["a",0,0],["b",0,5]]"#, true);
        assert!(Directory::parse("[]", 0).is_some());
    }
}
