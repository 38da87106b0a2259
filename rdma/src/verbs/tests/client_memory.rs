//! Tests that clients that are no members get their bytes by RDMA, and give them, on real kernel
//! verbs: each byte where it belongs, none behind the end of a connection, and no harm to others by
//! a client that lies.

use std::net::IpAddr;
use std::ptr::NonNull;
use std::sync::Arc;
use std::time::Duration;

use super::super::client_connection::{CLIENT_PIECE_BYTES, CLIENT_PIECES};
use super::super::client_rail::VerbsClientRail;
use super::super::gid_table::{choose_gid_row, read_gid_rows};
use super::super::sys::{
    CmId, CompletionQueue, EventChannel, MemoryRegion, NumberedEnds, NumberedQueuePair,
    PacketNumber, ProtectionDomain, RegionAccess, RegionTerms, WorkCompletion,
};
use crate::arena::{Arena, ArenaOptions};
use crate::client_memory::{
    ClientConnection, ClientEnd, ClientMemoryError, ClientMemoryRail, ClientPlace, OwnEnd, PortGid,
};
use crate::settings::VerbsSettings;

const NEEDS: &str = "needs an RDMA device: run it in the VM, tests/testbed/vm-suite.sh";
const PATIENCE: Duration = Duration::from_secs(60);
pub(super) const COOKIE: u32 = 0x1a2b_3c4d;
pub(super) const FIRST_PACKET: u32 = 0x00ab_cdef;
/// READs that clients answer at once.
pub(super) const READS_MAX: u8 = 4;

fn test_address() -> IpAddr {
    std::env::var("VERBS3_TEST_ADDRESS").expect(NEEDS).parse().unwrap()
}

struct TestRail {
    rail: VerbsClientRail,
    arena: Arena,
}

impl TestRail {
    async fn open() -> Self {
        let capacity_bytes = 4 * CLIENT_PIECES * CLIENT_PIECE_BYTES;
        let options =
            ArenaOptions { capacity_bytes, cell_bytes_max: CLIENT_PIECE_BYTES, populate: false };
        let arena = Arena::map_memory(options).unwrap();
        let settings = VerbsSettings::default();
        let (rail, opened) = VerbsClientRail::start(test_address(), &settings, arena.clone());
        assert!(opened.first_error().await.is_none(), "{NEEDS}");
        let this = Self { rail, arena };
        this.wait_until(|this| this.rail.suits_client(test_address().into()).is_some()).await;
        this
    }

