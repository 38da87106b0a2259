/* Owns what moves bytes: queue pairs, their requests and completions. The inline functions of <infiniband/verbs.h> call it
 * through the context. */
#include "fake_verbs.h"


pthread_mutex_t fake_lock = PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP;
struct fake_cq *queues;
struct fake_mr *regions[KEYS];
struct fake_mw *windows[KEYS];
static struct fake_qp *pairs;
static uint32_t last_qp = 16;

void fake_enter(void) { pthread_mutex_lock(&fake_lock); }
void fake_leave(void) { pthread_mutex_unlock(&fake_lock); }

uint64_t now_ns(void)
{
	struct timespec now;
	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec * 1000000000ull + now.tv_nsec;
}

/* Completions. */

void notify_queue(struct fake_cq *cq, bool solicited)
{
	bool told_alone = cq->armed_solicited && solicited && !profile_of(cq->cq.context)->unsolicited;
	if ((cq->armed || told_alone) && cq->cq.channel) {
		void *told = cq;
		int pipe_end = cq->cq.channel->refcnt;
		cq->armed = cq->armed_solicited = false;
		if (write(pipe_end, &told, sizeof told) != sizeof told)
			abort();
	}
}

static void complete(struct fake_qp *qp, uint64_t id, enum ibv_wc_status status, enum ibv_wc_opcode opcode, uint32_t bytes,
		     bool receive, uint64_t due, bool marked)
{
	struct fake_cq *cq = (struct fake_cq *)(receive ? qp->qp.recv_cq : qp->qp.send_cq);
	if (cq->count == cq->size) {
		fprintf(stderr, "fake verbs: a completion queue of %d is overrun\n", cq->size);
		abort();
	}
	struct fake_wc *entry = &cq->entries[(cq->head + cq->count++) % cq->size];
	bool solicited = marked || status != IBV_WC_SUCCESS;
	*entry = (struct fake_wc){ .due = due, .receive = receive, .solicited = solicited };
	entry->wc = (struct ibv_wc){ .wr_id = id, .status = status, .opcode = opcode, .byte_len = bytes, .qp_num = qp->qp.qp_num };
	if (!due)
		notify_queue(cq, solicited);
}

int poll_cq(struct ibv_cq *ibcq, int most, struct ibv_wc *to)
{
	struct fake_cq *cq = (struct fake_cq *)ibcq;
	int taken = 0;
	fake_enter();
	while (taken < most && cq->count && cq->entries[cq->head].due <= now_ns()) {
		struct fake_wc *entry = &cq->entries[cq->head];
		to[taken++] = entry->wc;
		cq->head = (cq->head + 1) % cq->size;
		cq->count--;
	}
	fake_leave();
	return taken;
}

int req_notify_cq(struct ibv_cq *cq, int solicited)
{
	struct fake_cq *armed = (struct fake_cq *)cq;
	fake_enter();
	*(solicited ? &armed->armed_solicited : &armed->armed) = true;
	fake_leave();
	return 0;
}

/* Receive queues. */

static int push_wqe(struct recv_queue *queue, struct ibv_recv_wr *wr)
{
	if (queue->count == queue->size || wr->num_sge != 1)
		return ENOMEM;
	queue->wqes[(queue->head + queue->count++) % queue->size] = (struct recv_wqe){ wr->wr_id, wr->sg_list[0] };
	return 0;
}

static bool pop_wqe(struct recv_queue *queue, struct recv_wqe *wqe)
{
	if (!queue->count)
		return false;
	*wqe = queue->wqes[queue->head];
	queue->head = (queue->head + 1) % queue->size;
	queue->count--;
	return true;
}

/* Memory. */

static struct fake_mr *covering(uint32_t key, uint64_t addr, uint64_t bytes, int access)
{
	struct fake_mr *mr = key < KEYS << 8 ? regions[key >> 8] : NULL;
	uint64_t base = mr ? (uint64_t)mr->mr.addr : 0;
	return mr && (mr->access & access) == access && addr >= base && addr + bytes <= base + mr->mr.length ? mr : NULL;
}

