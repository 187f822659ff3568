//! Names of images, read as every tool of this trade reads them: `python`, `python:3.12-slim`,
//! `registry.example:5000/team/app@sha256:…`.

use super::digest::Digest;
use std::fmt;

/// The registry that a name without one means.
pub const DEFAULT_REGISTRY: &str = "docker.io";
/// Longest name, in bytes.
const NAME_BYTES_MAX: usize = 512;
/// Longest tag, in bytes.
const TAG_BYTES_MAX: usize = 128;

/// A text that names no image.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} is no name of an image: {why}")]
pub struct NotAName {
    /// The text.
    pub text: String,
    /// What is wrong with it.
    pub why: &'static str,
}

/// The name of an image.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Reference {
    registry: String,
    repository: String,
    version: Version,
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Version {
    Tag(String),
    Digest(Digest),
}

impl Reference {
    /// Reads a name. One without a tag and without a digest means the tag `latest`; a tag beside a digest says nothing.
    ///
    /// # Errors
    ///
    /// What is wrong with it.
    pub fn parse(text: &str) -> Result<Self, NotAName> {
        let refuse = |why| NotAName {
            text: text.chars().take(200).collect(),
            why,
        };
        if text.is_empty() || text.len() > NAME_BYTES_MAX {
            return Err(refuse("it is empty or too long"));
        }
        let (name, digest) = match text.split_once('@') {
            None => (text, None),
            Some((name, digest)) => {
                let digest = Digest::parse(digest);
                (
                    name,
                    Some(digest.ok_or_else(|| refuse("after @ comes sha256: and 64 digits"))?),
                )
            }
        };
        let (name, tag) = match name.rsplit_once(':') {
            Some((name, tag)) if !tag.contains('/') => (name, Some(tag)),
            _ => (name, None),
        };
        if tag.is_some_and(|tag| !is_tag(tag)) {
            return Err(refuse("its tag has characters that no tag has"));
        }
        let (registry, repository) = match name.split_once('/') {
            Some((first, rest)) if first.contains(['.', ':']) || first == "localhost" => {
                (first, rest.to_owned())
            }
            Some(_) => (DEFAULT_REGISTRY, name.to_owned()),
            None => (DEFAULT_REGISTRY, format!("library/{name}")),
        };
        if !is_registry(registry) {
            return Err(refuse("its registry is no host and port"));
        }
        if !repository.split('/').all(is_component) {
            return Err(refuse("it has characters that no repository has"));
        }
        let registry = match registry {
            "index.docker.io" | "registry-1.docker.io" => DEFAULT_REGISTRY,
            other => other,
        };
        let version = match (digest, tag) {
            (Some(digest), _) => Version::Digest(digest),
            (None, tag) => Version::Tag(tag.unwrap_or("latest").to_owned()),
        };
        Ok(Self {
            registry: registry.to_owned(),
            repository,
            version,
        })
    }

    /// The registry's host, and its port where it has one.
    pub fn registry(&self) -> &str {
        &self.registry
    }

    /// The repository in the registry.
    pub fn repository(&self) -> &str {
        &self.repository
    }

    /// The digest that it demands.
    pub fn digest(&self) -> Option<&Digest> {
        match &self.version {
            Version::Digest(digest) => Some(digest),
            Version::Tag(_) => None,
        }
    }

    /// What to ask the registry for.
    pub(super) fn version(&self) -> String {
        match &self.version {
            Version::Digest(digest) => digest.to_string(),
            Version::Tag(tag) => tag.clone(),
        }
    }
}

/// The shortest text that names it.
impl fmt::Display for Reference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.registry == DEFAULT_REGISTRY {
            let short = self.repository.strip_prefix("library/");
            f.write_str(short.unwrap_or(&self.repository))?;
        } else {
            write!(f, "{}/{}", self.registry, self.repository)?;
        }
        match &self.version {
            Version::Tag(tag) => write!(f, ":{tag}"),
            Version::Digest(digest) => write!(f, "@{digest}"),
        }
    }
}

fn is_tag(tag: &str) -> bool {
    let good = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'.' | b'-');
    !tag.is_empty()
        && tag.len() <= TAG_BYTES_MAX
        && tag.bytes().all(good)
        && !tag.starts_with(['.', '-'])
}

fn is_component(component: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let good = |byte: u8| plain(byte) || matches!(byte, b'_' | b'.' | b'-');
    component.bytes().all(good)
        && component.bytes().next().is_some_and(plain)
        && component.bytes().last().is_some_and(plain)
        && !component.contains("..")
}

fn is_registry(registry: &str) -> bool {
    let (host, port) = match registry.rsplit_once(':') {
        Some((host, port)) => (host, Some(port)),
        None => (registry, None),
    };
    let good = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-');
    !host.is_empty()
        && host.bytes().all(good)
        && !host.starts_with(['.', '-'])
        && port.is_none_or(|port| port.parse::<u16>().is_ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_names_mean_the_usual_registry() {
        for (text, registry, repository, version, shown) in [
            (
                "python",
                "docker.io",
                "library/python",
                "latest",
                "python:latest",
            ),
            (
                "python:3.12-slim",
                "docker.io",
                "library/python",
                "3.12-slim",
                "python:3.12-slim",
            ),
            (
                "docker.io/library/python:3",
                "docker.io",
                "library/python",
                "3",
                "python:3",
            ),
            (
                "index.docker.io/team/app",
                "docker.io",
                "team/app",
                "latest",
                "team/app:latest",
            ),
            (
                "localhost/app:1",
                "localhost",
                "app",
                "1",
                "localhost/app:1",
            ),
            (
                "127.0.0.1:5000/a/b",
                "127.0.0.1:5000",
                "a/b",
                "latest",
                "127.0.0.1:5000/a/b:latest",
            ),
            (
                "r.example/a__b/c-d.e:V_1",
                "r.example",
                "a__b/c-d.e",
                "V_1",
                "r.example/a__b/c-d.e:V_1",
            ),
        ] {
            let read = Reference::parse(text).unwrap();
            assert_eq!(
                (
                    read.registry(),
                    read.repository(),
                    &*read.version(),
                    &*read.to_string()
                ),
                (registry, repository, version, shown),
                "{text}"
            );
            assert_eq!(Reference::parse(&read.to_string()), Ok(read));
        }
    }

    #[test]
    fn a_digest_is_what_counts_beside_a_tag() {
        let digest = Digest::of(b"x");
        let read = Reference::parse(&format!("python:3@{digest}")).unwrap();
        assert_eq!(read.digest(), Some(&digest));
        assert_eq!(read.to_string(), format!("python@{digest}"));
    }

    #[test]
    fn what_could_name_a_path_or_another_host_is_no_name() {
        for text in [
            "",
            "Python",
            "../etc",
            "a/../b",
            "a//b",
            "/a",
            "a/",
            "a:",
            "a:b/c:",
            "a@sha256:12",
            "a b",
            "user@host/a",
            "http://a.example/b",
            "a.example:99999/b",
            "-a.example/b",
            "a:.x",
            "a%2fb",
            "a\nb",
        ] {
            assert!(Reference::parse(text).is_err(), "{text:?}");
        }
    }
}
