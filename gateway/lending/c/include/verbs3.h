/* Reads and writes objects through the gateway of this host, by memory that this process lends it.
 *
 * Made of the sources in gateway/lending/c/src; docs/lending-c.md says how to use it. A call copies
 * what it is handed, and keeps no pointer of it, but for keep_waiting and its context. Who calls sees
 * to it that pointers are what is said of them: null is noticed, and nothing else can be. A call that
 * fails leaves null or 0 in the place of its result. */

#ifndef VERBS3_H
#define VERBS3_H

#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

/**
 * How a call ended. An error of S3 is an answer, with its status, and the call is `VERBS3_RESULT_OK`.
 */
typedef enum {
  /**
   * It is done.
   */
  VERBS3_RESULT_OK = 0,
  /**
   * No gateway answers at the socket.
   */
  VERBS3_RESULT_UNAVAILABLE = 1,
  /**
   * The gateway takes no memory of this process: wrong keys, or as much as it may have.
   */
  VERBS3_RESULT_REFUSED = 2,
  /**
   * Memory to be lent can't be made.
   */
  VERBS3_RESULT_NO_MEMORY = 3,
  /**
   * The lent memory has no place: release answers, or lend more.
   */
  VERBS3_RESULT_MEMORY_FULL = 4,
  /**
   * The request, or the head of its answer, is too long to go this way.
   */
  VERBS3_RESULT_TOO_LONG = 5,
  /**
   * The gateway could not finish the request.
   */
  VERBS3_RESULT_FAILED = 6,
  /**
   * The body of a write is shorter than was announced. Nothing was sent.
   */
  VERBS3_RESULT_INCOMPLETE = 7,
  /**
   * The gateway is older than this library.
   */
  VERBS3_RESULT_UNSUPPORTED = 8,
  /**
   * The gateway did not answer in time.
   */
  VERBS3_RESULT_TIMED_OUT = 9,
  /**
   * The connection has ended.
   */
  VERBS3_RESULT_DISCONNECTED = 10,
  /**
   * The answer landed in the process that this one was forked from.
   */
  VERBS3_RESULT_OTHER_PROCESS = 11,
  /**
   * `keep_waiting` answered no.
   */
  VERBS3_RESULT_STOPPED = 12,
  /**
   * An argument is missing, or no text in UTF-8.
   */
  VERBS3_RESULT_BAD_ARGUMENT = 13,
  /**
   * A fault of this library.
   */
  VERBS3_RESULT_INTERNAL = 14,
} Verbs3Result;

/**
 * An answer. It keeps its part of the lent memory until it is released.
 */
typedef struct Verbs3Answer Verbs3Answer;

/**
 * Reads under way. For one call at a time: another one meanwhile is refused.
 */
typedef struct Verbs3Batch Verbs3Batch;

/**
 * A client of one gateway. Threads may share it. A forked child may go on with it, and has a
 * connection of its own.
 */
typedef struct Verbs3Client Verbs3Client;

/**
 * A write that is being made. For one call at a time: another one meanwhile is refused.
 */
typedef struct Verbs3Writer Verbs3Writer;

/**
 * What a client is made with. `verbs3_default_options` fills it; socket and keys are the caller's.
 */
typedef struct {
  /**
   * The gateway's socket, by the path that the gateway was configured with.
   */
  const char *socket;
  const char *access_key;
  const char *secret_key;
  const char *region;
  /**
   * Memory that is lent, in bytes: bodies that are in use, and some 16 KiB for each read in
   * flight.
   */
  uint64_t memory_bytes;
  /**
   * Most reads in flight. A power of two, up to 4096.
   */
  uint32_t reads_max;
  /**
   * How long a gateway that is gone is waited for, in milliseconds.
   */
  uint32_t reconnect_for_ms;
  /**
   * How long the next answer is waited for, in milliseconds.
   */
  uint32_t read_for_ms;
  /**
   * How many answers of `verbs3_read_pages` are kept at once, up to 4,096. 0: none, and it reads
   * as `verbs3_read` does.
   */
  uint32_t pages_max;
  /**
   * How long a thread looks for an answer before it sleeps, in microseconds, up to 1,000, where
   * the last answers came as fast. Whatever else could run meanwhile does. 0: never.
   */
  uint32_t poll_for_us;
  /**
   * Asked a few times a second by calls that wait for an answer or for room, in the thread of the
   * call; false ends the call with `VERBS3_RESULT_STOPPED`. Null: they wait. It is not asked while
   * a connection is made, which takes up to ten seconds where a gateway stands still. It has to
   * return: no exception, no longjmp. Calls with the batch or write that waits are refused in it.
   */
  bool (*keep_waiting)(void *context);
  /**
   * What `keep_waiting` is given. Both are kept until the client, its batches and its writes have
   * all been ended.
   */
  void *context;
} Verbs3Options;

