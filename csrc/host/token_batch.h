// llama_batch with a fixed capacity, one sequence a token, all memory taken in the constructor.
#pragma once

#include <llama.h>

#include <cstdint>

namespace unpaced {

class TokenBatch {
 public:
  explicit TokenBatch(std::int32_t capacity)
      : batch_(llama_batch_init(capacity, 0, 1)), capacity_(capacity) {}
  ~TokenBatch() { llama_batch_free(batch_); }
  TokenBatch(const TokenBatch&) = delete;
  TokenBatch& operator=(const TokenBatch&) = delete;

  void clear() noexcept { batch_.n_tokens = 0; }
  // The caller stays within room().
  void add(llama_token token, llama_pos pos, llama_seq_id seq, bool want_logits) noexcept {
    const std::int32_t i = batch_.n_tokens++;
    batch_.token[i] = token;
    batch_.pos[i] = pos;
    batch_.n_seq_id[i] = 1;
    batch_.seq_id[i][0] = seq;
    batch_.logits[i] = want_logits ? 1 : 0;
  }
  void copy(const TokenBatch& from, std::int32_t first, std::int32_t n) noexcept {
    clear();
    for (std::int32_t i = first; i < first + n; ++i) {
      add(from.batch_.token[i], from.batch_.pos[i], from.batch_.seq_id[i][0],
          from.batch_.logits[i] != 0);
    }
  }
  [[nodiscard]] std::int32_t size() const noexcept { return batch_.n_tokens; }
  [[nodiscard]] std::int32_t room() const noexcept { return capacity_ - batch_.n_tokens; }
  [[nodiscard]] llama_token token(std::int32_t i) const noexcept { return batch_.token[i]; }
  [[nodiscard]] const llama_batch& get() const noexcept { return batch_; }

 private:
  llama_batch batch_;
  const std::int32_t capacity_;
};

}  // namespace unpaced
