// Which of several cards a model goes to, for a model whose needs are known: 1000 bytes of weights
// and 10 a token of context, on one card or divided between all.
#include "model/card_choice.h"

#include <llama.h>

#include <stdexcept>

#include "check.h"

namespace card_choice_test {
namespace {

using unpaced::DeviceInfo;
using unpaced::emptiest_card;
using unpaced::EngineConfig;
using unpaced::kEnoughContext;
using unpaced::kSplitAuto;
using unpaced::MemoryPlan;
using unpaced::MemoryUse;
using unpaced::place_model;
using unpaced::PlacedConfig;

constexpr std::int32_t kTrain = 131072;
constexpr std::size_t kWeights = 1000;
constexpr std::size_t kMargin = 100;

DeviceInfo card(const char* name, std::size_t free_bytes) {
  DeviceInfo info;
  info.name = name;
  info.free_bytes = info.total_bytes = free_bytes;
  return info;
}

// Layers off the GPU take nothing.
MemoryPlan plan(const EngineConfig& config) {
  const bool is_alone = config.options.split_mode == LLAMA_SPLIT_MODE_NONE;
  const std::int32_t n_ctx = config.n_ctx == 0 ? kTrain : config.n_ctx;
  const std::vector<std::string> names =
      is_alone ? config.options.devices : std::vector<std::string>{"CUDA0", "CUDA1"};
  MemoryPlan made;
  made.n_ctx = made.n_ctx_slot = static_cast<std::uint32_t>(n_ctx);
  made.n_ctx_train = kTrain;
  made.n_layer = 4;
  for (const std::string& name : names) {
    MemoryUse use;
    use.is_host = false;
    use.device_name = name;
    const std::size_t n_layers =
        config.n_gpu_layers < 0 ? 5 : static_cast<std::size_t>(config.n_gpu_layers);
    use.model_bytes = kWeights * n_layers / 5 / names.size();
    use.context_bytes = 10 * static_cast<std::size_t>(n_ctx) * n_layers / 5 / names.size();
    if (n_layers > 0) made.uses.push_back(use);
  }
  return made;
}

constexpr std::size_t bytes_with(std::int64_t n_ctx) {
  return kWeights + 10 * static_cast<std::size_t>(n_ctx) + kMargin;
}

EngineConfig open_config() {
  EngineConfig config;
  config.fit = true;
  config.fit_margins = {kMargin};
  return config;
}

bool is_alone_on(const PlacedConfig& placed, const std::string& name) {
  return placed.config.options.split_mode == LLAMA_SPLIT_MODE_NONE &&
         placed.config.options.devices == std::vector<std::string>{name};
}

bool is_split(const PlacedConfig& placed) {
  return placed.config.options.split_mode == LLAMA_SPLIT_MODE_LAYER &&
         placed.config.options.devices.empty();
}

TEST(the_emptiest_card_has_most_free_memory) {
  DeviceInfo shared = card("Vulkan0", 900);
  shared.is_card = false;  // such as an integrated one
  const std::vector<DeviceInfo> devices{card("CUDA0", 300), shared, card("CUDA1", 500),
                                        card("CUDA2", 500)};
  CHECK(emptiest_card(devices) == &devices[2]);
  CHECK(emptiest_card(std::span(devices).first(2)) == nullptr);  // one card: nothing to choose
  CHECK(emptiest_card({}) == nullptr);
}

TEST(a_model_that_fits_goes_to_the_emptiest_card) {
  const PlacedConfig placed =
      place_model(open_config(), plan, {card("CUDA0", 5000), card("CUDA1", bytes_with(kTrain))});
  CHECK(is_alone_on(placed, "CUDA1"));
  CHECK(placed.fit.empty());
  CHECK(placed.choice.find("CUDA1, the emptiest of 2 cards") != std::string::npos);
  CHECK(placed.choice.find("-sm layer") != std::string::npos);
}

TEST(a_context_may_become_smaller_but_stays_enough) {
  const PlacedConfig less = place_model(
      open_config(), plan, {card("CUDA0", bytes_with(40000)), card("CUDA1", bytes_with(30000))});
  CHECK(is_alone_on(less, "CUDA0"));
  CHECK(less.config.n_ctx >= kEnoughContext && less.config.n_ctx <= 40000);
  CHECK(!less.fit.empty());
  const PlacedConfig too_small = place_model(
      open_config(), plan, {card("CUDA0", bytes_with(20000)), card("CUDA1", bytes_with(20000))});
  CHECK(is_split(too_small));
  CHECK(too_small.config.n_ctx > 30000);
  CHECK(too_small.choice.find("tokens of context only") != std::string::npos);
}

TEST(a_context_that_was_asked_for_is_not_changed) {
  EngineConfig config = open_config();
  config.n_ctx = 20000;
  const std::vector<DeviceInfo> devices{card("CUDA0", bytes_with(20000)),
                                        card("CUDA1", bytes_with(10000))};
  CHECK(is_alone_on(place_model(config, plan, devices), "CUDA0"));
  config.n_ctx = 20480;
  const PlacedConfig placed = place_model(config, plan, devices);
  CHECK(is_split(placed));
  CHECK(placed.config.n_ctx == 20480);
}

TEST(a_model_that_needs_several_cards_is_split_and_says_why) {
  const PlacedConfig placed =
      place_model(open_config(), plan, {card("CUDA0", 900), card("CUDA1", 800)});
  CHECK(is_split(placed));
  CHECK(placed.choice.find("split between 2 cards: CUDA0, the emptiest, has 0.0 GiB free") !=
        std::string::npos);
}

TEST(without_fit_the_model_still_goes_to_one_card) {
  EngineConfig config = open_config();
  config.fit = false;
  CHECK(is_alone_on(
      place_model(config, plan, {card("CUDA0", bytes_with(kTrain)), card("CUDA1", 10)}), "CUDA0"));
  CHECK(is_split(place_model(config, plan, {card("CUDA0", 20000), card("CUDA1", 10)})));
}

TEST(what_was_chosen_is_not_changed) {
  const std::vector<DeviceInfo> devices{card("CUDA0", bytes_with(kTrain)),
                                        card("CUDA1", bytes_with(kTrain))};
  EngineConfig config = open_config();
  config.options.split_mode = LLAMA_SPLIT_MODE_ROW;
  CHECK(place_model(config, plan, devices).config.options.split_mode == LLAMA_SPLIT_MODE_ROW);
  config.options.split_mode = kSplitAuto;
  config.options.devices = {"CUDA1"};
  const PlacedConfig named = place_model(config, plan, devices);
  CHECK(named.config.options.devices == std::vector<std::string>{"CUDA1"});
  CHECK(named.choice.empty());
  config.options.devices.clear();
  config.n_gpu_layers = 0;
  CHECK(place_model(config, plan, devices).choice.empty());
}

TEST(of_the_named_cards_one_is_chosen) {
  EngineConfig config = open_config();
  config.options.devices = {"CUDA0", "CUDA1"};
  const std::vector<DeviceInfo> devices{card("CUDA0", 5000), card("CUDA1", bytes_with(kTrain)),
                                        card("CUDA2", 2 * bytes_with(kTrain))};
  const PlacedConfig placed = place_model(config, plan, devices);
  CHECK(is_alone_on(placed, "CUDA1"));
  CHECK(placed.choice.find("CUDA1, the emptiest of 2 cards") != std::string::npos);
}

TEST(a_card_that_cannot_be_used_is_left_out) {
  const std::vector<std::string> names{"CUDA0", "CUDA1", "CUDA2"};
  const std::vector<std::string> old{"CUDA1"};
  const std::vector<std::string> rest{"CUDA0", "CUDA2"};
  EngineConfig config = open_config();
  CHECK(unpaced::without_devices(config, names, old).options.devices == rest);
  CHECK(unpaced::without_devices(config, names, {}).options.devices.empty());
  // What was asked for stays, and is refused where it cannot be had.
  config.options.tensor_split = {3, 1, 1};
  CHECK(unpaced::without_devices(config, names, old).options.devices.empty());
  config = open_config();
  config.options.devices = {"CUDA1"};
  CHECK(unpaced::without_devices(config, names, old).options.devices == old);
  config = open_config();
  config.options.split_mode = LLAMA_SPLIT_MODE_NONE;
  CHECK(unpaced::without_devices(config, names, old).options.devices.empty());
}

TEST(one_card_is_no_choice) {
  const PlacedConfig placed = place_model(open_config(), plan, {card("CUDA0", bytes_with(kTrain))});
  CHECK(is_split(placed));  // llama.cpp's default
  CHECK(placed.choice.empty());
}

TEST(a_file_that_cannot_be_read_is_left_to_loading) {
  const auto unreadable = [](const EngineConfig&) -> MemoryPlan {
    throw std::runtime_error("no such file");
  };
  const PlacedConfig placed =
      place_model(open_config(), unreadable, {card("CUDA0", 500), card("CUDA1", 500)});
  CHECK(is_split(placed));
  CHECK(placed.choice.empty());
}

}  // namespace
}  // namespace card_choice_test
