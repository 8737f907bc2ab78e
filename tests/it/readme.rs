//! The README's commands do what it shows.

use std::fs;
use std::path::Path;

use assert_cmd::Command;
use pcidp::handout::{Manner, SharedNodes, handout};
use pcidp::model::{
    Device, DeviceId, Function, PciAddress, PhysicalFunction, Rdma, Uacce, Vdpa, VdpaType, Vfio,
};

use crate::machine::config;

/// Commands and what they are shown to print; `...` stands for any lines.
fn transcripts(text: &str) -> Vec<(String, Vec<String>)> {
    let mut found: Vec<(String, Vec<String>)> = Vec::new();
    let mut inside = false;
    for line in text.lines() {
        match line {
            "```console" => inside = true,
            "```" => inside = false,
            line if inside => match (line.strip_prefix("$ "), found.last_mut()) {
                (Some(command), _) => found.push((command.to_owned(), Vec::new())),
                (None, Some((_, shown))) => shown.push(line.to_owned()),
                (None, None) => panic!("a block that does not begin with a command: {line}"),
            },
            _ => {}
        }
    }
    found
}

/// Whether `lines` are what is shown.
fn fits(shown: &[String], lines: &[&str]) -> bool {
    match (shown.split_first(), lines.split_first()) {
        (None, None) => true,
        (Some((first, rest)), _) if first == "..." => {
            (0..=lines.len()).any(|skipped| fits(rest, &lines[skipped..]))
        }
        (Some((first, rest)), Some((line, others))) => first == line && fits(rest, others),
        _ => false,
    }
}

#[test]
fn every_command_of_the_readme_prints_what_it_shows() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let transcripts = transcripts(&fs::read_to_string(root.join("README.md")).unwrap());
    assert!(!transcripts.is_empty());
    for (command, shown) in transcripts {
        let words: Vec<&str> = command.split(' ').collect();
        assert_eq!(words[0], "pcidp", "{command}");
        let output =
            Command::new(env!("CARGO_BIN_EXE_pcidp")).current_dir(root).args(&words[1..]).output().unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        let lines: Vec<&str> = text.lines().collect();
        assert!(fits(&shown, &lines), "`{command}` prints:\n{text}\nthe README shows:\n{}", shown.join("\n"));
    }
}

#[test]
fn every_file_that_the_readme_names_is_there() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let text = fs::read_to_string(root.join("README.md")).unwrap();
    let links = text.split("](").skip(1).filter_map(|rest| rest.split(')').next());
    let named = text.split('`').filter(|word| {
        ["src/", "testdata/", "examples/", "benches/", "deployments/", "tests/"]
            .iter()
            .any(|d| word.starts_with(d))
            && !word.contains([' ', '<', '*'])
    });
    for path in links.filter(|link| !link.starts_with('#') && !link.contains("://")).chain(named) {
        assert!(root.join(path).exists(), "README.md names {path}");
    }
}

/// A VF of which no more is known than that.
fn bare() -> Device {
    let pf: PciAddress = "0000:70:00.0".parse().unwrap();
    let address: PciAddress = "0000:70:01.0".parse().unwrap();
    let pf = PhysicalFunction { address: pf, names: Vec::new(), link_type: None, link: None };
    let function = Function::Virtual { pf: pf.into(), index: Some(0) };
    let ids = ("8086".parse().unwrap(), "1889".parse().unwrap());
    Device::bare(DeviceId::from(address), address, ids, "020000".parse().unwrap(), function)
}