/**
 * An object, by bucket and key, as two texts that end with 0.
 */
typedef struct {
  const char *bucket;
  const char *key;
} Verbs3ObjectName;

/**
 * A header, as two texts that end with 0. The name is in lower case.
 */
typedef struct {
  const char *name;
  const char *value;
} Verbs3Header;

/**
 * A read of an object, or of a range of it.
 */
typedef struct {
  Verbs3ObjectName object;
  /**
   * `range` ("bytes=0-4095"), `if-match`, `if-none-match`, `if-modified-since`,
   * `if-unmodified-since`, `if-range`, `x-amz-checksum-mode`; each once. May be null if there are
   * none.
   */
  const Verbs3Header *headers;
  size_t header_count;
  /**
   * How long the body is expected to be at most, in bytes. A longer one takes a second try. 0: as
   * long as the range, or else 1 MiB at first.
   */
  uint64_t body_bytes;
  /**
   * Only status and headers are asked for.
   */
  bool is_head;
} Verbs3ReadRequest;

/**
 * A write of an object, or of a part of an upload.
 */
typedef struct {
  Verbs3ObjectName object;
  /**
   * The upload that the body is a part of; null: the body is the object.
   */
  const char *upload_id;
  uint32_t part_number;
  /**
   * What a PUT may have: `content-type`, `x-amz-meta-…`, `x-amz-checksum-…`, conditions; each
   * once.
   */
  const Verbs3Header *headers;
  size_t header_count;
} Verbs3WriteRequest;

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

/**
 * Returns in words why the last call of this thread that failed did so. It stays until the thread's
 * next call that fails.
 */
const char *verbs3_error_text(void);

/**
 * Fills options with defaults: 256 MiB, 64 reads, a minute for each wait, polls of 100 µs,
 * `us-east-1`. Socket and keys are null.
 *
 * `options` is null, or a place for options.
 */
void verbs3_default_options(Verbs3Options *options);

/**
 * Connects to a gateway now, so that a wrong path or key is found here. `verbs3_disconnect` ends it.
 *
 * `options` is null, or options whose texts end with 0; `client` is null, or a place for a pointer.
 */
Verbs3Result verbs3_connect(const Verbs3Options *options,
                            Verbs3Client **client);

/**
 * Ends a client. Its answers, batches and writes stay until they are ended by their own calls. Null
 * is nothing.
 *
 * `client` is null, or a client that is not ended and that no thread is using.
 */
void verbs3_disconnect(Verbs3Client *client);

/**
 * Reads one object or range, and waits for the answer.
 *
 * `client` is null, or a client; `request` is null, or a request whose texts end with 0; `answer` is
 * null, or a place for a pointer.
 */
Verbs3Result verbs3_read(const Verbs3Client *client,
                         const Verbs3ReadRequest *request,
                         Verbs3Answer **answer);

/**
 * Reads one object or range as `verbs3_read` does, and leaves its bytes where they lie, if a
 * worker of this host has them and the gateway lends its pages (`gateway.lending.pages_total`).
 * The body then has several segments (`verbs3_answer_segment`).
 *
 * `client` is null, or a client; `request` is null, or a request whose texts end with 0; `answer`
 * is null, or a place for a pointer.
 */
Verbs3Result verbs3_read_pages(const Verbs3Client *client,
                               const Verbs3ReadRequest *request,
                               Verbs3Answer **answer);

/**
 * Asks for many objects by HEAD, and gives the status of each, in their order: 200 for one that is
 * there, 404 for one that is not.
 *
 * `client` is null, or a client; `objects` are `count` names whose texts end with 0, `statuses` a
 * place for as many.
 */
Verbs3Result verbs3_head_statuses(const Verbs3Client *client,
                                  const Verbs3ObjectName *objects,
                                  size_t count,
                                  uint16_t *statuses);

/**
 * Returns the status as HTTP has it: 200, 206, 304, 404, …; 0 for null.
 *
 * `answer` is null, or an answer that is not released.
 */
uint16_t verbs3_answer_status(const Verbs3Answer *answer);

/**
 * Returns the value of a header by its name in lower case, the first if there are several; null if
 * there is none. It stays until the answer is released.
 *
 * `answer` is null, or an answer that is not released; `name` is null, or ends with 0.
 */
const char *verbs3_answer_header(const Verbs3Answer *answer, const char *name);

/**
 * Gives name and value of the header at `index`, which counts from 0. False: there are fewer.
 *
 * `answer` is null, or an answer that is not released; `name` and `value` are null, or places for a
 * pointer each.
 */
bool verbs3_answer_header_at(const Verbs3Answer *answer,
                             size_t index,
                             const char **name,
                             const char **value);

