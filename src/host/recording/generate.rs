//! Makes up large hosts, for benchmarks and demonstrations. No such machine was recorded.

use super::{Answers, Entry, EntryError, Node, RecordedLink, RecordedRoute, Recording};
use crate::host::{DeviceNumber, NodeKind};

/// Major number of VFIO groups; dynamic on a real machine.
const VFIO_MAJOR: u64 = 511;

/// A two-socket machine with `pfs` adapters like Intel's E810 (8086:1592), each on a bus of its own with `vfs` virtual
/// functions (8086:1889): alternately on `iavf` with a network interface, and on `vfio-pci` with the node of its IOMMU
/// group. NUMA nodes alternate from adapter to adapter. An interface that is no adapter (`eno1`) carries the default
/// route.
///
/// Of 8 adapters with 127 functions each one can make 1016 devices. There are at most 200 adapters and 255 functions.
///
/// # Errors
/// None for sensible numbers: two entries at one path.
pub fn many_vfs(pfs: u8, vfs: u8) -> Result<Recording, EntryError> {
    let mut host = Made::default();
    host.recording.set_header([
        "Made up: a large two-socket server with E810-like adapters.",
        "No such machine was recorded; identifiers and forms are those of the kernel.",
    ]);
    host.node("/dev/vfio/vfio", 10, 196, 0o666)?;
    host.management()?;
    for pf in 0..pfs.min(200) {
        host.adapter(pf, vfs)?;
    }
    host.recording.set_answers(Some(host.answers));
    Ok(host.recording)
}

#[derive(Default)]
struct Made {
    recording: Recording,
    answers: Answers,
    groups: u64,
}

/// One function to make.
struct Function<'a> {
    /// The bridge that it lies below.
    bridge: &'a str,
    address: &'a str,
    device: &'a str,
    driver: &'a str,
    numa: u8,
}

impl Made {
    fn management(&mut self) -> Result<(), EntryError> {
        let directory = self.function(&Function {
            bridge: "pci0000:00/0000:00:1c.0",
            address: "0000:02:00.0",
            device: "0x1533",
            driver: "igb",
            numa: 0,
        })?;
        self.interface(&directory, "0000:02:00.0", "eno1")?;
        self.answers.routes.push(RecordedRoute {
            interfaces: vec!["eno1".to_owned()],
            protocol: 16,
            metric: 100,
            ..RecordedRoute::default()
        });
        Ok(())
    }

    fn adapter(&mut self, pf: u8, vfs: u8) -> Result<(), EntryError> {
        let bus = 0x17 + pf;
        let bridge = format!("pci0000:{:02x}/0000:{:02x}:00.0", bus - 1, bus - 1);
        let address = format!("0000:{bus:02x}:00.0");
        let numa = pf % 2;
        let directory = self.function(&Function {
            bridge: &bridge,
            address: &address,
            device: "0x1592",
            driver: "ice",
            numa,
        })?;
        self.interface(&directory, &address, &format!("ens{}f0", u16::from(pf) + 1))?;
        self.file(&directory, "sriov_totalvfs", "256")?;
        self.file(&directory, "sriov_numvfs", &vfs.to_string())?;
        for vf in 0..vfs {
            // The first function of the adapter is the PF itself; with ARI, a bus has 256 of them.
            let function = vf + 1;
            let vf_address = format!("0000:{bus:02x}:{:02x}.{}", function >> 3, function & 7);
            let for_guests = vf % 2 == 1;
            let vf_directory = self.function(&Function {
                bridge: &bridge,
                address: &vf_address,
                device: "0x1889",
                driver: if for_guests { "vfio-pci" } else { "iavf" },
                numa,
            })?;
            self.link(&directory, &format!("virtfn{vf}"), &format!("../{vf_address}"))?;
            self.link(&vf_directory, "physfn", &format!("../{address}"))?;
            if for_guests {
                let group = self.groups;
                self.node(&format!("/dev/vfio/{group}"), VFIO_MAJOR, group, 0o600)?;
            } else {
                let name = format!("ens{}f0v{vf}", u16::from(pf) + 1);
                self.interface(&vf_directory, &vf_address, &name)?;
            }
        }
        Ok(())
    }

