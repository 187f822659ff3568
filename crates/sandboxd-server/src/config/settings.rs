//! Every setting, its default, and what must hold between them.

use super::error::{ConfigError, Origin};
use super::layers::{Found, Raw, Warning};
use super::{BackendName, Config, Service, ServiceCeilings, SizeTexts, TokenSource};
use super::{allowlist, parse, registries};
use crate::backends::Ceiling;
use crate::egress::{Dns, Egress};
use crate::limits::{
    BODIES_BYTES_DEFAULT, DESTINATIONS_MAX, DNS_SERVERS_MAX, DRAIN_TIMEOUT_SECONDS_DEFAULT,
    DRAIN_TIMEOUT_SECONDS_MAX, JSON_BODY_BYTES_DEFAULT, JSON_BODY_BYTES_MAX, JSON_BODY_BYTES_MIN,
    OUTPUTS_BYTES_DEFAULT, OUTPUTS_BYTES_MIN, TOGETHER_BYTES_MAX,
};
use crate::runtimes::{Ceilings, Runtime, catalogue};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::str::FromStr;

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
    setting("backend", "what makes sandboxes (namespaces)"),
    setting(
        "runtimes",
        "the allowlist: alias to image, @built-in or recipe; @default, @suggested",
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

type Parse<T> = fn(&str) -> Result<T, &'static str>;

impl Found {
    /// A value: absent means the default, empty is an error.
    pub(super) fn value<T>(
        &self,
        name: &str,
        default: T,
        parse: Parse<T>,
    ) -> Result<T, ConfigError> {
        self.raw(name).map_or(Ok(default), |raw| parsed(raw, parse))
    }

    /// An optional value: absent means the default, empty means none.
    pub(super) fn optional<T>(
        &self,
        name: &str,
        default: Option<T>,
        parse: Parse<T>,
    ) -> Result<Option<T>, ConfigError> {
        match self.raw(name) {
            None => Ok(default),
            Some(raw) if is_off(raw) => Ok(None),
            Some(raw) => parsed(raw, parse).map(Some),
        }
    }

    /// An optional size: its text and its bytes.
    fn size(
        &self,
        name: &str,
        default: Option<&str>,
    ) -> Result<(Option<String>, Option<u64>), ConfigError> {
        match self.raw(name) {
            None => Ok((
                default.map(str::to_owned),
                default.and_then(super::bytes_of_size),
            )),
            Some(raw) if is_off(raw) => Ok((None, None)),
            Some(raw) => Ok((
                Some(raw.text.trim().to_owned()),
                Some(parsed(raw, parse::size)?),
            )),
        }
    }

    /// Whether somebody set it to something.
    fn explicit(&self, name: &str) -> bool {
        self.raw(name).is_some_and(|raw| !is_off(raw))
    }
}

fn is_off(raw: &Raw) -> bool {
    let text = raw.text.trim();
    text.is_empty() || (matches!(raw.origin, Origin::Key { .. }) && text == "off")
}

fn parsed<T>(raw: &Raw, parse: Parse<T>) -> Result<T, ConfigError> {
    parse(&raw.text).map_err(|problem| ConfigError::Value {
        origin: raw.origin.clone(),
        raw: raw.text.clone(),
        problem: problem.to_owned(),
    })
}

fn refused(origin: &Origin, problem: impl Into<String>) -> ConfigError {
    ConfigError::Refused {
        origin: origin.clone(),
        problem: problem.into(),
    }
}

/// Reads every setting.
pub(super) fn build(found: &Found, warnings: &mut Vec<Warning>) -> Result<Config, ConfigError> {
    if let Some(raw) = found.raw("max_workers") {
        parsed(raw, parse::positive)?;
        let origin = &raw.origin;
        warnings.push(Warning(format!(
            "{origin} has no effect: blocking work needs no pool here"
        )));
    }
    let listen = listen(found)?;
    Ok(Config {
        listen,
        token: token(found, listen)?,
        state_dir: state_dir(found)?,
        backend: found.value("backend", BackendName::Namespaces, backend)?,
        drain_timeout: found.value(
            "drain_timeout",
            DRAIN_TIMEOUT_SECONDS_DEFAULT,
            drain_seconds,
        )?,
        policy_overrides: found.optional("policy_overrides", None, absolute_path)?,
        egress: egress(found)?,
        registries: registries::registries(found)?,
        service: service(found)?,
    })
}

fn service(found: &Found) -> Result<Service, ConfigError> {
    let runtimes = runtimes(found)?;
    let default_runtime = default_runtime(found, &runtimes)?;
    let (ceilings, texts, tmpfs_bytes) = ceilings(found)?;
    let service = Service {
        default_runtime,
        runtimes: runtimes
            .into_iter()
            .map(|runtime| (runtime.alias.clone(), runtime))
            .collect(),
        max_sessions: found.optional("max_sessions", Some(20), parse::whole)?,
        max_open_sessions: found.optional("max_open_sessions", None, parse::whole)?,
        max_sessions_per_tenant: found.optional("max_sessions_per_tenant", None, parse::whole)?,
        evict_idle_after: found.optional("evict_idle_after", None, parse::whole)?,
        hibernate_after: found.optional("hibernate_after", None, parse::whole)?,
        ceilings,
        tmpfs_bytes,
        work_dir: found.value("work_dir", "/workspace".to_owned(), work_dir)?,
        workspace_root: found.optional("workspace_root", None, absolute_path)?,
        persist_containers: keep_layer(found)?,
        idle_timeout: found.value("idle_timeout", 1800, parse::whole)?,
        cleanup_interval: found.value("cleanup_interval", 300, parse::positive)?,
        workspace_ttl: found.optional("workspace_ttl", None, parse::whole)?,
        container_ttl: found.optional("container_ttl", None, parse::whole)?,
        sandbox_uid: found.optional("sandbox_uid", None, uid)?,
        max_read_bytes: found.value("max_read_bytes", 8 * 1024 * 1024, parse::positive)?,
        max_body_bytes: found.value("max_body_bytes", JSON_BODY_BYTES_DEFAULT, body_bytes)?,
        max_bodies_bytes: found.value("max_bodies_bytes", 0, together_bytes)?,
        max_outputs_bytes: found.value(
            "max_outputs_bytes",
            OUTPUTS_BYTES_DEFAULT,
            outputs_bytes,
        )?,
        execute_timeout: found.value("execute_timeout", 300, parse::positive)?,
        max_running_commands: found.value("max_running_commands", 256, parse::positive)?,
        runtimes_given: found.raw("runtimes").is_some() || found.tables.runtimes.is_some(),
        native_files: found.value("native_files", true, parse::flag)?,
        prewarm: found.value("prewarm", true, parse::flag)?,
        ui_enabled: found.value("ui_enabled", false, parse::flag)?,
        metrics_public: found.value("metrics_public", false, parse::flag)?,
        allow_unenforced: found.value("allow_unenforced", Vec::new(), ceiling_names)?,
        texts,
    };
    let service = Service {
        max_bodies_bytes: match service.max_bodies_bytes {
            0 => service.max_body_bytes.max(BODIES_BYTES_DEFAULT),
            set => set,
        },
        ..service
    };
    cross_check(&service).map_err(|wrong| {
        let origin = found
            .raw(wrong.setting)
            .map_or(Origin::Setting(wrong.setting), |raw| raw.origin.clone());
        refused(&origin, wrong.problem)
    })?;
    Ok(service)
}

/// A relation between settings that does not hold.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Contradiction {
    /// Which setting has to change.
    pub(super) setting: &'static str,
    /// Why.
    pub(super) problem: &'static str,
}

