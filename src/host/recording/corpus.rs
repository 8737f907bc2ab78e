//! Tests over every recorded host in `testdata/hosts`.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Instant;

use super::{Entry, Recording, SnapshotOptions, from_unpacked, record};
use crate::host::HostRoot;

/// The hosts that were made from copies of a machine's `/sys`, and what they are.
const CONVERTED: [(&str, &str); 12] = [
    ("iommu-0-initial", "Three igb adapters, no virtual function yet."),
    ("iommu-1-igbvf-bound", "Four virtual functions on each of three igb adapters, all on igbvf."),
    (
        "iommu-2-mixed-vfio-uio",
        "Virtual functions on igbvf, vfio-pci and uio_pci_generic, of an NVMe drive too.\nOne IOMMU group holds several functions.",
    ),
    ("iommu-3-pf-stub", "Virtual functions below adapters on pci-pf-stub."),
    (
        "kae-0-hpre-vfs",
        "Kunpeng engines on the kernel's own uacce core: two HPRE, one with three virtual functions, a SEC and a ZIP.\nThe engines are simulated by functions of other devices.",
    ),
    ("noiommu-0-igbvf", "No IOMMU: virtual functions on igbvf."),
    ("noiommu-1-vfio", "No IOMMU: virtual functions on vfio-pci in its no-IOMMU mode."),
    ("soft-0-vdpa-rdma-virtual", "Software RDMA without a parent, vDPA with and without a PCI parent."),
    (
        "soft-1-rdma-pci-auxsf-netdevsim-mdev",
        "Software RDMA below PCI functions, simulated subfunctions, switchdev representors of\nnetdevsim, a mediated device.",
    ),
    (
        "two-socket",
        "Adapters and virtual functions of several makers in two sockets: RDMA, VFIO, UIO, wide PCI domains.",
    ),
    ("subfunctions", "Two ports of a BlueField with subfunctions and RDMA."),
    ("guest", "A virtual machine: functions without physfn, virtio, RDMA, VFIO, UIO."),
];
/// The last of them were written by hand.
const RECORDED_IN_QEMU: usize = 9;

fn directory() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("testdata/hosts")
}

fn each_host(mut check: impl FnMut(&str, &str, Recording)) {
    let mut count = 0;
    for entry in fs::read_dir(directory()).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_none_or(|extension| extension != "host") {
            continue;
        }
        let recording = Recording::open(&path).unwrap_or_else(|error| panic!("{error}"));
        let name = path.file_stem().unwrap().to_str().unwrap();
        check(name, &fs::read_to_string(&path).unwrap(), recording);
        count += 1;
    }
    assert!(count > CONVERTED.len(), "{count} hosts");
}

fn is_converted(name: &str) -> bool {
    CONVERTED.iter().any(|(converted, _)| *converted == name)
}

fn without_header(mut recording: Recording) -> Recording {
    recording.set_header([]);
    recording
}

#[test]
fn every_recorded_host_is_printed_as_it_is_stored() {
    each_host(|name, text, recording| {
        let printed = recording.to_string();
        if is_converted(name) {
            assert!(printed == text, "{name} is printed otherwise than it is stored");
        }
        // A host that was written by hand has comments between its entries.
        assert!(Recording::parse(&printed).unwrap() == recording, "{name}");
        assert!(!recording.header().is_empty(), "{name} does not say what it is");
    });
}

#[test]
fn recording_a_laid_out_host_again_loses_nothing() {
    each_host(|name, _, recording| {
        let host = recording.lay_out().unwrap();
        // Hosts that were written by hand have switch ids as the kernel makes them.
        let identities = !is_converted(name);
        let again = without_header(record(&host, SnapshotOptions { identities }));
        let before = without_header(recording);
        for (path, entry) in before.entries() {
            assert_eq!(again.get(path), Some(entry), "{name}: {path}");
        }
        for (path, entry) in again.entries() {
            assert_eq!(before.get(path), Some(entry), "{name}: {path} was added");
        }
        assert_eq!(again.answers(), before.answers(), "{name}");
    });
}

