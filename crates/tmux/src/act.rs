//! Guarded effects on a pane and its session, and captures of its text.

use std::collections::BTreeSet;

use protocol::tmux::HIDDEN_SESSION;
use protocol::{Name, OsBytes, PaneId, Tag, TmuxSessionId};

use crate::command::{CommandLine, script};
use crate::device::Device;
use crate::error::TmuxError;
use crate::format;
use crate::guard::{Answer, GuardReply, Guarded, Nonce, PaneRef, Precondition, ServerRef, guard_reply};

/// Extent of a capture.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lines {
    /// The screen, with blank rows at the end.
    Visible,
    /// The last lines of history and screen, without blank rows at the end.
    Last(u32),
    /// The whole history and the screen.
    All,
}

/// A client attached to a session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Client {
    /// tmux's name of the client: the path of its terminal, or `client-PID`.
    pub name: String,
    /// Pid of the client.
    pub pid: u32,
    /// True for a program in control mode, false for a terminal.
    pub control: bool,
    /// True if the client cannot type.
    pub read_only: bool,
    /// Time of its last activity (attach or key), in seconds since the Unix epoch.
    pub active_at: u64,
}

/// The use that its user makes of a pane.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PaneUse {
    /// Time of the last activity in its session (its creation, a client that attached, a key) or of the last
    /// output in its window, in seconds since the Unix epoch.
    pub active_at: u64,
    /// True if its output is piped to a command (`pipe-pane`).
    pub piped: bool,
}

/// Value of [`format::POOLED`] of a session that a pool made, after its user started another program in the pool's
/// pane.
const TAKEN: &str = "taken";

const PANE_USE: &str = "#{session_activity} #{window_activity} #{pane_pipe}";

/// Left out for a dead pane: its terminal is closed, and another program's terminal may have the name.
const PANE_TERMINAL: &str = "#{session_id}\t#{?pane_dead,,#{pane_tty}}";

const CLIENT: &str =
    "#{client_pid}\t#{client_control_mode}\t#{client_readonly}\t#{client_activity}\t#{client_name}";

impl Device {
    /// Captures the text of a pane, live or dead, with escape sequences for colours if `ansi`. Empty unless
    /// the answer is [`Answer::Done`].
    pub async fn capture(
        &self,
        pane: PaneRef,
        lines: Lines,
        ansi: bool,
    ) -> Result<(Answer, Vec<u8>), TmuxError> {
        let target = pane.pane.to_string();
        let start = match lines {
            Lines::Visible => "0".to_owned(),
            // tmux takes a number beyond its integers for none.
            Lines::Last(n) if i32::try_from(n).is_ok() => format!("-{n}"),
            Lines::Last(_) | Lines::All => "-".to_owned(),
        };
        let mut command = vec!["capture-pane", "-p", "-t", &target, "-S", &start];
        if ansi {
            command.push("-e");
        }
        let guarded = Guarded { pane, precondition: Precondition::Ours, commands: &[&command] };
        let (answer, text) = guarded.run(self).await?;
        Ok((answer, if let Lines::Last(n) = lines { last_lines(text, n) } else { text }))
    }

    /// Checks the pane without any effect. Only this pane is looked up, so the cost does not grow with the
    /// number of panes.
    ///
    /// # Errors
    /// As any call. Safe to repeat.
    pub async fn peek(&self, pane: PaneRef) -> Result<Answer, TmuxError> {
        self.effect(pane, &[]).await
    }

    /// Removes the pane, and with it its window and session if it was their last pane. [`Answer::Gone`]
    /// means that it was removed before.
    ///
    /// # Errors
    /// As any call. Safe to repeat.
    pub async fn kill_pane(&self, pane: PaneRef) -> Result<Answer, TmuxError> {
        let target = pane.pane.to_string();
        self.effect(pane, &[&["kill-pane", "-t", &target]]).await
    }

    /// Removes the pane unless a client is attached to its session, checked in the same pass.
    ///
    /// # Errors
    /// As any call. Safe to repeat.
    pub async fn kill_unattended(&self, pane: PaneRef) -> Result<Answer, TmuxError> {
        let target = pane.pane.to_string();
        let commands: &[&[&str]] = &[&["kill-pane", "-t", &target]];
        let guarded = Guarded { pane, precondition: Precondition::Unattended, commands };
        guarded.run(self).await.map(|(answer, _)| answer)
    }

