//! What goes wrong: operators die, replicas meet, connections break.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::coordination::v1::Lease;
use kube::api::{Patch, PatchParams};
use nix::sys::signal::Signal;
use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

use crate::kit::{CLEANUP, DEPLOY_DRIVER, DRIVER, HPRE, PLUGIN, SEC, eventually};
use crate::world::World;

pub(crate) fn an_operator_that_is_killed_at_any_time_goes_on(world: &World) {
    let names: Vec<String> = (0..20).map(|number| format!("node-{number}")).collect();
    world.create_nodes(&names, &[(HPRE, "true")]);
    world.create_policy(json!({"driver": {"enabledCleanup": true}}));
    // A debug build takes some 60 ms to its first request.
    let die_after = |milliseconds| {
        let mut operator = world.operator(&[]);
        std::thread::sleep(Duration::from_millis(milliseconds));
        operator.signal(Signal::SIGKILL);
        assert!(!operator.wait(Duration::from_secs(5)));
    };
    for step in 0..8 {
        die_after(60 + step * 25);
    }
    let operator = world.operator(&[]);
    world.wait_for_sets();
    for name in &names {
        world.wait_for_label(name, DEPLOY_DRIVER, Some("true"));
    }
    assert!(operator.stop());
    world.delete_policy();
    for step in 0..5 {
        die_after(60 + step * 25);
    }
    let operator = world.operator(&[]);
    eventually("the driver is being removed from the nodes", || world.set(CLEANUP).map(drop));
    world.run_cleanup(20);
    world.wait_for_nothing();
    assert!(operator.stop());
}

