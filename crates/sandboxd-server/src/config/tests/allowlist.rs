//! What may be rented, and how it is built.

use super::*;

#[test]
fn a_catalogue_is_what_the_allowlist_begins_with() {
    let aliases = |service: &Service| service.runtimes.keys().cloned().collect::<Vec<_>>();
    let service = read_file("catalogue = \"default\"").expect("alone").service;
    assert_eq!(aliases(&service), ["coding", "node", "python"]);
    assert_eq!(service.default_runtime, "coding");
    assert!(service.runtimes_given);

    let text = "catalogue = \"default\"\n[runtimes.python]\nimage = \"host\"\n[runtimes.mine]\nimage = \"host\"";
    let service = read_file(text).expect("with more on top").service;
    assert_eq!(aliases(&service), ["coding", "mine", "node", "python"]);
    assert_eq!(service.runtimes["python"].source, Source::Host);
    assert_eq!(service.default_runtime, "coding");

    let of_both = [
        ("SANDBOXD_CATALOGUE", "suggested"),
        ("SANDBOXD_RUNTIMES", "x=host"),
    ];
    let service = read(&of_both).expect("from variables").service;
    assert!(service.runtimes.contains_key("polyglot") && service.runtimes.contains_key("x"));
    let service = read(&[("SANDBOXD_CATALOGUE", "")]).expect("off").service;
    assert!(service.runtimes.contains_key("host") && !service.runtimes_given);
    let error = read(&[("SANDBOXD_CATALOGUE", "all")]).expect_err("unknown");
    assert!(
        error.contains("SANDBOXD_CATALOGUE") && error.contains("default or suggested"),
        "{error}"
    );
}

#[test]
fn both_grammars_of_the_allowlist() {
    let list = |text: &str| read(&[("SANDBOXD_RUNTIMES", text)]).map(|config| config.service);
    let compact = list(
        " py = python:3.12-slim ; mem_limit = 2g ; cpus=1_0 ;; , ,b=@coding;network_mode=bridge,",
    )
    .expect("compact");
    assert_eq!(compact.default_runtime, "py");
    let py = &compact.runtimes["py"];
    assert_eq!(py.ceilings.memory_bytes, Some(2 << 30));
    assert_eq!(py.texts.mem_limit.as_deref(), Some("2g"));
    assert_eq!(py.ceilings.cpus, Some(10.0));
    assert_eq!(py.description, "python:3.12-slim");
    assert!(matches!(compact.runtimes["b"].source, Source::Recipe(_)));

    let json = list(
        r#"{"z": "node:20-slim", "a": {"runtime": "python-web", "description": "web", "pids_limit": 9},
            "r": {"runtime": {"name": "mine", "base_image": "debian:12", "packages": ["git"], "package_manager": "apt",
                  "env_vars": {"A": "1"}, "run_as_uid": 1000, "work_dir": "/x", "cache_image": false}},
            "i": {"runtime": {"name": "mine", "image": "host"}}}"#,
    )
    .expect("JSON");
    assert_eq!(json.default_runtime, "z", "the first in the text");
    assert_eq!(json.runtimes["a"].description, "web");
    assert_eq!(json.runtimes["r"].user, Some(1000));
    assert_eq!(json.runtimes["r"].env["A"], "1");
    assert_eq!(json.runtimes["r"].description, "built from debian:12");
    assert_eq!(json.runtimes["i"].source, Source::Host);
    assert_eq!(
        list("a=host,a=node:20-slim").expect("later wins").runtimes["a"].label,
        "node:20-slim"
    );

    for bad in [
        "",
        "  ",
        ",",
        "py",
        "=x",
        "py=",
        "py=@",
        "py=@no-such",
        "py=host;frobs=1",
        "py=host;cpus",
        "py=host;cpus=x",
        "py=host;runtime=coding",
        "py=host;network_mode=host",
        "[\"a\"]",
        "{}",
        "{",
        "{\"a\": 1}",
        "{\"a\": \"\"}",
        "{\"a\": {}}",
        "{\"a\": {\"image\": \"x\", \"runtime\": \"go\"}}",
        "{\"a\": {\"image\": \"x\", \"y\": 1}}",
        "{\"a\": {\"runtime\": {\"image\": \"x\"}}}",
        "{\"a\": {\"runtime\": {\"name\": \"x\"}}}",
        "@nope",
        "{\"\": \"host\"}",
    ] {
        let error = list(bad).expect_err(bad);
        assert!(error.starts_with("SANDBOXD_RUNTIMES: "), "{bad}: {error}");
    }
}

