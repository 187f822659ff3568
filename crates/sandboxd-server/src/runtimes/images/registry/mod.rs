//! Registries: manifests and blobs by HTTP, with mirrors before them, tokens, retries, and blobs that go on where they
//! were cut off.
//!
//! - [`settings`]: what the operator says. [`credentials`], [`auth`]: who asks.
//! - [`endpoints`]: whom to ask, and by which protocol. [`answers`]: what comes of it.

mod answers;
mod auth;
mod credentials;
mod endpoints;
mod settings;

pub(crate) use credentials::Credential;
pub use settings::{Pull, Settings};

use super::digest::Digest;
use super::error::{ImageError, at};
use super::manifest::{ACCEPTED, DOCUMENT_BYTES_MAX, Descriptor};
use super::progress::{Event, Progress};
use super::reference::Reference;
use crate::limits::{
    REGISTRY_CONNECT_SECONDS_MAX, REGISTRY_STALL_SECONDS_MAX, REGISTRY_TOKEN_BYTES_MAX,
};
use answers::{Fault, answered, basic, bounded, goes_on_at, pause, retry_after, secret, words};
use auth::Challenge;
use endpoints::Endpoint;
use reqwest::header::{ACCEPT, AUTHORIZATION, HeaderMap, HeaderValue, RANGE, WWW_AUTHENTICATE};
use reqwest::{Response, StatusCode};
use serde::Deserialize;
use std::collections::HashMap;
use std::path::Path;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;
use tokio::io::AsyncWriteExt as _;

/// Bytes after which a blob that was cut off counts as having gone on, so that its attempts count anew.
const HEADWAY_BYTES: u64 = 1024 * 1024;

/// A client of registries.
pub struct Registries {
    http: reqwest::Client,
    settings: Settings,
    /// What is sent along, by endpoint and repository; held only to look and to put.
    known: Mutex<HashMap<(String, String), HeaderValue>>,
}

impl std::fmt::Debug for Registries {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Registries").finish_non_exhaustive()
    }
}

/// The credentials that this host has for a registry; for who speaks to it by another way.
pub(crate) async fn credential(
    settings: &Settings,
    registry: &str,
) -> Result<Option<Credential>, ImageError> {
    credentials::find(settings, registry).await
}

#[derive(Deserialize)]
struct Token {
    #[serde(default)]
    token: String,
    #[serde(default)]
    access_token: String,
}

impl Registries {
    /// A client.
    ///
    /// # Errors
    ///
    /// Where a proxy's address or the certificates cannot be used.
    pub fn new(settings: Settings) -> Result<Self, ImageError> {
        let http = endpoints::client(&settings)?;
        Ok(Self {
            http,
            settings,
            known: Mutex::new(HashMap::new()),
        })
    }

    /// What the operator says.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// A manifest as it is, and its digest.
    pub(super) async fn manifest(
        &self,
        name: &Reference,
        version: &str,
        progress: &dyn Progress,
    ) -> Result<(Vec<u8>, Digest), ImageError> {
        let path = format!("manifests/{version}");
        let bytes = self.document(name, &path, progress).await?;
        let found = Digest::of(&bytes);
        match Digest::parse(version) {
            Some(wanted) if wanted != found => Err(ImageError::Digest {
                what: format!("the manifest of {name}"),
                wanted,
                found,
            }),
            _ => Ok((bytes, found)),
        }
    }

    /// A small blob.
    pub(super) async fn small(
        &self,
        name: &Reference,
        descriptor: &Descriptor,
        progress: &dyn Progress,
    ) -> Result<Vec<u8>, ImageError> {
        let wanted = descriptor.digest().map_err(ImageError::Useless)?;
        let bytes = self
            .document(name, &format!("blobs/{wanted}"), progress)
            .await?;
        let found = Digest::of(&bytes);
        match found == wanted {
            true => Ok(bytes),
            false => Err(ImageError::Digest {
                what: format!("the configuration of {name}"),
                wanted,
                found,
            }),
        }
    }

    async fn document(
        &self,
        name: &Reference,
        path: &str,
        progress: &dyn Progress,
    ) -> Result<Vec<u8>, ImageError> {
        let mut why = Vec::new();
        for endpoint in endpoints::of(&self.settings, name) {
            let mut attempt = 0;
            loop {
                attempt += 1;
                let asked = async {
                    let response = self.get(&endpoint, name, path, None).await?;
                    bounded(response, DOCUMENT_BYTES_MAX).await
                };
                match asked.await {
                    Ok(bytes) => return Ok(bytes),
                    Err(fault) => match pause(fault, attempt, progress).await {
                        None => {}
                        Some(last) => {
                            why.push(format!("{}: {last}", endpoint.host));
                            break;
                        }
                    },
                }
            }
        }
        Err(ImageError::Registry(why.join("; ")))
    }

