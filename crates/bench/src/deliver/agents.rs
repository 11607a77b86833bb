//! The agents that get the prompts: a script, and the real ones if installed, in homes of their own and
//! with a mock of their models.

use std::fs;
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use nix::sys::stat::Mode;
use tempfile::TempDir;

use crate::child::Spawned;
use crate::interrupt;

/// The script.
const FAKE: &str = include_str!("fake.sh");
/// Directory of the helpers that install agents and mock their models.
const HELPERS: &str = "scripts/dev";
/// Directories of the real agents' packages, in the order of [`Kind::REAL`].
const PACKAGES: [&str; 2] = ["node_modules/@anthropic-ai/claude-code", "node_modules/@openai/codex"];
/// Delay of a model before its answer begins, and again before its text.
const MODEL_DELAY_S: &str = "0.05";
/// Not a secret: the mock accepts any key.
const KEY: &str = "sk-ant-mock-0123456789abcdef0123456789";
/// Time for the mock to listen.
const PATIENCE: Duration = Duration::from_secs(30);
const TICK: Duration = Duration::from_millis(20);

/// A kind of agent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// A script that calls its hooks at once.
    Fake,
    /// Claude Code.
    Claude,
    Codex,
}

impl Kind {
    const REAL: [Self; 2] = [Self::Claude, Self::Codex];

    /// Name in the configuration.
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::Fake => "fake",
            Self::Claude => "claude",
            Self::Codex => "codex",
        }
    }
}

/// The agents and their environment.
pub(super) struct Agents {
    dir: TempDir,
    /// The available agents.
    pub(super) kinds: Vec<Kind>,
    /// Reason for the missing ones.
    pub(super) missing: Option<String>,
    real: Vec<PathBuf>,
    model: Option<Model>,
}

/// The mock of the models.
struct Model {
    port: u16,
    _process: Spawned,
}

impl Agents {
    /// Creates the script, and looks for real agents below this directory.
    pub(super) fn find(installed: &Path) -> Result<Self> {
        let dir = tempfile::Builder::new().prefix("pool-agents.").tempdir_in("/tmp")?;
        fs::write(dir.path().join("fake.sh"), FAKE)?;
        nix::unistd::mkfifo(&dir.path().join("fifo"), Mode::S_IRWXU)?;
        fs::create_dir(dir.path().join("place"))?;
        let mut agents = Self { dir, kinds: vec![Kind::Fake], missing: None, real: Vec::new(), model: None };
        match missing(installed) {
            Some(why) => agents.missing = Some(why),
            None => {
                agents.real = programs(installed)?;
                agents.model = Some(Model::start(agents.dir.path())?);
                agents.kinds.extend(Kind::REAL);
                agents.homes()?;
            }
        }
        Ok(agents)
    }

    /// Named pipe to which the script writes what it has read.
    pub(super) fn fifo(&self) -> PathBuf {
        self.dir.path().join("fifo")
    }

    /// Path of the script.
    pub(super) fn script(&self) -> PathBuf {
        self.dir.path().join("fake.sh")
    }

    /// A directory that the agents trust.
    pub(super) fn place(&self) -> PathBuf {
        self.dir.path().join("place")
    }

    /// Configuration of the pool for these agents.
    pub(super) fn config(&self, bin_dir: &Path) -> String {
        let args = format!("{:?}, {:?}, {:?}", self.script(), self.fifo(), bin_dir.join("poolctl"));
        let mut text = format!(
            "[agents.fake]\ncommand = \"bash\"\nargs = [{args}]\nadapter = \"none\"\nconfirm = \"hook\"\n"
        );
        let Some(model) = &self.model else { return text };
        let home = self.dir.path();
        for (kind, program) in Kind::REAL.into_iter().zip(&self.real) {
            let environment = match kind {
                Kind::Codex => format!("CODEX_HOME = {:?}, MOCK_KEY = \"x\"", home.join("codex")),
                _ => format!(
                    "ANTHROPIC_BASE_URL = \"http://127.0.0.1:{}\", ANTHROPIC_API_KEY = \"{KEY}\", \
                     DISABLE_AUTOUPDATER = \"1\", DISABLE_TELEMETRY = \"1\", DISABLE_ERROR_REPORTING = \"1\", \
                     CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC = \"1\"",
                    model.port
                ),
            };
            text.push_str(&format!(
                "[agents.{}]\ncommand = {program:?}\nenv = {{ HOME = {home:?}, {environment} }}\n",
                kind.as_str()
            ));
        }
        text
    }

