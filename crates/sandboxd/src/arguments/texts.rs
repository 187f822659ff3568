//! The longer help texts.

/// Below `sandboxd --help`.
pub(super) const AFTER: &str = "\
Examples:
  sandboxd run -- python3 -c 'print(1+1)'    one program, in a sandbox of its own
  sandboxd serve                             the HTTP service on 127.0.0.1:8080
  sandboxd image pull python:3.12-slim       an image to make runtimes from
  sandboxd doctor                            what this machine can do";

/// Above the flags of `sandboxd run`.
pub(super) const RUN: &str = "\
Run one program in a sandbox of its own, without a server.

The sandbox is made for this program and goes with it, however either of them ends. It sees a read-only system, an \
empty work directory (or the one given with --workspace), a private /tmp, and no network. Standard input, output and \
error are passed through byte for byte.";

/// Below the flags of `sandboxd run`.
pub(super) const RUN_AFTER: &str = "\
Exit codes:
  the program's own, or 128 + N when signal N ended it (137 also when it went over its memory)
  124  --timeout came first; everything the program started was ended
  125  sandboxd itself failed, or was used wrongly: one line on stderr says why
  126  the program was found, but cannot be executed
  127  there is no such program
  141  the reader of the output went away

Signals:
  Ctrl-C (INT) is passed to the program; what is left two seconds later gets TERM, then KILL.
  TERM and HUP send TERM, then KILL. A second signal kills at once. When sandboxd itself is
  killed, everything in the sandbox goes too.

Ceilings:
  A ceiling given as a flag (--memory, --cpus, --pids, --disk) is in force, or the run is refused. A
  default ceiling that this machine cannot enforce is named in one line on stderr;
  --allow-unenforced accepts either.

JSON (--json):
  exit_code, signal, timed_out, ended_by, killed_for (memory, pids, disk, time, output),
  limits_reached, duration_ms, stdout and stderr (text, the first MiB of
  each), stdout_truncated, stderr_truncated, enforced (per ceiling: enforced, reason), error (when there is one).

Examples:
  sandboxd run -- python3 -c 'print(1+1)'
  echo '1 2 3' | sandboxd run -- wc -w
  sandboxd run --timeout 30s --memory 256m -- ./build.sh
  sandboxd run --workspace . -- sh -c 'make && make test'
  sandboxd run -e LANG=C.UTF-8 -w src --workspace ~/project -- python3 main.py
  sandboxd run --json --timeout 5s -- python3 untrusted.py";

/// Above the flags of `sandboxd serve`.
pub(super) const SERVE: &str = "\
Serve sandboxes over HTTP.

Settings come from flags, then SANDBOXD_* variables, then the configuration file, then defaults. Without a configured \
token, and on a loopback address only, a token is made and kept in a file that only its owner can read; the start says \
where.

TERM or Ctrl-C lets what is running come to an end within a limit, then ends every sandbox; a second one ends them at \
once.";

/// Below the flags of `sandboxd serve`.
pub(super) const SERVE_AFTER: &str = "\
Exit codes:
  0  ended when asked (or --check found everything good)
  1  did not start: one line on stderr says why (or --check found something)
  2  wrong usage

Examples:
  sandboxd serve
  sandboxd serve --listen 127.0.0.1:0 --state-dir ./state
  sandboxd serve --config /etc/sandboxd.toml --check
  SANDBOXD_TOKEN=… sandboxd serve --listen 0.0.0.0:8080";

/// Above the flags of `sandboxd doctor`.
pub(super) const DOCTOR: &str = "\
Say what this host can do, what each missing thing costs, and how to get it.

Every answer is tried, not looked up: namespaces and mounts are made in short-lived processes of their own, and at the \
end a whole sandbox is started and ended.";

/// Below the flags of `sandboxd doctor`.
pub(super) const DOCTOR_AFTER: &str = "\
Exit codes:
  0  sandboxes can be made here
  1  they cannot: the lines marked `no` say why

Examples:
  sandboxd doctor
  sudo sandboxd doctor --state-dir /var/lib/sandboxd
  sandboxd doctor --json | jq '.checks[] | select(.state != \"yes\")'";

/// Above the flags of `sandboxd healthcheck`.
pub(super) const HEALTHCHECK: &str = "\
Ask the service on this host whether it lives, by GET /healthz, for five seconds at most.

Where it listens is read as `sandboxd serve` reads it: from SANDBOXD_* variables and the configuration file. One that was \
told by flags is asked with --listen. For the probe of a container, whose image has no other program to ask with.";

/// Below the flags of `sandboxd healthcheck`.
pub(super) const HEALTHCHECK_AFTER: &str = "\
Exit codes:
  0  it lives
  1  it does not, or nobody could be asked: one line on stderr says why
  2  wrong usage

Examples:
  sandboxd healthcheck
  sandboxd healthcheck --config /etc/sandboxd.toml
  sandboxd healthcheck --listen 127.0.0.1:9000";

/// Below `sandboxd completions`.
pub(super) const COMPLETIONS_AFTER: &str = "\
Examples:
  sandboxd completions bash > ~/.local/share/bash-completion/completions/sandboxd
  sandboxd completions zsh > ~/.zfunc/_sandboxd
  sandboxd completions fish > ~/.config/fish/completions/sandboxd.fish";

