//! What an engine leaves on a host's network when it ends, and its removal: bridges, packet rules, forwarding.

use crate::report::run;
use anyhow::{Context, bail};
use std::collections::BTreeSet;
use std::fs;
use std::process::Command;

const FORWARDING: &str = "/proc/sys/net/ipv4/ip_forward";
/// The tables that an engine writes into.
const TABLES: [&str; 2] = ["filter", "nat"];

/// The state of a host's network, as far as an engine changes it.
pub(super) struct Traces {
    bridges: BTreeSet<String>,
    /// `iptables -S` by table.
    rules: [String; 2],
    forwarding: String,
}

impl Traces {
    /// As it is now.
    pub(super) fn now() -> anyhow::Result<Self> {
        let shown = said("ip", &["-o", "link", "show", "type", "bridge"])?;
        let name = |line: &str| Some(line.split(": ").nth(1)?.to_owned());
        let rules = |table| said("iptables", &["-t", table, "-S"]);
        Ok(Self {
            bridges: shown.lines().filter_map(name).collect(),
            rules: [rules(TABLES[0])?, rules(TABLES[1])?],
            forwarding: fs::read_to_string(FORWARDING).context(FORWARDING)?,
        })
    }

    /// Takes away what came since, and is an engine's.
    pub(super) fn restore(&self) -> anyhow::Result<()> {
        let now = Self::now()?;
        let engines = |name: &str| name == "docker0" || name.starts_with("br-");
        let mut came = now.bridges.difference(&self.bridges);
        while let Some(bridge) = came.by_ref().find(|name| engines(name)) {
            run(Command::new("ip").args(["link", "delete", bridge]))?;
        }
        for (at, table) in TABLES.iter().enumerate() {
            for words in undone(&self.rules[at], &now.rules[at]) {
                run(Command::new("iptables")
                    .args(["--wait", "-t", table])
                    .args(words))?;
            }
        }
        if now.forwarding != self.forwarding {
            fs::write(FORWARDING, &self.forwarding).context(FORWARDING)?;
        }
        Ok(())
    }
}

/// The arguments of the commands that take an engine's rules out of a table, in order: what jumps to its chains first.
fn undone(before: &str, now: &str) -> Vec<Vec<String>> {
    let old: BTreeSet<_> = before.lines().collect();
    let came = || now.lines().filter(|line| !old.contains(line));
    let mut commands = Vec::new();
    let words = |text: &str| text.split(' ').map(str::to_owned).collect::<Vec<_>>();
    for line in came() {
        let engines = ["DOCKER", "docker0", " br-", "172.17.0.0/16"];
        match line.split_once(' ') {
            Some(("-A", rule)) if engines.iter().any(|mark| rule.contains(mark)) => {
                commands.push(words(&format!("-D {rule}")));
            }
            // Forwarding what nobody asked for is refused by a rule of an engine's, and was not before.
            Some(("-P", "FORWARD DROP")) => commands.push(words("-P FORWARD ACCEPT")),
            _ => {}
        }
    }
    for line in came() {
        if let Some(("-N", chain)) = line.split_once(' ')
            && chain.starts_with("DOCKER")
        {
            commands.push(words(&format!("-X {chain}")));
        }
    }
    commands
}

fn said(program: &str, arguments: &[&str]) -> anyhow::Result<String> {
    let output = Command::new(program)
        .args(arguments)
        .output()
        .with_context(|| format!("{program} does not start"))?;
    if !output.status.success() {
        bail!("{program}: {}", String::from_utf8_lossy(&output.stderr));
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_an_engines_rules_are_taken_out() {
        let before = "-P INPUT ACCEPT\n-P FORWARD ACCEPT\n-A INPUT -i docker0 -j DROP\n";
        let now = "-P INPUT ACCEPT\n-P FORWARD DROP\n-N DOCKER\n-N MINE\n-A INPUT -i docker0 -j DROP\n\
                   -A FORWARD -o docker0 -j DOCKER\n-A FORWARD -o vpn0 -j MINE\n-A DOCKER -j RETURN\n";
        let commands: Vec<_> = undone(before, now).iter().map(|w| w.join(" ")).collect();
        assert_eq!(
            commands,
            [
                "-P FORWARD ACCEPT",
                "-D FORWARD -o docker0 -j DOCKER",
                "-D DOCKER -j RETURN",
                "-X DOCKER",
            ]
        );
        assert_eq!(undone(now, now), Vec::<Vec<String>>::new());
    }
}