#[test]
fn every_link_of_a_recorded_host_leads_to_the_function_that_it_names() {
    each_host(|name, _, recording| {
        let host = recording.lay_out().unwrap();
        for (path, entry) in recording.entries() {
            let Entry::Link(target) = entry else { continue };
            let directory = path.rsplit_once('/').unwrap().0;
            let is_class = directory.starts_with("/sys/class/") || directory.starts_with("/sys/bus/");
            let is_relation =
                path.ends_with("/physfn") || path.contains("/virtfn") || path.ends_with("/device");
            // One is meant to dangle.
            let dangles = target.contains("0000:99:00.0");
            if (is_class || is_relation) && !dangles {
                assert!(host.list(path).is_ok(), "{name}: {path} -> {target} leads nowhere");
            }
        }
    });
}

#[test]
fn laying_out_a_thousand_files_takes_no_time_to_speak_of() {
    let recording = Recording::open(&directory().join("iommu-2-mixed-vfio-uio.host")).unwrap();
    let start = Instant::now();
    let _host = recording.lay_out().unwrap();
    // Usually less than 50 ms; a busy machine, or one that has only a disk, gets far longer.
    assert!(start.elapsed().as_millis() < 1000, "{:?}", start.elapsed());
}

#[test]
fn an_unpacked_copy_is_told_apart_by_its_side_files() {
    let copy = tempfile::tempdir().unwrap();
    let write = |path: &str, text: &str| {
        let place = copy.path().join(path);
        fs::create_dir_all(place.parent().unwrap()).unwrap();
        fs::write(place, text).unwrap();
    };
    assert!(from_unpacked(copy.path(), SnapshotOptions::default()).is_err());
    let net = "sys/devices/pci0000:00/0000:00:03.0/net/eth0";
    write(&format!("{net}/ifindex"), "2\n");
    write(&format!("{net}/flags"), "0x1003\n");
    write("sys/devices/pci0000:00/0000:00:03.0/vendor", "0x8086\n");
    fs::create_dir_all(copy.path().join("sys/bus/pci/devices")).unwrap();
    let link = copy.path().join("sys/bus/pci/devices/0000:00:03.0");
    std::os::unix::fs::symlink("../../../devices/pci0000:00/0000:00:03.0", link).unwrap();
    write("DEV-NODES", "d 0755 - /dev/vfio/\nc 0660 243:0 /dev/vfio/20\nb 0600 259:1 /dev/nvme0n1\n");
    write("READ-ERRORS", &format!("/{net}/carrier\tEINVAL\n/{net}/speed\tEINVAL\n"));
    write("netdevs", "eth0\n");
    let text = from_unpacked(copy.path(), SnapshotOptions::default()).unwrap().to_string();
    for line in [
        "/dev/vfio/\n  20 : char 243:0 0660\n",
        "  carrier ! EINVAL\n  flags = 0x1003\n  ifindex = 2\n",
        "[netlink]\n  link 2 eth0 up\n",
    ] {
        assert!(text.contains(line), "{text}");
    }
    assert!(!text.contains("nvme") && !text.contains("speed"), "{text}");
    write("nodes", "/dev/vfio/20 243\n");
    let error = from_unpacked(copy.path(), SnapshotOptions::default()).unwrap_err().to_string();
    assert!(error.contains("nodes:1: write `/dev/vfio/20 243 0`"), "{error}");
}

/// `PCIDP_UNPACKED=DIR cargo test --lib -- --ignored converts` writes what was written by hand as trees anew from
/// `DIR/NAME/sys`. The recordings of QEMU are kept equal to the machine by `tests/vm`.
#[test]
#[ignore = "needs unpacked copies of the machines"]
fn converts_unpacked_copies_into_recorded_hosts() {
    let copies = PathBuf::from(std::env::var("PCIDP_UNPACKED").unwrap());
    for (name, what) in CONVERTED.iter().skip(RECORDED_IN_QEMU) {
        let mut recording = from_unpacked(&copies.join(name), SnapshotOptions::default()).unwrap();
        recording.set_header([*what, "Written by hand, in the forms that the kernel has."]);
        fs::write(directory().join(format!("{name}.host")), recording.to_string()).unwrap();
    }
}

#[test]
fn a_recorded_host_opens_like_a_directory() {
    let host = HostRoot::open(&directory().join("guest.host")).unwrap();
    assert_eq!(host.list("/sys/bus/pci/devices").unwrap().len(), 5);
}
