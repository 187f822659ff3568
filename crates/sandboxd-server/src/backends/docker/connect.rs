//! The one client of the container engine: found, spoken to in a version that both know, and asked with deadlines.

use crate::config::EngineAddress;
use crate::limits::{ENGINE_CONNECT_SECONDS_MAX, ENGINE_TEXT_CHARS_MAX};
use bollard::errors::Error;
use bollard::models::{SystemInfo, SystemVersion};
use bollard::{API_DEFAULT_VERSION, ClientVersion};
use std::collections::BTreeMap;
use std::future::Future;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The oldest version of the API that has what sandboxes need: a cgroup namespace of their own, and statistics without a
/// wait (Docker 20.10).
const VERSION_LEAST: ClientVersion = ClientVersion {
    major_version: 1,
    minor_version: 41,
};

/// Why there is no engine. Each says what to do.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NoEngine {
    /// No socket where they lie.
    #[error(
        "no container engine: there is no {0}; start Docker or Podman, or say where it is (docker_host)"
    )]
    NoSocket(String),
    /// Somebody has to allow it.
    #[error(
        "the container engine at {0} does not let this user in: run as root, or as a member of the group that its socket belongs to"
    )]
    Refused(String),
    /// Nobody answers there, or not as an engine does.
    #[error("no container engine answers at {address}: {cause}")]
    Silent {
        /// Where.
        address: String,
        /// Why.
        cause: String,
    },
    /// What has to be known to speak to it is not usable.
    #[error("the container engine at {address} cannot be spoken to: {cause}")]
    Client {
        /// Where.
        address: String,
        /// Why.
        cause: String,
    },
    /// It is older than what is needed.
    #[error(
        "the container engine at {address} speaks API version {has}; at least {needed} is needed (Docker 20.10 or newer)",
        needed = VERSION_LEAST
    )]
    TooOld {
        /// Where.
        address: String,
        /// Its version.
        has: String,
    },
    /// It runs programs of another kind.
    #[error("the container engine at {address} runs {has} programs; this sandboxd brings {ours} ones", ours = OURS)]
    OtherPrograms {
        /// Where.
        address: String,
        /// Which ones.
        has: String,
    },
}

/// The kind of programs that travel inside this daemon.
const OURS: &str = if cfg!(target_arch = "x86_64") {
    "linux/x86_64"
} else {
    "linux/aarch64"
};

/// Why the engine did not do what it was asked.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum EngineError {
    /// It said no, or something went wrong on the way.
    #[error("{doing}: {cause}")]
    Failed {
        /// What it was asked.
        doing: &'static str,
        /// Its status, if it answered.
        status: Option<u16>,
        /// Its words.
        cause: String,
    },
    /// It did not answer.
    #[error("{doing}: the container engine did not answer within {seconds} s")]
    TimedOut {
        /// What it was asked.
        doing: &'static str,
        /// How long it was waited for.
        seconds: u64,
    },
}

impl EngineError {
    fn status(&self) -> Option<u16> {
        match self {
            Self::Failed { status, .. } => *status,
            Self::TimedOut { .. } => None,
        }
    }

    /// There is no such thing.
    pub(super) fn is_missing(&self) -> bool {
        self.status() == Some(404)
    }

    /// It is in another state than this needs, or its name is taken.
    pub(super) fn is_conflict(&self) -> bool {
        self.status() == Some(409)
    }

    /// It answered, whatever.
    pub(super) fn is_answer(&self) -> bool {
        self.status().is_some()
    }

    /// It does not do this, and will not another time either.
    pub(super) fn is_refusal(&self) -> bool {
        self.status()
            .is_some_and(|status| (400..500).contains(&status) || status == 501)
    }

    /// It is so already.
    pub(super) fn is_so_already(&self) -> bool {
        self.status() == Some(304)
    }
}

/// A fine answer where the only trouble is that the thing is gone.
pub(super) fn unless_missing<T>(answer: Result<T, EngineError>) -> Result<Option<T>, EngineError> {
    match answer {
        Ok(answer) => Ok(Some(answer)),
        Err(error) if error.is_missing() => Ok(None),
        Err(error) => Err(error),
    }
}

