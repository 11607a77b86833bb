//! The context of a command: the pool, the style of output, and the time limits.

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use process::runtime::terminal::takes_colours;
use protocol::paths::{DEFAULT_POOL, Env};
use protocol::{Paths, SessionRef, Token};

use crate::Error;
use crate::args::{Colour, Global, Limit};
use crate::show::hint;
use crate::show::out::{self, Style};
use crate::show::progress::Progress;

/// The default time limit of an answer, as in the contract.
const DEFAULT_LIMIT: Duration = Duration::from_secs(10);

/// The context of one command.
#[derive(Debug, Clone)]
pub(crate) struct Context {
    /// The paths of the pool.
    pub paths: Paths,
    /// The style of output.
    pub style: Style,
    /// True if remarks are printed on standard error.
    pub verbose: bool,
    /// The token of the lock under which this command runs.
    pub lock: Option<Token>,
    limit: Option<Limit>,
    began: Instant,
    current: Option<String>,
    workspace: Option<String>,
    message: Option<String>,
    hides_progress: bool,
    /// True once the daemon was reached: from then on this command waits for it if it is absent.
    pub reached: Arc<AtomicBool>,
}

impl Context {
    /// The context of these flags and the environment.
    pub(crate) fn new(global: &Global) -> Result<Self, Error> {
        let mut env = Env::from_environment();
        let inherited = env.socket.clone().filter(|socket| !socket.is_empty());
        if let Some(pool) = &global.pool {
            if env.pool.clone().unwrap_or_else(|| DEFAULT_POOL.into()) != *pool {
                hint::choose(&pool.to_string_lossy());
            }
            // If `--pool` names another pool than the environment, the socket in the environment does not count, nor
            // does the state directory if that pool has set it.
            if env.pool.as_ref().is_some_and(|own| own != pool) {
                let socket = env.socket.take().map(PathBuf::from);
                let is_told = std::env::var_os("POOL_INCARNATION").is_some_and(|tag| !tag.is_empty());
                let is_of_socket = |dir: &OsString| socket.is_some_and(|socket| socket.starts_with(dir));
                env.state_dir = env.state_dir.filter(|dir| !is_told && !is_of_socket(dir));
            }
            env.pool = Some(pool.clone());
        }
        if let Some(socket) = &global.socket {
            env.socket = Some(absolute(socket)?.into());
        }
        let paths = Paths::new(&env).map_err(|error| Error::usage(error.to_string()))?;
        // Variables that a pool sets for its sessions, handlers and locked commands count only if that pool is this
        // one.
        let is_of_pool = inherited.is_none_or(|socket| socket == paths.socket);
        let told = |name| std::env::var(name).ok().filter(|value| !value.is_empty() && is_of_pool);
        let token = told("POOL_LOCK_TOKEN").map(|token| token.parse::<Token>());
        let lock = token.transpose().map_err(|error| Error::usage(format!("POOL_LOCK_TOKEN: {error}")))?;
        Ok(Self {
            began: Instant::now(),
            paths,
            style: style(global),
            verbose: global.verbose > 0,
            lock,
            limit: global.timeout,
            current: told("POOL_SESSION"),
            workspace: told("POOL_WORKSPACE"),
            message: told("POOL_MESSAGE_ID"),
            hides_progress: false,
            reached: Arc::default(),
        })
    }

    /// Sets the environment of a command so that it finds this pool. Variables that another pool has set for its
    /// session are removed.
    pub(crate) fn set_environment(&self, command: &mut Command) {
        command.envs(self.paths.variables());
        let told = [
            ("POOL_SESSION", &self.current),
            ("POOL_WORKSPACE", &self.workspace),
            ("POOL_MESSAGE_ID", &self.message),
        ];
        for (name, _) in told.iter().filter(|(_, value)| value.is_none()) {
            command.env_remove(name);
        }
    }

