//! What ships beside the binary: manifests, the chart, the examples.

use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use pcidp::config::Checked;
use pcidp::host::{Wanted, scan};
use pcidp::pool::assign;
use saphyr::{LoadableYamlNode, Scalar, Yaml};
use serde_json::{Map, Value, json};

use super::node::{check, host};

/// Every config of `examples/`, and hosts on which, together, each of its pools has devices.
const EXAMPLES: [(&str, &[&str]); 11] = [
    ("accelerator", &["two-socket"]),
    ("bond", &["reference-cards"]),
    ("ddp", &["two-socket-server"]),
    ("demo", &["demo"]),
    ("dpdk", &["two-socket"]),
    ("kae-hpre", &["kunpeng-920"]),
    ("netdevice", &["two-socket"]),
    ("quickstart", &["two-socket-server", "demo"]),
    ("rdma", &["two-socket"]),
    ("subfunction", &["subfunctions"]),
    ("vdpa", &["soft-0-vdpa-rdma-virtual"]),
];

pub(super) fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

pub(super) fn read(path: impl AsRef<Path>) -> String {
    let path = root().join(path);
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// The files below a directory whose names end so, without a chart's templates.
fn files(directory: &str, extensions: &[&str]) -> Vec<PathBuf> {
    fn walk(directory: &Path, found: &mut Vec<PathBuf>) {
        for entry in fs::read_dir(directory).unwrap() {
            let path = entry.unwrap().path();
            match path.is_dir() {
                true if path.ends_with("templates") => {}
                true => walk(&path, found),
                false => found.push(path),
            }
        }
    }
    let mut found = Vec::new();
    walk(&root().join(directory), &mut found);
    found.retain(|path| path.extension().is_some_and(|e| extensions.iter().any(|wanted| e == *wanted)));
    found.sort();
    found
}

/// The documents of a YAML text.
pub(super) fn yaml(text: &str) -> Vec<Value> {
    let documents = Yaml::load_from_str(text).unwrap_or_else(|error| panic!("{error}\n{text}"));
    documents.iter().map(value).filter(|document| !document.is_null()).collect()
}

fn value(node: &Yaml) -> Value {
    match node {
        Yaml::Value(Scalar::Null) => Value::Null,
        Yaml::Value(Scalar::Boolean(boolean)) => Value::Bool(*boolean),
        Yaml::Value(Scalar::Integer(number)) => json!(number),
        Yaml::Value(Scalar::FloatingPoint(number)) => json!(number.into_inner()),
        Yaml::Value(Scalar::String(text)) => json!(text),
        Yaml::Sequence(entries) => entries.iter().map(value).collect(),
        Yaml::Mapping(entries) => {
            let pair = |(key, entry): (&Yaml, &Yaml)| (key.as_str().unwrap().to_owned(), value(entry));
            let object: Map<String, Value> = entries.iter().map(pair).collect();
            assert_eq!(object.len(), entries.len(), "a key stands twice");
            Value::Object(object)
        }
        other => panic!("{other:?} has no place in a manifest"),
    }
}

pub(super) fn of_kind<'a>(documents: &'a [Value], kind: &str) -> &'a Value {
    documents.iter().find(|document| document["kind"] == kind).unwrap_or_else(|| panic!("no {kind}"))
}