    /// Prepares home directories like those of users who have run the agents before.
    fn homes(&self) -> Result<()> {
        let (home, place) = (self.dir.path(), self.place());
        let port = self.model.as_ref().map_or(0, |model| model.port);
        fs::create_dir(home.join("codex"))?;
        let claude = format!(
            r#"{{"hasCompletedOnboarding": true, "customApiKeyResponses": {{"approved": ["{}"], "rejected": []}},
"projects": {{{place:?}: {{"hasTrustDialogAccepted": true, "hasCompletedProjectOnboarding": true}}}}}}"#,
            &KEY[KEY.len() - 20..]
        );
        fs::write(home.join(".claude.json"), claude)?;
        let codex = format!(
            "model_provider = \"mock\"\nmodel = \"gpt-5.1-codex\"\ncheck_for_update_on_startup = false\n\
             [model_providers.mock]\nname = \"mock\"\nbase_url = \"http://127.0.0.1:{port}/v1\"\n\
             env_key = \"MOCK_KEY\"\nwire_api = \"responses\"\n[projects.{place:?}]\ntrust_level = \"trusted\"\n"
        );
        Ok(fs::write(home.join("codex/config.toml"), codex)?)
    }
}

/// Returns the reason why the real agents cannot be measured, if any.
fn missing(installed: &Path) -> Option<String> {
    let lacks = PACKAGES.iter().any(|package| !installed.join(package).is_dir());
    let told =
        format!("`{HELPERS}/install-agents {} claude codex` installs them (640 MB)", installed.display());
    if lacks {
        return Some(format!("claude, codex: not in {}; {told}", installed.display()));
    }
    let python = Command::new("python3").arg("--version").stdout(Stdio::null()).status();
    python.is_err().then(|| "claude, codex: the mock of their models needs python3".to_owned())
}

/// Returns the programs of the installed agents.
fn programs(installed: &Path) -> Result<Vec<PathBuf>> {
    let helper = format!("{HELPERS}/install-agents");
    let output =
        Command::new(&helper).arg(installed).args(Kind::REAL.map(Kind::as_str)).output().context(helper)?;
    ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr).trim());
    let paths: Vec<PathBuf> = String::from_utf8(output.stdout)?.lines().map(PathBuf::from).collect();
    ensure!(paths.len() == Kind::REAL.len(), "install-agents names {} programs", paths.len());
    Ok(paths)
}

impl Model {
    fn start(dir: &Path) -> Result<Self> {
        let port = free_port()?;
        let mut command = Command::new("python3");
        command.arg(format!("{HELPERS}/mock-model-api")).args([&port.to_string(), MODEL_DELAY_S]);
        command.arg(dir.join("model.log")).arg(dir.join("made"));
        let process = Spawned::logged(&mut command, &dir.join("model.out"))?;
        listens(port).context("the mock of the models")?;
        Ok(Self { port, _process: process })
    }
}

/// Returns an unused port.
pub(super) fn free_port() -> Result<u16> {
    Ok(TcpListener::bind(("127.0.0.1", 0))?.local_addr()?.port())
}

/// Waits until the port accepts connections.
pub(super) fn listens(port: u16) -> Result<()> {
    let deadline = Instant::now() + PATIENCE;
    while TcpStream::connect(("127.0.0.1", port)).is_err() {
        ensure!(Instant::now() < deadline, "the server does not listen");
        interrupt::sleep(TICK)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_the_real_agents_there_is_the_script_and_a_reason() {
        let empty = tempfile::tempdir().unwrap();
        let agents = Agents::find(empty.path()).unwrap();
        assert_eq!(agents.kinds, [Kind::Fake]);
        assert!(agents.missing.unwrap().contains("scripts/dev/install-agents"));
    }
}