/// What the engine's host can do, as the engine says.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Abilities {
    /// Limits of memory.
    pub(super) memory: bool,
    /// Limits of memory and swap together.
    pub(super) swap: bool,
    /// CPU quotas.
    pub(super) cpu_quota: bool,
    /// CPU weights.
    pub(super) cpu_shares: bool,
    /// Limits of processes.
    pub(super) pids: bool,
    /// Filters of system calls.
    pub(super) seccomp: bool,
    /// Whether a container's users are others than the host's.
    pub(super) user_namespaces: bool,
    /// Whether it builds images by BuildKit.
    pub(super) buildkit: bool,
    /// Processors.
    pub(super) processors: u64,
    /// Container runtimes by name, and the program of each, where the engine says it.
    pub(super) runtimes: BTreeMap<String, String>,
    /// Which of them a container has that names none.
    pub(super) default_runtime: String,
    /// Whether it is Podman.
    pub(super) is_podman: bool,
    /// How it is called and in which version.
    pub(super) engine: String,
}

/// The engine.
#[derive(Debug)]
pub(super) struct Engine {
    client: bollard::Docker,
    address: String,
    /// Whether it is reached by a socket of this host.
    is_local: bool,
    abilities: Abilities,
}

impl Engine {
    /// Finds it, agrees on a version, and asks what it can do.
    pub(super) async fn connect(address: &EngineAddress) -> Result<Self, NoEngine> {
        let (client, words) = client(address)?;
        let silent = |error: &EngineError| NoEngine::Silent {
            address: words.clone(),
            cause: error.to_string(),
        };
        let limit = Duration::from_secs(ENGINE_CONNECT_SECONDS_MAX);
        let agreed = tokio::time::timeout(limit, client.negotiate_version()).await;
        let client = match agreed {
            Ok(Ok(client)) => client,
            Ok(Err(error)) if is_denied(&error) => return Err(NoEngine::Refused(words)),
            Ok(Err(error)) => {
                return Err(NoEngine::Silent {
                    address: words,
                    cause: words_of(&error),
                });
            }
            Err(_) => {
                return Err(NoEngine::Silent {
                    address: words,
                    cause: format!("not within {ENGINE_CONNECT_SECONDS_MAX} s"),
                });
            }
        };
        let version = client.client_version();
        if (version.major_version, version.minor_version)
            < (VERSION_LEAST.major_version, VERSION_LEAST.minor_version)
        {
            return Err(NoEngine::TooOld {
                address: words,
                has: version.to_string(),
            });
        }
        let asked = asked(
            "asking what it can do",
            ENGINE_CONNECT_SECONDS_MAX,
            client.info(),
        );
        let info = asked.await.map_err(|error| silent(&error))?;
        let asking = client.version();
        let version = self::asked("asking what it is", ENGINE_CONNECT_SECONDS_MAX, asking).await;
        let version = version.map_err(|error| silent(&error))?;
        let has = format!(
            "{}/{}",
            printable(info.os_type.as_deref().unwrap_or("linux")),
            printable(info.architecture.as_deref().unwrap_or("?")),
        );
        if has.replace("amd64", "x86_64").replace("arm64", "aarch64") != OURS {
            return Err(NoEngine::OtherPrograms {
                address: words,
                has,
            });
        }
        Ok(Self {
            client,
            is_local: matches!(address, EngineAddress::Sockets(_)),
            abilities: Abilities {
                buildkit: !is_podman(&version),
                is_podman: is_podman(&version),
                ..abilities(&info)
            },
            address: words,
        })
    }

    /// For calls; each goes through [`Engine::call`].
    pub(super) const fn client(&self) -> &bollard::Docker {
        &self.client
    }

    /// Where it is, in words.
    pub(super) fn address(&self) -> &str {
        &self.address
    }

    /// Whether it is reached by a socket of this host.
    pub(super) const fn is_local(&self) -> bool {
        self.is_local
    }

    /// What its host can do.
    pub(super) const fn abilities(&self) -> &Abilities {
        &self.abilities
    }

    /// One question to the engine, with its deadline and its failure in words.
    pub(super) async fn call<T>(
        &self,
        doing: &'static str,
        seconds: u64,
        call: impl Future<Output = Result<T, Error>>,
    ) -> Result<T, EngineError> {
        asked(doing, seconds, call).await
    }
}

