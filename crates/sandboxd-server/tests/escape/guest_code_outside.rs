//! Files by which programs of the host are made to run a guest's code: loaders, hooks, settings that name commands.

use crate::place::Place;
use crate::wire::TOKEN;
use rustix::fd::OwnedFd;
use rustix::fs::inotify;
use serde_json::json;
use std::path::Path;

/// Says that it was loaded, outside or inside.
const LIBRARY: &str = r##"
#include <fcntl.h>
#include <unistd.h>
__attribute__((constructor)) static void loaded(void) { close(creat("/tmp/MARK", 0644)); }
"##;

/// Whoever opens files, seen by the kernel.
struct Watch {
    inotify: OwnedFd,
}

impl Watch {
    fn over(directory: &Path) -> Self {
        let flags = inotify::CreateFlags::CLOEXEC | inotify::CreateFlags::NONBLOCK;
        let inotify = inotify::init(flags).unwrap();
        for below in ["", "etc", "lib", "bin", ".git", ".git/hooks", ".vscode"] {
            inotify::add_watch(&inotify, directory.join(below), inotify::WatchFlags::OPEN).unwrap();
        }
        Self { inotify }
    }

    /// The files, directories left out, that were opened since this was asked last.
    fn opened(&self) -> Vec<String> {
        let mut buffer = [std::mem::MaybeUninit::uninit(); 4096];
        let mut events = inotify::Reader::new(&self.inotify, &mut buffer);
        let mut files = Vec::new();
        while let Ok(event) = events.next() {
            if !event.events().contains(inotify::ReadFlags::ISDIR) {
                let name = event.file_name().map(|name| name.to_string_lossy().into_owned());
                files.push(name.unwrap_or_default());
            }
        }
        files
    }
}

pub(crate) async fn nothing_in_a_workspace_is_loaded_or_run_by_the_service() {
    let place = Place::open_with(&[("SANDBOXD_MAX_SESSIONS", "1"), ("SANDBOXD_EVICT_IDLE_AFTER", "0")]).await;
    place.session("a").await;
    let mark = format!("escape-mark-{}", std::process::id());
    place.compile("a", "any", "int main(void) { return 0; }");
    std::fs::write(place.home().join("lib.c"), LIBRARY.replace("MARK", &mark)).unwrap();
    let built = std::process::Command::new("cc")
        .args(["-shared", "-fPIC", "-w", "-o"])
        .arg(place.stored("a").join("evil.so"))
        .arg(place.home().join("lib.c"))
        .status()
        .unwrap();
    assert!(built.success());
    let plant = format!(
        r#"
mkdir -p etc .git/hooks lib .vscode bin; for name in libnss_files.so.2 libnss_evil.so.2 libc.so.6 libgcc_s.so.1; do cp evil.so lib/$name; cp evil.so $name; done
echo /workspace/evil.so > etc/ld.so.preload; echo 'passwd: evil' > etc/nsswitch.conf
printf '#!/bin/sh\ntouch /tmp/{mark}\n' > run; chmod +x run
for hook in post-checkout pre-commit fsmonitor; do cp run .git/hooks/$hook; done
for name in sh bash ls cat tar git ps sandboxd; do cp run bin/$name; cp run $name; done
printf '[core]\n\tfsmonitor = /workspace/run\n\tpager = /workspace/run\n' > .gitconfig; cp .gitconfig .git/config
echo 'touch /tmp/{mark}' > .envrc; cp .envrc .bashrc; cp .envrc .profile
printf '{{"mcpServers": {{"x": {{"command": "/workspace/run"}}}}}}' > .mcp.json
printf '{{"tasks": [{{"command": "/workspace/run"}}]}}' > .vscode/tasks.json
printf 'import os; os.system("touch /tmp/{mark}")\n' > sitecustomize.py; cp sitecustomize.py x.pth; cp sitecustomize.py usercustomize.py
"#
    );
    place.says("a", &plant).await;
    let watch = Watch::over(&place.stored("a"));
    // To sleep and awake, and looked at from outside: none of it is even opened.
    for _ in 0..2 {
        for op in ["ls", "tree"] {
            place.post(&format!("/workspaces/a/{op}"), json!({"path": "."})).await.ok();
        }
        place.post("/sessions/a/files/list", json!({"path": "/workspace"})).await;
        place.post("/sessions/a/files/stat", json!({"path": "/workspace/evil.so"})).await;
        place.session("b").await;
        assert_eq!(place.get("/sessions/a").await.ok()["state"], "hibernated");
        place.ask(TOKEN, "DELETE", "/sessions/b?purge=true", None).await.nothing();
        assert!(place.run("a", &["/bin/true"], json!({})).await.worked());
    }
    assert_eq!(watch.opened(), Vec::<String>::new());
    // The twin: what is read is seen to be opened.
    let body = json!({"path": "/workspace/.envrc"});
    place.post("/sessions/a/files/read", body).await;
    assert_eq!(watch.opened(), [".envrc"]);
    // Everything that the service does with files, awake, asleep and closed.
    for _ in 0..2 {
        for op in ["ls", "read", "read_bytes", "tree"] {
            for path in [".", "evil.so", ".gitconfig", "sitecustomize.py"] {
                place.post(&format!("/workspaces/a/{op}"), json!({ "path": path })).await;
            }
        }
        for op in ["read", "stat", "list", "realpath"] {
            let body = json!({"path": "/workspace/.gitconfig"});
            place.post(&format!("/sessions/a/files/{op}"), body).await;
        }
        place.post("/sessions/b", json!({})).await;
        place.session("b").await;
        assert_eq!(place.get("/sessions/a").await.ok()["state"], "hibernated");
        place.ask(TOKEN, "DELETE", "/sessions/b?purge=true", None).await.nothing();
    }
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    assert!(!maps.contains("workspaces"), "{maps}");
    assert!(!std::path::Path::new("/tmp").join(&mark).exists());
    // The twin: where it is asked for by a program inside, it is loaded, inside.
    let loaded = place
        .run("a", &["/bin/sh", "-c", "true"], json!({"LD_PRELOAD": "/workspace/evil.so"}))
        .await;
    assert!(loaded.worked(), "{loaded:?}");
    assert!(place.says("a", "ls /tmp").await.contains(&mark));
    assert!(!std::path::Path::new("/tmp").join(&mark).exists());
    place.close().await;
}
