/* Owns the fake's connections: ids, their channels, and events, as librdmacm.so.1 has them. */
#include "fake_verbs.h"

struct fake_event {
	struct rdma_cm_event event;
	char private[56];
	struct fake_event *next;
};

struct fake_channel {
	struct rdma_event_channel channel;
	struct fake_event *first;
};

struct fake_id {
	struct rdma_cm_id id;
	struct fake_id *peer, *next;
	uint32_t qp_num;
	bool listening, connected;
	int tos;
};

enum {
	OPTION_TOS = 0,
	/* Resolving a device's address with one of these ports makes something happen to the device. */
	PORT_ADDRESS_CHANGE = 1,
	PORT_REMOVAL = 2,
	PORT_FATAL = 3,
	PORT_DOWN = 4,
	PORT_UP = 5,
	PORT_GID_CHANGE = 6,
	PORT_STUCK = 7,
	PORT_DISASSOCIATED = 8,
};

static struct fake_id *ids;

static void tell(struct fake_id *to, enum rdma_cm_event_type type, int status, struct rdma_cm_id *listener,
		 const struct rdma_conn_param *param)
{
	struct fake_channel *channel = (struct fake_channel *)(listener ? listener->channel : to->id.channel);
	struct fake_event *event = calloc(1, sizeof *event), **place = &channel->first;
	uint64_t one = 1;
	event->event = (struct rdma_cm_event){ .id = &to->id, .listen_id = listener, .event = type, .status = status };
	if (param) {
		event->event.param.conn = *param;
		if (param->private_data)
			memcpy(event->private, param->private_data, param->private_data_len);
		event->event.param.conn.private_data = event->private;
		event->event.param.conn.private_data_len = sizeof event->private;
	}
	while (*place)
		place = &(*place)->next;
	*place = event;
	if (write(channel->channel.fd, &one, sizeof one) != sizeof one)
		abort();
}

EXPORT struct rdma_event_channel *rdma_create_event_channel(void)
{
	struct fake_channel *channel = calloc(1, sizeof *channel);
	channel->channel.fd = eventfd(0, EFD_CLOEXEC | EFD_SEMAPHORE);
	return &channel->channel;
}

EXPORT void rdma_destroy_event_channel(struct rdma_event_channel *channel)
{
	close(channel->fd);
	free(channel);
}

EXPORT int rdma_get_cm_event(struct rdma_event_channel *ibchannel, struct rdma_cm_event **event)
{
	struct fake_channel *channel = (struct fake_channel *)ibchannel;
	uint64_t count;
	if (read(ibchannel->fd, &count, sizeof count) != sizeof count)
		return -1;
	fake_enter();
	struct fake_event *first = channel->first;
	if (first)
		channel->first = first->next;
	fake_leave();
	if (!first) {
		errno = EAGAIN;
		return -1;
	}
	*event = &first->event;
	return 0;
}

EXPORT int rdma_ack_cm_event(struct rdma_cm_event *event)
{
	free(event);
	return 0;
}

static struct fake_id *make_id(struct rdma_event_channel *channel)
{
	struct fake_id *id = calloc(1, sizeof *id);
	id->id.channel = channel;
	id->tos = -1;
	id->next = ids;
	return ids = id;
}

EXPORT int rdma_create_id(struct rdma_event_channel *channel, struct rdma_cm_id **id, void *context, enum rdma_port_space ps)
{
	fake_enter();
	*id = &make_id(channel)->id;
	(*id)->context = context;
	(*id)->ps = ps;
	fake_leave();
	return 0;
}

static void part_from_peer(struct fake_id *id, enum rdma_cm_event_type type)
{
	struct fake_id *peer = id->peer;
	id->peer = NULL;
	if (peer) {
		peer->peer = NULL;
		tell(peer, type, 0, NULL, &(struct rdma_conn_param){ 0 });
	}
}

/* Drops the events of an id. Requests that a listener did not take are refused. */
static void forget_events(struct fake_id *id)
{
	struct fake_event **place = &((struct fake_channel *)id->id.channel)->first;
	while (*place) {
		struct fake_event *event = *place;
		if (event->event.id != &id->id && event->event.listen_id != &id->id) {
			place = &event->next;
			continue;
		}
		*place = event->next;
		if (event->event.listen_id == &id->id)
			part_from_peer((struct fake_id *)event->event.id, RDMA_CM_EVENT_REJECTED);
		free(event);
	}
}

