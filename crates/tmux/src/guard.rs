//! Guarded effects on a pane: one server-side check of server identity, pane id, tag and state, in the same
//! queue pass as the effect.

use std::fmt;
use std::hash::{BuildHasher, RandomState};

use protocol::{PaneId, ServerId, Tag, Token};

use crate::command::{CommandLine, script};
use crate::device::Device;
use crate::error::{TmuxError, shorten};
use crate::format::{TAG, attached, same_program, unattended};
use crate::receipt;

/// Identity of a running tmux server as tmux reports it. Ids are valid only within it.
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

/// Address of one pane.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PaneRef {
    /// The server that assigned the pane's id.
    pub server: ServerRef,
    /// The pane's id.
    pub pane: PaneId,
    /// Required value of its option `@pool_id`.
    pub tag: Tag,
}

impl PaneRef {
    /// Format: true for this pane if another program was started in it after it got its tag.
    pub(crate) fn has_other_program(&self) -> String {
        let Self { server, pane, tag } = self;
        let facts = "#{pid} #{start_time} #{pane_id} #{@pool_id}";
        let expected = format!("{} {} {pane} {tag}", server.pid, server.started_at);
        format!("#{{&&:#{{==:{facts},{expected}}},#{{?{},0,1}}}}", same_program!())
    }
}

/// Result of a guarded effect. With any but [`Answer::Done`], certainly nothing was done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Answer {
    /// The effect was carried out.
    Done,
    /// This server has no such pane, or no longer.
    Gone,
    /// The pane has another tag, or none, or another program was started in it (`respawn-pane`).
    NotOurs,
    /// Another server answers at the socket; nothing is known of the expected one.
    OtherServer,
    /// The pane's terminal is closed.
    Dead,
    /// The pane is in copy mode or another mode that would swallow keys.
    InMode,
    /// The pane's input is disabled (`select-pane -d`).
    InputOff,
    /// A client is attached to the session that shows the pane.
    Attached,
    /// The pane's [receipt](crate::receipt) is not older than this token.
    Already,
    /// The pane's output is piped to a command of its user (`pipe-pane`).
    Piped,
}

impl fmt::Display for Answer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Done => "it was done",
            Self::Gone => "its pane is gone",
            Self::NotOurs => "its pane has another program, or another pool's mark",
            Self::OtherServer => "another tmux server answers",
            Self::Dead => "its terminal is closed",
            Self::InMode => "it is in copy mode",
            Self::InputOff => "the input of its pane is off",
            Self::Attached => "a client is attached",
            Self::Already => "its pane has a later receipt",
            Self::Piped => "its output is piped by its user",
        })
    }
}

/// Requirements on the pane beyond its identity and tag.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Precondition {
    /// No further requirement.
    Ours,
    /// Its terminal is open.
    Alive,
    /// Its terminal is open and takes input.
    Open,
    /// Its terminal is open, takes input, and is in no mode.
    Typable,
    /// As `Typable`, and nothing was typed or revoked under this token or a later one.
    Untyped(Token),
    /// Its terminal is open and takes input, and the last text was typed under this token, without Enter.
    Unentered(Token),
    /// No client is attached to its session or to another session of its group, and no client shows it through a link
    /// to its window.
    Unattended,
}

/// The facts that [`Answer`] is derived from, before the tag. That comes last: any program in the pane can set its
/// option to anything.
const FACTS: &str =
    concat!("#{pid} #{start_time} #{pane_id} #{pane_dead} #{pane_input_off} #{pane_in_mode} ", unattended!());

/// Random marker in tmux's output that nothing in a pane can predict.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Nonce(u64);

impl Nonce {
    /// Random, because the standard library seeds its hashes from the operating system.
    pub(crate) fn new() -> Self {
        Self(RandomState::new().hash_one(std::process::id()))
    }
}

impl fmt::Display for Nonce {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

/// Result of a guard, as its marks tell.
pub(crate) enum GuardReply<'a> {
    /// The guard held; the output of the commands behind it.
    Done(&'a [u8]),
    /// The guard failed; the facts that it compared.
    Refused(String),
}

/// Parses the output of a guard; `None` without either mark. Only the very last line can be the mark of
/// success, and only the very first the mark of refusal.
pub(crate) fn guard_reply(nonce: Nonce, stdout: &[u8]) -> Option<GuardReply<'_>> {
    if let Some(body) = stdout.strip_suffix(format!("YES {nonce}\n").as_bytes()) {
        return Some(GuardReply::Done(body));
    }
    let rest = stdout.strip_prefix(format!("NO {nonce} ").as_bytes())?;
    let first = rest.split(|&b| b == b'\n').next().unwrap_or_default();
    Some(GuardReply::Refused(String::from_utf8_lossy(first).into_owned()))
}

/// Effect on a pane, with its preconditions.
pub(crate) struct Guarded<'a> {
    pub(crate) pane: PaneRef,
    pub(crate) precondition: Precondition,
    /// Commands of the effect. The first failure ends them.
    pub(crate) commands: &'a [&'a [&'a str]],
}

