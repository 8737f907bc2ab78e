//! devlink over generic netlink
//! (<https://github.com/torvalds/linux/blob/master/include/uapi/linux/devlink.h>).

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::io;

use netlink_packet_core::{NetlinkDeserializable, NetlinkHeader, NetlinkSerializable};
use netlink_sys::protocols::NETLINK_GENERIC;
use nix::errno::Errno;

use super::EswitchMode;
use super::exchange::{Ask, exchange, read_datagram};

/// `GENL_ID_CTRL`, its `CTRL_CMD_GETFAMILY`, and two of its attributes
/// (<https://github.com/torvalds/linux/blob/master/include/uapi/linux/genetlink.h>).
const CONTROLLER: u16 = 0x10;
const GET_FAMILY: u8 = 3;
const FAMILY_ID: u16 = 1;
const FAMILY_NAME: u16 = 2;

const VERSION: u8 = 1;
const ESWITCH_GET: u8 = 29;
const PARAM_GET: u8 = 38;
const INFO_GET: u8 = 51;

const BUS_NAME: u16 = 1;
const DEVICE_NAME: u16 = 2;
const ESWITCH_MODE: u16 = 25;
const PARAM: u16 = 80;
const PARAM_NAME: u16 = 81;
const PARAM_VALUES: u16 = 84;
const PARAM_VALUE: u16 = 85;
const PARAM_VALUE_DATA: u16 = 86;
const INFO_VERSION_FIXED: u16 = 100;
const INFO_VERSION_RUNNING: u16 = 101;
const INFO_VERSION_STORED: u16 = 102;
const INFO_VERSION_NAME: u16 = 103;
const INFO_VERSION_VALUE: u16 = 104;

/// `devlink dev info`. What runs wins over what is stored or fixed. Nothing where the device has no devlink.
pub(super) fn versions(device: &str) -> io::Result<BTreeMap<String, String>> {
    Ok(versions_in(&ask(device, INFO_GET, &[])?))
}

pub(super) fn versions_in(answer: &[u8]) -> BTreeMap<String, String> {
    let mut versions = BTreeMap::new();
    for kind in [INFO_VERSION_FIXED, INFO_VERSION_STORED, INFO_VERSION_RUNNING] {
        for (_, version) in attributes(answer).filter(|(found, _)| *found == kind) {
            let part = |wanted| find(version, wanted).map(text);
            versions.extend(part(INFO_VERSION_NAME).zip(part(INFO_VERSION_VALUE)));
        }
    }
    versions
}

/// `devlink dev eswitch show`; the kernel asks for CAP_NET_ADMIN.
pub(super) fn eswitch_mode(device: &str) -> io::Result<Option<EswitchMode>> {
    Ok(eswitch_mode_in(&ask(device, ESWITCH_GET, &[])?))
}

pub(super) fn eswitch_mode_in(answer: &[u8]) -> Option<EswitchMode> {
    match find(answer, ESWITCH_MODE).and_then(|mode| mode.first()) {
        Some(0) => Some(EswitchMode::Legacy),
        Some(1) => Some(EswitchMode::Switchdev),
        _ => None,
    }
}

/// `devlink dev param show … name enable_rdma`. A flag is true by being there, so one with a value list and without data
/// is false.
pub(super) fn enables_rdma(device: &str) -> io::Result<Option<bool>> {
    let answer = ask(device, PARAM_GET, &[(PARAM_NAME, "enable_rdma")])?;
    Ok(flag(&answer))
}

/// The value of a parameter that is a flag
/// (`devlink_nl_param_value_fill_one` in <https://github.com/torvalds/linux/blob/master/net/devlink/param.c>).
pub(super) fn flag(answer: &[u8]) -> Option<bool> {
    let value = find(find(find(answer, PARAM)?, PARAM_VALUES)?, PARAM_VALUE)?;
    Some(find(value, PARAM_VALUE_DATA).is_some())
}

/// Asks about one device, `bus/name`. A kernel without devlink, a device without it and a driver that does not know the
/// question are answers too: an empty one.
fn ask(device: &str, command: u8, more: &[(u16, &str)]) -> io::Result<Vec<u8>> {
    let Some((bus, name)) = device.split_once('/') else { return Ok(Vec::new()) };
    let Some(family) = silence(family("devlink"))? else { return Ok(Vec::new()) };
    let mut question = Message { family, command, attributes: Vec::new() };
    for (kind, value) in [(BUS_NAME, bus), (DEVICE_NAME, name)].iter().chain(more) {
        question.push(*kind, value);
    }
    let answers = silence(exchange(NETLINK_GENERIC, Ask::One, question))?;
    Ok(said(answers.unwrap_or_default()))
}

/// What the first answer says of a device.
fn said(answers: Vec<Message>) -> Vec<u8> {
    answers.into_iter().next().map(|message| message.attributes).unwrap_or_default()
}

/// The same, of bytes as the kernel sent them.
pub(super) fn read(bytes: &[u8]) -> io::Result<Vec<u8>> {
    let mut answers = Vec::new();
    read_datagram(bytes, &mut answers)?;
    Ok(said(answers))
}

fn family(name: &str) -> io::Result<u16> {
    let mut question = Message { family: CONTROLLER, command: GET_FAMILY, attributes: Vec::new() };
    question.push(FAMILY_NAME, name);
    let answers = exchange(NETLINK_GENERIC, Ask::One, question)?;
    let id =
        answers.first().and_then(|answer| find(&answer.attributes, FAMILY_ID)?.first_chunk::<2>().copied());
    id.map(u16::from_ne_bytes).ok_or_else(|| io::Error::from(io::ErrorKind::InvalidData))
}

