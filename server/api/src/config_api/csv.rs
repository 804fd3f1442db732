//! Resources as CSV (RFC 4180): a header line, then a line per resource. `docs/configuration.md` lists the columns.

use std::collections::HashSet;

use csv::StringRecord;
use quiver_config::families::{RESOURCES, ResourceKind};
use quiver_config::{FieldKind, Problem, ProblemKind, Result};
use serde_json::{Map, Value, json};

/// Most columns: all fields, attributes and labels that a resource may have.
const COLUMNS_MAX: usize = 400;
/// Most lines: one more than an import accepts, so that the import reports the excess.
const ROWS_MAX: usize = 10_001;
/// Separates the entries of a list within a cell.
const BETWEEN: char = ';';
/// The column with the key or id of the type.
const TYPE: &str = "type";

/// A parsed text.
pub(super) struct Table {
    columns: Vec<String>,
    rows: Vec<Row>,
}

struct Row {
    line: u64,
    cells: StringRecord,
}

/// Resources, and the line of each.
pub(super) struct Lines {
    pub(super) items: Vec<Value>,
    lines: Vec<u64>,
}

fn malformed(line: u64, why: &str) -> Problem {
    Problem::new(ProblemKind::Malformed, "MALFORMED_CSV", format!("{why} (line {line})")).with("line", json!(line))
}

/// The problem for an invalid column.
fn bad_column(name: &str, code: &'static str, why: &str) -> Problem {
    let pointer = format!("/columns/{}", shown(name).replace('~', "~0").replace('/', "~1"));
    Problem::field(pointer, code, why).with("line", json!(1))
}

fn shown(text: &str) -> String {
    text.chars().take(100).collect()
}

/// Checks the parameters of `Content-Type`.
///
/// # Errors
/// `UNSUPPORTED_MEDIA_TYPE`: a charset other than UTF-8, or a table without a header line.
pub(super) fn check_parameters(content_type: &str) -> Result<()> {
    for parameter in content_type.split(';').skip(1) {
        let (name, value) = parameter.split_once('=').unwrap_or((parameter, ""));
        let value = value.trim().trim_matches('"').to_ascii_lowercase();
        let fits = match name.trim().to_ascii_lowercase().as_str() {
            "charset" => matches!(value.as_str(), "utf-8" | "utf8" | "us-ascii"),
            "header" => value == "present",
            _ => true,
        };
        if !fits {
            let text = "CSV must be UTF-8 and begin with a line of names";
            return Err(Problem::new(ProblemKind::UnsupportedMediaType, "UNSUPPORTED_MEDIA_TYPE", text));
        }
    }
    Ok(())
}

impl Table {
    /// Parses a text.
    ///
    /// # Errors
    /// `MALFORMED_CSV` with the line; `VALIDATION_FAILED`: unknown or duplicate columns.
    pub(super) fn read(bytes: &[u8]) -> Result<Self> {
        let text = std::str::from_utf8(bytes).map_err(|e| {
            let before = &bytes[..e.valid_up_to()];
            malformed(before.split(|b| *b == b'\n').count() as u64, "is not UTF-8")
        })?;
        let text = text.trim_start_matches('\u{feff}');
        let mut reader = csv::ReaderBuilder::new().flexible(true).from_reader(text.as_bytes());
        let broken = |e: &csv::Error| malformed(e.position().map_or(1, csv::Position::line), "is no CSV");
        let columns: Vec<String> =
            reader.headers().map_err(|e| broken(&e))?.iter().map(|name| name.trim().to_owned()).collect();
        if columns.iter().all(String::is_empty) {
            return Err(malformed(1, "the first line must name the columns"));
        }
        if columns.len() > COLUMNS_MAX {
            return Err(malformed(1, &format!("there are more than {COLUMNS_MAX} columns")));
        }
        let mut seen = HashSet::new();
        for name in &columns {
            check_column(name)?;
            if !seen.insert(name) || name == TYPE && columns.iter().any(|other| other == "typeId") {
                return Err(bad_column(name, "INVALID_VALUE", "is given more than once"));
            }
        }
        let mut rows = Vec::new();
        for record in reader.records() {
            let record = record.map_err(|e| broken(&e))?;
            let line = record.position().map_or(1, csv::Position::line);
            if record.len() != columns.len() {
                let why = format!("there are {} cells for {} columns", record.len(), columns.len());
                return Err(malformed(line, &why));
            }
            rows.push(Row { line, cells: record });
            if rows.len() == ROWS_MAX {
                break;
            }
        }
        Ok(Self { columns, rows })
    }

