//! The scripts of a build's steps. What somebody wrote reaches them as arguments, and is never a part of them.

/// Installs with Python's pip.
pub(super) const PIP: &str = r#"for python in python3 python; do
  if command -v "$python" >/dev/null; then exec "$python" -m pip install "$@"; fi
done
echo 'there is no Python in the base image' >&2
exit 127"#;

/// Not in the work directory, which a workspace hides; and not globally, where `require` does not look.
pub(super) const NPM: &str = r#"set -eu
mkdir -p /opt/node-packages
cd /opt/node-packages
if [ ! -e package.json ]; then echo '{"private": true}' >package.json; fi
npm install --no-audit --no-fund -- "$@"
rm -rf /tmp/sandboxd-build"#;

/// Installs Debian's packages, with downloads and lists kept out of the image. A step that is cut off is thrown away, and one
/// that is done is put on the disk as a whole, so dpkg need not do so file by file.
pub(super) const APT: &str = r#"set -eu
if [ -n "${SANDBOXD_BUILD_CACHE:-}" ]; then
  archives=$SANDBOXD_BUILD_CACHE/apt/archives
  lists=$SANDBOXD_BUILD_CACHE/apt/lists
  mkdir -p "$archives/partial" "$lists/partial"
else
  archives=/tmp/sandboxd-build/archives
  lists=/tmp/sandboxd-build/lists
  mkdir -p "$archives/partial" "$lists/partial"
fi
get() {
  apt-get -o APT::Sandbox::User=root -o Dpkg::Options::=--force-unsafe-io -o Dir::Cache::pkgcache= -o Dir::Cache::srcpkgcache= \
    -o "Dir::Cache::archives=$archives" -o "Dir::State::lists=$lists" "$@"
}
get update
get install -y --no-install-recommends "$@"
rm -rf /tmp/sandboxd-build"#;

/// Builds and installs programs of crates.
pub(super) const CARGO: &str = r#"set -eu
build=/tmp/sandboxd-build
export CARGO_HOME="${SANDBOXD_BUILD_CACHE:-$build}/cargo" CARGO_TARGET_DIR="$build/target"
cargo install --root /usr/local -- "$@"
rm -rf "$build""#;

/// Builds and installs programs of Go modules.
pub(super) const GO: &str = r#"set -eu
export GOBIN=/usr/local/bin GOFLAGS=-modcacherw
for package in "$@"; do
  case $package in *@*) ;; *) package=$package@latest ;; esac
  go install "$package"
done
rm -rf /tmp/sandboxd-build"#;

/// By hand and not by `useradd`, which not every base has; and whoever has the uid already gets the home. Where there is
/// one user for all ids, nothing can be given to anybody, and need not be.
///
/// What a virtual environment needs is not in every base: Debian keeps `ensurepip` apart, and others have no `venv`. The
/// account comes all the same, and what it has to do without is said. The directory is its own also where it is empty, so
/// that whoever brings a Python (`uv`) can make one there.
pub(super) const ACCOUNT: &str = r#"set -eu
uid=$1 home=$2
count=
if [ -r /proc/self/uid_map ]; then read -r _ _ count </proc/self/uid_map; fi
if [ "$count" = 1 ]; then own() { :; }; else own() { chown -R "$uid:$uid" "$@"; }; fi
if grep -q "^[^:]*:[^:]*:$uid:" /etc/passwd; then
  sed "s|^\([^:]*:[^:]*:$uid:[^:]*:[^:]*\):[^:]*:|\1:$home:|" /etc/passwd >/etc/passwd.new
  cat /etc/passwd.new >/etc/passwd
  rm /etc/passwd.new
else
  name=agent
  if grep -q '^agent:' /etc/passwd; then name=agent$uid; fi
  shell=/bin/sh
  if [ -x /bin/bash ]; then shell=/bin/bash; fi
  echo "$name:x:$uid:$uid::$home:$shell" >>/etc/passwd
  if [ -f /etc/shadow ]; then echo "$name:!::0:99999:7:::" >>/etc/shadow; fi
  if ! grep -q "^[^:]*:[^:]*:$uid:" /etc/group; then echo "$name:x:$uid:" >>/etc/group; fi
fi
mkdir -p "$home"
own "$home"
venv=/opt/venv
python=
for name in python3 python; do
  if command -v "$name" >/dev/null; then python=$name; break; fi
done
has_one=
if [ -e "$venv" ]; then has_one=1; fi
clear() { if [ -z "$has_one" ]; then rm -rf "$venv"; fi; }
make() { clear; why=$("$python" -m venv --system-site-packages "$@" "$venv" 2>&1); }
if [ -z "$python" ]; then
  echo 'no virtual environment: the base image has no Python'
elif make; then
  :
elif make --without-pip; then
  if "$venv/bin/python" -m pip --version >/dev/null 2>&1; then
    printf '#!/bin/sh\nexec %s/bin/python -m pip "$@"\n' "$venv" >"$venv/bin/pip"
    chmod 755 "$venv/bin/pip"
  else
    echo 'the virtual environment has no pip: the base image has neither pip nor ensurepip'
  fi
else
  clear
  printf 'no virtual environment: python -m venv fails in the base image: %s\n' "$why"
fi
mkdir -p "$venv"
own "$venv""#;
