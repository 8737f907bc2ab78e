//! `pcidp demo`: the main job on a recorded host with a small kubelet, without hardware, cluster or privileges.

use std::io::Write;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{Notify, oneshot};

use super::args::DemoArguments;
use super::{ConfigFile, Failure, Outcome, devices, host, table};
use crate::daemon::{self, DeviceInfoDirectory};
use crate::host::HostRoot;
use crate::host::recording::Recording;
use crate::kubelet::api::deviceplugin::ContainerAllocateResponse;
use crate::kubelet::stand_in::StandIn;
use crate::model::{DeviceId, PciAddress};
use crate::observe::log;
use crate::pool::explain_device;

const HOST: &str = include_str!("../../testdata/hosts/demo.host");
const CONFIG: &str = include_str!("../../examples/demo.json");

/// What the demo asks for: one device each of two pools.
const WANTED: [&str; 2] = ["intel.com/sriov_vfio", "openfuyao.com/kae.hpre"];
/// Whose absence from every pool is explained.
const UPLINK: &str = "0000:17:00.0";
/// The device that is pulled away.
const PULLED: &str = "0000:17:11.3";

pub(super) fn demo(arguments: &DemoArguments, out: &mut dyn Write) -> Outcome {
    let level = if arguments.verbose {
        tracing::level_filters::LevelFilter::INFO
    } else {
        tracing::level_filters::LevelFilter::ERROR
    };
    log::init(level, log::Format::Text, None);
    let recording = Recording::parse(HOST)?;
    let root = recording.lay_out()?;
    let config =
        ConfigFile::parse("examples/demo.json".to_owned(), CONFIG.to_owned(), "intel.com").usable()?;

    writeln!(out, "1. A host (recorded, testdata/hosts/demo.host) and three pools (examples/demo.json)\n")?;
    let (inventory, pools) = host::look(&root, Some(&config));
    devices::print(&inventory, &pools, true, out)?;
    let uplink: PciAddress = UPLINK.parse()?;
    if let Some(device) = inventory.get(&DeviceId::from(uplink)) {
        let explanation = explain_device(&config.checked.config, &pools, device);
        writeln!(out, "{}", table::wrap(&format!("why:  {}", explanation.sentence), 6))?;
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(serve(&root, config, out))
}

async fn serve(root: &HostRoot, config: ConfigFile, out: &mut dyn Write) -> Outcome {
    let place = tempfile::tempdir()?;
    let files = place.path().join("devinfo");
    let kubelet = StandIn::start(place.path()).await?;
    let look_again = Arc::new(Notify::new());
    let options = daemon::Options {
        device_info: DeviceInfoDirectory::new(&files),
        scan_every: Duration::from_secs(3600),
        look_again: Arc::clone(&look_again),
        ..daemon::Options::new(root.clone(), config.checked.config, place.path())
    };
    let names: Vec<String> = options.config.pools.iter().map(|pool| pool.resource.to_string()).collect();
    let (stop, stopped) = oneshot::channel::<()>();
    let plugin = tokio::spawn(daemon::run(options, async {
        let _ = stopped.await;
    }));

    writeln!(out, "\n2. Each pool registers with a kubelet (a small one of our own, over real sockets)\n")?;
    let all = |state: &crate::kubelet::stand_in::State| names.iter().all(|name| state.allocatable(name) > 0);
    let state = kubelet.eventually("every pool is registered and has told its devices", all).await?;
    for name in &names {
        writeln!(out, "   {name:<24} {} devices", state.allocatable(name))?;
    }

    writeln!(out, "\n3. A container asks for one each of two pools, and gets")?;
    for resource in WANTED {
        let (ids, answer) = kubelet.allocate_n(resource, 1).await?;
        writeln!(out, "\n   {resource}: {}", ids.join(", "))?;
        print_answer(&answer, out)?;
    }
    writeln!(out)?;
    let mut written: Vec<_> = std::fs::read_dir(&files)?.collect::<Result<_, _>>()?;
    written.sort_by_key(std::fs::DirEntry::file_name);
    for file in written {
        writeln!(out, "   file {}", file.file_name().to_string_lossy())?;
        writeln!(out, "{}", table::fold(&format!("     {}", std::fs::read_to_string(file.path())?), 8))?;
    }

    writeln!(out, "\n4. {PULLED} is pulled away, and the kubelet is told")?;
    let resource = WANTED[0];
    pull(root, PULLED)?;
    look_again.notify_one();
    let gone = |state: &crate::kubelet::stand_in::State| {
        !state.resource(resource).devices().iter().any(|device| device.id == PULLED)
    };
    let state = kubelet.eventually("the device is gone from the list", gone).await?;
    let left: Vec<String> =
        state.resource(resource).devices().iter().map(|device| device.id.clone()).collect();
    writeln!(out, "\n   {resource} is now {}", left.join(", "))?;

    drop(stop);
    plugin.await??;
    Ok(())
}

fn print_answer(answer: &ContainerAllocateResponse, out: &mut dyn Write) -> Result<(), Failure> {
    let mut variables: Vec<_> = answer.envs.iter().collect();
    variables.sort();
    for (name, value) in variables {
        writeln!(out, "{}", table::fold(&format!("     {name}={value}"), 8))?;
    }
    for node in &answer.devices {
        writeln!(out, "     node {} as {} ({})", node.host_path, node.container_path, node.permissions)?;
    }
    Ok(())
}

/// What the kernel does when a function goes: its entry on the bus and the links to it are no more.
fn pull(root: &HostRoot, address: &str) -> std::io::Result<()> {
    let path = |path: &str| root.path().join(path.trim_start_matches('/'));
    let entry = path(&format!("/sys/bus/pci/devices/{address}"));
    std::fs::remove_dir_all(std::fs::canonicalize(&entry)?)?;
    std::fs::remove_file(entry)
}