async fn asked<T>(
    doing: &'static str,
    seconds: u64,
    call: impl Future<Output = Result<T, Error>>,
) -> Result<T, EngineError> {
    match tokio::time::timeout(Duration::from_secs(seconds), call).await {
        Ok(Ok(answer)) => Ok(answer),
        Ok(Err(error)) => Err(failed(doing, &error)),
        Err(_) => Err(EngineError::TimedOut { doing, seconds }),
    }
}

/// An error of the client's as ours.
pub(super) fn failed(doing: &'static str, error: &Error) -> EngineError {
    let status = match error {
        Error::DockerResponseServerError { status_code, .. } => Some(*status_code),
        _ => None,
    };
    EngineError::Failed {
        doing,
        status,
        cause: words_of(error),
    }
}

/// What went wrong, with its causes; the engine's own words without the frame around them.
fn words_of(error: &Error) -> String {
    if let Error::DockerResponseServerError { message, .. } = error {
        return printable(message);
    }
    let mut words = error.to_string();
    let mut cause = std::error::Error::source(error);
    while let Some(inner) = cause {
        let text = inner.to_string();
        if !words.contains(&text) {
            words = format!("{words}: {text}");
        }
        cause = inner.source();
    }
    printable(&words)
}

/// Text of the engine's: not longer than a few lines, and nothing in it that a terminal or a log would obey. Of one that is
/// too long the middle is left out: what failed stands at its beginning, and why at its end.
pub(super) fn printable(text: &str) -> String {
    let harmless = |c: char| if c.is_control() { ' ' } else { c };
    let text: Vec<char> = text.trim().chars().map(harmless).collect();
    if text.len() <= ENGINE_TEXT_CHARS_MAX {
        return text.into_iter().collect();
    }
    let (first, rest) = text.split_at(ENGINE_TEXT_CHARS_MAX / 2);
    let (_, last) = rest.split_at(rest.len() - ENGINE_TEXT_CHARS_MAX / 2);
    first.iter().chain(&['…']).chain(last).collect()
}

fn is_denied(error: &Error) -> bool {
    let mut cause: Option<&dyn std::error::Error> = Some(error);
    while let Some(inner) = cause {
        if let Some(io) = inner.downcast_ref::<std::io::Error>()
            && io.kind() == std::io::ErrorKind::PermissionDenied
        {
            return true;
        }
        cause = inner.source();
    }
    false
}

fn client(address: &EngineAddress) -> Result<(bollard::Docker, String), NoEngine> {
    // The client has a deadline of its own, which has to be behind ours.
    let seconds = crate::limits::ENGINE_SECONDS_MOST;
    let unusable = |address: &str| {
        let address = address.to_owned();
        move |error: Error| NoEngine::Client {
            address,
            cause: words_of(&error),
        }
    };
    match address {
        EngineAddress::Sockets(paths) => {
            let path = socket(paths)?;
            let text = path.display().to_string();
            let made = bollard::Docker::connect_with_unix(&text, seconds, API_DEFAULT_VERSION);
            Ok((made.map_err(unusable(&text))?, text))
        }
        EngineAddress::Tcp {
            address,
            certificates: None,
        } => {
            let made = bollard::Docker::connect_with_http(address, seconds, API_DEFAULT_VERSION);
            Ok((made.map_err(unusable(address))?, address.clone()))
        }
        EngineAddress::Tcp {
            address,
            certificates: Some(directory),
        } => {
            let file = |name: &str| directory.join(name);
            // Somebody may have chosen one before.
            let _ = rustls::crypto::ring::default_provider().install_default();
            let made = bollard::Docker::connect_with_ssl(
                address,
                &file("key.pem"),
                &file("cert.pem"),
                &file("ca.pem"),
                seconds,
                API_DEFAULT_VERSION,
            );
            Ok((made.map_err(unusable(address))?, address.clone()))
        }
        EngineAddress::Ssh(address) => {
            let full = format!("ssh://{address}");
            let made = bollard::Docker::connect_with_ssh(&full, seconds, API_DEFAULT_VERSION, None);
            Ok((made.map_err(unusable(&full))?, full))
        }
    }
}

/// The first socket that is there.
fn socket(paths: &[PathBuf]) -> Result<&Path, NoEngine> {
    let found = paths.iter().find(|path| path.exists());
    found.map(PathBuf::as_path).ok_or_else(|| {
        let names: Vec<String> = paths
            .iter()
            .map(|path| path.display().to_string())
            .collect();
        NoEngine::NoSocket(names.join(", no "))
    })
}

