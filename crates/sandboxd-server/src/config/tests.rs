mod allowlist;

use super::*;
use crate::backends::Ceiling;
use crate::runtimes::Source;
use proptest::prelude::*;
use std::path::Path;

fn layers(env: &[(&str, &str)], file: Option<&Path>) -> Layers {
    let home = [("HOME", "/home/u")];
    Layers {
        flags: Flags::default(),
        env: home
            .iter()
            .chain(env)
            .map(|&(name, value)| (name.into(), value.into()))
            .collect(),
        file: file.map(Path::to_owned),
        root: true,
    }
}

fn read(env: &[(&str, &str)]) -> Result<Config, String> {
    let read = layers(env, None).read();
    read.map(|(config, _)| config).map_err(one_line)
}

fn read_file(text: &str) -> Result<Config, String> {
    let dir = tempfile::tempdir().expect("a directory");
    let file = dir.path().join("sandboxd.toml");
    std::fs::write(&file, text).expect("written");
    let read = layers(&[], Some(&file)).read();
    read.map(|(config, _)| config).map_err(one_line)
}

fn one_line(error: ConfigError) -> String {
    let line = error.to_string();
    assert!(!line.contains('\n'), "one line: {line}");
    line
}

#[test]
fn sleep_without_need_wants_a_place_for_files_and_a_layer_is_kept_by_either_name() {
    let alone = read(&[("SANDBOXD_HIBERNATE_AFTER", "60")]).unwrap_err();
    assert!(
        alone.to_string().contains("SANDBOXD_HIBERNATE_AFTER"),
        "{alone}"
    );
    assert!(alone.to_string().contains("workspace_root"), "{alone}");
    let root = ("SANDBOXD_WORKSPACE_ROOT", "/srv/w");
    let both = read(&[("SANDBOXD_HIBERNATE_AFTER", "60"), root]).unwrap();
    assert_eq!(both.service.hibernate_after, Some(60));
    assert_eq!(read(&[]).unwrap().service.hibernate_after, None);

    for name in ["SANDBOXD_KEEP_LAYER", "SANDBOXD_PERSIST_CONTAINERS"] {
        assert!(read(&[(name, "1")]).unwrap().service.persist_containers);
    }
    let twice = [
        ("SANDBOXD_KEEP_LAYER", "1"),
        ("SANDBOXD_PERSIST_CONTAINERS", "0"),
    ];
    let twice = read(&twice).unwrap_err().to_string();
    assert!(twice.contains("says the same as"), "{twice}");

    assert_eq!(read(&[]).unwrap().drain_timeout, 3);
    assert_eq!(
        read(&[("SANDBOXD_DRAIN_TIMEOUT", "3600")])
            .unwrap()
            .drain_timeout,
        3_600
    );
    let long = read(&[("SANDBOXD_DRAIN_TIMEOUT", "3601")]).unwrap_err();
    assert!(
        long.to_string().contains("SANDBOXD_DRAIN_TIMEOUT"),
        "{long}"
    );
}

#[test]
fn nothing_configured_is_a_loopback_service_with_a_made_token() {
    let config = read(&[]).expect("defaults");
    assert_eq!(config.listen.to_string(), "127.0.0.1:8080");
    assert_eq!(config.token, TokenSource::Made);
    assert_eq!(config.state_dir, Path::new("/var/lib/sandboxd"));
    let service = &config.service;
    assert_eq!(service.default_runtime, "host");
    let aliases: Vec<&String> = service.runtimes.keys().collect();
    assert_eq!(aliases, ["host", "node", "python"]);
    assert_eq!(service.runtimes["host"].source, Source::Host);
    assert_eq!(
        service.runtimes["python"].source,
        Source::Image("python:3.12-slim".to_owned())
    );
    assert_eq!(service.max_sessions, Some(20));
    assert_eq!(service.ceilings.values.memory_bytes, Some(1 << 30));
    assert_eq!(
        service.ceilings.values.network_mode.as_deref(),
        Some("none")
    );
    assert!(!service.ceilings.memory_explicit);
    assert_eq!(service.tmpfs_bytes, Some(64 << 20));
    assert_eq!(service.workspace_root, None);
    assert_eq!(service.execute_timeout, 300);
    assert_eq!(service.max_read_bytes, 8_388_608);
}

