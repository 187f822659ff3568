//! Why requests are refused, in the words of the document. The table that decides is `api/error.rs`.

use serde_json::{Value, json};

/// One reason for a refusal.
#[derive(Debug, Clone, Copy)]
pub(super) struct Refusal {
    pub(super) status: u16,
    /// The word in `X-Error-Code`.
    pub(super) code: &'static str,
    pub(super) about: &'static str,
    pub(super) detail: Example,
}

/// What `detail` looks like.
#[derive(Debug, Clone, Copy)]
pub(super) enum Example {
    /// A text.
    Text(&'static str),
    /// A file error, by name.
    File(&'static str, &'static str),
    /// A field that is missing.
    Missing(&'static str),
    /// No JSON at all.
    Plain,
}

impl Example {
    pub(super) fn is_plain(self) -> bool {
        matches!(self, Self::Plain)
    }

    pub(super) fn value(self) -> Value {
        match self {
            Self::Text(words) => json!(words),
            Self::File(error, message) => json!({ "error": error, "message": message }),
            Self::Missing(name) => {
                json!([{ "type": "missing", "loc": ["body", name], "msg": "Field required", "input": {} }])
            }
            Self::Plain => Value::Null,
        }
    }
}

const fn text(
    status: u16,
    code: &'static str,
    about: &'static str,
    words: &'static str,
) -> Refusal {
    let detail = Example::Text(words);
    Refusal {
        status,
        code,
        about,
        detail,
    }
}

/// Any route.
pub(super) const ANY: &[Refusal] = &[
    text(
        431,
        "head_too_large",
        "The request's line and headers are larger than the service takes in.",
        "The request's target and headers are larger than 65536 bytes",
    ),
    Refusal {
        status: 500,
        code: "internal",
        about: "A mistake of the service's own, as plain text. Its log says more under the request's id.",
        detail: Example::Plain,
    },
];

const TOKEN: Refusal = text(
    401,
    "token",
    "No token, a wrong one, two that differ, or one that is not for this route. Without the service's token, a session \
     that does not exist looks the same.",
    "Invalid or missing sandbox token",
);

const INVALID: Refusal = Refusal {
    status: 422,
    code: "invalid",
    about: "Something in the path, the query or the body does not fit; all misfits are listed.",
    detail: Example::Missing("path"),
};

/// A misfit of the path, the query or the body.
pub(super) const FIELDS: &[Refusal] = &[INVALID];

/// Routes of the service's token.
pub(super) const SERVICE: &[Refusal] = &[TOKEN];

const NO_SESSION: Refusal = text(
    404,
    "no_session",
    "No such session.",
    "No such session: conversation-5f2c9a1e",
);

/// Routes of one session.
pub(super) const SESSION: &[Refusal] = &[TOKEN, NO_SESSION, INVALID];

/// Routes with a body.
pub(super) const BODY: &[Refusal] = &[
    text(
        400,
        "body_broken",
        "The body ended early, or broke its framing.",
        "The body ended early",
    ),
    text(
        408,
        "body_slow",
        "The body did not arrive in time. The connection is closed.",
        "The body did not arrive in time",
    ),
    text(
        503,
        "bodies_busy",
        "The bodies of all requests together take the memory that there is for them (`max_bodies_bytes`).",
        "Bodies of other requests take all memory that there is for them; try again",
    ),
];

/// Routes with a JSON body.
pub(super) const JSON_BODY: &[Refusal] = &[
    BODY[0],
    BODY[1],
    text(
        413,
        "body_too_large",
        "The body is larger than the service takes in.",
        "The body is larger than 67108864 bytes",
    ),
    INVALID,
];

/// `POST /sessions`.
pub(super) const OPEN: &[Refusal] = &[
    text(
        400,
        "unknown_runtime",
        "The runtime is not on the allowlist.",
        "Unknown runtime \"perl\". Allowed: node, python",
    ),
    text(
        400,
        "attach_without_id",
        "`attach` names no session.",
        "attach needs a session_id",
    ),
    text(
        404,
        "nothing_to_attach",
        "`attach`, and neither a session nor a stored workspace of this id exists.",
        "Nothing to attach to: conversation-5f2c9a1e",
    ),
    text(
        409,
        "session_exists",
        "The id is open, and neither `reuse` nor `attach` was asked for.",
        "Session exists: conversation-5f2c9a1e",
    ),
    text(
        409,
        "session_opening",
        "The id is being opened, or closed, by somebody else. Ask again in a moment.",
        "Session is opening: conversation-5f2c9a1e",
    ),
    text(
        409,
        "other_runtime",
        "The id is open with another runtime. Asking again does not help.",
        "Session conversation-5f2c9a1e runs \"node\", not \"python\". Close it before changing runtime",
    ),
    text(
        429,
        "session_limit",
        "No room for another sandbox, and none is idle for long enough to be put to sleep.",
        "Session limit reached (20)",
    ),
    text(
        429,
        "open_limit",
        "No room for another open session, and none is asleep.",
        "Open session limit reached (200), and all of them are in use",
    ),
    text(
        429,
        "tenant_limit",
        "The tenant has as many open sessions as it may.",
        "Tenant acme has reached its limit of 5 sessions",
    ),
    CANNOT_WAKE,
    text(
        502,
        "not_started",
        "The sandbox did not start; nothing of it is left.",
        "Could not start sandbox: no such image",
    ),
    SHUTTING_DOWN,
];

const CANNOT_WAKE: Refusal = text(
    429,
    "cannot_wake",
    "The session sleeps, and there is no room for its sandbox.",
    "Cannot wake session conversation-5f2c9a1e: session limit reached (20)",
);

const SHUTTING_DOWN: Refusal = text(
    503,
    "shutting_down",
    "The service is on its way down.",
    "The service is shutting down",
);

/// `POST /sessions/{session_id}/hibernate`.
pub(super) const HIBERNATE: &[Refusal] = &[text(
    409,
    "not_asleep",
    "It cannot go to sleep now: it is in use, its files would go with its sandbox, its sandbox is gone; or it did not get \
     there.",
    "Session conversation-5f2c9a1e cannot go to sleep: it is in use",
)];

/// `POST /sessions/{session_id}/renew`.
pub(super) const RENEW: &[Refusal] = &[Refusal {
    status: 500,
    code: "not_written",
    about: "It could not be written down. The session ends when it would have.",
    detail: Example::Text("Session conversation-5f2c9a1e is as it was: not written down in time"),
}];

/// `GET /readyz`.
pub(super) const NOT_READY: &[Refusal] = &[text(
    503,
    "not_ready",
    "A part of the service cannot serve now, or the service is on its way down.",
    "Not ready: workspaces does not work",
)];

/// Routes that use a session's sandbox.
pub(super) const USE: &[Refusal] = &[
    text(
        410,
        "sandbox_gone",
        "The sandbox is gone, and what was in it. Only closing the session helps.",
        "The sandbox of session conversation-5f2c9a1e is gone",
    ),
    CANNOT_WAKE,
    text(
        429,
        "busy",
        "Too many commands are running.",
        "Too many commands are running (256)",
    ),
    text(
        502,
        "wake_failed",
        "The session sleeps, and its sandbox did not start. Its files are kept.",
        "Cannot wake session conversation-5f2c9a1e: no such image",
    ),
    SHUTTING_DOWN,
];

/// Routes that answer for everything that goes wrong inside, but not for work that takes too long.
pub(super) const CEILING: &[Refusal] = &[text(
    504,
    "service_ceiling",
    "The operation took longer than the service lets any.",
    "The operation ran into the service ceiling of 300 s",
)];

/// `DELETE`.
pub(super) const CLOSE: &[Refusal] = &[Refusal {
    status: 500,
    code: "not_removed",
    about: "The session is closed, but its stored files could not all be deleted.",
    detail: Example::Text(
        "Session conversation-5f2c9a1e is closed, but its workspace was not removed: Permission denied",
    ),
}];

/// The log.
pub(super) const LOG: &[Refusal] = &[Refusal {
    status: 500,
    code: "not_read",
    about: "The rows that are not in memory any more could not be read.",
    detail: Example::Text(
        "The log of session conversation-5f2c9a1e could not be read: not in time",
    ),
}];

/// Routes that take base64.
pub(super) const BASE64: &[Refusal] = &[text(
    400,
    "not_base64",
    "The content is not padded standard base64.",
    "content_b64 is not valid base64: Invalid padding",
)];

/// `PUT /policy`.
pub(super) const POLICY: &[Refusal] = &[
    text(
        400,
        "unknown_runtime",
        "A runtime is not on the allowlist. Nothing was changed.",
        "Unknown runtime 'perl'",
    ),
    text(
        400,
        "policy",
        "The settings contradict each other, or one is no size. Nothing was changed.",
        "mem_limit: not a size, not \"lots\"",
    ),
    Refusal {
        status: 422,
        code: "invalid",
        about: "A field that may not be changed here, at either level, or a value that does not fit. Nothing was changed.",
        detail: Example::Missing("network_mode"),
    },
];

/// The native file routes.
pub(super) const NATIVE: &[Refusal] = &[
    text(
        409,
        "hand_back",
        "A program inside the sandbox has to do this one: a link or a special file is on the way, the path is outside \
         the work directory, the file is over `max_read_bytes`, or the service stores no workspaces.",
        "Native file operations are off",
    ),
    text(
        410,
        "sandbox_gone",
        "The sandbox is gone, and what was in it.",
        "The sandbox of session conversation-5f2c9a1e is gone",
    ),
    file(
        400,
        "The path is not absolute or has a NUL byte (`ValueError`), or something else is there than was expected \
         (`IsADirectoryError`, `NotADirectoryError`, `FileExistsError`).",
        "IsADirectoryError",
        "a directory: '/workspace/src'",
    ),
    CANNOT_WAKE,
    SHUTTING_DOWN,
];

/// Native routes that need something to be there.
pub(super) const MISSING: &[Refusal] = &[file(
    404,
    "Nothing there. A missing session has a text here instead.",
    "FileNotFoundError",
    "not found: '/workspace/report.md'",
)];

/// Native routes that write.
pub(super) const FULL: &[Refusal] = &[text(
    507,
    "no_space",
    "The disk, or the session's share of it, is full.",
    "no space: '/workspace/report.md'",
)];

const fn file(
    status: u16,
    about: &'static str,
    name: &'static str,
    words: &'static str,
) -> Refusal {
    let detail = Example::File(name, words);
    Refusal {
        status,
        code: "file",
        about,
        detail,
    }
}

/// Routes of one stored workspace.
pub(super) const WORKSPACE: &[Refusal] = &[
    text(
        400,
        "outside",
        "The path leaves the workspace, or a link is on the way.",
        "\"../x\" is outside the workspace",
    ),
    text(
        404,
        "no_workspace",
        "Nothing is stored for this id.",
        "No stored workspace: conversation-5f2c9a1e",
    ),
    text(
        404,
        "not_found",
        "Nothing there, or nothing that can be read.",
        "Not found: \"report.md\"",
    ),
    text(
        409,
        "no_workspace_root",
        "The service stores no workspaces.",
        "No workspaces are stored: workspace_root is not set",
    ),
    Refusal {
        status: 500,
        code: "archive",
        about: "The service may not read it, or the disk failed.",
        detail: Example::Text("Cannot read \"report.md\": Input/output error"),
    },
    INVALID,
];

/// Archive routes that list.
pub(super) const NO_DIRECTORY: &[Refusal] = &[text(
    404,
    "not_a_directory",
    "There is something, but no directory.",
    "Not a directory: \"report.md\"",
)];

/// The archive route that lists one directory.
pub(super) const TOO_MANY: &[Refusal] = &[text(
    400,
    "too_many_entries",
    "The directory holds more than a listing shows. A tree shows a part of it.",
    "\"frames\" holds more than 100000 entries; a tree shows a part of it",
)];

/// Archive routes that read.
pub(super) const NO_FILE: &[Refusal] = &[
    text(
        404,
        "not_a_file",
        "There is something, but no file.",
        "Not a file: \"src\"",
    ),
    text(
        400,
        "file_too_large",
        "The file is over `max_read_bytes`.",
        "File is 20971520 bytes, over the 10485760-byte read limit",
    ),
];

/// The archive route that reads text.
pub(super) const NO_TEXT: &[Refusal] = &[
    text(400, "binary", "The file is no text.", "[Binary File]"),
    text(
        400,
        "pdf",
        "The PDF gives no text: it is damaged, encrypted, too large or has none.",
        "Failed to parse PDF: No extractable text found in PDF",
    ),
];
