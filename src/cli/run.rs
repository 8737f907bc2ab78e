//! `pcidp run`.

use std::sync::Arc;
use std::time::Duration;

use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::Notify;

use super::args::{self, LogFormat, Registration, RunArguments};
use super::{ConfigFile, Failure, Outcome, host};
use crate::config::Severity;
use crate::daemon::{self, CdiDirectory, DeviceInfoDirectory};
use crate::handout::CdiMode;
use crate::observe::log;

/// How often the machine is looked at where no event tells.
const SCAN_EVERY: Duration = Duration::from_secs(30);

pub(super) fn run(arguments: &RunArguments, ignored: &[String]) -> Outcome {
    let input = |text: &str| Failure::Input(format!("pcidp: {text}"));
    let Some(level) = log::level(&arguments.log_level) else {
        let text = format!(
            "--log-level {} is no level; write off, error, warn, info, debug, trace or a number",
            arguments.log_level
        );
        return Err(input(&text));
    };
    if arguments.registration == Registration::Watcher {
        return Err(input("--registration watcher is not supported yet; write direct or auto"));
    }
    let format = match arguments.log_format {
        LogFormat::Text => log::Format::Text,
        LogFormat::Json => log::Format::Json,
    };
    log::init(level, format, arguments.log_dir.as_deref());
    tracing::info!(
        version = env!("CARGO_PKG_VERSION"),
        config = %arguments.config.config_file.display(),
        host = %arguments.host.host_root.display(),
        device_plugin_dir = %arguments.device_plugin_dir.display(),
        registration = "direct",
        "pcidp"
    );
    if !ignored.is_empty() {
        tracing::warn!(arguments = ignored.join(" "), "arguments of the Go plugin that have no meaning here");
    }
    let file =
        ConfigFile::read(&arguments.config.config_file, &arguments.config.resource_prefix)?.usable()?;
    tell_problems(&file);
    if arguments.strict && file.checked.errors().next().is_some() {
        return Err(Failure::Input(format!(
            "{}\npcidp: --strict, and the config has errors",
            file.problems()
        )));
    }
    let options = daemon::Options {
        host: host::open(&arguments.host.host_root)?,
        config: file.checked.config,
        device_plugin_directory: arguments.device_plugin_dir.clone(),
        device_info: DeviceInfoDirectory::new(&arguments.device_info_dir),
        cdi: arguments.use_cdi.then(|| CdiDirectory::new(&arguments.cdi_dir, cdi_mode(arguments.cdi_mode))),
        scan_every: SCAN_EVERY,
        look_again: Arc::new(Notify::new()),
    };
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().max_blocking_threads(4).build()?;
    runtime.block_on(async {
        let mut terminate = signal(SignalKind::terminate())?;
        let mut interrupt = signal(SignalKind::interrupt())?;
        let shutdown = async {
            let name = tokio::select! {
                _ = terminate.recv() => "SIGTERM",
                _ = interrupt.recv() => "SIGINT",
            };
            tracing::info!(signal = name, "stopping");
        };
        daemon::run(options, shutdown).await?;
        tracing::info!("stopped");
        Ok(())
    })
}

fn cdi_mode(mode: args::CdiMode) -> CdiMode {
    CdiMode { field: mode != args::CdiMode::Annotations, annotations: mode != args::CdiMode::Field }
}

fn tell_problems(file: &ConfigFile) {
    for problem in &file.checked.problems {
        let place = format!("{}:{}:{}", file.path, problem.line, problem.column);
        match problem.severity {
            Severity::Error => tracing::error!(place, path = problem.json_path, "{}", problem.message),
            Severity::Warning => tracing::warn!(place, path = problem.json_path, "{}", problem.message),
        }
    }
    for refused in &file.checked.config.refused {
        let fallback = format!("resourceList[{}]", refused.position);
        let resource = refused.resource.as_ref().unwrap_or(&fallback);
        tracing::error!(resource, reason = refused.reason, "pool not served");
    }
    if file.checked.config.pools.is_empty() {
        tracing::warn!("the config has no pool that can be served");
    }
}
