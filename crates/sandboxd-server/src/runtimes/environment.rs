//! The variables that every sandbox has, as data: an agent's tools neither prompt, page nor colour, and git trusts the
//! work directory whoever owns it.

use crate::runtimes::Runtime;
use std::collections::BTreeMap;

/// In every sandbox.
const ALWAYS: &[(&str, &str)] = &[
    (
        "PATH",
        "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
    ),
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

/// Root's home directory.
const HOME_OF_ROOT: &str = "/root";
/// The home directory of a run with a uid of its own.
const HOME_OF_USER: &str = "/home/agent";

/// The environment of a sandbox of `runtime`. `user` is the uid that runs have inside, absent for root; only root may
/// install into the system's Python, so only root is told to.
pub fn environment(runtime: &Runtime, user: Option<u32>) -> BTreeMap<String, String> {
    let mut env: BTreeMap<String, String> = ALWAYS
        .iter()
        .map(|&(name, value)| (name.to_owned(), value.to_owned()))
        .collect();
    let root = user.is_none_or(|uid| uid == 0);
    let home = if root { HOME_OF_ROOT } else { HOME_OF_USER };
    env.insert("HOME".to_owned(), home.to_owned());
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
        let env = environment(&runtime, None);
        assert_eq!(env["LANG"], "de");
        assert_eq!(env["HOME"], "/root");
        assert_eq!(env["GIT_CONFIG_VALUE_0"], "*");
    }

    #[test]
    fn a_user_is_not_told_to_install_into_the_system() {
        let runtime = Runtime::plain("host", "host", Source::Host);
        assert!(environment(&runtime, Some(0)).contains_key("UV_SYSTEM_PYTHON"));
        assert!(!environment(&runtime, Some(1000)).contains_key("UV_SYSTEM_PYTHON"));
    }
}
