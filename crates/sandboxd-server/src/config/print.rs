//! The effective settings as TOML, which reads back as the same configuration. The token is left out.

use super::{BackendName, Config, EngineAddress, TokenSource};
use crate::egress::Dns;
use crate::runtimes::{Runtime, Source};
use toml::{Table, Value};

/// What a setting that is switched off is written as.
const OFF: &str = "off";

/// The effective configuration as a TOML file.
pub fn print_config(config: &Config) -> String {
    let service = &config.service;
    let mut table = Table::new();
    let mut put = |name: &str, value: Value| {
        table.insert(name.to_owned(), value);
    };
    put("listen", text(config.listen));
    put("state_dir", text(config.state_dir.display()));
    put(
        "backend",
        text(match config.backend {
            BackendName::Namespaces => "namespaces",
            BackendName::Docker => "docker",
            BackendName::InMemory => "in_memory",
        }),
    );
    put("default_runtime", text(&service.default_runtime));
    put("max_sessions", number(service.max_sessions));
    put("max_open_sessions", number(service.max_open_sessions));
    put(
        "max_sessions_per_tenant",
        number(service.max_sessions_per_tenant),
    );
    put("evict_idle_after", number(service.evict_idle_after));
    put("hibernate_after", number(service.hibernate_after));
    let values = &service.ceilings.values;
    put("mem_limit", optional(service.texts.mem_limit.as_ref()));
    put(
        "memswap_limit",
        optional(service.texts.memswap_limit.as_ref()),
    );
    put("cpus", values.cpus.map_or_else(|| text(OFF), Value::Float));
    put("cpu_shares", number(values.cpu_shares));
    put("pids_limit", number(values.pids));
    put("disk_limit", optional(service.texts.disk_limit.as_ref()));
    put("inodes_limit", number(values.disk_files));
    put("project_ids", optional(config.project_ids));
    put("tmpfs_size", optional(service.texts.tmpfs_size.as_ref()));
    put("network_mode", optional(values.network_mode.as_ref()));
    put("oci_runtime", optional(values.oci_runtime.as_ref()));
    put("work_dir", text(&service.work_dir));
    put(
        "workspace_root",
        optional(service.workspace_root.as_ref().map(|path| path.display())),
    );
    put(
        "persist_containers",
        Value::Boolean(service.persist_containers),
    );
    put("prewarm", Value::Boolean(service.prewarm));
    put("pool", number(Some(service.pool)));
    put("idle_timeout", number(Some(service.idle_timeout)));
    put("cleanup_interval", number(Some(service.cleanup_interval)));
    put("drain_timeout", number(Some(config.drain_timeout)));
    put("workspace_ttl", number(service.workspace_ttl));
    put("container_ttl", number(service.container_ttl));
    put("sandbox_uid", number(service.sandbox_uid.map(u64::from)));
    put("max_read_bytes", number(Some(service.max_read_bytes)));
    put("max_body_bytes", number(Some(service.max_body_bytes)));
    put("max_bodies_bytes", number(Some(service.max_bodies_bytes)));
    put("max_outputs_bytes", number(Some(service.max_outputs_bytes)));
    put("execute_timeout", number(Some(service.execute_timeout)));
    put(
        "max_running_commands",
        number(Some(service.max_running_commands)),
    );
    put("native_files", Value::Boolean(service.native_files));
    put("ui_enabled", Value::Boolean(service.ui_enabled));
    put("metrics_public", Value::Boolean(service.metrics_public));
    put(
        "policy_overrides",
        optional(config.policy_overrides.as_ref().map(|path| path.display())),
    );
    let accepted = service
        .allow_unenforced
        .iter()
        .map(|ceiling| text(ceiling.name()));
    put("allow_unenforced", Value::Array(accepted.collect()));
    engine(config, &mut table);
    egress(config, &mut table);
    registries(config, &mut table);
    builds(config, &mut table);
    images_and_runtimes(config, &mut table);
    let token = match config.token {
        TokenSource::Given(_) => "# The token is configured; it is not shown.\n",
        TokenSource::Made => {
            "# No token is configured; one is made at start and kept in the state directory.\n"
        }
    };
    let env = names_of_variables(config);
    format!("{token}{env}{table}")
}

