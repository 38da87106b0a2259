/* Copies an object into a file, without HTTP and without a copy of its own:
 *
 *     cc -I gateway/lending/c/include copy_object.c -L target/release -lverbs3 -o copy_object
 *     AWS_ACCESS_KEY_ID=… AWS_SECRET_ACCESS_KEY=… copy_object /run/verbs3/gateway.sock BUCKET KEY > FILE */

#include <stdio.h>
#include <stdlib.h>

#include "verbs3.h"

static int fail(const char *what) {
  fprintf(stderr, "copy_object: %s: %s\n", what, verbs3_error_text());
  return 1;
}

int main(int count, char **words) {
  if (count != 4) {
    fprintf(stderr, "copy_object SOCKET BUCKET KEY\n");
    return 2;
  }
  Verbs3Options options;
  verbs3_default_options(&options);
  options.socket = words[1];
  options.access_key = getenv("AWS_ACCESS_KEY_ID");
  options.secret_key = getenv("AWS_SECRET_ACCESS_KEY");
  Verbs3Client *client;
  if (verbs3_connect(&options, &client) != VERBS3_RESULT_OK)
    return fail("connect");

  Verbs3ReadRequest request = {.object = {.bucket = words[2], .key = words[3]}};
  Verbs3Answer *answer;
  if (verbs3_read(client, &request, &answer) != VERBS3_RESULT_OK)
    return fail("read");

  const uint8_t *bytes;
  size_t length;
  if (verbs3_answer_body(answer, &bytes, &length) != VERBS3_RESULT_OK)
    return fail("body");
  int is_found = verbs3_answer_status(answer) == 200;
  /* The body of an error is S3's own document. */
  size_t written = fwrite(bytes, 1, length, is_found ? stdout : stderr);
  verbs3_release_answer(answer);
  verbs3_disconnect(client);
  return is_found && written == length && fflush(stdout) == 0 ? 0 : 1;
}
