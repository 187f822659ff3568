//! What a handler is given: a caller, a session's id, a body. The order of a handler's arguments is the order of the
//! checks: id's form, token, existence, then query and body.

use super::App;
use super::answer::{self, Answer};
use super::body;
use super::decode::{Decode, Fields, body_of, path_misfit};
use super::error::Failure;
use crate::auth::{Caller, Unauthorized};
use crate::id::{RunId, SessionId};
use axum::extract::{FromRequest, FromRequestParts, RawPathParams, Request, State};
use axum::http::request::Parts;
use axum::http::{HeaderMap, header};

/// The token that a request presents. Absent, doubled or contradicting ones are none.
fn presented(headers: &HeaderMap) -> Result<&[u8], Unauthorized> {
    let own = only(headers, sandboxd_api::TOKEN_HEADER)?;
    let bearer = only(headers, header::AUTHORIZATION.as_str())?.and_then(bearer_of);
    match (own, bearer) {
        (Some(own), Some(bearer)) if own != bearer => Err(Unauthorized),
        (Some(token), _) | (None, Some(token)) if !token.is_empty() => Ok(token),
        _ => Err(Unauthorized),
    }
}

/// The one value of a header; a header that is there twice is a trick on whoever reads only one of them.
fn only<'a>(headers: &'a HeaderMap, name: &str) -> Result<Option<&'a [u8]>, Unauthorized> {
    let mut values = headers.get_all(name).iter();
    let first = values.next();
    if values.next().is_some() {
        return Err(Unauthorized);
    }
    Ok(first.map(|value| value.as_bytes().trim_ascii()))
}

/// The token of an `Authorization` value; another scheme than `Bearer` is somebody else's.
fn bearer_of(value: &[u8]) -> Option<&[u8]> {
    let (scheme, token) = value.split_at_checked(7)?;
    scheme
        .eq_ignore_ascii_case(b"bearer ")
        .then(|| token.trim_ascii())
}

/// Whom a request came from, as far as the socket tells: a proxy in front is one.
#[derive(Debug, Clone, Copy)]
pub(super) struct Peer(pub(super) std::net::SocketAddr);

/// A caller with the service token.
#[derive(Debug)]
pub(super) struct Service;

impl FromRequestParts<App> for Service {
    type Rejection = Failure;
    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Self, Failure> {
        app.guard.service(presented(&parts.headers)?)?;
        Ok(Self)
    }
}

/// An open session, and a caller who may use it: the form of the id is checked before the token, and whether the
/// session exists is told to the service token only.
#[derive(Debug)]
pub(super) struct OfSession(pub(super) SessionId);

impl FromRequestParts<App> for OfSession {
    type Rejection = Failure;
    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Self, Failure> {
        let id = session_id(parts, app).await?;
        let caller: Caller = app
            .guard
            .session(presented(&parts.headers)?, &id, |id, token| {
                app.sessions.check_token(id, token)
            })?;
        if caller.is_service() && app.sessions.get(&id).is_none() {
            return Err(crate::sessions::UseError::NotFound(id).into());
        }
        Ok(Self(id))
    }
}

/// A stored workspace's id, and a caller with the service token, which is checked first.
#[derive(Debug)]
pub(super) struct OfWorkspace(pub(super) SessionId);

impl FromRequestParts<App> for OfWorkspace {
    type Rejection = Failure;
    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Self, Failure> {
        Service::from_request_parts(parts, app).await?;
        session_id(parts, app).await.map(Self)
    }
}

/// A run's id in the path.
#[derive(Debug)]
pub(super) struct OfRun(pub(super) RunId);

impl FromRequestParts<App> for OfRun {
    type Rejection = Failure;
    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Self, Failure> {
        let text = path_part(parts, app, "run_id").await?;
        RunId::parse(&text)
            .map(Self)
            .map_err(|invalid| path_misfit("run_id", &text, invalid.pattern))
    }
}

async fn session_id(parts: &mut Parts, app: &App) -> Result<SessionId, Failure> {
    let text = path_part(parts, app, "session_id").await?;
    SessionId::parse(&text).map_err(|invalid| path_misfit("session_id", &text, invalid.pattern))
}

/// A decoded part of the path. An encoded separator is no part of an id but of another path, which has no route.
async fn path_part(parts: &mut Parts, app: &App, name: &str) -> Result<String, Failure> {
    let Ok(params) = RawPathParams::from_request_parts(parts, app).await else {
        return Err(Failure::Route);
    };
    let raw = params.iter().find(|(found, _)| *found == name);
    let text = raw.map(|(_, value)| value.to_owned()).unwrap_or_default();
    if text.contains('/') {
        return Err(Failure::Route);
    }
    Ok(text)
}

/// A query's fields.
#[derive(Debug)]
pub(super) struct Query<T>(pub(super) T);