/// What must hold between settings, at start and after a change.
pub(super) fn cross_check(service: &Service) -> Result<(), Contradiction> {
    let wrong = |setting, problem| Err(Contradiction { setting, problem });
    if service.evict_idle_after.is_some() && service.workspace_root.is_none() {
        return wrong(
            "evict_idle_after",
            "needs workspace_root: without one a session that makes room would lose its files",
        );
    }
    if service.hibernate_after.is_some() && service.workspace_root.is_none() {
        return wrong(
            "hibernate_after",
            "needs workspace_root: without one a session that goes to sleep would lose its files",
        );
    }
    if service.max_bodies_bytes < service.max_body_bytes {
        return wrong(
            "max_bodies_bytes",
            "must not be below max_body_bytes: the largest body would never fit",
        );
    }
    if let (Some(open), Some(resident)) = (service.max_open_sessions, service.max_sessions)
        && open < resident
    {
        return wrong("max_open_sessions", "must not be below max_sessions");
    }
    let below = |swap: Option<u64>, memory: Option<u64>| {
        swap.zip(memory).is_some_and(|(swap, memory)| swap < memory)
    };
    let values = &service.ceilings.values;
    let own = |runtime: &Runtime| {
        let own = &runtime.ceilings;
        below(
            own.memory_swap_bytes.or(values.memory_swap_bytes),
            own.memory_bytes.or(values.memory_bytes),
        ) && (own.memory_swap_bytes.is_some() || own.memory_bytes.is_none())
    };
    if below(values.memory_swap_bytes, values.memory_bytes) || service.runtimes.values().any(own) {
        return wrong(
            "memswap_limit",
            "is memory and swap together, so it must not be below mem_limit",
        );
    }
    Ok(())
}

