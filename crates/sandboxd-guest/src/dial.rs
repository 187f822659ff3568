//! Connections to ports on the sandbox's own loopback.

use crate::limits::DIAL_MAX;
use rustix::io::Errno;
use sandboxd_protocol::client::Duplex;
use sandboxd_protocol::message::FileError;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use tokio::net::TcpStream;
use tokio::time::timeout;

/// Connects to 127.0.0.1, or to `::1` where nothing listens on the former.
pub(crate) async fn loopback(port: u16) -> Result<Box<dyn Duplex>, FileError> {
    let connect = async {
        match connect(Ipv4Addr::LOCALHOST.into(), port).await {
            Ok(stream) => Ok(stream),
            // What 127.0.0.1 said is the better answer when neither listens.
            Err(first) => connect(Ipv6Addr::LOCALHOST.into(), port)
                .await
                .map_err(|_| first),
        }
    };
    match timeout(DIAL_MAX, connect).await {
        Ok(Ok(stream)) => Ok(Box::new(stream)),
        Ok(Err(error)) => {
            let unknown = Errno::CONNREFUSED.raw_os_error();
            Err(FileError::Os(error.raw_os_error().unwrap_or(unknown)))
        }
        Err(_) => Err(FileError::Os(Errno::TIMEDOUT.raw_os_error())),
    }
}

async fn connect(address: IpAddr, port: u16) -> io::Result<TcpStream> {
    let stream = TcpStream::connect(SocketAddr::new(address, port)).await?;
    stream.set_nodelay(true)?;
    Ok(stream)
}
