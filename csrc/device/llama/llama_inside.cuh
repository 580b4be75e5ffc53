// The inside of LlamaBridge, on llama.cpp's own classes. llama_bridge.cu alone includes it.
#pragma once

#include "device/llama/cell_search.h"
#include "device/llama/llama_bridge.h"
#include "device/llama/llama_checks.cuh"
#include "device/llama/llama_internals.cuh"
#include "device/state/cuda_memory.h"

namespace unpaced {
namespace {

constexpr std::size_t kAlignment = 256;  // of an input in the arena

std::size_t aligned(std::size_t n) { return (n + kAlignment - 1) / kAlignment * kAlignment; }

llama_kv_cache* plain_cache(llama_context* context) {
  llama_memory_i* memory = context->get_memory();
  if (memory == nullptr || typeid(*memory) != typeid(llama_kv_cache)) {
    refuse("the model's memory is not a plain KV cache (recurrent, hybrid or sliding window)");
  }
  return static_cast<llama_kv_cache*>(memory);
}

}  // namespace

struct LlamaBridge::Inside {
  explicit Inside(llama_context* c)
      : context(c),
        index(cuda_index(c)),
        cache(plain_cache(c)),
        allocator(c->get_model().hparams.n_pos_per_embd()) {
    check_model(context, *cache, index);
    list_places(context, residency);
    // CUDA's calls on this thread are for the model's device from now on, as ggml's are.
    cuda_check(cudaSetDevice(index), "cudaSetDevice");
  }

  ~Inside() {
    result.reset();
    ggml_backend_sched_free(scheduler);
    ggml_backend_buffer_free(arena);
    ggml_backend_free(cuda);
    ggml_backend_free(cpu);
  }

  llama_context* context;
  int index;  // of the device that has the model
  llama_kv_cache* cache;
  llama_batch_allocr allocator;
  ggml_backend_t cuda = nullptr;
  ggml_backend_t cpu = nullptr;
  ggml_backend_sched_t scheduler = nullptr;
  ggml_backend_buffer_t arena = nullptr;
  std::unique_ptr<llm_graph_result> result;
  std::unique_ptr<llama_kv_cache_context> memory;  // what the graph's inputs point to
  ggml_cgraph* graph = nullptr;
  std::vector<std::size_t> input_bytes;  // of each but the mask, in the largest graph
  StepInputs inputs{};
  std::int32_t* output_index = nullptr;
  std::vector<bool> taken;  // scratch of plan(): cells that it has given away
  Window window{};
  bool scatters_rows = false;
  const void* compute_base = nullptr;
  std::uint64_t memory_version = 0;
  Residency residency;

  ggml_backend_cuda_context& cuda_context() const {
    return *static_cast<ggml_backend_cuda_context*>(cuda->context);
  }

  void make_backend() {
    cuda = ggml_backend_cuda_init(index);
    if (cuda == nullptr) refuse("the CUDA backend cannot be made");
    cpu = ggml_backend_init_by_type(GGML_BACKEND_DEVICE_TYPE_CPU, nullptr);
    if (cpu == nullptr) refuse("the CPU backend cannot be made");
    std::array<ggml_backend_t, 2> backends{cuda, cpu};
    scheduler = ggml_backend_sched_new(backends.data(), nullptr, 2,
                                       context->get_gf_res_prev()->get_max_nodes(), false, false);
  }

