//! The machine, as root sees it from inside.

use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::thread;
use std::time::{Duration, Instant};

/// SR-IOV adapters, of driver igb. The first two have a NUMA node, 0 and 1.
pub(crate) const PF0: &str = "0000:21:00.0";
pub(crate) const PF1: &str = "0000:41:00.0";
pub(crate) const PF2: &str = "0000:01:00.0";
pub(crate) const ADAPTERS: [&str; 3] = [PF0, PF1, PF2];
/// An SR-IOV drive.
pub(crate) const DRIVE: &str = "0000:22:00.0";
/// Adapters without SR-IOV: e1000e, and virtio.
pub(crate) const PLAIN: &str = "0000:42:00.0";
pub(crate) const VIRTIO: &str = "0000:02:00.0";
/// Two functions in one IOMMU group; no driver is bound.
pub(crate) const SHARED: [&str; 2] = ["0000:04:01.0", "0000:04:02.0"];

const FUNCTIONS: &str = "/sys/bus/pci/devices";
/// QEMU's own monitor.
const MONITOR: &str = "/dev/ttyS1";
/// The program that is tested.
const PCIDP: &str = "/run/pcidp";
/// A slow computer emulates a slower one.
const PATIENCE: Duration = Duration::from_secs(60);

/// The machine did not do what a scenario needs: this is not the product's fault.
#[derive(Debug)]
pub(crate) struct Trouble(String);

impl Trouble {
    /// What the machine did not do.
    pub(crate) fn new(text: &str) -> Self {
        Self(text.to_owned())
    }
}

impl fmt::Display for Trouble {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Everything that a scenario does to the machine.
pub(crate) struct Machine(());

impl Machine {
    /// As after the boot: no VFs, own drivers, links down, no routes, no interfaces that somebody made.
    pub(crate) fn fresh() -> Result<Self, Trouble> {
        let machine = Self(());
        machine.plug_in()?;
        for line in fs::read_to_string("/proc/mounts").unwrap_or_default().lines() {
            if let Some(place) = line.split(' ').nth(1).filter(|place| place.starts_with("/sys/devices/")) {
                run("umount", &[place])?;
            }
        }
        for name in names("/sys/devices/virtual/net") {
            // A VLAN goes with the interface below it.
            if name != "lo" && Path::new("/sys/class/net").join(&name).exists() {
                machine.ip(&format!("link delete {name}"))?;
            }
        }
        for pf in [ADAPTERS.as_slice(), &[DRIVE]].concat() {
            if machine.attribute(pf, "sriov_numvfs").is_ok_and(|count| count != "0") {
                machine.write(pf, "sriov_numvfs", "0")?;
            }
            if machine.attribute(pf, "sriov_drivers_autoprobe").is_ok_and(|on| on != "1") {
                machine.write(pf, "sriov_drivers_autoprobe", "1")?;
            }
        }
        for address in names(FUNCTIONS) {
            if machine.attribute(&address, "driver_override")? != "(null)" {
                machine.probe(&address)?;
            }
        }
        for name in names("/sys/class/net") {
            if name != "lo" && Path::new("/sys/class/net").join(&name).is_dir() {
                machine.ip(&format!("link set {name} nomaster down"))?;
                machine.ip(&format!("address flush dev {name}"))?;
            }
        }
        // The first of them needs the second.
        for module in ["kaesim", "uacce", "pci_pf_stub", "bonding", "e1000"] {
            if Path::new("/sys/module").join(module).exists() {
                run("rmmod", &[module])?;
            }
        }
        Ok(machine)
    }

    /// Makes virtual functions, and gives their addresses.
    pub(crate) fn make_vfs(&self, pf: &str, count: usize) -> Result<Vec<String>, Trouble> {
        self.write(pf, "sriov_numvfs", &count.to_string())?;
        (0..count).map(|index| self.link(pf, &format!("virtfn{index}"))).collect()
    }

    /// Takes all virtual functions of an adapter away.
    pub(crate) fn remove_vfs(&self, pf: &str) -> Outcome {
        self.write(pf, "sriov_numvfs", "0")
    }

