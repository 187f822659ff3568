//! What a route answers when it refuses, written once for all routes with the same reasons.

use super::refusals::Refusal;
use serde_json::json;
use std::collections::BTreeMap;
use utoipa::openapi::content::ContentBuilder;
use utoipa::openapi::example::ExampleBuilder;
use utoipa::openapi::response::{Response, ResponseBuilder};
use utoipa::openapi::schema::{ObjectBuilder, Type};
use utoipa::openapi::{HeaderBuilder, Ref, RefOr};

/// Responses by name.
pub(super) type Responses = BTreeMap<String, RefOr<Response>>;

/// Keeps a response under its name, or under another one if something else has it. Answers the name.
pub(super) fn share(shared: &mut Responses, name: &str, response: Response) -> String {
    let response = RefOr::T(response);
    let mut free = name.to_owned();
    for number in 2.. {
        match shared.get(&free) {
            Some(known) if *known != response => free = format!("{name}-{number}"),
            Some(_) | None => break,
        }
    }
    shared.insert(free.clone(), response);
    free
}

/// The header that every answer has.
pub(super) fn request_id() -> utoipa::openapi::Header {
    HeaderBuilder::new()
        .description(Some("The request's id."))
        .schema(Some(ObjectBuilder::new().schema_type(Type::String)))
        .build()
}

/// The header of an answer that may be another one soon.
fn retry_after() -> utoipa::openapi::Header {
    HeaderBuilder::new()
        .description(Some("After how many seconds to ask again."))
        .schema(Some(ObjectBuilder::new().schema_type(Type::Integer)))
        .build()
}

/// One status with every reason for it.
pub(super) fn refused(why: &[Refusal]) -> Response {
    let about: Vec<String> = match why {
        [only] => vec![only.about.to_owned()],
        several => several
            .iter()
            .map(|reason| format!("- `{}`: {}", reason.code, reason.about))
            .collect(),
    };
    let code = HeaderBuilder::new()
        .description(Some("A stable word for programs."))
        .schema(Some(
            ObjectBuilder::new()
                .schema_type(Type::String)
                .enum_values(Some(why.iter().map(|reason| reason.code))),
        ))
        .build();
    let response = ResponseBuilder::new()
        .description(about.join("\n"))
        .header(sandboxd_api::REQUEST_ID_HEADER, request_id());
    if why.iter().all(|reason| reason.detail.is_plain()) {
        let schema = ObjectBuilder::new().schema_type(Type::String);
        let content = ContentBuilder::new()
            .schema(Some(schema))
            .example(Some(json!("Internal Server Error")));
        return response.content("text/plain", content.build()).build();
    }
    let examples = why
        .iter()
        .filter(|reason| !reason.detail.is_plain())
        .map(|reason| {
            let example =
                ExampleBuilder::new().value(Some(json!({ "detail": reason.detail.value() })));
            (reason.code, RefOr::T(example.build()))
        });
    let content = ContentBuilder::new()
        .schema(Some(Ref::from_schema_name("ErrorBody")))
        .examples_from_iter(examples);
    let mut response = response;
    if matches!(
        why,
        [
            Refusal {
                status: 429 | 503,
                ..
            },
            ..
        ]
    ) {
        response = response.header("Retry-After", retry_after());
    }
    let mut response = response
        .header(sandboxd_api::ERROR_CODE_HEADER, code)
        .content("application/json", content.build());
    if why.iter().any(|reason| reason.detail.is_plain()) {
        let schema = ObjectBuilder::new().schema_type(Type::String);
        response = response.content(
            "text/plain",
            ContentBuilder::new().schema(Some(schema)).build(),
        );
    }
    response.build()
}
