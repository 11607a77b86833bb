//! `approve`: answers the request for a permission, or the questions, that a session waits on.

use protocol::request::Approve;
use protocol::{Ask, AskKind, Refusal, Request, SessionView};

use crate::calls::{self};
use crate::show::escape;
use crate::targets::print_session;
use crate::{Context, Error, Repeat, expect_session};

/// Answer the request for a permission, the questions or the dialog that a session waits on, and no other
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The session
    session: String,
    /// Answer no
    #[arg(long)]
    deny: bool,
    /// The reason, for the agent
    #[arg(long, value_name = "TEXT", requires = "deny")]
    reason: Option<String>,
    /// The answer to its question, offered or not; to several questions, one each, in their order. To a
    /// dialog on its screen, the number of a choice
    #[arg(long = "answer", value_name = "TEXT", conflicts_with = "deny")]
    answers: Vec<String>,
    /// Only if it waits on this one (ask.id in `show --json`)
    #[arg(long, value_name = "ID")]
    ask: Option<u64>,
    #[command(flatten)]
    repeat: Repeat,
}

/// Answers what is asked now, and prints what that was.
pub(crate) fn run(context: &Context, args: Args) -> Result<(), Error> {
    if args.repeat.op_id.is_some() && args.ask.is_none() {
        return Err(Error::usage(
            "--op-id needs --ask ID: when the command is repeated, another question may be open",
        ));
    }
    let session = context.session(&args.session)?;
    let mut client = context.client();
    let view = calls::session(&mut client, session)?;
    // A request that is not the shown one may be open behind it; poold decides that.
    let shown = view.activity.ask.as_ref().map(|ask| ask.id);
    let (id, asked) = match args.ask.filter(|id| shown != Some(*id)) {
        Some(id) => (id, format!("{}  {}  asks: {id}", view.session.id, view.session.name)),
        None => answerable(&view, &args.answers).map(|ask| (ask.id, question(&view, &ask)))?,
    };
    let session = view.session.id.into();
    let answer = match (args.deny, args.answers.is_empty()) {
        (true, _) => "denied",
        (false, true) => "allowed",
        (false, false) => "answered",
    };
    let approve =
        Approve { session, deny: args.deny, ask: Some(id), reason: args.reason, answers: args.answers };
    let view = expect_session(client.change(&args.repeat, Request::Approve(approve))?)?;
    print_session(context, &view, &format!("{asked}\n{answer}"))
}

/// The question of the session, if it may be answered from here.
fn answerable(view: &SessionView, answers: &[String]) -> Result<Ask, Error> {
    let conflict = |message: String| Err(Refusal::conflict(message).into());
    let name = &view.session.name;
    let Some(ask) = view.activity.ask.clone() else {
        return conflict(format!("{name} asks for nothing"));
    };
    // A question of a hook is passed on even if it seems answered: only poold knows whether the hook got an answer.
    let is_of_hook = matches!(ask.kind, AskKind::Permission | AskKind::Question);
    if ask.answerable || is_of_hook || ask.kind == AskKind::Dialog && !answers.is_empty() {
        return Ok(ask);
    }
    let how = match ask.kind {
        AskKind::Dialog => format!("choose with --answer N, or in its terminal (`poolctl attach {name}`)"),
        AskKind::Message => {
            format!(
                "list it with `poolctl queue ls {name} --state in_doubt`, then use `poolctl queue resolve`"
            )
        }
        _ => format!("answer in its terminal (`poolctl attach {name}`)"),
    };
    let what = if ask.kind == AskKind::Dialog {
        "a dialog is not answered by yes or no"
    } else {
        "this cannot be answered from here"
    };
    conflict(format!("{}\n{what}: {how}", question(view, &ask)))
}

fn question(view: &SessionView, ask: &Ask) -> String {
    format!("{}  {}  asks: {}", view.session.id, view.session.name, tool_and_text(ask))
}

/// The tool and its operation.
fn tool_and_text(ask: &Ask) -> String {
    let text = escape::lines(&ask.text);
    ask.tool.as_ref().map_or_else(|| text.clone(), |tool| format!("{}: {text}", escape::line(tool)))
}
