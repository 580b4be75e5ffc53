// llama.cpp's inside, as far as the device loop needs it: the decode graph of one token, or of a
// few, for a window of KV cells on a CUDA backend of our own, and the cells' bookkeeping.
//
// llama_internals.cuh is the only file that includes llama.cpp's internal headers (commit
// 0c1e57098).
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "device/graph/step_graph.h"
#include "device/llama/cell_rows.h"
#include "device/state/loop_state.h"
#include "model/residency.h"

struct llama_context;

namespace unpaced {

// Where the next tokens of a sequence go.
struct CellPlan {
  std::vector<std::int32_t> cells;  // one for each token, within the sequence's stream
  std::int32_t stream = 0;          // of the KV cache
  std::int64_t first_cell = 0;      // of the stream, in cells of the whole cache
  std::int32_t n_used = 0;          // one past the highest cell in use now
};

// Which decode graph: its shape depends on nothing else.
struct Window {
  std::int32_t stream;
  std::int32_t n_kv;  // cells that attention reads, from the stream's first on
  std::int32_t n_tokens = 1;
  std::int32_t n_outputs = 1;  // tokens that have logits: one of them, or all
  // Streams from the first one on that have as many tokens each; attention reads each one's cells.
  std::int32_t n_streams = 1;
  // The rows' cells may be in any streams: kernels of ours find them by the cells' numbers.
  bool is_scattered = false;
  auto operator<=>(const Window&) const = default;

  // The row of the i-th sequence, whose cells are the stream's.
  [[nodiscard]] std::int32_t row_of(std::int32_t of_stream, std::size_t i) const noexcept {
    const bool is_block = n_streams > 1 && !is_scattered;
    return is_block ? of_stream - stream : static_cast<std::int32_t>(i);
  }
};

// A row's part of a step's mask: what a token at `position` of the sequence sees, cell by cell.
struct SeenRow {
  std::int32_t sequence;
  std::int32_t position;
  std::span<std::uint16_t> mask;
};

// What a mask has, in F16, for a cell that is not seen: -inf.
inline constexpr std::uint16_t kHiddenCell = 0xfc00;

// Every method: decode thread only; throws std::runtime_error.
class LlamaBridge {
 public:
  // The model must be on one device, which becomes the calling thread's.
  // Takes the backend and the memory, and runs a step on them: the KV must be empty, and cleared
  // after. Throws with the reason (one sentence) if this model, context or build cannot be served
  // exactly. most: the most tokens, rows of logits and cells of a window.
  struct Most {
    std::int32_t n_tokens = 1;
    std::int32_t n_outputs = 1;
    std::int32_t n_kv = std::numeric_limits<std::int32_t>::max();
  };
  explicit LlamaBridge(llama_context* context) : LlamaBridge(context, Most{}) {}
  LlamaBridge(llama_context* context, const Most& most);
  ~LlamaBridge();
  LlamaBridge(const LlamaBridge&) = delete;
  LlamaBridge& operator=(const LlamaBridge&) = delete;

  // CUDA's number of the device that has the model, and that this thread's calls are for.
  [[nodiscard]] int device() const noexcept;
  [[nodiscard]] cudaStream_t stream() const noexcept;
  [[nodiscard]] const StepInputs& inputs() const noexcept;
  // Device memory: which of the tokens have logits; 0, 1, ... until somebody writes it. Null: the
  // graph does not ask.
  [[nodiscard]] std::int32_t* output_index() const noexcept;
  // Cells of one stream: the largest window.
  [[nodiscard]] std::int32_t n_cells() const noexcept;
  // Cells that attention reads where cells below n_used are in use: llama.cpp's own rule.
  [[nodiscard]] std::int32_t window_cells(std::int32_t n_used) const noexcept;
  // From now on a step's rows are of any streams, one each.
  void scatter_rows() noexcept;
  [[nodiscard]] bool scatters_rows() const noexcept;
  // Of a step of n_rows sequences: of one stream, or of so many streams, a row each.
  [[nodiscard]] Window rows_window(std::int32_t stream, std::int32_t n_kv,
                                   std::int32_t n_rows) const noexcept;
  // One past the highest cell of the stream that something is kept in.
  [[nodiscard]] std::int32_t n_used(std::int32_t stream) const noexcept;
  // Of the KV cache: one a slot, or one for all of them.
  [[nodiscard]] std::int32_t n_streams() const noexcept;
  // The most tokens that one plan can hold.
  [[nodiscard]] std::int32_t n_plan_max() const noexcept;
  // The decode graph's nodes and splits.
  [[nodiscard]] const Residency& residency() const noexcept;
  // What of the model and the KV is not on the GPU, and where the nodes of the context's own last
  // graph were. Any context, whether the loop can serve it or not.
  [[nodiscard]] static Residency describe(llama_context* context);

