//! A conductor's pipe to one agent: messages go out by its writer, and come in by a thread of their
//! own, into one channel of all agents.

use std::io::{BufReader, Read, Write};
use std::sync::mpsc::Sender;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use super::protocol::{AgentMessage, ConductorMessage, read_message, write_message};

/// The pipe to one agent.
pub struct AgentLink {
    /// What it is called in messages: its host.
    pub name: String,
    writer: Box<dyn Write + Send>,
    reader: Option<Box<dyn Read + Send>>,
    /// When its last message came, whether or not the conductor has taken it.
    heard: Arc<Mutex<Instant>>,
}

/// What came from an agent.
#[derive(Debug)]
pub enum AgentEvent {
    Message(AgentMessage),
    /// Its output ended, or was no message.
    Gone(String),
}

impl AgentLink {
    /// Takes both ends of an agent's pipe.
    pub fn new(
        name: impl Into<String>,
        writer: impl Write + Send + 'static,
        reader: impl Read + Send + 'static,
    ) -> Self {
        Self {
            name: name.into(),
            writer: Box::new(writer),
            reader: Some(Box::new(reader)),
            heard: Arc::new(Mutex::new(Instant::now())),
        }
    }

    /// Returns for how long nothing has come of it.
    pub(super) fn silence(&self) -> Duration {
        self.heard.lock().unwrap_or_else(PoisonError::into_inner).elapsed()
    }

    pub(super) fn send_message(&mut self, message: &ConductorMessage) -> std::io::Result<()> {
        write_message(&mut self.writer, message)
    }

    /// Starts the thread that reads, once. It ends with the agent's output, or with `events`.
    pub(super) fn start_reading(
        &mut self,
        number: usize,
        events: Sender<(usize, AgentEvent)>,
    ) -> std::io::Result<()> {
        let Some(reader) = self.reader.take() else { return Ok(()) };
        let heard = self.heard.clone();
        let hear = move || *heard.lock().unwrap_or_else(PoisonError::into_inner) = Instant::now();
        hear();
        let read = move || {
            let mut reader = BufReader::new(reader);
            loop {
                let event = match read_message::<AgentMessage>(&mut reader) {
                    Ok(Some(mut message)) => {
                        hear();
                        message.make_printable();
                        AgentEvent::Message(message)
                    }
                    Ok(None) => AgentEvent::Gone("its output ended".to_owned()),
                    Err(error) => AgentEvent::Gone(format!("it said {error}")),
                };
                let gone = matches!(event, AgentEvent::Gone(_));
                if events.send((number, event)).is_err() || gone {
                    return;
                }
            }
        };
        std::thread::Builder::new().name(format!("agent {number}")).spawn(read).map(drop)
    }
}