  // The graph's tensors, not yet in memory.
  void build(const Window& wanted) {
    window = wanted;
    const auto n_streams = static_cast<std::uint32_t>(window.n_streams);
    const std::uint32_t n_each = static_cast<std::uint32_t>(window.n_tokens) / n_streams;
    const llama_ubatch ubatch = allocator.ubatch_reserve(n_each, n_streams);
    llama_kv_cache::slot_info place;
    place.s0 = static_cast<std::uint32_t>(window.stream);
    place.s1 = place.s0 + n_streams - 1;
    for (std::uint32_t s = place.s0; s <= place.s1; ++s) {
      place.strm.push_back(static_cast<llama_seq_id>(s));
    }
    place.idxs.assign(n_streams, std::vector<std::uint32_t>(n_each));
    memory = std::make_unique<llama_kv_cache_context>(cache, llama_kv_cache::slot_info_vec_t{place},
                                                      std::vector<llama_ubatch>{ubatch});
    memory->n_kv = window.n_kv;
    if (!result) {
      result = std::make_unique<llm_graph_result>(context->get_gf_res_prev()->get_max_nodes());
    }
    result->reset();
    llm_graph_params params =
        context->graph_params(result.get(), ubatch, memory.get(), LLM_GRAPH_TYPE_DEFAULT);
    params.sched = scheduler;
    params.backend_cpu = cpu;
    params.samplers.clear();
    params.n_outputs = static_cast<std::uint32_t>(window.n_outputs);
    params.cb = [](const llama_ubatch&, ggml_tensor* tensor, const char* name, int layer) {
      if (layer >= 0) {
        ggml_format_name(tensor, "%s-%d", name, layer);
      } else {
        ggml_set_name(tensor, name);
      }
    };
    graph = context->get_model().build_graph(params);
    if (graph == nullptr) refuse("the decode graph cannot be built");
  }

  // Refuses every input that the loop would not keep up to date.
  void check_inputs() const {
    for (const llm_graph_input_ptr& input : result->inputs) {
      const llm_graph_input_i& i = *input;
      const std::type_info& type = typeid(i);
      if (type != typeid(llm_graph_input_embd) && type != typeid(llm_graph_input_pos) &&
          type != typeid(llm_graph_input_out_ids) && type != typeid(llm_graph_input_attn_kv)) {
        refuse(std::string("the decode graph has an input of another kind: ") + type.name());
      }
    }
    if (result->t_logits == nullptr || result->t_logits->type != GGML_TYPE_F32) {
      refuse("the decode graph has no logits in F32");
    }
  }

  template <class Visit>
  void for_each_input(Visit visit) const {
    ggml_context* tensors = result->get_ctx();
    for (ggml_tensor* t = ggml_get_first_tensor(tensors); t != nullptr;
         t = ggml_get_next_tensor(tensors, t)) {
      if ((t->flags & GGML_TENSOR_FLAG_INPUT) != 0 && t->op == GGML_OP_NONE &&
          t->view_src == nullptr) {
        visit(t);
      }
    }
  }

  // Room for the inputs of the graph, which is the largest.
  void take_arena() {
    const ggml_tensor* mask = attention().self_kq_mask;
    std::size_t n_bytes = aligned(ggml_nbytes(mask));
    for_each_input([&](const ggml_tensor* t) {
      if (t == mask) return;
      input_bytes.push_back(aligned(ggml_nbytes(t)));
      n_bytes += input_bytes.back();
    });
    ggml_backend_buffer_type_t type = ggml_backend_get_default_buffer_type(cuda);
    arena = ggml_backend_buft_alloc_buffer(type, n_bytes);
    if (arena == nullptr) refuse("no device memory for the decode graph's inputs");
    ggml_backend_buffer_clear(arena, 0);
  }

  // In the same order, and the mask last: so every window has the same addresses.
  void place_inputs() {
    ggml_tensor* mask = attention().self_kq_mask;
    auto* next = static_cast<char*>(ggml_backend_buffer_get_base(arena));
    std::size_t i = 0;
    for_each_input([&](ggml_tensor* t) {
      if (t == mask) return;
      if (i == input_bytes.size() || ggml_nbytes(t) > input_bytes[i])
        refuse("the decode graph has other inputs than the largest one");
      ggml_backend_tensor_alloc(arena, t, next);
      next += input_bytes[i++];
    });
    ggml_backend_tensor_alloc(arena, mask, next);
  }

  llm_graph_input_attn_kv& attention() const { return find_input<llm_graph_input_attn_kv>(); }

  template <class Input>
  Input& find_input() const {
    for (const llm_graph_input_ptr& input : result->inputs) {
      if (auto* found = dynamic_cast<Input*>(input.get())) return *found;
    }
    refuse("the decode graph lacks an input that the loop writes");
  }

