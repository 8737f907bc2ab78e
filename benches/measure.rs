//! Runs the real `pcidp run` on a large made-up node with the small kubelet, and prints what it costs.
//!
//! `cargo bench --bench measure [-- PATH-OF-ANOTHER-PCIDP]`

#![expect(clippy::unwrap_used, clippy::print_stdout, reason = "a bench prints, and may stop where it stands")]

use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use pcidp::host::{HostRoot, Wanted, scan};
use pcidp::kubelet::Connection;
use pcidp::kubelet::api::deviceplugin as api;
use pcidp::kubelet::api::deviceplugin::device_plugin_client::DevicePluginClient;
use pcidp::kubelet::stand_in::{StandIn, State};

mod large;

/// How often the plugin is started; medians are printed.
const ROUNDS: usize = 5;
/// How often devices are allocated.
const CALLS: usize = 2000;
/// How long the kubelet is away.
const AWAY: Duration = Duration::from_secs(1);
/// Until whatever only a start needs has ended (threads that wait for work among it).
const SETTLED: Duration = Duration::from_secs(12);
/// How long an idle plugin is watched.
const IDLE: Duration = Duration::from_secs(60);

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if !arguments.iter().any(|argument| argument == "--bench") {
        println!("nothing is measured in a test run");
        return;
    }
    let other = arguments.iter().find(|argument| !argument.starts_with('-'));
    let binary = PathBuf::from(other.map_or(env!("CARGO_BIN_EXE_pcidp"), String::as_str));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(measure(&binary));
}

async fn measure(binary: &Path) {
    let host = large::recording().lay_out().unwrap();
    let before = host.calls();
    let inventory = scan(&host, &Wanted::of(&large::config(&large::config_text())));
    let calls = host.calls() - before;
    drop(inventory);

    let mut rounds = Vec::new();
    for round in 1..=ROUNDS {
        println!("round {round} of {ROUNDS}");
        rounds.push(measure_round(binary, &host, round == ROUNDS).await);
    }
    let median = |value: fn(&Round) -> Duration| {
        let mut values: Vec<_> = rounds.iter().map(value).collect();
        values.sort();
        milliseconds(values[ROUNDS / 2])
    };
    let last = rounds.last().unwrap();
    let idle = last.idle.as_ref().unwrap();
    println!("\n{} devices, {} pools of 2 selectors each\n", large::DEVICES, large::POOLS);
    for (name, value) in [
        ("file-system calls of a scan, a device", format!("{:.1}", calls as f64 / large::DEVICES as f64)),
        ("start to all lists", median(|round| round.start)),
        ("kubelet back to all pools registered and listed", median(|round| round.back)),
        ("SIGTERM to exit", median(|round| round.exit)),
        ("Allocate of 8 vfio devices, files new: p50 / p99", idle.first.clone()),
        ("Allocate of 8 vfio devices, files there: p50 / p99", idle.again.clone()),
        ("wake-ups a minute, idle", idle.wake_ups.to_string()),
        ("processor time a minute, idle", milliseconds(idle.processor)),
        ("resident memory after all lists", last.memory.clone()),
        ("resident memory after all of this", idle.memory.clone()),
        ("most resident memory ever", idle.peak.clone()),
        ("threads, idle", idle.threads.clone()),
    ] {
        println!("{name:<52} {value}");
    }
}

/// One life of the plugin.
struct Round {
    start: Duration,
    back: Duration,
    exit: Duration,
    memory: String,
    idle: Option<Long>,
}

/// What is measured in one life only.
struct Long {
    first: String,
    again: String,
    wake_ups: u64,
    processor: Duration,
    memory: String,
    peak: String,
    threads: String,
}

async fn measure_round(binary: &Path, host: &HostRoot, long: bool) -> Round {
    // Sockets and files lie in memory on a node too.
    let memory = if Path::new("/dev/shm").is_dir() { "/dev/shm" } else { "/tmp" };
    let place = tempfile::tempdir_in(memory).unwrap();
    let config = place.path().join("config.json");
    fs::write(&config, large::config_text()).unwrap();
    let sockets = place.path().join("device-plugins");
    fs::create_dir(&sockets).unwrap();
    let files = place.path().join("devinfo");
    let mut kubelet = StandIn::start(&sockets).await.unwrap();

    let started = Instant::now();
    let mut plugin = Plugin::start(binary, &config, host.path(), &sockets, &files);
    let start = all_listed(&kubelet, started).await - started;
    let memory = plugin.status("VmRSS");
    let idle = match long {
        true => Some(plugin.live_long(&kubelet, &sockets, &files).await),
        false => None,
    };

    kubelet.stop().await;
    tokio::time::sleep(AWAY).await;
    let returned = Instant::now();
    kubelet.restart().await.unwrap();
    let back = all_listed(&kubelet, returned).await - returned;
    let exit = plugin.end().await;
    Round { start, back, exit, memory, idle }
}

