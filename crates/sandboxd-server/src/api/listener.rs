//! Sockets: accepting, the bounds of a connection, and letting go of it at shutdown.

use super::exchange::exchange;
use super::request::Peer;
use crate::limits::{
    CONNECTIONS_MAX, HEAD_BYTES_MAX, HEAD_SECONDS_MAX, HEADERS_MAX, UNREAD_SECONDS_MAX,
};
use crate::telemetry::metrics::Metrics;
use axum::Router;
use axum::http::Request;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use std::convert::Infallible;
use std::io;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::time::{Instant, Sleep};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// How long accepting pauses after an error that is not one connection's own (out of descriptors, say).
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// Accepts connections until `stop`, and lets each end what it is doing then. The tracker owns them; it is closed here.
pub(crate) async fn accept(
    listener: TcpListener,
    router: Router,
    metrics: Arc<Metrics>,
    connections: TaskTracker,
    stop: CancellationToken,
) {
    let permits = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    let accepting = async {
        loop {
            // A client over the bound waits in the kernel's queue.
            let Ok(permit) = Arc::clone(&permits).acquire_owned().await else {
                return;
            };
            match listener.accept().await {
                Ok((stream, peer)) => {
                    let connection = connection(
                        stream,
                        Peer(peer),
                        router.clone(),
                        Arc::clone(&metrics),
                        stop.clone(),
                    );
                    connections.spawn(async move {
                        connection.await;
                        drop(permit);
                    });
                }
                Err(error) => {
                    tracing::warn!(%error, "a connection could not be accepted");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                }
            }
        }
    };
    tokio::select! {
        () = accepting => {}
        () = stop.cancelled() => {}
    }
    connections.close();
}

async fn connection(
    stream: TcpStream,
    peer: Peer,
    router: Router,
    metrics: Arc<Metrics>,
    stop: CancellationToken,
) {
    // Answers are written whole; waiting for more to send would only make them late.
    let _ = stream.set_nodelay(true);
    let service = service_fn(move |mut request: Request<Incoming>| {
        request.extensions_mut().insert(peer);
        let (router, metrics) = (router.clone(), Arc::clone(&metrics));
        async move { Ok::<_, Infallible>(exchange(router, &metrics, request).await) }
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(Duration::from_secs(HEAD_SECONDS_MAX))
        .max_buf_size(HEAD_BYTES_MAX)
        .max_headers(HEADERS_MAX)
        .serve_connection(TokioIo::new(Unstalled::new(stream)), service);
    let mut connection = pin!(connection);
    let ended = tokio::select! {
        ended = connection.as_mut() => ended,
        () = stop.cancelled() => {
            connection.as_mut().graceful_shutdown();
            connection.await
        }
    };
    if let Err(error) = ended {
        // Mostly clients that went away; nobody is left to tell.
        tracing::debug!(%error, "a connection ended badly");
    }
}

/// A stream that gives up when the other side has not read for too long.
struct Unstalled {
    stream: TcpStream,
    /// Runs while a write waits.
    stalled: Option<Pin<Box<Sleep>>>,
}

impl Unstalled {
    fn new(stream: TcpStream) -> Self {
        Self {
            stream,
            stalled: None,
        }
    }

    fn watched<T>(
        &mut self,
        context: &mut Context<'_>,
        poll: Poll<io::Result<T>>,
    ) -> Poll<io::Result<T>> {
        if poll.is_ready() {
            self.stalled = None;
            return poll;
        }
        let patience = Duration::from_secs(UNREAD_SECONDS_MAX);
        let stalled = self
            .stalled
            .get_or_insert_with(|| Box::pin(tokio::time::sleep_until(Instant::now() + patience)));
        match stalled.as_mut().poll(context) {
            Poll::Ready(()) => Poll::Ready(Err(io::ErrorKind::TimedOut.into())),
            Poll::Pending => Poll::Pending,
        }
    }
}

impl AsyncRead for Unstalled {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl AsyncWrite for Unstalled {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let poll = Pin::new(&mut self.stream).poll_write(context, bytes);
        self.watched(context, poll)
    }
    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let poll = Pin::new(&mut self.stream).poll_write_vectored(context, bytes);
        self.watched(context, poll)
    }
    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }
    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let poll = Pin::new(&mut self.stream).poll_flush(context);
        self.watched(context, poll)
    }
    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}
