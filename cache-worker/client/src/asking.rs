//! Asks workers: what a question is, and what may come of it.

pub(crate) mod question;
