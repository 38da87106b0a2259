//! Tests who has the memory of requests whose queue pair is not known to be gone.
#![allow(clippy::unwrap_used)]

use super::*;
use crate::arena::ArenaOptions;

fn read_of(arena: &Arena) -> PostedRequest {
    let cell = arena.allocate_cell(CLIENT_PIECE_BYTES).unwrap();
    let (writer, reader) = cell.split_writer_reader();
    PostedRequest { id: 1, memory: PostedMemory::Target(ReadPiece { writer, reader, bytes: 1 }) }
}

/// A device that is stopped may not be done with what it writes. Only its completions tell.
#[test]
fn target_of_a_read_is_not_free_before_its_completion() {
    let capacity_bytes = CLIENT_PIECES * CLIENT_PIECE_BYTES;
    let options =
        ArenaOptions { capacity_bytes, cell_bytes_max: CLIENT_PIECE_BYTES, populate: false };
    let arena = Arena::map_memory(options).unwrap();
    let source = || PostedRequest { id: 1, memory: PostedMemory::Source { _piece: Bytes::new() } };
    let sources = VecDeque::from([source()]);
    let targets = VecDeque::from([source(), read_of(&arena)]);
    for (is_stopped, is_drained, sources_free, targets_free) in
        [(false, false, false, false), (true, false, true, false), (true, true, true, true)]
    {
        assert_eq!(is_memory_free(&sources, is_stopped, is_drained), sources_free);
        assert_eq!(is_memory_free(&targets, is_stopped, is_drained), targets_free);
    }
}
