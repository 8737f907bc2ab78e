//! The real program under random faults. `PCIDP_CHAOS=SEED:FAULTS` plays another round; the seed is printed on a failure.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use pcidp::host::HostRoot;
use pcidp::kubelet::stand_in::{StandIn, State};

use crate::machine::{plug, unplug};
use crate::node::host;

const PARENT: &str = "pci0000:16/0000:16:00.0";
/// VF 0 to 7 of `ens1f0np0`, by index.
const FUNCTIONS: usize = 8;
/// The configs that are swapped: pools with the VFs that they take.
const CONFIGS: [&[(&str, std::ops::RangeInclusive<usize>)]; 3] = [
    &[("a", 0..=3), ("b", 4..=7)],
    &[("a", 0..=1), ("b", 4..=7), ("c", 2..=3)],
    &[("b", 2..=7), ("c", 0..=1)],
];
const FAULTS: u64 = 11;

/// Numbers that only look random (Marsaglia's xorshift).
struct Dice(u64);

impl Dice {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % limit
    }
}

struct World {
    host: HostRoot,
    place: tempfile::TempDir,
    kubelet: StandIn,
    plugin: Child,
    config: usize,
    there: BTreeSet<usize>,
    deaf: bool,
    slowest: Duration,
}

impl Drop for World {
    fn drop(&mut self) {
        let _ = self.plugin.kill();
        let _ = self.plugin.wait();
    }
}

fn address(index: usize) -> String {
    format!("0000:17:01.{index}")
}

