//! `sandboxd serve`.
use crate::arguments::ServeArguments;
use crate::failure::{FAILED, Failure};
use std::process::ExitCode;
pub(crate) fn serve(_arguments: &ServeArguments) -> ExitCode {
    Failure::new(FAILED, "not in this build yet").tell()
}
