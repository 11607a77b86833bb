//! Creation of a session in one command line: either all of it takes effect, or nothing is left that lives
//! unseen.

use std::ffi::OsString;
use std::path::PathBuf;

use protocol::{Name, PaneId, Tag, TmuxSessionId, Token, WindowId};

use crate::command::{CommandLine, script};
use crate::device::Device;
use crate::error::TmuxError;
use crate::format;
use crate::guard::{Nonce, PaneRef, ServerRef};
use crate::log_pipe::{self, LogOptions};
use crate::receipt;

/// Size of a terminal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Size {
    /// Width in columns.
    pub width: u16,
    /// Height in rows.
    pub height: u16,
}

/// A session to create. Contains no user-supplied text: the program is in the job file.
#[derive(Debug, Clone)]
pub struct Create {
    /// Name of the tmux session and of its window.
    pub name: Name,
    /// Value of the pane's option `@pool_id`.
    pub tag: Tag,
    /// Token later than all under which anything was typed before.
    pub token: Token,
    /// Size of the window while no client is attached.
    pub size: Size,
    /// Lines of history, set for the whole server because a pane takes the value when it is created. `None`
    /// leaves the server's option unchanged, as is the rule on a user's own server.
    pub history_limit: Option<u32>,
    /// Absolute path of the `reaper` binary, the init of the pane and its log writer.
    pub init: PathBuf,
    /// Absolute path of the job file.
    pub job: PathBuf,
    /// Log of the pane.
    pub log: LogOptions,
    /// True to start the server if none answers and [`Device::start_server`] allows it.
    pub start_server: bool,
}

#[cfg(any(test, feature = "testing"))]
impl Create {
    /// Returns a session for a test, whose files need not be there.
    pub fn sample(name: Name, tag: Tag) -> Self {
        let (token, size) = (Token::default(), Size { width: 80, height: 24 });
        let (init, job, log) = ("/i".into(), "/j".into(), LogOptions::new("/l"));
        Self { name, tag, token, size, history_limit: None, init, job, log, start_server: true }
    }
}

/// A created session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Created {
    /// The pane, with its server and its tag.
    pub pane: PaneRef,
    /// The tmux session's id.
    pub session: TmuxSessionId,
    /// The window's id.
    pub window: WindowId,
    /// Pid of the pane's init.
    pub pid: u32,
}

const CREATED: &str = "#{session_id}\t#{window_id}\t#{pane_id}\t#{pane_pid}\t#{pid}\t#{start_time}";

impl Device {
    /// Creates the session; also starts the server if [`Create::start_server`] and [`Device::start_server`] allow it.
    ///
    /// # Errors
    /// [`TmuxError::Duplicate`] if the name is taken. After an error that is not [in
    /// doubt](TmuxError::in_doubt) the session does not exist; after one that is, look for the tag in a
    /// complete listing.
    pub async fn create(&self, create: &Create) -> Result<Created, TmuxError> {
        let nonce = Nonce::new();
        let reply = self.run(&create.line(nonce), None, self.start_server && create.start_server).await?;
        match create.read(nonce, &reply.stdout)? {
            Some((created, true)) => Ok(created),
            Some((created, false)) => self.mark(create, created).await,
            None if reply.stdout.is_empty() => Err(reply.error()),
            None => {
                tracing::warn!(error = %reply.error(), "a session was created incompletely");
                Err(TmuxError::Incomplete)
            }
        }
    }

    /// Marks the pane of a new session that has several panes by now, because a hook of the server's owner added some.
    async fn mark(&self, create: &Create, created: Created) -> Result<Created, TmuxError> {
        let nonce = Nonce::new();
        let Created { pane: PaneRef { server, pane, .. }, pid, .. } = created;
        let target = pane.to_string();
        let is_it = format!(
            "#{{==:#{{pid}} #{{start_time}} #{{pane_id}} #{{pane_pid}},{} {} {pane} {pid}}}",
            server.pid, server.started_at
        );
        let marks = create.marks(&target, nonce);
        let line = CommandLine::default().then(["if-shell", "-F", "-t", &target, &is_it, &marks]);
        let reply = self.run(&line, None, false).await?;
        if reply.stdout == end(nonce).as_bytes() { Ok(created) } else { Err(TmuxError::Incomplete) }
    }
}

impl Create {
    /// Creates the session, and marks its pane if it is the only one. If a hook of the server's owner has added panes
    /// meanwhile, the session's name would address the active one of them.
    fn line(&self, nonce: Nonce) -> CommandLine {
        let target = format!("={}:", self.name.as_str());
        let mut line = CommandLine::default();
        if let Some(limit) = self.history_limit.map(|limit| limit.to_string()) {
            let set: &[&str] = &["set-option", "-g", "history-limit", &limit];
            line =
                line.then(["if-shell", "-F", &format!("#{{!=:#{{history-limit}},{limit}}}"), &script([set])]);
        }
        let crowded: &[&str] = &["display-message", "-p", &crowded(nonce)];
        let (marks, crowded) = (self.marks(&target, nonce), script([crowded]));
        let stays = script([&["set-option", "-t", &target, "destroy-unattached", "off"][..]]);
        let (width, height) = (self.size.width.to_string(), self.size.height.to_string());
        let other_size = format!("#{{!=:#{{window_width}}x#{{window_height}},{width}x{height}}}");
        let (resize, unpin) = format::resize_window(&target, [&width, &height]);
        let leave = script([&["copy-mode", "-q", "-t", &target][..]]);
        line.then(self.new_session())
            // The first session after the server's start shows the errors of its configuration in a mode.
            .then(["if-shell", "-F", "-t", &target, "#{pane_in_mode}", &leave])
            .then(["if-shell", "-F", "-t", &target, SESSION_GOES, &stays])
            // Up to 3.5, a new window gets the size of whatever terminal is attached to the server.
            .then(["if-shell", "-F", "-t", &target, &other_size, &script([&resize[..], &unpin])])
            .then(["if-shell", "-F", "-t", &target, ALONE, &marks, &crowded])
    }

