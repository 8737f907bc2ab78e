//! Programs in Go, with the kubelet's own libraries.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use tokio::sync::{mpsc, oneshot};

use super::program::Program;
use super::shelf::{LIMIT, Served, Shelf, devices, resource, within};
use crate::kubelet::{OwnSocket, PluginOptions, Registration, register, serve_registry};

/// A program that runs until it is dropped.
struct Running {
    child: Child,
    lines: mpsc::UnboundedReceiver<String>,
}

impl Running {
    fn start(command: &mut Command) -> Self {
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let output = BufReader::new(child.stdout.take().unwrap());
        let (sender, lines) = mpsc::unbounded_channel();
        std::thread::spawn(move || {
            for line in output.lines().map_while(Result::ok) {
                let _ = sender.send(line);
            }
        });
        Self { child, lines }
    }

    async fn line(&mut self) -> String {
        within(self.lines.recv()).await.expect("the program ended")
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[tokio::test]
async fn a_kubelet_in_go_registers_lists_and_allocates() {
    let Some(program) = Program::build("kubelet") else {
        return;
    };
    let directory = tempfile::tempdir().unwrap();
    let mut kubelet = Running::start(program.command().arg(directory.path()));
    assert_eq!(kubelet.line().await, "ready");

    let options = PluginOptions { preferred_allocation: true, pre_start: false };
    let shelf = Shelf { options, ..Shelf::default() };
    let served = Served::start(directory.path().join("example.com_probe-1.sock"), shelf, "a b!");
    let resource = resource();
    let registration = Registration { endpoint: served.socket.file_name(), resource: &resource, options };
    register(&directory.path().join("kubelet.sock"), &registration, LIMIT).await.unwrap();
    for expected in [
        "register v1beta1 example.com/probe example.com_probe-1.sock preferred=true",
        "options preferred=true",
        "list a=Healthy b=Unhealthy",
        "allocated a /dev/a example.com/probe=a",
        "refused rpc error: code = InvalidArgument desc = device unknown is unknown to example.com/probe",
    ] {
        assert_eq!(kubelet.line().await, expected);
    }
    served.list.send_replace(devices("c"));
    for expected in ["list c=Healthy", "allocated c /dev/c example.com/probe=c"] {
        assert_eq!(kubelet.line().await, expected);
    }
    kubelet.line().await;
    served.stop.send(()).unwrap();
    // Not an error of the connection: the stream ends in order.
    assert_eq!(kubelet.line().await, "end EOF");
    within(served.ended).await.unwrap();
}

#[tokio::test]
async fn a_plugin_watcher_in_go_reaches_only_a_socket_with_an_at_sign() {
    let Some(program) = Program::build("kubelet") else {
        return;
    };
    let directory = tempfile::tempdir().unwrap();
    for (name, expected) in [
        ("example.com_probe.sock", "refused rpc error: code = Internal"),
        ("example.com_probe@1.sock", "info DevicePlugin example.com/probe /x/a.sock [v1beta1]"),
    ] {
        let path = directory.path().join(name);
        let (_own, listener) = OwnSocket::bind(&path).unwrap();
        let (verdicts, _) = mpsc::unbounded_channel();
        let (_stop, stopped) = oneshot::channel::<()>();
        tokio::spawn(async move {
            let shutdown = async {
                let _ = stopped.await;
            };
            serve_registry(listener, &resource(), Path::new("/x/a.sock"), verdicts, shutdown).await;
        });
        let mut watcher = Running::start(program.command().arg("-discover").arg(&path));
        let line = watcher.line().await;
        assert!(line.starts_with(expected), "{line}");
    }
}
