//! Manifests: what a registry or an archive says an image is made of.

use super::config;
use super::digest::Digest;
use serde::Deserialize;
use std::collections::BTreeMap;

/// Bytes of a manifest, an index or a configuration.
pub(super) const DOCUMENT_BYTES_MAX: u64 = 8 * 1024 * 1024;
/// Manifests of one index.
const INDEX_MAX: usize = 10_000;

/// What to say one can read.
pub(super) const ACCEPTED: &str = "application/vnd.oci.image.index.v1+json, \
    application/vnd.docker.distribution.manifest.list.v2+json, \
    application/vnd.oci.image.manifest.v1+json, \
    application/vnd.docker.distribution.manifest.v2+json";

/// Content somewhere else.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub(super) struct Descriptor {
    digest: String,
    pub(super) size: u64,
    #[serde(default)]
    platform: Option<Platform>,
    #[serde(default)]
    pub(super) annotations: BTreeMap<String, String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
struct Platform {
    #[serde(default)]
    architecture: String,
    #[serde(default)]
    os: String,
    #[serde(default)]
    variant: String,
}

impl Descriptor {
    /// Its digest.
    pub(super) fn digest(&self) -> Result<Digest, String> {
        Digest::parse(&self.digest).ok_or_else(|| {
            let shown: String = self.digest.chars().take(100).collect();
            format!("it names content by {shown:?}, which is no sha256 digest")
        })
    }
}

/// A manifest or an index.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Document {
    /// Of one image.
    Image {
        config: Descriptor,
        layers: Vec<Descriptor>,
    },
    /// Of images for several machines, or in one archive.
    Index(Vec<Descriptor>),
}

#[derive(Deserialize)]
struct Raw {
    #[serde(rename = "schemaVersion", default)]
    version: u32,
    config: Option<Descriptor>,
    layers: Option<Vec<Descriptor>>,
    manifests: Option<Vec<Descriptor>>,
}

impl Document {
    /// Reads it. One that could be read both ways is neither.
    pub(super) fn parse(text: &[u8]) -> Result<Self, String> {
        let raw: Raw = serde_json::from_slice(text)
            .map_err(|error| format!("its manifest cannot be read: {error}"))?;
        match raw {
            Raw {
                config: Some(config),
                layers: Some(layers),
                manifests: None,
                ..
            } => {
                if layers.len() > config::LAYERS_MAX {
                    return Err(format!("it has {} layers", layers.len()));
                }
                Ok(Self::Image { config, layers })
            }
            Raw {
                config: None,
                layers: None,
                manifests: Some(manifests),
                ..
            } if manifests.len() <= INDEX_MAX => Ok(Self::Index(manifests)),
            Raw { version: 1, .. } => Err(
                "its manifest is of the first schema, which carries no digests of layers; push it again with a newer tool"
                    .to_owned(),
            ),
            _ => Err("its manifest is neither one of an image nor an index of such".to_owned()),
        }
    }
}

/// Of an index, the one for this machine.
pub(super) fn for_this_machine(all: &[Descriptor]) -> Result<&Descriptor, String> {
    let here = config::architecture();
    let suits = |platform: &Platform| platform.os == "linux" && platform.architecture == here;
    let usual = |platform: &Platform| {
        matches!(
            (here, platform.variant.as_str()),
            (_, "") | ("arm64", "v8") | ("amd64", "v1")
        )
    };
    let of = |descriptor: &&Descriptor, test: &dyn Fn(&Platform) -> bool| {
        descriptor.platform.as_ref().is_some_and(test)
    };
    let mut suited = all.iter().filter(|one| of(one, &suits));
    let first = suited.clone().next();
    if let Some(found) = suited.find(|one| of(one, &usual)).or(first) {
        return Ok(found);
    }
    // One without a platform is for whoever asks.
    if let [only] = all
        && only.platform.is_none()
    {
        return Ok(only);
    }
    let mut there: Vec<String> = all
        .iter()
        .filter_map(|one| one.platform.as_ref())
        .filter(|platform| platform.os != "unknown")
        .map(|platform| format!("{}/{}", platform.os, platform.architecture))
        .take(20)
        .collect();
    there.sort();
    there.dedup();
    Err(format!(
        "it is there for {}, and not for linux/{here}",
        if there.is_empty() {
            "nothing".to_owned()
        } else {
            there.join(", ")
        }
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn descriptor(platform: Option<(&str, &str, &str)>) -> Descriptor {
        Descriptor {
            digest: Digest::of(format!("{platform:?}").as_bytes()).to_string(),
            size: 1,
            platform: platform.map(|(os, architecture, variant)| Platform {
                architecture: architecture.to_owned(),
                os: os.to_owned(),
                variant: variant.to_owned(),
            }),
            annotations: BTreeMap::new(),
        }
    }

    #[test]
    fn the_image_for_this_machine_is_chosen() {
        let here = config::architecture();
        let odd = descriptor(Some(("linux", here, "v7")));
        let good = descriptor(Some(("linux", here, "")));
        let others = [
            descriptor(Some(("windows", here, ""))),
            descriptor(Some(("linux", "s390x", ""))),
            descriptor(Some(("unknown", "unknown", ""))),
        ];
        let mut all = others.to_vec();
        let why = for_this_machine(&all).unwrap_err();
        assert!(why.contains("linux/s390x, windows/"), "{why}");
        all.push(odd.clone());
        assert_eq!(for_this_machine(&all), Ok(&odd));
        all.push(good.clone());
        assert_eq!(for_this_machine(&all), Ok(&good));
        let plain = [descriptor(None)];
        assert_eq!(for_this_machine(&plain), Ok(&plain[0]));
    }

    #[test]
    fn a_document_is_read_one_way_or_not_at_all() {
        let one = r#"{"digest":"sha256:00","size":1}"#;
        let image = format!(r#"{{"config":{one},"layers":[{one}]}}"#);
        assert!(matches!(
            Document::parse(image.as_bytes()),
            Ok(Document::Image { .. })
        ));
        let index = format!(r#"{{"manifests":[{one}]}}"#);
        assert!(matches!(
            Document::parse(index.as_bytes()),
            Ok(Document::Index(_))
        ));
        let both = format!(r#"{{"config":{one},"layers":[{one}],"manifests":[{one}]}}"#);
        for text in [
            &*both,
            "{}",
            "[]",
            "",
            r#"{"schemaVersion":1,"fsLayers":[]}"#,
        ] {
            assert!(Document::parse(text.as_bytes()).is_err(), "{text}");
        }
        let descriptor: Descriptor = serde_json::from_str(one).unwrap();
        assert!(descriptor.digest().is_err());
    }
}