    /// Makes a function with an IOMMU group of its own, and answers with its directory.
    fn function(&mut self, function: &Function<'_>) -> Result<String, EntryError> {
        let address = function.address;
        let below = format!("devices/{}/{address}", function.bridge);
        let directory = format!("/sys/{below}");
        self.groups += 1;
        let group = self.groups;
        for (name, text) in [
            ("vendor", "0x8086"),
            ("device", function.device),
            ("class", "0x020000"),
            ("revision", "0x02"),
            ("subsystem_vendor", "0x8086"),
            ("subsystem_device", "0x0000"),
            ("numa_node", &function.numa.to_string()),
            ("driver_override", "(null)"),
        ] {
            self.file(&directory, name, text)?;
        }
        let up = "../../../..";
        self.link(&directory, "driver", &format!("{up}/bus/pci/drivers/{}", function.driver))?;
        self.link(&directory, "iommu_group", &format!("{up}/kernel/iommu_groups/{group}"))?;
        self.link("/sys/bus/pci/devices", address, &format!("../../../{below}"))?;
        let group = format!("/sys/kernel/iommu_groups/{group}");
        self.file(&group, "type", "DMA-FQ")?;
        self.link(&format!("{group}/devices"), address, &format!("../../../../{below}"))?;
        Ok(directory)
    }

    fn interface(&mut self, function: &str, address: &str, name: &str) -> Result<(), EntryError> {
        let index = self.answers.links.len() as u32 + 2;
        let directory = format!("{function}/net/{name}");
        for (file, text) in [
            ("ifindex", index.to_string().as_str()),
            ("type", "1"),
            ("flags", "0x1003"),
            ("operstate", "up"),
            ("carrier", "1"),
            ("dev_port", "0"),
        ] {
            self.file(&directory, file, text)?;
        }
        self.link(&directory, "device", &format!("../../../{address}"))?;
        let target = format!("../../{}", directory.trim_start_matches("/sys/"));
        self.link("/sys/class/net", name, &target)?;
        self.answers.links.push(RecordedLink {
            index,
            name: name.to_owned(),
            up: true,
            carrier: Some(true),
            ..RecordedLink::default()
        });
        Ok(())
    }

    fn file(&mut self, directory: &str, name: &str, text: &str) -> Result<(), EntryError> {
        let content = Entry::File(format!("{text}\n"));
        self.recording.insert(&format!("{directory}/{name}"), content)
    }

    fn link(&mut self, directory: &str, name: &str, target: &str) -> Result<(), EntryError> {
        let link = Entry::Link(target.to_owned());
        self.recording.insert(&format!("{directory}/{name}"), link)
    }

    fn node(&mut self, path: &str, major: u64, minor: u64, mode: u32) -> Result<(), EntryError> {
        let kind = NodeKind::Char;
        let number = DeviceNumber { kind, major, minor };
        self.recording.insert(path, Entry::Node(Node { number, mode }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::recording::{SnapshotOptions, record};

    #[test]
    fn a_made_up_host_of_a_thousand_functions_is_a_recording_like_any_other() {
        let made = many_vfs(8, 127).unwrap();
        let host = made.lay_out().unwrap();
        assert_eq!(host.list("/sys/bus/pci/devices").unwrap().len(), 1 + 8 * 128);
        assert_eq!(host.list("/dev/vfio").unwrap().len(), 1 + 8 * 63);
        let mut again = record(&host, SnapshotOptions::default());
        again.set_header(made.header().iter().map(String::as_str).collect::<Vec<_>>());
        assert!(again == made, "something was lost");
        assert_eq!(Recording::parse(&made.to_string()).unwrap(), made);
        assert!(many_vfs(200, 1).is_ok() && many_vfs(1, 255).is_ok());
    }
}
