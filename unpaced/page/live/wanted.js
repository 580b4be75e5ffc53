// What the live view asks of GET /metrics: the names of the series that it shows, as `?name[]=` takes them.

const OURS = [
  "completions_finished_total", "decode_loop_info", "engine_cpu_seconds_total", "engine_heartbeat_age_seconds", "engine_state",
  "engine_tokens_decoded_total", "engine_tokens_device_total", "inter_token_seconds_bucket", "kv_cells", "kv_cells_idle",
  "kv_cells_running", "kv_used_ratio", "prompt_cache_bytes", "prompt_cache_prompts", "prompt_tokens_cached_total", "prompt_tokens_total",
  "requests_rejected_total", "requests_running", "requests_waiting", "time_to_first_token_seconds_bucket", "waiting_prompt_tokens",
  // Of graphics cards.
  "gpu_clock_memory_hertz", "gpu_clock_sm_hertz", "gpu_info", "gpu_memory_bytes", "gpu_memory_used_bytes", "gpu_power_limit_watts",
  "gpu_power_watts", "gpu_temperature_celsius", "gpu_utilization_ratio",
];
const OF_PROCESS = ["process_cpu_seconds_total", "process_resident_memory_bytes", "process_start_time_seconds"];

export const WANTED = `metrics?${new URLSearchParams([...OURS.map((name) => `unpaced_${name}`), ...OF_PROCESS].map((name) => ["name[]", name]))}`;