fn ceilings(found: &Found) -> Result<(ServiceCeilings, SizeTexts, Option<u64>), ConfigError> {
    let (mem_limit, memory_bytes) = found.size("mem_limit", Some("1g"))?;
    let (memswap_limit, memory_swap_bytes) = found.size("memswap_limit", None)?;
    let (tmpfs_size, tmpfs_bytes) = found.size("tmpfs_size", Some("64m"))?;
    let (disk_limit, disk_bytes) = found.size("disk_limit", Some("10g"))?;
    let text: Parse<String> = |text| Ok(text.trim().to_owned());
    let ceilings = ServiceCeilings {
        values: Ceilings {
            memory_bytes,
            memory_swap_bytes,
            cpus: found.optional("cpus", Some(2.0), parse::decimal)?,
            cpu_shares: found.optional("cpu_shares", None, parse::positive)?,
            pids: found.optional("pids_limit", Some(512), parse::positive)?,
            disk_bytes,
            disk_files: found.optional("inodes_limit", Some(1_000_000), parse::positive)?,
            network_mode: found.optional("network_mode", Some("none".to_owned()), network)?,
            oci_runtime: found.optional("oci_runtime", None, text)?,
        },
        memory_explicit: found.explicit("mem_limit"),
        cpus_explicit: found.explicit("cpus"),
        pids_explicit: found.explicit("pids_limit"),
        disk_bytes_explicit: found.explicit("disk_limit"),
        disk_files_explicit: found.explicit("inodes_limit"),
    };
    let texts = SizeTexts {
        mem_limit,
        memswap_limit,
        tmpfs_size,
        disk_limit,
    };
    Ok((ceilings, texts, tmpfs_bytes))
}

fn egress(found: &Found) -> Result<Egress, ConfigError> {
    let servers: Parse<Vec<Ipv4Addr>> = |text| {
        let servers: Result<Vec<Ipv4Addr>, _> =
            text.split(',').map(|one| one.trim().parse()).collect();
        match servers {
            Ok(servers) if servers.len() <= DNS_SERVERS_MAX => Ok(servers),
            _ => Err("expected one to three IPv4 addresses of name servers"),
        }
    };
    let dns = found.optional("network_dns", None, servers)?;
    let dns = match (dns, found.raw("network_dns")) {
        (Some(servers), _) => Dns::Servers(servers),
        (None, Some(_)) => Dns::Servers(Vec::new()),
        (None, None) => Dns::Host,
    };
    Ok(Egress {
        allow: found.value("network_allow", Vec::new(), destinations)?,
        deny: found.value("network_deny", Vec::new(), destinations)?,
        dns,
    })
}

/// Texts between commas, each with a meaning. None at all is an empty list; one without a meaning is an error.
fn destinations<T: FromStr<Err = &'static str>>(text: &str) -> Result<Vec<T>, &'static str> {
    if text.trim().is_empty() {
        return Ok(Vec::new());
    }
    let parsed: Vec<T> = text
        .split(',')
        .map(|one| one.trim().parse())
        .collect::<Result<_, _>>()?;
    match parsed.len() {
        0..=DESTINATIONS_MAX => Ok(parsed),
        _ => Err("expected at most 256 networks"),
    }
}

