//! Takes out of a recording what identifies a machine.

use std::collections::HashMap;

use super::{Entry, Recording};

/// Replaces what is made of hardware addresses, so that equal things stay equal:
/// - `phys_switch_id`, which mlx5 makes of the card's address
///   (<https://github.com/torvalds/linux/blob/master/drivers/net/ethernet/mellanox/mlx5/core/en_rep.c>);
/// - the last three octets in interface names such as `enx001122334455`
///   (<https://www.freedesktop.org/software/systemd/man/latest/systemd.net-naming-scheme.html>);
/// - gateways, for an IPv6 one is made of the router's address: they are dropped.
pub(super) fn hide_identities(recording: &mut Recording) {
    let mut names = Numbers::default();
    let mut switches = Numbers::default();
    let mut hidden = Recording::new();
    for (path, entry) in std::mem::take(&mut recording.entries) {
        let entry = match entry {
            Entry::File(id) if path.ends_with("/phys_switch_id") => {
                Entry::File(format!("{}\n", switches.number(id.trim())))
            }
            Entry::Link(target) => Entry::Link(names.hide(&target)),
            other => other,
        };
        hidden.entries.insert(names.hide(&path), entry);
    }
    if let Some(answers) = &mut recording.answers {
        for link in &mut answers.links {
            let alternative = link.alternative_names.iter_mut();
            let others = link.master.iter_mut().chain(&mut link.lower);
            for name in alternative.chain(others).chain([&mut link.name]) {
                *name = names.hide(name);
            }
        }
        for route in &mut answers.routes {
            route.gateway = None;
            for name in &mut route.interfaces {
                *name = names.hide(name);
            }
        }
    }
    recording.entries = hidden.entries;
}

/// Numbers things in the order of their first appearance.
#[derive(Default)]
struct Numbers(HashMap<String, String>);

impl Numbers {
    fn number(&mut self, text: &str) -> String {
        let next = self.0.len() + 1;
        self.0.entry(text.to_owned()).or_insert_with(|| format!("{next:06x}")).clone()
    }

    /// Hides hardware addresses in the names of a path.
    fn hide(&mut self, path: &str) -> String {
        let names: Vec<String> = path.split('/').map(|name| self.hide_name(name)).collect();
        names.join("/")
    }

    fn hide_name(&mut self, name: &str) -> String {
        let address = name.rsplit_once('x').map(|(_, address)| address);
        let is_address =
            |address: &&str| address.len() == 12 && address.bytes().all(|byte| byte.is_ascii_hexdigit());
        match address.filter(is_address).and_then(|address| address.split_at_checked(6)) {
            Some((maker, card)) => {
                let kept = name.len() - card.len();
                let number = self.number(&format!("{maker}{card}"));
                format!("{}{number}", name.get(..kept).unwrap_or_default())
            }
            None => name.to_owned(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hardware_addresses_in_names_and_switch_ids_are_numbered_everywhere_alike() {
        let text = "pcidp-host 1

/sys/class/net/
  enx001122aabbcc -> ../../devices/pci0000:00/0000:00:03.0/net/enx001122aabbcc

/sys/devices/pci0000:00/0000:00:03.0/net/enx001122aabbcc/
  phys_switch_id = 82ab0b0003f9eb98

/sys/devices/virtual/net/bond0/
  lower_enx001122aabbcc -> ../../../pci0000:00/0000:00:03.0/net/enx001122aabbcc
  phys_switch_id = 82ab0b0003f9eb98

[netlink]
  link 2 eth0 altname=enx001122aabbcc
  link 3 vlan0 lower=enx001122aabbcc
  route inet6 default dev=enx001122aabbcc via=fe80::11ff:fe22:3344 table=main proto=ra
";
        let text = text.replace("link 2 eth0 altname=", "link 2 ");
        let mut recording = Recording::parse(&text).unwrap();
        hide_identities(&mut recording);
        let expected = text
            .replace("enx001122aabbcc", "enx001122000001")
            .replace("82ab0b0003f9eb98", "000001")
            .replace(" via=fe80::11ff:fe22:3344", "");
        assert_eq!(recording.to_string(), expected);
        hide_identities(&mut recording);
        assert_eq!(recording.to_string(), expected);
    }
}
