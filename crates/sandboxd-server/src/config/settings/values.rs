//! The settings whose text needs more than a kind: addresses, the token, places, allowlists.

use super::reading::{Parse, parsed, refused};
use crate::backends::Ceiling;
use crate::config::error::{ConfigError, Origin};
use crate::config::layers::Found;
use crate::config::{BackendName, TokenSource, allowlist, parse};
use crate::egress::{Dns, Egress};
use crate::limits::{
    DESTINATIONS_MAX, DNS_SERVERS_MAX, DRAIN_TIMEOUT_SECONDS_MAX, JSON_BODY_BYTES_MAX,
    JSON_BODY_BYTES_MIN, OUTPUTS_BYTES_MIN, TOGETHER_BYTES_MAX,
};
use crate::runtimes::{Runtime, Source, catalogue};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::str::FromStr;

pub(super) fn egress(found: &Found) -> Result<Egress, ConfigError> {
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

pub(super) fn runtimes(found: &Found) -> Result<Vec<Runtime>, ConfigError> {
    let images = match (found.over_file("images"), &found.tables.images) {
        (None, Some((origin, rows))) => allowlist::images_of_rows(rows.clone(), origin)?,
        _ => match found.raw("images") {
            Some(raw) => allowlist::images_of_text(&raw.text, &raw.origin)?,
            None => allowlist::Images::new(),
        },
    };
    let chosen: Parse<String> = |text| match text.trim().trim_start_matches('@') {
        name if catalogue::named(name, &allowlist::Images::new()).is_some() => Ok(name.to_owned()),
        _ => Err("expected default or suggested"),
    };
    let chosen = found.optional("catalogue", None, chosen)?;
    let chosen = chosen.and_then(|name| catalogue::named(&name, &images));
    let written = match (found.over_file("runtimes"), &found.tables.runtimes) {
        (None, Some((origin, rows))) => Some(allowlist::of_rows(rows.clone(), origin, &images)?),
        _ => match found.raw("runtimes") {
            Some(raw) => Some(allowlist::of_text(&raw.text, &raw.origin, &images)?),
            None => None,
        },
    };
    match (chosen, written) {
        (None, None) => {
            let mut all = catalogue::unconfigured(&images);
            if backend_name(found)? == BackendName::Docker {
                // An engine makes containers of images only.
                all.retain(|runtime| runtime.source != Source::Host);
            }
            Ok(all)
        }
        (chosen, written) => {
            let both = chosen.into_iter().chain(written).flatten();
            Ok(allowlist::later_wins(both))
        }
    }
}

pub(super) fn default_runtime(found: &Found, runtimes: &[Runtime]) -> Result<String, ConfigError> {
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

pub(super) fn listen(found: &Found) -> Result<SocketAddr, ConfigError> {
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

pub(super) fn address(text: &str) -> Result<IpAddr, &'static str> {
    match text.trim() {
        "localhost" => Ok(IpAddr::V4(Ipv4Addr::LOCALHOST)),
        text => text
            .trim_start_matches('[')
            .trim_end_matches(']')
            .parse()
            .map_err(|_| "expected an IP address, or localhost"),
    }
}

pub(super) fn token(found: &Found, listen: SocketAddr) -> Result<TokenSource, ConfigError> {
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

pub(super) fn state_dir(found: &Found) -> Result<PathBuf, ConfigError> {
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

pub(in crate::config) fn absolute_path(text: &str) -> Result<PathBuf, &'static str> {
    if text.trim().is_empty() || text.contains('\0') {
        return Err("expected a path");
    }
    std::path::absolute(text.trim()).map_err(|_| "expected a path")
}

pub(super) fn backend_name(found: &Found) -> Result<BackendName, ConfigError> {
    found.value("backend", BackendName::Namespaces, backend)
}

fn backend(text: &str) -> Result<BackendName, &'static str> {
    match text.trim() {
        "namespaces" => Ok(BackendName::Namespaces),
        "docker" => Ok(BackendName::Docker),
        "in_memory" => Ok(BackendName::InMemory),
        _ => Err("expected namespaces or docker"),
    }
}

/// A network mode as configured. Sharing the host's network, or another container's, is no sandbox.
pub(in crate::config) fn network(text: &str) -> Result<String, &'static str> {
    match text.trim() {
        "host" => Err("the host's own network is never given to a sandbox"),
        shared if shared.starts_with("container:") => {
            Err("another container's network is never given to a sandbox")
        }
        mode => Ok(mode.to_owned()),
    }
}

pub(super) fn work_dir(text: &str) -> Result<String, &'static str> {
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
pub(super) fn body_bytes(text: &str) -> Result<u64, &'static str> {
    match parse::positive(text)? {
        bytes if (JSON_BODY_BYTES_MIN..=JSON_BODY_BYTES_MAX).contains(&bytes) => Ok(bytes),
        _ => Err("expected a number of bytes from 65536 (64 KiB) to 1073741824 (1 GiB)"),
    }
}

pub(super) fn together_bytes(text: &str) -> Result<u64, &'static str> {
    match parse::positive(text)? {
        bytes if bytes <= TOGETHER_BYTES_MAX => Ok(bytes),
        _ => Err("expected a number of bytes, at most 1099511627776 (1 TiB)"),
    }
}

pub(super) fn outputs_bytes(text: &str) -> Result<u64, &'static str> {
    match together_bytes(text)? {
        bytes if bytes >= OUTPUTS_BYTES_MIN => Ok(bytes),
        _ => Err(
            "expected a number of bytes, at least 16777216 (16 MiB): one run's output has to fit",
        ),
    }
}

pub(super) fn drain_seconds(text: &str) -> Result<u64, &'static str> {
    match parse::whole(text)? {
        seconds if seconds <= DRAIN_TIMEOUT_SECONDS_MAX => Ok(seconds),
        _ => Err("expected a number of seconds, at most 3600"),
    }
}

/// One setting with two names.
pub(super) fn keep_layer(found: &Found) -> Result<bool, ConfigError> {
    match found.either(&["persist_containers", "keep_layer"])? {
        Some((_, raw)) => parsed(raw, parse::flag),
        None => Ok(false),
    }
}

pub(super) fn uid(text: &str) -> Result<u32, &'static str> {
    u32::try_from(parse::whole(text)?).map_err(|_| "expected a uid")
}

pub(super) fn ceiling_names(text: &str) -> Result<Vec<Ceiling>, &'static str> {
    text.split(',')
        .map(str::trim)
        .filter(|name| !name.is_empty())
        .map(|name| {
            let all = Ceiling::ALL.iter().copied();
            all.into_iter().find(|ceiling| ceiling.name() == name).ok_or(
                "expected names out of memory, cpus, cpu_shares, pids, disk, network, oci_runtime, uid_range, workspace_owner, landlock",
            )
        })
        .collect()
}
