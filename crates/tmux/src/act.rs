//! Guarded effects on a pane and on the session around it, and looking into it.

use protocol::ids::{Tag, TmuxSessionId};
use protocol::text::Name;
use protocol::tmux::HIDDEN_SESSION;

use crate::command::{Line, script};
use crate::device::Device;
use crate::error::TmuxError;
use crate::format;
use crate::guard::{Answer, Guarded, Needs, Nonce, PaneRef, ServerRef};

/// How much of a pane to show.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lines {
    /// What is on the screen, blank rows at the end included.
    Visible,
    /// The last so many lines of history and screen, without the blank rows at the end.
    Last(u32),
    /// All of history and screen.
    All,
}

/// A client attached to a session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Client {
    /// tmux's name for it: the path of its terminal, or `client-PID`.
    pub name: String,
    /// Its process.
    pub pid: u32,
    /// Whether it is a program in control mode rather than a terminal.
    pub control: bool,
    /// Whether it only looks on.
    pub read_only: bool,
}

const CLIENT: &str = "#{client_pid}\t#{client_control_mode}\t#{client_readonly}\t#{client_name}";

impl Device {
    /// The text of a pane, of a dead one too, with escape sequences for colours where `ansi`. Empty
    /// unless the answer is [`Answer::Done`].
    ///
    /// # Errors
    /// As any call.
    pub async fn capture(
        &self,
        pane: PaneRef,
        lines: Lines,
        ansi: bool,
    ) -> Result<(Answer, Vec<u8>), TmuxError> {
        let target = pane.pane.to_string();
        let start = match lines {
            Lines::Visible => "0".to_owned(),
            Lines::Last(n) => format!("-{n}"),
            Lines::All => "-".to_owned(),
        };
        let mut command = vec!["capture-pane", "-p", "-t", &target, "-S", &start];
        if ansi {
            command.push("-e");
        }
        let guarded = Guarded { pane, needs: Needs::Ours, commands: &[&command] };
        let (answer, text) = guarded.run(self).await?;
        Ok((answer, if let Lines::Last(n) = lines { last_lines(text, n) } else { text }))
    }

    /// Whether the pane is there, and does nothing: its server says so of this one pane, which costs the same however
    /// many it has.
    ///
    /// # Errors
    /// As any call. Safe to repeat.
    pub async fn peek(&self, pane: PaneRef) -> Result<Answer, TmuxError> {
        self.effect(pane, &[]).await
    }

    /// Removes the pane; with it its window and session, where it was the last.
    /// [`Answer::Gone`] says that it was removed before.
    ///
    /// # Errors
    /// As any call. Safe to repeat.
    pub async fn kill_pane(&self, pane: PaneRef) -> Result<Answer, TmuxError> {
        let target = pane.pane.to_string();
        self.effect(pane, &[&["kill-pane", "-t", &target]]).await
    }

    /// The same, unless somebody is attached to its session: looked at in the same pass.
    ///
    /// # Errors
    /// As any call. Safe to repeat.
    pub async fn kill_unattended(&self, pane: PaneRef) -> Result<Answer, TmuxError> {
        let target = pane.pane.to_string();
        let commands: &[&[&str]] = &[&["kill-pane", "-t", &target]];
        let guarded = Guarded { pane, needs: Needs::Unattended, commands };
        guarded.run(self).await.map(|(answer, _)| answer)
    }

    /// Renames the pane's session and window.
    ///
    /// # Errors
    /// [`TmuxError::Duplicate`] where another session has the name; then nothing is renamed.
    pub async fn rename(
        &self,
        pane: PaneRef,
        session: TmuxSessionId,
        name: &Name,
    ) -> Result<Answer, TmuxError> {
        let (session, target) = (session.to_string(), pane.pane.to_string());
        let rename: &[&str] = &["rename-session", "-t", &session, name.as_str()];
        self.effect(pane, &[rename, &["rename-window", "-t", &target, name.as_str()]]).await
    }

    /// Leaves the pane to its user: no tag but a word that it was given back, no log, and it closes
    /// when its program ends.
    ///
    /// # Errors
    /// As any call. Once done, a repeat answers [`Answer::NotOurs`].
    pub async fn release(&self, pane: PaneRef) -> Result<Answer, TmuxError> {
        let target = pane.pane.to_string();
        // On a dead pane pipe-pane is an error, which would end the line.
        let no_log = script([&["pipe-pane", "-t", &target][..]]);
        let no_log: &[&str] = &["if-shell", "-F", "-t", &target, "#{?pane_dead,,1}", &no_log];
        let close: &[&str] = &["set-option", "-w", "-t", &target, "remain-on-exit", "off"];
        let message: &[&str] = &["set-option", "-wqu", "-t", &target, "remain-on-exit-format"];
        let no_tag: &[&str] = &["set-option", "-p", "-t", &target, "@pool_id", format::DETACHED];
        self.effect(pane, &[no_log, close, message, no_tag]).await
    }

    /// Forgets the pane's history; its screen stays.
    ///
    /// # Errors
    /// As any call.
    pub async fn clear_history(&self, pane: PaneRef) -> Result<Answer, TmuxError> {
        let target = pane.pane.to_string();
        self.effect(pane, &[&["clear-history", "-t", &target]]).await
    }

