// The Python face of the native code: `bindings/` alone includes nanobind, and is thin. Every call
// that can take time releases the GIL.
#include <ggml.h>
#include <llama.h>

#include <chrono>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "backend/cpu_backend.h"
#include "backend/rpc_backend.h"
#include "base/cpu_affinity.h"
#include "base/heap_reserve.h"
#include "base/json_shape.h"
#include "base/time_slice.h"
#include "bindings/python.h"
#include "log/abort_handler.h"
#include "log/log_sink.h"
#include "vocabulary/chat_format.h"

namespace unpaced {
namespace {

nb::bytes chat_prompt(const nb::bytes& chat_template, const nb::list& messages,
                      bool add_generation_prompt) {
  std::vector<ChatMessage> chat;
  for (const nb::handle message : messages) {
    const auto [role, content] = nb::cast<std::pair<nb::bytes, nb::bytes>>(message);
    chat.push_back({.role = std::string(view(role)), .content = std::string(view(content))});
  }
  const std::string text(view(chat_template));
  std::string prompt;
  {
    const nb::gil_scoped_release release;
    prompt = format_chat(text, chat, add_generation_prompt);
  }
  return to_bytes(prompt);
}

// One pass, where Python would make several over thousands of ints.
bool are_tokens(const nb::list& items, std::int64_t n_vocab) {
  for (const nb::handle item : items) {
    if (!PyLong_CheckExact(item.ptr())) return false;  // bool is a subclass
    int overflow = 0;
    const std::int64_t token = PyLong_AsLongLongAndOverflow(item.ptr(), &overflow);
    if (overflow != 0 || token < 0 || token >= n_vocab) return false;
  }
  return true;
}

// Sizes of the structs that cross the C boundary by value, as compiled here; the loader compares
// them with llama_cpp's where that is no build of ours.
nb::dict abi_sizes() {
  nb::dict sizes;
  sizes["llama_model_params"] = sizeof(llama_model_params);
  sizes["llama_context_params"] = sizeof(llama_context_params);
  sizes["llama_batch"] = sizeof(llama_batch);
  sizes["llama_token_data"] = sizeof(llama_token_data);
  sizes["llama_sampler_chain_params"] = sizeof(llama_sampler_chain_params);
  return sizes;
}

}  // namespace

}  // namespace unpaced

NB_MODULE(_native, m) {
  using namespace unpaced;
  m.doc() = "Native engine of unpaced: decode thread, rings, sampling. Use engine_ext's face.";
  m.def(
      "install_log_sink", [](int min_level) { install_log_sink(static_cast<LogLevel>(min_level)); },
      "min_level"_a);
  m.def("install_abort_handler", &install_abort_handler);
  m.def("set_abort_status", &set_abort_status, "status"_a);
  m.def("explain_lost_pages", &explain_lost_pages);
  m.def("queue_log", &queue_log, "max_bytes"_a);
  m.def("set_log_file", &set_log_file, "file"_a);
  m.def(
      "write_log",
      [](int target, const nb::bytes& text) {
        return write_log(static_cast<LogTarget>(target), {text.c_str(), text.size()});
      },
      "target"_a, "text"_a);
  m.def("count_dropped_log", &count_dropped_log);
  m.def(
      "flush_log", [](int limit_ms) { return flush_log(std::chrono::milliseconds(limit_ms)); },
      "limit_ms"_a, nb::call_guard<nb::gil_scoped_release>());
  m.def("abi_sizes", &abi_sizes, nb::sig("def abi_sizes() -> dict[str, int]"));
  m.def("llama_library", &llama_library);
  m.def("cpu_library", [] {
    init_backends();
    return cpu_library();
  });
  m.def("add_rpc_workers", &add_rpc_workers, "endpoints"_a);
  m.def("run_rpc_worker", &run_rpc_worker, "endpoint"_a, "n_threads"_a, "devices"_a,
        nb::call_guard<nb::gil_scoped_release>());
  m.def("ggml_commit", [] { return std::string(ggml_commit()); });
  m.def("are_tokens", &are_tokens, "items"_a, "n_vocab"_a,
        nb::sig("def are_tokens(items: list[typing.Any], n_vocab: int) -> bool"));
  m.def(
      "json_shape",
      [](const nb::bytes& text) {
        const JsonShape shape = json_shape(view(text));
        return std::tuple(shape.depth, shape.n_values, shape.n_numbers);
      },
      "text"_a);
  m.def("allowed_cores", &allowed_cores);
  m.def(
      "group_by_physical_core",
      [](const std::vector<int>& cores) { return group_by_physical_core(cores); }, "cores"_a);
  m.def("take_front_end_slice", [] { return shorten_time_slice(kFrontEndSlice); });
  m.def("give_back_heap", &give_back_heap, nb::call_guard<nb::gil_scoped_release>());
  m.def(
      "ggml_type_name",
      [](int type) { return std::string(ggml_type_name(static_cast<ggml_type>(type))); }, "type"_a);
  m.def("builtin_chat_templates", &builtin_chat_templates);
  m.def("format_chat", &chat_prompt, "template"_a, "messages"_a, "adds_turn"_a,
        nb::sig("def format_chat(template: bytes, messages: list[tuple[bytes, bytes]], "
                "adds_turn: bool) -> bytes"));
  bind_config(m);
  bind_grammar(m);
  bind_memory_plan(m);
  bind_request(m);
  bind_slot_action(m);
  bind_token_event(m);
  bind_token_frames(m);
  bind_waiting_room(m);
  bind_engine(m);
}