    /// The types that the table refers to, by id or key.
    pub(super) fn types(&self) -> HashSet<String> {
        let columns = self.columns.iter().enumerate().filter(|(_, name)| *name == TYPE || *name == "typeId");
        let at: Vec<usize> = columns.map(|(at, _)| at).collect();
        self.rows.iter().flat_map(|row| at.iter().map(|at| row.cells[*at].trim().to_owned())).collect()
    }

    /// Converts the lines to items of an import. Empty cells are left out.
    pub(super) fn resources(self, kinds: &[ResourceKind]) -> Lines {
        let lines = self.rows.iter().map(|row| row.line).collect();
        let items = self.rows.iter().map(|row| resource(&self.columns, &row.cells, kinds)).collect();
        Lines { items, lines }
    }
}

fn check_column(name: &str) -> Result<()> {
    let inner = name.split_once('.');
    let known = if let Some(("attributes" | "labels", key)) = inner {
        !key.is_empty()
    } else {
        let whole = matches!(name, TYPE | "id") || quiver_config::KEPT.contains(&name);
        whole || RESOURCES.kind_of(name).is_some() && !matches!(name, "attributes" | "labels")
    };
    if known {
        return Ok(());
    }
    let why = match name {
        "attributes" | "labels" => format!("has a column for each entry: `{name}.<name>`"),
        _ => "there is no such field".to_owned(),
    };
    Err(bad_column(name, "UNKNOWN_FIELD", &why))
}

fn resource(columns: &[String], cells: &StringRecord, kinds: &[ResourceKind]) -> Value {
    let cell_of = |name: &str| columns.iter().position(|column| column == name).map(|at| cells[at].trim());
    let named = cell_of("typeId").or(cell_of(TYPE)).unwrap_or_default();
    let kind = kinds.iter().find(|kind| kind.id == named || kind.key == named);
    let (mut item, mut attributes, mut labels) = (Map::new(), Map::new(), Map::new());
    for (name, cell) in columns.iter().zip(cells).filter(|(_, cell)| !cell.is_empty()) {
        match name.split_once('.') {
            Some(("attributes", key)) => {
                let of = kind.and_then(|kind| kind.type_of(key)).unwrap_or("string");
                attributes.insert(key.to_owned(), attribute(cell, of));
            }
            Some((_, key)) => {
                labels.insert(key.to_owned(), json!(cell));
            }
            None if matches!(name.as_str(), TYPE | "typeId") => {
                // An unknown type is passed on, and refused by the import.
                item.insert("typeId".to_owned(), json!(kind.map_or(named, |kind| kind.id.as_str())));
            }
            None => {
                item.insert(name.clone(), value(cell, RESOURCES.kind_of(name)));
            }
        }
    }
    for (name, map) in [("attributes", attributes), ("labels", labels)] {
        if !map.is_empty() {
            item.insert(name.to_owned(), Value::Object(map));
        }
    }
    Value::Object(item)
}

/// Converts a cell to the type of its attribute. If it does not fit it stays a string, which the import refuses.
fn attribute(cell: &str, of: &str) -> Value {
    let text = cell.trim();
    let read = match of {
        "int" => text.parse::<i64>().ok().map(|n| json!(n)),
        "double" => text.parse::<f64>().ok().filter(|n| n.is_finite()).map(|n| json!(n)),
        "bool" => truth(text),
        _ => None,
    };
    read.unwrap_or_else(|| json!(cell))
}

fn truth(text: &str) -> Option<Value> {
    match text.to_ascii_lowercase().as_str() {
        "true" => Some(json!(true)),
        "false" => Some(json!(false)),
        _ => None,
    }
}

fn value(cell: &str, kind: Option<FieldKind>) -> Value {
    match kind {
        Some(FieldKind::Texts { .. }) => cell.split(BETWEEN).map(str::trim).filter(|t| !t.is_empty()).collect(),
        Some(FieldKind::Bool) => truth(cell.trim()).unwrap_or_else(|| json!(cell)),
        _ => json!(cell),
    }
}

