//! One whole listing of a server, believed only if it is proved complete.

use std::collections::BTreeMap;

use protocol::ids::{PaneId, ProcId, ServerId, TmuxSessionId};
use protocol::tmux::{Server, TmuxPane, TmuxSession, TmuxState};

use crate::command::Line;
use crate::device::Device;
use crate::error::TmuxError;
use crate::format;
use crate::guard::{Nonce, ServerRef};

/// A complete listing: everything that the server had at one moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listing {
    /// The server that answered.
    pub server: ServerRef,
    /// By tmux's session id.
    pub sessions: BTreeMap<TmuxSessionId, TmuxSession>,
    /// By pane id; process and current command are left to the caller.
    pub panes: BTreeMap<PaneId, TmuxPane>,
}

impl Device {
    /// Lists sessions and panes between marks, in one queue pass of the server.
    ///
    /// # Errors
    /// [`TmuxError::NoServer`] where nothing listens; anything else means that nothing was learnt.
    pub async fn observe(&self) -> Result<Listing, TmuxError> {
        let nonce = Nonce::new();
        let mark = |word: &str| format!("{word} {nonce} #{{pid}} #{{start_time}}");
        let line = Line::default()
            .then(["display-message", "-p", &mark("BEGIN")])
            .then(["list-sessions", "-F", format::SESSION])
            .then(["display-message", "-p", &mark("PANES")])
            .then(["list-panes", "-a", "-F", format::PANE])
            .then(["display-message", "-p", &mark("END")]);
        let reply = self.run(&line, None, false).await?;
        let listing = read(nonce, &reply.stdout)?;
        listing.ok_or_else(|| reply.error())
    }
}

/// Reads a listing; `None` where a mark is missing. With no sessions `list-panes` is an error and
/// ends the line, but then the mark before it proves that the list of sessions was complete.
fn read(nonce: Nonce, text: &[u8]) -> Result<Option<Listing>, TmuxError> {
    let Some((server, rest)) = mark(text, &format!("BEGIN {nonce} ")) else { return Ok(None) };
    let Some((sessions, after, rest)) = until(rest, &format!("PANES {nonce} ")) else { return Ok(None) };
    let sessions = format::sessions(sessions)?;
    let (panes, end) = match until(rest, &format!("END {nonce} ")) {
        Some((panes, end, b"")) => (format::panes(panes)?, end),
        None if sessions.is_empty() && rest.is_empty() => (BTreeMap::new(), after),
        _ => return Ok(None),
    };
    if after != server || end != server {
        return Err(TmuxError::Incomplete);
    }
    if let Some((id, pane)) = panes.iter().find(|(_, pane)| !sessions.contains_key(&pane.session)) {
        return Err(TmuxError::Output(format!("{id} is in {}, which is not listed", pane.session)));
    }
    Ok(Some(Listing { server, sessions, panes }))
}

/// The mark that the text begins with, and what follows it.
fn mark<'a>(text: &'a [u8], start: &str) -> Option<(ServerRef, &'a [u8])> {
    let (line, rest) = format::take_line(text.strip_prefix(start.as_bytes())?)?;
    let split = line.iter().position(|&b| b == b' ')?;
    let pid = format::field(Some(&line[..split]))?;
    let started_at = format::field(Some(&line[split + 1..]))?;
    Some((ServerRef { pid, started_at }, rest))
}

/// What stands before the next mark, the mark, and what follows it.
fn until<'a>(text: &'a [u8], start: &str) -> Option<(&'a [u8], ServerRef, &'a [u8])> {
    let mut at = 0;
    loop {
        if let Some((server, rest)) = mark(&text[at..], start) {
            return Some((&text[..at], server, rest));
        }
        at += text[at..].iter().position(|&b| b == b'\n')? + 1;
    }
}

