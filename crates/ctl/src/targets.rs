//! One operation on several targets: sessions that a command line names or selects, or messages.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;
use std::thread;

use protocol::reap::ENDED_AT_ONCE;
use protocol::request::List;
use protocol::{Lifecycle, Reason, Refusal, Session, SessionRef, SessionView};

use crate::args::{labels, pair};
use crate::show::json::SessionJson;
use crate::show::progress::Progress;
use crate::show::{out, session, time};
use crate::{Context, Error, Repeat, calls, exit};

/// The sessions of a verb: those that are named, or a selection.
#[derive(Debug, Clone, Default, clap::Args)]
#[group(skip)]
pub(crate) struct Targets {
    /// The sessions
    #[arg(required_unless_present = "Selection", conflicts_with = "Selection", value_name = "SESSION")]
    pub sessions: Vec<String>,
    #[command(flatten)]
    pub selection: Selection,
}

/// The flags that select sessions instead of naming them.
#[derive(Debug, Clone, Default, clap::Args)]
#[group(id = "Selection", multiple = true)]
pub(crate) struct Selection {
    /// Instead of names: those with this label; of several, with all of them
    #[arg(long = "label", value_name = "K=V", value_parser = pair)]
    pub labels: Vec<(String, String)>,
    /// Instead of names: those with this kind of agent
    #[arg(long, value_name = "KIND")]
    pub agent: Option<String>,
    /// Instead of names: all; succeeds if there are none
    #[arg(long)]
    pub all: bool,
}

/// The sessions from which a selection chooses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Scope {
    /// Sessions that run or start.
    Running,
    /// Sessions that run, start, are ending, or are about to start again by themselves.
    NotOver,
    /// Lost sessions.
    Lost,
    /// Stopped and failed sessions.
    Ended,
    /// All sessions.
    Any,
}

/// A session to act on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Target {
    /// The session.
    pub session: SessionRef,
    /// The name of the session in error messages.
    pub name: String,
}

impl Scope {
    fn contains(self, session: &Session) -> bool {
        let Session { lifecycle, reason, budget, .. } = session;
        match self {
            Self::Running => matches!(lifecycle, Lifecycle::Starting | Lifecycle::Live),
            Self::NotOver => {
                lifecycle.holds_slot() || budget.due_at.is_some() || *reason == Some(Reason::Restarted)
            }
            Self::Lost => *lifecycle == Lifecycle::Lost,
            Self::Ended => matches!(lifecycle, Lifecycle::Stopped | Lifecycle::Failed),
            Self::Any => true,
        }
    }

    /// Returns the property that these sessions share, as the end of the sentence "no session …".
    fn predicate(self) -> &'static str {
        match self {
            Self::Running | Self::NotOver => "runs",
            Self::Lost => "was lost",
            Self::Ended => "is stopped or failed",
            Self::Any => "exists",
        }
    }
}

impl Targets {
    /// Checks that there are either names or a selection. For verbs with further words beside the sessions, where the
    /// definition of the command line cannot check it.
    ///
    /// # Errors
    /// Usage for both names and a selection, or neither.
    pub(crate) fn check(&self) -> Result<(), Error> {
        match (self.sessions.is_empty(), self.selection.is_used()) {
            (false, true) => {
                Err(Error::usage("name sessions, or select them by --all, --label and --agent: not both"))
            }
            (true, false) => {
                Err(Error::usage("which session? Name it, or select some by --all, --label or --agent"))
            }
            _ => Ok(()),
        }
    }

    /// Finds the sessions of a verb. Prints the number of selected sessions, because no confirmation is asked for.
    /// `to` names the action for that line: `to end`.
    ///
    /// # Errors
    /// Usage for an operation id with more than one session; not found if a selection without `--all` is empty.
    pub(crate) fn find(
        &self,
        context: &Context,
        repeat: &Repeat,
        (scope, to): (Scope, &str),
    ) -> Result<Vec<Target>, Error> {
        if !self.selection.is_used() {
            only_one(repeat, self.sessions.len())?;
            let mut named = BTreeSet::new();
            let once = self.sessions.iter().filter(|name| named.insert(*name));
            return once.map(|name| Target::named(context, name)).collect();
        }
        // A repeated command may select other sessions, so a selection takes no operation id.
        only_one(repeat, 0)?;
        self.selection.find(context, (scope, to))
    }
}

impl Selection {
    /// True if there is a selection.
    pub(crate) fn is_used(&self) -> bool {
        self.all || self.agent.is_some() || !self.labels.is_empty()
    }

    /// Finds the selected sessions, and says how many there are.
    pub(crate) fn find(&self, context: &Context, (scope, to): (Scope, &str)) -> Result<Vec<Target>, Error> {
        let labels = labels(&self.labels)?;
        let list = List { all: true, labels, agent: self.agent.clone(), ..List::default() };
        let mut views = calls::sessions(&mut context.client(), list)?;
        views.retain(|view| scope.contains(&view.session));
        let what = match views.len() {
            0 if self.all => format!("no session{} {}", self.described(), scope.predicate()),
            0 => {
                let none = format!("no session{} {}", self.described(), scope.predicate());
                return Err(Error::not_found(format!("{none}: `poolctl ls --all` lists all")));
            }
            1 => format!("1 session {to}"),
            n => format!("{n} sessions {to}"),
        };
        context.say(&what)?;
        Ok(views.iter().map(Target::of).collect())
    }

