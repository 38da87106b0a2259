/* Owns two ports of the fake verbs provider (../fake-verbs) that a whole worker takes for rails of its host, and their cables.
 *
 * Built into the fake's library (rails.sh), which the worker has preloaded. It takes no address of loopback for a rail, so each
 * address 198.18.P.N is that of the fake's 127.0.P.N, and the host seems to have two of them. While the file UNPLUGGED/DEVICE
 * exists, the port of that device is down. */
#include "fake_verbs.h"

#include <ifaddrs.h>
#include <net/if.h>

enum { RAILS = 2, LOOK_US = 20000 };

/* 198.18.0.0/16. */
#define NETWORK 0xc6120000u

static const uint32_t rails[RAILS] = { NETWORK | 0x0001, NETWORK | 0x0401 };

struct fake_device *__real_device_at(struct in_addr address);
struct fake_device *__wrap_device_at(struct in_addr address);

/* What librdmacm's half asks: by the linker's --wrap. */
struct fake_device *__wrap_device_at(struct in_addr address)
{
	uint32_t bits = ntohl(address.s_addr);
	if ((bits & 0xffff0000u) == NETWORK)
		address.s_addr = htonl(127u << 24 | (bits & 0xffffu));
	return __real_device_at(address);
}

struct rail_entry {
	struct ifaddrs entry;
	struct sockaddr_in address, mask;
	char name[IF_NAMESIZE];
};

/* Only what verbs3 reads: names, flags, addresses and masks of IPv4. Whoever asks frees one piece of memory. */
EXPORT int getifaddrs(struct ifaddrs **to)
{
	struct rail_entry *entries = calloc(RAILS, sizeof *entries);
	for (int at = 0; at < RAILS; at++) {
		struct rail_entry *rail = &entries[at];
		rail->address = (struct sockaddr_in){ .sin_family = AF_INET, .sin_addr.s_addr = htonl(rails[at]) };
		rail->mask = (struct sockaddr_in){ .sin_family = AF_INET, .sin_addr.s_addr = htonl(0xffffff00) };
		snprintf(rail->name, sizeof rail->name, "rail%d", at);
		rail->entry = (struct ifaddrs){ .ifa_next = at + 1 < RAILS ? &entries[at + 1].entry : NULL, .ifa_name = rail->name,
						.ifa_flags = IFF_UP, .ifa_addr = (struct sockaddr *)&rail->address,
						.ifa_netmask = (struct sockaddr *)&rail->mask };
	}
	*to = &entries->entry;
	return 0;
}

EXPORT void freeifaddrs(struct ifaddrs *list) { free(list); }

static void *watch_cables(void *folder)
{
	for (;; usleep(LOOK_US))
		for (int at = 0; at < RAILS; at++) {
			char file[4096];
			fake_enter();
			struct fake_device *device = __wrap_device_at((struct in_addr){ htonl(rails[at]) });
			snprintf(file, sizeof file, "%s/%s", (char *)folder, device->device.name);
			bool is_down = !access(file, F_OK);
			if (is_down != device->port_down) {
				device->port_down = is_down;
				raise_async(device, is_down ? IBV_EVENT_PORT_ERR : IBV_EVENT_PORT_ACTIVE, NULL);
			}
			fake_leave();
		}
	return NULL;
}

__attribute__((constructor)) static void begin(void)
{
	char *folder = getenv("UNPLUGGED");
	pthread_t thread;
	if (!folder || pthread_create(&thread, NULL, watch_cables, folder) || pthread_detach(thread))
		abort();
}
