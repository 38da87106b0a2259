/* Owns the fake's devices and their profiles, memory, and the making of queues: the exports of libibverbs.so.1 that verbs3 uses. */
#include "fake_verbs.h"

static const struct profile profiles[] = {
	{ "plain", UINT64_MAX, 256, 1024, true, 0, 0, false, false, false, false, false, false, 0 },
	/* As E810: takes 101 bytes inline, and has neither shared receive queues nor windows. */
	{ "narrow", UINT64_MAX, 101, 0, false, 0, 0, false, false, false, false, false, false, 0 },
	/* As eRDMA or ionic, to scale: short regions, of a length that no cell's is a divisor of. */
	{ "short", 5 << 20, 256, 1024, true, 0, 0, false, false, false, false, false, false, 0 },
	/* The third large registration fails once; there are no translations for more than four. */
	{ "scarce", 4 << 20, 256, 1024, true, 4, 3, false, false, false, false, false, false, 0 },
	/* As mlx5: completions that nobody took go with their queue pair. */
	{ "late", UINT64_MAX, 256, 1024, true, 0, 0, true, false, false, false, false, false, 0 },
	{ "stuck", UINT64_MAX, 256, 1024, false, 0, 0, false, true, false, false, false, false, 0 },
	{ "strict", UINT64_MAX, 256, 1024, false, 0, 0, false, false, true, false, false, false, 0 },
	{ "confused", UINT64_MAX, 256, 1024, false, 0, 0, false, false, false, true, false, false, 0 },
	/* As Linux's soft-RoCE: is told apart by its folder, under the folder FAKE_DEVICES. */
	{ "replaying", UINT64_MAX, 256, 1024, true, 0, 0, false, false, false, false, true, false, 0 },
	/* As Linux's soft-iWARP: who waits for marked messages alone is told of nothing. */
	{ "unsolicited", UINT64_MAX, 256, 1024, true, 0, 0, false, false, false, false, false, true, 0 },
	/* Two of them have room for one arena between them; the third large registration of each fails once. */
	{ "crowded", 4 << 20, 256, 1024, true, 0, 3, false, false, false, false, false, false, 5 },
};
enum { PROFILES = sizeof profiles / sizeof *profiles };

static struct fake_device *devices;

struct fake_device *device_of(struct ibv_context *context)
{
	return (struct fake_device *)((char *)context - offsetof(struct fake_device, context));
}

const struct profile *profile_of(struct ibv_context *context) { return device_of(context)->profile; }

void *fail(int code)
{
	errno = code;
	return NULL;
}

static void *make_due(void *unused)
{
	for (;; usleep(1000)) {
		fake_enter();
		for (struct fake_cq *cq = queues; cq; cq = cq->next)
			if (cq->count && cq->entries[cq->head].due && cq->entries[cq->head].due <= now_ns()) {
				cq->entries[cq->head].due = 0;
				notify_queue(cq, cq->entries[cq->head].solicited);
			}
		fake_leave();
	}
	return unused;
}


/* Devices. */

static struct ibv_mw *alloc_mw(struct ibv_pd *pd, enum ibv_mw_type type);
static int dealloc_mw(struct ibv_mw *mw);

/* The first byte of every device's address: FAKE_NETWORK, since no rail of a whole process is on loopback, or 127. */
static uint32_t network(void)
{
	const char *said = getenv("FAKE_NETWORK");
	return said ? strtoul(said, NULL, 10) : 127;
}