/// When the last pool had told its devices.
async fn all_listed(kubelet: &StandIn, since: Instant) -> Instant {
    let mut last = since;
    let listed = |state: &State| {
        let lists = state.resources.values().filter_map(|resource| {
            let list = resource.lists.last().filter(|list| list.at > since && !list.devices.is_empty());
            list.filter(|_| resource.connected)
        });
        let lists: Vec<_> = lists.collect();
        last = lists.iter().map(|list| list.at).max().unwrap_or(since);
        lists.len() == large::POOLS
    };
    let state = kubelet.eventually("every pool has told its devices", listed).await.unwrap();
    let devices: usize = state.resources.keys().map(|resource| state.allocatable(resource)).sum();
    assert_eq!(devices, large::DEVICES);
    last
}

/// The process.
struct Plugin(Child);

impl Plugin {
    fn start(binary: &Path, config: &Path, host: &Path, sockets: &Path, files: &Path) -> Self {
        let mut command = Command::new(binary);
        command.arg("run").arg("--config-file").arg(config).arg("--host-root").arg(host);
        command.arg("--device-plugin-dir").arg(sockets).arg("--device-info-dir").arg(files);
        Self(command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap())
    }

    fn directory(&self) -> PathBuf {
        PathBuf::from(format!("/proc/{}", self.0.id()))
    }

    fn status(&self, key: &str) -> String {
        field(&self.directory().join("status"), key).unwrap()
    }

    async fn live_long(&self, kubelet: &StandIn, sockets: &Path, files: &Path) -> Long {
        let state = kubelet.state();
        let resource = state.resource("intel.com/pool_00");
        let socket = sockets.join(&resource.registrations.last().unwrap().request.endpoint);
        let mut client = DevicePluginClient::new(Connection::open(&socket).await.unwrap());
        // Functions for guests are the odd ones.
        let ids: Vec<String> = resource.devices().iter().map(|device| device.id.clone()).collect();
        let ids: Vec<String> = ids.into_iter().skip(1).step_by(2).collect();
        let ids = ids[..8].to_vec();
        let mut first = Vec::new();
        let mut again = Vec::new();
        for _ in 0..CALLS {
            // It is not there before the first call.
            let _ = fs::remove_dir_all(files);
            first.push(allocate(&mut client, &ids).await);
        }
        for _ in 0..CALLS {
            again.push(allocate(&mut client, &ids).await);
        }
        drop(client);
        tokio::time::sleep(SETTLED).await;
        let (switches, processor) = (self.switches(), self.processor());
        tokio::time::sleep(IDLE).await;
        let woken = self
            .switches()
            .into_iter()
            .map(|(thread, count)| count.saturating_sub(switches.get(&thread).copied().unwrap_or_default()));
        Long {
            first: percentiles(first),
            again: percentiles(again),
            wake_ups: woken.sum(),
            processor: self.processor().saturating_sub(processor),
            memory: self.status("VmRSS"),
            peak: self.status("VmHWM"),
            threads: self.status("Threads"),
        }
    }

    /// How often each thread waited for something: one that was only put aside for another was not woken.
    fn switches(&self) -> HashMap<String, u64> {
        let threads = fs::read_dir(self.directory().join("task")).unwrap();
        let count = |thread: fs::DirEntry| {
            let of = |key| field(&thread.path().join("status"), key)?.parse::<u64>().ok();
            let name = thread.file_name().to_string_lossy().into_owned();
            Some((name, of("voluntary_ctxt_switches")?))
        };
        threads.flatten().filter_map(count).collect()
    }

    /// In user and kernel mode, in hundredths of a second as the kernel counts.
    fn processor(&self) -> Duration {
        let text = fs::read_to_string(self.directory().join("stat")).unwrap();
        // `proc(5)`: the name in brackets may hold spaces; user and system time are the 12th and 13th after it.
        let after_name = text.rsplit_once(')').unwrap().1;
        let ticks = after_name.split_whitespace().skip(11).take(2).map(|ticks| ticks.parse::<u64>().unwrap());
        Duration::from_millis(ticks.sum::<u64>() * 10)
    }

    /// The kubelet lives in this process, and has to be able to hang up.
    async fn end(&mut self) -> Duration {
        let asked = Instant::now();
        kill(Pid::from_raw(self.0.id() as i32), Signal::SIGTERM).unwrap();
        loop {
            if let Some(status) = self.0.try_wait().unwrap() {
                assert!(status.success());
                return asked.elapsed();
            }
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }
}

impl Drop for Plugin {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

async fn allocate(client: &mut DevicePluginClient<Connection>, ids: &[String]) -> Duration {
    let container = api::ContainerAllocateRequest { devices_ids: ids.to_vec() };
    let request = api::AllocateRequest { container_requests: vec![container] };
    let asked = Instant::now();
    let answer = client.allocate(request).await.unwrap().into_inner();
    let took = asked.elapsed();
    // Each has a group of its own, and all share one node.
    assert_eq!(answer.container_responses[0].devices.len(), ids.len() + 1);
    took
}

/// A line of a `status` file.
fn field(status: &Path, key: &str) -> Option<String> {
    let text = fs::read_to_string(status).ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(':'))?;
    Some(line.trim().to_owned())
}

fn percentiles(mut times: Vec<Duration>) -> String {
    times.sort();
    format!("{} / {}", milliseconds(times[CALLS / 2]), milliseconds(times[CALLS * 99 / 100]))
}

fn milliseconds(time: Duration) -> String {
    format!("{:.2} ms", time.as_secs_f64() * 1000.0)
}
