//! `:authority` as kubelets of all versions and modes send it, byte by byte.

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;
use tokio::sync::{mpsc, oneshot};

use super::shelf::{Served, Shelf, resource, within};
use crate::kubelet::{OwnSocket, serve_registry};

const OPTIONS: &str = "/v1beta1.DevicePlugin/GetDevicePluginOptions";
const INFO: &str = "/pluginregistration.Registration/GetInfo";

/// `PROTOCOL_ERROR` of RFC 9113.
const PROTOCOL_ERROR: u32 = 1;

#[derive(Debug, PartialEq)]
enum Outcome {
    /// A message came.
    Answered,
    /// The stream was reset, or the connection was given up.
    Reset(u32),
}

/// A literal that is not to be indexed, with a name of the static table (RFC 7541, 6.2.2).
fn literal(name: u8, value: &str, block: &mut Vec<u8>) {
    block.push(name);
    text(value, block);
}

fn text(value: &str, block: &mut Vec<u8>) {
    match value.len().checked_sub(127) {
        None => block.push(u8::try_from(value.len()).unwrap()),
        Some(rest) => block.extend([127, u8::try_from(rest).unwrap()]),
    }
    assert!(value.len() < 255, "a longer one takes another byte");
    block.extend(value.as_bytes());
}

fn frame(kind: u8, flags: u8, stream: u8, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
    let mut frame = length[1..].to_vec();
    frame.extend([kind, flags, 0, 0, 0, stream]);
    frame.extend(payload);
    frame
}

/// Calls a method with an empty message.
async fn call(socket: &std::path::Path, method: &str, authority: Option<&str>) -> Outcome {
    let mut headers = vec![0x83, 0x86]; // `:method: POST`, `:scheme: http`
    literal(0x04, method, &mut headers);
    if let Some(authority) = authority {
        literal(0x01, authority, &mut headers);
    }
    headers.extend([0x0f, 0x10]); // `content-type`
    text("application/grpc", &mut headers);
    headers.push(0);
    text("te", &mut headers);
    text("trailers", &mut headers);

    let mut stream = UnixStream::connect(socket).await.unwrap();
    let mut bytes = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec();
    bytes.extend(frame(4, 0, 0, &[]));
    bytes.extend(frame(1, 4, 1, &headers));
    bytes.extend(frame(0, 1, 1, &[0; 5]));
    stream.write_all(&bytes).await.unwrap();
    loop {
        let mut head = [0; 9];
        stream.read_exact(&mut head).await.unwrap();
        let [a, b, c, kind, _, _, _, _, id] = head;
        let mut payload = vec![0; u32::from_be_bytes([0, a, b, c]) as usize];
        stream.read_exact(&mut payload).await.unwrap();
        let code = |at: usize| u32::from_be_bytes(payload[at..at + 4].try_into().unwrap());
        match (kind, id) {
            (0, 1) => return Outcome::Answered,
            (3, 1) => return Outcome::Reset(code(0)),
            (7, 0) => return Outcome::Reset(code(4)),
            _ => {}
        }
    }
}

/// As grpc-go makes an authority of a path (`encodeAuthority`).
fn percent_encoded(path: &std::path::Path) -> String {
    path.to_str().unwrap().replace('/', "%2F")
}

#[tokio::test]
async fn localhost_and_no_authority_are_answered() {
    let directory = tempfile::tempdir().unwrap();
    let served = Served::start(directory.path().join("a.sock"), Shelf::default(), "a");
    for authority in [Some("localhost"), None] {
        assert_eq!(within(call(&served.path, OPTIONS, authority)).await, Outcome::Answered);
    }
}

#[tokio::test]
async fn a_percent_encoded_path_is_answered_only_with_an_at_sign_in_it() {
    let directory = tempfile::tempdir().unwrap();
    let plain = directory.path().join("example.com_probe.sock");
    let with_at = directory.path().join("example.com_probe@1.sock");
    for (path, outcome) in [(plain, Outcome::Reset(PROTOCOL_ERROR)), (with_at, Outcome::Answered)] {
        let (_own, listener) = OwnSocket::bind(&path).unwrap();
        let (verdicts, _) = mpsc::unbounded_channel();
        let (_stop, stopped) = oneshot::channel::<()>();
        let shutdown = async {
            let _ = stopped.await;
        };
        tokio::spawn(async move {
            let endpoint = std::path::Path::new("/x/a.sock");
            serve_registry(listener, &resource(), endpoint, verdicts, shutdown).await;
        });
        let authority = percent_encoded(&path);
        assert_eq!(within(call(&path, INFO, Some(&authority))).await, outcome, "{authority}");
    }
}

#[tokio::test]
async fn a_raw_path_is_refused_by_the_protocol() {
    // Kubelets before 1.26 (https://github.com/kubernetes/kubernetes/pull/112597).
    let directory = tempfile::tempdir().unwrap();
    let served = Served::start(directory.path().join("a.sock"), Shelf::default(), "a");
    let authority = served.path.to_str().unwrap();
    assert_eq!(within(call(&served.path, OPTIONS, Some(authority))).await, Outcome::Reset(PROTOCOL_ERROR));
}
