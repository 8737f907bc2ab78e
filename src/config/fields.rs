//! Every key of the config language. The parser, its hints, the schema and the default config all read this table.

use std::time::Duration;

use super::types::{AllocationPolicy, DeviceType, FunctionType, LinkHealth, UacceView, VfioMode};
use super::words::Words;
use crate::model::{LinkType, VdpaType};

/// The object to which a key belongs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Level {
    /// The file.
    File,
    /// An entry of `resourceList`.
    Pool,
    /// A selector object.
    Selector,
    /// `health`.
    Health,
    /// `waitFor`.
    WaitFor,
}

impl Level {
    /// Every level, outermost first.
    pub const ALL: [Self; 5] = [Self::File, Self::Pool, Self::Selector, Self::Health, Self::WaitFor];

    /// Where keys of this level are written.
    pub fn place(self) -> &'static str {
        match self {
            Self::File => "at the top of the file",
            Self::Pool => "in an entry of `resourceList`, beside `selectors`",
            Self::Selector => "in `selectors`",
            Self::Health => "in `health`",
            Self::WaitFor => "in `waitFor`",
        }
    }

    /// The keys of this level, in table order.
    pub fn fields(self) -> impl Iterator<Item = &'static Field> {
        FIELDS.iter().filter(move |field| field.level == self)
    }
}

/// What may be written as a value.
#[derive(Debug, Clone, Copy)]
pub enum Kind {
    /// A string.
    Text,
    /// `true` or `false`.
    Flag,
    /// A whole number between two bounds.
    Count(u32, u32),
    /// A length of time between two bounds.
    Duration(Duration, Duration),
    /// One of a few words.
    Word(fn() -> Vec<&'static str>),
    /// A list of strings.
    List(Entry),
    /// An object.
    Object(Level),
    /// An object or a list of objects.
    ObjectOrObjects(Level),
    /// A list of objects.
    Objects(Level),
    /// An object of objects of strings.
    Information,
}

/// What a string in a list stands for.
#[derive(Debug, Clone, Copy)]
pub enum Entry {
    /// Anything.
    Text,
    /// A hex number of up to four digits.
    HexId,
    /// Two to six hex digits.
    Class,
    /// A decimal number; here a bare number is taken too.
    Decimal,
    /// A PCI address.
    Address,
    /// A PCI address or an auxiliary name.
    DeviceId,
    /// A PF name or `re:` pattern, with or without `#` and indices.
    PfName,
    /// A PCI address, with or without `#` and indices.
    RootDevice,
    /// Indices.
    Ranges,
    /// One of a few words.
    Word(fn() -> Vec<&'static str>),
}

/// A key of the config language.
#[derive(Debug, Clone, Copy)]
pub struct Field {
    /// The key, as documentation writes it.
    pub name: &'static str,
    /// The object to which it belongs.
    pub level: Level,
    /// The device types that have it.
    pub applies: &'static [DeviceType],
    /// What may be written.
    pub kind: Kind,
    /// What holds when nothing is written, as JSON.
    pub default: &'static str,
    /// A value as JSON, for messages.
    pub example: &'static str,
    /// One line.
    pub meaning: &'static str,
}

impl Field {
    const fn new(
        level: Level,
        name: &'static str,
        kind: Kind,
        example: &'static str,
        meaning: &'static str,
    ) -> Self {
        Self { name, level, applies: ALL, kind, default: "null", example, meaning }
    }

    const fn only(self, applies: &'static [DeviceType]) -> Self {
        Self { applies, ..self }
    }