EXPORT int rdma_destroy_id(struct rdma_cm_id *ibid)
{
	struct fake_id *id = (struct fake_id *)ibid;
	fake_enter();
	forget_events(id);
	part_from_peer(id, id->connected ? RDMA_CM_EVENT_DISCONNECTED : RDMA_CM_EVENT_REJECTED);
	for (struct fake_id **place = &ids; *place; place = &(*place)->next)
		if (*place == id) {
			*place = id->next;
			break;
		}
	fake_leave();
	free(id);
	return 0;
}

static int bind_id(struct rdma_cm_id *id, const struct sockaddr *address)
{
	static uint16_t port = 20000;
	const struct sockaddr_in *from = (const struct sockaddr_in *)address;
	struct fake_device *device = address->sa_family == AF_INET ? device_at(from->sin_addr) : NULL;
	if (!device || device->gone) {
		errno = ENODEV;
		return -1;
	}
	id->verbs = &device->context;
	id->port_num = 1;
	id->route.addr.src_sin = *from;
	if (!from->sin_port)
		id->route.addr.src_sin.sin_port = htons(++port);
	return 0;
}

EXPORT int rdma_bind_addr(struct rdma_cm_id *id, struct sockaddr *address) { return LOCKED(bind_id(id, address)); }

void tell_ids(struct ibv_context *context, enum rdma_cm_event_type type)
{
	for (struct fake_id *id = ids; id; id = id->next)
		if (id->id.verbs == context)
			tell(id, type, 0, NULL, NULL);
}

static void happen(struct in_addr address, uint16_t port)
{
	struct fake_device *device = port <= PORT_DISASSOCIATED ? device_at(address) : NULL;
	if (!device)
		return;
	if (port == PORT_ADDRESS_CHANGE)
		tell_ids(&device->context, RDMA_CM_EVENT_ADDR_CHANGE);
	if (port == PORT_REMOVAL)
		tell_ids(&device->context, RDMA_CM_EVENT_DEVICE_REMOVAL);
	if (port == PORT_FATAL) {
		silence_pairs(&device->context);
		raise_async(device, IBV_EVENT_DEVICE_FATAL, NULL);
	}
	if (port == PORT_DOWN || port == PORT_UP) {
		device->port_down = port == PORT_DOWN;
		raise_async(device, device->port_down ? IBV_EVENT_PORT_ERR : IBV_EVENT_PORT_ACTIVE, NULL);
	}
	if (port == PORT_GID_CHANGE)
		raise_async(device, IBV_EVENT_GID_CHANGE, NULL);
	if (port == PORT_STUCK || port == PORT_DISASSOCIATED)
		device->stuck = true;
	if (port == PORT_DISASSOCIATED) {
		silence_pairs(&device->context);
		device->disassociated = true;
	}
}

EXPORT int rdma_resolve_addr(struct rdma_cm_id *id, struct sockaddr *from, struct sockaddr *to, int timeout_ms)
{
	int result = 0;
	(void)timeout_ms;
	fake_enter();
	if (!id->verbs && from)
		result = bind_id(id, from);
	id->route.addr.dst_sin = *(struct sockaddr_in *)to;
	if (to->sa_family == AF_INET)
		happen(id->route.addr.dst_sin.sin_addr, ntohs(id->route.addr.dst_sin.sin_port));
	if (!result)
		tell((struct fake_id *)id, RDMA_CM_EVENT_ADDR_RESOLVED, 0, NULL, NULL);
	fake_leave();
	return result;
}

EXPORT int rdma_resolve_route(struct rdma_cm_id *id, int timeout_ms)
{
	(void)timeout_ms;
	fake_enter();
	tell((struct fake_id *)id, RDMA_CM_EVENT_ROUTE_RESOLVED, 0, NULL, NULL);
	fake_leave();
	return 0;
}

EXPORT int rdma_set_option(struct rdma_cm_id *id, int level, int option, void *value, size_t bytes)
{
	if (level == 0 && option == OPTION_TOS && bytes == 1)
		((struct fake_id *)id)->tos = *(uint8_t *)value;
	return 0;
}

EXPORT int rdma_listen(struct rdma_cm_id *id, int backlog)
{
	(void)backlog;
	((struct fake_id *)id)->listening = true;
	return 0;
}

static struct fake_id *listener_at(const struct sockaddr_in *to)
{
	for (struct fake_id *id = ids; id; id = id->next) {
		const struct sockaddr_in *at = &id->id.route.addr.src_sin;
		if (id->listening && at->sin_addr.s_addr == to->sin_addr.s_addr && at->sin_port == to->sin_port)
			return id;
	}
	return NULL;
}

EXPORT int rdma_create_qp(struct rdma_cm_id *id, struct ibv_pd *pd, struct ibv_qp_init_attr *attr)
{
	fake_enter();
	id->qp = make_qp(pd, attr);
	if (id->qp)
		id->qp->state = IBV_QPS_INIT;
	fake_leave();
	return id->qp ? 0 : -1;
}

