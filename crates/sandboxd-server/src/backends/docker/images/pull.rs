//! Fetching an image: the engine does it, with the credentials that `docker login` left on this host.

use crate::backends::docker::connect::{Engine, failed, printable};
use crate::limits::ENGINE_SILENCE_SECONDS_MAX;
use crate::runtimes::images::reference::{DEFAULT_REGISTRY, Reference};
use crate::runtimes::images::{Credential, Event, Progress, Settings, credential};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bollard::auth::DockerCredentials;
use bollard::errors::Error;
use bollard::models::CreateImageInfo;
use bollard::query_parameters::CreateImageOptionsBuilder;
use futures::{Stream, StreamExt as _};
use std::pin::pin;
use std::time::Duration;

/// What the engine is to call the registry that has no name.
const DOCKERS_OWN: &str = "https://index.docker.io/v1/";

/// Fetches it, to its end.
pub(super) async fn pull(
    engine: &Engine,
    settings: &Settings,
    name: &Reference,
    progress: &dyn Progress,
) -> Result<(), String> {
    let credentials = credentials(settings, name).await?;
    let options = CreateImageOptionsBuilder::default()
        .from_image(&name.to_string())
        .build();
    let told = engine
        .client()
        .create_image(Some(options), None, credentials);
    hear(told, progress).await
}

/// Hears what the engine says to the end. It says how far it is many times a second: one that says nothing for long hangs.
async fn hear(
    told: impl Stream<Item = Result<CreateImageInfo, Error>>,
    progress: &dyn Progress,
) -> Result<(), String> {
    let mut told = pin!(told);
    let mut last = String::new();
    let silence = Duration::from_secs(ENGINE_SILENCE_SECONDS_MAX);
    loop {
        let next = tokio::time::timeout(silence, told.next()).await;
        let next = next.map_err(|_| {
            format!("fetching the image: the container engine has said nothing for {ENGINE_SILENCE_SECONDS_MAX} s")
        })?;
        let Some(step) = next else { return Ok(()) };
        let step = step.map_err(|error| failed("fetching the image", &error).to_string())?;
        let line = line(&step);
        // A layer in the middle of something says so many times a second.
        if line != last && !line.is_empty() {
            progress.event(Event::Said { line: &line });
            last = line;
        }
    }
}

/// What the engine says, without how far it is.
fn line(step: &CreateImageInfo) -> String {
    let status = printable(step.status.as_deref().unwrap_or_default());
    match step.id.as_deref() {
        Some(id) if !status.is_empty() => format!("{}: {status}", printable(id)),
        _ => status,
    }
}

async fn credentials(
    settings: &Settings,
    name: &Reference,
) -> Result<Option<DockerCredentials>, String> {
    let found = credential(settings, name.registry()).await;
    let Some(found) = found.map_err(|error| error.to_string())? else {
        return Ok(None);
    };
    let server = match name.registry() {
        DEFAULT_REGISTRY => DOCKERS_OWN,
        other => other,
    };
    let credentials = for_engine(found, server);
    if is_garbled(&credentials) {
        return Err(format!(
            "the credentials for {} have characters that cannot be sent to the engine; docker pull {name} fetches it",
            name.registry()
        ));
    }
    Ok(Some(credentials))
}

fn for_engine(found: Credential, server: &str) -> DockerCredentials {
    let server = DockerCredentials {
        serveraddress: Some(server.to_owned()),
        ..DockerCredentials::default()
    };
    match found {
        Credential::Basic { user, password } => DockerCredentials {
            username: Some(user),
            password: Some(password),
            ..server
        },
        Credential::Identity { token } => DockerCredentials {
            identitytoken: Some(token),
            ..server
        },
    }
}

/// Whether the engine would read something else. The client writes them in one alphabet of base64, and engines read them
/// in another one, in which two of the digits differ; what cannot be read counts as no credentials, and nothing is said.
fn is_garbled(credentials: &DockerCredentials) -> bool {
    let text = serde_json::to_vec(credentials).unwrap_or_default();
    STANDARD.encode(text).contains(['+', '/'])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with_password(password: &str) -> DockerCredentials {
        let found = Credential::Basic {
            user: "u".to_owned(),
            password: password.to_owned(),
        };
        for_engine(found, "a.example")
    }

    #[test]
    fn credentials_are_sent_as_the_engine_takes_them() {
        let sent = with_password("p");
        assert_eq!(sent.username.as_deref(), Some("u"));
        assert_eq!(sent.serveraddress.as_deref(), Some("a.example"));
        let token = Credential::Identity {
            token: "t".to_owned(),
        };
        assert_eq!(
            for_engine(token, "a.example").identitytoken.as_deref(),
            Some("t")
        );
    }

    #[test]
    fn what_would_arrive_as_none_is_known() {
        assert!(!is_garbled(&with_password("plain")));
        // In one of three places.
        let garbled = ["~", "a~", "aa~"].map(|text| is_garbled(&with_password(text)));
        assert_eq!(garbled.iter().filter(|&&garbled| garbled).count(), 1);
    }

    struct Unheard;

    impl Progress for Unheard {
        fn event(&self, _: Event<'_>) {}
    }

    #[tokio::test(start_paused = true)]
    async fn an_engine_that_falls_silent_is_not_waited_for_to_the_last() {
        let step = || Ok(CreateImageInfo::default());
        // Slow is not silent.
        let slow = futures::stream::iter(0..10).then(|_| async move {
            tokio::time::sleep(Duration::from_secs(ENGINE_SILENCE_SECONDS_MAX - 1)).await;
            step()
        });
        assert_eq!(hear(slow, &Unheard).await, Ok(()));
        let hung = futures::stream::iter([step()]).chain(futures::stream::pending());
        let why = hear(hung, &Unheard).await.unwrap_err();
        assert!(why.contains("has said nothing for"), "{why}");
    }

    #[test]
    fn a_line_says_what_and_not_how_far() {
        let step = CreateImageInfo {
            id: Some("abc".to_owned()),
            status: Some("Pull\u{1b} complete".to_owned()),
            ..CreateImageInfo::default()
        };
        assert_eq!(line(&step), "abc: Pull  complete");
        assert_eq!(line(&CreateImageInfo::default()), "");
    }
}
