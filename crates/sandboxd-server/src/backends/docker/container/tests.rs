use super::*;
use crate::backends::{HostWorkspace, ImageDefaults, Network};
use crate::id::SessionId;
use std::collections::BTreeMap;

fn abilities() -> Abilities {
    Abilities {
        memory: true,
        swap: true,
        cpu_quota: true,
        cpu_shares: true,
        pids: true,
        seccomp: false,
        user_namespaces: false,
        buildkit: true,
        processors: 4,
        runtimes: BTreeMap::from([("runc".to_owned(), "runc".to_owned())]),
        default_runtime: "runc".to_owned(),
        is_podman: false,
        engine: "0".to_owned(),
    }
}

fn asked(value: u64, explicit: bool) -> Option<Asked<u64>> {
    Some(Asked { value, explicit })
}

pub(in super::super) fn spec() -> SandboxSpec {
    SandboxSpec {
        image: PreparedImage::Engine {
            id: "sha256:0f".to_owned(),
            name: "python:3.12-slim".to_owned(),
            defaults: ImageDefaults {
                env: BTreeMap::new(),
                user: Ok(None),
            },
        },
        env: BTreeMap::from([("LANG".to_owned(), "C.UTF-8".to_owned())]),
        work_dir: "/workspace".to_owned(),
        workspace: Some(HostWorkspace {
            path: "/srv/a/workspace".into(),
            managed: true,
        }),
        hostname: "sandbox".to_owned(),
        session: Some(SessionId::parse("a").unwrap()),
        memory_bytes: asked(512 << 20, true),
        memory_swap_bytes: None,
        cpus: Some(Asked {
            value: 1.5,
            explicit: true,
        }),
        cpu_shares: asked(512, true),
        pids: asked(256, false),
        disk_bytes: asked(10 << 30, false),
        disk_files: asked(1_000_000, false),
        tmpfs_bytes: Some(64 << 20),
        network: Network::None,
        oci_runtime: None,
        user: None,
        group: None,
        keep_layer: false,
        allow_unenforced: Vec::new(),
        unmet: Vec::new(),
    }
}

fn made(spec: &SandboxSpec, abilities: &Abilities) -> ContainerCreateBody {
    let here = Circumstances {
        filters: &Filters::Words,
        abilities,
        workspace: spec.workspace.as_ref().and_then(|w| w.path.to_str()),
        guest: Some("sandboxd-guest-v"),
        network: "none",
        resolvers: Some(&[]),
        labels: HashMap::from([(LABEL_SANDBOX.to_owned(), "0123456789abcdef".to_owned())]),
    };
    container(spec, &here).unwrap()
}

fn shown(body: &ContainerCreateBody) -> String {
    serde_json::to_string_pretty(body).unwrap()
}

#[test]
fn an_ordinary_sandbox_has_every_wall() {
    insta::assert_snapshot!(shown(&made(&spec(), &abilities())));
}

#[test]
fn one_of_its_own_user_that_is_kept_under_another_runtime() {
    let spec = SandboxSpec {
        user: Some(1000),
        group: Some(50),
        keep_layer: true,
        oci_runtime: Some("runsc".to_owned()),
        workspace: None,
        tmpfs_bytes: None,
        memory_swap_bytes: asked(1 << 30, true),
        ..spec()
    };
    insta::assert_snapshot!(shown(&made(&spec, &abilities())));
}

#[test]
fn one_that_the_guest_is_copied_into_has_nothing_of_the_volume() {
    let spec = SandboxSpec {
        workspace: None,
        ..spec()
    };
    let with = made(&spec, &abilities());
    let here = Circumstances {
        abilities: &abilities(),
        filters: &Filters::Words,
        workspace: None,
        guest: None,
        network: "none",
        resolvers: None,
        labels: HashMap::new(),
    };
    let without = container(&spec, &here).unwrap();
    let makes = |body: &ContainerCreateBody| {
        let words = body.cmd.iter().flatten();
        words.filter(|word| *word == "--make-work-dir=yes").count()
    };
    assert_eq!((makes(&with), makes(&without)), (1, 0));
    assert_eq!(with.entrypoint, Some(vec![GUEST_IN_VOLUME.to_owned()]));
    assert_eq!(without.entrypoint, Some(vec![GUEST.to_owned()]));
    assert_eq!(without.host_config.unwrap().mounts, Some(Vec::new()));
    let mounts = with.host_config.unwrap().mounts.unwrap();
    assert_eq!(mounts[0].read_only, Some(true));
    // What fills it is the only one that writes.
    let filler = filler("sha256:0f", "v", HashMap::new());
    let mounts = filler.host_config.unwrap().mounts.unwrap();
    assert_eq!(mounts[0].read_only, Some(false));
}