  void read_addresses() {
    const llm_graph_input_attn_kv& attention = this->attention();
    const ggml_tensor* mask = attention.self_kq_mask;
    if (mask->type != GGML_TYPE_F16) refuse("the attention mask is not F16");
    if (ggml_nelements(attention.self_v_idxs) != ggml_nelements(attention.self_k_idxs))
      refuse("the V cache is transposed");
    inputs = {.token = static_cast<std::int32_t*>(find_input<llm_graph_input_embd>().tokens->data),
              .position = static_cast<std::int32_t*>(find_input<llm_graph_input_pos>().pos->data),
              .k_index = static_cast<std::int64_t*>(attention.self_k_idxs->data),
              .v_index = static_cast<std::int64_t*>(attention.self_v_idxs->data),
              .mask = static_cast<std::uint16_t*>(mask->data)};
    for (const llm_graph_input_ptr& input : result->inputs) {
      const auto* found = dynamic_cast<llm_graph_input_out_ids*>(input.get());
      if (found != nullptr) output_index = static_cast<std::int32_t*>(found->out_ids->data);
    }
  }

  // The largest window's graph was to make the scheduler's buffer large enough for all; the
  // allocator promises nothing of that kind.
  void check_compute_buffer() {
    const ggml_tensor* logits = result->t_logits;
    if (logits->data == nullptr || logits->buffer == nullptr) refuse("the logits have no memory");
    const void* base = ggml_backend_buffer_get_base(logits->buffer);
    if (base == compute_base) return;
    compute_base = base;
    ++memory_version;
  }

  // All tokens have logits where several do.
  void upload_outputs(std::int32_t n_outputs) {
    if (output_index == nullptr || n_outputs < 2) return;
    std::vector<std::int32_t> rows(static_cast<std::size_t>(n_outputs));
    std::iota(rows.begin(), rows.end(), 0);
    copy_up_now(output_index, rows.data(), rows.size() * sizeof(std::int32_t));
  }

  // The rotations of a quantised cache never change.
  void upload_rotations() {
    const llm_graph_input_attn_kv& attention = this->attention();
    upload_rotation(attention.self_k_rot, true);
    upload_rotation(attention.self_v_rot, false);
  }

  void upload_rotation(const ggml_tensor* to, bool is_k) {
    if (to == nullptr) return;
    const ggml_init_params params{ggml_tensor_overhead() * 2, nullptr, true};
    const ggml_context_ptr tensors(ggml_init(params));
    ggml_tensor* host = ggml_dup_tensor(tensors.get(), to);
    const ggml_backend_buffer_ptr buffer(
        ggml_backend_alloc_ctx_tensors_from_buft(tensors.get(), ggml_backend_cpu_buffer_type()));
    if (is_k) {
      cache->set_input_k_rot(host);
    } else {
      cache->set_input_v_rot(host);
    }
    copy_up_now(to->data, host->data, ggml_nbytes(to));
  }

  void check_residency() {
    count_nodes(scheduler, graph, residency);
    for (int i = 0; i < ggml_graph_n_nodes(graph); ++i) {
      ggml_tensor* node = ggml_graph_node(graph, i);
      const ggml_backend_t backend = ggml_backend_sched_get_tensor_backend(scheduler, node);
      if (backend != nullptr && backend != cuda) {
        refuse("a node of the decode graph is not on the GPU: " + std::string(node->name) + " (" +
               ggml_op_name(node->op) + ")");
      }
    }
    if (residency.n_splits != 1) {
      refuse("the decode graph has " + std::to_string(residency.n_splits) + " splits");
    }
  }

  // ggml captures what it can the second time; what it cannot (a synchronising expert look-up, say)
  // would abort within our capture. Writes KV cell 0.
  void check_capture() {
    for (int i = 0; i < 2; ++i) {
      if (ggml_backend_graph_compute_async(cuda, graph) != GGML_STATUS_SUCCESS) {
        refuse("the decode graph cannot be run");
      }
    }
    ggml_backend_synchronize(cuda);
    bool captured = false;
    for (const auto& [key, made] : cuda_context().cuda_graphs) {
      captured = captured || made->instance != nullptr;
    }
    cuda_context().cuda_graphs.clear();
    if (!captured) refuse("ggml cannot capture this decode graph, or CUDA graphs are disabled");
  }

