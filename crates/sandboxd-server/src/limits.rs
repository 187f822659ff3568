//! Every number of the daemon, with its unit in its name. Relations between them are checked by the compiler.

/// Longest session id and tenant, in characters.
pub const ID_CHARS_MAX: usize = 64;
/// Output of both streams of a `/run` together, in bytes; over it the run is ended.
pub const RUN_OUTPUT_BYTES_MAX: u64 = 10 * 1024 * 1024;
/// What is kept of each stream of a `/run` that timed out or went over its output, in bytes.
pub const RUN_PARTIAL_BYTES: usize = 65_536;
/// Output of an `/exec`, in bytes; what comes after is thrown away.
pub const EXEC_OUTPUT_BYTES_MAX: u64 = 100_000;
/// Events kept per session.
pub const EVENTS_PER_SESSION: usize = 200;
/// How many numbers of a session's log may be given before they are written down. After a crash numbering goes on so
/// much further on, so that none is given twice.
pub const EVENT_NUMBERS_AHEAD: u64 = 100_000;
/// How long what sessions do may stay unwritten, in milliseconds.
pub const JOURNAL_MILLIS: u64 = 100;
/// Most sessions whose activity is written at once.
pub const JOURNAL_SESSIONS_MAX: usize = 512;
/// Most orders that wait for the store at once; whoever has another one waits.
pub const STORE_QUEUE_MAX: usize = 1_024;
/// Most orders that go into one commit of the store.
pub const STORE_COMMIT_MAX: usize = 256;
/// Most records that a start writes at once.
pub const RECORDS_AT_ONCE: usize = 64;
/// How long a session's log says of one refusal only, in seconds.
pub const REFUSAL_ROW_SECONDS: u64 = 60;
/// Longest event target, in characters.
pub const EVENT_TARGET_CHARS_MAX: usize = 200;
/// What a request's answer may take beyond the run's own deadline, in seconds (both Python clients wait 10).
pub const ANSWER_GRACE_SECONDS: u64 = 10;
/// From TERM to KILL when a run is stopped, in milliseconds.
pub const STOP_GRACE_MILLIS: u64 = 2_000;
/// How long the daemon waits, past a run's deadline, for the guest to say that it ended, in milliseconds; after it the
/// sandbox is ended instead.
pub const RUN_END_GRACE_MILLIS: u64 = 5_000;
/// How long one sandbox may take to start, in seconds.
pub const CREATE_SECONDS_MAX: u64 = 60;
/// How long an image may take to be made ready, in seconds, whatever is configured. What takes long has a closer deadline
/// of its own: the fetch of a base, and then a build (`build_timeout`).
pub const PREPARE_SECONDS_MAX: u64 = IMAGE_PULL_SECONDS_MAX + BUILD_SECONDS_MAX;
/// The pause before a build that failed is tried again at the start, in seconds.
pub const PREWARM_PAUSE_SECONDS: u64 = 10;
/// Entries of one layer of an image.
pub const IMAGE_ENTRIES_MAX: u64 = 1_000_000;
/// Bytes of one layer of an image, unpacked.
pub const IMAGE_LAYER_BYTES_MAX: u64 = 64 * 1024 * 1024 * 1024;
/// Directories above one entry of an image.
pub const IMAGE_DEPTH_MAX: usize = 128;
/// How long one layer may take to be fetched and unpacked before others who want the same give up, in seconds.
pub const IMAGE_MAKE_SECONDS_MAX: u64 = 3_600;
/// How much of a disk images leave free, in bytes; of a small disk less.
pub const IMAGE_DISK_FREE_BYTES: u64 = 1024 * 1024 * 1024;
/// Bytes of one blob that is fetched from a registry.
pub const IMAGE_BLOB_BYTES_MAX: u64 = 32 * 1024 * 1024 * 1024;
/// How long one image may take to be fetched and unpacked, in seconds.
pub const IMAGE_PULL_SECONDS_MAX: u64 = 7_200;
/// Blobs of one image that are fetched at once.
pub const REGISTRY_BLOBS_AT_ONCE: usize = 3;
/// How often a registry is asked for one thing.
pub const REGISTRY_ATTEMPTS_MAX: u32 = 4;
/// The first pause between two of these, in milliseconds; it doubles.
pub const REGISTRY_PAUSE_MILLIS_MIN: u64 = 500;
/// The longest pause between two of these, in milliseconds, whatever the registry asks for.
pub const REGISTRY_PAUSE_MILLIS_MAX: u64 = 30_000;
/// How long a registry may take to accept a connection, in seconds.
pub const REGISTRY_CONNECT_SECONDS_MAX: u64 = 10;
/// How long a registry may be silent, in seconds.
pub const REGISTRY_STALL_SECONDS_MAX: u64 = 30;
/// Bytes of an answer with a token.
pub const REGISTRY_TOKEN_BYTES_MAX: u64 = 1024 * 1024;
/// How long a credential helper may take, in seconds.
pub const CREDENTIAL_HELPER_SECONDS_MAX: u64 = 30;
/// How long half a blob is kept for somebody who goes on fetching it, in seconds.
pub const IMAGE_PARTIAL_KEPT_SECONDS: u64 = 7 * 24 * 60 * 60;
/// How long a change of the image store waits for another one, in seconds.
pub const IMAGE_LOCK_SECONDS_MAX: u64 = 60;
/// How long one build of a recipe may take, in seconds.
pub const BUILD_SECONDS_DEFAULT: u64 = 1_800;
/// The longest that may be allowed, in seconds.
pub const BUILD_SECONDS_MAX: u64 = 86_400;
/// Memory of one step of a build, in bytes.
pub const BUILD_MEMORY_BYTES_DEFAULT: u64 = 4 * 1024 * 1024 * 1024;
/// Processes of one step of a build.
pub const BUILD_PIDS_DEFAULT: u64 = 1_024;
/// What one step of a build and the package caches store, in bytes.
pub const BUILD_DISK_BYTES_DEFAULT: u64 = 20 * 1024 * 1024 * 1024;
/// What one step of a build may print, in bytes; over it the build has failed.
pub const BUILD_OUTPUT_BYTES_MAX: u64 = 256 * 1024 * 1024;
/// What is told of the end of what a failed step printed, in bytes.
pub const BUILD_TAIL_BYTES: usize = 2_048;
/// A line of a step as it is told, in bytes.
pub const BUILD_LINE_BYTES: usize = 200;
/// How long the package caches of a recipe are kept that is not built, in seconds.
pub const BUILD_CACHE_KEPT_SECONDS: u64 = 30 * 24 * 60 * 60;
/// Variables of builds.
pub const BUILD_VARIABLES_MAX: usize = 256;
/// Bytes of a file of certificates for builds.
pub const BUILD_CA_BYTES_MAX: u64 = 8 * 1024 * 1024;
/// Packages of one recipe, and set-up commands.
pub const RECIPE_ITEMS_MAX: usize = 256;
/// Bytes of one of them.
pub const RECIPE_TEXT_BYTES_MAX: usize = 65_536;
/// Characters of a recipe's name.
pub const RECIPE_NAME_CHARS_MAX: usize = 64;
/// How long a container engine may take for its first answers, in seconds.
pub const ENGINE_CONNECT_SECONDS_MAX: u64 = 10;
/// How long it may take to say something about what it has, in seconds.
pub const ENGINE_ASK_SECONDS_MAX: u64 = 10;
/// How long it may take to make, start or remove one container, in seconds.
pub const ENGINE_ACT_SECONDS_MAX: u64 = 30;
/// How long it may say nothing while it fetches an image, in seconds. The last of a large layer is unpacked in silence.
pub const ENGINE_SILENCE_SECONDS_MAX: u64 = 600;
/// How long it may take for anything at all, in seconds.
pub const ENGINE_SECONDS_MOST: u64 = 7_200;
/// Longest text of the engine's that is repeated, in characters.
pub const ENGINE_TEXT_CHARS_MAX: usize = 400;
/// How long after a build that failed it is tried once more, in seconds.
pub const ENGINE_BUILD_AGAIN_SECONDS: u64 = 2;
/// How many lines of a build's output are repeated when it fails.
pub const ENGINE_BUILD_LINES_KEPT: usize = 20;
/// How many containers are ended at once.
pub const ENGINE_ENDS_AT_ONCE: usize = 16;
/// What of a guest's own words about itself is written to the log, in bytes.
pub const GUEST_WORDS_BYTES_MAX: usize = 4 * 1024;
/// How long a stored workspace may take to be made or removed, in seconds.
pub const WORKSPACE_SECONDS_MAX: u64 = 60;
/// How long a session's record may take to be written, in seconds.
pub const LEDGER_SECONDS_MAX: u64 = 10;
/// How long a fresh guest has for its first words, in seconds.
pub const CONNECT_SECONDS_MAX: u64 = 15;
/// How long a handler waits for an owner to wake or close a session, in seconds; the owner's own deadlines add up to less,
/// but for an image that has to be made ready, and the client of era B waits this long.
pub const WAKE_SECONDS_MAX: u64 = 600;
/// How long a handler waits for an owner to open a session, in seconds: a build or a fetch is waited for to its end, and
/// the client gives up when it likes.
pub const OPEN_SECONDS_MAX: u64 = PREPARE_SECONDS_MAX + WAKE_SECONDS_MAX;
/// How long an answer to a run waits for a sleeping session beyond the run's own time, in seconds.
pub const RUN_WAKE_GRACE_SECONDS: u64 = 4;
/// How long one word to a run (stop, kill) may take to leave, in milliseconds.
pub const WORD_MILLIS_MAX: u64 = 1_000;
/// How old a usage sample may be, in seconds.
pub const USAGE_SECONDS_MAX: u64 = 5;
/// How long a usage sample may take, in seconds.
pub const USAGE_SAMPLE_SECONDS_MAX: u64 = 5;
/// How long one part of the service may take to say that it is ready, in seconds.
pub const READY_SECONDS_MAX: u64 = 3;
/// How long an answer to a probe of readiness is given again, in milliseconds.
pub const READY_KEPT_MILLIS: u64 = 1_000;
/// How often it is looked whether a session's time is over, in milliseconds.
pub const DUE_LOOK_MILLIS: u64 = 1_000;
/// How far the clock has to be off all at once to count as set, in seconds; below that it drifts, or is slewed.
pub const CLOCK_JUMP_SECONDS_MIN: u64 = 10;
/// The longest time that a session can be given, in seconds: ten years.
pub const TTL_SECONDS_MAX: u64 = 10 * 365 * 24 * 3_600;
/// Labels of one session.
pub const LABELS_MAX: usize = 16;
/// Longest value of a label, in characters.
pub const LABEL_VALUE_CHARS_MAX: usize = 200;
/// How long a session may take to fall asleep when it is asked to, in seconds.
pub const HIBERNATE_SECONDS_MAX: u64 = 120;
/// How long one sandbox may take to go, in seconds.
pub const STOP_SECONDS_MAX: u64 = 20;
/// How long one small file operation may take, in seconds.
pub const FILE_SECONDS_MAX: u64 = 30;
/// From this size on a file is read piece by piece while it is sent, in bytes; a smaller one is read first.
pub const CONTENT_PIECES_BYTES_MIN: u64 = 256 * 1024;
/// How many bytes of a stored file are read at once then.
pub const STORED_PIECE_BYTES: usize = 256 * 1024;
/// How long such a file may take to be sent, in seconds, as long as a body may take to come.
pub const CONTENT_SECONDS_MAX: u64 = BODY_SECONDS_MAX;
/// How long a guest whose file operation took too long has to show that it is still there, in seconds.
pub const GUEST_ANSWER_SECONDS_MAX: u64 = 5;
/// How long a stop waits for its run to appear, in milliseconds.
pub const STOP_APPEAR_MILLIS: u64 = 1_000;
/// How long a shutdown waits for what is running, its backend included, in seconds.
pub const SHUTDOWN_SECONDS_MAX: u64 = 20;
/// How much of that is the backend's own, in seconds.
pub const SHUTDOWN_BACKEND_SECONDS: u64 = 5;
/// How long operations may go on when the service is asked to end, where nobody says otherwise, in seconds.
pub const DRAIN_TIMEOUT_SECONDS_DEFAULT: u64 = 3;
/// The most that this can be set to, in seconds.
pub const DRAIN_TIMEOUT_SECONDS_MAX: u64 = 3_600;
/// How long the service may take to end once that is over, whatever hangs, in seconds (what starts services kills them about then).
pub const END_SECONDS_MAX: u64 = 30;
/// Largest JSON request body where nobody says otherwise, in bytes (a base64 write of the era A client carries a whole
/// file).
pub const JSON_BODY_BYTES_DEFAULT: u64 = 64 * 1024 * 1024;
/// The least that this bound can be set to, in bytes: an ordinary command has to fit.
pub const JSON_BODY_BYTES_MIN: u64 = 64 * 1024;
/// The most that this bound can be set to, in bytes.
pub const JSON_BODY_BYTES_MAX: u64 = 1024 * 1024 * 1024;
/// Of each body so many bytes are not counted in what all bodies together may take: connections bound them.
pub const BODY_BYTES_FREE: usize = 64 * 1024;
/// What all bodies together may take beyond that where nobody says otherwise, in bytes.
pub const BODIES_BYTES_DEFAULT: u64 = 256 * 1024 * 1024;
/// Of each run's output so many bytes are not counted in what all runs together may hold: running commands bound them.
pub const OUTPUT_BYTES_FREE: u64 = 256 * 1024;
/// What the output of all runs together may take beyond that where nobody says otherwise, in bytes.
pub const OUTPUTS_BYTES_DEFAULT: u64 = 256 * 1024 * 1024;
/// The least that this can be set to, in bytes: one run's whole output has to fit.
pub const OUTPUTS_BYTES_MIN: u64 = 16 * 1024 * 1024;
/// The most that either can be set to, in bytes.
pub const TOGETHER_BYTES_MAX: u64 = 1024 * 1024 * 1024 * 1024;
/// What one permit of these budgets stands for, in bytes.
pub const BUDGET_UNIT_BYTES: u64 = 1024;
/// Entries of one directory listing.
pub const LIST_ENTRIES_MAX: u32 = 100_000;
/// Entries of all trees of one request together; what is past them is left out, and said.
pub const TREES_ENTRIES_MAX: usize = 200_000;
/// Names read from stored directories for one request, those of links and special files included.
pub const ARCHIVE_NAMES_MAX: usize = 1_000_000;

