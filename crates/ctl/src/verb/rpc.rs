//! `rpc`: the whole protocol for any language. A request a line as JSON in, a reply a line out.

use std::io::{self, BufRead};

use protocol::{ErrorCode, OpId, Refusal, Request, Token};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::client::{Client, random_op};
use crate::context::Context;
use crate::error::Error;
use crate::exit;
use crate::show::out;

/// Requests as JSON lines on standard input, replies as JSON lines on standard output
#[derive(Debug, clap::Args)]
pub(crate) struct Args {}

/// A line: a request, alone or with an operation id and a lock's token.
#[derive(Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
struct Line {
    op: Option<String>,
    lock: Option<Token>,
    request: Request,
}

/// Answers every line until there are no more.
pub(crate) fn run(context: &Context, _: &Args) -> Result<u8, Error> {
    let mut client = context.client();
    for line in io::stdin().lock().lines() {
        let line = line.map_err(|error| Error::usage(format!("standard input: {error}")))?;
        if line.trim().is_empty() {
            continue;
        }
        let answer = parse(&line).and_then(|line| ask(context, &mut client, line));
        out::json(&document(answer)?)?;
    }
    Ok(exit::OK)
}

fn document(answer: Result<protocol::Response, Error>) -> Result<Value, Error> {
    match answer {
        Ok(response) => Ok(json!({"ok": response})),
        Err(Error::Refused(Refusal { code, message })) => {
            Ok(json!({"error": {"code": code.word(), "message": message, "exit": code.exit_code()}}))
        }
        Err(output) => Err(output),
    }
}

fn parse(line: &str) -> Result<Line, Error> {
    let bad = |error: serde_json::Error| {
        Error::from(Refusal::new(ErrorCode::Usage, format!("not a request: {error}")))
    };
    let value: Value = serde_json::from_str(line).map_err(bad)?;
    if value.get("request").is_some() {
        serde_json::from_value(value).map_err(bad)
    } else {
        let request = serde_json::from_value(value).map_err(bad)?;
        Ok(Line { op: None, lock: None, request })
    }
}

fn ask(context: &Context, client: &mut Client, line: Line) -> Result<protocol::Response, Error> {
    let instead = match line.request {
        Request::Subscribe(_) => Some("events --follow --json"),
        Request::Watch => Some("watch --print"),
        _ => None,
    };
    if let Some(verb) = instead {
        return Err(Error::usage(format!(
            "a subscription is no request with one reply: use `poolctl {verb}`"
        )));
    }
    let op = match line.op {
        Some(id) => Some(OpId::Named(id)),
        None if mutates(&line.request) => Some(random_op()?),
        None => None,
    };
    client.lock = line.lock.or(context.lock);
    client.call(op, line.request)
}

/// Whether a request needs an operation id, or, as a claim, gets the same answer again with one.
fn mutates(request: &Request) -> bool {
    matches!(
        request,
        Request::New(_)
            | Request::Send(_)
            | Request::ResolveMessage(_)
            | Request::Keys(_)
            | Request::Kill(_)
            | Request::Remove(_)
            | Request::Rename(_)
            | Request::Label(_)
            | Request::Restart(_)
            | Request::Adopt(_)
            | Request::Claim(_)
            | Request::Cancel(_)
            | Request::Retry(_)
            | Request::Purge(_)
            | Request::Park(_)
            | Request::Restore(_)
            | Request::Drain(_)
            | Request::Pin(_)
            | Request::Clear(_)
            | Request::Prune(_)
            | Request::Lock(_)
            | Request::Reap { .. }
            | Request::Update(_)
    )
}

#[cfg(test)]
mod tests {
    use protocol::SessionRef;

    use super::*;

    #[test]
    fn a_line_is_a_request_alone_or_with_its_operation() {
        assert_eq!(parse("\"status\"").unwrap().request, Request::Status);
        let show = Request::Show(SessionRef("sess_1".into()));
        assert_eq!(
            parse(r#"{"show":"sess_1"}"#).unwrap(),
            Line { op: None, lock: None, request: show.clone() }
        );
        let line = parse(r#"{"op":"x","lock":"3.1","request":{"show":"sess_1"}}"#).unwrap();
        assert_eq!(line, Line { op: Some("x".into()), lock: "3.1".parse().ok(), request: show });
        for bad in ["", "{", "\"nonsense\"", r#"{"request":"status","opp":1}"#, "5", r#"{"show":5}"#] {
            assert_eq!(parse(bad).unwrap_err().code(), ErrorCode::Usage, "{bad}");
        }
    }

    #[test]
    fn an_answer_is_ok_or_error() {
        assert_eq!(document(Ok(protocol::Response::Done)).unwrap(), json!({"ok": "done"}));
        let refused = document(Err(Error::not_found("no such session"))).unwrap();
        assert_eq!(refused, json!({"error": {"code": "not_found", "message": "no such session", "exit": 3}}));
    }

    #[test]
    fn only_changes_need_an_operation() {
        assert!(mutates(&parse(r#"{"rename":{"session":"a","name":"b"}}"#).unwrap().request));
        assert!(mutates(&parse(r#"{"adopt":{"target":"$3"}}"#).unwrap().request));
        assert!(mutates(&parse(r#"{"reap":{"force":true}}"#).unwrap().request));
        assert!(mutates(&parse(r#"{"drain":"web"}"#).unwrap().request));
        let unlock = parse(r#"{"unlock":{"session":"sess_1","token":"3.17"}}"#).unwrap().request;
        assert!(!mutates(&unlock) && !mutates(&parse(r#"{"explain":"web"}"#).unwrap().request));
        assert!(!mutates(&Request::Status) && !mutates(&Request::Sync));
    }
}
