//! The variables that every sandbox has, as data: an agent's tools neither prompt, page nor colour, and git trusts the
//! work directory whoever owns it.

use crate::backends::ImageDefaults;
use crate::runtimes::Runtime;
use std::collections::BTreeMap;

/// In every sandbox.
const ALWAYS: &[(&str, &str)] = &[
    ("LANG", "C.UTF-8"),
    ("NO_COLOR", "1"),
    ("PAGER", "cat"),
    ("DEBIAN_FRONTEND", "noninteractive"),
    ("GIT_CONFIG_COUNT", "5"),
    ("GIT_CONFIG_KEY_0", "safe.directory"),
    ("GIT_CONFIG_VALUE_0", "*"),
    ("GIT_CONFIG_KEY_1", "user.name"),
    ("GIT_CONFIG_VALUE_1", "Agent"),
    ("GIT_CONFIG_KEY_2", "user.email"),
    ("GIT_CONFIG_VALUE_2", "agent@sandbox.local"),
    ("GIT_CONFIG_KEY_3", "init.defaultBranch"),
    ("GIT_CONFIG_VALUE_3", "main"),
    ("GIT_CONFIG_KEY_4", "advice.detachedHead"),
    ("GIT_CONFIG_VALUE_4", "false"),
    ("GIT_PAGER", "cat"),
    ("GIT_TERMINAL_PROMPT", "0"),
    ("PIP_DISABLE_PIP_VERSION_CHECK", "1"),
    ("PIP_NO_INPUT", "1"),
    ("PIP_ROOT_USER_ACTION", "ignore"),
    ("PYTHONUNBUFFERED", "1"),
    ("UV_COMPILE_BYTECODE", "1"),
    ("UV_CONCURRENT_DOWNLOADS", "2"),
    ("UV_CONCURRENT_INSTALLS", "2"),
];

/// Where programs are, where no image says so.
pub(crate) const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
/// Root's home directory.
const HOME_OF_ROOT: &str = "/root";
/// The home directory of a run with a uid of its own.
const HOME_OF_USER: &str = "/home/agent";

/// The environment of a sandbox of `runtime`. `user` is the uid that runs have inside, absent for root; only root may
/// install into the system's Python, so only root is told to. What an image sets stands, but for what every sandbox has;
/// where its programs are, and whose home it is, is its own to say.
pub fn environment(
    runtime: &Runtime,
    user: Option<u32>,
    image: Option<&ImageDefaults>,
) -> BTreeMap<String, String> {
    let mut env = BTreeMap::from([("PATH".to_owned(), PATH.to_owned())]);
    let root = user.is_none_or(|uid| uid == 0);
    let own = image.and_then(|image| image.user.as_ref().ok()?.as_ref());
    let home = match own.filter(|own| user == Some(own.uid)) {
        Some(own) => own.home.as_deref(),
        None if root => Some(HOME_OF_ROOT),
        // The work directory, which nobody but the backend knows.
        None if image.is_some() => None,
        None => Some(HOME_OF_USER),
    };
    env.extend(home.map(|home| ("HOME".to_owned(), home.to_owned())));
    env.extend(image.into_iter().flat_map(|image| image.env.clone()));
    let always = ALWAYS.iter();
    env.extend(always.map(|&(name, value)| (name.to_owned(), value.to_owned())));
    if root {
        env.insert("UV_SYSTEM_PYTHON".to_owned(), "1".to_owned());
    }
    env.extend(runtime.env.clone());
    env
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runtimes::Source;

    #[test]
    fn a_runtimes_own_variables_win() {
        let mut runtime = Runtime::plain("host", "host", Source::Host);
        runtime.env.insert("LANG".to_owned(), "de".to_owned());
        let env = environment(&runtime, None, None);
        assert_eq!(env["LANG"], "de");
        assert_eq!(env["HOME"], "/root");
        assert_eq!(env["GIT_CONFIG_VALUE_0"], "*");
    }

    #[test]
    fn a_user_is_not_told_to_install_into_the_system() {
        let runtime = Runtime::plain("host", "host", Source::Host);
        assert!(environment(&runtime, Some(0), None).contains_key("UV_SYSTEM_PYTHON"));
        assert!(!environment(&runtime, Some(1000), None).contains_key("UV_SYSTEM_PYTHON"));
    }

    #[test]
    fn an_image_says_where_its_programs_are_and_not_how_git_behaves() {
        let runtime = Runtime::plain("py", "py", Source::Host);
        let set = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        let mut image = ImageDefaults {
            env: BTreeMap::from([
                set("PATH", "/opt/bin"),
                set("GIT_PAGER", "less"),
                set("OWN", "1"),
            ]),
            user: Ok(None),
        };
        let env = environment(&runtime, None, Some(&image));
        assert_eq!(
            (&*env["PATH"], &*env["GIT_PAGER"], &*env["OWN"]),
            ("/opt/bin", "cat", "1")
        );
        assert_eq!(env["HOME"], "/root");
        image.user = Ok(Some(crate::backends::ImageUser {
            uid: 7,
            gid: 8,
            home: Some("/home/seven".to_owned()),
        }));
        assert_eq!(
            environment(&runtime, Some(7), Some(&image))["HOME"],
            "/home/seven"
        );
        // Whose home it is not, has none there.
        assert_eq!(
            environment(&runtime, Some(9), Some(&image)).get("HOME"),
            None
        );
    }
}
