//! A session's agent as text: its activity, its question to a person, its thought and the end of its output.

use protocol::reply::Theme;
use protocol::thought::Thought;
use protocol::{ActivityState, AskKind, Lifecycle, SessionView, Source, Timestamp};

use crate::show::json::known;
use crate::show::out::Style;
use crate::show::table::Table;
use crate::show::time::{due, when};
use crate::show::{escape, hint};

/// Returns the colour that highlights an activity, if any (see [`Style::paint`]).
pub(crate) fn colour(state: ActivityState) -> Option<u8> {
    match state {
        ActivityState::Attention => Some(33),
        ActivityState::Error => Some(31),
        ActivityState::Idle | ActivityState::Busy | ActivityState::Unknown => None,
    }
}

/// Returns the state of the agent, if it runs.
pub(crate) fn state(view: &SessionView) -> Option<&'static str> {
    view.status().map(|_| view.activity.state.as_str())
}

/// Formats the activity with its source: `busy: cargo test (hook, 5m ago)`.
pub(crate) fn activity(view: &SessionView, style: Style, now: Timestamp) -> Option<String> {
    let (state, activity) = (state(view)?, &view.activity);
    let detail = activity.detail.as_deref().map(|detail| format!(": {detail}")).unwrap_or_default();
    let known = activity.source != Source::Nothing;
    let source =
        known.then(|| format!(" ({}, {})", activity.source.as_str(), when(activity.since, style, now)));
    Some(format!("{state}{detail}{}", source.unwrap_or_default()))
}

/// Formats the end of the usage limit that the agent has reached. Once it is over, nothing is shown for a parked
/// session.
pub(crate) fn usage_limit(view: &SessionView, style: Style, now: Timestamp) -> Option<String> {
    let holds = |until: &Timestamp| *until > now || view.session.lifecycle != Lifecycle::Parked;
    let until = view.activity.limited_until.filter(holds)?;
    Some(format!("usage limit reached; continues {}", due(until, style, now)))
}

/// Returns the way in which the agent's prompts are confirmed.
pub(crate) fn confirmation(view: &SessionView) -> Option<String> {
    let how = match view.confirm.as_str() {
        "" => return None,
        "hook" => "by its agent's hook",
        "echo" => "by their echo",
        "prompt" => "by its next prompt",
        "none" => "not at all: a typed prompt counts as done",
        other => other,
    };
    Some(how.to_owned())
}

/// Formats the tokens in use: `12345 of 200000`.
pub(crate) fn tokens(view: &SessionView) -> Option<String> {
    let limit = view.context_limit().map(|limit| format!(" of {limit}")).unwrap_or_default();
    view.tokens().map(|tokens| format!("{tokens}{limit}"))
}

/// Formats a thought without its text, in a line: `holding (llm, 5m ago), ready to commit`.
pub(crate) fn thought(thought: &Thought, style: Style, now: Timestamp) -> String {
    let at = when(thought.updated_at, style, now);
    let mut facts = vec![format!("{} ({}, {at})", thought.state.as_str(), thought.source.as_str())];
    if thought.commit_candidate {
        facts.push("ready to commit".to_owned());
    }
    if let Some(at) = thought.objective_changed_at {
        facts.push(format!("objective changed {}", when(at, style, now)));
    }
    facts.join(", ")
}

/// Formats a thought without its text, a line per fact.
pub(crate) fn thought_facts(thought: &Thought, style: Style, now: Timestamp) -> String {
    let known = |number: u64| known(number).map(|number| number.to_string());
    let rows = [
        ("state", Some(thought.state.as_str().to_owned())),
        ("source", Some(thought.source.as_str().to_owned())),
        ("rest", thought.rest_state.map(|rest| rest.as_str().to_owned())),
        ("tokens", known(thought.token_count)),
        ("context limit", known(thought.context_limit)),
        ("objective", thought.objective.clone()),
        ("objective since", thought.objective_changed_at.map(|at| when(at, style, now))),
        ("ready to commit", thought.commit_candidate.then(|| "yes".to_owned())),
        ("stream", thought.place.as_ref().map(|place| format!("{} {}", place.stream, place.seq))),
        ("updated", Some(when(thought.updated_at, style, now))),
    ];
    let mut table = Table::new(&[]);
    for (key, value) in rows {
        value.into_iter().for_each(|value| table.row([key.to_owned(), value]));
    }
    table.render()
}

