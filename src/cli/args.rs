//! What the user said.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};

/// Kubernetes device plugin for PCI devices: SR-IOV functions and accelerators.
#[derive(Debug, Parser)]
#[command(name = "pcidp", version, args_conflicts_with_subcommands = true, args_override_self = true)]
pub(super) struct Arguments {
    #[command(subcommand)]
    pub(super) command: Option<Command>,
    #[command(flatten)]
    pub(super) run: RunArguments,
}

#[derive(Debug, Subcommand)]
pub(super) enum Command {
    /// Serve the pools of a config to the kubelet (the default)
    Run(RunArguments),
    /// Check a config: every problem with its place and its remedy
    Check(CheckArguments),
    /// List the devices of a host, and their pools
    Devices(DevicesArguments),
    /// Say why a device is in a pool or not, or why a pool holds what it holds
    Explain(ExplainArguments),
    /// Show what the plugin of this container does: pools, health, registration, who holds what
    Status(StatusArguments),
    /// Record a host as one text file, for tests and bug reports
    Snapshot(SnapshotArguments),
    /// Show the main job on a recorded host, without hardware, cluster or privileges
    Demo(DemoArguments),
    /// Print a config, its schema, manifests, shell completions or the man page
    #[command(subcommand)]
    Generate(Generate),
}

#[derive(Debug, Clone, Args)]
pub(super) struct ConfigArguments {
    /// The config file
    #[arg(long, value_name = "FILE", default_value = "/etc/pcidp/config.json")]
    pub(super) config_file: PathBuf,
    /// Prefix of resources that name none of their own
    #[arg(long, value_name = "PREFIX", default_value = "intel.com")]
    pub(super) resource_prefix: String,
}

#[derive(Debug, Clone, Args)]
pub(super) struct HostArguments {
    /// The machine: `/`, a directory that holds its `sys`, or a recorded host
    #[arg(long, value_name = "DIR|RECORDING", default_value = "/")]
    pub(super) host_root: PathBuf,
}

#[derive(Debug, Clone, Args)]
pub(super) struct FormatArguments {
    /// How to print
    #[arg(short, long, value_enum, default_value_t = OutputFormat::Table)]
    pub(super) output: OutputFormat,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum OutputFormat {
    /// For people; fits 100 columns
    Table,
    /// For programs; its form is kept
    Json,
}

#[derive(Debug, Clone, Args)]
pub(super) struct RunArguments {
    #[command(flatten)]
    pub(super) config: ConfigArguments,
    #[command(flatten)]
    pub(super) host: HostArguments,
    /// Take the config from `<node>.json`, else `<node>`, else `default.json` in this directory
    #[arg(long, value_name = "DIR", conflicts_with = "config_file")]
    pub(super) config_dir: Option<PathBuf>,
    /// The node's name, for --config-dir
    #[arg(long, value_name = "NAME", env = "NODE_NAME", hide_env_values = true)]
    pub(super) node_name: Option<String>,
    /// Hand devices over through CDI
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true", default_value_t = false, value_name = "BOOL", action = clap::ArgAction::Set)]
    pub(super) use_cdi: bool,
    /// How container runtimes are told of CDI devices
    #[arg(long, value_enum, default_value_t = CdiMode::Both)]
    pub(super) cdi_mode: CdiMode,
    /// Where CDI specs go
    #[arg(long, value_name = "DIR", default_value = crate::daemon::CDI_DIRECTORY)]
    pub(super) cdi_dir: PathBuf,
    /// Exit with 2 when the config has an error
    #[arg(long)]
    pub(super) strict: bool,
    /// The kubelet's directory of sockets
    #[arg(long, value_name = "DIR", default_value = crate::daemon::DEVICE_PLUGIN_DIRECTORY)]
    pub(super) device_plugin_dir: PathBuf,
    /// The kubelet's root directory
    #[arg(long, value_name = "DIR", default_value = "/var/lib/kubelet")]
    pub(super) kubelet_root_dir: PathBuf,
    /// How the kubelet learns of a pool
    #[arg(long, value_enum, default_value_t = Registration::Auto)]
    pub(super) registration: Registration,
    /// Where device-information files go
    #[arg(long, value_name = "DIR", default_value = crate::daemon::DEVICE_INFO_DIRECTORY)]
    pub(super) device_info_dir: PathBuf,
    /// Serve a page, /metrics, /healthz and /readyz there, such as :9808 or 127.0.0.1:9808; nowhere by default
    #[arg(long, value_name = "ADDRESS", value_parser = http_address)]
    pub(super) http_addr: Option<SocketAddr>,
    /// off, error, warn, info, debug or trace; a number of glog means info
    #[arg(
        long,
        short_alias = 'v',
        value_name = "LEVEL",
        default_value = "info",
        allow_negative_numbers = true
    )]
    pub(super) log_level: String,
    /// text or json
    #[arg(long, value_enum, default_value_t = LogFormat::Text)]
    pub(super) log_format: LogFormat,
    /// Log to a file there too; a relative one lies below /var/log
    #[arg(long, value_name = "DIR", alias = "log_dir")]
    pub(super) log_dir: Option<PathBuf>,
}