impl Listing {
    /// The listing with each process stamped with its start time. `stamp` is asked for the server
    /// and for each pane whose terminal is open: the pid of a dead pane may be another's by now.
    /// Without a stamp for the server nothing can be said of which server this was.
    #[must_use]
    pub fn into_state(self, stamp: impl Fn(u32) -> Option<ProcId>) -> TmuxState {
        let Some(process) = stamp(self.server.pid) else {
            return unknown(format!("the tmux server, pid {}, is not in the process table", self.server.pid));
        };
        let server = Server::Up(ServerId { process, started_at: self.server.started_at });
        let mut panes = self.panes;
        for pane in panes.values_mut().filter(|pane| !pane.dead && pane.pid > 0) {
            pane.process = stamp(pane.pid);
        }
        TmuxState { server, sessions: self.sessions, panes }
    }
}

/// What an observation says about the server: up, absent or unknown.
#[must_use]
pub fn state(observed: Result<Listing, TmuxError>, stamp: impl Fn(u32) -> Option<ProcId>) -> TmuxState {
    match observed {
        Ok(listing) => listing.into_state(stamp),
        Err(TmuxError::NoServer) => TmuxState::default(),
        Err(error) => unknown(error.to_string()),
    }
}

fn unknown(why: String) -> TmuxState {
    TmuxState { server: Server::Unknown(why), ..TmuxState::default() }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: &str = "S\t$3\t1700000000\t1\tname with  blanks\n";
    const PANE: &str = "P\t$3\t@4\t%7\t4242\t0\t\t\t0\t80\t24\t-\n";

    fn framed(nonce: Nonce, sessions: &str, panes: &str) -> String {
        let at = |word| format!("{word} {nonce} 10 99\n");
        format!("{}{sessions}{}{panes}{}", at("BEGIN"), at("PANES"), at("END"))
    }

    #[test]
    fn a_listing_needs_all_its_marks() {
        let nonce = Nonce::new();
        let text = framed(nonce, ONE, PANE);
        let whole = read(nonce, text.as_bytes()).unwrap().unwrap();
        assert_eq!((whole.sessions.len(), whole.panes.len()), (1, 1));
        for end in 0..text.len() {
            assert!(!matches!(read(nonce, &text.as_bytes()[..end]), Ok(Some(_))), "cut at {end}");
        }
        assert!(matches!(read(Nonce::new(), text.as_bytes()), Ok(None)), "another call's answer");
    }

    #[test]
    fn two_servers_in_one_listing_are_refused() {
        let nonce = Nonce::new();
        for word in ["PANES", "END"] {
            let text = framed(nonce, ONE, PANE);
            let other = text.replace(&format!("{word} {nonce} 10 99"), &format!("{word} {nonce} 10 98"));
            assert!(matches!(read(nonce, other.as_bytes()), Err(TmuxError::Incomplete)), "{word}");
        }
    }

    #[test]
    fn an_empty_server_is_proved_by_the_mark_after_its_sessions() {
        let nonce = Nonce::new();
        let cut = |text: String| text.split("END").next().unwrap().to_owned();
        let empty = read(nonce, cut(framed(nonce, "", "")).as_bytes()).unwrap().unwrap();
        assert!(empty.sessions.is_empty() && empty.panes.is_empty());
        assert!(matches!(read(nonce, cut(framed(nonce, ONE, "")).as_bytes()), Ok(None)));
    }

    #[test]
    fn absent_unknown_and_up_are_three_answers() {
        let stamp = |pid| Some(ProcId { pid, start: 1 });
        assert_eq!(state(Err(TmuxError::NoServer), stamp).server, Server::Absent);
        assert!(matches!(state(Err(TmuxError::ServerExited), stamp).server, Server::Unknown(_)));
        let nonce = Nonce::new();
        let listing = || read(nonce, framed(nonce, ONE, PANE).as_bytes()).unwrap().unwrap();
        assert!(matches!(listing().into_state(stamp).server, Server::Up(_)));
        assert!(matches!(listing().into_state(|_| None).server, Server::Unknown(_)));
    }
}
