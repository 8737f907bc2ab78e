//! What the README claims about speed, as criterion benches.

#![expect(clippy::unwrap_used, clippy::print_stdout, reason = "a bench prints, and may stop where it stands")]

use std::collections::BTreeMap;
use std::hint::black_box;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use criterion::{BatchSize, Criterion, criterion_group, criterion_main};
use pcidp::config::Config;
use pcidp::daemon::{DeviceInfoDirectory, Event, Outputs, PoolService, State, step};
use pcidp::host::{HostRoot, Wanted, scan};
use pcidp::kubelet::api::deviceplugin as api;
use pcidp::kubelet::api::deviceplugin::device_plugin_client::DevicePluginClient;
use pcidp::kubelet::{self, Advertised, Connection, DeviceList, OwnSocket};
use pcidp::model::Inventory;
use pcidp::pool::{Held, Pool, assign};
use tokio::runtime::{Builder, Runtime};
use tokio::sync::{mpsc, oneshot, watch};

mod large;

/// How many calls the percentiles come from.
const CALLS: usize = 2000;

criterion_group!(benches, check_config, scan_and_assign, list_update, allocate_8_vfio);
criterion_main!(benches);

fn check_config(criterion: &mut Criterion) {
    let text = large::config_text();
    criterion.bench_function("check_config", |bencher| bencher.iter(|| large::config(black_box(&text))));
}

fn scan_and_assign(criterion: &mut Criterion) {
    let (host, config) = node();
    let wanted = Wanted::of(&config);
    let before = host.calls();
    let inventory = scan(&host, &wanted);
    let calls = host.calls() - before;
    let pools = assign(&config, &inventory);
    assert_eq!(pools.pools.iter().map(|pool| pool.members.len()).sum::<usize>(), large::DEVICES);
    println!(
        "scan: {calls} file-system calls for {} devices, {:.1} a device",
        large::DEVICES,
        calls as f64 / large::DEVICES as f64
    );
    let mut group = criterion.benchmark_group("scan_and_assign");
    group.sample_size(30);
    group.bench_function("both", |bencher| bencher.iter(|| assign(&config, &scan(&host, &wanted))));
    group.bench_function("assign", |bencher| bencher.iter(|| assign(&config, black_box(&inventory))));
    group.finish();
}

/// One device of them all changes.
fn list_update(criterion: &mut Criterion) {
    let (host, config) = node();
    let inventory = scan(&host, &Wanted::of(&config));
    let inventories = [without_a_driver(&inventory), inventory];
    let mut group = criterion.benchmark_group("list_update");

    let look = |state, inventory| {
        let (state, _) = step(state, Event::Scanned(inventory), Duration::ZERO);
        step(state, Event::Held(Held::Known(BTreeMap::new())), Duration::ZERO)
    };
    let mut state = Some(look(State::new(config), inventories[0].clone()).0);
    let mut turn = 0;
    let mut next = || {
        turn += 1;
        inventories[turn % 2].clone()
    };
    group.bench_function("from_scan_to_list", |bencher| {
        bencher.iter_batched(
            &mut next,
            |inventory| {
                let (next, actions) = look(state.take().unwrap(), inventory);
                state = Some(next);
                assert!(!actions.is_empty());
            },
            BatchSize::PerIteration,
        );
    });

    let list = |healthy: bool| -> DeviceList {
        let advertise = |number: usize| Advertised {
            id: format!("0000:{:02x}:{:02x}.{}", number >> 8, number >> 3 & 31, number & 7),
            healthy: healthy || number != 500,
            numa_node: Some(0),
        };
        (0..large::DEVICES).map(advertise).collect()
    };
    let lists = [list(true), list(false)];
    let place = tempfile::tempdir().unwrap();
    let served =
        Served::start(place.path(), Pool::empty(&large::config(&large::config_text()).pools[0]), &host);
    let mut stream =
        served.runtime.block_on(served.client.clone().list_and_watch(api::Empty {})).unwrap().into_inner();
    served.runtime.block_on(stream.message()).unwrap().unwrap();
    group.bench_function("list_of_1016_over_a_socket", |bencher| {
        let mut turn = 0;
        bencher.iter(|| {
            turn += 1;
            served.list.send_replace(Arc::clone(&lists[turn % 2]));
            let list = served.runtime.block_on(stream.message()).unwrap().unwrap();
            assert_eq!(list.devices.len(), large::DEVICES);
        });
    });
    group.finish();
}