    const fn default(self, default: &'static str) -> Self {
        Self { default, ..self }
    }
}

const ALL: &[DeviceType] = &[DeviceType::NetDevice, DeviceType::Accelerator, DeviceType::AuxNetDevice];
const NET: &[DeviceType] = &[DeviceType::NetDevice];
const ACCELERATOR: &[DeviceType] = &[DeviceType::Accelerator];
const AUXILIARY: &[DeviceType] = &[DeviceType::AuxNetDevice];
const NET_AUXILIARY: &[DeviceType] = &[DeviceType::NetDevice, DeviceType::AuxNetDevice];
const NET_ACCELERATOR: &[DeviceType] = &[DeviceType::NetDevice, DeviceType::Accelerator];

const fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

const fn pool(name: &'static str, kind: Kind, example: &'static str, meaning: &'static str) -> Field {
    Field::new(Level::Pool, name, kind, example, meaning)
}

const fn selector(name: &'static str, kind: Kind, example: &'static str, meaning: &'static str) -> Field {
    Field::new(Level::Selector, name, kind, example, meaning)
}

/// Keys that other programs leave in a config; they mean nothing and are passed over in silence.
pub const PASSED_OVER: [&str; 3] = ["$schema", "selectorObj", "selectorObjs"];

/// The table. Selectors stand in the order in which they are applied.
#[rustfmt::skip]
pub static FIELDS: &[Field] = &[
    Field::new(Level::File, "resourceList", Kind::Objects(Level::Pool), r#"[{"resourceName": "nic"}]"#,
        "The pools, in order: a device belongs to the first that takes it."),

    pool("resourceName", Kind::Text, r#""sriov_net""#,
        "The name of the extended resource, after the slash. Required."),
    pool("resourcePrefix", Kind::Text, r#""example.com""#,
        "The part before the slash, in place of --resource-prefix."),
    pool("deviceType", Kind::Word(DeviceType::words), r#""netDevice""#,
        "Which devices and selectors apply.")
        .default(r#""netDevice""#),
    pool("excludeTopology", Kind::Flag, "true",
        "Do not advertise NUMA nodes.").default("false"),
    pool("selectors", Kind::ObjectOrObjects(Level::Selector), r#"{"vendors": ["8086"]}"#,
        "What a device must be; of a list of objects, the first that matches counts."),
    pool("additionalInfo", Kind::Information, r#"{"*": {"zone": "a"}}"#,
        "Values for the _INFO variable, for every device (*) or for one.").default("{}"),
    pool("allocationPolicy", Kind::List(Entry::Word(AllocationPolicy::words)), r#"["numa", "packed"]"#,
        "How devices are preferred, in order; without it the kubelet chooses.")
        .default("[]"),
    pool("health", Kind::Object(Level::Health), r#"{"link": "carrier"}"#,
        "When a device counts as unhealthy.").default("{}"),
    pool("replicas", Kind::Count(1, 1000), "4",
        "How many containers may share one device.")
        .only(ACCELERATOR).default("1"),
    pool("waitFor", Kind::Object(Level::WaitFor), r#"{"devices": 8, "timeout": "10m"}"#,
        "Advertise nothing until so many devices are there, or the time is up."),
    pool("settle", Kind::Duration(Duration::ZERO, seconds(60)), r#""1s""#,
        "How long a device that appears must be still before it is advertised.")
        .default(r#""1s""#),
    pool("preStartCheck", Kind::Flag, "true",
        "Check a device again before each container start, which then needs a running plugin.")
        .default("false"),
    pool("vfio", Kind::Word(VfioMode::words), r#""group""#,
        "Which VFIO interface is handed over.")
        .only(NET_ACCELERATOR).default(r#""group""#),
    pool("allowNoIommu", Kind::Flag, "false",
        "Hand out devices that no IOMMU guards.").only(NET_ACCELERATOR).default("true"),
    pool("allowInUse", Kind::List(Entry::DeviceId), r#"["0000:3b:00.1"]"#,
        "Devices that are offered even though the node's default route runs through them.")
        .only(NET_AUXILIARY).default("[]"),
    pool("uacceView", Kind::Word(UacceView::words), r#""auto""#,
        "What of /sys/class/uacce a container sees.")
        .only(ACCELERATOR).default(r#""auto""#),

    selector("vendors", Kind::List(Entry::HexId), r#"["8086"]"#,
        "Hex vendor ids."),
    selector("devices", Kind::List(Entry::HexId), r#"["154c"]"#,
        "Hex device ids."),
    selector("drivers", Kind::List(Entry::Text), r#"["vfio-pci"]"#,
        "Names of the bound driver; the empty name stands for no driver."),
    selector("pciAddresses", Kind::List(Entry::Address), r#"["0000:3b:00.1"]"#,
        "PCI addresses.").only(NET_ACCELERATOR),
    selector("acpiIndexes", Kind::List(Entry::Decimal), r#"["101"]"#,
        "Firmware indexes (acpi_index).").only(NET_ACCELERATOR),
    selector("auxTypes", Kind::List(Entry::Text), r#"["sf"]"#,
        "The type in the auxiliary name; only sf. Required.")
        .only(AUXILIARY),
    selector("pfNames", Kind::List(Entry::PfName), r##"["ens1f0", "ens1f1#0,2-7", "re:^ens2f"]"##,
        "Names of the PF's netdev, with VF or SF indices after #; re: opens a regular expression.")
        .only(NET_AUXILIARY),
    selector("rootDevices", Kind::List(Entry::RootDevice), r##"["0000:3b:00.0#0-3"]"##,
        "PCI addresses of the PF, with VF or SF indices after #.").only(NET_AUXILIARY),
    selector("linkTypes", Kind::List(Entry::Word(LinkType::words)), r#"["ether"]"#,
        "Link types of the netdev, else of the PF.").only(NET_AUXILIARY),
    selector("ddpProfiles", Kind::List(Entry::Text), r#"["GTPv1-C/U IPv4/IPv6 payload"]"#,
        "Names of the loaded DDP package, of the function or of its PF.")
        .only(NET),
    selector("pKeys", Kind::List(Entry::HexId), r#"["0x8001"]"#,
        "Default InfiniBand partition keys.")
        .only(NET),
    selector("isRdma", Kind::Flag, "true",
        "Only RDMA devices, and hand over their character devices.").only(NET_AUXILIARY).default("false"),
    selector("vdpaType", Kind::Word(VdpaType::words), r#""vhost""#,
        "Only vDPA devices of this type; not together with isRdma.")
        .only(NET),
    selector("needVhostNet", Kind::Flag, "true",
        "Hand over /dev/vhost-net and /dev/net/tun.").only(NET_AUXILIARY).default("false"),
    selector("classes", Kind::List(Entry::Class), r#"["0b40"]"#,
        "Leading hex digits of the PCI class.").only(NET_ACCELERATOR),
    selector("functionTypes", Kind::List(Entry::Word(FunctionType::words)), r#"["vf"]"#,
        "Physical (pf), virtual (vf) or sub- (sf) functions."),
    selector("vfIndexes", Kind::List(Entry::Ranges), r#"["0,2-7"]"#,
        "VF indices, whatever the PF.").only(NET_ACCELERATOR),
    selector("exclude", Kind::Object(Level::Selector), r#"{"vfIndexes": ["0"]}"#,
        "An object of the same selectors: what matches it too is left out.").only(NET_ACCELERATOR),

    Field::new(Level::Health, "link", Kind::Word(LinkHealth::words), r#""ignore""#,
        "How the link is judged.")
        .default(r#""carrier""#),
    Field::new(Level::Health, "downAfter", Kind::Duration(Duration::ZERO, seconds(3600)), r#""5s""#,
        "How long a link must be down.")
        .default(r#""5s""#),
    Field::new(Level::Health, "upAfter", Kind::Duration(Duration::ZERO, seconds(3600)), r#""1s""#,
        "How long a link must be up again.")
        .default(r#""1s""#),

    Field::new(Level::WaitFor, "devices", Kind::Count(1, 100_000), "8",
        "How many devices must be there. Required."),
    Field::new(Level::WaitFor, "timeout", Kind::Duration(seconds(1), seconds(24 * 3600)), r#""10m""#,
        "After this time the pool is advertised all the same.").default(r#""10m""#),
];
