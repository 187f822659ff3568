//! `--network bridge`, and what is said where it cannot be had. What such a sandbox reaches is tried beside the backend;
//! here nothing is reached, in a network namespace that is the whole host of a test.

use crate::support::{Place, Who, code, finish, is_root, start, text};
use serde_json::Value;
use std::process::{Command, Output};

/// The command as root, with these words, on a host with loopback alone and after this script.
fn on_a_host(place: &Place, script: &str, words: &[&str]) -> Output {
    let wrapped = place.command();
    let mut command = Command::new("unshare");
    command.args(["--net", "--mount", "--propagation", "private", "--"]);
    // The kernel may give a namespace what somebody else has switched on for the host.
    let script =
        format!("echo 0 > /proc/sys/net/ipv4/ip_forward\nip link set lo up\n{script}\nexec \"$@\"");
    command.args(["sh", "-ec", &script, "sh"]);
    command.arg(wrapped.get_program()).args(words);
    command.env_clear();
    for (name, value) in wrapped.get_envs() {
        command.env(name, value.unwrap_or_default());
    }
    command
        .env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin")
        .env("SANDBOXD_NETWORK_DNS", "192.0.2.53")
        .current_dir(place.path())
        .stdin(std::process::Stdio::null())
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::piped());
    finish(start(&mut command), Vec::new())
}

/// There is no `nft` on such a host.
const WITHOUT_NFT: &str = "mount --bind /dev/null \"$(readlink -f /usr/sbin/nft)\"";

#[test]
fn a_run_has_the_network_that_was_asked_for() {
    if !is_root() {
        return;
    }
    let place = Place::of(Who::Root);
    let program = "tail -n +3 /proc/net/dev | cut -d: -f1 | tr -d ' '; cat /etc/resolv.conf";
    let run = |network: &[&str]| {
        let mut words = vec!["run", "--json"];
        words.extend(network);
        words.extend(["--", "sh", "-c", program]);
        let output = on_a_host(&place, "", &words);
        assert_eq!(code(&output), 0, "{output:?}");
        let object: Value = serde_json::from_slice(&output.stdout).expect("an object");
        let how = object["enforced"]["network"]["reason"]
            .as_str()
            .expect("text");
        (
            object["stdout"].as_str().expect("text").to_owned(),
            how.to_owned(),
        )
    };
    let (seen, how) = run(&["--network", "bridge"]);
    assert!(
        seen.starts_with("lo\neth0\nnameserver 192.0.2.53\n"),
        "{seen}"
    );
    assert!(how.contains("outbound"), "{how}");
    for none in [&["--network", "none"][..], &[]] {
        let (seen, how) = run(none);
        assert!(
            seen.starts_with("lo\n") && !seen.contains("nameserver"),
            "{seen}"
        );
        assert!(how.contains("nothing but loopback"), "{how}");
    }
    assert_eq!(place.left_files(), [""; 0]);
}

#[test]
fn what_cannot_be_had_is_refused_and_said_beforehand() {
    if !is_root() {
        return;
    }
    let place = Place::of(Who::Root);
    let words = ["run", "--network", "bridge", "--", "true"];
    let refused = on_a_host(&place, WITHOUT_NFT, &words);
    let said = text(&refused.stderr);
    assert_eq!(code(&refused), 125, "{said}");
    assert!(
        said.contains("network") && said.contains("nftables"),
        "{said}"
    );
    let mut accepting = words.to_vec();
    accepting.splice(1..1, ["--allow-unenforced", "network"]);
    assert_eq!(code(&on_a_host(&place, WITHOUT_NFT, &accepting)), 0);

    let check = |script: &str| {
        let runtimes = "runtimes=plain=host,wide=host;network_mode=bridge";
        let words = ["serve", "--check", "--set", runtimes];
        text(&on_a_host(&place, script, &words).stdout)
    };
    let line = |said: &str| {
        let found = said.lines().find(|line| line.contains("runtime wide"));
        found.unwrap_or_else(|| panic!("{said}")).to_owned()
    };
    let missing = line(&check(WITHOUT_NFT));
    assert!(
        missing.starts_with("warning") && missing.contains("nftables"),
        "{missing}"
    );
    let there = line(&check(""));
    assert!(there.starts_with("ok"), "{there}");

    let doctor = |script: &str| {
        let said = text(&on_a_host(&place, script, &["doctor"]).stdout);
        let found = said.lines().find(|line| line.contains("network: bridge"));
        found.unwrap_or_else(|| panic!("{said}")).to_owned()
    };
    assert!(doctor("").starts_with("yes"));
    let missing = doctor(WITHOUT_NFT);
    assert!(
        missing.starts_with("no") && missing.contains("nftables"),
        "{missing}"
    );
}

/// Serves, opens a session with a network, looks at it, and ends the service by the signal that the first word names.
const SERVING: &str = r#"
import json, os, signal, subprocess, sys, urllib.request
how, binary, state = sys.argv[1:]
env = dict(os.environ, SANDBOXD_TOKEN="t", SANDBOXD_RUNTIMES="wide=host;network_mode=bridge")
service = subprocess.Popen([binary, "serve", "--listen", "127.0.0.1:0", "--state-dir", state], env=env, stdout=subprocess.PIPE, text=True)
def ask(method, path, body=None):
    data = None if body is None else json.dumps(body).encode()
    headers = {"X-Sandbox-Token": "t", "Content-Type": "application/json"}
    return json.loads(urllib.request.urlopen(urllib.request.Request(address + path, data, headers, method=method), timeout=60).read())
try:
    address = next(line.split()[-1] for line in service.stdout if line.startswith("listening"))
    ask("POST", "/sessions", {"session_id": how})
    print(ask("GET", "/sessions/" + how)["enforced"]["network"]["reason"])
    run = {"argv": ["sh", "-c", "tail -n +3 /proc/net/dev | cut -d: -f1"], "run_id": "0" * 32}
    print(ask("POST", "/sessions/" + how + "/run", run)["stdout"].split())
    print(subprocess.run("nft list tables | grep -c sandboxd", shell=True, capture_output=True, text=True).stdout.strip(), flush=True)
    service.send_signal(getattr(signal, how))
    service.wait(60)
finally:
    service.kill()
"#;

#[test]
fn a_service_that_gave_up_its_power_gives_networks_and_takes_them_away() {
    if !is_root() {
        return;
    }
    let place = Place::of(Who::Root);
    let state = place.path().join("home/state").display().to_string();
    // However the service ends: in order, or killed, when its launcher is left to tidy up.
    for signal in ["SIGTERM", "SIGKILL"] {
        let script = format!(
            "python3 -c '{}' {signal} \"$1\" {state}
             for i in $(seq 300); do nft list tables | grep -q sandboxd || break; sleep 0.1; done
             nft list tables; ip -o link | grep sbx- || true; cat /proc/sys/net/ipv4/ip_forward; set -- true",
            SERVING.trim()
        );
        let output = on_a_host(&place, &script, &[]);
        let said = text(&output.stdout);
        let lines: Vec<&str> = said.lines().collect();
        assert_eq!(code(&output), 0, "{output:?}");
        assert!(
            lines[0].contains("address translation on the host"),
            "{said}"
        );
        assert_eq!(lines[1..], ["['lo', 'eth0']", "1", "0"], "{signal}: {said}");
    }
}
