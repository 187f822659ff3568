//! A guest without processes, whose runs are told what to do by their argv.

use async_trait::async_trait;
use sandboxd_protocol::client::{Client, Duplex};
use sandboxd_protocol::message::{
    Ended, Entry, Exit, FileAnswer, FileError, FileOp, FileRequest, Kind, NotStarted, OutputLimit,
    Run, RunControl, TreeEnd,
};
use sandboxd_protocol::server::{Command, Commands, FileExchange, Guest, Reports, serve};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use tokio::sync::Notify;

/// What a test can ask of it afterwards.
#[derive(Default)]
pub(crate) struct Double {
    pub(crate) runs_let_go: AtomicUsize,
    pub(crate) let_go: Notify,
    pub(crate) received: tokio::sync::Mutex<Vec<u8>>,
}

pub(crate) fn run(argv: &[&str]) -> Run {
    Run {
        argv: argv.iter().map(|word| word.as_bytes().to_vec()).collect(),
        env: Vec::new(),
        cwd: None,
        stdin: true,
        timeout_millis: None,
        output: OutputLimit::Unlimited,
    }
}

pub(crate) const EXIT: Exit = Exit {
    code: 0,
    signal: None,
    ended: Ended::Itself,
    discarded_bytes: 0,
};

/// A client and the double behind it.
pub(crate) async fn pair() -> (Client, Arc<Double>) {
    let (near, far) = tokio::io::duplex(64 * 1024);
    let double = Arc::new(Double::default());
    let guest = double.clone();
    tokio::spawn(async move { serve(far, guest).await });
    let (client, welcome) = Client::connect(near).await.expect("connects");
    assert!(!welcome.is_init);
    (client, double)
}

#[async_trait]
impl Guest for Double {
    fn is_init(&self) -> bool {
        false
    }

    fn tree_end(&self) -> TreeEnd {
        TreeEnd::None
    }

    async fn run(&self, run: Run, mut commands: Commands, mut reports: Reports) {
        let _ = match run.argv[0].as_slice() {
            b"missing" => reports.not_started(NotStarted::NotFound).await,
            b"flood" => {
                let _ = reports.started().await;
                while reports.stdout(&[b'x'; 32 * 1024]).await.is_ok() {}
                Ok(())
            }
            b"cat" => {
                let _ = reports.started().await;
                while let Some(Command::Stdin(bytes)) = commands.next().await {
                    let _ = reports.stdout(&bytes).await;
                    let taken = u32::try_from(bytes.len()).expect("small");
                    let _ = reports.stdin_taken(taken).await;
                }
                reports.exited(EXIT).await
            }
            b"deaf" => {
                // Takes no stdin, and ends on a stop.
                let _ = reports.started().await;
                let mut seen = 0;
                while let Some(command) = commands.next().await {
                    match command {
                        Command::Stdin(bytes) => seen += bytes.len(),
                        Command::Control(RunControl::Stop) => break,
                        Command::Control(_) => {}
                    }
                }
                let _ = reports.stderr(seen.to_string().as_bytes()).await;
                reports.exited(EXIT).await
            }
            _ => {
                let _ = reports.started().await;
                while commands.next().await.is_some() {}
                self.runs_let_go.fetch_add(1, Ordering::SeqCst);
                self.let_go.notify_one();
                Ok(())
            }
        };
    }

    async fn file(&self, request: FileRequest, mut exchange: FileExchange) {
        let _ = match request.op {
            FileOp::Read { .. } => {
                let content = self.received.lock().await.clone();
                // As of a file that has grown since it was opened.
                let size = content.len().min(3) as u64;
                let _ = exchange.answer(FileAnswer::Content { size }).await;
                let _ = exchange.content(&content).await;
                exchange.answer(FileAnswer::Done).await
            }
            FileOp::Write { .. } if request.path == b"/refused" => {
                exchange.answer(FileAnswer::Error(FileError::Denied)).await
            }
            FileOp::Write { .. } => {
                let mut whole = Vec::new();
                loop {
                    match exchange.next_content().await {
                        Ok(Some(bytes)) => whole.extend_from_slice(&bytes),
                        Ok(None) => break,
                        Err(_) => return,
                    }
                }
                *self.received.lock().await = whole;
                exchange.answer(FileAnswer::Done).await
            }
            FileOp::List { limit } => {
                exchange
                    .entries((0..limit).map(entry).collect::<Vec<_>>())
                    .await
            }
            _ => {
                exchange
                    .answer(FileAnswer::Error(FileError::NotFound))
                    .await
            }
        };
    }

    async fn dial(&self, port: u16) -> Result<Box<dyn Duplex>, FileError> {
        if port == 1 {
            return Err(FileError::Os(111));
        }
        let (near, far) = tokio::io::duplex(1024);
        tokio::spawn(async move {
            let (mut reader, mut writer) = tokio::io::split(far);
            let _ = tokio::io::copy(&mut reader, &mut writer).await;
            let _ = tokio::io::AsyncWriteExt::shutdown(&mut writer).await;
        });
        Ok(Box::new(near))
    }
}

pub(crate) fn entry(number: u32) -> Entry {
    Entry {
        name: format!("{number:08}").into_bytes(),
        kind: Kind::File,
        size: 1,
        mode: 0o644,
        modified_nanos: 0,
        target: None,
    }
}