/* Returns the device that has `address`: each address of 127.0.P.N, for a known profile P, is one. */
struct fake_device *device_at(struct in_addr address)
{
	static bool started;
	uint32_t bits = ntohl(address.s_addr), number = bits >> 8 & 255;
	pthread_t thread;
	address.s_addr = htonl(bits & ~128u);
	if (bits >> 16 != network() << 8 || number >= PROFILES)
		return NULL;
	if (!started)
		started = !pthread_create(&thread, NULL, make_due, NULL) && !pthread_detach(thread);
	for (struct fake_device *device = devices; device; device = device->next)
		if (device->address.s_addr == address.s_addr)
			return device;
	struct fake_device *device = calloc(1, sizeof *device);
	device->profile = &profiles[number];
	device->address = address;
	device->device.node_type = IBV_NODE_CA;
	device->device.transport_type = IBV_TRANSPORT_IB;
	snprintf(device->device.name, sizeof device->device.name, "fake_%s%u", device->profile->name, bits & 127);
	const char *folder = getenv("FAKE_DEVICES");
	snprintf(device->device.ibdev_path, sizeof device->device.ibdev_path, "%s/%s", folder ? folder : "/sys/class/infiniband",
		 device->device.name);
	device->context.device = &device->device;
	device->context.async_fd = eventfd(0, EFD_CLOEXEC | EFD_SEMAPHORE);
	device->context.num_comp_vectors = VECTORS;
	device->context.ops.poll_cq = poll_cq;
	device->context.ops.req_notify_cq = req_notify_cq;
	device->context.ops.post_send = post_send;
	device->context.ops.post_recv = post_recv;
	device->context.ops.post_srq_recv = post_srq_recv;
	device->context.ops.alloc_mw = alloc_mw;
	device->context.ops.dealloc_mw = dealloc_mw;
	device->next = devices;
	return devices = device;
}

/* Events of the device, in a list, so that those of a queue pair can be forgotten with it. */

bool concerns_qp(const struct ibv_async_event *event)
{
	return event->event_type == IBV_EVENT_QP_FATAL || event->event_type == IBV_EVENT_QP_REQ_ERR ||
	       event->event_type == IBV_EVENT_QP_ACCESS_ERR || event->event_type == IBV_EVENT_QP_LAST_WQE_REACHED;
}

void raise_async(struct fake_device *device, enum ibv_event_type type, void *element)
{
	struct fake_async *event = calloc(1, sizeof *event), **place = &device->first_async;
	uint64_t one = 1;
	event->event = (struct ibv_async_event){ .element.qp = element, .event_type = type };
	if (!element)
		event->event.element.port_num = 1;
	while (*place)
		place = &(*place)->next;
	*place = event;
	if (write(device->context.async_fd, &one, sizeof one) != sizeof one)
		abort();
}

void forget_async(struct fake_qp *qp)
{
	struct fake_async **place = &device_of(qp->qp.context)->first_async;
	while (*place) {
		struct fake_async *event = *place;
		if (!concerns_qp(&event->event) || event->event.element.qp != &qp->qp) {
			place = &event->next;
			continue;
		}
		*place = event->next;
		free(event);
	}
	while (qp->unacknowledged) {
		fake_leave();
		usleep(100);
		fake_enter();
	}
}

EXPORT int ibv_get_async_event(struct ibv_context *context, struct ibv_async_event *to)
{
	uint64_t count;
	if (read(context->async_fd, &count, sizeof count) != sizeof count)
		return -1;
	fake_enter();
	struct fake_async *first = device_of(context)->first_async;
	if (first) {
		device_of(context)->first_async = first->next;
		*to = first->event;
		if (concerns_qp(to))
			((struct fake_qp *)to->element.qp)->unacknowledged++;
	}
	fake_leave();
	if (!first) {
		errno = EAGAIN;
		return -1;
	}
	free(first);
	return 0;
}

EXPORT void ibv_ack_async_event(struct ibv_async_event *event)
{
	fake_enter();
	if (concerns_qp(event))
		((struct fake_qp *)event->element.qp)->unacknowledged--;
	fake_leave();
}

EXPORT struct ibv_device **ibv_get_device_list(int *count)
{
	struct ibv_device **list = calloc(PROFILES + 1, sizeof *list);
	fake_enter();
	for (uint32_t at = 0; at < PROFILES; at++)
		list[at] = &device_at((struct in_addr){ htonl(network() << 24 | at << 8 | 1) })->device;
	fake_leave();
	if (count)
		*count = PROFILES;
	return list;
}

EXPORT void ibv_free_device_list(struct ibv_device **list) { free(list); }
EXPORT const char *ibv_get_device_name(struct ibv_device *device) { return device->name; }
EXPORT struct ibv_context *ibv_open_device(struct ibv_device *device) { return &((struct fake_device *)device)->context; }
EXPORT int ibv_close_device(struct ibv_context *context) { (void)context; return 0; }

