//! What a session's agent does and says, as JSON.

use protocol::Activity;
use protocol::activity::{Ask, Source};
use protocol::thought::Thought;
use serde::Serialize;

use crate::show::time::rfc3339;

/// What an agent does; its keys are among those of its session.
#[derive(Debug, Serialize)]
pub(crate) struct ActivityJson<'a> {
    activity: &'static str,
    activity_source: Option<&'static str>,
    activity_since: Option<String>,
    activity_detail: Option<&'a str>,
    ask: Option<&'a Ask>,
    limited_until: Option<String>,
}

impl<'a> ActivityJson<'a> {
    /// The keys of this; where nothing tells, there is neither a source nor a time.
    #[must_use]
    pub(crate) fn new(activity: &'a Activity) -> Self {
        let known = activity.source != Source::Nothing;
        Self {
            activity: activity.state.as_str(),
            activity_source: known.then(|| activity.source.as_str()),
            activity_since: known.then(|| rfc3339(activity.since)),
            activity_detail: activity.detail.as_deref(),
            ask: activity.ask.as_ref(),
            limited_until: activity.limited_until.map(rfc3339),
        }
    }
}

/// What was last published of a session. Numbers that are not known are null.
#[derive(Debug, Serialize)]
pub(crate) struct ThoughtJson<'a> {
    text: Option<&'a str>,
    state: &'static str,
    source: &'static str,
    token_count: Option<u64>,
    context_limit: Option<u64>,
    objective_changed_at: Option<String>,
    commit_candidate: bool,
    updated_at: String,
    rest_state: Option<&'static str>,
    objective: Option<&'a str>,
    stream: Option<&'a str>,
    seq: Option<u64>,
}

impl<'a> ThoughtJson<'a> {
    /// The document of a thought.
    #[must_use]
    pub(crate) fn new(thought: &'a Thought) -> Self {
        let known = |number| Some(number).filter(|number| *number > 0);
        let place = thought.place.as_ref();
        Self {
            text: thought.text.as_deref(),
            state: thought.state.as_str(),
            source: thought.source.as_str(),
            token_count: known(thought.token_count),
            context_limit: known(thought.context_limit),
            objective_changed_at: thought.objective_changed_at.map(rfc3339),
            commit_candidate: thought.commit_candidate,
            updated_at: rfc3339(thought.updated_at),
            rest_state: thought.rest_state.map(|rest| rest.as_str()),
            objective: thought.objective.as_deref(),
            stream: place.map(|place| place.stream.as_str()),
            seq: place.map(|place| place.seq),
        }
    }
}
