//! One operation on several targets: sessions or messages named on a command line.

use protocol::reply::SessionView;

use crate::args::Repeat;
use crate::context::Context;
use crate::error::Error;
use crate::exit;
use crate::show::json::SessionJson;
use crate::show::{out, time};

/// Requests under way at the same time.
const AT_ONCE: usize = 16;

/// Refuses an operation id for several operations: it identifies one.
pub(crate) fn only_one(repeat: &Repeat, operations: usize) -> Result<(), Error> {
    if repeat.op_id.is_some() && operations != 1 {
        return Err(Error::usage("--op-id is the id of one operation: give one target with it"));
    }
    Ok(())
}

/// Calls `ask` for all targets, several at a time, and `tell` with the answers in the order of the targets.
/// Continues after a failure.
///
/// # Errors
/// The first failure; later ones are reported on standard error.
pub(crate) fn for_all<T: Sync, R: Send>(
    context: &Context,
    targets: &[T],
    ask: impl Fn(&T) -> Result<R, Error> + Sync,
    mut tell: impl FnMut(R) -> Result<(), Error>,
) -> Result<(), Error> {
    let mut answers = Vec::with_capacity(targets.len());
    for part in targets.chunks(AT_ONCE) {
        let ask = &ask;
        std::thread::scope(|scope| {
            let asked: Vec<_> = part.iter().map(|target| scope.spawn(move || ask(target))).collect();
            for one in asked {
                answers.push(one.join().unwrap_or_else(|_| Err(Error::failed("a thread panicked"))));
            }
        });
    }
    let mut answers = answers.into_iter();
    for_each(context, targets, |_| answers.next().map_or(Ok(()), |answer| answer.and_then(&mut tell)))
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
