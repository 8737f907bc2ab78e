//! The host and the pools that a reading command looks at.

use std::path::Path;

use super::{ConfigFile, Failure};
use crate::host::{HostRoot, Wanted, scan};
use crate::model::Inventory;
use crate::pool::{Pools, assign};

/// Opens what the user named as the host.
pub(super) fn open(path: &Path) -> Result<HostRoot, Failure> {
    HostRoot::open(path).map_err(|error| Failure::Input(format!("pcidp: {error}")))
}

/// Everything on a host that a config can ask for, whether this one does or not.
pub(super) fn look(host: &HostRoot, config: Option<&ConfigFile>) -> (Inventory, Pools) {
    let mut wanted = Wanted::everything();
    if let Some(file) = config {
        wanted = wanted.and(&file.checked.config);
    }
    let inventory = scan(host, &wanted);
    let pools = config.map(|file| assign(&file.checked.config, &inventory)).unwrap_or_default();
    (inventory, pools)
}