#[test]
fn state_is_kept_at_home_where_the_daemon_is_not_root() {
    let read = |env: &[(&str, &str)]| {
        let layers = Layers {
            root: false,
            ..layers(env, None)
        };
        layers.read().map(|(config, _)| config.state_dir)
    };
    assert_eq!(read(&[]), Ok("/home/u/.local/state/sandboxd".into()));
    assert_eq!(read(&[("XDG_STATE_HOME", "/s")]), Ok("/s/sandboxd".into()));
    assert_eq!(read(&[("SANDBOXD_STATE_DIR", "/x")]), Ok("/x".into()));
    assert!(read(&[("HOME", "")]).is_err());
}

#[test]
fn flags_win_over_variables_over_the_file() {
    let dir = tempfile::tempdir().expect("a directory");
    let file = dir.path().join("c.toml");
    std::fs::write(
        &file,
        "max_sessions = 1\ncpus = 1\nport = 1\npids_limit = 7",
    )
    .expect("written");
    let mut layers = layers(
        &[("SANDBOXD_MAX_SESSIONS", "2"), ("SANDBOXD_CPUS", "2.5")],
        Some(&file),
    );
    layers.flags.settings = vec![("max_sessions".to_owned(), "3".to_owned())];
    let (config, _) = layers.read().expect("read");
    assert_eq!(config.service.max_sessions, Some(3));
    assert_eq!(config.service.ceilings.values.cpus, Some(2.5));
    assert_eq!(config.service.ceilings.values.pids, Some(7));
    assert!(config.service.ceilings.pids_explicit);
    assert_eq!(config.listen.port(), 1);
}

#[test]
fn a_listen_flag_beats_a_port_variable() {
    let mut layers = layers(&[("SANDBOXD_PORT", "9"), ("SANDBOXD_HOST", "::1")], None);
    layers.flags.listen = Some("127.0.0.2:70".parse().expect("an address"));
    let (config, _) = layers.read().expect("read");
    assert_eq!(config.listen.to_string(), "127.0.0.2:70");
}

#[test]
fn kinds_treat_an_empty_text_differently() {
    // Optional: empty switches off.
    let config = read(&[
        ("SANDBOXD_MAX_SESSIONS", ""),
        ("SANDBOXD_MEM_LIMIT", ""),
        ("SANDBOXD_TMPFS_SIZE", " "),
        ("SANDBOXD_NETWORK_MODE", ""),
    ])
    .expect("read");
    assert_eq!(config.service.max_sessions, None);
    assert_eq!(config.service.ceilings.values.memory_bytes, None);
    assert!(!config.service.ceilings.memory_explicit);
    assert_eq!(config.service.texts.tmpfs_size, None);
    assert_eq!(config.service.ceilings.values.network_mode, None);
    // A value and a flag: empty is an error.
    for name in [
        "SANDBOXD_IDLE_TIMEOUT",
        "SANDBOXD_PREWARM",
        "SANDBOXD_WORK_DIR",
    ] {
        let error = read(&[(name, "")]).expect_err(name);
        assert!(error.starts_with(name), "{error}");
    }
}

#[test]
fn a_bad_value_is_named_with_what_was_found() {
    let table = [
        ("SANDBOXD_MAX_SESSIONS", "abc"),
        ("SANDBOXD_MAX_SESSIONS", "-5"),
        ("SANDBOXD_MAX_SESSIONS", "1__0"),
        ("SANDBOXD_MAX_SESSIONS", "1.5"),
        ("SANDBOXD_EXECUTE_TIMEOUT", "0"),
        ("SANDBOXD_CPUS", "nan"),
        ("SANDBOXD_CPUS", "inf"),
        ("SANDBOXD_CPUS", "0"),
        ("SANDBOXD_MEM_LIMIT", "lots"),
        ("SANDBOXD_MEM_LIMIT", "0"),
        ("SANDBOXD_MEM_LIMIT", "99999999999999999t"),
        ("SANDBOXD_MEMSWAP_LIMIT", "-1"),
        ("SANDBOXD_PREWARM", "maybe"),
        ("SANDBOXD_WORK_DIR", "workspace"),
        ("SANDBOXD_WORK_DIR", "/"),
        ("SANDBOXD_WORK_DIR", "/a/../b"),
        ("SANDBOXD_PORT", "65536"),
        ("SANDBOXD_HOST", "example.org"),
        ("SANDBOXD_LISTEN", "127.0.0.1"),
        ("SANDBOXD_NETWORK_MODE", "host"),
        ("SANDBOXD_NETWORK_MODE", "container:x"),
        ("SANDBOXD_NETWORK_ALLOW", "10.0.0.1/8"),
        ("SANDBOXD_NETWORK_ALLOW", "10.0.0.0/8,"),
        ("SANDBOXD_NETWORK_ALLOW", "intranet.example"),
        ("SANDBOXD_NETWORK_ALLOW", "null"),
        ("SANDBOXD_NETWORK_ALLOW", "127.0.0.1:80"),
        ("SANDBOXD_NETWORK_DENY", "fd00::/8"),
        ("SANDBOXD_NETWORK_DENY", "8.8.8.8:53"),
        ("SANDBOXD_NETWORK_DNS", "one.example"),
        ("SANDBOXD_NETWORK_DNS", "1.1.1.1,8.8.8.8,9.9.9.9,8.8.4.4"),
        ("SANDBOXD_SANDBOX_UID", "4294967296"),
        ("SANDBOXD_DEFAULT_RUNTIME", "nope"),
        ("SANDBOXD_ALLOW_UNENFORCED", "memory,everything"),
        ("SANDBOXD_BACKEND", "magic"),
    ];
    for (name, raw) in table {
        let error = read(&[(name, raw)]).expect_err(name);
        assert!(error.starts_with(name), "{error}");
        assert!(error.contains(raw), "{error}");
    }
}

