//! etcd and kube-apiserver in a folder of their own.

use std::fs;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::json;

use crate::process::Process;

/// Who may do everything.
pub(crate) const ADMIN: &str = "admin";
/// Who may do what the operator may.
pub(crate) const OPERATOR: &str = "kae-operator";

/// Who may do what an installation's hooks may.
pub(crate) const HOOKS: &str = "kae-hooks";

/// The folder with the programs of the cluster suite; or why there is none.
pub(crate) fn programs() -> Result<PathBuf, String> {
    // As in tests/cluster/build.sh: the modules decide which build is the right one.
    let tools = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cluster/tools");
    let script = "cat go.mod go.sum multus/go.mod multus/go.sum ../build.sh | sha256sum | cut -c1-16";
    let output = Command::new("sh").args(["-c", script]).current_dir(&tools).output();
    let key = output.map_err(|error| error.to_string())?.stdout;
    let key = String::from_utf8_lossy(&key).trim().to_owned();
    let home = std::env::var("HOME").unwrap_or_default();
    let cache = std::env::var("XDG_CACHE_HOME").unwrap_or_else(|_| format!("{home}/.cache"));
    let programs = PathBuf::from(format!("{cache}/pcidp/cluster/{key}/bin"));
    if !programs.join("kube-apiserver").exists() {
        return Err(
            "kube-apiserver is not built; run tests/cluster/build.sh once (it needs Go, and ten minutes)"
                .to_owned(),
        );
    }
    let openssl = Command::new("openssl").arg("version").stdout(Stdio::null()).stderr(Stdio::null()).status();
    if !openssl.is_ok_and(|status| status.success()) {
        return Err("openssl is missing; it makes the API server's key".to_owned());
    }
    Ok(programs)
}

pub(crate) struct ApiServer {
    pub(crate) port: u16,
    folder: PathBuf,
    server: Process,
    etcd: Process,
}

fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

impl ApiServer {
    pub(crate) fn start(programs: &Path, folder: &Path) -> Self {
        let path = |name: &str| folder.join(name).display().to_string();
        let (client, peer, port) = (free_port(), free_port(), free_port());
        let etcd = Process::start(
            Command::new(programs.join("etcd")).args([
                format!("--data-dir={}", path("etcd")),
                "--unsafe-no-fsync".to_owned(),
                format!("--listen-peer-urls=http://127.0.0.1:{peer}"),
                format!("--listen-client-urls=http://127.0.0.1:{client}"),
                format!("--advertise-client-urls=http://127.0.0.1:{client}"),
            ]),
            &folder.join("etcd.log"),
        );
        let made =
            Command::new("openssl").args(["genrsa", "-out", &path("sa.key"), "2048"]).output().unwrap();
        assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
        fs::write(
            folder.join("tokens.csv"),
            format!("{ADMIN},{ADMIN},{ADMIN},system:masters\n{OPERATOR},{OPERATOR},{OPERATOR}\n{HOOKS},{HOOKS},{HOOKS}\n"),
        )
        .unwrap();
        let audit = json!({
            "apiVersion": "audit.k8s.io/v1",
            "kind": "Policy",
            "omitStages": ["RequestReceived"],
            "rules": [{"level": "Metadata", "users": [OPERATOR, HOOKS]}, {"level": "None"}],
        });
        fs::write(folder.join("audit.json"), audit.to_string()).unwrap();
        let server = Process::start(
            Command::new(programs.join("kube-apiserver")).args([
                format!("--etcd-servers=http://127.0.0.1:{client}"),
                format!("--secure-port={port}"),
                "--bind-address=127.0.0.1".to_owned(),
                "--advertise-address=192.0.2.1".to_owned(),
                format!("--cert-dir={}", path("certs")),
                format!("--token-auth-file={}", path("tokens.csv")),
                "--authorization-mode=RBAC".to_owned(),
                "--service-cluster-ip-range=10.96.0.0/24".to_owned(),
                "--service-account-issuer=https://kubernetes.default.svc".to_owned(),
                format!("--service-account-signing-key-file={}", path("sa.key")),
                format!("--service-account-key-file={}", path("sa.key")),
                "--allow-privileged=true".to_owned(),
                format!("--audit-policy-file={}", path("audit.json")),
                format!("--audit-log-path={}", path("audit.log")),
                // Nobody makes the service accounts that it would ask for.
                "--disable-admission-plugins=ServiceAccount".to_owned(),
                "--profiling=false".to_owned(),
            ]),
            &folder.join("apiserver.log"),
        );
        Self { port, folder: folder.to_owned(), server, etcd }
    }

    /// The API server's log, once it has ended too early.
    pub(crate) fn obituary(&mut self) -> Option<String> {
        if self.server.has_ended().is_some() {
            return Some(self.server.log());
        }
        self.etcd.has_ended().map(|_| self.etcd.log())
    }

    /// A kubeconfig, for programs.
    pub(crate) fn kubeconfig(&self, user: &str, port: u16) -> PathBuf {
        let path = self.folder.join(format!("{user}-{port}.kubeconfig"));
        let config = json!({
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "c", "cluster": {
                "server": format!("https://127.0.0.1:{port}"),
                "insecure-skip-tls-verify": true,
            }}],
            "users": [{"name": user, "user": {"token": user}}],
            "contexts": [{"name": "c", "context": {"cluster": "c", "user": user}}],
            "current-context": "c",
        });
        fs::write(&path, config.to_string()).unwrap();
        path
    }

    /// Requests of the operator, one JSON object a line.
    pub(crate) fn audit(&self) -> String {
        fs::read_to_string(self.folder.join("audit.log")).unwrap()
    }
}
