//! The result of a wait: the condition that holds, and the exit code.

use protocol::request::Until;
use protocol::{ActivityState, AskKind, Lifecycle, Message, Reason, Response, SessionRef, SessionView};
use serde::Serialize;
use serde_json::json;

use super::condition::{Condition, Kind};
use super::output::OutputMatch;
use crate::show::json::{MessageJson, SessionJson};
use crate::show::{escape, out, session, time};
use crate::{Context, Error, calls, exit, outcome};

/// The exit code for attention, if it was one of several conditions.
const ATTENTION: u8 = 10;
/// The exit code for an error of the agent, if it was one of several conditions.
const ERROR: u8 = 11;

/// The result of a wait.
#[derive(Debug)]
pub(super) enum WaitResult {
    /// A session that meets a condition.
    Session(Box<SessionView>),
    /// A message that is final.
    Message(Box<Message>),
    /// A match in the output.
    Output(OutputMatch),
}

impl WaitResult {
    /// The result in a response of `poold`.
    pub(super) fn from_response(response: Response) -> Result<Self, Error> {
        match response {
            Response::Session(view) => Ok(Self::Session(view)),
            Response::Message(message) => Ok(Self::Message(message)),
            other => Err(Error::unexpected(&other)),
        }
    }

    /// True if the session shows a bell and the condition is a state that may hold apart from the bell, which only
    /// `poold` knows.
    fn may_hold_below_bell(&self, condition: &Condition) -> bool {
        let Self::Session(view) = self else { return false };
        let rang = view.activity.ask.as_ref().is_some_and(|ask| ask.kind == AskKind::Bell);
        let states = [ActivityState::Idle, ActivityState::Busy].map(Until::Activity);
        rang && matches!(&condition.kind, Kind::Daemon(until) if states.contains(until))
    }

    /// True if the condition is a start or a ready agent, and the session is over, so that the condition cannot hold.
    fn misses(&self, condition: &Condition) -> bool {
        let Self::Session(view) = self else { return false };
        let is_start = matches!(&condition.kind, Kind::Daemon(Until::Started | Until::Ready));
        is_start && !view.session.lifecycle.holds_slot()
    }

    /// Returns the condition that holds; if none does, the one that cannot hold any more.
    fn deciding<'a>(&self, conditions: &'a [Condition]) -> Option<&'a Condition> {
        let holds = |condition: &&Condition| match (self, &condition.kind) {
            (Self::Session(view), Kind::Daemon(until)) => holds(view, until),
            (Self::Message(message), Kind::Daemon(until)) => *until == Until::Message(message.id),
            _ => false,
        };
        match self {
            Self::Output(found) => conditions.get(found.at),
            Self::Session(_) | Self::Message(_) => {
                let below_bell = || conditions.iter().find(|condition| self.may_hold_below_bell(condition));
                let only = || conditions.first().filter(|_| conditions.len() == 1);
                let missed = || conditions.iter().find(|condition| self.misses(condition));
                conditions.iter().find(holds).or_else(below_bell).or_else(missed).or_else(only)
            }
        }
    }
}

/// True if a session meets this condition.
fn holds(view: &SessionView, until: &Until) -> bool {
    let lifecycle = view.session.lifecycle;
    match until {
        Until::Exit => !lifecycle.holds_slot(),
        Until::Started | Until::Ready => lifecycle == Lifecycle::Live || drains(view),
        Until::QueueEmpty => view.queue.queued + view.queue.claimed + view.queue.in_doubt == 0,
        Until::Activity(state) => view.activity.state == *state,
        Until::Message(_) | Until::Accepted(_) => false,
    }
}

/// True for a session that works on what is queued until it stops.
fn drains(view: &SessionView) -> bool {
    view.session.lifecycle == Lifecycle::Draining && view.session.reason == Some(Reason::Drained)
}