/// Formats the colours of a repository: `#102030 with #405060, #708090, #a0b0c0 (the repository's own)`.
pub(crate) fn theme(theme: &Theme) -> String {
    let Theme { body, outline, accent, shirt, .. } = theme;
    let own = if theme.own { " (the repository's own)" } else { "" };
    format!("{body} with {outline}, {accent}, {shirt}{own}")
}

/// Formats the question to a person and how to answer it, in lines; empty if there is none.
pub(crate) fn asked(view: &SessionView, style: Style) -> String {
    let name = view.session.name.as_str();
    let Some(ask) = &view.activity.ask else {
        let waits = state(view).is_some() && view.activity.state == ActivityState::Attention;
        return if waits {
            format!("it waits for a person: {}\n", answer(None, false, name))
        } else {
            String::new()
        };
    };
    let tool = ask.tool.as_deref().map(|tool| format!(" for {}", escape::line(tool))).unwrap_or_default();
    let heading = style.paint(33, &format!("asks: {}{tool}", ask.kind.as_str()));
    let text: String = escape::lines(&ask.text).lines().map(|line| format!("  {line}\n")).collect();
    format!("{heading}\n{text}answer it with {}\n", answer(Some(ask.kind), ask.answerable, name))
}

/// Returns how a person answers a question of this kind; `name` is that of the session.
pub(crate) fn answer(kind: Option<AskKind>, answerable: bool, name: &str) -> String {
    let attach = format!("`poolctl attach {name}`");
    let how = match kind {
        Some(AskKind::Permission) if answerable => {
            format!("`poolctl approve {name}`, `poolctl approve {name} --deny`, or {attach}")
        }
        Some(AskKind::Question) if answerable => {
            format!(
                "`poolctl approve {name} --answer TEXT` (once for each question), `poolctl approve {name} --deny`, or {attach}"
            )
        }
        None | Some(AskKind::Permission | AskKind::Question | AskKind::Dialog | AskKind::Bell) => attach,
        Some(AskKind::Message) => format!(
            "`poolctl queue resolve {name} ID --as 'done|retry|dead'` (`poolctl queue ls {name} --state in_doubt`)"
        ),
    };
    hint::message(&how)
}

/// Formats the end of the output, in lines under a heading; empty if there is none.
pub(crate) fn replay(replay: Option<&str>) -> String {
    let lines = replay.unwrap_or_default().lines().map(str::trim_end).filter(|line| !line.is_empty());
    let lines: String = lines.map(|line| format!("  {}\n", escape::line(line))).collect();
    if lines.is_empty() { lines } else { format!("last output\n{lines}") }
}

#[cfg(test)]
mod tests {
    use protocol::activity::Ask;
    use protocol::thought::{RestState, ThoughtState};

    use super::*;
    use crate::testing::session;

    /// The time since which the session of these tests is idle.
    const IDLE: u64 = 1_700_000_000_000;

    fn idle() -> SessionView {
        let mut view = session("web");
        view.activity.state = ActivityState::Idle;
        view.activity.since = Timestamp(IDLE);
        view
    }

    fn thinking(state: ThoughtState, rest_state: Option<RestState>) -> SessionView {
        SessionView { thought: Some(Thought { state, rest_state, ..Thought::default() }), ..idle() }
    }

    #[test]
    fn a_limit_that_is_over_holds_no_parked_session() {
        let mut view = idle();
        view.activity.limited_until = Some(Timestamp(IDLE));
        let shown =
            |view: &SessionView, at: u64| usage_limit(view, Style::default(), Timestamp(at)).is_some();
        assert_eq!(
            (shown(&view, IDLE - 1), shown(&view, IDLE)),
            (true, true),
            "it is told to continue in a moment"
        );
        view.session.lifecycle = Lifecycle::Parked;
        assert_eq!((shown(&view, IDLE - 1), shown(&view, IDLE)), (true, false));
    }

