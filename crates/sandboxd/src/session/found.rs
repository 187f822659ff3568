//! What is on disk, put together by session: records, stored files, write layers.

use super::failed;
use crate::failure::Failure;
use sandboxd_server::backends::namespaces::{LayerOnDisk, layers_on_disk};
use sandboxd_server::id::{SandboxId, SessionId};
use sandboxd_server::sessions::{Record, Standing};
use sandboxd_server::store;
use sandboxd_server::workspaces::{Stored, stored};
use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

/// Where a session stands, in the words of the service's answers where they have one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum State {
    /// It has a sandbox.
    Running,
    /// It sleeps, and its next use wakes it.
    Hibernated,
    /// Its sandbox is gone, and its files with it.
    Lost,
    /// It is being closed.
    Closing,
    /// It is closed, and its files are stored.
    Closed,
}

impl State {
    pub(super) fn word(self) -> &'static str {
        match self {
            Self::Running => "running",
            Self::Hibernated => "hibernated",
            Self::Lost => "lost",
            Self::Closing => "closing",
            Self::Closed => "closed",
        }
    }

    /// Where no service holds the directory, its sandboxes have gone with it: what the next one will make of the record.
    fn of(record: &Record, held: bool) -> Self {
        match &record.standing {
            Standing::Resident { .. } if held => Self::Running,
            Standing::Resident { keeps, .. } if *keeps || record.files_outside => Self::Hibernated,
            Standing::Hibernated { layer, .. } if layer.is_some() || record.files_outside => {
                Self::Hibernated
            }
            Standing::Resident { .. } | Standing::Hibernated { .. } | Standing::Lost => Self::Lost,
            Standing::Closing { .. } => Self::Closing,
        }
    }
}

/// The sandbox whose layer a session has.
pub(super) fn sandbox_of(record: &Record) -> Option<&SandboxId> {
    match &record.standing {
        Standing::Resident { sandbox, .. } => Some(sandbox),
        Standing::Hibernated { layer, .. } => layer.as_ref(),
        Standing::Lost | Standing::Closing { .. } => None,
    }
}

/// One session.
#[derive(Debug)]
pub(super) struct Session {
    pub(super) id: SessionId,
    pub(super) state: State,
    /// None of one that is closed.
    pub(super) record: Option<Record>,
    pub(super) workspace: Option<Stored>,
    pub(super) layer: Option<LayerOnDisk>,
}

impl Session {
    /// When it was last used.
    pub(super) fn used(&self) -> Option<Duration> {
        let record = self.record.as_ref().map(|record| record.last_used);
        record.or(self.workspace.as_ref().map(|stored| stored.used))
    }
}

/// Everything.
#[derive(Debug)]
pub(super) struct Found {
    /// In the order in which they were opened; closed ones last, by their ids.
    pub(super) sessions: Vec<Session>,
    /// Layers that no session on record has.
    pub(super) others: Vec<LayerOnDisk>,
}

impl Found {
    pub(super) fn look(
        state_dir: &Path,
        workspace_root: Option<&Path>,
        held: bool,
    ) -> Result<Self, Failure> {
        let records = store::records(state_dir).map_err(failed)?;
        let records = records.into_iter().map(|recorded| recorded.record);
        let files = match workspace_root {
            Some(root) => {
                stored(root).map_err(|error| failed(format!("{}: {error}", root.display())))?
            }
            None => Vec::new(),
        };
        let layers = layers_on_disk(state_dir)
            .map_err(|error| failed(format!("{}: {error}", state_dir.display())))?;
        Ok(Self::together(records, files, layers, held))
    }

    fn together(
        records: impl Iterator<Item = Record>,
        files: Vec<Stored>,
        layers: Vec<LayerOnDisk>,
        held: bool,
    ) -> Self {
        let mut files: BTreeMap<SessionId, Stored> = files
            .into_iter()
            .map(|stored| (stored.id.clone(), stored))
            .collect();
        let mut layers = layers;
        let mut sessions: Vec<Session> = records
            .map(|record| {
                let sandbox = sandbox_of(&record);
                let at = layers
                    .iter()
                    .position(|layer| Some(&layer.sandbox) == sandbox);
                Session {
                    id: record.id.clone(),
                    state: State::of(&record, held),
                    workspace: files.remove(&record.id).filter(|_| record.files_outside),
                    layer: at.map(|at| layers.swap_remove(at)),
                    record: Some(record),
                }
            })
            .collect();
        sessions.extend(files.into_iter().map(|(id, stored)| Session {
            id,
            state: State::Closed,
            record: None,
            workspace: Some(stored),
            layer: None,
        }));
        Self {
            sessions,
            others: layers,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sandboxd_server::auth::session_tokens::Nonce;
    use std::path::PathBuf;

    fn record(id: &str, files_outside: bool, standing: Standing) -> Record {
        Record {
            id: SessionId::parse(id).expect("an id"),
            runtime: "host".to_owned(),
            tenant: None,
            labels: BTreeMap::new(),
            nonce: Nonce::from_bytes([0; 16]),
            created: Duration::ZERO,
            expires: None,
            last_used: Duration::from_secs(9),
            files_outside,
            standing,
        }
    }

    fn directory() -> std::os::fd::OwnedFd {
        std::fs::File::open("/").expect("a directory").into()
    }

    fn layer(sandbox: &SandboxId) -> LayerOnDisk {
        LayerOnDisk {
            sandbox: sandbox.clone(),
            path: PathBuf::from("/"),
            directory: directory(),
            kept: true,
            image: None,
        }
    }

    #[test]
    fn what_belongs_together_is_found_together_and_the_rest_is_said_too() {
        let [first, second, stray] = [(); 3].map(|()| SandboxId::generate());
        let since = Duration::ZERO;
        let records = || {
            [
                record(
                    "a",
                    true,
                    Standing::Resident {
                        sandbox: first.clone(),
                        keeps: false,
                    },
                ),
                record(
                    "b",
                    false,
                    Standing::Hibernated {
                        layer: Some(second.clone()),
                        since,
                    },
                ),
                record(
                    "c",
                    false,
                    Standing::Resident {
                        sandbox: SandboxId::generate(),
                        keeps: false,
                    },
                ),
                record("d", true, Standing::Closing { purge: true }),
            ]
        };
        let files = ["a", "closed"].map(|id| Stored {
            id: SessionId::parse(id).expect("an id"),
            path: PathBuf::from("/"),
            directory: directory(),
            used: Duration::from_secs(3),
        });
        let layers = vec![layer(&stray), layer(&second)];
        let found = Found::together(records().into_iter(), files.into(), layers, true);
        let said: Vec<_> = found
            .sessions
            .iter()
            .map(|one| {
                (
                    one.id.as_str(),
                    one.state,
                    one.workspace.is_some(),
                    one.layer.is_some(),
                )
            })
            .collect();
        assert_eq!(
            said,
            [
                ("a", State::Running, true, false),
                ("b", State::Hibernated, false, true),
                ("c", State::Running, false, false),
                ("d", State::Closing, false, false),
                ("closed", State::Closed, true, false),
            ]
        );
        assert_eq!(found.sessions[4].used(), Some(Duration::from_secs(3)));
        assert!(matches!(found.others.as_slice(), [other] if other.sandbox == stray));
        // Without a service nothing runs, and what lived in its sandbox alone is gone.
        let found = Found::together(records().into_iter(), Vec::new(), Vec::new(), false);
        let states: Vec<State> = found.sessions.iter().map(|one| one.state).collect();
        let (asleep, lost) = (State::Hibernated, State::Lost);
        assert_eq!(states, [asleep, asleep, lost, State::Closing]);
    }
}
