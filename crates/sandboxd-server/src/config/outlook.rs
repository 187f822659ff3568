//! What the settings come to, said before somebody finds out: what outlives sleep, and what all sandboxes together may take.

use super::Service;

/// What is left of a session when its sandbox goes and the session stays.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Survives {
    /// Nothing.
    Nothing,
    /// The files below the work directory.
    Files,
    /// What was written elsewhere (installed packages) together with the files, in one layer.
    Layer,
    /// The files, and what was written elsewhere.
    FilesAndLayer,
}

/// What the settings come to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Outlook {
    /// What outlives sleep.
    pub survives: Survives,
    /// Sandboxes at once, if there is a ceiling.
    pub sandboxes: Option<u64>,
    /// The largest memory ceiling of any runtime, in bytes; none where one has no ceiling.
    pub largest_memory_bytes: Option<u64>,
}

impl Survives {
    /// In a line for an operator.
    pub fn line(self, service: &Service) -> String {
        let work_dir = &service.work_dir;
        let tmp = if service.tmpfs_bytes.is_some() {
            "processes and /tmp do not"
        } else {
            "processes do not"
        };
        match self {
            Self::Nothing => format!(
                "neither files nor installed packages survive sleep: {work_dir} goes with its sandbox, so no session is \
                 put to sleep"
            ),
            Self::Files => format!(
                "files in {work_dir} survive sleep; installed packages and whatever else lies outside it, and processes, \
                 do not"
            ),
            Self::Layer => format!(
                "files in {work_dir} and installed packages survive sleep together, in the layer that is kept while the \
                 session is open; {tmp}"
            ),
            Self::FilesAndLayer => {
                format!("files in {work_dir} and installed packages survive sleep; {tmp}")
            }
        }
    }
}

impl Outlook {
    /// Of these settings.
    pub fn of(service: &Service) -> Self {
        let survives = match (service.workspace_root.is_some(), service.persist_containers) {
            (false, false) => Survives::Nothing,
            (true, false) => Survives::Files,
            (false, true) => Survives::Layer,
            (true, true) => Survives::FilesAndLayer,
        };
        let shared = service.ceilings.values.memory_bytes;
        let each = service
            .runtimes
            .values()
            .map(|runtime| runtime.ceilings.memory_bytes.or(shared));
        // One without a ceiling is larger than any number.
        let largest = each
            .reduce(|one, other| one.zip(other).map(|(one, other)| one.max(other)))
            .flatten();
        Self {
            survives,
            sandboxes: service.max_sessions,
            largest_memory_bytes: largest,
        }
    }

    /// What all sandboxes together may take at worst, in bytes; none where nothing bounds it.
    pub fn worst_memory_bytes(&self) -> Option<u64> {
        let (sandboxes, largest) = self.sandboxes.zip(self.largest_memory_bytes)?;
        Some(sandboxes.saturating_mul(largest))
    }

    /// The worst case beside what the host has, in a line for an operator, and whether it fits.
    pub fn memory_line(&self, host_bytes: Option<u64>) -> (String, bool) {
        let host = host_bytes.map_or_else(
            || "how much this host has is not known".to_owned(),
            |bytes| format!("this host has {}", gib(bytes)),
        );
        let Some(worst) = self.worst_memory_bytes() else {
            let unbounded = match (self.sandboxes, self.largest_memory_bytes) {
                (None, None) => "neither max_sessions nor mem_limit is",
                (None, Some(_)) => "max_sessions is not",
                (Some(_), _) => "mem_limit is not, for at least one runtime",
            };
            let line = format!("sandboxes may take all memory: {unbounded} set; {host}");
            return (line, false);
        };
        let (sandboxes, largest) = (
            self.sandboxes.unwrap_or_default(),
            self.largest_memory_bytes.unwrap_or_default(),
        );
        let fits = host_bytes.is_none_or(|host| worst <= host);
        let line = format!(
            "sandboxes may take {} at worst ({sandboxes} of at most {}); {host}{}",
            gib(worst),
            gib(largest),
            if fits {
                ""
            } else {
                ": a lower max_sessions or mem_limit would fit"
            },
        );
        (line, fits)
    }
}

