/* Calls each function as callers do, rightly and wrongly, and ends at the first answer that is not what it should be:
 *
 *     checked_calls SOCKET BUCKET GATEWAY_PID     keys as AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY; the bucket is there, and empty */

#define _POSIX_C_SOURCE 200809L
#include <dirent.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "verbs3.h"

#define MIB ((size_t)1 << 20)
#define OBJECT_BYTES (3 * MIB + 12345)
#define SMALL_OBJECTS 40
#define LENT_BYTES (64 * MIB)
#define LONG_BYTES (9 * MIB)
#define LONGEST_BYTES (17 * MIB)
#define THREADS 4

static const char *bucket;

#define CHECK(held)                                                                         \
  do {                                                                                      \
    if (!(held)) {                                                                          \
      fprintf(stderr, "line %d: %s; last error: %s\n", __LINE__, #held, verbs3_error_text()); \
      exit(1);                                                                              \
    }                                                                                       \
  } while (0)

static uint8_t byte_of(unsigned seed, size_t place) {
  return (uint8_t)((place * 2654435761u >> 7) + place + seed * 31u);
}

static Verbs3Options own_options(const char *socket) {
  Verbs3Options options;
  verbs3_default_options(&options);
  options.socket = socket;
  options.access_key = getenv("AWS_ACCESS_KEY_ID");
  options.secret_key = getenv("AWS_SECRET_ACCESS_KEY");
  return options;
}

static Verbs3ReadRequest read_of(const char *key) {
  Verbs3ReadRequest request = {.object = {.bucket = bucket, .key = key}};
  return request;
}

static Verbs3Answer *read_whole(const Verbs3Client *client, const char *key) {
  Verbs3ReadRequest request = read_of(key);
  Verbs3Answer *answer = NULL;
  CHECK(verbs3_read(client, &request, &answer) == VERBS3_RESULT_OK);
  return answer;
}

static void check_body(const Verbs3Answer *answer, unsigned seed, size_t from, size_t length) {
  const uint8_t *bytes = NULL;
  size_t found = 0;
  CHECK(verbs3_answer_body(answer, &bytes, &found) == VERBS3_RESULT_OK);
  CHECK(found == length);
  for (size_t place = 0; place < length; place++)
    CHECK(bytes[place] == byte_of(seed, from + place));
}

static void put(const Verbs3Client *client, const char *key, unsigned seed, size_t length, const Verbs3Header *headers, size_t count) {
  Verbs3Writer *writer = NULL;
  CHECK(verbs3_begin_write(client, length, &writer) == VERBS3_RESULT_OK);
  uint8_t piece[4096];
  for (size_t place = 0; place < length;) {
    size_t size = length - place < sizeof piece ? length - place : sizeof piece;
    for (size_t at = 0; at < size; at++)
      piece[at] = byte_of(seed, place + at);
    CHECK(verbs3_append_body(writer, piece, size) == VERBS3_RESULT_OK);
    place += size;
  }
  Verbs3WriteRequest request = {.object = {.bucket = bucket, .key = key}, .headers = headers, .header_count = count};
  Verbs3Answer *answer = NULL;
  CHECK(verbs3_finish_write(writer, &request, &answer) == VERBS3_RESULT_OK);
  CHECK(verbs3_answer_status(answer) == 200);
  CHECK(verbs3_answer_header(answer, "etag") != NULL);
  verbs3_release_answer(answer);
}

/* What is wrong is told, and nothing is touched. */
static void try_wrong_arguments(const char *socket, const Verbs3Client *client) {
  Verbs3Client *other = NULL;
  Verbs3Options options = own_options(socket);
  CHECK(verbs3_connect(NULL, &other) == VERBS3_RESULT_BAD_ARGUMENT);
  CHECK(verbs3_connect(&options, NULL) == VERBS3_RESULT_BAD_ARGUMENT);
  options.reads_max = 8192;
  CHECK(verbs3_connect(&options, &other) == VERBS3_RESULT_BAD_ARGUMENT);
  options.reads_max = 3;
  CHECK(verbs3_connect(&options, &other) == VERBS3_RESULT_BAD_ARGUMENT);
  options = own_options(socket);
  options.secret_key = "another secret key";
  CHECK(verbs3_connect(&options, &other) == VERBS3_RESULT_REFUSED);
  options = own_options("/nowhere/gateway.sock");
  options.reconnect_for_ms = 0;
  CHECK(verbs3_connect(&options, &other) == VERBS3_RESULT_UNAVAILABLE);
  CHECK(strstr(verbs3_error_text(), "/nowhere/gateway.sock") != NULL);
  options = own_options(socket);
  options.access_key = "not \xff UTF-8";
  other = (Verbs3Client *)&options;
  CHECK(verbs3_connect(&options, &other) == VERBS3_RESULT_BAD_ARGUMENT);
  CHECK(other == NULL);

  Verbs3Answer *answer = NULL;
  Verbs3ReadRequest request = read_of(NULL);
  CHECK(verbs3_read(client, &request, &answer) == VERBS3_RESULT_BAD_ARGUMENT);
  request = read_of("");
  CHECK(verbs3_read(client, &request, &answer) == VERBS3_RESULT_BAD_ARGUMENT);
  request = read_of("large");
  CHECK(verbs3_read(NULL, &request, &answer) == VERBS3_RESULT_BAD_ARGUMENT);
  CHECK(verbs3_read(client, NULL, &answer) == VERBS3_RESULT_BAD_ARGUMENT);
  CHECK(verbs3_read(client, &request, NULL) == VERBS3_RESULT_BAD_ARGUMENT);
  Verbs3Header authorization = {"authorization", "mine"}, ranges[2] = {{"range", "bytes=0-1"}, {"range", "bytes=2-3"}};
  request.headers = &authorization, request.header_count = 1;
  CHECK(verbs3_read(client, &request, &answer) == VERBS3_RESULT_BAD_ARGUMENT);
  request.headers = ranges, request.header_count = 2;
  CHECK(verbs3_read(client, &request, &answer) == VERBS3_RESULT_BAD_ARGUMENT);
  request.header_count = SIZE_MAX;
  CHECK(verbs3_read(client, &request, &answer) == VERBS3_RESULT_BAD_ARGUMENT);
  request.headers = NULL;
  CHECK(verbs3_read(client, &request, &answer) == VERBS3_RESULT_BAD_ARGUMENT);
  char *long_key = malloc(MIB);
  memset(long_key, 'k', MIB - 1);
  long_key[MIB - 1] = 0;
  request = read_of(long_key);
  CHECK(verbs3_read(client, &request, &answer) == VERBS3_RESULT_TOO_LONG);
  free(long_key);
  CHECK(answer == NULL);

  Verbs3Batch *batch = NULL;
  CHECK(verbs3_begin_batch(NULL, &batch) == VERBS3_RESULT_BAD_ARGUMENT && batch == NULL);
  CHECK(verbs3_next_answer(NULL, NULL, NULL) == VERBS3_RESULT_BAD_ARGUMENT);
  CHECK(verbs3_finish_write(NULL, NULL, NULL) == VERBS3_RESULT_BAD_ARGUMENT);
  CHECK(verbs3_answer_status(NULL) == 0 && verbs3_answer_header(NULL, "etag") == NULL);
  verbs3_release_answer(NULL);
  verbs3_end_batch(NULL);
  verbs3_abandon_write(NULL);
  verbs3_disconnect(NULL);
}

static void try_reads(const Verbs3Client *client) {
  Verbs3Answer *answer = read_whole(client, "large");
  CHECK(verbs3_answer_status(answer) == 200);
  CHECK(strcmp(verbs3_answer_header(answer, "x-amz-meta-of"), "c") == 0);
  CHECK(verbs3_answer_header(answer, "x-none") == NULL && verbs3_answer_header(answer, NULL) == NULL);
  const char *name, *value, *etag = verbs3_answer_header(answer, "etag");
  size_t headers = 0;
  while (verbs3_answer_header_at(answer, headers, &name, &value))
    headers++;
  CHECK(headers > 3 && !verbs3_answer_header_at(answer, 0, NULL, NULL));
  check_body(answer, 1, 0, OBJECT_BYTES);

  Verbs3Header conditions[2] = {{"range", "bytes=1048000-1050000"}, {"if-match", etag}};
  Verbs3ReadRequest request = read_of("large");
  /* Nobody says how long the part is: its range does. */
  request.headers = conditions, request.header_count = 2;
  Verbs3Answer *part = NULL;
  CHECK(verbs3_read(client, &request, &part) == VERBS3_RESULT_OK);
  CHECK(verbs3_answer_status(part) == 206);
  check_body(part, 1, 1048000, 2001);
  verbs3_release_answer(part);
  conditions[1].value = "\"another\"";
  CHECK(verbs3_read(client, &request, &part) == VERBS3_RESULT_OK && verbs3_answer_status(part) == 412);
  verbs3_release_answer(part);
  /* The first one is what it was. */
  check_body(answer, 1, 0, OBJECT_BYTES);
  verbs3_release_answer(answer);

  request = read_of("large");
  request.is_head = true;
  CHECK(verbs3_read(client, &request, &answer) == VERBS3_RESULT_OK && verbs3_answer_status(answer) == 200);
  char length[32];
  snprintf(length, sizeof length, "%zu", OBJECT_BYTES);
  CHECK(strcmp(verbs3_answer_header(answer, "content-length"), length) == 0);
  check_body(answer, 1, 0, 0);
  verbs3_release_answer(answer);
  answer = read_whole(client, "none");
  CHECK(verbs3_answer_status(answer) == 404);
  verbs3_release_answer(answer);
}

/* Bytes that lie where a worker has them are those of the object, in one piece and in their segments, and stay beyond the client. */
static void try_pages(const char *socket) {
  Verbs3Options options = own_options(socket);
  Verbs3Client *client = NULL;
  options.pages_max = 4097;
  CHECK(verbs3_connect(&options, &client) == VERBS3_RESULT_BAD_ARGUMENT && client == NULL);
  options.pages_max = 4, options.poll_for_us = 1001;
  CHECK(verbs3_connect(&options, &client) == VERBS3_RESULT_BAD_ARGUMENT && client == NULL);
  options.poll_for_us = 0;
  CHECK(verbs3_connect(&options, &client) == VERBS3_RESULT_OK);
  Verbs3ReadRequest request = read_of("large");
  Verbs3Answer *answer = NULL;
  CHECK(verbs3_read_pages(client, &request, NULL) == VERBS3_RESULT_BAD_ARGUMENT);
  for (int count = 0; count < 8; count++) {
    CHECK(verbs3_read_pages(client, &request, &answer) == VERBS3_RESULT_OK);
    const uint8_t *bytes = NULL;
    size_t place = 0, length = 0, segments = verbs3_answer_segment_count(answer);
    for (size_t index = 0; index < segments; index++) {
      CHECK(verbs3_answer_segment(answer, index, &bytes, &length) == VERBS3_RESULT_OK);
      for (size_t at = 0; at < length; at++)
        CHECK(bytes[at] == byte_of(1, place + at));
      place += length;
    }
    CHECK(place == OBJECT_BYTES);
    CHECK(verbs3_answer_segment(answer, segments, &bytes, &length) == VERBS3_RESULT_BAD_ARGUMENT && bytes == NULL && length == 0);
    CHECK(verbs3_answer_segment(answer, 0, NULL, &length) == VERBS3_RESULT_BAD_ARGUMENT);
    if (count < 7)
      verbs3_release_answer(answer);
  }
  verbs3_disconnect(client);
  check_body(answer, 1, 0, OBJECT_BYTES);
  verbs3_release_answer(answer);
  CHECK(verbs3_answer_segment_count(NULL) == 0);
}

static void try_batches(const Verbs3Client *client) {
  char keys[SMALL_OBJECTS][16];
  Verbs3ObjectName names[SMALL_OBJECTS + 1];
  uint16_t statuses[SMALL_OBJECTS + 1];
  for (unsigned index = 0; index < SMALL_OBJECTS; index++) {
    snprintf(keys[index], sizeof keys[index], "small/%u", index);
    put(client, keys[index], index, 100 * index, NULL, 0);
    names[index] = (Verbs3ObjectName){bucket, keys[index]};
  }
  names[SMALL_OBJECTS] = (Verbs3ObjectName){bucket, "none"};
  CHECK(verbs3_head_statuses(client, names, SMALL_OBJECTS + 1, statuses) == VERBS3_RESULT_OK);
  for (unsigned index = 0; index <= SMALL_OBJECTS; index++)
    CHECK(statuses[index] == (index < SMALL_OBJECTS ? 200 : 404));
  CHECK(verbs3_head_statuses(client, NULL, 0, NULL) == VERBS3_RESULT_OK);
  CHECK(verbs3_head_statuses(client, names, 1, NULL) == VERBS3_RESULT_BAD_ARGUMENT);

  Verbs3Batch *batch = NULL;
  CHECK(verbs3_begin_batch(client, &batch) == VERBS3_RESULT_OK);
  for (size_t index = 0; index < SMALL_OBJECTS; index++) {
    Verbs3ReadRequest request = read_of(keys[index]);
    size_t added = SIZE_MAX;
    CHECK(verbs3_add_read(batch, &request, index % 2 ? &added : NULL) == VERBS3_RESULT_OK);
    CHECK(added == (index % 2 ? index : SIZE_MAX));
  }
  bool came[SMALL_OBJECTS] = {false};
  for (size_t count = 0;; count++) {
    size_t index = SIZE_MAX;
    Verbs3Answer *answer = NULL;
    CHECK(verbs3_next_answer(batch, &index, &answer) == VERBS3_RESULT_OK);
    if (answer == NULL) {
      CHECK(count == SMALL_OBJECTS);
      break;
    }
    CHECK(index < SMALL_OBJECTS && !came[index]);
    came[index] = true;
    check_body(answer, (unsigned)index, 0, 100 * index);
    verbs3_release_answer(answer);
  }
  /* A batch that is left with reads under way gives their memory back. */
  Verbs3ReadRequest request = read_of("large");
  for (int index = 0; index < 3; index++)
    CHECK(verbs3_add_read(batch, &request, NULL) == VERBS3_RESULT_OK);
  size_t index;
  Verbs3Answer *answer = NULL;
  CHECK(verbs3_next_answer(batch, &index, &answer) == VERBS3_RESULT_OK && answer != NULL);
  verbs3_end_batch(batch);
  check_body(answer, 1, 0, OBJECT_BYTES);
  verbs3_release_answer(answer);
  /* All that was lent is there again, but for rings and requests. */
  Verbs3Writer *writer = NULL;
  CHECK(verbs3_begin_write(client, LENT_BYTES - 3 * MIB, &writer) == VERBS3_RESULT_OK);
  verbs3_abandon_write(writer);
}

static void try_writes(const Verbs3Client *client) {
  Verbs3Writer *writer = NULL;
  Verbs3WriteRequest request = {.object = {.bucket = bucket, .key = "short"}};
  Verbs3Answer *answer = NULL;
  const uint8_t bytes[4] = {1, 2, 3, 4};
  CHECK(verbs3_begin_write(client, 3, &writer) == VERBS3_RESULT_OK);
  CHECK(verbs3_append_body(writer, bytes, 4) == VERBS3_RESULT_MEMORY_FULL);
  CHECK(verbs3_append_body(writer, NULL, 1) == VERBS3_RESULT_BAD_ARGUMENT);
  CHECK(verbs3_append_body(writer, bytes, SIZE_MAX) == VERBS3_RESULT_BAD_ARGUMENT);
  CHECK(verbs3_append_body(writer, NULL, 0) == VERBS3_RESULT_OK);
  CHECK(verbs3_append_body(writer, bytes, 2) == VERBS3_RESULT_OK);
  CHECK(verbs3_finish_write(writer, &request, &answer) == VERBS3_RESULT_INCOMPLETE && answer == NULL);
  CHECK(verbs3_begin_write(client, 3, &writer) == VERBS3_RESULT_OK);
  verbs3_abandon_write(writer);
  /* A write that can't be sent is ended as well. */
  Verbs3Header strange[2] = {{"authorization", "mine"}, {"x-amz-meta-Run", "1"}};
  for (int index = 0; index < 2; index++) {
    CHECK(verbs3_begin_write(client, 0, &writer) == VERBS3_RESULT_OK);
    request.headers = &strange[index], request.header_count = 1;
    CHECK(verbs3_finish_write(writer, &request, &answer) == VERBS3_RESULT_BAD_ARGUMENT && answer == NULL);
  }
  CHECK(verbs3_begin_write(client, LENT_BYTES - 3 * MIB, &writer) == VERBS3_RESULT_OK);
  CHECK(verbs3_finish_write(writer, &request, &answer) == VERBS3_RESULT_BAD_ARGUMENT && answer == NULL);
  answer = read_whole(client, "short");
  CHECK(verbs3_answer_status(answer) == 404);
  verbs3_release_answer(answer);
  /* A part of no upload is S3's error. */
  CHECK(verbs3_begin_write(client, 0, &writer) == VERBS3_RESULT_OK);
  request.headers = NULL, request.header_count = 0, request.upload_id = "no-upload", request.part_number = 1;
  CHECK(verbs3_finish_write(writer, &request, &answer) == VERBS3_RESULT_OK && verbs3_answer_status(answer) == 404);
  verbs3_release_answer(answer);
}

/* Answers that are kept fill the memory: reads end with that, and go on once some are released. */
static void try_full_memory(const char *socket) {
  Verbs3Options options = own_options(socket);
  Verbs3Client *client = NULL;
  options.memory_bytes = 16 * MIB;
  CHECK(verbs3_connect(&options, &client) == VERBS3_RESULT_OK);
  Verbs3Answer *kept[8];
  Verbs3ReadRequest request = read_of("large");
  request.body_bytes = OBJECT_BYTES;
  Verbs3Batch *batch = NULL;
  CHECK(verbs3_begin_batch(client, &batch) == VERBS3_RESULT_OK);
  for (int count = 0; count < 8; count++)
    CHECK(verbs3_add_read(batch, &request, NULL) == VERBS3_RESULT_OK);
  size_t index, came = 0, full = 0;
  while (came < 8) {
    Verbs3Result result = verbs3_next_answer(batch, &index, &kept[came]);
    if (result == VERBS3_RESULT_OK) {
      CHECK(kept[came] != NULL);
      came++;
      continue;
    }
    CHECK(result == VERBS3_RESULT_MEMORY_FULL && came > full);
    for (; full < came; full++) {
      check_body(kept[full], 1, 0, OBJECT_BYTES);
      verbs3_release_answer(kept[full]);
    }
  }
  CHECK(full > 0);
  for (; full < came; full++)
    verbs3_release_answer(kept[full]);
  CHECK(verbs3_next_answer(batch, &index, &kept[0]) == VERBS3_RESULT_OK && kept[0] == NULL);

  /* One that is longer than all that is lent is told by its index, and the others come. */
  Verbs3ReadRequest longest = read_of("longest");
  for (int count = 0; count < 3; count++)
    CHECK(verbs3_add_read(batch, count == 1 ? &longest : &request, NULL) == VERBS3_RESULT_OK);
  size_t told = SIZE_MAX;
  for (came = 0; came < 2;) {
    Verbs3Answer *answer = NULL;
    Verbs3Result result = verbs3_next_answer(batch, &index, &answer);
    if (result == VERBS3_RESULT_OK) {
      CHECK(answer != NULL && (index == 8 || index == 10));
      check_body(answer, 1, 0, OBJECT_BYTES);
      verbs3_release_answer(answer);
      came++;
    } else {
      CHECK(result == VERBS3_RESULT_MEMORY_FULL && answer == NULL && index == 9 && told == SIZE_MAX);
      told = index;
    }
  }
  if (told == SIZE_MAX)
    CHECK(verbs3_next_answer(batch, &told, &kept[0]) == VERBS3_RESULT_MEMORY_FULL && told == 9);
  CHECK(verbs3_next_answer(batch, &index, &kept[0]) == VERBS3_RESULT_OK && kept[0] == NULL);
  verbs3_end_batch(batch);

  /* One that is longer than was said takes what it needs, and no more. */
  request = read_of("long");
  request.body_bytes = LONG_BYTES - MIB;
  CHECK(verbs3_read(client, &request, &kept[0]) == VERBS3_RESULT_OK);
  check_body(kept[0], 2, 0, LONG_BYTES);
  verbs3_release_answer(kept[0]);

  /* Answers outlive the client. */
  Verbs3Answer *answer = read_whole(client, "large");
  verbs3_disconnect(client);
  check_body(answer, 1, 0, OBJECT_BYTES);
  verbs3_release_answer(answer);
}

/* Waits until every thread stands still: the signal is one thread's to take, and the others run on until it has its turn. */
static void await_standstill(pid_t process) {
  char path[64], thread[96], line[512];
  snprintf(path, sizeof path, "/proc/%d/task", (int)process);
  for (bool is_still = false; !is_still;) {
    is_still = true;
    DIR *threads = opendir(path);
    CHECK(threads != NULL);
    for (struct dirent *entry; (entry = readdir(threads)) != NULL;) {
      if (entry->d_name[0] == '.')
        continue;
      snprintf(thread, sizeof thread, "%s/%.20s/stat", path, entry->d_name);
      FILE *file = fopen(thread, "r");
      const char *state = file != NULL && fgets(line, sizeof line, file) != NULL ? strrchr(line, ')') : NULL;
      is_still = is_still && (state == NULL || state[2] == 'T');
      if (file != NULL)
        fclose(file);
    }
    closedir(threads);
    nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
  }
}

struct Asked {
  int times, stop_after;
  Verbs3Batch *batch;
};

/* Asked by a call with the batch, which is not to be used meanwhile. */
static bool ask(void *context) {
  struct Asked *asked = context;
  if (asked->batch != NULL) {
    Verbs3ReadRequest request = read_of("large");
    CHECK(verbs3_add_read(asked->batch, &request, NULL) == VERBS3_RESULT_BAD_ARGUMENT);
    verbs3_end_batch(asked->batch);
  }
  return ++asked->times < asked->stop_after;
}

/* A caller that waits for a gateway that stands still is asked, and may leave. The next call has its answer again. */
static void try_stopping(const char *socket, pid_t gateway) {
  struct Asked asked = {.stop_after = 3};
  Verbs3Options options = own_options(socket);
  options.keep_waiting = ask, options.context = &asked;
  Verbs3Client *client = NULL;
  CHECK(verbs3_connect(&options, &client) == VERBS3_RESULT_OK);
  Verbs3Batch *batch = NULL;
  CHECK(verbs3_begin_batch(client, &batch) == VERBS3_RESULT_OK);
  Verbs3ReadRequest request = read_of("large");
  CHECK(verbs3_add_read(batch, &request, NULL) == VERBS3_RESULT_OK);
  CHECK(kill(gateway, SIGSTOP) == 0);
  await_standstill(gateway);
  Verbs3Answer *answer = NULL;
  Verbs3Result read = verbs3_read(client, &request, &answer);
  size_t index = 0;
  asked.times = 0, asked.batch = batch;
  Verbs3Result next = verbs3_next_answer(batch, &index, &answer);
  CHECK(kill(gateway, SIGCONT) == 0);
  CHECK(read == VERBS3_RESULT_STOPPED && next == VERBS3_RESULT_STOPPED && answer == NULL && index == SIZE_MAX && asked.times == 3);
  asked.stop_after = 1 << 30;
  CHECK(verbs3_next_answer(batch, &index, &answer) == VERBS3_RESULT_OK && answer != NULL && index == 0);
  check_body(answer, 1, 0, OBJECT_BYTES);
  verbs3_release_answer(answer);
  verbs3_end_batch(batch);
  verbs3_disconnect(client);
}

static void *read_often(void *client) {
  for (int count = 0; count < 20; count++) {
    Verbs3Answer *answer = read_whole(client, "large");
    check_body(answer, 1, 0, OBJECT_BYTES);
    verbs3_release_answer(answer);
  }
  return NULL;
}

static void try_threads(Verbs3Client *client) {
  pthread_t threads[THREADS];
  for (int index = 0; index < THREADS; index++)
    CHECK(pthread_create(&threads[index], NULL, read_often, client) == 0);
  for (int index = 0; index < THREADS; index++)
    CHECK(pthread_join(threads[index], NULL) == 0);
}

/* A child reads by a connection of its own, has no answer of its parent's, and takes nothing away by ending what it has. */
static void try_fork(Verbs3Client *client) {
  Verbs3Answer *answer = read_whole(client, "large");
  Verbs3Writer *writer = NULL;
  Verbs3Batch *batch = NULL;
  const uint8_t byte = byte_of(4, 0);
  CHECK(verbs3_begin_write(client, 1, &writer) == VERBS3_RESULT_OK);
  CHECK(verbs3_append_body(writer, &byte, 1) == VERBS3_RESULT_OK);
  CHECK(verbs3_begin_batch(client, &batch) == VERBS3_RESULT_OK);
  Verbs3ReadRequest request = read_of("large");
  CHECK(verbs3_add_read(batch, &request, NULL) == VERBS3_RESULT_OK);
  pid_t child = fork();
  CHECK(child >= 0);
  if (child == 0) {
    const uint8_t *bytes;
    size_t length;
    CHECK(verbs3_answer_body(answer, &bytes, &length) == VERBS3_RESULT_OTHER_PROCESS && bytes == NULL && length == 0);
    verbs3_release_answer(answer);
    CHECK(verbs3_append_body(writer, &byte, 1) != VERBS3_RESULT_OK);
    verbs3_abandon_write(writer);
    Verbs3Answer *own = read_whole(client, "large");
    check_body(own, 1, 0, OBJECT_BYTES);
    verbs3_release_answer(own);
    verbs3_end_batch(batch);
    verbs3_disconnect(client);
    _exit(0);
  }
  int status = -1;
  CHECK(waitpid(child, &status, 0) == child && status == 0);
  check_body(answer, 1, 0, OBJECT_BYTES);
  verbs3_release_answer(answer);
  size_t index = SIZE_MAX;
  CHECK(verbs3_next_answer(batch, &index, &answer) == VERBS3_RESULT_OK && index == 0);
  check_body(answer, 1, 0, OBJECT_BYTES);
  verbs3_release_answer(answer);
  verbs3_end_batch(batch);
  Verbs3WriteRequest written = {.object = {.bucket = bucket, .key = "forked"}};
  CHECK(verbs3_finish_write(writer, &written, &answer) == VERBS3_RESULT_OK && verbs3_answer_status(answer) == 200);
  verbs3_release_answer(answer);
  answer = read_whole(client, "forked");
  check_body(answer, 4, 0, 1);
  verbs3_release_answer(answer);
}

int main(int count, char **words) {
  if (count != 4)
    return 2;
  const char *socket = words[1];
  bucket = words[2];
  Verbs3Options options = own_options(socket);
  options.memory_bytes = LENT_BYTES;
  Verbs3Client *client = NULL;
  CHECK(verbs3_connect(&options, &client) == VERBS3_RESULT_OK);
  Verbs3Header meta = {"x-amz-meta-of", "c"};
  put(client, "large", 1, OBJECT_BYTES, &meta, 1);
  put(client, "long", 2, LONG_BYTES, NULL, 0);
  put(client, "longest", 3, LONGEST_BYTES, NULL, 0);
  try_wrong_arguments(socket, client);
  try_reads(client);
  try_pages(socket);
  try_batches(client);
  try_writes(client);
  try_full_memory(socket);
  try_stopping(socket, (pid_t)atol(words[3]));
  try_threads(client);
  try_fork(client);
  verbs3_disconnect(client);
  puts("held");
  return 0;
}
