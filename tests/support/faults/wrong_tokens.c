// Has a batch's last token be none of the model's, so that an assertion of ggml's fails: GGML_ASSERT
// in ggml_compute_forward_get_rows, on the worker whose rows are the last ones. For LD_PRELOAD:
// libllama's calls come here first and go on to ggml.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <ggml.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef void (*set_tensor)(struct ggml_tensor *, const void *, size_t, size_t);

// While UNPACED_WRONG_TOKENS is a file that is there, for batches of UNPACED_WRONG_TOKENS_FROM tokens
// or more.
static int is_wanted(size_t n_tokens) {
  const char *file = getenv("UNPACED_WRONG_TOKENS");
  const char *least = getenv("UNPACED_WRONG_TOKENS_FROM");
  return n_tokens >= (size_t)atoi(least) && access(file, F_OK) == 0;
}

void ggml_backend_tensor_set(struct ggml_tensor *tensor, const void *data, size_t offset,
                             size_t size) {
  static set_tensor next = NULL;
  if (next == NULL) {
    next = (set_tensor)dlsym(dlopen("libggml-base.so", RTLD_NOW | RTLD_NOLOAD),
                             "ggml_backend_tensor_set");
  }
  next(tensor, data, offset, size);
  if (strcmp(tensor->name, "inp_tokens") == 0 && is_wanted(size / sizeof(int))) {
    const int none = INT_MAX;
    next(tensor, &none, offset + size - sizeof none, sizeof none);
  }
}
