//! What an image says of itself: its layers, and what its programs expect.

use super::digest::Digest;
use crate::backends::ImageUser;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Layers of one image: overlayfs takes no more.
pub(super) const LAYERS_MAX: usize = 400;

/// The configuration of an image, as far as it is used here; its other fields are kept beside it.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub(super) struct Config {
    #[serde(default)]
    pub(super) architecture: String,
    #[serde(default)]
    pub(super) os: String,
    #[serde(default)]
    config: Option<Execution>,
    rootfs: Rootfs,
}

#[derive(Debug, Clone, PartialEq, Eq, Deserialize, Default)]
struct Execution {
    #[serde(rename = "Env", default)]
    env: Option<Vec<String>>,
    #[serde(rename = "User", default)]
    user: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
struct Rootfs {
    diff_ids: Vec<String>,
}

impl Config {
    /// Reads it.
    ///
    /// # Errors
    ///
    /// What is wrong with it, in words.
    pub(super) fn parse(text: &[u8]) -> Result<Self, String> {
        let config: Self = serde_json::from_slice(text)
            .map_err(|error| format!("its configuration cannot be read: {error}"))?;
        config.layers()?;
        Ok(config)
    }

    /// The digests of its layers as tars, the lowest first.
    pub(super) fn layers(&self) -> Result<Vec<Digest>, String> {
        let all = &self.rootfs.diff_ids;
        if all.is_empty() || all.len() > LAYERS_MAX {
            return Err(format!(
                "it has {} layers; 1 to {LAYERS_MAX} can be used",
                all.len()
            ));
        }
        let read = |text: &String| {
            Digest::parse(text).ok_or_else(|| "a layer's digest is no sha256 digest".to_owned())
        };
        all.iter().map(read).collect()
    }

    /// Why it cannot run on this machine.
    pub(super) fn unsuited(&self) -> Option<String> {
        let wrong = |is: &str, ours: &str| !is.is_empty() && is != ours;
        let here = architecture();
        (wrong(&self.os, "linux") || wrong(&self.architecture, here)).then(|| {
            format!(
                "it is made for {}/{}, and this machine is linux/{here}",
                self.os, self.architecture
            )
        })
    }

    /// The variables that its programs expect.
    pub(super) fn env(&self) -> BTreeMap<String, String> {
        let all = self
            .config
            .iter()
            .flat_map(|config| config.env.iter().flatten());
        all.filter_map(|variable| variable.split_once('='))
            .filter(|(name, value)| {
                !name.is_empty() && !name.contains('\0') && !value.contains('\0')
            })
            .map(|(name, value)| (name.to_owned(), value.to_owned()))
            .collect()
    }

    /// The user that its programs run as: a name or a number, with a group after a colon or not. Nothing means root.
    pub(super) fn user(&self) -> Option<&str> {
        let user = self.config.as_ref()?.user.as_deref()?.trim();
        (!user.is_empty()).then_some(user)
    }
}

/// This machine, as registries call it.
pub(super) fn architecture() -> &'static str {
    if cfg!(target_arch = "x86_64") {
        "amd64"
    } else if cfg!(target_arch = "aarch64") {
        "arm64"
    } else {
        "unknown"
    }
}

/// The configuration of a root filesystem that brings none.
pub(super) fn plain(layer: &Digest) -> Vec<u8> {
    #[derive(Serialize)]
    struct Plain<'a> {
        architecture: &'a str,
        config: BTreeMap<String, String>,
        os: &'a str,
        rootfs: PlainRootfs<'a>,
    }
    #[derive(Serialize)]
    struct PlainRootfs<'a> {
        diff_ids: [String; 1],
        r#type: &'a str,
    }
    let plain = Plain {
        architecture: architecture(),
        config: BTreeMap::new(),
        os: "linux",
        rootfs: PlainRootfs {
            diff_ids: [layer.to_string()],
            r#type: "layers",
        },
    };
    serde_json::to_vec(&plain).unwrap_or_default()
}

/// What an image that was built says of itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Outcome {
    /// Its variables, all of them.
    pub env: BTreeMap<String, String>,
    /// Uid and gid of its programs; nothing where they are those of the base.
    pub user: Option<u32>,
}

/// The configuration of an image that is another one, and a layer on it or not.
///
/// # Errors
///
/// Where the base's cannot be read, or there would be too many layers.
pub(super) fn built(
    base: &str,
    layer: Option<&Digest>,
    outcome: Option<&Outcome>,
) -> Result<Vec<u8>, String> {
    let mut config: serde_json::Value = serde_json::from_str(base)
        .map_err(|error| format!("the configuration of its base: {error}"))?;
    let all = config
        .as_object_mut()
        .ok_or("the configuration of its base is no object")?;
    // It tells of the base's layers one by one.
    all.remove("history");
    let layers = all
        .get_mut("rootfs")
        .and_then(|rootfs| rootfs.get_mut("diff_ids"))
        .and_then(serde_json::Value::as_array_mut)
        .ok_or("the configuration of its base names no layers")?;
    layers.extend(layer.map(|layer| layer.to_string().into()));
    if let Some(outcome) = outcome {
        let mut execution = match all.remove("config") {
            Some(serde_json::Value::Object(execution)) => execution,
            _ => serde_json::Map::new(),
        };
        let env = outcome.env.iter();
        let env: Vec<String> = env.map(|(name, value)| format!("{name}={value}")).collect();
        execution.insert("Env".to_owned(), env.into());
        if let Some(uid) = outcome.user {
            execution.insert("User".to_owned(), format!("{uid}:{uid}").into());
        }
        all.insert("config".to_owned(), execution.into());
    }
    let text = serde_json::to_vec(&config).map_err(|error| error.to_string())?;
    Config::parse(&text)?;
    Ok(text)
}

