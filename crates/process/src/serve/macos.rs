//! macOS: nothing is seen to serve, as what libproc tells of sockets is not read.

use std::io;
use std::path::PathBuf;

pub(super) type Listeners = ();

#[expect(clippy::unnecessary_wraps, reason = "Linux may refuse")]
pub(super) fn listeners(_pid: u32) -> io::Result<Listeners> {
    Ok(())
}

#[expect(clippy::unnecessary_wraps, reason = "Linux may refuse")]
pub(super) fn held(_listeners: &Listeners, _pid: u32) -> io::Result<Vec<PathBuf>> {
    Ok(Vec::new())
}