    /// Fetches a blob of `size` bytes into a file, from where that ends. The digest is for the caller to verify.
    pub(super) async fn blob(
        &self,
        name: &Reference,
        digest: &Digest,
        size: u64,
        file: &Path,
        progress: &dyn Progress,
    ) -> Result<(), ImageError> {
        let mut why = Vec::new();
        for endpoint in endpoints::of(&self.settings, name) {
            let mut attempt = 0;
            loop {
                let had = length(file).await.map_err(at(file))?;
                if had == size {
                    return Ok(());
                }
                if had > size {
                    tokio::fs::remove_file(file).await.map_err(at(file))?;
                    continue;
                }
                attempt += 1;
                let fault = match self
                    .part(&endpoint, name, digest, (had, size), file, progress)
                    .await
                {
                    Ok(()) => continue,
                    Err(PartError::Fault(fault)) => fault,
                    Err(PartError::Disk(error)) => return Err(error),
                };
                if length(file).await.map_err(at(file))? >= had + HEADWAY_BYTES {
                    attempt = 1;
                }
                if let Some(last) = pause(fault, attempt, progress).await {
                    why.push(format!("{}: {last}", endpoint.host));
                    break;
                }
            }
        }
        Err(ImageError::Registry(why.join("; ")))
    }

    /// One request for the rest of a blob.
    async fn part(
        &self,
        endpoint: &Endpoint,
        name: &Reference,
        digest: &Digest,
        (had, size): (u64, u64),
        file: &Path,
        progress: &dyn Progress,
    ) -> Result<(), PartError> {
        let path = format!("blobs/{digest}");
        let mut response = self.get(endpoint, name, &path, Some(had)).await?;
        // One that does not go on begins anew.
        let begins = if goes_on_at(&response, had) { had } else { 0 };
        progress.event(Event::Fetching {
            blob: digest,
            size,
            had: begins,
        });
        let disk = |cause| PartError::Disk(at(file)(cause));
        let mut out = tokio::fs::File::options()
            .create(true)
            .truncate(begins == 0)
            .append(begins > 0)
            .write(true)
            .open(file)
            .await
            .map_err(disk)?;
        let mut left = size.saturating_sub(begins);
        let mut written = 0_u64;
        let cut = loop {
            match response.chunk().await {
                Ok(Some(chunk)) if chunk.len() as u64 > left => {
                    break Err(Fault::Final("it sends more than it said".to_owned()));
                }
                Ok(Some(chunk)) => {
                    left -= chunk.len() as u64;
                    written += chunk.len() as u64;
                    out.write_all(&chunk).await.map_err(disk)?;
                    progress.event(Event::Fetched {
                        blob: digest,
                        bytes: chunk.len() as u64,
                    });
                    if written >= super::place::LOOK_BYTES {
                        written = 0;
                        super::place::room(&out).map_err(disk)?;
                    }
                }
                Ok(None) if left > 0 => {
                    break Err(Fault::Again("the connection was cut".to_owned(), None));
                }
                Ok(None) => break Ok(()),
                Err(error) => break Err(Fault::Again(words(&error), None)),
            }
        };
        out.flush().await.map_err(disk)?;
        cut.map_err(PartError::Fault)
    }

    async fn get(
        &self,
        endpoint: &Endpoint,
        name: &Reference,
        path: &str,
        from: Option<u64>,
    ) -> Result<Response, Fault> {
        let base = endpoint.base(&self.http).await;
        let repository = name.repository();
        let url = format!("{base}/v2/{repository}/{path}");
        let key = (base.clone(), repository.to_owned());
        let mut asked_before = false;
        loop {
            let authorization = self.known().get(&key).cloned();
            let mut request = self.http.get(&url);
            if let Some(from) = from.filter(|from| *from > 0) {
                request = request.header(RANGE, format!("bytes={from}-"));
            } else if from.is_none() {
                request = request.header(ACCEPT, ACCEPTED);
            }
            if let Some(authorization) = authorization {
                request = request.header(AUTHORIZATION, authorization);
            }
            let response = request
                .send()
                .await
                .map_err(|error| Fault::Again(words(&error), None))?;
            let status = response.status();
            if status == StatusCode::UNAUTHORIZED && !asked_before {
                asked_before = true;
                let met = self.meet(endpoint, &base, response.headers()).await?;
                self.known().insert(key.clone(), met);
                continue;
            }
            return answered(response, name).await;
        }
    }