    /// Builds the commands that mark a pane and begin its log. The tag is set first, so that a later failure leaves an
    /// identifiable pane. Options that have their value already are not set, because setting one makes the server visit
    /// all its windows.
    fn marks(&self, target: &str, nonce: Nonce) -> String {
        let tag = self.tag.to_string();
        let made_for = format!("{tag} {}", self.name);
        let [tagged, of_program] = format::set_tag(target, &tag);
        let receipt = receipt::revoked(target, self.token);
        let receipt = receipt.each_ref().map(String::as_str);
        let log = log_pipe::command(&self.init, &self.log, self.tag);
        let log = ["pipe-pane".as_ref(), "-O".as_ref(), "-t".as_ref(), target.as_ref(), log.as_os_str()];
        let marks: [&[&str]; 5] = [
            &tagged,
            &of_program,
            &["set-option", "-t", target, format::POOLED, &made_for],
            &receipt,
            &["if-shell", "-F", "-t", target, SCREEN_GOES, &keep_screen(target)],
        ];
        let end: &[&str] = &["display-message", "-p", &format!("END {nonce}")];
        [script(marks), script([&log[..]]), script([end])].join(" ; ")
    }

    /// Builds the `new-session` command. The program has three words, so that tmux execs it without a
    /// shell.
    fn new_session(&self) -> Vec<OsString> {
        let name = self.name.as_str();
        let (width, height) = (self.size.width.to_string(), self.size.height.to_string());
        let options = ["new-session", "-d", "-s", name, "-n", name, "-x", &width, "-y", &height];
        let mut words: Vec<OsString> = options.map(OsString::from).to_vec();
        words.extend(["-P", "-F", CREATED, "--"].map(OsString::from));
        words.extend([self.init.clone().into(), "exec".into(), self.job.clone().into()]);
        words
    }

    /// Parses the ids, and whether the pane was marked. `None` unless all of it is there.
    fn read(&self, nonce: Nonce, text: &[u8]) -> Result<Option<(Created, bool)>, TmuxError> {
        let marked = text.strip_suffix(end(nonce).as_bytes()).map(|ids| (ids, true));
        let crowded =
            || text.strip_suffix(format!("{}\n", crowded(nonce)).as_bytes()).map(|ids| (ids, false));
        let Some((ids, is_marked)) = marked.or_else(crowded) else { return Ok(None) };
        let Some((line, b"")) = format::take_line(ids) else { return Err(format::malformed(ids)) };
        let created = self.ids(line).ok_or_else(|| format::malformed(ids))?;
        Ok(Some((created, is_marked)))
    }

    fn ids(&self, line: &[u8]) -> Option<Created> {
        let mut fields = line.split(|&b| b == b'\t');
        let session = format::field(fields.next())?;
        let window = format::field(fields.next())?;
        let pane: PaneId = format::field(fields.next())?;
        let pid = format::field(fields.next())?;
        let server =
            ServerRef { pid: format::field(fields.next())?, started_at: format::field(fields.next())? };
        let created = Created { pane: PaneRef { server, pane, tag: self.tag }, session, window, pid };
        if fields.next().is_none() { Some(created) } else { None }
    }
}

/// Returns the output of a pane's last mark.
fn end(nonce: Nonce) -> String {
    format!("END {nonce}\n")
}

/// Returns the words for a session that has other panes already.
fn crowded(nonce: Nonce) -> String {
    format!("CROWDED {nonce}")
}

/// Format: true of a session with one pane.
const ALONE: &str = "#{&&:#{==:#{session_windows},1},#{==:#{window_panes},1}}";

/// Format: true if tmux would remove the session once no client is attached. A flag is shown as a number.
const SESSION_GOES: &str = "#{?#{||:#{==:#{destroy-unattached},off},#{==:#{destroy-unattached},0}},0,1}";

/// Format: true if the screen of a dead pane would vanish, or be scrolled for a message about its death.
const SCREEN_GOES: &str = "#{!=:#{remain-on-exit} #{remain-on-exit-format},on }";

/// Builds the commands that keep the last screen of a dead pane: tmux (from 3.3; before that `-q` drops the
/// option) would scroll it for a message about its death.
fn keep_screen(target: &str) -> String {
    let stay: &[&str] = &["set-option", "-w", "-t", target, "remain-on-exit", "on"];
    script([stay, &["set-option", "-wq", "-t", target, "remain-on-exit-format", ""]])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_and_end_mark_are_both_needed() {
        let create = Create::sample("a".parse().unwrap(), Tag([1; 16]));
        let nonce = Nonce::new();
        let read = |text: &str| create.read(nonce, text.as_bytes());
        let ids = "$3\t@4\t%7\t4242\t10\t99\n";
        let (created, is_marked) = read(&format!("{ids}END {nonce}\n")).unwrap().unwrap();
        assert!(is_marked);
        assert_eq!(read(&format!("{ids}CROWDED {nonce}\n")).unwrap(), Some((created, false)));
        assert_eq!((created.session, created.window, created.pid), (TmuxSessionId(3), WindowId(4), 4242));
        assert_eq!(created.pane.server, ServerRef { pid: 10, started_at: 99 });
        assert!(read(ids).unwrap().is_none());
        assert!(read(&format!("END {nonce}\n")).is_err());
        assert!(read(&format!("$3\t@4\t%7\t4242\t10\nEND {nonce}\n")).is_err());
    }
}
