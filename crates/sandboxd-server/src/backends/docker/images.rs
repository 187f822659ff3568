//! Images that the engine has.

use super::connect::Engine;
use crate::backends::{ImageDefaults, ImageUser, PrepareError, PreparedImage};
use crate::limits::ENGINE_ASK_SECONDS_MAX;
use crate::runtimes::{Runtime, Source};
use bollard::models::ImageConfig;

/// Makes an image ready.
pub(super) async fn prepare(
    engine: &Engine,
    runtime: &Runtime,
) -> Result<PreparedImage, PrepareError> {
    let missing = |how: &str| PrepareError::Missing {
        image: runtime.label.clone(),
        how: how.to_owned(),
    };
    let Source::Image(name) = &runtime.source else {
        return Err(missing(
            "the docker backend makes sandboxes of the engine's images only",
        ));
    };
    let found = engine
        .call(
            "looking for the image",
            ENGINE_ASK_SECONDS_MAX,
            engine.client().inspect_image(name),
        )
        .await;
    let broken = |cause: String| PrepareError::Broken {
        image: name.clone(),
        cause,
    };
    let found = match found {
        Ok(found) => found,
        Err(error) if error.is_missing() => {
            return Err(missing(&format!("docker pull {name} fetches it")));
        }
        Err(error) => return Err(broken(error.to_string())),
    };
    let id = found
        .id
        .ok_or_else(|| broken("the engine does not say its id".to_owned()))?;
    Ok(PreparedImage::Engine {
        id,
        name: name.clone(),
        defaults: defaults(&found.config.unwrap_or_default()),
    })
}

/// What the image's programs expect.
fn defaults(config: &ImageConfig) -> ImageDefaults {
    let env = config.env.iter().flatten();
    let env = env.filter_map(|entry| entry.split_once('='));
    ImageDefaults {
        env: env
            .map(|(name, value)| (name.to_owned(), value.to_owned()))
            .collect(),
        user: user(config.user.as_deref().unwrap_or_default()),
    }
}

fn user(text: &str) -> Result<Option<ImageUser>, String> {
    let (uid, gid) = text.split_once(':').unwrap_or((text, ""));
    if matches!(uid, "" | "0" | "root") && matches!(gid, "" | "0" | "root") {
        return Ok(None);
    }
    let unknown = |_| format!("{text:?} is no number, and names are not looked up in the image");
    let uid: u32 = uid.parse().map_err(unknown)?;
    let gid: u32 = match gid {
        "" => 0,
        gid => gid.parse().map_err(unknown)?,
    };
    Ok(Some(ImageUser {
        uid,
        gid,
        home: None,
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_images_user_is_a_number_or_root() {
        assert_eq!(user(""), Ok(None));
        assert_eq!(user("root"), Ok(None));
        let numbers = user("7:8").unwrap().unwrap();
        assert_eq!((numbers.uid, numbers.gid), (7, 8));
        assert!(user("agent").unwrap_err().contains("agent"));
    }
}
