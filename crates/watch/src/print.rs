//! `tmux-watch --print`: the same observations as JSON lines on a stream, without a pool.

use std::io::{self, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

use protocol::diff::diff;
use protocol::tmux::{Server, TmuxState};
use serde_json::json;
use tmux::Device;
use tokio::io::Interest;
use tokio::net::unix::pipe;

use crate::pace::interval;
use crate::source::Source;

/// Prints what tmux shows, first `{"snapshot":…}`, then a `{"change":…}` for each change, and
/// `{"unknown":"why"}` where nothing could be learnt; until `shutdown`, or until nobody reads.
///
/// # Errors
/// Where the output cannot be written, other than for want of a reader.
pub async fn print(
    device: Device,
    out: impl Write + AsFd,
    shutdown: impl Future<Output = ()>,
) -> anyhow::Result<()> {
    let unread = unread(out.as_fd().try_clone_to_owned()?);
    tokio::select! {
        () = shutdown => Ok(()),
        () = unread => Ok(()),
        error = watch(device, Printer { out, seen: None, silent: None }) => match error {
            error if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
            error => Err(error.into()),
        },
    }
}

async fn watch(device: Device, mut printer: Printer<impl Write>) -> io::Error {
    let mut source = Source::of(device);
    loop {
        let look = source.ask().await;
        if let Err(error) = printer.print(source.read(look)) {
            return error;
        }
        tokio::time::sleep(interval(source.cost(), Duration::MAX)).await;
    }
}

/// Ends when the other end of a pipe is closed; for anything else, never.
async fn unread(out: OwnedFd) {
    // Unchecked, because the checked form makes the stream non-blocking for everybody who has it.
    if let Ok(pipe) = pipe::Sender::from_owned_fd_unchecked(out)
        && pipe.ready(Interest::ERROR).await.is_ok()
    {
        return;
    }
    std::future::pending::<()>().await;
}

struct Printer<W> {
    out: W,
    /// What was printed, as far as it is known.
    seen: Option<TmuxState>,
    /// The silence that was printed.
    silent: Option<String>,
}

impl<W: Write> Printer<W> {
    fn print(&mut self, state: TmuxState) -> io::Result<()> {
        if let Server::Unknown(why) = state.server {
            let known = self.silent.replace(why.clone()) == Some(why.clone());
            return if known { Ok(()) } else { self.line(&json!({ "unknown": why })) };
        }
        self.silent = None;
        match self.seen.replace(state.clone()) {
            None => self.line(&json!({ "snapshot": state })),
            Some(seen) => {
                diff(&seen, &state).iter().try_for_each(|change| self.line(&json!({ "change": change })))
            }
        }
    }

    fn line(&mut self, value: &serde_json::Value) -> io::Result<()> {
        writeln!(self.out, "{value}")?;
        self.out.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::session;

    fn lines(states: impl IntoIterator<Item = TmuxState>) -> Vec<String> {
        let mut printer = Printer { out: Vec::new(), seen: None, silent: None };
        states.into_iter().for_each(|state| printer.print(state).unwrap());
        String::from_utf8(printer.out).unwrap().lines().map(str::to_owned).collect()
    }

    fn unknown(why: &str) -> TmuxState {
        TmuxState { server: Server::Unknown(why.to_owned()), ..TmuxState::default() }
    }

    #[test]
    fn a_silence_is_printed_once_and_removes_nothing() {
        let one = TmuxState { sessions: [session(1, "a")].into(), ..TmuxState::default() };
        let two = TmuxState { sessions: [session(1, "b")].into(), ..TmuxState::default() };
        let printed = lines([unknown("x"), one.clone(), one, unknown("y"), unknown("y"), two]);
        let (change, rest) = printed.split_last().unwrap();
        assert_eq!(rest[0], r#"{"unknown":"x"}"#);
        assert!(rest[1].starts_with(r#"{"snapshot":{"#) && rest[1].contains(r#""$1":{"#), "{}", rest[1]);
        assert_eq!(rest[2..], [r#"{"unknown":"y"}"#]);
        assert!(change.starts_with(r#"{"change":{"session":["$1",{"#), "{change}");
    }
}
