//! `/healthz`, `/readyz` and `/metrics` of the operator.

use http::StatusCode;

use super::metrics::Metrics;
use crate::observe::web::{Answer, Pages, TEXT, response};

impl Pages for Metrics {
    async fn answer(&self, path: &str) -> Answer {
        let text = |status, text: &str| response(status, TEXT, text.to_owned());
        match path {
            // The one thread that does everything has answered.
            "/healthz" => text(StatusCode::OK, "ok\n"),
            "/readyz" if self.is_ready() => text(StatusCode::OK, "ok\n"),
            "/readyz" => text(
                StatusCode::SERVICE_UNAVAILABLE,
                "the cluster was not looked at yet; the log says what keeps it\n",
            ),
            "/metrics" => response(StatusCode::OK, Self::CONTENT_TYPE, self.render()),
            _ => text(StatusCode::NOT_FOUND, "there are /metrics, /healthz and /readyz\n"),
        }
    }
}
