//! Credentials from where `docker login` leaves them: Docker's configuration file and the helpers that it names.

use super::super::error::{ImageError, at};
use super::super::reference::DEFAULT_REGISTRY;
use super::settings::Settings;
use crate::limits::CREDENTIAL_HELPER_SECONDS_MAX;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::io::Read as _;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

/// Under which name Docker keeps the credentials of its own registry.
const DOCKERS_OWN: &str = "https://index.docker.io/v1/";
/// Bytes of the configuration file, and of a helper's answer.
const BYTES_MAX: u64 = 1024 * 1024;
/// The user name that stands for a token which is not a password.
const TOKEN_USER: &str = "<token>";

/// What a registry may be told.
#[derive(Clone, PartialEq, Eq)]
pub(crate) enum Credential {
    /// Name and password.
    Basic { user: String, password: String },
    /// What can be exchanged for access tokens.
    Identity { token: String },
}

impl std::fmt::Debug for Credential {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Credential(…)")
    }
}

#[derive(Deserialize, Default)]
struct DockerConfig {
    #[serde(default)]
    auths: BTreeMap<String, Auth>,
    #[serde(rename = "credHelpers", default)]
    helpers: BTreeMap<String, String>,
    #[serde(rename = "credsStore", default)]
    store: Option<String>,
}

#[derive(Deserialize, Default, Clone)]
struct Auth {
    #[serde(default)]
    auth: Option<String>,
    #[serde(default)]
    username: Option<String>,
    #[serde(default)]
    password: Option<String>,
    #[serde(rename = "identitytoken", default)]
    identity: Option<String>,
}

#[derive(Deserialize)]
struct Answer {
    #[serde(rename = "Username", default)]
    user: String,
    #[serde(rename = "Secret", default)]
    secret: String,
}

/// The credentials for a registry; nothing where there are none.
pub(super) async fn find(
    settings: &Settings,
    registry: &str,
) -> Result<Option<Credential>, ImageError> {
    let Some(path) = &settings.docker_config else {
        return Ok(None);
    };
    let config = read(path)?;
    let own = registry == DEFAULT_REGISTRY || registry == "registry-1.docker.io";
    let server = if own { DOCKERS_OWN } else { registry };
    let helper = config
        .helpers
        .get(if own { DEFAULT_REGISTRY } else { registry })
        .or_else(|| config.helpers.get(server));
    if let Some(helper) = helper.or(config.store.as_ref())
        && let Some(found) = ask(settings, helper, server).await?
    {
        return Ok(Some(found));
    }
    let found = config
        .auths
        .iter()
        .find(|(key, _)| *key == server || !own && host_of(key) == registry);
    match found {
        Some((_, auth)) => plain(auth)
            .map_err(|why| ImageError::Registry(format!("{}: {server}: {why}", path.display()))),
        None => Ok(None),
    }
}

fn read(path: &Path) -> Result<DockerConfig, ImageError> {
    let file = match std::fs::File::open(path) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            return Ok(DockerConfig::default());
        }
        file => file.map_err(at(path))?,
    };
    let mut text = Vec::new();
    file.take(BYTES_MAX)
        .read_to_end(&mut text)
        .map_err(at(path))?;
    // The parser's words may show what is in it.
    serde_json::from_slice(&text).map_err(|error| {
        ImageError::Registry(format!(
            "{}: line {}: it cannot be read",
            path.display(),
            error.line()
        ))
    })
}

/// A key may be a whole address.
fn host_of(key: &str) -> &str {
    let rest = key.split_once("://").map_or(key, |(_, rest)| rest);
    rest.split('/').next().unwrap_or_default()
}

fn plain(auth: &Auth) -> Result<Option<Credential>, &'static str> {
    if let Some(token) = auth.identity.as_ref().filter(|token| !token.is_empty()) {
        return Ok(Some(Credential::Identity {
            token: token.clone(),
        }));
    }
    let (user, password) = match auth.auth.as_ref().filter(|auth| !auth.is_empty()) {
        Some(auth) => {
            let bytes = STANDARD
                .decode(auth.trim())
                .map_err(|_| "auth is not base64")?;
            let text = String::from_utf8(bytes).map_err(|_| "auth is not text")?;
            let (user, password) = text.split_once(':').ok_or("auth has no colon")?;
            // Some tools pad it with NUL bytes.
            (user.to_owned(), password.trim_end_matches('\0').to_owned())
        }
        None => match (&auth.username, &auth.password) {
            (Some(user), Some(password)) => (user.clone(), password.clone()),
            _ => return Ok(None),
        },
    };
    Ok(Some(Credential::Basic { user, password }))
}

