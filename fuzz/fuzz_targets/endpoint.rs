//! A live endpoint of the real daemon on a recorded host, asked over its real socket by somebody who is no kubelet.
//!
//! The first byte says how the rest is meant (`0` to `5` as a person writes it), the second one which pool or method:
//! `0` bytes on the socket, `1` HTTP/2 frames after a proper beginning, `2` the bytes of a gRPC message, and as text, a
//! container a line and `#n` for a device that the pool has: `3` Allocate, `4` GetPreferredAllocation, `5`
//! PreStartContainer.
#![no_main]

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::time::Duration;

use libfuzzer_sys::{Corpus, fuzz_target};
use pcidp::config::{Options, check};
use pcidp::daemon::{self, CdiDirectory, DeviceInfoDirectory};
use pcidp::handout::CdiMode;
use pcidp::host::HostRoot;
use pcidp::kubelet::Connection;
use pcidp::kubelet::api::deviceplugin as api;
use pcidp::kubelet::api::deviceplugin::device_plugin_client::DevicePluginClient;
use pcidp::kubelet::stand_in::StandIn;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;
use tokio::runtime::Runtime;
use tokio::signal::unix::{SignalKind, signal};

/// Within this, whoever asks has an answer or no connection any more.
const PATIENCE: Duration = Duration::from_secs(5);
const METHODS: [&str; 5] =
    ["GetDevicePluginOptions", "ListAndWatch", "GetPreferredAllocation", "Allocate", "PreStartContainer"];
const POOLS: [&str; 2] = ["x.io/net", "x.io/vfio"];
const CONFIG: &str = r#"{"resourceList":[
    {"resourceName":"net","allocationPolicy":["lru","numa","packed"],"selectors":{"pfNames":["ens1f0np0#0-3"]}},
    {"resourceName":"vfio","allocationPolicy":["spread"],"preStartCheck":true,"selectors":{"drivers":["vfio-pci"]}}]}"#;

struct World {
    runtime: Runtime,
    kubelet: StandIn,
    pools: Vec<Pool>,
}

struct Pool {
    name: &'static str,
    socket: PathBuf,
    ids: Vec<String>,
}

fn world() -> &'static World {
    static WORLD: OnceLock<World> = OnceLock::new();
    WORLD.get_or_init(|| {
        let runtime = Runtime::new().expect("a runtime");
        let (kubelet, pools) = runtime.block_on(start());
        World { runtime, kubelet, pools }
    })
}

async fn start() -> (StandIn, Vec<Pool>) {
    // Before the `main` of a Rust program, SIGPIPE is set to be ignored; that of libFuzzer leaves it deadly.
    let mut hung_up = signal(SignalKind::pipe()).expect("a handler");
    tokio::spawn(async move { while hung_up.recv().await.is_some() {} });
    let host = Path::new(env!("CARGO_MANIFEST_DIR")).join("../testdata/hosts/two-socket.host");
    let host = HostRoot::open(&host).expect("the recording is in testdata");
    let directory = std::env::temp_dir().join(format!("pcidp-fuzz-{}", std::process::id()));
    std::fs::create_dir_all(&directory).expect("a directory for sockets");
    let kubelet = StandIn::start(&directory).await.expect("a kubelet");
    let checked = check(CONFIG, &Options { default_prefix: "x.io", path: "config.json" });
    let options = daemon::Options {
        device_info: DeviceInfoDirectory::new(directory.join("devinfo")),
        cdi: Some(CdiDirectory::new(directory.join("cdi"), CdiMode { field: true, annotations: true })),
        ..daemon::Options::new(host, checked.config, &directory)
    };
    tokio::spawn(daemon::run(options, std::future::pending()));
    let is_up = |state: &pcidp::kubelet::stand_in::State| {
        POOLS.iter().all(|name| state.allocatable(name) > 0 && state.resource(name).connected)
    };
    let state = kubelet.eventually("every pool is there", is_up).await.expect("the daemon starts");
    let pool = |name: &'static str| {
        let resource = state.resource(name);
        let endpoint = &resource.registrations.last().expect("it is registered").request.endpoint;
        let healthy = resource.devices().iter().filter(|device| device.healthy);
        Pool {
            name,
            socket: directory.join(endpoint),
            ids: healthy.map(|device| device.id.clone()).collect(),
        }
    };
    (kubelet, POOLS.map(pool).into())
}

/// A frame of HTTP/2 (RFC 9113, 4.1).
fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = (payload.len() as u32).to_be_bytes();
    [&length[1..], &[kind, flags], &stream.to_be_bytes(), payload].concat()
}

