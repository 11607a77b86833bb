//! Published thoughts: inheritance from the thought before, and their order.

use protocol::thought::{
    FINGERPRINT_MAX, Publish, STREAMS_MAX, StreamPosition, THOUGHT_MAX, Thought, ThoughtSource,
};
use protocol::{Refusal, Timestamp};

/// Decides on a publication. Returns none if a newer thought of the same stream was published already.
pub fn publish_thought(
    before: Option<&Thought>,
    asked: &Publish,
    now: Timestamp,
) -> Result<Option<Thought>, Refusal> {
    check(asked)?;
    let last = before.cloned().unwrap_or_default();
    if asked.place.as_ref().is_some_and(|next| is_old(&last, next)) {
        return Ok(None);
    }
    let another = asked.objective.is_some() && asked.objective != last.objective;
    let first = last.objective.is_none();
    let changed_at = asked.objective_changed_at.or((another && !first).then_some(now));
    // The fixed text of a sleeping agent does not replace its last thought.
    let is_static = asked.source == Some(ThoughtSource::StaticSleeping);
    let text = asked.text.as_ref().filter(|_| !is_static).filter(|text| !text.trim().is_empty());
    let source = match asked.source {
        Some(ThoughtSource::StaticSleeping) => ThoughtSource::CarryForward,
        Some(source) => source,
        None if text.is_some() => ThoughtSource::Llm,
        None => ThoughtSource::CarryForward,
    };
    Ok(Some(Thought {
        text: text.cloned().or(last.text),
        state: asked.state.unwrap_or(last.state),
        source,
        rest_state: asked.rest_state.or(if asked.state.is_some() { None } else { last.rest_state }),
        commit_candidate: asked.commit_candidate.unwrap_or(last.commit_candidate),
        objective_changed_at: changed_at.or(last.objective_changed_at),
        objective: asked.objective.clone().or(last.objective),
        token_count: asked.token_count.filter(|n| *n > 0).unwrap_or(last.token_count),
        context_limit: asked.context_limit.filter(|n| *n > 0).unwrap_or(last.context_limit),
        updated_at: asked.updated_at.unwrap_or(now),
        other_streams: other_streams(last.place.as_ref(), last.other_streams, asked.place.as_ref()),
        place: asked.place.clone().or(last.place),
    }))
}

/// True if a later thought of the same stream, or this one, was published before. Another stream is another run
/// of the publisher and always counts, as does a thought without a position: a publisher that lost its state is
/// not locked out.
fn is_old(last: &Thought, next: &StreamPosition) -> bool {
    let mut known = last.place.iter().chain(&last.other_streams);
    known.any(|known| known.stream == next.stream && next.seq <= known.seq)
}

/// The positions in streams other than that of the next thought.
fn other_streams(
    last: Option<&StreamPosition>,
    others: Vec<StreamPosition>,
    next: Option<&StreamPosition>,
) -> Vec<StreamPosition> {
    let Some(next) = next else { return others };
    let known = last.cloned().into_iter().chain(others);
    known.filter(|known| known.stream != next.stream).take(STREAMS_MAX).collect()
}

fn check(asked: &Publish) -> Result<(), Refusal> {
    let usage = |why: String| Err(Refusal::usage(why));
    if asked.text.as_ref().is_some_and(|text| text.len() > THOUGHT_MAX) {
        return usage(format!("a thought has at most {THOUGHT_MAX} bytes"));
    }
    let names = asked.objective.iter().chain(asked.place.as_ref().map(|place| &place.stream));
    if names.into_iter().any(|name| name.is_empty() || name.len() > FINGERPRINT_MAX) {
        return usage(format!("an objective and a stream have 1 to {FINGERPRINT_MAX} bytes"));
    }
    if asked.place.as_ref().is_some_and(|place| place.seq == 0) {
        return usage("a stream counts from 1".to_owned());
    }
    Ok(())
}
