//! Effects on a pane that happen only if it is the pane that is meant: one server-side check of
//! server identity, pane id, tag and state, in the same queue pass as the effect.

use std::fmt;
use std::hash::{BuildHasher, RandomState};

use protocol::ids::{PaneId, ServerId, Tag, Token};

use crate::command::{Line, script};
use crate::device::Device;
use crate::error::{TmuxError, shorten};
use crate::receipt;

/// A run of a tmux server as tmux itself tells it: ids mean something only within it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ServerRef {
    /// `#{pid}`.
    pub pid: u32,
    /// `#{start_time}`: seconds since the Unix epoch.
    pub started_at: u64,
}

impl From<ServerId> for ServerRef {
    fn from(id: ServerId) -> Self {
        Self { pid: id.process.pid, started_at: id.started_at }
    }
}

/// The pane that is meant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PaneRef {
    /// The server that gave out the pane's id.
    pub server: ServerRef,
    /// The pane.
    pub pane: PaneId,
    /// What its option `@pool_id` must say.
    pub tag: Tag,
}

/// What came of a guarded effect. Everything but [`Answer::Done`]: certainly nothing was done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Answer {
    /// Done.
    Done,
    /// This server has no such pane (any more).
    Gone,
    /// The pane has another tag, or none.
    NotOurs,
    /// Another server answers at the socket; nothing is known of the one meant.
    OtherServer,
    /// The pane's terminal was closed.
    Dead,
    /// The pane is in copy mode or another mode that would swallow keys.
    InMode,
    /// The pane does not take input (`select-pane -d`).
    InputOff,
    /// A client is attached to the session that shows the pane.
    Attached,
    /// The pane's [receipt](crate::receipt) is not of before this token.
    Already,
}

/// How much must be true of the pane besides that it is ours.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Needs {
    /// Nothing.
    Ours,
    /// Its terminal is open.
    Alive,
    /// Its terminal is open and takes input.
    Open,
    /// And no mode is in the way.
    Typable,
    /// And nothing was typed or called off under this token or a later one.
    Untyped(Token),
    /// Its terminal is open and takes input, and what was typed last was typed under this token, without Enter.
    Unentered(Token),
    /// Nobody is attached to its session.
    Unattended,
}

/// What [`Answer`] is read from. The option comes last: whoever works in the pane can set it to anything.
const FACTS: &str = "#{pid} #{start_time} #{pane_id} #{pane_dead} #{pane_input_off} #{pane_in_mode} #{session_attached} #{@pool_id}";

/// A mark in tmux's output that nothing in a pane can know beforehand.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Nonce(u64);

impl Nonce {
    /// The standard library seeds its hashes from the operating system.
    pub(crate) fn new() -> Self {
        Self(RandomState::new().hash_one(std::process::id()))
    }
}

impl fmt::Display for Nonce {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

/// What came of a guard, as its marks tell.
pub(crate) enum Outcome<'a> {
    /// It held; what the commands behind it wrote.
    Done(&'a [u8]),
    /// It did not; the facts that it was about.
    Refused(String),
}

/// `None` without either mark. Only the very last line can be the mark of success, and only the very
/// first the mark of refusal.
pub(crate) fn outcome(nonce: Nonce, stdout: &[u8]) -> Option<Outcome<'_>> {
    if let Some(body) = stdout.strip_suffix(format!("YES {nonce}\n").as_bytes()) {
        return Some(Outcome::Done(body));
    }
    let rest = stdout.strip_prefix(format!("NO {nonce} ").as_bytes())?;
    let first = rest.split(|&b| b == b'\n').next().unwrap_or_default();
    Some(Outcome::Refused(String::from_utf8_lossy(first).into_owned()))
}

/// An effect on a pane.
pub(crate) struct Guarded<'a> {
    pub(crate) pane: PaneRef,
    pub(crate) needs: Needs,
    /// The commands of the effect. The first that fails ends them.
    pub(crate) commands: &'a [&'a [&'a str]],
}

