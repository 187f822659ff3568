//! The image that a kept container was made from. It wakes over that one, whatever the runtime's is by now, and even where
//! the engine has forgotten it: what a container needs of its image the engine keeps as long as the container.

use super::super::connect::unless_missing;
use super::super::{Inner, create, ending};
use super::{prepared, user};
use crate::backends::{ImageDefaults, PreparedImage};
use crate::id::SandboxId;
use crate::limits::ENGINE_ASK_SECONDS_MAX;
use bollard::models::ContainerInspectResponse;
use std::collections::BTreeMap;
use std::sync::Arc;

/// That of this sandbox's container; nothing where there is none, or the engine does not say.
pub(in super::super) async fn kept(inner: &Arc<Inner>, id: &SandboxId) -> Option<PreparedImage> {
    let container = ending::container_of(inner, id).await.ok()??;
    let looked = create::inspect(&inner.engine, &container).await.ok()??;
    let image = looked.image.clone()?;
    let looking = inner.engine.client().inspect_image(&image);
    let doing = "looking for the kept container's image";
    let found = inner.engine.call(doing, ENGINE_ASK_SECONDS_MAX, looking);
    match unless_missing(found.await).ok()? {
        Some(found) => prepared(found, &image, &image).ok(),
        None => Some(PreparedImage::Engine {
            id: image.clone(),
            name: image,
            defaults: remembered(&looked),
        }),
    }
}

/// What the guest of a container was told of its image. Variables are the container's own.
fn remembered(looked: &ContainerInspectResponse) -> ImageDefaults {
    let config = looked.config.as_ref();
    let words = config.and_then(|config| config.cmd.as_ref());
    let told = words.into_iter().flatten();
    let told = told.filter_map(|word| word.strip_prefix("--user=")).next();
    ImageDefaults {
        env: BTreeMap::new(),
        user: match told {
            // The guest takes one number for both.
            Some(uid) if !uid.contains(':') => user(&format!("{uid}:{uid}")),
            Some(both) => user(both),
            None => Ok(None),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bollard::models::ContainerConfig;

    #[test]
    fn whom_a_container_runs_as_is_known_without_its_image() {
        let of = |words: &[&str]| {
            let words = words.iter().map(|&word| word.to_owned()).collect();
            let looked = ContainerInspectResponse {
                config: Some(ContainerConfig {
                    cmd: Some(words),
                    ..ContainerConfig::default()
                }),
                ..ContainerInspectResponse::default()
            };
            let user = remembered(&looked).user.unwrap();
            user.map(|user| (user.uid, user.gid))
        };
        assert_eq!(of(&["--link=stdio", "--user=7"]), Some((7, 7)));
        assert_eq!(of(&["--user=7:8"]), Some((7, 8)));
        assert_eq!(of(&["sleep", "infinity"]), None);
    }
}
