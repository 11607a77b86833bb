//! `completions`: a script with which a shell completes `poolctl`.

use clap::{Arg, Command};
use clap_complete::Shell;

use crate::Error;
use crate::manual::TOPICS;
use crate::show::out;

/// Print a completion script for a shell
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The shell
    shell: Shell,
}

/// Prints the script for this definition of the command line, with the arguments of every verb.
pub(crate) fn run(args: &Args, command: &Command) -> Result<(), Error> {
    let mut script = Vec::new();
    let shown = shown(command);
    let verbs = shown.get_subcommands().map(Command::get_name);
    let words = verbs.chain(TOPICS.iter().map(|topic| topic.name));
    let words: Vec<Command> = words.map(|word| Command::new(word.to_owned())).collect();
    let help = Command::new("help").about("Explain a verb or a topic").disable_help_subcommand(true);
    let help = help.subcommands(words);
    let shown = shown.version(env!("CARGO_PKG_VERSION"));
    let mut whole = shown.disable_help_subcommand(true).subcommand(help);
    clap_complete::generate(args.shell, &mut whole, "poolctl", &mut script);
    out::bytes(&script)
}

/// Returns a command with what is not hidden of it: the generators offer hidden verbs and options, too. `--help` and
/// `--version` are added to it once more.
fn shown(command: &Command) -> Command {
    let verbs = command.get_subcommands().filter(|verb| !verb.is_hide_set() && verb.get_name() != "help");
    let is_shown = |arg: &&Arg| !arg.is_hide_set() && arg.get_id() != "help" && arg.get_id() != "version";
    let args = command.get_arguments().filter(is_shown).map(alone);
    let shown = Command::new(command.get_name().to_owned()).args(args).subcommands(verbs.map(shown));
    match command.get_about() {
        Some(about) => shown.about(about.clone()),
        None => shown,
    }
}

/// Returns an argument without its relations to others, which may be hidden.
fn alone(arg: &Arg) -> Arg {
    let mut alone = Arg::new(arg.get_id().clone())
        .short(arg.get_short())
        .action(arg.get_action().clone())
        .value_parser(arg.get_value_parser().clone())
        .value_hint(arg.get_value_hint())
        .global(arg.is_global_set())
        .required(arg.is_required_set())
        .last(arg.is_last_set())
        .trailing_var_arg(arg.is_trailing_var_arg_set());
    if let Some(long) = arg.get_long() {
        alone = alone.long(long.to_owned());
    }
    if let Some(help) = arg.get_help() {
        alone = alone.help(help.clone());
    }
    if let Some(count) = arg.get_num_args() {
        alone = alone.num_args(count);
    }
    alone
}
