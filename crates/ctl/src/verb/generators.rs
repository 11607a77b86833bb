//! `generators`: the workers, and the messages that they work on.

use protocol::Request;
use protocol::reply::GeneratorView;
use serde_json::{Value, json};

use crate::calls::{self, expected};
use crate::show::time::rfc3339;
use crate::show::{out, queue, time};
use crate::{Context, Error};

/// Show the workers: their messages, since when they run, and their last activity
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Only those of this session, and those that work on a message of it
    session: Option<String>,
}

pub(crate) fn run(context: &Context, args: Args) -> Result<(), Error> {
    let mut client = context.client();
    let session = args.session.as_deref().map(|session| context.session(session)).transpose()?;
    let only = match session {
        Some(session) => Some(calls::session(&mut client, session)?.session.id),
        None => None,
    };
    let mut views = expected!(client.ask(Request::Generators)?, Generators)?;
    let is_of = |view: &GeneratorView, only| {
        view.session == Some(only) || view.holds.iter().any(|held| held.session == only)
    };
    views.retain(|view| only.is_none_or(|only| is_of(view, only)));
    if context.style.json {
        views.iter().try_for_each(|view| out::json(&document(view)))
    } else if context.style.quiet {
        let ids = views.iter().filter_map(|view| view.id);
        ids.map(|id| id.to_string()).try_for_each(|id| out::line(&id))
    } else {
        out::text(&queue::generators(&views, context.style, time::now()))
    }
}

fn document(view: &GeneratorView) -> Value {
    let holds = view.holds.iter().map(|held| {
        json!({
            "id": held.held.id,
            "session": held.session,
            "kind": held.kind,
            "token": held.held.token,
            "deadline_at": held.deadline_at.map(rfc3339),
        })
    });
    json!({
        "id": view.id,
        "generation": view.generation,
        "session": view.session,
        "name": view.name,
        "sessions": view.sessions,
        "role": view.role,
        "kinds": view.kinds,
        "pid": view.process.map(|process| process.pid),
        "start_time": view.process.map(|process| process.start),
        "since": rfc3339(view.since),
        "last_activity_at": rfc3339(view.last_activity_at),
        "holds": holds.collect::<Vec<_>>(),
    })
}

#[cfg(test)]
mod tests {
    use protocol::reply::ClaimView;
    use protocol::request::ClaimRef;
    use protocol::{GeneratorId, MessageId, ProcId, SessionId, Timestamp, Token};

    use super::*;
    use crate::manual::contract_tests;

    #[test]
    fn a_generator_has_every_key_of_the_contract() {
        let held = ClaimRef { id: MessageId(7), token: Token::default() };
        let deadline_at = Some(Timestamp(1000));
        let holds = ClaimView { held, session: SessionId(2), kind: "build".into(), deadline_at };
        let worker = GeneratorView {
            id: Some(GeneratorId(4)),
            generation: 1,
            sessions: "all".into(),
            role: "worker".into(),
            kinds: vec!["build".into()],
            process: Some(ProcId { pid: 60, start: 6 }),
            holds: vec![holds],
            ..GeneratorView::default()
        };
        let value = document(&worker);
        contract_tests::check(&value, "JSON of a generator");
        assert_eq!((&value["pid"], &value["start_time"]), (&json!(60), &json!(6)));
        let expected = json!([{
            "id": 7, "session": "sess_2", "kind": "build", "token": Token::default(),
            "deadline_at": "1970-01-01T00:00:01.000Z"
        }]);
        assert_eq!(value["holds"], expected);
        let client = GeneratorView { id: None, process: None, holds: Vec::new(), ..worker };
        let value = document(&client);
        contract_tests::check(&value, "JSON of a generator");
        assert_eq!((&value["id"], &value["pid"]), (&Value::Null, &Value::Null));
    }
}