/**
 * Gives the place of the body in this process's memory, and its length. The bytes stay as they are
 * until the answer is released; nobody may write to them. A body of several segments is copied
 * together the first time.
 *
 * `answer` is null, or an answer that is not released; `bytes` and `length` are null, or places for
 * a pointer and a length.
 */
Verbs3Result verbs3_answer_body(const Verbs3Answer *answer, const uint8_t **bytes, size_t *length);

/**
 * Returns how many segments the body has, which lie apart: 1, but for answers of
 * `verbs3_read_pages`; 0 for null.
 *
 * `answer` is null, or an answer that is not released.
 */
size_t verbs3_answer_segment_count(const Verbs3Answer *answer);

/**
 * Gives the place of a segment of the body in this process's memory, and its length. `index`
 * counts from 0, in the body's order. The bytes stay as they are until the answer is released;
 * nobody may write to them.
 *
 * `answer` is null, or an answer that is not released; `bytes` and `length` are null, or places
 * for a pointer and a length.
 */
Verbs3Result verbs3_answer_segment(const Verbs3Answer *answer,
                                   size_t index,
                                   const uint8_t **bytes,
                                   size_t *length);

/**
 * Releases an answer: its memory is used anew, and what was taken from it is gone. Null is nothing.
 *
 * `answer` is null, or an answer that is not released.
 */
void verbs3_release_answer(Verbs3Answer *answer);

/**
 * Begins a batch of reads. `verbs3_end_batch` ends it.
 *
 * `client` is null, or a client; `batch` is null, or a place for a pointer.
 */
Verbs3Result verbs3_begin_batch(const Verbs3Client *client, Verbs3Batch **batch);

/**
 * Adds a read, and gives its index: they count from 0. It is sent by the next
 * `verbs3_next_answer`.
 *
 * `batch` is null, or a batch that is not ended; `request` is null, or a request whose
 * texts end with 0; `index` is null, or a place for an index.
 */
Verbs3Result verbs3_add_read(Verbs3Batch *batch, const Verbs3ReadRequest *request, size_t *index);

/**
 * Waits for the next answer that arrives, and gives it with the index of its read. A null answer:
 * all have arrived. A call that fails gives no answer, and as the index that of a read that can't be
 * answered and has left the batch, or `SIZE_MAX` where none has: the batch goes on with the next
 * call. Reads are sent as there is place for them, so who keeps the answers of many gets
 * `VERBS3_RESULT_MEMORY_FULL` with `SIZE_MAX` until some are released; with an index, that read is
 * longer than all that is lent.
 *
 * `batch` is null, or a batch that is not ended; `index` and `answer` are null, or places for an index
 * and a pointer.
 */
Verbs3Result verbs3_next_answer(Verbs3Batch *batch,
                                size_t *index,
                                Verbs3Answer **answer);

/**
 * Ends a batch, whatever is under way. Null is nothing, and so is a batch that a call is using.
 *
 * `batch` is null, or a batch that is not ended.
 */
void verbs3_end_batch(Verbs3Batch *batch);

/**
 * Takes memory for a body of exactly `body_bytes`, or waits for room. `verbs3_finish_write` or
 * `verbs3_abandon_write` ends it.
 *
 * `client` is null, or a client; `writer` is null, or a place for a pointer.
 */
Verbs3Result verbs3_begin_write(const Verbs3Client *client,
                                uint64_t body_bytes,
                                Verbs3Writer **writer);

/**
 * Copies the next bytes of the body into the lent memory. More than were announced are
 * `VERBS3_RESULT_MEMORY_FULL`, and none of them are copied.
 *
 * `writer` is null, or a write that no other thread is using; `bytes` are `length` bytes that nobody
 * changes meanwhile.
 */
Verbs3Result verbs3_append_body(Verbs3Writer *writer,
                                const uint8_t *bytes,
                                size_t length);

/**
 * Sends the write, and waits for its answer. The write is ended by it, however the call ends, unless
 * another call is using it (`VERBS3_RESULT_BAD_ARGUMENT`). After
 * `VERBS3_RESULT_FAILED`, `…_TIMED_OUT`, `…_DISCONNECTED`, `…_STOPPED` and `…_INTERNAL` nobody knows
 * whether the object was written. A write that is given up while it is sent ends the connection:
 * what other threads have begun to write ends with `VERBS3_RESULT_DISCONNECTED`, and their reads are
 * repeated.
 *
 * `writer` is null, or a write that is not ended and that no other thread is using; `request` is null,
 * or a request whose texts end with 0; `answer` is null, or a place for a pointer.
 */
Verbs3Result verbs3_finish_write(Verbs3Writer *writer,
                                 const Verbs3WriteRequest *request,
                                 Verbs3Answer **answer);

/**
 * Ends a write of which nothing was sent. Null is nothing, and so is a write that a call is using.
 *
 * `writer` is null, or a write that is not ended.
 */
void verbs3_abandon_write(Verbs3Writer *writer);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* VERBS3_H */
