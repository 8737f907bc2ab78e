//! What the plugin serves: for the probes and `pcidp status` on a unix socket, for people and Prometheus at an address.

use http::StatusCode;

use super::web::{Answer, Pages, TEXT, response};
use super::{Asker, Metrics, page};

/// What is served.
#[derive(Debug, Clone)]
pub struct Site {
    /// Who knows.
    pub asker: Asker,
    /// What was counted.
    pub metrics: Metrics,
}

impl Pages for Site {
    async fn answer(&self, path: &str) -> Answer {
        match path {
            "/healthz" => match self.asker.is_alive().await {
                true => response(StatusCode::OK, TEXT, "ok\n".to_owned()),
                false => silent(),
            },
            "/readyz" => match self.asker.report().await.map(|report| report.unready()) {
                Some(reasons) if reasons.is_empty() => response(StatusCode::OK, TEXT, "ok\n".to_owned()),
                Some(reasons) => response(StatusCode::SERVICE_UNAVAILABLE, TEXT, reasons.join("\n") + "\n"),
                None => silent(),
            },
            "/metrics" => match self.asker.report().await {
                Some(report) => response(StatusCode::OK, Metrics::CONTENT_TYPE, self.metrics.render(&report)),
                None => silent(),
            },
            "/status" => {
                match self.asker.report_with_holders().await.map(|report| serde_json::to_string(&report)) {
                    Some(Ok(text)) => response(StatusCode::OK, "application/json", text),
                    Some(Err(error)) => {
                        response(StatusCode::INTERNAL_SERVER_ERROR, TEXT, format!("{error}\n"))
                    }
                    None => silent(),
                }
            }
            "/" => match self.asker.report_with_holders().await {
                Some(report) => response(StatusCode::OK, "text/html; charset=utf-8", page::render(&report)),
                None => silent(),
            },
            _ => response(
                StatusCode::NOT_FOUND,
                TEXT,
                "there are /, /status, /metrics, /healthz and /readyz\n".to_owned(),
            ),
        }
    }
}

fn silent() -> Answer {
    response(StatusCode::SERVICE_UNAVAILABLE, TEXT, "the daemon does not answer\n".to_owned())
}