fn text(config: usize) -> String {
    let pool = |(name, range): &(&str, std::ops::RangeInclusive<usize>)| {
        format!(
            r#"{{"resourceName":"{name}","settle":"0s","selectors":{{"pfNames":["ens1f0np0#{}-{}"]}}}}"#,
            range.start(),
            range.end()
        )
    };
    let pools: Vec<String> = CONFIGS[config].iter().map(pool).collect();
    format!(r#"{{"resourceList":[{}]}}"#, pools.join(","))
}

impl World {
    async fn start() -> Self {
        let host = host("two-socket");
        let place = tempfile::tempdir().unwrap();
        let sockets = place.path().join("sockets");
        fs::create_dir(&sockets).unwrap();
        let kubelet = StandIn::start(&sockets).await.unwrap();
        let config = place.path().join("config.json");
        fs::write(&config, text(0)).unwrap();
        let log = fs::File::create(place.path().join("log")).unwrap();
        let plugin = Command::new(env!("CARGO_BIN_EXE_pcidp"))
            .args(["run", "--resource-prefix", "x.io", "--log-level", "debug"])
            .arg("--config-file")
            .arg(&config)
            .arg("--host-root")
            .arg(host.path())
            .arg("--device-plugin-dir")
            .arg(&sockets)
            .arg("--device-info-dir")
            .arg(place.path().join("devinfo"))
            .stdin(Stdio::null())
            .stderr(log)
            .spawn()
            .unwrap();
        // A hang-up would end a program that has not come as far as to wait for it.
        let is_up = |state: &State| state.allocatable("x.io/a") > 0;
        kubelet.eventually("the plugin is up", is_up).await.unwrap();
        let there = (0..FUNCTIONS).collect();
        Self { host, place, kubelet, plugin, config: 0, there, deaf: false, slowest: Duration::ZERO }
    }

    fn signal(&self, signal: Signal) {
        kill(Pid::from_raw(self.plugin.id().try_into().unwrap()), signal).unwrap();
    }

    fn swap(&self, text: &str) {
        let new = self.place.path().join("new.json");
        fs::write(&new, text).unwrap();
        fs::rename(new, self.place.path().join("config.json")).unwrap();
    }

    async fn fault(&mut self, dice: &mut Dice) {
        let pools = CONFIGS[self.config];
        let pool = format!("x.io/{}", pools[dice.below(pools.len() as u64) as usize].0);
        match dice.below(FAULTS) {
            0 => self.kubelet.restart().await.unwrap(),
            1 => {
                self.kubelet.restart().await.unwrap();
                self.kubelet.restart().await.unwrap();
            }
            2 => self.kubelet.stop().await,
            3 => self.kubelet.refuse(Some("no")),
            4 => self.kubelet.refuse(None),
            5 => {
                self.kubelet.ignore_streams(true);
                self.deaf = true;
            }
            6 => self.kubelet.drop_stream(&pool),
            7 => {
                self.config = dice.below(CONFIGS.len() as u64) as usize;
                self.swap(&text(self.config));
            }
            8 => self.swap("{ this is none"),
            9 => {
                let index = dice.below(FUNCTIONS as u64) as usize;
                match self.there.remove(&index) {
                    true => unplug(&self.host, &address(index)),
                    false => {
                        plug(&self.host, &address(index), PARENT);
                        self.there.insert(index);
                    }
                }
                self.signal(Signal::SIGHUP);
            }
            _ => {
                let name = pool.replace('/', "_");
                let ours = |path: &PathBuf| {
                    path.file_name().unwrap().to_str().unwrap().starts_with(&format!("{name}-"))
                };
                let entries = fs::read_dir(self.place.path().join("sockets")).unwrap();
                for path in entries.map(|entry| entry.unwrap().path()).filter(ours) {
                    let _ = fs::remove_file(path);
                }
            }
        }
    }

    /// All is well again, and every pool has to stream the right list.
    async fn calm(&mut self, seed: u64) {
        self.kubelet.refuse(None);
        self.kubelet.ignore_streams(false);
        self.swap(&text(self.config));
        self.kubelet.restart().await.unwrap();
        self.deaf = false;
        self.signal(Signal::SIGHUP);
        let from = Instant::now();
        let expected: Vec<(String, Vec<String>)> = CONFIGS[self.config]
            .iter()
            .map(|(name, range)| {
                let ids = self.there.iter().filter(|index| range.contains(index));
                (format!("x.io/{name}"), ids.map(|&index| address(index)).collect())
            })
            .collect();
        let is_right = |state: &State| {
            expected.iter().all(|(name, ids)| {
                let resource = state.resource(name);
                let listed: Vec<&String> = resource.devices().iter().map(|device| &device.id).collect();
                // A pool that never had a device is not registered.
                listed.iter().copied().eq(ids) && (resource.connected || ids.is_empty())
            })
        };
        let seen = self.kubelet.eventually("every pool streams the right list", is_right).await;
        if let Err(error) = seen {
            let log = fs::read_to_string(self.place.path().join("log")).unwrap();
            let tail: Vec<&str> = log.lines().rev().take(60).collect();
            let tail: Vec<&str> = tail.into_iter().rev().collect();
            panic!("seed {seed}, config {}: {error}\n{}", self.config, tail.join("\n"));
        }
        self.slowest = self.slowest.max(from.elapsed());
        assert!(self.plugin.try_wait().unwrap().is_none(), "seed {seed}: the plugin has ended");
    }

    fn count(&self, what: &str) -> usize {
        fs::read_dir(Path::new("/proc").join(self.plugin.id().to_string()).join(what)).unwrap().count()
    }

    /// Waits until the plugin has no more descriptors than at the start.
    async fn comes_to_rest(&self, descriptors: usize, seed: u64) {
        let rest = async {
            while self.count("fd") > descriptors {
                tokio::task::yield_now().await;
            }
        };
        let patience = Duration::from_secs(15);
        if tokio::time::timeout(patience, rest).await.is_err() {
            panic!("seed {seed}: {} descriptors are open, and were {descriptors}", self.count("fd"));
        }
        // Threads that wait for a scan end after some seconds.
        assert!(self.count("task") <= 12, "seed {seed}: {} threads", self.count("task"));
    }
}

async fn play(seed: u64, faults: u64) -> Duration {
    let mut world = World::start().await;
    let mut dice = Dice(seed | 1);
    world.calm(seed).await;
    // With the most sockets that a config has.
    world.config = 1;
    world.calm(seed).await;
    let descriptors = world.count("fd");
    for fault in 1..=faults {
        world.fault(&mut dice).await;
        if fault % 10 == 0 {
            world.calm(seed).await;
        }
    }
    world.calm(seed).await;
    world.comes_to_rest(descriptors, seed).await;
    world.signal(Signal::SIGTERM);
    let from = Instant::now();
    while world.plugin.try_wait().unwrap().is_none() {
        assert!(from.elapsed() < Duration::from_secs(20), "seed {seed}: it does not end");
        tokio::task::yield_now().await;
    }
    world.slowest
}

// REG-01, REG-02, REG-04, REG-05, RLD-01, RLD-02, RLD-03
#[tokio::test]
async fn after_any_faults_every_pool_streams_the_right_list() {
    let rounds: Vec<(u64, u64)> = match std::env::var("PCIDP_CHAOS") {
        Ok(text) => {
            let (seed, faults) = text.split_once(':').expect("PCIDP_CHAOS=SEED:FAULTS");
            vec![(seed.parse().unwrap(), faults.parse().unwrap())]
        }
        Err(_) => vec![(1, 30), (20_261, 30)],
    };
    for (seed, faults) in rounds {
        let slowest = play(seed, faults).await;
        println!("seed {seed}: {faults} faults; the slowest calm took {slowest:?}");
    }
}