static bool may_write(struct fake_qp *qp, uint32_t key, uint64_t addr, uint64_t bytes)
{
	if (covering(key, addr, bytes, IBV_ACCESS_REMOTE_WRITE))
		return true;
	struct fake_mw *mw = key < KEYS << 8 ? windows[key >> 8] : NULL;
	return mw && mw->bound && mw->key == key && mw->qp_num == qp->qp.qp_num && addr >= mw->addr &&
	       addr + bytes <= mw->addr + mw->length;
}

/* Queue pairs. */

struct fake_qp *find_qp(uint32_t number)
{
	for (struct fake_qp *qp = pairs; qp; qp = qp->next)
		if (qp->qp.qp_num == number)
			return qp;
	return NULL;
}

static struct recv_queue *receives_of(struct fake_qp *qp)
{
	return qp->qp.srq ? &((struct fake_srq *)qp->qp.srq)->queue : &qp->receives;
}

void fail_qp(struct fake_qp *qp)
{
	struct recv_wqe wqe;
	uint64_t due = profile_of(qp->qp.context)->late ? now_ns() + LATE_NS : 0;
	if (qp->silent || device_of(qp->qp.context)->stuck || qp->qp.state == IBV_QPS_ERR || qp->qp.state == IBV_QPS_RESET)
		return;
	qp->qp.state = IBV_QPS_ERR;
	for (struct fake_cq *cq = queues; cq; cq = cq->next)
		for (int at = 0; at < cq->count; at++) {
			struct fake_wc *entry = &cq->entries[(cq->head + at) % cq->size];
			/* A message that was half here. */
			if (entry->wc.qp_num == qp->qp.qp_num && entry->due > now_ns()) {
				entry->wc.status = IBV_WC_WR_FLUSH_ERR;
				entry->due = due;
			}
		}
	while (qp->first) {
		struct send_wqe *next = qp->first->next;
		complete(qp, qp->first->wr.wr_id, IBV_WC_WR_FLUSH_ERR, IBV_WC_SEND, 0, false, due, false);
		free(qp->first);
		qp->first = next;
	}
	qp->last = NULL;
	if (qp->qp.srq)
		raise_async(device_of(qp->qp.context), IBV_EVENT_QP_LAST_WQE_REACHED, qp);
	else
		while (pop_wqe(&qp->receives, &wqe))
			complete(qp, wqe.id, IBV_WC_WR_FLUSH_ERR, IBV_WC_RECV, 0, true, due, false);
}

void silence_pairs(struct ibv_context *context)
{
	for (struct fake_qp *qp = pairs; qp; qp = qp->next)
		if (qp->qp.context == context)
			qp->silent = true;
}

static uint32_t gather(struct send_wqe *wqe, char *to)
{
	uint32_t bytes = 0;
	for (int at = 0; at < wqe->wr.num_sge; at++) {
		if (to)
			memcpy(to + bytes, (void *)wqe->sges[at].addr, wqe->sges[at].length);
		bytes += wqe->sges[at].length;
	}
	return bytes;
}

