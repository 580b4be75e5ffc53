// Compiles the shared sampling arithmetic as device code: a whole chain on a list of candidates.
//
//   nvcc -std=c++20 -arch=sm_90 --fmad=false -I csrc -c FILE
//
// with FILE tests/unit/cpp/sampling/sampling_on_device.cu
#include "sampling/arithmetic/mt19937.h"
#include "sampling/candidates/draw.h"
#include "sampling/chain/dry.h"
#include "sampling/chain/min_p.h"
#include "sampling/chain/mirostat.h"
#include "sampling/chain/penalties.h"
#include "sampling/chain/sampling_params.h"
#include "sampling/chain/temperature.h"
#include "sampling/chain/top_k.h"
#include "sampling/chain/top_n_sigma.h"
#include "sampling/chain/top_p.h"
#include "sampling/chain/typical_p.h"
#include "sampling/chain/xtc.h"

namespace unpaced {

struct DeviceState {
  Candidates list;
  TokenTable counts;
  TokenTable longest;
  DryWindow window;
  DryBreakerView breakers;
  std::int32_t* repeats;
  Mt19937 rng;
  Mt19937 xtc_rng;
  Mirostat mirostat;
};

__global__ void sample_on_device(DeviceState* state, SamplingParams p, float log_min_p,
                                 std::int32_t n_vocab, TokenId accepted, TokenId* drawn) {
  DeviceState& s = *state;
  const DryParams dry{p.dry_multiplier, p.dry_base, p.dry_allowed_length};
  count_token(s.counts, accepted);
  uncount_token(s.counts, accepted);
  penalise(s.list, s.counts, {p.repeat_penalty, p.frequency_penalty, p.presence_penalty});
  if (find_repetitions(s.window, s.breakers, dry.allowed_length, s.repeats, s.longest)) {
    penalise_repetitions(s.list, s.longest, dry, s.breakers);
  }
  ban_below_n_sigma(s.list, p.top_n_sigma);
  keep_top_k(s.list, p.top_k);
  keep_typical_p(s.list, p.typical_p, p.min_keep);
  keep_top_p(s.list, p.top_p, p.min_keep);
  keep_min_p(s.list, p.min_p, log_min_p, p.min_keep);
  if (xtc_strikes(s.list.size, p.xtc_probability, s.xtc_rng)) {
    exclude_top_choices(s.list, p.xtc_threshold, p.min_keep);
  }
  apply_dynamic_temperature(s.list, p.temperature, p.dynatemp_range, p.dynatemp_exponent);
  const std::int32_t i = p.mirostat == 1   ? draw_mirostat_1(s.list, s.mirostat, n_vocab, s.rng)
                         : p.mirostat == 2 ? draw_mirostat_2(s.list, s.mirostat, s.rng)
                                           : draw_softmax(s.list, s.rng);
  *drawn = s.list.data[i].token;
}

}  // namespace unpaced
