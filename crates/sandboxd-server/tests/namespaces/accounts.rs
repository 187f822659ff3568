//! Runs of a uid: the account that a recipe gets for them, with what its base can make of it, and their files.

use crate::recipes::{alone, built, house, names, recipe, spec};
use crate::rented::{House, host, is_root};
use sandboxd_server::backends::SandboxSpec;
use sandboxd_server::runtimes::recipe::Recipe;

#[tokio::test]
async fn an_account_is_built_in_also_where_somebody_has_the_uid() {
    if !is_root() {
        return;
    }
    let state = tempfile::tempdir().unwrap();
    let house = house(state.path(), alone()).await;
    let known = "echo node:x:1000:1000:n:/home/node:/bin/sh >>/etc/passwd";
    for (commands, name) in [(&[][..], "agent"), (&[known][..], "node")] {
        let recipe = Recipe {
            user: Some(1000),
            ..recipe(commands)
        };
        let (image, _) = built(&house, &recipe).await;
        let image = image.unwrap();
        let user = image.defaults().unwrap().user.clone().unwrap().unwrap();
        assert_eq!((user.uid, user.gid), (1000, 1000));
        assert_eq!(user.home.as_deref(), Some("/home/agent"));
        let spec = SandboxSpec {
            user: Some(1000),
            ..spec(image)
        };
        let sandbox = house.rent(&spec).await;
        assert_eq!(
            sandbox
                .says("id -un; echo $HOME; touch ~/mine; stat -c %u:%g ~ ~/mine")
                .await,
            format!("{name}\n/home/agent\n1000:1000\n1000:1000")
        );
        assert_ne!(sandbox.sh("echo x >/etc/passwd").await.exit.code, 0);
        let path = sandbox.says("echo $PATH").await;
        assert!(path.starts_with("/opt/venv/bin:"), "{path}");
        sandbox.end().await;
    }
    // Both are there: they are variants of one recipe, and one took the other's place.
    assert!(names(&house).iter().all(|name| name.contains("uid1000")));
    house.close().await;
}

/// A Python of which just as much is there as the case says: `-m venv` makes a directory with itself in it.
fn python(lacks: &str) -> [String; 2] {
    let script = format!(
        r#"printf '%s\n' '#!/bin/sh' 'case " $* " in {lacks} *" -m pip "*) echo "pip of $0";; *" -m venv "*) for at in "$@"; do :; done; mkdir -p "$at/bin"; cat /usr/bin/python3 >"$at/bin/python"; chmod 755 "$at/bin/python";; esac' >/usr/bin/python3"#
    );
    [
        "touch /usr/bin/python3 && chmod 755 /usr/bin/python3".to_owned(),
        script,
    ]
}

#[tokio::test]
async fn an_account_comes_also_where_the_base_has_no_virtual_environments() {
    if !is_root() {
        return;
    }
    let state = tempfile::tempdir().unwrap();
    let house = house(state.path(), alone()).await;
    let no_venv = r#"*" -m venv "*) echo "No module named venv" >&2; exit 1;;"#;
    let no_ensurepip = r#"*" --without-pip "*) for at in "$@"; do :; done; mkdir -p "$at/bin"; cat /usr/bin/python3 >"$at/bin/python"; chmod 755 "$at/bin/python";; *" -m venv "*) for at in "$@"; do :; done; mkdir -p "$at/half"; exit 1;;"#;
    let no_pip = format!(r#"*" -m pip "*) exit 1;; {no_ensurepip}"#);
    let cases = [
        (
            None,
            vec!["| no virtual environment: the base image has no Python"],
            "empty",
        ),
        (
            Some(no_venv),
            vec![
                "| no virtual environment: python -m venv fails in the base image: No module named venv",
            ],
            "empty",
        ),
        (
            Some(no_ensurepip),
            vec![],
            "python\npip of /opt/venv/bin/python",
        ),
        (
            Some(&no_pip),
            vec![
                "| the virtual environment has no pip: the base image has neither pip nor ensurepip",
            ],
            "python",
        ),
        (Some(""), vec![], "python"),
    ];
    for (lacks, said, seen) in cases {
        let commands = lacks.map(python);
        let commands: Vec<&str> = commands.iter().flatten().map(String::as_str).collect();
        let recipe = Recipe {
            user: Some(1000),
            ..recipe(&commands)
        };
        let (image, told) = built(&house, &recipe).await;
        let told: Vec<&String> = told.iter().filter(|line| line.starts_with("| ")).collect();
        assert_eq!(told, said, "{lacks:?}");
        let spec = SandboxSpec {
            user: Some(1000),
            ..spec(image.unwrap())
        };
        let sandbox = house.rent(&spec).await;
        assert_eq!(sandbox.says("id -un; touch ~/mine").await, "agent");
        // It is the account's also where nothing is in it.
        let look = "touch /opt/venv/mine; rm /opt/venv/mine; cd /opt/venv/bin 2>/dev/null || { echo empty; exit; }; \
                    ls -d ../half 2>/dev/null; for name in *; do case $name in pip) pip;; *) echo $name;; esac; done";
        let mut lines: Vec<String> = sandbox
            .says(look)
            .await
            .lines()
            .map(str::to_owned)
            .collect();
        lines.sort_by_key(|line| line.starts_with("pip"));
        assert_eq!(lines.join("\n"), seen, "{lacks:?}");
        sandbox.end().await;
    }
    house.close().await;
}

#[tokio::test]
async fn a_workspace_that_cannot_be_given_to_the_user_of_runs_is_refused_by_name() {
    use sandboxd_server::backends::{HostWorkspace, Start};
    use sandboxd_server::id::SandboxId;
    if !is_root() {
        return;
    }
    let house = House::new().await;
    let place = tempfile::tempdir().unwrap();
    let path = place.path().join("workspace");
    std::fs::create_dir(&path).unwrap();
    let fixed = |flag: &str| {
        let done = std::process::Command::new("chattr")
            .arg(flag)
            .arg(&path)
            .status();
        done.is_ok_and(|status| status.success())
    };
    if !fixed("+i") {
        println!("needs chattr, and a file system that knows it");
        house.close().await;
        return;
    }
    let workspace = HostWorkspace {
        path: path.clone(),
        managed: true,
    };
    let spec = SandboxSpec {
        user: Some(1000),
        workspace: Some(workspace),
        ..host()
    };
    let id = SandboxId::generate();
    let refused = house.try_rent(&id, &spec, Start::Fresh).await.map(drop);
    assert!(fixed("-i"));
    let refused = refused.unwrap_err().to_string();
    assert!(
        refused.contains("changing the owner") && refused.contains("workspace"),
        "{refused}"
    );
    let rented = house.try_rent(&id, &spec, Start::Fresh).await.unwrap();
    assert_eq!(
        rented.says("id -u; touch mine; stat -c %u . mine").await,
        "1000\n1000\n1000"
    );
    rented.end().await;
    house.close().await;
}