    fn known(&self) -> std::sync::MutexGuard<'_, HashMap<(String, String), HeaderValue>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What has to be sent along.
    async fn meet(
        &self,
        endpoint: &Endpoint,
        base: &str,
        headers: &HeaderMap,
    ) -> Result<HeaderValue, Fault> {
        let values = headers.get_all(WWW_AUTHENTICATE).into_iter();
        let challenge = Challenge::of(values.filter_map(|value| value.to_str().ok()));
        let credential = credentials::find(&self.settings, &endpoint.host)
            .await
            .map_err(|error| Fault::Final(error.to_string()))?;
        match challenge {
            None => Err(Fault::Final(
                "it asks for credentials of an unknown kind".to_owned(),
            )),
            Some(Challenge::Basic) => match credential {
                Some(Credential::Basic { user, password }) => basic(&user, &password),
                _ => Err(no_credentials(endpoint)),
            },
            Some(Challenge::Bearer {
                realm,
                service,
                scope,
            }) => {
                // A password goes where the registry is, or to something that keeps it secret on the way.
                if base.starts_with("https://") && !realm.starts_with("https://") {
                    return Err(Fault::Final(
                        "it asks for tokens from a place without TLS".to_owned(),
                    ));
                }
                self.token(&realm, service, scope, credential).await
            }
        }
    }

    async fn token(
        &self,
        realm: &str,
        service: Option<String>,
        scope: Option<String>,
        credential: Option<Credential>,
    ) -> Result<HeaderValue, Fault> {
        let mut parameters: Vec<(&str, String)> = Vec::new();
        parameters.extend(service.map(|service| ("service", service)));
        parameters.extend(scope.map(|scope| ("scope", scope)));
        let bad = || {
            Fault::Final(format!(
                "it asks for tokens from {realm:?}, which is no address"
            ))
        };
        let mut url = reqwest::Url::parse(realm).map_err(|_| bad())?;
        let request = match credential {
            Some(Credential::Identity { token }) => {
                parameters.push(("grant_type", "refresh_token".to_owned()));
                parameters.push(("client_id", "sandboxd".to_owned()));
                parameters.push(("refresh_token", token));
                let mut form = url.clone();
                form.query_pairs_mut().clear().extend_pairs(&parameters);
                let body = form.query().unwrap_or_default().to_owned();
                let kind = "application/x-www-form-urlencoded";
                self.http.post(url).header("content-type", kind).body(body)
            }
            credential => {
                url.query_pairs_mut().extend_pairs(&parameters);
                let request = self.http.get(url);
                match credential {
                    Some(Credential::Basic { user, password }) => {
                        request.header(AUTHORIZATION, basic(&user, &password)?)
                    }
                    _ => request,
                }
            }
        };
        let response = request
            .send()
            .await
            .map_err(|error| Fault::Again(words(&error), None))?;
        let status = response.status();
        if status.is_server_error() || status == StatusCode::TOO_MANY_REQUESTS {
            return Err(Fault::Again(
                format!("its token service answered {status}"),
                retry_after(&response),
            ));
        }
        if !status.is_success() {
            return Err(Fault::Final(format!(
                "its token service answered {status}: access denied"
            )));
        }
        let text = bounded(response, REGISTRY_TOKEN_BYTES_MAX).await?;
        let unreadable = || Fault::Final("its token service gave no token".to_owned());
        let token: Token = serde_json::from_slice(&text).map_err(|_| unreadable())?;
        let token = [token.token, token.access_token]
            .into_iter()
            .find(|token| !token.is_empty());
        let text = format!("Bearer {}", token.ok_or_else(unreadable)?);
        secret(&text).ok_or_else(unreadable)
    }
}

/// Why a part of a blob did not come.
enum PartError {
    Fault(Fault),
    Disk(ImageError),
}

impl From<Fault> for PartError {
    fn from(fault: Fault) -> Self {
        Self::Fault(fault)
    }
}

async fn length(file: &Path) -> std::io::Result<u64> {
    match tokio::fs::metadata(file).await {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(0),
        found => Ok(found?.len()),
    }
}

fn no_credentials(endpoint: &Endpoint) -> Fault {
    Fault::Final(format!(
        "it asks for a name and a password, and Docker's configuration file has none for {}",
        endpoint.host
    ))
}

/// Timeouts of every request.
fn timeouts(builder: reqwest::ClientBuilder) -> reqwest::ClientBuilder {
    builder
        .connect_timeout(Duration::from_secs(REGISTRY_CONNECT_SECONDS_MAX))
        .read_timeout(Duration::from_secs(REGISTRY_STALL_SECONDS_MAX))
}