#[test]
fn a_body_may_be_as_large_as_memory_bears() {
    let bytes = |text| read(&[("SANDBOXD_MAX_BODY_BYTES", text)]);
    assert_eq!(bytes("65536").unwrap().service.max_body_bytes, 65_536);
    assert_eq!(read(&[]).unwrap().service.max_body_bytes, 64 << 20);
    for wrong in ["0", "65535", "1073741825", ""] {
        let error = bytes(wrong).unwrap_err();
        assert!(error.starts_with("SANDBOXD_MAX_BODY_BYTES"), "{error}");
    }
}

#[test]
fn a_pool_is_off_and_has_a_number_for_all_or_for_one() {
    let pools = |env: &[(&str, &str)]| -> Result<Vec<(u64, Option<u64>)>, String> {
        let service = read(env)?.service;
        let each = service.runtimes.values();
        Ok(each.map(|own| (service.pool, own.pool)).collect())
    };
    assert!(pools(&[]).unwrap().iter().all(|pool| *pool == (0, None)));
    let both = [
        ("SANDBOXD_POOL", "2"),
        ("SANDBOXD_RUNTIMES", "a=host,b=host;pool=0"),
    ];
    assert_eq!(pools(&both).unwrap(), [(2, None), (2, Some(0))]);
    for env in [
        [("SANDBOXD_POOL", "65")].as_slice(),
        &[("SANDBOXD_POOL", "-1")],
        &[("SANDBOXD_POOL", "")],
        &[("SANDBOXD_RUNTIMES", "a=host;pool=many")],
    ] {
        let refused = pools(env).unwrap_err();
        assert!(refused.contains("whole number"), "{refused}");
    }
    let file = read_file("pool = 3\n[runtimes.a]\nimage = \"host\"\npool = 1\n").unwrap();
    assert_eq!(
        (file.service.pool, file.service.runtimes["a"].pool),
        (3, Some(1))
    );
}

#[test]
fn settings_that_contradict_each_other_are_refused() {
    let table: &[(&[(&str, &str)], &str)] = &[
        (
            &[("SANDBOXD_EVICT_IDLE_AFTER", "0")],
            "SANDBOXD_EVICT_IDLE_AFTER",
        ),
        (
            &[("SANDBOXD_MAX_OPEN_SESSIONS", "5")],
            "SANDBOXD_MAX_OPEN_SESSIONS",
        ),
        (
            &[("SANDBOXD_MEMSWAP_LIMIT", "1m")],
            "SANDBOXD_MEMSWAP_LIMIT",
        ),
        (
            &[("SANDBOXD_RUNTIMES", "a=host;mem_limit=2m;memswap_limit=1m")],
            "memswap_limit",
        ),
        (
            &[("SANDBOXD_TOKEN", "x"), ("SANDBOXD_TOKEN_FILE", "/x")],
            "SANDBOXD_TOKEN",
        ),
    ];
    for (env, name) in table {
        let error = read(env).expect_err(name);
        assert!(error.starts_with(name), "{error}");
    }
    assert!(
        read(&[
            ("SANDBOXD_EVICT_IDLE_AFTER", "0"),
            ("SANDBOXD_WORKSPACE_ROOT", "/w")
        ])
        .is_ok()
    );
}