    /// Renames the pane's session and window, unless the session is its user's, who moved the pane there.
    ///
    /// # Errors
    /// [`TmuxError::Duplicate`] if another session has the name; then nothing is renamed.
    pub async fn rename(
        &self,
        pane: PaneRef,
        session: TmuxSessionId,
        name: &Name,
    ) -> Result<Answer, TmuxError> {
        if matches!(self.is_made_for(pane, session).await, Ok(false)) {
            return self.effect(pane, &[]).await;
        }
        let (session, target) = (session.to_string(), pane.pane.to_string());
        let made_for = format!("{} {name}", pane.tag);
        let rename: &[&str] = &["rename-session", "-t", &session, name.as_str()];
        let known: &[&str] = &["set-option", "-t", &session, format::POOLED, &made_for];
        self.effect(pane, &[rename, known, &["rename-window", "-t", &target, name.as_str()]]).await
    }

    /// True if the pool made or adopted the session for the incarnation of this pane, and its user has not taken it
    /// over. The pane may have been moved into another incarnation's session.
    async fn is_made_for(&self, pane: PaneRef, session: TmuxSessionId) -> Result<bool, TmuxError> {
        let (target, option) = (session.to_string(), format::POOLED);
        // Builds before the tag was written there wrote 1.
        let made_for = format!("#{{||:#{{==:#{{{option}}},1}},#{{==:#{{=32:{option}}},{}}}}}", pane.tag);
        let told =
            self.on_server(pane.server, &[&["display-message", "-p", "-t", &target, &made_for]]).await?;
        Ok(told == b"1\n")
    }

    /// Gives the pane back to its user: replaces the tag by a marker, stops the log, and lets a pane that the pool
    /// created close when its program ends. The options of an adopted pane stay as its user set them.
    ///
    /// # Errors
    /// As any call. A repeat after success answers [`Answer::NotOurs`].
    pub async fn release(&self, pane: PaneRef, is_adopted: bool) -> Result<Answer, TmuxError> {
        let target = pane.pane.to_string();
        // On a dead pane pipe-pane is an error, which would end the line.
        let no_log = script([&["pipe-pane", "-t", &target][..]]);
        let no_log: &[&str] = &["if-shell", "-F", "-t", &target, "#{?pane_dead,,1}", &no_log];
        let close: &[&str] = &["set-option", "-w", "-t", &target, "remain-on-exit", "off"];
        let message: &[&str] = &["set-option", "-wqu", "-t", &target, "remain-on-exit-format"];
        let no_tag: &[&str] = &["set-option", "-p", "-t", &target, "@pool_id", format::DETACHED];
        if is_adopted {
            return self.effect(pane, &[no_log, no_tag]).await;
        }
        self.effect(pane, &[no_log, close, message, no_tag]).await
    }

    /// Renames a session of this name that a pool made. Nothing is renamed if the session has another name by now, or
    /// if its user has started a program in the pool's pane ([`Device::disown`]), which makes it the user's.
    ///
    /// # Errors
    /// [`TmuxError::NotFound`] if this server has no such session, or another server answers.
    pub async fn rename_left(
        &self,
        server: ServerRef,
        session: TmuxSessionId,
        (from, to): (&Name, &Name),
    ) -> Result<(), TmuxError> {
        let target = session.to_string();
        let has_name = format!("#{{==:#{{session_name}},{from}}}");
        let is_left = format!("#{{&&:{has_name},{}}}", of_pool());
        let rename = script([&["rename-session", "-t", &target, to.as_str()][..]]);
        let renamed: &[&str] = &["if-shell", "-F", "-t", &target, &is_left, &rename];
        self.on_server(server, &[renamed]).await.map(drop)
    }

    /// Removes the tag and the log of a pane in which another program was started after it got the tag. From then on
    /// its session is its user's.
    ///
    /// # Errors
    /// As any call. [`Answer::NotOurs`] for any other pane, and after a success.
    pub async fn disown(&self, pane: PaneRef) -> Result<Answer, TmuxError> {
        let target = pane.pane.to_string();
        let nonce = Nonce::new();
        let (yes, no) = (format!("YES {nonce}"), format!("NO {nonce} "));
        let [done, other]: [&[&str]; 2] = [&["display-message", "-p", &yes], &["display-message", "-p", &no]];
        let no_log = script([&["pipe-pane", "-t", &target][..]]);
        let no_log: &[&str] = &["if-shell", "-F", "-t", &target, "#{?pane_dead,,1}", &no_log];
        let tag: &[&str] = &["set-option", "-pu", "-t", &target, "@pool_id"];
        let program: &[&str] = &["set-option", "-pu", "-t", &target, "@pool_pid"];
        let taken: &[&str] = &["set-option", "-t", &target, format::POOLED, TAKEN];
        let effect = script([no_log, tag, program, taken, done]);
        let condition = pane.has_other_program();
        let words: &[&str] = &["if-shell", "-F", "-t", &target, &condition, &effect, &script([other])];
        let reply = self.run(&CommandLine::default().then(words.iter().copied()), None, false).await?;
        match guard_reply(nonce, &reply.stdout) {
            Some(GuardReply::Done(_)) => Ok(Answer::Done),
            Some(GuardReply::Refused(_)) => Ok(Answer::NotOurs),
            None => Err(reply.error()),
        }
    }

