//! Fetching and building the peers, once a machine.

use std::fmt;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A release of RocketMQ that the tests run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Version {
    /// 5.5.0, the newest that the registry serves.
    V5,
    /// 4.9.7, the last 4.x that the registry serves.
    V4,
}

impl Version {
    /// The folder of its pom file, and of its jars in the cache.
    pub fn set(self) -> &'static str {
        match self {
            Self::V5 => "rocketmq-5",
            Self::V4 => "rocketmq-4",
        }
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::V5 => "5.5.0",
            Self::V4 => "4.9.7",
        })
    }
}

/// Why a peer could not be fetched or built.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PeerError {
    /// A tool ended with an error.
    #[error("{command} failed: {output}; see tests/interop/README.md for what the peers need")]
    Tool {
        /// The whole command.
        command: String,
        /// What it printed.
        output: String,
    },
    /// A file or folder of the cache could not be used.
    #[error("{path}: {source}; WAYPOST_PEERS names another folder for the peers")]
    File {
        /// The file or folder.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
}

/// Whether every one of `tools` can be run. If not, one line says what is not tested for lack of which tool; with
/// `CI=true` that is a failure.
///
/// # Panics
///
/// If a tool is missing and the environment says `CI=true`.
pub fn tools_present(what: &str, tools: &[&str]) -> bool {
    let missing: Vec<&str> = tools.iter().copied().filter(|tool| !on_path(tool)).collect();
    if missing.is_empty() {
        return true;
    }
    let line = format!("not run, {} missing: {what}", missing.join(", "));
    assert!(std::env::var("CI").as_deref() != Ok("true"), "{line}");
    let _ = std::io::Write::write_all(&mut std::io::stderr(), format!("{line}\n").as_bytes());
    false
}

fn on_path(tool: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|folder| folder.join(tool).is_file())
}

/// Where the peers are built and kept: the folder in `WAYPOST_PEERS`, or `~/.cache/waypost-peers`.
///
/// Each part is made by the first test that needs it and marked complete; a lock in the folder makes the others
/// wait, also those of other processes.
#[derive(Debug, Clone)]
pub struct Workshop {
    cache: PathBuf,
    sources: PathBuf,
}

impl Workshop {
    /// Opens the cache. Nothing is fetched yet.
    ///
    /// # Errors
    ///
    /// If the folder cannot be made.
    pub fn open() -> Result<Self, PeerError> {
        let cache = std::env::var_os("WAYPOST_PEERS").map_or_else(
            || PathBuf::from(std::env::var_os("HOME").unwrap_or_default()).join(".cache/waypost-peers"),
            PathBuf::from,
        );
        std::fs::create_dir_all(&cache).map_err(|source| PeerError::File { path: cache.clone(), source })?;
        let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/interop");
        Ok(Self { cache, sources })
    }

    /// The logging configuration of the Java peers of `version`.
    pub fn logback(&self, version: Version) -> PathBuf {
        self.sources.join("java").join(version.set()).join("logback.xml")
    }

    /// The folder with all jars of `version`, fetched by Maven.
    ///
    /// # Errors
    ///
    /// If Maven fails or the cache cannot be written.
    pub fn jars(&self, version: Version) -> Result<PathBuf, PeerError> {
        let folder = self.cache.join(version.set());
        let jars = folder.join("lib");
        self.once(&folder, "complete", "", || {
            let pom = self.sources.join("java").join(version.set()).join("pom.xml");
            run(Command::new("mvn")
                .args(["-q", "-B", "-f"])
                .arg(pom)
                .arg("dependency:copy-dependencies")
                .arg(format!("-DoutputDirectory={}", jars.display())))
        })?;
        Ok(jars)
    }