EXPORT int ibv_query_device(struct ibv_context *context, struct ibv_device_attr *attr)
{
	const struct profile *profile = profile_of(context);
	if (device_of(context)->disassociated)
		return errno = EIO;
	*attr = (struct ibv_device_attr){ .max_mr_size = profile->max_mr_size, .max_qp = 1 << 16, .max_qp_wr = 1 << 14,
					  .max_sge = 8, .max_cq = 1 << 16, .max_cqe = 1 << 16, .max_mr = KEYS, .max_pd = 1 << 10,
					  .max_srq = profile->max_srq, .max_srq_wr = profile->max_srq ? 1 << 14 : 0,
					  .max_mw = profile->windows ? 1 << 14 : 0, .phys_port_cnt = 1,
					  .device_cap_flags = profile->windows ? IBV_DEVICE_MEM_WINDOW_TYPE_2B : 0 };
	return 0;
}

EXPORT int ibv_query_port(struct ibv_context *context, uint8_t number, struct _compat_ibv_port_attr *to)
{
	struct ibv_port_attr *attr = (struct ibv_port_attr *)to;
	(void)number;
	attr->state = device_of(context)->port_down ? IBV_PORT_DOWN : IBV_PORT_ACTIVE;
	attr->max_mtu = attr->active_mtu = IBV_MTU_4096;
	attr->link_layer = IBV_LINK_LAYER_ETHERNET;
	return 0;
}

EXPORT struct ibv_pd *ibv_alloc_pd(struct ibv_context *context)
{
	struct ibv_pd *pd = calloc(1, sizeof *pd);
	pd->context = context;
	return pd;
}

EXPORT int ibv_dealloc_pd(struct ibv_pd *pd)
{
	free(pd);
	return 0;
}

/* Memory. */

static int free_key(void *const *taken)
{
	for (int key = 1; key < KEYS; key++)
		if (!taken[key])
			return key;
	abort();
}

static bool lacks_shared_room(const struct profile *profile)
{
	int large = 0;
	for (int key = 0; key < KEYS; key++)
		large += regions[key] && regions[key]->mr.length > LARGE && profile_of(regions[key]->mr.context) == profile;
	return profile->shared_regions_max && large >= profile->shared_regions_max;
}

static struct ibv_mr *register_memory(struct ibv_pd *pd, void *addr, size_t length, int access)
{
	struct fake_device *device = device_of(pd->context);
	const struct profile *profile = device->profile;
	/* Rings of messages have local write access alone. */
	bool is_arena = length > LARGE && (access & ~IBV_ACCESS_RELAXED_ORDERING) != IBV_ACCESS_LOCAL_WRITE;
	if (length > profile->max_mr_size || (profile->strict && is_arena && !(access & IBV_ACCESS_RELAXED_ORDERING)))
		return fail(EINVAL);
	if (length > LARGE) {
		bool is_full = profile->large_regions_max && device->large_regions == profile->large_regions_max;
		if (++device->large_attempts == profile->large_region_fails || is_full || lacks_shared_room(profile))
			return fail(ENOMEM);
		device->large_regions++;
	}
	struct fake_mr *mr = calloc(1, sizeof *mr);
	int key = free_key((void *const *)regions);
	regions[key] = mr;
	mr->access = access;
	mr->mr = (struct ibv_mr){ .context = pd->context, .pd = pd, .addr = addr, .length = length, .lkey = key << 8,
				  .rkey = key << 8 };
	return &mr->mr;
}

EXPORT struct ibv_mr *ibv_reg_mr(struct ibv_pd *pd, void *addr, size_t length, int access)
{
	return LOCKED(register_memory(pd, addr, length, access));
}

EXPORT struct ibv_mr *ibv_reg_mr_iova2(struct ibv_pd *pd, void *addr, size_t length, uint64_t iova, unsigned int access)
{
	(void)iova;
	return LOCKED(register_memory(pd, addr, length, access));
}

