//! `wait`: block until something is so.

use protocol::reply::SessionView;
use protocol::request::{Until, Wait};
use protocol::{MessageId, Request, Response};

use crate::context::Context;
use crate::error::Error;
use crate::exit;
use crate::show::json::{MessageJson, SessionJson, word};
use crate::show::{human, out, time};
use crate::verb::send;

/// Block until something is so; `--for exit` ends with the session's exit code
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// For which session
    pub session: String,
    /// For what: started, exit, queue-empty, or message:ID
    #[arg(long = "for", value_name = "WHAT", value_parser = until)]
    pub until: Until,
}

impl Args {
    /// Whether the exit code is the session's.
    pub(crate) fn is_for_exit(&self) -> bool {
        self.until == Until::Exit
    }
}

fn until(text: &str) -> Result<Until, String> {
    match text.strip_prefix("message:") {
        Some(id) => id.parse::<MessageId>().map(Until::Message).map_err(|error| error.to_string()),
        None if text == "started" => Ok(Until::Started),
        None if text == "exit" => Ok(Until::Exit),
        None if text == "queue-empty" => Ok(Until::QueueEmpty),
        None => Err("one of started, exit, queue-empty, message:ID".into()),
    }
}

/// Waits.
pub(crate) fn run(context: &Context, args: &Args) -> Result<u8, Error> {
    let session = context.session(&args.session)?;
    let timeout_ms = context.waiting_limit().map(time::millis);
    let wait = Wait { session, until: args.until.clone(), timeout_ms };
    let progress = context.progress(&args.session);
    let answer = context.patient_client().ask(Request::Wait(wait))?;
    drop(progress);
    match answer {
        Response::Session(view) => {
            if context.style.json {
                out::json(&SessionJson::new(&view, time::now()))?;
            }
            match args.until {
                Until::Exit => code_of(&view),
                Until::Started if !view.session.lifecycle.holds_slot() => {
                    Err(Error::failed(human::why_over(&view)))
                }
                _ => Ok(exit::OK),
            }
        }
        Response::Message(message) => {
            if context.style.json {
                out::json(&MessageJson::new(&message))?;
            }
            send::fate(&message)
        }
        other => Err(Error::unexpected(&other)),
    }
}

/// The exit code of a session whose program is over.
pub(crate) fn code_of(view: &SessionView) -> Result<u8, Error> {
    let session = &view.session;
    let why = session.reason.map(|reason| format!(" ({})", word(&reason))).unwrap_or_default();
    let unknown = || {
        Error::failed(format!(
            "{} is {}{why}: how its program ended is not known",
            session.id,
            word(&session.lifecycle)
        ))
    };
    session.exit.map(|exit| exit.shell_code()).ok_or_else(unknown)
}

#[cfg(test)]
mod tests {
    use protocol::session::Exit;
    use protocol::{Lifecycle, Reason, Timestamp};

    use super::*;

    #[test]
    fn what_can_be_waited_for() {
        assert_eq!((until("exit"), until("started")), (Ok(Until::Exit), Ok(Until::Started)));
        assert_eq!(until("message:12"), Ok(Until::Message(MessageId(12))));
        assert!(until("message:").is_err() && until("message:x").is_err() && until("Exit").is_err());
    }

    #[test]
    fn the_code_is_the_sessions_own() {
        let mut view = crate::testing::session("web");
        let code = |view: &mut SessionView, code, signal| {
            view.session.exit = Some(Exit { code, signal, at: Timestamp(0) });
            code_of(view).unwrap()
        };
        assert_eq!([code(&mut view, Some(0), None), code(&mut view, Some(255), None)], [0, 255]);
        assert_eq!(code(&mut view, None, Some(9)), 137);
        view.session.exit = None;
        view.session.lifecycle = Lifecycle::Lost;
        view.session.reason = Some(Reason::ServerGone);
        let error = code_of(&view).unwrap_err();
        assert_eq!(error.to_string(), "sess_1 is lost (server_gone): how its program ended is not known");
    }
}