fn runtimes(found: &Found) -> Result<Vec<Runtime>, ConfigError> {
    let images = match (found.over_file("images"), &found.tables.images) {
        (None, Some((origin, rows))) => allowlist::images_of_rows(rows.clone(), origin)?,
        _ => match found.raw("images") {
            Some(raw) => allowlist::images_of_text(&raw.text, &raw.origin)?,
            None => allowlist::Images::new(),
        },
    };
    match (found.over_file("runtimes"), &found.tables.runtimes) {
        (None, Some((origin, rows))) => allowlist::of_rows(rows.clone(), origin, &images),
        _ => match found.raw("runtimes") {
            Some(raw) => allowlist::of_text(&raw.text, &raw.origin, &images),
            None => Ok(catalogue::unconfigured(&images)),
        },
    }
}

fn default_runtime(found: &Found, runtimes: &[Runtime]) -> Result<String, ConfigError> {
    let first = runtimes.first().map(|first| first.alias.clone());
    let chosen = found
        .raw("default_runtime")
        .filter(|raw| !raw.text.trim().is_empty());
    match chosen {
        None => Ok(first.unwrap_or_default()),
        Some(raw)
            if runtimes
                .iter()
                .any(|runtime| runtime.alias == raw.text.trim()) =>
        {
            Ok(raw.text.trim().to_owned())
        }
        Some(raw) => Err(ConfigError::Value {
            origin: raw.origin.clone(),
            raw: raw.text.clone(),
            problem: "expected an alias of the allowlist".to_owned(),
        }),
    }
}

fn listen(found: &Found) -> Result<SocketAddr, ConfigError> {
    // The layer that is asked first wins, whichever of the two ways it says it in.
    let host = found.either(&["listen", "host"])?;
    let port = found.either(&["listen", "port"])?;
    let both: Parse<SocketAddr> = |text| {
        text.trim()
            .parse()
            .map_err(|_| "expected an address and a port, such as 127.0.0.1:8080")
    };
    let ip = match host {
        None => IpAddr::V4(Ipv4Addr::LOCALHOST),
        Some((0, raw)) => parsed(raw, both)?.ip(),
        Some((_, raw)) => parsed(raw, address)?,
    };
    let port = match port {
        None => 8080,
        Some((0, raw)) => parsed(raw, both)?.port(),
        Some((_, raw)) => parsed(raw, |text| {
            u16::try_from(parse::whole(text)?).map_err(|_| "expected a port, 0 to 65535")
        })?,
    };
    Ok(SocketAddr::new(ip, port))
}

fn address(text: &str) -> Result<IpAddr, &'static str> {
    match text.trim() {
        "localhost" => Ok(IpAddr::V4(Ipv4Addr::LOCALHOST)),
        text => text
            .trim_start_matches('[')
            .trim_end_matches(']')
            .parse()
            .map_err(|_| "expected an IP address, or localhost"),
    }
}

fn token(found: &Found, listen: SocketAddr) -> Result<TokenSource, ConfigError> {
    let Some((which, raw)) = found.either(&["token", "token_file"])? else {
        if listen.ip().is_loopback() {
            return Ok(TokenSource::Made);
        }
        let problem = format!(
            "needed to listen on {listen}, which is not a loopback address; set SANDBOXD_TOKEN or SANDBOXD_TOKEN_FILE"
        );
        return Err(refused(&Origin::Setting("token"), problem));
    };
    let text = match which {
        0 => raw.text.clone(),
        _ => std::fs::read_to_string(raw.text.trim()).map_err(|error| {
            refused(
                &raw.origin,
                format!("cannot read {:?}: {error}", raw.text.trim()),
            )
        })?,
    };
    let text = text.trim();
    if text.is_empty() {
        return Err(refused(&raw.origin, "the token is set but empty"));
    }
    if !text.bytes().all(|byte| matches!(byte, 0x20..=0x7e)) {
        let problem = "the token has characters that no HTTP header can carry";
        return Err(refused(&raw.origin, problem));
    }
    Ok(TokenSource::Given(text.to_owned()))
}

