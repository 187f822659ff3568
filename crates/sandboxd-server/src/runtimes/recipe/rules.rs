//! What no recipe may hold. Packages reach their installer as arguments of their own and never through a shell, and are
//! refused here all the same: what is no package's name is a mistake, or somebody's try.

use super::Recipe;
use crate::limits::{RECIPE_ITEMS_MAX, RECIPE_NAME_CHARS_MAX, RECIPE_TEXT_BYTES_MAX};
use crate::runtimes::images::reference::Reference;

/// What of a recipe is refused, and why.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{field}: {problem}")]
pub struct RecipeError {
    /// The field.
    pub field: &'static str,
    /// The piece of it.
    pub raw: String,
    /// Why.
    pub problem: &'static str,
}

fn refused(field: &'static str, raw: &str, problem: &'static str) -> Result<(), RecipeError> {
    let raw = raw.chars().take(200).collect();
    Err(RecipeError {
        field,
        raw,
        problem,
    })
}

impl Recipe {
    /// Whether it can be built at all.
    ///
    /// # Errors
    ///
    /// The first thing of it that is refused.
    pub fn check(&self) -> Result<(), RecipeError> {
        let name = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-');
        if !self.name.bytes().all(name)
            || self.name.is_empty()
            || self.name.len() > RECIPE_NAME_CHARS_MAX
        {
            let problem = "expected 1 to 64 letters, digits, dots, underscores and hyphens";
            return refused("name", &self.name, problem);
        }
        if self.base_image == "host" || self.base_image.starts_with('/') {
            let problem = "expected an image's name; sandboxd image import gives a directory or a tar file one";
            return refused("base_image", &self.base_image, problem);
        }
        if Reference::parse(&self.base_image).is_err() {
            return refused("base_image", &self.base_image, "expected an image's name");
        }
        for (field, count) in [
            ("packages", self.packages.len()),
            ("setup_commands", self.setup_commands.len()),
        ] {
            if count > RECIPE_ITEMS_MAX {
                return refused(field, &count.to_string(), "expected at most 256 of them");
            }
        }
        for package in &self.packages {
            check_package(package)?;
        }
        for command in &self.setup_commands {
            if command.trim().is_empty() {
                return refused("setup_commands", command, "a command is empty");
            }
            check_text("setup_commands", command)?;
        }
        if self.user == Some(0) {
            return refused("run_as_uid", "0", "expected a uid above 0; root needs none");
        }
        Ok(())
    }
}

/// A package as the contract allows it: it begins with a letter, a digit or an at sign, so that it is never an option.
fn check_package(package: &str) -> Result<(), RecipeError> {
    let first = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'@';
    let other = |byte: u8| first(byte) || b"._/+=<>~![]-".contains(&byte);
    let mut bytes = package.bytes();
    if !bytes.next().is_some_and(first) || !bytes.all(other) {
        let problem = "not a package's name: letters, digits and @._/+=<>~![]- are, and the first is a letter, a digit or @";
        return refused("packages", package, problem);
    }
    check_text("packages", package)
}

fn check_text(field: &'static str, text: &str) -> Result<(), RecipeError> {
    if text.len() > RECIPE_TEXT_BYTES_MAX {
        return refused(field, text, "longer than 65536 bytes");
    }
    match text.contains(['\n', '\r', '\0']) {
        true => refused(field, text, "has a line break or a NUL byte"),
        false => Ok(()),
    }
}

/// A variable of an image, as a shell takes it.
///
/// # Errors
///
/// Where its name is none, or its value has a line break.
pub fn check_variable(name: &str, value: &str) -> Result<(), RecipeError> {
    let first = |byte: u8| byte.is_ascii_alphabetic() || byte == b'_';
    let mut bytes = name.bytes();
    let good =
        bytes.next().is_some_and(first) && bytes.all(|byte| first(byte) || byte.is_ascii_digit());
    match good {
        true => check_text("env_vars", value),
        false => refused("env_vars", name, "not a variable's name"),
    }
}