    async fn wait_until(&self, holds: impl Fn(&Self) -> bool) {
        let waiting = async {
            while !holds(self) {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        tokio::time::timeout(PATIENCE, waiting).await.expect("it comes true");
    }

    async fn connect_for(&self, client: &Client) -> Box<dyn ClientConnection> {
        let mut connection = self.rail.prepare_connection(client.gid).await.unwrap();
        client.connect_to(connection.own_end());
        connection.connect_client(client.end()).await.unwrap();
        connection
    }

    async fn end(self) {
        assert_eq!(self.arena.arena_usage().asked_bytes, 0, "no memory is kept");
        self.rail.shutdown().await;
    }
}

/// A client with a queue pair, and memory that is registered for writes.
pub(super) struct Client {
    pub(super) pair: NumberedQueuePair,
    completions: Arc<CompletionQueue>,
    region: MemoryRegion,
    pub(super) memory: Vec<u8>,
    pub(super) gid: PortGid,
    gid_index: u8,
    path_mtu: u16,
}

impl Client {
    fn open(bytes: usize, gid_of: impl Fn(IpAddr) -> PortGid) -> Self {
        Self::open_for(RegionAccess::RemoteWrite, vec![0; bytes], gid_of)
    }

    fn open_for(
        access: RegionAccess,
        mut memory: Vec<u8>,
        gid_of: impl Fn(IpAddr) -> PortGid,
    ) -> Self {
        let anchor = CmId::new(&EventChannel::new().unwrap()).unwrap();
        anchor.bind((test_address(), 0).into()).unwrap();
        let domain = Arc::new(ProtectionDomain::new(anchor).unwrap());
        let rows = read_gid_rows(&domain.device_folder(), domain.device_port().1);
        let row = choose_gid_row(&rows, test_address().into(), gid_of(test_address())).unwrap();
        let completions = Arc::new(CompletionQueue::new(domain.clone(), 16, 0).unwrap());
        let pair = NumberedQueuePair::for_client(&domain, &completions).unwrap();
        let bytes = memory.len();
        let base = NonNull::new(memory.as_mut_ptr()).unwrap();
        let terms = RegionTerms { access, relaxed: false };
        let path_mtu = domain.query_port().unwrap().active_mtu;
        // SAFETY: `memory` is never resized, and dropped behind the region.
        let region = unsafe { MemoryRegion::register_memory(domain, base, bytes, terms) }.unwrap();
        let (gid, gid_index) = (row.gid, row.index);
        Self { pair, completions, region, memory, gid, gid_index, path_mtu }
    }

    /// A client that names the address of its network.
    pub(super) fn with_bytes(bytes: usize) -> Self {
        Self::open(bytes, PortGid::from)
    }

    /// A client that lets this be read.
    pub(super) fn with_content(content: Vec<u8>) -> Self {
        Self::open_for(RegionAccess::RemoteRead, content, PortGid::from)
    }

    pub(super) fn end(&self) -> ClientEnd {
        let pair_number = self.pair.pair_number();
        ClientEnd { pair_number, gid: self.gid, first_packet: FIRST_PACKET, reads_max: READS_MAX }
    }

    pub(super) fn connect_to(&self, connection: OwnEnd) {
        let ends = NumberedEnds {
            gid_index: self.gid_index,
            own_packet: PacketNumber(FIRST_PACKET),
            peer_gid: connection.gid.0,
            peer_pair: connection.pair_number,
            peer_packet: PacketNumber(connection.first_packet),
            path_mtu: self.path_mtu,
            own_reads: 1,
            peer_reads: READS_MAX,
        };
        self.pair.connect_ends(&ends).unwrap();
    }

    pub(super) fn place_at(&self, offset: usize) -> ClientPlace {
        let address = self.memory.as_ptr().addr() as u64 + offset as u64;
        ClientPlace { address, key: self.region.rkey }
    }

    /// Returns the immediate value that has come. `None`: none has.
    pub(super) fn take_immediate(&self) -> Option<u32> {
        let mut polled = [WorkCompletion::NONE; 4];
        let count = self.completions.poll(&mut polled).unwrap();
        polled[..count].iter().find(|taken| taken.id == 1).map(|taken| {
            assert_eq!(taken.status, Ok(()));
            taken.immediate
        })
    }

    pub(super) async fn await_immediate(&self) -> u32 {
        let waiting = async {
            loop {
                match self.take_immediate() {
                    Some(value) => return value,
                    None => tokio::time::sleep(Duration::from_millis(1)).await,
                }
            }
        };
        tokio::time::timeout(PATIENCE, waiting).await.expect("the value comes")
    }
}

pub(super) fn pattern(bytes: usize, seed: u64) -> Vec<u8> {
    let mut state = seed | 1;
    let mut next = move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state as u8
    };
    (0..bytes).map(|_| next()).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs an RDMA device: run it in the VM, tests/testbed/vm-suite.sh"]
async fn client_memory_gets_every_byte_and_the_value_behind_them() {
    let rail = TestRail::open().await;
    let piece = CLIENT_PIECE_BYTES;
    for bytes in [1, 2, 4095, 4096, 65_537, piece, piece + 1, 9 * piece + 7, 64 << 20] {
        // A margin on both sides, which has to stay as it is.
        let client = Client::with_bytes(bytes + 128);
        client.pair.post_immediate_receive(1).unwrap();
        let mut connection = rail.connect_for(&client).await;
        let sent = pattern(bytes, bytes as u64);
        let cut = bytes / 3;
        if cut > 0 {
            connection.write_bytes(client.place_at(64), &sent[..cut], None).await.unwrap();
        }
        let rest = (client.place_at(64 + cut), &sent[cut..]);
        connection.write_bytes(rest.0, rest.1, Some(COOKIE)).await.unwrap();
        connection.await_written().await.unwrap();
        assert_eq!(client.await_immediate().await, COOKIE);
        assert!(client.memory[64..64 + bytes] == sent, "{bytes} bytes are as they were sent");
        let margin = client.memory[..64].iter().chain(&client.memory[64 + bytes..]);
        assert!(margin.clone().all(|&byte| byte == 0), "{bytes}: only its place was written");
        connection.close_connection().await;
    }
    rail.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs an RDMA device: run it in the VM, tests/testbed/vm-suite.sh"]
async fn client_memory_is_written_from_the_address_of_its_kind() {
    let rail = TestRail::open().await;
    let client = Client::open(4096, |_| PortGid(*b"\xfe\x80\0\0\0\0\0\0\0\0\0\0\0\0\0\x02"));
    assert!(client.gid.is_link_local());
    client.pair.post_immediate_receive(1).unwrap();
    let mut connection = rail.connect_for(&client).await;
    assert!(connection.own_end().gid.is_link_local());
    connection.write_bytes(client.place_at(0), &[7; 4096], Some(COOKIE)).await.unwrap();
    connection.await_written().await.unwrap();
    assert!(client.await_immediate().await == COOKIE && client.memory == [7; 4096]);
    connection.close_connection().await;
    rail.end().await;
}

/// The client has posted no receive, so that the write waits. It must not come once the connection is
/// closed, though the client would take it then.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs an RDMA device: run it in the VM, tests/testbed/vm-suite.sh"]
async fn client_memory_is_not_written_once_its_connection_is_closed() {
    let rail = TestRail::open().await;
    for is_dropped in [false, true] {
        let client = Client::with_bytes(512);
        let mut connection = rail.connect_for(&client).await;
        connection.write_bytes(client.place_at(0), &[9; 512], Some(COOKIE)).await.unwrap();
        let waiting = tokio::time::timeout(Duration::from_millis(300), connection.await_written());
        assert!(waiting.await.is_err(), "it waits for a receive");
        if is_dropped {
            drop(connection);
            rail.wait_until(|rail| rail.arena.arena_usage().asked_bytes == 0).await;
        } else {
            connection.close_connection().await;
            assert_eq!(rail.arena.arena_usage().asked_bytes, 0, "what it read is free");
        }
        client.pair.post_immediate_receive(1).unwrap();
        tokio::time::sleep(Duration::from_millis(1500)).await;
        assert_eq!(client.take_immediate(), None);
        assert_eq!(client.memory, [0; 512]);
    }
    rail.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs an RDMA device: run it in the VM, tests/testbed/vm-suite.sh"]
async fn client_memory_that_is_none_harms_its_own_connection_only() {
    let rail = TestRail::open().await;
    let honest = Client::with_bytes(4096);
    honest.pair.post_immediate_receive(1).unwrap();
    let mut kept = rail.connect_for(&honest).await;
    let liar = Client::with_bytes(4096);
    let place = liar.place_at(0);
    for wrong in [
        ClientPlace { key: place.key ^ 0x00ff_ff00, ..place },
        ClientPlace { address: place.address.wrapping_add(4096 - 100), ..place },
        ClientPlace { address: u64::MAX - 50, ..place },
    ] {
        let liar = Client::with_bytes(4096);
        let wrong = if wrong.key == place.key {
            ClientPlace { key: liar.region.rkey, ..wrong }
        } else {
            wrong
        };
        let mut connection = rail.connect_for(&liar).await;
        connection.write_bytes(wrong, &[5; 200], None).await.unwrap();
        let refused = connection.await_written().await.unwrap_err();
        assert!(matches!(refused, ClientMemoryError::Refused(_)), "{refused}");
        assert!(liar.memory.iter().all(|&byte| byte == 0));
        connection.close_connection().await;
    }
    kept.write_bytes(honest.place_at(0), &[3; 4096], Some(COOKIE)).await.unwrap();
    kept.await_written().await.unwrap();
    assert!(honest.await_immediate().await == COOKIE && honest.memory == [3; 4096]);
    kept.close_connection().await;
    rail.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs an RDMA device: run it in the VM, tests/testbed/vm-suite.sh"]
async fn client_memory_of_a_client_that_is_gone_is_given_up() {
    let rail = TestRail::open().await;
    let client = Client::with_bytes(4096);
    let mut connection = rail.connect_for(&client).await;
    let place = client.place_at(0);
    drop(client);
    connection.write_bytes(place, &[5; 4096], None).await.unwrap();
    let given_up = tokio::time::timeout(PATIENCE, connection.await_written()).await.unwrap();
    assert!(matches!(given_up, Err(ClientMemoryError::Refused(_))), "{given_up:?}");
    connection.close_connection().await;
    // One that was never connected ends as well.
    let unused = rail.rail.prepare_connection(test_address().into()).await.unwrap();
    unused.close_connection().await;
    rail.end().await;
}

/// Reads all of it, as many at once as there may be.
async fn read_all(
    connection: &mut dyn ClientConnection,
    place: ClientPlace,
    bytes: u64,
) -> Result<Vec<u8>, ClientMemoryError> {
    let (mut posted, mut taken) = (0, Vec::new());
    loop {
        while posted < bytes {
            let next = ClientPlace { address: place.address.wrapping_add(posted), ..place };
            match connection.post_read(next, bytes - posted)? {
                0 => break,
                more => posted += more,
            }
        }
        match connection.take_read().await? {
            Some(piece) => taken.extend_from_slice(&piece),
            None => return Ok(taken),
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs an RDMA device: run it in the VM, tests/testbed/vm-suite.sh"]
async fn client_memory_is_read_to_its_last_byte_and_no_further() {
    let rail = TestRail::open().await;
    let piece = CLIENT_PIECE_BYTES;
    for bytes in [1, 2, 4095, 4096, 65_537, piece, piece + 1, 9 * piece + 7, 64 << 20] {
        let content = pattern(bytes + 128, bytes as u64);
        let client = Client::with_content(content.clone());
        let mut connection = rail.connect_for(&client).await;
        let read = read_all(&mut *connection, client.place_at(64), bytes as u64).await.unwrap();
        assert!(read == content[64..64 + bytes], "{bytes} bytes are as the client has them");
        assert!(client.memory == content, "and it still has them");
        assert_eq!(rail.arena.arena_usage().asked_bytes, 0, "what was taken is free");
        connection.close_connection().await;
    }
    rail.end().await;
}

/// So that a store that is slow holds its own transfer up, and no memory of others.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs an RDMA device: run it in the VM, tests/testbed/vm-suite.sh"]
async fn client_memory_is_read_no_further_ahead_than_is_allowed() {
    let rail = TestRail::open().await;
    let client = Client::with_content(pattern(12 * CLIENT_PIECE_BYTES, 1));
    let mut connection = rail.connect_for(&client).await;
    let post = |connection: &mut dyn ClientConnection, at: usize| {
        connection.post_read(client.place_at(at * CLIENT_PIECE_BYTES), u64::MAX).unwrap()
    };
    for at in 0..CLIENT_PIECES {
        assert_eq!(post(&mut *connection, at), CLIENT_PIECE_BYTES as u64);
    }
    assert_eq!(post(&mut *connection, CLIENT_PIECES), 0);
    let mut first = Vec::new();
    while first.len() < CLIENT_PIECE_BYTES {
        assert_eq!(post(&mut *connection, CLIENT_PIECES), 0, "it is not taken whole");
        first.extend_from_slice(&connection.take_read().await.unwrap().unwrap());
    }
    assert!(first == client.memory[..CLIENT_PIECE_BYTES]);
    assert_eq!(post(&mut *connection, CLIENT_PIECES), CLIENT_PIECE_BYTES as u64);
    assert_eq!(post(&mut *connection, CLIENT_PIECES + 1), 0, "what has arrived counts, too");
    assert_eq!(rail.arena.arena_usage().asked_bytes, (CLIENT_PIECES * CLIENT_PIECE_BYTES) as u64);
    connection.close_connection().await;
    rail.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs an RDMA device: run it in the VM, tests/testbed/vm-suite.sh"]
async fn client_memory_that_can_not_be_read_gives_no_byte() {
    let rail = TestRail::open().await;
    let honest = Client::with_content(pattern(4096, 7));
    let mut kept = rail.connect_for(&honest).await;
    let far = 3 * CLIENT_PIECE_BYTES;
    for lie in 0..4 {
        let bytes = far + 4096;
        let liar = match lie {
            // Its memory may be written, and not read.
            0 => Client::with_bytes(bytes),
            _ => Client::with_content(pattern(bytes, 9)),
        };
        let place = liar.place_at(0);
        let place = match lie {
            1 => ClientPlace { key: place.key ^ 0x00ff_ff00, ..place },
            // The last of its reads is beyond the end of its memory.
            2 => liar.place_at(4097),
            3 => ClientPlace { address: u64::MAX - 50, ..place },
            _ => place,
        };
        let mut connection = rail.connect_for(&liar).await;
        let refused = read_all(&mut *connection, place, bytes as u64).await.unwrap_err();
        assert!(matches!(refused, ClientMemoryError::Refused(_)), "{lie}: {refused}");
        // What is posted behind it is flushed, and is no byte of the client either.
        let again = connection.take_read().await;
        assert!(!matches!(again, Ok(Some(_))), "{lie}: {again:?}");
        connection.close_connection().await;
    }
    let read = read_all(&mut *kept, honest.place_at(0), 4096).await.unwrap();
    assert!(read == honest.memory);
    kept.close_connection().await;
    rail.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs an RDMA device: run it in the VM, tests/testbed/vm-suite.sh"]
async fn client_memory_of_a_client_that_is_gone_is_not_read() {
    let rail = TestRail::open().await;
    let client = Client::with_content(pattern(4096, 3));
    let mut connection = rail.connect_for(&client).await;
    let place = client.place_at(0);
    drop(client);
    let reading = tokio::time::timeout(PATIENCE, read_all(&mut *connection, place, 4096));
    let given_up = reading.await.unwrap();
    assert!(matches!(given_up, Err(ClientMemoryError::Refused(_))), "{given_up:?}");
    connection.close_connection().await;
    // Reads that nobody takes go with their connection, also where it is dropped.
    for is_dropped in [false, true] {
        let client = Client::with_content(pattern(64 << 10, 5));
        let mut connection = rail.connect_for(&client).await;
        assert!(connection.post_read(client.place_at(0), 64 << 10).unwrap() > 0);
        if is_dropped {
            drop(connection);
            rail.wait_until(|rail| rail.arena.arena_usage().asked_bytes == 0).await;
        } else {
            connection.close_connection().await;
            assert_eq!(rail.arena.arena_usage().asked_bytes, 0);
        }
    }
    rail.end().await;
}