fn state_dir(found: &Found) -> Result<PathBuf, ConfigError> {
    if let Some(raw) = found.raw("state_dir") {
        return parsed(raw, absolute_path);
    }
    if found.root {
        return Ok(PathBuf::from("/var/lib/sandboxd"));
    }
    let state_home = found
        .xdg_state_home
        .clone()
        .or_else(|| Some(found.home.as_ref()?.join(".local/state")));
    match state_home {
        Some(state_home) => Ok(state_home.join("sandboxd")),
        None => Err(refused(
            &Origin::Setting("state_dir"),
            "needed, since neither XDG_STATE_HOME nor HOME names a directory",
        )),
    }
}

pub(super) fn absolute_path(text: &str) -> Result<PathBuf, &'static str> {
    if text.trim().is_empty() || text.contains('\0') {
        return Err("expected a path");
    }
    std::path::absolute(text.trim()).map_err(|_| "expected a path")
}

fn backend(text: &str) -> Result<BackendName, &'static str> {
    match text.trim() {
        "namespaces" => Ok(BackendName::Namespaces),
        "in_memory" => Ok(BackendName::InMemory),
        _ => Err("expected namespaces"),
    }
}

/// A network mode as configured. Sharing the host's network, or another container's, is no sandbox.
pub(super) fn network(text: &str) -> Result<String, &'static str> {
    match text.trim() {
        "host" => Err("the host's own network is never given to a sandbox"),
        shared if shared.starts_with("container:") => {
            Err("another container's network is never given to a sandbox")
        }
        mode => Ok(mode.to_owned()),
    }
}

fn work_dir(text: &str) -> Result<String, &'static str> {
    let text = text.trim();
    let text = if text.len() > 1 {
        text.trim_end_matches('/')
    } else {
        text
    };
    let mut components = text.strip_prefix('/').unwrap_or_default().split('/');
    if components.any(|part| part.is_empty() || part == "." || part == ".." || part.contains('\0'))
    {
        return Err("expected an absolute path below /, without . or ..");
    }
    Ok(text.to_owned())
}

/// A body is read into memory whole, so its bound has one too.
fn body_bytes(text: &str) -> Result<u64, &'static str> {
    match parse::positive(text)? {
        bytes if (JSON_BODY_BYTES_MIN..=JSON_BODY_BYTES_MAX).contains(&bytes) => Ok(bytes),
        _ => Err("expected a number of bytes from 65536 (64 KiB) to 1073741824 (1 GiB)"),
    }
}

fn together_bytes(text: &str) -> Result<u64, &'static str> {
    match parse::positive(text)? {
        bytes if bytes <= TOGETHER_BYTES_MAX => Ok(bytes),
        _ => Err("expected a number of bytes, at most 1099511627776 (1 TiB)"),
    }
}

fn outputs_bytes(text: &str) -> Result<u64, &'static str> {
    match together_bytes(text)? {
        bytes if bytes >= OUTPUTS_BYTES_MIN => Ok(bytes),
        _ => Err(
            "expected a number of bytes, at least 16777216 (16 MiB): one run's output has to fit",
        ),
    }
}

fn drain_seconds(text: &str) -> Result<u64, &'static str> {
    match parse::whole(text)? {
        seconds if seconds <= DRAIN_TIMEOUT_SECONDS_MAX => Ok(seconds),
        _ => Err("expected a number of seconds, at most 3600"),
    }
}

/// One setting with two names.
fn keep_layer(found: &Found) -> Result<bool, ConfigError> {
    match found.either(&["persist_containers", "keep_layer"])? {
        Some((_, raw)) => parsed(raw, parse::flag),
        None => Ok(false),
    }
}

fn uid(text: &str) -> Result<u32, &'static str> {
    u32::try_from(parse::whole(text)?).map_err(|_| "expected a uid")
}

fn ceiling_names(text: &str) -> Result<Vec<Ceiling>, &'static str> {
    text.split(',')
        .map(str::trim)
        .filter(|name| !name.is_empty())
        .map(|name| {
            let all = Ceiling::ALL.iter().copied();
            all.into_iter().find(|ceiling| ceiling.name() == name).ok_or(
                "expected names out of memory, cpus, cpu_shares, pids, disk, network, oci_runtime, uid_range, workspace_owner",
            )
        })
        .collect()
}
