//! The conformance suite of every transport: the guarantees to a requester and a server, whatever
//! moves the bytes.
//!
//! An ordinary test binary. It listens on loopback, or where `VERBS3_TEST_ADDRESS` (an IP address)
//! says, so it also runs inside a VM. Every test has a deadline: one that does not end fails.
#![allow(clippy::unwrap_used)]

mod cases;
mod devices;
mod failures;
mod peers;
mod placed;
mod quarantine;
mod raw;
mod shm;
mod shm_hostile;
mod shm_pair;
mod storm;
mod tcp_hostile;
mod tcp_threads;
mod tls;
mod transport_fixture;
mod verbs_faults;
mod verbs_lent_memory;

/// Runs each case against each fixture.
macro_rules! conformance {
    ($fixture:ident, $make:expr, $(#[$attribute:meta])? [$($module:ident :: $case:ident),* $(,)?]) => {
        conformance!(@ $fixture, $make, [$(#[$attribute])?], $($module :: $case),*);
    };
    (@ $fixture:ident, $make:expr, $attributes:tt, $($module:ident :: $case:ident),*) => {
        mod $fixture {
            $(conformance!(@ case $make, $attributes, $module :: $case);)*
        }
    };
    (@ case $make:expr, [$(#[$attribute:meta])?], $module:ident :: $case:ident) => {
            $(#[$attribute])?
            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $case() {
                crate::transport_fixture::within_deadline(crate::$module::$case($make)).await;
            }
    };
}

/// Cases for every transport between two processes; a fixture's own cases follow.
macro_rules! between_processes {
    ($fixture:ident, $make:expr, $(#[$attribute:meta])? [$($own:tt)*]) => {
        conformance!(
            $fixture,
            $make,
            $(#[$attribute])?
            [
                cases::every_size_arrives_as_it_was_sent,
                cases::parts_arrive_one_by_one_in_the_order_they_were_sent,
                cases::parts_may_come_in_any_order_of_offsets,
                cases::concurrent_calls_keep_their_bytes_apart,
                cases::a_requester_pushes_what_the_server_wants,
                cases::a_push_of_another_length_is_refused,
                cases::a_dropped_call_drops_its_handler,
                cases::a_reply_beyond_the_landing_is_refused_where_it_is_made,
                cases::a_thousand_calls_share_a_few_credits,
                cases::a_call_that_waits_for_a_credit_can_be_given_up,
                cases::a_waiting_call_that_nobody_polls_starves_no_other,
                failures::a_handler_that_ends_without_a_reply_fails_its_call,
                failures::a_handler_that_panics_fails_its_call_only,
                failures::a_reply_from_another_task_reaches_the_requester,
                failures::a_handler_that_gives_a_pull_up_gets_its_memory_back,
                failures::shutdown_lets_calls_under_way_finish,
                failures::a_server_that_dies_settles_every_call,
                failures::a_handler_ends_when_its_requester_is_gone,
                quarantine::a_cancelled_landing_comes_back_after_the_acknowledgement,
                storm::calls_given_up_at_any_moment_leave_the_others_whole,
                $($own)*
            ]
        );
    };
}

conformance!(
    share,
    crate::transport_fixture::TransportFixture::share(),
    [
        cases::every_size_arrives_as_it_was_sent,
        cases::parts_arrive_one_by_one_in_the_order_they_were_sent,
        cases::parts_may_come_in_any_order_of_offsets,
        cases::concurrent_calls_keep_their_bytes_apart,
        cases::a_requester_pushes_what_the_server_wants,
        cases::a_push_of_another_length_is_refused,
        cases::a_dropped_call_drops_its_handler,
        failures::a_handler_that_ends_without_a_reply_fails_its_call,
        failures::a_handler_that_panics_fails_its_call_only,
        failures::a_reply_from_another_task_reaches_the_requester,
    ]
);

conformance!(
    copy,
    crate::transport_fixture::TransportFixture::copy(),
    [
        cases::every_size_arrives_as_it_was_sent,
        cases::parts_arrive_one_by_one_in_the_order_they_were_sent,
        cases::parts_may_come_in_any_order_of_offsets,
        cases::concurrent_calls_keep_their_bytes_apart,
        cases::a_requester_pushes_what_the_server_wants,
        cases::a_push_of_another_length_is_refused,
        cases::a_dropped_call_drops_its_handler,
        cases::a_landing_returns_when_its_call_is_settled,
        cases::a_reply_beyond_the_landing_is_refused_where_it_is_made,
        failures::a_handler_that_ends_without_a_reply_fails_its_call,
        failures::a_handler_that_panics_fails_its_call_only,
        failures::a_reply_from_another_task_reaches_the_requester,
        quarantine::a_cancelled_landing_comes_back_after_the_acknowledgement,
        storm::calls_given_up_at_any_moment_leave_the_others_whole,
    ]
);

between_processes!(
    tcp,
    crate::transport_fixture::TransportFixture::tcp().await,
    [cases::a_landing_returns_when_its_call_is_settled]
);

between_processes!(
    tcp_over_tls,
    crate::transport_fixture::TransportFixture::tcp_over_tls().await,
    [cases::a_landing_returns_when_its_call_is_settled]
);

between_processes!(
    tcp_on_threads,
    crate::transport_fixture::TransportFixture::tcp_on_threads().await,
    [cases::a_landing_returns_when_its_call_is_settled]
);

between_processes!(
    verbs_by_stream,
    crate::transport_fixture::TransportFixture::verbs().await,
    #[ignore = "needs an RDMA device: run it in the VM, tests/testbed/vm-suite.sh"]
    [cases::a_landing_returns_when_its_call_is_settled]
);

between_processes!(
    verbs_by_write,
    crate::transport_fixture::TransportFixture::verbs_by_write().await,
    #[ignore = "needs an RDMA device: run it in the VM, tests/testbed/vm-suite.sh"]
    [cases::a_landing_returns_when_its_call_is_settled]
);

between_processes!(
    shm_copied,
    crate::transport_fixture::TransportFixture::shm().await,
    [cases::a_landing_returns_when_its_call_is_settled]
);

between_processes!(
    shm_by_reference,
    crate::transport_fixture::TransportFixture::shm_by_reference().await,
    []
);