impl Guarded<'_> {
    /// Runs the effect, and returns the output of its commands, which is empty unless the answer is
    /// [`Answer::Done`].
    pub(crate) async fn run(&self, device: &Device) -> Result<(Answer, Vec<u8>), TmuxError> {
        self.run_script(device, &script(self.commands.iter().copied())).await
    }

    /// As [`Guarded::run`], with the effect as a script, for words that are not UTF-8.
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
        let line = CommandLine::default().then(self.words(&nonce, &effect, None));
        let reply = device.run(&line, None, false).await?;
        self.answer(nonce, &reply.stdout).unwrap_or_else(|| Err(reply.error()))
    }

    /// Builds the `if-shell` that runs `effect` if the guard holds, else `otherwise` followed by the
    /// reason.
    pub(crate) fn words(&self, nonce: &Nonce, effect: &str, otherwise: Option<&[&str]>) -> Vec<String> {
        let target = self.pane.pane.to_string();
        let why = format!("NO {nonce} {FACTS} {TAG}");
        let why: &[&str] = &["display-message", "-p", "-t", &target, &why];
        let refusal = script(otherwise.into_iter().chain([why]));
        let words = ["if-shell", "-F", "-t", &target, &self.condition(), effect, &refusal];
        words.map(str::to_owned).to_vec()
    }

    /// Builds one comparison of a row of facts with their required values. A missing pane has an empty id.
    fn condition(&self) -> String {
        let (facts, state) = match self.precondition {
            Precondition::Ours => ("", ""),
            Precondition::Alive => ("#{pane_dead} ", "0 "),
            Precondition::Open | Precondition::Unentered(_) => ("#{pane_dead} #{pane_input_off} ", "0 0 "),
            Precondition::Unattended => (concat!(unattended!(), " "), "00 "),
            Precondition::Typable | Precondition::Untyped(_) => {
                ("#{pane_dead} #{pane_input_off} #{pane_in_mode} ", "0 0 0 ")
            }
        };
        let (receipt, valid) = match self.precondition {
            Precondition::Untyped(token) => (format!("{} ", receipt::before(token)), "1 "),
            Precondition::Unentered(token) => (format!("{} ", receipt::without_enter(token)), "1 "),
            _ => (String::new(), ""),
        };
        let PaneRef { server, pane, tag } = self.pane;
        let (pid, started) = (server.pid, server.started_at);
        format!(
            "#{{==:#{{pid}} #{{start_time}} #{{pane_id}} {facts}{receipt}{TAG},{pid} {started} {pane} {state}{valid}{tag}}}"
        )
    }

    /// Parses the output; `None` without either mark.
    pub(crate) fn answer(&self, nonce: Nonce, stdout: &[u8]) -> Option<Result<(Answer, Vec<u8>), TmuxError>> {
        Some(match guard_reply(nonce, stdout)? {
            GuardReply::Done(body) => Ok((Answer::Done, body.to_vec())),
            GuardReply::Refused(facts) => match self.reason(&facts) {
                Some(answer) => Ok((answer, Vec::new())),
                None => Err(TmuxError::Output(shorten(&facts))),
            },
        })
    }

    /// Returns the first violated requirement; `None` if the facts do not explain a refusal.
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
        } else if self.precondition == Precondition::Unattended {
            (attached != "00").then_some(Answer::Attached)
        } else if self.precondition != Precondition::Ours && dead != "0" {
            Some(Answer::Dead)
        } else if !matches!(self.precondition, Precondition::Ours | Precondition::Alive) && input_off != "0" {
            Some(Answer::InputOff)
        } else if matches!(self.precondition, Precondition::Typable | Precondition::Untyped(_)) && mode != "0"
        {
            Some(Answer::InMode)
        } else {
            matches!(self.precondition, Precondition::Untyped(_) | Precondition::Unentered(_))
                .then_some(Answer::Already)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn guarded(precondition: Precondition) -> Guarded<'static> {
        let server = ServerRef { pid: 10, started_at: 99 };
        Guarded {
            pane: PaneRef { server, pane: PaneId(7), tag: Tag([0xab; 16]) },
            precondition,
            commands: &[],
        }
    }

    fn read(precondition: Precondition, facts: &str) -> Option<Answer> {
        guarded(precondition).reason(facts)
    }

    #[test]
    fn each_reason_is_named() {
        let tag = "ab".repeat(16);
        let line = |start: &str| format!("{start} {tag}");
        assert_eq!(read(Precondition::Ours, &line("11 99 %7 0 0 0 0")), Some(Answer::OtherServer));
        assert_eq!(read(Precondition::Ours, &line("10 98 %7 0 0 0 0")), Some(Answer::OtherServer));
        assert_eq!(read(Precondition::Ours, "10 99      "), Some(Answer::Gone));
        assert_eq!(read(Precondition::Ours, "10 99 %7 0 0 0 0 x y z"), Some(Answer::NotOurs));
        assert_eq!(read(Precondition::Open, &line("10 99 %7 1 0 0 0")), Some(Answer::Dead));
        assert_eq!(read(Precondition::Open, &line("10 99 %7 0 1 0 0")), Some(Answer::InputOff));
        assert_eq!(read(Precondition::Typable, &line("10 99 %7 0 0 2 0")), Some(Answer::InMode));
        assert_eq!(read(Precondition::Open, &line("10 99 %7 0 0 2 0")), None);
        for viewers in ["11", "10", "01"] {
            let facts = line(&format!("10 99 %7 0 0 0 {viewers}"));
            assert_eq!(read(Precondition::Unattended, &facts), Some(Answer::Attached));
        }
        assert_eq!(read(Precondition::Unattended, &line("10 99 %7 1 1 1 00")), None);
        let token = Token::default();
        assert_eq!(read(Precondition::Untyped(token), &line("10 99 %7 0 0 1 0")), Some(Answer::InMode));
        assert_eq!(read(Precondition::Untyped(token), &line("10 99 %7 0 0 0 1")), Some(Answer::Already));
        assert_eq!(read(Precondition::Unentered(token), &line("10 99 %7 0 0 1 1")), Some(Answer::Already));
        assert_eq!(read(Precondition::Ours, "nonsense"), None);
    }

    #[test]
    fn marks_count_only_in_their_place() {
        let (guarded, nonce) = (guarded(Precondition::Ours), Nonce(5));
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
