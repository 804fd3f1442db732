use quiver_types::Access;

use super::*;

/// A folder of a test, which goes with it.
struct Scratch(PathBuf);

impl Scratch {
    fn new(name: &str, files: &[(&str, &[u8])]) -> Self {
        let folder = std::env::temp_dir().join(format!("quiver-olap-tables-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        for (name, bytes) in files {
            std::fs::write(folder.join(name), bytes).unwrap();
        }
        Self(folder)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        _ = std::fs::remove_dir_all(&self.0);
    }
}

fn request<'a>(schema: Option<&'a str>, name: &'a str, access: &'a DomainAccess) -> TableRequest<'a> {
    TableRequest { schema, name, columns: &[], access, typed_by: access }
}

#[test]
fn files_are_tables_by_their_names() {
    let types = br#"{"n": "int8"}"#;
    let folder = Scratch::new(
        "names",
        &[
            ("plans.csv", b"\xef\xbb\xbfname,n\nfree,1\npro,2\n"),
            ("plans.types.json", types),
            ("_2.csv", b"a\n"),
            ("notes.txt", b"not, a table"),
            ("README", b""),
        ],
    );
    let tables = FolderTables::read(std::slice::from_ref(&folder.0)).unwrap();
    let (full, part) = (DomainAccess::full(), DomainAccess::of(|_| Access::services(["a"])));
    for schema in [None, Some("public")] {
        for name in ["plans", "_2"] {
            assert!(tables.find(&request(schema, name, &full)).is_some(), "{schema:?} {name}");
            // They have no service, so only callers who see everything see them.
            assert!(tables.find(&request(schema, name, &part)).is_none(), "{schema:?} {name}");
        }
    }
    for (schema, name) in [(Some("quiver"), "plans"), (None, "notes"), (None, "Plans")] {
        assert!(tables.find(&request(schema, name, &full)).is_none(), "{schema:?} {name}");
    }
    let plans = tables.find(&request(None, "plans", &full)).unwrap();
    let columns: Vec<String> = TableProvider::schema(&**plans)
        .fields()
        .iter()
        .map(|field| format!("{} {}", field.name(), field.data_type()))
        .collect();
    assert_eq!(columns, ["name Utf8", "n Int64"], "the mark of UTF-8 is no part of a name");
    let snapshot = LayeredSnapshot { folders: Arc::new(tables), product: None };
    let listed = |access: &DomainAccess| snapshot.list(access).into_iter().map(|entry| entry.name).collect::<Vec<_>>();
    assert_eq!(listed(&full), ["_2", "plans"]);
    assert!(listed(&part).is_empty());
    // What is read again may have other rows.
    let again = FolderTables::read(std::slice::from_ref(&folder.0)).unwrap();
    let version = snapshot.version(&request(None, "plans", &full));
    assert!(version.is_some() && version != Some(again.version));
    assert_eq!(snapshot.version(&request(None, "nothing", &full)), None);
}

/// Breaks if one bad file hides what is wrong with others, or its tables come without a part.
#[test]
fn all_that_is_wrong_is_told_at_once() {
    let first = Scratch::new(
        "wrong",
        &[
            ("Plans.csv", b"a\n"),
            ("2nd.csv", b"a\n"),
            ("bé.csv", b"a\n"),
            ("bytes.csv", b"ab\xff\n"),
            ("json.csv", b"a\n1\n"),
            ("json.types.json", b"[]"),
            ("rows.csv", b"a,b\n1\n"),
            ("twice.csv", b"a\n"),
            ("file.parquet", b"PAR1"),
        ],
    );
    let second = Scratch::new("wrong-too", &[("twice.csv", b"a\n")]);
    let missing = second.0.join("missing");
    let problems = FolderTables::read(&[first.0.clone(), second.0.clone(), missing]).unwrap_err();
    let told: Vec<String> = problems
        .iter()
        .map(|text| text.replace(&*first.0.to_string_lossy(), "1").replace(&*second.0.to_string_lossy(), "2"))
        .collect();
    for (at, expected) in [
        "1/2nd.csv: `2nd` cannot name a table; use small letters, digits and `_`",
        "1/Plans.csv: `Plans` cannot name a table; use small letters, digits and `_`",
        "1/bytes.csv: no UTF-8 at byte 2",
        "1/bé.csv: `bé` cannot name a table; use small letters, digits and `_`",
        "1/file.parquet: cannot be read: ",
        "1/json.csv (types in `json.types.json`): ",
        "1/rows.csv:2: it has 1 fields, not 2",
        "2/twice.csv: there are two tables `twice`",
        "2/missing: cannot be read: ",
    ]
    .into_iter()
    .enumerate()
    {
        assert!(told.get(at).is_some_and(|text| text.starts_with(expected)), "{expected}: {told:#?}");
    }
    assert_eq!(told.len(), 9, "{told:#?}");
    assert_eq!(folder_error(&problems).message, problems.join("\n"));
}
