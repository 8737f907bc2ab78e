//! What is known of a node before something is decided.

/// A node's state, as its label says.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum State {
    /// Its driver's pod is older than the DaemonSet says.
    UpgradeRequired,
    /// To be made unschedulable.
    CordonRequired,
    /// Jobs are waited for.
    WaitForJobsRequired,
    /// Pods that hold engines are to go.
    PodDeletionRequired,
    /// All other pods are to go, where that is asked for.
    DrainRequired,
    /// The driver's pod is to be replaced.
    PodRestartRequired,
    /// The new pod is waited for.
    ValidationRequired,
    /// To be made schedulable.
    UncordonRequired,
    /// The newest driver is there.
    UpgradeDone,
    /// It could not be had.
    UpgradeFailed,
}

impl State {
    /// All of them, in their order.
    pub const ALL: [Self; 10] = [
        Self::UpgradeRequired,
        Self::CordonRequired,
        Self::WaitForJobsRequired,
        Self::PodDeletionRequired,
        Self::DrainRequired,
        Self::PodRestartRequired,
        Self::ValidationRequired,
        Self::UncordonRequired,
        Self::UpgradeDone,
        Self::UpgradeFailed,
    ];

    /// As the label has it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::UpgradeRequired => "upgrade-required",
            Self::CordonRequired => "cordon-required",
            Self::WaitForJobsRequired => "wait-for-jobs-required",
            Self::PodDeletionRequired => "pod-deletion-required",
            Self::DrainRequired => "drain-required",
            Self::PodRestartRequired => "pod-restart-required",
            Self::ValidationRequired => "validation-required",
            Self::UncordonRequired => "uncordon-required",
            Self::UpgradeDone => "upgrade-done",
            Self::UpgradeFailed => "upgrade-failed",
        }
    }

    /// Reads a label; what it does not know is no state, and the node begins anew.
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|state| state.as_str() == text)
    }

    /// Whether the node is at it.
    pub fn is_in_progress(self) -> bool {
        !matches!(self, Self::UpgradeRequired | Self::UpgradeDone | Self::UpgradeFailed)
    }

    /// Whether the node is at it, and its driver is the former one still.
    pub fn is_before_restart(self) -> bool {
        self.is_in_progress() && self < Self::PodRestartRequired
    }
}

/// Who made a node unschedulable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cordon {
    /// Nobody: it is schedulable.
    No,
    /// The operator.
    Ours,
    /// Somebody else.
    Foreign,
}

/// The driver's pod of a node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DriverPod {
    /// There is none.
    Absent,
    /// There is one.
    Present {
        /// Its name.
        name: String,
        /// It is of the DaemonSet's newest revision.
        is_newest: bool,
        /// It is ready.
        is_ready: bool,
        /// It is on its way out.
        is_leaving: bool,
        /// What its installer said when it failed.
        failure: Option<String>,
    },
}

impl DriverPod {
    /// Whether it is of the newest revision, and stays.
    pub fn is_newest(&self) -> bool {
        matches!(self, Self::Present { is_newest: true, is_leaving: false, .. })
    }

    /// Whether it is that, and ready.
    pub fn is_newest_and_ready(&self) -> bool {
        self.is_newest() && matches!(self, Self::Present { is_ready: true, .. })
    }
}

/// A pod that may have to go.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct PodFacts {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// It, and not another one of that name.
    pub uid: String,
    /// Something makes it again elsewhere.
    pub is_managed: bool,
    /// Data in an emptyDir is lost with it.
    pub has_empty_dir: bool,
    /// It is on its way out.
    pub is_leaving: bool,
}

impl PodFacts {
    /// As people write it.
    pub fn shown(&self) -> String {
        format!("{}/{}", self.namespace, self.name)
    }
}

/// A node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeFacts {
    /// Its name.
    pub name: String,
    /// What its label says.
    pub state: Option<State>,
    /// Since when, in seconds of Unix time.
    pub since: i64,
    /// Why.
    pub reason: String,
    /// The revision of the driver's pod that failed.
    pub failed_revision: Option<String>,
    /// The driver's DaemonSet selects it.
    pub is_selected: bool,
    /// A user has left it out.
    pub is_skipped: bool,
    /// Whether it is schedulable, and who says so.
    pub cordon: Cordon,
    /// Its kubelet says that it is ready.
    pub is_ready: bool,
    /// The driver's pod.
    pub driver: DriverPod,
    /// Its pods; `None` where nobody has looked yet.
    pub pods: Option<Pods>,
}

/// The pods of a node that are in the way of an upgrade.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Pods {
    /// How many belong to the jobs that are waited for.
    pub jobs: usize,
    /// Those that hold engines.
    pub holders: Vec<PodFacts>,
    /// Others that a drain is about.
    pub others: Vec<PodFacts>,
}

impl NodeFacts {
    /// Whether its pods matter for what is next.
    pub fn needs_pods(&self) -> bool {
        self.state.is_some_and(|state| state.is_before_restart() || state == State::PodRestartRequired)
    }

    /// Whether nothing new can run on it, or nothing should, or soon will not.
    pub fn is_unavailable(&self) -> bool {
        self.cordon != Cordon::No || !self.is_ready || self.state.is_some_and(State::is_in_progress)
    }
}