impl Guarded<'_> {
    /// Runs it and returns what its commands wrote, which is empty unless it was done.
    pub(crate) async fn run(&self, device: &Device) -> Result<(Answer, Vec<u8>), TmuxError> {
        self.run_script(device, &script(self.commands.iter().copied())).await
    }

    /// The same with the effect as a text, for words that are none.
    pub(crate) async fn run_script(
        &self,
        device: &Device,
        effect: &str,
    ) -> Result<(Answer, Vec<u8>), TmuxError> {
        let nonce = Nonce::new();
        let done = format!("YES {nonce}");
        let last: &[&str] = &["display-message", "-p", &done];
        let marked = script([last]);
        let effect = if effect.is_empty() { marked } else { format!("{effect} ; {marked}") };
        let line = Line::default().then(self.words(&nonce, &effect, None));
        let reply = device.run(&line, None, false).await?;
        self.answer(nonce, &reply.stdout).unwrap_or_else(|| Err(reply.error()))
    }

    /// `if-shell` with `effect` where the guard holds, else `otherwise` and the reason.
    pub(crate) fn words(&self, nonce: &Nonce, effect: &str, otherwise: Option<&[&str]>) -> Vec<String> {
        let target = self.pane.pane.to_string();
        let why = format!("NO {nonce} {FACTS}");
        let why: &[&str] = &["display-message", "-p", "-t", &target, &why];
        let refusal = script(otherwise.into_iter().chain([why]));
        let words = ["if-shell", "-F", "-t", &target, &self.condition(), effect, &refusal];
        words.map(str::to_owned).to_vec()
    }

    /// One comparison of a few facts in a row with what they must be. A missing pane has no id.
    fn condition(&self) -> String {
        let (facts, state) = match self.needs {
            Needs::Ours => ("", ""),
            Needs::Alive => ("#{pane_dead} ", "0 "),
            Needs::Open | Needs::Unentered(_) => ("#{pane_dead} #{pane_input_off} ", "0 0 "),
            Needs::Unattended => ("#{session_attached} ", "0 "),
            Needs::Typable | Needs::Untyped(_) => {
                ("#{pane_dead} #{pane_input_off} #{pane_in_mode} ", "0 0 0 ")
            }
        };
        let (receipt, valid) = match self.needs {
            Needs::Untyped(token) => (format!("{} ", receipt::before(token)), "1 "),
            Needs::Unentered(token) => (format!("{} ", receipt::without_enter(token)), "1 "),
            _ => (String::new(), ""),
        };
        let PaneRef { server, pane, tag } = self.pane;
        let (pid, started) = (server.pid, server.started_at);
        format!(
            "#{{==:#{{pid}} #{{start_time}} #{{pane_id}} {facts}{receipt}#{{@pool_id}},{pid} {started} {pane} {state}{valid}{tag}}}"
        )
    }

    /// What the output says, or `None` without either mark.
    pub(crate) fn answer(&self, nonce: Nonce, stdout: &[u8]) -> Option<Result<(Answer, Vec<u8>), TmuxError>> {
        Some(match outcome(nonce, stdout)? {
            Outcome::Done(body) => Ok((Answer::Done, body.to_vec())),
            Outcome::Refused(facts) => match self.reason(&facts) {
                Some(answer) => Ok((answer, Vec::new())),
                None => Err(TmuxError::Output(shorten(&facts))),
            },
        })
    }

    /// The first of the facts that is not as it must be; `None` where they do not explain a refusal.
    fn reason(&self, facts: &str) -> Option<Answer> {
        let fields: Vec<&str> = facts.splitn(8, ' ').collect();
        let &[pid, started, pane, dead, input_off, mode, attached, tag] = fields.as_slice() else {
            return None;
        };
        let expected = self.pane;
        if pid != expected.server.pid.to_string() || started != expected.server.started_at.to_string() {
            Some(Answer::OtherServer)
        } else if pane != expected.pane.to_string() {
            Some(Answer::Gone)
        } else if tag != expected.tag.to_string() {
            Some(Answer::NotOurs)
        } else if self.needs == Needs::Unattended {
            (attached != "0").then_some(Answer::Attached)
        } else if self.needs != Needs::Ours && dead != "0" {
            Some(Answer::Dead)
        } else if !matches!(self.needs, Needs::Ours | Needs::Alive) && input_off != "0" {
            Some(Answer::InputOff)
        } else if matches!(self.needs, Needs::Typable | Needs::Untyped(_)) && mode != "0" {
            Some(Answer::InMode)
        } else {
            matches!(self.needs, Needs::Untyped(_) | Needs::Unentered(_)).then_some(Answer::Already)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn guarded(needs: Needs) -> Guarded<'static> {
        let server = ServerRef { pid: 10, started_at: 99 };
        Guarded { pane: PaneRef { server, pane: PaneId(7), tag: Tag([0xab; 16]) }, needs, commands: &[] }
    }

    fn read(needs: Needs, facts: &str) -> Option<Answer> {
        guarded(needs).reason(facts)
    }

    #[test]
    fn each_reason_is_named() {
        let tag = "ab".repeat(16);
        let line = |start: &str| format!("{start} {tag}");
        assert_eq!(read(Needs::Ours, &line("11 99 %7 0 0 0 0")), Some(Answer::OtherServer));
        assert_eq!(read(Needs::Ours, &line("10 98 %7 0 0 0 0")), Some(Answer::OtherServer));
        assert_eq!(read(Needs::Ours, "10 99      "), Some(Answer::Gone));
        assert_eq!(read(Needs::Ours, "10 99 %7 0 0 0 0 x y z"), Some(Answer::NotOurs));
        assert_eq!(read(Needs::Open, &line("10 99 %7 1 0 0 0")), Some(Answer::Dead));
        assert_eq!(read(Needs::Open, &line("10 99 %7 0 1 0 0")), Some(Answer::InputOff));
        assert_eq!(read(Needs::Typable, &line("10 99 %7 0 0 2 0")), Some(Answer::InMode));
        assert_eq!(read(Needs::Open, &line("10 99 %7 0 0 2 0")), None);
        assert_eq!(read(Needs::Unattended, &line("10 99 %7 0 0 0 1")), Some(Answer::Attached));
        assert_eq!(read(Needs::Unattended, &line("10 99 %7 1 1 1 0")), None);
        let token = Token::default();
        assert_eq!(read(Needs::Untyped(token), &line("10 99 %7 0 0 1 0")), Some(Answer::InMode));
        assert_eq!(read(Needs::Untyped(token), &line("10 99 %7 0 0 0 1")), Some(Answer::Already));
        assert_eq!(read(Needs::Unentered(token), &line("10 99 %7 0 0 1 1")), Some(Answer::Already));
        assert_eq!(read(Needs::Ours, "nonsense"), None);
    }

    #[test]
    fn marks_count_only_in_their_place() {
        let (guarded, nonce) = (guarded(Needs::Ours), Nonce(5));
        let read = |text: &str| guarded.answer(nonce, text.as_bytes());
        let yes = format!("YES {nonce}");
        assert!(read(&format!("{yes}\nmore\n")).is_none());
        assert!(read(&yes).is_none(), "cut off");
        assert!(
            matches!(read(&format!("body\n{yes}\n")), Some(Ok((Answer::Done, body))) if body == b"body\n")
        );
        assert!(read(&format!("x\nNO {nonce} 10 99     \n")).is_none());
    }
}