    /// Clears the pane's history; its screen stays.
    pub async fn clear_history(&self, pane: PaneRef) -> Result<Answer, TmuxError> {
        let target = pane.pane.to_string();
        self.effect(pane, &[&["clear-history", "-t", &target]]).await
    }

    /// Lists the clients attached to the session that was made for the incarnation of this pane; none for another one.
    ///
    /// # Errors
    /// [`TmuxError::NotFound`] if this server has no such session, or another server answers.
    pub async fn clients(&self, pane: PaneRef, session: TmuxSessionId) -> Result<Vec<Client>, TmuxError> {
        let target = session.to_string();
        let list: &[&str] = &["list-clients", "-t", &target, "-F", CLIENT];
        let text = self.on_server(pane.server, &[list]).await?;
        if !self.is_made_for(pane, session).await? {
            return Ok(Vec::new());
        }
        let lines = text.split_inclusive(|&b| b == b'\n');
        lines.map(|line| client(line).ok_or_else(|| format::malformed(line))).collect()
    }

    /// Lists the clients that show the pane with this terminal. `None` if no pane of this server has it.
    ///
    /// # Errors
    /// [`TmuxError::NotFound`] if another server answers, or the session ends meanwhile.
    pub async fn viewers(
        &self,
        server: ServerRef,
        terminal: &OsBytes,
    ) -> Result<Option<Vec<Client>>, TmuxError> {
        // The client of the hidden session is the watcher.
        let shown = format!("#{{!=:#{{session_name}},{HIDDEN_SESSION}}}");
        let list: &[&str] = &["list-panes", "-a", "-f", &shown, "-F", PANE_TERMINAL];
        let text = self.on_server(server, &[list]).await?;
        let mut sessions = BTreeSet::new();
        for line in text.split_inclusive(|&b| b == b'\n') {
            let (session, shown) = pane_terminal(line).ok_or_else(|| format::malformed(line))?;
            sessions.extend((shown == terminal.0).then_some(session));
        }
        if sessions.is_empty() {
            return Ok(None);
        }
        let mut all = Vec::new();
        for session in sessions {
            let target = session.to_string();
            let text = self.on_server(server, &[&["list-clients", "-t", &target, "-F", CLIENT]]).await?;
            for line in text.split_inclusive(|&b| b == b'\n') {
                all.push(client(line).ok_or_else(|| format::malformed(line))?);
            }
        }
        Ok(Some(all))
    }

    /// Reads what is to be known of a pane before its adoption.
    ///
    /// # Errors
    /// [`TmuxError::NotFound`] if this server has no such pane, or another server answers.
    pub async fn pane_use(&self, server: ServerRef, pane: PaneId) -> Result<PaneUse, TmuxError> {
        let target = pane.to_string();
        let read: &[&str] = &["display-message", "-p", "-t", &target, PANE_USE];
        let text = self.on_server(server, &[read]).await?;
        format::take_line(&text)
            .and_then(|(line, _)| {
                let mut fields = line.splitn(3, |&b| b == b' ');
                let used_at: u64 = format::field(fields.next())?;
                let wrote_at = format::field(fields.next())?;
                Some(PaneUse { active_at: used_at.max(wrote_at), piped: fields.next()? == b"1" })
            })
            .ok_or_else(|| format::malformed(&text))
    }

    /// Switches the client with this [`Client::name`] to another session.
    ///
    /// # Errors
    /// [`TmuxError::NotFound`] if there is no such client or session, or another server answers.
    pub async fn switch_client(
        &self,
        server: ServerRef,
        client: &str,
        session: TmuxSessionId,
    ) -> Result<(), TmuxError> {
        let target = session.to_string();
        self.on_server(server, &[&["switch-client", "-c", client, "-t", &target]]).await.map(drop)
    }

    /// Ends the pool's own server if it has no session but the hidden one, and no pane of the pool in that. A session
    /// that is created meanwhile keeps the server alive. Any other server is left alone.
    ///
    /// # Errors
    /// As any call; [`TmuxError::NoServer`] if none runs. Safe to repeat.
    pub async fn end_if_empty(&self) -> Result<(), TmuxError> {
        if !self.own {
            return Ok(());
        }
        let listing = self.observe().await?;
        if !listing.sessions.is_empty() || !listing.panes.is_empty() {
            return Ok(());
        }
        let hidden = format!("={HIDDEN_SESSION}:");
        let ends = ["set-option", "-s", "exit-empty", "on"];
        // Without the hidden session this fails, after the server was told to end.
        let line = CommandLine::default().then(ends).then(["kill-session", "-t", &hidden]);
        self.run(&line, None, false).await.map(drop)
    }

