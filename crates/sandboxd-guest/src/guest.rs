//! The guest as the link sees it.

use crate::children::Children;
use crate::process::Ender;
use crate::sinks::Sinks;
use crate::spawn::Environment;
use crate::{dial, files, run};
use async_trait::async_trait;
use sandboxd_protocol::client::Duplex;
use sandboxd_protocol::message::{FileError, FileRequest, Run, TreeEnd};
use sandboxd_protocol::server::{Commands, FileExchange, Guest, Reports};
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

/// Everything that runs and file operations share.
pub(crate) struct House {
    pub(crate) is_init: bool,
    /// The environment that every run starts from.
    pub(crate) env: Environment,
    /// Where runs start that say nothing else.
    pub(crate) work_dir: Vec<u8>,
    /// The uid and gid that runs and new files get; the guest's own where absent.
    pub(crate) user: Option<(u32, u32)>,
    /// Whether it is the guest's to keep clone3 from its runs.
    pub(crate) deny_clone3: bool,
    /// Likewise openat2, by which a file could be made set-uid.
    pub(crate) deny_openat2: bool,
    pub(crate) ender: Ender,
    pub(crate) children: Children,
    pub(crate) sinks: Sinks,
    /// Set off when a run got out of hand: the guest then ends, and the sandbox with it.
    pub(crate) lost: CancellationToken,
    /// Set off after every operation.
    pub(crate) worked: Notify,
}

impl House {
    /// Gives the sandbox up.
    pub(crate) fn give_up(&self) {
        self.lost.cancel();
    }
}

#[async_trait]
impl Guest for House {
    fn is_init(&self) -> bool {
        self.is_init
    }

    fn tree_end(&self) -> TreeEnd {
        self.ender.kind()
    }

    fn greeted(&self) {
        self.ender.make_ready();
    }

    async fn run(&self, run: Run, commands: Commands, reports: Reports) {
        run::carry_out(self, run, commands, reports).await;
        self.worked.notify_one();
    }

    async fn file(&self, request: FileRequest, exchange: FileExchange) {
        files::carry_out(self, request, exchange).await;
        self.worked.notify_one();
    }

    async fn dial(&self, port: u16) -> Result<Box<dyn Duplex>, FileError> {
        dial::loopback(port).await
    }
}
