//! Notifies systemd of the state of the service (`sd_notify`): one datagram to the socket that systemd names. Does
//! nothing if there is none.

use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};

/// The environment variable that names the socket.
const VARIABLE: &str = "NOTIFY_SOCKET";

/// A state of the service.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    /// Requests are being served.
    Ready,
    /// No new requests are accepted.
    Stopping,
}

/// Reports a state to systemd, if it started the process.
pub fn notify(state: State) {
    let Some(socket) = std::env::var_os(VARIABLE).filter(|name| !name.is_empty()) else { return };
    let text = match state {
        State::Ready => "READY=1",
        State::Stopping => "STOPPING=1",
    };
    if let Err(error) = send(socket.as_bytes(), text) {
        tracing::warn!(%error, "cannot tell the service manager: {text}");
    }
}

/// Sends a text to a path, or to a name in the abstract namespace (`@name`).
fn send(socket: &[u8], text: &str) -> std::io::Result<()> {
    let address = match socket.split_first() {
        Some((b'@', name)) => SocketAddr::from_abstract_name(name)?,
        _ => SocketAddr::from_pathname(std::ffi::OsStr::from_bytes(socket))?,
    };
    UnixDatagram::unbound()?.send_to_addr(text.as_bytes(), &address).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_and_abstract_names() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("notify");
        let name = format!("quiver-test-{}", std::process::id());
        let abstract_name = SocketAddr::from_abstract_name(&name).unwrap();
        let waiting = [
            (path.as_os_str().as_bytes().to_vec(), UnixDatagram::bind(&path).unwrap()),
            (format!("@{name}").into_bytes(), UnixDatagram::bind_addr(&abstract_name).unwrap()),
        ];
        for (socket, manager) in waiting {
            send(&socket, "READY=1").unwrap();
            let mut told = [0; 16];
            let len = manager.recv(&mut told).unwrap();
            assert_eq!(&told[..len], b"READY=1");
        }
        assert!(send(b"/nowhere/at/all", "READY=1").is_err());
    }
}