  // Builds the window's graph; run() then enqueues its kernels on the stream (also while that is
  // captured) and logits() is where they leave n_vocab floats an output. Only the last one opened
  // exists. May wait for the stream.
  void open(const Window& window);
  // The one that is open.
  [[nodiscard]] const Window& window() const noexcept;
  // Another number once open() has moved what graphs compute in: those captured before then hold
  // addresses of freed memory.
  [[nodiscard]] std::uint64_t memory_version() const noexcept;
  void run() const { run(nodes()); }
  // Only some of the graph's nodes. They give the same bits in parts if no border cuts what ggml
  // computes by one kernel: then it takes others.
  void run(const NodeRange& nodes) const;
  // All of them.
  [[nodiscard]] NodeRange nodes() const noexcept;
  // The graph that is open; its tensors exist until the next one is opened.
  [[nodiscard]] StepGraph graph() const;
  // One past the node of this name; throws if there is none.
  [[nodiscard]] std::int32_t end_of_node(const std::string& name) const;
  [[nodiscard]] float* logits() const noexcept;

  // Cells for up to n next tokens of a sequence: fewer if there are fewer. Nothing is changed.
  [[nodiscard]] CellPlan plan(std::int32_t sequence, std::int32_t n);
  // The same for sequences of one stream, or each of a stream of its own, n tokens each at most, as
  // if every token were computed beside the others' of the same number: by sequence.
  [[nodiscard]] std::vector<CellPlan> plan(std::span<const std::int32_t> sequences, std::int32_t n);
  // A cell of the stream that nothing is kept in; -1: there is none.
  [[nodiscard]] std::int32_t unused_cell(std::int32_t stream) const noexcept;
  // Where llama_decode would put the sequence's next tokens, all in one batch. Nothing is changed.
  // Empty: there is no room, or llama.cpp has something to do to the KV before.
  [[nodiscard]] std::optional<CellPlan> plan_batch(std::int32_t sequence, std::int32_t position,
                                                   std::span<const TokenId> tokens);
  // The first tokens.size() cells of the plan now hold these tokens. Throws if one of them has been
  // taken since.
  void commit(std::int32_t sequence, std::int32_t position, const CellPlan& plan,
              std::span<const TokenId> tokens);
  // mask[i], F16 bits, for a token at `position` of the sequence; cells of a plan stay hidden.
  void fill_mask(std::int32_t sequence, std::int32_t position, std::span<std::uint16_t> mask);
  // The same of several rows, whose masks have as many cells: one pass over those of one stream.
  void fill_masks(std::span<const SeenRow> rows);
  // Every tensor of the KV cache's first stream, with the rows of its cells.
  [[nodiscard]] std::vector<CellRows> cell_rows() const;
  // The cells of a sequence's tokens from `position` on, as many as `cells` has room for. False:
  // the sequence has not so many.
  [[nodiscard]] bool find(std::int32_t sequence, std::int32_t position,
                          std::span<std::int32_t> cells) const;
  // The sequence's next tokens get cells, whose rows are the caller's to write. False: there are
  // not so many.
  [[nodiscard]] bool claim(std::int32_t sequence, std::int32_t position,
                           std::span<const TokenId> tokens, std::span<std::int32_t> cells);
  // As llama_memory_seq_rm and llama_memory_seq_cp within a stream, for cells at positions
  // [first, last): but they look at the sequence's cells alone.
  void remove(std::int32_t sequence, std::int32_t first, std::int32_t last) noexcept;
  void share(std::int32_t from, std::int32_t to, std::int32_t first, std::int32_t last);
  // The search for free cells begins at the first one of the sequence's stream.
  void search_anew(std::int32_t sequence) noexcept;
  // Waits until the context's own work is done; its KV may be read and written then.
  void synchronize_context();

 private:
  struct Inside;
  std::unique_ptr<Inside> inside_;
};

}  // namespace unpaced
