//! `rpc`: every request of a client, for any language. Each line in is a request as JSON, each line out a reply; a
//! request for a session's output is answered by frames, until the session has ended.

use std::io::{self, BufRead};
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::time::Duration;

use protocol::request::Output;
use protocol::{Frame, OpId, Refusal, Request, Response, Token, variants};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::client::random_op;
use crate::follow::{Follower, follow};
use crate::show::out;
use crate::{Client, Context, Error, calls, poll, threads};

/// Requests as JSON lines on standard input, replies as JSON lines on standard output
#[derive(Debug, clap::Args)]
pub(crate) struct Args {}

/// A line of input: a request, alone or with an operation id and the token of a lock.
#[derive(Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
struct Line {
    op: Option<String>,
    lock: Option<Token>,
    request: Request,
}

/// Answers every line of standard input. A request may wait for minutes: as soon as nobody can read its answer any
/// more, this ends, so that it does not claim a message in vain.
pub(crate) fn run(context: &Context, Args {}: Args) -> Result<(), Error> {
    let is_asking = Arc::new(AtomicBool::new(false));
    let (ends, ended) = mpsc::channel();
    let (answers, asking, context) = (ends.clone(), Arc::clone(&is_asking), context.clone());
    // Neither thread is joined: the program ends with the first result that counts.
    threads::require(move || ends.send((false, poll::await_closed_output())))?;
    threads::require(move || answers.send((true, answer_all(&context, &asking))))?;
    loop {
        match ended.recv() {
            Ok((true, result)) => return result,
            Ok((false, Err(closed))) if is_asking.load(Ordering::Acquire) => return Err(closed),
            // Without a question under way, the next one, or the writing of an answer, notices the closed output
            // itself.
            Ok((false, _)) => {}
            Err(_) => return Ok(()),
        }
    }
}

/// Answers the lines in turn; `is_asking` is true while the daemon is asked.
fn answer_all(context: &Context, is_asking: &AtomicBool) -> Result<(), Error> {
    let mut client = context.client();
    for line in io::stdin().lock().split(b'\n') {
        let line = line.map_err(|error| Error::usage(format!("standard input: {error}")))?;
        if line.trim_ascii().is_empty() {
            continue;
        }
        is_asking.store(true, Ordering::Release);
        poll::check_reader()?;
        let answer = match parse(&line) {
            Ok(Line { request: Request::Output(asked), .. }) => {
                let mut stream = Stream { asked, closed: false };
                follow(context, context.unlimited_client(), &mut stream).map(|()| None)
            }
            parsed => parsed.and_then(|line| ask(context, &mut client, line)).map(Some),
        };
        is_asking.store(false, Ordering::Release);
        let Some(answer) = answer.transpose() else { continue };
        out::json(&document(answer)?)?;
    }
    Ok(())
}

/// The output of a session: a line per frame, the last of them `closed`. A new connection continues after
/// what was printed.
struct Stream {
    asked: Output,
    closed: bool,
}

impl Follower for Stream {
    fn request(&self) -> Request {
        Request::Output(self.asked.clone())
    }

    fn persists(&self) -> bool {
        true
    }

    fn is_over(&self) -> bool {
        self.closed
    }

    fn take(&mut self, frame: Frame) -> Result<ControlFlow<()>, Error> {
        if self.note(&frame) {
            out::json(&json!({ "frame": frame }))?;
        }
        Ok(ControlFlow::Continue(()))
    }
}

impl Stream {
    /// Moves the start of the next request to the end of this frame. Returns false for other kinds of frames.
    fn note(&mut self, frame: &Frame) -> bool {
        match frame {
            Frame::Output { offset, bytes } => self.asked.from = Some(offset + bytes.0.len() as u64),
            Frame::Truncated { offset } => self.asked.from = Some(*offset),
            Frame::Closed { .. } => self.closed = true,
            _ => return false,
        }
        true
    }
}

/// Returns the line for an answer. The error of an unwritable output is passed on.
fn document(answer: Result<Response, Error>) -> Result<Value, Error> {
    match answer {
        Ok(response) => Ok(json!({"ok": response})),
        Err(Error::Refused(Refusal { code, message })) => {
            Ok(json!({"error": {"code": code.as_str(), "message": message, "exit": code.exit_code()}}))
        }
        Err(output) => Err(output),
    }
}