/// Connections at once; further ones wait to be accepted.
pub const CONNECTIONS_MAX: usize = 4096;
/// Longest head of a request (its line and its headers), in bytes.
pub const HEAD_BYTES_MAX: usize = 64 * 1024;
/// Most headers of a request.
pub const HEADERS_MAX: usize = 100;
/// How long a connection may take to send a request's head, and how long it may idle before one, in seconds.
pub const HEAD_SECONDS_MAX: u64 = 30;
/// How long a body may pause, in seconds.
pub const BODY_PAUSE_SECONDS_MAX: u64 = 30;
/// How long a body may take in all, in seconds.
pub const BODY_SECONDS_MAX: u64 = 600;
/// How long a client may leave an answer unread before its connection is closed, in seconds.
pub const UNREAD_SECONDS_MAX: u64 = 60;
/// Most bytes of a refused request's body that are read and thrown away, so that the client sees the refusal.
pub const DRAIN_BYTES_MAX: u64 = 256 * 1024 * 1024;
/// How long that may take, in seconds.
pub const DRAIN_SECONDS_MAX: u64 = 20;
/// After how many seconds a client that was refused for want of room should ask again.
pub const RETRY_AFTER_SECONDS: u64 = 1;
/// Longest request id that is taken over from a client, in characters.
pub const REQUEST_ID_CHARS_MAX: usize = 128;
/// Longest text of a request that is repeated in a refusal, in characters.
pub const ECHO_CHARS_MAX: usize = 200;
/// Most members of a request's list or object that are repeated in a refusal.
pub const ECHO_MEMBERS_MAX: usize = 20;
/// How long each of the last steps of a shutdown may take: the backend ends, and the last answers leave, in seconds.
pub const SHUTDOWN_DRAIN_SECONDS: u64 = 3;
/// How long a `find` or `grep` of the older routes may take, in seconds.
pub const SEARCH_SECONDS_MAX: u64 = 120;
/// Networks in one list of what sandboxes may or may not reach.
pub const DESTINATIONS_MAX: usize = 256;
/// Name servers that the C library asks.
pub const DNS_SERVERS_MAX: usize = 3;
/// Connections to elsewhere that one sandbox may hold at once: the host's table of them, and the ports of the one address
/// that all sandboxes share, are everybody's.
pub const SANDBOX_CONNECTIONS_MAX: u32 = 1_024;
/// First of the numbers that projects of quotas have, unless the operator says others: beyond what hosts count up from.
pub const PROJECT_ID_FIRST: u32 = 1_900_000_000;
/// Last of them.
pub const PROJECT_ID_LAST: u32 = 1_900_065_535;
/// Most bytes of the file that holds a made service token.
pub const SERVICE_TOKEN_BYTES_MAX: usize = 4096;
/// Most bytes of a file of policy changes.
pub const POLICY_FILE_BYTES_MAX: u64 = 1024 * 1024;
/// How long one PDF may take to be read, its wait for a place included, in seconds.
pub const PDF_SECONDS_MAX: u64 = 20;
/// Most sandboxes that are kept ready for one runtime.
pub const POOL_MAX: u64 = 64;
/// How often it is looked at whether what is kept ready is still what a session would get, in milliseconds.
pub const POOL_LOOK_MILLIS: u64 = 1_000;
/// How long it is waited for a moment in which no session's sandbox is being made, before one is made for the pool, in
/// milliseconds.
pub const POOL_PATIENCE_MILLIS: u64 = 1_000;
/// How often that is looked at, and the pause before a taken sandbox is replaced, in milliseconds.
pub const POOL_PAUSE_MILLIS: u64 = 20;
/// After one could not be made: the first pause before the next attempt, which doubles, in milliseconds.
pub const POOL_BACK_OFF_MILLIS: u64 = 1_000;
/// The longest such pause, in milliseconds.
pub const POOL_BACK_OFF_MILLIS_MAX: u64 = 60_000;
/// Memory of the host, in bytes, below which nothing more is made for the pool.
pub const POOL_MEMORY_SCARCE_BYTES: u64 = 256 * 1024 * 1024;
/// And below which what was made for it is ended.
pub const POOL_MEMORY_SHORT_BYTES: u64 = 128 * 1024 * 1024;
/// How long nothing that is ready is given up again for a kind of sandbox that could not be made without it either, in
/// seconds.
pub const POOL_IN_VAIN_SECONDS: u64 = 60;
/// Of how many kinds that is remembered.
pub const POOL_IN_VAIN_MAX: usize = 64;
/// PDFs read at once.
pub const PDF_AT_ONCE: usize = 1;
/// Stack of the thread that reads a PDF, in bytes.
pub const PDF_STACK_BYTES: usize = 32 * 1024 * 1024;
/// What one stream of a PDF may unpack to while the file is loaded, in bytes.
pub const PDF_STREAM_BYTES_MAX: usize = 16 * 1024 * 1024;
/// What the content of one page of a PDF may unpack to, in bytes.
pub const PDF_PAGE_BYTES_MAX: usize = 16 * 1024 * 1024;
/// Objects that a PDF, or one page's content, may make; each takes up to 250 bytes while it is loaded.
pub const PDF_TOKENS_MAX: usize = 2_000_000;
/// The text of a PDF, in bytes.
pub const PDF_TEXT_BYTES_MAX: usize = 16 * 1024 * 1024;
/// What a font's map of characters may unpack to, in bytes.
pub const PDF_MAP_BYTES_MAX: usize = 2 * 1024 * 1024;
/// Entries of all maps of characters of the fonts of one page.
pub const PDF_MAP_ENTRIES_MAX: usize = 200_000;
/// Fonts of one page of a PDF.
pub const PDF_FONTS_MAX: usize = 256;
/// How deep forms of a PDF may show each other.
pub const PDF_FORM_DEPTH_MAX: usize = 8;
/// How many graphics states a page of a PDF may keep.
pub const PDF_STATES_MAX: usize = 256;
/// Bytes of a file that are looked at to tell its text's encoding.
pub const ENCODING_SAMPLE_BYTES: usize = 32 * 1024;
/// The host uid and gid that stand for root inside on stored files, where the daemon is root: no host user has it, and
/// every sandbox sees it as its own uid 0 through an idmapped mount.
pub const STORAGE_OWNER: u32 = 0x7000_0000;

