//! `kae-operator run`, and what speaks to a cluster otherwise.

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::Context as _;
use clap::{Args, Subcommand};
use kube::Client;
use tokio::signal::unix::{SignalKind, signal};

use crate::cli::args::{LogFormat, http_address};
use crate::cli::{Failure, Outcome};
use crate::observe::log;
use crate::operator::cluster::Cluster;
use crate::operator::reconcile::{self, Options};
use crate::operator::{self, definition};

/// How it logs.
#[derive(Debug, Args)]
pub(super) struct Logs {
    /// off, error, warn, info, debug or trace
    #[arg(long, value_name = "LEVEL", default_value = "info", global = true)]
    log_level: String,
    /// text or json
    #[arg(long, value_enum, default_value_t = LogFormat::Text, global = true)]
    log_format: LogFormat,
}

impl Logs {
    pub(super) fn init(&self) -> Outcome {
        let Some(level) = log::level(&self.log_level) else {
            let text = format!(
                "kae-operator: --log-level {} is no level; write off, error, warn, info, debug or trace",
                self.log_level
            );
            return Err(Failure::Input(text));
        };
        let format = match self.log_format {
            LogFormat::Text => log::Format::Text,
            LogFormat::Json => log::Format::Json,
        };
        log::init(level, format, None);
        Ok(())
    }
}

/// Where the operator's objects are.
#[derive(Debug, Args)]
pub(super) struct Place {
    /// The operator's own namespace, where the components run
    #[arg(long, value_name = "NAME", env = "POD_NAMESPACE", hide_env_values = true)]
    namespace: String,
}

#[derive(Debug, Args)]
pub(super) struct Run {
    #[command(flatten)]
    place: Place,
    /// The operator's own image: of the step that waits for the driver
    #[arg(long, value_name = "REFERENCE", env = "KAE_OPERATOR_IMAGE", hide_env_values = true)]
    image: String,
    /// A name of its own among its replicas; by default the host's, with the process's number
    #[arg(long, value_name = "NAME", env = "POD_NAME", hide_env_values = true)]
    instance: Option<String>,
    /// Keep the rule by which Node Feature Discovery labels nodes with engines
    #[arg(long)]
    node_feature_rule: bool,
    /// Act only while holding the lease that the replicas share
    #[arg(long)]
    leader_election: bool,
    /// Seconds after which a lease that is not renewed is another replica's
    #[arg(long, value_name = "SECONDS", default_value_t = 15, value_parser = clap::value_parser!(u64).range(2..=3600))]
    lease_duration: u64,
    /// Serve /metrics, /healthz and /readyz there, such as :8080; nowhere by default
    #[arg(long, value_name = "ADDRESS", value_parser = http_address)]
    http_addr: Option<SocketAddr>,
    /// Seconds that a node's engines must be away before its components are withdrawn
    #[arg(long, value_name = "SECONDS", default_value_t = 60, value_parser = clap::value_parser!(u64).range(0..=86400))]
    absence_debounce: u64,
    /// Seconds that the removal of the driver may take
    #[arg(long, value_name = "SECONDS", default_value_t = 300, value_parser = clap::value_parser!(u64).range(1..=86400))]
    cleanup_deadline: u64,
}

#[derive(Debug, Subcommand)]
pub(super) enum Crds {
    /// Make the definition of KAEPolicy this version's
    Apply,
    /// Delete the definition of KAEPolicy, and every KAEPolicy by that
    Delete,
}

#[derive(Debug, Subcommand)]
pub(super) enum Policy {
    /// Delete the policy, and wait until the operator has removed what belongs to it
    Delete {
        #[command(flatten)]
        place: Place,
        /// Seconds to wait
        #[arg(long, value_name = "SECONDS", default_value_t = 600)]
        timeout: u64,
    },
    /// Remove what the operator made and wrote, where it does not run any more
    Release {
        #[command(flatten)]
        place: Place,
    },
}

/// Runs something that speaks to the cluster: in a pod that of the pod, else that of the kubeconfig.
fn with_client<T>(work: impl AsyncFnOnce(Client) -> Result<T, anyhow::Error>) -> Result<T, anyhow::Error> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let client = Client::try_default().await;
        work(client.context("no cluster to speak to: run in a pod, or set KUBECONFIG")?).await
    })
}

pub(super) fn run(arguments: Run) -> Outcome {
    let instance = arguments.instance.unwrap_or_else(|| {
        let host = nix::unistd::gethostname().map(|name| name.to_string_lossy().into_owned());
        format!("{}-{}", host.unwrap_or_default(), std::process::id())
    });
    let options = Options {
        namespace: arguments.place.namespace,
        image: arguments.image,
        instance,
        node_feature_rule: arguments.node_feature_rule,
        lease: arguments.leader_election.then(|| Duration::from_secs(arguments.lease_duration)),
        http: arguments.http_addr,
        absence_debounce: Duration::from_secs(arguments.absence_debounce),
        cleanup_deadline: Duration::from_secs(arguments.cleanup_deadline),
    };
    tracing::info!(
        version = env!("CARGO_PKG_VERSION"),
        namespace = options.namespace,
        image = options.image,
        instance = options.instance,
        "kae-operator"
    );
    with_client(async |client| {
        let mut terminate = signal(SignalKind::terminate())?;
        let mut interrupt = signal(SignalKind::interrupt())?;
        let shutdown = async {
            let name = tokio::select! {
                _ = terminate.recv() => "SIGTERM",
                _ = interrupt.recv() => "SIGINT",
            };
            tracing::info!(signal = name, "stopping");
        };
        operator::run(client, options, shutdown).await?;
        tracing::info!("stopped");
        Ok(())
    })?;
    Ok(())
}

pub(super) fn crds(command: &Crds) -> Outcome {
    with_client(async |client| match command {
        Crds::Apply => Ok(definition::apply(client).await?),
        Crds::Delete => Ok(definition::remove(client).await?),
    })?;
    Ok(())
}

pub(super) fn policy(command: Policy) -> Outcome {
    with_client(async |client| match command {
        Policy::Delete { place, timeout } => {
            let cluster = Cluster { client, namespace: place.namespace };
            Ok(reconcile::delete_policy(&cluster, Duration::from_secs(timeout)).await?)
        }
        Policy::Release { place } => {
            let cluster = Cluster { client, namespace: place.namespace };
            Ok(reconcile::release(&cluster).await?)
        }
    })?;
    Ok(())
}
