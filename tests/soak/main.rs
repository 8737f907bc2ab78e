//! The real program under many restarts of the kubelet and many new configs: what it takes of the machine stays what it
//! was. `PCIDP_SOAK=RESTARTS:RELOADS` says how many; the gate plays 1,000 and 10,000.
#![expect(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]
#![expect(clippy::print_stdout, reason = "what was measured is for people")]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use pcidp::host::HostRoot;
use pcidp::kubelet::stand_in::{PATIENCE, StandIn, State};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;

/// The configs that take turns: pools with the VFs of `ens1f0np0` that they take. One pool stays as it is, one changes.
const CONFIGS: [&[(&str, usize, usize)]; 2] =
    [&[("stays", 0, 1), ("changes", 2, 6)], &[("stays", 0, 1), ("changes", 2, 4)]];
/// Now and then a pool comes, and goes with the next config: the kubelet is told first, which takes a second.
const ONE_MORE: &[(&str, usize, usize)] = &[("stays", 0, 1), ("changes", 2, 4), ("comes", 5, 7)];
const SELDOM: usize = 100;
/// How often it is measured.
const TENTHS: usize = 10;
/// Memory that may have come since the first tenth, when every buffer had its first use: 1 MiB.
const MORE_MEMORY: u64 = 1024;

#[derive(Debug, Clone, Copy)]
struct Taken {
    /// KiB.
    memory: u64,
    threads: usize,
    descriptors: usize,
}

struct World {
    kubelet: StandIn,
    plugin: Child,
    place: tempfile::TempDir,
    /// How many reloads there were.
    reloads: usize,
    _host: HostRoot,
}

impl Drop for World {
    fn drop(&mut self) {
        let _ = self.plugin.kill();
        let _ = self.plugin.wait();
    }
}

fn pools(reloads: usize) -> &'static [(&'static str, usize, usize)] {
    if reloads % SELDOM == SELDOM - 1 { ONE_MORE } else { CONFIGS[reloads % CONFIGS.len()] }
}

