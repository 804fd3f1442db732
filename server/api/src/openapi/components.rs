//! Components that operations refer to: schemas, formats of errors, authentication.

use quiver_config::families::FAMILIES;
use utoipa::openapi::schema::{Components, ComponentsBuilder};
use utoipa::openapi::security::{HttpAuthScheme, HttpBuilder, SecurityScheme};
use utoipa::openapi::{ContentBuilder, ResponseBuilder};

use super::operation::Errors;
use super::schemas::{Extent, entity, name_of, page_of, problem};

/// All components.
pub(super) fn components() -> Components {
    let mut made = ComponentsBuilder::new().schema("Problem", problem());
    for family in FAMILIES.iter().copied() {
        let name = name_of(family);
        made = made
            .schema(name.clone(), entity(family, Extent::Whole))
            .schema(format!("{name}Part"), entity(family, Extent::Part))
            .schema(format!("{name}List"), page_of(&name));
    }
    for errors in Errors::ALL {
        let about = errors
            .forms()
            .into_iter()
            .fold(ResponseBuilder::new().description(errors.about()), |about, (kind, schema)| {
                about.content(kind, ContentBuilder::new().schema(Some(schema)).build())
            });
        made = made.response(errors.name(), about.build());
    }
    made.security_scheme("bearer", SecurityScheme::Http(HttpBuilder::new().scheme(HttpAuthScheme::Bearer).build()))
        .security_scheme("basic", SecurityScheme::Http(HttpBuilder::new().scheme(HttpAuthScheme::Basic).build()))
        .build()
}