fn egress(config: &Config, table: &mut Table) {
    let mut put = |name: &str, value: Value| {
        table.insert(name.to_owned(), value);
    };
    let egress = &config.egress;
    put("network_allow", list(&egress.allow));
    put("network_deny", list(&egress.deny));
    // The host's are the default, which has no spelling of its own.
    if let Dns::Servers(servers) = &egress.dns {
        let off = servers.is_empty();
        put("network_dns", if off { text(OFF) } else { list(servers) });
    }
}

fn registries(config: &Config, table: &mut Table) {
    let registries = &config.registries;
    let mut put = |name: &str, value: Value| {
        table.insert(name.to_owned(), value);
    };
    put(
        "image_pull",
        text(super::registries::pull_name(registries.pull)),
    );
    let mirrors = registries.mirrors.iter();
    let mirrors = mirrors.flat_map(|(registry, all)| {
        all.iter()
            .map(move |mirror| text(format!("{registry}={mirror}")))
    });
    put("registry_mirrors", Value::Array(mirrors.collect()));
    let insecure = registries.insecure.iter().map(text);
    put("insecure_registries", Value::Array(insecure.collect()));
    let path =
        |path: &Option<std::path::PathBuf>| optional(path.as_ref().map(|path| path.display()));
    put("docker_config", path(&registries.docker_config));
    put("registry_ca_file", path(&registries.ca_file));
}

/// Variables of builds are told by their names.
fn names_of_variables(config: &Config) -> String {
    let names: Vec<&str> = config.builds.env.keys().map(String::as_str).collect();
    match names.is_empty() {
        true => String::new(),
        false => format!("# build_env is not shown; it sets {}.\n", names.join(", ")),
    }
}

/// Builds of recipes. Values of their variables may be secrets.
fn builds(config: &Config, table: &mut Table) {
    let builds = &config.builds;
    let mut put = |name: &str, value: Value| {
        table.insert(format!("build_{name}"), value);
    };
    let size = |asked: Option<crate::backends::Asked<u64>>| number(asked.map(|asked| asked.value));
    put("network", text(builds.network.name()));
    put(
        "ca_file",
        optional(builds.ca_file.as_ref().map(|path| path.display())),
    );
    // A default that is written down would be somebody's wish.
    for (name, asked) in [
        ("memory", builds.memory_bytes),
        ("pids", builds.pids),
        ("disk", builds.disk_bytes),
    ] {
        if asked.is_none_or(|asked| asked.explicit) {
            put(name, size(asked));
        }
    }
    let cpus = builds.cpus.map(|asked| Value::Float(asked.value));
    put("cpus", cpus.unwrap_or_else(|| text(OFF)));
    put("timeout", number(Some(builds.seconds_max)));
}

fn engine(config: &Config, table: &mut Table) {
    // Looked for where nobody says: that has no spelling of its own.
    if let Some(host) = config.engine.spelled() {
        table.insert("docker_host".to_owned(), text(host));
    }
    if let EngineAddress::Tcp {
        certificates: Some(path),
        ..
    } = &config.engine
    {
        table.insert("docker_tls_verify".to_owned(), Value::Boolean(true));
        table.insert("docker_cert_path".to_owned(), text(path.display()));
    }
}

fn images_and_runtimes(config: &Config, table: &mut Table) {
    let (mut images, mut runtimes) = (Table::new(), Table::new());
    let list = &config.service.runtimes;
    // The default comes first, so that the list means the same without `default_runtime`.
    let mut aliases: Vec<&Runtime> = list.values().collect();
    aliases.sort_by_key(|runtime| runtime.alias != config.service.default_runtime);
    for runtime in aliases {
        if let Source::Directory(path) | Source::Tar(path) = &runtime.source
            && path.as_os_str() != runtime.label.as_str()
        {
            images.insert(runtime.label.clone(), text(path.display()));
        }
        runtimes.insert(runtime.alias.clone(), Value::Table(entry(runtime)));
    }
    if !images.is_empty() {
        table.insert("images".to_owned(), Value::Table(images));
    }
    table.insert("runtimes".to_owned(), Value::Table(runtimes));
}

