//! What there is of a network on the host, as root: one table and one interface of each daemon's own, and nothing of them
//! afterwards, however it ended.

use crate::home::{assert_online, bridged, house, python};
use crate::lost_parts::end_below;
use crate::world::{World, arguments, as_root, role, says, sh, wait_for};
use std::io::{BufRead as _, BufReader};
use std::process::{Child, Command, Stdio};

/// Nothing of ours is left, and the host forwards as little as it did.
#[track_caller]
pub(crate) fn assert_clean() {
    assert_eq!(says("nft list tables | grep sandboxd || true"), "");
    wait_for(|| says("ip -o link | grep ' sbx-' || true").is_empty());
    assert_eq!(says("cat /proc/sys/net/ipv4/ip_forward").trim(), "0");
    let note =
        says("ls /run/sandboxd/forwarding-$(stat -Lc %i /proc/self/ns/net) 2>/dev/null || true");
    assert_eq!(note, "");
}

#[test]
fn two_daemons_have_each_their_own_and_take_it_with_them() {
    async fn case(_: World) {
        let (one, two) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let (first, second) = (house(one.path()).await, house(two.path()).await);
        assert_clean();
        let (a, b) = (first.rent(&bridged()).await, second.rent(&bridged()).await);
        let count = |what: &str| says(what).trim().to_owned();
        assert_eq!(count("nft list tables | grep -c sandboxd"), "2");
        assert_eq!(count("ip -o link | grep -c ' sbx-'"), "2");
        assert_eq!(count("cat /proc/sys/net/ipv4/ip_forward"), "1");
        a.end().await;
        first.close().await;
        assert_eq!(count("nft list tables | grep -c sandboxd"), "1");
        assert_eq!(count("cat /proc/sys/net/ipv4/ip_forward"), "1");
        assert_online(&b).await;
        b.end().await;
        second.close().await;
        assert_clean();
    }
    as_root(
        "on_the_host::two_daemons_have_each_their_own_and_take_it_with_them",
        case,
    );
}

/// A daemon that is going to be killed: this test again, in another process. By itself it does nothing.
#[test]
fn victim() {
    let Some(state) = role().and_then(|role| Some(role.strip_prefix("victim ")?.to_owned())) else {
        return;
    };
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(async {
        let state = state.rsplit(' ').next().unwrap();
        let house = house(std::path::Path::new(state)).await;
        let sandbox = house.rent(&bridged()).await;
        assert_online(&sandbox).await;
        println!("\nonline");
        std::future::pending::<()>().await;
        drop(sandbox);
    });
}

/// Starts one, and waits until it has a sandbox with a network.
pub(crate) fn victim_at(state: &std::path::Path) -> Child {
    let mut command = Command::new(std::env::current_exe().unwrap());
    let role = format!("victim {} {}", role().unwrap(), state.display());
    let mut child = arguments("on_the_host::victim", &role, &mut command)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let out = BufReader::new(child.stdout.take().unwrap());
    let online = out.lines().any(|line| line.unwrap() == "online");
    assert!(online, "it did not get that far");
    child
}

#[test]
fn what_a_daemon_leaves_that_was_killed_is_taken_away_by_its_launcher() {
    async fn case(_: World) {
        let state = tempfile::tempdir().unwrap();
        let mut victim = victim_at(state.path());
        assert_ne!(says("nft list tables | grep sandboxd"), "");
        victim.kill().unwrap();
        victim.wait().unwrap();
        wait_for(|| says("nft list tables | grep sandboxd || true").is_empty());
        let instances = state.path().join("instances");
        wait_for(|| std::fs::read_dir(&instances).unwrap().count() == 0);
        assert_clean();
    }
    as_root(
        "on_the_host::what_a_daemon_leaves_that_was_killed_is_taken_away_by_its_launcher",
        case,
    );
}

#[test]
fn what_both_leave_is_taken_away_by_the_next_start() {
    async fn case(_: World) {
        let state = tempfile::tempdir().unwrap();
        let mut victim = victim_at(state.path());
        // The launcher first, so that nobody is left who would tidy up.
        end_below("sandboxd-jail");
        victim.kill().unwrap();
        victim.wait().unwrap();
        assert_ne!(says("nft list tables | grep sandboxd"), "");
        // What the kernel keeps for somebody goes by itself.
        wait_for(|| says("ip -o link | grep ' sbx-' || true").is_empty());
        let next = house(state.path()).await;
        assert_clean();
        let again = next.rent(&bridged()).await;
        assert_online(&again).await;
        again.end().await;
        next.close().await;
        assert_clean();
    }
    as_root(
        "on_the_host::what_both_leave_is_taken_away_by_the_next_start",
        case,
    );
}

