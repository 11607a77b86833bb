//! `thought`: publishes and prints what a session's agent is doing.

use std::ffi::OsString;

use protocol::thought::{
    FINGERPRINT_MAX, Publish, RestState, StreamPosition, THOUGHT_MAX, Thought, ThoughtSource, ThoughtState,
};
use protocol::{Request, SessionRef, SessionView, Timestamp};

use crate::calls::{self};
use crate::show::json::Json;
use crate::show::{agent, escape, out, time};
use crate::targets::print_session;
use crate::{Context, Error, Repeat, body, expect_session};

/// Publish and read what a session's agent is doing
#[derive(Debug, clap::Subcommand)]
pub(crate) enum ThoughtCommand {
    /// Publish a thought; what is not given is kept as it was
    Set(Box<Set>),
    /// Print the last thought
    Get {
        /// The session
        session: String,
    },
}

/// A thought to publish.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct Set {
    /// The session, or its pane (%3)
    session: String,
    /// The thought, or - for standard input
    text: Vec<OsString>,
    /// The agent's state: active, holding or sleeping
    #[arg(long)]
    state: Option<ThoughtState>,
    /// The source of the thought: carry_forward, llm or static_sleeping
    #[arg(long)]
    source: Option<ThoughtSource>,
    /// Its rest state: active, drowsy, sleeping or deep_sleep [default: derived]
    #[arg(long, value_name = "STATE")]
    rest_state: Option<RestState>,
    /// Number of tokens in its conversation
    #[arg(long, value_name = "N")]
    tokens: Option<u64>,
    /// The agent's context window, in tokens
    #[arg(long, value_name = "N")]
    context_limit: Option<u64>,
    /// Your own identifier of its objective
    #[arg(long, value_name = "FP", value_parser = fingerprint)]
    objective: Option<String>,
    /// When the objective last changed [default: now, if it differs]
    #[arg(long, value_name = "TIME", value_parser = time::parse_time)]
    objective_changed_at: Option<Timestamp>,
    /// The work looks ready to be committed; =false: no longer
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    commit_candidate: Option<bool>,
    /// The stream of your run; a thought whose --seq is not above the last one in it is ignored
    #[arg(long, value_name = "ID", requires = "seq", value_parser = fingerprint)]
    stream: Option<String>,
    /// The place in the stream, counted from 1
    #[arg(long, value_name = "N", requires = "stream", value_parser = clap::value_parser!(u64).range(1..))]
    seq: Option<u64>,
    /// The time of the thought [default: now]
    #[arg(long, value_name = "TIME", value_parser = time::parse_time)]
    at: Option<Timestamp>,
    #[command(flatten)]
    repeat: Repeat,
}

fn fingerprint(text: &str) -> Result<String, String> {
    let fits = (1..=FINGERPRINT_MAX).contains(&text.len());
    if fits { Ok(text.to_owned()) } else { Err(format!("1 to {FINGERPRINT_MAX} bytes")) }
}

/// Publishes a thought, or prints the last one.
pub(crate) fn run(context: &Context, command: ThoughtCommand) -> Result<(), Error> {
    match command {
        ThoughtCommand::Set(set) => publish(context, *set)?,
        ThoughtCommand::Get { session } => {
            let session = context.session(&session)?;
            let view = calls::session(&mut context.client(), session)?;
            print(context, view.thought.as_ref())?;
        }
    }
    Ok(())
}

fn publish(context: &Context, set: Set) -> Result<(), Error> {
    let (target, text, repeat) = (context.session(&set.session)?, text(&set.text)?, set.repeat.clone());
    let published = published(target, text, set)?;
    let replaces = published.source != Some(ThoughtSource::StaticSleeping);
    let thought = published.text.clone().filter(|text| replaces && !text.trim().is_empty());
    let place = published.place.clone();
    let request = Request::Publish(Box::new(published));
    let view = expect_session(context.client().change(&repeat, request)?)?;
    let quiet = context.style.json || context.style.quiet;
    if let Some(place) = place.filter(|place| !quiet && !is_kept(&view, place, thought.as_ref())) {
        let why = format!("stream {} has a thought of number {} or later", place.stream, place.seq);
        out::note(&format!("poolctl: nothing was changed: {why}"));
    }
    print_session(context, &view, &line(&view))
}

/// True if the session has the thought of this position, with this text if one was published.
fn is_kept(view: &SessionView, place: &StreamPosition, text: Option<&String>) -> bool {
    let has_it = |kept: &Thought| {
        kept.place.as_ref() == Some(place) && text.is_none_or(|text| kept.text.as_ref() == Some(text))
    };
    view.thought.as_ref().is_some_and(has_it)
}

