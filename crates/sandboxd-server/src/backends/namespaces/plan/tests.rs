//! Golden files: every wall of every kind of sandbox, as text that a reviewer can read.

use super::*;
use crate::backends::{Asked, HostWorkspace};
use sandboxd_jail::plan::View;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

fn spec(image: PreparedImage) -> SandboxSpec {
    SandboxSpec {
        image,
        env: BTreeMap::from([("LANG".to_owned(), "C.UTF-8".to_owned())]),
        work_dir: "/workspace".to_owned(),
        workspace: None,
        hostname: "sandbox".to_owned(),
        session: None,
        memory_bytes: Some(Asked {
            value: 512 << 20,
            explicit: true,
        }),
        memory_swap_bytes: None,
        cpus: None,
        cpu_shares: None,
        pids: Some(Asked {
            value: 256,
            explicit: false,
        }),
        disk_bytes: Some(Asked {
            value: 10 << 30,
            explicit: false,
        }),
        disk_files: Some(Asked {
            value: 1_000_000,
            explicit: false,
        }),
        tmpfs_bytes: Some(64 << 20),
        network: crate::backends::Network::None,
        oci_runtime: None,
        user: None,
        group: None,
        keep_layer: false,
        allow_unenforced: Vec::new(),
        unmet: Vec::new(),
    }
}

fn rootfs() -> PreparedImage {
    PreparedImage::Rootfs {
        path: PathBuf::from("/images/python"),
        key: "python".to_owned(),
    }
}

fn host_files() -> HostFiles {
    HostFiles {
        views: vec![
            View {
                from: "/usr".to_owned(),
                to: "usr".to_owned(),
                directory: true,
            },
            View {
                from: "/etc/ld.so.cache".to_owned(),
                to: "etc/ld.so.cache".to_owned(),
                directory: false,
            },
        ],
        entries: vec![Entry::Link {
            path: "bin".to_owned(),
            target: "usr/bin".to_owned(),
        }],
        shell: "/bin/bash".to_owned(),
    }
}

const RANGE: Users = Users::Range {
    first: 0x7001_0000,
    count: 65_536,
};
const SINGLE: Users = Users::Single { inside: 0 };

fn circumstances(host: &HostFiles, users: Users) -> Circumstances<'_> {
    Circumstances {
        host,
        users,
        owners: Owners::AsOnDisk,
        shifted: None,
        layer: None,
        cpus: Vec::new(),
        cpus_seen: vec![0, 1, 2, 3],
        network: Network::Loopback,
        resolvers: &[],
        seat: Seat {
            v1_tasks: 0,
            born_inside: false,
            leaves: None,
        },
        pids_by_resource: false,
    }
}

#[test]
fn an_image_whose_owners_no_mount_maps_is_taken_from_its_copies() {
    let host = HostFiles::look(Path::new("/nowhere"));
    let copies = [PathBuf::from("/images/shifted")];
    let image = PreparedImage::Rootfs {
        path: PathBuf::from("/images/owned"),
        key: "key".to_owned(),
    };
    let root = |shifted, users| {
        let here = Circumstances {
            shifted,
            ..circumstances(&host, users)
        };
        plan(&spec(image.clone()), &here).unwrap().template.root
    };
    let overlay = |path: &str, mapped| Root::Overlay {
        lowers: vec![path.to_owned()],
        mapped,
    };
    assert_eq!(
        root(Some(&copies), RANGE),
        overlay("/images/shifted", false)
    );
    assert_eq!(root(None, RANGE), overlay("/images/owned", true));
    assert_eq!(root(None, SINGLE), overlay("/images/owned", false));
}

/// Text instead of numbers where a plan holds a file.
fn readable(plan: &Plan) -> String {
    let text = format!("{plan:#?}");
    let mut out = String::new();
    let mut bytes: Option<Vec<u8>> = None;
    for line in text.lines() {
        let word = line.trim().trim_end_matches(',');
        match (&mut bytes, word) {
            (None, "content: [") => bytes = Some(Vec::new()),
            (Some(content), "]") => {
                let indent = line.len() - line.trim_start().len();
                let content = String::from_utf8_lossy(content);
                out.push_str(&format!("{:indent$}content: {content:?},\n", ""));
                bytes = None;
            }
            (Some(content), number) => content.push(number.parse().unwrap()),
            (None, _) => {
                out.push_str(line);
                out.push('\n');
            }
        }
    }
    out
}