  // Of the sequence's stream, without cells.
  CellPlan begin_plan(std::int32_t sequence) const {
    CellPlan plan;
    plan.stream = static_cast<std::int32_t>(cache->get_stream(sequence));
    plan.first_cell = static_cast<std::int64_t>(plan.stream) * cache->get_size();
    plan.n_used = static_cast<std::int32_t>(cache->get_cells(sequence).used_max_p1());
    return plan;
  }

  const llama_kv_cells& cells_of(const CellPlan& plan) const {
    return cache->v_cells[static_cast<std::size_t>(plan.stream)];
  }

  std::int32_t n_unused(const CellPlan& plan) const {
    return static_cast<std::int32_t>(cache->get_size() - cells_of(plan).get_used());
  }

  // Up to n cells for each of the plans, which are of one stream: step by step, and plan by plan
  // within a step.
  void find_side_by_side(std::span<CellPlan> plans, std::int32_t n) {
    const llama_kv_cells& cells = cells_of(plans.front());
    n = std::min(n, n_unused(plans.front()) / static_cast<std::int32_t>(plans.size()));
    CellSearch search(taken, cells.size(),
                      cache->v_heads[static_cast<std::size_t>(plans.front().stream)],
                      cells.get_used());
    for (; n > 0; --n) {
      search.begin_batch(plans.size());
      for (CellPlan& plan : plans) {
        plan.cells.push_back(search.next([&](std::uint32_t cell) { return cells.is_empty(cell); }));
      }
    }
  }

  // The tokens' places in the books, as llama_decode enters them: it looks for the cells first, by
  // a rehearsal that takes three times as long as the entry and happens while the GPU waits.
  void enter(std::int32_t sequence, std::int32_t position,
             std::span<const std::int32_t> taken_cells, std::span<const TokenId> tokens) {
    const std::size_t n = tokens.size();
    std::vector<llama_token> ids(tokens.begin(), tokens.end());
    std::vector<llama_pos> positions(n);
    std::iota(positions.begin(), positions.end(), position);
    std::vector<std::int32_t> counts(n, 1);
    std::vector<llama_seq_id*> sequences(n, &sequence);
    llama_ubatch entered{};
    entered.n_tokens = entered.n_seq_tokens = static_cast<std::uint32_t>(n);
    entered.n_seqs = entered.n_seqs_unq = entered.n_pos = 1;
    entered.token = ids.data();
    entered.pos = positions.data();
    entered.n_seq_id = counts.data();
    entered.seq_id = sequences.data();
    const std::uint32_t stream = cache->get_stream(sequence);
    llama_kv_cache::slot_info place;
    place.s0 = place.s1 = stream;
    place.strm.push_back(static_cast<llama_seq_id>(stream));
    place.idxs.emplace_back(taken_cells.begin(), taken_cells.end());
    cache->apply_ubatch(place, entered);
  }

  // One ubatch of a sequence's next tokens; false: they do not fit.
  std::unique_ptr<llama_kv_cache_context> find_cells(std::int32_t sequence, std::int32_t position,
                                                     std::span<const TokenId> tokens) {
    llama_batch_ext batch(context);
    for (const TokenId token : tokens) {
      const std::int32_t i = batch.add_token(sequence);
      if (i < 0) return nullptr;
      const llama_pos at = position + i;
      batch.set_token_id(i, token);
      batch.set_token_pos(i, &at);
    }
    if (!allocator.init(batch, context->get_model().vocab, false)) return nullptr;
    llama_memory_context_ptr found =
        cache->init_batch(allocator, static_cast<std::uint32_t>(tokens.size()), false);
    if (!found || found->get_status() != LLAMA_MEMORY_STATUS_SUCCESS) return nullptr;
    auto* plain = static_cast<llama_kv_cache_context*>(found.release());
    return std::unique_ptr<llama_kv_cache_context>(plain);
  }
};

}  // namespace unpaced