/// The kinds of devices: how a person calls them, what the pool's config says, and a device. Numbers are such as stand
/// nowhere else.
fn kinds() -> Vec<(&'static str, &'static str, Device)> {
    let vfio = |no_iommu: bool| Device {
        vfio: Some(Vfio { group: 7001, no_iommu, blocked_by: None, cdev: Some(7002) }),
        ..bare()
    };
    let rdma = Rdma {
        devices: vec!["mlx5_7002".to_owned()],
        uverbs: vec!["uverbs7002".to_owned()],
        umad: vec!["umad7002".to_owned()],
        issm: vec!["issm7002".to_owned()],
        p_key: None,
    };
    let rdma = || Device { rdma: Some(Box::new(rdma.clone())), ..bare() };
    let vdpa = |kind, vhost| Device {
        vdpa: Some(Box::new(Vdpa { name: "vdpa7002".to_owned(), kind: Some(kind), vhost })),
        ..bare()
    };
    let uacce = Uacce {
        name: "hisi_hpre-7002".to_owned(),
        api: Some("hisi_qm_v2".to_owned()),
        algorithms: vec!["rsa".to_owned()],
        class_link: Some("../../devices/x".to_owned()),
        ..Uacce::default()
    };
    let subfunction = Device {
        id: DeviceId::from("mlx5_core.sf.7002"),
        function: Function::Sub {
            pf: PhysicalFunction {
                address: "0000:70:00.0".parse().unwrap(),
                names: Vec::new(),
                link_type: None,
                link: None,
            }
            .into(),
            index: Some(1),
            auxiliary_type: "sf".to_owned(),
        },
        ..rdma()
    };
    vec![
        ("on a kernel driver", "", bare()),
        ("on vfio-pci or a variant driver", "", vfio(false)),
        ("the same without an IOMMU", "", vfio(true)),
        ("the same", r#""vfio":"iommufd""#, vfio(false)),
        ("the same", r#""vfio":"both""#, vfio(false)),
        ("on a UIO driver", "", Device { uio: Some(7002), ..bare() }),
        (
            "a Kunpeng engine",
            r#""deviceType":"accelerator""#,
            Device { uacce: Some(Box::new(uacce)), ..bare() },
        ),
        ("with RDMA", r#""selectors":{"isRdma":true}"#, rdma()),
        (
            "a subfunction",
            r#""deviceType":"auxNetDevice","selectors":{"auxTypes":["sf"],"isRdma":true}"#,
            subfunction,
        ),
        ("on vhost_vdpa", r#""selectors":{"vdpaType":"vhost"}"#, vdpa(VdpaType::Vhost, Some(7003))),
        ("on virtio_vdpa", r#""selectors":{"vdpaType":"virtio"}"#, vdpa(VdpaType::Virtio, None)),
        ("any network device", r#""selectors":{"needVhostNet":true}"#, bare()),
    ]
}

/// What a container gets of each kind, as a table.
fn handed_over() -> String {
    let mut table =
        "| a device | with | nodes | `_INFO` | device-information file |\n|---|---|---|---|---|\n".to_owned();
    for (kind, members, device) in kinds() {
        let comma = if members.is_empty() { "" } else { "," };
        let config = config(&format!(r#"{{"resourceList":[{{"resourceName":"r"{comma}{members}}}]}}"#));
        let pool = &config.pools[0];
        let shared = SharedNodes { vhost_net: true, tun: true };
        let manner = Manner { shared, cdi: None, filtered_uacce: true };
        let given = handout(pool, &[(&device, pool.selectors.first())], manner);
        let code = |text: &str| format!("`{text}`");
        let mut nodes: Vec<String> = given
            .nodes
            .iter()
            .map(|node| match node.host == node.container {
                true => code(&node.container),
                false => format!("{} as {}", code(&node.host), code(&node.container)),
            })
            .collect();
        if !given.uacce_links.is_empty() {
            nodes.push("its own view of `/sys/class/uacce` (`uacceView`)".to_owned());
        }
        let info: serde_json::Value =
            serde_json::from_str(&given.variables["PCIDEVICE_X_IO_R_INFO"]).unwrap();
        let providers = info[device.id.as_str()].as_object().unwrap().iter();
        let told: Vec<String> = providers
            .filter(|(provider, _)| *provider != "generic")
            .map(|(provider, keys)| {
                let keys: Vec<&str> = keys.as_object().unwrap().keys().map(String::as_str).collect();
                code(&format!("{provider}.{{{}}}", keys.join(",")))
            })
            .collect();
        let file: serde_json::Value = serde_json::from_str(&given.files[0].content).unwrap();
        let type_name = file["type"].as_str().unwrap();
        let members_of: Vec<String> = file[type_name].as_object().unwrap().keys().cloned().collect();
        let with = if members.is_empty() {
            String::new()
        } else {
            code(&members.replace(',', ", ").replace(':', ": "))
        };
        table += &format!(
            "| {kind} | {with} | {} | {} | {}: {} |\n",
            nodes.join(", "),
            told.join(", "),
            code(type_name),
            code(&members_of.join(", "))
        );
    }
    table.replace("7001", "<group>").replace("7002", "<n>").replace("7003", "<m>")
}

#[test]
fn the_table_of_what_is_handed_over_is_what_the_code_hands_over() {
    const BEGIN: &str = "from what src/handout does -->\n";
    const END: &str = "<!-- end -->";
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("README.md");
    let text = fs::read_to_string(&path).unwrap();
    let (before, rest) = text.split_once(BEGIN).unwrap();
    let (shown, after) = rest.split_once(END).unwrap();
    let table = format!("\n{}\n", handed_over());
    if std::env::var_os("PCIDP_UPDATE").is_some() {
        fs::write(&path, format!("{before}{BEGIN}{table}{END}{after}")).unwrap();
    } else {
        assert_eq!(shown, table, "write it again with PCIDP_UPDATE=1 cargo test --test it readme");
    }
}