#[test]
fn the_hosts_files_as_root() {
    let host = host_files();
    let mut spec = spec(PreparedImage::Host);
    spec.workspace = Some(HostWorkspace {
        path: PathBuf::from("/srv/s-1/workspace"),
        managed: true,
    });
    let here = Circumstances {
        owners: super::super::workspace::managed_owners(0x7001_0000),
        cpus: vec![2],
        cpus_seen: vec![2],
        seat: Seat {
            v1_tasks: 3,
            born_inside: true,
            leaves: Some("/sys/fs/cgroup/unified/sandboxd-1/2".to_owned()),
        },
        ..circumstances(&host, RANGE)
    };
    insta::assert_snapshot!(readable(&plan(&spec, &here).unwrap()));
}

#[test]
fn a_root_filesystem_as_root_with_a_user() {
    let host = host_files();
    let mut spec = spec(rootfs());
    spec.user = Some(1000);
    spec.tmpfs_bytes = None;
    let here = Circumstances {
        layer: Some("/state/instances/1/layers/2".to_owned()),
        ..circumstances(&host, RANGE)
    };
    insta::assert_snapshot!(readable(&plan(&spec, &here).unwrap()));
}

#[test]
fn the_hosts_files_as_an_ordinary_user() {
    let host = host_files();
    let here = Circumstances {
        pids_by_resource: true,
        ..circumstances(&host, SINGLE)
    };
    insta::assert_snapshot!(readable(&plan(&spec(PreparedImage::Host), &here).unwrap()));
}

#[test]
fn a_host_root_that_must_be_kept_lies_in_the_layer() {
    let host = host_files();
    let mut spec = spec(PreparedImage::Host);
    assert!(root_in_memory(&spec));
    spec.keep_layer = true;
    assert!(!root_in_memory(&spec));
    let plan = plan(&spec, &circumstances(&host, RANGE)).unwrap();
    assert_eq!(plan.template.root, Root::Layer);
}

#[test]
fn a_plan_survives_the_wire() {
    let host = host_files();
    let plan = plan(&spec(PreparedImage::Host), &circumstances(&host, RANGE)).unwrap();
    let bytes = sandboxd_jail::wire::encode(&plan).unwrap();
    assert_eq!(sandboxd_jail::wire::decode::<Plan>(&bytes), Ok(plan));
}

#[test]
fn capabilities_are_few_and_each_has_a_reason() {
    let numbers: Vec<u8> = CAPABILITIES.iter().map(|(number, _)| *number).collect();
    // Above all none of these: dac_read_search, net_admin, net_raw, sys_module, sys_rawio, sys_ptrace, sys_admin,
    // sys_resource, mknod, bpf.
    for dangerous in [2, 12, 13, 16, 17, 19, 21, 24, 27, 39] {
        assert!(!numbers.contains(&dangerous), "{dangerous}");
    }
    assert!(CAPABILITIES.iter().all(|(_, reason)| reason.contains(':')));
}

#[test]
fn a_sandbox_with_a_network_has_an_address_and_somebody_to_ask() {
    let host = host_files();
    let servers = [Ipv4Addr::new(9, 9, 9, 9), Ipv4Addr::new(10, 0, 0, 53)];
    let mut here = circumstances(&host, RANGE);
    here.network = Network::Routed { number: 258 };
    here.resolvers = &servers;
    let made = plan(&spec(PreparedImage::Host), &here).unwrap();
    assert_eq!(made.assignment.network, Network::Routed { number: 258 });
    let asked = |plan: &Plan| {
        let found = plan.template.entries.iter().find_map(|entry| match entry {
            Entry::File { path, content, .. } if path == "etc/resolv.conf" => {
                Some(String::from_utf8_lossy(content).into_owned())
            }
            _ => None,
        });
        found.unwrap()
    };
    assert_eq!(
        asked(&made),
        "nameserver 9.9.9.9\nnameserver 10.0.0.53\noptions timeout:2 attempts:2\n"
    );
    here.resolvers = &[];
    let nobody = plan(&spec(PreparedImage::Host), &here).unwrap();
    assert!(
        !asked(&nobody).contains("nameserver "),
        "{}",
        asked(&nobody)
    );
}

#[test]
fn variables_and_host_names_are_what_they_say() {
    let mut bad = spec(PreparedImage::Host);
    for name in ["", "A=B", "A\0"] {
        bad.env = BTreeMap::from([(name.to_owned(), "x".to_owned())]);
        assert!(inside::environment(&bad, "/").is_err(), "{name:?}");
    }
    for name in ["", "a b", "a\nb", &"x".repeat(64)] {
        assert!(names(name, true, String::new()).is_err(), "{name:?}");
    }
}
