//! The OpenAPI document, and the page that shows it. Schemas come from the types of the API; what each route does, which
//! answers it has and when it refuses stands here, one file per resource.
//!
//! - [`describe`]: one route in words; [`refusals`]: why requests are refused; [`responses`]: what is answered then.
//! - [`service`], [`sessions`], [`run`], [`files`], [`shell`], [`archive`]: the routes.
//! - `page.html`: the document for people, in a browser, served by [`super::page`].

mod archive;
mod describe;
mod files;
mod refusals;
mod responses;
mod run;
mod service;
mod sessions;
mod shell;

use super::answer::{self, Answer};
use describe::Described;
use sandboxd_api::TOKEN_HEADER;
use serde_json::Value;
use std::collections::BTreeSet;
use std::sync::OnceLock;
use utoipa::openapi::schema::{Object, Schema};
use utoipa::openapi::security::{ApiKey, ApiKeyValue, HttpAuthScheme, HttpBuilder, SecurityScheme};
use utoipa::openapi::tag::TagBuilder;
use utoipa::openapi::{
    ComponentsBuilder, InfoBuilder, LicenseBuilder, OpenApi, OpenApiBuilder, PathsBuilder, RefOr,
};

/// What stands above the routes.
const ABOUT: &str = "\
Rents disposable sandboxes to AI agents.

**Sessions.** `POST /sessions` opens one and answers its token. A session holds at most one sandbox at a time; it may be \
put to sleep to make room, and its next use wakes it. Its work directory outlives the sandbox where the service stores \
workspaces. Whoever opens the same id finds the same files, so an id must not be guessable.

**Tokens.** The service's token works everywhere. A session's own token works on the routes of that session only. Both \
are sent as `X-Sandbox-Token` or as `Authorization: Bearer`; one of them, once.

**Two generations of clients** are served at once. The workspace routes (`/run`, `/files/…`) answer with statuses; the \
shell routes (`/exec`, `/read`, `/write`, …) answer 200 with a value that says what failed inside the sandbox.

**Refusals** have a JSON body whose `detail` is a text, a named file error, or a list of misfitting fields, and a header \
`X-Error-Code` with a stable word for programs. Unknown fields of a request are ignored, except by `PUT /policy`. \
Answers have all of their fields, `null` where there is no value; more may be added. `X-Request-Id` is taken over from \
the request, or made, and answered.";

/// The tags: name and description.
const TAGS: [(&str, &str); 6] = [
    (
        service::TAG,
        "What the service is, how full it is, and what it allows.",
    ),
    (
        sessions::TAG,
        "Opening, listing, watching and closing sessions.",
    ),
    (
        run::TAG,
        "Running programs to their end, and stopping them.",
    ),
    (
        files::TAG,
        "Files below the work directory, done from outside the sandbox where that is safe. 409 means that a program \
         inside has to do it: links, special files, or a service that stores no workspaces. A sleeping session is not \
         woken.",
    ),
    (
        shell::TAG,
        "The older routes: commands and files as a shell sees them. Paths may be relative to the work directory and \
         reach anywhere in the sandbox. What fails inside answers 200 with a value that says so.",
    ),
    (
        archive::TAG,
        "Stored workspaces, whether or not their session is open. Nothing is started. Paths are relative to the \
         workspace; links are not followed.",
    ),
];

/// Every route in words.
fn described() -> Vec<Described> {
    let mut all = service::routes();
    all.extend(sessions::routes());
    all.extend(run::routes());
    all.extend(files::routes());
    all.extend(shell::routes());
    all.extend(archive::routes());
    all
}

/// The document.
pub(super) fn document() -> OpenApi {
    let mut paths = PathsBuilder::new();
    let mut components = ComponentsBuilder::new()
        .security_scheme("SandboxToken", header_scheme())
        .security_scheme("Bearer", bearer_scheme())
        .build();
    let mut answers = BTreeSet::new();
    for route in described() {
        components.schemas.extend(route.schemas());
        answers.extend(route.answers());
        let (path, item) = route.item(&mut components.responses);
        paths = paths.path(path, item);
    }
    for (name, schema) in &mut components.schemas {
        if let RefOr::T(Schema::Object(object)) = schema {
            tidy(object, answers.contains(name));
        }
    }
    let info = InfoBuilder::new()
        .title("sandboxd")
        .version(env!("CARGO_PKG_VERSION"))
        .description(Some(ABOUT))
        .license(Some(license()))
        .build();
    let tags = TAGS.map(|(name, about)| {
        let tag = TagBuilder::new().name(name).description(Some(about));
        tag.build()
    });
    OpenApiBuilder::new()
        .info(info)
        .tags(Some(tags))
        .paths(paths)
        .components(Some(components))
        .build()
}

/// Fields that the contract's answers do not have: left out where there is nothing to say in them.
const LEFT_OUT: &[&str] = &["killed_for", "limits_reached", "in_force"];

/// What the types alone do not say.
fn tidy(object: &mut Object, is_answer: bool) {
    if is_answer {
        // The types also read answers of services that say less; this one says everything.
        let said = object.properties.keys();
        let said = said.filter(|name| !LEFT_OUT.contains(&name.as_str()));
        object.required = said.cloned().collect();
    }
    for field in object.properties.values_mut() {
        match field {
            // Left out is not the same as `null` where `null` clears.
            RefOr::T(Schema::Object(field)) if field.default == Some(Value::Null) => {
                field.default = None
            }
            // A description belongs to the field, not to one of its alternatives.
            RefOr::T(Schema::OneOf(field)) => {
                for alternative in &mut field.items {
                    if let RefOr::Ref(reference) = alternative {
                        let about = std::mem::take(&mut reference.description);
                        field.description = Some(about).filter(|about| !about.is_empty());
                    }
                }
            }
            _ => {}
        }
    }
}

fn license() -> utoipa::openapi::License {
    LicenseBuilder::new()
        .name("Apache-2.0")
        .identifier(Some("Apache-2.0"))
        .build()
}

fn header_scheme() -> SecurityScheme {
    let about = "The service's token, or a session's own on the routes of that session.";
    SecurityScheme::ApiKey(ApiKey::Header(ApiKeyValue::with_description(
        TOKEN_HEADER,
        about,
    )))
}

fn bearer_scheme() -> SecurityScheme {
    let scheme = HttpBuilder::new()
        .scheme(HttpAuthScheme::Bearer)
        .description(Some("The same tokens."));
    SecurityScheme::Http(scheme.build())
}

/// `GET /openapi.json`
pub(super) async fn openapi() -> Answer {
    static TEXT: OnceLock<bytes::Bytes> = OnceLock::new();
    let text = TEXT.get_or_init(|| {
        let text = document().to_json();
        text.unwrap_or_else(|error| {
            tracing::error!(%error, "the OpenAPI document could not be written");
            String::new()
        })
        .into()
    });
    Ok(answer::bytes(text.clone(), "application/json"))
}

#[cfg(test)]
mod tests;