/// Asks a helper program.
async fn ask(
    settings: &Settings,
    helper: &str,
    server: &str,
) -> Result<Option<Credential>, ImageError> {
    let good = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
    let program = format!("docker-credential-{helper}");
    let failed = |why: String| ImageError::Registry(format!("{program}: {why}"));
    if helper.is_empty() || !helper.bytes().all(good) {
        return Err(failed("no name of a credential helper".to_owned()));
    }
    let mut command = tokio::process::Command::new(&program);
    command
        .arg("get")
        .env_clear()
        .envs(
            settings
                .helper_env
                .iter()
                .map(|(name, value)| (name, value)),
        )
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .kill_on_drop(true);
    let mut child = command
        .spawn()
        .map_err(|error| failed(format!("cannot be started: {error}")))?;
    let asked = async {
        if let Some(mut stdin) = child.stdin.take() {
            stdin.write_all(server.as_bytes()).await?;
        }
        let mut text = Vec::new();
        if let Some(stdout) = child.stdout.take() {
            stdout.take(BYTES_MAX).read_to_end(&mut text).await?;
        }
        Ok::<_, std::io::Error>((child.wait().await?, text))
    };
    let limit = Duration::from_secs(CREDENTIAL_HELPER_SECONDS_MAX);
    let answered = tokio::time::timeout(limit, asked).await;
    let (status, text) = answered
        .map_err(|_| failed(format!("no answer within {} s", limit.as_secs())))?
        .map_err(|error| failed(error.to_string()))?;
    if !status.success() {
        let none = String::from_utf8_lossy(&text).contains("credentials not found");
        return match none {
            true => Ok(None),
            false => Err(failed(format!("ended with {status}"))),
        };
    }
    let answer: Answer =
        serde_json::from_slice(&text).map_err(|_| failed("an unreadable answer".to_owned()))?;
    Ok(Some(match answer.user.as_str() {
        TOKEN_USER => Credential::Identity {
            token: answer.secret,
        },
        _ => Credential::Basic {
            user: answer.user,
            password: answer.secret,
        },
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(config: &str) -> (Settings, tempfile::TempDir) {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("config.json");
        std::fs::write(&path, config).unwrap();
        let settings = Settings {
            docker_config: Some(path),
            ..Settings::default()
        };
        (settings, home)
    }

    fn basic(user: &str, password: &str) -> Option<Credential> {
        Some(Credential::Basic {
            user: user.to_owned(),
            password: password.to_owned(),
        })
    }

    #[tokio::test]
    async fn credentials_are_found_under_every_spelling() {
        let (settings, _home) = settings(
            r#"{"auths": {
                "https://index.docker.io/v1/": {"auth": "aHViOnM6ZQ=="},
                "https://a.example/v2/": {"username": "a", "password": "b"},
                "b.example:5000": {"identitytoken": "token"},
                "c.example": {}
            }}"#,
        );
        for (registry, found) in [
            ("docker.io", basic("hub", "s:e")),
            ("a.example", basic("a", "b")),
            ("c.example", None),
            ("d.example", None),
            (
                "b.example:5000",
                Some(Credential::Identity {
                    token: "token".to_owned(),
                }),
            ),
        ] {
            assert_eq!(
                find(&settings, registry).await.unwrap(),
                found,
                "{registry}"
            );
        }
    }

    #[tokio::test]
    async fn what_cannot_be_read_is_said_without_showing_it() {
        let (settings, _home) = settings(r#"{"auths": {"a.example": {"auth": "geheim!"}}}"#);
        let said = find(&settings, "a.example").await.unwrap_err().to_string();
        assert!(
            said.contains("base64") && !said.contains("geheim"),
            "{said}"
        );
        let none = Settings {
            docker_config: Some("/nowhere/config.json".into()),
            ..Settings::default()
        };
        assert_eq!(find(&none, "a.example").await.unwrap(), None);
    }

    #[tokio::test]
    async fn a_helper_is_named_and_no_path() {
        let (settings, _home) = settings(r#"{"credsStore": "../../bin/sh"}"#);
        assert!(find(&settings, "a.example").await.is_err());
    }
}