/* Runs one request. Returns its status, or -1 where it waits for a receive buffer of the peer. */
static int run_request(struct fake_qp *qp, struct send_wqe *wqe, uint64_t due)
{
	struct fake_qp *peer = find_qp(qp->dest);
	bool is_inline = wqe->wr.send_flags & IBV_SEND_INLINE;
	uint32_t bytes = gather(wqe, NULL);
	if (wqe->wr.opcode == IBV_WR_BIND_MW) {
		struct fake_mw *mw = (struct fake_mw *)wqe->wr.bind_mw.mw;
		struct ibv_mw_bind_info *info = &wqe->wr.bind_mw.bind_info;
		bool replayed = profile_of(qp->qp.context)->replays_binds && qp->acknowledged_at > now_ns();
		if (!covering(info->mr->lkey, info->addr, info->length, IBV_ACCESS_MW_BIND) || mw->bound || replayed)
			return IBV_WC_MW_BIND_ERR;
		mw->bound = true;
		mw->addr = info->addr, mw->length = info->length, mw->key = wqe->wr.bind_mw.rkey, mw->qp_num = qp->qp.qp_num;
		return IBV_WC_SUCCESS;
	}
	if (wqe->wr.opcode == IBV_WR_LOCAL_INV) {
		struct fake_mw *mw = windows[wqe->wr.invalidate_rkey >> 8];
		if (!mw || mw->key != wqe->wr.invalidate_rkey)
			return IBV_WC_LOC_PROT_ERR;
		mw->bound = false;
		return IBV_WC_SUCCESS;
	}
	if (!is_inline)
		for (int at = 0; at < wqe->wr.num_sge; at++)
			if (!covering(wqe->sges[at].lkey, wqe->sges[at].addr, wqe->sges[at].length, 0))
				return IBV_WC_LOC_PROT_ERR;
	if (peer && peer->silent)
		return -1;
	if (!peer || peer->dead || peer->qp.state == IBV_QPS_ERR || device_of(peer->qp.context)->gone)
		return IBV_WC_RETRY_EXC_ERR;
	if (wqe->wr.opcode == IBV_WR_RDMA_WRITE) {
		if (bytes && !may_write(peer, wqe->wr.wr.rdma.rkey, wqe->wr.wr.rdma.remote_addr, bytes)) {
			raise_async(device_of(peer->qp.context), IBV_EVENT_QP_ACCESS_ERR, peer);
			fail_qp(peer);
			return IBV_WC_REM_ACCESS_ERR;
		}
		gather(wqe, (char *)wqe->wr.wr.rdma.remote_addr);
		return IBV_WC_SUCCESS;
	}
	struct recv_wqe into;
	if (!pop_wqe(receives_of(peer), &into))
		return -1;
	if (into.sge.length < bytes || !covering(into.sge.lkey, into.sge.addr, into.sge.length, IBV_ACCESS_LOCAL_WRITE)) {
		complete(peer, into.id, IBV_WC_LOC_LEN_ERR, IBV_WC_RECV, 0, true, 0, false);
		fail_qp(peer);
		return IBV_WC_REM_INV_REQ_ERR;
	}
	gather(wqe, (char *)into.sge.addr);
	complete(peer, into.id, IBV_WC_SUCCESS, profile_of(peer->qp.context)->wrong_opcode ? IBV_WC_RECV_RDMA_WITH_IMM : IBV_WC_RECV,
		 bytes, true, due, wqe->wr.send_flags & IBV_SEND_SOLICITED);
	return IBV_WC_SUCCESS;
}

static void run_sends(struct fake_qp *qp)
{
	while (qp->first && qp->qp.state == IBV_QPS_RTS && !qp->silent) {
		struct send_wqe *wqe = qp->first;
		bool slow = profile_of(qp->qp.context)->late && gather(wqe, NULL) > 4096 && wqe->wr.opcode == IBV_WR_SEND;
		uint64_t due = slow ? now_ns() + LATE_NS : 0;
		int status = run_request(qp, wqe, due);
		if (status < 0 || qp->qp.state != IBV_QPS_RTS)
			return;
		if (profile_of(qp->qp.context)->replays_binds && wqe->wr.opcode != IBV_WR_BIND_MW && wqe->wr.opcode != IBV_WR_LOCAL_INV)
			qp->acknowledged_at = due = now_ns() + ACK_NS;
		bool signalled = qp->signal_all || (wqe->wr.send_flags & IBV_SEND_SIGNALED);
		qp->first = wqe->next;
		if (!qp->first)
			qp->last = NULL;
		if (status || signalled)
			complete(qp, wqe->wr.wr_id, status,
				 wqe->wr.opcode == IBV_WR_RDMA_WRITE ? IBV_WC_RDMA_WRITE
				 : wqe->wr.opcode == IBV_WR_BIND_MW  ? IBV_WC_BIND_MW
				 : wqe->wr.opcode == IBV_WR_LOCAL_INV ? IBV_WC_LOCAL_INV
								      : IBV_WC_SEND,
				 0, false, due, false);
		free(wqe);
		if (status)
			fail_qp(qp);
	}
}