    #[test]
    fn what_does_not_work_rests_as_deep_as_is_known() {
        let after = |view: &SessionView, ms: u64| view.rest_state(Timestamp(IDLE + ms)).as_str();
        assert_eq!((after(&idle(), 29_999), after(&idle(), 30_000)), ("active", "drowsy"));
        let hours = 100 * 3_600_000;
        assert_eq!(after(&idle(), hours), "drowsy", "only a thought says that it sleeps");
        assert_eq!(
            idle().rest_state(Timestamp(IDLE - 60_000)).as_str(),
            "active",
            "a time to come says nothing"
        );
        let table = [
            (ThoughtState::Active, None, ["active", "drowsy"]),
            (ThoughtState::Holding, None, ["drowsy", "drowsy"]),
            (ThoughtState::Sleeping, None, ["sleeping", "sleeping"]),
            (ThoughtState::Active, Some(RestState::DeepSleep), ["deep_sleep", "deep_sleep"]),
            (ThoughtState::Sleeping, Some(RestState::Active), ["active", "active"]),
        ];
        for (state, said, expected) in table {
            let view = thinking(state, said);
            assert_eq!([after(&view, 0), after(&view, 30_000)], expected, "{state:?} {said:?}");
        }
        for state in [ActivityState::Busy, ActivityState::Attention, ActivityState::Error] {
            let mut view = thinking(ThoughtState::Sleeping, Some(RestState::DeepSleep));
            view.activity.state = state;
            assert_eq!(after(&view, hours), "active", "{state:?}");
        }
        let mut untold = session("web");
        untold.session.last_activity_at = Timestamp(IDLE + 1000);
        assert_eq!((after(&untold, 30_999), after(&untold, 31_000)), ("active", "drowsy"));
        untold.queue.queued = 1;
        assert_eq!((after(&untold, hours), untold.status()), ("active", Some("active")));
    }

    #[test]
    fn rest_and_status_follow_life() {
        let table = [
            (Lifecycle::Starting, None, "active"),
            (Lifecycle::Live, Some("idle"), "drowsy"),
            (Lifecycle::Draining, Some("draining"), "active"),
            (Lifecycle::Parked, None, "sleeping"),
            (Lifecycle::Stopped, None, "deep_sleep"),
            (Lifecycle::Lost, None, "deep_sleep"),
            (Lifecycle::Failed, None, "deep_sleep"),
        ];
        for (lifecycle, status, rest) in table {
            let mut view = thinking(ThoughtState::Holding, None);
            view.session.lifecycle = lifecycle;
            assert_eq!(
                (view.status(), view.rest_state(Timestamp(IDLE)).as_str()),
                (status, rest),
                "{lifecycle:?}"
            );
        }
        let mut busy = idle();
        busy.activity.state = ActivityState::Busy;
        assert_eq!(busy.status(), Some("active"), "what works is active with nothing queued too");
    }

    #[test]
    fn w24_what_was_published_of_tokens_comes_first_where_it_is_known() {
        let mut view = idle();
        assert_eq!((view.tokens(), view.context_limit()), (None, None));
        (view.notes.tokens, view.session.spec.context_limit) = (Some(5), Some(9));
        view.thought = Some(Thought::default());
        assert_eq!((view.tokens(), view.context_limit()), (Some(5), Some(9)));
        view.thought = Some(Thought { token_count: 7, context_limit: 8, ..Thought::default() });
        assert_eq!((view.tokens(), view.context_limit()), (Some(7), Some(8)));
    }

    #[test]
    fn each_ask_says_how_to_answer_it() {
        let mut view = idle();
        view.activity.state = ActivityState::Attention;
        let asked = |view: &SessionView| asked(view, Style::default());
        assert_eq!(asked(&view), "it waits for a person: `poolctl attach web`\n");
        let mut ask = |kind, answerable| {
            let (text, tool) = ("May I?\x1b\nReally?".to_owned(), None);
            view.activity.ask = Some(Ask { id: 1, kind, text, tool, answerable });
            asked(&view)
        };
        let question = "asks: question\n  May I?\\x1b\n  Really?\nanswer it with `poolctl attach web`\n";
        assert_eq!(ask(AskKind::Question, false), question);
        assert!(!ask(AskKind::Permission, false).contains("approve"));
        assert!(ask(AskKind::Permission, true).contains("`poolctl approve web --deny`"));
        assert!(ask(AskKind::Message, false).contains("queue resolve web ID"));
        view.session.lifecycle = Lifecycle::Stopped;
        view.activity = protocol::Activity::default();
        assert_eq!(asked(&view), "");
    }

    #[test]
    fn the_end_of_the_output_commands_nothing() {
        assert_eq!(replay(Some("one\n\n  two  \n\x1b[2J\n")), "last output\n  one\n    two\n  \\x1b[2J\n");
        assert_eq!((replay(None), replay(Some("\n \n"))), (String::new(), String::new()));
    }
}
