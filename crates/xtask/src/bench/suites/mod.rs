//! What is measured: one file for each suite.
//!
//! - [`open`], [`run`], [`files`], [`wake`]: what a caller waits for.
//! - [`docker`]: the same of our Docker backend.
//! - [`density`]: what it holds of the machine.
//! - [`load`], [`growth`]: what becomes of it when there is much.
//! - [`images`]: what bringing one in costs, and what sessions over one share.
//! - [`abuse`]: what one session's worst costs another.

mod abuse;
mod density;
mod docker;
mod files;
mod growth;
mod images;
mod load;
mod open;
mod run;
mod wake;

use super::figures::Findings;
use super::place::Bench;

/// Measures one thing. What was found before a failure counts.
type Measure = fn(&Bench, &mut Findings) -> anyhow::Result<()>;

/// One suite.
pub(crate) struct Suite {
    /// What it is asked for by.
    pub(crate) name: &'static str,
    /// What it is about, for the report.
    pub(crate) about: &'static str,
    /// What its time (or memory) is spent on, where that was looked into.
    pub(crate) spent: Option<Spent>,
    /// Measures.
    pub(crate) measure: Measure,
}

/// What time or memory is spent on.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Spent {
    /// In a few words.
    pub(crate) on: &'static str,
    /// The decision that has the parts and their figures.
    pub(crate) decision: &'static str,
}

const OF_OPENS: Spent = Spent {
    on: "what the floor does, two requests over HTTP, the guest's own start and its filter for system calls, and the way to it \
         and back; from a pool, on the record's sync and the run",
    decision: "0061-where-an-opens-time-goes.md",
};
const OF_RUNS: Spent = Spent {
    on: "what a static file of the same HTTP stack takes, and the way to the guest and back: two threads and two processes \
         that wake",
    decision: "0080-where-the-time-goes.md",
};
const OF_ENGINES: Spent = Spent {
    on: "the engine's making and starting of the container, and its copying of every byte",
    decision: "0070-a-container-engine.md",
};
const OF_MEMORY: Spent = Spent {
    on: "the kernel's own objects: an empty memory cgroup, a network namespace, mounts; then the guest's pages, stacks and \
         page tables",
    decision: "0081-memory-of-the-daemon.md",
};

/// All, in the order in which they are run.
pub(crate) const SUITES: [Suite; 10] = [
    Suite {
        name: "open",
        about: "From a request for a session to the output of its first run, `/bin/echo hi`.",
        spent: Some(OF_OPENS),
        measure: open::measure,
    },
    Suite {
        name: "run",
        about: "A program in a session that is open, from request to whole answer, over one kept connection.",
        spent: Some(OF_RUNS),
        measure: run::measure,
    },
    Suite {
        name: "files",
        about: "Files of a session whose sandbox runs (live) and of one that sleeps (stored), over one kept connection.",
        spent: Some(OF_RUNS),
        measure: files::measure,
    },
    Suite {
        name: "wake",
        about: "Putting a session to sleep, and from a run in a sleeping one to its output.",
        spent: Some(OF_OPENS),
        measure: wake::measure,
    },
    Suite {
        name: "docker",
        about: "Our Docker backend beside the Python service and bare Docker: one engine, one image.",
        spent: Some(OF_ENGINES),
        measure: docker::measure,
    },
    Suite {
        name: "density",
        about: "What idle sandboxes and the daemon hold of the machine's memory.",
        spent: Some(OF_MEMORY),
        measure: density::measure,
    },
    Suite {
        name: "load",
        about: "Mixed work of many callers: seven runs, two reads and a write in ten requests.",
        spent: None,
        measure: load::measure,
    },
    Suite {
        name: "growth",
        about: "How cost grows with what there is: the exponent b of a cost that follows n^b, fitted.",
        spent: None,
        measure: growth::measure,
    },
    Suite {
        name: "images",
        about: "A Debian root filled up to 400 MiB: from its tar to an image, opening on it, and Python in ten sessions over it.",
        spent: None,
        measure: images::measure,
    },
    Suite {
        name: "abuse",
        about: "A session's run of `/bin/echo` while another session does its worst, beside the same while nothing goes on.",
        spent: None,
        measure: abuse::measure,
    },
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_says_where_time_is_spent_is_there() {
        let folder = crate::tools::root().join("docs/decisions");
        for spent in SUITES.iter().filter_map(|suite| suite.spent) {
            assert!(folder.join(spent.decision).is_file(), "{spent:?}");
        }
    }
}