#[test]
fn a_recipe_that_could_say_more_than_it_names_is_refused_at_the_start_by_name() {
    let refusal = |fields: &str| {
        let text = format!(
            r#"{{"x": {{"runtime": {{"name": "x", "base_image": "python:3.12-slim", {fields}}}}}}}"#
        );
        read(&[("SANDBOXD_RUNTIMES", &text)])
            .err()
            .map(|error| error.to_string())
    };
    for (fields, named) in [
        (r#""packages": ["foo; rm -rf /"]"#, "foo; rm -rf /"),
        (r#""setup_commands": ["a\nRUN b"]"#, "setup_commands"),
        (r#""env_vars": {"A": "x\ny"}"#, "env_vars"),
        (r#""env_vars": {"A B": "x"}"#, "A B"),
        (r#""work_dir": "/w;reboot""#, "/w;reboot"),
        (r#""package_manager": "yum""#, "yum"),
        (r#""cache_image": "maybe""#, "cache_image"),
    ] {
        let refused = refusal(fields).expect(fields);
        assert!(
            refused.contains(named) && refused.contains("\"x\""),
            "{refused}"
        );
    }
    assert_eq!(
        refusal(r#""packages": ["numpy>=1", "httpx[http2]"], "package_manager": "go""#),
        None
    );
}

#[test]
fn the_uid_of_runs_reaches_what_is_built() {
    let uid = |own: &str, service: &str| {
        let text = format!(r#"{{"x": {{"runtime": {{"name": "x", "base_image": "b"{own}}}}}}}"#);
        let config = read(&[
            ("SANDBOXD_RUNTIMES", &text),
            ("SANDBOXD_SANDBOX_UID", service),
        ]);
        match &config.expect("read").service.runtimes["x"].source {
            Source::Recipe(recipe) => recipe.user,
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(uid("", ""), None);
    assert_eq!(uid("", "1000"), Some(1000));
    assert_eq!(uid(r#", "run_as_uid": 77"#, "1000"), Some(77));
    assert_eq!(uid(r#", "run_as_uid": 0"#, "1000"), None);
}

#[test]
fn builds_are_allowed_what_a_table_says_and_their_variables_are_never_shown() {
    let text = "[build]\nnetwork = \"none\"\nmemory = \"2g\"\ntimeout = 60\nca_file = \"/etc/ca.pem\"\n\
                env = { PIP_INDEX_URL = \"https://user:hush@index.example\", B = \"a,b\" }\n";
    let config = read_file(text).expect("read");
    let builds = &config.builds;
    assert_eq!(builds.network, crate::backends::Network::None);
    assert_eq!(
        builds
            .memory_bytes
            .map(|asked| (asked.value, asked.explicit)),
        Some((2 << 30, true))
    );
    assert_eq!(builds.disk_bytes.map(|asked| asked.explicit), Some(false));
    assert_eq!((builds.seconds_max, builds.env["B"].as_str()), (60, "a,b"));
    let printed = print_config(&config);
    assert!(
        printed.contains("PIP_INDEX_URL") && !printed.contains("hush"),
        "{printed}"
    );
    assert!(!format!("{config:?}").contains("hush"));
    let env = read(&[
        ("SANDBOXD_BUILD_ENV", "A=1, B=2"),
        ("SANDBOXD_BUILD_MEMORY", ""),
    ])
    .expect("read");
    assert_eq!((env.builds.env.len(), env.builds.memory_bytes), (2, None));
    for (text, named) in [
        ("build = 5", "build_"),
        ("[build]\nspeed = 1", "build_speed"),
        ("[build]\nnetwork = \"host\"", "build_network"),
        ("[build]\ntimeout = 100000", "build_timeout"),
        ("[build]\nenv = { \"A B\" = \"hush\" }", "A B"),
        ("[build]\nenv = { A = 5 }", "build_env"),
    ] {
        let refused = read_file(text).expect_err(text).to_string();
        assert!(
            refused.contains(named) && !refused.contains("hush"),
            "{refused}"
        );
    }
}