/// Bytes for people.
#[expect(
    clippy::cast_precision_loss,
    reason = "one decimal of a size is shown, and it fits a double far beyond any memory"
)]
fn gib(bytes: u64) -> String {
    const MIB: u64 = 1 << 20;
    const GIB: u64 = 1 << 30;
    if bytes >= GIB {
        format!("{:.1} GiB", bytes as f64 / GIB as f64)
    } else {
        format!("{:.0} MiB", bytes as f64 / MIB as f64)
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Flags, Layers};
    use super::*;

    fn service(settings: &[(&str, &str)]) -> Service {
        let settings = settings.iter().map(|(name, value)| {
            let (name, value) = (*name, *value);
            (name.to_owned(), value.to_owned())
        });
        let layers = Layers {
            flags: Flags {
                settings: settings.collect(),
                ..Flags::default()
            },
            env: Vec::new(),
            file: None,
            root: true,
        };
        layers.read().expect("settings").0.service
    }

    #[test]
    fn what_survives_sleep_follows_from_two_settings() {
        let line = |settings: &[(&str, &str)]| {
            let service = service(settings);
            let survives = Outlook::of(&service).survives;
            (survives, survives.line(&service))
        };
        let root = ("workspace_root", "/srv/w");
        let keep = ("keep_layer", "true");
        let (none, words) = line(&[]);
        assert_eq!(none, Survives::Nothing);
        assert!(words.starts_with("neither files nor installed packages survive"));
        let (files, words) = line(&[root, ("work_dir", "/work")]);
        assert_eq!(files, Survives::Files);
        assert!(words.starts_with("files in /work survive sleep; installed packages"));
        let (both, words) = line(&[root, keep]);
        assert_eq!(both, Survives::FilesAndLayer);
        assert!(words.contains("and /tmp do not"), "{words}");
        let (_, words) = line(&[root, ("persist_containers", "1"), ("tmpfs_size", "")]);
        assert!(
            words.ends_with("survive sleep; processes do not"),
            "{words}"
        );
        assert_eq!(line(&[keep]).0, Survives::Layer);
    }

    #[test]
    fn the_worst_case_is_all_slots_at_the_largest_ceiling() {
        const GIB: u64 = 1 << 30;
        let outlook = |settings: &[(&str, &str)]| Outlook::of(&service(settings));
        let usual = outlook(&[]);
        assert_eq!(usual.worst_memory_bytes(), Some(20 * GIB));
        let (line, fits) = usual.memory_line(Some(32 * GIB));
        assert!(fits, "{line}");
        assert_eq!(
            line,
            "sandboxes may take 20.0 GiB at worst (20 of at most 1.0 GiB); this host has 32.0 GiB"
        );
        let (line, fits) = usual.memory_line(Some(4 * GIB));
        assert!(!fits && line.ends_with("a lower max_sessions or mem_limit would fit"));
        assert!(usual.memory_line(None).1, "what is not known is no warning");

        let own = outlook(&[
            ("max_sessions", "3"),
            ("mem_limit", "512m"),
            ("runtimes", "a=/srv/a,b=/srv/b;mem_limit=2g"),
        ]);
        assert_eq!(own.worst_memory_bytes(), Some(6 * GIB));
        for (settings, words) in [
            (&[("max_sessions", "")][..], "max_sessions is not set"),
            (&[("mem_limit", "")], "mem_limit is not, for at least one"),
            (&[("mem_limit", ""), ("max_sessions", "")], "neither"),
        ] {
            let (line, fits) = outlook(settings).memory_line(Some(GIB));
            assert!(!fits && line.contains(words), "{line}");
        }
    }
}
