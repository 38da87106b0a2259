//! Every decoder of bytes that others write, as a function of bytes: what must hold whatever they
//! are. Owns the list.
//!
//! A target panics where a decoder is wrong; that a decoder refuses is as good as that it reads.
//! How they are run: `run.sh` (coverage-guided), `tests/corpus.rs` (the corpus, and mutations of
//! it, in every build).
#![forbid(unsafe_code)]

use std::sync::OnceLock;

use verbs3_protocol::{ByteRange, RequestEnvelope, WorkerReply};

/// Judges bytes by panicking.
pub type Target = fn(&[u8]);

/// Name, which is also that of its folder in `corpus/`, and target.
pub const TARGETS: [(&str, Target); 11] = [
    ("frame", verbs3_rdma::calls::decoders::check_frame_bytes),
    ("handshake", verbs3_rdma::calls::decoders::check_handshake_bytes),
    ("request", request),
    ("reply", reply),
    ("range", range),
    ("lenient", verbs3_gateway::decoders::decode_lenient_headers),
    ("signatures", verbs3_gateway::decoders::decode_signatures),
    ("chunks", verbs3_gateway::decoders::decode_chunks),
    ("form", verbs3_gateway::decoders::decode_form),
    ("disk", verbs3_cache_worker::decoders::decode_headers),
    ("files", files),
];

/// The target of that name.
pub fn target(name: &str) -> Option<Target> {
    TARGETS.iter().find(|(known, _)| *known == name).map(|(_, target)| *target)
}

fn request(bytes: &[u8]) {
    if let Ok(read) = RequestEnvelope::decode(bytes) {
        assert_eq!(RequestEnvelope::decode(&read.encode()).ok().as_ref(), Some(&read));
    }
}

fn reply(bytes: &[u8]) {
    if let Ok(read) = WorkerReply::decode(bytes) {
        assert_eq!(WorkerReply::decode(&read.encode()).ok().as_ref(), Some(&read));
    }
}

/// Three numbers: first, last and length. What a range resolves to lies within the object, and is
/// never empty.
fn range(bytes: &[u8]) {
    let number = |at: usize| Some(u64::from_le_bytes(*bytes.get(at..)?.first_chunk::<8>()?));
    let (Some(first), Some(last), Some(length)) = (number(0), number(8), number(16)) else {
        return;
    };
    for range in [
        ByteRange::All,
        ByteRange::From { first, last: None },
        ByteRange::From { first, last: Some(last) },
        ByteRange::Suffix { bytes: first },
    ] {
        if let Some(resolved) = range.resolve_range(length) {
            assert!(resolved.end <= length, "{range:?} of {length} bytes: {resolved:?}");
            assert!(
                resolved.start < resolved.end || length == 0,
                "{range:?} of {length} bytes: {resolved:?}"
            );
        }
    }
}

/// What an administrator writes: an identities file, and the configuration of every role.
fn files(bytes: &[u8]) {
    verbs3_gateway::decoders::decode_identities(bytes);
    static FILE: OnceLock<std::path::PathBuf> = OnceLock::new();
    let file = FILE.get_or_init(|| {
        std::env::temp_dir().join(format!("verbs3-fuzz-{}.toml", std::process::id()))
    });
    if std::fs::write(file, bytes).is_err() {
        return;
    }
    let layers = verbs3_config::ConfigLayers {
        file: Some(file.clone()),
        ..verbs3_config::ConfigLayers::default()
    };
    let read = verbs3_config::load_config(&layers, &[]);
    let _ = std::fs::remove_file(file);
    if let Err(problems) = read {
        assert!(!problems.to_string().is_empty(), "refused without a reason");
    }
}