EXPORT void rdma_destroy_qp(struct rdma_cm_id *id)
{
	fake_enter();
	destroy_qp(id->qp);
	id->qp = NULL;
	fake_leave();
}

EXPORT int rdma_connect(struct rdma_cm_id *ibid, struct rdma_conn_param *param)
{
	struct fake_id *id = (struct fake_id *)ibid;
	const struct sockaddr_in *to = &ibid->route.addr.dst_sin;
	fake_enter();
	struct fake_id *listener = listener_at(to);
	id->qp_num = ibid->qp ? ibid->qp->qp_num : param->qp_num;
	if (!listener)
		tell(id, RDMA_CM_EVENT_REJECTED, 8, NULL, &(struct rdma_conn_param){ 0 });
	else {
		struct fake_id *request = make_id(listener->id.channel);
		request->id.verbs = listener->id.verbs;
		request->id.port_num = 1;
		request->id.route.addr.src_sin = *to;
		request->id.route.addr.dst_sin = ibid->route.addr.src_sin;
		request->peer = id;
		id->peer = request;
		tell(request, RDMA_CM_EVENT_CONNECT_REQUEST, 0, &listener->id, param);
	}
	fake_leave();
	return 0;
}

EXPORT int rdma_accept(struct rdma_cm_id *ibid, struct rdma_conn_param *param)
{
	struct fake_id *id = (struct fake_id *)ibid, *peer;
	int result = 0;
	fake_enter();
	peer = id->peer;
	id->qp_num = ibid->qp ? ibid->qp->qp_num : param->qp_num;
	if (!peer) {
		errno = ECONNRESET;
		result = -1;
	} else if (profile_of(ibid->verbs)->strict && id->tos != peer->tos) {
		errno = EINVAL;
		result = -1;
	} else {
		id->connected = peer->connected = true;
		if (ibid->qp)
			ready_qp(ibid->qp, peer->qp_num);
		if (peer->id.qp) {
			ready_qp(peer->id.qp, id->qp_num);
			tell(peer, RDMA_CM_EVENT_ESTABLISHED, 0, NULL, param);
			tell(id, RDMA_CM_EVENT_ESTABLISHED, 0, NULL, &(struct rdma_conn_param){ 0 });
		} else
			tell(peer, RDMA_CM_EVENT_CONNECT_RESPONSE, 0, NULL, param);
	}
	fake_leave();
	return result;
}

EXPORT int rdma_establish(struct rdma_cm_id *id)
{
	fake_enter();
	if (((struct fake_id *)id)->peer)
		tell(((struct fake_id *)id)->peer, RDMA_CM_EVENT_ESTABLISHED, 0, NULL, &(struct rdma_conn_param){ 0 });
	fake_leave();
	return 0;
}

EXPORT int rdma_reject(struct rdma_cm_id *ibid, const void *private_data, uint8_t bytes)
{
	struct fake_id *id = (struct fake_id *)ibid;
	struct rdma_conn_param param = { .private_data = private_data, .private_data_len = bytes };
	fake_enter();
	if (id->peer) {
		tell(id->peer, RDMA_CM_EVENT_REJECTED, 28, NULL, &param);
		id->peer->peer = NULL;
		id->peer = NULL;
	}
	fake_leave();
	return 0;
}

EXPORT int rdma_disconnect(struct rdma_cm_id *ibid)
{
	struct fake_id *id = (struct fake_id *)ibid;
	fake_enter();
	if (ibid->qp)
		fail_qp((struct fake_qp *)ibid->qp);
	if (id->connected)
		part_from_peer(id, RDMA_CM_EVENT_DISCONNECTED);
	fake_leave();
	return 0;
}

EXPORT int rdma_migrate_id(struct rdma_cm_id *id, struct rdma_event_channel *channel)
{
	fake_enter();
	forget_events((struct fake_id *)id);
	id->channel = channel;
	fake_leave();
	return 0;
}

EXPORT int rdma_init_qp_attr(struct rdma_cm_id *ibid, struct ibv_qp_attr *attr, int *mask)
{
	struct fake_id *id = (struct fake_id *)ibid;
	fake_enter();
	*mask = IBV_QP_STATE;
	if (attr->qp_state == IBV_QPS_RTR) {
		*mask |= IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_MIN_RNR_TIMER;
		attr->path_mtu = IBV_MTU_4096;
		attr->dest_qp_num = id->peer ? id->peer->qp_num : 0;
		attr->min_rnr_timer = 0;
	}
	fake_leave();
	return 0;
}
