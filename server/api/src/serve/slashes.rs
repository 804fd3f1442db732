//! Paths of VictoriaLogs' API in which slashes stand together: it takes them for one, as clients add a path to an
//! address that ends in a slash.

use http::Uri;
use http::uri::PathAndQuery;

/// Below these paths several slashes count as one. Elsewhere they must not: a proxy in front may block paths by comparing
/// texts, which an additional slash would evade, and the other products do not accept it either.
const BASES: &[&str] = &["/insert/", "/select/", "/logs-api/"];

/// Replaces each run of slashes in the path by a single one.
pub(super) fn join_slashes(uri: &mut Uri) {
    if !uri.path().contains("//") {
        return;
    }
    let mut path = String::with_capacity(uri.path().len());
    for c in uri.path().chars() {
        if c != '/' || !path.ends_with('/') {
            path.push(c);
        }
    }
    if !BASES.iter().any(|base| path.starts_with(base)) {
        return;
    }
    if let Some(query) = uri.query() {
        path.push('?');
        path.push_str(query);
    }
    let mut parts = uri.clone().into_parts();
    let Ok(joined) = PathAndQuery::try_from(path) else { return };
    parts.path_and_query = Some(joined);
    if let Ok(joined) = Uri::from_parts(parts) {
        *uri = joined;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths() {
        for (given, joined) in [
            ("//insert/jsonline", "/insert/jsonline"),
            ("/insert//jsonline?_msg_field=a//b", "/insert/jsonline?_msg_field=a//b"),
            ("///logs-api//select/logsql///query?query=*", "/logs-api/select/logsql/query?query=*"),
            ("http://host:8800//select/logsql/query?", "http://host:8800/select/logsql/query?"),
            ("/insert/elasticsearch//_bulk", "/insert/elasticsearch/_bulk"),
            ("/select/logsql/query?query=a//b", "/select/logsql/query?query=a//b"),
            ("/insert/jsonline/", "/insert/jsonline/"),
            // Other paths stay as they are.
            ("//admin/queries", "//admin/queries"),
            ("//health", "//health"),
            ("//insertion//x", "//insertion//x"),
            ("//", "//"),
            ("/a?b=//insert/c", "/a?b=//insert/c"),
            ("*", "*"),
        ] {
            let mut uri: Uri = given.parse().expect("a URI");
            join_slashes(&mut uri);
            assert_eq!(uri, joined.parse::<Uri>().expect("a URI"), "{given}");
        }
    }
}