    /// The folder with the compiled Java drivers of these tests, for the class path of `version`.
    ///
    /// # Errors
    ///
    /// If they do not compile or the cache cannot be written.
    pub fn drivers(&self, version: Version) -> Result<PathBuf, PeerError> {
        let jars = self.jars(version)?;
        let folder = self.cache.join(version.set()).join("drivers");
        let sources = ["Admin", "Exchange", "Steady"]
            .map(|name| self.sources.join("java/src").join(name).with_extension("java"));
        self.once(&folder, "complete", &fingerprint(&sources)?, || {
            run(Command::new("javac")
                .args(["-nowarn", "-cp"])
                .arg(jars.join("*"))
                .arg("-d")
                .arg(&folder)
                .args(&sources))
        })?;
        Ok(folder)
    }

    /// The program of the Go client.
    ///
    /// # Errors
    ///
    /// If it does not build or the cache cannot be written.
    pub fn go_client(&self) -> Result<PathBuf, PeerError> {
        let folder = self.cache.join("go");
        let sources = ["go.mod", "go.sum", "main.go"].map(|name| self.sources.join("go").join(name));
        let program = folder.join("exchange");
        self.once(&folder, "complete", &fingerprint(&sources)?, || {
            run(Command::new("go")
                .current_dir(self.sources.join("go"))
                .args(["build", "-o"])
                .arg(&program)
                .arg("."))
        })?;
        Ok(program)
    }

    /// The Python interpreter of an environment that has the C++ client, and the script to run with it.
    ///
    /// # Errors
    ///
    /// If pip fails or the cache cannot be written.
    pub fn python_client(&self) -> Result<(PathBuf, PathBuf), PeerError> {
        let folder = self.cache.join("python");
        let requirements = self.sources.join("python/requirements.txt");
        let interpreter = folder.join("bin/python");
        self.once(&folder, "complete", &fingerprint(std::slice::from_ref(&requirements))?, || {
            run(Command::new("python3").args(["-m", "venv"]).arg(&folder))?;
            run(Command::new(&interpreter).args(["-m", "pip", "install", "-q", "-r"]).arg(&requirements))
        })?;
        Ok((interpreter, self.sources.join("python/exchange.py")))
    }

    /// Runs `make` unless `folder` holds a file `marker` with the text `state`; writes it afterwards.
    fn once(
        &self,
        folder: &Path,
        marker: &str,
        state: &str,
        make: impl FnOnce() -> Result<(), PeerError>,
    ) -> Result<(), PeerError> {
        let on_file = |path: &Path| {
            let path = path.to_owned();
            move |source| PeerError::File { path, source }
        };
        let lock_path = self.cache.join("lock");
        let lock = File::create(&lock_path).map_err(on_file(&lock_path))?;
        lock.lock().map_err(on_file(&lock_path))?;
        let marker = folder.join(marker);
        if std::fs::read_to_string(&marker).is_ok_and(|found| found == state) {
            return Ok(());
        }
        std::fs::create_dir_all(folder).map_err(on_file(folder))?;
        make()?;
        std::fs::write(&marker, state).map_err(on_file(&marker))
    }
}

/// Changes when the content of one of `files` does.
fn fingerprint(files: &[PathBuf]) -> Result<String, PeerError> {
    use std::hash::{DefaultHasher, Hash as _, Hasher as _};
    let mut hasher = DefaultHasher::new();
    for path in files {
        let content = std::fs::read(path).map_err(|source| PeerError::File { path: path.clone(), source })?;
        content.hash(&mut hasher);
    }
    Ok(format!("{:016x}", hasher.finish()))
}

fn run(command: &mut Command) -> Result<(), PeerError> {
    let done = command.output();
    let failed = |output: String| PeerError::Tool { command: format!("{command:?}"), output };
    match done {
        Ok(output) if output.status.success() => Ok(()),
        Ok(output) => Err(failed(format!(
            "{}{}",
            String::from_utf8_lossy(&output.stdout),
            String::from_utf8_lossy(&output.stderr)
        ))),
        Err(error) => Err(failed(error.to_string())),
    }
}