fn entry(runtime: &Runtime) -> Table {
    let mut table = Table::new();
    let mut put = |name: &str, value: Option<Value>| {
        if let Some(value) = value {
            table.insert(name.to_owned(), value);
        }
    };
    match &runtime.source {
        Source::Recipe(recipe) => put("runtime", Some(recipe_entry(runtime, recipe))),
        _ if runtime.env.is_empty() && runtime.user.is_none() => {
            put("image", Some(text(&runtime.label)));
        }
        _ => put("runtime", Some(image_entry(runtime))),
    }
    put("description", Some(text(&runtime.description)));
    let own = &runtime.ceilings;
    put("mem_limit", runtime.texts.mem_limit.as_ref().map(text));
    put(
        "memswap_limit",
        runtime.texts.memswap_limit.as_ref().map(text),
    );
    put("cpus", own.cpus.map(Value::Float));
    put(
        "cpu_shares",
        own.cpu_shares.map(|value| number(Some(value))),
    );
    put("pids_limit", own.pids.map(|value| number(Some(value))));
    put("disk_limit", runtime.texts.disk_limit.as_ref().map(text));
    put(
        "inodes_limit",
        own.disk_files.map(|value| number(Some(value))),
    );
    put("network_mode", own.network_mode.as_ref().map(text));
    put("oci_runtime", own.oci_runtime.as_ref().map(text));
    put("pool", runtime.pool.map(|value| number(Some(value))));
    table
}

/// A recipe written out: a built-in's own name would read back the same, but only in this version.
fn recipe_entry(runtime: &Runtime, recipe: &crate::runtimes::recipe::Recipe) -> Value {
    let mut table = own_entry(runtime, &recipe.name);
    let list = |items: &[String]| Value::Array(items.iter().map(text).collect());
    table.insert("description".to_owned(), text(&recipe.description));
    table.insert("base_image".to_owned(), text(&recipe.base_image));
    table.insert("packages".to_owned(), list(&recipe.packages));
    table.insert(
        "package_manager".to_owned(),
        text(recipe.package_manager.name()),
    );
    table.insert("setup_commands".to_owned(), list(&recipe.setup_commands));
    table.insert("cache_image".to_owned(), Value::Boolean(recipe.cache_image));
    Value::Table(table)
}

fn image_entry(runtime: &Runtime) -> Value {
    let mut table = own_entry(runtime, &runtime.alias);
    table.insert("image".to_owned(), text(&runtime.label));
    Value::Table(table)
}

fn own_entry(runtime: &Runtime, name: &str) -> Table {
    let mut table = Table::new();
    table.insert("name".to_owned(), text(name));
    let env: Table = runtime
        .env
        .iter()
        .map(|(name, value)| (name.clone(), text(value)))
        .collect();
    table.insert("env_vars".to_owned(), Value::Table(env));
    if let Some(user) = runtime.user {
        table.insert("run_as_uid".to_owned(), Value::Integer(i64::from(user)));
    }
    table
}

fn text(value: impl ToString) -> Value {
    Value::String(value.to_string())
}

fn list<T: std::fmt::Display>(items: &[T]) -> Value {
    Value::Array(items.iter().map(text).collect())
}

fn optional(value: Option<impl ToString>) -> Value {
    value.map_or_else(|| text(OFF), text)
}

/// Settings never exceed the signed range, see `parse::whole`.
fn number(value: Option<u64>) -> Value {
    value
        .and_then(|value| i64::try_from(value).ok())
        .map_or_else(|| text(OFF), Value::Integer)
}