    async fn effect(&self, pane: PaneRef, commands: &[&[&str]]) -> Result<Answer, TmuxError> {
        let guarded = Guarded { pane, precondition: Precondition::Ours, commands };
        guarded.run(self).await.map(|(answer, _)| answer)
    }

    /// Runs commands if this server answers, and returns their output.
    async fn on_server(&self, server: ServerRef, commands: &[&[&str]]) -> Result<Vec<u8>, TmuxError> {
        let nonce = Nonce::new();
        let (yes, no) = (format!("YES {nonce}"), format!("NO {nonce}"));
        let last: &[&str] = &["display-message", "-p", &yes];
        let effect = script(commands.iter().copied().chain([last]));
        let refusal = script([&["display-message", "-p", no.as_str()][..]]);
        let condition = format!("#{{==:#{{pid}} #{{start_time}},{} {}}}", server.pid, server.started_at);
        let line = CommandLine::default().then(["if-shell", "-F", &condition, &effect, &refusal]);
        let reply = self.run(&line, None, false).await?;
        if reply.stdout.starts_with(no.as_bytes()) {
            return Err(TmuxError::NotFound("another server answers at the socket".to_owned()));
        }
        let body = reply.stdout.strip_suffix(format!("{yes}\n").as_bytes());
        body.map(<[u8]>::to_vec).ok_or_else(|| reply.error())
    }
}

/// Format: true for a session that a pool made or adopted, and that its user has not taken over.
fn of_pool() -> String {
    let option = format::POOLED;
    format!("#{{&&:#{{{option}}},#{{!=:#{{{option}}},{TAKEN}}}}}")
}

/// Returns the name for the leftover tmux session of an ended incarnation, which frees its own name for the
/// next.
pub fn retired_name(tag: Tag) -> Name {
    format!("stale-{tag}").parse().expect("'stale-' and 32 hexadecimal digits obey the rules for names")
}

/// Returns the name that a session gets when this incarnation takes its name: the pool has given that session up,
/// because its user has panes in it.
pub fn left_name(tag: Tag) -> Name {
    format!("left-{tag}").parse().expect("'left-' and 32 hexadecimal digits obey the rules for names")
}

fn pane_terminal(line: &[u8]) -> Option<(TmuxSessionId, &[u8])> {
    let mut fields = line.strip_suffix(b"\n")?.splitn(2, |&b| b == b'\t');
    Some((format::field(fields.next())?, fields.next()?))
}

fn client(line: &[u8]) -> Option<Client> {
    let mut fields = line.strip_suffix(b"\n")?.splitn(5, |&b| b == b'\t');
    let pid = format::field(fields.next())?;
    let control = format::field::<u8>(fields.next())? == 1;
    let read_only = format::field::<u8>(fields.next())? == 1;
    let active_at = format::field(fields.next())?;
    let name = String::from_utf8(fields.next()?.to_vec()).ok()?;
    Some(Client { name, pid, control, read_only, active_at })
}

/// Returns the last `n` lines, without the blank ones at the end.
fn last_lines(mut text: Vec<u8>, n: u32) -> Vec<u8> {
    let blank = |b: &u8| *b == b'\n' || *b == b' ';
    let end = text.iter().rposition(|b| !blank(b)).map_or(0, |last| last + 1);
    text.truncate(end);
    if !text.is_empty() {
        text.push(b'\n');
    }
    let count = usize::try_from(n).unwrap_or(usize::MAX);
    let starts: Vec<usize> = text.split_inclusive(|&b| b == b'\n').map(<[u8]>::len).collect();
    let skipped = starts.iter().take(starts.len().saturating_sub(count)).sum();
    text.split_off(skipped)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_lines_are_those_with_text() {
        let last = |text: &str, n| String::from_utf8(last_lines(text.into(), n)).unwrap();
        assert_eq!(last("a\nb\nc\n\n \n", 2), "b\nc\n");
        assert_eq!(last("a\n\nb\n\n", 9), "a\n\nb\n");
        assert_eq!(last("\n\n", 3), "");
        assert_eq!(last("a\n", 0), "");
    }

    #[test]
    fn clients_parse_or_fail() {
        let expected =
            Client { name: "/dev/pts/3".to_owned(), pid: 9, control: false, read_only: true, active_at: 5 };
        assert_eq!(client(b"9\t0\t1\t5\t/dev/pts/3\n"), Some(expected));
        for bad in ["", "9\t0\t1\t5\t/dev/pts/3", "x\t0\t1\t5\ty\n", "9\t0\t1\t5\n"] {
            assert_eq!(client(bad.as_bytes()), None, "{bad}");
        }
    }

    #[test]
    fn stale_names_are_names() {
        assert_eq!(retired_name(Tag([0xff; 16])).as_str(), format!("stale-{}", "f".repeat(32)));
        assert_eq!(left_name(Tag([0xff; 16])).as_str(), format!("left-{}", "f".repeat(32)));
    }
}
