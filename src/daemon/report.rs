//! What the daemon tells of itself, and where.

use std::path::Path;
use std::time::Duration;

use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;
use tokio::time::Instant;

use super::registrar::Verdicts;
use super::source::{ConfigWatch, Loaded};
use super::{Manner, Options, PoolState, State};
use crate::config::RefusedPool;
use crate::host::Watch;
use crate::kubelet::{Instance, OwnSocket, SocketIdentity, SocketWatch};
use crate::model::{Device, Function, Health, Inventory, Note, ResourceName, stable_hash};
use crate::observe::{
    self, Asker, ConfigReport, DeviceReport, Metrics, NoteReport, PoolReport, Question, RefusedReport,
    Reload, Report, ScanReport, Site, instances,
};
use crate::pool::Member;

/// What is told of beside the [`State`]: how things went.
#[derive(Debug)]
pub(super) struct Record {
    pub(super) verdicts: Verdicts,
    /// What could not be listened to.
    pub(super) deaf: Vec<String>,
    started: Instant,
    kubelet: Option<SocketIdentity>,
    hash: Option<String>,
    problems: Vec<String>,
    read: Instant,
    unusable: Option<String>,
    scanned: Option<(Instant, Duration)>,
}

impl Record {
    pub(super) fn new(options: &Options) -> Self {
        let now = Instant::now();
        Self {
            verdicts: Verdicts::default(),
            deaf: Vec::new(),
            started: now,
            kubelet: None,
            hash: options.source.as_ref().map(|_| hash(&options.text)),
            problems: options.problems.clone(),
            read: now,
            unusable: None,
            scanned: None,
        }
    }

    /// The kubelet's socket is this one now.
    pub(super) fn kubelet(&mut self, identity: Option<SocketIdentity>) {
        if let Some(identity) = identity
            && let Some(before) = self.kubelet.replace(identity)
            && before != identity
        {
            self.verdicts.metrics.kubelet_restarted();
        }
    }

    /// A pool is gone.
    pub(super) fn forget(&self, resource: &ResourceName) {
        self.verdicts.forget(resource);
    }

    /// A look has ended.
    pub(super) fn scanned(&mut self, took: Duration) {
        self.verdicts.metrics.scan(took);
        self.scanned = Some((Instant::now(), took));
    }

    /// Another config is served.
    pub(super) fn applied(&mut self, loaded: &Loaded) {
        let refused = &loaded.checked.config.refused;
        self.verdicts.metrics.reload(if refused.is_empty() { Reload::Applied } else { Reload::Partly });
        (self.hash, self.problems) = (Some(hash(&loaded.text)), loaded.problem_lines());
        (self.read, self.unusable) = (Instant::now(), None);
    }

    /// The config was read again, and is the one that is served; or it cannot be used. Told once.
    pub(super) fn read_again(&mut self, read: Result<(), String>, asked: bool) {
        match read {
            Ok(()) => {
                if asked {
                    tracing::info!("the config was read again; it is the same");
                }
                if self.unusable.take().is_some() {
                    tracing::info!("the config is the one that is served again");
                } else if !asked {
                    return;
                }
                self.verdicts.metrics.reload(Reload::Unchanged);
            }
            Err(error) => {
                if !asked && self.unusable.as_ref() == Some(&error) {
                    return;
                }
                tracing::error!(error, "the config cannot be used, so the last one is served on");
                self.verdicts.metrics.reload(Reload::Refused);
                self.unusable = Some(error);
            }
        }
    }
}

fn hash(text: &str) -> String {
    format!("{:016x}", stable_hash(text))
}

/// What is looked at now and then, because the kernel cannot tell of it.
pub(super) fn deaf(machine: &Watch, sockets: &SocketWatch, config: Option<&ConfigWatch>) -> Vec<String> {
    let inotify = |what: &str| format!("{what}: inotify of the node may be exhausted");
    let sockets = sockets.is_polling().then(|| inotify("the kubelet's directory"));
    let config = config.is_some_and(ConfigWatch::is_polling).then(|| inotify("the config's directory"));
    machine.deaf.iter().cloned().chain(sockets).chain(config).collect()
}

/// Where the plugin tells of itself.
#[derive(Debug)]
pub(super) struct Status {
    questions: mpsc::Receiver<Question>,
    site: Site,
    instance: Instance,
    socket: Option<(OwnSocket, Serving)>,
    /// Why there is no socket.
    failed: Option<String>,
    address: Option<(watch::Receiver<String>, Serving)>,
}

/// Ends with its owner.
#[derive(Debug)]
struct Serving(JoinHandle<()>);

impl Drop for Serving {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl Status {
    pub(super) fn new(options: &Options, instance: &Instance, metrics: &Metrics) -> Self {
        let (asker, questions) =
            Asker::new(options.podresources.clone(), options.device_plugin_directory.clone());
        let site = Site { asker, metrics: metrics.clone() };
        let address = options.http.map(|wanted| {
            let (state, heard) = watch::channel(String::new());
            (heard, Serving(tokio::spawn(observe::serve_address(wanted, site.clone(), state))))
        });
        let mut status =
            Self { questions, site, instance: instance.clone(), socket: None, failed: None, address };
        status.keep_socket(&options.device_plugin_directory);
        status
    }

    /// The next question. Safe to cancel.
    pub(super) async fn asked(&mut self) -> Option<Question> {
        self.questions.recv().await
    }