/// `:9808` means every address of the node, as in Go.
pub(super) fn http_address(text: &str) -> Result<SocketAddr, String> {
    let full = if text.starts_with(':') { format!("[::]{text}") } else { text.to_owned() };
    full.parse().map_err(|_| "write an IP address and a port, such as 127.0.0.1:9808, or :9808".to_owned())
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum Registration {
    /// Direct
    Auto,
    /// Register on the kubelet's socket
    Direct,
    /// Let the kubelet find the pool in its plugins_registry
    Watcher,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum CdiMode {
    /// In the field of the answer (kubelet 1.28 and later)
    Field,
    /// As annotations
    Annotations,
    /// Both; runtimes drop what comes twice
    Both,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum LogFormat {
    /// For people
    Text,
    /// One object a line
    Json,
}

#[derive(Debug, Args)]
pub(super) struct CheckArguments {
    /// The config file
    #[arg(value_name = "CONFIG")]
    pub(super) file: PathBuf,
    /// Prefix of resources that name none of their own
    #[arg(long, value_name = "PREFIX", default_value = "intel.com")]
    pub(super) resource_prefix: String,
    /// Warnings count as errors
    #[arg(long)]
    pub(super) strict: bool,
    /// Also say what the pools would hold on this host: `/`, a directory, or a recorded host
    #[arg(long, value_name = "DIR|RECORDING")]
    pub(super) host_root: Option<PathBuf>,
    #[command(flatten)]
    pub(super) format: FormatArguments,
}

#[derive(Debug, Args)]
pub(super) struct DevicesArguments {
    #[command(flatten)]
    pub(super) host: HostArguments,
    /// Show the pools of this config
    #[arg(long, value_name = "FILE")]
    pub(super) config_file: Option<PathBuf>,
    /// Prefix of resources that name none of their own
    #[arg(long, value_name = "PREFIX", default_value = "intel.com")]
    pub(super) resource_prefix: String,
    #[command(flatten)]
    pub(super) format: FormatArguments,
}

#[derive(Debug, Args)]
pub(super) struct ExplainArguments {
    /// A PCI address, or a resource with or without its prefix
    #[arg(value_name = "ADDR|RESOURCE")]
    pub(super) what: String,
    #[command(flatten)]
    pub(super) host: HostArguments,
    #[command(flatten)]
    pub(super) config: ConfigArguments,
    #[command(flatten)]
    pub(super) format: FormatArguments,
}

#[derive(Debug, Args)]
pub(super) struct StatusArguments {
    /// The kubelet's directory of sockets
    #[arg(long, value_name = "DIR", default_value = crate::daemon::DEVICE_PLUGIN_DIRECTORY)]
    pub(super) device_plugin_dir: PathBuf,
    /// The instance to ask, as `status` names it; otherwise that of this container
    #[arg(long, value_name = "NAME")]
    pub(super) instance: Option<String>,
    /// For a liveness probe: 0 if the plugin answers, else 1
    #[arg(long, conflicts_with_all = ["ready", "output"])]
    pub(super) live: bool,
    /// For a readiness probe: 0 if every pool of the config is served, else 1 and why
    #[arg(long, conflicts_with = "output")]
    pub(super) ready: bool,
    #[command(flatten)]
    pub(super) format: FormatArguments,
}

#[derive(Debug, Args)]
pub(super) struct SnapshotArguments {
    /// The machine: `/`, or a directory that holds its `sys`
    #[arg(long, value_name = "DIR|RECORDING", default_value = "/")]
    pub(super) host_root: PathBuf,
    /// Keep MAC addresses and serial numbers
    #[arg(long)]
    pub(super) identities: bool,
    /// Write to this file instead of standard output
    #[arg(short = 'O', long, value_name = "FILE")]
    pub(super) out: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub(super) struct DemoArguments {
    /// Also show what the plugin logs
    #[arg(short, long)]
    pub(super) verbose: bool,
}

#[derive(Debug, Subcommand)]
pub(super) enum Generate {
    /// A config with every field, commented
    Config,
    /// The JSON schema of the config
    Schema,
    /// The ConfigMap and the DaemonSet for a config, with the mounts and rights that it needs
    Manifests(ManifestsArguments),
    /// Completions for a shell
    Completions {
        /// Which shell
        #[arg(value_enum)]
        shell: clap_complete::Shell,
    },
    /// The man page
    Man,
}

#[derive(Debug, Args)]
pub(super) struct ManifestsArguments {
    #[command(flatten)]
    pub(super) config: ConfigArguments,
    /// The namespace of all objects
    #[arg(long, value_name = "NAME", default_value = "kube-system")]
    pub(super) namespace: String,
    /// The image of the DaemonSet
    #[arg(long, value_name = "REFERENCE", default_value = super::manifests::IMAGE)]
    pub(super) image: String,
    /// Hand devices over through CDI
    #[arg(long)]
    pub(super) use_cdi: bool,
}
