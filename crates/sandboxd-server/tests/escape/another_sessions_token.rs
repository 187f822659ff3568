//! The token of one session on every route of another, and on the service's own.

use crate::place::Place;
use crate::wire::{Reply, Request, TOKEN};
use serde_json::{Value, json};

/// Every route of the document, with its methods: what is added to the service is tried without a word here.
fn routes() -> Vec<(String, String)> {
    let document: Value = serde_json::from_str(&sandboxd_server::api::openapi_document()).unwrap();
    let paths = document["paths"].as_object().unwrap();
    let mut all = Vec::new();
    for (path, methods) in paths {
        for method in methods.as_object().unwrap().keys() {
            let upper = method.to_ascii_uppercase();
            if ["GET", "POST", "PUT", "DELETE", "PATCH"].contains(&upper.as_str()) {
                all.push((upper, path.clone()));
            }
        }
    }
    all
}

/// A body that every route can read.
fn body() -> Value {
    json!({
        "argv": ["/bin/true"], "run_id": crate::wire::run_id(1), "command": "true", "path": ".", "pattern": "*",
        "content_b64": "", "old_string": "a", "new_string": "b", "sessions": ["b"],
    })
}

async fn ask(place: &Place, token: Option<&str>, method: &str, path: &str) -> Reply {
    let mut request = Request::new(place.addr, method, path);
    if let Some(token) = token {
        request = request.token(token);
    }
    if method != "GET" {
        request = request.json(&body());
    }
    request.send().await
}

pub(crate) async fn it_opens_nothing_but_its_own() {
    let place = Place::open().await;
    let own = place.session("a").await;
    let other = place.session("b").await;
    place.says("b", "echo secret > file").await;
    let routes = routes();
    let open = ["/", "/healthz", "/readyz", "/openapi.json", "/docs", "/redoc", "/ui"];
    let mut tried = 0;
    for (method, route) in &routes {
        if open.contains(&route.as_str()) {
            continue;
        }
        let at = |id: &str| {
            route
                .replace("{session_id}", id)
                .replace("{run_id}", &crate::wire::run_id(1))
        };
        let has_session = route.contains("{session_id}");
        let mut verdicts = Vec::new();
        // Another's, one that nobody has, and names that are made to look like one's own.
        for id in ["b", "nobodys", "a%2f..%2fb", "..%2fb", "b%00", "a;b", "%61/../b"] {
            for token in [Some(own.as_str()), None, Some(""), Some("x"), Some("a")] {
                if route.starts_with("/workspaces") || !has_session || token != Some(own.as_str()) || id != "a" {
                    let reply = ask(&place, token, method, &at(id)).await;
                    assert!(
                        [401, 404, 405, 422].contains(&reply.status),
                        "{method} {} with {token:?}: {} {}",
                        at(id),
                        reply.status,
                        reply.text()
                    );
                    assert!(!reply.text().contains("secret"), "{}", reply.text());
                    if ["b", "nobodys"].contains(&id) && token == Some(own.as_str()) {
                        verdicts.push((reply.status, reply.text().replace("nobodys", "b")));
                    }
                    tried += 1;
                }
            }
        }
        // "Another's" and "not there" are told apart by nobody.
        assert!(verdicts.iter().all(|verdict| *verdict == verdicts[0]), "{method} {route}: {verdicts:?}");
        assert!(verdicts.iter().all(|verdict| verdict.0 == 401), "{method} {route}: {verdicts:?}");
    }
    assert!(tried > 500, "{tried}");
    // The twins: its own session answers it, and the other one lives.
    for (token, id) in [(&own, "a"), (&other, "b")] {
        let reply = ask(&place, Some(token), "GET", &format!("/sessions/{id}")).await;
        assert_eq!(reply.status, 200, "{}", reply.text());
    }
    assert_eq!(place.says("b", "cat file").await, "secret");
    // A token ends with its session, also where the id is taken again.
    place.purge("a").await;
    place.session("a").await;
    assert_eq!(ask(&place, Some(&own), "GET", "/sessions/a").await.status, 401);
    place.close().await;
}