fn text(reloads: usize) -> String {
    let pool = |(name, first, last): &(&str, usize, usize)| {
        format!(
            r#"{{"resourceName":"{name}","settle":"0s","selectors":{{"pfNames":["ens1f0np0#{first}-{last}"]}}}}"#
        )
    };
    let pools: Vec<String> = pools(reloads).iter().map(pool).collect();
    format!(r#"{{"resourceList":[{}]}}"#, pools.join(","))
}

impl World {
    async fn start() -> Self {
        let host = Path::new(env!("CARGO_MANIFEST_DIR")).join("testdata/hosts/two-socket.host");
        let host = HostRoot::open(&host).unwrap();
        let place = tempfile::tempdir().unwrap();
        let sockets = place.path().join("sockets");
        fs::create_dir(&sockets).unwrap();
        let kubelet = StandIn::start(&sockets).await.unwrap();
        fs::write(place.path().join("config.json"), text(0)).unwrap();
        let plugin = Command::new(env!("CARGO_BIN_EXE_pcidp"))
            .args(["run", "--resource-prefix", "x.io", "--config-file"])
            .arg(place.path().join("config.json"))
            .arg("--host-root")
            .arg(host.path())
            .arg("--device-plugin-dir")
            .arg(&sockets)
            .arg("--device-info-dir")
            .arg(place.path().join("devinfo"))
            .stdin(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let world = Self { kubelet, plugin, place, reloads: 0, _host: host };
        world.is_served().await;
        world
    }

    /// Waits until every pool of the config is served, and no other.
    async fn is_served(&self) {
        let pools = pools(self.reloads);
        let is_served = |state: &State| {
            let connected = state.resources.values().filter(|resource| resource.connected).count();
            let has_all = |(name, first, last): &(&str, usize, usize)| {
                state.allocatable(&format!("x.io/{name}")) == last - first + 1
            };
            connected == pools.len() && pools.iter().all(has_all)
        };
        // `StandIn::eventually` would copy a history that grows all the time.
        let mut states = self.kubelet.subscribe();
        let seen = tokio::time::timeout(PATIENCE, states.wait_for(is_served)).await;
        assert!(seen.is_ok_and(|seen| seen.is_ok()), "reload {}: not every pool is served", self.reloads);
    }

    async fn reload(&mut self) {
        self.reloads += 1;
        let new = self.place.path().join("new.json");
        fs::write(&new, text(self.reloads)).unwrap();
        fs::rename(new, self.place.path().join("config.json")).unwrap();
        self.is_served().await;
    }

    async fn restart_kubelet(&mut self) {
        self.kubelet.restart().await.unwrap();
        self.is_served().await;
    }

    fn process(&self, name: &str) -> PathBuf {
        Path::new("/proc").join(self.plugin.id().to_string()).join(name)
    }

    fn taken(&self) -> Taken {
        let status = fs::read_to_string(self.process("status")).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
        let count = |what: &str| fs::read_dir(self.process(what)).unwrap().count();
        Taken {
            memory: line.trim().trim_end_matches(" kB").parse().unwrap(),
            threads: count("task"),
            descriptors: count("fd"),
        }
    }

    /// The same, once connections that are ending have ended.
    async fn taken_at_rest(&self, descriptors: usize) -> Taken {
        let rest = async {
            while self.taken().descriptors > descriptors {
                tokio::task::yield_now().await;
            }
        };
        let _ = tokio::time::timeout(Duration::from_secs(10), rest).await;
        self.taken()
    }

    /// A metric of the plugin's, without labels or with these.
    async fn metric(&self, name: &str) -> usize {
        let entries = fs::read_dir(self.place.path().join("sockets/pcidp")).unwrap();
        let mut paths = entries.map(|entry| entry.unwrap().path());
        let socket =
            paths.find(|path| path.extension().is_some_and(|extension| extension == "sock")).unwrap();
        let mut stream = UnixStream::connect(socket).await.unwrap();
        let request = "GET /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        let value = answer.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        value.unwrap_or_else(|| panic!("{name} is not in {answer}")).parse().unwrap()
    }
}

fn tell(when: &str, taken: Taken) {
    let Taken { memory, threads, descriptors } = taken;
    println!("{when:<34} {memory:>6} KiB {threads:>3} threads {descriptors:>3} descriptors");
}

// SCL-05
#[tokio::test]
async fn what_it_takes_stays_the_same_over_restarts_and_reloads() {
    let wanted = std::env::var("PCIDP_SOAK").unwrap_or_else(|_| "20:200".to_owned());
    let (restarts, reloads) = wanted.split_once(':').expect("PCIDP_SOAK=RESTARTS:RELOADS");
    let [restarts, reloads] = [restarts, reloads].map(|number| number.parse::<usize>().unwrap());
    assert!(restarts >= TENTHS && reloads >= restarts, "at least {TENTHS} restarts, and a reload for each");
    let from = Instant::now();
    let mut world = World::start().await;
    world.reload().await;
    let start = world.taken();
    tell("at the start", start);
    let mut tenths = Vec::new();
    for tenth in 1..=TENTHS {
        let [until_restart, until_reload] = [restarts, reloads].map(|all| all * tenth / TENTHS);
        let first = restarts * (tenth - 1) / TENTHS;
        for restart in first + 1..=until_restart {
            world.restart_kubelet().await;
            // Reloads are spread over the restarts; the first one was above.
            while world.reloads - 1 < reloads * restart / restarts {
                world.reload().await;
            }
        }
        // Measured with the pools of the start.
        while pools(world.reloads).len() != pools(1).len() {
            world.reload().await;
        }
        let taken = world.taken_at_rest(start.descriptors).await;
        tell(&format!("{until_restart} restarts, {until_reload} reloads"), taken);
        tenths.push(taken);
    }
    println!("{:.0} s in all", from.elapsed().as_secs_f64());
    assert_eq!(world.metric("pcidp_kubelet_restarts_total").await, restarts);
    let applied = world.metric(r#"pcidp_config_reloads_total{outcome="applied"}"#).await;
    assert_eq!(applied, world.reloads, "each new config was one reload");
    let (first, last) = (tenths[0], tenths[TENTHS - 1]);
    assert!(last.memory <= first.memory + MORE_MEMORY, "memory grows: {first:?}, {last:?}");
    assert!(last.threads <= start.threads, "threads grow: {start:?}, {last:?}");
    assert!(last.descriptors <= start.descriptors, "descriptors grow: {start:?}, {last:?}");
    kill(Pid::from_raw(world.plugin.id().try_into().unwrap()), Signal::SIGTERM).unwrap();
    let ended = loop {
        match world.plugin.try_wait().unwrap() {
            Some(status) => break status,
            // The kubelet lives in this process, and has to be able to hang up.
            None => tokio::task::yield_now().await,
        }
    };
    assert!(ended.success());
}