/// Above the commands of `sandboxd session`.
pub(super) const SESSION: &str = "\
Sessions as they are on this host's disk: their records, their stored files, the write layers they keep.

`ls` and `du` read the state directory, beside a running service as well as without one. `rm` has a running service do it; \
without one it takes the service's place for a moment.";

/// Below the commands of `sandboxd session`.
pub(super) const SESSION_AFTER: &str = "\
Examples:
  sandboxd session ls
  sandboxd session du
  sandboxd session rm --purge conversation-5f2c9a1e";

/// Below the flags of `sandboxd session ls`.
pub(super) const SESSION_LS_AFTER: &str = "\
States:
  running     it has a sandbox
  hibernated  it has none, and its next use makes one
  lost        its sandbox is gone, and its files with it
  closing     the service is removing it, or the next one will
  closed      it is over, and its files are stored

Examples:
  sandboxd session ls
  sandboxd session ls --json | jq -r '.[] | select(.state == \"closed\") | .session_id'";

/// Below the flags of `sandboxd session du`.
pub(super) const SESSION_DU_AFTER: &str = "\
Counted is what the file system has given out. Links are not followed, and a file with several names counts once. \
Images are shared by all sessions, so they are said once, below the sessions.

Examples:
  sandboxd session du
  sandboxd session du conversation-5f2c9a1e --json";

/// Below the flags of `sandboxd session rm`.
pub(super) const SESSION_RM_AFTER: &str = "\
Exit codes:
  0  all of them are gone
  1  one is not: a line on stderr says why

Examples:
  sandboxd session rm conversation-5f2c9a1e
  sandboxd session rm --purge conversation-5f2c9a1e conversation-77b0";

/// Above the commands of `sandboxd image`.
pub(super) const IMAGE: &str = "\
Images that runtimes are made from: fetched from registries or taken from files, unpacked once, shared by all sandboxes.

Works beside a running service on the same state directory. Nothing here needs Docker; credentials are those that \
`docker login` left in Docker's configuration file, credential helpers included.";

/// Below the commands of `sandboxd image`.
pub(super) const IMAGE_AFTER: &str = "\
Examples:
  sandboxd image pull python:3.12-slim
  docker save my-app:1 | sandboxd image import -
  sandboxd image ls";

/// Below the flags of `sandboxd image ls`.
pub(super) const IMAGE_LS_AFTER: &str = "\
Examples:
  sandboxd image ls
  sandboxd image ls --json";

/// Below the flags of `sandboxd image pull`.
pub(super) const IMAGE_PULL_AFTER: &str = "\
A name that is here already is looked up again, and follows its tag. A download that was cut off goes on where it was.

Examples:
  sandboxd image pull python:3.12-slim node:20-slim
  sandboxd image pull registry.example:5000/team/app@sha256:0123…";

/// Below the flags of `sandboxd image import`.
pub(super) const IMAGE_IMPORT_AFTER: &str = "\
Examples:
  docker save my-app:1 | sandboxd image import -
  sandboxd image import app.oci.tar
  sandboxd image import rootfs.tar.zst --name debian:mine
  sandboxd image import /srv/debian-root --name debian:mine";

/// Below the flags of `sandboxd image rm`.
pub(super) const IMAGE_RM_AFTER: &str = "\
An image from which a sandbox runs, or over which a sleeping session keeps its layer, is not removed.

Examples:
  sandboxd image rm python:3.12-slim
  sandboxd image rm 3f1c09aa";

/// Below the flags of `sandboxd image gc`.
pub(super) const IMAGE_GC_AFTER: &str = "\
A package cache goes where no recipe of the configuration uses it: give the configuration that the service has. What goes \
is fetched again by the next build.

Examples:
  sandboxd image gc
  sandboxd image gc --config /etc/sandboxd.toml";

/// Below the flags of `sandboxd image inspect`.
pub(super) const IMAGE_INSPECT_AFTER: &str = "\
Examples:
  sandboxd image inspect python:3.12-slim";

/// What `sandboxd runtime --help` says first.
pub(super) const RUNTIME: &str = "\
The runtimes that the configuration allows: what clients may rent, and what that is made from.

An image that is not here is fetched from its registry or built from its recipe: when the service starts (prewarm), when a
session needs it, or now.";

/// Below the flags of `sandboxd runtime`.
pub(super) const RUNTIME_AFTER: &str = "\
Examples:
  sandboxd runtime ls
  sandboxd runtime prepare";

/// Below the flags of `sandboxd runtime ls`.
pub(super) const RUNTIME_LS_AFTER: &str = "\
Examples:
  sandboxd runtime ls
  sandboxd runtime ls --json";

/// Below the flags of `sandboxd runtime prepare`.
pub(super) const RUNTIME_PREPARE_AFTER: &str = "\
Examples:
  sandboxd runtime prepare
  SANDBOXD_RUNTIMES=@default sandboxd runtime prepare coding";

/// Below the flags of `sandboxd runtime show`.
pub(super) const RUNTIME_SHOW_AFTER: &str = "\
Examples:
  sandboxd runtime show coding";