int post_send(struct ibv_qp *ibqp, struct ibv_send_wr *wr, struct ibv_send_wr **bad)
{
	struct fake_qp *qp = (struct fake_qp *)ibqp;
	int result = 0;
	fake_enter();
	for (; wr && !result; wr = wr->next) {
		*bad = wr;
		struct send_wqe *wqe = calloc(1, sizeof *wqe);
		wqe->wr = *wr;
		memcpy(wqe->sges, wr->sg_list, wr->num_sge * sizeof *wqe->sges);
		if (ibqp->state != IBV_QPS_RTS && ibqp->state != IBV_QPS_ERR)
			result = EINVAL;
		if (profile_of(ibqp->context)->strict && !qp->min_rnr_timer)
			result = EINVAL;
		if (wr->send_flags & IBV_SEND_INLINE) {
			if (gather(wqe, NULL) > qp->max_inline)
				result = ENOMEM;
			else {
				uint32_t bytes = gather(wqe, wqe->inlined);
				wqe->wr.num_sge = 1;
				wqe->sges[0] = (struct ibv_sge){ (uint64_t)wqe->inlined, bytes, 0 };
			}
		}
		if (result || ibqp->state == IBV_QPS_ERR) {
			if (!result && !qp->silent)
				complete(qp, wr->wr_id, IBV_WC_WR_FLUSH_ERR, IBV_WC_SEND, 0, false,
					 profile_of(ibqp->context)->late ? now_ns() + LATE_NS : 0, false);
			free(wqe);
			continue;
		}
		if (qp->last)
			qp->last->next = wqe;
		else
			qp->first = wqe;
		wqe->next = NULL;
		qp->last = wqe;
	}
	run_sends(qp);
	fake_leave();
	return result;
}

/* Runs what waited for a receive buffer. */
static void run_waiting(void)
{
	for (struct fake_qp *qp = pairs; qp; qp = qp->next)
		if (qp->first)
			run_sends(qp);
}

int post_recv(struct ibv_qp *ibqp, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad)
{
	struct fake_qp *qp = (struct fake_qp *)ibqp;
	fake_enter();
	*bad = wr;
	int result = ibqp->state == IBV_QPS_RESET ? EINVAL : ibqp->state == IBV_QPS_ERR ? 0 : push_wqe(&qp->receives, wr);
	if (ibqp->state == IBV_QPS_ERR)
		complete(qp, wr->wr_id, IBV_WC_WR_FLUSH_ERR, IBV_WC_RECV, 0, true, 0, false);
	run_waiting();
	fake_leave();
	return result;
}

int post_srq_recv(struct ibv_srq *srq, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad)
{
	fake_enter();
	*bad = wr;
	int result = push_wqe(&((struct fake_srq *)srq)->queue, wr);
	run_waiting();
	fake_leave();
	return result;
}

struct ibv_qp *make_qp(struct ibv_pd *pd, struct ibv_qp_init_attr *attr)
{
	if (attr->cap.max_inline_data > profile_of(pd->context)->max_inline)
		return fail(EINVAL);
	struct fake_qp *qp = calloc(1, sizeof *qp);
	qp->qp = (struct ibv_qp){ .context = pd->context, .pd = pd, .send_cq = attr->send_cq, .recv_cq = attr->recv_cq,
				  .srq = attr->srq, .qp_num = ++last_qp, .state = IBV_QPS_RESET, .qp_type = attr->qp_type };
	qp->max_send = attr->cap.max_send_wr, qp->max_inline = attr->cap.max_inline_data, qp->signal_all = attr->sq_sig_all;
	qp->path_mtu = IBV_MTU_4096;
	qp->receives.size = attr->cap.max_recv_wr;
	qp->receives.wqes = calloc(attr->cap.max_recv_wr + 1, sizeof *qp->receives.wqes);
	qp->next = pairs;
	pairs = qp;
	return &qp->qp;
}

