//! Floor 0: plain data, and newtypes that parse or refuse.

mod address;
mod device;
mod handout;
mod hash;
mod health;
mod hex_id;
mod inventory;
mod names;
mod ranges;
mod resource_name;

pub use address::{ParseAddressError, PciAddress};
pub use device::{
    DefaultRoute, Device, DeviceId, Function, LinkState, LinkType, Netdev, PhysicalFunction, Rdma, Uacce,
    Vdpa, VdpaType, Vfio,
};
pub use handout::{DeviceInfoFile, DeviceNode, Handout, Mount};
pub use hash::{stable_hash, stable_hash_on};
pub use health::Health;
pub use hex_id::{ClassPattern, HexId, ParseHexError, PciClass};
pub use inventory::{Inventory, Note};
pub use names::{device_name, vendor_name};
pub use ranges::{IndexRanges, ParseRangesError};
pub use resource_name::{InvalidResourceName, ResourceName, variable_name};