pub(crate) async fn nothing_inside_is_a_credential() {
    let place = Place::open().await;
    let own = place.session("a").await;
    let other = place.session("b").await;
    let state = place.home().join("state");
    let mut secrets = vec![TOKEN.to_owned(), own, other, crate::place::CANARY.to_owned()];
    // What the service keeps to itself, as it lies there and as text.
    for entry in std::fs::read_dir(&state).unwrap().flatten() {
        if let Ok(content) = std::fs::read(entry.path())
            && (16..=128).contains(&content.len())
        {
            secrets.push(content.iter().map(|byte| format!("{byte:02x}")).collect());
            secrets.push(String::from_utf8_lossy(&content).trim().to_owned());
        }
    }
    secrets.retain(|secret| secret.len() >= 8 && !secret.contains('\u{fffd}'));
    assert!(secrets.len() >= 4);
    let wanted = serde_json::to_string(&secrets).unwrap();
    let program = format!(
        r"
import json, os
secrets = [s.encode() for s in json.loads(r'''{wanted}''')]
found, read = [], 0
def look(path, text):
    global read
    read += 1
    for secret in secrets:
        if secret in text: found.append((path, secret))
mine = os.getpid()
for pid in filter(str.isdigit, os.listdir('/proc')):
    if int(pid) == mine: continue
    for name in ('environ', 'cmdline', 'maps', 'mountinfo', 'cgroup', 'status', 'comm', 'stat', 'limits'):
        try: look(f'/proc/{{pid}}/{{name}}', open(f'/proc/{{pid}}/{{name}}', 'rb').read())
        except OSError: pass
    for n in range(64):
        try: look(f'/proc/{{pid}}/fd/{{n}}', os.readlink(f'/proc/{{pid}}/fd/{{n}}').encode())
        except OSError: pass
look('environment', repr(os.environ).encode())
for name in ('mounts', 'net/unix', 'net/tcp', 'sysvipc/shm', 'cmdline', 'keys', 'locks', 'swaps'):
    try: look(name, open('/proc/' + name, 'rb').read())
    except OSError: pass
for top, directories, names in os.walk('/'):
    if top.startswith(('/proc', '/usr', '/nix')): directories[:] = []; continue
    for name in names:
        path = os.path.join(top, name)
        look(path, path.encode())
        try:
            if os.path.isfile(path) and not os.path.islink(path) and os.path.getsize(path) < 1 << 20: look(path, open(path, 'rb').read())
        except OSError: pass
# And what it can see of its own memory: what the guest left there.
for line in open('/proc/self/maps'):
    area, mode = line.split()[:2]
    if '[stack]' in line: 
        begin, end = (int(n, 16) for n in area.split('-'))
        memory = open('/proc/self/mem', 'rb'); memory.seek(begin)
        text = memory.read(end - begin)
        read += 1
assert not found, found
print(read)
"
    );
    // Handed over as a file, so that the words looked for are not in the program's own arguments.
    std::fs::write(place.stored("b").join("look"), &program).unwrap();
    let text = std::fs::read(place.stored("b").join("look")).unwrap();
    std::fs::remove_file(place.stored("b").join("look")).unwrap();
    std::fs::write(place.home().join("outside/canary"), crate::place::CANARY).unwrap();
    let path = "/sessions/a/files/write?path=/workspace/look";
    let written = Request::new(place.addr, "POST", path).token(TOKEN).body(&text).send().await;
    written.nothing();
    let did = place
        .sh("a", "mv look /dev/shm/look && exec /usr/bin/python3 -c \"import os; text = open('/dev/shm/look').read(); os.remove('/dev/shm/look'); exec(text)\"")
        .await;
    assert!(did.worked(), "{did:?}");
    assert!(did.out.trim().parse::<u32>().unwrap() > 60, "{did:?}");
    place.close().await;
}

pub(crate) async fn no_answer_and_no_log_holds_a_token() {
    let place = Place::open().await;
    let own = place.session("a").await;
    let mut asked = 0;
    for (method, route) in routes() {
        for id in ["a", "b", "%00"] {
            for token in [own.as_str(), TOKEN, "a-guess-that-is-wrong"] {
                if method == "DELETE" && id == "a" {
                    continue;
                }
                let path = route
                    .replace("{session_id}", id)
                    .replace("{run_id}", &crate::wire::run_id(9));
                let reply = ask(&place, Some(token), &method, &path).await;
                let opens = method == "POST" && route == "/sessions";
                assert!(opens || !reply.text().contains(&own), "{method} {path}: {}", reply.text());
                assert!(!reply.text().contains(TOKEN), "{method} {path}: {}", reply.text());
                assert!(!reply.text().contains("a-guess-that-is-wrong"), "{method} {path}: {}", reply.text());
                asked += 1;
            }
        }
    }
    assert!(asked > 200, "{asked}");
    // What is on disk: the secret that tokens are made from is its owner's, and no token lies beside it.
    use std::os::unix::fs::PermissionsExt as _;
    let mut private = 0;
    for entry in std::fs::read_dir(place.home().join("state")).unwrap().flatten() {
        let metadata = entry.metadata().unwrap();
        if metadata.is_file() {
            let mode = metadata.permissions().mode() & 0o077;
            assert_eq!(mode, 0, "{:?}", entry.path());
            let content = std::fs::read(entry.path()).unwrap();
            let text = String::from_utf8_lossy(&content);
            assert!(!text.contains(&own) && !text.contains(TOKEN), "{:?}", entry.path());
            private += 1;
        }
    }
    assert!(private > 0);
    place.close().await;
}
