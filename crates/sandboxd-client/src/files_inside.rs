//! Files of a sandbox by programs inside it: what the native routes hand back.
//!
//! The scripts need a POSIX `sh` and what comes with it (`dd`, `base64`, `readlink`, `wc`), and take paths as arguments,
//! never as text of the script.

use crate::error::RequestError;
use crate::files::FileError;
use crate::run::{Command, Output, RunError, RunId};
use crate::sandbox::Sandbox;
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use bytes::Bytes;
use sandboxd_api::files::FileEntry;
use std::sync::Arc;

/// What the scripts exit with, apart from what programs do.
mod exit {
    pub(super) const NOT_FOUND: u8 = 101;
    pub(super) const IS_A_DIRECTORY: u8 = 103;
    pub(super) const NOT_A_DIRECTORY: u8 = 104;
    pub(super) const ALREADY_EXISTS: u8 = 105;
    pub(super) const SPECIAL: u8 = 106;
    pub(super) const WORK_DIRECTORY: u8 = 107;
}

/// What every script begins with. `missing` tells apart why there is nothing at a path.
const PRELUDE: &str = r#"
there() { [ -e "$1" ] || [ -L "$1" ]; }
missing() {
  p=$1
  while p=${p%/*}; [ -n "$p" ]; do
    if there "$p"; then [ -d "$p" ] || exit 104; exit 101; fi
  done
  exit 101
}
"#;

/// `$2` blocks to skip, `$3` blocks to read.
const READ: &str = r#"
there "$1" || missing "$1"
[ -e "$1" ] || exit 101
[ -d "$1" ] && exit 103
[ -f "$1" ] || exit 106
[ -r "$1" ] || { echo 'permission denied' >&2; exit 1; }
dd if="$1" bs=65536 skip="$2" count="$3" 2>/dev/null | base64
"#;

/// `$2` names the temporary file, `$3` is `first` where it has to be made, `$4` is `last` where it becomes the file, `$5`
/// is base64.
const WRITE: &str = r#"
[ -d "$1" ] && exit 103
t=$1
if [ -L "$1" ]; then t=$(readlink -f "$1") || { echo 'the link leads nowhere' >&2; exit 1; }; fi
[ -e "$t" ] && { [ -f "$t" ] || exit 106; }
d=${t%/*}
tmp=$d/.sandboxd-$2.tmp
if [ "$3" = first ]; then
  mkdir -p -- "$d/" || { (missing "$t"); [ $? = 104 ] && exit 104; exit 1; }
  : >"$tmp" || exit 1
fi
printf %s "$5" | base64 -d >>"$tmp" || { rm -f "$tmp"; exit 1; }
if [ "$4" = last ]; then
  if [ -e "$t" ]; then m=$(stat -c %a -- "$t") && chmod "$m" "$tmp"; fi
  mv -f -- "$tmp" "$t" || { rm -f "$tmp"; exit 1; }
fi
"#;

const STAT: &str = r#"
there "$1" || missing "$1"
[ -e "$1" ] || exit 101
if [ -d "$1" ]; then printf d; elif [ -f "$1" ] && [ -r "$1" ]; then printf f; wc -c <"$1"; else printf s; fi
"#;

const LIST: &str = r#"
there "$1" || missing "$1"
[ -e "$1" ] || exit 101
[ -d "$1" ] || exit 104
cd -- "$1" || exit 1
for f in * .[!.]* ..?*; do
  there "$f" || continue
  if [ -d "$f" ]; then printf 'd\t\t%s\0' "$f"
  elif [ -f "$f" ] && [ -r "$f" ]; then n=$(wc -c <"$f"); printf 'f\t%s\t%s\0' "$n" "$f"
  else printf 's\t\t%s\0' "$f"; fi
done
"#;

const MAKE_DIR: &str = r#"
[ -d "$1" ] && exit 0
there "$1" && exit 105
mkdir -p -- "$1" || { (missing "$1"); [ $? = 104 ] && exit 104; exit 1; }
"#;

const REMOVE: &str = r#"
there "$1" || missing "$1"
if [ -d "$1" ] && [ ! -L "$1" ]; then
  r=$(cd -- "$1" && pwd -P) || exit 1
  case "$(pwd -P)/" in "${r%/}/"*) exit 107;; esac
fi
rm -rf -- "$1"
"#;

/// The `x` keeps line ends that belong to a name.
const REALPATH: &str = r#"
p=$1 rest=
while [ -n "$p" ] && [ "$p" != / ] && ! there "$p"; do rest=/${p##*/}$rest p=${p%/*}; done
[ -n "$p" ] || p=/
if r=$(readlink -f "$p" && echo x); then r=${r%x}; r=${r%
}; else r=$p; fi
[ "$r" = / ] && [ -n "$rest" ] && r=
printf %s "$r$rest"
"#;

/// Blocks of 64 KiB that one run reads: below the limit of a run's output as base64.
const BLOCKS: usize = 64;
const BLOCK_BYTES: usize = 65536;
/// Bytes that one run writes: below the limit of one argument as base64.
const WRITE_BYTES: usize = 48 * 1024;

impl Sandbox {
    pub(crate) async fn read_inside(&self, path: &str) -> Result<Bytes, FileError> {
        let mut content = Vec::new();
        let limit = self.http().answer_bytes_max;
        for turn in 0_usize.. {
            let arguments = [(turn * BLOCKS).to_string(), BLOCKS.to_string()];
            let output = self.inside(path, READ, &arguments).await?;
            let mut text = output.stdout;
            text.retain(|character| !character.is_ascii_whitespace());
            let chunk = BASE64_STANDARD
                .decode(text)
                .map_err(|_| FileError::Failed {
                    path: path.to_owned(),
                    exit_code: output.exit_code,
                    said: "what was read is not base64".to_owned(),
                })?;
            content.extend_from_slice(&chunk);
            if content.len() > limit {
                return Err(RequestError::AnswerTooLong { limit }.into());
            }
            if chunk.len() < BLOCKS * BLOCK_BYTES {
                break;
            }
        }
        Ok(content.into())
    }

    pub(crate) async fn write_inside(&self, path: &str, content: &[u8]) -> Result<(), FileError> {
        let mark = RunId::fresh().to_string();
        // An empty file is one empty part.
        let parts: Vec<&[u8]> = match content {
            [] => vec![content],
            _ => content.chunks(WRITE_BYTES).collect(),
        };
        for (turn, part) in parts.iter().enumerate() {
            let first = if turn == 0 { "first" } else { "further" };
            let last = if turn + 1 == parts.len() {
                "last"
            } else {
                "further"
            };
            let arguments = [
                mark.clone(),
                first.to_owned(),
                last.to_owned(),
                BASE64_STANDARD.encode(part),
            ];
            self.inside(path, WRITE, &arguments).await?;
        }
        Ok(())
    }

    pub(crate) async fn stat_inside(&self, path: &str) -> Result<FileEntry, FileError> {
        let output = self.inside(path, STAT, &[]).await?;
        let name = path
            .trim_end_matches('/')
            .rsplit('/')
            .next()
            .unwrap_or_default();
        let (kind, size) = output.stdout.split_at_checked(1).unwrap_or(("s", ""));
        Ok(entry(kind, size, name, path.to_owned()))
    }

    pub(crate) async fn list_inside(&self, path: &str) -> Result<Vec<FileEntry>, FileError> {
        let output = self.inside(path, LIST, &[]).await?;
        let root = path.trim_end_matches('/');
        let rows = output.stdout.split_terminator('\0');
        let mut entries: Vec<_> = rows
            .filter_map(|row| {
                let mut fields = row.splitn(3, '\t');
                let (kind, size, name) = (fields.next()?, fields.next()?, fields.next()?);
                Some(entry(kind, size, name, format!("{root}/{name}")))
            })
            .collect();
        entries.sort_by(|one, other| one.name.cmp(&other.name));
        Ok(entries)
    }

    pub(crate) async fn make_dir_inside(&self, path: &str) -> Result<(), FileError> {
        self.inside(path, MAKE_DIR, &[]).await.map(drop)
    }

    pub(crate) async fn remove_inside(&self, path: &str) -> Result<(), FileError> {
        self.inside(path, REMOVE, &[]).await.map(drop)
    }

    pub(crate) async fn realpath_inside(&self, path: &str) -> Result<String, FileError> {
        Ok(self.inside(path, REALPATH, &[]).await?.stdout)
    }

    /// Runs a script on a path, and gives the script's exit codes their meaning.
    async fn inside(
        &self,
        path: &str,
        script: &str,
        arguments: &[String],
    ) -> Result<Output, FileError> {
        let invalid = |reason: &str| FileError::InvalidPath {
            path: path.to_owned(),
            reason: reason.to_owned(),
        };
        if !path.starts_with('/') {
            return Err(invalid("is not absolute"));
        }
        if path.contains('\0') {
            return Err(invalid("contains a NUL byte"));
        }
        let script = format!("{PRELUDE}{script}");
        let mut command = Command::new(["/bin/sh", "-c", &script, "sandboxd-files", path]);
        command.argv.extend_from_slice(arguments);
        let output = self
            .run(&command.timeout(self.plan().request_timeout))
            .await?;
        let path = path.to_owned();
        match output.exit_code {
            0 => Ok(output),
            exit::NOT_FOUND => Err(FileError::NotFound { path }),
            exit::IS_A_DIRECTORY => Err(FileError::IsADirectory { path }),
            exit::NOT_A_DIRECTORY => Err(FileError::NotADirectory { path }),
            exit::ALREADY_EXISTS => Err(FileError::AlreadyExists { path }),
            exit::SPECIAL => Err(invalid("is neither a file nor a directory")),
            exit::WORK_DIRECTORY => Err(invalid("is the work directory, or holds it")),
            exit_code => Err(FileError::Failed {
                path,
                exit_code,
                said: output.stderr.trim().to_owned(),
            }),
        }
    }
}

impl From<RunError> for FileError {
    fn from(error: RunError) -> Self {
        match error {
            RunError::Open(error) => Self::Open(error),
            RunError::Gone { said } => Self::Gone { said },
            RunError::Request(error) => Self::Request(error),
            error => Self::Run(Arc::new(error)),
        }
    }
}

fn entry(kind: &str, size: &str, name: &str, path: String) -> FileEntry {
    FileEntry {
        name: name.to_owned(),
        path,
        is_dir: kind == "d",
        size: size.trim().parse().ok(),
        modified_at: None,
    }
}
