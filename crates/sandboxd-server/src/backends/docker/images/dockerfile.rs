//! A recipe's steps as a Dockerfile. Pure. Nothing that somebody wrote is read by the engine as more than it is: programs are
//! started without its shell, from a list in JSON.

use crate::runtimes::recipe::{BuildPlan, CACHE_DIR};
use std::collections::BTreeMap;
use std::fmt::Write as _;

/// The image that a build starts from, as the engine shows it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Base {
    /// Its id, which names its content.
    pub(super) id: String,
    /// Its environment.
    pub(super) env: BTreeMap<String, String>,
    /// The user of its programs; empty for root.
    pub(super) user: String,
}

/// The Dockerfile; with `caches` where the builder keeps directories from one build to the next.
///
/// # Errors
///
/// What of the base image cannot be written down.
pub(super) fn render(plan: &BuildPlan, base: &Base, caches: bool) -> Result<String, String> {
    let mut text = format!("FROM {}\nUSER 0:0\nWORKDIR /\n", plan.base_image);
    let mount = if caches {
        // Installers do not share what they fetch while they fetch it.
        format!("--mount=type=cache,id=sandboxd,target={CACHE_DIR},sharing=locked ")
    } else {
        String::new()
    };
    let exports: String = BuildPlan::step_env(caches)
        .iter()
        .map(|(name, value)| format!("export {name}={}\n", in_shell(value)))
        .collect();
    for step in &plan.steps {
        let mut words = step.argv();
        if let Some(script) = words.get_mut(2) {
            // Not by ENV, which would stay in the image, nor by ARG, which the base's own variables hide.
            script.insert_str(0, &exports);
        }
        let _ = writeln!(text, "RUN {mount}{}", in_json(&words));
    }
    for (name, value) in plan.image_env(&base.env) {
        if base.env.get(&name) != Some(&value) {
            let _ = writeln!(text, "ENV {name}={}", in_dockerfile(&name, &value)?);
        }
    }
    let user = match plan.user {
        Some(uid) => format!("{uid}:{uid}"),
        None => user(&base.user)?,
    };
    let _ = writeln!(text, "USER {user}");
    Ok(text)
}

/// A list that an instruction takes as it is: without blanks between, and without what could begin a document of its own.
fn in_json(words: &[String]) -> String {
    let list = serde_json::Value::from(words).to_string();
    list.replace('<', "\\u003c")
}

/// One word of a shell's.
fn in_shell(value: &str) -> String {
    format!("'{}'", value.replace('\'', r"'\''"))
}

/// One value of a variable in a Dockerfile.
fn in_dockerfile(name: &str, value: &str) -> Result<String, String> {
    if value.contains(['\n', '\r', '\0']) {
        return Err(format!("its variable {name} has a line break"));
    }
    let mut quoted = String::from("\"");
    for character in value.chars() {
        if matches!(character, '"' | '\\' | '$') {
            quoted.push('\\');
        }
        quoted.push(character);
    }
    quoted.push('"');
    Ok(quoted)
}

/// The user of the base, whose programs go on as before.
fn user(text: &str) -> Result<String, String> {
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '.' | '-' | ':');
    match text {
        "" => Ok("0:0".to_owned()),
        text if text.chars().all(plain) => Ok(text.to_owned()),
        _ => Err("its user is no user's name".to_owned()),
    }
}

/// What is sent to the engine: an archive with the Dockerfile, and nothing beside it.
pub(super) fn context(dockerfile: &str) -> std::io::Result<Vec<u8>> {
    let mut archive = tar::Builder::new(Vec::new());
    let mut header = tar::Header::new_gnu();
    header.set_size(dockerfile.len() as u64);
    header.set_mode(0o644);
    archive.append_data(&mut header, "Dockerfile", dockerfile.as_bytes())?;
    archive.into_inner()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runtimes::recipe::Recipe;

    fn recipe() -> Recipe {
        Recipe {
            packages: vec!["a>=1".to_owned()],
            setup_commands: vec![r#"echo "it's" $HOME <<EOF \ "#.to_owned()],
            ..Recipe::of("x", "python:3.12-slim")
        }
    }

    fn base() -> Base {
        let set = |(name, value): (&str, &str)| (name.to_owned(), value.to_owned());
        Base {
            id: "sha256:1".to_owned(),
            env: [("PATH", r#"/a b:/"c"$d\"#), ("LANG", "x")].map(set).into(),
            user: "www-data".to_owned(),
        }
    }

    #[test]
    fn each_step_is_one_line_and_one_list() {
        for caches in [false, true] {
            let text = render(&recipe().plan().unwrap(), &base(), caches).unwrap();
            let lines: Vec<&str> = text.lines().collect();
            assert_eq!(
                lines[..3],
                ["FROM python:3.12-slim", "USER 0:0", "WORKDIR /"]
            );
            assert_eq!(lines.len(), 6, "{text}");
            for line in &lines[3..5] {
                let list = &line[line.find('[').unwrap()..];
                let words: Vec<String> = serde_json::from_str(list).unwrap();
                assert_eq!(words[..2], ["/bin/sh", "-c"]);
                assert!(words[2].contains("export HOME='/root'\n"));
                assert_eq!(words[2].contains("SANDBOXD_BUILD_CACHE"), caches);
                assert_eq!(line.contains("--mount=type=cache"), caches);
                assert!(!line.contains('<'));
            }
            assert_eq!(lines[5], "USER www-data");
        }
    }

    #[test]
    fn what_somebody_wrote_reaches_the_shell_as_it_was_written() {
        let text = render(&recipe().plan().unwrap(), &base(), false).unwrap();
        let run = text.lines().nth(3).unwrap();
        let words: Vec<String> = serde_json::from_str(run.strip_prefix("RUN ").unwrap()).unwrap();
        assert!(words[2].ends_with(r#"echo "it's" $HOME <<EOF \ "#));
        let run = text.lines().nth(4).unwrap();
        let words: Vec<String> = serde_json::from_str(run.strip_prefix("RUN ").unwrap()).unwrap();
        assert_eq!(words[3..], ["sh", "a>=1"]);
    }

    #[test]
    fn variables_of_the_result_are_set_over_those_of_the_base() {
        let recipe = Recipe {
            user: Some(1000),
            ..recipe()
        };
        let text = render(&recipe.plan().unwrap(), &base(), false).unwrap();
        assert!(text.contains("\nENV HOME=\"/home/agent\"\n"), "{text}");
        assert!(
            text.contains("\nENV PATH=\"/opt/venv/bin:/a b:/\\\"c\\\"\\$d\\\\\"\n"),
            "{text}"
        );
        assert!(!text.contains("ENV LANG"));
        assert!(text.ends_with("USER 1000:1000\n"));
    }

    #[test]
    fn what_cannot_be_written_down_is_refused() {
        assert!(in_dockerfile("A", "a\nRUN evil").unwrap_err().contains("A"));
        assert!(user("root\nRUN evil").is_err());
        assert!(user("a b").is_err());
        assert_eq!(user(""), Ok("0:0".to_owned()));
        assert_eq!(in_shell("it's"), r"'it'\''s'");
    }

    #[test]
    fn the_archive_has_the_dockerfile_only() {
        let bytes = context("FROM x\n").unwrap();
        let mut archive = tar::Archive::new(&*bytes);
        let names: Vec<_> = archive
            .entries()
            .unwrap()
            .map(|entry| entry.unwrap().path().unwrap().into_owned())
            .collect();
        assert_eq!(names, [std::path::PathBuf::from("Dockerfile")]);
    }
}
