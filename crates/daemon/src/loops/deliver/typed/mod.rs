//! A prompt that was typed: Enter, and then what confirms it. Nothing is ever typed again; Enter is, where the text is
//! seen to stand in the composer.

pub(crate) mod doubt;
pub(crate) mod reading;
pub(crate) mod shell;
pub(crate) mod state;

use std::sync::Arc;
use std::time::Duration;

use agents::Confirm;
use pool::delivery::{Then, Unconfirmed, settle};
use pool::{Settings, delivery, queue};
use protocol::activity::Source;
use protocol::{Event, MessageId, MessageState, Refusal, Session, SessionId, Tag};
use tmux::Answer;
use tmux::act::Lines;
use tokio::time::{Instant, sleep};

use crate::decide::lock;
use crate::decide::lock::Grant;
use crate::engine::Turn;
use crate::engine::context::Daemon;
use crate::loops::deliver::claim::Claim;
use crate::loops::deliver::typed::reading::Reading;
use crate::loops::deliver::typed::shell::Before;
use crate::loops::deliver::typed::state::{Typed, UNREAD, is_shells, is_silent, settled, typed};
use crate::sense::hook_spool;

/// How long what was typed may take to be seen on the screen.
const ECHO_LIMIT: Duration = Duration::from_secs(2);

/// Between two looks at the screen.
const PAUSE: Duration = Duration::from_millis(50);

/// It was not typed, or not in full.
pub(crate) async fn failed(
    daemon: &Daemon,
    claim: &Claim,
    state: MessageState,
    why: String,
) -> Result<(), Refusal> {
    let (session, id, tag) = (claim.message.session, claim.message.id, claim.pane.tag);
    crate::crash::point("deliver-typed");
    let settle = move |turn: &mut Turn<'_>| {
        let now = turn.now();
        turn.volatile.prompts.end_paste(session);
        turn.wake();
        let Some(open) = turn.pool().open_message(session, id) else { return };
        let typing = open.state == MessageState::Typing;
        let event = match state {
            _ if !typing => return,
            // It was no attempt.
            MessageState::Queued => queue::withdrawn(&open, &why, now),
            state => queue::moved(&open, state, Some(&why), now),
        };
        if state == MessageState::Queued {
            turn.volatile.prompts.block(session, why);
        } else {
            turn.volatile.prompts.delivered(tag, now);
        }
        turn.emit(event);
    };
    daemon.engine.turn(settle).await
}

/// It stands in the terminal: Enter, after a pause by length, then what confirms it.
pub(crate) async fn entered(daemon: &Arc<Daemon>, claim: Claim, grant: Grant) -> Result<(), Refusal> {
    let hooked = claim.agent.confirm == Confirm::Hook;
    let silent = hooked && is_silent(&claim.agent, claim.message.enter, &claim.body);
    let confirm = if silent { Confirm::None } else { claim.agent.confirm };
    crate::crash::point("deliver-pasted");
    if claim.message.enter {
        sleep(settle(claim.message.size)).await;
    }
    let reading = if confirm == Confirm::None { Reading::begin(daemon, &claim).await } else { None };
    let before = if confirm == Confirm::Prompt { Before::now(daemon, &claim).await } else { None };
    if claim.message.enter {
        // A dialog that opened meanwhile would take Enter for its own: then it is pressed once the text is seen.
        let hidden = hooked && shows_dialog(daemon, &claim).await;
        if hidden && silent {
            let why = "typed, and a dialog came up before Enter was pressed".to_owned();
            return failed(daemon, &claim, MessageState::InDoubt, why).await;
        }
        let enter = daemon.tmux.enter_after(claim.pane, claim.token);
        match if hidden { Ok(Answer::Done) } else { enter.await } {
            Ok(Answer::Done) => {}
            Ok(answer) => {
                let why = format!("typed, and Enter could not be pressed: {answer:?}");
                return failed(daemon, &claim, MessageState::InDoubt, why).await;
            }
            Err(error) => {
                tracing::warn!(prompt = claim.message.id.0, %error, "whether Enter was pressed is asked of the pane");
                drop(grant);
                return unclear(daemon, claim.message.session).await;
            }
        }
    }
    crate::crash::point("deliver-typed");
    let (session, id, tag) = (claim.message.session, claim.message.id, claim.pane.tag);
    let text = String::from_utf8_lossy(&claim.body);
    let over = match confirm {
        Confirm::Hook | Confirm::Prompt => None,
        Confirm::Echo => Some(echoed(daemon, &claim, &text).await),
        Confirm::None => reading::within(daemon, reading.as_ref()).await,
    };
    let settle = move |turn: &mut Turn<'_>| {
        let now = turn.now();
        turn.volatile.prompts.delivered(tag, now);
        if turn.volatile.prompts.end_paste(session) && turn.volatile.is_stopping() {
            turn.wake();
        }
        // Its hook may have been faster.
        let Some(open) = turn.pool().open_message(session, id) else { return };
        if open.state != MessageState::Typing {
            return;
        }
        let unread = (confirm == Confirm::None && over.is_none()).then_some(UNREAD);
        let typed = queue::moved(&open, MessageState::Typed, unread, now);
        let done = over.map(|why| queue::moved(&open, MessageState::Done, Some(why), now));
        turn.emit_all(std::iter::once(typed).chain(done));
    };
    daemon.engine.turn(settle).await?;
    // Others may act on the session while its agent is at it.
    drop(grant);
    look_after_since(daemon, session, Since { reading, before }).await
}