#[test]
fn a_token_is_given_made_or_the_start_is_refused() {
    let token = |env: &[(&str, &str)]| read(env).map(|config| config.token);
    assert_eq!(
        token(&[("SANDBOXD_TOKEN", " abc ")]),
        Ok(TokenSource::Given("abc".to_owned()))
    );
    for empty in ["", "  "] {
        let error = token(&[("SANDBOXD_TOKEN", empty)]).expect_err("empty");
        assert_eq!(error, "SANDBOXD_TOKEN: the token is set but empty");
    }
    let error = token(&[("SANDBOXD_TOKEN", "geheim\u{e9}")]).expect_err("not ASCII");
    assert!(!error.contains("geheim"), "a token is never shown: {error}");
    let error = token(&[("SANDBOXD_HOST", "0.0.0.0")]).expect_err("public");
    assert!(
        error.starts_with("token: needed to listen on 0.0.0.0:8080"),
        "{error}"
    );
    assert!(token(&[("SANDBOXD_HOST", "0.0.0.0"), ("SANDBOXD_TOKEN", "x")]).is_ok());

    let dir = tempfile::tempdir().expect("a directory");
    let file = dir.path().join("token");
    let name = file.to_str().expect("UTF-8");
    std::fs::write(&file, "from-file\n").expect("written");
    assert_eq!(
        token(&[("SANDBOXD_TOKEN_FILE", name)]),
        Ok(TokenSource::Given("from-file".to_owned()))
    );
    std::fs::write(&file, "\n").expect("written");
    assert!(token(&[("SANDBOXD_TOKEN_FILE", name)]).is_err());
    assert!(token(&[("SANDBOXD_TOKEN_FILE", "/no/such/file")]).is_err());
}

#[test]
fn unknown_variables_are_warned_about_and_foreign_ones_are_not() {
    let layers = layers(
        &[
            ("SANDBOXD_NOPE", "1"),
            ("SANDBOXD_GRPC_ADDR", "x"),
            ("SANDBOXD_REST_ADDR", "x"),
            ("SANDBOXD_URL", "x"),
            ("SANDBOXD_MAX_WORKERS", "32"),
        ],
        None,
    );
    let (_, warnings) = layers.read().expect("read");
    let warnings: Vec<String> = warnings.iter().map(ToString::to_string).collect();
    assert_eq!(
        warnings,
        [
            "SANDBOXD_NOPE is not a setting; it has no effect",
            "SANDBOXD_MAX_WORKERS has no effect: blocking work needs no pool here",
        ]
    );
}

#[test]
fn what_sandboxes_may_reach_is_read_and_an_empty_list_opens_nothing() {
    let nothing = read(&[]).expect("defaults").egress;
    assert_eq!(nothing, crate::egress::Egress::default());
    for empty in ["", " "] {
        let read = read(&[("SANDBOXD_NETWORK_ALLOW", empty)]).expect("read");
        assert_eq!(read.egress, nothing, "{empty:?}");
    }
    assert_eq!(
        read_file("network_allow = []").expect("read").egress,
        nothing
    );
    let config = read_file(
        "network_allow = [\"10.1.0.0/16\", \"10.2.3.4:5432\"]\nnetwork_deny = \"8.8.8.0/24\"\nnetwork_dns = [\"9.9.9.9\"]",
    )
    .expect("read");
    let egress = &config.egress;
    let allowed: Vec<String> = egress.allow.iter().map(ToString::to_string).collect();
    assert_eq!(allowed, ["10.1.0.0/16", "10.2.3.4:5432"]);
    assert!(egress.denied().contains(&"8.8.8.0/24".parse().unwrap()));
    let servers = crate::egress::Dns::Servers(vec!["9.9.9.9".parse().unwrap()]);
    assert_eq!(egress.dns, servers);
    assert_eq!(
        read_file(&print_config(&config)).expect("read").egress,
        *egress
    );
    let off = read(&[("SANDBOXD_NETWORK_DNS", "")]).expect("read");
    assert_eq!(off.egress.dns, crate::egress::Dns::Servers(Vec::new()));
    assert_eq!(
        read_file(&print_config(&off)).expect("read").egress,
        off.egress
    );
    // What is no list of networks, or no setting at all, stops the start.
    for bad in [
        "network_allow = 10",
        "network_allow = [10]",
        "network_allow = null",
        "network_allow = { any = true }",
        "network_allowed = []",
        "[network]\nallow = []",
    ] {
        assert!(read_file(bad).is_err(), "{bad}");
    }
}

