//! Where the container engine is, for a backend that uses one: our settings, and the variables that its own tools know.

use super::error::{ConfigError, Origin};
use super::layers::{Found, Warning};
use super::parse;
use super::settings::absolute_path;
use std::path::PathBuf;

/// Where sockets of Docker and Podman lie, in the order in which they are looked for.
const SOCKETS: [&str; 2] = ["/var/run/docker.sock", "/run/podman/podman.sock"];
/// The same below a user's own runtime directory.
const OWN_SOCKETS: [&str; 2] = ["docker.sock", "podman/podman.sock"];

/// How to reach a container engine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum EngineAddress {
    /// The first of these sockets that is there.
    Sockets(Vec<PathBuf>),
    /// Over the network.
    Tcp {
        /// Host and port.
        address: String,
        /// The directory with `ca.pem`, `cert.pem` and `key.pem`; without one nothing is encrypted, and nobody known.
        certificates: Option<PathBuf>,
    },
    /// Through the `ssh` program, and `docker` at the other end: `user@host`, or a name out of the program's own configuration.
    Ssh(String),
}

impl EngineAddress {
    /// As `docker_host` spells it; nothing where it is looked for.
    pub fn spelled(&self) -> Option<String> {
        match self {
            Self::Sockets(paths) => match &paths[..] {
                [only] => Some(format!("unix://{}", only.display())),
                _ => None,
            },
            Self::Tcp { address, .. } => Some(format!("tcp://{address}")),
            Self::Ssh(address) => Some(format!("ssh://{address}")),
        }
    }
}

/// Reads it.
pub(super) fn engine(
    found: &Found,
    warnings: &mut Vec<Warning>,
) -> Result<EngineAddress, ConfigError> {
    let around = |name: &str| found.surroundings.variable(name);
    let of_tools = around("DOCKER_HOST").filter(|host| !host.trim().is_empty());
    let host = match found.optional("docker_host", None, host)? {
        Some(host) => Some(host),
        None => of_tools
            .map(|text| {
                host(&text).map_err(|problem| ConfigError::Value {
                    origin: Origin::Variable("DOCKER_HOST".to_owned()),
                    raw: text.clone(),
                    problem: problem.to_owned(),
                })
            })
            .transpose()?,
    };
    let by_tools = around("DOCKER_TLS_VERIFY").is_some_and(|value| !value.is_empty());
    let verified = found.value("docker_tls_verify", by_tools, parse::flag)?;
    let own = found.home.as_ref().map(|home| home.join(".docker"));
    let certificates = around("DOCKER_CERT_PATH")
        .map(PathBuf::from)
        .filter(|path| path.is_absolute())
        .or(own);
    let certificates = found.optional("docker_cert_path", certificates, absolute_path)?;
    match host {
        None => {
            let everybodys = SOCKETS.iter().map(PathBuf::from);
            let own = around("XDG_RUNTIME_DIR").map(PathBuf::from);
            let own = own.into_iter().filter(|path| path.is_absolute());
            let own = own.flat_map(|path| OWN_SOCKETS.map(|socket| path.join(socket)));
            Ok(EngineAddress::Sockets(everybodys.chain(own).collect()))
        }
        Some(EngineAddress::Tcp { address, .. }) => {
            if verified && certificates.is_none() {
                return Err(ConfigError::Refused {
                    origin: Origin::Setting("docker_tls_verify"),
                    problem: "needs docker_cert_path: no directory with certificates is known"
                        .to_owned(),
                });
            }
            if !verified {
                warnings.push(Warning(format!(
                    "the container engine at {address} is spoken to without TLS (docker_tls_verify): whoever is in between owns its host"
                )));
            }
            Ok(EngineAddress::Tcp {
                address,
                certificates: certificates.filter(|_| verified),
            })
        }
        Some(other) => Ok(other),
    }
}