/// The preface of a client, and empty SETTINGS.
fn beginning() -> Vec<u8> {
    [&b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"[..], &frame(4, 0, 0, &[])].concat()
}

/// One call with one message, the headers written without a table (RFC 7541, 6.2.2).
fn call(method: &str, message: &[u8]) -> Vec<u8> {
    const END_STREAM: u8 = 1;
    const END_HEADERS: u8 = 4;
    // `:method: POST` and `:scheme: http` of the static table.
    let mut headers = vec![0x83, 0x86];
    let path = format!("/v1beta1.DevicePlugin/{method}");
    let named: [(&[u8], &str); 4] = [
        (&[0x04], &path),
        (&[0x01], "localhost"),
        (&[0x0f, 0x10], "application/grpc"),
        (b"\x00\x02te", "trailers"),
    ];
    for (name, value) in named {
        headers.extend(name);
        headers.push(value.len() as u8);
        headers.extend(value.bytes());
    }
    let message = [&[0][..], &(message.len() as u32).to_be_bytes(), message].concat();
    [beginning(), frame(1, END_HEADERS, 1, &headers), frame(0, END_STREAM, 1, &message)].concat()
}

/// Sends bytes and hangs up half-way; the other side has to hang up, too.
async fn send(socket: &Path, bytes: &[u8]) {
    let mut stream = UnixStream::connect(socket).await.expect("it listens");
    // It may have hung up already.
    let _ = stream.write_all(bytes).await;
    let _ = stream.shutdown().await;
    let _ = stream.read_to_end(&mut Vec::new()).await;
}

/// Makes a call and waits until it is answered, or refused, or the connection is closed.
async fn ask(socket: &Path, method: &str, message: &[u8]) {
    let mut stream = UnixStream::connect(socket).await.expect("it listens");
    let _ = stream.write_all(&call(method, message)).await;
    let mut head = [0; 9];
    while stream.read_exact(&mut head).await.is_ok() {
        let [high, middle, low, kind, flags, _, _, _, number] = head;
        let mut payload = vec![0; u32::from_be_bytes([0, high, middle, low]) as usize];
        if stream.read_exact(&mut payload).await.is_err() {
            return;
        }
        let is_end = flags & 1 == 1 && kind < 2;
        // DATA or HEADERS that end the stream, its RST_STREAM; of a stream without an end, its first list.
        if number == 1 && (is_end || kind == 3 || (kind == 0 && method == "ListAndWatch")) || kind == 7 {
            return;
        }
    }
}

/// The ids on a line: `#3` is one that the pool has.
fn ids(line: &str, known: &[String]) -> Vec<String> {
    let id = |word: &str| match word.strip_prefix('#').and_then(|number| number.parse::<usize>().ok()) {
        Some(number) => known[number % known.len()].clone(),
        None => word.to_owned(),
    };
    line.split(',').filter(|word| !word.is_empty()).map(id).collect()
}

async fn allocate(world: &World, pool: &Pool, text: &str) {
    let containers: Vec<Vec<String>> = text.lines().map(|line| ids(line, &pool.ids)).collect();
    let is_good = |ids: &Vec<String>| {
        let distinct: BTreeSet<&String> = ids.iter().collect();
        distinct.len() == ids.len() && ids.iter().all(|id| pool.ids.contains(id))
    };
    match world.kubelet.allocate(pool.name, &containers).await {
        Ok(answers) => {
            assert!(containers.iter().all(is_good), "{containers:?} were handed out");
            assert_eq!(answers.len(), containers.len());
        }
        Err(error) => assert!(!containers.iter().all(is_good), "{containers:?}: {error}"),
    }
    world.kubelet.free(pool.name, &containers.concat());
}

async fn prefer(pool: &Pool, text: &str) {
    let container = |line: &str| {
        let mut parts = line.split(';');
        let mut next = || parts.next().unwrap_or_default();
        api::ContainerPreferredAllocationRequest {
            allocation_size: next().parse().unwrap_or(1),
            must_include_device_i_ds: ids(next(), &pool.ids),
            available_device_i_ds: ids(next(), &pool.ids),
        }
    };
    let containers: Vec<_> = text.lines().map(container).collect();
    let request = api::PreferredAllocationRequest { container_requests: containers.clone() };
    let connection = Connection::open(&pool.socket).await.expect("it listens");
    let Ok(answer) = DevicePluginClient::new(connection).get_preferred_allocation(request).await else {
        return;
    };
    let answers = answer.into_inner().container_responses;
    assert_eq!(answers.len(), containers.len());
    for (asked, answer) in containers.iter().zip(&answers) {
        let chosen: BTreeSet<&String> = answer.device_i_ds.iter().collect();
        assert_eq!(chosen.len(), answer.device_i_ds.len(), "{asked:?}: {answer:?}");
        assert_eq!(i32::try_from(chosen.len()), Ok(asked.allocation_size), "{asked:?}: {answer:?}");
        assert!(asked.must_include_device_i_ds.iter().all(|id| chosen.contains(id)), "{asked:?}: {answer:?}");
        assert!(chosen.iter().all(|id| asked.available_device_i_ds.contains(id)), "{asked:?}: {answer:?}");
    }
}

async fn play(world: &World, kind: u8, which: u8, rest: &[u8]) {
    let pool = &world.pools[usize::from(which) % world.pools.len()];
    let text = String::from_utf8_lossy(rest);
    match kind % 6 {
        0 => send(&pool.socket, rest).await,
        1 => send(&pool.socket, &[&beginning()[..], rest].concat()).await,
        2 => ask(&pool.socket, METHODS[usize::from(which) % METHODS.len()], rest).await,
        3 => allocate(world, pool, &text).await,
        4 => prefer(pool, &text).await,
        _ => {
            let _ = world.kubelet.pre_start(pool.name, &ids(&text, &pool.ids)).await;
        }
    }
}

fuzz_target!(|bytes: &[u8]| -> Corpus {
    let [kind, which, rest @ ..] = bytes else { return Corpus::Reject };
    let world = world();
    world.runtime.block_on(async {
        let played = tokio::time::timeout(PATIENCE, play(world, *kind, *which, rest)).await;
        assert!(played.is_ok(), "neither an answer nor an end within {PATIENCE:?}");
        // Whoever asked for what, the kubelet is served as before.
        for pool in &world.pools {
            let device = vec![pool.ids[usize::from(*which) % pool.ids.len()].clone()];
            let answer = world.kubelet.allocate(pool.name, std::slice::from_ref(&device)).await;
            assert!(answer.is_ok(), "{}: {answer:?}", pool.name);
            world.kubelet.free(pool.name, &device);
        }
    });
    Corpus::Keep
});