    fn described(&self) -> String {
        let labels = self.labels.iter().map(|(key, value)| format!(" with the label {key}={value}"));
        let agent = self.agent.iter().map(|agent| format!(" of the agent {agent}"));
        labels.chain(agent).collect()
    }
}

impl Target {
    /// The session that the user names.
    ///
    /// # Errors
    /// `-` outside of any session.
    pub(crate) fn named(context: &Context, name: &str) -> Result<Self, Error> {
        Ok(Self { session: context.session(name)?, name: name.to_owned() })
    }

    /// A session that was listed.
    pub(crate) fn of(view: &SessionView) -> Self {
        Self { session: view.session.id.into(), name: view.session.name.to_string() }
    }

    /// Adds the name of the session to the error, unless the error has it already.
    fn naming(&self, error: Error) -> Error {
        let is_in_name = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
        match error {
            Error::Refused(refusal)
                if refusal.message.split(|c| !is_in_name(c)).all(|word| word != self.name) =>
            {
                let message = format!("{}: {}", self.name, refusal.message);
                Refusal { message, ..refusal }.into()
            }
            error => error,
        }
    }
}

/// Refuses an operation id for several operations: it identifies one.
pub(crate) fn only_one(repeat: &Repeat, operations: usize) -> Result<(), Error> {
    if repeat.op_id.is_some() && operations != 1 {
        return Err(Error::usage("--op-id is the id of one operation: give one target with it"));
    }
    Ok(())
}

/// Calls `ask` for all sessions, many at a time, each over a connection of its own. Once all have answered,
/// calls `tell` with the answers in the order of the sessions. Continues after a failure. `what` is waited for
/// (`to end`).
///
/// # Errors
/// The first failure; later ones are reported on standard error.
pub(crate) fn for_all<R: Send>(
    context: &Context,
    (targets, what): (&[Target], &str),
    ask: impl Fn(&Target) -> Result<R, Error> + Sync,
    mut tell: impl FnMut(&Target, R) -> Result<(), Error>,
) -> Result<(), Error> {
    let answered = Arc::new(AtomicUsize::new(0));
    let progress = progress(context, (targets, what), &answered);
    let (answers, answer) = mpsc::channel();
    let numbered: Vec<(usize, &Target)> = targets.iter().enumerate().collect();
    // The session that this command runs in comes last: the command may end with it.
    let (own, others): (Vec<_>, Vec<_>) =
        numbered.iter().partition(|(_, target)| context.is_current(&target.session));
    for part in [others, own] {
        let next = AtomicUsize::new(0);
        let ask_for_rest = || {
            while let Some((n, target)) = part.get(next.fetch_add(1, Ordering::Relaxed)) {
                let asked = ask(target);
                answered.fetch_add(1, Ordering::Relaxed);
                // The receiver outlives the threads.
                answers.send((*n, asked)).ok();
            }
        };
        thread::scope(|scope| {
            for _ in 0..part.len().min(ENDED_AT_ONCE) {
                if thread::Builder::new().spawn_scoped(scope, ask_for_rest).is_err() {
                    // Without another thread, this one does the work.
                    return ask_for_rest();
                }
            }
        });
    }
    drop((answers, progress));
    let mut answers: BTreeMap<usize, Result<R, Error>> = answer.into_iter().collect();
    for_each(context, &numbered, |(n, target)| {
        let answer = answers.remove(n).unwrap_or_else(|| Err(Error::failed("it was not asked for")));
        let told = answer.and_then(|answer| tell(target, answer));
        if targets.len() > 1 { told.map_err(|error| target.naming(error)) } else { told }
    })
}

/// Returns the earlier error, and reports the later one on standard error if there are both.
pub(crate) fn first_error(
    context: &Context,
    earlier: Result<(), Error>,
    later: Result<(), Error>,
) -> Result<(), Error> {
    if let (Err(_), Err(later)) = (&earlier, &later) {
        exit::report(later, context.style.json, exit::code(later, false));
    }
    earlier.and(later)
}

fn progress(context: &Context, (targets, what): (&[Target], &str), answered: &Arc<AtomicUsize>) -> Progress {
    let (all, answered) = (targets.len(), Arc::clone(answered));
    let what = match targets {
        [one] => format!("{} {what}", one.name),
        _ => format!("the sessions {what}"),
    };
    context.progress_of(move || match all {
        1 => what.clone(),
        _ => format!("{what}: {} of {all}", answered.load(Ordering::Relaxed)),
    })
}

/// Calls `each` for all targets, one after the other. Continues after a failure.
pub(crate) fn for_each<T>(
    context: &Context,
    targets: &[T],
    mut each: impl FnMut(&T) -> Result<(), Error>,
) -> Result<(), Error> {
    let mut first = Ok(());
    for target in targets {
        match each(target) {
            Err(Error::Output(error)) => return Err(Error::Output(error)),
            Err(error) if first.is_ok() => first = Err(error),
            Err(error) => exit::report(&error, context.style.json, exit::code(&error, false)),
            Ok(()) => {}
        }
    }
    first
}

/// Prints a session as JSON, or this line for people.
pub(crate) fn print_session(context: &Context, view: &SessionView, line: &str) -> Result<(), Error> {
    if context.style.json { out::json(&SessionJson::new(view, time::now())) } else { context.say(line) }
}

/// Prints a session as JSON, or its state for people.
pub(crate) fn print_state(context: &Context, view: &SessionView) -> Result<(), Error> {
    print_session(context, view, &session::state_line(view))
}
