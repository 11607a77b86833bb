//! Adoption of a pane that was created outside of the pool: it gets a tag and a log, and its session a mark;
//! nothing else about it changes.

use std::path::PathBuf;

use protocol::{PaneId, Tag, TmuxSessionId, Token};

use crate::command::{CommandLine, script};
use crate::device::Device;
use crate::error::{TmuxError, shorten};
use crate::format::{self, POOLED, TAG, same_program};
use crate::guard::{Answer, GuardReply, Nonce, ServerRef, guard_reply};
use crate::log_pipe::{self, LogOptions};
use crate::receipt;

/// Parameters of an adoption.
#[derive(Debug, Clone)]
pub struct Adopt {
    /// Value of the pane's option `@pool_id`.
    pub tag: Tag,
    /// Token later than all under which anything was typed before.
    pub token: Token,
    /// Absolute path of the `reaper` binary, the log writer.
    pub init: PathBuf,
    /// Log of the pane.
    pub log: LogOptions,
    /// True to replace a command that the pane's output is piped to by the log.
    pub replace_pipe: bool,
}

/// The facts that are checked.
const FACTS: &str = "#{pid} #{start_time} #{pane_id} #{pane_dead}";

/// Format: true of a pane that is no incarnation of any pool.
const UNTAGGED: &str = concat!("#{||:#{!=:#{n:@pool_id},32},#{?", same_program!(), ",0,1}}");

/// Format: true for a pane whose output is not piped to a command.
const UNPIPED: &str = "#{?pane_pipe,0,1}";

impl Device {
    /// Tags a pane, and starts its log. [`Answer::NotOurs`] if it has another tag, [`Answer::Piped`] if its
    /// output is piped already, unless [`Adopt::replace_pipe`]. A pane with this tag is adopted again, and keeps
    /// its log and its receipt.
    ///
    /// # Errors
    /// As any call. Safe to repeat.
    pub async fn adopt(
        &self,
        server: ServerRef,
        session: TmuxSessionId,
        pane: PaneId,
        adopt: &Adopt,
    ) -> Result<Answer, TmuxError> {
        let nonce = Nonce::new();
        let expected = format!("{} {} {pane} 0", server.pid, server.started_at);
        let reply = self.run(&adopt.line(nonce, session, pane, &expected), None, false).await?;
        match guard_reply(nonce, &reply.stdout) {
            Some(GuardReply::Done(_)) => Ok(Answer::Done),
            Some(GuardReply::Refused(facts)) => {
                adopt.reason(&expected, &facts).ok_or_else(|| TmuxError::Output(shorten(&facts)))
            }
            None => Err(reply.error()),
        }
    }
}

impl Adopt {
    /// Builds two guards: the session shows the pane, and the pane is the expected one. A target made of
    /// both would not do: some commands accept such a pane of another session too.
    fn line(&self, nonce: Nonce, session: TmuxSessionId, pane: PaneId, expected: &str) -> CommandLine {
        let (session, target) = (&session.to_string(), &pane.to_string());
        let tag = self.tag.to_string();
        // The option comes last: any program in the pane can set it to anything.
        let (yes, no) = (format!("YES {nonce}"), format!("NO {nonce} {FACTS} #{{pane_pipe}} {TAG}"));
        let done: &[&str] = &["display-message", "-p", &yes];
        let log = log_pipe::command(&self.init, &self.log, self.tag);
        let pipe = ["pipe-pane".as_ref(), "-O".as_ref(), "-t".as_ref(), target.as_ref(), log.as_os_str()];
        let piped = script([&pipe[..]]) + " ; " + &script([done]);
        let [tagged, of_program] = format::set_tag(target, &tag);
        let made_for = format!("{tag} #{{session_name}}");
        let pooled: &[&str] = &["set-option", "-F", "-t", session, POOLED, &made_for];
        let begins = receipt::revoked(target, self.token);
        let begins = script([&begins.each_ref().map(String::as_str)[..]]);
        // A repeated adoption, which may come late, must not overwrite the receipt of what was typed since.
        let is_first = format!("#{{||:#{{!=:#{{@pool_id}},{tag}}},{}}}", receipt::before(self.token));
        let begins: &[&str] = &["if-shell", "-F", "-t", target, &is_first, &begins];
        let keeps_pipe = if self.replace_pipe { "0" } else { "#{pane_pipe}" };
        let log: &[&str] = &["if-shell", "-F", "-t", target, keeps_pipe, &script([done]), &piped];
        let free =
            if self.replace_pipe { UNTAGGED.to_owned() } else { format!("#{{&&:{UNTAGGED},{UNPIPED}}}") };
        let condition =
            format!("#{{&&:#{{==:{FACTS},{expected}}},#{{||:{free},#{{==:#{{@pool_id}},{tag}}}}}}}");
        let refusal = script([&["display-message", "-p", "-t", target, no.as_str()][..]]);
        let effect = script([begins, &tagged, &of_program, pooled, log]);
        let guarded: &[&str] = &["if-shell", "-F", "-t", target, &condition, &effect, &refusal];
        let shown = format!("#{{m:* {pane} *,#{{W:#{{P: #{{pane_id}}}}}} }}");
        CommandLine::default().then(["if-shell", "-F", "-t", session, &shown, &script([guarded]), &refusal])
    }

    /// Returns the first violated requirement; if all hold, the pane is not in that session. `None` for
    /// malformed facts.
    fn reason(&self, expected: &str, facts: &str) -> Option<Answer> {
        let expected: Vec<&str> = expected.split(' ').collect();
        let facts: Vec<&str> = facts.splitn(6, ' ').collect();
        let &[_, _, _, dead, piped, tag] = facts.as_slice() else { return None };
        if facts.get(..2) != expected.get(..2) {
            Some(Answer::OtherServer)
        } else if facts.get(..3) != expected.get(..3) {
            Some(Answer::Gone)
        } else if dead != "0" {
            Some(Answer::Dead)
        } else if tag.len() == self.tag.to_string().len() && tag != self.tag.to_string() {
            Some(Answer::NotOurs)
        } else if piped == "1" {
            Some(Answer::Piped)
        } else {
            Some(Answer::Gone)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_reason_is_named() {
        let log = LogOptions::new("/l");
        let adopt = Adopt {
            tag: Tag([0xab; 16]),
            token: Token::default(),
            init: "/i".into(),
            log,
            replace_pipe: false,
        };
        let read = |facts: &str| adopt.reason("10 99 %7 0", facts);
        assert_eq!(read("11 99 %7 0 0 "), Some(Answer::OtherServer));
        assert_eq!(read("10 99     "), Some(Answer::Gone));
        assert_eq!(read("10 99 %8 0 0 "), Some(Answer::Gone));
        assert_eq!(read("10 99 %7 1 0 "), Some(Answer::Dead));
        assert_eq!(read(&format!("10 99 %7 0 1 {}", "cd".repeat(16))), Some(Answer::NotOurs));
        assert_eq!(read(&format!("10 99 %7 0 0 {}", adopt.tag)), Some(Answer::Gone));
        assert_eq!(read("10 99 %7 0 0 x"), Some(Answer::Gone));
        assert_eq!(read("10 99 %7 0 1 x"), Some(Answer::Piped));
        assert_eq!(read("nonsense"), None);
    }
}