    /// The clients attached to a session.
    ///
    /// # Errors
    /// [`TmuxError::NotFound`] where this server has no such session, or another one answers.
    pub async fn clients(&self, server: ServerRef, session: TmuxSessionId) -> Result<Vec<Client>, TmuxError> {
        let target = session.to_string();
        let list: &[&str] = &["list-clients", "-t", &target, "-F", CLIENT];
        let text = self.on_server(server, &[list]).await?;
        let lines = text.split_inclusive(|&b| b == b'\n');
        lines.map(|line| client(line).ok_or_else(|| format::bad(line))).collect()
    }

    /// Shows a client another session. Without [`Client::name`]'s client, or session: not found.
    ///
    /// # Errors
    /// [`TmuxError::NotFound`], also where another server answers.
    pub async fn switch_client(
        &self,
        server: ServerRef,
        client: &str,
        session: TmuxSessionId,
    ) -> Result<(), TmuxError> {
        let target = session.to_string();
        self.on_server(server, &[&["switch-client", "-c", client, "-t", &target]]).await.map(drop)
    }

    /// Ends the pool's own server if it has no session but the hidden one. A session that somebody makes meanwhile keeps
    /// it. Any other server is left alone.
    ///
    /// # Errors
    /// As any call; [`TmuxError::NoServer`] where none runs. Safe to repeat.
    pub async fn end_if_empty(&self) -> Result<(), TmuxError> {
        if !self.own || !self.observe().await?.sessions.is_empty() {
            return Ok(());
        }
        let hidden = format!("={HIDDEN_SESSION}:");
        let ends = ["set-option", "-s", "exit-empty", "on"];
        // Without the hidden session this fails, after the server was told to end.
        let line = Line::default().then(ends).then(["kill-session", "-t", &hidden]);
        self.run(&line, None, false).await.map(drop)
    }

    async fn effect(&self, pane: PaneRef, commands: &[&[&str]]) -> Result<Answer, TmuxError> {
        let guarded = Guarded { pane, needs: Needs::Ours, commands };
        guarded.run(self).await.map(|(answer, _)| answer)
    }

    /// Runs commands if this server answers, and returns what they wrote.
    async fn on_server(&self, server: ServerRef, commands: &[&[&str]]) -> Result<Vec<u8>, TmuxError> {
        let nonce = Nonce::new();
        let (yes, no) = (format!("YES {nonce}"), format!("NO {nonce}"));
        let last: &[&str] = &["display-message", "-p", &yes];
        let effect = script(commands.iter().copied().chain([last]));
        let refusal = script([&["display-message", "-p", no.as_str()][..]]);
        let condition = format!("#{{==:#{{pid}} #{{start_time}},{} {}}}", server.pid, server.started_at);
        let line = Line::default().then(["if-shell", "-F", &condition, &effect, &refusal]);
        let reply = self.run(&line, None, false).await?;
        if reply.stdout.starts_with(no.as_bytes()) {
            return Err(TmuxError::NotFound("another server answers at the socket".to_owned()));
        }
        let body = reply.stdout.strip_suffix(format!("{yes}\n").as_bytes());
        body.map(<[u8]>::to_vec).ok_or_else(|| reply.error())
    }
}

/// The name that a tmux session is given to make room for the next incarnation of its session.
#[must_use]
pub fn stale_name(tag: Tag) -> Name {
    format!("stale-{tag}").parse().expect("'stale-' and 32 hexadecimal digits obey the rules for names")
}

fn client(line: &[u8]) -> Option<Client> {
    let mut fields = line.strip_suffix(b"\n")?.splitn(4, |&b| b == b'\t');
    let pid = format::field(fields.next())?;
    let control = format::field::<u8>(fields.next())? == 1;
    let read_only = format::field::<u8>(fields.next())? == 1;
    let name = String::from_utf8(fields.next()?.to_vec()).ok()?;
    Some(Client { name, pid, control, read_only })
}

/// The last `n` lines, without the blank ones at the end.
fn last_lines(mut text: Vec<u8>, n: u32) -> Vec<u8> {
    let blank = |b: &u8| *b == b'\n' || *b == b' ';
    let end = text.iter().rposition(|b| !blank(b)).map_or(0, |last| last + 1);
    text.truncate(end);
    if !text.is_empty() {
        text.push(b'\n');
    }
    let wanted = usize::try_from(n).unwrap_or(usize::MAX);
    let starts: Vec<usize> = text.split_inclusive(|&b| b == b'\n').map(<[u8]>::len).collect();
    let skipped = starts.iter().take(starts.len().saturating_sub(wanted)).sum();
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
        let expected = Client { name: "/dev/pts/3".to_owned(), pid: 9, control: false, read_only: true };
        assert_eq!(client(b"9\t0\t1\t/dev/pts/3\n"), Some(expected));
        for bad in ["", "9\t0\t1\t/dev/pts/3", "x\t0\t1\ty\n", "9\t0\t1\n"] {
            assert_eq!(client(bad.as_bytes()), None, "{bad}");
        }
    }

    #[test]
    fn stale_names_are_names() {
        assert_eq!(stale_name(Tag([0xff; 16])).as_str(), format!("stale-{}", "f".repeat(32)));
    }
}