fn parse(line: &[u8]) -> Result<Line, Error> {
    let bad = |error: serde_json::Error| {
        Error::usage(format!("not a request: {error}; see `poolctl help scripting`"))
    };
    let value: Value = serde_json::from_slice(line).map_err(bad)?;
    let mut unknown = None;
    let mut note = |path: serde_ignored::Path<'_>| {
        // The variant of the request is no key: it is shown as `?`.
        unknown.get_or_insert_with(|| path.to_string().replace("?.", ""));
    };
    let line = if value.get("request").is_some() {
        serde_ignored::deserialize(value, &mut note).map_err(bad)?
    } else {
        let request = serde_ignored::deserialize(value, &mut note).map_err(bad)?;
        Line { op: None, lock: None, request }
    };
    match unknown {
        Some(key) => {
            Err(Error::usage(format!("not a request: unknown key `{key}`; see `poolctl help scripting`")))
        }
        None => Ok(line),
    }
}

fn ask(context: &Context, client: &mut Client, line: Line) -> Result<Response, Error> {
    let instead = match line.request {
        Request::Subscribe(_) => Some("events --follow --json"),
        Request::Watch => Some("watch --print"),
        _ => None,
    };
    if let Some(verb) = instead {
        return Err(Error::usage(format!("this request has more than one reply: use `poolctl {verb}`")));
    }
    let op = match line.op {
        Some(id) => Some(OpId::Named(id)),
        None if line.request.needs_operation_id() => Some(random_op()?),
        None => None,
    };
    client.lock = line.lock.or(context.lock);
    client.set_limit(limit_of(context, &line.request));
    if let Request::Backup { path } = line.request {
        return calls::backup(client, path);
    }
    client.call(op, line.request)
}

/// Returns the time limit of a request: the usual one, after the time for which the request itself asks to wait.
fn limit_of(context: &Context, request: &Request) -> Option<Duration> {
    let waits = match request {
        Request::Claim(claim) => Some(claim.wait_ms),
        Request::Wait(wait) => wait.timeout_ms,
        Request::Lock(lock) => lock.wait_ms,
        Request::New(new) => new.wait_slot_ms,
        Request::Restore(restore) => restore.wait_slot_ms,
        Request::Restart(restart) => {
            restart.wait_slot_ms.zip(restart.grace_ms).map(|(slot, grace)| slot.saturating_add(grace))
        }
        Request::Kill(kill) => kill.grace_ms,
        Request::Park(park) => park.grace_ms,
        // Unlimited: these take as long as there is work to do, or as the configuration allows.
        variants!(Request: Remove Prune Attach ClearContext Check Compact Backup) => None,
        _ => Some(0),
    };
    match waits {
        Some(ms) => context.limit_with(Duration::from_millis(ms)),
        None => context.waiting_limit(),
    }
}

#[cfg(test)]
mod tests {
    use protocol::request::{Ack, ClaimRef, Disposition, Fail};
    use protocol::{ErrorCode, MessageId, SessionRef};

    use super::*;
    use crate::manual::{self, markdown};

