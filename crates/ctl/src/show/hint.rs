//! Commands that messages suggest. If the pool was chosen by `--pool`, they name it: without that, they would act on
//! another pool.

use std::sync::OnceLock;

/// The pool that the command line of this process chose, unless the environment chooses the same.
static CHOSEN: OnceLock<String> = OnceLock::new();

/// Sets the pool that all suggested commands name.
pub(crate) fn choose(pool: &str) {
    // A second call has no effect: a command line has one pool.
    CHOSEN.set(pool.to_owned()).ok();
}

/// Returns a message whose commands, in backquotes, name the chosen pool. Everything that `out::note` or `Context::say`
/// prints has passed through here. Tables and descriptions, which also show words of agents and users, are made of such
/// messages.
pub(crate) fn message(text: &str) -> String {
    naming(CHOSEN.get(), "`poolctl ", text)
}

/// Returns a command that names the chosen pool.
pub(crate) fn command(text: &str) -> String {
    naming(CHOSEN.get(), "poolctl ", text)
}

/// Adds `--pool` to each command of this program in a text, unless the command has it already.
fn naming(pool: Option<&String>, program: &str, text: &str) -> String {
    let Some(pool) = pool else { return text.to_owned() };
    let named = format!("{program}--pool {pool} ");
    text.replace(&named, program).replace(program, &named)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_suggested_command_names_the_chosen_pool() {
        let pool = "work".to_owned();
        let told = |pool| naming(pool, "`poolctl ", "it stopped: `poolctl restart web`, or `poolctl rm web`");
        assert_eq!(
            told(Some(&pool)),
            "it stopped: `poolctl --pool work restart web`, or `poolctl --pool work rm web`"
        );
        let once = told(Some(&pool));
        assert_eq!(naming(Some(&pool), "`poolctl ", &once), once, "what is told in a table is named there");
        assert_eq!(told(None), "it stopped: `poolctl restart web`, or `poolctl rm web`");
        assert_eq!(
            naming(Some(&pool), "poolctl ", "poolctl restore --all"),
            "poolctl --pool work restore --all"
        );
    }
}
