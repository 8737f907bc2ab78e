//! What the tasks of the daemon tell it.

use std::time::Duration;

use tokio::sync::mpsc;

use super::{Event, Loaded};
use crate::model::Inventory;

/// What the tasks of the daemon tell it.
pub(super) enum Message {
    /// For [`super::step`].
    Event(Event),
    /// A look has ended: the machine as it was seen by the `generation`-th idea of what is wanted, and how long it took.
    Looked { generation: u64, inventory: Inventory, took: Duration },
    /// The config was read, and the machine was looked at for it.
    Read(Box<Loaded>, Inventory),
    /// The config was read, and is the one that is served, or cannot be used; and whether somebody asked for it.
    ReadAgain(Result<(), String>, bool),
}

impl From<Event> for Message {
    fn from(event: Event) -> Self {
        Self::Event(event)
    }
}

/// Sends messages to the daemon. It may have ended meanwhile; then nobody needs to know.
#[derive(Debug, Clone)]
pub(super) struct Post(mpsc::UnboundedSender<Message>);

impl Post {
    pub(super) fn new(messages: mpsc::UnboundedSender<Message>) -> Self {
        Self(messages)
    }

    pub(super) fn send(&self, message: impl Into<Message>) {
        let _ = self.0.send(message.into());
    }
}