/// Nobody knows what tmux did of it: the pane is asked.
pub(crate) async fn unclear(daemon: &Arc<Daemon>, session: SessionId) -> Result<(), Refusal> {
    let over = move |turn: &mut Turn<'_>| {
        turn.volatile.prompts.end_paste(session);
        turn.wake();
    };
    daemon.engine.turn(over).await?;
    look_after(daemon, session).await
}

/// Whether its agent asks something now, as its screen shows.
async fn shows_dialog(daemon: &Daemon, claim: &Claim) -> bool {
    let glance = crate::sense::glance::glance(daemon, &claim.agent, claim.pane).await;
    glance.is_ok_and(|(_, look)| look.is_some_and(|look| look.dialog.is_some()))
}

/// Whether the end of what was typed is to be seen on the screen.
async fn echoed(daemon: &Daemon, claim: &Claim, text: &str) -> &'static str {
    let last = text.lines().rev().map(str::trim).find(|line| !line.is_empty()).unwrap_or_default();
    let wanted: String = last.chars().take(40).collect();
    let deadline = Instant::now() + ECHO_LIMIT;
    loop {
        let seen = daemon.tmux.capture(claim.pane, Lines::Visible, false).await;
        if seen.is_ok_and(|(_, screen)| String::from_utf8_lossy(&screen).contains(&wanted)) {
            return "echoed";
        }
        if Instant::now() >= deadline {
            return "unconfirmed: it was not seen on the screen";
        }
        sleep(PAUSE).await;
    }
}

/// Sessions with a prompt that was typed and that nothing confirmed, which somebody has to look after.
pub(crate) fn left(turn: &mut Turn<'_>, settings: &Settings) -> Vec<SessionId> {
    let (pool, volatile) = turn.state();
    volatile.prompts.retain_left_to_person(pool);
    let open = turn.pool().held_messages().filter(|open| open.kind == protocol::message::PROMPT);
    let left = |state| matches!(state, MessageState::Typing | MessageState::Typed);
    let typed = open.filter(|open| left(open.state) || is_shells(turn, settings, open));
    let free = typed.filter(|open| turn.pool().session(open.session).is_some_and(Session::takes_prompts));
    let prompts = &turn.volatile.prompts;
    let is_free = |session| !prompts.is_delivering(session) && prompts.left_to_person(session).is_none();
    let free = free.filter(|open| is_free(open.session));
    let (mut ready, mut over) = (Vec::new(), Vec::new());
    for (session, id) in free.map(|open| (open.session, open.id)) {
        match self::typed(turn, settings, session) {
            Some(_) => ready.push(session),
            None => over.push((session, id)),
        }
    }
    over.into_iter().for_each(|(session, id)| turn.volatile.prompts.leave_to_person(session, id));
    ready
}

/// Sees to a prompt that was typed until something confirms it, or it is left to a person.
pub(crate) async fn look_after(daemon: &Arc<Daemon>, session: SessionId) -> Result<(), Refusal> {
    look_after_since(daemon, session, Since::default()).await
}

/// What was noted before Enter; nothing after a start of the daemon.
#[derive(Default)]
struct Since {
    reading: Option<Reading>,
    before: Option<Before>,
}

/// The same, where it is known how its terminal was before.
async fn look_after_since(daemon: &Arc<Daemon>, session: SessionId, since: Since) -> Result<(), Refusal> {
    let Some(mut now) = open(daemon, session).await? else { return Ok(()) };
    if now.state == MessageState::Typing {
        doubt::decide(daemon, session, &now).await?;
        // What its hooks left waits for that.
        if open(daemon, session).await?.is_some_and(|open| open.state == MessageState::Typing) {
            return Ok(());
        }
        if !hook_spool::read_of(daemon, &[session]).await {
            return Ok(());
        }
        match open(daemon, session).await? {
            Some(decided) if decided.state != MessageState::Typing => now = decided,
            _ => return Ok(()),
        }
    }
    let confirm =
        if now.silent && now.agent.confirm == Confirm::Hook { Confirm::None } else { now.agent.confirm };
    match confirm {
        Confirm::Hook => confirmed_by_hook(daemon, session, now).await,
        Confirm::Prompt => shell::prompted(daemon, session, now, since.before).await,
        Confirm::Echo => settled(daemon, (session, now.id), MessageState::Done, Some("unconfirmed")).await,
        Confirm::None => reading::look_after(daemon, session, now, since.reading).await,
    }
}

