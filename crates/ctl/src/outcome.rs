//! The exit codes for the end of a session's program, and for the end of a message.

use nix::sys::signal::Signal;
use protocol::policy::RestartPolicy;
use protocol::{Message, MessageState, Reason, Session, SessionRef, SessionView};

use crate::show::json::json_name;
use crate::show::{lifecycle, out};
use crate::{Context, Error, exit};

/// The exit code of a session whose program has ended: that of the program. A program that was cut off and therefore
/// ended with 0 has not done its work, and gets the code of TERM.
///
/// # Errors
/// It is not known how the program ended.
pub(crate) fn of_session(view: &SessionView) -> Result<u8, Error> {
    let session = &view.session;
    let why = session.reason.map(|reason| format!(" ({})", json_name(&reason))).unwrap_or_default();
    let unknown = || {
        Error::failed(format!(
            "{} is {}{why}: the exit code of its program is not known",
            session.id,
            json_name(&session.lifecycle)
        ))
    };
    let code = session.exit.map(|exit| exit.shell_code()).ok_or_else(unknown)?;
    Ok(if code == exit::OK && is_cut_off(session) { exit::of_signal(Signal::SIGTERM) } else { code })
}

/// True if a limit, a rule or tmux ended a session, and not its program or a user.
fn is_cut_off(session: &Session) -> bool {
    use Reason::{Drained, Killed, Parked, Restarted};
    let is_by_user = matches!(session.reason, Some(Drained | Killed | Parked | Restarted));
    !is_by_user && lifecycle::ended_by(session).is_some()
}

/// Says what ended a session, if that was not its program. Does nothing if the exit code is unknown, because the error
/// then says it.
pub(crate) fn say_why(context: &Context, view: &SessionView) {
    let session = &view.session;
    let why = lifecycle::ended_by(session).filter(|_| session.exit.is_some() && !context.style.json);
    if let Some(why) = why {
        out::note(&format!("poolctl: {} was ended: {why}", session.name));
    }
}

/// Says that a session will be started again although its program has ended.
pub(crate) fn say_restart(context: &Context, view: &SessionView) {
    let session = &view.session;
    if starts_again(session) && !context.style.json {
        let id = session.id;
        out::note(&format!(
            "poolctl: {id} is started again, by its restart policy: see `poolctl logs -f {id}`, `poolctl kill {id}`"
        ));
    }
}

/// True if a session whose program has ended by itself is started again.
fn starts_again(session: &Session) -> bool {
    let by_policy = match session.policy.restart {
        RestartPolicy::No => false,
        RestartPolicy::OnFailure => session.exit.is_none_or(|exit| exit.shell_code() != 0),
        RestartPolicy::Always => true,
    };
    let by_itself = session.reason == Some(Reason::Exited) && !session.budget.exhausted;
    session.budget.due_at.is_some() || by_policy && by_itself
}

/// The exit code for a message at the end of a wait.
///
/// # Errors
/// The message was not worked, and why.
pub(crate) fn of_message(message: &Message) -> Result<u8, Error> {
    match message.status.state {
        MessageState::Dead | MessageState::Cancelled | MessageState::Expired => {
            Err(Error::failed(describe(message)))
        }
        _ => Ok(exit::OK),
    }
}

/// True if a message that was waited for is left to a person: in doubt, or typed and never confirmed.
pub(crate) fn is_left(message: &Message) -> bool {
    matches!(message.status.state, MessageState::InDoubt | MessageState::Typed)
}

/// The error of a message that is left to a person, who has to resolve it.
pub(crate) fn in_doubt(session: &SessionRef, message: &Message) -> Error {
    let (what, id) = (describe(message), message.id);
    Error::failed(format!(
        "{what}; look at it with `poolctl attach {session}`, then run `poolctl queue resolve {session} {id} \
         --as …`"
    ))
}

/// The state of a message and its reason: `message 3 is dead: interrupted`.
pub(crate) fn describe(message: &Message) -> String {
    let status = &message.status;
    let why = status.reason.as_ref().map(|reason| format!(": {reason}")).unwrap_or_default();
    let state = json_name(&status.state).replace('_', " ");
    format!("message {} is {state}{why}", message.id)
}

#[cfg(test)]
mod tests {
    use protocol::session::Exit;
    use protocol::{Lifecycle, Reason, Timestamp};

    use super::*;
    use crate::testing::{message, session};

    #[test]
    fn a_message_that_was_not_worked_is_a_failure() {
        let mut message = message(3);
        assert_eq!(of_message(&message).unwrap(), 0);
        message.status.state = MessageState::Dead;
        message.status.reason = Some("interrupted".into());
        assert_eq!(of_message(&message).unwrap_err().to_string(), "message 3 is dead: interrupted");
    }

    #[test]
    fn the_code_is_the_sessions_own() {
        let mut view = session("web");
        let code = |view: &mut SessionView, code, signal| {
            view.session.exit = Some(Exit { code, signal, at: Timestamp(0) });
            of_session(view).unwrap()
        };
        assert_eq!([code(&mut view, Some(0), None), code(&mut view, Some(255), None)], [0, 255]);
        assert_eq!(code(&mut view, None, Some(9)), 137);
        view.session.exit = None;
        view.session.lifecycle = Lifecycle::Lost;
        view.session.reason = Some(Reason::ServerGone);
        let error = of_session(&view).unwrap_err();
        assert_eq!(
            error.to_string(),
            "sess_1 is lost (server_gone): the exit code of its program is not known"
        );
    }
    #[test]
    fn what_was_cut_off_has_not_succeeded() {
        use Reason::{Drained, Exited, Killed, MemoryLimit, Parked, RunTime, ServerGone, TmuxGone};
        let codes = |reason| {
            let mut view = session("web");
            view.session.reason = Some(reason);
            [0, 3].map(|code| {
                view.session.exit = Some(Exit { code: Some(code), signal: None, at: Timestamp(0) });
                of_session(&view).unwrap()
            })
        };
        for reason in [MemoryLimit, RunTime, ServerGone, TmuxGone] {
            assert_eq!(codes(reason), [143, 3], "{reason:?}");
        }
        for reason in [Exited, Killed, Parked, Drained] {
            assert_eq!(codes(reason), [0, 3], "{reason:?}");
        }
    }
}
