// Memory that a model would take, and devices that there are, as dicts.
#include "model/memory_plan.h"

#include <string>

#include "bindings/python.h"
#include "engine/stepper_factory.h"
#include "model/card_choice.h"

namespace unpaced {
namespace {

nb::dict plan_to_dict(const EngineConfig& config) {
  MemoryPlan plan;
  PlacedConfig placed;
  {
    const nb::gil_scoped_release release;
    placed = place_model(with_usable_cards(config));
    plan = plan_memory(placed.config);
  }
  nb::list uses;
  for (const MemoryUse& use : plan.uses) {
    nb::dict entry;
    entry["buffer_type"] = use.buffer_type;
    entry["device"] = use.device;
    entry["is_host"] = use.is_host;
    entry["model_bytes"] = use.model_bytes;
    entry["context_bytes"] = use.context_bytes;
    entry["compute_bytes"] = use.compute_bytes;
    entry["loop_bytes"] = use.loop_bytes;
    uses.append(entry);
  }
  nb::dict made;
  made["uses"] = uses;
  made["n_ctx"] = plan.n_ctx;
  made["n_ctx_slot"] = plan.n_ctx_slot;
  made["n_ctx_train"] = plan.n_ctx_train;
  made["n_layer"] = plan.n_layer;
  made["n_params"] = plan.n_params;
  made["description"] = plan.description;
  made["fit"] = placed.fit;
  made["choice"] = placed.choice;
  return made;
}

nb::list devices_to_list() {
  nb::list devices;
  for (const DeviceInfo& info : list_devices()) {
    nb::dict entry;
    entry["name"] = info.name;
    entry["description"] = info.description;
    entry["free_bytes"] = info.free_bytes;
    entry["total_bytes"] = info.total_bytes;
    devices.append(entry);
  }
  return devices;
}

}  // namespace

void bind_memory_plan(nb::module_& m) {
  m.def("plan_memory", &plan_to_dict, "config"_a,
        nb::sig("def plan_memory(config: EngineConfig) -> dict[str, typing.Any]"));
  m.def("list_devices", &devices_to_list,
        nb::sig("def list_devices() -> list[dict[str, typing.Any]]"));
}

}  // namespace unpaced
