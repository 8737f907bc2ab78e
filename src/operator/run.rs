//! The life of the operator.

use kube::Client;
use thiserror::Error;
use tokio::sync::watch;

use super::cluster::Cluster;
use super::lease::Lease;
use super::metrics::Metrics;
use super::reconcile::{self, Options};
use crate::observe::web;

/// Why the operator ended without being told to.
#[derive(Debug, Error)]
pub enum RunError {
    /// Another replica may act from now on. A new process stands by.
    #[error("stopping: {0}")]
    LeaseLost(String),
}

/// Runs until told to stop.
///
/// # Errors
/// As [`RunError`] says.
pub async fn run(
    client: Client,
    options: Options,
    shutdown: impl Future<Output = ()>,
) -> Result<(), RunError> {
    let cluster = Cluster { client, namespace: options.namespace.clone() };
    let metrics = Metrics::default();
    if let Some(address) = options.http {
        let (state, _) = watch::channel(String::new());
        tokio::spawn(web::serve_address(address, metrics.clone(), state));
    }
    let mut shutdown = std::pin::pin!(shutdown);
    let lease = options.lease.map(|duration| Lease::new(&cluster, options.instance.clone(), duration));
    if let Some(lease) = &lease {
        tokio::select! {
            // A replica that stands by is as it should be.
            () = lease.acquire(|| metrics.ready()) => {}
            () = &mut shutdown => return Ok(()),
        }
    }
    metrics.leads();
    tracing::info!("acting");
    let (stop, mut stopped) = watch::channel(false);
    let stopping = async move {
        // It ends, too, when nobody is left who could say so.
        let _ = stopped.wait_for(|stop| *stop).await;
    };
    let mut work = std::pin::pin!(reconcile::run(cluster, options, metrics, stopping));
    let kept = async {
        match &lease {
            Some(lease) => lease.keep().await,
            None => std::future::pending().await,
        }
    };
    tokio::select! {
        () = &mut work => {}
        () = &mut shutdown => {
            stop.send_replace(true);
            work.await;
        }
        // At once: what is under way could be undone by who acts now.
        why = kept => return Err(RunError::LeaseLost(why)),
    }
    if let Some(lease) = &lease {
        lease.release().await;
    }
    Ok(())
}
