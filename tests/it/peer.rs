//! The questions that were put to the Go plugin, put to this one over real sockets. `testdata/peer/README.md` says where
//! they come from.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fs;
use std::path::Path;

use pcidp::host::HostRoot;
use pcidp::kubelet::Advertised;
use serde::Deserialize;
use serde_json::Value;

use crate::node::{Node, check, host};

#[derive(Deserialize)]
struct Question {
    tree: String,
    name: String,
    config: Value,
    args: Vec<String>,
    answer: Answer,
}

#[derive(Deserialize)]
struct Answer {
    #[serde(default)]
    pools: BTreeMap<String, PoolAnswer>,
    #[serde(default)]
    devinfo: BTreeMap<String, String>,
}

#[derive(Deserialize)]
struct PoolAnswer {
    devices: BTreeMap<String, DeviceAnswer>,
    allocate: Vec<Allocation>,
}

#[derive(Deserialize)]
struct DeviceAnswer {
    health: String,
    numa: Vec<u32>,
}

#[derive(Deserialize)]
struct Allocation {
    ids: Vec<String>,
    env: BTreeMap<String, String>,
    nodes: Vec<String>,
}

/// How this plugin answers otherwise, on purpose.
enum Difference {
    /// These pools with exactly these devices.
    Devices(&'static [(&'static str, &'static [&'static str])]),
    /// The answer of another question on the same tree, under this resource.
    As(&'static str),
    /// These devices too.
    More(&'static str, &'static [&'static str]),
    /// No pool, and an error whose text holds this.
    Refused(&'static str),
}

const MLX: &[&str] = &["0000:b1:00.1", "0000:b1:00.2", "0000:b1:00.3", "0000:b1:00.4", "0000:b1:00.5"];
const IAVF: &[&str] = &["0000:17:01.0", "0000:17:01.1", "0000:17:01.2", "0000:17:01.3"];

fn difference(question: &Question) -> Option<Difference> {
    use Difference::{As, Devices, More, Refused};
    Some(match question.name.as_str() {
        "no-selectors-key" | "empty-list-of-selectors" => As("everything-net"),
        "vendors-upper-hex" | "vendors-0x" => Devices(&[("intel.com/r", MLX)]),
        "drivers-none-bound" => Devices(&[("intel.com/r", &["0000:66:00.1"])]),
        "pciaddresses-short" => Devices(&[("intel.com/r", &["0000:17:01.0", "0000:17:01.1"])]),
        "root-short" => {
            Devices(&[("intel.com/r", &["0000:17:11.0", "0000:17:11.1", "0000:17:11.2", "0000:17:11.3"])])
        }
        "pf-same-twice" => {
            Devices(&[("intel.com/r", &["0000:17:01.0", "0000:17:01.1", "0000:17:01.6", "0000:17:01.7"])])
        }
        "name-with-dot" => Devices(&[("intel.com/my.pool", IAVF)]),
        "name-twice" => Devices(&[("intel.com/x", IAVF)]),
        "trailing-comma" => Devices(&[("intel.com/a", IAVF)]),
        "accelerators-all" => More("intel.com/fpga", &["0000:75:00.0"]),
        "net-and-accelerator" => More("intel.com/f", &["0000:75:00.0"]),
        "accelerators-hpre" => Devices(&[("intel.com/hpre", &["0000:75:00.0"])]),
        "virtio-link" => Devices(&[("intel.com/r", &["0000:00:03.0"])]),
        "device-type-unknown" => Refused("gpu"),
        "rdma-and-vdpa" => Refused("vdpaType"),
        "string-for-list" => Refused("drivers"),
        "list-of-null" => Refused("resourceList[0]"),
        "name-bad" => Refused("my pool"),
        "aux-eth" | "aux-no-type" => Refused("auxTypes"),
        "range-reversed" => Refused("7-3"),
        "range-empty" => Refused("range is empty"),
        // vp_vdpa's device, which the Go plugin could not see for want of the netlink family.
        "vdpa" if question.tree == "soft-0-vdpa-rdma-virtual" => {
            Devices(&[("intel.com/r", &["0000:02:00.0"])])
        }
        _ => return None,
    })
}

fn questions() -> Vec<Question> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("testdata/peer/answers.json");
    let mut questions: Vec<Question> = serde_json::from_str(&fs::read_to_string(path).unwrap()).unwrap();
    // The Go plugin takes the entry of an auxiliary device for nobody's.
    let question = questions.iter_mut().find(|question| question.name == "sf-info").unwrap();
    for allocation in question.answer.pools.values_mut().flat_map(|pool| &mut pool.allocate) {
        for value in allocation.env.values_mut() {
            *value = value.replace(
                r#""mlx5_core.sf.7":{"extra":{"rail":"1"}"#,
                r#""mlx5_core.sf.7":{"extra":{"rail":"2"}"#,
            );
        }
    }
    questions
}

/// The tree of a question, with the nodes that the machine itself had when the answers were taken.
fn tree(name: &str) -> HostRoot {
    let host = host(name);
    for (path, number) in [
        ("dev/vhost-net", "char 10:238 0600"),
        ("dev/net/tun", "char 10:200 0600"),
        ("dev/vfio/vfio", "char 10:196 0600"),
        ("dev/infiniband/rdma_cm", "char 10:59 0600"),
    ] {
        let path = host.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, number).unwrap();
    }
    host
}

#[tokio::test]
async fn every_question_gets_the_answer_of_the_go_plugin_or_a_deliberate_difference() {
    let questions = questions();
    assert!(questions.len() >= 105);
    let by_name: HashMap<&str, &Question> =
        questions.iter().filter(|q| q.tree == "two-socket").map(|q| (q.name.as_str(), q)).collect();
    let mut trees: HashMap<String, HostRoot> = HashMap::new();
    let mut wrong = Vec::new();
    // The one kind and the one annotation key of the Go plugin collide; `tests/it/cdi.rs` has what is done here.
    for question in
        questions.iter().filter(|question| !question.args.iter().any(|argument| argument == "--use-cdi"))
    {
        let host = trees.entry(question.tree.clone()).or_insert_with(|| tree(&question.tree));
        for complaint in ask(question, &by_name, host).await {
            wrong.push(format!("{} / {}: {complaint}", question.tree, question.name));
        }
    }
    assert!(wrong.is_empty(), "{} answers differ:\n{}", wrong.len(), wrong.join("\n"));
}

async fn ask(question: &Question, by_name: &HashMap<&str, &Question>, host: &HostRoot) -> Vec<String> {
    let text = match &question.config {
        Value::String(text) => text.clone(),
        object => object.to_string(),
    };
    let prefix = match question.args.iter().position(|argument| argument == "--resource-prefix") {
        Some(position) => question.args[position + 1].as_str(),
        None => "intel.com",
    };
    let checked = check(&text, prefix);
    let mut complaints = Vec::new();
    let errors: Vec<String> =
        checked.errors().map(|problem| problem.message.clone() + " " + &problem.json_path).collect();
    let difference = difference(question);
    match &difference {
        Some(Difference::Refused(words)) if !errors.iter().any(|error| error.contains(words)) => {
            complaints.push(format!("no error names `{words}`: {errors:?}"));
        }
        None if !errors.is_empty() => complaints.push(format!("unexpected errors: {errors:?}")),
        _ => {}
    }
    let expected = expected(question, difference.as_ref(), by_name);
    let node = Node::start(host, checked.config).await;
    let all_listed = |state: &pcidp::kubelet::stand_in::State| {
        expected.iter().all(|(name, ids)| state.resource(name).devices().len() == ids.len())
    };
    let state = match node.kubelet.eventually("every pool has its devices", all_listed).await {
        Ok(state) => state,
        Err(_) => node.kubelet.state(),
    };
    let found: BTreeMap<String, BTreeSet<String>> = state
        .resources
        .iter()
        .map(|(name, resource)| {
            (name.clone(), resource.devices().iter().map(|device| device.id.clone()).collect())
        })
        .collect();
    if found != expected {
        complaints.push(format!("pools {found:?}, expected {expected:?}"));
    }
    for (name, pool) in question.answer.pools.iter().filter(|(name, _)| found.contains_key(*name)) {
        complaints.extend(compare_health(pool, state.resource(name).devices()));
        for allocation in &pool.allocate {
            match node.kubelet.allocate(name, std::slice::from_ref(&allocation.ids)).await {
                Ok(answers) => {
                    let nodes = answers[0].devices.iter().map(|node| {
                        format!("{} -> {} {}", node.host_path, node.container_path, node.permissions)
                    });
                    complaints.extend(compare(allocation, &answers[0].envs, nodes.collect()));
                }
                Err(error) => complaints.push(format!("Allocate of {:?}: {error}", allocation.ids)),
            }
        }
    }
    complaints.extend(compare_files(&question.answer.devinfo, &node.device_info()));
    node.stop().await;
    complaints
}

fn expected(
    question: &Question,
    difference: Option<&Difference>,
    by_name: &HashMap<&str, &Question>,
) -> BTreeMap<String, BTreeSet<String>> {
    let ids = |ids: &[&str]| ids.iter().map(|&id| id.to_owned()).collect::<BTreeSet<String>>();
    let same = |question: &Question| -> BTreeMap<String, BTreeSet<String>> {
        let pools = question.answer.pools.iter();
        pools.map(|(name, pool)| (name.clone(), pool.devices.keys().cloned().collect())).collect()
    };
    match difference {
        None => same(question),
        Some(Difference::Devices(pools)) => {
            pools.iter().map(|(name, list)| (name.to_string(), ids(list))).collect()
        }
        Some(Difference::As(name)) => same(by_name[name]),
        Some(Difference::More(name, more)) => {
            let mut pools = same(question);
            pools.get_mut(*name).unwrap().extend(ids(more));
            pools
        }
        Some(Difference::Refused(_)) => BTreeMap::new(),
    }
}

fn compare_health(pool: &PoolAnswer, devices: &[Advertised]) -> Vec<String> {
    let mut complaints = Vec::new();
    for device in devices {
        let Some(known) = pool.devices.get(&device.id) else {
            continue;
        };
        let numa: Vec<u32> = device.numa_node.into_iter().collect();
        if device.healthy != (known.health == "Healthy") || numa != known.numa {
            complaints.push(format!("{device:?}, expected {} on {:?}", known.health, known.numa));
        }
    }
    complaints
}

/// The variable with the ids is the same; `_INFO` may tell more; the nodes are the same, but for drivers whose nodes the
/// Go plugin forgets.
fn compare(known: &Allocation, env: &BTreeMap<String, String>, nodes: BTreeSet<String>) -> Vec<String> {
    let mut complaints = Vec::new();
    for (name, value) in &known.env {
        let found = env.get(name).cloned().unwrap_or_default();
        let same = match name.ends_with("_INFO") {
            true => covers(
                &serde_json::from_str(&found).unwrap_or_default(),
                &serde_json::from_str(value).unwrap(),
            ),
            false => &found == value,
        };
        if !same {
            complaints.push(format!("{name}={found}, expected {value}"));
        }
    }
    let expected: BTreeSet<String> = known.nodes.iter().cloned().collect();
    let forgotten = |node: &String| node.starts_with("/dev/uio") || node.starts_with("/dev/vfio/");
    let missing: Vec<_> = expected.difference(&nodes).collect();
    let extra: Vec<_> =
        nodes.difference(&expected).filter(|node| !(known.nodes.is_empty() && forgotten(node))).collect();
    let extra: Vec<_> = extra.into_iter().filter(|node| !node.starts_with("/dev/uio")).collect();
    if !missing.is_empty() || !extra.is_empty() {
        complaints.push(format!("nodes for {:?}: missing {missing:?}, not expected {extra:?}", known.ids));
    }
    complaints
}

/// Every member of `part` is in `whole` with the same value.
fn covers(whole: &Value, part: &Value) -> bool {
    match (whole, part) {
        (Value::Object(whole), Value::Object(part)) => {
            part.iter().all(|(key, value)| whole.get(key).is_some_and(|found| covers(found, value)))
                || part.is_empty()
        }
        (whole, part) => whole == part,
    }
}

fn compare_files(known: &BTreeMap<String, String>, directory: &Path) -> Vec<String> {
    let mut complaints = Vec::new();
    for (name, content) in known {
        let found = fs::read_to_string(directory.join(name)).unwrap_or_default();
        let found: Value = serde_json::from_str(&found).unwrap_or_default();
        let expected: Value = serde_json::from_str(content).unwrap();
        let mut stripped = found.clone();
        if let Some(pci) = stripped.get_mut("pci").and_then(Value::as_object_mut) {
            pci.remove("pf-pci-address");
        }
        if stripped != expected {
            complaints.push(format!("file {name} holds {found}, expected {expected}"));
        }
    }
    complaints
}
