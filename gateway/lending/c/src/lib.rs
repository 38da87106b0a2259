//! Memory lent to a gateway, for programs in C and for whatever can call C: the client of
//! `gateway/lending/client` behind functions. Owns what is checked at that edge, and who frees what.
//! `include/verbs3.h` is made of these files, and a test holds them together.

mod call_result;
mod lent_answer;
mod lent_arguments;
mod lent_batch;
mod lent_client;
mod lent_writer;

pub use call_result::{Verbs3Result, verbs3_error_text};
pub use lent_answer::{
    Verbs3Answer, verbs3_answer_body, verbs3_answer_header, verbs3_answer_header_at,
    verbs3_answer_status, verbs3_release_answer,
};
pub use lent_arguments::{Verbs3Header, Verbs3ObjectName, Verbs3ReadRequest, Verbs3WriteRequest};
pub use lent_batch::{
    Verbs3Batch, verbs3_add_read, verbs3_begin_batch, verbs3_end_batch, verbs3_next_answer,
};
pub use lent_client::{
    Verbs3Client, Verbs3Options, verbs3_connect, verbs3_default_options, verbs3_disconnect,
    verbs3_head_statuses, verbs3_read,
};
pub use lent_writer::{
    Verbs3Writer, verbs3_abandon_write, verbs3_append_body, verbs3_begin_write, verbs3_finish_write,
};
