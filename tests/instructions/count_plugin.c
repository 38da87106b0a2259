/* Counts the instructions that an emulated process executes, all threads together, in a file that whoever wants to
 * know maps or reads: eight bytes, little-endian. A plugin of QEMU's user-mode emulation, API version 1.
 *
 * Declares what it uses of QEMU itself: Debian ships no header for plugins. */
#include <fcntl.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>

typedef uint64_t plugin_id;
struct qemu_plugin_tb;
enum inline_operation { INLINE_ADD };
typedef void (*on_translated)(plugin_id, struct qemu_plugin_tb *);

extern void qemu_plugin_register_vcpu_tb_trans_cb(plugin_id, on_translated);
extern size_t qemu_plugin_tb_n_insns(const struct qemu_plugin_tb *);
extern void qemu_plugin_register_vcpu_tb_exec_inline(struct qemu_plugin_tb *, enum inline_operation, void *, uint64_t);

#define FROM_QEMU __attribute__((visibility("default")))

FROM_QEMU int qemu_plugin_version = 1;

static uint64_t *count;

static void count_block(plugin_id id, struct qemu_plugin_tb *block)
{
    (void)id;
    qemu_plugin_register_vcpu_tb_exec_inline(block, INLINE_ADD, count, qemu_plugin_tb_n_insns(block));
}

/* The file is named by VERBS3_INSTRUCTION_COUNT, as for the tests that read it. */
FROM_QEMU int qemu_plugin_install(plugin_id id, const void *info, int argc, char **argv)
{
    (void)info, (void)argc, (void)argv;
    const char *path = getenv("VERBS3_INSTRUCTION_COUNT");
    int file = path ? open(path, O_RDWR) : -1;
    if (file < 0)
        return 1;
    count = mmap(NULL, sizeof *count, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (count == MAP_FAILED)
        return 1;
    qemu_plugin_register_vcpu_tb_trans_cb(id, count_block);
    return 0;
}
