//! `pcidp run`.

use std::sync::Arc;
use tokio::signal::unix::{SignalKind, signal};

use super::args::{self, LogFormat, Registration, RunArguments};
use super::{Failure, Outcome, host};
use crate::daemon::{self, CdiDirectory, ConfigSource, DeviceInfoDirectory, Place};
use crate::handout::CdiMode;
use crate::observe::log;

pub(super) fn run(arguments: &RunArguments, ignored: &[String]) -> Outcome {
    let input = |text: &str| Failure::Input(format!("pcidp: {text}"));
    let Some(level) = log::level(&arguments.log_level) else {
        let text = format!(
            "--log-level {} is no level; write off, error, warn, info, debug, trace or a number",
            arguments.log_level
        );
        return Err(input(&text));
    };
    let format = match arguments.log_format {
        LogFormat::Text => log::Format::Text,
        LogFormat::Json => log::Format::Json,
    };
    let source = source(arguments)?;
    log::init(level, format, arguments.log_dir.as_deref());
    tracing::info!(
        version = env!("CARGO_PKG_VERSION"),
        config = %source,
        host = %arguments.host.host_root.display(),
        device_plugin_dir = %arguments.device_plugin_dir.display(),
        registration = match arguments.registration {
            Registration::Watcher => "watcher",
            Registration::Auto | Registration::Direct => "direct",
        },
        "pcidp"
    );
    if !ignored.is_empty() {
        tracing::warn!(arguments = ignored.join(" "), "arguments of the Go plugin that have no meaning here");
    }
    let loaded = source.load().map_err(|error| Failure::Input(error.to_string()))?;
    loaded.tell();
    if arguments.strict && loaded.checked.errors().next().is_some() {
        let problems = loaded.problems();
        return Err(Failure::Input(format!("{problems}\npcidp: --strict, and the config has errors")));
    }
    let kubelet = &arguments.kubelet_root_dir;
    let options = daemon::Options {
        source: Some(source),
        problems: loaded.problem_lines(),
        text: loaded.text,
        manner: match arguments.registration {
            Registration::Watcher => daemon::Manner::Watcher(kubelet.join("plugins_registry")),
            Registration::Auto | Registration::Direct => daemon::Manner::Direct,
        },
        podresources: Some(kubelet.join("pod-resources/kubelet.sock")),
        device_info: DeviceInfoDirectory::new(&arguments.device_info_dir),
        cdi: arguments.use_cdi.then(|| CdiDirectory::new(&arguments.cdi_dir, cdi_mode(arguments.cdi_mode))),
        http: arguments.http_addr,
        ..daemon::Options::new(
            host::open(&arguments.host.host_root)?,
            loaded.checked.config,
            &arguments.device_plugin_dir,
        )
    };
    let reload = Arc::clone(&options.reload);
    // Only looks at the machine block, and there is one at a time. Its thread waits for the next one: to end it and to make
    // another would wake an idle machine more often than the looks do.
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .max_blocking_threads(1)
        .thread_keep_alive(2 * daemon::SCAN_EVERY)
        .build()?;
    runtime.block_on(async {
        let mut terminate = signal(SignalKind::terminate())?;
        let mut interrupt = signal(SignalKind::interrupt())?;
        let mut hang_up = signal(SignalKind::hangup())?;
        tokio::spawn(async move {
            while hang_up.recv().await.is_some() {
                tracing::info!(signal = "SIGHUP", "reading the config again, and looking at the machine");
                reload.notify_one();
            }
        });
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

fn source(arguments: &RunArguments) -> Result<ConfigSource, Failure> {
    let place = match (&arguments.config_dir, &arguments.node_name) {
        (None, _) => Place::File(arguments.config.config_file.clone()),
        (Some(path), Some(node)) => Place::Directory { path: path.clone(), node: node.clone() },
        (Some(_), None) => {
            let text = "pcidp: --config-dir needs the node's name: write --node-name, or set NODE_NAME";
            return Err(Failure::Input(text.to_owned()));
        }
    };
    Ok(ConfigSource { place, prefix: arguments.config.resource_prefix.clone() })
}