/// What says that there is nothing to be known.
fn silence<T>(answer: io::Result<T>) -> io::Result<Option<T>> {
    let nothing = [Errno::ENOENT, Errno::ENODEV, Errno::EOPNOTSUPP, Errno::EINVAL];
    match answer {
        Ok(answer) => Ok(Some(answer)),
        Err(error) if nothing.iter().any(|errno| error.raw_os_error() == Some(*errno as i32)) => Ok(None),
        Err(error) => Err(error),
    }
}

/// A message of generic netlink: a command, and attributes as the kernel packs them.
#[derive(Debug)]
struct Message {
    family: u16,
    command: u8,
    attributes: Vec<u8>,
}

impl Message {
    /// Adds a string, which ends in a zero and is padded to four bytes.
    fn push(&mut self, kind: u16, value: &str) {
        let length = u16::try_from(4 + value.len() + 1).unwrap_or(u16::MAX);
        self.attributes.extend(length.to_ne_bytes());
        self.attributes.extend(kind.to_ne_bytes());
        self.attributes.extend(value.bytes().chain([0]));
        self.attributes.resize(self.attributes.len().next_multiple_of(4), 0);
    }
}

impl NetlinkSerializable for Message {
    fn message_type(&self) -> u16 {
        self.family
    }

    fn buffer_len(&self) -> usize {
        4 + self.attributes.len()
    }

    fn serialize(&self, buffer: &mut [u8]) {
        let bytes = [self.command, VERSION, 0, 0].into_iter().chain(self.attributes.iter().copied());
        for (place, byte) in buffer.iter_mut().zip(bytes) {
            *place = byte;
        }
    }
}

impl NetlinkDeserializable for Message {
    type Error = Infallible;

    fn deserialize(header: &NetlinkHeader, payload: &[u8]) -> Result<Self, Self::Error> {
        Ok(Self {
            family: header.message_type,
            command: payload.first().copied().unwrap_or_default(),
            attributes: payload.get(4..).unwrap_or_default().to_vec(),
        })
    }
}

/// The attributes in `bytes`, each with its kind; what is cut ends them.
fn attributes(bytes: &[u8]) -> impl Iterator<Item = (u16, &[u8])> {
    /// `NLA_F_NESTED` and `NLA_F_NET_BYTEORDER`.
    const FLAGS: u16 = 0xc000;
    let mut rest = bytes;
    std::iter::from_fn(move || {
        let &[a, b, c, d] = rest.first_chunk::<4>()?;
        let length = usize::from(u16::from_ne_bytes([a, b]));
        let value = rest.get(4..length)?;
        rest = rest.get(length.next_multiple_of(4)..).unwrap_or_default();
        Some((u16::from_ne_bytes([c, d]) & !FLAGS, value))
    })
}

fn find(bytes: &[u8], kind: u16) -> Option<&[u8]> {
    attributes(bytes).find(|(found, _)| *found == kind).map(|(_, value)| value)
}

fn text(value: &[u8]) -> String {
    let end = value.iter().position(|&byte| byte == 0).unwrap_or(value.len());
    String::from_utf8_lossy(value.get(..end).unwrap_or_default()).into_owned()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_device_without_devlink_says_nothing_and_no_error() {
        assert!(versions("pci/ffff:ff:1f.7").unwrap().is_empty());
        assert_eq!(enables_rdma("pci/ffff:ff:1f.7").unwrap(), None);
        // Without privileges the kernel does not even look for the device.
        assert!(
            eswitch_mode("pci/ffff:ff:1f.7").is_ok_and(|mode| mode.is_none())
                || !nix::unistd::geteuid().is_root()
        );
    }

    #[test]
    fn attributes_are_read_as_they_are_packed() {
        let mut message = Message { family: 0, command: 0, attributes: Vec::new() };
        message.push(BUS_NAME, "pci");
        message.push(DEVICE_NAME, "0000:17:00.0");
        let found: Vec<_> =
            attributes(&message.attributes).map(|(kind, value)| (kind, text(value))).collect();
        assert_eq!(found, [(BUS_NAME, "pci".to_owned()), (DEVICE_NAME, "0000:17:00.0".to_owned())]);
    }

    /// An attribute that holds others.
    fn nested(kind: u16, inside: &[u8]) -> Vec<u8> {
        const NESTED: u16 = 0x8000;
        let length = u16::try_from(4 + inside.len()).unwrap();
        [&length.to_ne_bytes(), &(kind | NESTED).to_ne_bytes(), inside].concat()
    }

    #[test]
    fn a_flag_is_true_by_being_there() {
        const CMODE: u16 = 87;
        let mode = nested(CMODE, &[1, 0, 0, 0]);
        let answer = |value: &[u8]| nested(PARAM, &nested(PARAM_VALUES, &nested(PARAM_VALUE, value)));
        assert_eq!(flag(&answer(&mode)), Some(false));
        assert_eq!(flag(&answer(&[nested(PARAM_VALUE_DATA, &[]), mode].concat())), Some(true));
        assert_eq!(flag(&nested(PARAM, &[])), None);
        assert_eq!(flag(&[]), None);
    }

    proptest! {
        #[test]
        fn any_bytes_end_and_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..64)) {
            prop_assert!(attributes(&bytes).count() <= 16);
        }
    }
}
