//! Whether the file systems of the configured directories limit what a session stores.

use super::checks::{Check, State};
use sandboxd_server::backends::ProjectIds;
use sandboxd_server::backends::namespaces::project_quotas;
use std::path::Path;

const NAME: &str = "project quotas";
const COSTS: &str = "what sessions store on disk is counted while programs run, and ended some seconds after it went over; deleted files that are still open are not seen";
const GET: &str = "keep workspaces and the state directory on one file system with them: ext4 made with -O project,quota, or XFS, mounted with prjquota, and Linux 5.14 or newer";

/// Looks at the state directory, and at the directory of workspaces where there is one. `ids` are the projects that may be
/// used; none where the operator wants no quotas.
pub(super) fn check(
    root: bool,
    ids: Option<ProjectIds>,
    state_dir: &Path,
    workspaces: Option<&Path>,
) -> Check {
    let of = |what: &'static str, directory: &Path| {
        (
            format!("{what} ({})", directory.display()),
            project_quotas(directory),
        )
    };
    let mut places = vec![of("the state directory", state_dir)];
    places.extend(workspaces.map(|directory| of("workspace_root", directory)));
    judged(root, ids, &places)
}

fn judged(root: bool, ids: Option<ProjectIds>, places: &[(String, Result<(), String>)]) -> Check {
    let told = |(what, found): &(String, Result<(), String>)| match found {
        Ok(()) => format!("{what}: yes"),
        Err(why) => format!("{what}: {why}"),
    };
    let told = places.iter().map(told).collect::<Vec<_>>().join("; ");
    let all = places.iter().all(|(_, found)| found.is_ok());
    let any = places.iter().any(|(_, found)| found.is_ok());
    match ids {
        _ if any && !root => Check::missing(
            NAME,
            State::No,
            format!("only root can set them; {told}"),
            COSTS,
            "run sandboxd as root",
        ),
        None if any => Check::missing(
            NAME,
            State::No,
            format!("project_ids is off; {told}"),
            COSTS,
            "a range of project_ids",
        ),
        Some(ids) if all => Check::yes(NAME, format!("{told}; projects {ids}")),
        _ if any => Check::missing(NAME, State::Partly, told, COSTS, GET),
        _ => Check::missing(NAME, State::No, told, COSTS, GET),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn state(root: bool, ids: bool, found: &[bool]) -> (State, String) {
        let place = |yes: &bool| {
            let found = if *yes { Ok(()) } else { Err("none".to_owned()) };
            ("a place".to_owned(), found)
        };
        let places: Vec<_> = found.iter().map(place).collect();
        let check = judged(root, ids.then(ProjectIds::default), &places);
        (check.state, check.found)
    }

    #[test]
    fn there_are_quotas_where_all_places_have_them_and_root_may_use_them() {
        assert_eq!(state(true, true, &[true, true]).0, State::Yes);
        assert_eq!(state(true, true, &[true, false]).0, State::Partly);
        assert_eq!(state(true, true, &[false]).0, State::No);
        assert_eq!(state(true, true, &[false]).1, "a place: none");
        let (found, words) = state(false, true, &[true]);
        assert_eq!(found, State::No);
        assert!(words.starts_with("only root"), "{words}");
        let (found, words) = state(true, false, &[true]);
        assert_eq!(found, State::No);
        assert!(words.starts_with("project_ids"), "{words}");
    }
}