/// A user that an image names, by its account files.
///
/// # Errors
///
/// In words: a name that the files do not have.
pub(super) fn resolve(user: &str, passwd: &str, group: &str) -> Result<ImageUser, String> {
    let (user, wanted) = match user.split_once(':') {
        Some((user, group)) => (user, Some(group)),
        None => (user, None),
    };
    let fields = |line: &str| line.split(':').map(str::to_owned).collect::<Vec<_>>();
    let number = |text: Option<&String>| text?.parse::<u32>().ok();
    let accounts = || passwd.lines().map(fields);
    let (uid, line) = match user.parse::<u32>() {
        Ok(uid) => {
            let found = accounts().find(|line| number(line.get(2)) == Some(uid));
            (uid, found.unwrap_or_default())
        }
        Err(_) => {
            let found = accounts().find(|line| line.first().is_some_and(|name| name == user));
            let line = found.ok_or_else(|| format!("it has no user {user:?}"))?;
            let uid = number(line.get(2)).ok_or_else(|| format!("its user {user:?} has no uid"))?;
            (uid, line)
        }
    };
    let own_group = number(line.get(3));
    let home = line.get(5).filter(|home| home.starts_with('/')).cloned();
    let gid = match wanted {
        None | Some("") => own_group.unwrap_or(0),
        Some(wanted) => match wanted.parse::<u32>() {
            Ok(gid) => gid,
            Err(_) => {
                let mut groups = group.lines().map(fields);
                let found = groups.find(|line| line.first().is_some_and(|name| name == wanted));
                let gid = found.and_then(|line| number(line.get(2)));
                gid.ok_or_else(|| format!("it has no group {wanted:?}"))?
            }
        },
    };
    Ok(ImageUser { uid, gid, home })
}

#[cfg(test)]
mod tests {
    use super::*;

    const PASSWD: &str =
        "root:x:0:0:root:/root:/bin/sh\nnode:x:1000:1001::/home/node:/bin/sh\nbroken\n";
    const GROUP: &str = "root:x:0:\nstaff:x:50:\n";

    #[test]
    fn users_are_found_by_name_and_number() {
        for (user, ids) in [
            ("node", (1000, 1001)),
            ("1000", (1000, 1001)),
            ("1000:7", (1000, 7)),
            ("node:staff", (1000, 50)),
            // As container engines do it: a number that nobody has goes with the root group.
            ("1234", (1234, 0)),
            ("0:0", (0, 0)),
        ] {
            let found = resolve(user, PASSWD, GROUP).unwrap();
            assert_eq!((found.uid, found.gid), ids, "{user}");
        }
        let home = resolve("node", PASSWD, GROUP).unwrap().home;
        assert_eq!(home.as_deref(), Some("/home/node"));
        for user in ["nobody", "node:nobodys", "-1", ""] {
            assert!(resolve(user, PASSWD, GROUP).is_err(), "{user}");
        }
    }

    #[test]
    fn what_a_configuration_says() {
        let layer = Digest::of(b"layer");
        let text = format!(
            r#"{{"architecture":"{}","os":"linux","config":{{"Env":["A=1","B=x=y","=","C"],"User":" node "}},
               "rootfs":{{"type":"layers","diff_ids":["{layer}"]}},"history":[]}}"#,
            architecture()
        );
        let config = Config::parse(text.as_bytes()).unwrap();
        assert_eq!(config.layers().unwrap(), std::slice::from_ref(&layer));
        assert_eq!(config.user(), Some("node"));
        assert_eq!(config.unsuited(), None);
        let env = BTreeMap::from([
            ("A".to_owned(), "1".to_owned()),
            ("B".to_owned(), "x=y".to_owned()),
        ]);
        assert_eq!(config.env(), env);
        let own = Config::parse(&plain(&layer)).unwrap();
        assert_eq!((own.unsuited(), own.user()), (None, None));
        let other = text.replace("linux", "plan9");
        let why = Config::parse(other.as_bytes()).unwrap().unsuited();
        assert!(why.unwrap().contains("plan9"));
    }

    #[test]
    fn a_configuration_without_layers_is_none() {
        for text in [
            "",
            "{}",
            r#"{"rootfs":{"diff_ids":[]}}"#,
            r#"{"rootfs":{"diff_ids":["sha256:../x"]}}"#,
        ] {
            assert!(Config::parse(text.as_bytes()).is_err(), "{text}");
        }
    }
}
