//! The chart of kae-operator, and what comes from it.

use std::collections::BTreeSet;
use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use pcidp::operator::crd::{InstallPolicy, KaePolicySpec};
use pcidp::operator::rbac;
use serde_json::{Value, json};
use tempfile::TempDir;

use super::deployments::{KUBERNETES, of_kind, read, root, same_keys, template, tool, yaml};

const CHART: &str = "deployments/charts/kae-operator";
const RULES: &str = "deployments/charts/kae-operator/files/rbac.yaml";
const MANIFESTS: &str = "deployments/kae-operator.yaml";

/// The values that openFuyao's documentation has: name, default, and another value whose effect is looked for. Defaults are
/// the documented ones, but for the places of images.
const TABLE: [(&str, &str, &str); 26] = [
    ("nfd.enabled", "true", "false"),
    ("nfd.nodefeaturerules", "false", "true"),
    (
        "node-feature-discovery.image.repository",
        r#""registry.k8s.io/nfd/node-feature-discovery""#,
        r#""r.example/nfd""#,
    ),
    ("node-feature-discovery.image.pullPolicy", r#""IfNotPresent""#, r#""Always""#),
    ("node-feature-discovery.image.tag", r#""v0.16.4""#, r#""v0.18.3""#),
    ("operator.enabledHPRE", "true", "false"),
    ("operator.enabledSEC", "false", "true"),
    ("operator.enabledZIP", "false", "true"),
    ("operator.upgradeCRD", "false", "true"),
    ("operator.cleanupCRD", "false", "true"),
    ("operator.image", r#""localhost/openfuyao/kae-operator""#, r#""r.example/operator""#),
    ("operator.version", r#""latest""#, r#""v9""#),
    ("operator.pullPolicy", r#""IfNotPresent""#, r#""Always""#),
    ("daemonSets.labels", "{}", r#"{"team":"a"}"#),
    ("daemonSets.tolerations", "[]", r#"[{"key":"kae","operator":"Exists"}]"#),
    ("driver.enabled", "true", "false"),
    ("driver.enabledCleanup", "false", "true"),
    ("driver.repository", r#""localhost/openfuyao""#, r#""r.example/a""#),
    ("driver.image", r#""kae-driver-installer""#, r#""mine""#),
    ("driver.version", r#""latest""#, r#""v9""#),
    (
        "driver.env",
        r#"[{"name":"INSTALL_POLICY","value":"IfNotPresent"}]"#,
        r#"[{"name":"INSTALL_POLICY","value":"Always"}]"#,
    ),
    ("devicePlugin.enabled", "true", "false"),
    ("devicePlugin.repository", r#""localhost/openfuyao""#, r#""r.example/a""#),
    ("devicePlugin.image", r#""kae-device-plugin""#, r#""mine""#),
    ("devicePlugin.version", r#""latest""#, r#""v9""#),
    ("psa.enabled", "false", "true"),
];

/// A copy of the chart that has what it depends on: the chart in NFD's module, or an empty one in its place.
struct Chart {
    directory: TempDir,
    has_nfd: bool,
}

impl Chart {
    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        copy(&root().join(CHART), directory.path());
        let part = directory.path().join("charts/node-feature-discovery");
        let module = module_of_nfd();
        match &module {
            Some(module) => copy(&module.join("deployment/helm/node-feature-discovery"), &part),
            None => fs::create_dir_all(&part).unwrap(),
        }
        // In the module it has no version yet.
        let text = "apiVersion: v2\nname: node-feature-discovery\nversion: 0.16.4\nappVersion: v0.16.4\n";
        fs::write(part.join("Chart.yaml"), text).unwrap();
        Self { directory, has_nfd: module.is_some() }
    }

    fn path(&self) -> &str {
        self.directory.path().to_str().unwrap()
    }

    fn template(&self, helm: &Path, release: &[&str], arguments: &[&str]) -> Result<Vec<Value>, String> {
        template(helm, &[release, &[self.path()], arguments].concat())
    }

    /// Without NFD, which has objects of its own.
    fn own(&self, helm: &Path, arguments: &[&str]) -> Vec<Value> {
        let arguments = [&["--set=nfd.enabled=false"], arguments].concat();
        self.template(helm, &["kae-operator", "--namespace=kae"], &arguments).unwrap()
    }
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let path = entry.unwrap().path();
        let target = to.join(path.file_name().unwrap());
        match path.is_dir() {
            true => copy(&path, &target),
            // Files of modules are read-only.
            false => fs::write(target, fs::read(&path).unwrap()).unwrap(),
        }
    }
}

fn module_of_nfd() -> Option<PathBuf> {
    let output = Command::new("go")
        .current_dir(root().join("tests/cluster/tools"))
        .args(["list", "-m", "-f", "{{.Dir}}", "sigs.k8s.io/node-feature-discovery"])
        .env("GOFLAGS", "-mod=mod")
        .env("GOPROXY", "off")
        .output();
    let path = output.ok().filter(|output| output.status.success()).map(|output| output.stdout);
    let path = path.map(|path| PathBuf::from(String::from_utf8(path).unwrap().trim()));
    let found = path.filter(|path| path.join("deployment/helm").is_dir());
    if found.is_none() {
        let _ = writeln!(
            std::io::stderr(),
            "SKIPPED: the module of Node Feature Discovery is not here, so its chart is not tried"
        );
    }
    found
}

fn values() -> Value {
    yaml(&read(format!("{CHART}/values.yaml"))).remove(0)
}

fn at<'a>(values: &'a Value, name: &str) -> &'a Value {
    name.split('.').fold(values, |value, key| &value[key])
}

fn operator(documents: &[Value]) -> &Value {
    documents
        .iter()
        .find(|document| {
            document["kind"] == "Deployment"
                && document["spec"]["template"]["spec"]["containers"][0]["name"] == "kae-operator"
        })
        .unwrap()
}

fn jobs(documents: &[Value]) -> Vec<&Value> {
    documents.iter().filter(|document| document["kind"] == "Job").collect()
}

fn has_hook(documents: &[Value], event: &str) -> bool {
    jobs(documents).iter().any(|job| {
        job["metadata"]["annotations"]["helm.sh/hook"] == event
            && job["metadata"]["name"].as_str().unwrap().starts_with("kae-operator-")
    })
}

/// What the rendered objects say of a value.
fn effect(name: &str, documents: &[Value]) -> Value {
    let container = &operator(documents)["spec"]["template"]["spec"]["containers"][0];
    let (image, tag) = container["image"].as_str().unwrap().rsplit_once(':').unwrap();
    let nfd = || {
        let set = of_kind(documents, "DaemonSet");
        let container = &set["spec"]["template"]["spec"]["containers"][0];
        let (image, tag) = container["image"].as_str().unwrap().rsplit_once(':').unwrap();
        (json!(image), json!(tag), container["imagePullPolicy"].clone())
    };
    match name {
        "nfd.enabled" => json!(documents.iter().any(|document| document["kind"] == "DaemonSet")),
        "nfd.nodefeaturerules" => {
            json!(container["args"].as_array().unwrap().contains(&json!("--node-feature-rule")))
        }
        "node-feature-discovery.image.repository" => nfd().0,
        "node-feature-discovery.image.tag" => nfd().1,
        "node-feature-discovery.image.pullPolicy" => nfd().2,
        "operator.upgradeCRD" => json!(has_hook(documents, "pre-upgrade")),
        "operator.cleanupCRD" => json!(has_hook(documents, "post-delete")),
        "operator.image" => json!(image),
        "operator.version" => json!(tag),
        "operator.pullPolicy" => container["imagePullPolicy"].clone(),
        other => at(&of_kind(documents, "KAEPolicy")["spec"], other).clone(),
    }
}

#[test]
fn every_documented_value_has_its_default_and_its_effect() {
    let values = values();
    let documentation = read("docs/kae-operator.md");
    for (name, default, _) in TABLE {
        let default: Value = serde_json::from_str(default).unwrap();
        assert_eq!(*at(&values, name), default, "{name}");
        let shown = match &default {
            Value::String(text) => text.clone(),
            Value::Array(list) if !list.is_empty() => "INSTALL_POLICY=IfNotPresent".to_owned(),
            other => other.to_string(),
        };
        let row = format!("| `{name}` | `{shown}` |");
        assert!(documentation.contains(&row), "docs/kae-operator.md has no row {row}");
    }
    let Some(helm) = tool("helm") else { return };
    let chart = Chart::new();
    let release = ["kae-operator", "--namespace=kae"];
    for (name, default, other) in TABLE {
        let is_of_nfd = name == "nfd.enabled" || name.starts_with("node-feature-discovery");
        if is_of_nfd && !chart.has_nfd {
            continue;
        }
        let with_nfd = format!("--set-json=nfd.enabled={is_of_nfd}");
        let changed = format!("--set-json={name}={other}");
        let before = chart.template(&helm, &release, &[&with_nfd]).unwrap();
        let after = chart.template(&helm, &release, &[&with_nfd, &changed]).unwrap();
        let expected = |text: &str| serde_json::from_str::<Value>(text).unwrap();
        assert_eq!(effect(name, &before), expected(default), "{name}");
        assert_eq!(effect(name, &after), expected(other), "{name}");
    }
    if chart.has_nfd {
        let documents = chart.template(&helm, &release, &[]).unwrap();
        assert_eq!(effect("nfd.nodefeaturerules", &documents), true, "with NFD its rule is always installed");
    }
}

/// Parts of the values that are parts of the policy.
const PARTS: [&str; 5] = ["daemonSets", "driver", "devicePlugin", "psa", "hostPaths"];

fn without_nulls(value: &Value) -> Value {
    let entries = value.as_object().unwrap().iter().filter(|(_, entry)| !entry.is_null());
    entries.map(|(key, entry)| (key.clone(), entry.clone())).collect::<serde_json::Map<_, _>>().into()
}

#[test]
fn the_policy_of_the_values_is_the_one_that_an_empty_policy_means() {
    let Some(helm) = tool("helm") else { return };
    let documents = Chart::new().own(&helm, &[]);
    let policy = of_kind(&documents, "KAEPolicy");
    assert_eq!(policy["metadata"]["name"], "kae-policy");
    let values = values();
    for part in PARTS {
        assert_eq!(policy["spec"][part], without_nulls(&values[part]), "{part}");
    }
    let mut spec: KaePolicySpec = serde_json::from_value(policy["spec"].clone()).unwrap();
    let default = KaePolicySpec::default();
    assert_eq!(spec.driver.image(), default.driver.image());
    assert_eq!(spec.device_plugin.image(), default.device_plugin.image());
    assert_eq!(spec.driver.effective_install_policy(), InstallPolicy::IfNotPresent);
    spec.driver.env.clear();
    let (driver, plugin) = (&mut spec.driver, &mut spec.device_plugin);
    for part in [&mut driver.repository, &mut driver.image, &mut driver.version] {
        *part = None;
    }
    for part in [&mut plugin.repository, &mut plugin.image, &mut plugin.version] {
        *part = None;
    }
    assert_eq!(spec, default);
}

/// Values without a default, and those of the operator's own pods.
#[test]
fn further_values_reach_their_place() {
    let Some(helm) = tool("helm") else { return };
    let chart = Chart::new();
    let documents = chart.own(
        &helm,
        &[
            "--set-json=driver.pfQueueNum=256",
            r#"--set-json=driver.vfs={"hpre":4,"sec":1}"#,
            r#"--set-json=devicePlugin.resources={"limits":{"memory":"1Gi"}}"#,
            "--set-json=devicePlugin.replicas=3",
            r#"--set-json=devicePlugin.config=[{"resourceName":"a","selectors":{"vendors":["19e5"]}}]"#,
            "--set=driver.repository=,driver.version=,driver.image=r.example/mine:v2",
            "--set=operator.replicas=2,operator.logLevel=debug,operator.priorityClassName=high",
            "--set=operator.nodeSelector.a=b,operator.imagePullSecrets[0].name=key",
            "--set=operator.resources.limits.memory=1Gi",
            r#"--set-json=operator.tolerations=[{"operator":"Exists"}]"#,
            r#"--set-json=operator.affinity={"podAntiAffinity":{}}"#,
            "--set=operator.version=sha256:0000000000000000000000000000000000000000000000000000000000000000",
        ],
    );
    let spec: KaePolicySpec =
        serde_json::from_value(of_kind(&documents, "KAEPolicy")["spec"].clone()).unwrap();
    assert_eq!((spec.driver.pf_queue_num, spec.device_plugin.replicas), (Some(256), Some(3)));
    assert_eq!((spec.driver.vfs.hpre, spec.driver.vfs.sec, spec.driver.vfs.zip), (Some(4), Some(1), None));
    assert_eq!(spec.driver.image(), "r.example/mine:v2");
    assert_eq!(spec.device_plugin.resources.unwrap().limits["memory"].0, "1Gi");
    assert_eq!(spec.device_plugin.config.unwrap()[0]["resourceName"], "a");
    let deployment = operator(&documents);
    assert_eq!(deployment["spec"]["replicas"], 2);
    let mut pods = vec![&deployment["spec"]["template"]["spec"]];
    let container = &pods[0]["containers"][0];
    assert!(container["args"].as_array().unwrap().contains(&json!("--log-level=debug")));
    assert_eq!(container["env"][2], json!({"name": "KAE_OPERATOR_IMAGE", "value": container["image"]}));
    let jobs = jobs(&documents);
    pods.extend(jobs.iter().map(|job| &job["spec"]["template"]["spec"]));
    assert_eq!(pods.len(), 2);
    for pod in pods {
        assert_eq!(pod["priorityClassName"], "high");
        assert_eq!(pod["nodeSelector"]["a"], "b");
        assert_eq!(pod["imagePullSecrets"], json!([{"name": "key"}]));
        assert_eq!(pod["tolerations"], json!([{"operator": "Exists"}]));
        assert_eq!(pod["affinity"], json!({"podAntiAffinity": {}}));
        let container = &pod["containers"][0];
        assert_eq!(container["resources"]["limits"]["memory"], "1Gi");
        assert!(
            container["image"].as_str().unwrap().starts_with("localhost/openfuyao/kae-operator@sha256:00")
        );
    }
}

#[test]
fn a_value_that_is_unknown_or_bad_is_refused() {
    let Some(helm) = tool("helm") else { return };
    let chart = Chart::new();
    for wrong in [
        "tolerance=1",
        "operator.enabledHpre=true",
        "operator.enabledHPRE=maybe",
        "driver.enabledcleanup=true",
        "driver.vfs.dae=1",
        "driver.pfQueueNum=1",
        "driver.uacceMode=sva",
        "devicePlugin.uacceView=all",
        "daemonSets.rollingUpdate.maxUnavailable=0",
        "daemonSets.nodeSelector.a=b",
        "psa.enabled=privileged",
        "hostPaths.rootFS=host",
    ] {
        let argument = format!("--set={wrong}");
        let error = chart.template(&helm, &["a"], &["--set=nfd.enabled=false", &argument]).unwrap_err();
        assert!(error.contains("values don't meet the specifications of the schema"), "{wrong}: {error}");
    }
}

#[test]
fn the_schema_and_the_values_of_the_operator_s_chart_name_the_same_things() {
    let schema: Value = serde_json::from_str(&read(format!("{CHART}/values.schema.json"))).unwrap();
    same_keys(&values(), &schema, "");
    let chart = yaml(&read(format!("{CHART}/Chart.yaml"))).remove(0);
    let version = format!("v{}", env!("CARGO_PKG_VERSION"));
    assert_eq!((&chart["version"], &chart["appVersion"]), (&json!(version), &json!(version)));
    assert_eq!(chart["name"], "kae-operator");
    assert!(chart["description"].as_str().is_some_and(|text| text.contains("Kunpeng")));
    assert!(chart["keywords"].as_array().unwrap().contains(&json!("openfuyao")));
    let part = &chart["dependencies"][0];
    assert_eq!(
        (&part["name"], &part["condition"]),
        (&json!("node-feature-discovery"), &json!("nfd.enabled"))
    );
    let tag = values()["node-feature-discovery"]["image"]["tag"].as_str().unwrap().to_owned();
    assert_eq!(format!("v{}", part["version"].as_str().unwrap()), tag, "the image fits its chart");
}

fn binary(arguments: &[&str]) -> std::process::Output {
    Command::new(env!("CARGO_BIN_EXE_kae-operator")).args(arguments).output().unwrap()
}

/// `PCIDP_UPDATE=1` writes them again.
#[test]
fn the_chart_s_roles_are_what_the_program_needs() {
    let printed = binary(&["generate", "rbac"]).stdout;
    if std::env::var_os("PCIDP_UPDATE").is_some() {
        fs::write(root().join(RULES), &printed).unwrap();
    }
    assert!(read(RULES).into_bytes() == printed, "{RULES} is old; run this test with PCIDP_UPDATE=1");
    let Some(helm) = tool("helm") else { return };
    let documents = Chart::new().own(&helm, &[]);
    let rules = |kind: &str| {
        let role = documents
            .iter()
            .find(|document| document["kind"] == kind && document["metadata"]["name"] == "kae-operator");
        role.unwrap()["rules"].clone()
    };
    assert_eq!(rules("ClusterRole"), json!(rbac::cluster_rules()));
    assert_eq!(rules("Role"), json!(rbac::namespace_rules()));
}

#[test]
fn every_pod_of_the_chart_runs_without_rights_and_its_arguments_are_understood() {
    let Some(helm) = tool("helm") else { return };
    let arguments = [
        "--set=operator.upgradeCRD=true,operator.cleanupCRD=true,nfd.nodefeaturerules=true,operator.replicas=2",
    ];
    let documents = Chart::new().own(&helm, &arguments);
    let mut pods = 0;
    for document in documents.iter().filter(|document| !document["spec"]["template"].is_null()) {
        let pod = &document["spec"]["template"]["spec"];
        let container = &pod["containers"][0];
        assert_eq!(
            pod["securityContext"],
            json!({
                "runAsNonRoot": true,
                "runAsUser": 65532,
                "runAsGroup": 65532,
                "seccompProfile": {"type": "RuntimeDefault"},
            })
        );
        assert_eq!(
            container["securityContext"],
            json!({
                "privileged": false,
                "allowPrivilegeEscalation": false,
                "readOnlyRootFilesystem": true,
                "capabilities": {"drop": ["ALL"]},
            })
        );
        for forbidden in ["hostNetwork", "hostPID", "hostIPC", "volumes"] {
            assert_eq!(pod[forbidden], Value::Null);
        }
        assert_eq!(container["command"], json!(["kae-operator"]));
        let arguments = container["args"].as_array().unwrap().iter().map(|word| word.as_str().unwrap());
        // Words before it that are unknown are told first.
        let output = binary(&arguments.chain(["--help"]).collect::<Vec<_>>());
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        pods += 1;
    }
    assert_eq!(pods, 4);
    let probes = &operator(&documents)["spec"]["template"]["spec"]["containers"][0];
    assert_eq!(probes["livenessProbe"]["httpGet"], json!({"path": "/healthz", "port": "http"}));
    assert_eq!(probes["readinessProbe"]["httpGet"], json!({"path": "/readyz", "port": "http"}));
}

/// What rules allow: a group and a verb each.
fn verbs(rules: &[Value]) -> BTreeSet<(String, String)> {
    let of_rule = |rule: &Value| {
        let group = rule["apiGroups"][0].to_string();
        let verbs = rule["verbs"].as_array().unwrap().clone();
        verbs.into_iter().map(move |verb| (group.clone(), verb.to_string()))
    };
    rules.iter().flat_map(of_rule).collect()
}

/// Job, event, what it runs, and what it may do.
#[test]
fn hooks_have_rights_of_their_own_that_come_before_them_and_go_after_them() {
    let Some(helm) = tool("helm") else { return };
    let documents = Chart::new().own(&helm, &["--set=operator.upgradeCRD=true,operator.cleanupCRD=true"]);
    let definition = json!(["kaepolicies.device.openfuyao.com"]);
    let mut all = BTreeSet::new();
    for (name, event, words, rights) in [
        (
            "kae-operator-uninstall",
            "pre-delete",
            json!(["policy", "delete", "--namespace=kae"]),
            vec![(json!(["kae-policy"]), json!(["get", "delete"]))],
        ),
        (
            "kae-operator-upgrade-crd",
            "pre-upgrade",
            json!(["crds", "apply"]),
            vec![(Value::Null, json!(["create"])), (definition.clone(), json!(["get", "patch"]))],
        ),
        (
            "kae-operator-cleanup-crd",
            "post-delete",
            json!(["crds", "delete"]),
            vec![(definition, json!(["delete"]))],
        ),
    ] {
        let named = |kind: &str| {
            let found = documents
                .iter()
                .find(|document| document["kind"] == kind && document["metadata"]["name"] == name);
            found.unwrap_or_else(|| panic!("no {kind} {name}"))
        };
        let mut weights = Vec::new();
        for kind in ["ServiceAccount", "ClusterRole", "ClusterRoleBinding", "Job"] {
            let annotations = &named(kind)["metadata"]["annotations"];
            assert_eq!(annotations["helm.sh/hook"], event);
            assert_eq!(annotations["helm.sh/hook-delete-policy"], "before-hook-creation,hook-succeeded");
            weights.push(annotations["helm.sh/hook-weight"].as_str().unwrap().parse::<i32>().unwrap());
        }
        assert!(
            weights[0] <= weights[2] && weights[1] < weights[2] && weights[2] < weights[3],
            "{weights:?}"
        );
        let pod = &named("Job")["spec"]["template"]["spec"];
        assert_eq!((&pod["serviceAccountName"], &pod["containers"][0]["args"]), (&json!(name), &words));
        assert_eq!(pod["containers"][0]["image"], "localhost/openfuyao/kae-operator:latest");
        let rules = named("ClusterRole")["rules"].as_array().unwrap();
        let given: Vec<_> =
            rules.iter().map(|rule| (rule["resourceNames"].clone(), rule["verbs"].clone())).collect();
        assert_eq!(given, rights, "{name}");
        all.extend(verbs(rules));
    }
    assert_eq!(all, verbs(json!(rbac::hook_rules()).as_array().unwrap()), "together what the program needs");
}

#[test]
fn any_release_in_any_namespace_is_whole() {
    let Some(helm) = tool("helm") else { return };
    let chart = Chart::new();
    let long = "a".repeat(53);
    for (release, namespace) in [
        ("kae-operator", "kae-operator"),
        ("kae", "default"),
        ("my-kae-operator-2", "b"),
        (long.as_str(), "c"),
        ("--generate-name", "d"),
    ] {
        let place = format!("--namespace={namespace}");
        let set = "--set=nfd.enabled=false,nfd.nodefeaturerules=true,operator.upgradeCRD=true,operator.cleanupCRD=true";
        let documents = chart.template(&helm, &[release, &place], &[set]).unwrap();
        for document in &documents {
            let (kind, metadata) = (document["kind"].as_str().unwrap(), &document["metadata"]);
            let name = metadata["name"].as_str().unwrap();
            assert!(name.len() <= 63, "{kind} {name}");
            let is_namespaced = !kind.starts_with("Cluster") && kind != "KAEPolicy";
            let expected = if is_namespaced { json!(namespace) } else { Value::Null };
            assert_eq!(metadata["namespace"], expected, "{kind} {name}");
            if kind.ends_with("Binding") {
                let subject = &document["subjects"][0];
                let is_there = |kind: &Value, name: &Value| {
                    documents.iter().any(|other| other["kind"] == *kind && other["metadata"]["name"] == *name)
                };
                assert!(is_there(&subject["kind"], &subject["name"]), "{name}");
                assert!(is_there(&document["roleRef"]["kind"], &document["roleRef"]["name"]), "{name}");
                assert_eq!(subject["namespace"], namespace);
            }
        }
        let pod = &operator(&documents)["spec"]["template"]["spec"];
        let field = &pod["containers"][0]["env"][0]["valueFrom"]["fieldRef"]["fieldPath"];
        assert_eq!(field, "metadata.namespace", "components follow the release's namespace");
    }
}

#[test]
fn helm_has_nothing_to_say_against_the_operator_s_chart() {
    let Some(helm) = tool("helm") else { return };
    let chart = Chart::new();
    let output = Command::new(&helm).args(["lint", "--strict", KUBERNETES, chart.path()]).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
    let packed = tempfile::tempdir().unwrap();
    let output = Command::new(&helm)
        .args(["package", chart.path(), "--destination"])
        .arg(packed.path())
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let name = format!("kae-operator-v{}.tgz", env!("CARGO_PKG_VERSION"));
    assert!(packed.path().join(name).is_file());
}

/// For those who have no Helm. `PCIDP_UPDATE=1` writes them again.
#[test]
fn the_plain_manifests_of_the_operator_come_from_the_chart() {
    let Some(helm) = tool("helm") else { return };
    let chart = Chart::new();
    let output = Command::new(&helm)
        .args([
            "template",
            "kae-operator",
            "--namespace=kae-operator",
            "--no-hooks",
            KUBERNETES,
            chart.path(),
        ])
        .arg("--set=nfd.enabled=false,nfd.nodefeaturerules=true")
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let head = "# From deployments/charts/kae-operator, by a test with PCIDP_UPDATE=1. First comes the definition:\n\
                #\n\
                #   kubectl apply -f deployments/charts/kae-operator/crds\n\
                #   kubectl apply -f deployments/kae-operator.yaml\n\
                apiVersion: v1\nkind: Namespace\nmetadata:\n  name: kae-operator\n";
    let mut expected = head.to_owned();
    for line in String::from_utf8(output.stdout).unwrap().lines() {
        let of_helm = ["# Source:", "app.kubernetes.io/managed-by: Helm", "helm.sh/chart:"];
        if !of_helm.iter().any(|word| line.trim_start().starts_with(word)) {
            expected.push_str(line);
            expected.push('\n');
        }
    }
    if std::env::var_os("PCIDP_UPDATE").is_some() {
        fs::write(root().join(MANIFESTS), &expected).unwrap();
    }
    assert!(read(MANIFESTS) == expected, "{MANIFESTS} is old; run this test with PCIDP_UPDATE=1");
    let kinds: Vec<Value> = yaml(&expected).iter().map(|document| document["kind"].clone()).collect();
    assert_eq!(kinds.iter().filter(|kind| *kind == "KAEPolicy").count(), 1);
    assert!(!kinds.contains(&json!("Job")));
}