    #[test]
    fn a_line_is_a_request_alone_or_with_its_operation() {
        assert_eq!(parse(b"\"status\"").unwrap().request, Request::Status);
        let show = Request::Show(SessionRef("sess_1".into()));
        assert_eq!(
            parse(br#"{"show":"sess_1"}"#).unwrap(),
            Line { op: None, lock: None, request: show.clone() }
        );
        let line = parse(br#"{"op":"x","lock":"3.1","request":{"show":"sess_1"}}"#).unwrap();
        assert_eq!(line, Line { op: Some("x".into()), lock: "3.1".parse().ok(), request: show });
        for bad in ["", "{", "\"nonsense\"", r#"{"request":"status","opp":1}"#, "5", r#"{"show":5}"#] {
            assert_eq!(parse(bad.as_bytes()).unwrap_err().code(), ErrorCode::Usage, "{bad}");
        }
        let mistyped =
            parse(br#"{"op":"x","request":{"drain":{"session":"web","deadline":5}}}"#).unwrap_err();
        assert!(mistyped.to_string().contains("unknown key `request.deadline`"), "{mistyped}");
        assert_eq!(parse(b"\"\xff\"").unwrap_err().code(), ErrorCode::Usage, "no text");
    }

    #[test]
    fn every_request_in_the_manual_is_one() {
        let page = manual::find("scripting").unwrap().markdown;
        let code = markdown::blocks(page).into_iter().filter_map(|block| match block {
            markdown::Block::Code(lines) => Some(lines),
            _ => None,
        });
        let lines = code.flatten().filter(|line| line.starts_with('{'));
        let told: Vec<Request> = lines
            .map(|line| parse(line.as_bytes()).unwrap_or_else(|e| panic!("{line}: {e:?}")).request)
            .collect();
        let held = |id, token: &str| ClaimRef { id: MessageId(id), token: token.parse().unwrap() };
        let fail = Fail { held: held(813, "3.18"), reason: "no disk".into(), then: Disposition::Retry };
        let of_a_worker = [
            Request::Heartbeat(vec![held(812, "3.17")]),
            Request::Ack(Ack { held: held(812, "3.17"), result: Some("fine".into()) }),
            Request::Fail(fail),
        ];
        assert!(of_a_worker.iter().all(|request| told.contains(request)), "{told:?}");
        assert!(told.iter().any(|request| matches!(request, Request::Claim(_))), "{told:?}");
        let then = |json| serde_json::from_value::<Disposition>(json).unwrap();
        let others = ["dead", "give_back"].map(|word| then(json!(word)));
        assert_eq!(others, [Disposition::Dead, Disposition::GiveBack]);
        assert_eq!(then(json!({"later": 5000})), Disposition::Later(Some(5000)));
    }

    #[test]
    fn an_answer_is_ok_or_error() {
        assert_eq!(document(Ok(Response::Done)).unwrap(), json!({"ok": "done"}));
        let refused = document(Err(Error::not_found("no such session"))).unwrap();
        assert_eq!(refused, json!({"error": {"code": "not_found", "message": "no such session", "exit": 3}}));
    }

    #[test]
    fn output_continues_after_what_was_printed() {
        let parsed = parse(br#"{"output":{"session":"web","from":null}}"#).unwrap().request;
        let Request::Output(asked) = parsed else { panic!("{parsed:?}") };
        let mut stream = Stream { asked, closed: false };
        let mut from = |frame| {
            assert!(stream.note(&frame));
            let Request::Output(again) = stream.request() else { panic!("another request") };
            (again.from, stream.is_over())
        };
        assert_eq!(from(Frame::Output { offset: 7, bytes: "".into() }), (Some(7), false));
        assert_eq!(from(Frame::Output { offset: 7, bytes: "abc".into() }), (Some(10), false));
        assert_eq!(from(Frame::Truncated { offset: 100 }), (Some(100), false));
        assert_eq!(from(Frame::Closed { offset: 100 }), (Some(100), true));
    }

    #[test]
    fn only_changes_need_an_operation() {
        let changes = |line: &str| parse(line.as_bytes()).unwrap().request.needs_operation_id();
        assert!(changes(r#"{"rename":{"session":"a","name":"b"}}"#));
        assert!(changes(r#"{"adopt":{"target":"$3"}}"#));
        assert!(changes(r#"{"reap":{"force":true}}"#));
        assert!(changes(r#"{"drain":{"session":"web","deadline_ms":null}}"#));
        let published = r#"{"publish":{"target":"%3","text":"hi","state":null,"source":null,"rest_state":null,
            "commit_candidate":null,"objective":null,"objective_changed_at":null,"token_count":null,
            "context_limit":null,"updated_at":null,"place":null}}"#;
        let approve = r#"{"approve":{"session":"web","deny":false,"ask":null,"reason":null}}"#;
        let resize = r#"{"resize":{"session":"web","size":{"cols":80,"rows":24}}}"#;
        for change in [published, approve, resize, r#"{"input":{"session":"web","bytes":"a"}}"#] {
            assert!(changes(change), "{change}");
        }
        let wait = r#"{"wait":{"session":"web","until":["exit",{"activity":"idle"}],"timeout_ms":null}}"#;
        let unlock = r#"{"unlock":{"session":"sess_1","token":"3.17"}}"#;
        let reads = [wait, unlock, r#"{"terminal":"web"}"#, r#"{"explain":"web"}"#, "\"status\"", "\"sync\""];
        assert!(reads.iter().all(|line| !changes(line)));
    }
}