/// Over a connection that stays open, as the kubelet's does.
fn allocate_8_vfio(criterion: &mut Criterion) {
    let (host, config) = node();
    let pools = assign(&config, &scan(&host, &Wanted::of(&config)));
    let pool = pools.pools[0].clone();
    let vfio = pool.members.iter().filter(|member| member.device.vfio.is_some());
    let ids: Vec<String> = vfio.take(8).map(|member| member.device.id.to_string()).collect();
    assert_eq!(ids.len(), 8);
    let place = tempfile::tempdir_in(memory()).unwrap();
    let files = place.path().join("devinfo");
    let served = Served::start(place.path(), pool, &host);

    let mut group = criterion.benchmark_group("allocate_8_vfio");
    group.bench_function("again", |bencher| bencher.iter(|| served.allocate(&ids)));
    group.finish();
    percentiles("Allocate of 8, files there", || {}, || served.allocate(&ids));
    let remove = || std::fs::remove_dir_all(&files).unwrap();
    percentiles("Allocate of 8, files new", remove, || served.allocate(&ids));
}

fn node() -> (HostRoot, Config) {
    (large::recording().lay_out().unwrap(), large::config(&large::config_text()))
}

/// Where files are as cheap as in `/var/run`.
fn memory() -> &'static Path {
    Path::new(if Path::new("/dev/shm").is_dir() { "/dev/shm" } else { "/tmp" })
}

fn without_a_driver(inventory: &Inventory) -> Inventory {
    let mut devices: Vec<_> = inventory.devices().iter().map(|device| device.as_ref().clone()).collect();
    devices[500].driver = None;
    Inventory::new(devices, Vec::new())
}

fn percentiles(what: &str, prepare: impl Fn(), call: impl Fn()) {
    let one = |_| {
        prepare();
        let started = Instant::now();
        call();
        started.elapsed()
    };
    let mut times: Vec<Duration> = (0..CALLS).map(one).collect();
    times.sort();
    println!("{what}: p50 {:?}, p99 {:?} of {CALLS} calls", times[CALLS / 2], times[CALLS * 99 / 100]);
}

/// A pool on a real socket. Its server has a thread of its own, as it has a process of its own otherwise.
struct Served {
    runtime: Runtime,
    client: DevicePluginClient<Connection>,
    list: watch::Sender<DeviceList>,
    _stop: oneshot::Sender<()>,
}

impl Served {
    fn start(directory: &Path, pool: Pool, host: &HostRoot) -> Self {
        let files = DeviceInfoDirectory::new(directory.join("devinfo"));
        let service = Arc::new(PoolService::new(
            host.clone(),
            Outputs { device_info: files, cdi: None, kubelet: directory.to_owned(), views: None },
            pool,
        ));
        let list = watch::Sender::new(DeviceList::from([]));
        let lists = list.subscribe();
        let path = directory.join("pool.sock");
        let (stop, stopped) = oneshot::channel::<()>();
        let (ready, is_ready) = std::sync::mpsc::channel();
        let server = runtime();
        let at = path.clone();
        std::thread::spawn(move || {
            server.block_on(async {
                let (_socket, listener) = OwnSocket::bind(&at).unwrap();
                ready.send(()).unwrap();
                let (events, _received) = mpsc::unbounded_channel();
                kubelet::serve(listener, service, lists, events, async { drop(stopped.await) }).await;
            });
        });
        is_ready.recv().unwrap();
        let runtime = runtime();
        let client = DevicePluginClient::new(runtime.block_on(Connection::open(&path)).unwrap());
        Self { runtime, client, list, _stop: stop }
    }

    fn allocate(&self, ids: &[String]) {
        let container = api::ContainerAllocateRequest { devices_ids: ids.to_vec() };
        let request = api::AllocateRequest { container_requests: vec![container] };
        let answer = self.runtime.block_on(self.client.clone().allocate(request)).unwrap().into_inner();
        assert_eq!(answer.container_responses[0].devices.len(), 9);
    }
}

/// As in `pcidp run`.
fn runtime() -> Runtime {
    Builder::new_current_thread().enable_all().max_blocking_threads(4).build().unwrap()
}
