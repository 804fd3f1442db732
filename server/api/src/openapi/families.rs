//! Operations of configuration families, generated from their table (`config-api` 1.1).

use quiver_config::Family;
use quiver_config::families::{FAMILIES, RESOURCES, ROUTES, SILENCES};
use utoipa::openapi::path::OperationBuilder;
use utoipa::openapi::schema::{ArrayBuilder, ObjectBuilder, Schema, Type};
use utoipa::openapi::{HttpMethod, Paths, RefOr};

use super::operation::{Errors, answer, body, flag, header, put, query, with_errors};
use super::schemas::{any, name_of, named, string};

const JSON: &str = "application/json";
const YAML: &str = "application/yaml";
const CSV: &str = "text/csv";
const MERGE_PATCH: &str = "application/merge-patch+json";

const READ_ERRORS: [&str; 8] = ["400", "401", "403", "404", "405", "429", "500", "503"];
const WRITE_ERRORS: [&str; 13] =
    ["400", "401", "403", "404", "405", "409", "412", "413", "415", "422", "429", "500", "503"];

/// Adds all families.
pub(super) fn describe(paths: &mut Paths) {
    // Silences are stored elsewhere, but follow the contract.
    let whole = |family: &&Family| !family.own_paths || family.name == SILENCES.name;
    for family in FAMILIES.iter().copied().filter(whole) {
        if family.owners.is_empty() {
            family_paths(paths, family, family.path);
        }
        for owner in family.owners {
            let owner = format!("{}/{{id}}", owner.trim_start_matches("rbac/"));
            family_paths(paths, family, &family.path.replace("{owner}", &owner));
        }
    }
}

fn reads(family: &Family, summary: &str) -> OperationBuilder {
    let made = OperationBuilder::new().tag(family.name).summary(Some(summary.to_owned()));
    with_errors(made, Errors::Problem, &READ_ERRORS)
}

fn writes(family: &Family, summary: &str) -> OperationBuilder {
    let made = OperationBuilder::new().tag(family.name).summary(Some(summary.to_owned()));
    let made = managed(made.parameter(query("dryRun", flag(), "checks and answers, and changes nothing")));
    with_errors(made, Errors::Problem, &WRITE_ERRORS)
}

/// Adds the header with which managed entities can be changed.
pub(super) fn managed(made: OperationBuilder) -> OperationBuilder {
    let about = "`true`: changes what another manages (`managedBy`), too, for who has `admin` in the domain";
    made.parameter(header("X-Override-Managed", about))
}

/// Adds the idempotency key of POST requests.
pub(super) fn with_idempotency_key(made: OperationBuilder) -> OperationBuilder {
    let mut key = header("Idempotency-Key", "the same key and body again get the first answer");
    key.schema = Some(string().pattern(Some("^[!-~]{1,255}$")).into());
    made.parameter(key)
}

pub(super) fn guarded(made: OperationBuilder) -> OperationBuilder {
    made.parameter(header("If-Match", "the ETag that is to be changed, or `*`"))
        .parameter(header("If-None-Match", "ETags that are not to be changed; `*`: only if there is none"))
}

fn ok(made: OperationBuilder, about: &str, schema: impl Into<RefOr<Schema>>) -> OperationBuilder {
    made.response("200", answer(about, &[JSON], &schema.into()))
}

fn object(fields: &[(&str, Schema)]) -> Schema {
    let made = fields.iter().fold(ObjectBuilder::new().schema_type(Type::Object), |made, (name, schema)| {
        made.property(*name, schema.clone())
    });
    made.into()
}

fn list_of(items: impl Into<RefOr<Schema>>) -> Schema {
    ArrayBuilder::new().items(items.into()).into()
}

fn texts() -> Schema {
    list_of(string())
}

fn whole() -> Schema {
    ObjectBuilder::new().schema_type(Type::Integer).into()
}

/// The schema of the response to a bulk change.
fn of_many(done: &str) -> Schema {
    let failed = object(&[("id", string().into()), ("code", string().into()), ("detail", string().into())]);
    object(&[(done, texts()), ("failed", list_of(failed))])
}

fn with_list_parameters(made: OperationBuilder) -> OperationBuilder {
    made.parameter(query("filter", string(), "as RFC 7644, section 3.4.2.2: `name sw \"a\" and version gt 1`"))
        .parameter(query("q", string(), "part of a name or description, in any case"))
}

fn family_paths(paths: &mut Paths, family: &Family, path: &str) {
    let entity = if family.owners.is_empty() { format!("{path}/{{id}}") } else { format!("{path}/{{entity}}") };
    collection(paths, family, path);
    of_entity(paths, family, &entity);
    of_all(paths, family, path);
}

