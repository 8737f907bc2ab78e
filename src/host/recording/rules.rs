//! Which files of a machine matter: one table for every kind of directory.

/// A kind of directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Place {
    /// A PCI function, or an auxiliary, virtio or vDPA device below one.
    Device,
    /// `net/`: a directory of network interfaces; and so on.
    Nets,
    Net,
    Rdmas,
    Rdma,
    Ports,
    Port,
    Pkeys,
    Uacces,
    Uacce,
    /// A directory of devices that have a device node and little else: `infiniband_verbs/`, `uio/`.
    Characters,
    Character,
    Groups,
    Group,
    GroupDevices,
    VfioParameters,
}

/// What to do with one name in a directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Take {
    Nothing,
    File,
    Link,
    Enter(Place),
}

/// Devices of class `misc` that a container may be given.
pub(super) const MISC: [&str; 5] = ["iommu", "rdma_cm", "tun", "vfio", "vhost-net"];

/// Decides over one name in a directory.
pub(super) fn take(place: Place, name: &str, identities: bool) -> Take {
    use Take::{Enter, File, Link, Nothing};
    match place {
        Place::Device => device(name),
        Place::Nets => Enter(Place::Net),
        Place::Net => match name {
            "address" if identities => File,
            "carrier" | "dev_id" | "dev_port" | "flags" | "ifindex" | "operstate" | "phys_port_name"
            | "phys_switch_id" | "type" => File,
            "device" | "master" => Link,
            _ if name.starts_with("lower_") || name.starts_with("upper_") => Link,
            _ => Nothing,
        },
        Place::Rdmas => Enter(Place::Rdma),
        Place::Rdma => match name {
            "node_guid" | "sys_image_guid" if identities => File,
            "node_type" => File,
            "ports" => Enter(Place::Ports),
            "device" => Link,
            _ => Nothing,
        },
        Place::Ports => Enter(Place::Port),
        Place::Port => match name {
            "link_layer" | "state" => File,
            "pkeys" => Enter(Place::Pkeys),
            _ => Nothing,
        },
        Place::Pkeys if name == "0" => File,
        Place::Uacces => Enter(Place::Uacce),
        Place::Uacce => match name {
            "algorithms"
            | "api"
            | "available_instances"
            | "dev"
            | "dev_state"
            | "flags"
            | "isolate"
            | "isolate_strategy"
            | "node_id"
            | "numa_distance"
            | "qfrs_offset"
            | "region_dus_size"
            | "region_mmio_size" => File,
            // The driver of KAE 1.0 has all of them one directory further down.
            "attrs" => Enter(Place::Uacce),
            "device" => Link,
            _ => Nothing,
        },
        Place::Characters => Enter(Place::Character),
        Place::Character => match name {
            "dev" | "ibdev" | "name" | "port" => File,
            "device" => Link,
            _ => Nothing,
        },
        Place::Groups => Enter(Place::Group),
        Place::Group => match name {
            "name" | "type" => File,
            "devices" => Enter(Place::GroupDevices),
            _ => Nothing,
        },
        Place::GroupDevices => Link,
        Place::VfioParameters if name == "enable_unsafe_noiommu_mode" => File,
        Place::Pkeys | Place::VfioParameters => Nothing,
    }
}

fn device(name: &str) -> Take {
    match name {
        "acpi_index" | "class" | "device" | "driver_override" | "label" | "numa_node" | "revision"
        | "sfnum" | "sriov_numvfs" | "sriov_totalvfs" | "subsystem_device" | "subsystem_vendor"
        | "vendor" => Take::File,
        "driver" | "iommu_group" | "physfn" => Take::Link,
        "net" => Take::Enter(Place::Nets),
        "infiniband" => Take::Enter(Place::Rdmas),
        "infiniband_mad" | "infiniband_verbs" | "uio" | "vfio-dev" => Take::Enter(Place::Characters),
        "uacce" => Take::Enter(Place::Uacces),
        _ if is_numbered(name, "virtfn") => Take::Link,
        _ if is_numbered(name, "virtio") || is_numbered(name, "vdpa") => Take::Enter(Place::Device),
        _ if is_numbered(name, "vhost-vdpa-") => Take::Enter(Place::Character),
        _ => Take::Nothing,
    }
}

fn is_numbered(name: &str, prefix: &str) -> bool {
    let number = name.strip_prefix(prefix);
    number.is_some_and(|number| !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit()))
}

/// Whether a device node is one that a container may be given.
pub(super) fn is_wanted_node(path: &str) -> bool {
    let Some(name) = path.strip_prefix("/dev/") else {
        return false;
    };
    match name.rsplit_once('/') {
        Some((directory, _)) => {
            matches!(directory, "vfio" | "vfio/devices" | "infiniband") || name == "net/tun"
        }
        None => {
            matches!(name, "iommu" | "vhost-net")
                || name.starts_with("hisi_")
                || is_numbered(name, "uio")
                || is_numbered(name, "vhost-vdpa-")
        }
    }
}
