//! The task that drives a link: `yamux` makes progress only while it is polled, so each side has exactly one such loop,
//! and nothing in it ever waits for an operation.

use crate::limits::{
    CLIENT_SUBSTREAMS_MAX, CLOSE_SECONDS_MAX, GUEST_SUBSTREAMS_MAX, LINK_BUFFER_BYTES, PIECE_BYTES,
    REFUSED_SUBSTREAMS_MAX, WINDOW_BYTES,
};
use std::future::poll_fn;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, BufStream};
use tokio::sync::{mpsc, oneshot};
use tokio_util::compat::{Compat, TokioAsyncReadCompatExt};
use tokio_util::sync::CancellationToken;
use yamux::{Config, Connection, Mode, Stream};

/// A wish for a substream.
pub(crate) struct Opening {
    /// Where it goes.
    pub(crate) ready: oneshot::Sender<Stream>,
}

/// The link as the multiplexer sees it: small buffers join a frame's header and body into one write.
pub(crate) type Wire<L> = Connection<Compat<BufStream<L>>>;

pub(crate) fn wire<L: AsyncRead + AsyncWrite + Unpin>(link: L, mode: Mode) -> Wire<L> {
    let substreams = match mode {
        Mode::Client => CLIENT_SUBSTREAMS_MAX,
        Mode::Server => GUEST_SUBSTREAMS_MAX,
    };
    let mut config = Config::default();
    // The total is exactly what the substreams are promised: no window grows, so a fast sender takes no more memory.
    config.set_max_connection_receive_window(None);
    config.set_max_num_streams(substreams);
    config.set_max_connection_receive_window(Some(substreams * WINDOW_BYTES));
    config.set_split_send_size(PIECE_BYTES);
    let link = BufStream::with_capacity(LINK_BUFFER_BYTES, LINK_BUFFER_BYTES, link);
    Connection::new(link.compat(), config, mode)
}

/// Drives the daemon's half until `end` is set off or the link ends, then sets off `over`, whatever happened.
pub(crate) async fn drive_client<L>(
    link: L,
    mut openings: mpsc::Receiver<Opening>,
    end: CancellationToken,
    over: CancellationToken,
) where
    L: AsyncRead + AsyncWrite + Unpin,
{
    let _over = over.drop_guard();
    let mut wire = wire(link, Mode::Client);
    let mut pending = None;
    let mut refused = 0;
    let drive = poll_fn(|cx| {
        loop {
            poll_openings(&mut wire, &mut openings, &mut pending, cx);
            match wire.poll_next_inbound(cx) {
                // Nothing that a guest opens is of use to this generation: dropped, and counted.
                Poll::Ready(Some(Ok(stream))) => {
                    drop(stream);
                    refused += 1;
                    if refused > REFUSED_SUBSTREAMS_MAX {
                        return Poll::Ready(());
                    }
                }
                Poll::Ready(Some(Err(_)) | None) => return Poll::Ready(()),
                Poll::Pending => return Poll::Pending,
            }
        }
    });
    tokio::select! {
        () = drive => return,
        () = end.cancelled() => {}
    }
    close(&mut wire).await;
}

/// Hands out substreams, as many as are wished for and the multiplexer gives.
fn poll_openings<L: AsyncRead + AsyncWrite + Unpin>(
    wire: &mut Wire<L>,
    openings: &mut mpsc::Receiver<Opening>,
    pending: &mut Option<Opening>,
    cx: &mut Context<'_>,
) {
    loop {
        if pending
            .as_ref()
            .is_some_and(|opening| opening.ready.is_closed())
        {
            *pending = None;
        }
        if pending.is_none() {
            match openings.poll_recv(cx) {
                Poll::Ready(Some(opening)) => *pending = Some(opening),
                Poll::Ready(None) | Poll::Pending => return,
            }
        }
        match wire.poll_new_outbound(cx) {
            Poll::Ready(Ok(stream)) => {
                if let Some(opening) = pending.take() {
                    // Nobody waits any more: the substream is let go before its first byte.
                    let _ = opening.ready.send(stream);
                }
            }
            // The link is over: the poll that follows says so.
            Poll::Ready(Err(_)) => return,
            Poll::Pending => return,
        }
    }
}

/// Says goodbye, for a bounded time.
pub(crate) async fn close<L: AsyncRead + AsyncWrite + Unpin>(wire: &mut Wire<L>) {
    let goodbye = poll_fn(|cx| wire.poll_close(cx));
    // Late or refused, the link is dropped all the same.
    let _ = tokio::time::timeout(Duration::from_secs(CLOSE_SECONDS_MAX), goodbye).await;
}
