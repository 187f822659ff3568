//! Whom to ask for an image: its mirrors, then its registry; and by which protocol.

use super::super::error::{ImageError, at};
use super::super::reference::{DEFAULT_REGISTRY, Reference};
use super::settings::Settings;
use reqwest::{Certificate, NoProxy, Proxy, redirect};
use std::net::IpAddr;

/// Where the registry of names without one is.
const DEFAULT_HOST: &str = "registry-1.docker.io";
/// Redirects that are followed.
const REDIRECTS_MAX: usize = 6;

/// One place to ask.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Endpoint {
    /// What credentials are kept under, and what errors name.
    pub(super) host: String,
    /// Its address, where that is known.
    base: Option<String>,
    /// Whether it may be asked without TLS if it has none.
    may_be_plain: bool,
}

/// In the order in which they are asked.
pub(super) fn of(settings: &Settings, name: &Reference) -> Vec<Endpoint> {
    let mirrors = settings.mirrors.get(name.registry()).into_iter().flatten();
    let mut all: Vec<Endpoint> = mirrors.map(|mirror| mirror_at(mirror)).collect();
    let host = match name.registry() {
        DEFAULT_REGISTRY => DEFAULT_HOST,
        other => other,
    };
    all.push(Endpoint {
        host: name.registry().to_owned(),
        base: (host != name.registry()).then(|| format!("https://{host}")),
        may_be_plain: settings.insecure.contains(host) || is_loopback(host),
    });
    all
}

fn mirror_at(base: &str) -> Endpoint {
    let base = base.trim_end_matches('/');
    let host = base.split_once("://").map_or(base, |(_, host)| host);
    Endpoint {
        host: host.split('/').next().unwrap_or_default().to_owned(),
        base: Some(base.to_owned()),
        may_be_plain: false,
    }
}

fn is_loopback(registry: &str) -> bool {
    let host = registry.rsplit_once(':').map_or(registry, |(host, _)| host);
    host == "localhost" || host.parse::<IpAddr>().is_ok_and(|ip| ip.is_loopback())
}

impl Endpoint {
    /// Its address. One that may do without TLS is asked with it first.
    pub(super) async fn base(&self, http: &reqwest::Client) -> String {
        if let Some(base) = &self.base {
            return base.clone();
        }
        let secure = format!("https://{}", self.host);
        if !self.may_be_plain || http.get(format!("{secure}/v2/")).send().await.is_ok() {
            return secure;
        }
        format!("http://{}", self.host)
    }
}

/// What speaks HTTP.
pub(super) fn client(settings: &Settings) -> Result<reqwest::Client, ImageError> {
    // The one of the process; who came first has set the same.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let mut certificates = Vec::new();
    if let Some(path) = &settings.ca_file {
        let text = std::fs::read(path).map_err(at(path))?;
        certificates = Certificate::from_pem_bundle(&text).map_err(|_| {
            ImageError::Registry(format!("{}: no certificates in PEM", path.display()))
        })?;
    }
    let mut builder = super::timeouts(reqwest::Client::builder())
        .user_agent(concat!("sandboxd/", env!("CARGO_PKG_VERSION")))
        .redirect(redirect::Policy::custom(|attempt| {
            let came_by_tls = attempt.previous().iter().any(|url| url.scheme() == "https");
            if attempt.previous().len() > REDIRECTS_MAX {
                attempt.error("it redirects for ever")
            } else if came_by_tls && attempt.url().scheme() != "https" {
                attempt.error("it redirects to a place without TLS")
            } else {
                attempt.follow()
            }
        }))
        .referer(false)
        .no_proxy();
    let exceptions = settings.no_proxy.as_deref().and_then(NoProxy::from_string);
    let proxies = [
        (
            &settings.http_proxy,
            Proxy::http as fn(String) -> reqwest::Result<Proxy>,
        ),
        (&settings.https_proxy, Proxy::https),
    ];
    for (address, make) in proxies {
        let Some(address) = address.as_ref().filter(|address| !address.is_empty()) else {
            continue;
        };
        let proxy = make(address.clone());
        let proxy = proxy
            .map_err(|_| ImageError::Registry("the proxy's address cannot be used".to_owned()))?;
        builder = builder.proxy(proxy.no_proxy(exceptions.clone()));
    }
    let failed = |error: reqwest::Error| {
        ImageError::Registry(format!("no HTTP client: {}", super::words(&error)))
    };
    if certificates.is_empty() {
        return builder.build().map_err(failed);
    }
    builder
        .tls_certs_merge(certificates)
        .build()
        .map_err(failed)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hosts(settings: &Settings, name: &str) -> Vec<(String, Option<String>, bool)> {
        of(settings, &Reference::parse(name).unwrap())
            .into_iter()
            .map(|one| (one.host, one.base, one.may_be_plain))
            .collect()
    }

    #[test]
    fn mirrors_come_first_and_only_for_their_registry() {
        let mut settings = Settings::default();
        settings.mirrors.insert(
            "docker.io".to_owned(),
            vec![
                "https://m.example/".to_owned(),
                "http://n.example:5".to_owned(),
            ],
        );
        settings.insecure.insert("plain.example".to_owned());
        let own = |text: &str| Some(text.to_owned());
        assert_eq!(
            hosts(&settings, "python"),
            [
                ("m.example".to_owned(), own("https://m.example"), false),
                ("n.example:5".to_owned(), own("http://n.example:5"), false),
                (
                    "docker.io".to_owned(),
                    own("https://registry-1.docker.io"),
                    false
                ),
            ]
        );
        for (name, host, plain) in [
            ("r.example/x", "r.example", false),
            ("plain.example/x", "plain.example", true),
            ("127.0.0.1:5000/x", "127.0.0.1:5000", true),
            ("localhost:1/x", "localhost:1", true),
            ("127.example/x", "127.example", false),
        ] {
            assert_eq!(hosts(&settings, name), [(host.to_owned(), None, plain)]);
        }
    }
}
