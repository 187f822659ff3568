//! One route in words: what it takes, what it answers, why it refuses.

use super::refusals::{self, Refusal};
use super::responses::{Responses, refused, request_id, share};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use utoipa::openapi::content::ContentBuilder;
use utoipa::openapi::path::{
    HttpMethod, OperationBuilder, ParameterBuilder, ParameterIn, PathItem,
};
use utoipa::openapi::request_body::RequestBodyBuilder;
use utoipa::openapi::response::ResponseBuilder;
use utoipa::openapi::schema::{ArrayBuilder, ObjectBuilder, Schema, SchemaFormat, Type};
use utoipa::openapi::{Ref, RefOr, Required, SecurityRequirement};
use utoipa::{PartialSchema, ToSchema};

/// A named schema and those below it.
type Schemas = Vec<(String, RefOr<Schema>)>;

/// One route, described.
pub(in crate::api) struct Described {
    path: &'static str,
    method: HttpMethod,
    operation: OperationBuilder,
    refusals: Vec<Refusal>,
    schemas: Schemas,
    answers: Vec<String>,
}

/// A route of a tag, by its method and path, under a name for programs and a line for people.
pub(super) fn route(
    method: HttpMethod,
    path: &'static str,
    tag: &str,
    name: &str,
    summary: &str,
) -> Described {
    let operation = OperationBuilder::new()
        .tag(tag)
        .operation_id(Some(name))
        .summary(Some(summary));
    let mut described = Described {
        path,
        method,
        operation,
        refusals: refusals::ANY.to_vec(),
        schemas: Vec::new(),
        answers: Vec::new(),
    };
    described.note::<sandboxd_api::error::ErrorBody>();
    described
}

impl Described {
    /// More about it.
    pub(super) fn about(mut self, text: &str) -> Self {
        self.operation = self.operation.description(Some(text));
        self
    }

    /// Needs no token.
    pub(super) fn for_everybody(mut self) -> Self {
        self.operation = self.operation.security(SecurityRequirement::default());
        self
    }

    /// Needs the service's token.
    pub(super) fn for_the_service(mut self) -> Self {
        self.operation = secured(self.operation);
        self.refuses(refusals::SERVICE)
    }

    /// Belongs to a session, and needs its token or the service's.
    pub(super) fn of_session(mut self) -> Self {
        let about = "The session's id.";
        self.operation = secured(self.operation).parameter(path_part(
            "session_id",
            about,
            sandboxd_api::NAME_PATTERN,
        ));
        self.refuses(refusals::SESSION)
    }

    /// Belongs to a stored workspace, and needs the service's token.
    pub(super) fn of_workspace(mut self) -> Self {
        let about = "The id of the session whose workspace it is.";
        self.operation = secured(self.operation).parameter(path_part(
            "session_id",
            about,
            sandboxd_api::NAME_PATTERN,
        ));
        self.refuses(refusals::SERVICE).refuses(refusals::WORKSPACE)
    }

    /// One more part of the path.
    pub(super) fn part(mut self, name: &str, about: &str, pattern: &str) -> Self {
        self.operation = self.operation.parameter(path_part(name, about, pattern));
        self.refuses(refusals::FIELDS)
    }

    /// A field of the query that may be left out.
    pub(super) fn query(
        mut self,
        name: &str,
        about: &str,
        schema: ObjectBuilder,
        example: Value,
    ) -> Self {
        let field = ParameterBuilder::new()
            .name(name)
            .parameter_in(ParameterIn::Query)
            .required(Required::False)
            .description(Some(about))
            .schema(Some(schema))
            .example(Some(example));
        self.operation = self.operation.parameter(field);
        self.refuses(refusals::FIELDS)
    }

    /// A text of the query that must be there.
    pub(super) fn needs_query(mut self, name: &str, about: &str, example: &str) -> Self {
        let field = ParameterBuilder::new()
            .name(name)
            .parameter_in(ParameterIn::Query)
            .required(Required::True)
            .description(Some(about))
            .schema(Some(ObjectBuilder::new().schema_type(Type::String)))
            .example(Some(json!(example)));
        self.operation = self.operation.parameter(field);
        self.refuses(refusals::FIELDS)
    }

    /// A JSON body.
    pub(super) fn takes<T: ToSchema>(mut self, example: Value) -> Self {
        let content = ContentBuilder::new()
            .schema(Some(self.note::<T>()))
            .example(Some(example));
        let body = RequestBodyBuilder::new()
            .required(Some(Required::True))
            .content("application/json", content.build());
        self.operation = self.operation.request_body(Some(body.build()));
        self.refuses(refusals::JSON_BODY)
    }

    /// A body of raw bytes, of any type or none.
    pub(super) fn takes_bytes(mut self, about: &str) -> Self {
        let body = RequestBodyBuilder::new()
            .description(Some(about))
            .required(Some(Required::False))
            .content("application/octet-stream", bytes_content());
        self.operation = self.operation.request_body(Some(body.build()));
        self.refuses(refusals::BODY)
    }

    /// Answers 200 with JSON.
    pub(super) fn gives<T: ToSchema>(mut self, about: &str, example: Value) -> Self {
        let schema = self.note::<T>();
        self.answered::<T>();
        self.success("200", about, "application/json", schema, example)
    }

    /// Answers 200 with a JSON list.
    pub(super) fn gives_list<T: ToSchema>(mut self, about: &str, example: Value) -> Self {
        let schema = ArrayBuilder::new().items(self.note::<T>());
        self.answered::<T>();
        self.success(
            "200",
            about,
            "application/json",
            Schema::from(schema).into(),
            example,
        )
    }

