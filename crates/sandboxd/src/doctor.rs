//! `sandboxd doctor`.
use crate::arguments::DoctorArguments;
use crate::failure::{FAILED, Failure};
use std::process::ExitCode;
pub(crate) fn doctor(_arguments: &DoctorArguments) -> ExitCode {
    Failure::new(FAILED, "not in this build yet").tell()
}
