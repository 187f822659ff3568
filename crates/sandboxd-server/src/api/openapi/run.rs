//! Running programs, and stopping them.

use super::describe::{Described, route};
use super::refusals;
use sandboxd_api::RUN_ID_PATTERN;
use sandboxd_api::run::{RunRequest, RunResponse};
use serde_json::json;
use utoipa::openapi::path::HttpMethod::Post;

pub(super) const TAG: &str = "run";

pub(super) fn routes() -> Vec<Described> {
    vec![
        route(Post, "/sessions/{session_id}/run", TAG, "run", "Run a program")
            .about(
                "Starts the program in the work directory, its standard input empty, and answers when it has ended: by \
                 itself, by its deadline, for its output, or by the stop route (then exit code 143). Nothing of an ended \
                 run survives; children that outlive a program which ended by itself do, until the session sleeps. A program \
                 that is missing is exit code 127, one that cannot be executed 126. A client that hangs up does not end the \
                 run. A sleeping session is woken. `killed_for` says which limit ended the run, or made it fail.",
            )
            .of_session()
            .takes::<RunRequest>(json!({
                "argv": ["python", "-c", "print(6 * 7)"], "env": { "NO_COLOR": "1" }, "timeout_seconds": 30.0,
                "run_id": "0b5a3c1d9e8f47a6b2c4d6e8f0a1b3c5",
            }))
            .gives::<RunResponse>(
                "How it ended.",
                json!({
                    "stdout": "42\n", "stderr": "", "exit_code": 0, "timed_out": false, "output_limited": false,
                    "output_limit": null,
                }),
            )
            .refuses(refusals::USE),
        route(Post, "/sessions/{session_id}/runs/{run_id}/stop", TAG, "stop_run", "Stop a run")
            .about(
                "Ends the run's whole process tree: first by asking, two seconds later by force. A run that is unknown is \
                 waited for a moment, since its request may still be on its way; stopping one that is over is fine.",
            )
            .of_session()
            .part("run_id", "The id that the run was started with.", RUN_ID_PATTERN)
            .gives_nothing("It is stopped, or was not running."),
    ]
}