    /// Gives a function to a driver.
    pub(crate) fn bind(&self, address: &str, driver: &str) -> Outcome {
        self.unbind(address)?;
        self.write(address, "driver_override", driver)?;
        // It succeeds where the driver refuses, too.
        write("/sys/bus/pci/drivers_probe", address)?;
        match self.link(address, "driver") {
            Ok(bound) if bound == driver => Ok(()),
            other => Err(Trouble(format!("{address} is not bound to {driver}: {other:?}"))),
        }
    }

    /// Takes a function from its driver.
    pub(crate) fn unbind(&self, address: &str) -> Outcome {
        match function(address).join("driver").exists() {
            true => self.write(address, "driver/unbind", address),
            false => Ok(()),
        }
    }

    /// Lets the kernel choose a function's driver.
    pub(crate) fn probe(&self, address: &str) -> Outcome {
        self.unbind(address)?;
        self.write(address, "driver_override", "\n")?;
        write("/sys/bus/pci/drivers_probe", address)
    }

    /// An attribute of a function, trimmed.
    pub(crate) fn attribute(&self, address: &str, name: &str) -> Result<String, Trouble> {
        read(&function(address).join(name))
    }

    /// Writes an attribute of a function.
    pub(crate) fn write(&self, address: &str, name: &str, text: &str) -> Outcome {
        write(function(address).join(name), text)
    }

    /// The last part of where a link of a function leads: `iommu_group`, `driver`.
    pub(crate) fn link(&self, address: &str, name: &str) -> Result<String, Trouble> {
        let path = function(address).join(name);
        let target = fs::read_link(&path).map_err(|error| trouble(&path, error))?;
        Ok(target.file_name().unwrap_or_default().to_string_lossy().into_owned())
    }

    /// The name of a function's interface; it depends on who was probed first.
    pub(crate) fn netdev(&self, address: &str) -> Result<String, Trouble> {
        let directory = function(address);
        let mut places = vec![directory.join("net")];
        places.extend(
            names(&directory)
                .iter()
                .filter(|n| n.starts_with("virtio"))
                .map(|n| directory.join(n).join("net")),
        );
        let name = places.iter().find_map(|place| names(place).into_iter().next());
        name.ok_or_else(|| Trouble(format!("{address} has no interface")))
    }

    /// Sets a function's interface up, waits until it has a carrier, and gives its name.
    pub(crate) fn up(&self, address: &str) -> Result<String, Trouble> {
        let name = self.netdev(address)?;
        self.ip(&format!("link set {name} up"))?;
        self.carrier(&name)?;
        Ok(name)
    }

    /// Waits until an interface has a carrier.
    pub(crate) fn carrier(&self, netdev: &str) -> Outcome {
        let path = PathBuf::from(format!("/sys/class/net/{netdev}/carrier"));
        until(&format!("{netdev} has a carrier"), || read(&path).is_ok_and(|carrier| carrier == "1"))
    }