    /// The time limit of a verb that waits or follows; `None` is unlimited.
    pub(crate) fn waiting_limit(&self) -> Option<Duration> {
        self.limit.and_then(|limit| limit.0)
    }

    /// The time that is left of a user's limit, since this command began; `None` is unlimited.
    pub(crate) fn left(&self) -> Option<Duration> {
        self.waiting_limit().map(|limit| limit.saturating_sub(self.began.elapsed()))
    }

    /// The time limit of any other request; `None` is unlimited.
    pub(crate) fn limit(&self) -> Option<Duration> {
        self.limit_with(Duration::ZERO)
    }

    /// The time limit of a request that is known to take this much longer than usual.
    pub(crate) fn limit_with(&self, longer: Duration) -> Option<Duration> {
        self.limit.map_or(Some(DEFAULT_LIMIT.saturating_add(longer)), |limit| limit.0)
    }

    /// The session that the user names; `-` is the one that this shell runs in.
    ///
    /// # Errors
    /// `-` outside of any session.
    pub(crate) fn session(&self, text: &str) -> Result<SessionRef, Error> {
        if text != "-" {
            return Ok(SessionRef(text.to_owned()));
        }
        let current = self.current.clone().map(SessionRef);
        current.ok_or_else(|| {
            let pool = &self.paths.pool;
            Error::usage(format!(
                "this shell runs in no session of the pool {pool}, so - names none (POOL_SESSION)"
            ))
        })
    }

    /// True for the session that this shell runs in, if it is named by its id or its workspace.
    pub(crate) fn is_current(&self, session: &SessionRef) -> bool {
        let named = Some(session.0.as_str());
        self.current.as_deref() == named || self.current.is_some() && self.workspace.as_deref() == named
    }

    /// Returns this context for requests that run at the same time and share one line of progress.
    pub(crate) fn without_progress(&self) -> Self {
        Self { hides_progress: true, ..self.clone() }
    }

    /// The origin of this command's messages: the session that this shell runs in, or a person.
    pub(crate) fn origin(&self) -> String {
        self.current.as_ref().map_or_else(|| "cli".to_owned(), |session| format!("session:{session}"))
    }

    /// The message for which this command runs, as the handler of a worker.
    pub(crate) fn message(&self) -> Option<&str> {
        self.message.as_deref()
    }

    /// Shows on a terminal what is waited for, until it is dropped.
    pub(crate) fn progress(&self, what: &str) -> Progress {
        Progress::start(what, self.is_silent())
    }

    /// Shows on a terminal what is waited for, with a text that changes.
    pub(crate) fn progress_of(&self, what: impl FnMut() -> String + Send + 'static) -> Progress {
        Progress::follow(what, self.is_silent())
    }

    fn is_silent(&self) -> bool {
        self.style.quiet || self.style.json || self.hides_progress
    }

    /// Prints a line for people: not with `--json` or `--quiet`.
    pub(crate) fn say(&self, line: &str) -> Result<(), Error> {
        if self.style.json || self.style.quiet { Ok(()) } else { out::line(&hint::message(line)) }
    }

    /// Prints a note on standard error, unless `--quiet`.
    pub(crate) fn tell(&self, text: &str) {
        if !self.style.quiet {
            out::note(text);
        }
    }

    /// Prints a remark on standard error with `--verbose`.
    pub(crate) fn remark(&self, text: &str) {
        if self.verbose {
            out::note(text);
        }
    }
}

/// The absolute form of a path.
pub(crate) fn absolute(path: &std::path::Path) -> Result<PathBuf, Error> {
    std::path::absolute(path).map_err(|error| Error::usage(format!("{}: {error}", path.display())))
}

fn style(global: &Global) -> Style {
    let terminal = out::is_terminal();
    let colour = match global.color {
        Colour::Always => true,
        Colour::Never => false,
        Colour::Auto => terminal && takes_colours(),
    };
    Style { json: global.json, quiet: global.quiet, terminal, colour }
}
