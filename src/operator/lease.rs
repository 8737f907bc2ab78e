//! Which of several replicas acts: the one that holds a Lease.
//!
//! ```text
//! standing by ── the lease is free, or was not renewed for its whole duration ──▶ leading
//!      ▲                                                                            │
//!      └────────── the process ends ◀── not renewed in time, or another's ──────────┘
//! ```
//!
//! Whether another replica renews is judged by this one's own clock, from what it sees change, as Kubernetes' own components
//! do: <https://github.com/kubernetes/client-go/blob/v0.34.0/tools/leaderelection/leaderelection.go>.

use std::time::Duration;

use k8s_openapi::api::coordination::v1::{Lease as Object, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use k8s_openapi::jiff::Timestamp;
use kube::Api;
use kube::api::{ObjectMeta, PostParams};
use tokio::time::{Instant, sleep, timeout};

use super::cluster::{Cluster, Error, ask};

/// The lease's name.
pub const LEASE: &str = "kae-operator";

/// The lease, and this replica's wish for it.
pub struct Lease {
    api: Api<Object>,
    namespace: String,
    holder: String,
    duration: Duration,
}

impl Lease {
    /// `holder` is unique among the replicas. Who does not renew for `duration` loses it.
    pub fn new(cluster: &Cluster, holder: String, duration: Duration) -> Self {
        let api = Api::namespaced(cluster.client.clone(), &cluster.namespace);
        Self { api, namespace: cluster.namespace.clone(), holder, duration }
    }

    /// Between two questions.
    fn pace(&self) -> Duration {
        self.duration / 6
    }

    /// Waits until this replica holds it; `standing_by` is called whenever another one is seen to hold it.
    pub async fn acquire(&self, standing_by: impl Fn()) {
        let mut seen: Option<(Option<String>, Instant)> = None;
        let mut told = None;
        loop {
            match self.look().await {
                Ok(lease) => {
                    let version = lease.as_ref().and_then(|lease| lease.metadata.resource_version.clone());
                    if seen.as_ref().is_none_or(|(before, _)| *before != version) {
                        seen = Some((version, Instant::now()));
                    }
                    let holder = lease.as_ref().and_then(holder);
                    let is_free = holder.is_none() || holder == Some(&self.holder);
                    let is_over = seen.as_ref().is_some_and(|(_, since)| since.elapsed() >= self.duration);
                    if is_free || is_over {
                        match self.take(lease.as_ref()).await {
                            Ok(()) => return,
                            Err(error) if error.is_conflict() => {}
                            Err(error) => {
                                tracing::warn!(%error, "cannot take the lease; will be tried again");
                            }
                        }
                    } else {
                        standing_by();
                        if told.as_ref() != holder {
                            told = holder.cloned();
                            tracing::info!(holder = told, "another replica acts; standing by");
                        }
                    }
                }
                Err(error) => tracing::warn!(%error, "cannot see the lease; will be tried again"),
            }
            sleep(self.pace()).await;
        }
    }

    /// Renews it for ever; comes back when it is lost, and says why.
    pub async fn keep(&self) -> String {
        // Less than the duration: this replica stops before another one starts.
        let deadline = self.duration * 2 / 3;
        loop {
            sleep(self.pace()).await;
            let renewed = timeout(deadline, async {
                loop {
                    match self.renew().await {
                        Ok(true) => return None,
                        Ok(false) => return Some("another replica holds the lease".to_owned()),
                        Err(error) => tracing::warn!(%error, "cannot renew the lease; will be tried again"),
                    }
                    sleep(self.pace()).await;
                }
            });
            match renewed.await {
                Ok(None) => {}
                Ok(Some(why)) => return why,
                Err(_) => return format!("the lease could not be renewed for {} s", deadline.as_secs_f32()),
            }
        }
    }

    /// Gives it back, so that another replica need not wait.
    pub async fn release(&self) {
        let Ok(Some(lease)) = self.look().await else { return };
        if holder(&lease) == Some(&self.holder)
            && let Err(error) = self.write(Some(&lease), "").await
        {
            tracing::warn!(%error, "cannot give the lease back");
        }
    }

    async fn look(&self) -> Result<Option<Object>, Error> {
        ask("get", format!("Lease {LEASE}"), self.api.get_opt(LEASE)).await
    }

    async fn take(&self, lease: Option<&Object>) -> Result<(), Error> {
        self.write(lease, &self.holder).await
    }

    async fn renew(&self) -> Result<bool, Error> {
        let lease = self.look().await?;
        if lease.as_ref().and_then(holder) != Some(&self.holder) {
            return Ok(false);
        }
        self.take(lease.as_ref()).await.map(|()| true)
    }

    /// Writes it as it was seen: who comes second gets a conflict.
    async fn write(&self, before: Option<&Object>, holder: &str) -> Result<(), Error> {
        let now = MicroTime(Timestamp::now());
        let old = before.and_then(|lease| lease.spec.clone()).unwrap_or_default();
        let is_same = old.holder_identity.as_deref() == Some(holder);
        let seconds = i32::try_from(self.duration.as_secs().max(1)).unwrap_or(i32::MAX);
        let spec = LeaseSpec {
            holder_identity: Some(holder.to_owned()),
            lease_duration_seconds: Some(seconds),
            acquire_time: if is_same { old.acquire_time } else { Some(now.clone()) },
            renew_time: Some(now),
            lease_transitions: Some(old.lease_transitions.unwrap_or_default() + i32::from(!is_same)),
            ..LeaseSpec::default()
        };
        let mut metadata = before.map_or_else(ObjectMeta::default, |lease| lease.metadata.clone());
        metadata.name = Some(LEASE.to_owned());
        metadata.namespace = Some(self.namespace.clone());
        metadata.managed_fields = None;
        let lease = Object { metadata, spec: Some(spec) };
        let parameters = PostParams::default();
        let what = format!("Lease {LEASE}");
        match before {
            Some(_) => ask("write", what, self.api.replace(LEASE, &parameters, &lease)).await?,
            None => ask("write", what, self.api.create(&parameters, &lease)).await?,
        };
        Ok(())
    }
}

fn holder(lease: &Object) -> Option<&String> {
    lease.spec.as_ref()?.holder_identity.as_ref().filter(|holder| !holder.is_empty())
}