    /// Plugs the cable of an adapter in, or pulls it; `network` is its name in [`run`](run). Waits until the adapter sees it.
    pub(crate) fn cable(&self, address: &str, network: &str, is_in: bool) -> Outcome {
        // Unasked, a terminal sends back what it gets.
        self.run("stty", &format!("-F {MONITOR} raw -echo"))?;
        let set_link = format!(r#"{{"execute":"set_link","arguments":{{"name":"{network}","up":{is_in}}}}}"#);
        // No text has this byte: the monitor forgets what it has taken for the beginning of one.
        let mut told = b"\xff\n{\"execute\":\"qmp_capabilities\"}\n".to_vec();
        told.extend(format!("{set_link}\n").bytes());
        // What is answered, nobody reads: the adapter tells.
        fs::write(MONITOR, told).map_err(|error| trouble(Path::new(MONITOR), error))?;
        let wanted = if is_in { "1" } else { "0" };
        let path = PathBuf::from(format!("/sys/class/net/{}/carrier", self.netdev(address)?));
        until(&format!("a carrier of {wanted} at {address}"), || read(&path).is_ok_and(|seen| seen == wanted))
    }

    /// Takes a function out of the machine, with its virtual functions, as a hot-unplug does.
    pub(crate) fn unplug(&self, address: &str) -> Outcome {
        self.write(address, "remove", "1")
    }

    /// Finds what was unplugged again.
    pub(crate) fn plug_in(&self) -> Outcome {
        write("/sys/bus/pci/rescan", "1")
    }

    /// `ip WORDS…`.
    pub(crate) fn ip(&self, words: &str) -> Outcome {
        // By its path: the shell tools of the machine have one of their own.
        self.run("/sbin/ip", words)
    }

    /// An address of its own and a default route for an interface that is up.
    pub(crate) fn default_route(&self, netdev: &str) -> Outcome {
        self.ip(&format!("address add 192.0.2.2/24 dev {netdev}"))?;
        self.ip(&format!("route add default via 192.0.2.1 dev {netdev}"))
    }

    /// Loads a kernel module: `NAME [PARAMETER=VALUE…]`.
    pub(crate) fn load(&self, module: &str) -> Outcome {
        self.run("modprobe", module)
    }

    /// Changes a parameter of a loaded module.
    pub(crate) fn set_parameter(&self, module: &str, parameter: &str, value: &str) -> Outcome {
        write(format!("/sys/module/{module}/parameters/{parameter}"), value)
    }

    /// Gives a function other ids than the emulator's: mounts files over those of the kernel.
    pub(crate) fn disguise(&self, address: &str, vendor: &str, device: &str, class: &str) -> Outcome {
        for (name, text) in [("vendor", vendor), ("device", device), ("class", class)] {
            let file = format!("/tmp/{address}.{name}");
            write(&file, &format!("{text}\n"))?;
            let place = function(address).join(name);
            run("mount", &["--bind", &file, &place.to_string_lossy()])?;
        }
        Ok(())
    }

    /// The only name in a directory of a function.
    pub(crate) fn only(&self, address: &str, directory: &str) -> Result<String, Trouble> {
        let place = function(address).join(directory);
        let mut names = names(&place).into_iter();
        match (names.next(), names.next()) {
            (Some(name), None) => Ok(name),
            _ => Err(Trouble(format!("{} has not exactly one entry", place.display()))),
        }
    }

    /// `rmmod NAME`.
    pub(crate) fn unload(&self, module: &str) -> Outcome {
        run("rmmod", &[module]).map(drop)
    }

    /// Any other program, with words.
    pub(crate) fn run(&self, program: &str, words: &str) -> Outcome {
        run(program, &words.split_whitespace().collect::<Vec<_>>()).map(drop)
    }
}

type Outcome = Result<(), Trouble>;

/// What a command of the product prints; it must succeed.
pub(crate) fn pcidp(arguments: &[&str]) -> String {
    let output = Command::new(PCIDP).args(arguments).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "pcidp {arguments:?}: {}{text}{}", output.status, errors(&output));
    text
}

/// The product as a process.
pub(crate) fn pcidp_command() -> Command {
    Command::new(PCIDP)
}

/// Waits for something that the machine does by itself.
pub(crate) fn until(what: &str, mut condition: impl FnMut() -> bool) -> Outcome {
    let start = Instant::now();
    while !condition() {
        if start.elapsed() > PATIENCE {
            return Err(Trouble(format!("not seen within {PATIENCE:?}: {what}")));
        }
        thread::sleep(Duration::from_millis(50));
    }
    Ok(())
}

/// The names in a directory, sorted; none where it does not exist.
pub(crate) fn names(directory: impl AsRef<Path>) -> Vec<String> {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    let mut names: Vec<String> =
        entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    names
}

fn function(address: &str) -> PathBuf {
    Path::new(FUNCTIONS).join(address)
}

fn read(path: &Path) -> Result<String, Trouble> {
    let text = fs::read_to_string(path).map_err(|error| trouble(path, error))?;
    Ok(text.trim().to_owned())
}

/// Writes a file of the kernel's.
pub(crate) fn write(path: impl AsRef<Path>, text: &str) -> Outcome {
    let path = path.as_ref();
    fs::write(path, text).map_err(|error| Trouble(format!("{}: write {text:?}: {error}", path.display())))
}

fn run(program: &str, arguments: &[&str]) -> Result<String, Trouble> {
    let output =
        Command::new(program).args(arguments).output().map_err(|error| trouble(Path::new(program), error))?;
    match output.status.success() {
        true => Ok(String::from_utf8_lossy(&output.stdout).into_owned()),
        false => Err(Trouble(format!("{program} {arguments:?}: {} {}", output.status, errors(&output)))),
    }
}

fn errors(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn trouble(path: &Path, error: impl fmt::Display) -> Trouble {
    Trouble(format!("{}: {error}", path.display()))
}