const _: () = assert!(RUN_OUTPUT_BYTES_MAX < OUTPUTS_BYTES_MIN);
const _: () = assert!(OUTPUT_BYTES_FREE < RUN_OUTPUT_BYTES_MAX);
const _: () = assert!(BODY_BYTES_FREE as u64 <= JSON_BODY_BYTES_MIN);
const _: () = assert!(TOGETHER_BYTES_MAX / BUDGET_UNIT_BYTES < u32::MAX as u64);
const _: () = assert!(PDF_SECONDS_MAX < FILE_SECONDS_MAX);
const _: () = assert!(BODY_PAUSE_SECONDS_MAX < BODY_SECONDS_MAX);
// Whoever waits for a sandbox waits longer than its owner takes: the one that makes room goes (its layer is not kept, it is
// removed, its workspace marked, its record written), then workspace, sandbox, guest and record of the new one. Its image
// is another matter.
const _: () = assert!(
    2 * STOP_SECONDS_MAX
        + 2 * WORKSPACE_SECONDS_MAX
        + 2 * LEDGER_SECONDS_MAX
        + CREATE_SECONDS_MAX
        + CONNECT_SECONDS_MAX
        < WAKE_SECONDS_MAX
);
// Sessions and backend end, the backend ends alone, the last answers leave.
const _: () = assert!(2 * SHUTDOWN_DRAIN_SECONDS + SHUTDOWN_SECONDS_MAX < END_SECONDS_MAX);
const _: () = assert!(
    DRAIN_TIMEOUT_SECONDS_DEFAULT + SHUTDOWN_SECONDS_MAX + 2 * SHUTDOWN_DRAIN_SECONDS
        < END_SECONDS_MAX
);
// A layer that is not kept is looked for and removed; then the workspace is marked and the record written.
const _: () = assert!(
    2 * STOP_SECONDS_MAX + WORKSPACE_SECONDS_MAX + 2 * LEDGER_SECONDS_MAX <= HIBERNATE_SECONDS_MAX
);
const _: () = assert!(SHUTDOWN_BACKEND_SECONDS < SHUTDOWN_SECONDS_MAX);
const _: () = assert!(ENGINE_ACT_SECONDS_MAX < CREATE_SECONDS_MAX);
const _: () = assert!(ENGINE_SILENCE_SECONDS_MAX < IMAGE_PULL_SECONDS_MAX);
const _: () = assert!(ENGINE_ASK_SECONDS_MAX < STOP_SECONDS_MAX);
const _: () = assert!(STOP_GRACE_MILLIS < RUN_END_GRACE_MILLIS);
const _: () = assert!(RUN_END_GRACE_MILLIS < ANSWER_GRACE_SECONDS * 1_000);