#[test]
fn a_firewall_that_is_loaded_anew_opens_nothing() {
    async fn case(_: World) {
        let state = tempfile::tempdir().unwrap();
        let house = house(state.path()).await;
        let service = std::net::TcpListener::bind("0.0.0.0:0").unwrap();
        let port = service.local_addr().unwrap().port();
        let before = house.rent(&bridged()).await;
        assert_online(&before).await;
        sh("nft flush ruleset");
        let program = format!(
            "for address in ('192.168.77.2', '198.51.100.2', '169.254.169.254', '10.9.9.9'): refused(address, {port}); refused(address, 80)\nprint('none')"
        );
        assert_eq!(python(&before, &program).await, "none");
        // With the next sandbox the table is there again, for all of them.
        let after = house.rent(&bridged()).await;
        assert_eq!(python(&after, &program).await, "none");
        assert_online(&after).await;
        assert_online(&before).await;
        before.end().await;
        after.end().await;
        house.close().await;
        assert_clean();
    }
    as_root(
        "on_the_host::a_firewall_that_is_loaded_anew_opens_nothing",
        case,
    );
}

#[test]
fn interfaces_that_were_there_stay_apart_and_others_rules_stay() {
    async fn case(_: World) {
        // Another machine on another interface of the host's, which did not forward.
        sh("ip link add inner0 type veth peer name inner1
            ip addr add 10.50.0.1/24 dev inner0; ip link set inner0 up; ip link set inner1 up
            nft add table inet theirs
            nft add chain inet theirs c '{ type filter hook forward priority 0; }'
            nft add rule inet theirs c counter");
        let theirs = says("nft -s list table inet theirs");
        let state = tempfile::tempdir().unwrap();
        let house = house(state.path()).await;
        let sandbox = house.rent(&bridged()).await;
        assert_online(&sandbox).await;
        let rules = says("nft list ruleset");
        let apart = rules.lines().find(|line| line.contains("iifname {"));
        let apart = apart.unwrap_or_else(|| panic!("nothing keeps them apart: {rules}"));
        for name in ["inner0", "inner1", "up0"] {
            assert_eq!(apart.matches(&format!("\"{name}\"")).count(), 2, "{apart}");
        }
        assert!(apart.ends_with("drop"), "{apart}");
        sandbox.end().await;
        house.close().await;
        assert_eq!(says("nft -s list table inet theirs"), theirs);
        assert_clean();
        // A host that forwards already keeps doing so.
        sh("echo 1 > /proc/sys/net/ipv4/ip_forward");
        let again = crate::home::house(state.path()).await;
        let sandbox = again.rent(&bridged()).await;
        assert_online(&sandbox).await;
        assert!(!says("nft list ruleset").contains("inner0"));
        sandbox.end().await;
        again.close().await;
        assert_eq!(says("cat /proc/sys/net/ipv4/ip_forward").trim(), "1");
    }
    as_root(
        "on_the_host::interfaces_that_were_there_stay_apart_and_others_rules_stay",
        case,
    );
}

#[test]
fn a_session_costs_the_host_nothing() {
    async fn case(_: World) {
        let state = tempfile::tempdir().unwrap();
        let house = house(state.path()).await;
        let first = house.rent(&bridged()).await;
        let before = (says("ip -o link | wc -l"), says("nft -s list ruleset"));
        let more = [
            house.rent(&bridged()).await,
            house.rent(&bridged()).await,
            house.rent(&bridged()).await,
        ];
        let after = (says("ip -o link | wc -l"), says("nft -s list ruleset"));
        assert_eq!(before, after);
        for sandbox in more {
            assert_online(&sandbox).await;
            sandbox.end().await;
        }
        first.end().await;
        house.close().await;
        assert_clean();
    }
    as_root("on_the_host::a_session_costs_the_host_nothing", case);
}
