/* Owns the shapes that both halves of the fake verbs provider share: `fake_device.c` and `fake_queues.c` are its
 * libibverbs, `fake_cm.c` its librdmacm. One lock guards everything. Queue pairs of one process reach each other; bytes are copied when a request is posted.
 *
 * The fake checks what a NIC checks (keys, ranges, rights, states, depths) and refuses what some NICs refuse: an address
 * 127.0.P.N is port 1 of a device with the limits and habits of profile P (see `profiles` in `fake_device.c`). For N of
 * 128 and more it is another address of the device that has 127.0.P.(N - 128). */
#ifndef FAKE_VERBS_H
#define FAKE_VERBS_H

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <infiniband/verbs.h>
#include <netinet/in.h>
#include <pthread.h>
#include <rdma/rdma_cma.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

#undef ibv_reg_mr
#undef ibv_reg_mr_iova
#undef ibv_query_port
#undef ibv_get_device_list

#define EXPORT __attribute__((visibility("default")))

enum { VECTORS = 4 };

/* Limits and habits of a device. */
struct profile {
	const char *name;
	uint64_t max_mr_size;
	uint32_t max_inline;
	int max_srq;
	bool windows;
	/* Registrations of more than 1 MiB that succeed in the device's life, and the number of the one that fails once; 0 is no bound. */
	int large_regions_max, large_region_fails;
	/* Flushed completions come late, messages take a while to arrive, and a destroyed queue pair's completions are dropped. */
	bool late;
	bool destroy_fails;
	/* Refuses what only makes a real device slow: a queue pair without an RNR timer, completion queues that are all on one vector, an
	 * arena whose transfers keep their order, a type of service that only one side has. */
	bool strict;
	/* Completes SENDs with the opcode of another operation. */
	bool wrong_opcode;
	/* Acknowledges late, and runs a request that binds a window again when it sends again what was not acknowledged. The fake takes
	 * each such request for one that is run again. */
	bool replays_binds;
	/* Never tells of messages alone, as Linux's soft-iWARP. */
	bool unsolicited;
	/* Registrations of more than 1 MiB that all devices of the profile may have at once, as a process has a bound on locked memory. */
	int shared_regions_max;
};

struct fake_async {
	struct ibv_async_event event;
	struct fake_async *next;
};

struct fake_device {
	struct ibv_device device;
	struct ibv_context context;
	const struct profile *profile;
	struct in_addr address;
	struct fake_async *first_async;
	int large_regions, large_attempts, queues_on[VECTORS];
	bool gone, port_down;
	/* Its queue pairs can be neither stopped nor destroyed, and go on. */
	bool stuck;
	/* The kernel has taken it away: no call works any more. */
	bool disassociated;
	struct fake_device *next;
};

struct fake_mr {
	struct ibv_mr mr;
	int access;
};

struct fake_mw {
	struct ibv_mw mw;
	bool bound;
	uint64_t addr, length;
	uint32_t qp_num, key;
};

struct fake_wc {
	struct ibv_wc wc;
	uint64_t due;
	bool receive, solicited;
};

struct fake_cq {
	struct ibv_cq cq;
	struct fake_wc *entries;
	int head, count, size, users;
	bool armed;
	/* Armed for messages that are marked, and errors. */
	bool armed_solicited;
	struct fake_cq *next;
};

struct recv_wqe {
	uint64_t id;
	struct ibv_sge sge;
};

struct recv_queue {
	struct recv_wqe *wqes;
	int head, count, size;
};

struct fake_srq {
	struct ibv_srq srq;
	struct recv_queue queue;
};

struct send_wqe {
	struct ibv_send_wr wr;
	struct ibv_sge sges[8];
	char inlined[512];
	struct send_wqe *next;
};

struct fake_qp {
	struct ibv_qp qp;
	uint32_t dest, max_send, max_inline;
	uint8_t min_rnr_timer, path_mtu;
	uint64_t acknowledged_at;
	bool signal_all, dead;
	/* The device has failed: it completes nothing of this queue pair any more. */
	bool silent;
	/* Events that were read and not acknowledged. The destruction waits for them. */
	int unacknowledged;
	struct send_wqe *first, *last;
	struct recv_queue receives;
	struct fake_qp *next;
};

enum { LARGE = 1 << 20, LATE_NS = 3000000, ACK_NS = 300000, KEYS = 1 << 16 };

extern pthread_mutex_t fake_lock;
extern struct fake_cq *queues;
extern struct fake_mr *regions[KEYS];
extern struct fake_mw *windows[KEYS];
uint64_t now_ns(void);
void *fail(int code);
struct fake_device *device_of(struct ibv_context *context);
void notify_queue(struct fake_cq *cq, bool solicited);
int poll_cq(struct ibv_cq *cq, int most, struct ibv_wc *to);
int req_notify_cq(struct ibv_cq *cq, int solicited);
int post_send(struct ibv_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **bad);
int post_recv(struct ibv_qp *qp, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad);
int post_srq_recv(struct ibv_srq *srq, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad);
void fake_enter(void);
void fake_leave(void);
#define LOCKED(expression) ({ fake_enter(); __typeof__(expression) result_ = (expression); fake_leave(); result_; })

const struct profile *profile_of(struct ibv_context *context);
struct fake_device *device_at(struct in_addr address);
struct ibv_qp *make_qp(struct ibv_pd *pd, struct ibv_qp_init_attr *attr);
int destroy_qp(struct ibv_qp *qp);
void ready_qp(struct ibv_qp *qp, uint32_t dest);
void fail_qp(struct fake_qp *qp);
struct fake_qp *find_qp(uint32_t number);
void raise_async(struct fake_device *device, enum ibv_event_type type, void *element);
bool concerns_qp(const struct ibv_async_event *event);
void forget_async(struct fake_qp *qp);
void silence_pairs(struct ibv_context *context);
/* Tells every id of a device an event: in fake_cm.c. */
void tell_ids(struct ibv_context *context, enum rdma_cm_event_type type);

#endif
