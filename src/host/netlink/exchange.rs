//! One question and its answers over a blocking netlink socket.

use std::io;

use netlink_packet_core::{
    NLM_F_ACK, NLM_F_DUMP, NLM_F_REQUEST, NetlinkDeserializable, NetlinkHeader, NetlinkMessage,
    NetlinkPayload, NetlinkSerializable,
};
use netlink_sys::{Socket, SocketAddr};

/// What is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Ask {
    /// A whole table.
    Dump,
    /// One thing; the kernel acknowledges it when all is said.
    One,
}

/// Sends a request and collects the answers until the kernel says that it is done.
pub(super) fn exchange<T>(protocol: isize, ask: Ask, question: T) -> io::Result<Vec<T>>
where
    T: NetlinkSerializable + NetlinkDeserializable,
{
    let mut socket = Socket::new(protocol)?;
    socket.bind_auto()?;
    socket.connect(&SocketAddr::new(0, 0))?;
    let mut header = NetlinkHeader::default();
    header.flags = NLM_F_REQUEST | if ask == Ask::Dump { NLM_F_DUMP } else { NLM_F_ACK };
    let mut message = NetlinkMessage::new(header, NetlinkPayload::InnerMessage(question));
    message.finalize();
    let mut request = vec![0; message.buffer_len()];
    message.serialize(&mut request);
    socket.send(&request, 0)?;

    let mut answers = Vec::new();
    loop {
        let (datagram, _) = socket.recv_from_full()?;
        if read_datagram(&datagram, &mut answers)? {
            return Ok(answers);
        }
    }
}

/// Reads the messages of one datagram; true once the kernel is done.
pub(super) fn read_datagram<T: NetlinkDeserializable>(
    datagram: &[u8],
    answers: &mut Vec<T>,
) -> io::Result<bool> {
    let bad = |cause: String| io::Error::new(io::ErrorKind::InvalidData, cause);
    let mut rest = datagram;
    while !rest.is_empty() {
        let message = NetlinkMessage::<T>::deserialize(rest).map_err(|error| bad(error.to_string()))?;
        match message.payload {
            NetlinkPayload::Done(_) => return Ok(true),
            // An acknowledgement is an error message without an error.
            NetlinkPayload::Error(error) if error.code.is_none() => return Ok(true),
            NetlinkPayload::Error(error) => return Err(error.to_io()),
            NetlinkPayload::InnerMessage(inner) => answers.push(inner),
            _ => {}
        }
        // Messages are padded to four bytes; a length of zero would never end.
        let length = (message.header.length as usize).next_multiple_of(4).max(4);
        rest = rest.get(length..).unwrap_or_default();
    }
    Ok(false)
}

#[cfg(test)]
mod tests {
    use netlink_packet_route::RouteNetlinkMessage;

    use super::*;

    #[test]
    fn a_cut_datagram_is_an_error_and_not_a_panic() {
        let mut answers: Vec<RouteNetlinkMessage> = Vec::new();
        assert!(read_datagram(&[1, 2, 3], &mut answers).is_err());
        assert!(read_datagram(&[0; 64], &mut answers).is_err());
    }
}
