//! Every setting by name: what it means, its unit, its default.

/// One setting: its name in a file, and with `SANDBOXD_` before it, in capitals, in the environment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Setting {
    /// Its name.
    pub name: &'static str,
    /// What it means, its unit, and what an absent one means.
    pub about: &'static str,
}

const fn setting(name: &'static str, about: &'static str) -> Setting {
    Setting { name, about }
}

/// All of them. An optional one is switched off by an empty text (in a file also by `"off"`).
pub const SETTINGS: &[Setting] = &[
    setting(
        "listen",
        "address and port to listen on; says host and port at once",
    ),
    setting("host", "address to listen on (127.0.0.1)"),
    setting("port", "port to listen on (8080)"),
    setting(
        "token",
        "the service token; made at start on a loopback address",
    ),
    setting("token_file", "a file with the service token"),
    setting("state_dir", "where state is kept; one daemon at a time"),
    setting(
        "backend",
        "what makes sandboxes: namespaces or docker (namespaces)",
    ),
    setting(
        "docker_host",
        "the container engine: unix:///path, tcp://host:port or ssh://user@host (DOCKER_HOST, else Docker's or Podman's socket); optional",
    ),
    setting(
        "docker_tls_verify",
        "whether an engine over TCP is spoken to by TLS, each side knowing the other (DOCKER_TLS_VERIFY)",
    ),
    setting(
        "docker_cert_path",
        "a directory with ca.pem, cert.pem and key.pem for that (DOCKER_CERT_PATH, else ~/.docker); optional",
    ),
    setting(
        "runtimes",
        "the allowlist: alias to image, @built-in or recipe; @default, @suggested",
    ),
    setting(
        "catalogue",
        "a ready-made list that the allowlist begins with: default, suggested; optional",
    ),
    setting(
        "images",
        "image names that stand for a root filesystem on this host: name to path",
    ),
    setting(
        "image_pull",
        "when an image that a session needs is fetched: missing, or never (missing)",
    ),
    setting(
        "registry_mirrors",
        "asked before a registry: registry=address, comma-separated",
    ),
    setting(
        "insecure_registries",
        "registries that may be reached without TLS, comma-separated",
    ),
    setting(
        "docker_config",
        "Docker's configuration file, with credentials for registries; optional",
    ),
    setting(
        "registry_ca_file",
        "certificates (PEM) trusted for registries beside the system's; optional",
    ),
    setting(
        "build_network",
        "network of builds of recipes: bridge or none (bridge)",
    ),
    setting(
        "build_env",
        "variables of builds, such as PIP_INDEX_URL: NAME=VALUE, comma-separated, or a JSON object",
    ),
    setting(
        "build_ca_file",
        "certificates (PEM) that programs of builds trust instead of the image's; optional",
    ),
    setting("build_memory", "memory of a build (4g); optional"),
    setting("build_cpus", "CPUs of a build; optional"),
    setting(
        "build_pids",
        "processes and threads of a build (1024); optional",
    ),
    setting(
        "build_disk",
        "bytes that a step of a build and the package caches store (20g); optional",
    ),
    setting("build_timeout", "seconds that one build may take (1800)"),
    setting(
        "default_runtime",
        "alias used when a client names none (the first)",
    ),
    setting("max_sessions", "resident sandboxes (20); optional"),
    setting(
        "max_open_sessions",
        "open sessions, resident or asleep; optional",
    ),
    setting(
        "max_sessions_per_tenant",
        "open sessions of one tenant; optional",
    ),
    setting(
        "evict_idle_after",
        "seconds of idleness after which a session makes room; optional",
    ),
    setting(
        "hibernate_after",
        "seconds of idleness after which a session goes to sleep, room or no room; optional",
    ),
    setting("mem_limit", "memory of a sandbox (1g); optional"),
    setting(
        "memswap_limit",
        "memory and swap together (the memory limit); optional",
    ),
    setting("cpus", "CPUs of a sandbox (2.0); optional"),
    setting(
        "cpu_shares",
        "CPU weight of a sandbox, 1024 is one share; optional",
    ),
    setting(
        "pids_limit",
        "processes and threads of a sandbox (512); optional",
    ),
    setting(
        "disk_limit",
        "bytes that a sandbox stores, in its workspace and its write layer (10g); optional",
    ),
    setting(
        "inodes_limit",
        "files that a sandbox stores (1000000); optional",
    ),
    setting(
        "project_ids",
        "projects of quotas, where file systems keep some: first-last (1900000000-1900065535); optional",
    ),
    setting("tmpfs_size", "size of /tmp in memory (64m); optional"),
    setting(
        "network_mode",
        "network of a sandbox: none or bridge (none); optional",
    ),
    setting(
        "network_allow",
        "networks that a sandbox with a network may reach although they are denied, comma-separated",
    ),
    setting(
        "network_deny",
        "networks that a sandbox may not reach, beside those that are denied anyway, comma-separated",
    ),
    setting(
        "network_dns",
        "name servers of a sandbox with a network (the host's); optional",
    ),
    setting(
        "oci_runtime",
        "container runtime, for backends that have one; optional",
    ),
    setting("work_dir", "work directory in every sandbox (/workspace)"),
    setting(
        "workspace_root",
        "host directory where workspaces are kept; optional",
    ),
    setting(
        "persist_containers",
        "whether a sandbox's own files outlive hibernation (false)",
    ),
    setting("keep_layer", "the same, by our name for it"),
    setting("prewarm", "whether images are made ready at start (true)"),
    setting(
        "pool",
        "sandboxes kept ready for sessions to come, for each runtime that does not say itself (0)",
    ),
    setting(
        "idle_timeout",
        "seconds of idleness after which a session is closed (1800)",
    ),
    setting("cleanup_interval", "seconds between two sweeps (300)"),
    setting(
        "drain_timeout",
        "seconds that runs may go on when the service is asked to end (3)",
    ),
    setting(
        "workspace_ttl",
        "seconds after which a closed session's workspace is deleted; optional",
    ),
    setting(
        "container_ttl",
        "seconds of sleep after which a kept layer is deleted; optional",
    ),
    setting("sandbox_uid", "uid that runs have inside; optional"),
    setting(
        "max_read_bytes",
        "most bytes of one file read or native write (8388608)",
    ),
    setting(
        "max_body_bytes",
        "most bytes of a JSON request body; an older client's write carries a whole file (67108864)",
    ),
    setting(
        "max_bodies_bytes",
        "most bytes of all request bodies together, beyond 64 KiB of each (268435456, or max_body_bytes)",
    ),
    setting(
        "max_outputs_bytes",
        "most bytes of output that all runs together hold, beyond 256 KiB of each (268435456)",
    ),
    setting("execute_timeout", "seconds that a run may take (300)"),
    setting(
        "max_workers",
        "accepted for compatibility; blocking work needs no pool here",
    ),
    setting(
        "max_running_commands",
        "commands at once over all sessions (256)",
    ),
    setting("native_files", "whether native file routes are on (true)"),
    setting("ui_enabled", "whether /ui is served (false)"),
    setting(
        "metrics_public",
        "whether /metrics is given without a token (false)",
    ),
    setting(
        "policy_overrides",
        "a JSON file with policy changes, read again when it changes; optional",
    ),
    setting(
        "allow_unenforced",
        "ceilings that may stay unenforced although set, comma-separated",
    ),
];
