//! macOS: no listening socket is ever found, because libproc's socket information is not read.

use std::io;
use std::path::PathBuf;

pub(super) type SocketPaths = ();

#[expect(clippy::unnecessary_wraps, reason = "Linux may refuse")]
pub(super) fn listening_sockets(_pid: u32) -> io::Result<SocketPaths> {
    Ok(())
}

#[expect(clippy::unnecessary_wraps, reason = "Linux may refuse")]
pub(super) fn paths_of(_sockets: &SocketPaths, _pid: u32) -> io::Result<Vec<PathBuf>> {
    Ok(Vec::new())
}