#[test]
fn a_filter_of_system_calls_is_there_where_the_engine_has_such() {
    let with = Abilities {
        seccomp: true,
        ..abilities()
    };
    let options = |abilities: &Abilities| {
        let host = made(&spec(), abilities).host_config.unwrap();
        host.security_opt.unwrap()
    };
    assert_eq!(options(&abilities()), ["no-new-privileges:true"]);
    let filter = &options(&with)[1];
    let profile = filter.strip_prefix("seccomp=").unwrap();
    let profile: serde_json::Value = serde_json::from_str(profile).unwrap();
    assert_eq!(profile["defaultAction"], "SCMP_ACT_ERRNO");
}

#[test]
fn a_users_own_directory_gets_no_file_that_has_more_rights_than_its_owner() {
    let mut own = spec();
    own.workspace.as_mut().unwrap().managed = false;
    let body = made(&own, &abilities());
    assert!(body.cmd.unwrap().contains(&"--plain-modes=yes".to_owned()));
    let host = body.host_config.unwrap();
    assert!(!host.cap_add.unwrap().contains(&"SETFCAP".to_owned()));
}

#[test]
fn limits_are_what_the_engines_host_has() {
    let of = |spec: &SandboxSpec, abilities: &Abilities| limits(spec, abilities).unwrap();
    let full = of(&spec(), &abilities());
    assert_eq!(full.memory, Some(512 << 20));
    assert_eq!(full.memory_swap, full.memory, "swap is pinned to it");
    assert_eq!(full.nano_cpus, Some(1_500_000_000));
    let small = Abilities {
        processors: 1,
        swap: false,
        ..abilities()
    };
    let fewer = of(&spec(), &small);
    assert_eq!(fewer.nano_cpus, Some(1_000_000_000));
    assert_eq!(fewer.memory_swap, None);
    assert_eq!(of(&spec(), &Abilities::default()), Limits::default());
    // The kernel has no more and no less weight, and runtimes refuse what is beyond.
    for (said, meant) in [(1, 2), (1024, 1024), (262_145, 262_144)] {
        let weighed = SandboxSpec {
            cpu_shares: asked(said, true),
            ..spec()
        };
        assert_eq!(of(&weighed, &abilities()).cpu_shares, Some(meant));
    }
    let too_much = SandboxSpec {
        pids: asked(u64::MAX, true),
        ..spec()
    };
    assert_eq!(
        limits(&too_much, &abilities()),
        Err(ContainerError::TooMuch(u64::MAX))
    );
}

#[test]
fn what_somebody_set_and_the_engines_host_lacks_is_named() {
    let lacks = |spec: &SandboxSpec, abilities: &Abilities| -> Vec<(Ceiling, bool)> {
        let missing = missing(spec, abilities);
        missing
            .iter()
            .map(|(ceiling, _, explicit)| (*ceiling, *explicit))
            .collect()
    };
    assert_eq!(lacks(&spec(), &abilities()), []);
    assert_eq!(
        lacks(&spec(), &Abilities::default()),
        [
            (Ceiling::Memory, true),
            (Ceiling::Cpus, true),
            (Ceiling::CpuShares, true),
            (Ceiling::Pids, false),
        ]
    );
    let swap = SandboxSpec {
        memory_swap_bytes: asked(1 << 30, true),
        memory_bytes: None,
        ..spec()
    };
    assert_eq!(lacks(&swap, &abilities()), [(Ceiling::Memory, true)]);
}

#[test]
fn what_no_container_can_be_is_refused() {
    let here = Circumstances {
        abilities: &abilities(),
        filters: &Filters::Words,
        workspace: None,
        guest: None,
        network: "none",
        resolvers: None,
        labels: HashMap::new(),
    };
    let refused = |spec: SandboxSpec| container(&spec, &here).unwrap_err();
    for bad in ["/", "workspace", "/a/../b", "/proc/x", "/a\0"] {
        let work_dir = bad.to_owned();
        let spec = SandboxSpec {
            work_dir: work_dir.clone(),
            ..spec()
        };
        assert_eq!(refused(spec), InsideError::WorkDir(work_dir).into());
    }
    let mut odd = spec();
    odd.env.insert("A=B".to_owned(), String::new());
    assert_eq!(refused(odd), InsideError::Variable("A=B".to_owned()).into());
    let other = SandboxSpec {
        image: PreparedImage::Host,
        ..spec()
    };
    assert_eq!(refused(other), ContainerError::Image);
}

#[test]
fn a_ceiling_that_a_container_has_otherwise_is_named() {
    let wanted = limits(&spec(), &abilities()).unwrap();
    let update = wanted.update();
    let mut has = HostConfig {
        memory: update.memory,
        memory_swap: update.memory_swap,
        nano_cpus: update.nano_cpus,
        cpu_shares: update.cpu_shares,
        pids_limit: update.pids_limit,
        ..HostConfig::default()
    };
    assert_eq!(wanted.other_than(&has), None);
    has.pids_limit = Some(7);
    let words = wanted.other_than(&has).unwrap();
    assert!(words.contains("processes is 7"), "{words}");
    has.pids_limit = None;
    assert!(wanted.other_than(&has).is_some());
}