/// What was typed and has to be looked after, now.
async fn open(daemon: &Daemon, session: SessionId) -> Result<Option<Typed>, Refusal> {
    let loaded = daemon.loaded();
    daemon.engine.turn(move |turn| typed(turn, &loaded.settings, session)).await
}

/// Waits for the agent's own hook; presses Enter again where the text stands in its composer.
async fn confirmed_by_hook(daemon: &Arc<Daemon>, session: SessionId, typed: Typed) -> Result<(), Refusal> {
    let id = typed.id;
    let mut unconfirmed = Unconfirmed::default();
    loop {
        let moved = move |turn: &mut Turn<'_>| {
            let open = turn.pool().open_message(session, id);
            open.is_none_or(|open| open.state != MessageState::Typed).then_some(())
        };
        if daemon.engine.wait_on(session, Some(unconfirmed.pause()), moved).await.is_ok() {
            return Ok(());
        }
        // What its hooks left may say more.
        if !hook_spool::read_of(daemon, &[session]).await {
            return Ok(());
        }
        // From the look to the key nobody else acts on the session.
        let _grant = daemon.engine.lock_inside(session, "deliver").await?;
        let Some((stands, busy)) = seen(daemon, session, &typed).await? else { return Ok(()) };
        match unconfirmed.next(stands, busy) {
            Then::Wait => {}
            Then::Enter => {
                tracing::info!(%session, prompt = id.0, "Enter is pressed again");
                // On disk before: from here on its agent may have it at any moment.
                if daemon.engine.turn(move |turn| enters_again(turn, (session, id))).await? {
                    // What comes of it is seen at the next look.
                    drop(daemon.tmux.enter(typed.pane).await);
                }
            }
            Then::Leave(why) => return leave(daemon, (session, id), why).await,
        }
    }
}

/// Whether it still waits for its agent; if so, it was typed only now.
fn enters_again(turn: &mut Turn<'_>, (session, id): (SessionId, MessageId)) -> bool {
    let open = turn.pool().open_message(session, id).filter(|open| open.state == MessageState::Typed);
    let event = open.map(|open| queue::moved(&open, MessageState::Typed, None, turn.now()));
    let waits = event.is_some();
    turn.emit_all(event);
    waits
}

/// Whether what was typed stands in the composer, and whether the agent said anything since; none where it moved on.
async fn seen(daemon: &Daemon, session: SessionId, typed: &Typed) -> Result<Option<(bool, bool)>, Refusal> {
    let glance = crate::sense::glance::glanced(daemon, &typed.agent, &typed.run, typed.pane).await;
    let (id, tag) = (typed.id, typed.pane.tag);
    let text = String::from_utf8_lossy(&typed.body);
    let typed_text = (&*text, daemon.age(typed.begun).await?);
    let stands = glance.is_ok_and(|glance| delivery::stands(&daemon.loaded().settings, typed_text, &glance));
    let spoken = move |turn: &mut Turn<'_>| {
        let open = turn.pool().open_message(session, id)?;
        let current = turn.pool().tagged(tag).is_some_and(|found| found.id == session);
        // Keys that were pressed since, or a lock that somebody took, may mean another thing.
        let others = turn.volatile.prompts.has_keys(session) || lock::holds_back(turn, session);
        (current && open.state == MessageState::Typed).then(|| others || is_at_something(turn, session, tag))
    };
    let busy = daemon.engine.turn(spoken).await?;
    Ok(busy.map(|busy| (stands, busy)))
}

/// Whether its hooks say that its agent is at something, which it was not when this was typed.
fn is_at_something(turn: &Turn<'_>, session: SessionId, tag: Tag) -> bool {
    let activity = turn.pool().activity_in(session, tag);
    activity.is_some_and(|activity| activity.source == Source::Hook && activity.state.is_at_work())
}

/// Nobody but a person can say more of it. What the agent says later still counts.
async fn leave(daemon: &Daemon, (session, id): (SessionId, MessageId), why: String) -> Result<(), Refusal> {
    let leave = move |turn: &mut Turn<'_>| {
        let Some(open) = turn.pool().open_message(session, id) else { return };
        if open.state == MessageState::Typed {
            let tag = turn.pool().session(session).and_then(|s| Some(s.incarnation.as_ref()?.tag));
            let heard = turn.pool().notes(session).is_some_and(|notes| notes.hooked == tag);
            let why = if heard { why } else { format!("{why}; no hook of it was ever heard") };
            // Enter was pressed when it moved last.
            let event: Event = queue::moved(&open, MessageState::Typed, Some(&why), open.since);
            turn.emit(event);
            turn.volatile.prompts.leave_to_person(session, id);
        }
    };
    daemon.engine.turn(leave).await
}
