//! `completions`: a script with which a shell completes `poolctl`, and the answers to that script. The script calls
//! `poolctl` with the half-written line at each Tab, so that it offers the sessions that there are.

mod values;

use std::ffi::OsString;

use clap::{Arg, Command, ValueHint};
use clap_complete::env::Shells;
use clap_complete::{CompleteEnv, Shell};

use crate::manual::TOPICS;
use crate::show::out;
use crate::{Error, exit};

/// The environment variable that names the shell whose script calls.
const CALLING_SHELL: &str = "_POOLCTL_COMPLETE";

/// The part of the script for bash in which it takes the words of the line.
const BASH_WORDS: &str = r#"
    local words=("${COMP_WORDS[@]}")
    if [[ "${BASH_VERSINFO[0]}" -ge 4 ]]; then
        words[COMP_CWORD]="$2"
    fi
"#;

/// The same for words as a shell has them: bash splits one at each `=` and `:`, and calls the last part `$2`. The text
/// behind the cursor is left out.
const BASH_JOINED_WORDS: &str = r#"
    local words=() index=0 joined= rest=$COMP_LINE i after
    for ((i = 0; i <= COMP_CWORD; i++)); do
        if [[ $i -gt 0 && $rest != [[:space:]]* ]]; then
            joined=yes
            words[index]+=${COMP_WORDS[i]}
        else
            joined=
            index=${#words[@]}
            words+=("${COMP_WORDS[i]}")
        fi
        rest=${rest#*"${COMP_WORDS[i]}"}
    done
    if [[ -n $joined ]]; then
        after=$((${#COMP_LINE} - ${#rest} - COMP_POINT))
        words[index]=${words[index]:0:${#words[index]} - (after > 0 ? after : 0)}
    elif [[ "${BASH_VERSINFO[0]}" -ge 4 ]]; then
        words[index]="$2"
    fi
    _CLAP_COMPLETE_INDEX=$index
"#;

/// The end of the function in the script for bash.
const BASH_END: &str = r"
        compopt -o nospace
    fi
}
";

/// The same, after which bash is offered what takes the place of the last part.
const BASH_LAST_PARTS: &str = r#"
        compopt -o nospace
    fi
    if [[ -n $joined ]]; then
        COMPREPLY=("${COMPREPLY[@]#"${words[index]%"$2"}"}")
    fi
}
"#;

/// The part of the script for zsh that offers values.
const ZSH_VALUES: &str = "
        [[ -n $other ]] && _describe -V 'values' other
";

/// The same, without a blank behind what goes on, as `message:` does.
const ZSH_OPEN_VALUES: &str = r#"
        local -a open=("${(@M)other:#*\:}")
        other=("${(@)other:#*\:}")
        [[ -n $other ]] && _describe -V 'values' other
        if [[ -n $open ]]; then _describe -V 'values' open -S ''; fi
"#;

/// Print a completion script for a shell
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The shell
    shell: Shell,
}

/// Prints the script.
pub(crate) fn run(args: &Args) -> Result<(), Error> {
    let mut script = Vec::new();
    let shells = Shells::builtins();
    let shell = shells.completer(&args.shell.to_string());
    let shell = shell.ok_or_else(|| Error::usage(format!("no script for {}", args.shell)))?;
    shell
        .write_registration(CALLING_SHELL, "poolctl", "poolctl", "poolctl", &mut script)
        .map_err(|error| Error::failed(error.to_string()))?;
    let script = String::from_utf8_lossy(&script);
    let script = match args.shell {
        // Files are completed by bash itself.
        Shell::Bash => script
            .replace("-o bashdefault", "-o bashdefault -o default")
            .replace(BASH_WORDS, BASH_JOINED_WORDS)
            .replace(BASH_END, BASH_LAST_PARTS),
        // zsh expects an answer at once if it loads the script at the first Tab (from its `fpath`).
        Shell::Zsh => format!(
            "{}\nif [[ ${{funcstack[1]}} == _poolctl ]]; then _clap_dynamic_completer_poolctl; fi\n",
            script.replace(ZSH_VALUES, ZSH_OPEN_VALUES)
        ),
        _ => script.into_owned(),
    };
    out::bytes(script.as_bytes())
}

/// Answers a call of the script, and returns the code to exit with. `None` for a command line of people.
pub(crate) fn answer(args: &[OsString], whole: impl Fn() -> Command) -> Option<u8> {
    let shell = std::env::var_os(CALLING_SHELL)?;
    let line: Vec<OsString> = args.iter().skip_while(|word| *word != "--").skip(1).cloned().collect();
    let definition = || {
        let command = values::add(with_topics(whole()), &line);
        let command = if shell == "bash" { without_files(command) } else { command };
        if begins_option(&line) { command } else { hide_options(command) }
    };
    let here = std::env::current_dir().ok();
    match CompleteEnv::with_factory(definition).var(CALLING_SHELL).try_complete(args, here.as_deref()) {
        Ok(true) => Some(exit::OK),
        Ok(false) => None,
        Err(_) => Some(exit::OWN_FAILURE),
    }
}

/// Lets `help` offer the topics of the manual, and no verbs that are hidden.
fn with_topics(command: Command) -> Command {
    let hidden =
        command.get_subcommands().filter(|verb| verb.is_hide_set()).map(|verb| verb.get_name().to_owned());
    let hidden: Vec<String> = hidden.chain(["help".to_owned()]).collect();
    let topics = TOPICS.iter().map(|topic| Command::new(topic.name).about(topic.summary()));
    command.mut_subcommand("help", |help| {
        let hide = |verb: Command| {
            if hidden.iter().any(|name| name == verb.get_name()) { verb.hide(true) } else { verb }
        };
        help.mut_subcommands(hide).subcommands(topics)
    })
}

/// Leaves files to bash itself, which quotes their names: it inserts what is offered here as it is.
fn without_files(command: Command) -> Command {
    let leave = |arg: Arg| match arg.get_value_hint() {
        ValueHint::Unknown => arg,
        _ => arg.value_hint(ValueHint::Other),
    };
    command.mut_args(leave).mut_subcommands(without_files)
}

/// True if the word at the cursor begins an option.
fn begins_option(line: &[OsString]) -> bool {
    let at = std::env::var("_CLAP_COMPLETE_INDEX").ok().and_then(|at| at.parse::<usize>().ok());
    let word = at.map_or_else(|| line.last(), |at| line.get(at));
    word.is_some_and(|word| word.as_encoded_bytes().starts_with(b"-"))
}

/// Hides the options of the verbs that take something else, which is then offered alone.
fn hide_options(command: Command) -> Command {
    let takes_words = command.has_subcommands() || command.get_positionals().next().is_some();
    let hide = |arg: Arg| if arg.is_positional() || !takes_words { arg } else { arg.hide(true) };
    command.mut_args(hide).mut_subcommands(hide_options)
}
