//! Questions to the daemon. Its one task answers them between two events, so that an answer is also a sign of life.

use std::path::PathBuf;
use std::time::Duration;

use tokio::sync::{mpsc, oneshot};

use super::Report;
use crate::kubelet;

/// How long the daemon may take.
const ANSWER_LIMIT: Duration = Duration::from_secs(2);
/// How long podresources may take before the checkpoint is read in its stead.
const HOLDERS_LIMIT: Duration = Duration::from_millis(500);
/// How many questions may wait.
const MOST_QUESTIONS: usize = 32;

/// A question, with where the answer goes.
#[derive(Debug)]
pub enum Question {
    /// Is anybody there?
    Alive(oneshot::Sender<()>),
    /// How are you?
    Report(oneshot::Sender<Report>),
}

/// Asks the daemon.
#[derive(Debug, Clone)]
pub struct Asker {
    questions: mpsc::Sender<Question>,
    podresources: Option<PathBuf>,
    device_plugins: PathBuf,
}

impl Asker {
    /// The asker, and what the daemon has to answer.
    pub fn new(podresources: Option<PathBuf>, device_plugins: PathBuf) -> (Self, mpsc::Receiver<Question>) {
        let (questions, asked) = mpsc::channel(MOST_QUESTIONS);
        (Self { questions, podresources, device_plugins }, asked)
    }

    /// Whether the daemon answers.
    pub async fn is_alive(&self) -> bool {
        self.ask(Question::Alive).await.is_some()
    }

    /// The state as the daemon knows it; nothing where it does not answer.
    pub async fn report(&self) -> Option<Report> {
        self.ask(Question::Report).await
    }

    /// The same, and who holds what at this moment.
    pub async fn report_with_holders(&self) -> Option<Report> {
        let mut report = self.report().await?;
        let holders = kubelet::holders(self.podresources.as_deref(), &self.device_plugins, HOLDERS_LIMIT);
        match holders.await {
            Ok((holders, _)) => report.tell_holders(&holders),
            Err(error) => report.holders_unknown = Some(error.to_string()),
        }
        Some(report)
    }

    async fn ask<T>(&self, question: impl FnOnce(oneshot::Sender<T>) -> Question) -> Option<T> {
        let (answer, answered) = oneshot::channel();
        let ask = async {
            self.questions.send(question(answer)).await.ok()?;
            answered.await.ok()
        };
        tokio::time::timeout(ANSWER_LIMIT, ask).await.ok().flatten()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_daemon_that_hangs_or_is_gone_is_not_alive() {
        let (asker, questions) = Asker::new(None, PathBuf::new());
        let begun = tokio::time::Instant::now();
        assert!(!asker.is_alive().await);
        assert_eq!(begun.elapsed().as_secs(), ANSWER_LIMIT.as_secs());
        assert!(asker.report().await.is_none());
        drop(questions);
        assert!(!asker.is_alive().await);
    }
}