impl Lines {
    /// Adds the line to each error.
    pub(super) fn named(&self, problem: Problem) -> Problem {
        let line_of = |field: &str| {
            let n = field.strip_prefix("/items/")?.split('/').next()?.parse::<usize>().ok()?;
            self.lines.get(n).copied()
        };
        let first = problem.errors.iter().find_map(|error| line_of(&error.field));
        let errors: Vec<Value> = problem
            .errors
            .iter()
            .map(|e| {
                let error = json!({"field": e.field, "code": e.code, "message": e.message});
                with_line(error, line_of(&e.field))
            })
            .collect();
        match first {
            Some(line) => {
                let detail = format!("{} (line {line})", problem.detail);
                Problem { detail, ..problem }.with("line", json!(line)).with("errors", json!(errors))
            }
            None => problem,
        }
    }
}

fn with_line(mut error: Value, line: Option<u64>) -> Value {
    if let Some(line) = line {
        error["line"] = json!(line);
    }
    error
}

#[cfg(test)]
mod tests {
    use super::*;

    fn resources(text: &str) -> Vec<Value> {
        Table::read(text.as_bytes()).unwrap().resources(&[]).items
    }

    #[test]
    fn cells_become_fields() {
        let text = "\u{feff}type,displayName,tags,attributes.service.name,labels.team,state\r\n\
            service,\"Cart, \"\"the\"\" one\",a; b;,cart,shop,\r\n";
        let want = json!({"typeId": "service", "displayName": "Cart, \"the\" one", "tags": ["a", "b"],
            "attributes": {"service.name": "cart"}, "labels": {"team": "shop"}});
        assert_eq!(resources(text), [want]);
        assert!(resources("key\n").is_empty());
    }

    #[test]
    fn attributes_have_their_types() {
        for (cell, of, want) in [
            ("7", "int", json!(7)),
            ("7.5", "int", json!("7.5")),
            ("7.5", "double", json!(7.5)),
            ("inf", "double", json!("inf")),
            ("TRUE", "bool", json!(true)),
            ("yes", "bool", json!("yes")),
            ("007", "string", json!("007")),
        ] {
            assert_eq!(attribute(cell, of), want, "{cell} {of}");
        }
    }

    #[test]
    fn what_is_wrong_has_a_line() {
        for (text, code, line) in [
            ("", "MALFORMED_CSV", 1),
            ("key,state\na,active\nb\n", "MALFORMED_CSV", 3),
            ("key,nmae\n", "VALIDATION_FAILED", 1),
            ("key,key\n", "VALIDATION_FAILED", 1),
            ("type,typeId\n", "VALIDATION_FAILED", 1),
            ("attributes\n", "VALIDATION_FAILED", 1),
            ("labels.\n", "VALIDATION_FAILED", 1),
        ] {
            let Err(problem) = Table::read(text.as_bytes()) else { panic!("{text:?} was read") };
            assert_eq!((problem.code, &problem.more["line"]), (code, &json!(line)), "{text:?}");
        }
        let Err(problem) = Table::read(b"key\na\n\xff\n") else { panic!("it was read") };
        assert_eq!(problem.more["line"], 3);
        let lines = Table::read(b"key,displayName\na,\"two\nlines\"\nb,x\n").unwrap().resources(&[]);
        let problem = lines.named(Problem::field("/items/1/typeId", "REQUIRED", "is required"));
        assert_eq!((&problem.more["line"], &problem.more["errors"][0]["line"]), (&json!(4), &json!(4)));
    }

    #[test]
    fn parameters_of_the_media_type() {
        for good in ["text/csv", "text/csv; charset=UTF-8", "text/csv; header=present; charset=\"utf-8\""] {
            assert!(check_parameters(good).is_ok(), "{good}");
        }
        for bad in ["text/csv; charset=latin1", "text/csv;header=absent"] {
            assert_eq!(check_parameters(bad).unwrap_err().code, "UNSUPPORTED_MEDIA_TYPE", "{bad}");
        }
    }