impl<T: Decode> FromRequestParts<App> for Query<T> {
    type Rejection = Failure;
    async fn from_request_parts(parts: &mut Parts, _: &App) -> Result<Self, Failure> {
        let mut fields = Fields::of_query(parts.uri.query());
        let decoded = T::decode(&mut fields);
        fields.done(decoded).map(Self)
    }
}

/// A JSON body's fields.
#[derive(Debug)]
pub(super) struct Json<T>(pub(super) T);

impl<T: Decode + Send> FromRequest<App> for Json<T> {
    type Rejection = Failure;
    async fn from_request(request: Request, app: &App) -> Result<Self, Failure> {
        let json = is_json(request.headers());
        let bounds = body::Bounds {
            limit: app.sessions.service().max_body_bytes,
            budget: &app.bodies,
            held: body::Held::of(request.extensions()),
        };
        let text = body::whole_json(request.into_body(), bounds).await?;
        let mut fields = Fields::of_body(body_of(&text, json)?)?;
        drop(text);
        let decoded = T::decode(&mut fields);
        if T::STRICT {
            fields.refuse_rest();
        }
        fields.done(decoded).map(Self)
    }
}

/// `application/json` or `application/*+json`, with any parameters.
fn is_json(headers: &HeaderMap) -> bool {
    let Some(value) = headers.get(header::CONTENT_TYPE) else {
        return false;
    };
    let essence = value.as_bytes().split(|&byte| byte == b';').next();
    let essence = essence
        .unwrap_or_default()
        .trim_ascii()
        .to_ascii_lowercase();
    let subtype = essence.strip_prefix(b"application/".as_slice());
    subtype.is_some_and(|subtype| subtype == b"json" || subtype.ends_with(b"+json"))
}

/// No such route. One that exists without its last slash is pointed at, by its path alone: what a client says about the
/// host it meant is not repeated.
pub(super) async fn no_route(State(app): State<App>, request: Request) -> Answer {
    let path = request.uri().path();
    match path.strip_suffix('/') {
        Some(shorter) if app.has_route(shorter) => {
            let query = request.uri().query().map(|query| format!("?{query}"));
            let target = format!("{shorter}{}", query.unwrap_or_default());
            Ok(answer::moved(&target))
        }
        _ => Err(Failure::Route),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::http::HeaderValue;

    fn headers(pairs: &[(&'static str, &[u8])]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in pairs {
            headers.append(*name, HeaderValue::from_bytes(value).expect("a value"));
        }
        headers
    }

    #[test]
    fn a_token_comes_in_one_of_two_headers_and_only_once() {
        let found =
            |pairs: &[(&'static str, &[u8])]| presented(&headers(pairs)).map(<[u8]>::to_vec);
        let token = Ok(b"t".to_vec());
        assert_eq!(found(&[("x-sandbox-token", b" t ")]), token);
        assert_eq!(found(&[("authorization", b"Bearer t")]), token);
        assert_eq!(found(&[("authorization", b"bearer  t ")]), token);
        let both: &[(&'static str, &[u8])] =
            &[("x-sandbox-token", b"t"), ("authorization", b"Bearer t")];
        assert_eq!(found(both), token);
        let basic: &[(&'static str, &[u8])] =
            &[("x-sandbox-token", b"t"), ("authorization", b"Basic eA==")];
        assert_eq!(found(basic), token);
        let none: &[&[(&'static str, &[u8])]] = &[
            &[],
            &[("x-sandbox-token", b"")],
            &[("x-sandbox-token", b"t"), ("x-sandbox-token", b"t")],
            &[("x-sandbox-token", b"t"), ("x-sandbox-token", b"u")],
            &[
                ("authorization", b"Bearer t"),
                ("authorization", b"Bearer t"),
            ],
            &[("x-sandbox-token", b"t"), ("authorization", b"Bearer u")],
            &[("x-sandbox-token", b""), ("authorization", b"Bearer u")],
            &[("authorization", b"Basic t")],
            &[("authorization", b"Bearer")],
            &[("authorization", b"Bearer ")],
        ];
        for pairs in none {
            assert_eq!(found(pairs), Err(Unauthorized), "{pairs:?}");
        }
    }

    #[test]
    fn json_is_told_by_its_type() {
        for yes in [
            "application/json",
            "Application/JSON; charset=utf-8",
            "application/x+json",
        ] {
            assert!(
                is_json(&headers(&[("content-type", yes.as_bytes())])),
                "{yes}"
            );
        }
        for no in [
            "text/plain",
            "application/x-www-form-urlencoded",
            "json",
            "",
        ] {
            assert!(
                !is_json(&headers(&[("content-type", no.as_bytes())])),
                "{no}"
            );
        }
        assert!(!is_json(&HeaderMap::new()));
    }
}