#[test]
fn a_file_says_the_same_in_toml_and_refuses_keys_it_does_not_know() {
    let config = read_file(
        r#"
        host = "::1"
        token = "t"
        max_sessions = "off"
        mem_limit = "512m"
        cpus = 1
        native_files = false
        allow_unenforced = ["memory", "pids"]
        [images]
        "python:3.12-slim" = "/srv/py"
        [runtimes]
        zeta = "python:3.12-slim"
        [runtimes.alpha]
        image = "/srv/rootfs"
        mem_limit = "2g"
        "#,
    )
    .expect("read");
    assert_eq!(config.listen.to_string(), "[::1]:8080");
    assert_eq!(config.service.max_sessions, None);
    assert_eq!(
        config.service.default_runtime, "zeta",
        "the first in the file"
    );
    let zeta = &config.service.runtimes["zeta"];
    assert_eq!(zeta.source, Source::Directory("/srv/py".into()));
    assert_eq!(zeta.label, "python:3.12-slim");
    assert_eq!(
        config.service.runtimes["alpha"].ceilings.memory_bytes,
        Some(2 << 30)
    );
    assert_eq!(
        config.service.allow_unenforced,
        [Ceiling::Memory, Ceiling::Pids]
    );
    assert!(!config.service.runtimes.contains_key("host"));

    let table = [
        ("max_session = 1", "unknown key \"max_session\""),
        ("max_sessions = [1]", "max_sessions in "),
        (
            "[runtimes.x]\nimage = \"host\"\nmemory = 1",
            "unknown field \"memory\"",
        ),
        ("max_sessions = ", "line 1: "),
        ("a = 1\nb = [", "line 2: "),
        ("[images]\nx = \"relative\"", "image \"x\""),
        ("[runtimes]", "at least one runtime"),
    ];
    for (text, expected) in table {
        let error = read_file(text).expect_err(text);
        assert!(error.contains(expected), "{error}");
    }
    let missing = layers(&[], Some(Path::new("/no/such.toml"))).read();
    assert!(missing.is_err());
}

#[test]
fn the_printed_configuration_reads_back_as_itself() {
    let (config, _) = layers(
        &[
            ("SANDBOXD_TOKEN", "secret-token"),
            ("SANDBOXD_RUNTIMES", "@suggested"),
            ("SANDBOXD_IMAGES", "python:3.12-slim=/srv/py.tar"),
            ("SANDBOXD_MAX_SESSIONS", ""),
            ("SANDBOXD_WORKSPACE_ROOT", "/w"),
        ],
        None,
    )
    .read()
    .expect("read");
    let printed = print_config(&config);
    assert!(!printed.contains("secret-token"));
    let again = read_file(&printed).expect("reads back");
    assert_eq!(again.service.runtimes, config.service.runtimes);
    assert_eq!(
        again.service.default_runtime,
        config.service.default_runtime
    );
    assert_eq!(
        print_config(&again).lines().skip(1).collect::<Vec<_>>(),
        printed.lines().skip(1).collect::<Vec<_>>()
    );
}

#[test]
fn a_policy_change_is_made_wholly_or_not_at_all() {
    let service = read(&[]).expect("defaults").service;
    let changed = service
        .changed(PolicyChange {
            max_sessions: Some(None),
            mem_limit: Some(Some("512m".to_owned())),
            runtimes: [(
                "python".to_owned(),
                RuntimeChange {
                    cpus: Some(Some(1.5)),
                    ..RuntimeChange::default()
                },
            )]
            .into(),
            ..PolicyChange::default()
        })
        .expect("changed");
    assert_eq!(changed.max_sessions, None);
    assert_eq!(changed.ceilings.values.memory_bytes, Some(512 << 20));
    assert!(changed.ceilings.memory_explicit);
    assert_eq!(changed.runtimes["python"].ceilings.cpus, Some(1.5));

    let refused = |change| service.changed(change).expect_err("refused").to_string();
    let unknown = refused(PolicyChange {
        max_sessions: Some(Some(1)),
        runtimes: [("zzz".to_owned(), RuntimeChange::default())].into(),
        ..PolicyChange::default()
    });
    assert!(unknown.starts_with("Unknown runtime 'zzz'"), "{unknown}");
    let default = refused(PolicyChange {
        default_runtime: Some(None),
        ..PolicyChange::default()
    });
    assert!(default.starts_with("Unknown runtime 'None'"), "{default}");
    let evict = refused(PolicyChange {
        evict_idle_after: Some(Some(1)),
        ..PolicyChange::default()
    });
    assert!(evict.contains("workspace_root"), "{evict}");
    refused(PolicyChange {
        mem_limit: Some(Some("lots".to_owned())),
        ..PolicyChange::default()
    });
}

