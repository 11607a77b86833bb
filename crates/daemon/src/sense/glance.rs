//! A look at a terminal.

use agents::Confirm;
use agents::screen::Screen;
use pool::activity::Look;
use pool::{Agent, delivery};
use process::inspect::tty::ShellState;
use protocol::activity::Source;
use protocol::{ActivityState, Incarnation, Timestamp};
use tmux::{Answer, PaneRef};

use crate::engine::Turn;
use crate::engine::context::Daemon;
use crate::host::blocking;
use crate::host::blocking::Purpose;
use crate::sense::bracketed_paste;

/// How its terminal looks now; why that cannot be seen, otherwise.
pub(crate) async fn glanced(
    daemon: &Daemon,
    agent: &Agent,
    run: &Incarnation,
    pane: PaneRef,
) -> Result<delivery::Glance, String> {
    let (seen, look) = glance(daemon, agent, pane).await?;
    let (tag, started_at, ready_limit) = (run.tag, run.started_at, daemon.loaded().settings.ready_limit);
    let said = move |turn: &mut Turn<'_>| {
        let session = turn.pool().tagged(tag);
        let activity = session.and_then(|session| turn.pool().activity_in(session.id, tag));
        let said_idle = activity.filter(|activity| {
            let rests = matches!(activity.state, ActivityState::Idle | ActivityState::Error);
            rests && activity.source == Source::Hook
        });
        let ago = |seconds: u64| turn.age(Timestamp(seconds.saturating_mul(1000)));
        let said_idle_ago = said_idle.map(|activity| turn.age(activity.since));
        // One that has been up for so long and never asked does without.
        let starting = session.filter(|_| turn.age(started_at) < ready_limit).map(|session| session.id);
        (starting, said_idle_ago, seen.typed_at.map(ago), seen.active_at.map(ago))
    };
    let said = daemon.engine.turn(said).await.map_err(|refusal| refusal.to_string())?;
    let (starting, said_idle_ago, typed_ago, active_ago) = said;
    let takes_pastes = match starting.filter(|_| agent.asks_for_pastes()) {
        Some(session) if seen.bracketed.is_none() => bracketed_paste::asked_for(daemon, session, tag).await,
        starting => starting.and(seen.bracketed),
    };
    let unread = unread(run).await;
    let stand = if agent.confirm == Confirm::Prompt { stand(run).await } else { None };
    Ok(delivery::Glance {
        in_mode: seen.in_mode,
        alternate: seen.alternate,
        typed_ago,
        active_ago,
        unread,
        in_front: stand.map(|stand| stand.in_foreground),
        look,
        said_idle_ago,
        takes_pastes,
    })
}

/// Bytes that the program has not read yet, where the system tells.
pub(crate) async fn unread(run: &Incarnation) -> Option<u32> {
    let agent = run.agent?;
    blocking::limited(Purpose::Processes, move || process::inspect::tty::unread_input(agent).ok().flatten())
        .await
        .flatten()
}

/// How a shell stands in its terminal, where the system tells.
pub(crate) async fn stand(run: &Incarnation) -> Option<ShellState> {
    let shell = run.agent?;
    blocking::limited(Purpose::Processes, move || process::inspect::tty::shell_state(shell).ok().flatten())
        .await
        .flatten()
}

/// How a terminal looks, and what that means for its agent.
pub(crate) async fn glance(
    daemon: &Daemon,
    agent: &Agent,
    pane: PaneRef,
) -> Result<(tmux::PaneSnapshot, Option<Look>), String> {
    let seen = daemon.tmux.snapshot(pane).await.map_err(|error| error.to_string())?;
    match seen.answer {
        Answer::Done => {}
        Answer::InMode => return Err("it is in copy mode".to_owned()),
        Answer::Dead | Answer::Gone => return Err("its terminal is closed".to_owned()),
        Answer::InputOff => return Err("its pane does not take input".to_owned()),
        other => return Err(format!("its pane cannot be looked at: {other:?}")),
    }
    let look = agent.shows_composer().then(|| {
        let screen = Screen::new(&seen.screen);
        agent.look(&screen, seen.cursor, crate::host::clock::now())
    });
    Ok((seen, look))
}
