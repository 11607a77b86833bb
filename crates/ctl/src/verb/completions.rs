//! `completions`: a script with which a shell completes `poolctl`.

use clap::builder::PossibleValuesParser;
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
    let words: Vec<String> = verbs.chain(TOPICS.iter().map(|topic| topic.name)).map(str::to_owned).collect();
    let word = Arg::new("word").value_parser(PossibleValuesParser::new(words)).help("A verb or a topic");
    let help = Command::new("help").about("Explain a verb or a topic").arg(word);
    let mut whole = shown.disable_help_subcommand(true).subcommand(help);
    clap_complete::generate(args.shell, &mut whole, "poolctl", &mut script);
    out::bytes(&script)
}

/// Returns a command with what is not hidden of it: the generators offer hidden verbs and options, too. They add `--help`.
fn shown(command: &Command) -> Command {
    let verbs = command.get_subcommands().filter(|verb| !verb.is_hide_set() && verb.get_name() != "help");
    let is_shown = |arg: &&Arg| !arg.is_hide_set() && arg.get_id() != "help";
    let args = command.get_arguments().filter(is_shown).cloned();
    let shown = Command::new(command.get_name().to_owned()).args(args).subcommands(verbs.map(shown));
    match command.get_about() {
        Some(about) => shown.about(about.clone()),
        None => shown,
    }
}
