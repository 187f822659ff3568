//! Opening, listing, watching and closing sessions.

use super::describe::{Described, route};
use super::refusals;
use sandboxd_api::sessions::{
    CreateSession, RenewSession, SessionCreated, SessionEvents, SessionInfo, SessionList,
};
use serde_json::{Value, json};
use utoipa::openapi::path::HttpMethod::{Delete, Get, Post};
use utoipa::openapi::schema::{ObjectBuilder, Type};

pub(super) const TAG: &str = "sessions";

const USAGE: &str =
    "Whether to take a usage sample (memory, CPU, processes), which may cost a moment.";

fn flag() -> ObjectBuilder {
    ObjectBuilder::new()
        .schema_type(Type::Boolean)
        .default(Some(json!(false)))
}

pub(super) fn routes() -> Vec<Described> {
    let after = ObjectBuilder::new()
        .schema_type(Type::Integer)
        .minimum(Some(0))
        .default(Some(json!(0)));
    vec![
        route(Post, "/sessions", TAG, "open_session", "Open a session")
            .about(
                "Answers once the sandbox runs, which may take as long as its image needs to be made ready. An open goes on \
                 when the client hangs up. With the id of a closed session the new one finds its stored files.\n\n\
                 With `reuse` an open session of the id is answered with the token it has; with `attach` also, and \
                 otherwise only what is stored is opened. A sleeping session is woken.",
            )
            .for_the_service()
            .takes::<CreateSession>(json!({ "session_id": "conversation-5f2c9a1e", "runtime": "python", "reuse": true }))
            .gives::<SessionCreated>(
                "The session, and its own token.",
                json!({ "session": session(), "token": "Qk3vZ0xk1c2m0nq8l6w1hN4sJ7uYt5rB9aEfGiKoLpM" }),
            )
            .refuses(refusals::OPEN),
        route(Get, "/sessions", TAG, "list_sessions", "List the open sessions")
            .for_the_service()
            .query("usage", USAGE, flag(), json!(true))
            .query(
                "label",
                "Only sessions with this label: `name=value`, or a name alone for any value. May be given more than once; \
                 a session has to have them all.",
                ObjectBuilder::new().schema_type(Type::String),
                json!("user=42"),
            )
            .gives::<SessionList>(
                "The sessions in order of creation, and the ceilings that count them.",
                json!({ "sessions": [session()], "limit": 20, "open_limit": 200, "tenant_limit": 5 }),
            ),
        route(Get, "/sessions/{session_id}", TAG, "show_session", "Show a session")
            .about("Neither wakes nor heals nor touches it.")
            .of_session()
            .query("usage", USAGE, flag(), json!(true))
            .gives::<SessionInfo>("The session.", session()),
        route(Delete, "/sessions/{session_id}", TAG, "close_session", "Close a session")
            .about(
                "Ends its sandbox and forgets its token and its log. Its stored files stay, unless `purge` deletes them. \
                 The session's own token may do this.",
            )
            .of_session()
            .query("purge", "Whether to delete what is stored of the session, too.", flag(), json!(true))
            .gives_nothing("It is closed.")
            .refuses(refusals::CLOSE),
        route(Post, "/sessions/{session_id}/hibernate", TAG, "hibernate_session", "Put a session to sleep")
            .about(
                "Ends every process and frees the sandbox's room; waits until the session sleeps. Its next use wakes it. \
                 One that sleeps already is fine.",
            )
            .of_session()
            .gives::<SessionInfo>("The session.", session())
            .refuses(refusals::HIBERNATE),
        route(Post, "/sessions/{session_id}/renew", TAG, "renew_session", "Say anew when a session ends")
            .about(
                "Needs the service's token: whoever has only the session's cannot make it last longer than was meant. What \
                 keeps a session from being closed as idle is its use, not this.",
            )
            .of_session()
            .takes::<RenewSession>(json!({ "ttl_seconds": 3600 }))
            .gives::<SessionInfo>("The session.", session())
            .refuses(refusals::RENEW),
        route(Get, "/sessions/{session_id}/events", TAG, "session_events", "What a session did")
            .about(
                "Operations, and what became of the session: `wake`, `hibernate`, `evict` (put to sleep for another one), `refuse` \
                 (no room), `limit`, `layer`. Never contents or output. The newest 200 are kept; numbers are never used twice, so a client \
                 that asks for what came after the last number it saw misses nothing but what was dropped.",
            )
            .of_session()
            .query("after", "The last number that is known already.", after, json!(6))
            .query("open", "Whether to begin with the open itself, as number 0.", flag(), json!(true))
            .gives::<SessionEvents>(
                "The events, oldest first.",
                json!({
                    "events": [{
                        "seq": 7, "at": 1_790_000_060.5, "op": "run", "target": "python main.py", "ok": true,
                        "detail": "exit 0", "duration_ms": 41.2,
                    }],
                    "latest_seq": 7,
                }),
            )
            .refuses(refusals::LOG),
    ]
}

fn session() -> Value {
    json!({
        "session_id": "conversation-5f2c9a1e", "runtime": "python", "tenant": "acme", "alive": true, "state": "running",
        "created_at": 1_790_000_000.25, "last_activity": 1_790_000_060.5, "idle_seconds": 12.5,
        "usage": { "memory_bytes": 18_874_368, "memory_limit_bytes": 536_870_912, "cpu_percent": 3.5, "pids": 4,
                   "disk_bytes": 4_194_304, "disk_files": 120 },
        "enforced": { "memory": { "enforced": true, "reason": "cgroup memory.max" } },
        "labels": { "user": "42" }, "expires_at": 1_790_003_600.25,
    })
}