    /// Answers 200 with raw bytes.
    pub(super) fn gives_bytes(mut self, about: &str) -> Self {
        let response = ResponseBuilder::new()
            .description(about)
            .header(sandboxd_api::REQUEST_ID_HEADER, request_id())
            .content("application/octet-stream", bytes_content());
        self.operation = self.operation.response("200", response);
        self
    }

    /// Answers 200 with a page.
    pub(super) fn gives_page(self, about: &str) -> Self {
        let schema = Schema::from(ObjectBuilder::new().schema_type(Type::String));
        self.success(
            "200",
            about,
            "text/html",
            schema.into(),
            json!("<!doctype html>…"),
        )
    }

    /// Answers 200 with plain text.
    pub(super) fn gives_text(self, about: &str, example: &str) -> Self {
        let schema = Schema::from(ObjectBuilder::new().schema_type(Type::String));
        self.success("200", about, "text/plain", schema.into(), json!(example))
    }

    /// Answers 200 with a JSON object of no schema of ours.
    pub(super) fn gives_object(self, about: &str, example: Value) -> Self {
        let schema = Schema::from(ObjectBuilder::new().schema_type(Type::Object));
        self.success("200", about, "application/json", schema.into(), example)
    }

    /// Answers 204.
    pub(super) fn gives_nothing(mut self, about: &str) -> Self {
        let response = ResponseBuilder::new()
            .description(about)
            .header(sandboxd_api::REQUEST_ID_HEADER, request_id());
        self.operation = self.operation.response("204", response);
        self
    }

    /// Why it refuses. What is said later about the same reason counts.
    pub(super) fn refuses(mut self, why: &[Refusal]) -> Self {
        for refusal in why {
            let same =
                |known: &&mut Refusal| known.code == refusal.code && known.status == refusal.status;
            match self.refusals.iter_mut().find(same) {
                Some(known) => *known = *refusal,
                None => self.refusals.push(*refusal),
            }
        }
        self
    }

    fn success(
        mut self,
        status: &str,
        about: &str,
        kind: &str,
        schema: RefOr<Schema>,
        example: Value,
    ) -> Self {
        let content = ContentBuilder::new()
            .schema(Some(schema))
            .example(Some(example));
        let response = ResponseBuilder::new()
            .description(about)
            .header(sandboxd_api::REQUEST_ID_HEADER, request_id())
            .content(kind, content.build());
        self.operation = self.operation.response(status, response);
        self
    }

    /// Notes that a type is an answer, and what it is made of too.
    fn answered<T: ToSchema>(&mut self) {
        let mut below = Vec::new();
        T::schemas(&mut below);
        self.answers.extend(below.into_iter().map(|(name, _)| name));
        self.answers.push(T::name().into_owned());
    }

    /// Notes a type and what it is made of, and refers to it.
    fn note<T: ToSchema>(&mut self) -> RefOr<Schema> {
        let name = T::name().into_owned();
        T::schemas(&mut self.schemas);
        self.schemas
            .push((name.clone(), <T as PartialSchema>::schema()));
        Ref::from_schema_name(name).into()
    }

    /// The schemas that this route needs.
    pub(super) fn schemas(&self) -> Schemas {
        self.schemas.clone()
    }

    /// The names of the types that this route answers with.
    pub(super) fn answers(&self) -> Vec<String> {
        self.answers.clone()
    }

    /// The words for why it refuses.
    #[cfg(test)]
    pub(super) fn codes(&self) -> Vec<&'static str> {
        self.refusals.iter().map(|reason| reason.code).collect()
    }

    /// Where it stands and what the document holds of it. What several routes refuse for is written once, in `shared`.
    pub(super) fn item(self, shared: &mut Responses) -> (&'static str, PathItem) {
        let mut by_status: BTreeMap<u16, Vec<Refusal>> = BTreeMap::new();
        for refusal in self.refusals {
            by_status.entry(refusal.status).or_default().push(refusal);
        }
        let mut operation = self.operation;
        for (status, why) in by_status {
            let codes: Vec<&str> = why.iter().map(|reason| reason.code).collect();
            let name = share(
                shared,
                &format!("{status}-{}", codes.join("-")),
                refused(&why),
            );
            operation = operation.response(status.to_string(), Ref::from_response_name(name));
        }
        (self.path, PathItem::new(self.method, operation))
    }
}

fn secured(operation: OperationBuilder) -> OperationBuilder {
    let none: [&str; 0] = [];
    operation
        .security(SecurityRequirement::new("SandboxToken", none))
        .security(SecurityRequirement::new("Bearer", none))
}

fn path_part(name: &str, about: &str, pattern: &str) -> ParameterBuilder {
    let schema = ObjectBuilder::new()
        .schema_type(Type::String)
        .pattern(Some(pattern));
    let example = match name {
        "run_id" => "0b5a3c1d9e8f47a6b2c4d6e8f0a1b3c5",
        _ => "conversation-5f2c9a1e",
    };
    ParameterBuilder::new()
        .name(name)
        .parameter_in(ParameterIn::Path)
        .required(Required::True)
        .description(Some(about))
        .schema(Some(schema))
        .example(Some(json!(example)))
}

fn bytes_content() -> utoipa::openapi::Content {
    let format = SchemaFormat::Custom("binary".to_owned());
    let schema = ObjectBuilder::new()
        .schema_type(Type::String)
        .format(Some(format));
    ContentBuilder::new().schema(Some(schema)).build()
}