EXPORT int ibv_dereg_mr(struct ibv_mr *mr)
{
	fake_enter();
	regions[mr->lkey >> 8] = NULL;
	fake_leave();
	free(mr);
	return 0;
}

static struct ibv_mw *alloc_mw(struct ibv_pd *pd, enum ibv_mw_type type)
{
	if (!profile_of(pd->context)->windows)
		return fail(EOPNOTSUPP);
	struct fake_mw *mw = calloc(1, sizeof *mw);
	fake_enter();
	int key = free_key((void *const *)windows);
	windows[key] = mw;
	fake_leave();
	mw->mw = (struct ibv_mw){ .context = pd->context, .pd = pd, .rkey = key << 8, .type = type };
	return &mw->mw;
}

static int dealloc_mw(struct ibv_mw *mw)
{
	fake_enter();
	windows[mw->rkey >> 8] = NULL;
	fake_leave();
	free(mw);
	return 0;
}

/* Queues. */

EXPORT struct ibv_comp_channel *ibv_create_comp_channel(struct ibv_context *context)
{
	struct ibv_comp_channel *channel = calloc(1, sizeof *channel);
	int ends[2];
	if (pipe2(ends, O_CLOEXEC))
		abort();
	/* The count of references holds the writing end: nobody else uses it here. */
	*channel = (struct ibv_comp_channel){ .context = context, .fd = ends[0], .refcnt = ends[1] };
	return channel;
}

EXPORT int ibv_destroy_comp_channel(struct ibv_comp_channel *channel)
{
	close(channel->fd);
	close(channel->refcnt);
	free(channel);
	return 0;
}

EXPORT struct ibv_cq *ibv_create_cq(struct ibv_context *context, int cqe, void *cq_context, struct ibv_comp_channel *channel,
				    int vector)
{
	if (vector < 0 || vector >= context->num_comp_vectors)
		return fail(EINVAL);
	int *queues_on = device_of(context)->queues_on, unused = 0;
	for (int other = 0; other < VECTORS; other++)
		unused += !queues_on[other];
	if (profile_of(context)->strict && queues_on[vector] >= 8 && unused)
		return fail(ENOSPC);
	queues_on[vector]++;
	struct fake_cq *cq = calloc(1, sizeof *cq);
	cq->cq = (struct ibv_cq){ .context = context, .channel = channel, .cq_context = cq_context, .cqe = cqe };
	cq->size = cqe;
	cq->entries = calloc(cqe, sizeof *cq->entries);
	fake_enter();
	cq->next = queues;
	queues = cq;
	fake_leave();
	return &cq->cq;
}

EXPORT int ibv_destroy_cq(struct ibv_cq *ibcq)
{
	fake_enter();
	for (struct fake_cq **place = &queues; *place; place = &(*place)->next)
		if (&(*place)->cq == ibcq) {
			*place = (*place)->next;
			break;
		}
	fake_leave();
	free(((struct fake_cq *)ibcq)->entries);
	free(ibcq);
	return 0;
}

EXPORT int ibv_get_cq_event(struct ibv_comp_channel *channel, struct ibv_cq **cq, void **cq_context)
{
	if (read(channel->fd, cq, sizeof *cq) != sizeof *cq)
		return -1;
	*cq_context = NULL;
	return 0;
}

EXPORT void ibv_ack_cq_events(struct ibv_cq *cq, unsigned int events) { (void)cq, (void)events; }

EXPORT struct ibv_srq *ibv_create_srq(struct ibv_pd *pd, struct ibv_srq_init_attr *attr)
{
	if (!profile_of(pd->context)->max_srq)
		return fail(EOPNOTSUPP);
	struct fake_srq *srq = calloc(1, sizeof *srq);
	srq->srq = (struct ibv_srq){ .context = pd->context, .pd = pd };
	srq->queue.size = attr->attr.max_wr;
	srq->queue.wqes = calloc(attr->attr.max_wr, sizeof *srq->queue.wqes);
	return &srq->srq;
}

EXPORT int ibv_destroy_srq(struct ibv_srq *srq)
{
	free(((struct fake_srq *)srq)->queue.wqes);
	free(srq);
	return 0;
}