    /// Makes the socket where it is not there. The probes of the container need it.
    pub(super) fn keep_socket(&mut self, directory: &Path) {
        if self.socket.as_ref().is_some_and(|(socket, _)| socket.is_in_place()) {
            return;
        }
        self.socket = None;
        let made = instances::prepare(directory, &self.instance)
            .map_err(|error| error.to_string())
            .and_then(|path| OwnSocket::bind(&path).map_err(|error| error.to_string()));
        match made {
            Ok((socket, listener)) => {
                tracing::debug!(path = %socket.path().display(), "tells its status");
                let serving = tokio::spawn(observe::serve_socket(listener, self.site.clone()));
                (self.socket, self.failed) = (Some((socket, Serving(serving))), None);
            }
            Err(error) if self.failed.as_ref() == Some(&error) => {}
            Err(error) => {
                tracing::warn!(error, "no socket for `pcidp status` and the probes");
                self.failed = Some(error);
            }
        }
    }

    /// Answers with the state as it is now.
    pub(super) fn answer(&self, question: Question, state: &State, record: &Record, options: &Options) {
        // Whoever asked may have gone.
        match question {
            Question::Alive(answer) => {
                let _ = answer.send(());
            }
            Question::Report(answer) => {
                let _ = answer.send(self.report(state, record, options));
            }
        }
    }

    fn report(&self, state: &State, record: &Record, options: &Options) -> Report {
        Report {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            instance: self.instance.to_string(),
            uptime_seconds: record.started.elapsed().as_secs(),
            registration: match options.manner {
                Manner::Direct => "direct",
                Manner::Watcher(_) => "watcher",
            }
            .to_owned(),
            config: ConfigReport {
                source: options.source.as_ref().map(ToString::to_string),
                hash: record.hash.clone(),
                age_seconds: record.read.elapsed().as_secs(),
                refused: state.config().refused.iter().map(|refused| of_refused(refused, state)).collect(),
                problems: record.problems.clone(),
                error: record.unusable.clone(),
            },
            pools: state.pools().map(|pool| of_pool(&pool, &record.verdicts)).collect(),
            devices: devices(state),
            scan: record.scanned.map(|(at, took)| ScanReport {
                age_seconds: at.elapsed().as_secs(),
                milliseconds: took.as_secs_f64() * 1000.0,
            }),
            notes: state.inventory().map(Inventory::notes).unwrap_or_default().iter().map(of_note).collect(),
            deaf: record.deaf.iter().chain(&self.failed).cloned().collect(),
            http: self.address.as_ref().map(|(state, _)| state.borrow().clone()),
            holders_unknown: None,
        }
    }
}

fn of_note(note: &Note) -> NoteReport {
    NoteReport { path: note.path.clone(), cause: note.cause.clone() }
}

fn of_refused(refused: &RefusedPool, state: &State) -> RefusedReport {
    let resource = refused.resource.clone().unwrap_or_else(|| format!("resourceList[{}]", refused.position));
    let served_on = state.config().pools.iter().any(|pool| pool.resource.to_string() == resource);
    RefusedReport { resource, reason: refused.reason.clone(), served_on }
}

fn of_pool(state: &PoolState<'_>, verdicts: &Verdicts) -> PoolReport {
    let (pool, config) = (state.pool, &state.pool.config);
    PoolReport {
        resource: config.resource.to_string(),
        device_type: config.device_type.as_str().to_owned(),
        selectors: config.selectors.len(),
        replicas: config.replicas,
        allocation_policy: config.allocation_policy.iter().map(|policy| policy.to_string()).collect(),
        pre_start_check: config.pre_start_check,
        link: state.link.to_owned(),
        refusal: verdicts.refusal(&config.resource),
        streams: state.streams,
        is_streaming: state.is_streaming,
        is_unheard: state.is_unheard,
        waits_for: pool.waits_for,
        devices: pool.members.len(),
        healthy: pool.members.iter().filter(|member| member.health.is_healthy()).count(),
        held: 0,
    }
}

fn devices(state: &State) -> Vec<DeviceReport> {
    let mut devices: Vec<DeviceReport> = Vec::new();
    for pool in state.pools() {
        let resource = pool.pool.config.resource.to_string();
        let with_pool = |member: &Member| DeviceReport {
            resource: Some(resource.clone()),
            healthy: member.health.is_healthy(),
            reason: match &member.health {
                Health::Healthy => None,
                Health::Unhealthy(reason) => Some(reason.clone()),
            },
            ..of_device(&member.device)
        };
        devices.extend(pool.pool.members.iter().map(with_pool));
    }
    let others = state.inventory().map(Inventory::devices).unwrap_or_default();
    let offered: std::collections::BTreeSet<String> =
        devices.iter().map(|device| device.id.clone()).collect();
    let is_other = |device: &&std::sync::Arc<Device>| !offered.contains(device.id.as_str());
    devices.extend(others.iter().filter(is_other).map(|device| of_device(device)));
    devices.sort_by(|a, b| a.id.cmp(&b.id));
    devices
}

fn of_device(device: &Device) -> DeviceReport {
    let (function_type, vfs) = match device.function {
        Function::Physical { vfs } => ("pf", Some(vfs)),
        Function::Virtual { .. } | Function::Orphan => ("vf", None),
        Function::Sub { .. } => ("sf", None),
    };
    DeviceReport {
        id: device.id.to_string(),
        function_type: function_type.to_owned(),
        index: device.index(),
        vfs,
        pf_address: device.pf().map(|pf| pf.address.to_string()),
        pf_names: device.pf().map(|pf| pf.names.clone()).unwrap_or_default(),
        driver: device.driver.clone(),
        netdevs: device.netdev_names().map(str::to_owned).collect(),
        numa_node: device.numa_node,
        resource: None,
        healthy: true,
        reason: None,
        default_route: device.default_route.as_ref().map(ToString::to_string),
        holders: Vec::new(),
    }
}