fn pcidp(arguments: &[&str]) -> String {
    let output =
        Command::new(env!("CARGO_BIN_EXE_pcidp")).current_dir(root()).args(arguments).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

fn generated(config: &str) -> String {
    pcidp(&["generate", "manifests", "--config-file", config])
}

fn example(name: &str) -> Checked {
    let checked = check(&read(format!("examples/{name}.json")), "intel.com");
    assert!(checked.problems.is_empty(), "{name}: {:?}", checked.problems);
    checked
}

fn resources(checked: &Checked) -> Vec<String> {
    checked.config.pools.iter().map(|pool| pool.resource.to_string()).collect()
}

#[test]
fn every_manifest_is_yaml() {
    let mut found = files("deployments", &["yaml", "yml"]);
    found.extend(files("examples", &["yaml", "yml"]));
    assert!(found.len() > 20, "{found:?}");
    for path in found {
        let documents = yaml(&read(&path));
        assert!(!documents.is_empty(), "{} holds nothing", path.display());
    }
}

/// `PCIDP_UPDATE=1` writes them again.
#[test]
fn the_shipped_manifests_are_what_the_binary_prints() {
    let printed = generated("examples/quickstart.json");
    let (config_map, daemon_set) = printed.split_at(printed.rfind("---\napiVersion: v1\n").unwrap());
    for (name, expected) in [("configMap", config_map), ("sriovdp-daemonset", daemon_set)] {
        for directory in ["deployments", "deployments/kustomize/base"] {
            let path = format!("{directory}/{name}.yaml");
            if std::env::var_os("PCIDP_UPDATE").is_some() {
                fs::write(root().join(&path), expected).unwrap();
            }
            assert!(read(&path) == expected, "{path} is old; run this test with PCIDP_UPDATE=1");
        }
    }
}

#[test]
fn the_config_map_gives_the_config_back_to_the_letter() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("config.json");
    let pool = r#"{"resourceName": "a", "selectors": {"vendors": ["8086"]}}"#;
    let quickstart = read("examples/quickstart.json");
    for text in [
        quickstart.as_str(),
        &format!("{{\"resourceList\": [{pool}]}}"),
        &format!("  {{\r\n\t\"resourceList\": [{pool}]}}\n\n"),
        &format!("\u{feff}// ünïcode: it's \"fine\" \u{1f600}\n{{\"resourceList\": [{pool}]}}\n"),
    ] {
        fs::write(&path, text).unwrap();
        let documents = yaml(&generated(path.to_str().unwrap()));
        assert_eq!(of_kind(&documents, "ConfigMap")["data"]["config.json"], json!(text));
    }
}

#[test]
fn manifests_are_refused_for_a_config_with_an_error() {
    let output = Command::new(env!("CARGO_BIN_EXE_pcidp"))
        .args(["generate", "manifests", "--config-file"])
        .arg(root().join("testdata/config/bad/names-equal.json"))
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(output.stdout.is_empty());
}