#[test]
fn sizes_are_dockers() {
    let table = [
        ("1", 1),
        ("1b", 1),
        ("1k", 1 << 10),
        ("1KB", 1 << 10),
        (" 512m ", 512 << 20),
        ("1.5g", 3 << 29),
        ("1g", 1 << 30),
        ("2T", 2 << 40),
    ];
    for (text, bytes) in table {
        assert_eq!(bytes_of_size(text), Some(bytes), "{text}");
    }
    for bad in [
        "",
        "g",
        "-1",
        "1x",
        "1 g",
        "1gg",
        "0",
        "0.0000000001g",
        "9999999999g",
        "nan",
        "1e3",
        "1gib",
    ] {
        assert_eq!(bytes_of_size(bad), None, "{bad}");
    }
}

proptest! {
    #[test]
    fn parsers_never_panic(text in any::<String>()) {
        let _ = parse::whole(&text);
        let _ = parse::decimal(&text);
        let _ = parse::size(&text);
        let _ = parse::flag(&text);
        let _ = read(&[("SANDBOXD_RUNTIMES", &text.replace('\0', ""))]);
        let _ = read(&[("SANDBOXD_IMAGES", &text.replace('\0', ""))]);
        let _ = read_file(&text);
    }

    #[test]
    fn whole_numbers_survive_their_spelling(number in 0..i64::MAX, blanks in " {0,3}") {
        let text = format!("{blanks}{number}{blanks}");
        prop_assert_eq!(parse::whole(&text), Ok(number.unsigned_abs()));
    }

    #[test]
    fn sizes_scale(number in 1_u64..1 << 20, unit in 0_usize..4) {
        let text = format!("{number}{}", ["k", "m", "g", "t"][unit]);
        let shift = 10 * (u32::try_from(unit).expect("small") + 1);
        let bytes = u128::from(number) << shift;
        let expected = i64::try_from(bytes).ok().map(i64::unsigned_abs);
        prop_assert_eq!(bytes_of_size(&text), expected);
    }

    #[test]
    fn compact_and_json_agree(
        entries in proptest::collection::vec(("[a-z]{1,6}", "[a-z]{1,6}(:[0-9]{1,3})?", 1_u32..64), 1..5)
    ) {
        let compact: Vec<String> = entries.iter().map(|(a, i, c)| format!("{a}={i};cpus={c}")).collect();
        let json: Vec<String> = entries
            .iter()
            .map(|(a, i, c)| format!(r#""{a}": {{"image": "{i}", "cpus": {c}}}"#))
            .collect();
        let compact = read(&[("SANDBOXD_RUNTIMES", &compact.join(","))]).expect("compact").service;
        let json = read(&[("SANDBOXD_RUNTIMES", &format!("{{{}}}", json.join(",")))]).expect("JSON").service;
        prop_assert_eq!(compact.runtimes, json.runtimes);
        prop_assert_eq!(compact.default_runtime, json.default_runtime);
    }
}

/// A row of the document: its first two columns.
fn row(line: &str) -> Option<(&str, &str)> {
    let mut cells = line.strip_prefix("| `")?.split('|').map(str::trim);
    Some((cells.next()?.trim_end_matches('`'), cells.next()?))
}

#[test]
fn the_document_has_the_defaults_that_are_in_force() {
    let (config, _) = layers(&[], None).read().expect("read");
    let printed: toml::Table = print_config(&config).parse().expect("TOML");
    let document = std::path::Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../docs/configuration.md")
        .canonicalize()
        .and_then(std::fs::read_to_string)
        .expect("the document is there");
    let mut compared = 0;
    for (name, default) in document.lines().filter_map(row) {
        let Some(value) = printed.get(name) else {
            continue;
        };
        let in_force = match value {
            // A list is said in words too.
            toml::Value::Table(_) => continue,
            toml::Value::String(text) => text.clone(),
            other => other.to_string(),
        };
        // What is said in words is not a value.
        let said = match default.strip_prefix('`') {
            Some(quoted) => quoted.split('`').next().unwrap_or_default(),
            None if default == "off" => "off",
            None => continue,
        };
        assert_eq!(said, in_force, "{name}");
        compared += 1;
    }
    assert!(compared >= 25, "only {compared} rows were compared");
}