/// A recipe's work directory has no effect, and is refused all the same where it is none.
///
/// # Errors
///
/// Where a shell would read something else into it.
pub fn check_work_dir(text: &str) -> Result<(), RecipeError> {
    let bad = |c: char| ";&|`$()<>\n\r\0".contains(c);
    match text.starts_with('/') && !text.contains(bad) {
        true => Ok(()),
        false => refused("work_dir", text, "expected a plain absolute path"),
    }
}

#[cfg(test)]
mod tests {
    use super::super::PackageManager;
    use super::*;
    use proptest::prelude::*;

    fn with_package(package: &str) -> Recipe {
        Recipe {
            packages: vec![package.to_owned()],
            ..Recipe::of("x", "python:3.12-slim")
        }
    }

    #[test]
    fn what_is_no_package_is_refused_by_name() {
        for package in [
            "foo; rm -rf /",
            "foo\nRUN evil",
            "$(id)",
            "`id`",
            "a|b",
            "a&b",
            "-r/etc/passwd",
            "--index-url=x",
            "a b",
            "'a'",
            "",
            "ä",
            "a\0b",
        ] {
            let error = with_package(package).check().unwrap_err();
            assert_eq!((error.field, &*error.raw), ("packages", package));
        }
        for package in [
            "numpy",
            "pandas>=2.0",
            "httpx[http2]",
            "@types/react",
            "typescript@5",
            "golang.org/x/tools/gopls@latest",
            "foo~=1.2",
            "foo!=1",
            "libstdc++6",
        ] {
            assert_eq!(with_package(package).check(), Ok(()), "{package}");
        }
    }

    #[test]
    fn each_field_is_looked_at() {
        let plain = || Recipe::of("x", "python:3.12-slim");
        let set = |change: &dyn Fn(&mut Recipe)| {
            let mut recipe = plain();
            change(&mut recipe);
            recipe.check().map_err(|error| error.field)
        };
        assert_eq!(set(&|_| {}), Ok(()));
        assert_eq!(set(&|r| r.name = "a/b".to_owned()), Err("name"));
        assert_eq!(set(&|r| r.name = "x".repeat(65)), Err("name"));
        for base in ["", "host", "/srv/root", "a image", "x\nRUN y"] {
            assert_eq!(set(&|r| r.base_image = base.to_owned()), Err("base_image"));
        }
        for command in ["", " ", "a\nb", "a\0"] {
            let field = set(&|r| r.setup_commands = vec![command.to_owned()]);
            assert_eq!(field, Err("setup_commands"), "{command:?}");
        }
        assert!(check_variable("A_1", "any $thing `at` \"all\"").is_ok());
        for (name, value) in [
            ("1A", "x"),
            ("A-B", "x"),
            ("", "x"),
            ("A", "x\ny"),
            ("A=B", "x"),
        ] {
            assert!(check_variable(name, value).is_err(), "{name:?} {value:?}");
        }
        assert_eq!(set(&|r| r.user = Some(0)), Err("run_as_uid"));
        assert_eq!(
            set(&|r| r.packages = vec!["a".to_owned(); 257]),
            Err("packages")
        );
        assert!(check_work_dir("/srv/app").is_ok());
        for text in ["srv", "/a;b", "/a$b", "/a\nb", "/a|b", "/a(b)"] {
            assert!(check_work_dir(text).is_err(), "{text:?}");
        }
    }

    proptest! {
        /// Whatever passes is one argument, and no option, to every installer; and no shell reads a package.
        #[test]
        fn what_passes_is_an_argument_and_no_more(package in "\\PC{0,40}|[a-z@$;|&`<>\\[\\]\\n -]{0,12}") {
            for package_manager in PackageManager::ALL {
                let recipe = Recipe { package_manager, ..with_package(&package) };
                if let Ok(plan) = recipe.plan() {
                    prop_assert!(!package.is_empty() && !package.starts_with('-'));
                    prop_assert!(!package.contains([' ', ';', '|', '&', '$', '`', '\'', '"', '\n', '(', '*', '\\']));
                    for step in &plan.steps {
                        prop_assert!(!step.script.contains(&package) || package.len() < 4);
                    }
                    let given: Vec<&String> = plan.steps.iter().flat_map(|step| &step.arguments).collect();
                    prop_assert!(given.iter().any(|given| **given == package));
                }
            }
        }
    }
}