/// `sess_1  web  active  Reading the tests`
fn line(view: &SessionView) -> String {
    let thought = view.thought.as_ref();
    let state = thought.map_or("-", |thought| thought.state.as_str());
    let text = thought.and_then(|thought| thought.text.as_deref()).unwrap_or("-");
    format!("{}  {}  {state}  {}", view.session.id, view.session.name, escape::line(text))
}

fn published(target: SessionRef, text: Option<String>, set: Set) -> Result<Publish, Error> {
    let place = set.stream.zip(set.seq).map(|(stream, seq)| StreamPosition { stream, seq });
    let published = Publish {
        target,
        text,
        state: set.state,
        source: set.source,
        rest_state: set.rest_state,
        commit_candidate: set.commit_candidate,
        objective: set.objective,
        objective_changed_at: set.objective_changed_at,
        token_count: set.tokens,
        context_limit: set.context_limit,
        updated_at: set.at,
        place,
    };
    // A time and a position say nothing by themselves.
    let Publish { target, updated_at, place, .. } = published.clone();
    if published == (Publish { updated_at, place, ..Publish::to(target) }) {
        return Err(Error::usage("nothing to publish: give a text, - for standard input, or a flag"));
    }
    Ok(published)
}

fn text(words: &[OsString]) -> Result<Option<String>, Error> {
    let bytes = match words {
        [] => return Ok(None),
        [text] if text == "-" => body::read_stdin()?,
        words => body::joined(words),
    };
    let text = String::from_utf8(bytes.0).map_err(|_| Error::usage("a thought must be UTF-8"))?;
    if text.len() > THOUGHT_MAX {
        return Err(Error::usage(format!("a thought has at most {THOUGHT_MAX} bytes")));
    }
    Ok(Some(text))
}

fn print(context: &Context, thought: Option<&Thought>) -> Result<(), Error> {
    if context.style.json {
        return out::json(&thought.map(Json));
    }
    let Some(thought) = thought else { return context.say("no thought was published yet") };
    if let Some(text) = &thought.text {
        out::line(&if context.style.terminal { escape::lines(text) } else { text.clone() })?;
    }
    if context.style.quiet {
        Ok(())
    } else {
        out::text(&agent::thought_facts(thought, context.style, time::now()))
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Debug, Parser)]
    struct Line {
        #[command(flatten)]
        set: Set,
    }

    fn asked(line: &str) -> Result<Publish, Error> {
        let set = Line::try_parse_from(line.split(' ')).map_err(|error| Error::usage(error.to_string()))?.set;
        published(SessionRef(set.session.clone()), text(&set.text)?, set)
    }

    #[test]
    fn what_is_not_said_is_not_published() {
        let all = asked(
            "x web --state sleeping --source static_sleeping --rest-state deep_sleep --tokens 5 --context-limit 9 \
             --objective fp --objective-changed-at 2023-11-14T22:13:20Z --commit-candidate --stream s --seq 3 \
             --at 2023-11-14T22:13:21Z Reading it",
        )
        .unwrap();
        let expected = Publish {
            target: SessionRef("web".into()),
            text: Some("Reading it".into()),
            state: Some(ThoughtState::Sleeping),
            source: Some(ThoughtSource::StaticSleeping),
            rest_state: Some(RestState::DeepSleep),
            commit_candidate: Some(true),
            objective: Some("fp".into()),
            objective_changed_at: Some(Timestamp(1_700_000_000_000)),
            token_count: Some(5),
            context_limit: Some(9),
            updated_at: Some(Timestamp(1_700_000_001_000)),
            place: Some(StreamPosition { stream: "s".into(), seq: 3 }),
        };
        assert_eq!(all, expected);
        let one = asked("x %3 --commit-candidate=false").unwrap();
        assert_eq!((one.target.0.as_str(), one.commit_candidate), ("%3", Some(false)));
        assert_eq!((one.text, one.state, one.token_count, one.place), (None, None, None, None));
    }

    #[test]
    fn what_is_no_thought_is_refused() {
        let long = format!("x web {}", "y".repeat(THOUGHT_MAX + 1));
        let bad =
            ["x web", "x web --stream s --seq 1", "x web --at 5m", "x web --stream s hi", "x web --seq 1 hi"];
        for line in bad.into_iter().chain(["x web --stream s --seq 0 hi", "x web --state awake hi", &long]) {
            assert!(asked(line).is_err(), "{line}");
        }
        assert!(text(&["\u{fffd}".into()]).is_ok());
    }
}
