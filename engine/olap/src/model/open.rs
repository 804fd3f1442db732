//! Dimensions that are made of their names.

use super::{Common, Dimension, DimensionType, Template};

/// Dimensions that are made of their names: any attribute or label, which no list could hold.
#[derive(Debug, Clone)]
pub struct OpenMembers {
    /// What their names begin with; behind it stands the key, with `__` for a dot.
    pub prefix: String,
    /// Expression; `:key` is the key, `:flat_key` the key with `_` for all but letters and digits.
    pub sql: Template,
}

impl OpenMembers {
    /// The dimension of a name, if there is one of it.
    pub fn dimension(&self, name: &str) -> Option<Dimension> {
        let key = name.strip_prefix(&self.prefix).filter(|key| !key.is_empty())?.replace("__", ".");
        let flat: String = key.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '_' }).collect();
        let sql = self.sql.text.replace(":flat_key", &flat).replace(":key", &key);
        let title = Some(key);
        let common = Common { name: name.to_owned(), title, place: self.sql.place, ..Common::default() };
        let sql = Template::parse(&sql, self.sql.place);
        Some(Dimension::of_text(common, sql))
    }
}

impl Dimension {
    /// A text that an expression gives.
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
            since: None,
            granularities: Vec::new(),
            values: Vec::new(),
        }
    }
}
