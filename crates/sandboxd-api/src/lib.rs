//! The HTTP API of sandboxd as types: every request, answer and error body.
//!
//! Two generations of clients are served at once. The *workspace* routes (`/run`, `/files/…`, `/tree`) are those of
//! current clients; the *shell* routes (`/exec`, `/read`, `/write`, …) are those of older ones. Every field of an answer
//! is always there, `null` where it has no value; clients ignore fields that they do not know.
//!
//! - [`sessions`]: opening, listing and watching sessions.
//! - [`run`]: programs, and how they ended.
//! - [`files`]: files of a session, by the workspace routes.
//! - [`shell`]: the older routes.
//! - [`archive`]: stored workspaces, read without a sandbox.
//! - [`policy`]: what the service allows.
//! - [`service`]: health and index.
//! - [`error`]: bodies of refusals.

pub mod archive;
pub mod error;
pub mod files;
pub mod policy;
pub mod run;
pub mod service;
pub mod sessions;
pub mod shell;

/// The header that carries a token. `Authorization: Bearer` is accepted too.
pub const TOKEN_HEADER: &str = "X-Sandbox-Token";
/// The header that carries the request's id, in both directions.
pub const REQUEST_ID_HEADER: &str = "X-Request-Id";
/// The header that carries a refusal's code: a stable word for programs, where the body's words are for people.
pub const ERROR_CODE_HEADER: &str = "X-Error-Code";
/// What a session id and a tenant look like.
pub const NAME_PATTERN: &str = "^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$";
/// What a run's id looks like.
pub const RUN_ID_PATTERN: &str = "^[0-9a-f]{32}$";

#[cfg(test)]
mod tests {
    use super::policy::PolicyUpdate;
    use super::sessions::{CreateSession, SessionInfo};

    #[test]
    fn an_absent_field_and_null_are_kept_apart() {
        let update: PolicyUpdate =
            serde_json::from_str(r#"{"max_sessions": null, "cpus": 1}"#).expect("an update");
        assert_eq!(update.max_sessions, Some(None));
        assert_eq!(update.cpus, Some(Some(1.0)));
        assert_eq!(update.mem_limit, None);
        let text = serde_json::to_string(&update).expect("JSON");
        assert_eq!(text, r#"{"max_sessions":null,"cpus":1.0}"#);
        assert!(serde_json::from_str::<PolicyUpdate>(r#"{"network_mode": "host"}"#).is_err());
    }

    #[test]
    fn a_client_reads_answers_of_services_that_say_less_or_more() {
        let text = r#"{"session_id":"a","runtime":"r","tenant":null,"alive":true,"state":"hibernated","created_at":1.5,
            "last_activity":2,"idle_seconds":0.25,"usage":null,"new_field":[1]}"#;
        let info: SessionInfo = serde_json::from_str(text).expect("an info");
        assert!(info.enforced.is_empty());
        let create = serde_json::to_value(CreateSession::default()).expect("JSON");
        assert_eq!(
            create,
            serde_json::json!({"session_id": null, "runtime": null, "tenant": null, "reuse": false, "attach": false})
        );
    }
}