/// Prints the condition that holds, with the session if it is one of several, and returns the exit code.
pub(super) fn print(
    context: &Context,
    (shown, id): (Option<&SessionRef>, SessionRef),
    conditions: &[Condition],
    result: WaitResult,
) -> Result<u8, Error> {
    let which = result.deciding(conditions);
    if let WaitResult::Session(view) = &result
        && which.is_some_and(|which| result.misses(which))
    {
        return Err(Error::failed(session::why_ended(view)));
    }
    let word = which.map_or("", |which| which.word.as_str());
    if context.style.json {
        match &result {
            WaitResult::Session(view) => print_json(&SessionJson::new(view, time::now()), word, None)?,
            WaitResult::Message(message) => print_json(&MessageJson::new(message), word, None)?,
            WaitResult::Output(found) => {
                let view = calls::session(&mut context.client(), id)?;
                print_json(&SessionJson::new(&view, time::now()), word, Some(&found.text))?;
            }
        }
    } else if let Some(session) = shown {
        out::line(&escape::line(&format!("{session}  {word}")))?;
    } else if conditions.len() > 1 {
        out::line(&escape::line(word))?;
    }
    let until = which.and_then(|which| match &which.kind {
        Kind::Daemon(until) => Some(until),
        Kind::Output(_) => None,
    });
    match result {
        WaitResult::Session(view) => {
            if until == Some(&Until::Exit) && !context.style.quiet {
                outcome::say_why(context, &view);
                outcome::say_restart(context, &view);
            }
            code(&view, until, conditions.len() > 1)
        }
        WaitResult::Message(message) => outcome::of_message(&message),
        WaitResult::Output(_) => Ok(exit::OK),
    }
}

/// Prints the document, with the condition that holds, and the text that matched.
fn print_json(document: &impl Serialize, word: &str, text: Option<&str>) -> Result<(), Error> {
    let mut document = json!(document);
    document["came"] = json!(word);
    document["match"] = json!(text);
    out::json(&document)
}

fn code(view: &SessionView, until: Option<&Until>, several: bool) -> Result<u8, Error> {
    match until {
        Some(Until::Exit) => outcome::of_session(view),
        Some(Until::Activity(ActivityState::Attention)) if several => Ok(ATTENTION),
        Some(Until::Activity(ActivityState::Error)) if several => Ok(ERROR),
        _ => Ok(exit::OK),
    }
}

#[cfg(test)]
mod tests {
    use protocol::Activity;
    use protocol::activity::Ask;

    use super::*;
    use crate::testing::{message, session};
    use crate::verb::wait::condition::Conditions;

    fn wanted(text: &str) -> Vec<Condition> {
        Conditions::parse(text).unwrap().0
    }

    fn word_of<'a>(result: &WaitResult, wanted: &'a [Condition]) -> Option<&'a str> {
        result.deciding(wanted).map(|which| which.word.as_str())
    }

    #[test]
    fn the_condition_that_holds_is_printed() {
        let all = wanted("exit,message:7,queue-empty,attention,idle,output:a,b");
        let mut view = session("web");
        view.activity.state = ActivityState::Idle;
        view.queue.queued = 1;
        let so = |view: &SessionView| word_of(&WaitResult::Session(Box::new(view.clone())), &all);
        assert_eq!(so(&view), Some("idle"));
        view.activity.state = ActivityState::Attention;
        assert_eq!(so(&view), Some("attention"));
        view.queue.queued = 0;
        assert_eq!(so(&view), Some("queue-empty"));
        view.session.lifecycle = Lifecycle::Stopped;
        assert_eq!(so(&view), Some("exit"));
        assert_eq!(word_of(&WaitResult::Message(Box::new(message(7))), &all), Some("message:7"));
        let found = OutputMatch { at: 5, text: "a,b".into() };
        assert_eq!(word_of(&WaitResult::Output(found), &all), Some("output:a,b"));
        let mut view = session("web");
        let ask = Ask { id: 1, kind: AskKind::Bell, text: String::new(), tool: None, answerable: false };
        view.activity = Activity { state: ActivityState::Attention, ask: Some(ask), ..Activity::default() };
        let rang = WaitResult::Session(Box::new(view));
        assert_eq!(word_of(&rang, &wanted("idle,error")), Some("idle"));
        assert_eq!(word_of(&rang, &wanted("busy,error")), Some("busy"));
        assert_eq!(word_of(&rang, &wanted("idle,attention,error")), Some("attention"));
        let mut over = session("web");
        over.session.lifecycle = Lifecycle::Stopped;
        over.queue.queued = 1;
        let over = WaitResult::Session(Box::new(over));
        assert_eq!(word_of(&over, &wanted("ready,exit")), Some("exit"), "not the start that cannot come");
        let mut drains = session("web");
        (drains.session.lifecycle, drains.session.reason) = (Lifecycle::Draining, Some(Reason::Drained));
        let drains = WaitResult::Session(Box::new(drains));
        assert_eq!(word_of(&drains, &wanted("exit,ready")), Some("ready"));
        assert_eq!(word_of(&over, &wanted("idle,started")), Some("started"));
        // A single condition is printed even if it holds no longer.
        let result = WaitResult::Session(Box::new(session("web")));
        assert_eq!(word_of(&result, &wanted("busy")), Some("busy"));
        assert_eq!(word_of(&result, &wanted("busy,exit")), None);
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
}
