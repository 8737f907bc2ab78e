//! `pcidp generate manifests`: the ConfigMap and the DaemonSet for a config.
//!
//! The YAML is put together by hand, because it is read by people: every mount says what it is for. A test parses
//! it, and the files in `deployments/` are what this prints for `examples/quickstart.json`.

use std::fmt::Write as _;
use std::io::Write;

use super::args::ManifestsArguments;
use super::{ConfigFile, Failure, Outcome};
use crate::config::{Config, DeviceType};
use crate::daemon::{CDI_DIRECTORY, DEVICE_INFO_DIRECTORY, DEVICE_PLUGIN_DIRECTORY, POD_RESOURCES_DIRECTORY};

/// The image that `deployments/build-image` makes.
pub(super) const IMAGE: &str = concat!("localhost/pcidp:", env!("CARGO_PKG_VERSION"));

/// Where the ConfigMap is mounted.
const CONFIG_DIRECTORY: &str = "/etc/pcidp";

/// The prefix that is not worth an argument.
const DEFAULT_PREFIX: &str = "intel.com";

pub(super) fn manifests(arguments: &ManifestsArguments, out: &mut dyn Write) -> Outcome {
    for (name, value) in [("--namespace", &arguments.namespace), ("--image", &arguments.image)] {
        if !is_plain(value) {
            return Err(Failure::Input(format!("pcidp: {name} `{value}` cannot stand in a manifest")));
        }
    }
    let prefix = &arguments.config.resource_prefix;
    let file = ConfigFile::read(&arguments.config.config_file, prefix)?;
    if file.checked.errors().next().is_some() {
        return Err(Failure::Input(file.problems()));
    }
    let rights = Rights::of(&file.checked.config);
    write!(out, "{}{}", config_map(arguments, &file.text), daemon_set(arguments, &rights))?;
    Ok(())
}

/// Letters, digits and what image references and names hold: YAML reads it as the same text, unquoted.
fn is_plain(value: &str) -> bool {
    value.starts_with(|c: char| c.is_ascii_alphanumeric())
        && value.chars().all(|c| c.is_ascii_alphanumeric() || "._-/:@".contains(c))
        && !value.ends_with(':')
}

/// What a config needs of the node beyond the kubelet's directory and the device-information files.
#[derive(Debug, PartialEq, Eq)]
struct Rights {
    /// A pod's own sysfs shows the netdevs of its network namespace only, and routes are asked for there. An
    /// accelerator has neither, and its uevents reach every namespace: the kernel tags those of netdevs only
    /// (<https://github.com/torvalds/linux/blob/v6.12/lib/kobject_uevent.c>, `kobject_uevent_net_broadcast`).
    host_network: bool,
}

impl Rights {
    fn of(config: &Config) -> Self {
        Self { host_network: config.pools.iter().any(|pool| pool.device_type != DeviceType::Accelerator) }
    }
}

fn config_map(arguments: &ManifestsArguments, config: &str) -> String {
    format!(
        "---
apiVersion: v1
kind: ConfigMap
metadata:
  name: sriovdp-config
  namespace: {}
data:
  config.json: {}
",
        arguments.namespace,
        scalar(config, "    ")
    )
}

/// A block where YAML gives it back unchanged, else a quoted string: JSON's escapes are YAML's too.
fn scalar(text: &str, indent: &str) -> String {
    let is_block = text.ends_with('\n')
        && !text.ends_with("\n\n")
        && !text.starts_with([' ', '\n', '\t'])
        && text.chars().all(|c| {
            matches!(c, '\n' | ' '..='~' | '\u{a1}'..='\u{d7ff}') && c != '\u{2028}' && c != '\u{2029}'
        });
    if !is_block {
        return serde_json::Value::from(text).to_string();
    }
    let mut block = "|".to_owned();
    for line in text.lines() {
        block.push('\n');
        if !line.is_empty() {
            block.push_str(indent);
            block.push_str(line);
        }
    }
    block
}

