//! What came of what was waited for, and the exit code that this is.

use protocol::reply::SessionView;
use protocol::request::Until;
use protocol::{ActivityState, Lifecycle, Message, Request, Response, SessionRef};
use serde::Serialize;
use serde_json::{Value, json};

use super::output::Found;
use super::{Wanted, What};
use crate::context::Context;
use crate::error::Error;
use crate::exit;
use crate::show::json::{MessageJson, SessionJson, word};
use crate::show::{escape, human, out, time};
use crate::verb::{expect_session, send};

/// It waits for a person, which was one of several things to wait for.
const ATTENTION: u8 = 10;
/// Its last turn failed, likewise.
const ERROR: u8 = 11;

/// What came.
#[derive(Debug)]
pub(super) enum Came {
    /// A session came to be so.
    Session(Box<SessionView>),
    /// A message did.
    Message(Box<Message>),
    /// It was written.
    Written(Found),
}

impl Came {
    /// What `poold` says.
    pub(super) fn told(response: Response) -> Result<Self, Error> {
        match response {
            Response::Session(view) => Ok(Self::Session(view)),
            Response::Message(message) => Ok(Self::Message(message)),
            other => Err(Error::unexpected(&other)),
        }
    }

    /// Which of these it is.
    fn which<'a>(&self, wanted: &'a [Wanted]) -> Option<&'a Wanted> {
        let is = |wanted: &&Wanted| match (self, &wanted.what) {
            (Self::Session(view), What::Told(until)) => is_so(view, until),
            (Self::Message(message), What::Told(until)) => *until == Until::Message(message.id),
            _ => false,
        };
        match self {
            Self::Written(found) => wanted.get(found.at),
            Self::Session(_) | Self::Message(_) => {
                wanted.iter().find(is).or_else(|| wanted.first().filter(|_| wanted.len() == 1))
            }
        }
    }
}

/// Whether a session is as it was waited for.
fn is_so(view: &SessionView, until: &Until) -> bool {
    let lifecycle = view.session.lifecycle;
    match until {
        Until::Exit => !lifecycle.holds_slot(),
        Until::Started | Until::Ready => lifecycle == Lifecycle::Live || !lifecycle.holds_slot(),
        Until::QueueEmpty => view.queue.queued + view.queue.claimed + view.queue.in_doubt == 0,
        Until::Activity(state) => view.activity.state == *state,
        Until::Message(_) | Until::Accepted(_) => false,
    }
}

/// Says what came, and of which session where there are several; the code that this is.
pub(super) fn show(
    context: &Context,
    (session, several): (&SessionRef, bool),
    wanted: &[Wanted],
    came: Came,
) -> Result<u8, Error> {
    let which = came.which(wanted);
    let word = which.map_or("", |which| which.word.as_str());
    if context.style.json {
        match &came {
            Came::Session(view) => print(&SessionJson::new(view, time::now()), word, None)?,
            Came::Message(message) => print(&MessageJson::new(message), word, None)?,
            Came::Written(found) => {
                let view = expect_session(context.client().ask(Request::Show(session.clone()))?)?;
                print(&SessionJson::new(&view, time::now()), word, Some(&found.text))?;
            }
        }
    } else if several {
        out::line(&escape::line(&format!("{session}  {word}")))?;
    } else if wanted.len() > 1 {
        out::line(&escape::line(word))?;
    }
    let until = which.and_then(|which| match &which.what {
        What::Told(until) => Some(until),
        What::Written(_) => None,
    });
    match came {
        Came::Session(view) => code(&view, until, wanted.len() > 1),
        Came::Message(message) => send::fate(&message),
        Came::Written(_) => Ok(exit::OK),
    }
}

/// The document, with what came, and the text that matched.
fn print(document: &impl Serialize, came: &str, text: Option<&str>) -> Result<(), Error> {
    let mut document = serde_json::to_value(document).map_err(|error| Error::Output(error.into()))?;
    if let Value::Object(document) = &mut document {
        document.insert("came".into(), json!(came));
        document.insert("match".into(), json!(text));
    }
    out::json(&document)
}

fn code(view: &SessionView, until: Option<&Until>, several: bool) -> Result<u8, Error> {
    match until {
        Some(Until::Exit) => code_of(view),
        Some(Until::Started | Until::Ready) if !view.session.lifecycle.holds_slot() => {
            Err(Error::failed(human::why_over(view)))
        }
        Some(Until::Activity(ActivityState::Attention)) if several => Ok(ATTENTION),
        Some(Until::Activity(ActivityState::Error)) if several => Ok(ERROR),
        _ => Ok(exit::OK),
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
    use protocol::{Reason, Timestamp};

    use super::*;
    use crate::testing::{message, session};

    fn wanted(text: &str) -> Vec<Wanted> {
        super::super::list(text).unwrap().0
    }

    fn word_of<'a>(came: &Came, wanted: &'a [Wanted]) -> Option<&'a str> {
        came.which(wanted).map(|which| which.word.as_str())
    }

    #[test]
    fn the_one_that_came_is_told_from_what_is_so() {
        let all = wanted("exit,message:7,queue-empty,attention,idle,output:a,b");
        let mut view = session("web");
        view.activity.state = ActivityState::Idle;
        view.queue.queued = 1;
        let so = |view: &SessionView| word_of(&Came::Session(Box::new(view.clone())), &all);
        assert_eq!(so(&view), Some("idle"));
        view.activity.state = ActivityState::Attention;
        assert_eq!(so(&view), Some("attention"));
        view.queue.queued = 0;
        assert_eq!(so(&view), Some("queue-empty"));
        view.session.lifecycle = Lifecycle::Stopped;
        assert_eq!(so(&view), Some("exit"));
        assert_eq!(word_of(&Came::Message(Box::new(message(7))), &all), Some("message:7"));
        let found = Found { at: 5, text: "a,b".into() };
        assert_eq!(word_of(&Came::Written(found), &all), Some("output:a,b"));
        // Of a single one there is no doubt, whatever changed since.
        let came = Came::Session(Box::new(session("web")));
        assert_eq!(word_of(&came, &wanted("busy")), Some("busy"));
        assert_eq!(word_of(&came, &wanted("busy,exit")), None);
    }

    #[test]
    fn attention_and_error_have_codes_of_their_own_among_several() {
        let view = session("web");
        let code = |state, several| code(&view, Some(&Until::Activity(state)), several).unwrap();
        assert_eq!([code(ActivityState::Attention, false), code(ActivityState::Error, false)], [0, 0]);
        assert_eq!([code(ActivityState::Attention, true), code(ActivityState::Error, true)], [10, 11]);
        assert_eq!([code(ActivityState::Idle, true), code(ActivityState::Busy, true)], [0, 0]);
        assert_eq!(super::code(&view, Some(&Until::QueueEmpty), true).unwrap(), 0);
    }

    #[test]
    fn the_code_is_the_sessions_own() {
        let mut view = session("web");
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
