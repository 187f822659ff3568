//! Markup by the names and the output of a guest, in a page that somebody trusts with a token.

use crate::place::Place;
use crate::wire::{Request, TOKEN};
use serde_json::json;

const MARKUP: &str = "<img src=x onerror=alert(1)></script><svg onload=alert(1)>";

pub(crate) async fn nothing_of_a_guests_is_markup_anywhere() {
    let place = Place::open().await;
    place.session("a").await;
    // File names, contents, output, arguments: each has been the way in somewhere.
    let name = "<img src=x onerror=alert(1)>";
    place.says("a", &format!("echo '{MARKUP}' > '{name}'; cp '{name}' x.html; cp '{name}' x.svg; echo '{MARKUP}'")).await;
    place.run("a", &["/bin/echo", MARKUP], json!({})).await;
    for page in ["/ui", "/docs"] {
        let reply = Request::new(place.addr, "GET", page).send().await;
        assert_eq!(reply.status, 200);
        let policy = reply.header("content-security-policy").unwrap();
        for part in ["default-src 'none'", "frame-ancestors 'none'", "base-uri 'none'", "form-action 'none'"] {
            assert!(policy.contains(part), "{page}: {policy}");
        }
        for word in ["unsafe-inline", "unsafe-eval", "data:", "*", "http:", "https:"] {
            assert!(!policy.contains(word), "{page}: {policy}");
        }
        assert_eq!(reply.header("x-content-type-options"), Some("nosniff"));
        assert_eq!(reply.header("set-cookie"), None);
        let text = reply.text();
        // The pages are the same for everybody: what a guest said is asked for later, and set as text.
        assert!(!text.contains("alert(1)"), "{page}");
        for way in ["innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(", "onclick=", "onerror=", "javascript:"] {
            assert!(!text.contains(way), "{page}: {way}");
        }
    }
    // Whatever a browser is led to, it gets nothing that it would run.
    let path = format!("/workspace/{name}");
    let file = |path: &str| json!({ "path": path });
    for (route, body) in [
        ("/sessions/a/files/read", file(&path)),
        ("/sessions/a/files/read", file("/workspace/x.html")),
        ("/sessions/a/files/read", file("/workspace/x.svg")),
        ("/sessions/a/files/list", file("/workspace")),
        ("/workspaces/a/ls", file(".")),
        ("/workspaces/a/read", file("x.html")),
        ("/workspaces/a/read_bytes", file("x.svg")),
        ("/sessions/a/read", file("x.html")),
        ("/sessions/a/exec", json!({"command": "cat x.html"})),
        ("/sessions/a/read", file(MARKUP)),
    ] {
        let reply = place.post(route, body).await;
        let kind = reply.header("content-type").unwrap_or_default();
        assert!(["application/json", "application/octet-stream"].contains(&kind), "{route}: {kind}");
        assert_eq!(reply.header("x-content-type-options"), Some("nosniff"), "{route}");
        assert_eq!(reply.header("access-control-allow-origin"), None, "{route}");
    }
    for path in [format!("/sessions/{}", "%3Csvg%20onload=alert(1)%3E"), "/%3Cscript%3Ealert(1)%3C/script%3E".to_owned(), "/sessions/a/events".to_owned()] {
        let reply = place.ask(TOKEN, "GET", &path, None).await;
        let kind = reply.header("content-type").unwrap_or_default();
        assert_eq!(kind, "application/json", "{path}");
        assert_eq!(reply.header("x-content-type-options"), Some("nosniff"), "{path}");
    }
    // Another page cannot act in somebody's name: there is no cookie, and a form carries no token.
    let forged = Request::new(place.addr, "POST", "/sessions")
        .header("Origin", "http://evil.example")
        .header("Cookie", &format!("token={TOKEN}; X-Sandbox-Token={TOKEN}"))
        .header("Content-Type", "application/x-www-form-urlencoded")
        .body(b"session_id=forged")
        .send()
        .await;
    assert_eq!(forged.status, 401, "{}", forged.text());
    let asked = Request::new(place.addr, "OPTIONS", "/sessions")
        .header("Origin", "http://evil.example")
        .header("Access-Control-Request-Method", "POST")
        .header("Access-Control-Request-Headers", "X-Sandbox-Token")
        .send()
        .await;
    assert_eq!(asked.header("access-control-allow-origin"), None);
    place.close().await;
}
