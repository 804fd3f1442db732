//! Encoded lists of models, cached until models or rights change: a client that has the current list is told so without
//! the list being made.

use std::sync::Arc;

use parking_lot::Mutex;
use quiver_query::tables::DomainAccess;
use quiver_types::Domain;

use crate::metadata::{ModelListOptions, meta};
use crate::model::catalog::Catalog;

/// Most lists that are kept. Callers differ in few ways here: of each domain they see all, some, or nothing.
const KEPT_MAX: usize = 16;

/// A list as it is sent.
#[derive(Debug)]
pub struct ModelList {
    /// The answer of `/meta` as JSON.
    pub body: String,
    /// Made of the body, so that who has it already is told so (HTTP `ETag`).
    hash: String,
}

/// What a list depends on.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Key {
    version: u64,
    /// Whether the caller sees nothing, some or all of each domain.
    seen: Vec<u8>,
    wanted: ModelListOptions,
}

/// Lists that were made, the last used last.
#[derive(Debug, Default)]
pub(crate) struct Lists(Mutex<Vec<(Key, Arc<ModelList>)>>);

impl Lists {
    /// Gives the list of a caller, made where it is not kept.
    pub(crate) fn of(&self, catalog: &Catalog, access: &DomainAccess, wanted: &ModelListOptions) -> Arc<ModelList> {
        let seen = |domain: Domain| {
            let access = access.get(domain);
            if access.is_full() { 2 } else { u8::from(access.sees_some()) }
        };
        let seen = Domain::ALL.iter().map(|(domain, ..)| seen(*domain)).collect();
        let key = Key { version: catalog.version, seen, wanted: wanted.clone() };
        let mut kept = self.0.lock();
        // Lists of models that were replaced are of no use.
        kept.retain(|(of, _)| of.version >= key.version);
        let listed = if let Some(at) = kept.iter().position(|(of, _)| *of == key) {
            kept.remove(at).1
        } else {
            let body = meta(catalog, access, wanted).to_string();
            let hash = format!("{:08x}-{:x}", crc32c::crc32c(body.as_bytes()), body.len());
            Arc::new(ModelList { body, hash })
        };
        if kept.len() >= KEPT_MAX {
            kept.remove(0);
        }
        kept.push((key, Arc::clone(&listed)));
        listed
    }
}

impl ModelList {
    /// The entity tag for a caller: another one for other models and for other rights.
    pub fn tag(&self, access: &DomainAccess) -> String {
        let rights = Domain::ALL.iter().fold(0, |hash, (domain, ..)| {
            let patterns = access.get(*domain).patterns();
            crc32c::crc32c_append(hash, format!("{domain:?} {patterns:?}").as_bytes())
        });
        format!("\"{}-{rights:08x}\"", self.hash)
    }
}

#[cfg(test)]
mod tests {
    use quiver_types::Access;

    use super::*;
    use crate::model::load::{SourceFile, load};

    fn catalog(measure: &str) -> Catalog {
        let text = format!(
            "cubes:\n  - name: A\n    sql_table: a\n    measures: [{{name: {measure}, type: count}}]\n    \
             row_right: {{domain: traces, service: s}}\n    dimensions: [{{name: s, sql: s, type: string}}]\n"
        );
        load(&[SourceFile { name: "a.yml".to_owned(), text, builtin: false }]).unwrap().0
    }

    fn seeing(services: &[&str]) -> DomainAccess {
        DomainAccess::of(|_| Access::services(services.iter().copied()))
    }

    #[test]
    fn a_list_is_made_once_per_models_and_kind_of_rights() {
        let (lists, catalog) = (Lists::default(), catalog("count"));
        let full = lists.of(&catalog, &DomainAccess::full(), &ModelListOptions::default());
        assert!(
            Arc::ptr_eq(&full, &lists.of(&catalog, &DomainAccess::full(), &ModelListOptions::default())),
            "it is kept"
        );
        let one = lists.of(&catalog, &seeing(&["a"]), &ModelListOptions::default());
        assert!(
            Arc::ptr_eq(&one, &lists.of(&catalog, &seeing(&["b"]), &ModelListOptions::default())),
            "both see the same models"
        );
        assert_ne!(one.tag(&seeing(&["a"])), one.tag(&seeing(&["b"])), "but their rights differ");
        let none = lists.of(&catalog, &seeing(&[]), &ModelListOptions::default());
        assert_eq!(none.body, r#"{"cubes":[]}"#);
        let more = [
            ModelListOptions { only_views: true, ..ModelListOptions::default() },
            ModelListOptions { extended: true, ..ModelListOptions::default() },
            ModelListOptions { model: Some("B".to_owned()), ..ModelListOptions::default() },
        ];
        for wanted in more {
            assert_ne!(lists.of(&catalog, &DomainAccess::full(), &wanted).body, full.body, "{wanted:?}");
        }
        let same = ModelListOptions { model: Some("A".to_owned()), ..ModelListOptions::default() };
        assert_eq!(lists.of(&catalog, &DomainAccess::full(), &same).body, full.body);
    }

    #[test]
    fn other_models_are_another_list() {
        let lists = Lists::default();
        let (before, after) = (catalog("count"), catalog("number"));
        let full = DomainAccess::full();
        let old = lists.of(&before, &full, &ModelListOptions::default()).tag(&full);
        assert_ne!(old, lists.of(&after, &full, &ModelListOptions::default()).tag(&full));
        assert_eq!(lists.0.lock().len(), 1, "those of old models are forgotten");
        assert_eq!(
            old,
            lists.of(&before, &full, &ModelListOptions::default()).tag(&full),
            "the same list has the same tag"
        );
    }

    #[test]
    fn lists_are_bounded() {
        let (lists, catalog) = (Lists::default(), catalog("count"));
        for n in 0..40_u32 {
            let access = DomainAccess::of(|domain| {
                let some = (domain as u32) < 8 && n & (1 << (domain as u32)) != 0;
                Access::services(some.then_some("a"))
            });
            lists.of(&catalog, &access, &ModelListOptions::default());
        }
        assert!(lists.0.lock().len() <= KEPT_MAX);
    }
}
