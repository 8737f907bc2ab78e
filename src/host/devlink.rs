//! What devlink tells of functions: asked once in a pass, and only where it matters.

use std::cell::RefCell;
use std::collections::HashMap;
use std::io;

use super::netlink::EswitchMode;
use super::{HostRoot, ddptool};
use crate::model::{Device, DeviceId, HexId, Note, PciAddress};

/// The version under which `ice` tells its DDP package
/// (<https://github.com/torvalds/linux/blob/master/Documentation/networking/devlink/ice.rst>).
pub(super) const DDP_PROFILE: &str = "fw.app.name";

/// The answers of one pass.
#[derive(Debug)]
pub(super) struct Devlink<'a> {
    host: &'a HostRoot,
    eswitches: RefCell<HashMap<PciAddress, Option<EswitchMode>>>,
    profiles: RefCell<HashMap<PciAddress, Option<String>>>,
    told_by_tool: RefCell<HashMap<PciAddress, Option<String>>>,
    notes: RefCell<Vec<Note>>,
}

impl<'a> Devlink<'a> {
    pub(super) fn new(host: &'a HostRoot) -> Self {
        Self {
            host,
            eswitches: RefCell::default(),
            profiles: RefCell::default(),
            told_by_tool: RefCell::default(),
            notes: RefCell::default(),
        }
    }

    /// What could not be learnt.
    pub(super) fn into_notes(self) -> Vec<Note> {
        self.notes.into_inner()
    }

    fn note(&self, path: String, cause: String) {
        self.notes.borrow_mut().push(Note { path, cause });
    }

    /// Whether the switch of a PF is known to be in legacy mode, in which nothing stands for a VF.
    pub(super) fn is_legacy(&self, pf: PciAddress) -> bool {
        let ask = || {
            let device = format!("pci/{pf}");
            self.host.netlink().eswitch_mode(&device).unwrap_or_else(|error| {
                let cause = format!("{error}; uplink and representors are told by their port names alone");
                self.note(format!("devlink eswitch {device}"), cause);
                None
            })
        };
        *self.eswitches.borrow_mut().entry(pf).or_insert_with(ask) == Some(EswitchMode::Legacy)
    }

    /// Whether a device makes RDMA devices, which may be in a pod.
    pub(super) fn enables_rdma(&self, id: &DeviceId) -> Option<bool> {
        let bus = if PciAddress::from_sysfs(id.as_str()).is_some() { "pci" } else { "auxiliary" };
        let device = format!("{bus}/{id}");
        self.host.netlink().enables_rdma(&device).unwrap_or_else(|error| {
            let cause = format!("{error}; whether RDMA is in a pod is told by the PF");
            self.note(format!("devlink param {device} enable_rdma"), cause);
            None
        })
    }

    /// The DDP package of a function, or else of its PF.
    pub(super) fn profile(&self, device: &Device) -> Option<String> {
        let own = || self.profile_of(device.address);
        match device.pf() {
            None => own().or_else(|| self.ask_tool(device, device.address)),
            Some(pf) => {
                own().or_else(|| self.profile_of(pf.address)).or_else(|| self.ask_tool(device, pf.address))
            }
        }
    }

    fn profile_of(&self, address: PciAddress) -> Option<String> {
        if let Some(known) = self.profiles.borrow().get(&address) {
            return known.clone();
        }
        let device = format!("pci/{address}");
        let profile = match self.host.netlink().versions(&device) {
            Ok(mut versions) => versions.remove(DDP_PROFILE),
            Err(error) => {
                self.note(format!("devlink info {device}"), format!("{error}; its DDP package is unknown"));
                None
            }
        };
        self.profiles.borrow_mut().insert(address, profile.clone());
        profile
    }

    /// The drivers of older Intel cards do not tell it; a tool of Intel's reads it from the card.
    fn ask_tool(&self, device: &Device, address: PciAddress) -> Option<String> {
        const INTEL: HexId = HexId(0x8086);
        let tool = self.host.ddptool().filter(|_| device.vendor == INTEL)?;
        // Once for a PF with all of its VFs.
        let ask = || {
            ddptool::profile(tool, address).unwrap_or_else(|error| {
                self.note(ddptool::place(address), reason(&error));
                None
            })
        };
        self.told_by_tool.borrow_mut().entry(address).or_insert_with(ask).clone()
    }
}

fn reason(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::NotFound => "devlink does not tell the DDP package, and there is no ddptool to ask; \
             add it to the image, as docs/hardware.md says (700-series cards need it)"
            .to_owned(),
        _ => format!("ddptool failed: {error}; the DDP package is unknown"),
    }
}