fn collection(paths: &mut Paths, family: &Family, path: &str) {
    let name = name_of(family);
    let whole_number = || ObjectBuilder::new().schema_type(Type::Integer).minimum(Some(1.0)).maximum(Some(1000.0));
    let list = with_list_parameters(reads(family, "Lists entities; `<field>=value` is short for a filter"))
        .parameter(query("limit", whole_number(), "most entities of a page, 100 if nothing is said"))
        .parameter(query("cursor", string(), "`nextCursor` of the page before"))
        .parameter(query("sort", string(), "fields, `-` before those that descend"))
        .parameter(query("fields", string(), "fields that are shown"))
        .parameter(query("count", flag(), "adds `total`"));
    put(paths, path, HttpMethod::Get, ok(list, "a page", named(&format!("{name}List"))));
    let make =
        with_idempotency_key(writes(family, "Creates an entity")).request_body(Some(body(&[JSON], &named(&name))));
    put(paths, path, HttpMethod::Post, make.response("201", answer("created", &[JSON], &named(&name))));
    let many = object(&[("items", list_of(named(&format!("{name}Part"))))]);
    let make = guarded(writes(family, "Creates and replaces many, all or none; a single object with `id` is replaced"))
        .request_body(Some(body(&[JSON], &many.into())));
    put(paths, path, HttpMethod::Put, ok(make, "counts and ETags, or the object", any()));
    let make = guarded(writes(family, "Changes the entity whose `id` the patch holds"));
    let make = make.request_body(Some(body(&[MERGE_PATCH, JSON], &named(&format!("{name}Part")))));
    put(paths, path, HttpMethod::Patch, ok(make, "the entity", named(&name)));
    let make = writes(family, "Deletes many").parameter(query("ids", string(), "ids, with commas between"));
    put(paths, path, HttpMethod::Delete, ok(make, "what was deleted and what was not", of_many("deleted")));
}

fn of_entity(paths: &mut Paths, family: &Family, path: &str) {
    let name = name_of(family);
    let read = reads(family, "Reads an entity")
        .parameter(query("fields", string(), "fields that are shown"))
        .parameter(header("If-None-Match", "an ETag that is known"));
    let read = ok(read, "the entity", named(&format!("{name}Part")))
        .response("304", answer("as it is known", &[], &any().into()));
    put(paths, path, HttpMethod::Get, read);
    let make = guarded(writes(family, "Replaces an entity, or creates it under this id"))
        .request_body(Some(body(&[JSON], &named(&name))))
        .response("201", answer("created", &[JSON], &named(&name)));
    put(paths, path, HttpMethod::Put, ok(make, "the entity", named(&name)));
    let make = guarded(writes(family, "Changes an entity by a merge patch (RFC 7396)"));
    let make = make.request_body(Some(body(&[MERGE_PATCH, JSON], &named(&format!("{name}Part")))));
    put(paths, path, HttpMethod::Patch, ok(make, "the entity", named(&name)));
    let mut make = guarded(writes(family, "Deletes an entity"));
    if family.name == ROUTES.name {
        let forms = string().enum_values(Some(["delete", "lift"]));
        make = make.parameter(query(
            "children",
            forms,
            "what becomes of the routes below it; `delete` if nothing is said",
        ));
    }
    put(paths, path, HttpMethod::Delete, make.response("204", answer("deleted", &[], &any().into())));
    let history = ok(reads(family, "Lists the versions of an entity"), "versions", any());
    put(paths, &format!("{path}/history"), HttpMethod::Get, history);
    let version = ObjectBuilder::new().schema_type(Type::Object).property("version", whole()).required("version");
    let make = with_idempotency_key(writes(family, "Brings back a version, also of what was deleted"));
    let make = make.request_body(Some(body(&[JSON], &version.into())));
    put(paths, &format!("{path}/restore"), HttpMethod::Post, ok(make, "the entity", named(&name)));
}

fn of_all(paths: &mut Paths, family: &Family, path: &str) {
    let ids = object(&[("ids", texts())]);
    if family.is_one_row() {
        let make = writes(family, "Orders all entities").request_body(Some(body(&[JSON], &ids.into())));
        put(paths, &format!("{path}/order"), HttpMethod::Put, ok(make, "ids and positions", any()));
    }
    let chosen = object(&[("ids", texts()), ("filter", string().into())]);
    let make = with_idempotency_key(writes(family, "Deletes many")).request_body(Some(body(&[JSON], &chosen.into())));
    let make = ok(make, "what was deleted and what was not", of_many("deleted"));
    put(paths, &format!("{path}/bulk-delete"), HttpMethod::Post, make);
    let patch = object(&[("ids", texts()), ("patch", object(&[]))]);
    let make = with_idempotency_key(writes(family, "Changes many by one patch"))
        .request_body(Some(body(&[JSON], &patch.into())));
    let make = ok(make, "what was changed and what was not", of_many("updated"));
    put(paths, &format!("{path}/bulk-update"), HttpMethod::Post, make);
    let form = || string().enum_values(Some(["json", "yaml"]));
    let export = with_list_parameters(reads(family, "Gives all entities, as the import takes them"))
        .parameter(query("format", form(), "json if nothing is said"))
        .response("200", answer("all that match", &[JSON, YAML], &any().into()));
    put(paths, &format!("{path}/export"), HttpMethod::Get, export);
    let items = object(&[("items", list_of(object(&[])))]);
    let modes = string().enum_values(Some(["upsert", "create", "replace"]));
    let forms: &[&str] = if family.name == RESOURCES.name { &[JSON, YAML, CSV] } else { &[JSON, YAML] };
    let make = with_idempotency_key(writes(family, "Takes an export, all or nothing"))
        .parameter(query("mode", modes, "upsert if nothing is said"))
        .parameter(query("filter", string(), "`replace` deletes what the body lacks among these only"))
        .request_body(Some(body(forms, &items.into())));
    put(paths, &format!("{path}/import"), HttpMethod::Post, ok(make, "counts and changes", any()));
}