fn mounts(container: &Value) -> Vec<String> {
    let mounts = container["volumeMounts"].as_array().unwrap().iter();
    mounts.map(|mount| mount["mountPath"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn the_daemon_set_has_no_right_that_it_does_not_need() {
    let documents = yaml(&read("deployments/sriovdp-daemonset.yaml"));
    let pod = &of_kind(&documents, "DaemonSet")["spec"]["template"]["spec"];
    let container = &pod["containers"][0];
    assert_eq!(
        container["securityContext"],
        json!({
            "runAsUser": 0,
            "runAsGroup": 0,
            "privileged": false,
            "allowPrivilegeEscalation": false,
            "readOnlyRootFilesystem": true,
            "capabilities": {"drop": ["ALL"]},
        })
    );
    assert_eq!(pod["securityContext"], json!({"seccompProfile": {"type": "RuntimeDefault"}}));
    assert_eq!(pod["automountServiceAccountToken"], false);
    assert_eq!(of_kind(&documents, "ServiceAccount")["automountServiceAccountToken"], false);
    let (kubelet, files) = ("/var/lib/kubelet/device-plugins", "/var/run/k8s.cni.cncf.io/devinfo/dp");
    let holders = "/var/lib/kubelet/pod-resources";
    assert_eq!(mounts(container), [kubelet, files, holders, "/etc/pcidp"]);
    assert_eq!(pod["volumes"].as_array().unwrap().len(), 4);

    let documents =
        pcidp(&["generate", "manifests", "--config-file", "examples/quickstart.json", "--use-cdi"]);
    let documents = yaml(&documents);
    let pod = &of_kind(&documents, "DaemonSet")["spec"]["template"]["spec"];
    let container = &pod["containers"][0];
    assert_eq!(container["args"], json!(["--log-level=info", "--use-cdi"]));
    assert_eq!(mounts(container), [kubelet, files, holders, "/var/run/cdi", "/etc/pcidp"]);
    assert_eq!(pod["volumes"][3]["hostPath"]["path"], "/var/run/cdi");
}

#[test]
fn a_node_of_accelerators_alone_keeps_its_network_to_itself() {
    let network = |config: &str| {
        let documents = yaml(&generated(config));
        of_kind(&documents, "DaemonSet")["spec"]["template"]["spec"]["hostNetwork"].clone()
    };
    assert_eq!(network("examples/kae-hpre.json"), Value::Null);
    assert_eq!(network("examples/dpdk.json"), true);
}

#[test]
fn every_example_is_free_of_problems_and_fills_its_pools() {
    let found: Vec<_> = files("examples", &["json"]);
    let found: Vec<_> = found.iter().map(|path| path.file_stem().unwrap().to_str().unwrap()).collect();
    assert_eq!(found, EXAMPLES.map(|(name, _)| name), "every example has its row in EXAMPLES");
    let table = read("examples/README.md");
    for (name, hosts) in EXAMPLES {
        let row = table.lines().find(|line| line.starts_with(&format!("| `{name}.json` |")));
        let row = row.unwrap_or_else(|| panic!("examples/README.md has no row for {name}.json"));
        let config = example(name).config;
        let mut devices = vec![0; config.pools.len()];
        for recording in hosts {
            assert!(row.contains(&format!("`{recording}`")), "{name}: README does not name {recording}");
            let pools = assign(&config, &scan(&host(recording), &Wanted::of(&config)));
            for (count, pool) in devices.iter_mut().zip(&pools.pools) {
                *count += pool.members.len();
            }
        }
        assert!(devices.iter().all(|count| *count > 0), "{name}: {devices:?} devices on {hosts:?}");
    }
}

/// The pods of a file; each must be one that the API server admits and the config can serve.
fn check_pods(path: &str, resources: &[String]) -> usize {
    let documents = yaml(&read(path));
    let pods: Vec<_> = documents.iter().filter(|document| document["kind"] == "Pod").collect();
    for pod in &pods {
        let spec = &pod["spec"];
        assert_eq!(spec["automountServiceAccountToken"], false, "{path}");
        for container in spec["containers"].as_array().unwrap() {
            let wanted = &container["resources"];
            // An extended resource needs equal limits; the API server refuses a request alone.
            assert_eq!(wanted["requests"], wanted["limits"], "{path}");
            let asked = wanted["limits"].as_object().unwrap().keys().filter(|name| name.contains('/'));
            let asked: Vec<_> = asked.collect();
            assert!(!asked.is_empty(), "{path} asks for no device");
            for resource in asked {
                assert!(resources.contains(resource), "{path} asks for {resource} of {resources:?}");
            }
        }
    }
    for network in documents.iter().filter(|document| document["kind"] == "NetworkAttachmentDefinition") {
        let resource = &network["metadata"]["annotations"]["k8s.v1.cni.cncf.io/resourceName"];
        if let Some(resource) = resource.as_str() {
            assert!(resources.iter().any(|name| name == resource), "{path}: {resource}");
        }
        let config: Value = serde_json::from_str(network["spec"]["config"].as_str().unwrap()).unwrap();
        assert_eq!(config["name"], network["metadata"]["name"], "{path}");
    }
    pods.len()
}

#[test]
fn every_pod_asks_for_what_its_config_serves_and_limits_it() {
    let resources_of = |name: &str| resources(&example(name));
    let mut pods = 0;
    for (name, _) in EXAMPLES {
        let path = format!("examples/{name}.yaml");
        if root().join(&path).exists() {
            pods += check_pods(&path, &resources_of(name));
        }
    }
    let quickstart = resources_of("quickstart");
    for name in ["pod-tc1", "pod-tc2", "pod-tc3", "pod-tc4", "danm/pod", "sriov-crd"] {
        pods += check_pods(&format!("deployments/{name}.yaml"), &quickstart);
    }
    assert_eq!(pods, 14);
    for network in yaml(&read("deployments/danm/networks.yaml")) {
        let pool = network["spec"]["Options"]["device_pool"].as_str().unwrap().to_owned();
        assert!(quickstart.contains(&pool), "{pool}");
    }
}

/// The engine's section, as openFuyao's documentation gives it.
#[test]
fn the_kae_example_configures_the_engine_as_documented_and_mounts_it_where_openssl_looks() {
    let documents = yaml(&read("examples/kae-hpre.yaml"));
    let text = of_kind(&documents, "ConfigMap")["data"]["openssl.cnf"].as_str().unwrap();
    let lines: Vec<String> = text.lines().map(|line| line.replace(" = ", "=")).collect();
    let lines: Vec<&str> = lines.iter().map(String::as_str).filter(|line| !line.is_empty()).collect();
    assert_eq!(
        lines,
        [
            "openssl_conf=openssl_def",
            "[openssl_def]",
            "engines=engine_section",
            "[engine_section]",
            "kae=kae_section",
            "[kae_section]",
            "engine_id=kae",
            "dynamic_path=/usr/local/lib/engines-1.1/kae.so",
            "KAE_CMD_ENABLE_ASYNC=1",
            "KAE_CMD_ENABLE_SM3=1",
            "KAE_CMD_ENABLE_SM4=1",
            "default_algorithms=ALL",
            "init=1",
        ]
    );
    let container = &of_kind(&documents, "Pod")["spec"]["containers"][0];
    let path = container["env"][0]["value"].as_str().unwrap();
    let directory = container["volumeMounts"][0]["mountPath"].as_str().unwrap();
    assert_eq!(
        (&container["env"][0]["name"], path),
        (&json!("OPENSSL_CONF"), &*format!("{directory}/openssl.cnf"))
    );
}

/// Every key of the values has its property in the schema, and every property its value.
pub(super) fn same_keys(values: &Value, schema: &Value, path: &str) {
    let Some(properties) = schema["properties"].as_object() else {
        return;
    };
    let values = values.as_object().unwrap();
    for key in values.keys() {
        assert!(properties.contains_key(key), "values.schema.json lacks {path}{key}");
    }
    for (key, property) in properties.iter().filter(|(key, _)| *key != "global") {
        assert!(values.contains_key(key), "values.yaml lacks {path}{key}");
        assert!(property["description"].is_string(), "{path}{key} has no description");
        if property["type"] == "object" {
            same_keys(&values[key], property, &format!("{path}{key}."));
        }
    }
}

#[test]
fn the_chart_s_schema_and_values_name_the_same_things() {
    let values = yaml(&read("deployments/charts/pcidp/values.yaml")).remove(0);
    let schema: Value = serde_json::from_str(&read("deployments/charts/pcidp/values.schema.json")).unwrap();
    same_keys(&values, &schema, "");
    let quickstart: Value = serde_json::from_str(&read("examples/quickstart.json")).unwrap();
    assert_eq!(values["pools"], quickstart["resourceList"]);
    let chart = yaml(&read("deployments/charts/pcidp/Chart.yaml")).remove(0);
    assert_eq!(chart["version"], env!("CARGO_PKG_VERSION"));
    assert_eq!(chart["appVersion"], env!("CARGO_PKG_VERSION"));
}

/// A tool that not every machine has: `$HELM`, on the path, or where the cluster suite keeps its own.
pub(super) fn tool(name: &str) -> Option<PathBuf> {
    let named = std::env::var_os(name.to_uppercase()).map(PathBuf::from);
    let on_path = std::env::split_paths(&std::env::var_os("PATH").unwrap_or_default())
        .map(|directory| directory.join(name))
        .find(|path| path.is_file());
    let cache = std::env::var_os("PCIDP_CACHE")
        .map_or_else(|| std::env::home_dir().unwrap_or_default().join(".cache/pcidp"), PathBuf::from)
        .join("cluster");
    let cached = || {
        let directories = fs::read_dir(cache).ok()?.flatten();
        directories.map(|entry| entry.path().join("bin").join(name)).find(|path| path.is_file())
    };
    let found = named.or(on_path).or_else(cached);
    if found.is_none() {
        // Not by a macro: libtest would keep it to itself when the test passes.
        let _ = writeln!(std::io::stderr(), "SKIPPED: there is no {name} here");
    }
    found
}

/// A helm that was built from its module takes an old version for granted where no cluster answers.
pub(super) const KUBERNETES: &str = "--kube-version=1.34.0";

/// What `helm template` prints; or why it does not.
pub(super) fn template(helm: &Path, arguments: &[&str]) -> Result<Vec<Value>, String> {
    let output = Command::new(helm)
        .current_dir(root())
        .args(["template", KUBERNETES])
        .args(arguments)
        .output()
        .unwrap();
    match output.status.success() {
        true => Ok(yaml(&String::from_utf8(output.stdout).unwrap())),
        false => Err(String::from_utf8(output.stderr).unwrap()),
    }
}

fn rendered(helm: &Path, arguments: &[&str]) -> Result<Vec<Value>, String> {
    template(
        helm,
        &[&["pcidp", "deployments/charts/pcidp", "--namespace", "kube-system"], arguments].concat(),
    )
}

#[test]
fn the_chart_gives_the_pod_of_the_plain_manifest() {
    let Some(helm) = tool("helm") else { return };
    let lint = Command::new(&helm)
        .current_dir(root())
        .args(["lint", "--strict", KUBERNETES, "deployments/charts/pcidp"])
        .output()
        .unwrap();
    assert!(lint.status.success(), "{}", String::from_utf8_lossy(&lint.stdout));

    let documents = rendered(&helm, &[]).unwrap();
    let mut pod = of_kind(&documents, "DaemonSet")["spec"]["template"]["spec"].clone();
    let plain = yaml(&read("deployments/sriovdp-daemonset.yaml"));
    let mut expected = of_kind(&plain, "DaemonSet")["spec"]["template"]["spec"].clone();
    for spec in [&mut pod, &mut expected] {
        spec["containers"][0]["args"].take();
        spec["volumes"][3]["configMap"]["name"].take();
    }
    assert_eq!(pod, expected);
    assert_eq!(
        of_kind(&documents, "DaemonSet")["metadata"]["name"],
        of_kind(&plain, "DaemonSet")["metadata"]["name"]
    );
    let config = of_kind(&documents, "ConfigMap")["data"]["config.json"].as_str().unwrap();
    let checked = check(config, "intel.com");
    assert!(checked.problems.is_empty(), "{:?}", checked.problems);
    assert_eq!(resources(&checked), resources(&example("quickstart")));
}

#[test]
fn the_chart_takes_every_value_and_refuses_unknown_ones() {
    let Some(helm) = tool("helm") else { return };
    let documents = rendered(
        &helm,
        &[
            "--set=image.repository=registry.example/pcidp",
            "--set=image.digest=sha256:0000000000000000000000000000000000000000000000000000000000000000",
            "--set=imagePullSecrets[0].name=key",
            "--set=selinux.type=container_device_plugin_t",
            "--set=useCdi=true",
            "--set=extraArgs[0]=--strict",
            "--set=updateStrategy.maxSurge=1",
            "--set=existingConfigMap=mine",
            "--set=serviceAccount.create=false",
            "--set=nodeSelector.kae=yes",
            "--set=podLabels.a=b",
        ],
    )
    .unwrap();
    assert_eq!(documents.len(), 1, "only the DaemonSet is left");
    let set = of_kind(&documents, "DaemonSet");
    let pod = &set["spec"]["template"]["spec"];
    let container = &pod["containers"][0];
    assert_eq!(set["spec"]["updateStrategy"]["rollingUpdate"], json!({"maxSurge": 1, "maxUnavailable": 0}));
    assert!(container["image"].as_str().unwrap().starts_with("registry.example/pcidp@sha256:0000"));
    assert_eq!(container["args"].as_array().unwrap().last().unwrap(), "--strict");
    assert_eq!(pod["imagePullSecrets"], json!([{"name": "key"}]));
    assert_eq!(pod["securityContext"]["seLinuxOptions"], json!({"type": "container_device_plugin_t"}));
    assert_eq!(pod["serviceAccountName"], "default");
    assert_eq!(pod["nodeSelector"]["kae"], "yes");
    assert_eq!(mounts(container)[3], "/var/run/cdi");
    assert_eq!(pod["volumes"][3]["hostPath"]["path"], "/var/run/cdi");
    assert_eq!(pod["volumes"][4]["configMap"]["name"], "mine");
    for wrong in
        ["--set=tolerance=1", "--set=image.tga=1", "--set=logLevel=loud", "--set=pools[0].selectors=1"]
    {
        let error = rendered(&helm, &[wrong]).unwrap_err();
        assert!(error.contains("values don't meet the specifications of the schema"), "{wrong}: {error}");
    }
}

#[test]
fn the_chart_can_tell_prometheus_and_grafana_and_declares_no_port() {
    let Some(helm) = tool("helm") else { return };
    let documents = rendered(
        &helm,
        &[
            "--set=metrics.enabled=true",
            "--set=metrics.port=9900",
            "--set=metrics.podMonitor.enabled=true",
            "--set=metrics.podMonitor.labels.release=monitoring",
            "--set=metrics.dashboard.enabled=true",
            "--set=devicePluginDir=/k/device-plugins",
            "--set=readinessProbe=null",
        ],
    )
    .unwrap();
    let container = &of_kind(&documents, "DaemonSet")["spec"]["template"]["spec"]["containers"][0];
    assert!(container["args"].as_array().unwrap().contains(&json!("--http-addr=:9900")));
    // In the host's network a port of the pod is the node's, and two versions could not overlap.
    assert_eq!(container["ports"], Value::Null);
    assert_eq!(container["readinessProbe"], Value::Null);
    assert_eq!(
        container["livenessProbe"]["exec"]["command"],
        json!(["pcidp", "status", "--live", "--device-plugin-dir=/k/device-plugins"])
    );
    let monitor = of_kind(&documents, "PodMonitor");
    assert_eq!(monitor["metadata"]["labels"]["release"], "monitoring");
    let endpoint = &monitor["spec"]["podMetricsEndpoints"][0];
    assert_eq!(endpoint["relabelings"][0]["replacement"], "$1:9900");
    assert_eq!(endpoint["relabelings"][1]["replacement"], "[$1]:9900");

    let dashboard = documents.iter().find(|document| !document["data"]["pcidp.json"].is_null()).unwrap();
    let dashboard: Value = serde_json::from_str(dashboard["data"]["pcidp.json"].as_str().unwrap()).unwrap();
    let readme = read("README.md");
    let mut asked = 0;
    for target in dashboard["panels"].as_array().unwrap().iter().flat_map(|panel| {
        panel["targets"].as_array().unwrap().iter().map(|target| target["expr"].as_str().unwrap())
    }) {
        let name: String = target[target.find("pcidp_").unwrap()..]
            .chars()
            .take_while(|c| c.is_ascii_lowercase() || *c == '_')
            .collect();
        let name = name.trim_end_matches("_bucket").trim_end_matches("_count");
        assert!(readme.contains(&format!("| `{name}` |")), "{name} is no metric of the README");
        asked += 1;
    }
    assert!(asked > 8, "{asked}");
    let error = rendered(&helm, &["--set=metrics.podMonitor.enabled=true"]).unwrap_err();
    assert!(error.contains("wants metrics.enabled"), "{error}");
}

#[test]
fn the_overlays_build_and_only_one_of_them_is_privileged() {
    let Some(kubectl) = tool("kubectl") else { return };
    for (overlay, privileged, namespace) in [
        ("cdi", false, "kube-system"),
        ("drop-in-privileged", true, "kube-system"),
        ("least-privilege", false, "pcidp-system"),
        ("watcher", false, "kube-system"),
    ] {
        let output = Command::new(&kubectl)
            .current_dir(root())
            .args(["kustomize", &format!("deployments/kustomize/overlays/{overlay}")])
            .output()
            .unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let documents = yaml(&String::from_utf8(output.stdout).unwrap());
        let set = of_kind(&documents, "DaemonSet");
        let container = &set["spec"]["template"]["spec"]["containers"][0];
        assert_eq!(container["securityContext"]["privileged"], privileged, "{overlay}");
        assert_eq!(set["metadata"]["namespace"], namespace);
        assert_eq!(mounts(container).contains(&"/var/run/cdi".to_owned()), overlay == "cdi");
        assert_eq!(of_kind(&documents, "ConfigMap")["metadata"]["namespace"], namespace);
    }
}
