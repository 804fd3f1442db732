//! Dimensions that are defined by their names.

use super::{Common, Dimension, DimensionType, Model, Template};

/// Dimensions that are defined by their names: one for any attribute or label, which cannot all be listed.
#[derive(Debug, Clone)]
pub struct OpenMembers {
    /// The prefix of their names, which is followed by the key, with `__` for a dot.
    pub prefix: String,
    /// The expression; `:key` is the key, `:flat_key` the key with all but letters and digits replaced by `_`.
    pub sql: Template,
    /// The measure that counts the distinct values of the dimension that a query names.
    pub counted: Option<String>,
}

impl OpenMembers {
    /// The dimension for a name; `None` if the name does not have the prefix.
    pub fn dimension(&self, name: &str) -> Option<Dimension> {
        let key = name.strip_prefix(&self.prefix).filter(|key| !key.is_empty())?.replace("__", ".");
        let flat: String = key.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '_' }).collect();
        let sql = self.sql.text.replace(":flat_key", &flat).replace(":key", &key);
        let title = Some(key);
        let common = Common { name: name.to_owned(), title, place: self.sql.place, ..Common::default() };
        let sql = Template::parse(&sql, self.sql.place);
        Some(Dimension { is_opened: true, ..Dimension::of_text(common, sql) })
    }
}

impl Model {
    /// Adds the dimension for a name, and makes the measure count it.
    pub(super) fn add_open(&mut self, name: &str) {
        let Some(open) = &self.open else { return };
        let Some(dimension) = open.dimension(name) else { return };
        if let Some(counted) = &open.counted
            && let Some(measure) = self.measures.iter_mut().find(|m| m.common.name == *counted)
        {
            measure.sql.clone_from(&dimension.sql);
        }
        self.dimensions.push(dimension);
    }
}

impl Dimension {
    /// A text dimension of an expression.
    pub(crate) fn of_text(common: Common, sql: Template) -> Self {
        Self {
            common,
            ty: DimensionType::String,
            sql: Some(sql),
            case: None,
            geo: None,
            primary_key: false,
            suggest: true,
            sub_query: false,
            propagate_filters: false,
            propagate_range: false,
            per_bucket: false,
            since: None,
            granularities: Vec::new(),
            values: Vec::new(),
            is_opened: false,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use serde_json::json;

    use super::super::catalog::Catalog;
    use super::super::load::{SourceFile, load};

    fn source(counted: &str) -> SourceFile {
        let text = format!(
            "cubes:\n  - name: A\n    sql_table: a\n    open: {{prefix: l_, sql: '\"labels.:key\"', counted: {counted}}}\n    \
             measures: [{{name: values, type: count_distinct, sql: none}}]\n"
        );
        SourceFile { name: "m.yml".to_owned(), text, builtin: false }
    }

    #[test]
    fn what_a_query_names_is_counted() {
        let catalog = Arc::new(load(&[source("values")]).unwrap().0);
        let counted = |catalog: &Catalog| catalog.models["A"].measure("values").unwrap().sql.clone().unwrap().text;
        assert_eq!(counted(&catalog), "none");
        let query = json!({"dimensions": ["A.l_zone"], "filters": [{"member": "A.l_pod", "operator": "set"}]});
        assert_eq!(counted(&catalog.with_open(&query)), "\"labels.pod\"");
        assert_eq!(counted(&catalog), "none");
        let problems = load(&[source("others")]).map(|_| ()).unwrap_err();
        assert!(problems[0].to_string().contains("`counted`"), "{problems:?}");
    }
}
