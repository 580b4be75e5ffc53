#include "device/llama/llama_inside.cuh"
#include "model/loop_memory.h"

namespace unpaced {

LlamaBridge::LlamaBridge(llama_context* context, const Most& most)
    : inside_(std::make_unique<Inside>(context)) {
  Inside& in = *inside_;
  in.make_backend();
  // The largest window first: it sizes the arena and the scheduler's buffer, which must never move.
  // Several rows of logits are several sequences'; several tokens that leave one are one's prompt.
  const auto window_of = [&](std::int32_t n_kv, std::int32_t n_rows) {
    if (most.n_outputs > 1) return rows_window(0, n_kv, n_rows);
    return Window{.stream = 0, .n_kv = n_kv, .n_tokens = most.n_tokens, .n_outputs = 1};
  };
  const Window largest = window_of(std::min(n_cells(), most.n_kv), most.n_outputs);
  in.build(largest);
  in.check_inputs();
  in.take_arena();
  in.place_inputs();
  in.read_addresses();
  if (!ggml_backend_sched_reserve(in.scheduler, in.graph)) {
    refuse("no device memory for the decode graph");
  }
  // It also takes the most scratch memory. ggml's pool of that keeps what it has, and where memory
  // is short it could not grow within a capture without aborting the process.
  open(largest);
  run();
  in.upload_outputs(most.n_outputs);
  // Fewer tokens are not always less: up to eight have kernels of their own, more go in eights.
  for (std::int32_t n = most.n_outputs - 1; n > 0; n = n > 8 ? (n - 1) / 8 * 8 : n - 1) {
    open(window_of(largest.n_kv, n));
    run();
  }
  open(window_of(window_cells(1), most.n_outputs));
  in.upload_rotations();
  in.check_capture();
}

LlamaBridge::~LlamaBridge() = default;

int LlamaBridge::device() const noexcept { return inside_->index; }

cudaStream_t LlamaBridge::stream() const noexcept { return inside_->cuda_context().stream(); }

const StepInputs& LlamaBridge::inputs() const noexcept { return inside_->inputs; }

std::int32_t* LlamaBridge::output_index() const noexcept { return inside_->output_index; }

std::int32_t LlamaBridge::n_cells() const noexcept {
  return static_cast<std::int32_t>(inside_->cache->get_size());
}

std::int32_t LlamaBridge::window_cells(std::int32_t n_used) const noexcept {
  const std::int32_t padded = (n_used + kWindowCells - 1) / kWindowCells * kWindowCells;
  return std::min(n_cells(), std::max(kWindowCells, padded));
}

Window LlamaBridge::rows_window(std::int32_t stream, std::int32_t n_kv,
                                std::int32_t n_rows) const noexcept {
  return {.stream = stream,
          .n_kv = n_kv,
          .n_tokens = n_rows,
          .n_outputs = n_rows,
          .n_streams = n_streams() > 1 ? n_rows : 1,
          .is_scattered = scatters_rows() && n_rows > 1};
}

void LlamaBridge::scatter_rows() noexcept { inside_->scatters_rows = n_streams() > 1; }

bool LlamaBridge::scatters_rows() const noexcept { return inside_->scatters_rows; }

std::int32_t LlamaBridge::n_streams() const noexcept {
  return static_cast<std::int32_t>(inside_->cache->n_stream);
}

std::int32_t LlamaBridge::n_plan_max() const noexcept {
  return static_cast<std::int32_t>(std::min<std::uint32_t>(kMaxSteps, inside_->context->n_batch()));
}

const Residency& LlamaBridge::residency() const noexcept { return inside_->residency; }

Residency LlamaBridge::describe(llama_context* context) {
  Residency found;
  list_places(context, found);
  ggml_cgraph* graph = context->get_gf_res_prev()->get_gf();
  ggml_backend_sched_t scheduler = context->get_sched();
  if (graph != nullptr && scheduler != nullptr) count_nodes(scheduler, graph, found);
  // A graph that has not run is nowhere: without a warm-up there is none to look at.
  if (found.nodes.contains("none")) found.nodes.clear();
  return found;
}

void LlamaBridge::open(const Window& window) {
  Inside& in = *inside_;
  in.build(window);
  in.check_inputs();
  in.place_inputs();
  const StepInputs before = in.inputs;
  in.read_addresses();
  if (std::memcmp(&before, &in.inputs, sizeof before) != 0) refuse("the graph's inputs moved");
  ggml_backend_sched_reset(in.scheduler);
  if (!ggml_backend_sched_alloc_graph(in.scheduler, in.graph)) {
    // Freed to make room for a larger one.
    in.compute_base = nullptr;
    ++in.memory_version;
    refuse("no device memory for the decode graph");
  }
  in.check_compute_buffer();
  in.check_residency();
}

const Window& LlamaBridge::window() const noexcept { return inside_->window; }

std::uint64_t LlamaBridge::memory_version() const noexcept { return inside_->memory_version; }

void LlamaBridge::run(const NodeRange& nodes) const {
  if (nodes.begin == nodes.end) return;
  Inside& in = *inside_;
  // It keeps the whole graph's use counts: ggml fuses what nobody else reads.
  ggml_cgraph part = ggml_graph_view(in.graph, nodes.begin, nodes.end);
  const ggml_status status = ggml_backend_graph_compute_async(in.cuda, &part);
  // ggml makes a CUDA graph of its own the second time it sees a graph: every time is the first.
  in.cuda_context().cuda_graphs.clear();
  if (status != GGML_STATUS_SUCCESS) refuse("the decode graph cannot be run");
}

NodeRange LlamaBridge::nodes() const noexcept {
  return {.begin = 0, .end = ggml_graph_n_nodes(inside_->graph)};
}

StepGraph LlamaBridge::graph() const {
  ggml_cgraph* graph = inside_->graph;
  return StepGraph({ggml_graph_nodes(graph), ggml_graph_nodes(graph) + ggml_graph_n_nodes(graph)});
}

std::int32_t LlamaBridge::end_of_node(const std::string& name) const {
  ggml_cgraph* graph = inside_->graph;
  for (int i = 0; i < ggml_graph_n_nodes(graph); ++i) {
    if (name == ggml_graph_node(graph, i)->name) return i + 1;
  }
  refuse("the decode graph has no node " + name);
}

float* LlamaBridge::logits() const noexcept {
  return static_cast<float*>(inside_->result->t_logits->data);
}

CellPlan LlamaBridge::plan(std::int32_t sequence, std::int32_t n) {
  return std::move(plan(std::span(&sequence, 1), n).front());
}

std::vector<CellPlan> LlamaBridge::plan(std::span<const std::int32_t> sequences, std::int32_t n) {
  std::vector<CellPlan> plans;
  for (const std::int32_t sequence : sequences) plans.push_back(inside_->begin_plan(sequence));
  n = std::min(n, n_plan_max());
  if (n_streams() == 1) {
    inside_->find_side_by_side(plans, n);
    return plans;
  }
  for (const CellPlan& plan : plans) n = std::min(n, inside_->n_unused(plan));
  for (CellPlan& plan : plans) inside_->find_side_by_side({&plan, 1}, n);
  return plans;
}

std::int32_t LlamaBridge::n_used(std::int32_t stream) const noexcept {
  const llama_kv_cells& cells = inside_->cache->v_cells[static_cast<std::size_t>(stream)];
  return static_cast<std::int32_t>(cells.used_max_p1());
}

std::int32_t LlamaBridge::unused_cell(std::int32_t stream) const noexcept {
  const llama_kv_cells& cells = inside_->cache->v_cells[static_cast<std::size_t>(stream)];
  for (std::int32_t cell = n_cells() - 1; cell >= 0; --cell) {
    if (cells.is_empty(static_cast<std::uint32_t>(cell))) return cell;
  }
  return -1;
}

std::optional<CellPlan> LlamaBridge::plan_batch(std::int32_t sequence, std::int32_t position,
                                                std::span<const TokenId> tokens) {
  Inside& in = *inside_;
  // llama_decode would move rows before: a shift, or a copy from another stream.
  if (in.cache->get_has_shift() || !in.cache->sc_info.empty()) return std::nullopt;
  // Looking for cells sets where llama.cpp begins to look for them in the sequence's stream to
  // where it begins in the first one (llama_kv_cache::prepare). Cells in another order are other
  // sums.
  const std::vector<std::uint32_t> heads = in.cache->v_heads;
  const auto found = in.find_cells(sequence, position, tokens);
  in.cache->v_heads = heads;
  if (!found || found->sinfos.size() != 1) return std::nullopt;
  CellPlan plan;
  const std::vector<std::uint32_t>& cells = found->sinfos.at(0).idxs.at(0);
  plan.cells.assign(cells.begin(), cells.end());
  plan.stream = static_cast<std::int32_t>(in.cache->get_stream(sequence));
  plan.first_cell = static_cast<std::int64_t>(plan.stream) * n_cells();
  plan.n_used = static_cast<std::int32_t>(in.cache->get_cells(sequence).used_max_p1());
  return plan;
}

void LlamaBridge::commit(std::int32_t sequence, std::int32_t position, const CellPlan& plan,
                         std::span<const TokenId> tokens) {
  if (tokens.empty()) return;
  const llama_kv_cells& held = inside_->cache->get_cells(sequence);
  const auto is_taken = [&held](std::int32_t cell) {
    return !held.is_empty(static_cast<std::uint32_t>(cell));
  };
  if (std::any_of(plan.cells.begin(),
                  plan.cells.begin() + static_cast<std::ptrdiff_t>(tokens.size()), is_taken)) {
    refuse("a planned KV cell has been taken");
  }
  const llama_pos last = held.seq_pos_max(sequence);
  if (last >= 0 && last + 1 != position) refuse("the sequence's KV cells have changed");
  inside_->enter(sequence, position, std::span(plan.cells).first(tokens.size()), tokens);
}

void LlamaBridge::fill_mask(std::int32_t sequence, std::int32_t position,
                            std::span<std::uint16_t> mask) {
  const llama_kv_cells& cells = inside_->cache->get_cells(sequence);
  for (std::size_t i = 0; i < mask.size(); ++i) {
    const auto cell = static_cast<std::uint32_t>(i);
    const bool visible =
        !cells.is_empty(cell) && cells.seq_has(cell, sequence) && cells.pos_get(cell) <= position;
    mask[i] = visible ? 0 : kHiddenCell;
  }
}

void LlamaBridge::fill_masks(std::span<const SeenRow> rows) {
  if (n_streams() > 1 || rows.size() == 1) {
    for (const SeenRow& row : rows) fill_mask(row.sequence, row.position, row.mask);
    return;
  }
  std::array<const SeenRow*, LLAMA_MAX_SEQ> row_of{};
  for (const SeenRow& row : rows) {
    row_of.at(static_cast<std::size_t>(row.sequence)) = &row;
    std::ranges::fill(row.mask, kHiddenCell);
  }
  const llama_kv_cells& cells = inside_->cache->v_cells.front();
  for (std::size_t i = 0; i < rows.front().mask.size(); ++i) {
    const auto cell = static_cast<std::uint32_t>(i);
    if (cells.is_empty(cell)) continue;
    const llama_kv_cells::seq_set_t& sequences = cells.seq_get_all(cell);
    for (std::size_t s = sequences._Find_first(); s < sequences.size();
         s = sequences._Find_next(s)) {
      const SeenRow* row = row_of[s];
      if (row != nullptr && cells.pos_get(cell) <= row->position) row->mask[i] = 0;
    }
  }
}

std::vector<CellRows> LlamaBridge::cell_rows() const {
  std::vector<CellRows> rows;
  std::uint32_t before = 0;
  for (const auto& layer : inside_->cache->layers) {
    for (const ggml_tensor* tensor : {layer.k_stream.at(0), layer.v_stream.at(0)}) {
      if (tensor == nullptr) continue;
      rows.push_back({.first = static_cast<std::byte*>(tensor->data),
                      .n_bytes = static_cast<std::uint32_t>(tensor->nb[1]),
                      .before = before});
      before += rows.back().n_bytes;
    }
  }
  return rows;
}

bool LlamaBridge::find(std::int32_t sequence, std::int32_t position,
                       std::span<std::int32_t> cells) const {
  const auto& places = inside_->cache->get_cells(sequence).seq_pos[sequence];
  auto place = places.lower_bound({position, 0});
  for (std::int32_t& cell : cells) {
    if (place == places.end() || place->first != position++) return false;
    cell = static_cast<std::int32_t>(place++->second);
  }
  return true;
}

bool LlamaBridge::claim(std::int32_t sequence, std::int32_t position,
                        std::span<const TokenId> tokens, std::span<std::int32_t> cells) {
  const auto found = inside_->find_cells(sequence, position, tokens);
  if (!found || found->sinfos.size() != 1) return false;
  std::ranges::copy(found->sinfos.at(0).idxs.at(0), cells.begin());
  return found->apply();
}

void LlamaBridge::remove(std::int32_t sequence, std::int32_t first, std::int32_t last) noexcept {
  llama_kv_cache& cache = *inside_->cache;
  const std::uint32_t stream = cache.get_stream(sequence);
  llama_kv_cells& cells = cache.v_cells[stream];
  const auto& places = cells.seq_pos[sequence];
  std::uint32_t& head = cache.v_heads[stream];
  for (auto place = places.lower_bound({first, 0}); place != places.end() && place->first < last;) {
    const std::uint32_t cell = (place++)->second;  // its place is about to go
    // Where the search for free cells begins.
    if (cells.seq_rm(cell, sequence)) head = std::min(head, cell);
  }
}

void LlamaBridge::share(std::int32_t from, std::int32_t to, std::int32_t first, std::int32_t last) {
  llama_kv_cache& cache = *inside_->cache;
  llama_kv_cells& cells = cache.v_cells[cache.get_stream(from)];
  const auto& places = cells.seq_pos[from];
  for (auto place = places.lower_bound({first, 0}); place != places.end() && place->first < last;
       ++place) {
    if (!cells.seq_has(place->second, to)) cells.seq_add(place->second, to);
  }
}

void LlamaBridge::search_anew(std::int32_t sequence) noexcept {
  inside_->cache->v_heads[inside_->cache->get_stream(sequence)] = 0;
}

void LlamaBridge::synchronize_context() { inside_->context->synchronize(); }

}  // namespace unpaced
