//! The API server with what an installation brings: the definitions, the namespace, the rights.

use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use libtest_mimic::Failed;
use pcidp::operator::rbac;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::runtime::Runtime;

use crate::api_server::{ADMIN, ApiServer, HOOKS, OPERATOR};
use crate::process::Process;

/// The operator's namespace.
pub(crate) const NAMESPACE: &str = "kae";
/// How long something may take that ought to be done at once.
pub(crate) const LIMIT: Duration = Duration::from_secs(20);

pub(crate) struct World {
    pub(crate) runtime: Runtime,
    pub(crate) client: Client,
    pub(crate) server: ApiServer,
    folder: Mutex<Option<TempDir>>,
    path: PathBuf,
    operators: AtomicU32,
}

impl World {
    pub(crate) fn new(programs: &Path) -> Self {
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
        let folder =
            tempfile::Builder::new().prefix("operator").tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        let started = Instant::now();
        let mut server = ApiServer::start(programs, folder.path());
        let kubeconfig = server.kubeconfig(ADMIN, server.port);
        let client = runtime.block_on(async {
            let config = Kubeconfig::read_from(&kubeconfig).unwrap();
            let config = Config::from_custom_kubeconfig(config, &KubeConfigOptions::default()).await.unwrap();
            let client = Client::try_from(config).unwrap();
            loop {
                let request = http::Request::get("/readyz").body(Vec::new()).unwrap();
                if client.request_text(request).await.is_ok() {
                    break;
                }
                if let Some(log) = server.obituary() {
                    panic!("the API server did not start:\n{log}");
                }
                assert!(started.elapsed() < Duration::from_secs(60), "the API server does not answer");
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
            client
        });
        eprintln!("the API server is up, {:.1} s", started.elapsed().as_secs_f32());
        let path = folder.path().to_owned();
        let world = Self {
            runtime,
            client,
            server,
            folder: Mutex::new(Some(folder)),
            path,
            operators: AtomicU32::new(0),
        };
        world.install(programs);
        eprintln!("the operator is installed, {:.1} s", started.elapsed().as_secs_f32());
        world
    }

    fn install(&self, programs: &Path) {
        let role = |kind: &str, name: &str, rules: Value| {
            json!({
                "apiVersion": "rbac.authorization.k8s.io/v1", "kind": kind,
                "metadata": {"name": name, "namespace": namespace_of(kind)}, "rules": rules,
            })
        };
        let objects = json!({"apiVersion": "v1", "kind": "List", "items": [
            {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}},
            role("ClusterRole", OPERATOR, json!(rbac::cluster_rules())),
            role("Role", OPERATOR, json!(rbac::namespace_rules())),
            role("ClusterRole", HOOKS, json!(rbac::hook_rules())),
            binding("ClusterRoleBinding", "ClusterRole", OPERATOR),
            binding("RoleBinding", "Role", OPERATOR),
            binding("ClusterRoleBinding", "ClusterRole", HOOKS),
        ]});
        let file = self.path.join("installation.json");
        fs::write(&file, objects.to_string()).unwrap();
        let output = Command::new(programs.join("kubectl"))
            .env("KUBECONFIG", self.server.kubeconfig(ADMIN, self.server.port))
            .args(["apply", "--server-side", "-f"])
            .arg(&file)
            .arg("-f")
            .arg(programs.join("nfd-crds/nfd-api-crds.yaml"))
            .output()
            .unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        self.hook(&["crds", "apply"]);
        // A second time changes nothing.
        self.hook(&["crds", "apply"]);
    }

    /// Runs the program as a hook of an installation does.
    pub(crate) fn hook(&self, arguments: &[&str]) {
        let output = self.operator_command(HOOKS, self.server.port).args(arguments).output().unwrap();
        assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    }

    /// The operator's program as a user.
    pub(crate) fn operator_command(&self, user: &str, port: u16) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_kae-operator"));
        command.env("KUBECONFIG", self.server.kubeconfig(user, port)).env("POD_NAMESPACE", NAMESPACE);
        command
    }

    /// The operator, with arguments besides.
    pub(crate) fn operator(&self, arguments: &[&str]) -> Process {
        self.operator_at(self.server.port, arguments)
    }

    pub(crate) fn operator_at(&self, port: u16, arguments: &[&str]) -> Process {
        let number = self.operators.fetch_add(1, Ordering::Relaxed);
        let mut command = self.operator_command(OPERATOR, port);
        command.args(["run", "--image", "r.example/kae-operator:v1", "--node-feature-rule"]).args(arguments);
        Process::start(&mut command, &self.path.join(format!("operator-{number}.log")))
    }

    /// Runs a scenario. Its failure brings the logs of its operators.
    pub(crate) fn try_it(&self, scenario: fn(&Self)) -> Result<(), Failed> {
        let first = self.operators.load(Ordering::Relaxed);
        let started = Instant::now();
        let outcome = catch_unwind(AssertUnwindSafe(|| scenario(self)));
        eprint!("{:.1} s, ", started.elapsed().as_secs_f32());
        let failure = outcome.err().map(|panic| {
            let said = panic.downcast_ref::<String>().cloned();
            let said = said.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()));
            let logs = (first..self.operators.load(Ordering::Relaxed)).map(|number| {
                let log =
                    fs::read_to_string(self.path.join(format!("operator-{number}.log"))).unwrap_or_default();
                let lines: Vec<&str> = log.lines().collect();
                format!("operator {number}:\n{}\n", lines[lines.len().saturating_sub(40)..].join("\n"))
            });
            format!("{}\n{}", said.unwrap_or_default(), logs.collect::<String>())
        });
        self.clean();
        failure.map_or(Ok(()), |text| Err(Failed::from(text)))
    }

    /// Ends the API server, and removes what it wrote.
    pub(crate) fn end(&self) {
        drop(self.folder.lock().unwrap().take());
    }
}

fn namespace_of(kind: &str) -> Value {
    if kind.starts_with("Cluster") { Value::Null } else { json!(NAMESPACE) }
}

fn binding(kind: &str, role: &str, user: &str) -> Value {
    json!({
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": kind,
        "metadata": {"name": user, "namespace": namespace_of(kind)},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": role, "name": user},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": user}],
    })
}