fn host(text: &str) -> Result<EngineAddress, &'static str> {
    const EXPECTED: &str = "expected unix:///path, tcp://host:port or ssh://user@host";
    const SSH_PORT: &str = "expected ssh://user@host without a port or a path: a port is said in the ssh program's own configuration (Host, Port)";
    let text = text.trim();
    if text.chars().any(|c| c.is_whitespace() || c.is_control()) {
        return Err(EXPECTED);
    }
    if let Some(path) = text.strip_prefix("unix://") {
        let path = PathBuf::from(path);
        return match path.is_absolute() {
            true => Ok(EngineAddress::Sockets(vec![path])),
            false => Err(EXPECTED),
        };
    }
    if let Some(address) = text.strip_prefix("tcp://") {
        let address = address.trim_end_matches('/');
        let port = address.rsplit_once(':').map(|(_, port)| port);
        let sound = port.is_some_and(|port| port.parse::<u16>().is_ok());
        if !sound || address.contains(['/', '@', '?', '#']) {
            return Err(EXPECTED);
        }
        return Ok(EngineAddress::Tcp {
            address: address.to_owned(),
            certificates: None,
        });
    }
    match text.strip_prefix("ssh://") {
        // The client hands this on as one name, in which a port would be part of the host's.
        Some(address) if address.contains([':', '/']) => Err(SSH_PORT),
        // A name that begins with a dash would be an option to the ssh program.
        Some(address) if !address.is_empty() && !address.starts_with('-') => {
            Ok(EngineAddress::Ssh(address.to_owned()))
        }
        _ => Err(EXPECTED),
    }
}

#[cfg(test)]
mod tests {
    use crate::config::{EngineAddress, Flags, Layers};
    use std::path::PathBuf;

    fn read(env: &[(&str, &str)]) -> Result<(EngineAddress, Vec<String>), String> {
        let layers = Layers {
            flags: Flags::default(),
            env: env
                .iter()
                .map(|(name, value)| (name.into(), value.into()))
                .collect(),
            file: None,
            root: true,
        };
        let (config, warnings) = layers.read().map_err(|error| error.to_string())?;
        let warnings = warnings.iter().map(ToString::to_string).collect();
        Ok((config.engine, warnings))
    }

    #[test]
    fn sockets_are_looked_for_where_nobody_says_where_the_engine_is() {
        let (engine, _) = read(&[("XDG_RUNTIME_DIR", "/run/user/7")]).unwrap();
        let EngineAddress::Sockets(paths) = &engine else {
            panic!("{engine:?}");
        };
        assert_eq!(paths[0], PathBuf::from("/var/run/docker.sock"));
        assert!(paths.contains(&PathBuf::from("/run/user/7/podman/podman.sock")));
        assert_eq!(engine.spelled(), None);
    }

    #[test]
    fn ours_comes_before_what_the_engines_own_tools_are_told() {
        let of_tools = ("DOCKER_HOST", "unix:///a.sock");
        let (engine, _) = read(&[of_tools]).unwrap();
        assert_eq!(engine.spelled().as_deref(), Some("unix:///a.sock"));
        let ours = ("SANDBOXD_DOCKER_HOST", "ssh://me@there");
        let (engine, _) = read(&[of_tools, ours]).unwrap();
        assert_eq!(engine, EngineAddress::Ssh("me@there".to_owned()));
        let wrong = read(&[("DOCKER_HOST", "fd://")]).unwrap_err();
        assert!(wrong.contains("DOCKER_HOST"), "{wrong}");
        for wrong in [
            "tcp://host",
            "unix://relative",
            "ssh://-oProxyCommand=x",
            "ssh://me@there:22",
            "tcp://a b:1",
        ] {
            let refused = read(&[("SANDBOXD_DOCKER_HOST", wrong)]).unwrap_err();
            assert!(refused.contains("SANDBOXD_DOCKER_HOST"), "{refused}");
        }
    }

    #[test]
    fn a_network_without_tls_is_said() {
        let host = ("DOCKER_HOST", "tcp://10.0.0.1:2375");
        let (engine, warnings) = read(&[host]).unwrap();
        let EngineAddress::Tcp { certificates, .. } = engine else {
            panic!("{engine:?}");
        };
        assert_eq!(certificates, None);
        assert!(warnings.iter().any(|line| line.contains("without TLS")));
        let verified = [
            host,
            ("DOCKER_TLS_VERIFY", "1"),
            ("DOCKER_CERT_PATH", "/certs"),
        ];
        let (engine, warnings) = read(&verified).unwrap();
        let EngineAddress::Tcp { certificates, .. } = engine else {
            panic!("{engine:?}");
        };
        assert_eq!(certificates, Some(PathBuf::from("/certs")));
        assert_eq!(warnings, Vec::<String>::new());
    }
}