fn daemon_set(arguments: &ManifestsArguments, rights: &Rights) -> String {
    let mut text = format!(
        "---
apiVersion: v1
kind: ServiceAccount
metadata:
  name: sriov-device-plugin
  namespace: {namespace}
automountServiceAccountToken: false
---
apiVersion: apps/v1
kind: DaemonSet
metadata:
  name: kube-sriov-device-plugin
  namespace: {namespace}
  labels:
    tier: node
    app: sriovdp
spec:
  selector:
    matchLabels:
      name: sriov-device-plugin
  # The next version runs before the old one stops: the node's devices never drop to 0.
  updateStrategy:
    type: RollingUpdate
    rollingUpdate:
      maxUnavailable: 0
      maxSurge: 10%
  minReadySeconds: 5
  template:
    metadata:
      labels:
        name: sriov-device-plugin
        tier: node
        app: sriovdp
    spec:
",
        namespace = arguments.namespace
    );
    if rights.host_network {
        text.push_str(
            "      # Netdevs and routes are seen in the host's network namespace only. No port is opened.
      hostNetwork: true
",
        );
    }
    let mut container_arguments = vec!["--log-level=info".to_owned()];
    if arguments.config.resource_prefix != DEFAULT_PREFIX {
        container_arguments.push(format!("--resource-prefix={}", arguments.config.resource_prefix));
    }
    if arguments.use_cdi {
        container_arguments.push("--use-cdi".to_owned());
    }
    let _ = write!(
        text,
        "      serviceAccountName: sriov-device-plugin
      automountServiceAccountToken: false
      priorityClassName: system-node-critical
      nodeSelector:
        kubernetes.io/os: linux
      tolerations:
      - operator: Exists
      securityContext:
        seccompProfile:
          type: RuntimeDefault
      containers:
      - name: kube-sriovdp
        image: {image}
        imagePullPolicy: IfNotPresent
        args:
",
        image = arguments.image
    );
    for argument in container_arguments {
        let _ = writeln!(text, "        - {argument}");
    }
    let (mut cdi_mount, mut cdi_volume) = (String::new(), String::new());
    if arguments.use_cdi {
        cdi_mount = format!(
            "        # CDI specs for the container runtime.
        - name: dynamic-cdi
          mountPath: {CDI_DIRECTORY}
"
        );
        cdi_volume = format!(
            "      - name: dynamic-cdi
        hostPath:
          path: {CDI_DIRECTORY}
          type: DirectoryOrCreate
"
        );
    }
    let _ = write!(
        text,
        "        # The mounted directories belong to root; nothing else of root is needed.
        securityContext:
          runAsUser: 0
          runAsGroup: 0
          privileged: false
          allowPrivilegeEscalation: false
          readOnlyRootFilesystem: true
          capabilities:
            drop:
            - ALL
        resources:
          requests:
            cpu: 10m
            memory: 20Mi
          limits:
            memory: 100Mi
        terminationMessagePolicy: FallbackToLogsOnError
        # Asked over a socket in the kubelet's directory. A kubelet that is away makes no container restart.
        livenessProbe:
          exec:
            command: [pcidp, status, --live]
          periodSeconds: 30
          timeoutSeconds: 10
        # The next node is updated when this one's pools are heard by the kubelet.
        readinessProbe:
          exec:
            command: [pcidp, status, --ready]
          periodSeconds: 5
          timeoutSeconds: 10
        volumeMounts:
        # The kubelet's socket, and ours.
        - name: devicesock
          mountPath: {DEVICE_PLUGIN_DIRECTORY}
        # Device-information files for Multus and CNI plugins.
        - name: device-info
          mountPath: {DEVICE_INFO_DIRECTORY}
        # Who holds which device: the kubelet tells.
        - name: pod-resources
          mountPath: {POD_RESOURCES_DIRECTORY}
          readOnly: true
{cdi_mount}        - name: config-volume
          mountPath: {CONFIG_DIRECTORY}
          readOnly: true
      volumes:
      - name: devicesock
        hostPath:
          path: {DEVICE_PLUGIN_DIRECTORY}
          type: Directory
      - name: device-info
        hostPath:
          path: {DEVICE_INFO_DIRECTORY}
          type: DirectoryOrCreate
      - name: pod-resources
        hostPath:
          path: {POD_RESOURCES_DIRECTORY}
          type: DirectoryOrCreate
{cdi_volume}      - name: config-volume
        configMap:
          name: sriovdp-config
          items:
          - key: config.json
            path: config.json
"
    );
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Options, check};

    fn rights(text: &str) -> Rights {
        Rights::of(&check(text, &Options { default_prefix: "intel.com", path: "config.json" }).config)
    }

    #[test]
    fn only_network_devices_need_the_host_s_network() {
        let network = r#"{"resourceName": "a", "selectors": {"vendors": ["8086"]}}"#;
        let engine =
            r#"{"resourceName": "b", "deviceType": "accelerator", "selectors": {"vendors": ["19e5"]}}"#;
        assert!(rights(&format!(r#"{{"resourceList": [{engine}, {network}]}}"#)).host_network);
        assert!(!rights(&format!(r#"{{"resourceList": [{engine}]}}"#)).host_network);
    }

    #[test]
    fn a_text_that_a_block_would_change_is_quoted() {
        assert_eq!(scalar("{\n\n  \"a\": 1\n}\n", "  "), "|\n  {\n\n    \"a\": 1\n  }");
        for odd in ["{}", "{}\n\n", " {}\n", "{\t}\n", "{}\r\n", "\u{feff}{}\n", ""] {
            assert!(scalar(odd, "  ").starts_with('"'), "{odd:?}");
        }
    }

    #[test]
    fn only_plain_words_may_be_inserted() {
        assert!(
            is_plain(IMAGE) && is_plain("registry.example:5000/a/pcidp@sha256:00") && is_plain("kube-system")
        );
        for bad in ["", "-a", "a b", "a: b", "a:", "a\nb", "#a", "a#", "{{a}}"] {
            assert!(!is_plain(bad), "{bad:?}");
        }
    }
}