    #[test]
    fn tables_at_their_borders() {
        let lines = |count: usize| format!("key\n{}", "a\n".repeat(count));
        let read = |text: &str| Table::read(text.as_bytes()).map(|table| table.rows.len());
        // One line more than an import accepts is read, so that the import reports it.
        assert_eq!(read(&lines(ROWS_MAX - 1)).ok(), Some(ROWS_MAX - 1));
        assert_eq!(read(&lines(ROWS_MAX + 5)).ok(), Some(ROWS_MAX));
        let columns = |count: usize| (0..count).map(|n| format!("labels.l{n}")).collect::<Vec<_>>().join(",");
        assert_eq!(read(&columns(COLUMNS_MAX)).ok(), Some(0));
        assert_eq!(read(&columns(COLUMNS_MAX + 1)).unwrap_err().code, "MALFORMED_CSV");
        for (text, rows) in [
            ("key", 0),
            ("key\r\n", 0),
            ("key\na", 1),
            ("key\n\na\n\n", 1),
            (" key \na\n", 1),
            ("\u{feff}key\na\n", 1),
            ("key,labels.x\na,\"b\nc\"\n", 1),
        ] {
            assert_eq!(read(text).ok(), Some(rows), "{text:?}");
        }
    }

    #[test]
    fn columns_that_there_are_none_of() {
        let code = |text: &str| {
            let Err(problem) = Table::read(text.as_bytes()) else { panic!("{text:?} was read") };
            (problem.errors.first().map(|e| e.field.clone()).unwrap_or_default(), problem.code)
        };
        let check = |text: &str, field: &str, code_of: &str| {
            assert_eq!(code(text), (field.to_owned(), code_of), "{text:?}");
        };
        check("key,\n", "/columns/", "VALIDATION_FAILED");
        check("Key\n", "/columns/Key", "VALIDATION_FAILED");
        check("key,a/b~c\n", "/columns/a~1b~0c", "VALIDATION_FAILED");
        check("key,attributes.\n", "/columns/attributes.", "VALIDATION_FAILED");
        check("key,tags.a\n", "/columns/tags.a", "VALIDATION_FAILED");
        check("key,labels.a,labels.a\n", "/columns/labels.a", "VALIDATION_FAILED");
        check("typeId,type\n", "/columns/type", "VALIDATION_FAILED");
        check(",\n", "", "MALFORMED_CSV");
        check("key\na,b\n", "", "MALFORMED_CSV");
        check("key,state\na\n", "", "MALFORMED_CSV");
    }

    #[test]
    fn cells_of_types_that_are_none() {
        assert_eq!(attribute(" 7 ", "int"), json!(7));
        assert_eq!(attribute("-9223372036854775808", "int"), json!(i64::MIN));
        assert_eq!(attribute("9223372036854775808", "int"), json!("9223372036854775808"));
        assert_eq!(attribute("1e3", "double"), json!(1000.0));
        assert_eq!(attribute("NaN", "double"), json!("NaN"));
        assert_eq!(attribute("1e999", "double"), json!("1e999"));
        assert_eq!(attribute(" false ", "bool"), json!(false));
        assert_eq!(attribute("0", "bool"), json!("0"));
        assert_eq!(attribute(" a ", "string"), json!(" a "));
        assert_eq!(attribute("7", "of no kind"), json!("7"));
        assert_eq!(value("a;;b ; c", Some(FieldKind::Texts { max: 9 })), json!(["a", "b", "c"]));
        assert_eq!(value(";", Some(FieldKind::Texts { max: 9 })), json!([]));
        assert_eq!(value("True", Some(FieldKind::Bool)), json!(true));
        assert_eq!(value("1", Some(FieldKind::Bool)), json!("1"));
        assert_eq!(value("a;b", None), json!("a;b"));
    }

    #[test]
    fn problems_of_no_line_stay_as_they_are() {
        let lines = Lines { items: Vec::new(), lines: vec![2, 5] };
        for field in ["", "/mode", "/items", "/items/2", "/items/x/key", "/items/-1"] {
            let problem = lines.named(Problem::field(field, "REQUIRED", "is required"));
            assert_eq!(problem.more.get("line"), None, "{field}");
            assert!(!problem.detail.contains("line"), "{field}: {}", problem.detail);
        }
        let problem = lines.named(Problem::field("/items/0/key", "REQUIRED", "is required"));
        assert_eq!(problem.more["line"], json!(2));
        assert!(problem.detail.ends_with("(line 2)"), "{}", problem.detail);
    }
}
