//! The recorded answers of netlink.

use std::collections::{BTreeMap, HashMap};
use std::io;

use nix::errno::Errno;

use super::{Entry, RecordedDevlink, RecordedLink, RecordedRoute, Recording};
use crate::host::netlink::{EswitchMode, Link, Netlink, Route};

/// A word that names an interface which the recording does not have.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{0}` is no interface of this host; write a line `link INDEX {0}`, or a file /sys/class/net/{0}/ifindex"
)]
pub struct UnknownInterface(pub String);

/// Answers from a recording.
#[derive(Debug, Clone)]
pub struct RecordedNetlink {
    answers: Option<(Vec<Link>, Vec<Route>)>,
    devlinks: Vec<RecordedDevlink>,
}

impl RecordedNetlink {
    /// Takes the answers of a recording, and resolves the names in them.
    ///
    /// # Errors
    /// The first name that is no interface of the recording.
    pub fn new(recording: &Recording) -> Result<Self, UnknownInterface> {
        let Some(answers) = recording.answers() else {
            return Ok(Self { answers: None, devlinks: Vec::new() });
        };
        let names = Names::new(recording, &answers.links);
        let links: Result<_, _> = answers.links.iter().map(|link| resolve_link(&names, link)).collect();
        // The kernel's reader takes unicast routes only, too.
        let unicast = answers.routes.iter().filter(|route| route.kind == "unicast");
        let routes: Result<_, _> = unicast.map(|route| resolve_route(&names, route)).collect();
        Ok(Self { answers: Some((links?, routes?)), devlinks: answers.devlinks.clone() })
    }

    fn known(&self) -> io::Result<&(Vec<Link>, Vec<Route>)> {
        let cause = "the recording has no answers of netlink";
        self.answers.as_ref().ok_or_else(|| io::Error::new(io::ErrorKind::Unsupported, cause))
    }

    fn devlink(&self, device: &str) -> Option<&RecordedDevlink> {
        self.devlinks.iter().find(|devlink| devlink.device == device)
    }
}

impl Netlink for RecordedNetlink {
    fn links(&self) -> io::Result<Vec<Link>> {
        Ok(self.known()?.0.clone())
    }

    fn default_routes(&self) -> io::Result<Vec<Route>> {
        Ok(self.known()?.1.clone())
    }

    fn versions(&self, device: &str) -> io::Result<BTreeMap<String, String>> {
        Ok(self.devlink(device).map(|devlink| devlink.info.clone()).unwrap_or_default())
    }

    fn eswitch_mode(&self, device: &str) -> io::Result<Option<EswitchMode>> {
        match self.devlink(device).and_then(|devlink| devlink.eswitch.as_deref()) {
            Some("legacy") => Ok(Some(EswitchMode::Legacy)),
            Some("switchdev") => Ok(Some(EswitchMode::Switchdev)),
            Some(_) => Err(Errno::EPERM.into()),
            None => Ok(None),
        }
    }

    fn enables_rdma(&self, device: &str) -> io::Result<Option<bool>> {
        Ok(self.devlink(device).and_then(|devlink| devlink.enable_rdma))
    }
}

fn resolve_link(names: &Names<'_>, link: &RecordedLink) -> Result<Link, UnknownInterface> {
    let index = |name: &Option<String>| name.as_ref().map(|name| names.index(name)).transpose();
    Ok(Link {
        index: link.index,
        name: link.name.clone(),
        alternative_names: link.alternative_names.clone(),
        up: link.up,
        carrier: link.carrier,
        master: index(&link.master)?,
        lower: index(&link.lower)?,
        kind: link.kind.clone(),
    })
}

fn resolve_route(names: &Names<'_>, route: &RecordedRoute) -> Result<Route, UnknownInterface> {
    let interfaces: Result<_, _> = route.interfaces.iter().map(|name| names.index(name)).collect();
    Ok(Route {
        family: route.family,
        table: route.table,
        interfaces: interfaces?,
        gateway: route.gateway.map(|gateway| gateway.to_string()),
        protocol: route.protocol,
        metric: route.metric,
    })
}

/// Which index a name stands for.
pub(super) struct Names<'a>(HashMap<&'a str, u32>);

impl<'a> Names<'a> {
    /// The `ifindex` files of the tree (`…/net/NAME/ifindex`), and the link lines, which win.
    pub(super) fn new(recording: &'a Recording, links: &'a [RecordedLink]) -> Self {
        let mut names = HashMap::new();
        for (path, entry) in recording.entries() {
            let Entry::File(content) = entry else { continue };
            let Some((directory, name)) =
                path.strip_suffix("/ifindex").and_then(|path| path.rsplit_once('/'))
            else {
                continue;
            };
            if directory.ends_with("/net")
                && let Ok(index) = content.trim().parse()
            {
                names.insert(name, index);
            }
        }
        names.extend(links.iter().map(|link| (link.name.as_str(), link.index)));
        Self(names)
    }

    /// A number that is no name is an index: the peer of a veth, say, may have no name here.
    pub(super) fn index(&self, word: &str) -> Result<u32, UnknownInterface> {
        let known = self.0.get(word).copied();
        known.or_else(|| word.parse().ok()).ok_or_else(|| UnknownInterface(word.to_owned()))
    }
}
