// What the engine counts, and where its token loop runs, as dicts.
#include "bindings/py_engine.h"

namespace unpaced {
namespace {

nb::object card_dict(const CardReport& report) {
  nb::dict card;
  card["index"] = report.index;
  card["name"] = report.name;
  card["compute_capability"] = report.compute_capability;
  card["code_from"] = report.code_from;
  card["code_for"] = report.code_for;
  card["built_for"] = report.built_for;
  card["draw_team"] = report.draw_team;
  card["n_draw_blocks"] = report.n_draw_blocks;
  card["draw_reason"] = report.draw_reason;
  card["programmatic_launches"] = report.programmatic_launches;
  return card;
}

nb::dict trial_dict(const PhaseTrialReport& trial) {
  nb::dict told;
  told["phase"] = trial.phase;
  told["n_rows"] = trial.n_rows;
  told["n"] = trial.n;
  told["ms"] = trial.ms;
  told["measured"] = trial.measured;
  told["remembered"] = trial.remembered;
  if (trial.measured) {
    told["ggml_us"] = trial.ggml_us;
    told["own_us"] = trial.own_us;
  }
  return told;
}

nb::dict lane_step_dict(const LaneStepReport& step) {
  nb::dict told;
  told["n_rows"] = step.n_rows;
  told["n_graph_rows"] = step.n_graph_rows;
  told["kernels"] = step.why.empty() ? "own" : "ggml";
  told["why"] = step.why;
  told["own_us"] = step.own_us;
  told["ggml_us"] = step.ggml_us;
  return told;
}

nb::dict length_dict(const PromptLengthReport& length) {
  nb::dict told;
  told["n_tokens"] = length.n_tokens;
  told["by"] = length.why.empty() ? "graph" : "llama_decode";
  told["why"] = length.why;
  told["own_ms"] = length.own_ms;
  told["decode_ms"] = length.decode_ms;
  told["capture_ms"] = length.capture_ms;
  return told;
}

// What the steps of the host's loop were made of.
nb::dict step_counters(const Counters& c) {
  nb::dict values;
  nb::list batches;
  for (const Counter& n : c.n_batches) batches.append(n.get());
  values["n_batches"] = batches;
  values["n_batch_tokens"] = c.n_batch_tokens.get();
  values["n_beside"] = c.n_steps_beside.get();
  values["n_tokens_beside"] = c.n_tokens_beside.get();
  values["n_tokens_beside_max"] = c.n_tokens_beside_max.get();
  values["prefill_budget"] = c.prefill_budget.get();
  values["decode_us"] = c.step_decode_us.get();
  values["prompt_token_ns"] = c.step_prompt_token_ns.get();
  values["prompt_alone_ns"] = c.prompt_alone_ns.get();
  values["n_observed"] = c.n_steps_observed.get();
  values["n_lane_steps"] = c.n_lane_steps.get();
  values["n_lane_tokens"] = c.n_lane_tokens.get();
  values["n_masked_tokens"] = c.n_masked_tokens.get();
  values["n_late_masks"] = c.n_late_masks.get();
  values["gap_us_max"] = c.gap_us_max.get();
  return values;
}

}  // namespace

nb::dict counters(PyEngine& self) {
  const Counters& c = self.get().decode_thread().counters();
  nb::dict values;
  values["heartbeat_age_s"] =
      1e-6 * static_cast<double>(self.get().decode_thread().heartbeat_age_us());
  values["n_steps"] = c.n_steps.get();
  values["n_busy_slots"] = c.n_busy_slots.get();
  values["n_tokens_decoded"] = c.n_tokens_decoded.get();
  values["n_tokens_device"] = c.n_tokens_device.get();
  values["n_tokens_prompt"] = c.n_tokens_prompt.get();
  values["n_prompts_graph"] = c.n_prompts_graph.get();
  values["n_tokens_cached"] = c.n_tokens_cached.get();
  values["n_prefix_waits"] = c.n_prefix_waits.get();
  values["n_tokens_shared"] = c.n_tokens_shared.get();
  values["n_cells_shared"] = c.n_cells_shared.get();
  values["n_cells_repeated"] = c.n_cells_repeated.get();
  values["n_requests_started"] = c.n_requests_started.get();
  values["n_requests_finished"] = c.n_requests_finished.get();
  values["n_requests_cancelled"] = c.n_requests_cancelled.get();
  values["n_requests_failed"] = c.n_requests_failed.get();
  nb::dict by_reason;
  for (std::size_t i = 1; i < kHostReasons; ++i) {
    by_reason[kHostReasonNames[i]] = c.n_requests_host[i].get();
  }
  values["n_requests_host"] = by_reason;
  values["n_window_graphs"] = c.n_window_graphs.get();
  values["n_prompt_graphs"] = c.n_prompt_graphs.get();
  values["n_slots_active"] = c.n_slots_active.get();
  values["n_waiting"] = c.n_waiting.get();
  values["n_cache_bytes"] = c.n_cache_bytes.get();
  values["n_cache_early_bytes"] = c.n_cache_early_bytes.get();
  values["n_cache_states"] = c.n_cache_states.get();
  values["n_cache_lost"] = c.n_cache_lost.get();
  values["n_cache_copied"] = c.n_cache_copied.get();
  values["n_cache_computed"] = c.n_cache_computed.get();
  values["n_cache_tried"] = c.n_cache_tried.get();
  values["cache_cell_ns"] = c.cache_cell_ns.get();
  values["n_cell_waits"] = c.n_cell_waits.get();
  values["n_cells_yielded"] = c.n_cells_yielded.get();
  values["cache_turn_us_max"] = c.cache_turn_us_max.get();
  values["cache_us"] = c.cache_us.get();
  values["n_ring_full"] = c.n_ring_full.get();
  values["n_ring_most"] = self.get().decode_thread().n_events_most();
  values["n_ring_max"] = self.get().decode_thread().n_events_max();
  values["cpu_us"] = self.get().decode_thread().cpu_us();
  values["steps"] = step_counters(c);
  values["n_event_writes"] = self.get().decode_thread().reader_wakeup().n_writes();
  return values;
}

nb::dict decode_loop(PyEngine& self) {
  const DecodeLoopReport& report = self.get().decode_loop();
  nb::dict info;
  info["loop"] = static_cast<int>(report.loop);
  info["reason"] = report.reason;
  info["device"] = report.card.name;
  info["choice"] = report.choice;
  info["card"] = report.card.index < 0 ? nb::object(nb::none()) : card_dict(report.card);
  info["cards"] = report.residency.cards;
  info["compiled_from"] = report.compiled_from;
  nb::dict memory;
  for (const auto& [name, use] : report.residency.memory) {
    nb::dict bytes;
    bytes["weights"] = use.weights;
    bytes["kv"] = use.kv;
    bytes["compute"] = use.compute;
    memory[name.c_str()] = bytes;
  }
  nb::dict nodes;
  for (const auto& [name, n] : report.residency.nodes) nodes[name.c_str()] = n;
  nb::list elsewhere;
  for (const std::string& tensor : report.residency.elsewhere) elsewhere.append(tensor);
  info["memory_bytes"] = memory;
  info["elsewhere"] = elsewhere;
  info["n_elsewhere"] = report.residency.n_elsewhere;
  info["n_graph_nodes"] = nodes;
  info["n_graph_splits"] = report.residency.n_splits;
  nb::list phases;
  for (const StepPhaseReport& phase : report.phases) {
    nb::dict told;
    told["phase"] = phase.phase;
    told["kernels"] = phase.ours ? "own" : "ggml";
    told["why"] = phase.why;
    told["n"] = phase.n;
    phases.append(told);
  }
  info["phases"] = phases;
  nb::list trials;
  for (const PhaseTrialReport& trial : report.phase_trials) trials.append(trial_dict(trial));
  info["phase_trials"] = trials;
  info["n_lanes"] = report.n_lanes;
  info["lanes_why"] = report.lanes_why;
  nb::list lane_steps;
  for (const LaneStepReport& step : report.lane_steps) lane_steps.append(lane_step_dict(step));
  info["lane_steps"] = lane_steps;
  nb::list lengths;
  for (const PromptLengthReport& length : report.prompt_lengths) {
    lengths.append(length_dict(length));
  }
  info["prompt_lengths"] = lengths;
  info["prompts_why"] = report.prompts_why;
  return info;
}

}  // namespace unpaced