pub(crate) fn of_two_replicas_one_acts_and_the_other_takes_over(world: &World) {
    let replica = |name: &str| {
        world.operator(&["--leader-election", "--lease-duration=2", &format!("--instance={name}")])
    };
    let holder = || {
        let lease = world.wait(world.here::<Lease>().get_opt("kae-operator")).unwrap()?;
        lease.spec?.holder_identity.filter(|holder| !holder.is_empty())
    };
    let first = replica("first");
    eventually("the first one acts", || (holder()? == "first").then_some(()));
    let second = replica("second");
    eventually("the second one stands by", || second.log().contains("standing by").then_some(()));
    world.create_policy(json!({}));
    world.wait_for_sets();
    assert!(!second.log().contains("acting"));
    // Killed: its lease runs out.
    first.signal(Signal::SIGKILL);
    eventually("the second one acts", || (holder()? == "second").then_some(()));
    world.edit(json!({"operator": {"enabledSEC": true}}));
    eventually("it follows the policy", || {
        world.pod_of(DRIVER)?.to_string().contains("hpre,sec").then_some(())
    });
    // Stopped: its lease is given back at once.
    let third = replica("third");
    eventually("the third one stands by", || third.log().contains("standing by").then_some(()));
    assert!(second.stop());
    eventually("the third one acts", || (holder()? == "third").then_some(()));
    // Robbed: it ends, so that a new process stands by.
    let mut third = third;
    let theft = json!({"spec": {"holderIdentity": "somebody"}});
    world
        .wait(world.here::<Lease>().patch("kae-operator", &PatchParams::default(), &Patch::Merge(theft)))
        .unwrap();
    assert!(!third.wait(Duration::from_secs(5)));
    assert!(third.log().contains("another replica holds the lease"), "{}", third.log());
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mood {
    /// Everything passes.
    Well,
    /// Connections are closed at once, old ones too.
    Refuses,
    /// Every piece comes late.
    Slow(Duration),
    /// Nothing passes, and nobody is told.
    Silent,
    /// Connections end in the middle.
    Cuts,
}

/// Stands between the operator and the API server.
fn proxy(world: &World, mood: watch::Receiver<Mood>) -> SocketAddr {
    let target = SocketAddr::from(([127, 0, 0, 1], world.server.port));
    let listener = world.wait(TcpListener::bind("127.0.0.1:0")).unwrap();
    let address = listener.local_addr().unwrap();
    world.runtime.spawn(async move {
        while let Ok((client, _)) = listener.accept().await {
            let mood = mood.clone();
            tokio::spawn(async move {
                if *mood.borrow() == Mood::Refuses {
                    return Ok(());
                }
                let server = TcpStream::connect(target).await?;
                let ((from_client, to_client), (from_server, to_server)) =
                    (client.into_split(), server.into_split());
                let ended = Arc::new(tokio::sync::Notify::new());
                let there = pass(from_client, to_server, mood.clone(), Arc::clone(&ended));
                let back = pass(from_server, to_client, mood, ended);
                tokio::join!(there, back);
                Ok::<(), io::Error>(())
            });
        }
    });
    address
}

async fn pass(
    mut from: tokio::net::tcp::OwnedReadHalf,
    mut to: tokio::net::tcp::OwnedWriteHalf,
    mut mood: watch::Receiver<Mood>,
    ended: Arc<tokio::sync::Notify>,
) {
    let mut buffer = vec![0; 16 * 1024];
    loop {
        let read = tokio::select! {
            read = from.read(&mut buffer) => read,
            _ = mood.wait_for(|mood| *mood == Mood::Refuses) => break,
            () = ended.notified() => break,
        };
        let Ok(length @ 1..) = read else { break };
        let now = *mood.borrow();
        match now {
            Mood::Slow(wait) => tokio::time::sleep(wait).await,
            Mood::Silent => drop(mood.wait_for(|mood| *mood != Mood::Silent).await),
            Mood::Cuts if length > 2000 => {
                let _ = to.write_all(&buffer[..length / 2]).await;
                break;
            }
            Mood::Well | Mood::Refuses | Mood::Cuts => {}
        }
        if to.write_all(&buffer[..length]).await.is_err() {
            break;
        }
    }
    ended.notify_waiters();
}

pub(crate) fn a_connection_that_refuses_delays_and_breaks_costs_time_only(world: &World) {
    let (mood, now) = watch::channel(Mood::Refuses);
    let port = proxy(world, now).port();
    let operator = world.operator_at(port, &["--absence-debounce=1"]);
    world.create_node("engine", &[(HPRE, "true"), (SEC, "true")]);
    world.create_policy(json!({}));
    eventually("it has noticed", || operator.log().contains("the watch ended").then_some(()));
    mood.send_replace(Mood::Well);
    world.wait_for_sets();
    world.wait_for_label("engine", DEPLOY_DRIVER, Some("true"));
    let args = |words: &'static str| {
        eventually(words, || world.pod_of(DRIVER)?.to_string().contains(words).then_some(()));
    };
    mood.send_replace(Mood::Slow(Duration::from_millis(150)));
    world.edit(json!({"operator": {"enabledSEC": true}}));
    args("--types=hpre,sec");
    mood.send_replace(Mood::Silent);
    world.edit(json!({"driver": {"uacceMode": "SVA"}}));
    std::thread::sleep(Duration::from_millis(500));
    mood.send_replace(Mood::Well);
    args("--uacce-mode=sva");
    mood.send_replace(Mood::Cuts);
    world.edit(json!({"operator": {"enabledZIP": true}, "driver": {"pfQueueNum": 99}}));
    std::thread::sleep(Duration::from_millis(500));
    mood.send_replace(Mood::Refuses);
    world.edit(json!({"driver": {"uacceMode": "NoSVA"}}));
    std::thread::sleep(Duration::from_millis(500));
    mood.send_replace(Mood::Well);
    args("--types=hpre,sec,zip");
    args("--uacce-mode=nosva");
    args("--pf-queues=99");
    mood.send_replace(Mood::Refuses);
    world.delete_policy();
    mood.send_replace(Mood::Well);
    world.wait_for_nothing();
    assert!(world.set(PLUGIN).is_none());
    assert!(operator.stop());
}