/// Docker has BuildKit in every version that is new enough for sandboxes; Podman builds by means of its own.
fn is_podman(version: &SystemVersion) -> bool {
    let mut components = version.components.iter().flatten();
    components.any(|component| component.name.contains("Podman"))
}

fn abilities(info: &SystemInfo) -> Abilities {
    let is = |ability: Option<bool>| ability.unwrap_or(false);
    let options = info.security_options.as_deref().unwrap_or_default();
    let option = |name: &str| {
        let named = format!("name={name}");
        options
            .iter()
            .any(|option| option.split(',').any(|part| part == named || part == name))
    };
    Abilities {
        memory: is(info.memory_limit),
        swap: is(info.swap_limit),
        cpu_quota: is(info.cpu_cfs_quota),
        cpu_shares: is(info.cpu_shares),
        pids: is(info.pids_limit),
        seccomp: option("seccomp"),
        user_namespaces: option("userns") || option("rootless"),
        processors: info
            .ncpu
            .and_then(|n| u64::try_from(n).ok())
            .unwrap_or(1)
            .max(1),
        runtimes: info
            .runtimes
            .iter()
            .flatten()
            .map(|(name, runtime)| (name.clone(), runtime.path.clone().unwrap_or_default()))
            .collect(),
        default_runtime: info.default_runtime.clone().unwrap_or_default(),
        buildkit: false,
        is_podman: false,
        engine: printable(
            info.server_version
                .as_deref()
                .unwrap_or("of an unknown version"),
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_engines_words_are_short_and_do_nothing() {
        assert_eq!(printable(" a\nb\u{1b}[31m "), "a b [31m");
        let whole = format!("what{}why", "x".repeat(ENGINE_TEXT_CHARS_MAX - 7));
        assert_eq!(printable(&whole), whole);
        let long = printable(&format!("what{}why", "é".repeat(ENGINE_TEXT_CHARS_MAX)));
        assert_eq!(long.chars().count(), ENGINE_TEXT_CHARS_MAX + 1);
        assert!(long.starts_with("what") && long.contains('…') && long.ends_with("why"));
    }

    #[test]
    fn a_missing_socket_is_named_with_what_to_do() {
        let paths = [
            PathBuf::from("/nonexistent/a"),
            PathBuf::from("/nonexistent/b"),
        ];
        let words = socket(&paths).unwrap_err().to_string();
        assert!(
            words.contains("/nonexistent/a, no /nonexistent/b"),
            "{words}"
        );
        assert!(words.contains("docker_host"), "{words}");
        let there = [PathBuf::from("/nonexistent/a"), PathBuf::from("/")];
        assert_eq!(socket(&there), Ok(Path::new("/")));
    }

    #[test]
    fn what_the_engine_does_not_say_it_cannot() {
        let none = abilities(&SystemInfo::default());
        assert!(!none.memory && !none.seccomp && none.processors == 1);
        let info = SystemInfo {
            memory_limit: Some(true),
            security_options: Some(vec![
                "name=seccomp,profile=default".to_owned(),
                "name=userns".to_owned(),
            ]),
            ncpu: Some(4),
            ..SystemInfo::default()
        };
        let some = abilities(&info);
        assert!(some.memory && some.seccomp && some.user_namespaces);
        assert_eq!(some.processors, 4);
    }

    #[test]
    fn statuses_are_told_apart() {
        let answered = |status_code| {
            let error = Error::DockerResponseServerError {
                status_code,
                message: "No such\ncontainer".to_owned(),
            };
            failed("looking", &error)
        };
        assert!(answered(404).is_missing() && !answered(409).is_missing());
        assert!(answered(409).is_conflict() && answered(304).is_so_already());
        assert_eq!(answered(404).to_string(), "looking: No such container");
        assert_eq!(unless_missing(Err::<(), _>(answered(404))), Ok(None));
        assert!(unless_missing(Err::<(), _>(answered(500))).is_err());
    }

    #[tokio::test]
    async fn a_socket_that_nobody_listens_on_is_no_engine() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("s.sock");
        drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
        let refused = Engine::connect(&EngineAddress::Sockets(vec![path])).await;
        let words = refused.unwrap_err().to_string();
        assert!(words.contains("no container engine answers at"), "{words}");
    }
}
