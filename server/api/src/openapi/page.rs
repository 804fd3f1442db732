//! The documentation page: plain HTML that loads nothing, so that it works wherever the server does.

use std::fmt::Write as _;

use serde_json::Value;

use super::members;

const HEAD: &str = "<!doctype html><html lang=\"en\"><head><meta charset=\"utf-8\">\
<meta name=\"viewport\" content=\"width=device-width\"><title>API</title><style>\
body{font:15px/1.5 system-ui,sans-serif;max-width:70rem;margin:2rem auto;padding:0 1rem;color-scheme:light dark}\
summary{cursor:pointer;padding:.2rem 0}b{display:inline-block;min-width:4.5rem}code,pre{font:13px ui-monospace,monospace}\
td,th{text-align:left;padding:.1rem .8rem .1rem 0;vertical-align:top}pre{overflow:auto}\
</style></head><body>";

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

fn text<'a>(value: &'a Value, key: &str) -> &'a str {
    value.get(key).and_then(Value::as_str).unwrap_or_default()
}

/// Writes the page.
pub(super) fn page(document: &Value) -> String {
    let mut out = HEAD.to_owned();
    let info = &document["info"];
    let (title, version) = (escaped(text(info, "title")), escaped(text(info, "version")));
    let _ = write!(out, "<h1>{title} {version}</h1><p>{}</p>", escaped(text(info, "description")));
    out.push_str("<p><a href=\"/rulesapi/swagger/openapi.json\">JSON</a> <a href=\"/rulesapi/swagger/openapi.yaml\">YAML</a>; all paths: <a href=\"/platform-api/openapi.json\">JSON</a> <a href=\"/platform-api/openapi.yaml\">YAML</a></p>");
    for (path, item) in members(document, "paths") {
        for (method, operation) in item.as_object().into_iter().flatten().filter(|(_, o)| o.is_object()) {
            operation_lines(&mut out, path, method, operation);
        }
    }
    out.push_str("<h2>Schemas</h2>");
    for (name, schema) in members(&document["components"], "schemas") {
        let shape = serde_json::to_string_pretty(schema).unwrap_or_default();
        let name = escaped(name);
        let _ = write!(out, "<details id=\"{name}\"><summary><code>{name}</code></summary>");
        let _ = write!(out, "<pre>{}</pre></details>", escaped(&shape));
    }
    out.push_str("</body></html>");
    out
}

fn operation_lines(out: &mut String, path: &str, method: &str, operation: &Value) {
    let (method, path) = (escaped(&method.to_uppercase()), escaped(path));
    let summary = escaped(text(operation, "summary"));
    let _ = write!(out, "<details><summary><b>{method}</b> <code>{path}</code> {summary}</summary>");
    let _ = write!(out, "<p>{}</p><table>", escaped(text(operation, "description")));
    for parameter in operation.get("parameters").and_then(Value::as_array).into_iter().flatten() {
        let (name, place) = (escaped(text(parameter, "name")), escaped(text(parameter, "in")));
        let about = escaped(text(parameter, "description"));
        let _ = write!(out, "<tr><td><code>{name}</code></td><td>{place}</td><td>{about}</td></tr>");
    }
    for (status, answer) in members(operation, "responses") {
        let named = text(answer, "$ref").rsplit('/').next().unwrap_or_default();
        let about = if named.is_empty() { text(answer, "description") } else { named };
        let _ = write!(out, "<tr><td><code>{status}</code></td><td>answer</td><td>{}</td></tr>", escaped(about));
    }
    out.push_str("</table></details>");
}

#[cfg(test)]
mod tests {
    use super::*;

    use serde_json::json;

    #[test]
    fn nothing_of_a_description_is_markup() {
        let odd = "<b>\"&'</b>";
        let shown = "&lt;b&gt;&quot;&amp;'&lt;/b&gt;";
        let document = json!({
            "info": {"title": odd, "version": odd, "description": odd},
            "paths": {odd: {odd: {
                "summary": odd, "description": odd,
                "parameters": [{"name": odd, "in": odd, "description": odd}, "odd", {}],
                "responses": {"200": {"description": odd}, "400": {"$ref": format!("#/components/responses/{odd}")}},
            }}},
            "components": {"schemas": {odd: {"type": odd}}},
        });
        let page = page(&document);
        assert!(!page.contains(odd), "{page}");
        // Title, version and text; path, method, summary, text; three of a parameter; a response; twice a schema's
        // name.
        assert!(page.matches(shown).count() >= 12, "{page}");
        assert!(page.starts_with("<!doctype html>") && page.ends_with("</body></html>"));
        // A reference is shown by its last path segment.
        assert!(page.contains("<td><code>400</code></td><td>answer</td><td>b&gt;</td>"), "{page}");
    }

    #[test]
    fn what_a_description_lacks_leaves_gaps() {
        for document in [json!({}), json!(null), json!({"paths": {"/a": null}}), json!({"paths": [], "components": 7})]
        {
            let page = page(&document);
            assert!(!page.contains("<summary><b>"), "{document}");
            assert!(page.ends_with("<h2>Schemas</h2></body></html>"), "{document}");
        }
        // Members of a path that are not operations are skipped.
        let document = json!({"paths": {"/a": {"parameters": [], "summary": "s", "get": {"summary": "reads"}}}});
        let page = page(&document);
        assert_eq!(page.matches("<summary><b>").count(), 1, "{page}");
        assert!(page.contains("<b>GET</b> <code>/a</code> reads"), "{page}");
    }
}