int destroy_qp(struct ibv_qp *ibqp)
{
	struct fake_qp *qp = (struct fake_qp *)ibqp;
	if (profile_of(ibqp->context)->destroy_fails || device_of(ibqp->context)->stuck)
		return errno = EBUSY;
	for (int at = 0; at < KEYS; at++)
		if (windows[at] && windows[at]->bound && windows[at]->qp_num == ibqp->qp_num)
			return errno = EBUSY;
	qp->dead = true;
	forget_async(qp);
	if (profile_of(ibqp->context)->late)
		for (struct fake_cq *cq = queues; cq; cq = cq->next) {
			int kept = 0;
			for (int at = 0; at < cq->count; at++) {
				struct fake_wc entry = cq->entries[(cq->head + at) % cq->size];
				if (entry.wc.qp_num != ibqp->qp_num)
					cq->entries[(cq->head + kept++) % cq->size] = entry;
			}
			cq->count = kept;
		}
	for (struct fake_qp **place = &pairs; *place; place = &(*place)->next)
		if (*place == qp) {
			*place = qp->next;
			break;
		}
	while (qp->first) {
		struct send_wqe *next = qp->first->next;
		free(qp->first);
		qp->first = next;
	}
	free(qp->receives.wqes);
	free(qp);
	return 0;
}

void ready_qp(struct ibv_qp *ibqp, uint32_t dest)
{
	((struct fake_qp *)ibqp)->dest = dest;
	ibqp->state = IBV_QPS_RTS;
}

EXPORT struct ibv_qp *ibv_create_qp(struct ibv_pd *pd, struct ibv_qp_init_attr *attr) { return LOCKED(make_qp(pd, attr)); }
EXPORT int ibv_destroy_qp(struct ibv_qp *qp) { return LOCKED(destroy_qp(qp)); }

EXPORT int ibv_modify_qp(struct ibv_qp *ibqp, struct ibv_qp_attr *attr, int mask)
{
	struct fake_qp *qp = (struct fake_qp *)ibqp;
	int result = 0;
	fake_enter();
	if (mask & IBV_QP_MIN_RNR_TIMER)
		qp->min_rnr_timer = attr->min_rnr_timer;
	if (mask & IBV_QP_PATH_MTU)
		qp->path_mtu = attr->path_mtu;
	if (mask & IBV_QP_DEST_QPN)
		qp->dest = attr->dest_qp_num;
	if (mask & IBV_QP_STATE) {
		if (attr->qp_state == IBV_QPS_ERR && device_of(ibqp->context)->stuck)
			result = EIO;
		else if (attr->qp_state == IBV_QPS_ERR)
			fail_qp(qp);
		else if (attr->qp_state == IBV_QPS_RTR && profile_of(ibqp->context)->strict && !qp->min_rnr_timer)
			result = EINVAL;
		else
			ibqp->state = attr->qp_state;
	}
	fake_leave();
	return result;
}

EXPORT int ibv_query_qp(struct ibv_qp *ibqp, struct ibv_qp_attr *attr, int mask, struct ibv_qp_init_attr *init)
{
	(void)mask, (void)init;
	fake_enter();
	*attr = (struct ibv_qp_attr){ .qp_state = ibqp->state, .path_mtu = ((struct fake_qp *)ibqp)->path_mtu,
				      .min_rnr_timer = ((struct fake_qp *)ibqp)->min_rnr_timer };
	fake_leave();
	return 0;
}
