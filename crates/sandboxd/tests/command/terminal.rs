//! What is shown while images are made ready: bars to whoever watches a terminal, lines in a log. On a real terminal.

use crate::images::root;
use crate::support::{Place, code, complaints, everyone, finish, start, text};
use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};

/// How wide that terminal is.
const COLUMNS: usize = 100;

/// Runs a command on a terminal of its own; what it wrote there is what is printed.
const TERMINAL: &str = r"
import fcntl, os, pty, struct, sys, termios
pid, terminal = pty.fork()
if pid == 0:
    fcntl.ioctl(1, termios.TIOCSWINSZ, struct.pack('HHHH', 24, 100, 0, 0))
    os.execv(sys.argv[1], sys.argv[1:])
while True:
    try: said = os.read(terminal, 65536)
    except OSError: break
    if not said: break
    os.write(1, said)
sys.exit(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
";

/// A registry with one image of one layer, a directory and three megabytes that nothing packs, which come slowly.
const REGISTRY: &str = r"
import hashlib, http.server, io, json, os, random, sys, tarfile, time
held = io.BytesIO()
with tarfile.open(fileobj=held, mode='w') as tar:
    tar.add(sys.argv[1], '.', filter=lambda entry: entry.replace(uid=int(sys.argv[2]), gid=int(sys.argv[2])))
    noise = tarfile.TarInfo('noise'); noise.size = 3 << 20; noise.uid = noise.gid = int(sys.argv[2])
    tar.addfile(noise, io.BytesIO(random.Random(1).randbytes(noise.size)))
layer = held.getvalue()
name = lambda data: 'sha256:' + hashlib.sha256(data).hexdigest()
machine = {'x86_64': 'amd64', 'aarch64': 'arm64'}.get(os.uname().machine, os.uname().machine)
config = json.dumps({'architecture': machine, 'os': 'linux', 'config': {}, 'rootfs': {'type': 'layers', 'diff_ids': [name(layer)]}}).encode()
kinds = 'application/vnd.oci.image.'
manifest = json.dumps({'schemaVersion': 2, 'mediaType': kinds + 'manifest.v1+json',
    'config': {'mediaType': kinds + 'config.v1+json', 'digest': name(config), 'size': len(config)},
    'layers': [{'mediaType': kinds + 'layer.v1.tar', 'digest': name(layer), 'size': len(layer)}]}).encode()
there = {'/v2/': b'{}', '/v2/app/manifests/1': manifest, '/v2/app/blobs/' + name(config): config, '/v2/app/blobs/' + name(layer): layer}
class Registry(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        body = there.get(self.path)
        self.send_response(200 if body else 404)
        if body == manifest: self.send_header('Content-Type', kinds + 'manifest.v1+json')
        self.send_header('Content-Length', str(len(body or b''))); self.end_headers()
        for at in range(0, len(body or b''), 65536):
            self.wfile.write(body[at:at + 65536])
            if body is layer: time.sleep(0.02)
    def log_message(self, *_): pass
server = http.server.ThreadingHTTPServer(('127.0.0.1', 0), Registry)
print(server.server_port, flush=True)
server.serve_forever()
";

struct Registry {
    child: Child,
    host: String,
}

impl Registry {
    fn of(place: &Place, root: &Path) -> Self {
        let mut child = Command::new("python3")
            .args(["-c", REGISTRY])
            .arg(root)
            .arg(place.uid().to_string())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .expect("python3");
        let mut port = String::new();
        let mut stdout = BufReader::new(child.stdout.take().expect("stdout"));
        stdout.read_line(&mut port).expect("a port");
        let host = format!("127.0.0.1:{}", port.trim());
        Self { child, host }
    }
}

impl Drop for Registry {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The command on a terminal, or with its streams in pipes.
fn done(place: &Place, on_a_terminal: bool, env: &[(&str, &str)], words: &[&str]) -> Output {
    let plain = place.command();
    let mut command = if on_a_terminal {
        let mut command = Command::new("python3");
        command.args(["-c", TERMINAL]);
        // What starts it has to be found by its whole path.
        command.arg(plain.get_program()).args(plain.get_args());
        command
            .env_clear()
            .envs(
                plain
                    .get_envs()
                    .filter_map(|(name, value)| Some((name, value?))),
            )
            .env("TERM", "xterm")
            .current_dir(place.path())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        command
    } else {
        plain
    };
    command
        .args(words)
        .env("SANDBOXD_STATE_DIR", place.path().join("home/state"))
        .envs(env.iter().copied());
    let output = finish(start(&mut command), Vec::new());
    assert_eq!(
        code(&output),
        0,
        "{}\n{}",
        text(&output.stdout),
        text(&output.stderr)
    );
    output
}

/// What is still to be read on a terminal when all was written to it: lines that were written over are gone. Whatever goes
/// past the last column goes on in the next line.
fn screen(said: &str) -> Vec<String> {
    let mut lines = vec![String::new()];
    let (mut row, mut column) = (0, 0);
    let mut letters = said.chars().peekable();
    while let Some(letter) = letters.next() {
        match letter {
            '\r' => column = 0,
            '\n' => {
                row += 1;
                if row == lines.len() {
                    lines.push(String::new());
                }
            }
            '\u{1b}' => {
                assert_eq!(letters.next(), Some('['), "{said:?}");
                let mut number = String::new();
                let end = loop {
                    match letters.next().expect("the end of a sequence") {
                        digit if digit.is_ascii_digit() || digit == '?' || digit == ';' => {
                            number.push(digit);
                        }
                        end => break end,
                    }
                };
                let by = number.parse().unwrap_or(1);
                match end {
                    'A' => row = row.saturating_sub(by),
                    'B' => row = (row + by).min(lines.len() - 1),
                    'K' if number == "2" => lines[row].clear(),
                    'K' | 'J' => lines[row].truncate(column),
                    'D' => column = column.saturating_sub(by),
                    'm' | 'l' | 'h' => {}
                    other => panic!("{other:?} in {said:?}"),
                }
            }
            letter => {
                if column == COLUMNS {
                    row += 1;
                    column = 0;
                    if row == lines.len() {
                        lines.push(String::new());
                    }
                }
                let mut line: Vec<char> = lines[row].chars().collect();
                line.resize(line.len().max(column + 1), ' ');
                line[column] = letter;
                lines[row] = line.into_iter().collect();
                column += 1;
            }
        }
    }
    lines.retain(|line| !line.trim().is_empty());
    lines
}

#[test]
fn a_pull_shows_a_bar_on_a_terminal_and_lines_in_a_log() {
    for who in everyone() {
        let place = Place::of(who);
        let root = root(&place);
        let registry = Registry::of(&place, &root);
        let name = format!("{}/app:1", registry.host);
        let watched = done(&place, true, &[], &["image", "pull", &name]);
        let said = text(&watched.stdout);
        assert!(
            said.contains(" MiB of ") && said.contains("ready"),
            "{said:?}"
        );
        // The bars are gone at the end, and what came of it stays.
        let left = screen(&said);
        assert_eq!(left.len(), 2, "{left:?} of {said:?}");
        assert!(left[0].starts_with("1 of 1 layers to fetch, "), "{left:?}");
        assert!(left[1].starts_with(&format!("{name}  sha256:")), "{left:?}");
        done(&place, false, &[], &["image", "rm", &name]);
        let logged = done(&place, false, &[], &["image", "pull", &name]);
        assert!(!text(&logged.stderr).contains('\u{1b}'), "{logged:?}");
        let lines = complaints(&logged);
        for part in [
            "1 of 1 layers to fetch, ",
            ": fetching ",
            ": unpacking",
            ": ready",
        ] {
            let here = lines.iter().filter(|line| line.contains(part));
            assert_eq!(here.count(), 1, "{part}: {lines:?}");
        }
        assert!(
            text(&logged.stdout).starts_with(&format!("{name}  sha256:")),
            "{logged:?}"
        );
    }
}

#[test]
fn an_import_shows_a_bar_on_a_terminal_and_lines_in_a_log() {
    for who in everyone() {
        let place = Place::of(who);
        let root = root(&place);
        let directory = root.display().to_string();
        let tar = place.path().join("root.tar").display().to_string();
        let packed = Command::new("tar")
            .args(["-C", &directory, "-cf", &tar, "."])
            .status();
        assert!(packed.expect("tar").success());
        for from in [&directory, &tar] {
            let words = ["image", "import", from, "--name", "app:1"];
            let watched = done(&place, true, &[], &words);
            let said = text(&watched.stdout);
            let size = if *from == tar { " MiB of " } else { " MiB" };
            assert!(said.contains(size), "{said:?}");
            let left = screen(&said);
            assert_eq!(left.len(), 1, "{left:?}");
            assert!(left[0].starts_with("app:1  sha256:"), "{left:?}");
            let logged = done(&place, false, &[], &words);
            let lines = complaints(&logged);
            assert_eq!(lines.len(), 1, "{lines:?}");
            assert!(lines[0].contains(&format!("{from}: reading")), "{lines:?}");
        }
    }
}

#[test]
fn a_build_shows_its_steps_on_a_terminal_and_what_programs_print_is_harmless_there() {
    let runtimes = r#"{"good": {"runtime": {"name": "good", "base_image": "app:1", "setup_commands":
        ["echo first; sleep 0.3", "printf '\\033]0;title\\007\\033[2J\\n'; sleep 0.3"]}}}"#;
    let runtimes = runtimes.replace(
        "sleep 0.3",
        "i=0; while [ $i -lt 200000 ]; do i=$((i+1)); done",
    );
    for who in everyone() {
        let place = Place::of(who);
        let root = root(&place).display().to_string();
        done(
            &place,
            false,
            &[],
            &["image", "import", &root, "--name", "app:1"],
        );
        let env = [
            ("SANDBOXD_RUNTIMES", runtimes.as_str()),
            ("SANDBOXD_BUILD_NETWORK", "none"),
            ("SANDBOXD_IMAGE_PULL", "never"),
        ];
        let watched = done(&place, true, &env, &["runtime", "prepare"]);
        let said = text(&watched.stdout);
        assert!(
            said.contains("0 of 2 steps") && said.contains("1 of 2 steps"),
            "{said:?}"
        );
        assert!(said.contains("first"), "{said:?}");
        assert!(
            !said.contains("\u{1b}]0") && !said.contains("\u{1b}[2J"),
            "{said:?}"
        );
        let left = screen(&said);
        assert_eq!(
            left.last().map(String::as_str),
            Some("good  ready"),
            "{left:?}"
        );
    }
}
